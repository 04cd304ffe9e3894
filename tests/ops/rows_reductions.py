"""Rows of reductions, running sums, softmax and sorting."""

import numpy as np
from ops.row import Row, cube, one, two
from ops.samples import EVERY, FLOATS, distinct, near_one, normal, off_zero

FORMS = {
    "": ({}, one),
    "axis 0": ({"axis": 0}, one),
    "last axis kept": ({"axis": -1, "keepdims": True}, one),
    "two axes": ({"axis": (0, 2)}, cube),
}


def fold(name, draw=normal, least=0, ops=None, **rest):
    """Rows of a reduction over all axes, the first, the last and two of three."""
    ops = (name,) if ops is None else ops
    for form, (options, shapes) in FORMS.items():
        # Along the first axis there are always two elements to reduce.
        smallest = 0 if form == "axis 0" else least
        yield Row(f"{name} {form}".strip(), shapes, options=options, draw=draw, least=smallest, ops=ops, **rest)


def logsumexp(x, axis=None, keepdims=False):
    """By its definition: the draws are of order 1."""
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


def softmax(x, axis=-1):
    """By its definition."""
    return np.exp(x) / np.sum(np.exp(x), axis=axis, keepdims=True)


def order(x, descending=False, axis=-1):
    """Positions in order, equal ones as they stood; NaN is larger than every number."""
    wide = x.astype(np.float64)
    is_nan = np.isnan(wide)
    sign = -1 if descending else 1
    return np.lexsort((sign * np.where(is_nan, 0.0, wide), sign * is_nan), axis=axis)


def topk(x, k, axis=-1, largest=True):
    """Values and positions of the first k in order."""
    at = np.take(order(x, largest, axis), np.arange(k), axis=axis)
    return np.take_along_axis(x, at, axis), at


def few(rng, shape):
    """Many equal numbers, zeros of both signs, infinities and NaNs of both signs."""
    return rng.choice([1.0, -2.0, 0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], shape)


NONE = {"gradient": "none", "family": "exact"}
NANS = {"gives": "int64", "draw": few, "dtypes": FLOATS, **NONE}
SPREADS = {"family": "sum", "gives": "float", "draw": distinct}

REDUCTIONS = [
    *fold("sum", family="sum", gives="wide", dtypes=EVERY),
    *fold("mean", family="sum", gives="float"),
    *fold("prod", near_one, family="sum", gives="wide", dtypes=EVERY),
    *fold("max", distinct, least=1),
    *fold("min", distinct, least=1),
    *fold("any", dtypes=EVERY, gives="bool", **NONE),
    *fold("all", dtypes=EVERY, gives="bool", **NONE),
    *fold("var", ops=("mean", "sum", "square", "divide"), **SPREADS),
    *fold("std", ops=("sqrt", "square"), **SPREADS),
    *fold("count_nonzero", dtypes=EVERY, gives="int64", ops=(), **NONE),
    Row("var correction", one, options={"correction": 1, "axis": 0}, ops=("square",), **SPREADS),
    *(
        Row(
            f"logsumexp {form}".strip(),
            shapes,
            lambda x, o=options: logsumexp(x, **o),
            options=options,
            family="sum",
            gives="float",
            ops=("exp", "sum", "log"),
        )
        for form, (options, shapes) in FORMS.items()
    ),
]

ALONG = [
    *(Row(name, one, least=1, gives="int64", draw=off_zero, ops=(name,), **NONE) for name in ("argmax", "argmin")),
    *(
        Row(f"{name} axis", one, options={"axis": 0, "keepdims": True}, gives="int64", ops=(name,), **NONE)
        for name in ("argmax", "argmin")
    ),
    Row("cumsum", one, family="sum", gives="wide", dtypes=EVERY, ops=("cumsum",)),
    Row("cumsum axis", cube, options={"axis": 1}, family="sum", gives="wide", ops=("cumsum",)),
    Row("cumprod", one, draw=near_one, family="sum", gives="wide", ops=("cumprod",)),
    Row("cumprod axis", cube, options={"axis": 1}, draw=near_one, family="sum", gives="wide", ops=("cumprod",)),
    Row(
        "cumulative_sum", one, options={"axis": 1, "include_initial": True}, family="sum", gives="wide", ops=("cumsum",)
    ),
    Row(
        "cumulative_prod",
        one,
        options={"axis": 1, "include_initial": True},
        draw=near_one,
        family="sum",
        gives="wide",
        ops=("cumprod",),
    ),
    Row("softmax", one, softmax, family="sum", gives="float", ops=("softmax",)),
    Row(
        "softmax axis",
        cube,
        lambda x: softmax(x, 1),
        options={"axis": 1},
        family="sum",
        gives="float",
        ops=("softmax",),
    ),
    Row("log_softmax", one, lambda x: np.log(softmax(x)), family="sum", gives="float", ops=("log_softmax",)),
    Row(
        "log_softmax axis",
        cube,
        lambda x: np.log(softmax(x, 1)),
        options={"axis": 1},
        family="sum",
        gives="float",
        ops=("log_softmax",),
    ),
    Row("sort", one, draw=distinct, dtypes=EVERY, ops=("sort",)),
    Row("sort all", one, options={"axis": None}, draw=distinct, ops=("sort",)),
    Row(
        "sort down",
        one,
        lambda x: np.flip(np.sort(x, axis=0), axis=0),
        options={"axis": 0, "descending": True},
        draw=distinct,
        ops=("sort",),
    ),
    Row("argsort", one, order, gives="int64", **NONE),
    Row("argsort down", one, lambda x: order(x, True), options={"descending": True}, gives="int64", **NONE),
    Row(
        "topk values",
        one,
        lambda x: topk(x, 1, 0)[0],
        lambda xp, x: xp.topk(x, 1, axis=0)[0],
        draw=distinct,
        ops=("sort", "slice"),
    ),
    Row(
        "topk positions",
        one,
        lambda x: topk(x, 1, largest=False)[1],
        lambda xp, x: xp.topk(x, 1, largest=False)[1],
        gives="int64",
        least=1,
        **NONE,
    ),
    *(
        Row(f"argsort nan {way}", one, lambda x, d=d: order(x, d), options={"descending": d}, **NANS)
        for way, d in (("up", False), ("down", True))
    ),
    *(
        Row(
            f"topk nan {way}",
            cube,
            lambda x, d=d: topk(x, 2, 2, d)[1],
            lambda xp, x, d=d: xp.topk(x, 2, axis=2, largest=d)[1],
            **NANS,
        )
        for way, d in (("smallest", False), ("largest", True))
    ),
    Row("diff", two, call=lambda xp, x, y: xp.diff(x, n=2, axis=1, append=y), family="composed", ops=("subtract",)),
]

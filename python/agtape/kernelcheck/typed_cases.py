"""Owns the cases of other types than float32: each is loaded, stored, compared, added and moved in ways of its own."""

from dataclasses import replace

import numpy as np

import agtape as ag
from agtape.kernelcheck.case import Case, integers, rows_of, spread

HALVES = ("float16", "bfloat16")
WHOLES = ("int32", "int64", "uint8")
ALL = (*HALVES, *WHOLES, "bool")


def numbers(rng, n):
    """Small whole numbers that every type holds, as float32: arrays have no bfloat16."""
    return rng.integers(0, 12, n).astype(np.float32)


def drawn(dtype):
    """How arrays are drawn that a case turns into a type on the device."""
    return spread if dtype in HALVES else numbers


def family_of(dtype, family="exact"):
    """How near results of a type must be: whole numbers are exact, halves are rounded to the neighbour."""
    return dtype if dtype in HALVES and family != "exact" else "exact"


def case(name, ops, dtype, call, family="exact", columns=None, inputs=1):
    """A case whose inputs are turned into a type first, rows of so many columns where that is given."""

    def draw(rng, n):
        shape = n if columns is None else (rows_of(n, columns), columns)
        return [drawn(dtype)(rng, shape) for _ in range(inputs)]

    def typed(*tensors):
        given = [t.astype(dtype) for t in tensors]
        ag.eval(*given)
        return call(*given)

    return Case(f"{name} of {dtype}", ops, draw, typed, family_of(dtype, family))


def elementwise(dtype):
    """Cases of elementwise kernels of a type."""
    for name in ("equal", "less", "maximum", "minimum") if dtype != "bool" else ("equal", "not_equal"):
        yield case(name, (name,), dtype, getattr(ag, name), inputs=2)
    yield case("where", ("where",), dtype, lambda a, b: ag.where(a != b, a, b), inputs=2)
    yield case("broadcast", ("broadcast_to",), dtype, lambda a: ag.where(a[:1] == a, a, a[-1:]), columns=61)
    if dtype == "bool":
        yield case("logical_and", ("logical_and",), dtype, ag.logical_and, inputs=2)
        yield case("logical_not", ("logical_not",), dtype, ag.logical_not)
        return
    for name in ("add", "subtract", "multiply"):
        yield case(name, (name,), dtype, getattr(ag, name), "rounded", inputs=2)
    yield case("scaled", ("multiply", "add"), dtype, lambda a: a * 3 + 2, "rounded")
    if dtype in HALVES:
        yield case("gelu", ("gelu",), dtype, ag.nn.functional.gelu, "function")
        yield case("divide", ("divide",), dtype, lambda a, b: a / (b * b + 0.5), "rounded", inputs=2)
    else:
        yield case("floor_divide", ("floor_divide",), dtype, lambda a, b: a // (b + 1), inputs=2)
        yield case("remainder", ("remainder",), dtype, lambda a, b: a % (b + 1), inputs=2)
        yield case("bitwise_xor", ("bitwise_xor",), dtype, ag.bitwise_xor, inputs=2)
        yield case("shifts", ("bitwise_left_shift",), dtype, lambda a: (a << 2) >> 1)


def reductions(dtype):
    """Cases of reductions, scans and orderings of a type."""
    for axis in (None, 0, 1):
        where = "" if axis is None else f" axis {axis}"
        for reduce in (ag.any, ag.all) if dtype == "bool" else (ag.any, ag.all, ag.max, ag.min):
            name = reduce.__name__
            yield case(f"{name}{where}", (name,), dtype, lambda x, f=reduce, a=axis: f(x, axis=a), columns=61)
        if dtype != "bool":
            yield case(f"sum{where}", ("sum",), dtype, lambda x, a=axis: (x * x).sum(axis=a), "sum", columns=61)
    if dtype == "bool":
        yield case("count", ("sum",), dtype, lambda x: x.sum(axis=0), columns=61)
        return
    yield case("argmax", ("argmax",), dtype, lambda x: ag.argmax(x, axis=1), columns=61)
    yield case("cumsum", ("cumsum",), dtype, lambda x: ag.cumsum(x, 1), "sum", columns=61)
    yield case("sort", ("sort",), dtype, lambda x: ag.sort(x, axis=-1), columns=61)
    yield case("argsort", ("sort",), dtype, lambda x: ag.argsort(x, axis=-1), columns=61)


def movement(dtype):
    """Cases of what moves elements of a type."""
    yield case("copy", ("copy", "permute"), dtype, lambda x: x.T.copy(), columns=61)
    yield case("slice", ("slice",), dtype, lambda x: x[::-1, 3:50:4].copy(), columns=61)
    yield case("concat", ("concat",), dtype, lambda a, b: ag.concat([a, b[:, :3]], axis=1), columns=61, inputs=2)
    yield case("gather", ("gather",), dtype, lambda x: x[rows_like(x)], columns=61)
    yield case("take_along_axis", ("take_along_axis",), dtype, taken, columns=61)
    yield case("index_put", ("index_put",), dtype, put, columns=61)
    yield case("slice_assign", ("slice_assign",), dtype, sliced, columns=61)
    yield case("full", ("full",), dtype, lambda x: ag.full(x.shape, 1, dtype=dtype, device=x.device), columns=61)
    if dtype != "bool":
        added = lambda x: ag.index_add(x * 0, 0, rows_like(x), x)  # noqa: E731
        yield case("scatter_add", ("scatter_add",), dtype, added, "sum", columns=61)


def rows_like(x):
    """Row numbers with repeats, half of them counted from the end, on the tensor's device."""
    n = x.shape[0]
    return (ag.arange(n, device=x.device) * 7).remainder(n) - ag.arange(n, device=x.device).remainder(2) * n


def taken(x):
    """Elements of each row by a column number that differs from row to row."""
    columns = ag.arange(x.shape[0] * 5, device=x.device).reshape(-1, 5).remainder(x.shape[1])
    return ag.take_along_axis(x, columns, 1)


def put(x):
    """Rows replaced by others; of repeated ones the last stays."""
    y = x.copy()
    y[rows_like(x)] = x[::-1]
    return y


def sliced(x):
    """Every second column replaced by the one before the last."""
    y = x.copy()
    y[:, ::2] = x[:, -2:-1]
    return y


def rows(dtype):
    """Cases of products and row kernels of a type."""
    if dtype in HALVES:
        nn = ag.nn.functional
        for width in (10, 200):
            yield case(f"softmax {width}", ("softmax",), dtype, lambda x: ag.softmax(x, -1), "function", columns=width)
            norm = lambda x: nn.layer_norm(x, (x.shape[-1],))  # noqa: E731
            yield case(f"layer_norm {width}", ("layer_norm",), dtype, norm, "sum", columns=width)
            loss = lambda x: nn.cross_entropy(x, rows_like(x).abs().remainder(x.shape[1]))  # noqa: E731
            yield case(f"cross_entropy {width}", ("cross_entropy",), dtype, loss, "sum", columns=width)
    if dtype in (*HALVES, "int32"):
        yield case("matmul", ("matmul",), dtype, lambda a, b: a[:40] @ b[:30].T, "product", columns=61, inputs=2)


def typed_cases():
    """Cases of every type."""
    for dtype in ALL:
        yield from reductions(dtype)
        for group in (elementwise, movement, rows):
            # How elements lie shows in the first few; float32 tries how work is divided.
            yield from (replace(case, most=1009) for case in group(dtype))
    yield Case(
        "casts of negatives",
        ("astype",),
        lambda rng, n: [integers(rng, n)],
        lambda x: x.astype("int64").astype("float16"),
    )

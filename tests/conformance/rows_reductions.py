"""Owns the rows of reductions, running sums, softmax and sorting."""

import agtape as ag
from rows import Difference, Row

NO_AXES = "a tensor without axes has none to name, as in the array API standard"


def names_an_axis(input, *args, **kwargs):
    """Whether an axis is named of an input that has none."""
    return input.ndim == 0 and (bool(args) or kwargs.get("dim") is not None)


SCALARS = (Difference(NO_AXES, names_an_axis),)
# The default axis is the last.
SORTED = (Difference(NO_AXES, lambda input, *args, **kwargs: input.ndim == 0),)


def reduction(op, name=None):
    """An operator with torch's `dim` and `keepdim`."""
    name = name or op

    def call(x, dim=None, keepdim=False, **more):
        # torch's empty list of axes means all of them.
        axis = None if isinstance(dim, (list, tuple)) and not dim else dim
        return getattr(ag, name)(x, axis=axis, keepdims=keepdim, **more)

    return Row(op, name, call)


def extreme(name):
    """torch's `max` and `min` along an axis give the positions too."""

    def call(x, dim, keepdim=False):
        return getattr(ag, name)(x, dim, keepdim), getattr(ag, f"arg{name}")(x, dim, keepdim)

    return Row(f"{name}.reduction_with_dim", name, call)


def spread(op, name):
    """`var` and `std`, whose correction torch also calls `unbiased`."""

    def call(x, dim=None, unbiased=True, correction=None, keepdim=False):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        axis = None if isinstance(dim, (list, tuple)) and not dim else dim
        divisor = unbiased if correction is None else correction
        return getattr(ag, name)(x, axis=axis, correction=divisor, keepdims=keepdim)

    return Row(op, name, call)


def along(op, differs=()):
    """An operator along one axis that torch names by position."""
    return Row(op, op, lambda x, dim, **more: getattr(ag, op)(x, dim, **more), differs)


def cast_first(op, name):
    """softmax with a dtype, which torch converts to first."""

    def call(x, dim, dtype):
        return getattr(ag, name)(x.astype(dtype), dim)

    return Row(op, name, call)


def sort(x, dim=-1, descending=False, stable=False):
    """torch's sort gives values and positions."""
    return ag.sort(x, dim, descending, stable), ag.argsort(x, dim, descending, stable)


REDUCTIONS = (
    reduction("sum"),
    reduction("mean"),
    reduction("prod"),
    reduction("amax", "max"),
    reduction("amin", "min"),
    Row("max.reduction_no_dim", "max", lambda x: ag.max(x)),
    Row("min.reduction_no_dim", "min", lambda x: ag.min(x)),
    extreme("max"),
    extreme("min"),
    reduction("all"),
    reduction("any"),
    reduction("argmax"),
    reduction("argmin"),
    reduction("count_nonzero"),
    reduction("logsumexp"),
    spread("var", "var"),
    spread("var.unbiased", "var"),
    spread("std", "std"),
    spread("std.unbiased", "std"),
)

ALONG = (
    along("cumsum", SCALARS),
    Row(
        "cumprod",
        "cumprod",
        lambda x, dim, dtype=None: ag.cumprod(x if dtype is None else x.astype(dtype), dim),
        SCALARS,
    ),
    along("softmax"),
    along("log_softmax"),
    cast_first("softmax.with_dtype", "softmax"),
    cast_first("log_softmax.with_dtype", "log_softmax"),
    Row("sort", "sort", sort, SORTED),
    Row("argsort", "argsort", lambda x, *args, **kwargs: sort(x, *args, **kwargs)[1], SORTED),
    Row("topk", "topk", lambda x, k, dim=-1, largest=True, sorted=True: ag.topk(x, k, dim, largest, sorted), SCALARS),
)

ROWS = (*REDUCTIONS, *ALONG)

"""Owns the rows of indexing, scattering, searching and matrix products."""

import agtape as ag
from rows import Difference, Row
from rows_reductions import NO_AXES, names_an_axis

SCALARS = (Difference(NO_AXES, names_an_axis),)


def slice_of(x, dim=0, start=None, end=None, step=1):
    """torch's slice along one axis."""
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def put(x, indices, values, accumulate=False):
    """index_put without adding is an assignment."""
    changed = x.clone()
    changed[tuple(indices)] = values
    return changed


def adds(input, indices, values, accumulate=False):
    """Whether repeated indices add."""
    return accumulate


def search(sequence, values, *, right=False, side=None, sorter=None, out_int32=False):
    """torch's searchsorted."""
    side = side or ("right" if right else "left")
    return ag.searchsorted(sequence, values, side=side, sorter=sorter).astype("int32" if out_int32 else "int64")


def has_rows(input, *args, **kwargs):
    """Whether the sorted sequence is more than a vector."""
    return input.ndim > 1


def nonzero(x, as_tuple=False):
    """torch gives a matrix unless it is asked for a tuple."""
    found = ag.nonzero(x)
    return found if as_tuple else ag.stack(found, 1)


def scatter_add(x, dim, index, src):
    """torch lets the index be smaller than the source."""
    return ag.scatter_add(x, dim, index, src[tuple(slice(n) for n in index.shape)])


def is_smaller(input, dim, index, src):
    """Whether the index leaves positions of the other axes out."""
    axes = [a for a in range(input.ndim) if a != dim % max(input.ndim, 1)]
    return any(index.shape[a] != input.shape[a] for a in axes)


INDEXING = (
    Row("__getitem__", "Tensor.__getitem__", lambda x, key: x[key]),
    Row("select", "Tensor.__getitem__", lambda x, dim, i: x[(slice(None),) * (dim % x.ndim) + (i,)]),
    Row("slice", "Tensor.__getitem__", slice_of),
    Row("index_put", "Tensor.__setitem__", put, not_offered=(("an assignment that adds", adds),)),
    Row("index_select", "take", lambda x, dim, index: ag.take(x, index, dim), SCALARS),
    Row("take", "take", lambda x, index: ag.take(x, index)),
    Row("take_along_dim", "take_along_axis", lambda x, index, dim=None: along(x, index, dim)),
    Row(
        "scatter_add",
        "scatter_add",
        scatter_add,
        SCALARS,
        not_offered=(("an index that leaves positions of other axes out", is_smaller),),
    ),
    Row(
        "index_add",
        "index_add",
        lambda x, dim, index, source, alpha=1: ag.index_add(x, dim, index, source * alpha),
        SCALARS,
    ),
    Row("masked_select", "Tensor.masked_select", lambda x, mask: x.masked_select(mask)),
    Row("nonzero", "nonzero", nonzero, (Difference(NO_AXES, lambda x, **k: x.ndim == 0),)),
    Row(
        "searchsorted",
        "searchsorted",
        search,
        not_offered=(("a sorted sequence a row; NumPy's is one vector", has_rows),),
    ),
)


def along(x, index, dim):
    """Without an axis torch flattens both."""
    return ag.take_along_axis(x.ravel(), index.ravel(), 0) if dim is None else ag.take_along_axis(x, index, dim)


def has_unequal_axes(input, other, dims):
    """Whether an axis of size 1 is contracted with a longer one."""
    return not isinstance(dims, int) and any(input.shape[a] != other.shape[b] for a, b in zip(*dims))


def sums_an_ellipsis(inputs, equation):
    """Whether the output lacks the ellipsis of the operands."""
    operands, _, output = equation.partition("->")
    return "..." in operands and bool(output) and "..." not in output


# Samples are up to 9 in size: in sums of their products rounding errors of 1e-5 remain where terms cancel.
PRODUCTS = (
    Row("matmul", "matmul", lambda x, y: ag.matmul(x, y), slack=4),
    Row("__rmatmul__", "Tensor.__rmatmul__", lambda x, y: y @ x, slack=4),
    Row("dot", "dot", lambda x, y: ag.dot(x, y)),
    Row("outer", "outer", lambda x, y: ag.outer(x, y)),
    Row("linalg.vecdot", "vecdot", lambda x, y, dim=-1: ag.vecdot(x, y, axis=dim)),
    Row(
        "tensordot",
        "tensordot",
        lambda x, y, dims: ag.tensordot(x, y, axes=dims),
        (Difference("axes of sizes 1 and n are not summed over together, as in NumPy", has_unequal_axes),),
    ),
    Row(
        "einsum",
        "einsum",
        lambda xs, equation: ag.einsum(equation, *xs),
        (Difference("an ellipsis is not summed over, as in NumPy", sums_an_ellipsis),),
    ),
    Row("trace", "trace", lambda x: ag.trace(x)),
)

ROWS = (*INDEXING, *PRODUCTS)

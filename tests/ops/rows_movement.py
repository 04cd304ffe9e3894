"""Rows of ops that move elements: shapes, joining, and reading and writing at positions."""

import agtape as ag
import numpy as np
from ops.row import Row, cube, line, one, two
from ops.samples import EVERY, FLOATS, small

MOVES = {"dtypes": EVERY}


def moved(name, shapes, call, ops=(), least=0, reference=None, **rest):
    """A row of an op that only moves elements."""
    return Row(name, shapes, reference, call, ops=ops, least=least, **MOVES | rest)


def pads(mode):
    """A row of padding by a mode."""
    return moved(f"pad {mode}", one, lambda xp, x: xp.pad(x, ((1, 0), (2, 3)), mode=mode), ("gather",), 1)


SHAPES = [
    moved("reshape", one, lambda xp, x: xp.reshape(x, (x.shape[1], 2)), ("reshape",)),
    moved(
        "permute", cube, lambda xp, x: xp.permute(x, (2, 0, 1)), ("permute",), reference=lambda x: x.transpose(2, 0, 1)
    ),
    moved("transpose", cube, lambda xp, x: xp.transpose(x), ("permute",)),
    moved("transpose axes", cube, lambda xp, x: xp.transpose(x, (0, 2, 1)), ("permute",)),
    moved("transpose swap", cube, lambda xp, x: xp.transpose(x, 0, -1), reference=lambda x: x.swapaxes(0, -1)),
    moved("matrix_transpose", cube, lambda xp, x: xp.matrix_transpose(x), ("permute",)),
    moved("swapaxes", cube, lambda xp, x: xp.swapaxes(x, 0, 1), ("permute",)),
    moved("moveaxis", cube, lambda xp, x: xp.moveaxis(x, (0, 1), (-1, 0)), ("permute",)),
    moved("expand_dims", one, lambda xp, x: xp.expand_dims(x, (0, 2)), ("reshape",)),
    moved("squeeze", lambda n: ((1, n, 1),), lambda xp, x: xp.squeeze(x, axis=(0, 2)), ("reshape",)),
    moved("broadcast_to", one, lambda xp, x: xp.broadcast_to(x, (3, *x.shape)), ("broadcast_to",)),
    moved(
        "broadcast_arrays", lambda n: ((2, n), (n,), (2, 1)), lambda xp, *a: xp.broadcast_arrays(*a), ("broadcast_to",)
    ),
    moved("meshgrid", lambda n: ((n,), (3,)), lambda xp, *a: xp.meshgrid(*a), ("broadcast_to",)),
    moved("meshgrid rows", lambda n: ((n,), (3,)), lambda xp, *a: xp.meshgrid(*a, indexing="ij"), ("broadcast_to",)),
    moved("flip", one, lambda xp, x: xp.flip(x), ("slice",), 2),
    moved("flip axis", one, lambda xp, x: xp.flip(x, 0), ("slice",)),
    moved("flatten", one, lambda xp, x: xp.flatten(x), ("reshape",), reference=np.ravel),
    moved("unstack", one, lambda xp, x: xp.unstack(x, axis=0), ("slice",)),
    moved("copy", one, lambda xp, x: x.copy(), ("copy",)),
    moved("astype", one, lambda xp, x: x.astype("float64"), gives="float64", ops=()),
]

JOINING = [
    moved("concat", two, lambda xp, *a: xp.concat(a, axis=1), ("concat",)),
    moved("concat flat", two, lambda xp, *a: xp.concat(a, axis=None), ("concat",)),
    moved("concat many", line, lambda xp, x: xp.concat([x] * 70), ("concat",)),
    moved("stack", two, lambda xp, *a: xp.stack(a, axis=-1), ("concat",)),
    moved("split", one, lambda xp, x: xp.split(x, 2, axis=0), ("slice",)),
    moved("split places", one, lambda xp, x: xp.split(x, [1, 3], axis=1), reference=lambda x: np.split(x, [1, 3], 1)),
    moved("roll", one, lambda xp, x: xp.roll(x, 3), (), 1),
    moved("roll axes", cube, lambda xp, x: xp.roll(x, (1, -2), axis=(0, 2)), ("concat", "slice")),
    moved("repeat", one, lambda xp, x: xp.repeat(x, 3), ("broadcast_to", "reshape")),
    moved("repeat axis", one, lambda xp, x: xp.repeat(x, [2, 0], axis=0)),
    moved("tile", one, lambda xp, x: xp.tile(x, (3, 1, 2)), ("broadcast_to", "reshape")),
    moved("pad", one, lambda xp, x: xp.pad(x, 2), ()),
    moved("pad value", one, lambda xp, x: xp.pad(x, ((1, 2), (0, 1)), constant_values=1)),
    *map(pads, ("edge", "reflect", "symmetric", "wrap")),
    moved("triu", cube, lambda xp, x: xp.triu(x, 1), ("where",)),
    moved("tril", cube, lambda xp, x: xp.tril(x, -1), ("where",)),
    moved("diag", one, lambda xp, x: xp.diag(x, 1), ("gather",)),
    moved("diag vector", lambda n: ((min(n, 40),),), lambda xp, x: xp.diag(x, -1), ("index_put",)),
    moved("diagonal", cube, lambda xp, x: xp.diagonal(x, 1, 2, 0), ("gather",)),
]


def changed(xp, x, key, value):
    """x after an assignment, as a new tensor or array."""
    y = x.copy()
    y[key] = value
    return y


def added(x, key, value):
    """x with values added at positions, repeated ones too."""
    y = x.copy()
    np.add.at(y, key, value)
    return y


COLUMNS = np.array([0, -1, 0])
ALONG = np.array([[0, -1, 0], [-1, -1, 0]])
EVENS = np.array([True, False])


def tensor_of(xp, array):
    """Index arrays as the library's own."""
    return ag.tensor(array) if xp is ag else array


INDEXING = [
    moved("getitem slice", one, lambda xp, x: x[:, 1::2], ("slice",), 2),
    moved("getitem back", one, lambda xp, x: x[::-1, -2::-3], ("slice",), 2),
    moved("getitem new axes", one, lambda xp, x: x[None, ..., 0, None], ("slice", "reshape"), 2),
    moved("getitem list", one, lambda xp, x: x[[1, 0, 1]], ("gather",)),
    moved("getitem arrays", cube, lambda xp, x: x[:, COLUMNS, [[0], [2]]], ("gather",), 1),
    moved("getitem apart", cube, lambda xp, x: x[EVENS, :, 0], ("gather",)),
    moved("getitem tensor", one, lambda xp, x: x[:, tensor_of(xp, COLUMNS)], ("gather",), 1),
    moved("take", one, lambda xp, x: xp.take(x, tensor_of(xp, ALONG), axis=1), ("gather",), 1),
    moved("take flat", one, lambda xp, x: xp.take(x, COLUMNS), ("gather",), 1),
    moved(
        "take_along_axis",
        one,
        lambda xp, x: xp.take_along_axis(x, tensor_of(xp, ALONG), axis=1),
        ("take_along_axis",),
        1,
    ),
    moved("setitem slice", two, lambda xp, x, v: changed(xp, x, (slice(None), slice(1, None, 2)), v[:1, 1::2])),
    moved("setitem row", lambda n: ((2, n), (n,)), lambda xp, x, v: changed(xp, x, 1, v), ("slice_assign",), 1),
    moved("setitem number", one, lambda xp, x: changed(xp, x, (..., 0), 1), ("slice_assign",), 1),
    moved(
        "setitem arrays",
        lambda n: ((2, n), (2, 3)),
        lambda xp, x, v: changed(xp, x, (slice(None), tensor_of(xp, COLUMNS)), v),
        ("index_put",),
        1,
    ),
    moved("setitem mask", lambda n: ((2, n), (n,)), lambda xp, x, v: changed(xp, x, EVENS, v), ("index_put",)),
    Row(
        "scatter_add",
        lambda n: ((2, n), (2, 3)),
        lambda x, v: added(x, (np.arange(2)[:, None], ALONG), v),
        lambda xp, x, v: xp.scatter_add(x, 1, tensor_of(xp, ALONG), v),
        family="composed",
        ops=("scatter_along_axis",),
        least=1,
    ),
    Row(
        "index_add",
        lambda n: ((2, n), (2, 3)),
        lambda x, v: added(x, (slice(None), COLUMNS), v),
        lambda xp, x, v: xp.index_add(x, 1, COLUMNS, v),
        family="composed",
        ops=("scatter_add",),
        least=1,
    ),
    Row(
        "one_hot",
        line,
        lambda x: np.eye(4)[x],
        options={"num_classes": 4},
        draw=small,
        dtypes=("int32", "int64", "uint8"),
        gives="float32",
        gradient="none",
    ),
    moved("nonzero", one, lambda xp, x: xp.nonzero(x), gives="int64", gradient="none"),
    moved("where positions", one, lambda xp, x: xp.where(x), gives="int64", gradient="none"),
    Row("detach", one, lambda x: x, lambda xp, x: x.detach(), gradient="none", dtypes=FLOATS),
]

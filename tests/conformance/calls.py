"""Owns calls that read the same in agtape and in jax.numpy, the array API or torch: what is judged under their own names."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

FLOATS, INTEGERS, ANY = ("float32", "float64"), ("int64", "int32"), ("float32", "float64", "int64")


@dataclass(frozen=True)
class Call:
    """One call of a namespace `xp`, on arrays of these shapes and kind of values, in each of these dtypes."""

    name: str
    call: Callable
    shapes: tuple = ((3, 4),)
    values: str = "any"
    dtypes: tuple = FLOATS
    judges: tuple = ("jax.numpy", "array API")
    compares: str = "all"
    # Expected differences: a reason by judge.
    differs: dict = field(default_factory=dict)


def arrays(call, dtype, rng):
    """The arrays of a call: `any` values in (-3, 3), `unit` in (-1, 1), `positive` in (0.5, 3), `apart` at least 0.1 apart."""
    made = []
    for shape in call.shapes:
        low, high = {"unit": (-0.9, 0.9), "positive": (0.5, 3.0), "above": (1.5, 3.0)}.get(call.values, (-3.0, 3.0))
        values = rng.uniform(low, high, shape)
        if call.values == "apart":
            values = rng.permutation(int(np.prod(shape))).reshape(shape) * 0.5 - 2.0
        if dtype == "bool":
            values = values > 0
        elif dtype.startswith("int"):
            values = rng.integers(1 if call.values == "positive" else -9, 9, shape)
        made.append(np.asarray(values, dtype))
    return made


def unary(name, values="any", dtypes=FLOATS):
    """A function of one array."""
    return Call(name, lambda xp, x: getattr(xp, name)(x), values=values, dtypes=dtypes)


def binary(name, values="any", dtypes=FLOATS):
    """A function of two arrays that broadcast."""
    return Call(name, lambda xp, x, y: getattr(xp, name)(x, y), ((3, 1), (4,)), values, dtypes)


def over_axes(name, values="any", dtypes=FLOATS, several=True):
    """A reduction: over all axes, one, several, and with the axes kept."""
    some = (0, 2) if several else 1
    return (
        Call(name, lambda xp, x: getattr(xp, name)(x), ((3, 4),), values, dtypes),
        Call(name, lambda xp, x: getattr(xp, name)(x, axis=-1), ((3, 4),), values, dtypes),
        Call(name, lambda xp, x: getattr(xp, name)(x, axis=some), ((2, 3, 4),), values, dtypes),
        Call(name, lambda xp, x: getattr(xp, name)(x, axis=0, keepdims=True), ((3, 4),), values, dtypes),
    )


def by_shape(name, *argument_lists, shape=(2, 3, 4), dtypes=ANY, **more):
    """A function of one array and plain arguments: one call for each pair of positional and keyword arguments."""

    def one(args, kwargs):
        return Call(name, lambda xp, x: getattr(xp, name)(x, *args, **kwargs), (shape,), dtypes=dtypes, **more)

    return tuple(one(args, kwargs) for args, kwargs in argument_lists)


JAX, TORCH = ("jax.numpy",), ("torch",)
JAX_AND_TORCH = ("jax.numpy", "torch")

ELEMENTWISE = (
    *(unary(n, dtypes=ANY) for n in ("abs", "negative", "sign", "square", "isfinite", "isinf", "isnan")),
    unary("logical_not", dtypes=("bool",)),
    Call("logical_not", lambda xp, x: xp.logical_not(x), dtypes=ANY, judges=JAX),
    *(unary(n) for n in ("exp", "expm1", "sin", "cos", "tan", "arctan", "sinh", "cosh", "tanh", "arcsinh")),
    *(unary(n) for n in ("floor", "ceil", "trunc", "round", "nan_to_num")),
    *(unary(n, "positive") for n in ("sqrt", "log", "log2", "log10", "log1p", "reciprocal")),
    *(unary(n, "unit") for n in ("arcsin", "arccos", "arctanh")),
    unary("arccosh", "above"),
    unary("bitwise_not", dtypes=(*INTEGERS, "bool")),
    *(binary(n, dtypes=ANY) for n in ("add", "subtract", "multiply", "maximum", "minimum", "equal", "not_equal")),
    *(binary(n, dtypes=ANY) for n in ("less", "less_equal", "greater", "greater_equal")),
    *(binary(n, "positive", ANY) for n in ("floor_divide", "remainder")),
    *(binary(n) for n in ("divide", "arctan2", "logaddexp", "isclose")),
    binary("pow", "positive", ANY),
    *(binary(n, dtypes=("bool",)) for n in ("logical_and", "logical_or", "logical_xor")),
    *(binary(n, dtypes=(*INTEGERS, "bool")) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    *(binary(n, "positive", INTEGERS) for n in ("bitwise_left_shift", "bitwise_right_shift")),
    *(Call(n, lambda xp, x, n=n: getattr(xp, n)(x, 2), dtypes=ANY) for n in ("add", "subtract", "multiply", "less")),
    *(
        Call(n, lambda xp, x, n=n: getattr(xp, n)(0.5, x), judges=JAX)
        for n in ("add", "subtract", "multiply", "divide")
    ),
    Call("round", lambda xp, x: xp.round(x, 2), judges=JAX),
    Call("clip", lambda xp, x: xp.clip(x, -1, 1), dtypes=ANY),
    Call("clip", lambda xp, x: xp.clip(x, max=1), dtypes=ANY),
    Call("clip", lambda xp, x, low, high: xp.clip(x, low, high), ((3, 4), (4,), (3, 1)), judges=JAX),
    Call("where", lambda xp, x, y: xp.where(x > 0, x, y), ((3, 4), (4,)), dtypes=ANY),
    Call("allclose", lambda xp, x: xp.allclose(x, x + 1e-9), judges=JAX_AND_TORCH),
    Call("allclose", lambda xp, x: xp.allclose(x, x + 1), judges=JAX_AND_TORCH),
    Call("array_equal", lambda xp, x: xp.array_equal(x, x), dtypes=ANY, judges=JAX),
    Call("array_equal", lambda xp, x, y: xp.array_equal(x, y), ((3, 4), (3, 1)), dtypes=ANY, judges=JAX),
)

REDUCTIONS = (
    *(c for n in ("sum", "prod") for c in over_axes(n, "unit", ANY)),
    *over_axes("mean"),
    *(c for n in ("max", "min") for c in over_axes(n, "apart", ANY)),
    *(c for n in ("any", "all", "count_nonzero") for c in over_axes(n, dtypes=(*ANY, "bool"))),
    *(c for n in ("argmax", "argmin") for c in over_axes(n, dtypes=ANY, several=False)),
    *(c for n in ("var", "std") for c in over_axes(n)),
    *by_shape("var", ((), {"axis": 1, "correction": 1}), dtypes=FLOATS),
    *by_shape("std", ((), {"axis": 1, "correction": 1}), dtypes=FLOATS),
    *by_shape("sum", ((), {"axis": 1, "dtype": "float64"}), judges=JAX),
    *(c for n in ("cumsum", "cumprod") for c in by_shape(n, ((), {}), ((1,), {}), judges=JAX)),
    *(
        c
        for n in ("cumulative_sum", "cumulative_prod")
        for c in by_shape(n, ((), {"axis": 1}), ((), {"axis": -1, "include_initial": True}))
    ),
    *(
        c
        for n in ("sort", "argsort")
        for c in by_shape(n, ((), {}), ((), {"axis": 0}), ((), {"axis": 1, "descending": True}), values="apart")
    ),
    *by_shape("diff", ((), {}), ((), {"axis": 0}), ((), {"axis": 1, "n": 2}), ((), {"n": 0})),
)

SHAPES = (
    *by_shape("reshape", (((4, 6),), {}), (((2, -1),), {})),
    *by_shape("permute_dims", (((2, 0, 1),), {})),
    *by_shape("transpose", ((), {}), (((0, 2, 1),), {}), judges=JAX),
    *by_shape("matrix_transpose", ((), {})),
    *by_shape("swapaxes", ((0, 2), {}), judges=JAX_AND_TORCH),
    *by_shape("moveaxis", ((0, -1), {}), (((0, 1), (2, 0)), {})),
    *by_shape("expand_dims", ((), {"axis": 0}), ((), {"axis": -1})),
    *by_shape("squeeze", ((), {"axis": 1}), ((), {"axis": (1, 3)}), shape=(2, 1, 3, 1)),
    *by_shape("broadcast_to", (((5, 3, 4),), {}), shape=(3, 1)),
    *by_shape("flip", ((), {}), ((), {"axis": 0}), ((), {"axis": (0, 2)})),
    *by_shape("roll", ((2,), {}), ((), {"shift": 1, "axis": 0}), ((), {"shift": (1, -2), "axis": (0, 2)})),
    *by_shape("repeat", ((2,), {"axis": 1}), ((2,), {})),
    *by_shape("tile", (((2, 1, 3),), {}), (((2,),), {})),
    *by_shape("unstack", ((), {}), ((), {"axis": -1})),
    *by_shape("ravel", ((), {}), judges=JAX_AND_TORCH),
    *by_shape("triu", ((), {}), ((), {"k": 1})),
    *by_shape("tril", ((), {}), ((), {"k": -1})),
    *by_shape("diag", ((), {}), ((1,), {}), shape=(3, 4), judges=JAX_AND_TORCH),
    *by_shape("diag", ((), {}), ((-1,), {}), shape=(3,), judges=JAX_AND_TORCH),
    *by_shape("diagonal", ((), {}), ((1, 0, 2), {}), judges=JAX_AND_TORCH),
    *by_shape("trace", ((), {}), shape=(3, 4), judges=JAX_AND_TORCH),
    *by_shape("split", ((3,), {"axis": 1}), (([1, 3],), {"axis": 2}), judges=JAX),
    *by_shape("pad", ((((0, 0), (1, 2), (0, 1)),), {}), ((1,), {"constant_values": 2}), judges=JAX),
    *(
        c
        for m in ("edge", "reflect", "symmetric", "wrap")
        for c in by_shape("pad", ((((0, 0), (1, 2), (0, 3)),), {"mode": m}), judges=JAX)
    ),
    Call("concat", lambda xp, x, y: xp.concat([x, y], axis=1), ((3, 4), (3, 2)), dtypes=ANY),
    Call("concat", lambda xp, x, y: xp.concat([x, y], axis=None), ((3, 4), (2,)), dtypes=ANY),
    Call("stack", lambda xp, x, y: xp.stack([x, y], axis=-1), ((3, 4), (3, 4)), dtypes=ANY),
    Call("broadcast_arrays", lambda xp, x, y: xp.broadcast_arrays(x, y), ((3, 1), (4,)), dtypes=ANY),
    Call("meshgrid", lambda xp, x, y: xp.meshgrid(x, y), ((3,), (4,)), dtypes=ANY),
    Call("meshgrid", lambda xp, x, y: xp.meshgrid(x, y, indexing="ij"), ((3,), (4,)), dtypes=ANY),
)

POSITIONS = {"jax.numpy": "positions are int64, as in the array API standard; jax.numpy gives int32"}

INDEXING = (
    Call("take", lambda xp, x: xp.take(x, xp.asarray([2, 0, 2]), axis=1), dtypes=ANY),
    Call("take_along_axis", lambda xp, x: xp.take_along_axis(x, xp.asarray([[1], [0], [2]]), axis=1), dtypes=ANY),
    Call("nonzero", lambda xp, x: xp.nonzero(x), dtypes=(*ANY, "bool")),
    Call(
        "searchsorted",
        lambda xp, x: xp.searchsorted(xp.asarray(np.array([-1.0, 0.0, 1.0])), x),
        dtypes=("float64",),
        differs=POSITIONS,
    ),
    Call(
        "searchsorted",
        lambda xp, x: xp.searchsorted(xp.asarray(np.array([-2, 0, 0, 2])), x, side="right"),
        dtypes=("int64",),
        differs=POSITIONS,
    ),
)

PRODUCTS = (
    *(
        Call("matmul", lambda xp, x, y: xp.matmul(x, y), s, dtypes=ANY)
        for s in (((3, 4), (4, 5)), ((4,), (4,)), ((2, 1, 3, 4), (5, 4, 2)))
    ),
    *(
        Call("dot", lambda xp, x, y: xp.dot(x, y), s, judges=JAX)
        for s in (((4,), (4,)), ((3, 4), (4, 5)), ((2, 3, 4), (5, 4, 2)))
    ),
    Call("vecdot", lambda xp, x, y: xp.vecdot(x, y), ((3, 4), (3, 4)), dtypes=ANY),
    Call("vecdot", lambda xp, x, y: xp.vecdot(x, y, axis=-2), ((3, 4), (3, 4)), dtypes=ANY),
    Call("outer", lambda xp, x, y: xp.outer(x, y), ((3,), (4,)), dtypes=ANY, judges=JAX_AND_TORCH),
    Call("tensordot", lambda xp, x, y: xp.tensordot(x, y, axes=2), ((2, 3, 4), (3, 4, 5)), dtypes=ANY),
    Call("tensordot", lambda xp, x, y: xp.tensordot(x, y, axes=((0,), (1,))), ((2, 3), (4, 2)), dtypes=ANY),
    *(
        Call("einsum", lambda xp, x, y, e=e: xp.einsum(e, x, y), s, dtypes=ANY, judges=JAX_AND_TORCH)
        for e, s in (("ij,jk->ik", ((2, 3), (3, 4))), ("bij,bkj->bik", ((2, 3, 4), (2, 5, 4))), ("i,j", ((2,), (3,))))
    ),
)

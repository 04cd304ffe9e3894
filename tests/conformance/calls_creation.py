"""Owns the calls that make arrays, ask about dtypes, or are judged by torch under its names, random ones among them."""

import numpy as np
from calls import ANY, INDEXING, JAX, PRODUCTS, REDUCTIONS, SHAPES, TORCH, Call
from calls import ELEMENTWISE as SAME


def dtype_of(xp, name):
    """A namespace's own dtype object."""
    return getattr(xp, name if name != "bool" else "bool_" if hasattr(xp, "bool_") else "bool")


def no_arrays(name, call, judges=("jax.numpy", "array API"), compares="all"):
    """A call without arrays."""
    return Call(name, call, (), dtypes=("float32",), judges=judges, compares=compares)


def made(name, *args, judges=("jax.numpy", "array API")):
    """A creation function with its arguments, in float32 and int64."""
    return tuple(
        no_arrays(name, lambda xp, d=d: getattr(xp, name)(*args, dtype=dtype_of(xp, d)), judges)
        for d in ("float32", "int64")
    )


PROMOTED = {"uint8", "int32", "int64"}, {"float16", "float32", "float64"}, {"bool"}

CREATION = (
    *(c for n in ("zeros", "ones") for c in made(n, (2, 3))),
    no_arrays("empty", lambda xp: xp.empty((2, 3), dtype=xp.float32), compares="shape"),
    *made("full", (2, 3), 7),
    *made("arange", 5),
    *made("arange", 1, 9, 3),
    *made("eye", 3),
    *made("eye", 3, 4),
    no_arrays("eye", lambda xp: xp.eye(3, 4, k=1, dtype=xp.float32)),
    no_arrays("linspace", lambda xp: xp.linspace(0.0, 1.0, 5, dtype=xp.float32)),
    no_arrays("linspace", lambda xp: xp.linspace(0.0, 1.0, 5, dtype=xp.float32, endpoint=False)),
    *(Call(n, lambda xp, x, n=n: getattr(xp, n)(x), dtypes=ANY) for n in ("zeros_like", "ones_like")),
    Call("empty_like", lambda xp, x: xp.empty_like(x), dtypes=ANY, compares="shape"),
    Call("full_like", lambda xp, x: xp.full_like(x, 2), dtypes=ANY),
    Call("asarray", lambda xp, x: xp.asarray(x), dtypes=ANY),
    no_arrays("asarray", lambda xp: xp.asarray([[1, 2], [3, 4]])),
    no_arrays("array", lambda xp: xp.array([[1, 2], [3, 4]]), JAX),
    no_arrays("from_dlpack", lambda xp: xp.from_dlpack(np.arange(4.0))),
    *(
        Call("astype", lambda xp, x, d=d: xp.astype(x, dtype_of(xp, d)), dtypes=ANY)
        for d in ("float32", "float64", "int64", "bool")
    ),
)

DTYPES = (
    *(
        no_arrays(n, lambda xp, n=n, d=d, f=f: float(getattr(getattr(xp, n)(dtype_of(xp, d)), f)))
        for n, dtypes, fields in (
            ("finfo", ("float32", "float64"), ("bits", "eps", "max", "min", "smallest_normal")),
            ("iinfo", ("uint8", "int32", "int64"), ("bits", "max", "min")),
        )
        for d in dtypes
        for f in fields
    ),
    *(
        no_arrays("isdtype", lambda xp, d=d, k=k: xp.isdtype(dtype_of(xp, d), k))
        for d in ("bool", "uint8", "int64", "float32")
        for k in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "numeric")
    ),
    *(
        no_arrays(
            "result_type",
            lambda xp, a=a, b=b: np.dtype(str(xp.result_type(dtype_of(xp, a), dtype_of(xp, b))).split(".")[-1]).name,
        )
        for kind in PROMOTED
        for a in sorted(kind)
        for b in sorted(kind)
        if "float16" not in (a, b)
    ),
    *(
        no_arrays("can_cast", lambda xp, a=a, b=b: xp.can_cast(dtype_of(xp, a), dtype_of(xp, b)))
        for kind in PROMOTED
        for a in sorted(kind)
        for b in sorted(kind)
        if "float16" not in (a, b)
    ),
)


def drop_nothing(xp, x):
    """Dropout with probability 0, which torch is told that it trains."""
    return xp.dropout(x, 0.0, True) if "torch" in xp.judge else xp.dropout(x, 0.0)


def bernoulli(xp, x):
    """Draws with a probability; torch takes it from a tensor and gives it its dtype."""
    return xp.bernoulli(x * 0).bool() if "torch" in xp.judge else xp.bernoulli(0.0, x.shape)


OF_TORCH = (
    no_arrays("rand", lambda xp: xp.rand(2, 3), TORCH, "shape"),
    no_arrays("randn", lambda xp: xp.randn(2, 3), TORCH, "shape"),
    no_arrays("randint", lambda xp: xp.randint(2, 9, (2, 3)), TORCH, "shape"),
    no_arrays("normal", lambda xp: xp.normal(0.0, 1.0, (2, 3)), TORCH, "shape"),
    Call("bernoulli", bernoulli, judges=TORCH),
    Call("dropout", drop_nothing, judges=TORCH),
    Call("softplus", lambda xp, x: xp.softplus(x), judges=TORCH),
)

CALLS = (*SAME, *REDUCTIONS, *SHAPES, *INDEXING, *PRODUCTS, *CREATION, *DTYPES, *OF_TORCH)

"""Rows of the elementwise ops."""

import agtape as ag
import numpy as np
from ops.row import Row, one, three, two
from ops.samples import (
    EVERY,
    FLOATS,
    INTS,
    above_one,
    normal,
    off_integers,
    off_zero,
    open_unit,
    positive,
    small,
)
from scipy import special

TEST = {"gives": "bool", "gradient": "none", "family": "exact"}
BITS = {"gives": "same", "gradient": "none", "family": "exact"}
STEP = {"gives": "same", "gradient": "zero", "family": "exact", "draw": off_integers}


def unary(name, reference=None, draw=normal, family="function", gives="float", ops=None, **rest):
    """A row of a function of one input."""
    ops = (name.split()[0],) if ops is None else ops
    return Row(name, one, reference, draw=draw, family=family, gives=gives, ops=ops, **rest)


def binary(name, reference=None, draw=normal, family="exact", gives="same", ops=None, **rest):
    """A row of a function of two inputs."""
    ops = (name.split()[0],) if ops is None else ops
    return Row(name, two, reference, draw=draw, family=family, gives=gives, ops=ops, **rest)


def gelu(x):
    """x times the normal distribution function."""
    return x * 0.5 * (1 + special.erf(x / np.sqrt(2)))


def gelu_tanh(x):
    """Its approximation by tanh."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def relu_grad(xp, x, g):
    """g times relu's slope: on tensors by the gradient rule itself."""
    return ag.vjp(ag.relu, x)[1](g)[0] if xp is ag else g * (x > 0)


def near_zero(rng, shape):
    """Just below 0, for lower bounds."""
    return rng.uniform(-1, -0.1, shape)


UNARY = [
    unary("negative", family="exact", gives="same"),
    unary("abs", draw=off_zero, family="exact", gives="same"),
    unary("sign", **STEP | {"draw": off_zero}, ops=("sign",)),
    unary("square", family="rounded", gives="same"),
    unary("sqrt", draw=positive, family="rounded"),
    unary("rsqrt", lambda x: 1 / np.sqrt(x), positive),
    unary("reciprocal", draw=off_zero, family="rounded"),
    *map(unary, ("exp", "expm1", "sin", "cos", "arctan", "sinh", "cosh", "tanh", "arcsinh")),
    *(unary(name, draw=positive) for name in ("log", "log1p", "log2", "log10")),
    *(unary(name, draw=open_unit) for name in ("tan", "arcsin", "arccos", "arctanh")),
    unary("arccosh", draw=above_one),
    unary("sigmoid", special.expit),
    unary("relu", lambda x: np.maximum(x, 0), off_zero, "exact", "same"),
    unary("gelu", gelu),
    unary("gelu tanh", gelu_tanh, options={"approximate": "tanh"}, ops=("gelu_tanh",)),
    unary("silu", lambda x: x * special.expit(x)),
    unary("softplus", lambda x: np.logaddexp(x, 0)),
    unary("erf", special.erf),
    *(unary(name, **STEP) for name in ("floor", "ceil", "trunc", "round")),
    unary("round decimals", options={"decimals": 1}, **STEP | {"family": "composed"}, dtypes=("float64", "float32")),
    unary("round tens", options={"decimals": -1}, **STEP | {"draw": lambda r, s: r.uniform(-99, 99, s)}, dtypes=INTS),
    unary("logical_not", dtypes=EVERY, **TEST),
    unary("bitwise_not", dtypes=(*INTS, "bool"), **BITS),
    *(unary(name, **TEST) for name in ("isnan", "isfinite", "isinf")),
    unary("nan_to_num", family="exact", gives="same", ops=("where",)),
    Row("clip", one, options={"min": -1, "max": 1}, draw=off_integers, dtypes=FLOATS, ops=("maximum", "minimum")),
]

BINARY = [
    binary("add", family="rounded"),
    binary("subtract", family="rounded"),
    binary("multiply", family="rounded"),
    binary("divide", draw=(normal, off_zero), family="rounded", gives="float"),
    binary("floor_divide", draw=(normal, off_zero), gradient="zero"),
    binary("remainder", draw=(normal, off_zero), family="function"),
    binary("pow", draw=(positive, normal), family="function", dtypes=FLOATS),
    binary("pow integers", draw=small, gradient="none", dtypes=INTS),
    binary(
        "pow numbers",
        call=lambda xp, x, y: xp.pow(x, 2) + xp.pow(y, 0.5) + xp.pow(2.0, x),
        draw=positive,
        ops=("square", "sqrt", "pow", "add"),
        family="composed",
        dtypes=FLOATS,
    ),
    binary("maximum"),
    binary("minimum"),
    binary("arctan2", draw=off_zero, family="function", gives="float"),
    binary("logaddexp", family="function", gives="float", ops=("exp", "sum", "log")),
    binary("relu_grad", call=relu_grad, draw=(off_zero, normal), dtypes=FLOATS, ops=("relu_grad",)),
    *(binary(name, dtypes=EVERY, **TEST) for name in ("equal", "not_equal", "less", "less_equal")),
    *(binary(name, dtypes=EVERY, **TEST) for name in ("greater", "greater_equal")),
    *(binary(name, dtypes=EVERY, ops=(), **TEST) for name in ("logical_and", "logical_or", "logical_xor")),
    *(binary(name, dtypes=(*INTS, "bool"), **BITS) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    *(binary(f"bitwise_{way}_shift", draw=(normal, small), dtypes=INTS, **BITS) for way in ("left", "right")),
    binary("isclose", draw=small, ops=(), options={"rtol": 0.0, "atol": 1.0}, **TEST),
    Row(
        "where",
        two,
        call=lambda xp, x, y: xp.where(x > 0, x, y),
        draw=(off_zero, normal),
        dtypes=EVERY,
        ops=("where",),
    ),
    Row(
        "clip tensors", three, np.clip, lambda xp, *a: xp.clip(*a), draw=(normal, near_zero, positive), ops=("maximum",)
    ),
]

"""Owns the rows of elementwise operators."""

import operator

import agtape as ag
from rows import Row


def unary(op, name=None, **more):
    """An operator of one tensor under agtape's name."""
    name = name or op
    return Row(op, name, lambda x: getattr(ag, name)(x), **more)


def binary(op, name=None, **more):
    """An operator of two tensors or numbers under agtape's name."""
    name = name or op
    return Row(op, name, lambda x, y: getattr(ag, name)(x, y), **more)


def reflected(op, apply):
    """A reflected operator of Python."""
    return Row(op, f"Tensor.{op}", lambda x, y: apply(y, x))


def scaled(name):
    """`add` and `sub`, whose second argument torch scales by alpha."""
    function = getattr(ag, name)
    return lambda x, y, alpha=1: function(x, y if alpha == 1 else ag.multiply(y, alpha))


UNARY = (
    unary("abs"),
    unary("acos", "arccos"),
    unary("acosh", "arccosh"),
    unary("asin", "arcsin"),
    unary("asinh", "arcsinh"),
    unary("atan", "arctan"),
    unary("atanh", "arctanh"),
    unary("bitwise_not"),
    unary("ceil"),
    unary("cos"),
    unary("cosh"),
    unary("erf"),
    unary("exp"),
    unary("expm1"),
    unary("floor"),
    unary("isfinite"),
    unary("isinf"),
    unary("isnan"),
    unary("log"),
    unary("log10"),
    unary("log1p"),
    unary("log2"),
    unary("logical_not"),
    unary("neg", "negative"),
    Row("positive", "Tensor.__pos__", lambda x: +x),
    unary("reciprocal"),
    unary("round"),
    Row("round.decimals_0", "round", lambda x, decimals: ag.round(x, decimals)),
    Row("round.decimals_3", "round", lambda x, decimals: ag.round(x, decimals)),
    Row("round.decimals_neg_3", "round", lambda x, decimals: ag.round(x, decimals)),
    unary("rsqrt"),
    unary("sigmoid"),
    unary("sign"),
    unary("sin"),
    unary("sinh"),
    unary("sqrt"),
    unary("square"),
    unary("tan"),
    unary("tanh"),
    unary("trunc"),
    Row("nan_to_num", "nan_to_num", lambda x, **given: ag.nan_to_num(x, **given)),
)

BINARY = (
    Row("add", "add", scaled("add")),
    Row("sub", "subtract", scaled("subtract")),
    binary("mul", "multiply"),
    Row("div.no_rounding_mode", "divide", lambda x, y, rounding_mode=None: ag.divide(x, y)),
    binary("true_divide", "divide"),
    Row("div.floor_rounding", "floor_divide", lambda x, y, rounding_mode: ag.floor_divide(x, y)),
    binary("floor_divide"),
    binary("remainder"),
    binary("pow", slack=4),  # gradients of 1e4: both libraries are a few units in the last place from the truth
    binary("maximum"),
    binary("minimum"),
    binary("max.binary", "maximum"),
    binary("min.binary", "minimum"),
    binary("atan2", "arctan2"),
    binary("logaddexp"),
    binary("eq", "equal"),
    binary("ne", "not_equal"),
    binary("lt", "less"),
    binary("le", "less_equal"),
    binary("gt", "greater"),
    binary("ge", "greater_equal"),
    binary("logical_and"),
    binary("logical_or"),
    binary("logical_xor"),
    binary("bitwise_and"),
    binary("bitwise_or"),
    binary("bitwise_xor"),
    binary("bitwise_left_shift"),
    binary("bitwise_right_shift"),
    Row("isclose", "isclose", lambda x, y, **given: ag.isclose(x, y, **given)),
    Row("allclose", "allclose", lambda x, y, **given: ag.allclose(x, y, **given)),
    binary("equal", "array_equal"),
    reflected("__radd__", operator.add),
    reflected("__rsub__", operator.sub),
    reflected("__rmul__", operator.mul),
    reflected("__rmod__", operator.mod),
    reflected("__rpow__", operator.pow),
    reflected("__rand__", operator.and_),
    reflected("__ror__", operator.or_),
    reflected("__rxor__", operator.xor),
    Row("__rdiv__", "Tensor.__rtruediv__", lambda x, y: y / x),
    Row("rsub", "Tensor.__rsub__", lambda x, y, alpha=1: y - x * alpha),
)

CHOICE = (
    Row("clamp", "clip", lambda x, min=None, max=None: ag.clip(x, min, max)),
    Row("clamp_min", "clip", lambda x, min: ag.clip(x, min)),
    Row("clamp_max", "clip", lambda x, max: ag.clip(x, max=max)),
    Row("where", "where", lambda x, condition, other: ag.where(condition, x, other)),
)

ROWS = (*UNARY, *BINARY, *CHOICE)

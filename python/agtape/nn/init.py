"""Owns the initial values of parameters: functions that give a tensor new random or constant values, unrecorded."""

import math

import agtape as ag
from agtape._core import Tensor
from agtape.arguments import as_number, as_word
from agtape.nn.functional.checks import kind_of

_GAINS = {
    "linear": 1.0,
    "sigmoid": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


def calculate_gain(nonlinearity, param=None):
    """The factor by which a nonlinearity asks for larger weights.

    Args:
        nonlinearity: 'linear', 'sigmoid', 'tanh', 'relu', 'leaky_relu' or 'selu'.
        param: the slope of 'leaky_relu', default 0.01.

    Returns:
        A float.

    Raises:
        ValueError: another nonlinearity.

    >>> calculate_gain("relu") == 2 ** 0.5
    True
    """
    return _gain("calculate_gain", nonlinearity, "param", param)


def uniform_(tensor, a=0.0, b=1.0):
    """Fill with values drawn evenly from [a, b).

    Args:
        tensor: a floating tensor; it keeps its identity and gets a new value.
        a, b: the bounds.

    Returns:
        The tensor.

    Raises:
        TypeError: no tensor, or one that is not floating.

    >>> import agtape as ag
    >>> bool((uniform_(ag.zeros(3), 2.0, 3.0) >= 2.0).all())
    True
    """
    a, b = as_number("uniform_", "a", a), as_number("uniform_", "b", b)
    drawn = _drawn("uniform_", ag.rand, tensor)
    return tensor.assign_(drawn * (b - a) + a)


def normal_(tensor, mean=0.0, std=1.0):
    """Fill with values drawn from a normal distribution.

    Args:
        tensor: a floating tensor; it keeps its identity and gets a new value.
        mean, std: of the distribution.

    Returns:
        The tensor.

    Raises:
        TypeError: no tensor, or one that is not floating.

    >>> import agtape as ag
    >>> normal_(ag.zeros(3), std=0.0).tolist()
    [0.0, 0.0, 0.0]
    """
    mean, std = as_number("normal_", "mean", mean), as_number("normal_", "std", std)
    drawn = _drawn("normal_", ag.randn, tensor)
    return tensor.assign_(drawn * std + mean)


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0):
    """Fill with normal values cut off at [a, b]: values outside are drawn again, up to eight times, then clipped.

    Args:
        tensor: a floating tensor; it keeps its identity and gets a new value.
        mean, std: of the distribution before the cut.
        a, b: the bounds.

    Returns:
        The tensor.

    Raises:
        ValueError: a is not below b; TypeError: no tensor, or one that is not floating.

    >>> import agtape as ag
    >>> trunc_normal_(ag.zeros(100)).max().item() <= 2.0
    True
    """
    mean, std = as_number("trunc_normal_", "mean", mean), as_number("trunc_normal_", "std", std)
    a, b = as_number("trunc_normal_", "a", a), as_number("trunc_normal_", "b", b)
    if not a < b:
        raise ValueError(f"trunc_normal_: a={a} and b={b}; expected a below b")
    value = _drawn("trunc_normal_", ag.randn, tensor) * std + mean
    for _ in range(8):
        again = _drawn("trunc_normal_", ag.randn, tensor) * std + mean
        value = ag.where((value < a) | (value > b), again, value)
    return tensor.assign_(ag.clip(value, a, b))


def constant_(tensor, val):
    """Fill with one value.

    Args:
        tensor: any tensor; it keeps its identity and gets a new value.
        val: a number.

    Returns:
        The tensor.

    Raises:
        TypeError: val is not a number, or the tensor none.

    >>> import agtape as ag
    >>> constant_(ag.zeros(2), 3.0).tolist()
    [3.0, 3.0]
    """
    _check_tensor("constant_", tensor)
    return tensor.assign_(ag.full_like(tensor, as_number("constant_", "val", val)))


def zeros_(tensor):
    """Fill with 0; see `constant_`.

    >>> import agtape as ag
    >>> zeros_(ag.ones(2)).tolist()
    [0.0, 0.0]
    """
    return constant_(tensor, 0)


def ones_(tensor):
    """Fill with 1; see `constant_`.

    >>> import agtape as ag
    >>> ones_(ag.zeros(2)).tolist()
    [1.0, 1.0]
    """
    return constant_(tensor, 1)


def xavier_uniform_(tensor, gain=1.0):
    """Fill evenly so that forward and backward variances balance (Glorot and Bengio 2010, equation 16).

    Args:
        tensor: a weight of shape (out, in, ...); it keeps its identity and gets a new value.
        gain: factor, see `calculate_gain`.

    Returns:
        The tensor.

    Raises:
        ValueError: fewer than two axes; TypeError: no tensor, or one that is not floating.

    >>> import agtape as ag
    >>> xavier_uniform_(ag.zeros((3, 3))).max().item() <= 1.0
    True
    """
    bound = as_number("xavier_uniform_", "gain", gain) * math.sqrt(6.0 / sum(_fans("xavier_uniform_", tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor, gain=1.0):
    """Fill normally so that forward and backward variances balance (Glorot and Bengio 2010, equation 12).

    Args:
        tensor: a weight of shape (out, in, ...); it keeps its identity and gets a new value.
        gain: factor, see `calculate_gain`.

    Returns:
        The tensor.

    Raises:
        ValueError: fewer than two axes; TypeError: no tensor, or one that is not floating.

    >>> import agtape as ag
    >>> xavier_normal_(ag.zeros((3, 3))).shape
    (3, 3)
    """
    gain = as_number("xavier_normal_", "gain", gain)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_fans("xavier_normal_", tensor))))


def kaiming_uniform_(tensor, a=0.0, mode="fan_in", nonlinearity="leaky_relu"):
    """Fill evenly so that rectifiers keep the variance (He et al. 2015, section 2.2).

    Args:
        tensor: a weight of shape (out, in, ...); it keeps its identity and gets a new value.
        a: the slope of 'leaky_relu'.
        mode: 'fan_in' keeps the forward variance, 'fan_out' the backward one.
        nonlinearity: see `calculate_gain`.

    Returns:
        The tensor.

    Raises:
        ValueError: fewer than two axes, or another mode or nonlinearity; TypeError: no tensor, or one that is not floating.

    >>> import agtape as ag
    >>> kaiming_uniform_(ag.zeros((3, 6)), nonlinearity="relu").max().item() <= 1.0
    True
    """
    bound = math.sqrt(3.0) * _kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor, a=0.0, mode="fan_in", nonlinearity="leaky_relu"):
    """Fill normally so that rectifiers keep the variance (He et al. 2015, section 2.2).

    Args:
        tensor: a weight of shape (out, in, ...); it keeps its identity and gets a new value.
        a: the slope of 'leaky_relu'.
        mode: 'fan_in' keeps the forward variance, 'fan_out' the backward one.
        nonlinearity: see `calculate_gain`.

    Returns:
        The tensor.

    Raises:
        ValueError: fewer than two axes, or another mode or nonlinearity; TypeError: no tensor, or one that is not floating.

    >>> import agtape as ag
    >>> kaiming_normal_(ag.zeros((3, 6))).shape
    (3, 6)
    """
    return normal_(tensor, 0.0, _kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity))


def _gain(op, nonlinearity, name, slope):
    """`calculate_gain`, under the name of whoever asks; `name` is that of the slope."""
    slope = as_number(op, name, 0.01 if slope is None else slope)
    if as_word(op, "nonlinearity", nonlinearity, (*_GAINS, "leaky_relu")) == "leaky_relu":
        return math.sqrt(2.0 / (1 + slope * slope))
    return _GAINS[nonlinearity]


def _drawn(op, draw, tensor):
    """Random numbers of a floating tensor's shape; float32 for the 16-bit types, which are rounded to at the end."""
    _check_tensor(op, tensor)
    if kind_of(tensor.dtype) != "float":
        raise TypeError(f"{op}: the tensor is {tensor.dtype}; expected a floating dtype")
    dtype = "float64" if tensor.dtype == "float64" else "float32"
    return draw(tuple(tensor.shape), dtype=dtype, device=tensor.device)


def _check_tensor(op, tensor):
    """Raise unless it is a tensor, which keeps its identity."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{op}: tensor is {type(tensor).__name__}; expected a tensor")


def _fans(op, tensor):
    """The number of inputs and outputs that one output and one input of a weight connect to (at least 1 each)."""
    _check_tensor(op, tensor)
    if tensor.ndim < 2:
        raise ValueError(f"{op}: the tensor has shape {tuple(tensor.shape)}; expected at least two axes (out, in, ...)")
    field = math.prod(tensor.shape[2:])
    return max(tensor.shape[1] * field, 1), max(tensor.shape[0] * field, 1)


def _kaiming_std(op, tensor, a, mode, nonlinearity):
    as_word(op, "mode", mode, ("fan_in", "fan_out"))
    gain = _gain(op, nonlinearity, "a", a)
    fan_in, fan_out = _fans(op, tensor)
    return gain / math.sqrt(fan_in if mode == "fan_in" else fan_out)

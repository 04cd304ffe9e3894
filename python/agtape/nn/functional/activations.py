"""Owns the activation functions."""

import agtape as ag
from agtape.arguments import as_int, as_number
from agtape.nn.functional.checks import as_tensor, one_axis


def relu(input):
    """max(input, 0); its gradient at 0 is 0.

    Args:
        input: tensor of any shape.

    Returns:
        A tensor of the same shape.

    Raises:
        TypeError: the input is neither a tensor nor an array, or not numeric.

    >>> import agtape as ag
    >>> ag.nn.functional.relu(ag.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return ag.relu(input)


def relu6(input):
    """min(max(input, 0), 6).

    Args:
        input: tensor of any shape.

    Returns:
        A tensor of the same shape.

    Raises:
        TypeError: the input is neither a tensor nor an array, or not numeric.

    >>> import agtape as ag
    >>> ag.nn.functional.relu6(ag.tensor([-1.0, 9.0])).tolist()
    [0.0, 6.0]
    """
    return ag.clip(as_tensor("relu6", "input", input), 0.0, 6.0)


def leaky_relu(input, negative_slope=0.01):
    """input where it is positive, else negative_slope * input.

    Args:
        input: tensor of any shape.
        negative_slope: slope below 0, and at it.

    Returns:
        A tensor of the same shape.

    Raises:
        TypeError: the input is neither a tensor nor an array, or not numeric.

    >>> import agtape as ag
    >>> ag.nn.functional.leaky_relu(ag.tensor([-2.0, 2.0]), 0.5).tolist()
    [-1.0, 2.0]
    """
    input = as_tensor("leaky_relu", "input", input)
    return ag.where(input > 0, input, input * as_number("leaky_relu", "negative_slope", negative_slope))


def elu(input, alpha=1.0):
    """input where it is positive, else alpha * (exp(input) - 1).

    Args:
        input: tensor of any shape.
        alpha: scale of the negative part.

    Returns:
        A tensor of the same shape.

    Raises:
        TypeError: the input is neither a tensor nor an array, or not numeric.

    >>> import agtape as ag
    >>> ag.nn.functional.elu(ag.tensor([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    input, alpha = as_tensor("elu", "input", input), as_number("elu", "alpha", alpha)
    is_positive = input > 0
    # expm1 sees no positive value, whose exponential could overflow and turn the unused branch's gradient into NaN.
    return ag.where(is_positive, input, ag.expm1(ag.where(is_positive, 0.0, input)) * alpha)


def gelu(input, approximate="none"):
    """The Gaussian error linear unit, x * Phi(x) (Hendrycks and Gimpel 2016, section 2).

    Args:
        input: tensor of any shape.
        approximate: 'none' for the error function, 'tanh' for the paper's approximation.

    Returns:
        A tensor of the same shape.

    Raises:
        ValueError: approximate is another word; TypeError: the input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.functional.gelu(ag.tensor([0.0])).tolist()
    [0.0]
    """
    return ag.gelu(input, approximate=approximate)


def silu(input):
    """input * sigmoid(input), also called swish.

    Args:
        input: tensor of any shape.

    Returns:
        A tensor of the same shape.

    Raises:
        TypeError: the input is neither a tensor nor an array, or not numeric.

    >>> import agtape as ag
    >>> ag.nn.functional.silu(ag.tensor([0.0])).tolist()
    [0.0]
    """
    return ag.silu(input)


def mish(input):
    """input * tanh(softplus(input)) (Misra 2019).

    Args:
        input: tensor of any shape.

    Returns:
        A tensor of the same shape.

    Raises:
        TypeError: the input is neither a tensor nor an array, or not numeric.

    >>> import agtape as ag
    >>> ag.nn.functional.mish(ag.tensor([0.0])).tolist()
    [0.0]
    """
    input = as_tensor("mish", "input", input)
    return input * ag.tanh(ag.softplus(input))


def softplus(input, beta=1.0, threshold=20.0):
    """log(1 + exp(beta * input)) / beta, and the input itself where beta * input exceeds the threshold.

    Args:
        input: tensor of any shape.
        beta: sharpness.
        threshold: where the line takes over.

    Returns:
        A tensor of the same shape.

    Raises:
        ValueError: beta is 0; TypeError: the input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.functional.softplus(ag.tensor([100.0])).tolist()
    [100.0]
    """
    beta, threshold = as_number("softplus", "beta", beta), as_number("softplus", "threshold", threshold)
    if beta == 1.0 and threshold == 20.0:
        return ag.softplus(input)  # beyond 20 the two differ by less than 2.1e-9
    if beta == 0:
        raise ValueError("softplus: beta is 0; expected another number")
    input = as_tensor("softplus", "input", input)
    scaled = input * beta
    return ag.where(scaled > threshold, input, ag.softplus(scaled) / beta)


def sigmoid(input):
    """1 / (1 + exp(-input)).

    Args:
        input: tensor of any shape.

    Returns:
        A tensor of the same shape.

    Raises:
        TypeError: the input is neither a tensor nor an array, or not numeric.

    >>> import agtape as ag
    >>> ag.nn.functional.sigmoid(ag.tensor([0.0])).tolist()
    [0.5]
    """
    return ag.sigmoid(input)


def logsigmoid(input):
    """log(sigmoid(input)), without overflow.

    Args:
        input: tensor of any shape.

    Returns:
        A tensor of the same shape.

    Raises:
        TypeError: the input is neither a tensor nor an array, or not numeric.

    >>> import agtape as ag
    >>> ag.nn.functional.logsigmoid(ag.tensor([-200.0])).tolist()
    [-200.0]
    """
    return -ag.softplus(-as_tensor("logsigmoid", "input", input))


def tanh(input):
    """The hyperbolic tangent.

    Args:
        input: tensor of any shape.

    Returns:
        A tensor of the same shape.

    Raises:
        TypeError: the input is neither a tensor nor an array, or not numeric.

    >>> import agtape as ag
    >>> ag.nn.functional.tanh(ag.tensor([0.0])).tolist()
    [0.0]
    """
    return ag.tanh(input)


def softmax(input, dim=None, *, axis=None):
    """exp(input) divided by its sum along one axis, without overflow.

    Args:
        input: tensor of any shape.
        dim: the axis (`axis` means the same); default: the last.

    Returns:
        A tensor of the same shape that sums to 1 along the axis.

    Raises:
        ValueError: the axis does not exist; TypeError: both `dim` and `axis` are given, an axis is no int, or the input is neither a
            tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.functional.softmax(ag.tensor([3.0, 3.0]), dim=-1).tolist()
    [0.5, 0.5]
    """
    return ag.softmax(input, axis=one_axis("softmax", dim, axis, -1))


def log_softmax(input, dim=None, *, axis=None):
    """The logarithm of softmax, without overflow.

    Args:
        input: tensor of any shape.
        dim: the axis (`axis` means the same); default: the last.

    Returns:
        A tensor of the same shape.

    Raises:
        ValueError: the axis does not exist; TypeError: both `dim` and `axis` are given, an axis is no int, or the input is neither a
            tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.functional.log_softmax(ag.tensor([5.0]), dim=0).tolist()
    [0.0]
    """
    return ag.log_softmax(input, axis=one_axis("log_softmax", dim, axis, -1))


def glu(input, dim=-1, *, axis=None):
    """The gated linear unit: the first half along one axis times the sigmoid of the second (Dauphin et al. 2017, section 2).

    Args:
        input: tensor whose length along the axis is even.
        dim: the axis (`axis` means the same).

    Returns:
        A tensor with half the length along the axis.

    Raises:
        ValueError: the length is odd, or the axis does not exist; TypeError: the axis is no int, or the input is neither a tensor nor an
            array.

    >>> import agtape as ag
    >>> ag.nn.functional.glu(ag.tensor([4.0, 0.0])).tolist()
    [2.0]
    """
    where = as_int("glu", *(("dim", dim) if axis is None else ("axis", axis)))
    input = as_tensor("glu", "input", input)
    if not -input.ndim <= where < input.ndim:
        raise ValueError(f"glu: axis {where} is out of range; the shape is {tuple(input.shape)}")
    if input.shape[where] % 2:
        raise ValueError(f"glu: the length along axis {where} is {input.shape[where]}; expected an even number")
    value, gate = ag.split(input, 2, axis=where)
    return value * ag.sigmoid(gate)

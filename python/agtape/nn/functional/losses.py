"""Owns the loss functions that compare real numbers: mse, l1, huber, binary cross-entropy with logits."""

import agtape as ag
from agtape.arguments import as_number
from agtape.nn.functional.checks import as_tensor, kind_of, reduce, same_shape


def mse_loss(input, target, reduction="mean", weight=None):
    """The mean squared error.

    Args:
        input: tensor of any shape.
        target: tensor or array of the same shape.
        reduction: 'mean', 'sum' or 'none'.
        weight: tensor that broadcasts to that shape; multiplies each term, and 'mean' divides by its sum.

    Returns:
        A scalar, or with 'none' a tensor of the input's shape.

    Raises:
        ValueError: the shapes differ, or the reduction is another word; TypeError: something is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.functional.mse_loss(ag.tensor([1.0, 2.0]), ag.tensor([1.0, 4.0])).item()
    2.0
    """
    input = as_tensor("mse_loss", "input", input)
    values = ag.square(input - _target("mse_loss", target, input))
    return _weighted("mse_loss", values, weight, reduction)


def l1_loss(input, target, reduction="mean", weight=None):
    """The mean absolute error; its gradient where the two are equal is 0.

    Args:
        input: tensor of any shape.
        target: tensor or array of the same shape.
        reduction: 'mean', 'sum' or 'none'.
        weight: tensor that broadcasts to that shape; multiplies each term, and 'mean' divides by its sum.

    Returns:
        A scalar, or with 'none' a tensor of the input's shape.

    Raises:
        ValueError: the shapes differ, or the reduction is another word; TypeError: something is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.functional.l1_loss(ag.tensor([1.0, 2.0]), ag.tensor([1.0, 4.0])).item()
    1.0
    """
    input = as_tensor("l1_loss", "input", input)
    values = ag.abs(input - _target("l1_loss", target, input))
    return _weighted("l1_loss", values, weight, reduction)


def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """Half the squared error up to delta, and delta * (|error| - delta / 2) beyond (Huber 1964).

    Args:
        input: tensor of any shape.
        target: tensor or array of the same shape.
        reduction: 'mean', 'sum' or 'none'.
        delta: where the line takes over; positive.
        weight: tensor that broadcasts to that shape; multiplies each term, and 'mean' divides by its sum.

    Returns:
        A scalar, or with 'none' a tensor of the input's shape.

    Raises:
        ValueError: the shapes differ, delta is not positive, or the reduction is another word; TypeError: something is neither a tensor
            nor an array.

    >>> import agtape as ag
    >>> ag.nn.functional.huber_loss(ag.tensor([0.0, 0.0]), ag.tensor([1.0, 3.0])).item()
    1.5
    """
    delta = as_number("huber_loss", "delta", delta)
    if not delta > 0:
        raise ValueError(f"huber_loss: delta is {delta!r}; expected a positive number")
    input = as_tensor("huber_loss", "input", input)
    distance = ag.abs(input - _target("huber_loss", target, input))
    values = ag.where(distance <= delta, ag.square(distance) * 0.5, (distance - 0.5 * delta) * delta)
    return _weighted("huber_loss", values, weight, reduction)


def binary_cross_entropy_with_logits(input, target, weight=None, reduction="mean", pos_weight=None):
    """Cross-entropy of independent yes-or-no labels, from logits and without overflow.

    Args:
        input: logits of any shape.
        target: tensor or array of the same shape with values from 0 to 1.
        weight: tensor that broadcasts to that shape; multiplies each term ('mean' still divides by the number of terms).
        reduction: 'mean', 'sum' or 'none'.
        pos_weight: weight of the positive answers, a tensor that broadcasts to that shape.

    Returns:
        A scalar, or with 'none' a tensor of the input's shape.

    Raises:
        ValueError: the shapes differ, or the reduction is another word; TypeError: something is neither a tensor nor an array.

    >>> import agtape as ag
    >>> round(ag.nn.functional.binary_cross_entropy_with_logits(ag.tensor([0.0]), ag.tensor([1.0])).item(), 4)
    0.6931
    """
    op = "binary_cross_entropy_with_logits"
    input = as_tensor(op, "input", input)
    target = _target(op, target, input)
    if kind_of(target.dtype) != "float":
        target = target.astype(input.dtype)
    if pos_weight is None:
        values = ag.softplus(input) - input * target
    else:
        pos_weight = as_tensor(op, "pos_weight", pos_weight, input)
        # -w t log s(x) - (1 - t) log(1 - s(x)), with log s(x) = -softplus(-x) and log(1 - s(x)) = -softplus(-x) - x
        values = (1 - target) * input + ((pos_weight - 1) * target + 1) * ag.softplus(-input)
    if weight is not None:
        values = values * as_tensor(op, "weight", weight, input)
    return reduce(op, values, reduction)


def _target(op, target, input):
    """The target as a tensor of the input's shape."""
    target = as_tensor(op, "target", target, input)
    same_shape(op, input, target)
    return target


def _weighted(op, values, weight, reduction):
    """The terms reduced; with weights each is multiplied by its own, and the mean divides by their sum."""
    if weight is None:
        return reduce(op, values, reduction)
    weight = as_tensor(op, "weight", weight, values)
    weighted = values * weight
    if reduction == "mean":
        return weighted.sum() / ag.broadcast_to(weight, tuple(values.shape)).sum()
    return reduce(op, weighted, reduction)

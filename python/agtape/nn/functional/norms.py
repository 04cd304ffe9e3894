"""Owns the normalization functions."""

import agtape as ag
from agtape import _core
from agtape.arguments import as_flag, as_ints, as_number
from agtape.nn.functional.checks import as_tensor, tensor_or_none


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Subtract the mean and divide by the standard deviation over the last axes (Ba, Kiros and Hinton 2016, section 3).

    Args:
        input: tensor whose last axes have the lengths `normalized_shape`.
        normalized_shape: int or tuple of ints.
        weight, bias: tensors of that shape or `None`.
        eps: added to the variance.

    Returns:
        A tensor of the input's shape.

    Raises:
        ValueError: the input does not end in `normalized_shape`, or weight or bias has another shape; TypeError: `normalized_shape` holds
            no ints, or something is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.functional.layer_norm(ag.tensor([[1.0, 3.0]]), (2,), eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    input, weight, bias = _operands("layer_norm", input, weight, bias)
    axes = _count_axes("layer_norm", input, normalized_shape, weight, bias)
    return _core.layer_norm(input, axes, weight, bias, eps)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """Divide by the root of the mean square over the last axes (Zhang and Sennrich 2019, section 4).

    Args:
        input: tensor whose last axes have the lengths `normalized_shape`.
        normalized_shape: int or tuple of ints.
        weight: tensor of that shape or `None`.
        eps: added to the mean square; default: the dtype's machine epsilon.

    Returns:
        A tensor of the input's shape.

    Raises:
        ValueError: the input does not end in `normalized_shape`, or the weight has another shape; TypeError: `normalized_shape` holds no
            ints, or something is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.functional.rms_norm(ag.tensor([[3.0, -3.0]]), 2, eps=0.0).tolist()
    [[1.0, -1.0]]
    """
    input, weight, _ = _operands("rms_norm", input, weight, None)
    axes = _count_axes("rms_norm", input, normalized_shape, weight, None)
    eps = _EPSILON.get(str(input.dtype), _EPSILON["float32"]) if eps is None else eps
    return _core.rms_norm(input, axes, weight, eps)


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Normalize each channel over the batch and the positions (Ioffe and Szegedy 2015, algorithm 1).

    Args:
        input: tensor of shape (N, C) or (N, C, d1, ...).
        running_mean, running_var: tensors of shape (C,) or `None`; in training they are updated in place, unrecorded.
        weight, bias: tensors of shape (C,) or `None`.
        training: whether to use the batch's statistics (also used if no running ones are given).
        momentum: share of the batch in the updated running statistics.
        eps: added to the variance.

    Returns:
        A tensor of the input's shape.

    Raises:
        ValueError: the input has fewer than two axes, a tensor has another shape, or training sees one value a channel; TypeError:
            something is neither a tensor nor an array, or a running statistic is no tensor.

    >>> import agtape as ag
    >>> ag.nn.functional.batch_norm(ag.tensor([[1.0], [3.0]]), None, None, training=True, eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    input, weight, bias = _operands("batch_norm", input, weight, bias)
    training, eps = as_flag("batch_norm", "training", training), as_number("batch_norm", "eps", eps)
    momentum = as_number("batch_norm", "momentum", momentum)
    for name, t in (("running_mean", running_mean), ("running_var", running_var)):
        tensor_or_none("batch_norm", name, t)
    if input.ndim < 2:
        raise ValueError(f"batch_norm: the input has shape {tuple(input.shape)}; expected (N, C) or (N, C, d1, ...)")
    channels = input.shape[1]
    for name, t in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != (channels,):
            raise ValueError(f"batch_norm: {name} has shape {tuple(t.shape)}; expected ({channels},)")
    if not training and running_mean is not None:
        if running_var is None:
            raise ValueError("batch_norm: running_mean was given without running_var; expected both or neither")
        mean, var = _by_channel(running_mean, input.ndim), _by_channel(running_var, input.ndim)
        return _channel_affine((input - mean) * ag.rsqrt(var + eps), weight, bias)
    per_channel = input.size // channels if channels else 0
    if training and per_channel == 1:
        raise ValueError(
            f"batch_norm: the input has shape {tuple(input.shape)}; expected more than one value a channel in training"
        )
    axes = (0, *range(2, input.ndim))
    mean = input.mean(axis=axes, keepdims=True)
    centred = input - mean
    var = ag.square(centred).mean(axis=axes, keepdims=True)
    if training:
        _update_running(running_mean, mean, momentum, 1.0)
        _update_running(running_var, var, momentum, per_channel / max(per_channel - 1, 1))
    return _channel_affine(centred * ag.rsqrt(var + eps), weight, bias)


_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def _operands(op, input, weight, bias):
    """What is normalized and what scales and shifts it, as tensors."""
    input = as_tensor(op, "input", input)
    if weight is not None:
        weight = as_tensor(op, "weight", weight, input)
    return input, weight, bias if bias is None else as_tensor(op, "bias", bias, input)


def _count_axes(op, input, normalized_shape, weight, bias):
    """The number of axes to normalize over, after checking every shape against `normalized_shape`."""
    shape = as_ints(op, "normalized_shape", normalized_shape)
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise ValueError(f"{op}: the input has shape {tuple(input.shape)}; expected one that ends in {shape}")
    if weight is not None and tuple(weight.shape) != shape:
        raise ValueError(f"{op}: the weight has shape {tuple(weight.shape)}; expected {shape}")
    if bias is not None and tuple(bias.shape) != shape:
        raise ValueError(f"{op}: the bias has shape {tuple(bias.shape)}; expected {shape}")
    return len(shape)


def _channel_affine(normed, weight, bias):
    """Scale and shift along axis 1."""
    if weight is not None:
        normed = normed * _by_channel(weight, normed.ndim)
    return normed if bias is None else normed + _by_channel(bias, normed.ndim)


def _by_channel(tensor, ndim):
    return tensor if ndim == 2 else tensor.reshape(-1, *([1] * (ndim - 2)))


def _update_running(running, batch_value, momentum, factor):
    """Move a running statistic towards the batch's, unrecorded; the batch's variance is made unbiased by `factor`."""
    if running is None:
        return
    with ag.no_grad():
        fresh = batch_value.detach().reshape(-1)
        running.assign_(running * (1 - momentum) + (fresh * (momentum * factor)))

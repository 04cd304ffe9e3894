"""Owns gradient clipping; it runs on the gradients' device and reads nothing back."""

import math

import agtape as ag
from agtape import _core
from agtape._core import Tensor
from agtape.arguments import as_flag, as_float, as_list, as_number

_HALVES = ("float16", "bfloat16")


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False):
    """Scale all gradients by one factor so that their joint norm is at most `max_norm`.

    Args:
        parameters: a tensor or an iterable of tensors; those without a gradient are skipped.
        max_norm: the largest norm allowed.
        norm_type: order of the norm; `inf` for the largest magnitude.
        error_if_nonfinite: raise if the norm is NaN or infinite (this reads it).

    Returns:
        The norm before clipping, a scalar tensor that is not read.

    Raises:
        ValueError: `norm_type` is not positive, or the norm is not finite with `error_if_nonfinite`; TypeError: not tensors.

    >>> import agtape as ag
    >>> w = ag.param([3.0, 4.0])
    >>> with ag.grad_tape():
    ...     loss = (w * w).sum() / 2
    >>> loss.backward()
    >>> round(ag.nn.clip_grad_norm_([w], 1.0).item(), 4)
    5.0
    """
    norm_type = as_float("clip_grad_norm_", "norm_type", norm_type)
    error_if_nonfinite = as_flag("clip_grad_norm_", "error_if_nonfinite", error_if_nonfinite)
    max_norm = as_number("clip_grad_norm_", "max_norm", max_norm)
    # A norm in a tensor is not read.
    if isinstance(max_norm, (int, float)) and not max_norm >= 0:
        raise ValueError(f"clip_grad_norm_: max_norm is {max_norm}; expected a number that is not negative")
    if not norm_type > 0:
        raise ValueError(f"clip_grad_norm_: norm_type is {norm_type}; expected a positive number")
    grads = _gradients("clip_grad_norm_", parameters)
    with ag.no_grad():
        if not grads:
            return ag.zeros(())
        total = _joint_norm(grads, norm_type)
        if error_if_nonfinite and not math.isfinite(total.item()):
            raise ValueError(
                f"clip_grad_norm_: the norm is {total.item()}; expected a finite one (error_if_nonfinite=True)"
            )
        factor = ag.minimum(max_norm / (total + 1e-6), 1.0)
        for g in grads:
            g.assign_((g * factor).astype(g.dtype) if g.dtype != factor.dtype else g * factor)
    return total


def clip_grad_value_(parameters, clip_value):
    """Clip every value of every gradient to plus or minus `clip_value`.

    Args:
        parameters: a tensor or an iterable of tensors; those without a gradient are skipped.
        clip_value: the largest magnitude allowed.

    Returns:
        None.

    Raises:
        ValueError: clip_value is negative; TypeError: not tensors.

    >>> import agtape as ag
    >>> w = ag.param([3.0, -4.0])
    >>> with ag.grad_tape():
    ...     loss = (w * w).sum()
    >>> loss.backward()
    >>> ag.nn.clip_grad_value_(w, 1.0)
    >>> w.grad.tolist()
    [1.0, -1.0]
    """
    clip_value = as_float("clip_grad_value_", "clip_value", clip_value)
    if not clip_value >= 0:
        raise ValueError(f"clip_grad_value_: clip_value is {clip_value}; expected a number that is not negative")
    with ag.no_grad():
        for g in _gradients("clip_grad_value_", parameters):
            g.assign_(ag.clip(g, -clip_value, clip_value))


def _gradients(op, parameters):
    """The gradients of one or several tensors, each tensor's once."""
    found, seen = [], set()
    if not isinstance(parameters, Tensor):
        parameters = as_list(op, "parameters", parameters, "a tensor or an iterable of tensors")
    for p in (parameters,) if isinstance(parameters, Tensor) else parameters:
        if not isinstance(p, Tensor):
            raise TypeError(f"{op}: got a {type(p).__name__}; expected tensors")
        if id(p) in seen:
            continue
        seen.add(id(p))
        grad = _core.resident_grad(p)
        if grad is not None:
            found.append(grad)
    return found


def _joint_norm(grads, norm_type):
    """The norm of all gradients together; 16-bit ones are summed in float32, whose range holds their squares."""
    wide = [g.astype("float32") if str(g.dtype) in _HALVES else g for g in grads]
    if norm_type == 2.0:
        return ag.sqrt(_total([ag.square(g).sum() for g in wide]))
    if math.isinf(norm_type):
        parts = [ag.abs(g).max() for g in wide if g.size]
        return ag.stack(parts).max() if parts else ag.zeros(())
    return _total([(ag.abs(g) ** norm_type).sum() for g in wide]) ** (1.0 / norm_type)


def _total(parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total

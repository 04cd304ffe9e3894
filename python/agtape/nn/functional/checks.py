"""Owns the argument checks that several functions share; each raises with the op's name, what was given and what was expected."""

import numpy as np

import agtape as ag
from agtape._core import Tensor
from agtape.arguments import as_number, as_word

_FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))
_INTEGERS = frozenset(("uint8", "int32", "int64"))
_kinds = {}
REDUCTIONS = ("mean", "sum", "none")


def kind_of(dtype):
    """'float', 'int' or 'bool' for a dtype."""
    kind = _kinds.get(dtype)
    if kind is None:
        name = str(dtype)
        kind = _kinds[dtype] = "float" if name in _FLOATS else "int" if name in _INTEGERS else "bool"
    return kind


def as_tensor(op, name, value, like=None):
    """A tensor as it is; an array, list or number as a tensor on the device of `like`."""
    if isinstance(value, Tensor):
        return value
    try:
        return ag.tensor(value, device=like.device if like is not None else None)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{op}: {name} is {type(value).__name__}; expected a tensor or an array") from error


def tensor_or_none(op, name, value):
    """Raise unless the value is a tensor, which the op updates in place, or `None`."""
    if value is not None and not isinstance(value, Tensor):
        raise TypeError(f"{op}: {name} is {type(value).__name__}; expected a tensor or None")


def as_indices(op, name, value, limit, like, ignored=None):
    """Integer indices or labels as a tensor, and whether they are known to lie in [0, limit) with none ignored.

    Lists and arrays are checked here, at the call; tensors are checked by the kernel that uses them.
    """
    if isinstance(value, Tensor):
        if kind_of(value.dtype) != "int":
            raise TypeError(f"{op}: {name} is {value.dtype}; expected integers")
        return value, False
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{op}: {name} is {type(value).__name__}; expected integers ({error})") from error
    if array.dtype.kind not in "iu":
        if array.size or array.dtype.kind not in "f":
            given = f"is {type(value).__name__}" if array.dtype.kind == "O" else f"holds {array.dtype}"
            raise TypeError(f"{op}: {name} {given}; expected integers")
        array = array.astype(np.int64)
    wrong = (array < 0) | (array >= limit)
    is_clean = not wrong.any() and not (ignored is not None and (array == ignored).any())
    if wrong.any():
        outside = array[wrong] if ignored is None else array[wrong & (array != ignored)]
        if outside.size:
            extra = "" if ignored is None else f" or the ignored value {ignored}"
            raise IndexError(
                f"{op}: {name} holds {int(outside.flat[0])}; expected integers from 0 to {limit - 1}{extra}"
            )
    if array.dtype not in (np.uint8, np.int32, np.int64):
        array = array.astype(np.int64)
    return ag.tensor(array, device=like.device), is_clean


def same_shape(op, input, target):
    """Raise unless two tensors have the same shape; losses do not broadcast, since that is nearly always a mistake."""
    if input.shape != target.shape:
        raise ValueError(
            f"{op}: input has shape {tuple(input.shape)} and target {tuple(target.shape)}; expected equal shapes"
        )


def reduce(op, values, reduction):
    """Apply a loss's reduction: 'mean', 'sum' or 'none'."""
    if reduction == "mean":
        return values.mean()
    if reduction == "sum":
        return values.sum()
    # What is none of them raises here.
    as_word(op, "reduction", reduction, REDUCTIONS)
    return values


def one_axis(op, dim, axis, default):
    """The axis meant by PyTorch's `dim` or NumPy's `axis`, of which at most one may be given."""
    if axis is None:
        return default if dim is None else dim
    if dim is not None:
        raise TypeError(f"{op}: dim={dim} and axis={axis} were both given; expected one of them")
    return axis


def probability(op, p, name="p"):
    """A number in [0, 1], as it was given."""
    number = as_number(op, name, p)
    if not 0 <= number <= 1:
        raise ValueError(f"{op}: {name} is {number!r}; expected a number from 0 to 1")
    return number

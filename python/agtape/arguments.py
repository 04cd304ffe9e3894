"""Owns the checks of numbers, flags, words and sequences that functions written in Python share; each error names the op, what was given and what was expected."""

import os
import sys
from itertools import islice
from operator import index

import numpy as np

from agtape import _core
from agtape._core import Tensor

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
# Python refuses to write integers of some thousand digits.
_MOST_SHOWN_BITS = 256
# Members that a sequence may have: as many as the core takes.
_MOST_MEMBERS = 1 << 20
# What errors show as it is, if it is not longer than this.
_SHOWN, _MOST_SHOWN = (bool, int, float, str, bytes, type(None)), 60


def as_int(op, name, value, least=_LEAST, most=_MOST):
    """An integer of Python's, NumPy's or a tensor's as an int from `least` to `most`.

    Args:
        op, name: of the function and of its argument, for errors.
        value: what was given. A bool is no integer: it is a mask or a flag, and meant for another argument.
        least, most: the bounds.

    Returns:
        An int.

    Raises:
        TypeError: it is no integer; ValueError: it lies outside the bounds.

    >>> as_int("diff", "n", 2, least=0)
    2
    """
    number = value
    if type(value) is not int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{op}: {name} is {type(value).__name__}; expected an int")
        try:
            number = index(value)
        except TypeError as error:
            raise TypeError(f"{op}: {name} is {type(value).__name__}; expected an int ({error})") from error
    if least <= number <= most:
        return number
    if _LEAST <= number <= _MOST:
        bound = f"at least {least}" if number < least else f"at most {most}"
        raise ValueError(f"{op}: {name} is {number}; expected {bound}")
    raise ValueError(f"{op}: {name} is {shown(number)}; expected an int of at most 64 bits")


def as_ints(op, name, value):
    """One integer or a sequence of them as a tuple of ints.

    Args:
        op, name: of the function and of its argument, for errors.
        value: what was given.

    Returns:
        A tuple.

    Raises:
        TypeError: something is no integer; ValueError: it takes more than 64 bits.

    >>> as_ints("layer_norm", "normalized_shape", 3)
    (3,)
    """
    # Arrays have `__index__` whatever their shape.
    is_one = isinstance(value, (str, bytes)) or not (getattr(value, "ndim", 0) or hasattr(value, "__iter__"))
    if is_one or getattr(value, "ndim", 1) == 0:
        return (as_int(op, name, value),)
    return tuple([as_int(op, name, item) for item in as_list(op, name, value, "an int or a tuple of ints")])


def as_list(op, name, value, expected):
    """The members of an iterable as a list, up to what anybody can use: no endless one keeps the process busy.

    Args:
        op, name: of the function and of its argument, for errors.
        value: what was given.
        expected: what should have been, for errors.

    Returns:
        A list.

    Raises:
        TypeError: it cannot be iterated over; ValueError: it has more than 2**20 members.

    >>> as_list("stack", "tensors", (1, 2), "a sequence of tensors")
    [1, 2]
    """
    try:
        count = len(value) if hasattr(type(value), "__len__") else 0
    except OverflowError:  # more than a length can be
        count = sys.maxsize
    if count > _MOST_MEMBERS:
        raise _too_many(op, name, count)
    try:
        members = iter(value)
    except TypeError as error:
        raise TypeError(f"{op}: {name} is {type(value).__name__}; expected {expected}") from error
    found = list(islice(members, _MOST_MEMBERS + 1))
    if len(found) > _MOST_MEMBERS:
        raise _too_many(op, name, len(found))
    return found


def as_flag(op, name, value):
    """A flag as True or False: also NumPy's bools, those of arrays and tensors without axes, and integers, of which 0 is False.

    Args:
        op, name: of the function and of its argument, for errors.
        value: what was given.

    Returns:
        A bool.

    Raises:
        TypeError: it is no flag.

    >>> as_flag("Linear", "bias", 1)
    True
    """
    if value is True or value is False:
        return value
    if isinstance(value, (np.generic, np.ndarray, Tensor)) and value.ndim == 0 and str(value.dtype) == "bool":
        return bool(value)
    if hasattr(value, "__index__") and not isinstance(value, type):
        try:
            return index(value) != 0
        except TypeError:
            pass
    raise TypeError(f"{op}: {name} is {shown(value)}; expected True or False")


def as_word(op, name, value, words):
    """One of a few words.

    Args:
        op, name: of the function and of its argument, for errors.
        value: what was given.
        words: those that there are.

    Returns:
        The word.

    Raises:
        TypeError: it is no text; ValueError: it is another word.

    >>> as_word("mse_loss", "reduction", "sum", ("mean", "sum", "none"))
    'sum'
    """
    if isinstance(value, str) and value in words:
        return value
    *rest, last = map(repr, words)
    kind = ValueError if isinstance(value, str) else TypeError
    raise kind(f"{op}: {name} is {shown(value)}; expected {', '.join(rest)}{' or ' if rest else ''}{last}")


def as_text(op, name, value):
    """A text.

    Args:
        op, name: of the function and of its argument, for errors.
        value: what was given.

    Returns:
        The text.

    Raises:
        TypeError: it is none.

    >>> as_text("state_dict", "prefix", "encoder.")
    'encoder.'
    """
    if not isinstance(value, str):
        raise TypeError(f"{op}: {name} is {shown(value)}; expected a text")
    return value


def as_path(op, value):
    """A file's name as the system takes it.

    Args:
        op: of the function, for errors.
        value: what was given.

    Returns:
        A str or bytes.

    Raises:
        TypeError: it is neither a text nor a path.

    >>> as_path("load", "model.safetensors")
    'model.safetensors'
    """
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{op}: path is {shown(value)}; expected a text or a path")
    return os.fspath(value)


def as_number(op, name, value):
    """A real number, as it was given: Python's, NumPy's, or a tensor or an array, which broadcasts where it is used.

    Args:
        op, name: of the function and of its argument, for errors.
        value: what was given.

    Returns:
        The value.

    Raises:
        TypeError: it is no number; ValueError: an int that no float holds.

    >>> as_number("elu", "alpha", 1.0)
    1.0
    """
    if type(value) is float:
        return value
    if not hasattr(value, "__float__") or isinstance(value, (type, str, bytes)):
        raise TypeError(f"{op}: {name} is {shown(value)}; expected a number")
    if isinstance(value, (float, np.generic, np.ndarray, Tensor)):
        return value
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{op}: {name} is {shown(value)}; expected a number that float64 holds") from None
    except TypeError as error:
        raise TypeError(f"{op}: {name} is {shown(value)}; expected a number ({error})") from error
    # An int stays one, so that what was given is what is shown.
    return value if isinstance(value, int) else number


def as_float(op, name, value):
    """A single real number as a float.

    Args:
        op, name: of the function and of its argument, for errors.
        value: what was given: a number, or an array or a tensor with one element.

    Returns:
        A float.

    Raises:
        TypeError: it is no number; ValueError: an int that no float holds.

    >>> as_float("clip_grad_norm_", "norm_type", 2)
    2.0
    """
    number = as_number(op, name, value)
    if getattr(number, "size", 1) != 1:
        raise TypeError(f"{op}: {name} has shape {tuple(number.shape)}; expected one number")
    return float(number)


def as_place(op, dtype, device):
    """The dtype and the device of a layer's tensors, checked under the layer's name.

    Args:
        op: of the layer, for errors.
        dtype, device: what was given; None for the default.

    Returns:
        A dict with both, for functions that make tensors.

    Raises:
        TypeError: it is no dtype, or the device is no text; ValueError: the device is unknown; DeviceError: this machine lacks it.

    >>> as_place("Linear", "float32", None)["device"] is None
    True
    """
    return {
        "dtype": None if dtype is None else _core.dtype_of(dtype, op),
        "device": None if device is None else _core.device_named(device, op),
    }


def shown(value):
    """What errors show of a value: plain ones in short, of others the type, whose text may be long or be computed.

    Args:
        value: anything.

    Returns:
        A str.

    >>> shown("mean"), shown([1, 2]), shown(1 << 999)
    ("'mean'", 'list', 'an integer of 1000 bits')
    """
    if type(value) is int and value.bit_length() > _MOST_SHOWN_BITS:
        return f"an integer of {value.bit_length()} bits"
    if type(value) not in _SHOWN:
        return type(value).__name__
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _too_many(op, name, count):
    return ValueError(f"{op}: {name} has {count} members; expected at most {_MOST_MEMBERS}")

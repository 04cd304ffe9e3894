"""Owns the checks of integer arguments that functions written in Python share; each error names the op, what was given and what was expected."""

from operator import index

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
# Python refuses to write integers of some thousand digits.
_MOST_SHOWN_BITS = 256


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
    shown = number if number.bit_length() <= _MOST_SHOWN_BITS else f"an integer of {number.bit_length()} bits"
    if _LEAST <= number <= _MOST:
        bound = f"at least {least}" if number < least else f"at most {most}"
        raise ValueError(f"{op}: {name} is {shown}; expected {bound}")
    raise ValueError(f"{op}: {name} is {shown}; expected an int of at most 64 bits")


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
    return tuple([as_int(op, name, item) for item in value])

"""Owns which tensors nothing but the functions of a tape's segments holds: what those captured goes with them."""

import gc
import sys
import types

from agtape._core import Tensor

# More objects than this are data that others hold too: the report does not walk through all of them.
_MOST = 20_000
# What lives as long as the program does, or runs: it counts as held by others, and so does what only it refers to.
_LASTING = (type, types.ModuleType, types.FrameType, types.GeneratorType, types.CoroutineType, types.CodeType)
# What refers to nothing else. The state of Python's and NumPy's generators, which a segment remembers, has over 1,000 numbers.
_PLAIN = (int, float, complex, str, bytes, types.NoneType)


def held_alone(functions):
    """The tensors that go when these functions go, as far as references tell.

    Args:
        functions: a list of functions, each of them referred to by this list and once from where it is dropped.

    Returns:
        A list of tensors; empty where the functions refer to more than 20,000 objects.

    >>> held_alone([])
    []
    """
    if not functions:
        return []
    seen, inner = _reachable(functions)
    if len(seen) > _MOST:
        return []
    probe = object()
    seen[id(probe)] = probe
    inner[id(probe)] = 1
    roots = {id(function) for function in functions}
    # A name, the table above and the call below refer to the probe, as they do to what is looked at in its turn.
    extra = None
    lasting = []
    for at in [id(probe), *seen]:
        value = seen[at]
        count = sys.getrefcount(value) - inner.get(at, 0)
        if extra is None:
            extra = count
        elif at not in roots and count > extra:
            lasting.append(value)
    del value
    living = set()
    while lasting:
        value = lasting.pop()
        if id(value) not in living:
            living.add(id(value))
            lasting += _referents(value)
    return [value for at, value in seen.items() if at not in living and isinstance(value, Tensor)]


def _reachable(functions):
    """What the functions refer to, by identity, and how often what is among it is referred to from there."""
    seen, inner, left = {}, {}, list(functions)
    while left and len(seen) <= _MOST:
        value = left.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        found = _referents(value)
        for other in found:
            inner[id(other)] = inner.get(id(other), 0) + 1
        left += found
    return seen, inner


def _is_passed_by(value):
    """Whether the walk leaves it out: what is plain, what lasts, and the names of a module (which have the built-in ones)."""
    return isinstance(value, _PLAIN + _LASTING) or (type(value) is dict and "__builtins__" in value)


def _referents(value):
    if isinstance(value, Tensor):
        return []
    if isinstance(value, types.FunctionType):
        # Its globals are its module's.
        found = [value.__closure__, value.__defaults__, value.__kwdefaults__]
        return [part for part in found if part is not None]
    return [part for part in gc.get_referents(value) if not _is_passed_by(part)]

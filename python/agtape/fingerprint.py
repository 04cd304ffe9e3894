"""Owns what tells a function or a container from that of another run of the same code: by identity where it lives on, else by looks."""

import dataclasses
import functools
import hashlib
import itertools
import types
import weakref

import numpy as np

from agtape import _core
from agtape._core import Tensor
from agtape.tree import flatten

_PLAIN = (type(None), type(...), type(NotImplemented), bool, int, float, complex, str, bytes, range)
_NUMBERS = itertools.count(1)
# By address: a weak reference and the number; an address may be used again, a number is not.
_KNOWN = {}


def outline(tree):
    """The containers and keys of a result, in words.

    Args:
        tree: any object; see `tree.flatten` for what is opened.

    Returns:
        A text that is the same for equal containers with equal keys, whatever their leaves are.

    Raises:
        RecursionError: if a container holds itself.

    >>> outline({"a": [1, 2], "b": (3,)}) == outline({"a": [4, 5], "b": (6,)})
    True
    >>> outline({"a": 1, "b": 2}) == outline({"b": 1, "a": 2})
    False
    """
    leaves, _ = flatten(tree)
    if len(leaves) == 1 and leaves[0] is tree:
        return "."
    kind = type(tree).__qualname__
    if isinstance(tree, dict):
        children = [f"{_key(key)}: {outline(value)}" for key, value in tree.items()]
    elif isinstance(tree, (list, tuple)):
        children = map(outline, tree)
    else:
        children = [f"{f.name}: {outline(getattr(tree, f.name))}" for f in dataclasses.fields(tree) if f.init]
    return f"{kind}({', '.join(children)})"


def _key(key):
    """A key in words; of what has no looks of its own, the type."""
    if isinstance(key, tuple):
        return f"({', '.join(map(_key, key))})"
    return repr(key) if type(key) in _PLAIN else type(key).__qualname__


def fingerprint(value):
    """What tells `value` from what stands in its place in another run of the same code.

    Args:
        value: a function, or a list of arguments.

    Returns:
        `(parts, tensors)`: for `value` first, then for every object in it that has an identity, a number of its own (0 if it cannot
        have one) and a digest of its looks; and the tensors in it, whose identity is the caller's affair.

    Raises:
        RecursionError: functions that capture one another more deeply than Python's stack goes.

    >>> def times(k):
    ...     return lambda g: g * k
    >>> once, again, other = (fingerprint(times(k))[0] for k in (-1.0, -1.0, -2.0))
    >>> once[0][0] == again[0][0], once[0][1] == again[0][1], once[0][1] == other[0][1]
    (False, True, False)
    """
    look = _Look()
    words = look.words(value)
    return [(number(value), _digest(words)), *look.parts], look.tensors


def number(value):
    """A number that no other object has or will have; 0 for what cannot be referred to weakly.

    Args:
        value: any object.

    Returns:
        An int.

    Raises:
        Nothing.

    >>> def f(): pass
    >>> number(f) == number(f) != number(lambda: 0)
    True
    """
    address = id(value)
    reference, own = _KNOWN.get(address, (None, 0))
    if reference is not None and reference() is value:
        return own
    try:
        reference = weakref.ref(value, functools.partial(_forget, address))
    except TypeError:
        return 0
    own = next(_NUMBERS)
    _KNOWN[address] = reference, own
    return own


def _forget(address, reference):
    if _KNOWN.get(address, (None,))[0] is reference:
        del _KNOWN[address]


def _digest(words):
    return int.from_bytes(hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class _Look:
    """One walk over an object and what it holds."""

    def __init__(self):
        self.parts, self.tensors = [], []
        # By address: the object, which lives as long, and when it was met.
        self._seen = {}

    def words(self, value, is_inside=False):
        """What `value` looks like. Objects with an identity get a part of their own, those inside of such an object their number."""
        if type(value) in _PLAIN:
            return f"{type(value).__name__} {hex(value) if isinstance(value, int) else value!r}"
        if isinstance(value, Tensor):
            if not is_inside:
                self.tensors.append(value)
            return "tensor"
        if id(value) in self._seen:
            return f"again {self._seen[id(value)][1]}"
        self._seen[id(value)] = value, len(self._seen)
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
            return f"{value.dtype.str} {value.shape} {value.tobytes().hex()}"
        if isinstance(value, (types.FunctionType, types.MethodType, types.CodeType, functools.partial, types.CellType)):
            return self._function(value, is_inside)
        if isinstance(value, (list, tuple, dict, set, frozenset, np.ndarray, slice)):
            return self._container(value, is_inside)
        return self._object(value, is_inside)

    def _all(self, values, is_inside):
        return f"({', '.join([self.words(v, is_inside) for v in values])})"

    def _function(self, value, is_inside):
        if isinstance(value, types.CodeType):
            parts = [value.co_code, value.co_filename, value.co_firstlineno, value.co_flags, value.co_argcount]
            names = [value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars]
            return f"code {self._all([*parts, *names, value.co_consts], is_inside)}"
        if isinstance(value, types.CellType):
            try:
                return f"cell {self.words(value.cell_contents, is_inside)}"
            except ValueError:  # a variable without a value yet
                return "empty cell"
        if isinstance(value, types.MethodType):
            return f"method {self._all([value.__func__, value.__self__], is_inside)}"
        if isinstance(value, functools.partial):
            return f"partial {self._all([value.func, value.args, value.keywords], is_inside)}"
        bound = [value.__defaults__, value.__kwdefaults__, value.__closure__]
        # What it finds by name it finds in its module.
        return f"function {id(value.__globals__)} {self._all([value.__code__, *bound], is_inside)}"

    def _container(self, value, is_inside):
        kind = type(value).__qualname__
        if isinstance(value, dict):
            return f"{kind} {self._all(itertools.chain.from_iterable(value.items()), is_inside)}"
        if isinstance(value, (set, frozenset)):
            return f"{kind} {sorted(self.words(v, is_inside) for v in value)}"
        if isinstance(value, slice):
            return f"slice {self._all([value.start, value.stop, value.step], is_inside)}"
        return f"{kind} {self._all(value.ravel().tolist() if isinstance(value, np.ndarray) else value, is_inside)}"

    def _object(self, value, is_inside):
        own = number(value)
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)) or isinstance(value, _core.dtype):
            return f"{kind} {value!r}"
        if is_inside:
            return f"{kind} {own}"
        held = getattr(value, "__dict__", None)
        looks = f"{kind} {_Look().words(dict(held), True)}" if isinstance(held, dict) else f"{kind} {own}"
        self.parts.append((own, _digest(looks)))
        return f"object {len(self.parts)}"

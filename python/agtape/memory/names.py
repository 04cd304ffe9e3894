"""Owns the names that a caller's variables give to storages: a bounded walk through what they hold, which runs no code of theirs."""

import sys
import types
from collections import deque
from itertools import islice

import agtape as ag
from agtape import _core
from agtape._core import Tensor

# Entries of one list, dict or object that are looked at, and of all together: more are data.
_MOST_ENTRIES = 100
_MOST_IN_ALL = 10_000
# Keys that a name may show: the text of others may run code, or read values.
_KEYS = (str, int, bytes, type(None))
_REGISTRIES = {"_parameters", "_buffers", "_modules"}
# What has attributes that say nothing of who holds a tensor, or all the names of a program.
_PASSED_BY = (type, types.ModuleType, types.FrameType, types.CodeType)


def names_of(frame, wanted):
    """The caller's variables that lie in the storages wanted, or hold what does: attributes, entries, variables of functions.

    Args:
        frame: the caller's.
        wanted: a set of storage keys; not empty.

    Returns:
        A dict from storage keys to names such as `h`, `model.weight`, `kept['first'][0]` and `h of step()`, the shortest way first.

    >>> import sys
    >>> import agtape as ag
    >>> kept = {"first": [ag.tensor([1.0])]}
    >>> names_of(sys._getframe(), {_core.storage_key(kept["first"][0])}).popitem()[1]
    "kept['first'][0]"
    """
    variables = frame.f_locals
    found = _walked([*variables.items(), *frame.f_globals.items()], wanted)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & 1:
        # The interpreter keeps this copy of a function's variables with the frame: it would hold tensors that the function deletes.
        variables.clear()
    return found


def _walked(variables, wanted):
    found, seen, left = {}, set(), _MOST_IN_ALL
    queue = deque(variables)
    while queue and len(found) < len(wanted):
        name, value = queue.popleft()
        if isinstance(value, Tensor):
            key = _core.storage_key(value)
            if key in wanted:
                found.setdefault(key, name)
        elif left > 0 and id(value) not in seen:
            # What has been seen is held by the variables, so that nothing else comes to have its identity.
            seen.add(id(value))
            entries = list(islice(_entries(name, value), left))
            left -= len(entries)
            queue += entries
    return found


def _entries(name, value):
    """What a value holds, with the names that reach it."""
    if isinstance(value, (list, tuple, deque)):
        fields = getattr(type(value), "_fields", ())
        for i, entry in enumerate(islice(value, _MOST_ENTRIES)):
            yield f"{name}.{fields[i]}" if i < len(fields) else f"{name}[{i}]", entry
    elif isinstance(value, dict):
        # The names of a module have the built-in ones among them.
        if "__builtins__" not in value:
            for key, entry in list(islice(dict.items(value), _MOST_ENTRIES)):
                if all(isinstance(part, _KEYS) for part in (key if isinstance(key, tuple) else (key,))):
                    yield f"{name}[{key!r}]", entry
    elif isinstance(value, types.FunctionType):
        for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
            try:
                yield f"{variable} of {value.__name__}()", cell.cell_contents
            except ValueError:
                continue  # not assigned yet
    elif isinstance(value, ag.nn.Module):
        yield from _parts_of_module(name, value)
    elif not isinstance(value, _PASSED_BY):
        yield from _attributes(name, value)


def _parts_of_module(name, module):
    """Parameters and buffers by the names of `state_dict`, and what modules have besides."""
    yield from module.named_parameters(name)
    yield from module.named_buffers(name)
    for part, child in module.named_modules(name):
        yield from _attributes(part, child, {*_REGISTRIES, *child._parameters, *child._buffers, *child._modules})


def _attributes(name, value, but=()):
    """Attributes that lie in the object itself or in its slots, but for some."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        own = {}
    for attribute, entry in list(islice(dict.items(own), _MOST_ENTRIES)):
        if attribute not in but:
            yield f"{name}.{attribute}", entry
    for kind in type(value).__mro__:
        for attribute, member in kind.__dict__.items():
            if isinstance(member, types.MemberDescriptorType) and not attribute.startswith("__"):
                try:
                    yield f"{name}.{attribute}", member.__get__(value)
                except AttributeError:
                    continue  # a slot that is empty

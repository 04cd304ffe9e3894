"""Owns what a function finds outside of its arguments (variables, globals, attributes, modules) and whether it is still so."""

import functools
import itertools
import random
import sys
import types

import numpy as np

from agtape import _core
from agtape._core import CaptureError, Tensor
from agtape.ambient import state_of
from agtape.nn import module
from agtape.nn.module import REGISTRIES, Module
from agtape.optim.lr_scheduler import LRScheduler
from agtape.optim.optimizer import Optimizer
from agtape.optim.updates import difference, settings

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, np.dtype, _core.dtype, range, slice)
_OPAQUE = (*_PLAIN, Tensor, np.ndarray, type, types.BuiltinFunctionType)
_CONTAINERS = (dict, list, tuple, set, frozenset)
# Containers of more entries are data, whose entries nobody compares.
_MANY = 1000
# Whose functions and objects are not looked into: they hold nothing of the user's.
_LIBRARIES = frozenset(sys.stdlib_module_names) - {"__main__"} | {"agtape", "numpy"}
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
_MISSING = object()


class Surroundings:
    """What a function and what it calls find around them: captured variables, globals that the code names, attributes that it names of
    objects, everything of modules (`ag.nn`), settings of optimizers. Functions of libraries are not looked into.

    Args:
        fn: any callable.
        arguments: objects that it is given besides tensors.

    >>> def made(scale):
    ...     def change(value):
    ...         nonlocal scale
    ...         scale = value
    ...     return (lambda x: x * scale), change
    >>> f, change = made(2.0)
    >>> around = Surroundings(f)
    >>> change(3.0)
    >>> around.difference()
    'scale was 2.0 and is 3.0'
    """

    def __init__(self, fn, arguments=()):
        self._names, self._known, self._objects = set(), {}, []
        self._cells, self._items, self._sizes, self._optimizers, self._generators = [], [], [], [], []
        # What modules hold directly: looked at only when an attribute of some module was set.
        self._module_items, self._module_sizes, self._modes = [], [], []
        # Every tensor met.
        self.tensors = []
        # What objects have of their classes, unless they get their own.
        self._defaults = []
        self._visit(getattr(fn, "__name__", type(fn).__name__), fn)
        for i, value in enumerate(arguments):
            self._visit(f"argument {i}", value)
        self._visit_attributes()
        # Code that reads settings by itself has baked them in.
        self._reads_settings = "param_groups" in self._names
        # What was met is held only while its identity counts.
        self._known = self._objects = None
        self._changes = module.CHANGES[0]

    def difference(self, taken_anew=()):
        """What is no longer as it was, as a text; None if everything is.

        Args:
            taken_anew: optimizers whose settings need not stay: an update says itself which do.

        Returns:
            A text or None.
        """
        places, sizes = self._items, self._sizes
        if module.CHANGES[0] != self._changes:
            places = itertools.chain(places, self._module_items)
            sizes = itertools.chain(sizes, self._module_sizes)
            for path, owner, mode in self._modes:
                if owner.training != mode:
                    return _told(f"{path}.training", mode, owner.training)
        for path, owner, name, then in self._defaults:
            now = getattr(owner, name, _MISSING)
            if now is not then and not _are_equal(then, now):
                return _told(path, then, now)
        for path, cell, then in self._cells:
            now = _contents(cell)
            if now is not then and not _are_equal(then, now):
                return _told(path, then, now)
        for path, container, key, then in places:
            now = _entry(container, key)
            if now is not then and not _are_equal(then, now):
                return _told(path, then, now)
        for path, container, size in sizes:
            if len(container) != size:
                return f"{path} had {size} entries and has {len(container)}"
        self._changes = module.CHANGES[0]
        return self._difference_of_optimizers(taken_anew)

    def drawn(self):
        """The first of the generators found that has drawn since, by name; None if none has."""
        for path, state, then in self._generators:
            if not _are_equal_states(state(), then):
                return path
        return None

    def _difference_of_optimizers(self, taken_anew):
        for path, optimizer, groups in self._optimizers:
            if any(optimizer is other for other in taken_anew) and not self._reads_settings:
                continue
            for group, (own, fixed) in zip(optimizer.param_groups, groups):
                found = "its groups were replaced" if group is not own else difference(group, fixed)
                if found:
                    return f"{path}: {found}"
        return None

    # -- looking around: each value once, by identity; what is looked at is held, so that identities stay --

    def _visit(self, path, value):
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return
        is_constant = isinstance(value, tuple) and all(isinstance(v, _PLAIN) for v in value)
        if is_constant or isinstance(value, _OPAQUE) or id(value) in self._known:
            return
        self._known[id(value)] = value
        if isinstance(value, functools.partial):
            self._visit(path, value.func)
            self._visit_container(f"{path}.args", value.args)
            self._visit_container(f"{path}.keywords", value.keywords)
        elif isinstance(value, types.MethodType):
            self._visit("self", value.__self__)
            self._visit(path, value.__func__)
        elif isinstance(value, types.FunctionType):
            self._visit_function(path, value)
        elif isinstance(value, _CONTAINERS):
            self._visit_container(path, value)
        elif isinstance(value, Module):
            self._visit_module(path, value)
        elif isinstance(value, Optimizer):
            self._optimizers.append((path, value, [(g, settings(g)) for g in value.param_groups]))
            for group in value.param_groups:
                self.tensors += group["params"]
        elif isinstance(value, (np.random.Generator, np.random.RandomState, random.Random)):
            state = state_of(value)
            self._generators.append((path, state, state()))
        elif isinstance(value, LRScheduler):
            for name in vars(value):
                self._note(f"{path}.{name}", vars(value), name)
        elif hasattr(value, "__dict__") and not _is_of_library(value):
            self._objects.append((path, value))
            self._visit(path, next((vars(c)["__call__"] for c in type(value).__mro__ if "__call__" in vars(c)), None))

    def _visit_function(self, path, function):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            value = _contents(cell)
            self._cells.append((name, cell, value))
            self._visit(name, value)
        if _root(function.__module__) in _LIBRARIES:
            return
        read, named = _names_of(function.__code__)
        self._names |= named
        self._visit_container(f"{path}.__defaults__", function.__defaults__ or ())
        self._visit_container(f"{path}.__kwdefaults__", function.__kwdefaults__ or {})
        for name in sorted(read & set(function.__globals__)):
            self._note(name, function.__globals__, name)

    def _visit_container(self, path, container):
        if len(container) > _MANY or isinstance(container, (set, frozenset)):
            self._sizes.append((path, container, len(container)))
            return
        if not isinstance(container, tuple):
            self._sizes.append((path, container, len(container)))
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            self._note(f"{path}[{key!r}]", container, key)

    def _visit_module(self, path, owner):
        # Asked of the module and not of its dict: until one of `train()` and `eval()` has been called, its class says it.
        self._modes.append((path, owner, owner.training))
        for name, value in owner.__dict__.items():
            if name not in (*REGISTRIES, "training", "_unsaved_buffers"):
                self._module_items.append((f"{path}.{name}", owner.__dict__, name, value))
                self._visit(f"{path}.{name}", value)
        for registry in REGISTRIES:
            held = owner.__dict__[registry]
            self._module_sizes.append((f"{path}.{registry}", held, len(held)))
            for name, value in held.items():
                self._module_items.append((f"{path}.{name}", held, name, value))
                self._visit(f"{path}.{name}", value)
        self._visit(f"{path}.forward", type(owner).forward)

    def _visit_attributes(self):
        """Those attributes of the user's objects that code names; what they lead to may name more."""
        looked_at = set()
        while True:
            found = [(path, o, n) for path, o in self._objects for n in self._names if (id(o), n) not in looked_at]
            if not found:
                return
            for path, owner, name in found:
                looked_at.add((id(owner), name))
                if name in vars(owner):
                    self._note(f"{path}.{name}", vars(owner), name)
                    continue
                value = getattr(type(owner), name, _MISSING)
                if isinstance(value, (*_PLAIN, Tensor)):
                    self._defaults.append((f"{path}.{name}", owner, name, value))
                if not isinstance(value, _PLAIN):
                    self._visit(f"{path}.{name}", value.fget if isinstance(value, property) else value)

    def _note(self, path, container, key):
        value = container[key]
        self._items.append((path, container, key, value))
        self._visit(path, value)


def check_same(around, taken_anew=()):
    """Raise CaptureError if something around a captured step has changed."""
    found = around.difference(taken_anew)
    if found:
        raise CaptureError(
            f"capture: since the step was captured, {found}; expected what was baked in: call captured.reset()"
        )


def _names_of(code):
    """The globals and the attributes that code names, nested code too."""
    import dis

    read, named = set(), set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in _GLOBALS:
            read.add(instruction.argval)
        elif "ATTR" in instruction.opname or instruction.opname == "LOAD_METHOD":
            named.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            more_read, more_named = _names_of(constant)
            read |= more_read
            named |= more_named
    return read, named


def _root(name):
    return (name or "").partition(".")[0]


def _is_of_library(value):
    name = value.__name__ if isinstance(value, types.ModuleType) else type(value).__module__
    return _root(name) in _LIBRARIES


def _contents(cell):
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _entry(container, key):
    if isinstance(container, dict):
        return container.get(key, _MISSING)
    return container[key] if key < len(container) else _MISSING


def _are_equal(then, now):
    """Whether two plain values are equal; other values are if they are the same object."""
    if type(then) is not type(now):
        return False
    if isinstance(then, tuple):
        return len(then) == len(now) and all(a is b or _are_equal(a, b) for a, b in zip(then, now))
    return isinstance(then, _PLAIN) and (then == now or (then != then and now != now))


def _are_equal_states(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_are_equal_states(a[key], b[key]) for key in a)
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def _told(path, then, now):
    if isinstance(then, _PLAIN) and isinstance(now, _PLAIN):
        return f"{path} was {then!r} and is {now!r}"
    name = "nothing" if now is _MISSING else f"another {type(now).__name__}"
    return f"{path} was a {type(then).__name__} and is {name}"

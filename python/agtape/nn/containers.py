"""Owns the modules that hold other modules, Sequential, ModuleList, ModuleDict, and running modules in checkpoint segments."""

from collections.abc import Mapping
from itertools import pairwise

from agtape.arguments import as_int, as_list, as_text, shown
from agtape.checkpoint import checkpoint, settings
from agtape.nn.module import Module


class _Indexed(Module):
    """Children named '0', '1', ... in order."""

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __getitem__(self, index):
        children = list(self._modules.values())
        if isinstance(index, slice):
            return self._with(children[index])
        index = as_int(type(self).__name__, "the index", index)
        if not -len(children) <= index < len(children):
            raise IndexError(f"{type(self).__name__}: index {index} but {len(children)} modules")
        return children[index]

    def __setitem__(self, index, module):
        self[index]  # raises for what is no index
        self.add_module(list(self._modules)[index], module)

    def __delitem__(self, index):
        children = list(self._modules.values())
        self[index]  # raises for what is no index
        del children[index]
        for name in list(self._modules):
            delattr(self, name)
        self.extend(children)

    def append(self, module):
        """Add a module at the end; returns this container."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        """Add modules at the end; returns this container."""
        for module in as_list(type(self).__name__, "modules", modules, "an iterable of modules"):
            self.append(module)
        return self

    def insert(self, index, module):
        """Add a module before an index; returns this container."""
        children = list(self._modules.values())
        children.insert(as_int(f"{type(self).__name__}.insert", "index", index), module)
        for name in list(self._modules):
            delattr(self, name)
        return self.extend(children)


class Sequential(_Indexed):
    """Modules applied one after the other.

    Args:
        *modules: modules in order, or one mapping from names to modules.
        checkpoint_every: run so many modules at a time as one `ag.checkpoint` segment; None for no segments. A slice
            of it runs in such segments too.

    Raises:
        TypeError: something is not a module, or `checkpoint_every` is not an int; ValueError: it is less than 1.

    >>> import agtape as ag
    >>> model = ag.nn.Sequential(ag.nn.Linear(2, 3), ag.nn.ReLU(), ag.nn.Linear(3, 1))
    >>> model(ag.ones((5, 2))).shape
    (5, 1)
    """

    def __init__(self, *modules, checkpoint_every=None):
        self.checkpoint_every = (
            None if checkpoint_every is None else as_int("Sequential", "checkpoint_every", checkpoint_every, least=1)
        )
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            self.extend(modules)

    def _with(self, modules):
        part = type(self)(*modules)
        part.checkpoint_every = self.checkpoint_every
        return part

    def forward(self, input):
        """Apply every module in order."""
        if self.checkpoint_every is not None:
            return _in_segments(list(self._modules.values()), self.checkpoint_every, input)
        return _chain(self._modules.values(), input)


def checkpoint_sequential(functions, segments, input, *, replay="trace", verify=False, rngs=(), name="functions"):
    """Apply functions one after the other, as so many checkpoint segments of nearly equal length.

    Args:
        functions: a `Sequential` or a sequence of callables, each of one argument.
        segments: number of segments, at most that of the functions; all of them are segments, the last one too.
        input: what the first function gets.
        replay, verify, rngs: those of `ag.checkpoint`.
        name: what reports and errors call the functions; a segment of them has its range after it.

    Returns:
        What the last function returns.

    Raises:
        TypeError: `segments` is not an int, `functions` are no sequence of callables, or a keyword is of the wrong type; ValueError:
            `segments` is less than 1 or more than the functions, or `replay` is no known word.

    >>> import agtape as ag
    >>> layers = [ag.nn.Linear(4, 4) for _ in range(6)]
    >>> with ag.grad_tape() as tape:
    ...     y = ag.nn.checkpoint_sequential(layers, 2, ag.ones((3, 4)))
    >>> len(ag.tape_memory(tape).by_segment)
    2
    """
    expected = "a Sequential or a sequence of callables"
    functions = as_list("checkpoint_sequential", "functions", functions, expected)
    for i, function in enumerate(functions):
        if not callable(function):
            raise TypeError(
                f"checkpoint_sequential: functions[{i}] is {type(function).__name__}; expected something callable"
            )
    as_text("checkpoint_sequential", "name", name)
    how = settings(replay, verify, rngs, None, "checkpoint_sequential")
    segments = as_int("checkpoint_sequential", "segments", segments, least=1)
    if segments > len(functions):
        raise ValueError(
            f"checkpoint_sequential: {segments} segments of {len(functions)} functions; expected at most as many"
        )
    bounds = [len(functions) * i // segments for i in range(segments + 1)]
    for start, stop in pairwise(bounds):
        how["name"] = f"{name}[{start}:{stop}]"
        input = checkpoint(_chain, functions[start:stop], input, **how)
    return input


def _in_segments(modules, length, input):
    for start in range(0, len(modules), length):
        part = modules[start : start + length]
        input = checkpoint(_chain, part, input, name=f"Sequential[{start}:{start + len(part)}]")
    return input


def _chain(functions, input):
    for function in functions:
        input = function(input)
    return input


class ModuleList(_Indexed):
    """A list of modules whose parameters belong to the module that holds it.

    Args:
        modules: an iterable of modules.

    Raises:
        TypeError: something is not a module.

    >>> import agtape as ag
    >>> len(ag.nn.ModuleList([ag.nn.ReLU(), ag.nn.Tanh()]))
    2
    """

    def __init__(self, modules=()):
        self.extend(modules)

    def _with(self, modules):
        return type(self)(modules)


class ModuleDict(Module):
    """A dictionary of modules whose parameters belong to the module that holds it.

    Args:
        modules: a mapping from names to modules, or pairs.

    Raises:
        TypeError: something is not a module; ValueError: a name is not usable.

    >>> import agtape as ag
    >>> list(ag.nn.ModuleDict({"act": ag.nn.ReLU()}).keys())
    ['act']
    """

    def __init__(self, modules=()):
        self.update(modules)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, name):
        return name in self._modules

    def __getitem__(self, name):
        return self._modules[name]

    def __setitem__(self, name, module):
        self.add_module(name, module)

    def __delitem__(self, name):
        if name not in self._modules:
            raise KeyError(name)
        delattr(self, name)

    def keys(self):
        """The names."""
        return self._modules.keys()

    def values(self):
        """The modules."""
        return self._modules.values()

    def items(self):
        """Pairs of name and module."""
        return self._modules.items()

    def update(self, modules):
        """Add the modules of a mapping or of pairs."""
        expected = "a mapping from names to modules, or pairs"
        if isinstance(modules, str):
            raise TypeError(f"ModuleDict: modules is a text; expected {expected}")
        pairs = modules.items() if isinstance(modules, Mapping) else modules
        for pair in as_list("ModuleDict", "modules", pairs, expected):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(f"ModuleDict: modules holds {shown(pair)}; expected {expected}")
            self.add_module(*pair)

"""Owns the modules that hold other modules: Sequential, ModuleList, ModuleDict."""

from collections.abc import Mapping

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
            return type(self)._of(children[index])
        try:
            return children[index]
        except IndexError:
            raise IndexError(f"{type(self).__name__}: index {index} but {len(children)} modules") from None

    def __setitem__(self, index, module):
        self[index]
        self.add_module(list(self._modules)[index], module)

    def __delitem__(self, index):
        children = list(self._modules.values())
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
        for module in modules:
            self.append(module)
        return self

    def insert(self, index, module):
        """Add a module before an index; returns this container."""
        children = list(self._modules.values())
        children.insert(index, module)
        for name in list(self._modules):
            delattr(self, name)
        return self.extend(children)


class Sequential(_Indexed):
    """Modules applied one after the other.

    Args:
        *modules: modules in order, or one mapping from names to modules.

    Raises:
        TypeError: something is not a module.

    >>> import agtape as ag
    >>> model = ag.nn.Sequential(ag.nn.Linear(2, 3), ag.nn.ReLU(), ag.nn.Linear(3, 1))
    >>> model(ag.ones((5, 2))).shape
    (5, 1)
    """

    def __init__(self, *modules):
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            self.extend(modules)

    @classmethod
    def _of(cls, modules):
        return cls(*modules)

    def forward(self, input):
        """Apply every module in order."""
        for module in self._modules.values():
            input = module(input)
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

    @classmethod
    def _of(cls, modules):
        return cls(modules)


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
        for name, module in modules.items() if isinstance(modules, Mapping) else modules:
            self.add_module(name, module)

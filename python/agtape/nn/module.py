"""Owns `Module`, the tree of parameters, buffers and children that every layer and model is."""

from collections import OrderedDict

import agtape as ag
from agtape import _core
from agtape._core import Tensor
from agtape.arguments import as_flag, as_place, as_text
from agtape.nn import state, tree_view

_REGISTRIES = ("_parameters", "_buffers", "_modules")


def Parameter(data, requires_grad=True, dtype=None, device=None):
    """A leaf tensor that a module registers as a parameter when it is assigned to an attribute; the same as `ag.param`.

    Args:
        data: array, nested list or tensor; copied.
        requires_grad: whether it is trained; one that is frozen from the start must be added by `register_parameter`.
        dtype, device: as in `ag.tensor`.

    Returns:
        The tensor.

    Raises:
        TypeError: data is not an array, or its dtype is not floating.

    >>> import agtape as ag
    >>> ag.nn.Parameter([1.0, 2.0]).requires_grad
    True
    """
    requires_grad = as_flag("Parameter", "requires_grad", requires_grad)
    p = ag.param(data, **as_place("Parameter", dtype, device))
    return p if requires_grad else p.requires_grad_(False)


class Module:
    """Base class of layers and models: assign parameters, buffers and modules to attributes and define `forward`.

    A leaf tensor that requires a gradient becomes a parameter when assigned, a module a child; `register_buffer` adds state
    that is saved but not trained. Calling the module calls `forward`. `training` says which of `train()` and `eval()` came last.

    >>> import agtape as ag
    >>> class Scale(ag.nn.Module):
    ...     def __init__(self):
    ...         self.factor = ag.nn.Parameter([2.0])
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> Scale()(ag.tensor([3.0])).tolist()
    [6.0]
    """

    training = True

    def __new__(cls, *args, **kwargs):
        # The registries exist before any __init__ runs, so a subclass need not call super().__init__() first.
        self = super().__new__(cls)
        for registry in _REGISTRIES:
            self.__dict__[registry] = {}
        self.__dict__["_unsaved_buffers"] = set()
        return self

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def forward(self, *args, **kwargs):
        """Compute the module's result; every subclass defines it."""
        raise TypeError(f"{type(self).__name__}: has no forward method; define one to call it")

    # -- registration. A registered object stands in its registry, and in __dict__ so that reading it is a plain lookup. --

    def __setattr__(self, name, value):
        if isinstance(value, Tensor):
            current = self._buffers.get(name)
            if current is not None and current.shape == value.shape and current.dtype == value.dtype:
                current.assign_(value.detach() if value is current else value)
                return
            if name in self._buffers:
                return self._put("_buffers", name, value.detach())
            if name in self._parameters and not value.is_leaf:
                raise ValueError(
                    f"{type(self).__name__}.{name} is a parameter; expected a leaf, but the tensor given was computed "
                    "by recorded ops (detach it, or use assign_ to change the value)"
                )
            if name in self._parameters or (value.requires_grad and value.is_leaf):
                return self._put("_parameters", name, value)
        elif isinstance(value, Module):
            return self._put("_modules", name, value)
        elif value is None:
            for registry in _REGISTRIES:
                if name in self.__dict__[registry]:
                    return self._put(registry, name, None)
        self._forget(name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        self._forget(name)
        object.__delattr__(self, name)

    def _put(self, registry, name, value):
        for other in _REGISTRIES:
            if other != registry:
                self.__dict__[other].pop(name, None)
        self.__dict__[registry][name] = value
        self.__dict__[name] = value

    def _forget(self, name):
        for registry in _REGISTRIES:
            self.__dict__[registry].pop(name, None)
        self._unsaved_buffers.discard(name)

    def register_parameter(self, name, param):
        """Add a parameter (or `None`, a parameter that this module does without).

        Args:
            name: attribute name, without dots.
            param: leaf tensor or `None`.

        Raises:
            TypeError: param is not a tensor; ValueError: it is not a leaf, or the name is not usable.

        >>> import agtape as ag
        >>> m = ag.nn.Module()
        >>> m.register_parameter("w", ag.param([1.0]))
        >>> [name for name, _ in m.named_parameters()]
        ['w']
        """
        self._check_entry("register_parameter", name, param)
        if param is not None and not param.is_leaf:
            raise ValueError(f"register_parameter: {name!r} was computed by recorded ops; expected a leaf (detach it)")
        self._put("_parameters", name, param)

    def register_buffer(self, name, tensor, persistent=True):
        """Add state that is moved and saved with the module but not trained.

        Args:
            name: attribute name, without dots.
            tensor: a tensor or `None`. Assigning to the attribute later gives this same object a new value, unrecorded.
            persistent: whether `state_dict` includes it.

        Raises:
            TypeError: it is not a tensor; ValueError: the name is not usable.

        >>> import agtape as ag
        >>> m = ag.nn.Module()
        >>> m.register_buffer("steps", ag.zeros(()))
        >>> list(m.state_dict())
        ['steps']
        """
        persistent = as_flag("register_buffer", "persistent", persistent)
        self._check_entry("register_buffer", name, tensor)
        self._put("_buffers", name, tensor)
        (self._unsaved_buffers.discard if persistent else self._unsaved_buffers.add)(name)

    def add_module(self, name, module):
        """Add a child under a name (also `register_module`).

        Args:
            name: attribute name, without dots.
            module: a `Module` or `None`.

        Raises:
            TypeError: it is not a module; ValueError: the name is not usable.

        >>> import agtape as ag
        >>> m = ag.nn.Module()
        >>> m.add_module("act", ag.nn.ReLU())
        >>> m
        Module(
          (act): ReLU()
        )
        """
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"add_module: {name!r} is {type(module).__name__}; expected a Module")
        self._check_name("add_module", name)
        self._put("_modules", name, module)

    register_module = add_module

    def _check_entry(self, op, name, tensor):
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"{op}: {name!r} is {type(tensor).__name__}; expected a tensor or None")
        self._check_name(op, name)

    def _check_name(self, op, name):
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(f"{op}: the name is {name!r}; expected a string without dots")
        if hasattr(type(self), name):
            raise ValueError(f"{op}: {name!r} is a method or attribute of {type(self).__name__}; choose another name")

    # -- walking the tree --

    def named_modules(self, prefix=""):
        """Yield `(dotted name, module)` for this module (name `prefix`) and all below it, each module once.

        >>> import agtape as ag
        >>> [n for n, _ in ag.nn.Sequential(ag.nn.ReLU()).named_modules()]
        ['', '0']
        """
        seen, stack = set(), [(as_text("named_modules", "prefix", prefix), self)]
        while stack:
            name, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield name, module
            children = [(f"{name}.{k}" if name else k, m) for k, m in module._modules.items() if m is not None]
            stack.extend(reversed(children))

    def modules(self):
        """Yield this module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self):
        """Yield `(name, module)` for the modules directly below this one."""
        return ((name, m) for name, m in self._modules.items() if m is not None)

    def children(self):
        """Yield the modules directly below this one."""
        return (m for m in self._modules.values() if m is not None)

    def named_parameters(self, prefix="", recurse=True):
        """Yield `(dotted name, tensor)` for the parameters of this module and those below it; a shared one once.

        >>> import agtape as ag
        >>> [n for n, _ in ag.nn.Sequential(ag.nn.Linear(2, 3)).named_parameters()]
        ['0.weight', '0.bias']
        """
        return self._named("named_parameters", "_parameters", prefix, recurse)

    def parameters(self, recurse=True):
        """Yield the parameters of this module and those below it; a shared one once."""
        return (p for _, p in self._named("parameters", "_parameters", "", recurse))

    def named_buffers(self, prefix="", recurse=True):
        """Yield `(dotted name, tensor)` for the buffers of this module and those below it; a shared one once."""
        return self._named("named_buffers", "_buffers", prefix, recurse)

    def buffers(self, recurse=True):
        """Yield the buffers of this module and those below it; a shared one once."""
        return (b for _, b in self._named("buffers", "_buffers", "", recurse))

    def _named(self, op, registry, prefix, recurse):
        """The entries of a registry: checked at the call, walked when they are asked for."""
        return self._entries(registry, as_text(op, "prefix", prefix), as_flag(op, "recurse", recurse))

    def _entries(self, registry, prefix, recurse):
        seen = set()
        for base, module in self.named_modules(prefix) if recurse else [(prefix, self)]:
            for name, tensor in module.__dict__[registry].items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield (f"{base}.{name}" if base else name), tensor

    def apply(self, fn):
        """Call `fn` on every module below this one and then on this one; returns this module.

        >>> import agtape as ag
        >>> _ = ag.nn.Sequential(ag.nn.ReLU()).apply(lambda m: print(type(m).__name__))
        ReLU
        Sequential
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # -- modes, gradients, placement --

    def train(self, mode=True):
        """Set training mode here and below (dropout draws, batch norm uses the batch); returns this module.

        Raises:
            TypeError: mode is not a bool.
        """
        mode = as_flag("train", "mode", mode)
        for module in self.modules():
            object.__setattr__(module, "training", mode)
        return self

    def eval(self):
        """Set evaluation mode here and below; returns this module."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Say for every parameter here and below whether it wants a gradient; returns this module."""
        requires_grad = as_flag("requires_grad_", "requires_grad", requires_grad)
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Drop the gradients of all parameters; with `set_to_none=False` set those that exist to zero."""
        set_to_none = as_flag("zero_grad", "set_to_none", set_to_none)
        for p in self.parameters():
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad = ag.zeros_like(p.grad)

    def to(self, target=None, *, dtype=None, device=None):
        """Convert floating parameters and buffers to a dtype, or move everything to a device, in place and unrecorded.

        Args:
            target: a dtype (or its name) or a device.
            dtype, device: the same by keyword.

        Returns:
            This module; its tensors are the same objects as before. Gradients of another dtype or device are dropped.

        Raises:
            TypeError: the dtype is not floating or unknown; ValueError: the device is unknown.

        >>> import agtape as ag
        >>> str(ag.nn.Linear(2, 2).to("float64").weight.dtype)
        'float64'
        """
        if target is not None:
            dtype, device = (target, device) if state.is_dtype(target) else (dtype, target)
        if dtype is not None and not state.is_floating(dtype := _core.dtype_of(dtype, "to")):
            raise TypeError(f"to: dtype {dtype} is not floating; expected float16, bfloat16, float32 or float64")
        device = None if device is None else _core.device_named(device, "to")
        for tensor in [*self.parameters(), *self.buffers()]:
            value = tensor.detach()
            if dtype is not None and state.is_floating(tensor.dtype):
                value = value.astype(dtype)
            if device is not None:
                value = value.to(device)
            if value.dtype != tensor.dtype or value.device != tensor.device:
                tensor.grad = None
                _core.rebind(tensor, value)
        return self

    # -- saving --

    def state_dict(self, prefix=""):
        """Return the present values of parameters and persistent buffers by dotted name.

        Args:
            prefix: put in front of every name.

        Returns:
            An OrderedDict of detached tensors; later updates of the module do not change them.

        >>> import agtape as ag
        >>> list(ag.nn.LayerNorm(2).state_dict())
        ['weight', 'bias']
        """
        as_text("state_dict", "prefix", prefix)
        return OrderedDict((prefix + name, tensor.detach()) for name, tensor in state.saved_tensors(self))

    def load_state_dict(self, state_dict, strict=True):
        """Give parameters and buffers the values of a state dict, in place and unrecorded.

        Everything is checked before anything is changed.

        Args:
            state_dict: mapping from dotted names to tensors or arrays; values are converted to the present dtype and device.
            strict: whether missing and unexpected names are errors.

        Returns:
            A named tuple `(missing_keys, unexpected_keys)`.

        Raises:
            ValueError: shapes differ, or names are missing or unexpected with `strict`; TypeError: not a mapping of arrays.

        >>> import agtape as ag
        >>> a, b = ag.nn.Linear(2, 1), ag.nn.Linear(2, 1)
        >>> a.load_state_dict(b.state_dict())
        LoadResult(missing_keys=[], unexpected_keys=[])
        """
        return state.load(self, state_dict, as_flag("load_state_dict", "strict", strict))

    # -- display --

    def extra_repr(self):
        """One line about this module's own settings, shown by `repr`."""
        return ""

    def __repr__(self):
        return tree_view.as_text(self)

    def _repr_html_(self):
        return tree_view.as_html(self)

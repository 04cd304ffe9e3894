"""Owns `Optimizer`: parameter groups, state, saving and loading; each optimizer adds its own update."""

import copy
from collections.abc import Mapping

import agtape as ag
from agtape import _core
from agtape._core import Tensor
from agtape.arguments import as_flag, as_float, as_list, shown


class Optimizer:
    """Base class: leaves in groups, each with its own settings, and state per leaf.

    `param_groups` is a list of dicts: "params" and one entry per setting, which may be changed between steps. `state` maps each
    leaf to a dict of its tensors and counts.

    Args:
        params: an iterable of leaves, or of dicts with "params" and settings that differ from the defaults.
        defaults: dict of settings.

    Raises:
        ValueError: no parameters, one given twice, one that is not a leaf or not floating, or an impossible setting.
        TypeError: something is not a tensor, or a group has a setting that this optimizer lacks.

    >>> import agtape as ag
    >>> w = ag.param([1.0])
    >>> len(ag.optim.SGD([w], lr=0.1).param_groups)
    1
    """

    def __init__(self, params, defaults):
        self.defaults, self.state, self.param_groups = defaults, {}, []
        # The state that parameters begin with, while the step that makes it is under way.
        self._starting = None
        if isinstance(params, (Tensor, dict)):
            raise TypeError(
                f"{self._name()}: params is one {type(params).__name__}; expected an iterable (put it in a list)"
            )
        groups = as_list(
            self._name(), "params", params, "an iterable of leaves, such as model.parameters(), or of groups"
        )
        if not groups:
            raise ValueError(f"{self._name()}: params is empty; expected at least one leaf")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group):
        """Add leaves with their own settings.

        Args:
            param_group: dict with "params" (a leaf or an iterable of them) and settings.

        Raises:
            ValueError, TypeError: as in the class.

        >>> import agtape as ag
        >>> opt = ag.optim.SGD([ag.param([1.0])], lr=0.1)
        >>> opt.add_param_group({"params": [ag.param([2.0])], "lr": 0.01})
        >>> [g["lr"] for g in opt.param_groups]
        [0.1, 0.01]
        """
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise TypeError(
                f"{self._name()}: a group is {type(param_group).__name__}; expected a dict with the entry 'params'"
            )
        unknown = set(param_group) - set(self.defaults) - {"params"}
        if unknown:
            raise TypeError(
                f"{self._name()}: a group has {', '.join(sorted(map(str, unknown)))}; expected {', '.join(self.defaults)}"
            )
        group = {**self.defaults, **param_group}
        given = group["params"]
        if not isinstance(given, Tensor):
            given = as_list(self._name(), "a group's params", given, "a leaf or an iterable of them")
        group["params"] = [given] if isinstance(given, Tensor) else given
        seen = {id(p) for g in self.param_groups for p in g["params"]}
        for p in group["params"]:
            self._check_param(p, seen)
            seen.add(id(p))
        self._check_settings(group)
        self.param_groups.append(group)

    def zero_grad(self, set_to_none=True):
        """Drop the gradients of all parameters; with `set_to_none=False` set those that exist to zero.

        >>> import agtape as ag
        >>> ag.optim.SGD([ag.param([1.0])], lr=0.1).zero_grad()
        """
        set_to_none = as_flag("zero_grad", "set_to_none", set_to_none)
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    p.grad = ag.zeros_like(p.grad)

    def step(self, closure=None):
        """Update every parameter that has a gradient; parameters keep their identity and get new values, unrecorded.

        Args:
            closure: a function that computes the loss and its gradients again, called first.

        Returns:
            What the closure returned, or `None`.

        Raises:
            Exception: whatever the closure, or computing a gradient, raises; nothing is updated then.

        >>> import agtape as ag
        >>> w = ag.param([1.0])
        >>> opt = ag.optim.SGD([w], lr=0.5)
        >>> with ag.grad_tape():
        ...     loss = (w * 2).sum()
        >>> loss.backward()
        >>> opt.step()
        >>> w.tolist()
        [0.0]
        """
        loss = None if closure is None else closure()
        notes, first = [], {}
        for group in self.param_groups:
            first.update(self._first_state(group))
        if first:
            # In memory before any update is recorded: the plan of the first step is then that of all others.
            _core.eval(*[t for entries in first.values() for t in entries.values() if isinstance(t, Tensor)])
        self._starting = first
        try:
            for group in self.param_groups:
                self._record(group, notes)
            # All groups are computed by one plan, and state is noted when it has ended: all of it or none.
            _core.finish_updates(notes)
        finally:
            self._starting = None
            _core.abandon_updates()
        return loss

    def state_dict(self):
        """Return settings and state, with parameters numbered in the order of their groups, as in PyTorch.

        Returns:
            A dict with "state" (number to dict) and "param_groups"; tensors are detached and do not change later. State of a
            parameter that is in no group any more has no number and is left out.

        >>> import agtape as ag
        >>> sorted(ag.optim.SGD([ag.param([1.0])], lr=0.1).state_dict())
        ['param_groups', 'state']
        """
        number = {id(p): i for i, p in enumerate(self._all_params())}
        groups = [{**group, "params": [number[id(p)] for p in group["params"]]} for group in self.param_groups]
        frozen = {
            number[id(p)]: {k: v.detach() if isinstance(v, Tensor) else v for k, v in entries.items()}
            for p, entries in self.state.items()
            if id(p) in number
        }
        return {"state": frozen, "param_groups": copy.deepcopy(groups)}

    def load_state_dict(self, state_dict):
        """Take settings and state from a state dict; everything is checked before anything is changed.

        Args:
            state_dict: what `state_dict` returned, from an optimizer with equally many groups and parameters.

        Raises:
            TypeError: the state dict, a group or a parameter's state is no dict.
            ValueError: an entry or a setting is missing, the groups do not match, or a tensor has another shape than its parameter.

        >>> import agtape as ag
        >>> opt = ag.optim.SGD([ag.param([1.0])], lr=0.1)
        >>> opt.load_state_dict({**opt.state_dict()})
        """
        self._require("the state dict", state_dict, ("state", "param_groups"))
        self._require("'state'", state_dict["state"], ())
        op = f"{self._name()}.load_state_dict"
        saved = as_list(op, "'param_groups'", state_dict["param_groups"], "a list of dicts")
        for i, group in enumerate(saved):
            self._require(f"group {i}", group, ("params",))
        saved = [{**g, "params": as_list(op, "a group's params", g["params"], "a list of numbers")} for g in saved]
        own, given = [len(g["params"]) for g in self.param_groups], [len(g["params"]) for g in saved]
        if own != given:
            raise ValueError(f"{op}: groups of {given} parameters were given; expected {own}")
        for i, group in enumerate(saved):
            self._require(f"group {i}", group, self.defaults)
        by_number = dict(zip((n for g in saved for n in g["params"]), self._all_params()))
        state = {}
        for number, entries in state_dict["state"].items():
            if number not in by_number:
                raise ValueError(
                    f"{self._name()}.load_state_dict: state for parameter {number}; expected {sorted(by_number)}"
                )
            self._require(f"the state of parameter {number}", entries, ())
            p = by_number[number]
            state[p] = {k: self._restored(number, k, v, p) for k, v in entries.items()}
        groups = [{**theirs, "params": ours["params"]} for ours, theirs in zip(self.param_groups, copy.deepcopy(saved))]
        for group in groups:
            self._check_settings(group)
        self.state, self.param_groups = state, groups

    def __repr__(self):
        groups = "; ".join(
            ", ".join(f"{k}={v}" for k, v in {**g, "params": len(g["params"])}.items()) for g in self.param_groups
        )
        return f"{self._name()}({groups})"

    def _all_params(self):
        return [p for group in self.param_groups for p in group["params"]]

    def _require(self, what, given, keys):
        """Raise unless a part of a state dict is a dict that has these keys; more are welcome, such as PyTorch's."""
        expected = f"expected a dict with {', '.join(map(repr, keys))}" if keys else "expected a dict"
        if not isinstance(given, Mapping):
            raise TypeError(f"{self._name()}.load_state_dict: {what} is {type(given).__name__}; {expected}")
        missing = [key for key in keys if key not in given]
        if missing:
            raise ValueError(
                f"{self._name()}.load_state_dict: {what} has the keys {list(given)} and lacks {missing}; {expected}"
            )

    def _restored(self, number, name, value, param):
        """A saved entry: tensors and arrays as tensors of the parameter's shape, dtype and device; the rest unchanged."""
        if not hasattr(value, "shape"):
            return copy.deepcopy(value)
        if tuple(value.shape) != tuple(param.shape):
            raise ValueError(
                f"{self._name()}.load_state_dict: {name} of parameter {number} has shape {tuple(value.shape)}; expected "
                f"{tuple(param.shape)}"
            )
        value = value.detach() if isinstance(value, Tensor) else ag.tensor(value, device="cpu")
        value = value.astype(param.dtype) if value.dtype != param.dtype else value
        return value if value.device == param.device else value.to(param.device)

    def _check_param(self, p, seen):
        if not isinstance(p, Tensor):
            raise TypeError(
                f"{self._name()}: a parameter is {type(p).__name__}; expected a tensor (model.parameters() gives them)"
            )
        if not p.is_leaf:
            raise ValueError(f"{self._name()}: a parameter was computed by recorded ops; expected a leaf")
        if not str(p.dtype).startswith(("float", "bfloat")):
            raise ValueError(f"{self._name()}: a parameter is {p.dtype}; expected a floating dtype")
        if not _core.is_trainable(p):
            raise ValueError(
                f"{self._name()}: a parameter of shape {tuple(p.shape)} never required a gradient, so that it would never "
                "change; expected a leaf made by ag.param, or requires_grad_() before"
            )
        if id(p) in seen:
            raise ValueError(
                f"{self._name()}: a parameter of shape {tuple(p.shape)} was given twice; expected each once"
            )

    def _check_settings(self, group):
        """Raise on an impossible setting; optimizers add their own checks."""
        for name in ("lr", "weight_decay", "eps", "momentum", "dampening"):
            value = as_float(self._name(), name, group.get(name, 0.0))
            if not value >= 0 and name != "dampening":
                given = shown(group[name])
                raise ValueError(f"{self._name()}: {name} is {given}; expected a number that is not negative")
        for name in ("maximize", "nesterov"):
            if name in group:
                group[name] = as_flag(self._name(), name, group[name])

    def _name(self):
        return type(self).__name__

    def _first_state(self, group):
        """The first state of each of the group's parameters that has a gradient and no state yet. Optimizers with state define it."""
        return {}

    def _record(self, group, notes):
        """Record one group's updates, and add what to note once they are computed: (dict, key, value). Each optimizer defines it."""
        raise TypeError(f"{self._name()}: defines no update; expected a subclass with _record")

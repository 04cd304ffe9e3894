"""Owns `estimate_memory`: the peak of a training step, told from its plan without running it."""

import copy
import random

import numpy as np

import agtape as ag
from agtape import _core
from agtape._core import Tensor
from agtape.arguments import as_flag
from agtape.memory.record import Tables, format_bytes
from agtape.tree import flatten, tree_map


class MemoryEstimate(Tables, int):
    """The predicted peak of a training step in bytes (it is an int), and where it comes from.

    `peak`: the highest `memory_stats(device).active` during a step, everything held now included; `first_step_peak`: the same for the
    step that makes the optimizer's state. `held`: what is active now; `parameters`, `gradients`, `optimizer_state`; `step_bytes`: the
    highest that forward and backward have on top; `kernels` and `work` of their plan.
    """

    def __new__(cls, figures):
        return int.__new__(cls, figures["peak"])

    __eq__ = int.__eq__
    __hash__ = int.__hash__

    def _sections(self):
        yield "Estimate", self._figures()

    def _figures(self):
        for name in ("peak", "first_step_peak", "held", "parameters", "gradients", "optimizer_state", "step_bytes"):
            yield name.replace("_", " "), format_bytes(getattr(self, name))
        yield "kernels", f"{self.kernels:,}"
        yield "work", f"{self.work:,}"


def estimate_memory(model, inputs, optimizer, loss=None, *, holds_result=None):
    """Predict the peak memory of a training step (forward, backward, update) without running it.

    The step is recorded and planned as if it ran; nothing is computed, and model, gradients, optimizer, random state and open tapes are
    as before. Gradients that exist now are taken to be dropped before the step. A model that reads values, or a `checkpoint` with
    replay="call", cannot be predicted. What is not seen: Python attributes that the model's own code changes, and tensors that a
    training loop keeps beside the model.

    Args:
        model: a module or any function of the inputs.
        inputs: the argument of the model, or a tuple or list of its arguments, or a dict of them by name: tensors or arrays.
        optimizer: the optimizer of the step; None for forward and backward alone.
        loss: function from the model's result to a tensor with one element; None for the result itself or, if it has more elements,
            its sum.
        holds_result: whether the model's result lives until the step has ended, as `out` does after `out = model(x)`; False for a step
            that keeps no name for it. None: if there is a loss to give it to.

    Returns:
        A `MemoryEstimate`, an int of bytes with its parts.

    Raises:
        TypeError: `model` or `loss` cannot be called, `optimizer` is none, the result is not a tensor and no loss is given, or
            `holds_result` is no bool.
        ValueError: the loss has more than one element.
        RuntimeError: the model or the loss reads a value.

    >>> import agtape as ag
    >>> model = ag.nn.Linear(256, 256)
    >>> opt = ag.optim.Adam(model.parameters())
    >>> estimate = ag.estimate_memory(model, ag.zeros((64, 256)), opt)
    >>> estimate.optimizer_state == 2 * estimate.parameters == 2 * estimate.gradients
    True
    """
    _check_kinds(model, optimizer, loss)
    holds_result = (
        loss is not None if holds_result is None else as_flag("estimate_memory", "holds_result", holds_result)
    )
    groups = optimizer.param_groups if optimizer is not None else []
    params = _unique([p for g in groups for p in g["params"]] + _tensors_of(model, "parameters"))
    device = params[0].device if params else None
    args, kwargs = _arguments(inputs, device)
    state = getattr(optimizer, "state", {})
    entries = [v for e in state.values() for v in e.values() if isinstance(v, Tensor)]
    if any(p.device != "cpu" for p in params):
        # What is on its way to a device arrives first: a step is planned for one device.
        ag.eval(*params, *_tensors_of(model, "buffers"), *entries, args, kwargs)
    dropped = _bytes_held([p.grad for p in params if isinstance(p.grad, Tensor)])
    trained = [p for p in params if p.requires_grad]
    missing = {}

    def record():
        with ag.grad_tape() as tape:
            result = model(*args, **kwargs)
            total = _loss_of(result, loss)
        grads = [g for g in _core.gradient([total], [None], trained) if g is not None] if total.requires_grad else []
        tape.clear()
        missing["bytes"] = _state_to_come(optimizer, state, trained)
        return [total, *grads, result if holds_result else None]

    former = (ag.get_rng_state(), random.getstate(), np.random.get_state())
    try:
        plan = _core.forecast(record, _unique([*params, *_tensors_of(model, "buffers"), *entries]), device)
    finally:
        ag.set_rng_state(former[0])
        random.setstate(former[1])
        np.random.set_state(former[2])
    active = ag.memory_stats(device).active
    held, to_come = active - dropped, missing["bytes"]
    return MemoryEstimate(
        {
            "peak": held + to_come + max(plan["peak_bytes"], plan["kept_bytes"]),
            "first_step_peak": held + max(plan["peak_bytes"], plan["kept_bytes"] + to_come),
            "held": active,
            "parameters": _bytes_held(params),
            "gradients": sum(_class_bytes(p) for p in trained),
            "optimizer_state": _bytes_held(entries) + to_come,
            "step_bytes": plan["peak_bytes"],
            "kernels": plan["kernels"],
            "work": plan["work"],
        }
    )


def _check_kinds(model, optimizer, loss):
    if not callable(model):
        raise TypeError(
            f"estimate_memory: model is {type(model).__name__}; expected a module or a function of the inputs"
        )
    if optimizer is not None and not hasattr(optimizer, "param_groups"):
        raise TypeError(
            f"estimate_memory: optimizer is {type(optimizer).__name__}; expected one of ag.optim, or None for none"
        )
    if loss is not None and not callable(loss):
        raise TypeError(f"estimate_memory: loss is {type(loss).__name__}; expected a function of the result, or None")


def _arguments(inputs, device):
    """The model's arguments by position and by name, arrays as tensors on a device."""

    def as_tensor(value):
        return ag.tensor(value, device=device) if isinstance(value, (np.ndarray, np.generic)) else value

    if isinstance(inputs, dict):
        return (), {name: tree_map(as_tensor, value) for name, value in inputs.items()}
    given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    return tuple(tree_map(as_tensor, value) for value in given), {}


def _loss_of(result, loss):
    """The tensor that backward starts from."""
    total = result if loss is None else loss(result)
    if not isinstance(total, Tensor):
        what = "the model's result" if loss is None else "the loss"
        raise TypeError(f"estimate_memory: {what} is {type(total).__name__}; expected a tensor (pass loss=)")
    if total.size == 1:
        return total
    if loss is not None:
        raise ValueError(f"estimate_memory: the loss has shape {tuple(total.shape)}; expected one element")
    return total.sum()


def _state_to_come(optimizer, state, trained):
    """Bytes of the state that the optimizer makes for parameters that have none: a twin makes it for stand-ins of equal shape."""
    fresh = {id(p) for p in trained if p not in state}
    if not fresh or not hasattr(optimizer, "_record"):
        return 0
    twin = copy.copy(optimizer)
    twin.state, first, notes = {}, {}, []
    groups = [
        {**group, "params": [_stand_in(p) for p in group["params"] if id(p) in fresh]}
        for group in optimizer.param_groups
    ]
    for group in groups:
        first.update(twin._first_state(group))
    if not first:
        # Users' own optimizers may make their state while they record.
        try:
            for group in groups:
                twin._record(group, notes)
        finally:
            _core.abandon_updates()
        for entries, key, value in notes:
            entries[key] = value
    made, _ = flatten([*first.values(), *twin.state.values()])
    return sum(_class_bytes(t) for t in made if isinstance(t, Tensor))


def _stand_in(p):
    twin = ag.zeros(tuple(p.shape), dtype=p.dtype, device=p.device).requires_grad_()
    twin.grad = ag.zeros(tuple(p.shape), dtype=p.dtype, device=p.device)
    return twin


def _tensors_of(model, what):
    return list(getattr(model, what)()) if hasattr(model, what) else []


def _unique(tensors):
    return list({id(t): t for t in tensors}.values())


def _class_bytes(t):
    return _core.class_bytes(t.nbytes)


def _bytes_held(tensors):
    """Bytes of the tensors' storages, each once; a storage is as large as the largest of them."""
    sizes = {}
    for t in tensors:
        key = _core.storage_key(t) or ("pending", id(t))
        sizes[key] = max(sizes.get(key, 0), _class_bytes(t))
    return sum(sizes.values())

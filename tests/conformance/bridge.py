"""Owns the way between torch and agtape: converting arguments, comparing results."""

import agtape as ag
import numpy as np
import torch
from agtape import tree

# Where and how torch lays a tensor out says nothing about its values.
LAYOUT_ARGUMENTS = ("memory_format", "layout", "device", "pin_memory", "requires_grad")
_TOLERANCES = {"float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


class Unlike(AssertionError):
    """Two results differ; the message says how."""


def dtype_name(dtype):
    """torch's dtype as a word that both libraries know."""
    return str(dtype).removeprefix("torch.")


def to_agtape(value):
    """A torch argument as agtape takes it; containers are opened."""
    if isinstance(value, torch.Tensor):
        wide = value.float() if value.dtype == torch.bfloat16 else value
        return ag.tensor(wide.detach().numpy(), dtype=dtype_name(value.dtype))
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, torch.Size):
        return tuple(value)
    if type(value) in (list, tuple):
        return type(value)(to_agtape(v) for v in value)
    if isinstance(value, dict):
        return {k: to_agtape(v) for k, v in value.items() if k not in LAYOUT_ARGUMENTS}
    return value


def split_sample(sample):
    """A sample's differentiable leaves and a function that calls an operator with others in their places."""
    leaves, build = tree.flatten([sample.input, list(sample.args), dict(sample.kwargs)])
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]

    def call(operator, tensors, convert=lambda v: v):
        others = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        values = [convert(leaf) for leaf in others]
        for place, tensor in zip(places, tensors):
            values[place] = tensor
        input, args, kwargs = build(values)
        if convert is to_agtape:
            kwargs = {k: v for k, v in kwargs.items() if k not in LAYOUT_ARGUMENTS}
        return operator(input, *args, **kwargs)

    return [leaves[i].detach() for i in places], call


def flat_outputs(result):
    """The outputs of a call as a list."""
    leaves, _ = tree.flatten(tuple(result) if isinstance(result, tuple) else result)
    return leaves


def compare(what, ours, theirs, slack=1.0, compares="all"):
    """Raise `Unlike` unless every output has the other's shape, dtype and values (torch's tolerances times `slack`)."""
    if len(ours) != len(theirs):
        raise Unlike(f"{what}: {len(ours)} outputs; expected {len(theirs)}")
    for position, (a, b) in enumerate(zip(ours, theirs)):
        compare_one(f"{what} {position}" if len(ours) > 1 else what, a, b, slack, compares)


def compare_one(what, ours, theirs, slack=1.0, compares="all"):
    """Compare one output of agtape with one of a judge (torch, jax or NumPy arrays, or Python numbers)."""
    if not hasattr(theirs, "dtype"):
        if type(ours) is not type(theirs) or not (ours == theirs or (ours != ours and theirs != theirs)):
            raise Unlike(f"{what}: {ours!r}; expected {theirs!r}")
        return
    if not hasattr(ours, "dtype"):
        raise Unlike(f"{what}: {ours!r} is no tensor; expected {theirs.dtype} of shape {tuple(theirs.shape)}")
    wanted = dtype_name(theirs.dtype)
    if str(ours.dtype) != wanted:
        raise Unlike(f"{what}: dtype {ours.dtype}; expected {wanted}")
    if tuple(ours.shape) != tuple(theirs.shape):
        raise Unlike(f"{what}: shape {tuple(ours.shape)}; expected {tuple(theirs.shape)}")
    if compares == "shape":
        return
    if wanted == "bfloat16":
        theirs = theirs.float()
    a, b = ours.numpy(), theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else np.asarray(theirs)
    rtol, atol = (slack * t for t in _TOLERANCES.get(wanted, (0.0, 0.0)))
    close = np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if not close.all():
        where = tuple(int(i) for i in np.argwhere(~close)[0])
        raise Unlike(
            f"{what}: {a[where]!r} at {where}; expected {b[where]!r} ({int((~close).sum())} of {a.size} differ)"
        )


def describe(sample):
    """A sample in a few words, for messages."""

    def short(value):
        if isinstance(value, torch.Tensor):
            return f"{dtype_name(value.dtype)}{list(value.shape)}"
        if type(value) in (list, tuple):
            return "(" + ", ".join(short(v) for v in value) + ")"
        return repr(value)

    parts = [short(sample.input)] + [short(v) for v in sample.args]
    parts += [f"{k}={short(v)}" for k, v in sample.kwargs.items() if k not in LAYOUT_ARGUMENTS]
    return ", ".join(parts)[:200]

"""Owns state dicts: which tensors of a module are saved, and loading them back all or nothing."""

from collections.abc import Mapping
from typing import NamedTuple

import agtape as ag
from agtape._core import Tensor

_FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))
_DTYPES = _FLOATS | {"bool", "uint8", "int32", "int64"}


class LoadResult(NamedTuple):
    """What `load_state_dict` found: names without a value, and values without a name."""

    missing_keys: list
    unexpected_keys: list


def is_floating(dtype):
    """Whether a dtype (object, NumPy dtype or class, or name) is a floating one."""
    return _name(dtype) in _FLOATS


def is_dtype(value):
    """Whether a value names a dtype rather than a device."""
    return _name(value) in _DTYPES


def saved_tensors(module):
    """Yield `(dotted name, tensor)` for what `state_dict` holds; a shared tensor appears under each of its names."""
    own = [
        *module._parameters.items(),
        *((k, b) for k, b in module._buffers.items() if k not in module._unsaved_buffers),
    ]
    yield from ((name, tensor) for name, tensor in own if tensor is not None)
    for child_name, child in module.named_children():
        yield from ((f"{child_name}.{name}", tensor) for name, tensor in saved_tensors(child))


def load(module, state_dict, strict):
    """Check a state dict against a module, then give the module's tensors its values."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            f"load_state_dict: the state is {type(state_dict).__name__}; expected a mapping from names to tensors"
        )
    targets = dict(saved_tensors(module))
    missing = [name for name in targets if name not in state_dict]
    unexpected = [name for name in state_dict if name not in targets]
    problems = []
    if strict and missing:
        problems.append(f"missing: {', '.join(missing)}")
    if strict and unexpected:
        problems.append(f"unexpected: {', '.join(map(str, unexpected))}")
    values = {}
    for name, target in targets.items():
        if name not in state_dict:
            continue
        value = values[name] = _as_tensor(name, state_dict[name])
        if tuple(value.shape) != tuple(target.shape):
            problems.append(f"{name} has shape {tuple(value.shape)}, expected {tuple(target.shape)}")
    if problems:
        raise ValueError(f"load_state_dict of {type(module).__name__}: " + "; ".join(problems))
    converted = [(targets[name], _convert(value, targets[name])) for name, value in values.items()]
    for target, value in converted:
        target.assign_(value)
    return LoadResult(missing, unexpected)


def _as_tensor(name, value):
    if isinstance(value, Tensor):
        return value.detach()
    try:
        return ag.tensor(value, device="cpu")
    except (TypeError, ValueError) as error:
        raise TypeError(f"load_state_dict: {name} is {type(value).__name__}; expected a tensor or an array") from error


def _convert(value, target):
    if value.dtype != target.dtype:
        value = value.astype(target.dtype)
    return value if value.device == target.device else value.to(target.device)


def _name(dtype):
    return dtype.__name__ if isinstance(dtype, type) else str(dtype)

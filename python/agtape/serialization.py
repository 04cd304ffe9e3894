"""Owns saving and loading: nested containers of tensors as safetensors files, whose header also says how they were nested."""

import json
import math
import os
from collections.abc import Mapping

import agtape as ag
from agtape import _core
from agtape._core import Tensor
from agtape.arguments import as_path

# The header's entry that says how the tensors were nested; a file of other programs has none.
_TREE = "agtape.tree"
_SCALARS = (str, bool, int, float, type(None))


def save(obj, path, metadata=None):
    """Write tensors to a safetensors file, which takes the place of an old one when it is complete.

    A flat mapping from names to tensors, such as `Module.state_dict()`, becomes a file that every reader of the format
    understands. Other containers are noted in the header: their tensors are named by the way to them, as in
    `"optimizer.state.0.exp_avg"`.

    Args:
        obj: a tensor or an array, or dicts, lists and tuples of them, nested at will, with numbers, text, booleans and `None`
            between them; the keys of dicts are strings or integers.
        path: of the file. What is there stays whole until the new file has replaced it.
        metadata: dict from strings to strings, kept in the header for other readers; `load` ignores it.

    Raises:
        TypeError: something is none of these.
        ValueError: two tensors have the same way, or a container holds itself.
        OSError: the file cannot be written; nothing has changed then.

    Source: the format is https://github.com/huggingface/safetensors.

    >>> import agtape as ag, os, tempfile
    >>> model = ag.nn.Linear(2, 1)
    >>> opt = ag.optim.Adam(model.parameters())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.safetensors")
    ...     ag.save({"model": model.state_dict(), "optimizer": opt.state_dict(), "epoch": 3}, path)
    ...     found = ag.load(path)
    >>> found["epoch"], found["model"]["weight"].shape
    (3, (1, 2))
    """
    path, tensors = os.fsdecode(as_path("save", path)), {}
    text = _checked_metadata(metadata)
    tree = _noted(obj, (), tensors, set())
    if not _is_flat(obj):
        text[_TREE] = json.dumps(tree)
    _core.save_tensors(path, list(tensors.items()), text or None)


def load(path, device=None):
    """Read what `save` or another writer of safetensors has written; everything is checked before anything is allocated.

    Args:
        path: of the file.
        device: where the tensors go; the default device if `None`.

    Returns:
        The container that was saved, or for a file of another program a dict from names to tensors. The tensors are new leaves
        that want no gradient.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a whole safetensors file, or its header contradicts itself; an unknown device.
        TypeError: it holds a type that tensors cannot have, or float64 for a device without it.
        MemoryError: the tensors do not fit.

    >>> import agtape as ag, os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "numbers.safetensors")
    ...     ag.save({"x": ag.arange(3)}, path)
    ...     ag.load(path)
    {'x': tensor([0, 1, 2])}
    """
    path = os.fsdecode(as_path("load", path))
    file = _core.open_tensors(path)
    names, tree = set(file.names()), file.metadata().get(_TREE)
    if tree is None:
        return dict(file.tensors(device))
    try:
        tree = json.loads(tree)
        found = _names(tree)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"load: {path}: the header's {_TREE!r} is not what save writes: {error}") from error
    if sorted(found) != sorted(names):
        raise ValueError(
            f"load: {path}: the header's {_TREE!r} names {sorted(found)[:8]}, the file holds {sorted(names)[:8]}"
        )
    return _built(tree, dict(file.tensors(device)))


def _checked_metadata(metadata):
    """A copy of the user's text for the header."""
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, Mapping) or not all(isinstance(s, str) for pair in metadata.items() for s in pair):
        raise TypeError(f"save: metadata is {metadata!r}; expected a dict from strings to strings")
    if _TREE in metadata:
        raise ValueError(f"save: metadata has the entry {_TREE!r}; expected other names, save writes this one itself")
    return dict(metadata)


def _is_flat(obj):
    """Whether other programs can say what the file was: a plain dict from names to tensors, its names not ours."""
    return (
        type(obj) is dict
        and len(obj) > 0
        and all(isinstance(name, str) and _is_array(value) for name, value in obj.items())
    )


def _is_array(value):
    return isinstance(value, Tensor) or (hasattr(value, "__array__") and not isinstance(value, type))


def _noted(node, way, tensors, open_ids):
    """Note the tensors below `node` under their ways, and return what the header says of it."""
    if _is_array(node):
        name = ".".join(map(str, way)) or "tensor"
        if name == "__metadata__" or name in tensors:
            raise ValueError(f"save: two tensors would be named {name!r}; expected other keys")
        tensors[name] = node if isinstance(node, Tensor) else ag.tensor(node, device="cpu")
        return {"tensor": name}
    if type(node) in _SCALARS:
        return {"float": str(node)} if isinstance(node, float) and not math.isfinite(node) else node
    if not isinstance(node, Mapping | list | tuple):
        at = f" at {'.'.join(map(str, way))!r}" if way else ""
        raise TypeError(
            f"save: {type(node).__name__}{at}; expected tensors, arrays, dicts, lists, tuples, numbers, text, booleans or None"
        )
    if id(node) in open_ids:
        raise ValueError(f"save: the container at {'.'.join(map(str, way))!r} holds itself")
    open_ids.add(id(node))
    try:
        if not isinstance(node, Mapping):
            kind = "tuple" if isinstance(node, tuple) else "list"
            return {kind: [_noted(child, (*way, i), tensors, open_ids) for i, child in enumerate(node)]}
        wrong = [key for key in node if type(key) not in (str, int)]
        if wrong:
            raise TypeError(f"save: the key {wrong[0]!r} of a dict; expected strings or integers")
        return {"dict": [[key, _noted(child, (*way, key), tensors, open_ids)] for key, child in node.items()]}
    finally:
        open_ids.discard(id(node))


def _opened(node):
    """The kind of a node of the header's tree, and what it holds; raises unless it is one that `save` writes."""
    if not isinstance(node, dict):
        if type(node) not in _SCALARS:
            raise ValueError(f"a {type(node).__name__} stands where a value is expected")
        return "scalar", node
    ((kind, held),) = node.items()
    fits = {
        "tensor": isinstance(held, str),
        "float": held in ("nan", "inf", "-inf"),
        "list": isinstance(held, list),
        "tuple": isinstance(held, list),
        "dict": isinstance(held, list) and all(isinstance(p, list) and len(p) == 2 for p in held),
    }
    if not fits.get(kind, False):
        raise ValueError(f"{kind!r} holds {type(held).__name__}")
    if kind == "dict" and not all(type(key) in (str, int) for key, _ in held):
        raise ValueError("a key is neither a string nor an integer")
    return kind, held


def _names(node):
    """The tensors that a tree of the header names, checked throughout."""
    kind, held = _opened(node)
    if kind == "tensor":
        return [held]
    if kind in ("scalar", "float"):
        return []
    children = [child for _, child in held] if kind == "dict" else held
    return [name for child in children for name in _names(child)]


def _built(node, tensors):
    kind, held = _opened(node)
    if kind == "dict":
        return {key: _built(child, tensors) for key, child in held}
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(_built(child, tensors) for child in held)
    return {"tensor": tensors.get, "float": float, "scalar": lambda value: value}[kind](held)

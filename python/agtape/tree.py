"""Owns nested containers: flattening lists, tuples, dicts and dataclasses into leaves and building them again."""

import dataclasses


def flatten(tree):
    """Split a nested container into its leaves and a function that builds the same container around new ones.

    Lists, tuples, named tuples, dicts (in their own order) and dataclass instances are opened; anything else is a leaf.

    Args:
        tree: any object.

    Returns:
        `(leaves, build)`: a list, and a function from an equally long list to a container shaped like `tree`.

    Raises:
        RecursionError: if a container holds itself.

    >>> leaves, build = flatten({"a": [1, 2], "b": (3,)})
    >>> leaves, build([x * 10 for x in leaves])
    ([1, 2, 3], {'a': [10, 20], 'b': (30,)})
    """
    leaves = []
    spec = _open(tree, leaves)
    return leaves, lambda values: _close(spec, iter(values))


def tree_map(fn, tree):
    """Apply `fn` to every leaf of a nested container.

    Args:
        fn: function of one leaf.
        tree: any object; see `flatten` for what is opened.

    Returns:
        A container shaped like `tree` holding what `fn` returned.

    Raises:
        Exception: whatever `fn` raises.

    >>> tree_map(lambda x: x + 1, [1, {"b": 2}])
    [2, {'b': 3}]
    """
    leaves, build = flatten(tree)
    return build([fn(leaf) for leaf in leaves])


def _open(node, leaves):
    """Append the leaves below `node` and return its spec: None for a leaf, else (rebuild, child specs)."""
    if isinstance(node, dict):
        keys = list(node)
        return (lambda items: _fill(node, keys, items)), [_open(node[k], leaves) for k in keys]
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return (lambda items: type(node)(*items)), [_open(v, leaves) for v in node]
    if type(node) in (list, tuple):
        return type(node), [_open(v, leaves) for v in node]
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        names = [f.name for f in dataclasses.fields(node) if f.init]
        children = [_open(getattr(node, n), leaves) for n in names]
        return (lambda items: dataclasses.replace(node, **dict(zip(names, items)))), children
    leaves.append(node)
    return None


def _close(spec, values):
    """Build the container of `spec`, taking one value per leaf."""
    if spec is None:
        return next(values)
    rebuild, children = spec
    return rebuild([_close(child, values) for child in children])


def _fill(mapping, keys, items):
    """A dict like `mapping` with new items; a subclass (OrderedDict, defaultdict) is copied so that it keeps its settings."""
    if type(mapping) is dict:
        return dict(zip(keys, items))
    filled = mapping.copy()
    for key, item in zip(keys, items):
        filled[key] = item
    return filled

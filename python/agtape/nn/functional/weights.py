"""Owns the functions that multiply by weights or look them up: linear, embedding, one_hot, normalize."""

import agtape as ag
from agtape import _core
from agtape._core import Tensor
from agtape.arguments import as_int, as_ints, as_number
from agtape.nn.functional.checks import as_indices, as_tensor, kind_of


def linear(input, weight, bias=None):
    """input @ weight.T + bias.

    Args:
        input: tensor of shape (..., in).
        weight: tensor of shape (out, in).
        bias: tensor of shape (out,) or `None`.

    Returns:
        A tensor of shape (..., out).

    Raises:
        ValueError: the shapes do not fit; TypeError: something is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.functional.linear(ag.ones((2, 3)), ag.ones((4, 3)), ag.ones(4)).shape
    (2, 4)
    """
    input, weight = as_tensor("linear", "input", input), as_tensor("linear", "weight", weight)
    if bias is not None:
        bias = as_tensor("linear", "bias", bias, input)
    try:
        out = input @ weight.T
        return out if bias is None else out + bias
    except ValueError:
        shapes = ", ".join(
            f"{n} {tuple(t.shape)}" for n, t in (("input", input), ("weight", weight), ("bias", bias)) if t is not None
        )
        raise ValueError(f"linear: {shapes}; expected input (..., in), weight (out, in) and bias (out,)") from None


def embedding(input, weight, padding_idx=None):
    """Rows of a table by index.

    Args:
        input: integers of any type and shape, from 0 to num - 1; lists and arrays are checked at the call, tensors when read.
        weight: the table, of shape (num, dim).
        padding_idx: a row that gets no gradient.

    Returns:
        A tensor of shape (*input.shape, dim).

    Raises:
        TypeError: indices are not integers, or the weight is neither a tensor nor an array; IndexError: an index is out of range;
            ValueError: the table is not a matrix.

    >>> import agtape as ag
    >>> ag.nn.functional.embedding([2, 0], ag.arange(6.0).reshape(3, 2)).tolist()
    [[4.0, 5.0], [0.0, 1.0]]
    """
    weight = as_tensor("embedding", "weight", weight)
    if weight.ndim != 2:
        raise ValueError(f"embedding: the weight has shape {tuple(weight.shape)}; expected (num, dim)")
    if not isinstance(input, Tensor) or kind_of(input.dtype) != "int":
        input, _ = as_indices("embedding", "input", input, weight.shape[0], weight)
    rows = _core.embedding_rows(weight, input)
    if padding_idx is None:
        return rows
    num, padding_idx = weight.shape[0], as_int("embedding", "padding_idx", padding_idx)
    if not -num <= padding_idx < num:
        raise IndexError(f"embedding: padding_idx is {padding_idx}; expected an index into {num} rows")
    is_padding = (input == padding_idx % num).reshape(*input.shape, 1)
    return ag.where(is_padding, rows.detach(), rows)


def one_hot(tensor, num_classes=-1):
    """Vectors that are 1 at an index and 0 elsewhere.

    Args:
        tensor: integers of any type and shape.
        num_classes: length of the vectors; -1 reads the indices and takes the largest plus one.

    Returns:
        An int64 tensor of shape (*tensor.shape, num_classes), as in PyTorch.

    Raises:
        TypeError: not integers, or neither a tensor nor an array; IndexError: one is out of range; ValueError: num_classes is below -1.

    >>> import agtape as ag
    >>> ag.nn.functional.one_hot([1, 0], 3).tolist()
    [[0, 1, 0], [1, 0, 0]]
    """
    num_classes = as_int("one_hot", "num_classes", num_classes)
    if num_classes < -1:
        raise ValueError(f"one_hot: num_classes is {num_classes}; expected -1 or a length")
    tensor = as_tensor("one_hot", "tensor", tensor)
    if kind_of(tensor.dtype) != "int":
        raise TypeError(f"one_hot: the indices are {tensor.dtype}; expected integers")
    if num_classes == -1:
        if tensor.size == 0:
            raise ValueError("one_hot: no index and num_classes=-1; expected a length")
        num_classes = int(tensor.max().item()) + 1
    return ag.one_hot(tensor, num_classes).astype("int64")


def normalize(input, p=2.0, dim=1, eps=1e-12, *, axis=None):
    """input divided by its p-norm along an axis, or by eps if that is larger.

    Args:
        input: tensor of any shape.
        p: order of the norm.
        dim: the axis (`axis` means the same).
        eps: smallest divisor.

    Returns:
        A tensor of the same shape.

    Raises:
        ValueError: the axis does not exist, or p is not positive; TypeError: the axis is no int, or the input is neither a tensor nor an
            array.

    >>> import agtape as ag
    >>> ag.nn.functional.normalize(ag.tensor([[3.0, 4.0]])).tolist()[0][1] > 0.79
    True
    """
    input = as_tensor("normalize", "input", input)
    p, eps = as_number("normalize", "p", p), as_number("normalize", "eps", eps)
    if not p > 0:
        raise ValueError(f"normalize: p is {p!r}; expected a positive number")
    where = _axes("normalize", dim, axis)
    if p == 2:
        # The maximum is taken before the root: sqrt has no finite gradient at 0.
        norm = ag.sqrt(ag.maximum(ag.square(input).sum(axis=where, keepdims=True), eps * eps))
    elif p == float("inf"):
        norm = ag.maximum(ag.abs(input).max(axis=where, keepdims=True), eps)
    else:
        norm = ag.maximum((ag.abs(input) ** p).sum(axis=where, keepdims=True), eps**p) ** (1 / p)
    return input / norm


def cosine_similarity(x1, x2, dim=1, eps=1e-8, *, axis=None):
    """The cosine of the angle between two tensors along an axis.

    Args:
        x1, x2: tensors that broadcast together.
        dim: the axis (`axis` means the same).
        eps: smallest length of each.

    Returns:
        A tensor without that axis.

    Raises:
        ValueError: the shapes do not broadcast, or the axis does not exist; TypeError: the axis is no int, or something is neither a
            tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.functional.cosine_similarity(ag.tensor([[1.0, 0.0]]), ag.tensor([[0.0, 1.0]])).tolist()
    [0.0]
    """
    where, eps = _axes("cosine_similarity", dim, axis), as_number("cosine_similarity", "eps", eps)
    x1, x2 = as_tensor("cosine_similarity", "x1", x1), as_tensor("cosine_similarity", "x2", x2)
    if x1.shape != x2.shape:
        # Before the lengths are taken: an axis of size 1 counts as often as the other tensor's is long.
        x1, x2 = ag.broadcast_arrays(x1, x2)
    return (normalize(x1, 2.0, where, eps) * normalize(x2, 2.0, where, eps)).sum(axis=where)


def _axes(op, dim, axis):
    """The axis or axes meant by `dim`, or by `axis` where it is given."""
    name, value = ("dim", dim) if axis is None else ("axis", axis)
    return as_ints(op, name, value) if isinstance(value, (tuple, list)) else as_int(op, name, value)

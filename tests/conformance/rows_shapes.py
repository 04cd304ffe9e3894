"""Owns the rows of operators that change shapes, join, split, repeat, and create."""

from itertools import accumulate

import agtape as ag
from rows import Difference, Row
from rows_reductions import NO_AXES, names_an_axis

SCALARS = (Difference(NO_AXES, names_an_axis),)
NO_BOUND = "a bool bounds no range: it is a mask or a flag, and meant for another argument"
LONG_AXES = "squeezing an axis of another size than 1 is an error, as in NumPy"
LEGACY = "a vector of shape (0,) does not join with tensors of more axes, as in NumPy"


def are_bools(*bounds, **kwargs):
    """Whether a bound is a bool."""
    return any(isinstance(bound, bool) for bound in (*bounds, kwargs.get("end")))


def has_long_axis(input, dim=()):
    """Whether an axis to squeeze is longer than 1."""
    dims = (dim,) if isinstance(dim, int) else dim
    return input.ndim > 0 and any(input.shape[d] != 1 for d in dims)


def joins_legacy_empty(inputs, *args, **kwargs):
    """Whether an empty vector stands among tensors of more axes."""
    return any(x.ndim == 1 for x in inputs) and any(x.ndim > 1 for x in inputs)


SQUEEZES = (*SCALARS, Difference(LONG_AXES, has_long_axis))


def method(op, name=None, **more):
    """An operator that is a method of agtape's tensors with the same arguments."""
    name = name or op
    return Row(op, f"Tensor.{name}", lambda x, *args: getattr(x, name)(*args), **more)


def cut(x, size, dim=0):
    """torch's split is by sizes; agtape's, like NumPy's, is by the number of parts or by positions."""
    sizes = [size] * (x.shape[dim] // size) if isinstance(size, int) else list(size)[:-1]
    ends = [end for end in accumulate(sizes) if end < x.shape[dim] or not isinstance(size, int)]
    return ag.split(x, ends, axis=dim)


def tensor_split(x, cuts, dim=0):
    """torch's tensor_split takes a number of parts or positions, also as a tensor."""
    return ag.split(x, cuts.tolist() if isinstance(cuts, ag.Tensor) else cuts, axis=dim)


def is_uneven(input, cuts, dim=0):
    """Whether the parts would not be equal."""
    cuts = cuts.tolist() if hasattr(cuts, "tolist") else cuts
    return isinstance(cuts, int) and bool(input.shape[dim] % cuts)


def torch_pad(x, pad, mode="constant", value=None):
    """torch names the pairs from the last axis to the first, in one list."""
    pairs = list(zip(pad[::2], pad[1::2]))[::-1]
    pairs = [(0, 0)] * (x.ndim - len(pairs)) + pairs
    if mode == "constant":
        return ag.pad(x, pairs, mode, constant_values=0 if value is None else value)
    return ag.pad(x, pairs, mode)


def has_negative_pad(input, pad, *args, **kwargs):
    """Whether torch crops."""
    return any(n < 0 for n in pad)


def padding(mode, **more):
    """One mode of padding."""
    crops = (("a negative width, with which torch crops", has_negative_pad),)
    return Row(f"nn.functional.pad.{mode}", "pad", torch_pad, not_offered=crops, **more)


def repeat_interleave(x, repeats, dim=None, output_size=None):
    """torch's name of NumPy's repeat."""
    return ag.repeat(x, repeats.tolist() if isinstance(repeats, ag.Tensor) else repeats, axis=dim)


def in_place(op, name, apply):
    """A method that changes its tensor."""

    def call(x, *args, **kwargs):
        changed = x.clone()
        apply(changed, *args, **kwargs)
        return changed

    return Row(op, f"Tensor.{name}", call)


def conversion(name):
    """A method that converts to a dtype."""
    return Row(name, f"Tensor.{name}", lambda x: getattr(x, name)())


def to(x, *args, **kwargs):
    """torch's `to` takes a device, a dtype, both, or another tensor."""
    targets = [a.dtype if isinstance(a, ag.Tensor) else a for a in args if not isinstance(a, bool)]
    for target in targets:
        x = x.to(target)
    return x


def arange(*bounds, end=None, dtype=None):
    """torch calls the stop `end`."""
    return ag.arange(*bounds, *(() if end is None else (end,)), dtype=dtype)


SHAPES = (
    Row("reshape", "reshape", lambda x, shape: ag.reshape(x, shape)),
    method("view"),
    Row("permute", "permute", lambda x, dims: ag.permute(x, dims)),
    Row("transpose", "transpose", lambda x, a, b: ag.transpose(x, a, b), SCALARS),
    Row("T", "Tensor.T", lambda x: x.T),
    Row("mT", "Tensor.mT", lambda x: x.mT),
    Row("movedim", "moveaxis", lambda x, a, b: ag.moveaxis(x, a, b)),
    Row("unsqueeze", "expand_dims", lambda x, dim: ag.expand_dims(x, dim)),
    Row("squeeze", "squeeze", lambda x, dim=None: ag.squeeze(x, dim), SQUEEZES),
    Row("squeeze.multiple", "squeeze", lambda x, dim: ag.squeeze(x, dim), SQUEEZES),
    Row("broadcast_to", "broadcast_to", lambda x, shape: ag.broadcast_to(x, shape)),
    method("expand"),
    Row("broadcast_tensors", "broadcast_arrays", lambda x, *more: ag.broadcast_arrays(x, *more)),
    Row("flip", "flip", lambda x, dims: ag.flip(x, dims)),
    Row("flatten", "flatten", lambda x, start_dim=0, end_dim=-1: ag.flatten(x, start_dim, end_dim)),
    method("ravel"),
    Row("meshgrid.variadic_tensors", "meshgrid", lambda x, *more, indexing: ag.meshgrid(x, *more, indexing=indexing)),
    Row("meshgrid.list_of_tensors", "meshgrid", lambda xs, indexing: ag.meshgrid(*xs, indexing=indexing)),
    Row("unbind", "unstack", lambda x, dim=0: ag.unstack(x, dim)),
    Row("diag", "diag", lambda x, k=0: ag.diag(x, k)),
    Row("diagonal", "diagonal", lambda x, offset=0, dim1=0, dim2=1: ag.diagonal(x, offset, dim1, dim2)),
    Row("linalg.diagonal", "diagonal", lambda x, offset=0, dim1=-2, dim2=-1: ag.diagonal(x, offset, dim1, dim2)),
    Row("triu", "triu", lambda x, k=0: ag.triu(x, k)),
    Row("tril", "tril", lambda x, k=0: ag.tril(x, k)),
    method("contiguous"),
    method("clone"),
    Row("item", "Tensor.item", lambda x: x.item()),
)

JOINS = (
    Row("cat", "concat", lambda xs, dim=0: ag.concat(xs, dim), (Difference(LEGACY, joins_legacy_empty),)),
    Row("stack", "stack", lambda xs, dim=0: ag.stack(xs, dim)),
    Row("split", "split", cut),
    Row("split.list_args", "split", cut),
    Row("split_with_sizes", "split", cut),
    Row("tensor_split", "split", tensor_split, not_offered=(("a number of unequal parts", is_uneven),)),
    Row("tile", "tile", lambda x, dims: ag.tile(x, dims)),
    Row("repeat", "tile", lambda x, *dims: ag.tile(x, dims[0] if len(dims) == 1 else dims)),
    Row("repeat_interleave", "repeat", repeat_interleave),
    Row("roll", "roll", lambda x, shifts, dims=None: ag.roll(x, shifts, dims)),
    padding("constant"),
    padding("reflect"),
    padding("replicate"),
    padding("circular"),
    padding("replicate_negative"),
    Row(
        "diff",
        "diff",
        lambda x, n=1, dim=-1, prepend=None, append=None: ag.diff(x, n=n, axis=dim, prepend=prepend, append=append),
    ),
)

CREATION = (
    Row("zeros", "zeros", lambda shape, dtype=None: ag.zeros(shape, dtype=dtype)),
    Row("ones", "ones", lambda shape, dtype=None: ag.ones(shape, dtype=dtype)),
    Row("empty", "empty", lambda shape, dtype=None: ag.empty(shape, dtype=dtype), compares="shape"),
    Row("full", "full", lambda shape, value, dtype=None: ag.full(shape, value, dtype=dtype)),
    Row("arange", "arange", arange, (Difference(NO_BOUND, are_bools),)),
    Row("linspace", "linspace", lambda start, end, steps, dtype=None: ag.linspace(start, end, steps, dtype=dtype)),
    Row("eye", "eye", lambda n, m=None, dtype=None: ag.eye(n, m, dtype=dtype)),
    Row("zeros_like", "zeros_like", lambda x, dtype=None: ag.zeros_like(x, dtype=dtype)),
    Row("ones_like", "ones_like", lambda x, dtype=None: ag.ones_like(x, dtype=dtype)),
    Row("empty_like", "empty_like", lambda x, dtype=None: ag.empty_like(x, dtype=dtype), compares="shape"),
    Row("full_like", "full_like", lambda x, value, dtype=None: ag.full_like(x, value, dtype=dtype)),
    Row("randn", "randn", lambda shape, dtype=None: ag.randn(shape, dtype=dtype), compares="shape"),
    in_place("zero_", "zero_", lambda x: x.zero_()),
    in_place("fill", "fill_", lambda x, value: x.fill_(value)),
    Row("to", "Tensor.to", to),
    *(conversion(name) for name in ("float", "double", "half", "bfloat16", "int", "long", "bool")),
)

ROWS = (*SHAPES, *JOINS, *CREATION)

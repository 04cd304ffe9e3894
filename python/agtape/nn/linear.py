"""Owns the layers that multiply by weights or look them up: Linear, Embedding, and Flatten and Identity beside them."""

import math

import agtape as ag
from agtape.arguments import as_flag, as_int, as_place
from agtape.nn import functional as F
from agtape.nn import init
from agtape.nn.functional.checks import as_tensor
from agtape.nn.module import Module, Parameter


class Linear(Module):
    """y = x @ weight.T + bias.

    Weight and bias start evenly in plus or minus 1 / sqrt(in_features), as in PyTorch.

    Args:
        in_features, out_features: lengths of the last axis of input and output.
        bias: whether to add one.
        dtype, device: of the parameters.

    Attributes: `weight` of shape (out, in), `bias` of shape (out,) or `None`.

    Raises:
        TypeError: a size is no int, or an input no tensor or array; ValueError: a size is negative, or an input has another last axis.

    >>> import agtape as ag
    >>> ag.nn.Linear(3, 4)(ag.ones((2, 3))).shape
    (2, 4)
    """

    def __init__(self, in_features, out_features, bias=True, dtype=None, device=None):
        in_features = as_int("Linear", "in_features", in_features, least=0)
        out_features = as_int("Linear", "out_features", out_features, least=0)
        bias, place = as_flag("Linear", "bias", bias), as_place("Linear", dtype, device)
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(ag.empty((out_features, in_features), **place))
        self.register_parameter("bias", Parameter(ag.empty((out_features,), **place)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Give the parameters new initial values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input):
        """Multiply: (..., in) to (..., out)."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """A table of vectors looked up by index; it starts with standard normal values.

    Args:
        num_embeddings: number of rows.
        embedding_dim: length of a row.
        padding_idx: a row that starts at zero and is not trained.
        dtype, device: of the table.

    Attributes: `weight` of shape (num_embeddings, embedding_dim).

    Raises:
        TypeError: a size is no int, or an input holds no integers; ValueError: a size is negative; IndexError: an index or
            `padding_idx` is out of range.

    >>> import agtape as ag
    >>> ag.nn.Embedding(10, 4)([1, 2, 3]).shape
    (3, 4)
    """

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, dtype=None, device=None):
        num_embeddings = as_int("Embedding", "num_embeddings", num_embeddings, least=0)
        embedding_dim = as_int("Embedding", "embedding_dim", embedding_dim, least=0)
        if padding_idx is not None:
            padding_idx = as_int("Embedding", "padding_idx", padding_idx)
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise IndexError(
                    f"Embedding: padding_idx is {padding_idx}; expected an index into {num_embeddings} rows"
                )
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.weight = Parameter(ag.empty((num_embeddings, embedding_dim), **as_place("Embedding", dtype, device)))
        self.reset_parameters()

    def reset_parameters(self):
        """Give the table new initial values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            is_padding = (ag.arange(self.num_embeddings, device=self.weight.device) == self.padding_idx).reshape(-1, 1)
            self.weight.assign_(ag.where(is_padding, 0.0, self.weight.detach()))

    def forward(self, input):
        """Look up: integers of shape (...) to vectors of shape (..., embedding_dim)."""
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self):
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class Flatten(Module):
    """Join the axes from `start_dim` to `end_dim` into one.

    Args:
        start_dim, end_dim: first and last axis to join.

    Raises:
        IndexError: an input has no such axis; TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.Flatten()(ag.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, start_dim=1, end_dim=-1):
        self.start_dim = as_int("Flatten", "start_dim", start_dim)
        self.end_dim = as_int("Flatten", "end_dim", end_dim)

    def forward(self, input):
        """Reshape: (..., a, b, ...) to (..., a * b, ...)."""
        input = as_tensor("Flatten", "input", input)
        shape = tuple(input.shape)
        try:
            first, last = range(len(shape))[self.start_dim], range(len(shape))[self.end_dim]
        except IndexError:
            raise IndexError(
                f"Flatten: the input has shape {shape}; expected axes {self.start_dim} and {self.end_dim}"
            ) from None
        return input.reshape(shape[:first] + (math.prod(shape[first : last + 1]),) + shape[last + 1 :])

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Identity(Module):
    """Returns its input; any arguments are accepted and ignored.

    >>> import agtape as ag
    >>> ag.nn.Identity()(ag.ones(1)).tolist()
    [1.0]
    """

    def __init__(self, *args, **kwargs):
        pass

    def forward(self, input):
        """Return the input."""
        return input

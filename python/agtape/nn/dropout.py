"""Owns the dropout layer."""

from agtape.nn import functional as F
from agtape.nn.functional.checks import probability
from agtape.nn.module import Module


class Dropout(Module):
    """In training, set each value to 0 with probability p and divide the rest by 1 - p (see `functional.dropout`).

    Args:
        p: probability of a zero, from 0 to 1.

    Raises:
        ValueError: p is not a probability; TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.Dropout(0.5).eval()(ag.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, p=0.5):
        self.p = probability("Dropout", p)

    def forward(self, input):
        """Drop values: any shape to the same shape."""
        return F.dropout(input, self.p, self.training)

    def extra_repr(self):
        return f"p={self.p}"

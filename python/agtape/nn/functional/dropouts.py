"""Owns the dropout function."""

import agtape as ag
from agtape.arguments import as_flag
from agtape.nn.functional.checks import as_tensor, probability


def dropout(input, p=0.5, training=True):
    """Set each value to 0 with probability p and divide the rest by 1 - p (Srivastava et al. 2014, section 10).

    Args:
        input: tensor of any shape.
        p: probability of a zero, from 0 to 1.
        training: if false the input is returned unchanged.

    Returns:
        A tensor of the same shape.

    Raises:
        ValueError: p is not a probability; TypeError: the input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.functional.dropout(ag.ones(3), p=0.5, training=False).tolist()
    [1.0, 1.0, 1.0]
    """
    p = probability("dropout", p)
    input = as_tensor("dropout", "input", input)
    if not as_flag("dropout", "training", training) or p == 0:
        return input
    is_kept = ag.rand(tuple(input.shape), device=input.device) >= p
    return ag.where(is_kept, input * (1 / (1 - p) if p < 1 else 0.0), 0.0)

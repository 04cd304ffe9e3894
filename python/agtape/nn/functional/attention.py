"""Owns scaled dot-product attention."""

import math

import agtape as ag
from agtape import _core
from agtape.arguments import as_flag, as_number
from agtape.nn.functional.checks import as_tensor, kind_of, probability
from agtape.nn.functional.dropouts import dropout

# What a masked score becomes: finite, so that a row with every position masked gives zeros and not NaN.
_MASKED = {"float16": -65504.0}
_MASKED_OTHERWISE = -3e38


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    """softmax(query @ key.T * scale + mask) @ value (Vaswani et al. 2017, section 3.2.1).

    Args:
        query: tensor of shape (..., L, E).
        key: tensor of shape (..., S, E).
        value: tensor of shape (..., S, Ev).
        attn_mask: tensor that broadcasts to (..., L, S): of bool, true where a query may look; or floating, added to the scores.
            A query that may look nowhere (false, or -inf, for every key) gets zeros.
        dropout_p: probability of dropping a weight; 0 in evaluation.
        is_causal: whether query i sees keys 0 to i only; not together with `attn_mask`.
        scale: default 1 / sqrt(E).

    Returns:
        A tensor of shape (..., L, Ev).

    Raises:
        ValueError: the shapes do not fit, or both `attn_mask` and `is_causal` are given; TypeError: the mask has another dtype, or
            something is neither a tensor nor an array.

    >>> import agtape as ag
    >>> q = ag.ones((1, 2, 3, 4))
    >>> ag.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    (1, 2, 3, 4)
    """
    op = "scaled_dot_product_attention"
    query, key, value = as_tensor(op, "query", query), as_tensor(op, "key", key), as_tensor(op, "value", value)
    dropout_p = probability(op, dropout_p, "dropout_p")
    weights = attention_weights(query, key, attn_mask, is_causal, scale)
    if dropout_p:
        weights = dropout(weights, dropout_p)
    try:
        return weights @ value
    except ValueError:
        raise _misfit(query, key, value) from None


def attention_weights(query, key, attn_mask=None, is_causal=False, scale=None):
    """The weights of scaled dot-product attention: softmax(query @ key.T * scale + mask).

    Args:
        query, key, attn_mask, is_causal, scale: as in `scaled_dot_product_attention`.

    Returns:
        A tensor of shape (..., L, S).

    Raises:
        ValueError, TypeError: as in `scaled_dot_product_attention`.

    >>> import agtape as ag
    >>> q = ag.ones((1, 2, 4))
    >>> attention_weights(q, q, is_causal=True).tolist()
    [[[1.0, 0.0], [0.5, 0.5]]]
    """
    query = as_tensor("scaled_dot_product_attention", "query", query)
    key = as_tensor("scaled_dot_product_attention", "key", key)
    try:
        scores = query @ key.transpose(-2, -1)
    except (ValueError, IndexError):
        raise _misfit(query, key) from None
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1] or 1)
    scale = as_number("scaled_dot_product_attention", "scale", scale)
    is_causal = as_flag("scaled_dot_product_attention", "is_causal", is_causal)
    if is_causal and attn_mask is not None:
        raise ValueError(
            "scaled_dot_product_attention: attn_mask and is_causal=True were both given; expected one of them"
        )
    if attn_mask is None:
        if not isinstance(scale, (int, float)):
            scores, scale = scores * scale, 1.0
        return _core.attention_softmax(scores, scale, is_causal)
    scores = scores * scale
    attn_mask = as_tensor("scaled_dot_product_attention", "attn_mask", attn_mask, scores)
    kind = kind_of(attn_mask.dtype)
    if kind == "float":
        return _with_added_mask(scores, attn_mask)
    if kind != "bool":
        raise TypeError(
            f"scaled_dot_product_attention: attn_mask is {attn_mask.dtype}; expected bool or a floating dtype"
        )
    weights = ag.softmax(ag.where(attn_mask, scores, _masked(scores)), axis=-1)
    return ag.where(attn_mask, weights, 0.0)


def _with_added_mask(scores, mask):
    """The weights under a mask that is added: zeros and not NaN where every key of a row is masked, in the gradient too."""
    keys = mask if mask.ndim else mask.reshape(1)
    is_seen = (keys != -math.inf).any(axis=-1, keepdims=True)
    weights = ag.softmax(ag.where(is_seen, scores + mask, 0.0), axis=-1)
    return ag.where(is_seen, weights, 0.0)


def causal_mask(rows, columns, device=None):
    """Which of `columns` keys each of `rows` queries may see: those that are not later.

    Args:
        rows, columns: lengths.
        device: where to make it.

    Returns:
        A bool tensor of shape (rows, columns), true on and below the diagonal.

    Raises:
        ValueError: a length is negative.

    >>> causal_mask(2, 2).tolist()
    [[True, False], [True, True]]
    """
    return ag.arange(rows, device=device).reshape(rows, 1) >= ag.arange(columns, device=device)


def _masked(scores):
    return _MASKED.get(str(scores.dtype), _MASKED_OTHERWISE)


def _misfit(query, key, value=None):
    shapes = ", ".join(
        f"{n} {tuple(t.shape)}" for n, t in (("query", query), ("key", key), ("value", value)) if t is not None
    )
    return ValueError(
        f"scaled_dot_product_attention: {shapes}; expected query (..., L, E), key (..., S, E), value (..., S, Ev)"
    )

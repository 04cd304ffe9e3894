"""Owns the multi-head attention layer."""

import agtape as ag
from agtape.arguments import as_flag, as_int, as_place
from agtape.nn import functional as F
from agtape.nn import init
from agtape.nn.functional.attention import attention_weights, causal_mask
from agtape.nn.functional.checks import as_tensor, kind_of, probability
from agtape.nn.linear import Linear
from agtape.nn.module import Module, Parameter


class MultiHeadAttention(Module):
    """Several attentions in parallel, each on its own projection (Vaswani et al. 2017, section 3.2.2).

    Arguments, parameter names and masks mean what they mean in PyTorch's `MultiheadAttention`; in particular a bool mask is true
    where a query may NOT look (the opposite of `functional.scaled_dot_product_attention`).

    Args:
        embed_dim: length of queries and results; a multiple of `num_heads`.
        num_heads: number of heads.
        dropout: probability of dropping an attention weight in training.
        bias: whether the projections have one.
        kdim, vdim: lengths of keys and values if they differ from `embed_dim`.
        batch_first: whether inputs are (N, L, E) rather than (L, N, E).
        dtype, device: of the parameters.

    Attributes: `in_proj_weight` of shape (3 * embed_dim, embed_dim), or `q_proj_weight`, `k_proj_weight`, `v_proj_weight` if
    `kdim` or `vdim` differs; `in_proj_bias`; `out_proj`, a `Linear`.

    Raises:
        ValueError: `embed_dim` is not a multiple of `num_heads`, or inputs or masks have other shapes; TypeError: an input is
            neither a tensor nor an array.

    >>> import agtape as ag
    >>> attention = ag.nn.MultiHeadAttention(8, 2, batch_first=True)
    >>> out, weights = attention(*[ag.ones((3, 5, 8))] * 3)
    >>> out.shape, weights.shape
    ((3, 5, 8), (3, 5, 5))
    """

    def __init__(
        self,
        embed_dim,
        num_heads,
        dropout=0.0,
        bias=True,
        *,
        kdim=None,
        vdim=None,
        batch_first=False,
        dtype=None,
        device=None,
    ):
        embed_dim = as_int("MultiHeadAttention", "embed_dim", embed_dim, least=0)
        num_heads = as_int("MultiHeadAttention", "num_heads", num_heads, least=0)
        kdim = embed_dim if kdim is None else as_int("MultiHeadAttention", "kdim", kdim, least=0)
        vdim = embed_dim if vdim is None else as_int("MultiHeadAttention", "vdim", vdim, least=0)
        if not num_heads or embed_dim % num_heads:
            raise ValueError(
                f"MultiHeadAttention: embed_dim is {embed_dim} and num_heads {num_heads}; expected a multiple"
            )
        dropout = probability("MultiHeadAttention", dropout, "dropout")
        bias = as_flag("MultiHeadAttention", "bias", bias)
        self.batch_first = as_flag("MultiHeadAttention", "batch_first", batch_first)
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim, self.vdim = kdim, vdim

        place = as_place("MultiHeadAttention", dtype, device)

        def make(*shape):
            return Parameter(ag.empty(shape, **place))

        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = make(3 * embed_dim, embed_dim)
        else:
            self.register_parameter("in_proj_weight", None)
            self.q_proj_weight = make(embed_dim, embed_dim)
            self.k_proj_weight = make(embed_dim, self.kdim)
            self.v_proj_weight = make(embed_dim, self.vdim)
        self.register_parameter("in_proj_bias", make(3 * embed_dim) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, **place)
        self.reset_parameters()

    def reset_parameters(self):
        """Give the parameters new initial values: Xavier's for the input projections, zero for the biases."""
        if self.in_proj_weight is not None:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            for weight in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query,
        key=None,
        value=None,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        """Attend.

        Args:
            query: (N, L, E) with `batch_first`, else (L, N, E); or (L, E) for one entry.
            key, value: (N, S, kdim) and (N, S, vdim) in the same order of axes; default: the query, and the key.
            key_padding_mask: (N, S): bool, true at keys to leave out; or floating, added to the scores.
            need_weights: whether to return the attention weights too.
            attn_mask: (L, S) or (N * num_heads, L, S): bool, true where a query may not look; or floating, added.
            average_attn_weights: whether the weights returned are averaged over heads.
            is_causal: whether query i sees keys 0 to i only; needs no `attn_mask`.

        Returns:
            `(output, weights)`: output shaped like the query; weights of shape (N, L, S), or (N, num_heads, L, S) without
            averaging, or `None` with `need_weights=False`.
        """
        query = as_tensor("MultiHeadAttention", "query", query)
        key = query if key is None else as_tensor("MultiHeadAttention", "key", key)
        value = key if value is None else as_tensor("MultiHeadAttention", "value", value)
        if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
            raise ValueError(
                f"MultiHeadAttention: query, key and value have {query.ndim}, {key.ndim} and {value.ndim} axes; expected "
                "3 each, or 2 each for one entry"
            )
        is_causal = as_flag("MultiHeadAttention", "is_causal", is_causal)
        need_weights = as_flag("MultiHeadAttention", "need_weights", need_weights)
        average_attn_weights = as_flag("MultiHeadAttention", "average_attn_weights", average_attn_weights)
        q, k, v = self._project(query, key, value)
        is_causal = is_causal and attn_mask is None
        # Alone, it needs no mask in memory.
        mask = self._mask(key_padding_mask, attn_mask, is_causal and key_padding_mask is not None, q, k)
        is_causal = is_causal and mask is None
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            weights = attention_weights(q, k, mask, is_causal)
            mixed = (F.dropout(weights, dropout) if dropout else weights) @ v
            weights = weights.mean(axis=1) if average_attn_weights else weights
            weights = weights if query.ndim == 3 else weights[0]
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal)
        out = self.out_proj(mixed.transpose(1, 2).reshape(mixed.shape[0], mixed.shape[2], self.embed_dim))
        if query.ndim == 2:
            return out.reshape(out.shape[1:]), weights
        return (out if self.batch_first else out.transpose(0, 1)), weights

    def _project(self, query, key, value):
        """Queries, keys and values of each head: (N, heads, length, head_dim)."""
        bias, e = self.in_proj_bias, self.embed_dim
        if query is key and key is value and self.in_proj_weight is not None:
            joined = self._batched(F.linear(query, self.in_proj_weight, bias))
            n, length, _ = joined.shape
            joined = joined.reshape(n, length, 3, self.num_heads, e // self.num_heads).permute(2, 0, 3, 1, 4)
            return joined[0], joined[1], joined[2]
        if self.in_proj_weight is not None:
            parts = [self.in_proj_weight[i * e : (i + 1) * e] for i in range(3)]
        else:
            parts = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        heads = []
        for i, (given, weight) in enumerate(zip((query, key, value), parts)):
            projected = self._batched(F.linear(given, weight, None if bias is None else bias[i * e : (i + 1) * e]))
            n, length, _ = projected.shape
            heads.append(projected.reshape(n, length, self.num_heads, e // self.num_heads).transpose(1, 2))
        return heads

    def _batched(self, tensor):
        """Put the batch first, adding it if there is none."""
        if tensor.ndim == 2:
            return tensor.reshape(1, *tensor.shape)
        return tensor if self.batch_first else tensor.transpose(0, 1)

    def _mask(self, key_padding_mask, attn_mask, is_causal, q, k):
        """One mask for `scaled_dot_product_attention`, of shape (N or 1, heads or 1, L or 1, S), or `None`."""
        n, length, keys = q.shape[0], q.shape[2], k.shape[2]
        masks = []
        if is_causal:
            masks.append(causal_mask(length, keys, q.device))
        if attn_mask is not None:
            attn_mask = as_tensor("MultiHeadAttention", "attn_mask", attn_mask, q)
            if tuple(attn_mask.shape) == (n * self.num_heads, length, keys):
                attn_mask = attn_mask.reshape(n, self.num_heads, length, keys)
            elif tuple(attn_mask.shape) != (length, keys):
                raise ValueError(
                    f"MultiHeadAttention: attn_mask has shape {tuple(attn_mask.shape)}; expected {(length, keys)} or "
                    f"{(n * self.num_heads, length, keys)}"
                )
            masks.append(_allowed("attn_mask", attn_mask))
        if key_padding_mask is not None:
            padding = as_tensor("MultiHeadAttention", "key_padding_mask", key_padding_mask, q)
            if padding.size != n * keys or padding.shape[-1] != keys:
                raise ValueError(
                    f"MultiHeadAttention: key_padding_mask has shape {tuple(padding.shape)}; expected {(n, keys)}"
                )
            masks.append(_allowed("key_padding_mask", padding.reshape(n, 1, 1, keys)))
        if not masks:
            return None
        if all(kind_of(m.dtype) == "bool" for m in masks):
            return masks[0] if len(masks) == 1 else masks[0] & masks[1]
        added = [m if kind_of(m.dtype) == "float" else ag.where(m, 0.0, float("-inf")).astype(q.dtype) for m in masks]
        return added[0] if len(added) == 1 else added[0] + added[1]

    def extra_repr(self):
        return f"{self.embed_dim}, num_heads={self.num_heads}, dropout={self.dropout}, batch_first={self.batch_first}"


def _allowed(name, mask):
    """A bool mask turned round, so that true means may look; a floating one unchanged."""
    kind = kind_of(mask.dtype)
    if kind == "int":
        raise TypeError(f"MultiHeadAttention: {name} is {mask.dtype}; expected bool or a floating dtype")
    return ~mask if kind == "bool" else mask

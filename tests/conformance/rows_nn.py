"""Owns the rows of `nn.functional`, which has PyTorch's names, argument order and defaults."""

import agtape as ag
from rows import Difference, Row

F = ag.nn.functional
NO_CHANNELS = (Difference("the input has an axis of channels", lambda x, *args, **more: x.ndim < 2),)


def same(name, op=None, **more):
    """A function that takes what torch's takes."""
    return Row(op or f"nn.functional.{name}", f"nn.functional.{name}", getattr(F, name), **more)


def activation(name):
    """An activation; torch's `inplace` means nothing here."""
    function = getattr(F, name)

    def call(x, *args, inplace=False, **kwargs):
        return function(x, *args, **kwargs)

    return Row(f"nn.functional.{name}", f"nn.functional.{name}", call)


def dropout(x, p=0.5, training=True, inplace=False):
    """torch's dropout."""
    return F.dropout(x, p, training)


def kept(input, p=0.5, training=True, inplace=False):
    """Which elements are dropped is random; all or none are not."""
    return "shape" if training and 0 < p < 1 else "all"


def batch_norm(x, running_mean, running_var, weight=None, bias=None, **more):
    """torch's arguments without the choice of a library."""
    more.pop("cudnn_enabled", None)
    return F.batch_norm(x, running_mean, running_var, weight, bias, **more)


def drops(input, *args, dropout_p=0.0, **kwargs):
    """Whether the result is random."""
    return dropout_p > 0


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, enable_gqa=False, **more):
    """torch's attention without groups of heads."""
    return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, **more)


def one_hot(indices, num_classes=-1):
    """agtape's own is float32 and asks for the number of classes."""
    return ag.one_hot(indices, int(indices.max().item()) + 1 if num_classes == -1 else num_classes, dtype="int64")


# The functions of the package itself, under torch's names.
OWN = (
    Row("nn.functional.relu", "relu", lambda x, inplace=False: ag.relu(x)),
    Row("nn.functional.silu", "silu", lambda x: ag.silu(x)),
    Row("nn.functional.gelu", "gelu", lambda x, approximate: ag.gelu(x, approximate)),
    Row("nn.functional.one_hot", "one_hot", one_hot),
    same("sigmoid", "sigmoid"),
    same("tanh", "tanh"),
    same("softmax", "softmax"),
    same("log_softmax", "log_softmax"),
)

ROWS = (
    *OWN,
    *(activation(name) for name in ("relu", "relu6", "leaky_relu", "elu", "silu", "mish")),
    same("gelu"),
    same("softplus"),
    same("logsigmoid"),
    same("glu"),
    same("linear"),
    Row(
        "nn.functional.embedding",
        "nn.functional.embedding",
        lambda weight, indices, **more: F.embedding(indices, weight, **more),
    ),
    same("one_hot"),
    same("normalize", differs=(Difference("the order of a norm is positive", lambda x, p=2.0, **more: p <= 0),)),
    same("cosine_similarity"),
    same("mse_loss"),
    same("l1_loss"),
    same("huber_loss"),
    same("binary_cross_entropy_with_logits"),
    same("cross_entropy"),
    same("nll_loss"),
    same("layer_norm", slack=4),
    same("rms_norm"),
    Row("nn.functional.batch_norm", "nn.functional.batch_norm", batch_norm, NO_CHANNELS),
    Row("nn.functional.batch_norm.without_cudnn", "nn.functional.batch_norm", batch_norm),
    Row("nn.functional.dropout", "nn.functional.dropout", dropout, compares=kept),
    Row(
        "nn.functional.scaled_dot_product_attention",
        "nn.functional.scaled_dot_product_attention",
        attention,
        compares=lambda *args, **kwargs: "shape" if drops(*args, **kwargs) else "all",
        slack=10,  # scores of several hundred: the softmax multiplies their rounding
    ),
)

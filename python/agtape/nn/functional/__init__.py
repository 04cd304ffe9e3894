"""Owns the list of functions in `agtape.nn.functional`: one for every layer, activation and loss, as in PyTorch."""

from agtape.nn.functional.activations import (
    elu,
    gelu,
    glu,
    leaky_relu,
    log_softmax,
    logsigmoid,
    mish,
    relu,
    relu6,
    sigmoid,
    silu,
    softmax,
    softplus,
    tanh,
)
from agtape.nn.functional.attention import scaled_dot_product_attention
from agtape.nn.functional.class_losses import cross_entropy, nll_loss
from agtape.nn.functional.dropouts import dropout
from agtape.nn.functional.losses import binary_cross_entropy_with_logits, huber_loss, l1_loss, mse_loss
from agtape.nn.functional.norms import batch_norm, layer_norm, rms_norm
from agtape.nn.functional.weights import cosine_similarity, embedding, linear, normalize, one_hot

__all__ = [
    "batch_norm",
    "binary_cross_entropy_with_logits",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "gelu",
    "glu",
    "huber_loss",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]

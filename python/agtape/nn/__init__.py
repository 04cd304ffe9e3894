"""Owns the list of names in `agtape.nn`: modules, layers, losses, initial values and gradient clipping."""

from agtape.nn import functional, init
from agtape.nn.activation import (
    ELU,
    GELU,
    GLU,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from agtape.nn.attention import MultiHeadAttention
from agtape.nn.clip import clip_grad_norm_, clip_grad_value_
from agtape.nn.containers import ModuleDict, ModuleList, Sequential, checkpoint_sequential
from agtape.nn.dropout import Dropout
from agtape.nn.linear import Embedding, Flatten, Identity, Linear
from agtape.nn.loss import BCEWithLogitsLoss, CrossEntropyLoss, HuberLoss, L1Loss, MSELoss, NLLLoss
from agtape.nn.module import Module, Parameter
from agtape.nn.norm import BatchNorm, BatchNorm1d, BatchNorm2d, LayerNorm, RMSNorm

MultiheadAttention = MultiHeadAttention  # PyTorch's spelling

__all__ = [
    "ELU",
    "GELU",
    "GLU",
    "BCEWithLogitsLoss",
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "HuberLoss",
    "Identity",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiHeadAttention",
    "MultiheadAttention",
    "NLLLoss",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "checkpoint_sequential",
    "clip_grad_norm_",
    "clip_grad_value_",
    "functional",
    "init",
]

"""Rows of the normalizations and of cross-entropy, which `nn.functional` offers."""

import agtape as ag
import numpy as np
from agtape import _core
from ops.row import Row, one
from ops.samples import FLOATS

F = ag.nn.functional
# Large enough that a row of equal elements is as smooth as the others.
EPS = 0.5


def normed(x, weight=1.0, bias=0.0, rms=False):
    """By their definitions."""
    centred = x - (0.0 if rms else x.mean(-1, keepdims=True))
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPS) * weight + bias


def scaled(n):
    """A matrix and one vector as long as its rows."""
    return ((2, n), (n,))


def shifted(n):
    """A matrix and two vectors as long as its rows."""
    return ((2, n), (n,), (n,))


def labels(shape, classes):
    """Every class in turn; the ignored label is -1, in every fourth place."""
    at = np.arange(int(np.prod(shape)))
    return np.where(at % 4 == 2, -1, at % max(classes, 1)).reshape(shape)


def entropy(x, weight, smoothing):
    """By its definition, entry by entry; classes along axis 1."""
    classes = x.shape[1]
    y = labels(x.shape[:1] + x.shape[2:], classes)[:, None]
    ramp = np.arange(classes).reshape(1, -1, *[1] * (x.ndim - 2))
    w = np.asarray(weight).reshape(1, -1, *[1] * (x.ndim - 2))
    target = w * (smoothing / max(classes, 1) + (1 - smoothing) * (ramp == y)) * (y != -1)
    logp = x - np.log(np.exp(x).sum(1, keepdims=True))
    return -(target * logp).sum(1)


def row_entropy(x, smoothing=0.0, weight=None):
    """The losses of the classes in turn."""
    y = ag.tensor(labels(x.shape[:1] + x.shape[2:], x.shape[1]))
    return F.cross_entropy(x, y, weight, ignore_index=-1, label_smoothing=smoothing, reduction="none")


NORMS = {"family": "sum", "gives": "float"}
ENTROPY = {"family": "sum", "dtypes": FLOATS, "ops": ("cross_entropy",)}
WEIGHT = [0.5, 2.0, 1.0]

NETWORK = [
    Row("layer_norm", one, normed, lambda xp, x: F.layer_norm(x, x.shape[-1:], eps=EPS), ops=("layer_norm",), **NORMS),
    Row(
        "layer_norm weight",
        scaled,
        normed,
        lambda xp, x, w: F.layer_norm(x, w.shape, w, eps=EPS),
        ops=("layer_norm",),
        **NORMS,
    ),
    Row(
        "layer_norm bias",
        shifted,
        normed,
        lambda xp, x, w, b: F.layer_norm(x, w.shape, w, b, EPS),
        ops=("layer_norm",),
        **NORMS,
    ),
    Row(
        "rms_norm",
        scaled,
        lambda x, w: normed(x, w, rms=True),
        lambda xp, x, w: F.rms_norm(x, w.shape, w, EPS),
        ops=("rms_norm",),
        **NORMS,
    ),
    Row(
        "attention_softmax",
        one,
        lambda x: np.tril(np.exp(x / 2)) / np.tril(np.exp(x / 2)).sum(1, keepdims=True),
        lambda xp, x: _core.attention_softmax(x, 0.5, True),
        ops=("softmax",),
        **NORMS,
    ),
    Row("cross_entropy", one, lambda x: entropy(x, 1.0, 0.0), lambda xp, x: row_entropy(x), least=1, **ENTROPY),
    Row(
        "cross_entropy positions",
        lambda n: ((2, 3, n),),
        lambda x: entropy(x, WEIGHT, 0.0),
        lambda xp, x: row_entropy(x, weight=np.asarray(WEIGHT, np.float32)),
        **ENTROPY | {"dtypes": ("float64", "float32")},
    ),
    Row(
        "cross_entropy smooth",
        lambda n: ((n, 3),),
        lambda x: entropy(x, 1.0, 0.25),
        lambda xp, x: row_entropy(x, 0.25),
        **ENTROPY,
    ),
]

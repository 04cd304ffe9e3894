"""Bad calls: each gives the expected exception class and names the op, what was given and what was expected."""

import agtape as ag
import numpy as np
import pytest

F = ag.nn.functional


def t(*shape, dtype="float32"):
    return ag.zeros(shape, dtype=dtype)


def ints(*values):
    return ag.tensor(list(values))


class Odd:
    """An object that is no array."""


# One row a bad call: what is called, the exception's class, and words of its message in their order.
# First the op, then what was given, then what was expected.
def schedule():
    return ag.optim.lr_scheduler.StepLR(ag.optim.SGD([ag.param([1.0])]), 2)


SHAPES = [
    ("add", lambda: t(2, 3) + t(4), ValueError, ["add", "[2, 3]", "[4]", "broadcast"]),
    ("multiply", lambda: ag.multiply(t(2), t(3)), ValueError, ["multiply", "[2]", "[3]"]),
    ("maximum", lambda: ag.maximum(t(2, 1, 3), t(2, 2)), ValueError, ["maximum", "[2, 1, 3]", "[2, 2]"]),
    ("less", lambda: t(2) < t(3), ValueError, ["less", "[2]", "[3]"]),
    ("where", lambda: ag.where(t(2) > 0, t(3), t(3)), ValueError, ["where", "[2]", "[3]"]),
    ("matmul inner", lambda: t(2, 3) @ t(2, 3), ValueError, ["matmul", "[2, 3]", "[2, 3]", "equal"]),
    (
        "matmul batch",
        lambda: ag.matmul(t(2, 3, 4), t(5, 4, 3)),
        ValueError,
        ["matmul", "[2, 3, 4]", "[5, 4, 3]", "broadcast"],
    ),
    ("matmul number", lambda: t(2, 2) @ t(), ValueError, ["matmul", "[2, 2]", "[]", "axis"]),
    ("dot", lambda: ag.dot(t(2), t(3)), ValueError, ["dot|matmul", "[2]", "[3]"]),
    ("tensordot", lambda: ag.tensordot(t(2, 3), t(4, 5), 1), ValueError, ["tensordot", "[2, 3]", "[4, 5]"]),
    ("einsum sizes", lambda: ag.einsum("ij,jk->ik", t(2, 3), t(4, 5)), ValueError, ["einsum", "'j'", "3", "4"]),
    ("einsum operands", lambda: ag.einsum("ij,jk->ik", t(2, 3)), ValueError, ["einsum", "ij,jk->ik", "2", "1"]),
    ("einsum axes", lambda: ag.einsum("ijk->i", t(2, 3)), ValueError, ["einsum", "ijk->i", "[2, 3]"]),
    ("einsum output", lambda: ag.einsum("ij->ik", t(2, 3)), ValueError, ["einsum", "'k'"]),
    ("reshape", lambda: t(2, 3).reshape(4, 2), ValueError, ["reshape", "[2, 3]", "6", "[4, 2]"]),
    ("reshape guess", lambda: t(2, 3).reshape(-1, 4), ValueError, ["reshape", "[2, 3]", "4"]),
    ("reshape guesses", lambda: t(2, 3).reshape(-1, -1), ValueError, ["reshape", "-1"]),
    ("broadcast_to", lambda: ag.broadcast_to(t(2, 3), (3, 3)), ValueError, ["broadcast_to", "[2, 3]", "[3, 3]"]),
    ("concat", lambda: ag.concat([t(2, 3), t(2, 4)]), ValueError, ["concat", "[2, 4]", "[2, 3]"]),
    ("stack", lambda: ag.stack([t(2), t(3)]), ValueError, ["stack", "[3]", "[2]"]),
    ("split", lambda: ag.split(t(5), 2), ValueError, ["split", "5", "2"]),
    ("squeeze", lambda: ag.squeeze(t(2, 3), 0), ValueError, ["squeeze", "[2, 3]", "2", "1"]),
    ("pad", lambda: ag.pad(t(2, 3), [(1, 1)] * 3), ValueError, ["pad", "3", "[2, 3]", "2"]),
    ("zeros long", lambda: ag.zeros(range(2**40)), ValueError, ["zeros", "1099511627776", "at most 1048576"]),
    ("sum long", lambda: t(2).sum(axis=range(2**61)), ValueError, ["sum", "axis", "members", "at most 1048576"]),
    (
        "reshape long",
        lambda: t(1).reshape(ag.broadcast_to(ag.zeros(1, dtype="int64"), (2**40, 1))),
        ValueError,
        ["reshape", "at most 1048576"],
    ),
    ("pad long", lambda: ag.pad(t(2), range(2**61)), ValueError, ["pad", "pad_width", "at most 1048576"]),
    (
        "pad long row",
        lambda: ag.pad(t(2), [range(2**61)]),
        ValueError,
        ["pad", "a row of pad_width", "at most 1048576"],
    ),
    ("stack long", lambda: ag.stack(ag.broadcast_to(t(1), (2**40, 1))), ValueError, ["stack", "at most 1048576"]),
    ("concat long", lambda: ag.concat(range(2**61)), ValueError, ["concat", "at most 1048576"]),
    ("repeat", lambda: ag.repeat(t(3), [1, 2]), ValueError, ["repeat", "2", "3"]),
    ("setitem", lambda: t(2, 3).__setitem__(0, t(2)), ValueError, ["setitem", "[2]", "[3]"]),
    ("setitem in place", lambda: t(3).__iadd__(t(2, 3)), ValueError, ["[2, 3]", "[3]"]),
    ("assign_", lambda: t(2).assign_(t(3)), ValueError, ["assign_", "[3]", "[2]"]),
    ("grad", lambda: setattr(ag.param([1.0]), "grad", t(2)), ValueError, ["grad", "[2]", "[1]"]),
    ("tensor ragged", lambda: ag.tensor([[1, 2], [3]]), (ValueError, TypeError), ["tensor", "list"]),
    ("max of nothing", lambda: ag.max(t(0)), ValueError, ["max", "[0]", "at least one"]),
    ("argmin of nothing", lambda: ag.argmin(t(2, 0), axis=1), ValueError, ["argmin", "[2, 0]", "at least one"]),
    ("min of nothing", lambda: ag.min(t(3, 0, 2), axis=1), ValueError, ["min", "axis 1", "[3, 0, 2]"]),
    ("concat of nothing", lambda: ag.concat([]), ValueError, ["concat", "empty", "at least one"]),
    ("stack of nothing", lambda: ag.stack([]), ValueError, ["stack", "empty"]),
    ("unpack", lambda: bool(t(2, 2)), ValueError, ["[2, 2]", "any() or all()"]),
    ("item", lambda: t(2).item(), ValueError, ["item", "one element", "[2]"]),
]

AXES = [
    ("sum", lambda: ag.sum(t(2, 3), axis=2), ValueError, ["sum", "axis 2", "2 dimension"]),
    ("mean", lambda: t(2, 3).mean(axis=-3), ValueError, ["mean", "axis -3", "2 dimension"]),
    ("sum twice", lambda: ag.sum(t(2, 3), axis=(0, -2)), ValueError, ["sum", "axis", "twice"]),
    ("softmax", lambda: ag.softmax(t(2), axis=1), ValueError, ["softmax", "axis 1"]),
    ("sort", lambda: ag.sort(t(2), axis=5), ValueError, ["sort", "axis 5"]),
    ("cumsum", lambda: ag.cumsum(t(2, 2), axis=2), ValueError, ["cumsum", "axis 2"]),
    ("argmax", lambda: t(2).argmax(axis=1), ValueError, ["argmax", "axis 1"]),
    ("concat", lambda: ag.concat([t(2), t(2)], axis=1), ValueError, ["concat", "axis 1"]),
    ("permute", lambda: ag.permute(t(2, 3), (0, 0)), ValueError, ["permute", "axis 0", "twice", "[0, 0]"]),
    ("flip", lambda: ag.flip(t(2), axis=1), ValueError, ["flip", "axis 1"]),
    ("topk", lambda: ag.topk(t(3), 4), ValueError, ["topk", "k is 4", "3"]),
    ("axis of another type", lambda: ag.sum(t(2), axis="rows"), TypeError, ["sum", "str", "integer"]),
    ("axis a float", lambda: ag.sum(t(2), axis=1.0), TypeError, ["sum", "float", "integer"]),
]

INDICES = [
    ("integer", lambda: t(2, 3)[2], IndexError, ["getitem", "2", "axis 0", "size 2"]),
    ("negative", lambda: t(2, 3)[0, -4], IndexError, ["getitem", "-4", "axis 1", "size 3"]),
    ("too many", lambda: t(2, 3)[0, 0, 0], IndexError, ["getitem", "[2, 3]", "2 axes", "3"]),
    ("array", lambda: t(3)[np.array([0, 3])], IndexError, ["getitem", "3", "axis 0", "size 3"]),
    ("list", lambda: t(3)[[0, -4]], IndexError, ["getitem", "-4", "axis 0", "size 3"]),
    ("mask", lambda: t(3)[np.array([True, False])], IndexError, ["getitem", "[2]", "3"]),
    ("float", lambda: t(3)[1.0], (IndexError, TypeError), ["getitem", "float", "integer"]),
    ("string", lambda: t(3)["a"], (IndexError, TypeError), ["getitem", "str", "integer"]),
    ("nan", lambda: t(3)[np.array([np.nan])], IndexError, ["getitem", "float64", "integer"]),
    ("zero step", lambda: t(3)[::0], ValueError, ["getitem", "step", "0"]),
    ("two ellipses", lambda: t(3)[..., ...], IndexError, ["getitem", "ellipsis"]),
    ("setitem", lambda: t(3).__setitem__(3, 1.0), IndexError, ["setitem", "3", "size 3"]),
    ("tensor", lambda: t(3)[ints(3)].numpy(), IndexError, ["getitem", "3", "axis 0", "size 3", "test_errors.py:"]),
    ("float tensor", lambda: t(3)[t(2)], IndexError, ["float32", "integer"]),
    ("take", lambda: ag.take(t(3), [5], axis=0), IndexError, ["take", "5", "3"]),
    (
        "take_along_axis",
        lambda: ag.take_along_axis(t(2, 3), ints(7), 1).numpy(),
        (IndexError, ValueError),
        ["take_along_axis"],
    ),
    (
        "one_hot",
        lambda: ag.one_hot(ints(0, 5), 3).numpy(),
        (IndexError, ValueError),
        ["one_hot|index_put", "5", "size 3", "test_errors.py:"],
    ),
    ("embedding", lambda: F.embedding(ints(9), t(4, 2)).numpy(), IndexError, ["9", "size 4"]),
    ("label", lambda: F.cross_entropy(t(2, 3), ints(0, 3)).item(), (IndexError, ValueError), ["3", "from 0 to 2"]),
    ("list label", lambda: F.cross_entropy(t(2, 3), np.array([0, -1])).item(), (IndexError, ValueError), ["-1"]),
]

TYPES = [
    ("string", lambda: ag.tensor("abc"), TypeError, ["tensor", "<U3", "booleans"]),
    ("ragged", lambda: ag.tensor([[1.0], [1.0, 2.0]]), TypeError, ["tensor", "list", "equal lengths"]),
    ("ragged parameter", lambda: ag.param([[1.0], [1.0, 2.0]]), TypeError, ["param", "list", "equal lengths"]),
    ("ragged operand", lambda: t(2) + [[1.0], [1.0, 2.0]], TypeError, ["add", "list", "equal lengths"]),
    ("set", lambda: ag.tensor({1, 2}), TypeError, ["tensor", "set", "nested sequences"]),
    ("generator", lambda: ag.param(i for i in range(3)), TypeError, ["param", "generator", "nested sequences"]),
    ("large unsigned", lambda: t(2) + np.array([2**64 - 1], np.uint64), ValueError, ["add", str(2**64 - 1), "int64"]),
    ("rand", lambda: ag.rand(2, dtype="int64"), TypeError, ["rand", "int64", "float"]),
    ("randn", lambda: ag.randn(2, dtype="int64"), TypeError, ["randn", "int64", "float"]),
    ("labels of nothing", lambda: F.cross_entropy(t(2, 3), None), TypeError, ["cross_entropy", "NoneType", "integers"]),
    ("ragged labels", lambda: F.nll_loss(t(2, 3), [[0], [1, 2]]), TypeError, ["nll_loss", "list", "integers"]),
    ("no function", lambda: ag.grad(3), TypeError, ["grad", "fn", "3", "function"]),
    ("none", lambda: ag.tensor(None), TypeError, ["tensor", "NoneType|object"]),
    ("object", lambda: ag.exp(Odd()), TypeError, ["exp", "Odd", "tensor"]),
    ("dict", lambda: ag.sum({}), TypeError, ["sum", "dict", "tensor"]),
    ("complex", lambda: ag.tensor(np.array([1j])), TypeError, ["tensor", "complex128", "floats"]),
    ("array of objects", lambda: ag.tensor(np.array([Odd()])), TypeError, ["tensor", "object"]),
    ("array of texts", lambda: ag.tensor(np.array(["a"])), TypeError, ["tensor", "<U1"]),
    ("plus an array of texts", lambda: t(1) + np.array(["a"]), TypeError, ["add", "<U1", "expected booleans"]),
    ("an array of texts plus", lambda: np.array(["a"]) + t(1), TypeError, ["add", "<U1", "expected booleans"]),
    ("minus an array of complex", lambda: t(1) - np.array([1j]), TypeError, ["subtract", "complex128", "expected"]),
    ("times a date", lambda: t(1) * np.datetime64("2020"), TypeError, ["multiply", "datetime64", "expected"]),
    ("product with texts", lambda: t(1) @ np.array(["a"]), TypeError, ["matmul", "<U1", "expected"]),
    ("power of texts", lambda: np.array(["a"]) ** t(1), TypeError, ["pow", "<U1", "expected"]),
    ("added texts", lambda: t(1).__iadd__(np.array(["a"])), TypeError, ["+=", "<U1", "expected"]),
    ("astype an unknown type", lambda: t(1).astype("x"), TypeError, ["astype", "'x'", "expected one of bool, uint8"]),
    ("of an unknown type", lambda: ag.tensor(1, dtype="foo"), TypeError, ["tensor", "'foo'", "expected one of bool"]),
    ("zeros of an unknown type", lambda: ag.zeros(2, "foo"), TypeError, ["zeros", "'foo'", "expected one of bool"]),
    ("times a string", lambda: t(2) * "a", TypeError, ["unsupported|expected"]),
    ("integers times a string", lambda: ag.tensor(2) * "ab", TypeError, ["unsupported|expected"]),
    ("plus none", lambda: t(2) + None, TypeError, ["unsupported|expected"]),
    ("bitwise floats", lambda: t(2) & t(2), TypeError, ["bitwise_and", "float32", "integer"]),
    ("shift", lambda: t(2) << 1, TypeError, ["bitwise_left_shift", "float32"]),
    ("negative bool", lambda: -(t(2) > 0), TypeError, ["negative", "bool", "number"]),
    ("bool product", lambda: (t(2, 2) > 0) @ (t(2, 2) > 0), TypeError, ["matmul", "bool", "number"]),
    ("dtype", lambda: t(2).astype("float31"), TypeError, ["dtype", "float31", "float32"]),
    ("dtype object", lambda: ag.zeros(2, dtype=Odd), TypeError, ["dtype", "object", "float32"]),
    ("integer leaf", lambda: ag.param([1, 2]), TypeError, ["param", "int64", "float"]),
    (
        "integer requires_grad",
        lambda: ints(1).requires_grad_(),
        TypeError,
        ["requires_grad", "floating-point", "int64"],
    ),
    ("big integer", lambda: ints(1) + 2**70, (ValueError, OverflowError), ["1180591620717411303424", "int64"]),
    ("item assignment", lambda: t(2).__setitem__(0, "a"), TypeError, ["setitem", "str"]),
    ("size", lambda: ag.zeros("a"), TypeError, ["zeros", "str", "integer"]),
    ("negative size", lambda: ag.zeros((2, -1)), ValueError, ["zeros", "-1", "negative"]),
    ("huge size", lambda: ag.zeros((1 << 40, 1 << 40)), ValueError, ["zeros|full", "too many"]),
    ("full", lambda: ag.full((2,), "a"), TypeError, ["full", "str", "number"]),
    ("arange", lambda: ag.arange(0, 5, 0), ValueError, ["arange", "step 0"]),
    ("concat a tensor and a number", lambda: ag.concat(3), TypeError, ["concat", "int", "sequence"]),
    ("keyword", lambda: ag.sum(t(2), axes=0), TypeError, ["axes"]),
    ("index of a float", lambda: range(t()), TypeError, ["float32", "index"]),
    ("pad mode", lambda: ag.pad(t(2), 1, mode="magic"), ValueError, ["pad", "magic", "constant"]),
    ("gelu", lambda: ag.gelu(t(2), approximate="bad"), ValueError, ["gelu", "bad", "tanh"]),
    ("uniform", lambda: ag.uniform(2.0, 1.0, (3,)), ValueError, ["uniform", "2", "1"]),
    ("randint", lambda: ag.randint(5, 5, (2,)), ValueError, ["randint", "5", "low < high"]),
    ("dropout", lambda: ag.dropout(t(2), 1.5), ValueError, ["dropout", "1.5", "0 to 1"]),
    ("seed", lambda: ag.manual_seed(-1), ValueError, ["manual_seed", "-1"]),
]

PLACES = [
    ("device", lambda: ag.zeros(2, device="gpu:7"), ag.DeviceError, ["gpu:7", "adapter"]),
    ("to", lambda: t(2).to("tpu"), ValueError, ["tpu", "cpu"]),
    ("default device", lambda: ag.set_default_device("quantum"), ValueError, ["quantum", "cpu"]),
    ("stats", lambda: ag.memory_stats("moon"), ValueError, ["moon", "cpu"]),
    ("backward", lambda: t(2).sum().backward(), RuntimeError, ["backward", "not recorded", "grad_tape"]),
    ("backward of integers", lambda: ints(1).sum().backward(), TypeError, ["backward", "int64", "float"]),
    (
        "backward inputs",
        lambda: ag.param([1.0]).backward(inputs=[t(1)]),
        ValueError,
        ["backward", "inputs", "requires_grad"],
    ),
    ("grad of a vector", lambda: ag.grad(lambda x: x * 2)(t(2)), TypeError, ["grad", "(2,)", "scalar"]),
    ("grad of integers", lambda: ag.grad(lambda x: x.sum())(ints(1)), TypeError, ["grad", "int64", "float"]),
    ("argnums", lambda: ag.grad(lambda x: x.sum(), argnums=3)(t(2)), ValueError, ["grad", "argnums=3", "1"]),
    ("hvp", lambda: ag.hvp(lambda x: x.sum(), t(2), t(3)), ValueError, ["hvp", "(3,)", "(2,)"]),
    ("options", lambda: ag.options(fuse="yes"), TypeError, ["options", "fuse", "'yes'", "True or False"]),
    ("optimizer", lambda: ag.optim.SGD([], lr=0.1), ValueError, ["SGD", "empty", "at least one"]),
    ("optimizer of a number", lambda: ag.optim.Adam([3.0]), TypeError, ["Adam", "float", "tensor|leaf|leaves"]),
    ("optimizer of no list", lambda: ag.optim.SGD(3, lr=0.1), TypeError, ["SGD", "int", "iterable"]),
    ("group of no list", lambda: ag.optim.SGD([{"params": 3}], lr=0.1), TypeError, ["SGD", "int", "leaf"]),
    ("betas", lambda: ag.optim.Adam([ag.param([1.0])], betas=0.9), TypeError, ["Adam", "0.9", "two numbers"]),
    ("module list", lambda: ag.nn.ModuleList(3), TypeError, ["ModuleList", "int", "iterable"]),
    ("module dict", lambda: ag.nn.ModuleDict(3), TypeError, ["ModuleDict", "int", "mapping"]),
    ("diff of a number", lambda: ag.diff(1.5), ValueError, ["diff", "axis -1", "0 dimension", "expected"]),
    ("diff of an object", lambda: ag.diff(Odd()), TypeError, ["diff", "Odd", "tensor"]),
    ("searchsorted", lambda: ag.searchsorted(Odd(), t(2)), TypeError, ["searchsorted", "Odd", "tensor"]),
    ("low norm", lambda: ag.nn.clip_grad_norm_([t(2)], -1.0), ValueError, ["clip_grad", "-1.0", "not negative"]),
    ("model for leaves", lambda: ag.optim.SGD(ag.nn.ReLU()), TypeError, ["SGD", "ReLU", "parameters()"]),
    ("schedule's state", lambda: schedule().load_state_dict({}), ValueError, ["StepLR", "last_epoch", "state_dict()"]),
    ("float of many", lambda: float(t(2)), ValueError, ["float", "one element", "[2]", "reduce"]),
    ("into a smaller one", lambda: t(2).__iadd__(t(3, 2)), ValueError, ["+=", "[3, 2]", "[2]", "broadcasts"]),
    ("ragged rows", lambda: ag.data.TensorDataset([[1], [2, 3]]), TypeError, ["TensorDataset", "array 0", "equal"]),
    ("learning rate", lambda: ag.optim.SGD([ag.param([1.0])], lr=-1.0), ValueError, ["SGD", "lr", "-1"]),
    ("linear", lambda: ag.nn.Linear(3, 4)(t(2, 5)), ValueError, ["linear", "5", "3"]),
    ("layer_norm", lambda: F.layer_norm(t(2, 3), (4,)), ValueError, ["layer_norm", "(2, 3)", "(4,)"]),
    (
        "cross_entropy",
        lambda: F.cross_entropy(t(2, 3), t(3, 2)),
        (ValueError, TypeError),
        ["cross_entropy", "(2, 3)|float32"],
    ),
    ("mse_loss", lambda: F.mse_loss(t(2), t(3)), ValueError, ["mse_loss|subtract", "2", "3"]),
    ("state dict", lambda: ag.nn.Linear(2, 2).load_state_dict({}), (KeyError, ValueError, RuntimeError), ["weight"]),
]

CALLS = SHAPES + AXES + INDICES + TYPES + PLACES
# Functions and layers that are handed something that is neither a tensor nor an array.
STRANGERS = [
    ("mse_loss", lambda x: F.mse_loss(t(2), x)),
    ("l1_loss", lambda x: F.l1_loss(t(2), x)),
    ("mse_loss", lambda x: F.mse_loss(x, t(2))),
    ("l1_loss", lambda x: F.l1_loss(x, t(2))),
    ("huber_loss", lambda x: F.huber_loss(x, t(2))),
    ("binary_cross_entropy_with_logits", lambda x: F.binary_cross_entropy_with_logits(x, t(2))),
    ("cross_entropy", lambda x: F.cross_entropy(x, [0])),
    ("cross_entropy", lambda x: F.cross_entropy(t(1, 2), x)),
    ("nll_loss", lambda x: F.nll_loss(x, [0])),
    ("nll_loss", lambda x: F.nll_loss(t(1, 2), x)),
    ("layer_norm", lambda x: F.layer_norm(x, 3)),
    ("rms_norm", lambda x: F.rms_norm(x, 3)),
    ("batch_norm", lambda x: F.batch_norm(x, None, None)),
    ("batch_norm", lambda x: F.batch_norm(t(2, 3), x, t(3))),
    ("linear", lambda x: F.linear(x, t(2, 2))),
    ("linear", lambda x: F.linear(t(2, 2), x)),
    ("linear", lambda x: F.linear(t(2, 2), t(2, 2), x)),
    ("embedding", lambda x: F.embedding([0], x)),
    ("embedding", lambda x: F.embedding(x, t(2, 2))),
    ("cosine_similarity", lambda x: F.cosine_similarity(t(2), x)),
    ("one_hot", lambda x: F.one_hot(x, 3)),
    ("scaled_dot_product_attention", lambda x: F.scaled_dot_product_attention(x, t(2, 2), t(2, 2))),
    ("scaled_dot_product_attention", lambda x: F.scaled_dot_product_attention(t(2, 2), x, t(2, 2))),
    ("scaled_dot_product_attention", lambda x: F.scaled_dot_product_attention(t(2, 2), t(2, 2), x)),
    ("scaled_dot_product_attention", lambda x: F.scaled_dot_product_attention(*[t(2, 2)] * 3, attn_mask=x)),
    ("MultiHeadAttention", lambda x: ag.nn.MultiHeadAttention(4, 2)(t(3, 4), x)),
    ("MultiHeadAttention", lambda x: ag.nn.MultiHeadAttention(4, 2)(t(3, 4), t(3, 4), x)),
]
# Functions of one tensor.
STRANGERS += [(name, getattr(F, name)) for name in F.__all__ if name not in {op for op, _ in STRANGERS}]
# Layers, as they are made, and the function that refuses for them where that has another name.
LAYERS = [
    (ag.nn.ELU(), "elu"), (ag.nn.GELU(), "gelu"), (ag.nn.GLU(), "glu"), (ag.nn.BatchNorm(3), "BatchNorm"),
    (ag.nn.BatchNorm1d(3), "BatchNorm1d"), (ag.nn.BatchNorm2d(3), "BatchNorm2d"), (ag.nn.Dropout(), "dropout"),
    (ag.nn.Embedding(3, 2), "embedding"), (ag.nn.Flatten(), "Flatten"), (ag.nn.LayerNorm(3), "layer_norm"),
    (ag.nn.LeakyReLU(), "leaky_relu"), (ag.nn.Linear(3, 2), "linear"), (ag.nn.LogSigmoid(), "logsigmoid"),
    (ag.nn.LogSoftmax(), "log_softmax"), (ag.nn.Mish(), "mish"), (ag.nn.MultiHeadAttention(4, 2), "MultiHeadAttention"),
    (ag.nn.RMSNorm(3), "rms_norm"), (ag.nn.ReLU(), "relu"), (ag.nn.ReLU6(), "relu6"), (ag.nn.SiLU(), "silu"),
    (ag.nn.Sigmoid(), "sigmoid"), (ag.nn.Softmax(), "softmax"), (ag.nn.Softplus(beta=2.0), "softplus"), (ag.nn.Tanh(), "tanh"),
    (lambda x: ag.nn.MSELoss()(x, x), "mse_loss"), (lambda x: ag.nn.L1Loss()(x, x), "l1_loss"),
    (lambda x: ag.nn.HuberLoss()(x, x), "huber_loss"), (lambda x: ag.nn.NLLLoss()(x, [0]), "nll_loss"),
    (lambda x: ag.nn.CrossEntropyLoss()(x, [0]), "cross_entropy"),
    (lambda x: ag.nn.BCEWithLogitsLoss()(x, x), "binary_cross_entropy_with_logits"),
]  # fmt: skip
STRANGERS += [(op, layer) for layer, op in LAYERS]
# What gives a tensor new values takes nothing but a tensor.
INITIAL = [name for name in vars(ag.nn.init) if name.endswith("_") and not name.startswith("_")]
STRANGERS += [
    (
        "constant_" if name in ("zeros_", "ones_") else name,
        lambda x, name=name: getattr(ag.nn.init, name)(x, *[0.0] * (name == "constant_")),
    )
    for name in INITIAL
]
NAMES = [
    f"{kind}: {name}"
    for kind, rows in zip(("shape", "axis", "index", "type", "place"), (SHAPES, AXES, INDICES, TYPES, PLACES))
    for name, *_ in rows
]


@pytest.mark.parametrize(("call", "error", "words"), [row[1:] for row in CALLS], ids=NAMES)
def test_U01_a_bad_call_says_what_was_wrong(call, error, words):
    w = ag.param([2.0, 3.0])
    with ag.grad_tape() as tape:
        hidden = w * w
        with pytest.raises(error) as caught:
            call()
        assert ag.is_grad_enabled() and ag.tape_memory(tape).nodes == 1
        loss = (hidden * w).sum()
    loss.backward()
    assert w.grad.tolist() == [12.0, 27.0]
    text, at = str(caught.value), 0
    assert "internal error" not in text and "panic" not in text.lower()
    for word in words:  # in this order; "a|b" for either
        found = [(text.find(w, at), w) for w in word.split("|") if text.find(w, at) >= 0]
        assert found, f"{word!r} is not in {text[at:]!r} of {text!r}"
        at = min(found)[0] + len(min(found)[1])


@pytest.mark.parametrize(("op", "call"), STRANGERS, ids=[f"{i} {op}" for i, (op, _) in enumerate(STRANGERS)])
def test_U01_what_is_no_array_is_named_by_functions_and_layers(op, call):
    with pytest.raises(TypeError) as caught:
        call(Odd())
    text = str(caught.value)
    assert text.startswith(f"{op}: ") and "Odd" in text.replace("object", "Odd") and "expected" in text


def test_U01_what_is_no_array_is_named_in_docstrings():
    made = {type(layer).__name__ for layer, _ in LAYERS} | {
        "MSELoss",
        "L1Loss",
        "HuberLoss",
        "NLLLoss",
        "CrossEntropyLoss",
    }
    made |= {"BCEWithLogitsLoss"}
    containers = {"Identity", "Module", "ModuleDict", "ModuleList", "Sequential"}
    layers = {n for n in ag.nn.__all__ if isinstance(getattr(ag.nn, n), type)} - containers - {"MultiheadAttention"}
    assert layers <= made, f"no row in LAYERS for {sorted(layers - made)}"
    named = [getattr(F, name) for name in F.__all__] + [getattr(ag.nn, name) for name in layers]
    for thing in named:
        raises = (thing.__doc__ or "").partition("Raises:")[2].partition(">>>")[0]
        assert "TypeError" in raises, f"{thing.__name__} does not say that it raises TypeError"


def test_U01_lists_and_arrays_are_taken_where_tensors_are():
    assert F.mse_loss([1.0, 2.0], np.ones(2, "f4")).item() == 0.5
    assert F.layer_norm([[1.0, 3.0]], 2, [2.0, 2.0], [1.0, 1.0], eps=0.0).tolist() == [[-1.0, 3.0]]
    assert F.linear([[1.0, 2.0]], [[3.0, 4.0]], [1.0]).tolist() == [[12.0]]
    assert F.embedding([1], [[1.0], [2.0]]).tolist() == [[2.0]]


def test_U01_enough_bad_calls_are_made():
    assert len(CALLS) >= 60 and len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(
    "rows", [SHAPES, AXES, INDICES, TYPES, PLACES], ids=["shape", "axis", "index", "type", "place"]
)
def test_U01_a_training_step_survives_every_bad_call(rows):
    w = ag.param([1.0, 2.0])
    opt = ag.optim.SGD([w], lr=0.5)
    with ag.grad_tape():
        loss = w.sum() * 0.0
        for _, call, error, _ in rows:
            before = (w * w).sum()
            with pytest.raises(error):
                call()
            loss = loss + before
    loss.backward()
    assert w.grad.tolist() == [2.0 * len(rows), 4.0 * len(rows)]
    opt.step()
    assert w.tolist() == [1.0 - len(rows), 2.0 - 2.0 * len(rows)]


def test_U01_errors_pass_through_functions_unchanged():
    class Mine(Exception):
        pass

    def f(x):
        raise Mine("as it is")

    for transform in (ag.grad(f), lambda x: ag.vjp(f, x), lambda x: ag.hvp(f, x, x), lambda x: ag.jvp(f, (x,), (x,))):
        with pytest.raises(Mine, match=r"^as it is$"):
            transform(t(2))
        assert not ag.is_grad_enabled()

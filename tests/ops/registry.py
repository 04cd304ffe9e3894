"""The table of ops: every row of every family, what is made from nothing, and the engine ops that other tests own."""

import agtape as ag
import numpy as np
from ops.row import Row, cube, one, two
from ops.rows_elementwise import BINARY, UNARY
from ops.rows_movement import INDEXING, JOINING, SHAPES
from ops.rows_nn import NETWORK
from ops.rows_reductions import ALONG, REDUCTIONS
from ops.samples import FLOATS

PRODUCT = {"family": "product", "ops": ("matmul",)}
# Elementwise products are rounded before they are summed.
ROUNDED_PRODUCT = {"family": "composed"}


def product(name, left, right, call=None, **rest):
    """A row of a product of two inputs whose shapes hold n."""
    return Row(name, lambda n: (left(n), right(n)), call=call, **PRODUCT | rest)


def equation(text, *shapes, **rest):
    """A row of einsum."""
    return Row(f"einsum {text}", lambda n: shapes_at(n, shapes), call=lambda xp, *a: xp.einsum(text, *a), **rest)


def shapes_at(n, shapes):
    """Shapes with n in place of None."""
    return tuple(tuple(n if d is None else d for d in shape) for shape in shapes)


LINEAR = [
    product("matmul", lambda n: (3, n), lambda n: (n, 2)),
    product("matmul wide", lambda n: (n, 3), lambda n: (3, n)),
    product("matmul vectors", lambda n: (n,), lambda n: (n,)),
    product("matmul left vector", lambda n: (n,), lambda n: (2, n, 3)),
    product("matmul right vector", lambda n: (2, 3, n), lambda n: (n,)),
    product("matmul batches", lambda n: (2, 1, n, 3), lambda n: (4, 3, 2)),
    product("matmul batch by matrix", lambda n: (2, n, 3), lambda n: (3, 2)),
    product("dot", lambda n: (3, n), lambda n: (n,)),
    product("dot many axes", lambda n: (2, n), lambda n: (3, n, 2)),
    product("tensordot", lambda n: (2, 3, n), lambda n: (3, n, 2)),
    product(
        "tensordot axes", lambda n: (2, n, 3), lambda n: (n, 2), lambda xp, *a: xp.tensordot(*a, axes=((0, 1), (1, 0)))
    ),
    product("outer", lambda n: (2,), lambda n: (n,), family="rounded", ops=("multiply",)),
    product("vecdot", lambda n: (2, n), lambda n: (n,), ops=("multiply", "sum"), **ROUNDED_PRODUCT),
    equation("ij,jk->ik", (2, None), (None, 3), **PRODUCT),
    equation("bij,bkj->bik", (2, 3, None), (2, 2, None), **PRODUCT),
    equation("i,j->ij", (2,), (None,), **ROUNDED_PRODUCT),
    equation("ii->i", (3, 3), gives="same"),
    equation("...ij->...ji", (2, None, 3)),
    equation("ijk->k", (2, None, 3), family="sum"),
    equation("ij,ij", (2, None), (2, None), **ROUNDED_PRODUCT),
    equation("ij,jk,kl->il", (2, None), (None, 3), (3, 2), **ROUNDED_PRODUCT),
    Row("trace", cube, call=lambda xp, x: xp.trace(x, 0, 0, 2), family="sum", gives="wide", ops=("gather", "sum")),
]

CUBED = ag.custom_gradient(lambda x: x * x * x, lambda g, inputs, out: g * 3 * inputs[0] * inputs[0], name="cubed")


def dropped(xp, x):
    """Dropout of a half, always by the same draw."""
    ag.manual_seed(3)
    if xp is ag:
        return ag.dropout(x, 0.5)
    return x * 2 * ag.bernoulli(0.5, x.shape).numpy()


SPECIAL = [
    Row(
        "custom_gradient",
        one,
        lambda x: x**3,
        lambda xp, x: CUBED(x),
        family="composed",
        dtypes=FLOATS,
        ops=("custom",),
    ),
    Row("dropout", one, call=dropped, dtypes=FLOATS, ops=("multiply", "where")),
    Row(
        "astype int64",
        one,
        np.trunc,
        lambda xp, x: x.astype("int64"),
        gives="int64",
        gradient="none",
        dtypes=FLOATS,
    ),
    Row(
        "searchsorted",
        two,
        lambda x, y: np.searchsorted(np.sort(x[0]), y),
        lambda xp, x, y: xp.searchsorted(xp.sort(x[0]), y),
        gives="int64",
        gradient="none",
    ),
]

ROWS = [*UNARY, *BINARY, *REDUCTIONS, *ALONG, *SHAPES, *JOINING, *INDEXING, *LINEAR, *NETWORK, *SPECIAL]

# What is made from nothing: name, call by library and size, dtype.
CREATION = [
    ("zeros", lambda xp, n: xp.zeros((2, n)), "float32"),
    ("ones", lambda xp, n: xp.ones((2, n)), "float32"),
    ("full", lambda xp, n: xp.full((2, n), 2.5), "float32"),
    ("full int", lambda xp, n: xp.full((n,), 3), "int64"),
    ("full bool", lambda xp, n: xp.full((n,), True), "bool"),
    ("zeros_like", lambda xp, n: xp.zeros_like(np.ones((2, n))), "float64"),
    ("ones_like", lambda xp, n: xp.ones_like(np.ones((2, n), np.int32)), "int32"),
    ("full_like", lambda xp, n: xp.full_like(np.ones((2, n)), 4), "float64"),
    ("arange", lambda xp, n: xp.arange(n), "int64"),
    ("arange step", lambda xp, n: xp.arange(n, -n, -3), "int64"),
    ("arange floats", lambda xp, n: xp.arange(0.5, n, 0.25), "float32"),
    ("linspace", lambda xp, n: xp.linspace(-1, 2, n), "float32"),
    ("linspace open", lambda xp, n: xp.linspace(0, 3, n, endpoint=False, dtype="float64"), "float64"),
    ("eye", lambda xp, n: xp.eye(n), "float32"),
    ("eye wide", lambda xp, n: xp.eye(n, 3, k=1), "float32"),
    ("tensor", lambda xp, n: (ag.tensor if xp is ag else np.array)(np.arange(n, dtype=np.float64)), "float64"),
]

# Engine ops that need more than a row: where they are tested.
ELSEWHERE = {
    "to_device": "gpu/test_devices.py",
    "leaf": "ops/test_broadcast.py",
    "astype": "ops/test_dtypes.py",
    "alias": "ops/test_broadcast.py",
    "uniform": "ops/test_random.py",
    "normal": "ops/test_random.py",
    "randint": "ops/test_random.py",
    "sgd": "optim/test_optimizers.py",
    "sgd_momentum": "optim/test_optimizers.py",
    "adam": "optim/test_optimizers.py",
    "gelu_slope": "nn/test_activation.py",
    "gelu_tanh_slope": "nn/test_activation.py",
    "silu_slope": "nn/test_activation.py",
    "layer_norm_gradient": "nn/test_norm.py",
    "rms_norm_gradient": "nn/test_norm.py",
    "cross_entropy_gradient": "nn/test_loss.py",
}
# Public functions without a value that NumPy could tell, or that give no tensor: where they are tested.
FUNCTIONS_ELSEWHERE = {
    "allclose": "ops/test_dtypes.py",
    "array_equal": "ops/test_dtypes.py",
    "empty": "ops/test_values.py",
    "empty_like": "ops/test_values.py",
} | dict.fromkeys(("bernoulli", "normal", "permutation", "rand", "randint", "randn", "uniform"), "ops/test_random.py")

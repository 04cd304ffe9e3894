"""The names that users know from NumPy and PyTorch are there, as functions and, where those have them, as methods."""

import inspect

import agtape as ag
import numpy as np
import pytest

FUNCTIONS = """
    pow exp log log1p expm1 sqrt rsqrt square abs sign floor ceil round sin cos tan arctan sinh cosh tanh sigmoid relu gelu silu softplus
    erf isnan isfinite nan_to_num maximum minimum clip where equal not_equal less less_equal greater greater_equal logical_and logical_or
    logical_not logical_xor sum mean prod max min argmax argmin any all var std cumsum logsumexp softmax log_softmax sort argsort topk
    matmul einsum reshape permute transpose expand_dims squeeze broadcast_to flip roll pad concat stack split repeat tile take_along_axis
    scatter_add one_hot triu tril zeros ones full empty arange linspace eye zeros_like ones_like full_like empty_like rand randn uniform
    randint permutation astype detach
""".split()
# PyTorch's tensors have these, under this name or PyTorch's own.
METHODS = """
    pow exp log log1p expm1 sqrt rsqrt square abs sign floor ceil round sin cos tan arctan sinh cosh tanh sigmoid relu erf isnan isfinite
    nan_to_num maximum minimum clip clamp where eq ne lt le gt ge logical_and logical_or logical_not logical_xor sum mean prod max min
    argmax argmin any all var std cumsum logsumexp softmax log_softmax sort argsort topk matmul reshape view permute transpose squeeze
    unsqueeze broadcast_to expand flip roll split repeat tile take_along_axis scatter_add triu tril astype detach assign_ add sub mul div
    backward item numpy tolist
""".split()
OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
LAYERS = """
    Module Linear Embedding LayerNorm RMSNorm BatchNorm Dropout ReLU GELU SiLU Tanh Sigmoid Softplus Softmax Sequential MultiHeadAttention
    MSELoss L1Loss CrossEntropyLoss BCEWithLogitsLoss clip_grad_norm_ clip_grad_value_
""".split()
NN_FUNCTIONS = "scaled_dot_product_attention mse_loss l1_loss cross_entropy binary_cross_entropy_with_logits".split()
MODULE = "parameters named_parameters buffers register_buffer state_dict load_state_dict train eval".split()
AUTOGRAD = "grad_tape no_grad grad value_and_grad vjp jvp hvp custom_op custom_gradient detect_anomaly".split()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_op_is_a_function_and_a_method_where_numpy_has_one(name):
    assert callable(getattr(ag, name))
    if name != "round" and hasattr(np.ndarray, name):
        assert callable(getattr(ag.Tensor, name))


@pytest.mark.parametrize("name", METHODS)
def test_an_op_is_a_method_where_pytorch_has_one(name):
    assert callable(getattr(ag.Tensor, name))


def test_operators_have_reflected_and_in_place_forms():
    names = {f"__{form}{name}__" for name in OPERATORS for form in ("", "r", "i")} - {"__imatmul__"}
    names |= {"__neg__", "__pos__", "__abs__", "__invert__", "__getitem__", "__setitem__"}
    missing = [name for name in sorted(names) if not hasattr(ag.Tensor, name)]
    assert not missing
    x = ag.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert x.T.tolist() == [[1.0, 3.0], [2.0, 4.0]] and x.where(x > 2, 0.0).tolist() == [[0.0, 0.0], [3.0, 4.0]]
    kept = x
    x @= x
    assert x.tolist() == [[7.0, 10.0], [15.0, 22.0]] and kept.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_layers_losses_and_optimizers_are_there():
    assert not [name for name in LAYERS if not callable(getattr(ag.nn, name, None))]
    assert not [name for name in NN_FUNCTIONS if not callable(getattr(ag.nn.functional, name, None))]
    assert not [name for name in MODULE if not callable(getattr(ag.nn.Module, name, None))]
    assert {"SGD", "Adam", "AdamW"} <= set(dir(ag.optim))
    has = inspect.signature(ag.nn.functional.cross_entropy).parameters
    assert {"label_smoothing", "ignore_index", "weight", "reduction"} <= set(has)
    assert {"momentum", "nesterov"} <= set(inspect.signature(ag.optim.SGD).parameters)


def test_the_ways_to_differentiate_are_there():
    assert not [name for name in AUTOGRAD if not callable(getattr(ag, name, None))] and callable(ag.testing.gradcheck)
    backward = list(inspect.signature(ag.Tensor.backward).parameters)[1:]
    assert backward == ["gradient", "inputs", "retain_graph", "create_graph"]

"""Activations: values against JAX's and NumPy's, gradients to second order, layers against functions."""

import agtape as ag
import jax.nn
import numpy as np
import pytest

F = ag.nn.functional
X = np.array([-30.0, -3.0, -1.0, -0.25, 0.0, 0.5, 1.5, 4.0, 30.0])
SMOOTH = X[np.abs(X) < 10] + 0.01  # away from kinks, where a central difference means something

CASES = {
    "relu": (F.relu, lambda x: np.maximum(x, 0), ag.nn.ReLU()),
    "relu6": (F.relu6, lambda x: np.clip(x, 0, 6), ag.nn.ReLU6()),
    "leaky_relu": (F.leaky_relu, jax.nn.leaky_relu, ag.nn.LeakyReLU()),
    "elu": (F.elu, jax.nn.elu, ag.nn.ELU()),
    "gelu": (F.gelu, lambda x: jax.nn.gelu(x, approximate=False), ag.nn.GELU()),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), jax.nn.gelu, ag.nn.GELU("tanh")),
    "silu": (F.silu, jax.nn.silu, ag.nn.SiLU()),
    "mish": (F.mish, jax.nn.mish, ag.nn.Mish()),
    "softplus": (F.softplus, jax.nn.softplus, ag.nn.Softplus()),
    "softplus beta": (lambda x: F.softplus(x, 2.0), lambda x: jax.nn.softplus(2 * x) / 2, ag.nn.Softplus(2.0)),
    "sigmoid": (F.sigmoid, jax.nn.sigmoid, ag.nn.Sigmoid()),
    "logsigmoid": (F.logsigmoid, jax.nn.log_sigmoid, ag.nn.LogSigmoid()),
    "tanh": (F.tanh, np.tanh, ag.nn.Tanh()),
    "softmax": (F.softmax, jax.nn.softmax, ag.nn.Softmax()),
    "log_softmax": (F.log_softmax, jax.nn.log_softmax, ag.nn.LogSoftmax()),
}


@pytest.mark.parametrize("name", CASES)
def test_values_equal_the_reference(name):
    function, reference, layer = CASES[name]
    # 3e-9: beyond its threshold softplus is the line, which differs from the curve by at most exp(-20).
    np.testing.assert_allclose(function(ag.tensor(X)).numpy(), reference(X), rtol=1e-9, atol=3e-9)
    np.testing.assert_array_equal(layer(ag.tensor(X)).numpy(), function(ag.tensor(X)).numpy())
    single = ag.tensor(X.astype(np.float32))
    assert str(function(single).dtype) == "float32"
    np.testing.assert_allclose(function(single).numpy(), reference(X), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_gradients_to_second_order(name):
    assert ag.testing.gradcheck(CASES[name][0], ag.tensor(SMOOTH), order=2)


@pytest.mark.parametrize("name", ["gelu", "gelu tanh", "silu"])
def test_slopes_are_one_op_and_right_to_third_order(name):
    """gelu_slope, gelu_tanh_slope and silu_slope: against differences of float64, near float32, and flat far away."""
    function = CASES[name][0]
    slope = ag.grad(lambda x: function(x).sum())
    x = np.linspace(-6, 6, 241)
    exact = slope(ag.tensor(x)).numpy()
    step = 1e-5
    differences = (function(ag.tensor(x + step)) - function(ag.tensor(x - step))).numpy() / (2 * step)
    np.testing.assert_allclose(exact, differences, atol=1e-9)
    np.testing.assert_allclose(slope(ag.tensor(x.astype(np.float32))).numpy(), exact, atol=6e-7)
    far = ag.tensor([-np.inf, -1e30, -50.0, 50.0, 1e30, np.inf])
    np.testing.assert_allclose(slope(far).numpy(), [0, 0, 0, 1, 1, 1], atol=1e-12)
    assert np.isnan(slope(ag.tensor([np.nan])).numpy()).all()
    assert ag.testing.gradcheck(slope, ag.tensor(SMOOTH), order=2)
    w = ag.param(x)
    with ag.grad_tape() as tape:
        loss = function(w).sum()
        loss.backward(create_graph=True)
        rows = {row.op: row.nodes for row in ag.tape_memory(tape).by_op}
    assert rows[{"gelu": "gelu_slope", "gelu tanh": "gelu_tanh_slope", "silu": "silu_slope"}[name]] == 1


@pytest.mark.parametrize(
    ("name", "slope"), [("relu", 0.0), ("leaky_relu", 0.01), ("elu", 1.0), ("gelu", 0.5), ("silu", 0.5)]
)
def test_T11_gradients_at_zero_are_the_documented_ones(name, slope):
    assert ag.grad(lambda x: CASES[name][0](x).sum())(ag.tensor([0.0])).item() == pytest.approx(slope)


def test_elu_has_no_nan_gradient_where_exp_would_overflow():
    np.testing.assert_array_equal(ag.grad(lambda x: F.elu(x).sum())(ag.tensor([1000.0])).numpy(), [1.0])


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
def test_dim_and_axis_mean_the_same(function, rng):
    x = ag.tensor(rng.standard_normal((3, 4)))
    np.testing.assert_array_equal(function(x, 0).numpy(), function(x, axis=0).numpy())
    np.testing.assert_array_equal(function(x).numpy(), function(x, dim=1).numpy())
    with pytest.raises(TypeError, match="dim=0 and axis=1"):
        function(x, dim=0, axis=1)


def test_glu_gates_one_half_by_the_other(rng):
    x = rng.standard_normal((3, 6))
    np.testing.assert_allclose(F.glu(ag.tensor(x)).numpy(), jax.nn.glu(x), rtol=1e-12)
    np.testing.assert_allclose(ag.nn.GLU(0)(ag.tensor(x.T)).numpy(), np.asarray(jax.nn.glu(x)).T, rtol=1e-12)
    with pytest.raises(ValueError, match="glu: the length along axis 0 is 3; expected an even number"):
        F.glu(ag.tensor(x), 0)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"gelu.*exact"):
        F.gelu(ag.ones(2), approximate="exact")
    with pytest.raises(ValueError, match="GELU: approximate is 'exact'"):
        ag.nn.GELU("exact")
    with pytest.raises(ValueError, match="softplus: beta is 0"):
        F.softplus(ag.ones(2), beta=0)

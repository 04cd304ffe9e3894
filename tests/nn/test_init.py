"""Initial values: bounds and spread against the formulas, identity kept, bad input."""

import math

import agtape as ag
import numpy as np
import pytest

init = ag.nn.init
SHAPE = (300, 400)


@pytest.mark.parametrize(
    ("fill", "std", "bound"),
    [
        (lambda t: init.uniform_(t, -2, 4), 6 / math.sqrt(12), None),
        (lambda t: init.normal_(t, 1.0, 0.5), 0.5, None),
        (init.xavier_uniform_, math.sqrt(2 / 700), math.sqrt(6 / 700)),
        (lambda t: init.xavier_normal_(t, gain=2.0), 2 * math.sqrt(2 / 700), None),
        (init.kaiming_uniform_, math.sqrt(2 / 400), math.sqrt(6 / 400)),
        (lambda t: init.kaiming_uniform_(t, a=math.sqrt(5)), math.sqrt(1 / 1200), 1 / 20),
        (lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"), math.sqrt(2 / 300), None),
    ],
)
def test_spread_and_bounds(fill, std, bound):
    t = ag.param(np.zeros(SHAPE, np.float32))
    assert fill(t) is t
    values = t.numpy()
    assert values.std() == pytest.approx(std, rel=0.02)
    if bound is not None:
        assert 0.99 * bound < np.abs(values).max() <= bound * (1 + 1e-6)
    assert t.requires_grad
    assert t.is_leaf


def test_constants_keep_dtype():
    t = ag.tensor(np.zeros((2, 3)))
    assert init.ones_(t).tolist() == [[1.0] * 3] * 2
    assert init.constant_(t, 2.5).tolist() == [[2.5] * 3] * 2
    assert init.zeros_(t).tolist() == [[0.0] * 3] * 2
    assert str(init.uniform_(t).dtype) == "float64"


def test_trunc_normal_stays_inside():
    values = init.trunc_normal_(ag.zeros((100, 100)), 0.0, 1.0, -0.5, 1.0).numpy()
    assert values.min() >= -0.5
    assert values.max() <= 1.0
    assert len(np.unique(values)) > 5_000


def test_initial_values_are_not_recorded():
    with ag.grad_tape():
        w = init.normal_(ag.param(np.zeros(3, np.float32)))
        loss = (w * w).sum()
    loss.backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * w.numpy(), rtol=1e-6)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"xavier_uniform_: the tensor has shape \(3,\); expected at least two axes"):
        init.xavier_uniform_(ag.zeros(3))
    with pytest.raises(ValueError, match="mode is 'fan'"):
        init.kaiming_normal_(ag.zeros((3, 3)), mode="fan")
    with pytest.raises(ValueError, match="nonlinearity is 'step'"):
        init.calculate_gain("step")
    with pytest.raises(ValueError, match="expected a below b"):
        init.trunc_normal_(ag.zeros(3), a=1, b=1)

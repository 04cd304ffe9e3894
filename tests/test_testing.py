"""The checker is checked: right rules pass, slightly wrong ones fail at the order at which they are wrong."""

import agtape as ag
import numpy as np
import pytest
from agtape.testing import GradcheckError, assert_close, gradcheck

X = ag.tensor(np.linspace(0.2, 1.5, 6).reshape(2, 3))


def wrong_by(first=1.0, second=1.0):
    """x**3 whose first derivative is off by one factor, and whose second derivative by another."""
    slope = ag.custom_gradient(lambda x: 3 * x**2, lambda g, inputs, out: g * (6 * second) * inputs[0])
    return ag.custom_gradient(lambda x: x**3, lambda g, inputs, out: g * first * slope(inputs[0]))


def test_T06_a_right_rule_passes_to_second_order():
    assert gradcheck(wrong_by(), X, order=2) is True
    assert gradcheck(lambda x, y: {"a": x @ y.T, "n": 3}, (X, X), order=2)


@pytest.mark.parametrize("order", [1, 2])
def test_T09_a_rule_wrong_by_one_part_in_a_hundred_fails_at_first_order(order):
    with pytest.raises(
        GradcheckError, match=r"first-order gradient along a random direction is .*, the central difference is"
    ):
        gradcheck(wrong_by(first=1.01), X, order=order)


def test_T09_a_rule_wrong_only_in_its_derivative_fails_at_second_order_alone():
    wrong = wrong_by(second=1.01)
    assert gradcheck(wrong, X, order=1)
    with pytest.raises(GradcheckError, match="second-order gradient along a random direction"):
        gradcheck(wrong, X, order=2)


def test_a_zero_or_missing_gradient_fails():
    silent = ag.custom_gradient(lambda x: x**2, lambda g, inputs, out: None)
    with pytest.raises(AssertionError, match="first-order"):
        gradcheck(silent, X)
    with pytest.raises(AssertionError, match="first-order"):
        gradcheck(lambda x: x.detach() * x, X)


def test_a_nan_gradient_fails():
    with pytest.raises(GradcheckError):
        gradcheck(ag.custom_gradient(lambda x: x * 1, lambda g, inputs, out: g * float("nan")), X)


def test_gradcheck_takes_other_inputs_and_precisions():
    single = ag.tensor(np.ones(3, np.float32))
    assert gradcheck(lambda x, i, k: x[i] * k, (single, ag.tensor(np.array([0, 2])), 2.0))
    assert gradcheck(lambda d: d["x"] * d["x"], {"x": np.array([1.0, 2.0]), "n": None})
    assert gradcheck(lambda x: x.sum() * 1.0, ag.tensor(np.zeros((0, 3))), order=2)
    with pytest.raises(ValueError, match="order=3; expected 1 or 2"):
        gradcheck(ag.tanh, X, order=3)
    with pytest.raises(TypeError, match="no input is a floating tensor"):
        gradcheck(lambda i: i, ag.tensor(np.array([1])))
    with pytest.raises(TypeError, match="returned no floating tensor"):
        gradcheck(lambda x: x > 0, X)


def test_assert_close_uses_the_dtypes_tolerance():
    assert_close(ag.tensor([1.0]), [1.0 + 1e-6])
    assert_close(ag.tensor(np.array([1.0])), np.array([1.0 + 1e-8]))
    assert_close({"a": X, "b": [1.0]}, {"a": X.numpy(), "b": [1.0]})
    assert_close(ag.tensor([float("nan")]), [float("nan")], equal_nan=True)
    assert_close(ag.tensor([1.0]), [1.1], rtol=0.2)
    assert_close(3, 3)


def test_assert_close_says_what_differs():
    with pytest.raises(
        AssertionError, match=r"1 of 2 values differ .* largest difference, 0\.5, is at \(1,\): 2, expected 2\.5"
    ):
        assert_close(ag.tensor([1.0, 2.0]), [1.0, 2.5])
    with pytest.raises(AssertionError, match=r"weights: assert_close: shape \(2,\); expected \(3,\)"):
        assert_close(ag.ones(2), np.ones(3), msg="weights")
    with pytest.raises(AssertionError, match="1 leaves; expected 2"):
        assert_close((X,), (X, X))
    with pytest.raises(AssertionError):
        assert_close(ag.tensor([float("nan")]), [float("nan")])
    with pytest.raises(AssertionError):
        assert_close(ag.tensor(np.array([1.0])), np.array([1.0 + 1e-5]))
    with pytest.raises(AssertionError):
        assert_close(ag.tensor(np.array([1])), np.array([2]))

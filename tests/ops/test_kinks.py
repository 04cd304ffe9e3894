"""Gradients at kinks, as the docstrings and rules write them down."""

import agtape as ag
import numpy as np
import pytest
from ops.samples import make_param

pytestmark = pytest.mark.promise("T11")
FLOAT_NAMES = ("float64", "float32", "float16", "bfloat16")


def slopes(fn, *arrays, dtype="float64"):
    """Gradients of the sum of a function, as lists."""
    leaves = [ag.param(np.asarray(a, np.float64), dtype=dtype) for a in arrays]
    with ag.grad_tape():
        loss = fn(*leaves).sum()
    loss.backward()
    found = [leaf.grad.tolist() for leaf in leaves]
    return found[0] if len(found) == 1 else found


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_T11_relu_at_zero_is_zero(dtype):
    assert slopes(ag.relu, [-1.0, -0.0, 0.0, 1.0], dtype=dtype) == [0.0, 0.0, 0.0, 1.0]
    # The function that is differentiated again is 0 there as well.
    assert ag.grad(lambda x: ag.grad(lambda y: (y.relu() ** 2).sum())(x).sum())(ag.tensor([0.0, 1.0])).tolist() == [
        0.0,
        2.0,
    ]


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_T11_abs_at_zero_is_zero(dtype):
    assert slopes(ag.abs, [-2.0, -0.0, 0.0, 2.0], dtype=dtype) == [-1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("name", ["max", "min"])
def test_T11_ties_of_extremes_split_evenly(name, dtype):
    extreme = getattr(ag, name)
    sign = 1.0 if name == "max" else -1.0
    x = sign * np.array([[3.0, 3.0, 1.0, 3.0], [0.0, 2.0, 2.0, 1.0], [5.0, 4.0, 4.0, 4.0]])
    thirds = 1 / 3
    wanted = [[thirds, thirds, 0.0, thirds], [0.0, 0.5, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0]]
    np.testing.assert_allclose(slopes(lambda t: extreme(t, axis=1), x, dtype=dtype), wanted, rtol=4e-3)
    np.testing.assert_allclose(slopes(lambda t: extreme(t, axis=1, keepdims=True), x, dtype=dtype), wanted, rtol=4e-3)
    everything = slopes(extreme, sign * np.array([[1.0, 7.0], [7.0, 7.0]]), dtype=dtype)
    np.testing.assert_allclose(everything, [[0.0, thirds], [thirds, thirds]], rtol=4e-3)
    both_axes = slopes(lambda t: extreme(t, axis=(0, 1)), np.zeros((2, 4)), dtype=dtype)
    assert both_axes == [[0.125] * 4] * 2


def test_T11_many_ties_are_counted_exactly_in_16_bits():
    """The number of ties is divided by in float32: 3000 is no float16 that its neighbours differ from by 1."""
    for dtype in ("float16", "bfloat16"):
        found = np.array(slopes(lambda t: t.max() * 3000.0, np.ones(3000), dtype=dtype))
        np.testing.assert_allclose(found, 1.0, rtol=8e-3)


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_T11_ties_of_two_get_half_each(name, dtype):
    op = getattr(ag, name)
    a, b = np.array([1.0, 2.0, 3.0, -0.0]), np.array([2.0, 2.0, 1.0, 0.0])
    first = [0.0, 0.5, 1.0, 0.5] if name == "maximum" else [1.0, 0.5, 0.0, 0.5]
    assert slopes(op, a, b, dtype=dtype) == [first, [1 - g for g in first]]
    # With itself: half and half is one.
    assert slopes(lambda t: op(t, t), a, dtype=dtype) == [1.0] * 4


def test_T11_a_number_takes_the_other_half():
    assert slopes(lambda t: ag.maximum(t, 0.0), [-1.0, 0.0, 1.0]) == [0.0, 0.5, 1.0]
    assert slopes(lambda t: ag.minimum(t, 0.0), [-1.0, 0.0, 1.0]) == [1.0, 0.5, 0.0]


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_T11_clip_at_its_bounds(dtype):
    """clip is a maximum and a minimum: half at a bound, nothing outside, all inside."""
    x = [-2.0, -1.0, 0.0, 1.0, 2.0]
    assert slopes(lambda t: t.clip(-1, 1), x, dtype=dtype) == [0.0, 0.5, 1.0, 0.5, 0.0]
    assert slopes(lambda t: t.clip(min=-1), x, dtype=dtype) == [0.0, 0.5, 1.0, 1.0, 1.0]
    assert slopes(lambda t: t.clip(max=1), x, dtype=dtype) == [1.0, 1.0, 1.0, 0.5, 0.0]


def test_T11_sort_ties_go_where_their_value_came_from():
    """Sorting is stable: among equal values the one that stood first is taken first."""
    weights = ag.tensor(np.array([1.0, 10.0, 100.0, 1000.0]))
    x = [2.0, 1.0, 2.0, 1.0]
    assert slopes(lambda t: ag.sort(t) * weights, x) == [100.0, 1.0, 1000.0, 10.0]
    assert slopes(lambda t: ag.sort(t, descending=True) * weights, x) == [1.0, 100.0, 10.0, 1000.0]
    assert slopes(lambda t: ag.topk(t, 3)[0] * weights[:3], x) == [1.0, 100.0, 10.0, 0.0]
    assert slopes(lambda t: ag.topk(t, 1, largest=False)[0], x) == [0.0, 1.0, 0.0, 0.0]


def test_T11_where_takes_the_branch_that_was_taken():
    x = [-1.0, 0.0, 2.0]
    assert slopes(lambda t: ag.where(t > 0, t * 3.0, t * 5.0), x) == [5.0, 5.0, 3.0]
    # The other branch may be undefined: its gradient does not leak.
    assert slopes(lambda t: ag.where(t > 0, ag.log(ag.where(t > 0, t, 1.0)), 0.0), x) == [0.0, 0.0, 0.5]


def test_T11_pow_where_base_or_exponent_is_zero():
    assert slopes(lambda a, b: a**b, [0.0, 0.0, 2.0], [2.0, 0.0, 0.0]) == [[0.0, 0.0, 0.0], [0.0, 0.0, np.log(2.0)]]
    assert slopes(lambda a: a**0, [0.0, 3.0]) == [0.0, 0.0]
    assert slopes(lambda a: a**1, [0.0, 3.0]) == [1.0, 1.0]
    assert slopes(lambda a: a**2, [0.0, 3.0]) == [0.0, 6.0]
    assert slopes(lambda a: a**3, [0.0, -2.0]) == [0.0, 12.0]


def test_T11_products_with_zeros():
    """No division by what may be 0: one zero, two, and none."""
    x = np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0], [2.0, 3.0, 4.0]])
    wanted = [[0.0, 6.0, 0.0], [0.0, 0.0, 0.0], [12.0, 8.0, 6.0]]
    assert slopes(lambda t: t.prod(axis=1), x) == wanted
    # s_i = 1 + x_(i+1) s_(i+1), times the product before i.
    assert slopes(lambda t: ag.cumprod(t, 1), x[:2]) == [[1.0, 8.0, 0.0], [1.0, 0.0, 0.0]]


def test_T11_flat_standard_deviation_and_empty_logsumexp():
    assert slopes(ag.std, [2.0, 2.0, 2.0]) == [0.0, 0.0, 0.0]
    assert slopes(lambda t: t.logsumexp(axis=0), [-np.inf, -np.inf]) == [0.0, 0.0]
    assert slopes(lambda t: t.logsumexp(axis=0), [0.0, -np.inf]) == [1.0, 0.0]


def test_T11_piecewise_constant_at_their_steps():
    x = [-1.0, -0.5, 0.0, 0.5, 1.0]
    for op in (ag.floor, ag.ceil, ag.trunc, ag.round, ag.sign):
        assert slopes(op, x) == [0.0] * 5
    assert slopes(lambda a, b: a // b, [4.0, 5.0], [2.0, 2.0]) == [[0.0, 0.0], [0.0, 0.0]]
    assert slopes(lambda a, b: a % b, [5.0, -5.0], [3.0, 3.0]) == [[1.0, 1.0], [-1.0, 2.0]]


def test_T11_infinite_slopes_are_infinite():
    """Where the derivative grows without bound it is not clipped."""
    with np.errstate(divide="ignore"):
        assert slopes(ag.sqrt, [0.0]) == [np.inf]
        assert slopes(ag.log, [0.0]) == [np.inf]
        assert slopes(ag.arcsin, [1.0]) == [np.inf]


def test_T11_nan_stays_nan():
    for op in (ag.max, ag.min, lambda t: ag.maximum(t, 0.0), ag.abs, ag.exp):
        assert np.isnan(op(make_param([np.nan, 1.0])).numpy()).any()
    assert np.isnan(slopes(ag.max, [np.nan, 1.0])).any()

"""Losses: values against NumPy, gradients, ignored and smoothed labels, bad input."""

import agtape as ag
import numpy as np
import pytest

F = ag.nn.functional


def log_softmax(x, axis):
    z = x - x.max(axis, keepdims=True)
    return z - np.log(np.exp(z).sum(axis, keepdims=True))


def reduced(values, reduction):
    return {"mean": np.mean, "sum": np.sum, "none": lambda v: v}[reduction](values)


def cross_entropy_reference(x, y, weight=None, ignore=-100, reduction="mean", smoothing=0.0):
    """Class by class and entry by entry, after PyTorch's documentation."""
    c = x.shape[1]
    weight = np.ones(c) if weight is None else weight
    logp = np.moveaxis(log_softmax(x, 1), 1, -1)
    losses, shares = np.zeros(y.shape), np.zeros(y.shape)
    for place in np.ndindex(y.shape):
        if y[place] != ignore:
            target = np.full(c, smoothing / c)
            target[y[place]] += 1 - smoothing
            losses[place] = -(weight * target * logp[place]).sum()
            shares[place] = weight[y[place]]
    return losses.sum() / shares.sum() if reduction == "mean" else reduced(losses, reduction)


ELEMENTWISE = {
    "mse": (F.mse_loss, ag.nn.MSELoss, lambda x, y: (x - y) ** 2),
    "l1": (F.l1_loss, ag.nn.L1Loss, lambda x, y: np.abs(x - y)),
    "huber": (
        F.huber_loss,
        ag.nn.HuberLoss,
        lambda x, y: np.where(np.abs(x - y) <= 1, (x - y) ** 2 / 2, np.abs(x - y) - 0.5),
    ),
    "bce": (
        F.binary_cross_entropy_with_logits,
        ag.nn.BCEWithLogitsLoss,
        lambda x, y: -y * np.log(1 / (1 + np.exp(-x))) - (1 - y) * np.log(1 - 1 / (1 + np.exp(-x))),
    ),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_elementwise_losses_equal_numpy(name, reduction, rng):
    function, layer, reference = ELEMENTWISE[name]
    x, y = rng.standard_normal((4, 3)) * 2, rng.random((4, 3))
    expected = reduced(reference(x, y), reduction)
    np.testing.assert_allclose(function(ag.tensor(x), ag.tensor(y), reduction=reduction).numpy(), expected, rtol=1e-8)
    np.testing.assert_allclose(layer(reduction=reduction)(ag.tensor(x), y).numpy(), expected, rtol=1e-8)
    check = lambda x, y: function(x, y, reduction=reduction)  # noqa: E731
    assert ag.testing.gradcheck(check, (ag.tensor(x), ag.tensor(y)), order=2)


def test_weighted_losses(rng):
    x, y, w = rng.standard_normal((4, 3)), rng.random((4, 3)), rng.random((4, 3))
    t = list(map(ag.tensor, (x, y, w)))
    for name in ("mse", "l1", "huber"):
        function, _, reference = ELEMENTWISE[name]
        expected = (reference(x, y) * w).sum() / w.sum()
        np.testing.assert_allclose(function(t[0], t[1], weight=t[2]).item(), expected, rtol=1e-10)
    bce = ELEMENTWISE["bce"][2]
    got = F.binary_cross_entropy_with_logits(t[0], t[1], t[2]).item()
    np.testing.assert_allclose(got, (bce(x, y) * w).mean(), rtol=1e-8)
    p = np.array([0.5, 1.0, 3.0])
    sigmoid = 1 / (1 + np.exp(-x))
    expected = (-p * y * np.log(sigmoid) - (1 - y) * np.log(1 - sigmoid)).mean()
    got = F.binary_cross_entropy_with_logits(t[0], t[1], pos_weight=ag.tensor(p))
    np.testing.assert_allclose(got.item(), expected, rtol=1e-8)
    got = ag.nn.BCEWithLogitsLoss(pos_weight=ag.tensor(p))(t[0], t[1])
    np.testing.assert_allclose(got.item(), expected, rtol=1e-8)


def test_bce_with_logits_does_not_overflow_and_takes_whole_labels():
    x, y = ag.tensor([-1000.0, 1000.0, 1000.0]), np.array([0, 1, 0])
    assert F.binary_cross_entropy_with_logits(x, y, reduction="none").tolist() == [0.0, 0.0, 1000.0]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("has_weight", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 2), (2, 4, 2, 3)])
@pytest.mark.parametrize("given", ["tensor", "array"])
@pytest.mark.parametrize("ignores", [False, True])
def test_cross_entropy_equals_the_reference(reduction, has_weight, smoothing, shape, given, ignores, rng):
    x, y = rng.standard_normal(shape), rng.integers(0, 4, shape[:1] + shape[2:])
    w = rng.random(4) + 0.5 if has_weight else None
    if ignores:
        y.flat[[1, 4]] = -100
    got = F.cross_entropy(
        ag.tensor(x),
        ag.tensor(y) if given == "tensor" else y,
        None if w is None else ag.tensor(w),
        reduction=reduction,
        label_smoothing=smoothing,
    )
    expected = cross_entropy_reference(x, y, w, -100, reduction, smoothing)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_cross_entropy_gradients(smoothing, reduction, rng):
    x, y, w = rng.standard_normal((5, 4, 2)), rng.integers(0, 4, (5, 2)), rng.random(4) + 0.5
    y[0, 1] = -100
    options = {"reduction": reduction, "label_smoothing": smoothing}
    assert ag.testing.gradcheck(lambda x: F.cross_entropy(x, ag.tensor(y), **options), ag.tensor(x), order=2)
    weighted = lambda x, w: F.cross_entropy(x, ag.tensor(y), w, **options)  # noqa: E731
    assert ag.testing.gradcheck(weighted, (ag.tensor(x), ag.tensor(w)), order=2)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_cross_entropy_takes_labels_of_any_integer_type(dtype, rng):
    x, y = rng.standard_normal((5, 3)), np.array([0, 2, 1, 1, 2])
    expected = cross_entropy_reference(x, y)
    np.testing.assert_allclose(F.cross_entropy(ag.tensor(x), ag.tensor(y.astype(dtype))).item(), expected, rtol=1e-10)
    np.testing.assert_allclose(F.cross_entropy(ag.tensor(x), y.astype(dtype)).item(), expected, rtol=1e-10)
    np.testing.assert_allclose(F.cross_entropy(ag.tensor(x), y.tolist()).item(), expected, rtol=1e-10)
    one = F.cross_entropy(ag.tensor(x[0]), ag.tensor(np.array(0, dtype))).item()
    np.testing.assert_allclose(one, cross_entropy_reference(x[:1], y[:1]), rtol=1e-10)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_cross_entropy_takes_probabilities(reduction, smoothing, rng):
    x, y = rng.standard_normal((5, 4, 2)), rng.random((5, 4, 2))
    y /= y.sum(1, keepdims=True)
    w = rng.random(4) + 0.5
    smoothed = y * (1 - smoothing) + smoothing / 4
    losses = -(log_softmax(x, 1) * smoothed * w[:, None]).sum(1)
    got = F.cross_entropy(ag.tensor(x), ag.tensor(y), ag.tensor(w), reduction=reduction, label_smoothing=smoothing)
    np.testing.assert_allclose(got.numpy(), reduced(losses, reduction), rtol=1e-10)
    assert ag.testing.gradcheck(F.cross_entropy, (ag.tensor(x), ag.tensor(y)), order=2)


def test_other_ignored_labels_and_the_layers(rng):
    x, y, w = rng.standard_normal((5, 3)), np.array([0, 2, 1, 1, 2]), rng.random(3)
    expected = cross_entropy_reference(x, y, w, ignore=1)
    layer = ag.nn.CrossEntropyLoss(ag.tensor(w), ignore_index=1)
    np.testing.assert_allclose(layer(ag.tensor(x), ag.tensor(y)).item(), expected, rtol=1e-10)
    logp = ag.tensor(log_softmax(x, 1))
    np.testing.assert_allclose(ag.nn.NLLLoss(ag.tensor(w), 1)(logp, y).item(), expected, rtol=1e-10)
    np.testing.assert_allclose(F.nll_loss(logp, ag.tensor(y)).item(), cross_entropy_reference(x, y), rtol=1e-10)
    np.testing.assert_allclose(
        F.cross_entropy(ag.tensor(x), ag.tensor(y), ignore_index=None).item(), cross_entropy_reference(x, y), rtol=1e-10
    )


def test_all_labels_ignored_gives_nan_for_the_mean_and_zero_for_the_sum():
    x, y = ag.ones((2, 3)), ag.tensor(np.full(2, -100))
    assert np.isnan(F.cross_entropy(x, y).item())
    assert F.cross_entropy(x, y, reduction="sum").item() == 0


def test_an_ignored_entry_gets_no_gradient_even_where_a_logit_is_infinite():
    x = ag.tensor(np.array([[0.0, -np.inf, 1.0], [1.0, 2.0, 3.0]]))
    grad = ag.grad(lambda x: F.cross_entropy(x, ag.tensor(np.array([0, -100]))))(x).numpy()
    assert np.isfinite(grad).all()
    assert (grad[1] == 0).all()


def test_U01_labels_out_of_range_given_on_the_host_raise_at_the_call():
    x = ag.ones((2, 3))
    with pytest.raises(
        IndexError, match="cross_entropy: target holds 3; expected integers from 0 to 2 or the ignored value -100"
    ):
        F.cross_entropy(x, [0, 3])
    with pytest.raises(IndexError, match="target holds -1"):
        F.cross_entropy(x, np.array([-1, 0]))
    with pytest.raises(IndexError, match="nll_loss: target holds 7"):
        F.nll_loss(x, [7, 0])


def test_U01_labels_out_of_range_in_a_tensor_raise_when_read():
    with pytest.raises(IndexError):
        F.cross_entropy(ag.ones((2, 3)), ag.tensor(np.array([0, 3]))).item()


def test_U01_losses_name_what_does_not_fit():
    x = ag.ones((2, 3))
    with pytest.raises(
        ValueError, match=r"cross_entropy: input has shape \(2, 3\) and target \(3,\); expected labels of shape \(2,\)"
    ):
        F.cross_entropy(x, [0, 1, 2])
    with pytest.raises(TypeError, match="target is bool; expected integers"):
        F.cross_entropy(x, ag.tensor(np.array([True, False])))
    with pytest.raises(TypeError, match="target holds float64; expected integers"):
        F.cross_entropy(x, np.array([np.nan, 0.0]))
    with pytest.raises(TypeError, match="the input is int64; expected a floating dtype"):
        F.cross_entropy(ag.tensor(np.ones((2, 3), np.int64)), [0, 1])
    with pytest.raises(ValueError, match="the input is a scalar"):
        F.cross_entropy(ag.tensor(1.0), 0)
    with pytest.raises(ValueError, match=r"weight has shape \(2,\); expected \(3,\), one per class"):
        F.cross_entropy(x, [0, 1], ag.ones(2))
    with pytest.raises(ValueError, match=r"label_smoothing is 1\.5"):
        F.cross_entropy(x, [0, 1], label_smoothing=1.5)
    with pytest.raises(ValueError, match="reduction is 'avg'; expected 'mean', 'sum' or 'none'"):
        F.cross_entropy(x, [0, 1], reduction="avg")
    with pytest.raises(
        ValueError, match=r"mse_loss: input has shape \(2, 3\) and target \(3,\); expected equal shapes"
    ):
        F.mse_loss(x, ag.ones(3))
    with pytest.raises(ValueError, match="huber_loss: delta is 0"):
        F.huber_loss(x, x, delta=0)
    with pytest.raises(ValueError, match="MSELoss: reduction is 'avg'"):
        ag.nn.MSELoss("avg")
    with pytest.raises(TypeError, match="l1_loss: target is str; expected a tensor or an array"):
        F.l1_loss(x, "labels")

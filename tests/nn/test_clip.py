"""Clipping: norms and values against NumPy, tensors as results, shared and missing gradients."""

import agtape as ag
import numpy as np
import pytest


def trained(rng, shapes=((3, 4), (5,), ()), scale=3.0):
    """Leaves with known random gradients."""
    slopes = [rng.standard_normal(s) * scale for s in shapes]
    leaves = [ag.tensor(np.ones(s), requires_grad=True) for s in shapes]
    with ag.grad_tape():
        loss = sum((p * ag.tensor(s)).sum() for p, s in zip(leaves, slopes))
    loss.backward()
    return leaves, slopes


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_grad_norm_equals_numpy(norm_type, max_norm, rng):
    leaves, slopes = trained(rng)
    flat = np.concatenate([s.ravel() for s in slopes])
    norm = np.linalg.norm(flat, norm_type)
    got = ag.nn.clip_grad_norm_(leaves, max_norm, norm_type)
    assert isinstance(got, ag.Tensor)
    assert got.shape == ()
    np.testing.assert_allclose(got.item(), norm, rtol=1e-10)
    factor = min(1.0, max_norm / (norm + 1e-6))
    for p, s in zip(leaves, slopes):
        np.testing.assert_allclose(p.grad.numpy(), s * factor, rtol=1e-10)


def test_clip_grad_value_equals_numpy(rng):
    leaves, slopes = trained(rng)
    ag.nn.clip_grad_value_(leaves, 0.7)
    for p, s in zip(leaves, slopes):
        np.testing.assert_array_equal(p.grad.numpy(), np.clip(s, -0.7, 0.7))


def test_missing_and_repeated_gradients(rng):
    leaves, slopes = trained(rng)
    without = ag.param([1.0])
    norm = ag.nn.clip_grad_norm_([without, leaves[0], leaves[0]], 1.0)
    np.testing.assert_allclose(norm.item(), np.linalg.norm(slopes[0]), rtol=1e-10)
    assert without.grad is None
    assert ag.nn.clip_grad_norm_([without], 1.0).item() == 0
    assert ag.nn.clip_grad_norm_(iter([]), 1.0).item() == 0
    ag.nn.clip_grad_value_(without, 1.0)


def test_the_step_uses_the_clipped_gradient(rng):
    leaves, slopes = trained(rng, shapes=((4,),))
    ag.nn.clip_grad_norm_(leaves, 1.0)
    ag.optim.SGD(leaves, lr=1.0).step()
    np.testing.assert_allclose(leaves[0].numpy(), 1 - slopes[0] / (np.linalg.norm(slopes[0]) + 1e-6), rtol=1e-10)


def test_bad_settings_are_named(rng):
    leaves, _ = trained(rng)
    with pytest.raises(ValueError, match="norm_type is 0"):
        ag.nn.clip_grad_norm_(leaves, 1.0, 0)
    with pytest.raises(ValueError, match="clip_value is -1"):
        ag.nn.clip_grad_value_(leaves, -1)
    with pytest.raises(TypeError, match="clip_grad_norm_: got a str; expected tensors"):
        ag.nn.clip_grad_norm_(["w"], 1.0)
    leaves[0].grad = leaves[0].grad * float("nan")
    with pytest.raises(ValueError, match="the norm is nan; expected a finite one"):
        ag.nn.clip_grad_norm_(leaves, 1.0, error_if_nonfinite=True)

"""Normalization: values against NumPy, gradients, running statistics as unrecorded buffers."""

import agtape as ag
import numpy as np
import pytest

F = ag.nn.functional


def layer_norm_reference(x, axes, w, b, eps):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + eps) * w + b


@pytest.mark.parametrize("shape", [(3,), (4, 3), (1,)])
def test_layer_norm_equals_numpy(shape, rng):
    x, w, b = rng.standard_normal((2, 5, *shape)), rng.standard_normal(shape), rng.standard_normal(shape)
    args = tuple(map(ag.tensor, (x, w, b)))
    axes = tuple(range(-len(shape), 0))
    expected = layer_norm_reference(x, axes, w, b, 1e-5)
    np.testing.assert_allclose(F.layer_norm(args[0], shape, args[1], args[2]).numpy(), expected, rtol=1e-9, atol=1e-12)
    plain = layer_norm_reference(x, axes, 1, 0, 0.1)
    np.testing.assert_allclose(F.layer_norm(args[0], shape, eps=0.1).numpy(), plain, rtol=1e-9, atol=1e-12)
    assert ag.testing.gradcheck(lambda x, w, b: F.layer_norm(x, shape, w, b, 1e-2), args, order=2)


def test_layer_norm_layer_has_ones_and_zeros():
    layer = ag.nn.LayerNorm((2, 3))
    assert layer.weight.tolist() == [[1.0] * 3] * 2
    assert layer.bias.tolist() == [[0.0] * 3] * 2
    assert ag.nn.LayerNorm(3, bias=False).bias is None
    assert not list(ag.nn.LayerNorm(3, elementwise_affine=False).parameters())


def test_rms_norm_equals_numpy(rng):
    x, w = rng.standard_normal((4, 6)), rng.standard_normal(6)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 2.0**-52) * w
    np.testing.assert_allclose(F.rms_norm(ag.tensor(x), 6, ag.tensor(w)).numpy(), expected, rtol=1e-12)
    assert ag.testing.gradcheck(lambda x, w: F.rms_norm(x, (6,), w), (ag.tensor(x), ag.tensor(w)), order=2)
    layer = ag.nn.RMSNorm(6)
    np.testing.assert_allclose(layer(ag.tensor(x.astype(np.float32))).numpy(), expected / w, rtol=1e-4)


def test_U01_norms_name_shapes():
    with pytest.raises(ValueError, match=r"layer_norm: the input has shape \(2, 3\); expected one that ends in \(4,\)"):
        F.layer_norm(ag.ones((2, 3)), 4)
    with pytest.raises(ValueError, match=r"layer_norm: the weight has shape \(2,\); expected \(3,\)"):
        F.layer_norm(ag.ones((2, 3)), (3,), ag.ones(2))
    with pytest.raises(ValueError, match=r"rms_norm: the weight has shape"):
        F.rms_norm(ag.ones((2, 3)), (3,), ag.ones(2))
    with pytest.raises(ValueError, match=r"batch_norm: bias has shape \(2,\); expected \(3,\)"):
        F.batch_norm(ag.ones((2, 3)), None, None, None, ag.ones(2), training=True)
    with pytest.raises(ValueError, match="more than one value a channel"):
        ag.nn.BatchNorm1d(3)(ag.ones((1, 3)))
    with pytest.raises(ValueError, match=r"BatchNorm2d: the input has shape \(2, 3\); expected 4 axes"):
        ag.nn.BatchNorm2d(3)(ag.ones((2, 3)))
    with pytest.raises(ValueError, match="length 3"):
        ag.nn.BatchNorm(3)(ag.ones((2, 4)))


@pytest.mark.parametrize("shape", [(7, 3), (4, 3, 5), (2, 3, 4, 5)])
def test_batch_norm_equals_numpy(shape, rng):
    x, w, b = rng.standard_normal(shape), rng.standard_normal(3), rng.standard_normal(3)
    axes, wide = (0, *range(2, len(shape))), (1, 3, *[1] * (len(shape) - 2))
    mean, var = x.mean(axes), x.var(axes)
    layer = ag.nn.BatchNorm(3, dtype="float64")
    layer.load_state_dict({"weight": w, "bias": b}, strict=False)
    out = layer(ag.tensor(x)).numpy()
    at = [v.reshape(wide) for v in (mean, var, w, b)]
    np.testing.assert_allclose(out, (x - at[0]) / np.sqrt(at[1] + 1e-5) * at[2] + at[3], rtol=1e-9, atol=1e-12)
    count = x.size // 3
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.1 * mean, rtol=1e-10)
    np.testing.assert_allclose(layer.running_var.numpy(), 0.9 + 0.1 * var * count / (count - 1), rtol=1e-10)
    assert layer.num_batches_tracked.item() == 1
    layer.eval()
    running = [layer.running_mean.numpy().reshape(wide), layer.running_var.numpy().reshape(wide)]
    expected = (x - running[0]) / np.sqrt(running[1] + 1e-5) * at[2] + at[3]
    np.testing.assert_allclose(layer(ag.tensor(x)).numpy(), expected, rtol=1e-9, atol=1e-12)
    assert layer.num_batches_tracked.item() == 1


def test_batch_norm_gradients(rng):
    x, w, b = (ag.tensor(rng.standard_normal(s)) for s in [(5, 3, 2), (3,), (3,)])
    training = lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True)  # noqa: E731
    assert ag.testing.gradcheck(training, (x, w, b), order=2)
    mean, var = ag.tensor(rng.standard_normal(3)), ag.tensor(rng.random(3) + 1)
    assert ag.testing.gradcheck(lambda x, w, b: F.batch_norm(x, mean, var, w, b), (x, w, b), order=2)


def test_batch_norm_with_momentum_none_averages_all_batches(rng):
    layer, batches = ag.nn.BatchNorm1d(2, momentum=None, dtype="float64"), rng.standard_normal((4, 6, 2))
    for batch in batches:
        layer(ag.tensor(batch))
    np.testing.assert_allclose(layer.running_mean.numpy(), batches.mean((0, 1)), rtol=1e-6)
    np.testing.assert_allclose(layer.running_var.numpy(), batches.var(1, ddof=1).mean(0), rtol=1e-6)


def test_batch_norm_without_running_statistics_uses_the_batch(rng):
    layer, x = ag.nn.BatchNorm1d(2, track_running_stats=False), ag.tensor(rng.standard_normal((6, 2)))
    assert not list(layer.buffers())
    np.testing.assert_array_equal(layer(x).numpy(), layer.eval()(x).numpy())


def test_T15_running_statistics_leave_pools_flat(rng):
    layer = ag.nn.BatchNorm1d(4)
    opt, x = ag.optim.SGD(layer.parameters(), lr=1e-4), ag.tensor(rng.standard_normal((8, 4)).astype(np.float32))
    held = []
    for step in range(10_000):
        with ag.grad_tape():
            loss = ag.square(layer(x)).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        if step in (100, 9_999):
            held.append(ag.memory_stats("cpu").active)
    assert held[1] == held[0]
    assert not layer.running_mean.requires_grad

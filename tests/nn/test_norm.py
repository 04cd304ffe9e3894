"""Normalization: values against NumPy, gradients, running statistics as unrecorded buffers."""

import agtape as ag
import ml_dtypes
import numpy as np
import pytest
from pool_bytes import class_bytes

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


def composite(x, w, b, eps, rms):
    """A norm made of small ops."""
    centred = x if rms else x - x.mean(axis=-1, keepdims=True)
    return centred * ag.rsqrt(ag.square(centred).mean(axis=-1, keepdims=True) + eps) * w + b


NORMS = {
    "layer_norm": lambda x, w, b: F.layer_norm(x, w.shape, w, b, 0.1),
    "rms_norm": lambda x, w, b: F.rms_norm(x, w.shape, w, 0.1) + b,
}


@pytest.mark.parametrize("name", NORMS)
def test_T06_third_derivatives_equal_those_of_small_ops(name, rng):
    x, w, b, *along = (ag.tensor(rng.standard_normal(s)) for s in [(3, 5), 5, 5, (3, 5), (3, 5), 5, 5])

    def third(function):
        def first(x, w, b):
            return ag.grad(lambda *a: (ag.tanh(function(*a)) * along[0]).sum(), argnums=(0, 1, 2))(x, w, b)

        def second(x, w, b):
            dx, dw, db = first(x, w, b)
            return (dx * along[1]).sum() + (dw * along[2]).sum() + (db * along[3]).sum()

        slopes = ag.grad(second, argnums=(0, 1, 2))
        bend = ag.grad(lambda *a: sum(ag.square(s).sum() for s in slopes(*a)), argnums=(0, 1, 2))
        return [*first(x, w, b), *slopes(x, w, b), *bend(x, w, b)]

    small = lambda x, w, b: composite(x, w, b, 0.1, name == "rms_norm")  # noqa: E731
    for got, expected in zip(third(NORMS[name]), third(small)):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("wanted", ["x", "w", "b", "xw", "xb", "wb", "xwb"])
def test_T03_each_gradient_alone_equals_all_of_them(name, wanted, rng):
    arrays = {n: rng.standard_normal(s) for n, s in zip("xwb", [(4, 2, 7), 7, 7])}
    outer, grads = ag.tensor(rng.standard_normal((4, 2, 7))), []
    for chosen in (wanted, "xwb"):
        leaves = {n: ag.param(a) if n in chosen else ag.tensor(a) for n, a in arrays.items()}
        with ag.grad_tape():
            loss = (NORMS[name](*leaves.values()) * outer).sum()
        loss.backward()
        grads.append([leaves[n].grad.numpy() for n in wanted])
        assert all(leaves[n].grad is None for n in "xwb" if n not in chosen)
    for alone, together in zip(*grads):
        np.testing.assert_allclose(alone, together, rtol=1e-13, atol=1e-14)


def saved(build):
    """The report of a tape, and its rows by op."""
    with ag.grad_tape() as tape:
        loss = build()
    report = ag.tape_memory(tape)
    loss.backward()
    return report, {row.op: row.nodes for row in report.by_op}


def test_M01_a_norm_saves_its_input_its_weight_and_two_numbers_a_row(rng):
    x, w, b = (
        ag.param(np.ones((40, 64), np.float32)),
        ag.param(np.ones(64, np.float32)),
        ag.param(np.ones(64, np.float32)),
    )
    report, rows = saved(lambda: F.layer_norm(ag.exp(x), 64, w, b).sum())
    assert rows["layer_norm"] == 1 and set(rows) == {"layer_norm", "exp", "sum", "leaf"}
    assert report.bytes_operands == class_bytes(4 * 64)
    # exp saves the same values that the norm saves.
    assert report.bytes_activations == class_bytes(4 * 40 * 64) + 2 * class_bytes(4 * 40)
    report, rows = saved(lambda: F.rms_norm(ag.exp(x), 64, w).sum())
    assert rows["rms_norm"] == 1
    assert report.bytes_operands == class_bytes(4 * 64)
    assert report.bytes_activations == class_bytes(4 * 40 * 64) + class_bytes(4 * 40)
    report, _ = saved(lambda: F.layer_norm(ag.ones((40, 64)), 64, None, b).sum())
    assert report.bytes_needed == 0


@pytest.mark.parametrize("name", NORMS)
def test_the_gradient_is_one_op(name, rng):
    leaves = [ag.param(rng.standard_normal(s)) for s in [(3, 5), 5, 5]]
    with ag.grad_tape() as tape:
        loss = ag.square(NORMS[name](*leaves)).sum()
        loss.backward(create_graph=True)
        rows = {row.op: row.nodes for row in ag.tape_memory(tape).by_op}
    assert rows[f"{name}_gradient"] == 1


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 4)])
def test_norms_of_nothing(name, shape):
    x, w, b = ag.param(np.ones(shape)), ag.param(np.ones(shape[-1])), ag.param(np.ones(shape[-1]))
    with ag.grad_tape():
        y = NORMS[name](x, w, b)
        loss = y.sum()
    loss.backward()
    assert y.shape == shape and loss.item() == 0
    for leaf in (x, w, b):
        assert leaf.grad.shape == leaf.shape
        assert (leaf.grad.numpy() == 0).all()


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize(("dtype", "unit"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_norms_of_16_bits_round_once(name, dtype, unit, rng):
    of = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    x, w, b = (rng.standard_normal(s).astype(of).astype(np.float64) for s in [(64, 96), 96, 96])
    exact = NORMS[name](*map(ag.tensor, (x, w, b * (name == "layer_norm")))).numpy()
    y = NORMS[name](*(ag.tensor(a).astype(dtype) for a in (x, w, b * (name == "layer_norm"))))
    assert str(y.dtype) == dtype
    np.testing.assert_array_less(np.abs(y.numpy().astype(np.float64) - exact), unit * np.abs(exact) * 1.01 + 1e-6)


def test_T14_norms_of_long_rows_with_a_large_mean(rng):
    x = (rng.standard_normal((3, 1 << 16)) + 100).astype(np.float32)
    wide = x.astype(np.float64)
    expected = layer_norm_reference(wide, -1, 1, 0, 1e-5)
    # The mean is rounded to float32: half a unit of 100.
    np.testing.assert_allclose(F.layer_norm(ag.tensor(x), 1 << 16).numpy(), expected, rtol=1e-6, atol=4e-6)
    mean_square = np.sqrt((wide**2).mean(-1, keepdims=True))
    np.testing.assert_allclose(F.rms_norm(ag.tensor(x), 1 << 16, eps=0.0).numpy(), wide / mean_square, rtol=3e-7)
    w = ag.param(np.ones(8, np.float32))
    rows = rng.standard_normal((1 << 16, 8)).astype(np.float32)
    with ag.grad_tape():
        loss = F.layer_norm(ag.tensor(rows), 8, w).sum()
    loss.backward()
    terms = layer_norm_reference(rows.astype(np.float64), -1, 1, 0, 1e-5)
    assert (np.abs(w.grad.numpy() - terms.sum(0)) <= 1e-6 * np.abs(terms).sum(0)).all()


def test_T16_plans_cut_elsewhere_change_no_bit(rng):
    arrays = [rng.standard_normal(s).astype(np.float32) for s in [(700, 3, 96), 96, 96]]
    results = []
    for fuse, reads in [(True, False), (False, False), (True, True)]:
        leaves = list(map(ag.param, arrays))
        with ag.options(fuse=fuse), ag.grad_tape():
            y = F.layer_norm(ag.tanh(leaves[0]).transpose(0, 1), 96, *leaves[1:])
            if reads:
                y.numpy()
            loss = ag.square(y + 1.0).sum()
            loss.backward()
        results.append([y.numpy(), *(leaf.grad.numpy() for leaf in leaves)])
    for other in results[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(results[0], other))


def test_norms_promote_like_the_small_ops_they_stand_for():
    half, single = ag.ones((2, 3), dtype="float16"), ag.ones(3)
    assert str(F.layer_norm(half, 3).dtype) == "float16"
    assert str(F.layer_norm(half, 3, single).dtype) == "float32"
    assert str(F.layer_norm(ag.ones((2, 3)), 3, single.astype("float64")).dtype) == "float64"
    assert str(F.rms_norm(ag.ones((2, 3), dtype="int64"), 3).dtype) == "float32"


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

"""Training on the GPU: the same losses as on the CPU, resident gradients, updates, clipping, accumulation, segments and budgets."""

import agtape as ag
import numpy as np
import pytest

OPTIMIZERS = {
    "SGD": lambda p: ag.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: ag.optim.SGD(p, lr=0.05, momentum=0.9),
    "Nesterov": lambda p: ag.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam": lambda p: ag.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "AdamW": lambda p: ag.optim.AdamW(p, lr=0.01),
}


def network():
    """A network with every kind of layer that trains, on the CPU."""
    ag.manual_seed(1)
    nn = ag.nn
    return nn.Sequential(
        nn.Linear(12, 16),
        nn.LayerNorm(16),
        nn.GELU(),
        nn.Dropout(0.2),
        nn.Linear(16, 16, bias=False),
        nn.RMSNorm(16),
        nn.SiLU(),
        nn.Linear(16, 5),
    )


def batch(rng):
    """Inputs and labels as arrays."""
    return rng.normal(size=(9, 12)).astype(np.float32), rng.integers(0, 5, 9)


def train(device, make, rng, steps=4, clip=None, passes=1):
    """Losses and parameters after some steps on a device."""
    model = network().to(device)
    opt = make(list(model.parameters()))
    x, y = (ag.tensor(a, device=device) for a in batch(rng))
    losses = []
    ag.manual_seed(7)
    for _ in range(steps):
        for _ in range(passes):
            with ag.grad_tape():
                loss = ag.nn.functional.cross_entropy(model(x), y) / passes
            loss.backward()
        if clip:
            ag.nn.clip_grad_norm_(model.parameters(), clip)
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    return losses, [p.numpy() for p in model.parameters()]


@pytest.mark.promise("R04")
@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_R04_steps_equal_the_cpus(name, clip):
    expected = train("cpu", OPTIMIZERS[name], np.random.default_rng(3), clip=clip)
    found = train("gpu", OPTIMIZERS[name], np.random.default_rng(3), clip=clip)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4)
    for a, b in zip(expected[1], found[1]):
        np.testing.assert_allclose(b, a, rtol=2e-3, atol=2e-4)


@pytest.mark.promise("R05")
def test_R05_gradients_sum_over_passes_on_the_device():
    expected = train("cpu", OPTIMIZERS["SGD"], np.random.default_rng(3), passes=3)
    found = train("gpu", OPTIMIZERS["SGD"], np.random.default_rng(3), passes=3)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4)


@pytest.mark.promise("G05")
@pytest.mark.parametrize("deterministic", [True, False])
def test_G05_the_same_seed_gives_the_same_bits(deterministic):
    # The guide says that no op varies with it off either.
    with ag.options(deterministic=deterministic):
        first = train("gpu", OPTIMIZERS["Adam"], np.random.default_rng(3))
        second = train("gpu", OPTIMIZERS["Adam"], np.random.default_rng(3))
    assert first[0] == second[0]
    for a, b in zip(first[1], second[1]):
        np.testing.assert_array_equal(a, b)


@pytest.mark.promise("G06")
def test_G06_random_numbers_are_those_of_the_cpu():
    def draws(device):
        ag.manual_seed(11)
        with ag.device(device):
            exact = [
                ag.rand(1001),
                ag.randint(-3, 1 << 40, (77,)),
                ag.randint(0, 10, (55,), dtype="int32"),
                ag.dropout(ag.ones(999), 0.3),
            ]
            return exact, ag.randn(1000)

    (exact, normal), (exact_gpu, normal_gpu) = draws("cpu"), draws("gpu")
    for a, b in zip(exact, exact_gpu):
        np.testing.assert_array_equal(b.numpy(), a.numpy())
    np.testing.assert_allclose(normal_gpu.numpy(), normal.numpy(), rtol=3e-6, atol=3e-6)


@pytest.mark.promise("R02", "R07")
def test_R02_gradients_stay_on_the_device_unless_asked_for():
    w = ag.param([3.0, 4.0], device="gpu")
    with ag.grad_tape():
        loss = (w * w).sum() / 2
    loss.backward()
    with ag.transfers() as moved:
        handle = w.grad.handle
        norm = ag.nn.clip_grad_norm_([w], 1.0)
        ag.nn.clip_grad_value_([w], 0.7)
    assert handle.pool in ("persistent", "pass")
    assert moved.to_host == 0
    assert norm.device == w.grad.device == "gpu"
    assert norm.item() == pytest.approx(5.0)
    np.testing.assert_allclose(w.grad.numpy(), [0.6, 0.7], rtol=1e-5)
    with ag.options(resident_grads=False):
        v = ag.param([3.0, 4.0], device="gpu")
        with ag.grad_tape():
            loss = (v * v).sum() / 2
        loss.backward()
        assert isinstance(v.grad, np.ndarray)
        np.testing.assert_array_equal(v.grad, [3.0, 4.0])


@pytest.mark.promise("R06")
@pytest.mark.parametrize("clears", [True, False])
def test_R06_memory_is_flat_over_passes(clears):
    w = ag.param(np.ones((8, 8), np.float32), device="gpu")

    def one():
        with ag.grad_tape():
            loss = (w @ w).sum()
        loss.backward()
        if clears:
            w.grad = None

    for _ in range(20):
        one()
    before = ag.memory_stats("gpu").to_dict()
    for _ in range(300):
        one()
    after = ag.memory_stats("gpu").to_dict()
    assert after["active"] == before["active"]
    assert after["reserved"] == before["reserved"]

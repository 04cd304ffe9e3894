"""Gradients that stay on the device: what they equal, who owns them, what moves for them, and what the report of a backward pass says."""

import agtape as ag
import numpy as np
import pytest
from fresh_process import run_json
from gpu.small_model import build
from optim import test_optimizers

F = ag.nn.functional


def gradients(device, resident, w, x, labels):
    """Gradients of a small network with every kind of step between, as they are in `.grad`."""
    leaves = [ag.param(a, device=device) for a in w]
    given, wanted = ag.tensor(x, device=device), ag.tensor(labels, device=device)
    with ag.options(resident_grads=resident):
        with ag.grad_tape():
            h = F.layer_norm(ag.tanh(given @ leaves[0] + leaves[1]), (8,))
            loss = F.cross_entropy(ag.dropout(h, 0.0) @ leaves[2], wanted)
        loss.backward()
    return loss.item(), [leaf.grad for leaf in leaves]


@pytest.mark.promise("R01", "R02")
def test_R01_resident_gradients_equal_downloaded_ones_the_cpus_and_finite_differences(rng):
    w = [rng.normal(size=shape).astype(np.float32) for shape in ((5, 8), (8,), (8, 4))]
    x, labels = rng.normal(size=(7, 5)).astype(np.float32), rng.integers(0, 4, 7)
    loss, resident = gradients("gpu", True, w, x, labels)
    _, downloaded = gradients("gpu", False, w, x, labels)
    _, host = gradients("cpu", True, w, x, labels)
    assert all(isinstance(g, ag.Tensor) and g.device == "gpu" for g in resident)
    assert all(isinstance(g, np.ndarray) for g in downloaded)
    for a, b, c in zip(resident, downloaded, host):
        assert a.numpy().tobytes() == b.tobytes()
        np.testing.assert_allclose(a.numpy(), c.numpy(), rtol=2e-5, atol=1e-6)
    for k, g in enumerate(resident):
        for _ in range(3):
            # Along a direction, so that a difference is well above what float32 rounds.
            direction = rng.normal(size=w[k].shape).astype(np.float32)
            direction /= np.linalg.norm(direction)
            step = 1e-2
            ends = []
            for sign in (1, -1):
                moved = [a + sign * step * direction if i == k else a for i, a in enumerate(w)]
                ends.append(gradients("gpu", True, moved, x, labels)[0])
            slope = (ends[0] - ends[1]) / (2 * step)
            assert (g.numpy() * direction).sum() == pytest.approx(slope, abs=2e-3), k
    assert np.isfinite(loss)


@pytest.mark.promise("R02")
def test_R02_they_are_resident_unless_an_option_or_the_environment_says_otherwise():
    code = """
    import json
    import agtape as ag
    p = ag.param([3.0, 4.0], device="gpu")
    with ag.grad_tape():
        loss = (p * p).sum()
    loss.backward()
    with ag.transfers() as moved:
        where = p.grad.handle.pool if hasattr(p.grad, "handle") else "host"
    print(json.dumps([type(p.grad).__name__, where, p.grad.tolist(), moved.to_host]))
    """
    assert run_json(code, AGTAPE_RESIDENT_GRADS="0") == ["ndarray", "host", [6.0, 8.0], 1]
    assert run_json(code) == run_json(code, AGTAPE_RESIDENT_GRADS="1") == ["Tensor", "persistent", [6.0, 8.0], 0]


@pytest.mark.promise("R03")
def test_R03_to_the_device_go_the_batch_and_the_arguments_and_nothing_else(rng):
    model = ag.nn.Sequential(ag.nn.Linear(8, 16), ag.nn.ReLU(), ag.nn.Dropout(0.5), ag.nn.Linear(16, 4)).to("gpu")
    opt = ag.optim.AdamW(model.parameters(), lr=1e-2)
    images, labels = rng.normal(size=(5, 8)).astype(np.float32), rng.integers(0, 4, 5).astype(np.int32)

    def step():
        with ag.grad_tape():
            x, y = ag.tensor(images, device="gpu"), ag.tensor(labels, device="gpu")
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        ag.nn.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        return loss

    step()
    for count in (1, 3):
        with ag.transfers() as moved:
            for _ in range(count):
                loss = step()
            ag.synchronize("gpu")
        assert (moved.to_device, moved.to_device_bytes) == (2 * count, count * (images.nbytes + labels.nbytes))
        assert (moved.to_host, moved.to_host_bytes) == (0, 0)
        assert moved.arguments_bytes > 0
    with ag.transfers() as read:
        loss.item()
    assert (read.to_host, read.to_host_bytes, read.to_device) == (1, 4, 0)
    # A scope is frozen at its end.
    loss.item()
    assert read.to_host == 1


@pytest.mark.promise("R04")
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("clip", [None, "norm", "value"])
@pytest.mark.parametrize(("optimizer", "reference", "options"), test_optimizers.CASES)
def test_R04_steps_equal_numpys_with_clipping_decay_and_accumulation(optimizer, reference, options, clip, passes, rng):
    starts, slopes = test_optimizers.drawn(rng, 4 * passes, np.float32)
    leaves = [ag.param(p, device="gpu") for p in starts]
    opt, given = optimizer(leaves, lr=0.1, **options), []
    for step in range(4):
        several = slopes[step * passes : (step + 1) * passes]
        with ag.transfers() as moved:
            for each in several:
                with ag.grad_tape():
                    tensors = [ag.tensor(np.float32(s), device="gpu") for s in each]
                    loss = sum((p * t).sum() for p, t in zip(leaves, tensors))
                loss.backward()
            assert all(p.grad.device == "gpu" for p in leaves)
            if clip == "norm":
                ag.nn.clip_grad_norm_(leaves, 1.0)
            elif clip == "value":
                ag.nn.clip_grad_value_(leaves, 0.4)
            opt.step()
            opt.zero_grad()
        assert moved.to_host == 0
        summed = [np.sum([each[i] for each in several], axis=0) for i in range(len(leaves))]
        if clip == "norm":
            norm = np.sqrt(sum((g**2).sum() for g in summed))
            summed = [g * min(1.0, 1.0 / (norm + 1e-6)) for g in summed]
        elif clip == "value":
            summed = [np.clip(g, -0.4, 0.4) for g in summed]
        given.append(summed)
    for i, (p, start) in enumerate(zip(leaves, starts)):
        expected = reference(start.astype(np.float64), [step[i] for step in given], lr=0.1, **options)
        np.testing.assert_allclose(p.numpy(), expected, rtol=5e-4, atol=5e-4)


@pytest.mark.promise("R04")
def test_R04_every_optimizer_is_among_them():
    """The catalogue and the cases name the same classes."""
    everything = {
        c for c in vars(ag.optim).values() if isinstance(c, type) and hasattr(c, "step") and "lr_" not in c.__module__
    }
    assert everything - {ag.optim.Optimizer} == {case[0] for case in test_optimizers.CASES}


@pytest.mark.promise("R05")
def test_R05_they_outlive_their_tape_by_changing_owner(rng):
    w = ag.param(rng.normal(size=(64, 64)).astype(np.float32), device="gpu")
    x = ag.tensor(rng.normal(size=(64, 64)).astype(np.float32), device="gpu")
    ag.eval(w, x)

    def pass_():
        with ag.grad_tape() as tape:
            loss = (ag.tanh(x @ w) ** 2).sum()
        loss.backward()
        return tape

    before = ag.memory_stats("gpu").active
    with ag.transfers() as moved:
        tape = pass_()
        handle, first = w.grad.handle, w.grad
        tape.clear()
        del tape
    # Only the gradient is left, where it was made, and nobody waited for it.
    assert handle.pool == "persistent"
    assert handle.is_valid
    assert (first.handle.slot, first.handle.generation) == (handle.slot, handle.generation)
    assert ag.memory_stats("gpu").active - before == w.nbytes
    assert ag.memory_stats("gpu").pools["pass"].active == 0
    assert (moved.to_host, moved.to_device) == (0, 0)
    once = w.grad.numpy().copy()
    y = np.tanh(x.numpy().astype(np.float64) @ w.numpy())
    np.testing.assert_allclose(once, x.numpy().T @ (2 * y * (1 - y * y)), rtol=1e-3, atol=1e-3)
    pass_()
    np.testing.assert_array_equal(w.grad.numpy(), 2 * once)
    np.testing.assert_array_equal(first.numpy(), once)


@pytest.mark.promise("R06")
def test_R06_zero_grad_gives_the_bytes_back():
    model, opt, x, y = build()
    ag.eval(*model.parameters(), x, y)
    before = ag.memory_stats("gpu").active
    with ag.grad_tape():
        loss = F.cross_entropy(model(x), y)
    loss.backward()
    del loss
    held = ag.memory_stats("gpu").active
    assert held > before
    opt.zero_grad()
    assert ag.memory_stats("gpu").active == before


@pytest.mark.promise("R06")
@pytest.mark.parametrize("clears", [True, False])
def test_R06_nothing_grows_over_10_000_passes(clears):
    w = ag.param(np.ones((4, 4), np.float32), device="gpu")

    def one():
        with ag.grad_tape():
            loss = (w * w).sum()
        loss.backward()
        if clears:
            w.grad = None

    for _ in range(100):
        one()
    before, driver = ag.memory_stats("gpu").to_dict(), ag._core.adapter_memory("gpu")
    for _ in range(10_000):
        one()
    after = ag.memory_stats("gpu").to_dict()
    assert (after["active"], after["reserved"]) == (before["active"], before["reserved"])
    assert driver is None or ag._core.adapter_memory("gpu")["allocated"] <= driver["allocated"] + (1 << 16)
    assert (w.grad is None) == clears


@pytest.mark.promise("R07")
def test_R07_clipping_gives_the_norm_as_a_tensor_that_is_moved_when_it_is_read(rng):
    params = [ag.param(rng.normal(size=shape).astype(np.float32), device="gpu") for shape in ((3, 4), (5,))]
    grads = [rng.normal(size=p.shape).astype(np.float32) * 5 for p in params]

    def give():
        for p, g in zip(params, grads):
            p.grad = ag.tensor(g, device="gpu")

    give()
    norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in grads))
    with ag.transfers() as moved:
        found = ag.nn.clip_grad_norm_(params, 2.0)
        ag.eval(found, *(p.grad for p in params))
        ag.synchronize("gpu")
    assert (moved.to_host, moved.to_host_bytes) == (0, 0)
    with ag.transfers() as read:
        assert found.item() == pytest.approx(norm, rel=1e-5)
    assert (read.to_host, read.to_host_bytes) == (1, 4)
    for p, g in zip(params, grads):
        np.testing.assert_allclose(p.grad.numpy(), g * (2.0 / norm), rtol=1e-4)
    give()
    with ag.transfers() as moved:
        ag.nn.clip_grad_value_(params, 1.5)
        ag.synchronize("gpu")
    assert moved.to_host == 0
    for p, g in zip(params, grads):
        np.testing.assert_array_equal(p.grad.numpy(), np.clip(g, -1.5, 1.5))


@pytest.mark.promise("R09")
def test_R09_choosing_another_default_device_makes_nothing_stale():
    x, host = ag.ones(3, device="gpu") * 2, ag.ones(3, device="cpu") * 2
    ag.eval(x, host)
    handles = [x.handle, host.handle]
    before = ag.get_default_device()
    try:
        for device in ("gpu", "cpu", "gpu"):
            ag.set_default_device(device)
            assert all(handle.is_valid for handle in handles)
            assert x.tolist() == host.tolist() == [2.0] * 3
    finally:
        ag.set_default_device(before)
    assert all(handle.is_valid for handle in handles)


@pytest.mark.promise("R10")
def test_R10_the_last_backward_says_what_it_did():
    def pass_(resident, segments):
        w = ag.param(np.ones((16, 16), np.float32), device="gpu")
        with ag.options(resident_grads=resident), ag.grad_tape():
            h = w
            for _ in range(segments):
                h = ag.checkpoint(lambda h: ag.tanh(ag.tanh(h @ w) @ w), h)
            loss = (h * 2).sum()
            loss.backward()
        return ag.last_backward()

    plain = pass_(True, 0)
    again, segmented, downloaded = pass_(True, 0), pass_(True, 3), pass_(False, 3)
    assert (plain.path, segmented.path, downloaded.path) == ("resident", "resident", "host")
    assert (plain.cache_hit, again.cache_hit) == (False, True)
    assert (plain.segments_replayed, segmented.segments_replayed) == (0, 3)
    assert segmented.nodes > plain.nodes > 0
    assert segmented.kernels > plain.kernels > 0
    assert segmented.bytes > plain.bytes > 0
    assert (again.nodes, again.kernels, again.bytes) == (plain.nodes, plain.kernels, plain.bytes)

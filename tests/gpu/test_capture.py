"""Captured steps on the GPU: the numbers of the step itself, nothing downloaded, nothing recorded, memory flat."""

import agtape as ag
import numpy as np
import pytest
from agtape import _core


def made(optimizer, clip):
    """A step with every kind of layer that trains, and what it trains."""
    ag.manual_seed(1)
    nn = ag.nn
    model = nn.Sequential(
        nn.Linear(12, 16),
        nn.LayerNorm(16),
        nn.GELU(),
        nn.Dropout(0.2),
        nn.Linear(16, 16),
        nn.BatchNorm1d(16),
        nn.Linear(16, 5),
    ).to("gpu")
    opt = optimizer(model.parameters())

    def step(x, y):
        with ag.grad_tape():
            h = ag.checkpoint(model[1:4], model[0](x))
            loss = nn.functional.cross_entropy(model[4:](h), y)
        loss.backward()
        norm = nn.clip_grad_norm_(model.parameters(), clip)
        opt.step()
        opt.zero_grad()
        return loss, norm

    return step, model, opt


def batches(n):
    rng = np.random.default_rng(3)
    draws = [(rng.normal(size=(9, 12)).astype(np.float32), rng.integers(0, 5, 9)) for _ in range(n)]
    return [tuple(ag.tensor(a, device="gpu") for a in draw) for draw in draws]


OPTIMIZERS = {
    "Nesterov": lambda p: ag.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "AdamW": lambda p: ag.optim.AdamW(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_G05_a_captured_step_gives_the_numbers_of_the_step(name):
    def told(is_captured):
        step, model, opt = made(OPTIMIZERS[name], 0.5)
        schedule = ag.optim.lr_scheduler.StepLR(opt, 2)
        step = ag.capture(step) if is_captured else step
        ag.manual_seed(5)
        results = []
        for batch in batches(7):
            results.append(step(*batch))
            schedule.step()
        numbers = [t.numpy() for pair in results for t in pair]
        return numbers + [t.numpy() for t in [*model.parameters(), *model.buffers()]], ag.get_rng_state()

    (found, position), (expected, same) = told(True), told(False)
    assert position == same
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_R03_replays_move_nothing_record_nothing_and_keep_memory_flat():
    step, _, _ = made(OPTIMIZERS["AdamW"], 0.5)
    step, given = ag.capture(step), batches(4)
    for batch in given:
        step(*batch)
    ag.synchronize("gpu")
    nodes, stats, held = _core.recorded_nodes(), ag.plan_cache_stats(), ag.memory_stats("gpu")
    with ag.transfers() as moved:
        for i in range(12):
            step(*given[i % 4])
        ag.synchronize("gpu")
    after, now = ag.plan_cache_stats(), ag.memory_stats("gpu")
    assert (moved.to_host, moved.to_device) == (0, 0)
    assert _core.recorded_nodes() == nodes
    assert (after.hits, after.misses) == (stats.hits, stats.misses)
    assert (now.active, now.reserved) == (held.active, held.reserved)


def test_U01_arguments_on_another_device_and_copies_between_devices_are_refused():
    step, _, _ = made(OPTIMIZERS["AdamW"], 0.5)
    step, given = ag.capture(step), batches(3)
    for batch in given:
        step(*batch)
    with pytest.raises(ag.CaptureError, match=r"on cpu; expected .* on gpu"):
        step(given[0][0].to("cpu"), given[0][1])
    moving = ag.capture(lambda x: x.to("gpu") * 2, warmup=0)
    with pytest.raises(ag.CaptureError, match="copies a tensor"):
        moving(ag.ones(3, device="cpu"))


def test_U02_a_parameter_that_somebody_else_holds_is_not_written_over():
    step, model, _ = made(OPTIMIZERS["AdamW"], 0.5)
    step = ag.capture(step)
    seen = []
    for batch in batches(6):
        step(*batch)
        seen.append((model[0].weight.detach(), model[0].weight.numpy()))
    for kept, then in seen:
        assert kept.numpy().tobytes() == then.tobytes()
    assert len({then.tobytes() for _, then in seen}) == len(seen)

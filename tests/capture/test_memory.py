"""Memory of captured steps: exact, as bounded as the step's own, and nothing of a call outlives it."""

import gc
import weakref

import agtape as ag
import numpy as np
import pytest
from agtape import _core
from capture.steps import accumulation, floats, mlp, transformer


def pool_bytes():
    stats = ag.memory_stats("cpu")
    return stats.active, stats.reserved


@pytest.mark.parametrize("make", [mlp, accumulation, transformer])
def test_T15_pool_bytes_are_equal_after_every_replay(make):
    step, batches, _, _ = make()
    step = ag.capture(step)
    given = batches(6)
    for batch in given:
        step(*batch)
    first = pool_bytes()
    for i in range(300):
        step(*given[i % 6])
        assert pool_bytes() == first


def test_T15_ten_thousand_replays_leave_pools_and_pending_nodes_flat(no_collector):
    step, batches, _, _ = mlp()
    step = ag.capture(step)
    given = batches(4)
    for i in range(100):
        step(*given[i % 4])
    first = pool_bytes()
    for i in range(10_000):
        step(*given[i % 4])
    assert pool_bytes() == first


@pytest.mark.parametrize("make", [mlp, accumulation, transformer])
def test_M07_a_replay_peaks_no_higher_than_the_step(make):
    def peak(is_captured):
        step, batches, _, _ = make()
        step = ag.capture(step) if is_captured else step
        given = batches(5)
        for batch in given[:4]:
            step(*batch)
        gc.collect()
        with ag.peak_memory("cpu") as scope:
            before = ag.memory_stats("cpu").active
            step(*given[4])
        return scope.peak - before

    assert peak(True) <= peak(False)


def test_C05_segments_keep_their_promise_in_replays():
    def peak(segment):
        step, batches, _, _ = transformer(segment)
        step = ag.capture(step)
        given = batches(4)
        for batch in given[:3]:
            step(*batch)
        with ag.peak_memory("cpu") as scope:
            before = ag.memory_stats("cpu").active
            step(*given[3])
        return scope.peak - before

    assert peak(True) < peak(False)


def test_B01_a_budget_holds_in_replays_and_refuses_before_anything_runs():
    w = [ag.param(floats(64, 64, seed=i) / 8) for i in range(12)]
    x = ag.tensor(floats(256, 64))

    def step(x, budget):
        for p in w:
            p.grad = None
        with ag.grad_tape(budget=budget):
            h = x
            for p in w:
                h = ag.tanh(h @ p)
            loss = (h * h).sum()
        loss.backward()

    def peak(step, budget):
        with ag.peak_memory("cpu") as scope:
            step(x, budget)
        return scope.peak

    step(x, None)
    plain, held = peak(step, None), ag.memory_stats("cpu").active
    budget = held + (plain - held) // 2
    captured = ag.capture(step)
    for _ in range(3):
        captured(x, budget)
    assert captured.is_captured
    assert peak(captured, budget) <= budget < plain
    grads = [p.grad.numpy().tobytes() for p in w]
    step(x, None)
    assert [p.grad.numpy().tobytes() for p in w] == grads
    for p in w:
        p.grad = ag.zeros((64, 64))
    ag.eval(*(p.grad for p in w))
    ballast = ag.tensor(np.ones(budget // 4, np.float32))
    with pytest.raises(ag.BudgetError) as caught:
        captured(x, budget)
    assert caught.value.smallest_bytes > budget
    del ballast


def test_C20_a_capture_holds_neither_the_batch_nor_the_result_of_the_call_that_it_observed(no_collector):
    step, batches, _, _ = transformer()
    step = ag.capture(step)
    given = batches(3)
    held = []
    for batch in given[:2]:
        result = step(*batch)
        held += [weakref.ref(t) for t in [*batch, *result.values()]]
    assert step.is_captured
    del batch, result
    given[:2] = []
    assert [r() for r in held] == [None] * len(held)


def test_C20_a_capture_lets_go_of_everything_with_itself(no_collector):
    w = ag.param(floats(4))
    before = pool_bytes()[0]

    def once():
        mask = ag.tensor(floats(4))
        captured = ag.capture(lambda x: x * w * mask)
        for _ in range(4):
            captured(ag.ones(4)).tolist()
        assert captured.is_captured

    once()
    gc.collect()
    assert pool_bytes()[0] == before


def test_M05_a_profile_and_the_last_plan_tell_of_replays():
    step, batches, _, _ = mlp()
    step = ag.capture(step)
    given = batches(5)
    for batch in given[:4]:
        step(*batch)
    with ag.profile() as p:
        step(*given[4])
    assert not {name for name, took in p.stages.items() if took > 0} & {"hash", "look up", "plan"}
    assert {"bind", "run"} <= {name for name, took in p.stages.items() if took > 0}
    last = ag.last_plan()
    assert last.cache_hit and last.peak_bytes == last.measured_peak_bytes


def test_R03_a_replay_moves_nothing_to_the_host():
    step, batches, _, _ = transformer()
    step = ag.capture(step)
    given = batches(5)
    for batch in given[:4]:
        step(*batch)
    with ag.transfers() as moved:
        step(*given[4])
    assert (moved.to_host, moved.to_device) == (0, 0)
    assert moved.arguments_bytes > 0
    assert _core.is_capturing() is False

"""Gradients smaller than values: parts of the buffers that values are done with, by bytes, over steps, kept for long and under budgets (B04)."""

import random

import agtape as ag
import numpy as np
import pytest
from agtape import _core
from budget.models import Mlp, Step, leaves, smallest_of
from fresh_process import WITH_TESTS, run_json
from on_device import assert_same_bits
from pool_bytes import active


class Wide(Mlp):
    """Layers whose values are several times as large as their weights, which are broadcast over the first axis."""

    def __init__(self, layers=14, times=4, side=(256, 1024)):
        self.params, rng = leaves(*[side] * layers)
        self.x = ag.tensor(rng.standard_normal((times, *side)).astype("float32"))

    def loss(self):
        h = self.x
        for w in self.params:
            h = ag.softmax(h * w, axis=-1) * 900
        return (h * h).mean()


def backward(model, budget=None):
    """One forward and backward pass."""
    with ag.grad_tape(budget=budget):
        loss = model.loss()
    loss.backward()


def clear(params):
    """Let go of gradients."""
    for p in params:
        p.grad = None


def figures():
    """Active, cached and reserved bytes, which add up."""
    stats = ag.memory_stats()
    assert stats.active + stats.cached == stats.reserved
    return stats.active, stats.cached, stats.reserved


@pytest.mark.promise("B04")
@pytest.mark.parametrize(("times", "side"), [(3, (256, 1024)), (4, (256, 1024)), (7, (384, 640))])
def test_B04_gradients_lie_in_what_values_are_done_with(times, side):
    model = Wide(times=times, side=side)
    step = Step(model)
    assert step.plan.peak_bytes == step.plan.measured_peak_bytes == step.peak
    assert step.peak - step.held > 32 << 20
    # What the pools have of the system is what the plan says that is alive, though every gradient is there at the end.
    assert step.reserved - step.held <= 1.05 * (step.peak - step.held)
    # Nothing but the values that are left stays, beside each other as they lie.
    assert ag.empty_cache() > 0
    active_bytes, _, reserved = figures()
    assert reserved == active_bytes == step.held + step.grad_bytes
    assert_same_bits([p.grad.numpy() for p in model.params], step.grads)


@pytest.mark.promise("B01")
@pytest.mark.promise("B04")
@pytest.mark.parametrize(("times", "side"), [(3, (256, 1024)), (7, (384, 640))])
def test_B04_a_budget_need_not_hold_gradients_before_they_are_written(times, side):
    model = Wide(times=times, side=side)
    plain = Step(model)
    budgets = {part: plain.fixed + plain.activations // part for part in (1, 2, 3)}
    for part, budget in budgets.items():
        step = Step(model, budget)
        assert step.plan.peak_bytes == step.plan.measured_peak_bytes == step.peak <= step.reserved <= budget
        assert step.reserved - step.held <= 1.05 * (step.peak - step.held)
        assert_same_bits(step.grads, plain.grads)
        # Room for what is alive at the same time is room enough, but for gaps.
        assert part > 1 or step.plan.work_ratio <= 1.03


@pytest.mark.promise("B04")
@pytest.mark.promise("T15")
@pytest.mark.parametrize("is_bounded", [False, True])
@pytest.mark.parametrize("zeroed", ["before", "after", "never", "some"])
def test_B04_steady_steps_ask_the_system_for_nothing(zeroed, is_bounded):
    model = Wide()
    plain = Step(model)
    clear(model.params)
    # With room for the gradients that are there already where they are added to.
    room = plain.activations // 2 + (plain.grad_bytes if zeroed in ("never", "some") else 0)
    budget = plain.fixed + room if is_bounded else None
    optimizer = ag.optim.SGD(model.params, lr=0.01)
    asked, reserved = [], []
    for _ in range(7):
        if zeroed == "before":
            optimizer.zero_grad()
        backward(model, budget)
        optimizer.step()
        if zeroed == "after":
            optimizer.zero_grad()
        if zeroed == "some":
            clear(model.params[::3])
        asked.append(_core.buffers_granted())
        reserved.append(ag.memory_stats().reserved)
    assert len(set(asked[2:])) == 1
    assert len(set(reserved[2:])) == 1


@pytest.mark.promise("B04")
@pytest.mark.promise("R05")
@pytest.mark.promise("R08")
def test_B04_parts_keep_their_values_and_their_buffers_come_back_whole():
    model = Wide()
    ag.eval()
    ag.empty_cache()
    before = ag.memory_stats()
    first = Step(model)
    assert figures()[1] > 0
    held = {at: p.grad for at, p in enumerate(model.params)}
    views = {at: held[at].numpy() for at in (1, 4, 5)}
    handles = [g.handle for g in held.values()]
    assert len({(h.pool, h.slot) for h in handles}) == len(handles)
    order = list(held)
    random.shuffle(order)
    for number, at in enumerate(order):
        clear(model.params)
        with ag.grad_tape():
            loss = model.loss() * 2.0
        loss.backward()
        if number % 5 == 3:
            # What lies beside them goes, and what ended since with it.
            ag.empty_cache()
            assert figures()[1] == 0
        for other, gradient in held.items():
            np.testing.assert_array_equal(gradient.numpy(), first.grads[other])
        del held[at]
    for at, view in views.items():
        np.testing.assert_array_equal(view, first.grads[at])
    del gradient, views, view, loss
    clear(model.params)
    ag.eval()
    assert not any(h.is_valid for h in handles)
    active_bytes, cached, _ = figures()
    assert active_bytes == before.active
    assert ag.empty_cache() == cached and ag.memory_stats().reserved == before.reserved


@pytest.mark.promise("B01")
def test_B01_what_lies_beside_parts_goes_before_a_budget_is_passed():
    model, small = Wide(), Mlp(8, 64, 512)
    plain = Step(small)
    clear(small.params)
    smallest = smallest_of(small, active() + 1024) - active()
    first = Step(model)
    # Of each buffer one gradient stays.
    clear(p for at, p in enumerate(model.params) if at % 4)
    # There is a budget for as much as without them.
    budget = active() + smallest
    assert ag.memory_stats().reserved > budget + (4 << 20)
    ag.reset_peak_memory()
    with ag.grad_tape(budget=budget):
        assert ag.memory_stats().reserved <= budget
        ag.reset_peak_memory()
        loss = small.loss()
    loss.backward()
    assert _core.reserved_peak() <= budget
    assert_same_bits([p.grad.numpy() for p in small.params], plain.grads)
    assert_same_bits([p.grad.numpy() for p in model.params[::4]], first.grads[::4])
    # Under a budget what was given back stays with the system when the last part goes.
    with ag.grad_tape(budget=budget):
        clear(model.params)
        assert ag.memory_stats().reserved <= budget


@pytest.mark.promise("M07")
def test_M07_one_gradient_of_each_step_holds_its_own_bytes():
    model, kept, over = Wide(), [], []
    backward(model)
    clear(model.params)
    ag.eval()
    before = ag.memory_stats().reserved
    for _ in range(14):
        backward(model)
        kept.append(model.params[3].grad)
        clear(model.params)
        over.append(ag.memory_stats().reserved - before - sum(g.nbytes for g in kept))
    # Buffers of the last few steps wait for their gradients.
    assert over[-1] <= over[5]
    ag.empty_cache()
    active_bytes, _, reserved = figures()
    assert reserved == active_bytes
    for gradient in kept[1:]:
        np.testing.assert_array_equal(gradient.numpy(), kept[0].numpy())


@pytest.mark.promise("M07")
def test_M07_what_lies_beside_a_kept_gradient_is_there_when_memory_runs_out():
    model = Wide()
    step = Step(model)
    clear(model.params[1:])
    active_bytes, cached, reserved = figures()
    assert active_bytes == step.held + step.grad_bytes // len(model.params) and cached > 32 << 20
    # A size that no free buffer has: all of them have to go, and what lies beside the gradient.
    with ag.testing.memory_limit(reserved + 64):
        large = ag.tensor(np.ones(cached // 9 * 8 // 4, "float32"))
        assert ag.memory_stats().cached < 1 << 20
    np.testing.assert_array_equal(model.params[0].grad.numpy(), step.grads[0])
    del large


@pytest.mark.promise("M07")
def test_M07_a_kept_gradient_is_all_that_the_process_has_left_of_its_step():
    left, active_bytes, is_same = run_json(
        """
        import json, resource
        import agtape as ag
        import numpy as np
        from budget.test_parts import Wide, backward, clear

        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

        small = Wide(2, 2, (64, 64))
        backward(small)
        model = Wide()
        held = ag.memory_stats().active
        backward(model)
        clear(model.params)
        ag.empty_cache()
        before = resident()
        backward(model)
        kept = model.params[2].grad
        clear(model.params)
        copy = kept.numpy().copy()
        ag.empty_cache()
        print(json.dumps([resident() - before, ag.memory_stats().active - held, bool((copy == kept.numpy()).all())]))
        """,
        **WITH_TESTS,
    )
    # The gradient, NumPy's copy, and little else.
    assert active_bytes == 1 << 20 and is_same
    assert left <= 4 << 20


@pytest.mark.promise("B04")
def test_B04_small_values_hold_no_large_buffer():
    model = Wide()
    losses, reserved = [], []
    for _ in range(6):
        clear(model.params)
        with ag.grad_tape():
            loss = model.loss()
            biggest = model.params[0].max()
        loss.backward()
        losses += [loss, biggest]
        reserved.append(ag.memory_stats().reserved)
    clear(model.params)
    assert reserved[-1] - reserved[2] < 1 << 20

"""Gradients smaller than values: parts of the buffers that values are done with, by bytes, over steps and under later budgets (B04)."""

import random

import agtape as ag
import numpy as np
import pytest
from agtape import _core
from budget.models import Mlp, Step, leaves, smallest_of
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


def spare():
    """Bytes of the system that neither living values nor free buffers have: what lies beside parts."""
    stats = ag.memory_stats()
    return stats.reserved - stats.active - stats.cached


@pytest.mark.promise("B04")
@pytest.mark.parametrize(("times", "side"), [(3, (256, 1024)), (4, (256, 1024)), (7, (384, 640))])
def test_B04_gradients_lie_in_what_values_are_done_with(times, side):
    model = Wide(times=times, side=side)
    step = Step(model)
    assert step.plan.peak_bytes == step.plan.measured_peak_bytes == step.peak
    assert step.peak - step.held > 32 << 20
    # What the pools have of the system is what the plan says that is alive, though every gradient is there at the end.
    assert step.reserved - step.held <= 1.05 * (step.peak - step.held)
    assert spare() < step.grad_bytes
    # Under a budget every gradient has a buffer of its own.
    budgeted = Step(model, step.peak + step.grad_bytes)
    assert_same_bits(budgeted.grads, step.grads)


@pytest.mark.promise("B04")
@pytest.mark.promise("T15")
@pytest.mark.parametrize("zeroed", ["before", "after", "never", "some"])
def test_B04_steady_steps_ask_the_system_for_nothing(zeroed):
    model = Wide()
    optimizer = ag.optim.SGD(model.params, lr=0.01)
    asked, reserved = [], []
    for _ in range(7):
        if zeroed == "before":
            optimizer.zero_grad()
        with ag.grad_tape():
            loss = model.loss()
        loss.backward()
        optimizer.step()
        if zeroed == "after":
            optimizer.zero_grad()
        if zeroed == "some":
            for p in model.params[::3]:
                p.grad = None
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
    assert spare() > 0
    held = {at: p.grad for at, p in enumerate(model.params)}
    views = {at: held[at].numpy() for at in (1, 4, 5)}
    handles = [g.handle for g in held.values()]
    assert len({(h.pool, h.slot) for h in handles}) == len(handles)
    order = list(held)
    random.shuffle(order)
    for at in order:
        for p in model.params:
            p.grad = None
        with ag.grad_tape():
            loss = model.loss() * 2.0
        loss.backward()
        for other, gradient in held.items():
            np.testing.assert_array_equal(gradient.numpy(), first.grads[other])
        del held[at]
    for at, view in views.items():
        np.testing.assert_array_equal(view, first.grads[at])
    del gradient, views, view, loss
    for p in model.params:
        p.grad = None
    ag.eval()
    assert not any(h.is_valid for h in handles)
    stats = ag.memory_stats()
    assert (stats.active, spare()) == (before.active, 0)
    assert ag.empty_cache() == stats.cached and ag.memory_stats().reserved == before.reserved


@pytest.mark.promise("B01")
def test_B01_a_budget_counts_what_lies_beside_the_parts_that_are_left():
    model, small = Wide(), Mlp(8, 64, 512)
    plain = Step(small)
    Step(model)
    ag.empty_cache()
    # One gradient of each buffer stays, and holds all of it.
    for at, p in enumerate(model.params):
        if at % 4:
            p.grad = None
    left = spare()
    assert left > 4 << 20
    smallest = smallest_of(small, active() + left + 1024)
    assert smallest > active() + left
    for budget in (smallest, smallest + (1 << 20)):
        step = Step(small, budget)
        assert step.peak + left <= budget and step.reserved <= budget
        assert_same_bits(step.grads, plain.grads)


@pytest.mark.promise("B04")
def test_B04_small_values_hold_no_large_buffer():
    model = Wide()
    losses, reserved = [], []
    for _ in range(6):
        for p in model.params:
            p.grad = None
        with ag.grad_tape():
            loss = model.loss()
            biggest = model.params[0].max()
        loss.backward()
        losses += [loss, biggest]
        reserved.append(ag.memory_stats().reserved)
    for p in model.params:
        p.grad = None
    assert reserved[-1] - reserved[2] < 1 << 20

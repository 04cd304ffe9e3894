"""What segments leave as it was: flags, pools, random states, buffers; and what must not happen while one is replayed."""

import gc
import re
import threading

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import REPLAYS, assert_equal, batch, block, gradients, plain, segment, weights
from fresh_process import run_python
from on_device import assert_close, float_type
from pool_bytes import active

F = ag.nn.functional


def world():
    """Everything that a failed segment must leave alone; what earlier tests left to the collector does not count."""
    gc.collect()
    options = ag.options()
    return ag.get_rng_state(), ag.is_grad_enabled(), options.fuse, options.plan_cache, ag.is_replaying(), active()


@pytest.mark.parametrize("replay", REPLAYS)
@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), StopIteration(3)])
def test_C09_a_segment_that_raises_leaves_everything_as_it_was(replay, error):
    (w,) = weights(1)
    x = batch()
    failing = [True]

    def inside(h):
        ag.no_grad().__enter__()
        ag.no_grad().__enter__()
        h = ag.dropout(h, 0.5) @ w
        if failing[0]:
            raise error
        return h

    def good(h):
        return ag.dropout(block(h, w), 0.5)

    with ag.grad_tape() as tape:
        h = block(x, w)
        ag.eval(h)
        before = world()
        with pytest.raises(type(error)) as caught:
            ag.checkpoint(inside, h, replay=replay, name="the block")
        assert caught.value is error
        assert any("'the block'" in note for note in error.__notes__)
        error.__notes__.clear()
        error.__traceback__ = None
        del caught
        assert world() == before
        assert tape.is_recording
        loss = ag.checkpoint(good, h, replay=replay).sum()
    loss.backward()
    found = w.grad.numpy()
    w.grad = None
    ag.set_rng_state(before[0])
    with ag.grad_tape():
        loss = good(block(x, w)).sum()
    loss.backward()
    assert_close(found, w.grad.numpy(), rtol=1e-12)


def test_C09_C17_a_replay_that_raises_can_be_tried_again():
    (w,) = weights(1)
    x = batch()
    error = ZeroDivisionError("second run")
    failing = [False]

    def inside(h):
        h = ag.dropout(h, 0.5)
        if failing[0]:
            assert ag.is_replaying()
            raise error
        return h @ w

    ag.manual_seed(5)
    with ag.grad_tape():
        loss = ag.checkpoint(inside, x, replay="call", name="twice").sum()
    loss.item()
    before = world()
    failing[0] = True
    with pytest.raises(ZeroDivisionError) as caught:
        loss.backward()
    assert caught.value is error
    assert error.__notes__ == ["raised in the replay of checkpoint segment 'twice'"]
    error.__traceback__ = None
    del caught
    assert world() == before
    assert w.grad is None
    failing[0] = False
    loss.backward()
    ag.manual_seed(5)
    expected = gradients_of(lambda: (ag.dropout(x, 0.5) @ w).sum(), w)
    assert_close(w.grad.numpy(), expected, rtol=1e-12)


def gradients_of(build, w):
    kept, w.grad = w.grad, None
    with ag.grad_tape():
        loss = build()
    loss.backward()
    found, w.grad = w.grad.numpy(), kept
    return found


class Counting(ag.nn.Module):
    """A layer with a running mean, counters of its own, and state that it changes in place."""

    def __init__(self, w):
        self.w = w
        self.norm = ag.nn.BatchNorm(8).to(float_type())
        self.register_buffer("steps", ag.zeros((), dtype="int64"))
        self.calls = 0

    def forward(self, x):
        self.steps += 1
        if not ag.is_replaying():
            self.calls += 1
        return self.norm(block(x, self.w)) * (1.0 + 0.1 * self.steps)


@pytest.mark.parametrize("replay", REPLAYS)
def test_C12_buffers_and_counters_update_once(replay):
    x = batch()

    def run(call):
        model = Counting(weights(1)[0])
        results = []
        for _ in range(3):
            results.append(gradients(lambda: (call(model, x) ** 3).sum(), list(model.parameters())))
        return results, model

    found, model = run(segment(replay))
    expected, reference = run(plain)
    for a, b in zip(found, expected):
        assert_equal(a, b)
    assert model.calls == 3
    assert model.norm.num_batches_tracked.item() == 3
    for (name, a), b in zip(model.state_dict().items(), reference.state_dict().values()):
        np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=name)


def test_C12_buffers_changed_between_forward_and_backward_come_back_after_the_replay():
    x = batch()
    model = Counting(weights(1)[0])
    reference = Counting(weights(1)[0])
    expected = gradients(lambda: (reference(x) ** 3).sum(), list(reference.parameters()))
    with ag.grad_tape():
        loss = (ag.checkpoint(model, x, replay="call") ** 3).sum()
    model.steps.assign_(41)
    loss.backward()
    assert model.steps.item() == 41
    assert_equal((0, [p.grad.numpy() for p in model.parameters()]), (0, expected[1]))


class Stepping(Counting):
    """A layer with a segment inside that reads what the layer has changed, and what it has written piece by piece."""

    def __init__(self, w, call):
        super().__init__(w)
        self.call = call

    def forward(self, x):
        self.steps += 1
        canvas = ag.zeros(x.shape, dtype=float_type()) + x @ self.w
        canvas[2:4] = ag.sin(x[:2])
        canvas *= self.w[0]
        return self.norm(self.call(lambda h: block(h, self.w) * (1.0 + 0.1 * self.steps) + ag.tanh(canvas), x))


@pytest.mark.parametrize("inner", REPLAYS)
@pytest.mark.parametrize("outer", REPLAYS)
@pytest.mark.parametrize("passes", [1, 2])
def test_C11_C12_a_segment_inside_finds_what_the_one_around_it_has_changed(outer, inner, passes):
    x = batch()

    # What changes again before backward is put back for the layer that is called again, and for nothing else.
    layers = 2 if outer == "call" else 1

    def run(around, inside):
        model, h = Stepping(weights(1)[0], inside), x
        with ag.grad_tape():
            for _ in range(layers):
                h = around(model, h)
            loss = (h**3).sum()
        for number in range(passes):
            assert model.steps.item() == layers
            loss.backward(retain_graph=number + 1 < passes)
        assert model.steps.item() == layers
        grads = [p.grad.numpy() for p in model.parameters()]
        return (loss.item(), grads), [b.numpy() for b in model.buffers()]

    found, buffers = run(segment(outer), segment(inner))
    expected, reference = run(plain, plain)
    assert_equal(found, expected, rtol=1e-11)
    for a, b in zip(buffers, reference):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("replay", REPLAYS)
def test_C11_what_changes_between_forward_and_backward_gives_the_forward_gradient_or_a_named_error(replay):
    leaves = weights(2)
    x, bias, scale = batch(), batch(4), batch(5)

    def inside(h, *, extra, nested):
        return ag.tanh(h @ leaves[0]) * extra + ag.sin(nested["list"][0] @ leaves[1])

    def change_weight():
        with ag.no_grad():
            leaves[0] *= 10.0

    def change(what):
        def do():
            what.assign_(what * 10.0)

        return do

    changes = {"weight": change_weight, "kwarg": change(bias), "nested": change(scale), "input": change(x)}
    for name, do in changes.items():
        saved = [t.detach() for t in (*leaves, x, bias, scale)]
        expected = gradients(lambda: inside(x, extra=bias, nested={"list": [scale]}).sum(), leaves)[1]
        for leaf in leaves:
            leaf.grad = None
        with ag.grad_tape():
            loss = ag.checkpoint(inside, x, extra=bias, nested={"list": [scale]}, replay=replay).sum()
        do()
        if replay == "call" and name == "weight":
            with pytest.raises(
                RuntimeError,
                match=rf"op \d+ reads another tensor or version as input 1 \({float_type()} of shape \[8, 8\]\)",
            ):
                loss.backward()
        else:
            loss.backward()
            for leaf, g in zip(leaves, expected):
                assert_close(leaf.grad.numpy(), g, rtol=1e-12, err_msg=name)
        for t, old in zip((*leaves, x, bias, scale), saved):
            t.assign_(old)


def test_C11_a_step_of_the_optimizer_before_backward():
    (w,) = weights(1)
    opt = ag.optim.SGD([w], lr=0.5)
    x = batch()
    expected = gradients(lambda: block(x, w).sum(), [w])[1][0]
    with ag.grad_tape():
        first, second = (ag.checkpoint(block, x, w).sum() for _ in range(2))
    first.backward(retain_graph=True)
    opt.step()
    opt.zero_grad()
    second.backward()
    assert_close(w.grad.numpy(), expected, rtol=1e-12)


# A reset leaves every tensor of the process stale, so it happens in a process of its own.
RESETS = """
    import agtape as ag
    import sys

    w = ag.param([[0.5]])
    with ag.grad_tape() as tape:
        reset = {"pool": ag.reset, "tape": tape.clear}[sys.argv[1]]
        loss = ag.checkpoint(lambda h: [h @ w, ag.is_replaying() and reset()][0], ag.ones((2, 1)), replay="call", name="r").sum()
    try:
        loss.backward()
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("pool", r"replay of segment r: pool 'persistent' was reset: it had generation 0, its current generation is 1"),
        ("tape", r"replay of segment r cleared tape \d+, .*: it had generation 0, its current generation is 1"),
    ],
)
def test_C16_a_replay_that_resets_a_pool_is_an_error_with_both_generations(what, message):
    assert re.search(message, run_python(RESETS, what))


def test_C17_other_threads_work_while_a_replay_runs():
    (w,) = weights(1)
    x = batch()
    results = []

    def elsewhere():
        other = ag.param([1.0, 2.0])
        with ag.grad_tape():
            loss = (other * other).sum()
        loss.backward()
        results.append(other.grad.tolist())

    def inside(h):
        if ag.is_replaying():
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join(60)
            assert not thread.is_alive()
        return h @ w

    with ag.grad_tape():
        loss = ag.checkpoint(inside, x, replay="call").sum()
    loss.backward()
    assert results == [[2.0, 4.0]]


def test_C17_the_callers_options_and_device_hold_in_the_replay(device):
    (w,) = weights(1)
    seen = []

    def inside(h):
        options = ag.options()
        seen.append((options.fuse, options.matmul_precision, ag.get_default_device(), ag.is_grad_enabled()))
        return h @ w

    with ag.grad_tape(), ag.options(fuse=False, matmul_precision="high"):
        loss = ag.checkpoint(inside, batch(), replay="call").sum()
    with ag.no_grad():
        loss.backward()
    assert seen == [(False, "high", device, True)] * 2
    assert ag.options().fuse is True
    assert w.grad is not None


@pytest.mark.parametrize("fails", [False, True])
def test_C17_the_first_runs_device_and_determinism_hold_in_the_replay_and_the_callers_come_back(device, fails):
    (w,) = weights(1)
    other = next(d for d in ag.devices() if d != device)
    seen = []

    def state():
        return ag.get_default_device(), ag.options().deterministic

    def inside(h):
        seen.append((*state(), ag.zeros(1).device))
        if ag.is_replaying():
            # What the segment leaves switched is not the caller's either.
            ag.device(device).__enter__()
            ag.options(deterministic=True, fuse=False).__enter__()
            if fails:
                raise ZeroDivisionError
        return h @ w

    x = batch()
    with ag.grad_tape(), ag.device(other), ag.options(deterministic=False):
        loss = ag.checkpoint(inside, x, replay="call").sum()
    assert state() == (device, True)
    with ag.options(deterministic=True):
        if fails:
            with pytest.raises(ZeroDivisionError):
                loss.backward()
        else:
            loss.backward()
        assert (*state(), ag.options().fuse) == (device, True, True)
    assert seen == [(other, False, other)] * 2


@pytest.mark.parametrize("replay", REPLAYS)
def test_C17_backward_on_another_thread(replay):
    leaves = weights(2)
    x = batch()

    def build(call):
        return call(lambda h: block(h, leaves[1]), call(block, x, leaves[0])).sum()

    expected = gradients(lambda: build(plain), leaves)[1]
    for leaf in leaves:
        leaf.grad = None
    with ag.grad_tape():
        loss = build(segment(replay))
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join(60)
    for leaf, g in zip(leaves, expected):
        assert_close(leaf.grad.numpy(), g, rtol=1e-12)

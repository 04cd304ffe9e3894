"""Steps and replays that fail: the error is the step's own, parameters are whole, and the capture can be used again."""

import signal

import agtape as ag
import numpy as np
import pytest
from capture.steps import floats, mlp, transformer


def test_U01_exceptions_of_a_step_arrive_unchanged_and_it_stays_uncaptured():
    class Own(Exception):
        pass

    error = Own("mine")
    w = ag.param([1.0])

    def step(x, fails):
        with ag.grad_tape():
            loss = (w * x).sum()
        if fails:
            raise error
        loss.backward()
        return loss

    captured = ag.capture(step, warmup=0)
    with pytest.raises(Own) as caught:
        captured(ag.tensor([1.0]), True)
    assert caught.value is error and not captured.is_captured
    captured(ag.tensor([1.0]), False)
    assert captured.is_captured


def test_U01_indices_out_of_range_raise_in_a_replay_and_the_next_one_is_right():
    step, batches, state, _ = transformer()
    captured = ag.capture(step)
    given = batches(5)
    for batch in given[:3]:
        captured(*batch)
    before = state()
    ids, targets = given[3]
    for _ in range(2):
        with pytest.raises(IndexError, match="99"):
            captured(ag.tensor(np.full(ids.shape, 99)), targets)
        assert state() == before
    captured(*given[4])
    assert state() != before


def test_M07_without_memory_a_replay_raises_and_the_next_one_is_right():
    step, batches, state, _ = mlp()
    captured, given = ag.capture(step), batches(5)
    for batch in given[:4]:
        captured(*batch)
    before = state()
    ag.empty_cache()
    with ag.testing.memory_limit(ag.memory_stats().reserved), pytest.raises(MemoryError):
        captured(*given[4])
    assert state() == before
    captured(*given[4])
    assert state() != before


def test_U04_an_interrupt_stops_a_replay_and_leaves_parameters_whole():
    w = ag.param(floats(700, 700) / 30)
    opt = ag.optim.SGD([w], lr=1e-3)

    def step(x):
        with ag.grad_tape():
            h = x
            for _ in range(24):
                h = ag.tanh(h @ w)
            loss = (h * h).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    def interrupt(*_frame):
        raise KeyboardInterrupt

    captured, x = ag.capture(step, warmup=0), ag.tensor(floats(700, 700))
    captured(x)
    before = w.numpy().tobytes()
    former = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            captured(x).item()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    # Half a second of products comes before the update.
    assert w.numpy().tobytes() == before
    captured(x)
    assert w.numpy().tobytes() != before

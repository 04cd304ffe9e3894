"""A step of several groups happens for all of them or for none: parameters, state and counts."""

import signal
import threading

import agtape as ag
import numpy as np
import pytest

MAKERS = {
    "SGD": lambda groups: ag.optim.SGD(groups, lr=0.1),
    "momentum": lambda groups: ag.optim.SGD(groups, lr=0.1, momentum=0.9, dampening=0.5),
    "Adam": lambda groups: ag.optim.Adam(groups, lr=0.1),
    "AdamW": lambda groups: ag.optim.AdamW(groups, lr=0.1, maximize=True),
}
STARTS = [(3,), (2, 2), (4,)]


def made(make):
    leaves = [ag.param(np.arange(1.0, 1 + np.prod(s), dtype=np.float32).reshape(s)) for s in STARTS]
    return leaves, MAKERS[make]([{"params": [p], "lr": 0.1 * (i + 1)} for i, p in enumerate(leaves)])


def give(leaves, scale=1.0):
    for p in leaves:
        p.grad = ag.full(p.shape, scale)


def failing(p):
    """A gradient that cannot be computed: its index is out of range."""
    size = p.shape[0]
    rows = ag.tensor(np.full(size, 99))
    return ag.ones(p.shape)[rows]


def everything(leaves, opt):
    """Parameters and state as plain values."""
    number = {id(p): i for i, p in enumerate(leaves)}
    state = {
        number[id(p)]: {k: v.tolist() if isinstance(v, ag.Tensor) else v for k, v in entries.items()}
        for p, entries in opt.state.items()
    }
    return [p.tolist() for p in leaves], state


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize("steps_before", [0, 2])
def test_U04_a_gradient_that_cannot_be_computed_changes_no_group(make, bad, steps_before):
    leaves, opt = made(make)
    twins, other = made(make)
    for _ in range(steps_before):
        give(leaves + twins)
        opt.step()
        other.step()
    before = everything(leaves, opt)
    for _ in range(2):  # again, too: what failed stays out
        give(leaves)
        leaves[bad].grad = failing(leaves[bad])
        with pytest.raises(IndexError, match=r"getitem: index 99 .* \(called at .*test_whole_steps.py:"):
            opt.step()
        assert everything(leaves, opt) == before
    give(leaves + twins, 2.0)
    opt.step()
    other.step()
    assert everything(leaves, opt) == everything(twins, other)


@pytest.mark.parametrize("make", MAKERS)
def test_U04_a_gradient_of_another_shape_changes_no_group(make):
    leaves, opt = made(make)
    before = everything(leaves, opt)
    give(leaves)
    opt.param_groups[2]["params"] = [leaves[2], 3.0]
    with pytest.raises(TypeError):
        opt.step()
    assert everything(leaves, opt) == before


@pytest.mark.parametrize("make", ["momentum", "Adam"])
def test_U04_an_interrupt_anywhere_in_a_step_leaves_a_whole_step(make):
    leaves, opt = made(make)
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts = 0
    try:
        for delay_us in range(0, 1200, 20):
            give(leaves)
            before = everything(leaves, opt)
            twins, other = made(make)
            for p, twin in zip(leaves, twins):
                twin.assign_(p)
            if opt.state:
                other.load_state_dict(opt.state_dict())
            give(twins)
            other.step()
            timer = threading.Timer(delay_us * 1e-6, signal.raise_signal, (signal.SIGINT,))
            try:
                timer.start()
                opt.step()
                timer.join()
            except KeyboardInterrupt:
                interrupts += 1
            finally:
                timer.cancel()
            assert everything(leaves, opt) in (before, everything(twins, other))
    finally:
        signal.signal(signal.SIGINT, former)
    assert interrupts > 10

"""Waits and reads that fail, each of them in turn: an exception, nothing left behind, and the same numbers the next time."""

import agtape as ag
import numpy as np
import pytest
from agtape import _core

MIB = 1 << 20
POINTS = ("map", "view", "wait", "land", "submit", "exhaust")


@pytest.fixture(autouse=True)
def no_faults_stay():
    yield
    for point in POINTS:
        _core.inject_fault(point, -1)


def each_failure(point, call, most=20):
    """Makes the first, second, ... call at a point fail until nothing fails any more; how often that was, and what came at last."""
    # Buffers are there then: the first refusal of one is tried again.
    call()
    for n in range(most):
        _core.inject_fault(point, n)
        try:
            return n, call()
        except (ag.DeviceError, MemoryError):
            pass
        finally:
            _core.inject_fault(point, -1)
    raise AssertionError(f"{most} failures at {point}")


def driver_bytes():
    """What the driver has handed out beside what the pools have; 0 where it does not say."""
    ag.synchronize("gpu")
    ag.empty_cache("gpu")
    found = _core.adapter_memory("gpu")
    return found["allocated"] - found["reserved"] if found else 0


@pytest.mark.promise("G04")
@pytest.mark.parametrize(
    ("point", "pieces"), [("map", 2), ("view", 2), ("wait", 2), ("land", 0), ("submit", 2), ("exhaust", 4)]
)
def test_G04_a_read_whose_every_part_fails_once_leaves_nothing_behind(point, pieces):
    x = np.arange(6 * MIB, dtype=np.float32)
    t = ag.tensor(x, device="gpu")
    # Two pieces of 16 and 8 MiB.
    assert (t.numpy() == x).all()
    active, outside = ag.memory_stats("gpu").active, driver_bytes()
    for _ in range(3):
        failures, found = each_failure(point, t.numpy)
        assert failures >= pieces
        assert (found == x).all()
    del found
    # Where a piece is read through is kept, 16 MiB at most.
    assert ag.memory_stats("gpu").active == active
    assert driver_bytes() <= outside + (1 << 16)


@pytest.mark.promise("G04")
@pytest.mark.parametrize(("point", "least"), [("wait", 3), ("submit", 3), ("exhaust", 8)])
def test_G04_a_tensor_that_could_not_be_moved_is_none_and_the_next_one_is_whole(point, least):
    x = np.arange(5 * MIB, dtype=np.float32)
    ag.synchronize("gpu")
    active, outside = ag.memory_stats("gpu").active, driver_bytes()
    failures, t = each_failure(point, lambda: ag.tensor(x, device="gpu"))
    assert failures >= least
    assert (t.numpy() == x).all()
    del t
    assert ag.memory_stats("gpu").active == active
    assert driver_bytes() <= outside + 17 * MIB


@pytest.mark.promise("G04")
def test_G04_what_could_not_be_written_says_so_to_whoever_asked():
    messages = set()
    ag.tensor([1.0, 2.0], device="gpu").numpy()
    for n in range(4):
        _core.inject_fault("exhaust", n)
        try:
            ag.tensor([1.0, 2.0], device="gpu").numpy()
        except MemoryError as error:
            messages.add(str(error).split("out of memory on gpu: ")[-1].split(";")[0])
        _core.inject_fault("exhaust", -1)
    assert "8 bytes could not be written" in messages, messages


@pytest.mark.promise("G04")
@pytest.mark.parametrize("point", ["map", "view", "wait", "submit"])
def test_G04_an_index_out_of_range_is_told_though_the_first_look_failed(point):
    x, bad = ag.ones(3, 2, device="gpu"), ag.tensor([0, 3], device="gpu")
    ag.eval(x, bad)
    y = x[bad]
    ag.eval(y)
    for _ in range(2):
        _core.inject_fault(point, 0)
        with pytest.raises(ag.DeviceError):
            y.numpy()
        _core.inject_fault(point, -1)
    with pytest.raises(IndexError, match=r"getitem: .*out of range"):
        y.numpy()
    assert y.tolist() == [[1.0, 1.0], [0.0, 0.0]]


@pytest.mark.promise("G04", "T01")
@pytest.mark.parametrize("point", ["map", "view", "wait", "land", "submit"])
def test_G04_a_step_that_fails_anywhere_can_be_taken_again(point):
    x = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32)
    w = ag.param(np.eye(30, dtype=np.float32), device="gpu")
    opt = ag.optim.SGD([w], lr=0.1)

    def step():
        w.grad = None
        with ag.grad_tape():
            loss = (ag.tanh(ag.tensor(x, device="gpu") @ w) ** 2).mean()
        loss.backward()
        return loss.item(), w.grad.numpy()

    expected = step()
    for _ in range(2):
        _, (loss, grad) = each_failure(point, step)
        assert loss == expected[0] and grad.tobytes() == expected[1].tobytes()
    opt.step()
    np.testing.assert_allclose(w.numpy(), np.eye(30) - 0.1 * expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.promise("G04")
def test_G04_waiting_for_the_device_itself_may_fail():
    y = ag.ones(3, device="gpu") * 2
    ag.eval(y)
    for wait in (lambda: ag.synchronize("gpu"), ag.synchronize):
        _core.inject_fault("wait", 0)
        with pytest.raises(ag.DeviceError, match="gpu: waiting failed"):
            wait()
        _core.inject_fault("wait", -1)
        wait()
    with ag.profile() as p:
        ag.eval(y + 1)
        _core.inject_fault("wait", 0)
    _core.inject_fault("wait", -1)
    assert p.launches == 1
    assert y.tolist() == [2.0] * 3

"""Threads: each records on its own tapes, and any may read, use or differentiate what another made."""

import threading
from concurrent.futures import ThreadPoolExecutor

import agtape as ag
import numpy as np
import pytest
from fresh_process import run_python
from pool_bytes import active

THREADS = 6


def together(function, count=THREADS):
    """Call function(i) on `count` threads that start at the same moment; returns the results, raises what they raised."""
    barrier = threading.Barrier(count)

    def run(i):
        barrier.wait()
        return function(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_T04_threads_record_independently():
    shared = ag.param(np.ones(8, np.float32))

    def work(i):
        w = ag.param(np.full(8, float(i + 1), np.float32))
        slopes = []
        for _ in range(30):
            assert not ag.is_grad_enabled()
            with ag.grad_tape() as tape:
                loss = (w * w * shared.detach()).sum()
                assert ag.tape_memory(tape).nodes == ag.tape_memory().nodes == 3
                with ag.no_grad():
                    assert not ag.is_grad_enabled()
                assert ag.is_grad_enabled()
            loss.backward()
            slopes.append(w.grad.numpy()[0])
            w.grad = None
        return slopes

    for i, slopes in enumerate(together(work)):
        assert slopes == [2.0 * (i + 1)] * 30
    assert shared.grad is None


def test_T04_a_tape_records_on_the_thread_that_entered_it():
    w = ag.param([2.0])
    seen = []
    with ag.grad_tape() as tape:

        def other():
            seen.append((ag.is_grad_enabled(), tape.is_recording, (w * 3).requires_grad))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        loss = (w * w).sum()
    assert seen == [(False, False, False)]
    loss.backward()
    assert w.grad.tolist() == [4.0]


def test_T04_a_tape_must_be_left_where_it_was_entered():
    tape, caught = ag.grad_tape(), []
    with tape:

        def other():
            with pytest.raises(RuntimeError, match="thread"):
                tape.__exit__(None, None, None)
            caught.append(True)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert tape.is_recording
    assert caught == [True] and not tape.is_recording


@pytest.mark.parametrize("is_recorded", [True, False])
def test_T04_a_pending_tensor_is_read_from_other_threads(is_recorded):
    w = ag.param(np.linspace(0.1, 1.0, 1000))
    expected = np.tanh(np.exp(w.numpy())).cumsum()
    for _ in range(20):
        if is_recorded:
            with ag.grad_tape():
                y = ag.tanh(w.exp()).cumsum(axis=0)
        else:
            y = ag.tanh(w.exp()).cumsum(axis=0)
        arrays = together(lambda i, y=y: y.numpy() if i % 2 else (y * 1.0).numpy())
        for a in arrays:
            np.testing.assert_allclose(a, expected, rtol=1e-12)


def test_T04_a_loss_is_differentiated_on_another_thread():
    w = ag.param([1.0, 2.0])
    with ag.grad_tape():
        loss = (w * w * w).sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert w.grad.tolist() == [3.0, 12.0]


def test_T04_many_losses_share_one_leaf():
    w = ag.param(np.ones(100))

    def work(i):
        for _ in range(20):
            with ag.grad_tape():
                loss = (w * float(i + 1)).sum()
            loss.backward()

    together(work)
    np.testing.assert_array_equal(w.grad.numpy(), np.full(100, 20.0 * sum(range(1, THREADS + 1))))


def test_T04_a_tensor_is_updated_while_others_read_it():
    t = ag.zeros(10_000)
    stop = threading.Event()

    def read():
        while not stop.is_set():
            a = t.numpy()
            if (a != a[0]).any():
                return "mixture"
        return "whole"

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        for i in range(300):
            t.fill_(float(i))
            t += 1.0
            if i % 10 == 0:
                ag.eval(t)
        stop.set()
        assert [r.result() for r in readers] == ["whole"] * 3
    assert t.numpy()[0] == 300.0


def test_T04_options_and_scopes_belong_to_a_thread():
    with ag.options(fuse=False), ag.detect_anomaly():

        def work(_):
            assert ag.options().fuse
            return np.isnan(ag.log(ag.tensor([-1.0])).item())

        assert together(work, 2) == [True, True]
        assert not ag.options().fuse


def test_T04_threads_leave_nothing_behind():
    def work(i):
        w = ag.param(np.ones(1000, np.float32))
        with ag.grad_tape():
            kept = (w.exp() * w).sum()
        kept.backward()
        unread = w.grad * 2  # pending when the thread ends
        return float(i) if unread.shape else None

    together(work)
    before = active()
    for _ in range(5):
        together(work)
    assert active() == before


def test_T04_a_tensor_left_pending_by_a_thread_that_ended_can_be_read():
    made = {}

    def work():
        made["y"] = (ag.ones(5) * 3).exp().log()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    np.testing.assert_allclose(made["y"].numpy(), 3.0, rtol=1e-6)


def test_T04_threads_share_a_scope_object_and_a_decorator():
    entered, left = threading.Barrier(2), threading.Event()
    scopes = [ag.no_grad(), ag.options(fuse=False)]
    seen, w = [], ag.param([1.0])

    def other():
        with ag.grad_tape():
            for scope in scopes:
                scope.__enter__()
            entered.wait()
            left.wait()
            seen.append((ag.is_grad_enabled(), ag.options().fuse))
            for scope in scopes:
                scope.__exit__(None, None, None)
            seen.append((ag.is_grad_enabled(), ag.options().fuse))

    thread = threading.Thread(target=other)
    with ag.grad_tape():
        for scope in scopes:
            scope.__enter__()
        thread.start()
        entered.wait()
        for scope in scopes:  # entered first, left first
            scope.__exit__(None, None, None)
        assert ag.is_grad_enabled() and ag.options().fuse and (w * 2).requires_grad
        left.set()
        thread.join()
    assert seen == [(False, False), (True, True)]
    for scope in scopes:
        with pytest.raises(RuntimeError, match="must be left on the thread that entered it"):
            scope.__exit__(None, None, None)
    assert not ag.is_grad_enabled() and ag.options().fuse


@pytest.mark.promise("G07")
def test_G07_gradients_are_read_while_another_thread_adds_to_them_with_its_lines_noted():
    printed = run_python(
        """
        import sys, threading
        import agtape as ag

        sys.setswitchinterval(1e-6)
        w, done = ag.param([1.0, 2.0]), threading.Event()

        def read():
            while not done.is_set():
                w.grad
                w.detach()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        with ag.detect_anomaly():
            for _ in range(3000):
                with ag.grad_tape():
                    loss = (w * w).sum()
                loss.backward()
        done.set()
        reader.join()
        print(w.grad.tolist())
        """,
        timeout=60,
    )
    assert printed.split() == ["[6000.0,", "12000.0]"]

"""Forked processes, and the end of the interpreter with tensors and threads alive: nothing hangs, nothing crashes."""

import os
import subprocess
import sys
import textwrap

import pytest
from fresh_process import run_python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

# What a child does: every way in which kernels use threads, a training step, and a stop by Ctrl-C.
CHILD = """
import os, signal, sys
import agtape as ag, numpy as np
BIG = 1 << 21
def work():
    x = ag.tensor(np.linspace(-1, 1, BIG, dtype=np.float32))
    y = ag.sort(ag.exp(x * 2))
    m = ag.ones((300, 300))
    w = ag.param(np.ones((64, 64), np.float32))
    opt = ag.optim.Adam([w], lr=0.5)
    ag.manual_seed(5)
    with ag.grad_tape():
        loss = (w @ ag.rand((64, 20000))).square().mean()
    loss.backward()
    opt.step()
    parts = (x.sum(), y[-1], (m @ m).sum(), ag.cumsum(x)[-1], ag.take(x, ag.arange(0, BIG, 3)).max(), loss, w.mean(), w.grad.mean())
    return [p.item() for p in parts]
def child(function):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            function()
            sys.stdout.flush()
            os._exit(0)
        except BaseException as error:
            print("failed:", repr(error), flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def run(body, **settings):
    # Python warns of forks with threads from version 3.12 on; these are what is tested.
    quiet = 'import warnings\nwarnings.filterwarnings("ignore", "This process", DeprecationWarning)\n'
    return run_python(quiet + CHILD + textwrap.dedent(body), RAYON_NUM_THREADS="2", **settings)


def test_G07_a_child_computes_what_its_parent_does():
    body = """
        expected = work()
        kept = ag.ones(BIG) * 3
        def same():
            assert work() == expected and work() == expected
            assert kept.sum().item() == 3.0 * BIG
        def grandchild():
            same()
            assert child(same) == 0
            same()
        assert child(same) == 0
        assert child(grandchild) == 0
        assert work() == expected and kept.sum().item() == 3.0 * BIG
        print("well")
    """
    assert run(body) == "well\n"


def test_G07_a_fork_waits_for_another_threads_evaluation():
    body = """
        import threading
        expected = work()
        stop = threading.Event()
        def compute():
            while not stop.is_set():
                ag.sort(ag.rand(BIG)).sum().item()
        threads = [threading.Thread(target=compute) for _ in range(2)]
        [t.start() for t in threads]
        def same():
            assert work() == expected
        codes = [child(same) for _ in range(5)]
        stop.set()
        [t.join() for t in threads]
        print(codes, work() == expected)
    """
    assert run(body) == "[0, 0, 0, 0, 0] True\n"


def test_G07_a_fork_and_a_thread_that_reads_do_not_wait_for_each_other():
    """The fork waits for the first thread's evaluation, and meanwhile the second has the interpreter and asks for the pools."""
    body = """
        import threading
        expected = work()
        stop = threading.Event()
        x = ag.tensor([1.0, 2.0])
        def compute():
            while not stop.is_set():
                ag.sort(ag.rand(BIG)).sum().item()
        def read():
            while not stop.is_set():
                x.numpy()
        threads = [threading.Thread(target=run) for run in (compute, read)]
        [t.start() for t in threads]
        def same():
            assert work() == expected
        codes = [child(same) for _ in range(5)]
        stop.set()
        [t.join() for t in threads]
        print(codes)
    """
    assert run(body) == "[0, 0, 0, 0, 0]\n"


def test_G07_multiprocessing_with_fork():
    body = """
        import multiprocessing
        expected = work()
        def same(i):
            return work() == expected
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(same, range(6)))
    """
    assert run(body) == "[True, True, True, True, True, True]\n"


def test_G07_ctrl_c_stops_a_childs_evaluation():
    body = """
        import threading, time
        ag.eval(ag.sort(ag.rand(BIG)))
        def stopped():
            signal.signal(signal.SIGINT, signal.default_int_handler)
            y = ag.rand((700, 700))
            for _ in range(3000):
                y = ag.tanh(y @ y)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            began = time.perf_counter()
            try:
                y.numpy()
            except KeyboardInterrupt:
                print("stopped", time.perf_counter() - began < 5.0)
            del y
            assert len(work()) == 8
        print(child(stopped))
    """
    assert run(body) == "stopped True\n0\n"


@pytest.mark.parametrize("ending", ["pass", "sys.exit(0)", "os.kill(os.getpid(), signal.SIGINT)"])
def test_G07_the_interpreter_ends_with_tensors_and_threads_alive(ending):
    code = f"""
        import os, signal, sys, threading, time
        import agtape as ag, numpy as np
        signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
        x = ag.rand((700, 700))
        def work():
            with ag.grad_tape():
                while True:
                    y = ag.param(np.ones((700, 700), np.float32))
                    for _ in range(10):
                        y = ag.tanh(y @ x)
                    y.sum().backward()
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.4)
        pending, held, view = ag.rand(1000) * 2, ag.eval(x), x[3:5].numpy()
        tape = ag.grad_tape()
        tape.__enter__()
        print("ends", flush=True)
        {ending}
    """
    assert run_python(code) == "ends\n"


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only the C library of Linux calls functions with the exit status"
)
def test_G07_evaluations_that_go_on_after_the_interpreter_has_ended():
    # The C library calls sleep(exit status) when nothing of Python is left, while the other threads go on.
    code = """
        import ctypes, sys, threading, time
        import agtape as ag
        libc = ctypes.CDLL(None)
        assert libc.on_exit(ctypes.cast(libc.sleep, ctypes.c_void_p), None) == 0
        x = ag.rand((700, 700))
        ag.eval(x)
        def shorts():
            while True:
                y = x
                for _ in range(40):
                    y = ag.tanh(y @ x)
                y.sum().item()
        def long():
            y = x
            for _ in range(20000):
                y = ag.tanh(y @ x)
            y.sum().item()
        def segment():
            with ag.grad_tape() as tape:
                h = ag.param(x)
                y = h
                for _ in range(100):
                    y = ag.checkpoint(lambda z: ag.tanh(z @ x), y, replay="call")
                while True:
                    ag.grad(y.sum(), h, retain_graph=True)
        for work in (shorts, {work}):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.5)
        print("ends", flush=True)
        sys.exit(1)
    """
    for work in ("shorts", "long", "segment"):
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code).replace("{work}", work)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (ended.returncode, ended.stdout) == (1, "ends\n"), (work, ended.returncode, ended.stderr)

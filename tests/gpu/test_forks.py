"""Forked processes that have an adapter's tensors of their parent: they let go of them without touching its driver, and never hang."""

import pytest
from fresh_process import run_python

BEGIN = """
import os, time, warnings
import agtape as ag
import numpy as np

warnings.filterwarnings("ignore", "This process", DeprecationWarning)

def child(work):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hangs"

def first_failures(work):
    codes = set()
    for _ in range(12):
        codes.add(child(work))
        if codes != {0}:
            break
    return codes
"""


@pytest.mark.promise("G07")
def test_G07_what_a_child_lets_go_of_stays_with_the_driver():
    """The driver of a software adapter has its memory of the process, where it can be seen to stay."""
    done = run_python(
        BEGIN
        + """
def mapped():
    return int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")

tensors = [ag.tensor(np.full(16 << 20, i, np.float32), device="gpu") for i in range(4)]
pending = tensors[0][:3] + 1
ag.synchronize("gpu")

def let_go():
    global tensors, pending
    before = mapped()
    tensors = pending = None
    assert ag.memory_stats("gpu").active == 0
    assert ag.empty_cache("gpu") >= 256 << 20
    ag.reset("gpu")
    assert mapped() >= before - (64 << 20), (before, mapped())
    assert (ag.ones(3, device="cpu") + 1).tolist() == [2.0] * 3

print(child(let_go), [t[-1].item() for t in tensors], pending[0].item())
"""
    )
    assert done == "0 [0.0, 1.0, 2.0, 3.0] 1.0\n"


@pytest.mark.promise("G07")
def test_G07_a_fork_waits_for_another_thread_that_waits_for_memory():
    done = run_python(
        BEGIN
        + """
import threading

x, kept = ag.ones(1024, 1024, device="gpu"), ag.ones(3, device="gpu")
ag.eval(x, kept)
stop = threading.Event()

def busy():
    while not stop.is_set():
        ag.eval(*[ag.tanh(x * float(i)) for i in range(8)])
        ag.empty_cache("gpu")

def let_go():
    global kept
    kept = None
    assert ag.memory_stats("gpu").active > 0
    ag.empty_cache("gpu")
    assert (ag.ones(3, device="cpu") + 1).tolist() == [2.0] * 3

thread = threading.Thread(target=busy)
thread.start()
codes = first_failures(let_go)
stop.set()
thread.join()
print(codes, kept.tolist())
""",
    )
    assert done == "{0} [1.0, 1.0, 1.0]\n"


@pytest.mark.promise("G07")
def test_G07_a_child_of_a_process_that_opens_an_adapter_is_told_what_it_cannot_use():
    done = run_python(
        BEGIN
        + """
import threading

assert (ag.ones(2, device="gpu") + 1).tolist() == [2.0, 2.0]
stop = threading.Event()

def open_and_close():
    while not stop.is_set():
        ag.eval(ag.ones(2, device="gpu:1") + 1)
        ag.reset("gpu:1")

def ask():
    x = ag.ones(2, device="gpu")
    for call in (ag.synchronize, lambda: ag.synchronize("gpu"), lambda: ag.synchronize("gpu:1"), x.numpy):
        try:
            call()
        except ag.DeviceError as error:
            assert "spawn" in str(error), error
        else:
            raise AssertionError("no exception")
    assert ag.empty_cache("gpu:1") >= 0 and ag.memory_stats("gpu:1").active >= 0

thread = threading.Thread(target=open_and_close)
thread.start()
codes = first_failures(ask)
stop.set()
thread.join()
print(codes)
""",
        AGTAPE_GPU_COPIES="2",
    )
    assert done == "{0}\n"

"""Ctrl-C: a long evaluation stops within a second, and leaves parameters whole and the library usable."""

import signal
import subprocess
import sys
import textwrap
import time

import pytest

LIMIT_S = 1.0

# Each workload takes many seconds; it is interrupted a while after it has said that it begins.
START = """
import signal, sys, time
# A parent that ignores the signal (a job in the background of a script) hands that down.
signal.signal(signal.SIGINT, signal.default_int_handler)
import agtape as ag, numpy as np
w = ag.param(np.ones((64, 64), np.float32))
def begin():
    print("begin", flush=True)
"""

WORKLOADS = {
    "many small kernels": """
        x = ag.tensor(np.ones((300, 300), np.float32) / 300)
        y = x
        for _ in range(9000):
            y = y @ x
        begin()
        y.numpy()
    """,
    "one product": """
        x = ag.ones((9000, 9000)) * 0.5
        ag.eval(x)
        y = x @ x
        begin()
        y.numpy()
    """,
    "one elementwise kernel": """
        x = ag.ones(1 << 27)
        y = ag.tanh(x * 0.5)
        for _ in range(60):
            y = ag.sin(ag.tanh(y) + x)
        begin()
        y.numpy()
    """,
    "one reduction": """
        x = ag.broadcast_to(ag.tensor(np.ones((1, 1 << 20), np.float32)), (1 << 14, 1 << 20))
        y = ag.sin(ag.exp(ag.tanh(x) * 0.5)).sum()
        begin()
        y.item()
    """,
    "one sort": """
        x = ag.rand(1 << 26)
        ag.eval(x)
        y = ag.sort(x)
        begin()
        y.numpy()
    """,
    "one running sum": """
        x = ag.broadcast_to(ag.ones((1, 1 << 15)), (1 << 15, 1 << 15))
        y = ag.cumsum(ag.sin(x), axis=0).cumsum(axis=1)
        begin()
        y.numpy()
    """,
    "one gather": """
        x = ag.rand(1 << 24)
        i = ag.randint(0, 1 << 24, (1 << 27,))
        ag.eval(x, i)
        y = x[i]
        begin()
        y.numpy()
    """,
    "random numbers": """
        y = ag.randn(1 << 29)
        begin()
        y.numpy()
    """,
    "a softmax": """
        y = ag.softmax(ag.broadcast_to(ag.rand((1, 1 << 14)), (1 << 15, 1 << 14)).sin(), axis=1)
        begin()
        y.numpy()
    """,
    "a backward pass": """
        with ag.grad_tape():
            y = w
            for _ in range(4000):
                y = ag.tanh(y @ ag.ones((64, 2000)) @ ag.ones((2000, 64)) * 1e-3)
            loss = y.sum()
        begin()
        loss.backward()
    """,
    "more recorded than is kept pending": """
        x = ag.tensor(np.ones((300, 300), np.float32) / 300)
        y = x
        begin()
        while True:
            y = y @ x
    """,
    "a loop in python": """
        begin()
        while True:
            with ag.grad_tape():
                loss = (w @ w).sum()
            loss.backward()
    """,
}

AFTER = """
assert w.tolist() == [[1.0] * 64] * 64
w.grad = None
assert not ag.is_grad_enabled()
with ag.grad_tape():
    loss = (w * w).sum()
loss.backward()
ag.optim.SGD([w], lr=0.5).step()
assert w.tolist() == [[0.0] * 64] * 64, "not usable after the interrupt"
print("usable", flush=True)
"""


def interrupt(code, after_s):
    """Run code, send Ctrl-C so long after it printed "begin"; returns what it printed and the seconds it then took to end."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-W", "error", "-c", code], **pipes) as child:
        try:
            assert child.stdout.readline() == "begin\n", child.stderr.read()
            time.sleep(after_s)
            assert child.poll() is None, "the workload was over before the interrupt"
            sent = time.perf_counter()
            child.send_signal(signal.SIGINT)
            stopped = child.stdout.readline()
            took = time.perf_counter() - sent
            rest, errors = child.stdout.read(), child.stderr.read()
            child.wait()
        finally:
            child.kill()
    assert child.returncode == 0, errors
    return stopped + rest, took


@pytest.mark.parametrize("name", WORKLOADS)
def test_U04_a_long_evaluation_stops_within_a_second(name):
    # In a function, so that what was not computed is dropped; held, it would be computed at the next evaluation point.
    body = textwrap.indent(textwrap.dedent(WORKLOADS[name]), "    ")
    code = f'{START}\ndef work():\n{body}\ntry:\n    work()\nexcept KeyboardInterrupt:\n    print("stopped", flush=True)\n{AFTER}'
    times = []
    while len(times) < 3 and min(times, default=LIMIT_S) >= LIMIT_S:  # another process may have held the processor
        printed, took = interrupt(code, after_s=0.2)
        assert printed == "stopped\nusable\n"
        times.append(took)
    assert min(times) < LIMIT_S, times


TRAINING = """
import itertools, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import agtape as ag, numpy as np
rng = np.random.default_rng(0)
shapes = [(700, 700)] * 6
leaves = [ag.param(np.full(s, 1.0, np.float32)) for s in shapes]
opt = ag.optim.AdamW(leaves, lr=0.25, weight_decay=0.0)
steps = 0
print("begin", flush=True)
try:
    for steps in itertools.count():
        for p in leaves:
            p.grad = ag.ones((700, 700))
        opt.step()
except KeyboardInterrupt:
    print("stopped", flush=True)
values = [p.numpy() for p in leaves]
assert all((v == v.flat[0]).all() for v in values), "a parameter is a mixture"
assert len({float(v.flat[0]) for v in values}) == 1, f"parameters of different steps: {[float(v.flat[0]) for v in values]}"
done = round((1.0 - float(values[0].flat[0])) / 0.25)
assert done in (steps, steps + 1), (done, steps)
for p in leaves:
    p.grad = ag.ones((700, 700))
opt.step()
again = [float(p.numpy().flat[0]) for p in leaves]
assert len(set(again)) == 1 and round((1.0 - again[0]) / 0.25) == done + 1, "the optimizer's state is not that of the parameters"
print("whole", done > 0)
"""


@pytest.mark.parametrize("after_s", [0.11, 0.237, 0.31, 0.402, 0.55])
def test_U04_parameters_are_those_before_the_step_or_after_it(after_s):
    printed, took = interrupt(TRAINING, after_s)
    assert printed == "stopped\nwhole True\n"
    assert took < LIMIT_S


def test_U04_an_evaluation_that_was_stopped_can_be_asked_for_again():
    code = """
import signal
import agtape as ag, numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)
x = ag.tensor(np.full((400, 400), 1 / 400, np.float32))
y = x
for _ in range(500):
    y = y @ x
total = y.sum()
print("begin", flush=True)
try:
    total.item()
except KeyboardInterrupt:
    print("stopped", flush=True)
print(round(total.item(), 2), flush=True)
"""
    printed, _ = interrupt(code, after_s=0.1)
    assert printed == "stopped\n400.0\n"

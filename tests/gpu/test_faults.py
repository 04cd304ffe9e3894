"""What goes wrong on a device: allocations, maps and submissions that fail, a lost device, forks, and the way back."""

import subprocess
import sys
import textwrap

import agtape as ag
import numpy as np
import pytest
from agtape import _core
from fresh_process import run_python
from gpu.small_model import build, step


@pytest.fixture(autouse=True)
def no_faults_stay():
    yield
    for point in ("allocate", "map", "view", "submit", "lose", "land", "wait"):
        _core.inject_fault(point, -1)


def run(program):
    """A program in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.promise("G04")
@pytest.mark.parametrize(
    ("point", "error"),
    [
        ("allocate", MemoryError),
        *((point, ag.DeviceError) for point in ("map", "view", "submit", "land", "wait")),
    ],
)
def test_G04_each_call_that_fails_is_an_exception_and_the_library_goes_on(point, error):
    expected = []
    model, opt, x, y = build()
    for _ in range(3):
        expected.append(step(model, opt, x, y))
    failures = 0
    for n in range(40):
        model, opt, x, y = build()
        ag.eval(*model.parameters(), x, y)
        ag.empty_cache("gpu")
        _core.inject_fault(point, n)
        losses = []
        try:
            for _ in range(3):
                losses.append(step(model, opt, x, y))
        except error:
            failures += 1
        finally:
            _core.inject_fault(point, -1)
        assert np.isfinite(losses).all()
        for p in model.parameters():
            assert np.isfinite(p.numpy()).all()
    assert failures > 0
    model, opt, x, y = build()
    assert [step(model, opt, x, y) for _ in range(3)] == expected


@pytest.mark.promise("G04", "R09")
def test_R09_a_lost_device_is_an_exception_and_can_be_opened_again():
    program = """
    import agtape as ag, numpy as np
    from agtape import _core
    host, x = ag.tensor([1.0, 2.0]), ag.tensor([3.0, 4.0], device="gpu")
    handle, kept = x.handle, host.handle
    _core.inject_fault("lose", 0)
    for attempt in range(2):
        try:
            (x * 2).numpy()
        except ag.DeviceError as error:
            assert "was lost" in str(error) and "untouched" in str(error), error
        else:
            raise SystemExit("no exception")
    try:
        ag.tensor(np.zeros(1 << 20), dtype="float32", device="gpu")
    except ag.DeviceError as error:
        assert "was lost" in str(error), error
    else:
        raise SystemExit("a lost device took a tensor")
    assert (host + 1).tolist() == [2.0, 3.0]
    assert kept.is_valid
    ag.reset("gpu")
    assert not handle.is_valid and kept.is_valid
    try:
        x.numpy()
    except RuntimeError as error:
        assert "generation" in str(error), error
    else:
        raise SystemExit("a stale value was read")
    assert (ag.tensor([5.0], device="gpu") * 2).tolist() == [10.0]
    print("fine")
    """
    done = run(program)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


@pytest.mark.promise("R09")
def test_R09_reset_makes_handles_stale_and_leaves_other_devices():
    x, host = ag.ones(3, device="gpu"), ag.ones(3)
    handle, kept = x.handle, host.handle
    assert handle.is_valid
    with ag.device("gpu"):
        assert handle.is_valid
    w = ag.param([1.0, 2.0], device="gpu")
    with ag.grad_tape():
        inner = ag.tanh(w)
        loss = (inner * inner).sum()
    ag.eval(inner, loss)
    # Pools of every kind are the device's.
    of_tape = inner.handle
    assert handle.pool == "persistent" and of_tape.pool.startswith("pass") and of_tape.is_valid
    assert ag.reset("gpu") >= 12
    assert not handle.is_valid and not of_tape.is_valid
    assert kept.is_valid
    for stale in (x, w, inner, loss):
        with pytest.raises(RuntimeError, match=r"stale handle: .*generation"):
            stale.numpy()
    with pytest.raises(RuntimeError, match="stale handle"):
        loss.backward()
    assert ag.memory_stats("gpu").active == 0
    assert ag.ones(2, device="gpu").tolist() == [1.0, 1.0]


@pytest.mark.promise("R08")
def test_R08_a_stale_handle_never_reads_another_tensors_data(rng):
    living, stale = {}, []
    for turn in range(300):
        choice = rng.integers(10)
        if choice < 5:
            shape = (int(rng.integers(1, 40)), int(rng.integers(1, 9)))
            # Buffers of few sizes, which others had before.
            living[turn] = ag.full(shape, float(turn), device="gpu") + 0.0
            ag.eval(living[turn])
        elif choice < 8 and living:
            del living[int(rng.choice(list(living)))]
        elif choice == 8 and turn % 3 == 0:
            ag.reset("gpu")
            stale += living.values()
            living = {}
        for made in rng.permutation(list(living))[:2]:
            assert (living[made].numpy() == made).all()
        for x in stale[-2:]:
            assert not x.handle.is_valid
            with pytest.raises(
                RuntimeError, match=r"stale handle: .*'persistent' had generation \d+, its current generation is \d+"
            ):
                x.numpy()
    assert len(stale) > 10


@pytest.mark.promise("G07")
def test_G07_the_interpreter_ends_with_live_tensors_and_pending_work():
    done = run("""
    import agtape as ag
    x = ag.rand(1000, 100, device="gpu")
    ag.eval(x @ x.T)
    y = (x * 2).sum()
    print("end")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@pytest.mark.promise("G07")
def test_G07_a_forked_process_is_told_so():
    done = run("""
    import os, agtape as ag
    x = ag.ones(3, device="gpu")
    x.numpy()
    child = os.fork()
    if child == 0:
        try:
            (x + 1).numpy()
        except ag.DeviceError as error:
            os._exit(7 if "spawn" in str(error) else 8)
        os._exit(9)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert (x + 1).tolist() == [2.0] * 3
    print(code)
    """)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


@pytest.mark.promise("G07")
def test_G07_threads_share_the_device():
    done = run("""
    import threading, agtape as ag
    results = {}
    def work(k):
        x = ag.full((100,), float(k), device="gpu")
        for _ in range(20):
            x = ag.eval(y := x * 1.0 + 0.0) or y
        results[k] = x.sum().item()
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print([results[k] for k in range(4)])
    """)
    assert (done.returncode, done.stdout) == (0, "[0.0, 100.0, 200.0, 300.0]\n"), done.stderr


def test_an_index_out_of_range_is_reported_by_the_next_read():
    x, bad = ag.ones(3, 2, device="gpu"), ag.tensor([0, 3], device="gpu")
    y = x[bad]
    with pytest.raises(IndexError, match=r"getitem: .*out of range.*test_faults\.py:\d+"):
        y.numpy()
    assert x.tolist() == [[1.0, 1.0]] * 3


@pytest.mark.promise("G04")
def test_of_several_refused_launches_the_first_is_reported():
    x, bad = ag.ones(3, 2, device="gpu"), ag.tensor([0, 3], device="gpu")
    for _ in range(3):
        rows = x[bad]
        along = ag.take_along_axis(x, ag.tensor([[5]], device="gpu"), 1)
        last = x[bad + 4]
        line = test_of_several_refused_launches_the_first_is_reported.__code__.co_firstlineno + 4
        ag.eval(rows, along, last)
        with pytest.raises(IndexError, match=rf"getitem: .*test_faults\.py:{line}\b"):
            last.numpy()
        # Reported once; what was read in their place is 0.
        assert last.tolist() == [[0.0, 0.0]] * 2


@pytest.mark.promise("U04", "G04")
@pytest.mark.parametrize("point", ["land", "submit"])
def test_U04_an_update_that_raises_has_not_been_done(point):
    p = ag.param(np.zeros(3, np.float32), device="gpu")
    opt = ag.optim.SGD([p], lr=1.0, momentum=0.5)
    moved = 0.0
    for done in range(4):
        velocity = 2.0 - 0.5**done
        p.grad = ag.ones(3, device="gpu")
        ag.eval(p.grad)
        for _ in range(2):
            # As much as may be under way.
            ag.eval(ag.rand(4, device="gpu"))
        _core.inject_fault(point, 0)
        with pytest.raises(ag.DeviceError):
            opt.step()
        _core.inject_fault(point, -1)
        assert p.tolist() == [-moved] * 3
        opt.step()
        moved += velocity
        assert p.tolist() == [-moved] * 3


@pytest.mark.promise("U04", "G04")
@pytest.mark.parametrize("clock", ["0", "1"])
def test_U04_an_update_that_raises_under_a_profile_has_not_been_done(clock):
    done = run_python(
        """
    import agtape as ag
    from agtape import _core
    params = [ag.param([float(i)] * (i + 1), device="gpu") for i in range(3)]
    opt = ag.optim.SGD(params, lr=1.0)
    for nth in range(3):
        for p in params:
            p.grad = ag.ones_like(p)
        ag.eval(*params, *(p.grad for p in params))
        before = [p.tolist() for p in params]
        with ag.profile():
            _core.inject_fault("submit", nth)
            try:
                opt.step()
                ag.synchronize("gpu")
                moved = 1.0
            except ag.DeviceError:
                moved = 0.0
            _core.inject_fault("submit", -1)
        assert [p.tolist() for p in params] == [[x - moved for x in xs] for xs in before], (nth, moved)
    print("whole")
    """,
        AGTAPE_NO_TIMESTAMPS=clock,
    )
    assert done == "whole\n"


def test_several_adapters_in_one_process():
    done = run("""
    import os
    os.environ["AGTAPE_GPU_COPIES"] = "2"
    import agtape as ag
    assert ag.devices() == ["cpu", "gpu", "gpu:1"]
    a, b = ag.ones(2, device="gpu"), ag.ones(2, device="gpu:1") * 3
    try:
        a + b
    except ValueError as error:
        assert "on gpu and on gpu:1" in str(error), error
    else:
        raise SystemExit("mixed devices")
    print((a.to("gpu:1") + b).tolist(), ag.memory_stats("gpu:1").active > 0)
    """)
    assert (done.returncode, done.stdout) == (0, "[4.0, 4.0] True\n"), done.stderr

"""Adapters that were named and never used: what asks about them opens none, and one that cannot be opened can be later."""

import agtape as ag
import pytest
from fresh_process import FAILS, run_python

BEGIN = f"""{FAILS}
import agtape as ag
from agtape import _core

def is_open(device):
    return _core.adapter_work(device) is not None
"""


def test_looking_at_an_adapter_opens_none():
    done = run_python(
        BEGIN
        + """
assert ag.devices()[:4] == ["cpu", "gpu", "gpu:1", "gpu:2"]
assert [a.device for a in ag.adapters()] == ag.devices()[1:]

def scopes():
    with ag.peak_memory("gpu:1") as peak, ag.memory_timeline("gpu:1") as timeline, ag.device("gpu:1"), ag.transfers():
        assert ag.get_default_device() == "gpu:1"
    assert (peak.peak, len(timeline.events)) == (0, 0)

def default():
    ag.set_default_device("gpu:1")
    ag.set_default_device("cpu")

def record():
    # Recorded, and never computed.
    w = ag.ones(2, device="gpu:1", requires_grad=True)
    with ag.grad_tape() as tape:
        loss = (w * w).sum()
    assert repr(loss.shape) == "()" and ag.tape_memory(tape).bytes_held == 0

def reset():
    assert ag.reset("gpu:1") == 0

for look in (
    lambda: ag.memory_stats("gpu:1"), lambda: ag.reset_peak_memory("gpu:1"), lambda: ag.empty_cache("gpu:1"),
    lambda: ag.synchronize("gpu:1"), ag.synchronize, lambda: _core.adapter_memory("gpu:1"), scopes, default, reset,
    lambda: ag.eval(ag.ones(3, device="gpu") * 2), lambda: _core.save_pipelines(),
):
    look()
    assert not is_open("gpu:1") and not is_open("gpu:2"), look
stats = ag.memory_stats("gpu:1")
assert (stats.active, stats.peak, stats.cached, stats.reserved) == (0, 0, 0, 0)
assert all(pool.active == 0 for pool in stats.pools.values())
assert ag.empty_cache("gpu:1") == 0 and _core.adapter_memory("gpu:1") is None
assert is_open("gpu") and ag.memory_stats("gpu").active >= 0
# The first that computes opens it, and nothing else.
assert (ag.ones(3, device="gpu:1") * 2).tolist() == [2.0] * 3
assert is_open("gpu:1") and not is_open("gpu:2")
print("fine")
""",
        AGTAPE_GPU_COPIES="3",
    )
    assert done == "fine\n"


def test_U01_what_asks_about_an_adapter_that_is_not_there_says_what_there_is():
    calls = [
        ag.memory_stats,
        ag.reset_peak_memory,
        ag.empty_cache,
        ag.synchronize,
        ag.reset,
        ag.peak_memory,
        ag.memory_timeline,
        ag.set_default_device,
        ag.selftest,
        lambda device: ag.device(device).__enter__(),
        lambda device: ag.ones(2).to(device),
        lambda device: ag.nn.Linear(2, 2).to(device),
        lambda device: ag.tensor([1.0], device=device),
    ]
    before = ag.get_default_device()
    for call in calls:
        with pytest.raises(ag.DeviceError, match=r"device \"gpu:14\": this machine has .*\"gpu"):
            call("gpu:14")
    assert ag.get_default_device() == before


@pytest.mark.promise("G04")
def test_G04_an_adapter_that_cannot_be_opened_is_an_exception_and_can_be_opened_later():
    done = run_python(
        BEGIN
        + """
host, x = ag.tensor([1.0, 2.0]), ag.ones(3, device="gpu")
pending = x * 2
_core.inject_fault("open", 0)
fails(pending.numpy, ag.DeviceError, "gpu could not be opened")
assert not is_open("gpu") and ag.memory_stats("gpu").reserved == 0
_core.inject_fault("open", 0)
fails(lambda: ag.tensor([1.0], device="gpu"), ag.DeviceError, "gpu could not be opened")
_core.inject_fault("open", 0)
fails(lambda: host.to("gpu").numpy(), ag.DeviceError, "gpu could not be opened")
# Another one is opened all the same, and the host goes on.
_core.inject_fault("open", 1)
assert (ag.ones(2, device="gpu:1") + 1).tolist() == [2.0, 2.0] and (host + 1).tolist() == [2.0, 3.0]
fails(pending.numpy, ag.DeviceError, "gpu could not be opened")
assert ag.reset("gpu") == 0 and ag.empty_cache("gpu") == 0
assert (pending + 1).tolist() == [3.0] * 3
# Whatever a device has no memory for while it is opened: nothing of it stays, and the next one is whole.
told = 0
for n in range(12):
    ag.reset("gpu")
    _core.inject_fault("exhaust", n)
    try:
        _core.adapter_limits("gpu")
    except MemoryError as error:
        assert "out of memory on gpu" in str(error) or "no memory on gpu" in str(error), error
        assert not is_open("gpu"), n
        told += 1
    _core.inject_fault("exhaust", -1)
    assert (ag.ones(3, device="gpu") * 2).tolist() == [2.0] * 3
print(told > 0)
""",
        AGTAPE_GPU_COPIES="2",
    )
    assert done == "True\n"

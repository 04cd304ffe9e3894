"""What the driver has handed out, beside what the pools count: buffers that were returned are back, and what is kept keeps nothing else."""

import json

import pytest
from fresh_process import WITH_TESTS, run_json

# Many values in flight, none of which anybody holds: buffers that are free while the device still writes to them.
BUSY = """
import json
import agtape as ag
import numpy as np
from agtape import _core

MIB = 1 << 20
x = ag.tensor(np.ones((1024, 1024), np.float32), device="gpu")
ag.eval(x)
ag.synchronize("gpu")

def outside():
    found = _core.adapter_memory("gpu")
    return found["allocated"] - found["reserved"]

def leave_work():
    made = [ag.tanh(x * float(i)) for i in range(24)]
    ag.eval(*made)
"""


@pytest.mark.promise("M07")
def test_M07_what_an_empty_cache_returned_is_back_with_the_driver_though_the_device_was_at_work():
    freed, before, after = run_json(
        BUSY
        + """
before = outside()
leave_work()
print(json.dumps([ag.empty_cache("gpu"), before, outside()]))
"""
    )
    assert freed >= 96 << 20
    assert after <= before + (4 << 20)


@pytest.mark.promise("M07", "B01")
def test_M07_what_a_budget_returns_is_back_with_the_driver_though_the_device_was_at_work():
    highest, reserved = run_json(
        BUSY
        + """
import threading

highest, stop = [], threading.Event()

def watch():
    while not stop.is_set():
        highest.append(outside())

threading.Thread(target=watch, daemon=True).start()
leave_work()
w = ag.param(np.ones((1024, 16), np.float32), device="gpu")
ag.eval(w)
with ag.grad_tape(budget=ag.memory_stats("gpu").active + 8 * MIB):
    reserved = ag.memory_stats("gpu").reserved
    highest.append(outside())
    loss = ag.tanh(x @ w).sum()
loss.backward()
loss.item()
stop.set()
print(json.dumps([max(highest), reserved]))
"""
    )
    assert reserved <= 32 << 20
    assert highest <= 32 << 20


@pytest.mark.promise("M07", "B01", "R05")
@pytest.mark.parametrize("part", [None, 0.75])
def test_M07_a_kept_gradient_holds_its_own_bytes_and_no_others_of_an_adapter(part):
    """Values four times as large as gradients, so that on the CPU these lie in what values are done with."""
    grads, pools, driver = run_json(
        """
        import json, sys
        import agtape as ag
        from agtape import _core
        from budget.test_parts import Wide, backward, clear

        part = json.loads(sys.argv[1])
        with ag.device("gpu"):
            model = Wide(8, 4, (128, 512))

        def figures():
            ag.synchronize("gpu")
            ag.empty_cache("gpu")
            stats = ag.memory_stats("gpu")
            assert stats.active == stats.reserved
            return stats.reserved, _core.adapter_memory("gpu")["allocated"]

        def run(budget):
            backward(model, budget)
            if budget:
                plan = ag.last_plan()
                assert plan.rebuilds and plan.peak_bytes == plan.measured_peak_bytes <= budget

        held = ag.memory_stats("gpu").active
        with ag.peak_memory("gpu") as peak:
            run(None)
        budget = part and held + int((peak.peak - held) * part)
        clear(model.params)
        run(budget)
        clear(model.params)
        # What was made once and stays, kernels' tables and memory to read through.
        before = figures()
        run(budget)
        kept = model.params[3].grad
        clear(model.params)
        after = figures()
        print(json.dumps([kept.nbytes, after[0] - before[0], after[1] - before[1]]))
        """,
        json.dumps(part),
        **WITH_TESTS,
    )
    assert pools == grads == 1 << 18
    # The driver rounds up to its own steps.
    assert grads <= driver <= grads + (64 << 10)

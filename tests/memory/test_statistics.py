"""Statistics and peak scopes: active, peak, cached and reserved are apart, nest, and reconcile with the process."""

import agtape as ag
import numpy as np
import pytest
from fresh_process import run_json
from pool_bytes import active, class_bytes

MIB = 1 << 20


def test_M07_the_four_figures_are_apart():
    ag.empty_cache()
    ag.reset_peak_memory()
    start = ag.memory_stats()
    assert start.cached == 0 and start.peak == start.active and start.reserved == start.active
    x = ag.tensor(np.ones(MIB, np.float32))
    full = ag.memory_stats()
    assert full.active - start.active == full.reserved - start.reserved == full.peak - start.peak == 4 * MIB
    del x
    after = ag.memory_stats()
    assert (after.active, after.cached) == (start.active, 4 * MIB)
    assert (after.reserved, after.peak) == (full.reserved, full.peak)
    assert ag.empty_cache() == 4 * MIB
    end = ag.memory_stats()
    assert (end.reserved, end.cached, end.peak) == (start.reserved, 0, full.peak)
    ag.reset_peak_memory()
    assert ag.memory_stats().peak == start.active


def test_M07_the_kinds_of_pool_add_up():
    w = ag.param(np.ones(5000, np.float32))
    start = ag.memory_stats().pools["pass"].active
    with ag.grad_tape() as tape:
        loss = w.exp().exp().sum()
    loss.item()
    stats = ag.memory_stats()
    for figure in ("active", "cached", "reserved"):
        assert getattr(stats, figure) == sum(getattr(p, figure) for p in stats.pools.values()), figure
    held = ag.tape_memory(tape).bytes_held
    assert held == 2 * class_bytes(20_000)
    assert stats.pools["pass"].active - start == held + class_bytes(4)  # and the loss
    tape.clear()
    assert ag.memory_stats().pools["pass"].active == start
    assert stats.to_dict()["pools"]["pass"]["active"] == stats.pools["pass"].active


def test_M07_peak_scopes_nest_and_freeze():
    base = active()

    def use(mib):
        ag.eval(ag.zeros(mib * MIB // 4))

    with ag.peak_memory() as outer:
        use(4)
        with ag.peak_memory() as inner:
            assert inner.peak == base
            use(2)
            assert inner.peak == base + 2 * MIB
        with ag.peak_memory() as second:
            use(1)
        use(8)
    use(16)
    assert (outer.peak, inner.peak, second.peak) == (base + 8 * MIB, base + 2 * MIB, base + MIB)
    assert outer.to_dict() == {"peak": outer.peak} and str(outer.peak) in repr(outer)
    held = ag.tensor(np.ones(MIB // 4, np.float32))
    with ag.peak_memory() as later:
        pass
    assert later.peak == base + MIB  # what was held at entry counts
    del held


def test_M07_scopes_end_with_exceptions_and_when_dropped():
    with pytest.raises(ZeroDivisionError), ag.peak_memory() as broken:
        raise ZeroDivisionError
    frozen = broken.peak
    lost = ag.peak_memory()
    lost.__enter__()
    del lost
    ag.eval(ag.zeros(4 * MIB))
    assert broken.peak == frozen
    with ag.peak_memory() as m, pytest.raises(RuntimeError, match="open already"):
        m.__enter__()


def test_M07_a_device_that_is_not_there_is_refused():
    for call in (ag.memory_stats, ag.peak_memory):
        with pytest.raises(ValueError, match=r"cpu"):
            call("tpu")


def test_M07_reserved_bytes_are_the_processs_growth():
    """What the process gains over a training run is what the pools reserved, 32 MiB apart; the recipes are small here."""
    figures = run_json(
        """
        import json, resource
        import numpy as np
        import agtape as ag

        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

        warm = ag.param(np.ones((64, 64), np.float32))
        with ag.grad_tape():
            loss = ((warm @ warm).exp() ** 2).mean()
        loss.backward()
        before, held = resident(), ag.memory_stats().reserved
        model = ag.nn.Sequential(*[m for _ in range(6) for m in (ag.nn.Linear(1024, 1024), ag.nn.ReLU())])
        opt = ag.optim.Adam(model.parameters())
        x = ag.randn(4096, 1024)
        highest = 0
        for _ in range(3):
            with ag.grad_tape():
                loss = (model(x) ** 2).mean()
            loss.backward()
            highest = max(highest, resident() - before - (ag.memory_stats().reserved - held))
            opt.step()
            opt.zero_grad()
            highest = max(highest, resident() - before - (ag.memory_stats().reserved - held))
        ag.eval(*model.parameters())
        stats = ag.memory_stats()
        grown, reserved = resident() - before, stats.reserved - held
        returned = ag.empty_cache()
        print(json.dumps([grown, reserved, highest, resident() - before, stats.reserved - held - returned]))
        """
    )
    grown, reserved, highest, grown_after, reserved_after = figures
    assert reserved > 150 * MIB
    assert highest <= 32 * MIB
    assert abs(grown - reserved) <= 32 * MIB
    assert grown_after - reserved_after <= 32 * MIB


def test_M07_what_the_cache_gives_back_leaves_the_process():
    """The system's allocator keeps what lies below a living block, and takes blocks for ever larger requests from there."""
    grown, kept = run_json(
        """
        import json, resource
        import agtape as ag

        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

        ag.eval(ag.ones((2, 1 << 20)) + 1.0)
        ag.empty_cache()
        before = resident()
        large = [ag.ones((2, 1 << 20)) + i for i in range(32)]
        ag.eval(*large)
        small = [ag.ones((1000,)) + i for i in range(2000)]
        ag.eval(*small)
        grown = resident() - before
        del large
        ag.empty_cache()
        print(json.dumps([grown, resident() - before]))
        """
    )
    assert grown >= 256 * MIB
    assert kept <= 64 * MIB

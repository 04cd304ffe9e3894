"""What the backend does at an adapter's limits and what its tests rely on: many workgroups, checked shaders, no leak behind a failure."""

import gc
import re
from pathlib import Path

import agtape as ag
import numpy as np
import pytest
from agtape import _core
from fresh_process import run_python
from gpu.small_model import build, step


@pytest.fixture(autouse=True)
def no_faults_stay():
    yield
    for point in ("allocate", "map", "view", "submit", "land", "wait", "exhaust", "encode", "compile"):
        _core.inject_fault(point, -1)


@pytest.mark.promise("G03")
def test_G03_more_workgroups_than_one_dimension_holds():
    """A row of workgroups ends at 65,535 on most adapters: here a second one begins, and its last groups lie beyond the tensor."""
    n = 1024 * _core.adapter_limits("gpu")["max_groups"] + 2047
    if n > min(_core.adapter_limits("gpu")["max_bytes"], 1 << 28):
        # Its rows of workgroups are longer than a tensor of bytes.
        assert not ag.adapters()[0].is_software
        return
    x = ag.zeros(n, dtype="uint8", device="gpu")
    x[-1] = 3
    y = x + 5
    assert y[-1025:].sum().item() == 1025 * 5 + 3
    assert y.sum().item() == n * 5 + 3
    assert int(y.max().item()) == 8
    del x, y
    ag.empty_cache("gpu")


@pytest.mark.promise("G03", "U01")
def test_U01_more_elements_than_a_kernel_counts_are_refused_in_the_name_of_the_op():
    """A broadcast repeats one number: no tensor is too large, but the reduction over it is."""
    x = ag.broadcast_to(ag.tensor([1.0], device="gpu"), (1 << 33,))
    total = x.sum()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^sum: a reduction of \[8589934592\] .* split the tensor$"):
            total.item()
    assert (x[:3] + 1).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("checked", ["0", "1"])
def test_a_switch_decides_whether_shaders_check_indices(checked):
    """What the tests run is checked: `tests/conftest.py` sets the switch."""
    program = """
        import agtape as ag
        from agtape import _core

        assert ag.softmax(ag.arange(300, dtype="float32", device="gpu"), 0).sum().item() > 0.999
        print(_core.adapter_limits("gpu")["checked"])
    """
    assert run_python(program, AGTAPE_CHECKED=checked) == f"{checked == '1'}\n"
    assert _core.adapter_limits("gpu")["checked"]


@pytest.mark.promise("G04")
def test_G04_a_kernel_that_does_not_compile_is_an_exception_and_is_compiled_the_next_time():
    done = run_python(
        """
        import agtape as ag
        from agtape import _core

        x = ag.arange(10, dtype="float32", device="gpu")
        ag.eval(x)
        _core.inject_fault("compile", 0)
        y = ag.cumsum(x, 0)
        try:
            y.numpy()
        except ag.DeviceError as error:
            assert "gpu: the kernel " in str(error) and "could not be compiled" in str(error), error
        else:
            raise SystemExit("no exception")
        assert (ag.ones(2) + 1).tolist() == [2.0, 2.0]
        assert y.tolist() == [0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 21.0, 28.0, 36.0, 45.0]
        print("fine")
        """
    )
    assert done == "fine\n"


@pytest.mark.promise("G04")
@pytest.mark.parametrize("point", ["allocate", "map", "view", "submit", "land", "wait", "exhaust", "encode"])
def test_G04_no_failure_leaks(point):
    """Whichever call fails, when what was made is let go the pools hold what they held."""
    model, opt, x, y = build()
    expected = [step(model, opt, x, y) for _ in range(2)]
    del model, opt, x, y
    gc.collect()
    before, failures = ag.memory_stats("gpu").active, 0
    for n in range(14):
        model, opt, x, y = build()
        ag.eval(*model.parameters(), x, y)
        ag.empty_cache("gpu")
        _core.inject_fault(point, n)
        losses = []
        try:
            losses = [step(model, opt, x, y) for _ in range(2)]
        except (MemoryError, ag.DeviceError):
            failures += 1
        _core.inject_fault(point, -1)
        assert losses in ([], expected)
        del model, opt, x, y
        gc.collect()
        assert ag.memory_stats("gpu").active == before, n
    assert failures > 1
    model, opt, x, y = build()
    assert [step(model, opt, x, y) for _ in range(2)] == expected


@pytest.mark.promise("G05")
def test_G05_two_processes_give_the_same_bits():
    program = """
        import hashlib
        import agtape as ag
        import numpy as np

        ag.manual_seed(3)
        with ag.device("gpu"):
            nn = ag.nn
            model = nn.Sequential(nn.Embedding(50, 16), nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, 7))
            opt = ag.optim.AdamW(model.parameters(), lr=1e-2)
            # Many rows of few words: their gradients add at the same places.
            x, y = ag.randint(0, 50, (900,)), ag.randint(0, 7, (900,))
            for _ in range(3):
                with ag.grad_tape():
                    loss = ag.nn.functional.cross_entropy(model(x), y)
                loss.backward()
                opt.step()
                opt.zero_grad()
            rest = [ag.cumsum(ag.rand(5000), 0), ag.sort(ag.randn(5000)), ag.rand(300, 300) @ ag.randn(300, 300), ag.rand(99_999).sum()]
        found = hashlib.sha256()
        for t in [loss, *model.parameters(), *rest]:
            found.update(t.numpy().tobytes())
        print(found.hexdigest())
    """
    first, second = run_python(program), run_python(program)
    assert len(first) == 65
    assert first == second


@pytest.mark.promise("G06")
def test_G06_normals_are_as_near_as_the_guide_says():
    """Other draws are equal bit for bit: tests/gpu/test_training.py."""
    draws = []
    for device in ("cpu", "gpu"):
        ag.manual_seed(5)
        draws.append(ag.randn(1 << 20, device=device).numpy().astype(np.float64))
    a, b = draws
    text = (Path(__file__).resolve().parent.parent.parent / "docs/gpu.md").read_text()
    most = float(re.search(r"normals within ([0-9.e-]+) of", text)[1])
    assert most <= 1e-5
    assert np.abs(a - b).max() <= most


@pytest.mark.promise("G07")
def test_G07_threads_that_train_get_what_each_would_get_alone():
    done = run_python(
        """
        import threading
        import agtape as ag
        import numpy as np

        def train(k, results):
            rng = np.random.default_rng(k)
            with ag.device("gpu"):
                w = ag.param(rng.normal(size=(6, 4)).astype(np.float32))
                x = ag.tensor(rng.normal(size=(9, 6)).astype(np.float32))
                y = ag.tensor(rng.integers(0, 4, 9))
                opt = ag.optim.Adam([w], lr=0.1)
                for _ in range(8):
                    with ag.grad_tape():
                        h = ag.checkpoint(lambda h: ag.tanh(h @ w), x)
                        loss = ag.nn.functional.cross_entropy(h, y)
                    loss.backward()
                    opt.step()
                    opt.zero_grad()
                    results.setdefault(k, []).append(loss.item())
            results[k].append(w.numpy().tobytes())

        alone, together = {}, {}
        for k in range(4):
            train(k, alone)
        threads = [threading.Thread(target=train, args=(k, together)) for k in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert alone == together
        print("same")
        """
    )
    assert done == "same\n"

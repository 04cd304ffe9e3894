"""The engine's own promises on the device: long chains, accurate sums, anomalies, interrupts, plans and what is refused."""

import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import agtape as ag
import numpy as np
import pytest
from fresh_process import run_python

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.promise("T10")
def test_T10_a_chain_of_ten_thousand_nodes():
    w = ag.param([1.0], device="gpu")
    with ag.grad_tape():
        x = w
        for i in range(10_000):
            x = x + 1.0 if i % 2 else x * 1.0
        loss = x.sum()
    loss.backward()
    assert loss.item() == 5001.0
    assert w.grad.tolist() == [1.0]


@pytest.mark.promise("T14")
@pytest.mark.parametrize("sign", [False, True])
def test_T14_sums_of_2_to_the_24_values_are_accurate(sign):
    x = np.random.default_rng(0).uniform(-1 if sign else 0, 1, 1 << 24).astype(np.float32)
    t = ag.tensor(x, device="gpu")
    magnitude = np.abs(x, dtype=np.float64).sum()
    assert abs(t.sum().item() - x.sum(dtype=np.float64)) <= 1e-6 * magnitude
    assert abs(t.mean().item() - x.mean(dtype=np.float64)) <= 1e-6 * magnitude / x.size
    rows = t.reshape(4, -1).sum(axis=1).numpy()
    np.testing.assert_allclose(rows, x.reshape(4, -1).sum(axis=1, dtype=np.float64), atol=1e-6 * magnitude)
    columns = t.reshape(-1, 4).sum(axis=0).numpy()
    np.testing.assert_allclose(columns, x.reshape(-1, 4).sum(axis=0, dtype=np.float64), atol=1e-6 * magnitude)


@pytest.mark.promise("T13")
def test_T13_an_anomaly_names_the_op_and_the_line():
    x = ag.tensor([1.0, -1.0], device="gpu")
    with ag.detect_anomaly(), pytest.raises(FloatingPointError, match=r"log: .*element 1 .*test_engine\.py:\d+"):
        (ag.log(x) + 1.0).numpy()


def test_the_second_step_finds_its_plan_and_compiles_nothing():
    from agtape import _core

    w = ag.param(np.ones((8, 8), np.float32), device="gpu")

    def step(rows):
        with ag.grad_tape():
            loss = ag.relu(ag.ones(rows, 8, device="gpu") @ w).sum()
        loss.backward()
        w.grad = None
        return loss.item()

    step(4)
    pipelines = _core.adapter_limits("gpu")["pipelines"]
    step(4)
    assert ag.last_plan().cache_hit
    assert _core.adapter_limits("gpu")["pipelines"] == pipelines


def test_a_new_size_needs_no_new_pipeline():
    from agtape import _core

    def work(n):
        x = ag.tensor(np.ones((n, 6), np.float32), device="gpu")
        ag.eval((x * 2 + 1).sum(axis=0), ag.softmax(x, -1), x[:, 1:3].copy(), ag.sort(x), ag.cumsum(x, 1))

    work(50)
    pipelines = _core.adapter_limits("gpu")["pipelines"]
    # Reductions are split by powers of two: other tiles, other pipelines.
    for n in (51, 57, 63):
        work(n)
    assert _core.adapter_limits("gpu")["pipelines"] == pipelines


def test_compiled_pipelines_are_kept_on_disk_and_what_is_kept_may_be_broken_or_unwritable(tmp_path):
    program = """
        import agtape as ag
        print(ag.cumsum(ag.ones(5, device="gpu"), 0).tolist())
    """
    expected = "[1.0, 2.0, 3.0, 4.0, 5.0]\n"
    folder = tmp_path / "kept"
    assert run_python(program, AGTAPE_CACHE_DIR=str(folder)) == expected
    if not folder.exists():
        # Other platforms' adapters have no such cache.
        assert ag.adapters()[0].backend != "Vulkan"
        return
    (file,) = folder.iterdir()
    first = file.read_bytes()
    assert len(first) > 0
    # Another process finds it; one that finds something else there goes on without.
    for content in (first, b"", b"no pipelines", first[: len(first) // 2]):
        file.write_bytes(content)
        assert run_python(program, AGTAPE_CACHE_DIR=str(folder)) == expected
        assert [f.name for f in folder.iterdir()] == [file.name]
    assert run_python(program, AGTAPE_CACHE_DIR=str(file)) == expected


@pytest.mark.parametrize(("kernels", "files"), [(1, 0), (24, 1)])
def test_compiled_pipelines_are_kept_before_the_end_where_there_are_many(kernels, files, tmp_path):
    """A process that is killed has saved all but the last few."""
    program = f"""
        import os
        import agtape as ag

        x = ag.ones(9, 9, device="gpu")
        unary = (ag.sin, ag.cos, ag.exp, ag.tanh, ag.sqrt, ag.abs, ag.floor, ag.ceil)
        chains = [lambda t, f=f, g=g: f(g(t)) for f in unary[:3] for g in unary]
        for chain in chains[:{kernels}]:
            chain(x).numpy()
        os._exit(0)
    """
    folder = tmp_path / "kept"
    run_python(program, AGTAPE_CACHE_DIR=str(folder))
    found = list(folder.iterdir()) if folder.exists() else []
    # Other platforms' adapters have no such cache.
    assert len(found) == files or ag.adapters()[0].backend != "Vulkan"
    assert all(file.stat().st_size > 0 for file in found)


@pytest.mark.promise("G02")
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_G02_a_chain_of_more_numbers_than_a_kernel_takes_is_cut(dtype, rng):
    def chains(x):
        parts = []
        for start in (0, 28):
            y = x
            for i in range(start, start + 28, 2):
                y = (y * (i % 4 - 1) - (i + 2)) if dtype == "int64" else (y * (0.9 + i / 100) - (0.1 + i / 1000))
            parts.append(y)
        return parts[0] + parts[1]

    x = rng.integers(-3, 3, 100).astype(dtype)
    expected = chains(ag.tensor(x)).numpy()
    rtol = {"float32": 1e-5, "float16": 2e-2, "int64": 0}[dtype]
    # The numbers are arguments: what is cut is so for any of them.
    np.testing.assert_allclose(chains(ag.tensor(x, device="gpu")).numpy(), expected, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(
        chains(ag.tensor(x, device="gpu")).sum().item(), float(expected.sum(dtype="float64")), rtol=10 * rtol, atol=1e-2
    )


@pytest.mark.promise("G02")
def test_G02_what_the_guide_lists_is_what_is_refused():
    limits = (ROOT / "docs/gpu.md").read_text().split("## Limits")[1].split("##")[0]
    listed = re.findall(r"^\| ([^|]+?) \|", limits, re.MULTILINE)[1:]
    assert [row.split()[0] for row in listed] == [
        "float64",
        "products",
        "one",
        "more",
        "`from_dlpack(copy=False)`,",
        "a",
    ]
    with pytest.raises(TypeError, match="float64"):
        ag.zeros(1, dtype="float64", device="gpu")
    with pytest.raises(ValueError, match="copy"):
        ag.asarray(np.ones(2, np.float32), device="gpu", copy=False)


@pytest.mark.promise("G02")
def test_G02_without_64_bit_integers_nothing_is_refused_that_the_guide_does_not_list():
    program = textwrap.dedent("""
    import os
    os.environ["AGTAPE_NO_INT64"] = "1"
    import agtape as ag
    x = ag.tensor([[1.0, 2.0], [3.0, 4.0]], device="gpu")
    i = ag.tensor([1, 0, 1], device="gpu")
    assert x[i].tolist() == [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    assert (i == 1).tolist() == [True, False, True] and (i > 0).sum().item() == 2
    assert i.astype("float32").tolist() == [1.0, 0.0, 1.0] and i.astype("int32").tolist() == [1, 0, 1]
    assert ag.nn.functional.cross_entropy(x, ag.tensor([0, 1], device="gpu")).item() > 0
    assert ag.argmax(x, axis=1).tolist() == [1, 1]
    big = ag.tensor([1 << 40, -3], device="gpu")
    assert (big * 3 + 1).tolist() == [(3 << 40) + 1, -8] and big.sum().item() == (1 << 40) - 3
    assert ag.cumsum(big, 0).tolist() == [1 << 40, (1 << 40) - 3] and ag.sort(big).tolist() == [-3, 1 << 40]
    assert ag.index_add(big, 0, i[:2], big).tolist() == [(1 << 40) - 3, (1 << 40) - 3]
    try:
        (big @ big).numpy()
    except ValueError as error:
        assert "int32" in str(error), error
    else:
        raise SystemExit("not refused")
    print("fine")
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


@pytest.mark.promise("U04")
def test_U04_an_interrupt_stops_work_on_the_device():
    program = textwrap.dedent("""
    import time, agtape as ag
    w = ag.param([1.0], device="gpu")
    begin = time.time()
    try:
        print("ready", flush=True)
        while time.time() - begin < 60:
            x = ag.rand(400, 400, device="gpu")
            for _ in range(50):
                x = ag.tanh(x @ x)
            x.sum().item()
    except KeyboardInterrupt:
        print("stopped", w.tolist(), (w + 1).tolist())
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "stopped [1.0] [2.0]\n")


@pytest.mark.parametrize(("width", "lanes"), [(128, 4), (256, 8), (512, 16)])
def test_other_subgroup_sizes_give_the_same(width, lanes):
    """The software driver's vector width sets the size of a subgroup. Rows are summed by teams of that many threads, so kernels that ran with
    a smaller one would be wrong; the adapter says itself which it had."""
    if next(a for a in ag.adapters() if a.device == "gpu").kind != "software":
        pytest.skip("a real adapter's subgroups have the size that they have")
    program = textwrap.dedent("""
    import agtape as ag
    from agtape import _core
    report = ag.selftest("gpu", large=False)
    print(_core.adapter_limits("gpu")["subgroup"], report if not report.is_ok else "ok")
    """)
    import os

    environment = os.environ | {"LP_NATIVE_VECTOR_WIDTH": str(width)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=280, env=environment, check=False
    )
    assert done.stdout.endswith(f"({lanes}, {lanes}) ok\n"), done.stdout + done.stderr

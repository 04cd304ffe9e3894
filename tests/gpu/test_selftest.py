"""The self-test covers every op of the engine, passes on this adapter up to 2^24 elements, and notices what is wrong."""

import subprocess
import sys

import agtape as ag
import numpy as np
import pytest
from agtape.kernelcheck import cases, report
from ops.test_coverage import engine_ops

# No kernel of their own: leaves, views that are strides, and the user's ops.
WITHOUT_KERNEL = {"leaf", "alias", "custom"}


@pytest.mark.promise("G01")
def test_G01_the_self_test_runs_every_op_of_the_engine():
    covered = {op for case in cases.all_cases() for op in case.ops}
    assert not set(engine_ops()) - covered - WITHOUT_KERNEL


@pytest.mark.promise("G01")
@pytest.mark.timeout(900)
def test_G01_every_kernel_equals_the_cpus_at_every_size():
    found = ag.selftest("gpu")
    assert found.is_ok, repr(found)
    assert found.cases > 600


def test_the_report_says_what_differs(monkeypatch):
    wrong = cases.Case("wrong", (), lambda rng, n: [np.ones(n, np.float32)], lambda x: x + (x.device == "gpu"))
    raises = cases.Case("raises", (), lambda rng, n: [], lambda: 1 / 0)
    monkeypatch.setattr(report, "all_cases", lambda: [wrong, raises])
    lines = []
    found = ag.selftest("gpu", large=False, progress=lines.append)
    assert not found.is_ok
    assert "FAILED wrong, size 7: 7 of 7 elements differ; at (0,): " in found.failures[1]
    assert any("ZeroDivisionError" in line for line in found.failures)
    assert len(lines) == found.cases == 8
    assert ag.adapters()[0].name in repr(found)
    assert found.to_dict()["is_ok"] is False


def test_the_program_ends_with_a_status():
    done = subprocess.run(
        [sys.executable, "-m", "agtape.selftest", "cpu", "--small"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "0 failed" in done.stdout
    assert done.stderr == ""
    unknown = subprocess.run(
        [sys.executable, "-m", "agtape.selftest", "gpu:9"], capture_output=True, text=True, timeout=120, check=False
    )
    assert unknown.returncode == 1

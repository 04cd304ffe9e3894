"""The self-test covers every op of the engine, passes on this adapter up to 2^24 elements, and notices what is wrong."""

import subprocess
import sys
from pathlib import Path

import agtape as ag
import numpy as np
import pytest
from agtape.kernelcheck import cases, report, typed_cases
from ops.test_coverage import engine_ops

# No kernel of their own: leaves, views that are strides, and the user's ops.
WITHOUT_KERNEL = {"leaf", "alias", "custom"}
# Families that load and store every type in ways of their own.
TRIED = ("where", "any", "copy", "slice", "concat", "gather", "take_along_axis", "index_put", "slice_assign", "full")
TYPED = list(typed_cases.typed_cases())


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


@pytest.mark.promise("G01")
def test_G01_every_type_is_tried():
    typed = {
        op: {d for d in typed_cases.ALL if any(c.name.endswith(f" of {d}") and op in c.ops for c in TYPED)}
        for op in TRIED
    }
    assert all(found == set(typed_cases.ALL) for found in typed.values()), typed


# The ops of each family of kernels that src/backend/gpu has.
FAMILIES = {
    "arg_extreme": {"argmax", "argmin"},
    "cross_entropy": {"cross_entropy"},
    "generate": {"full", "arange"},
    "indexing": {"gather", "take_along_axis"},
    "matmul": {"matmul"},
    "movement": {"concat", "slice_assign"},
    "norm": {"layer_norm", "rms_norm"},
    "random": {"uniform", "randint", "normal"},
    "scan": {"cumsum", "cumprod"},
    "scatter": {"scatter_add", "scatter_along_axis", "index_put"},
    "softmax": {"softmax", "log_softmax"},
    "sort": {"sort"},
    "update": {"sgd", "sgd_momentum", "adam"},
    # Generated ones.
    "fused": {"multiply"},
    "reduce": {"sum"},
}


@pytest.mark.promise("G01")
def test_G01_an_op_of_every_family_is_tried_at_2_to_the_24():
    folder = Path(__file__).resolve().parent.parent.parent / "src/backend/gpu/family"
    # `rows` is what softmax, norms and cross entropy have in common.
    files = {path.stem for path in folder.glob("*.rs")} - {"mod", "tests", "rows"}
    assert files == set(FAMILIES) - {"fused", "reduce"}
    large = {op for case in cases.all_cases() if case.is_large for op in case.ops}
    assert not [family for family, ops in FAMILIES.items() if not ops & large]
    beyond = {op for case in cases.all_cases() for op in case.ops if case.most > 32_768 or case.is_large}
    assert not [family for family, ops in FAMILIES.items() if not ops & beyond]


@pytest.mark.promise("G03")
@pytest.mark.parametrize(
    ("most", "largest"),
    [(None, 1 << 24), (1 << 31, 1 << 24), (1 << 27, 1 << 24), ((1 << 27) - 4, 1 << 23), (1 << 20, 1 << 17)],
)
def test_G03_no_more_is_tried_than_the_device_can_bind(monkeypatch, most, largest):
    limits = {} if most is None else {"max_bytes": most}
    drawn = []
    case = cases.Case(
        "moves", (), lambda rng, n: drawn.append(n) or [np.ones(1, np.float32)], lambda x: x, is_large=True
    )
    monkeypatch.setattr(report, "all_cases", lambda: [case])
    monkeypatch.setattr(report._core, "adapter_limits", lambda device: limits)
    assert ag.selftest("gpu").is_ok
    assert max(drawn) == largest


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

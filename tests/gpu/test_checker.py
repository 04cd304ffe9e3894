"""The self-test is tested itself: every kernel that is made wrong on purpose is found, and the program's exit status says so."""

import subprocess
import sys

import agtape as ag
import pytest
from agtape import _core
from agtape.kernelcheck import cases, report

SIZES = (7, 1009, 40_009)
# They look at the adapter when it is opened, and no op runs them.
PROBES = {"probe of 16-bit floats", "probe of subgroups"}


@pytest.fixture(autouse=True)
def nothing_stays_wrong():
    yield
    _core.spoil_kernel(None)


def tried(size):
    """The cases that are tried at a size."""
    return [case for case in cases.all_cases() if size <= case.most]


def finding(kernel):
    """The first case and size that fails once a kernel leaves out its last workgroup; None if the self-test would not notice."""
    words = set(kernel.replace("_", " ").split())
    for size in SIZES:
        # Those that sound like it first.
        for case in sorted(
            tried(size), key=lambda c: not words & set(" ".join((c.name, *c.ops)).replace("_", " ").split())
        ):
            # What an earlier run left in a buffer may be the right result.
            ag.empty_cache("gpu")
            _core.spoil_kernel(kernel)
            wrong = report.compare(case, size, "gpu")
            _core.spoil_kernel(None)
            if wrong:
                return case, size
    return None


@pytest.mark.promise("G01")
@pytest.mark.timeout(600)
def test_G01_the_self_test_finds_every_kernel_that_is_made_wrong():
    for size in SIZES:
        wrong = [report.compare(case, size, "gpu") for case in tried(size)]
        assert not any(wrong), [w for w in wrong if w]
    kernels = set(_core.compiled_kernels("gpu")) - PROBES
    assert len(kernels) > 30
    unnoticed = []
    for kernel in sorted(kernels):
        found = finding(kernel)
        if found is None:
            unnoticed.append(kernel)
        else:
            # It is the kernel that was wrong, not the case.
            assert report.compare(*found, "gpu") is None, (kernel, found[0].name)
    assert unnoticed == []


def test_the_program_tells_a_wrong_kernel_by_its_status(monkeypatch, capsys):
    few = [case for case in cases.all_cases() if case.name in ("add", "softmax 10", "gather")]
    monkeypatch.setattr(report, "all_cases", lambda: few)
    assert report.main(["gpu", "--small"]) == 0
    assert ", 0 failed" in capsys.readouterr().out
    ag.empty_cache("gpu")
    _core.spoil_kernel("softmax")
    assert report.main(["gpu", "--small"]) == 1
    told = capsys.readouterr().out
    assert "selftest of gpu on" in told
    assert ag.adapters()[0].name in told
    assert "FAILED softmax 10, size 7: 10 of 10 elements differ; at (0, 0): " in told
    assert "FAILED add" not in told


@pytest.mark.timeout(300)
def test_the_program_ends_well_on_this_adapter():
    command = [sys.executable, "-m", "agtape.selftest", "gpu", "--small"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for figure in (", 0 failed", f"  name: {ag.adapters()[0].name}", "  driver: ", "  subgroup: ", "  max_bytes: "):
        assert figure in done.stdout, figure

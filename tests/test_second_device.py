"""Every promise of segments, budgets, reports and gradients is tested on an adapter too, or listed with its reason."""

import ast
import subprocess
import sys

import pytest
from second_device import FOLDERS, LETTERS, NOT_ON_AN_ADAPTER, PROMISES_OF_THE_CPU, TESTS, runs_on_an_adapter
from test_promises import listed, proved_in_python


def names_of(file):
    """The names of a file's tests."""
    body = ast.parse((TESTS / file).read_text()).body
    return [node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def second_run(file):
    """The source of a file without the tests that run on the CPU only."""
    module = ast.parse((TESTS / file).read_text())
    name = lambda node: getattr(node, "name", "")  # noqa: E731
    module.body = [n for n in module.body if not name(n).startswith("test_") or runs_on_an_adapter(file, name(n))]
    return ast.unparse(module)


def proved_on_an_adapter():
    """The numbers that tests prove on the adapter."""
    found = set()
    for path in (TESTS / "gpu").glob("test_*.py"):
        found |= proved_in_python(path.read_text())
    for path in (path for folder in FOLDERS for path in (TESTS / folder).glob("test_*.py")):
        found |= proved_in_python(second_run(path.relative_to(TESTS).as_posix()))
    return found


def test_every_promise_of_every_device_is_tested_on_an_adapter_or_listed():
    promised = {n for n in listed((TESTS / "promised.txt").read_text()) if n[0] in LETTERS}
    proved = proved_on_an_adapter()
    missing = promised - proved - set(PROMISES_OF_THE_CPU)
    assert not missing, f"not tested on an adapter, and no reason given: {', '.join(sorted(missing))}"
    assert not set(PROMISES_OF_THE_CPU) & proved, "listed as of the CPU only, but tested on an adapter"
    assert set(PROMISES_OF_THE_CPU) <= promised


def test_what_is_listed_exists_and_has_a_reason():
    for name, reason in NOT_ON_AN_ADAPTER.items():
        file, _, test = name.partition("::")
        assert file.split("/")[0] in FOLDERS
        assert not test or test in names_of(file), name
        assert len(reason) > 10


@pytest.mark.parametrize(
    ("file", "left_out"),
    [
        (
            "memory/test_statistics.py",
            {
                "test_M07_reserved_bytes_are_the_processs_growth",
                "test_M07_what_the_cache_gives_back_leaves_the_process",
            },
        ),
        ("memory/test_out_of_memory.py", None),
    ],
)
def test_the_second_run_is_every_test_that_is_not_listed(file, left_out):
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "gpu", str(TESTS / file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=TESTS.parent)
    found = {line.split("::")[1].split("[")[0] for line in done.stdout.splitlines() if "::" in line}
    expected = set() if left_out is None else set(names_of(file)) - left_out
    assert found == expected, done.stdout + done.stderr

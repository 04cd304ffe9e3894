"""The programs that keep figures run, briefly; no time is judged here."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHES = Path(__file__).resolve().parent.parent / "benches"


def run(name, *arguments, status=0):
    done = subprocess.run(
        [sys.executable, str(BENCHES / name), *map(str, arguments)], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def steady():
    """benches/steady.py as a module."""
    spec = importlib.util.spec_from_file_location("steady", BENCHES / "steady.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_overhead_prints_every_figure_beside_what_is_asked(tmp_path):
    text = run("overhead.py", "--only", "record,plan,import", "--rounds", 1, "--json", tmp_path / "figures.json")
    rows = json.loads((tmp_path / "figures.json").read_text())
    assert len(text.splitlines()) == len(rows) >= 8
    assert all(row["name"] in text and f"asked {row['most']:g}" in text for row in rows)
    assert {row["most"] for row in rows} == {0.6, 20.0, 0.1}


def test_overhead_weighs_the_newest_wheel(tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("overhead", BENCHES / "overhead.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    assert not list(module.wheel_size(1)) and "make setup" in capsys.readouterr().err
    (tmp_path / ".venv/wheels").mkdir(parents=True)
    (tmp_path / ".venv/wheels/agtape-0.1.0-cp311-abi3-linux_x86_64.whl").write_bytes(bytes(2_500_000))
    (found,) = module.wheel_size(1)
    assert (found["measured"], found["most"]) == (2.5, 8.0)


def test_T15_steady_runs_workloads_of_the_peers():
    text = run("steady.py", "--workloads", "ops_fwdbwd", "--warm", 300, "--steps", 600)
    assert text.splitlines()[-1].startswith("ops_fwdbwd") and text.rstrip().endswith("steady")


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, []),
        ({"pools": [[8, 0, 8], [16, 0, 16]]}, ["pool bytes changed"]),
        ({"process": [5_000_000, 6_000_000]}, ["the process grew"]),
        ({"second_step_hits": False}, ["the second step missed the plan cache"]),
    ],
)
def test_steady_sees_what_is_wrong(steady, change, wrong):
    found = {"pools": [[8, 0, 8]] * 2, "process": [5_000_000] * 2, "second_step_hits": True}
    assert steady.verdict(found | change) == wrong

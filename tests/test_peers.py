"""The side-by-side harness fails on agtape's own failures and on nobody else's."""

import importlib.util
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).resolve().parent.parent / "benches/peers"


@pytest.fixture
def run(monkeypatch):
    """benches/peers/run.py as a module; it imports its neighbours by plain names, as a script does."""
    monkeypatch.syspath_prepend(str(PEERS))
    monkeypatch.delitem(sys.modules, "workloads", raising=False)
    spec = importlib.util.spec_from_file_location("peers_run", PEERS / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("workloads", None)


def measured(ms, losses):
    return {
        "step_ms": ms, "first_s": 0.1, "warm_s": 0.2, "steps": 20, "losses": losses,
        "peak_step_mb": 1.0, "peak_warm_mb": 1.0,
    }  # fmt: skip


def test_agtape_is_compared_by_default(run):
    assert run.DEFAULT.split(",")[0] == "agtape"
    assert set(run.DEFAULT.split(",")) == set(run.MODULES)


@pytest.mark.parametrize(
    ("cells", "fails"),
    [
        ({"agtape": {"step_ms": 1.0, "agrees": True}}, False),
        ({"agtape": {"step_ms": 1.0, "agrees": False}}, True),
        ({"agtape": {"error": "crashed, exit status -11"}}, True),
        ({"agtape": {"step_ms": 1.0, "agrees": True, "failed_rounds": 1}}, True),
        ({"agtape": {"unsupported": "not installed: No module named 'agtape'"}}, True),
        ({"agtape": {"unsupported": "activation checkpointing comes with a later version"}}, False),
        ({"agtape": {"step_ms": 1.0, "agrees": True}, "mlx": {"step_ms": 1.0, "agrees": False}}, False),
        ({"agtape": {"step_ms": 1.0, "agrees": True}, "tinygrad": {"error": "timeout: over 150 s"}}, False),
        ({"agtape": {"step_ms": 1.0, "agrees": True}, "jax": {"unsupported": "not installed: jax"}}, False),
    ],
)
def test_the_exit_status_is_about_agtape_alone(run, cells, fails):
    notes, own = run.verdict({"digits": cells})
    assert own is fails
    assert bool(notes["FAILED"]) == any("error" in s or s.get("failed_rounds") for s in cells.values()) or fails


def test_a_wrong_loss_is_a_disagreement_and_a_ratio_is_taken_inside_a_round(run):
    rounds = [
        {"torch": measured(2.0, [1.0] * 20), "agtape": measured(1.0, [1.0] * 20)},
        {"torch": measured(8.0, [1.0] * 20), "agtape": measured(1.0, [1.0] * 20)},
    ]
    good = run.summarize("mlp_small", rounds)["agtape"]
    assert good["agrees"]
    assert good["ratio"] == pytest.approx((0.5 * 0.125) ** 0.5)
    rounds[0]["agtape"]["losses"] = [1.0] * 19 + [1.01]
    assert not run.summarize("mlp_small", rounds)["agtape"]["agrees"]

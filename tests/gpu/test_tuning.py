"""`ag.tune` and the device "auto": a kept measurement, read once a process; never a software adapter, and no tensor moves."""

import json

import agtape as ag
import pytest
from agtape import placement
from fresh_process import run_json, run_python

DEFAULT = """
    import agtape as ag, json
    first = ag.get_default_device()
    print(json.dumps([first, ag.zeros(1).device, ag.get_default_device()]))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where this test's measurements are kept."""
    monkeypatch.setenv("AGTAPE_CACHE_DIR", str(tmp_path))
    return tmp_path


def adapter(device, name, is_software=False):
    """An adapter that this machine need not have."""
    figures = {"device": device, "name": name, "backend": "Vulkan", "driver": "", "kind": "discrete"}
    return placement.AdapterInfo(figures | {"is_software": is_software})


def pretend(monkeypatch, adapters, ms):
    """Adapters and how long a step takes on each device."""
    monkeypatch.setattr(placement, "adapters", lambda: adapters)
    monkeypatch.setattr(placement, "_step_ms", ms.__getitem__)


def test_a_measurement_is_kept_and_changes_nothing_else(folder, monkeypatch):
    software = [a for a in ag.adapters() if a.is_software]
    state, before = ag.get_rng_state(), ag.memory_stats("cpu").active
    measure = placement._step_ms
    monkeypatch.setattr(placement, "_step_ms", lambda name: measure(name, width=32, batch=8, steps=3))
    found = ag.tune()
    assert ag.get_rng_state() == state
    assert ag.memory_stats("cpu").active == before
    assert ag.get_default_device() == ag.zeros(1).device == "cpu"
    assert found.file == str(folder / "tune.json")
    assert json.loads((folder / "tune.json").read_text()) == {"ms": found.ms, "faster": found.faster}
    assert [p.name for p in folder.glob("tune*")] == ["tune.json"]
    assert set(found.ms) == {"cpu", *(a.device for a in ag.adapters() if not a.is_software)}
    assert all(ms > 0 for ms in found.ms.values())
    assert found.faster not in [a.name for a in software]
    assert "faster" in repr(found)


def test_a_step_is_measured_on_an_adapter():
    with ag.transfers() as moved:
        assert placement._step_ms("gpu", width=16, batch=4, steps=3) > 0
    # Each step's loss is read: one number a step.
    assert (moved.to_host, moved.to_host_bytes) == (5, 20)


@pytest.mark.parametrize(
    ("ms", "faster"),
    [
        ({"cpu": 9.0, "gpu": 3.0, "gpu:1": 2.0}, "second"),
        ({"cpu": 9.0, "gpu": 3.0, "gpu:1": 30.0}, "first"),
        ({"cpu": 1.0, "gpu": 3.0, "gpu:1": 2.0}, None),
        ({"cpu": 2.0, "gpu": 2.0, "gpu:1": 2.0}, None),
    ],
)
def test_the_fastest_device_is_named(folder, monkeypatch, ms, faster):
    adapters = [adapter("gpu", "first"), adapter("gpu:1", "second"), adapter("gpu:2", "played", is_software=True)]
    pretend(monkeypatch, adapters, ms)
    found = ag.tune()
    assert (found.ms, found.faster) == (ms, faster)
    assert json.loads((folder / "tune.json").read_text())["faster"] == faster


def test_without_adapters_it_is_the_cpu(folder, monkeypatch):
    pretend(monkeypatch, [], {"cpu": 1.0})
    assert (ag.tune().faster, ag.tune().ms) == (None, {"cpu": 1.0})


def test_where_nothing_can_be_written_the_measurement_is_still_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    pretend(monkeypatch, [], {"cpu": 1.0})
    monkeypatch.setenv("AGTAPE_CACHE_DIR", str(tmp_path / "file"))
    assert (ag.tune().file, ag.tune().ms) == (None, {"cpu": 1.0})
    for variable in ("AGTAPE_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    assert ag.tune().file is None


@pytest.mark.parametrize(
    "kept",
    [
        None,
        b"",
        b"{",
        b"[]",
        b'{"faster": 3}',
        b'{"faster": null}',
        b'{"faster": "an adapter taken out"}',
        b"\xff\xfe{",
    ],
)
def test_auto_is_the_cpu_without_a_usable_measurement(folder, kept):
    if kept is not None:
        (folder / "tune.json").write_bytes(kept)
    assert run_json(DEFAULT) == ["cpu"] * 3


def test_auto_never_picks_a_software_adapter_and_always_a_faster_real_one(folder):
    for known in ag.adapters():
        (folder / "tune.json").write_text(json.dumps({"ms": {}, "faster": known.name}))
        named = next(a.device for a in ag.adapters() if a.name == known.name)
        assert run_json(DEFAULT) == ["cpu" if known.is_software else named] * 3


def test_auto_is_resolved_once_and_moves_nothing(folder):
    printed = run_json(
        """
        import agtape as ag, json
        from agtape import _core
        x = ag.zeros(2)
        first = (x.device, x.handle.generation)
        # Heard until "auto" is first asked for: what is measured now is for the next process.
        _core.set_faster_adapter(ag.adapters()[0].name)
        ag.set_default_device("auto")
        with ag.device("auto"):
            y = ag.zeros(2)
        print(json.dumps([first == (x.device, x.handle.generation), y.device, ag.get_default_device()]))
        """
    )
    assert printed == [True, "cpu", "cpu"]


def test_importing_and_asking_for_the_cpu_looks_for_no_adapter(folder):
    (folder / "tune.json").write_text(json.dumps({"ms": {}, "faster": "some adapter"}))
    code = """
        import sys
        import agtape as ag
        x = ag.zeros(2, device="cpu") + 1
        x.numpy()
        maps = open("/proc/self/maps").read()
        print("vulkan" in maps)
        ag.devices()
        print("vulkan" in open("/proc/self/maps").read())
    """
    assert run_python(code).split() == ["False", "True"]

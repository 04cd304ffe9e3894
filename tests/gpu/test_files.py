"""Files of what lies on an adapter (U03)."""

import os

import agtape as ag
import numpy as np
import pytest
from agtape import _core


@pytest.fixture(autouse=True)
def no_faults_stay():
    yield
    _core.inject_fault("map", -1)


@pytest.mark.promise("U03")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "int64", "uint8", "bool"])
def test_U03_what_lies_on_an_adapter_comes_back_to_any_device(tmp_path, dtype):
    x = ag.arange(12).reshape(3, 4).astype(dtype)
    saved = {"whole": x.to("gpu"), "turned": x.to("gpu").T, "pending": x.to("gpu")[1:, ::2]}
    ag.save(saved, tmp_path / "x")
    for device in ("cpu", "gpu"):
        found = ag.load(tmp_path / "x", device=device)
        for name, tensor in saved.items():
            assert (found[name].device, found[name].dtype) == (device, x.dtype)
            np.testing.assert_array_equal(found[name].numpy(), tensor.numpy())


@pytest.mark.promise("U03")
def test_U03_a_read_that_fails_leaves_the_old_file(tmp_path):
    x = ag.arange(1000, device="gpu")
    ag.save({"x": x}, tmp_path / "x")
    before = (tmp_path / "x").read_bytes()
    ag.eval(x * 2)
    _core.inject_fault("map", 0)
    with pytest.raises(ag.DeviceError):
        ag.save({"x": x * 2}, tmp_path / "x")
    _core.inject_fault("map", -1)
    assert (tmp_path / "x").read_bytes() == before and os.listdir(tmp_path) == ["x"]


@pytest.mark.promise("U03")
def test_U03_float64_cannot_be_loaded_to_an_adapter(tmp_path):
    ag.save({"x": ag.ones(3, dtype="float64")}, tmp_path / "x")
    with pytest.raises(TypeError, match="float64"):
        ag.load(tmp_path / "x", device="gpu")

"""The adapter that these tests run on: the first one. Without any they fail, since every run must compare every op."""

import gc

import agtape as ag
import pytest


def pytest_collection_modifyitems(items):
    """Everything here is of the GPU: `pytest -m gpu` chooses it."""
    for item in items:
        if "tests/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def adapter():
    """The device's name; what a test leaves on the device is reported by the next read, so it is waited for here."""
    assert "gpu" in ag.devices(), "no adapter: install Mesa's software Vulkan (mesa-vulkan-drivers)"
    yield "gpu"
    ag.synchronize("gpu")


@pytest.fixture(scope="package", autouse=True)
def nothing_stays():
    """Exceptions that tests looked at hold tensors in cycles: other tests count bytes."""
    yield
    gc.collect()

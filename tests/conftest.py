"""What every test shares: the judges' configuration, fixed seeds, the hypothesis profiles and the device that tests run on."""

import gc
import os
import random
import signal

# Before jax is imported anywhere: it judges float64 gradients, and never looks for an accelerator.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")
# Checked shaders: an index out of bounds is clamped and a division by zero defined, as release builds do not spend time on.
os.environ.setdefault("AGTAPE_CHECKED", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from second_device import devices_of

# Derandomized: a run on CI can be repeated exactly. `HYPOTHESIS_PROFILE=thorough make test` looks further, anew each time.
settings.register_profile("fast", max_examples=25, derandomize=True, database=None, deadline=None)
settings.register_profile(
    "thorough",
    max_examples=1000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

SEED = 20_231


# A shell in the background has Ctrl-C ignored, and every process that it starts: programs that tests interrupt would never hear of it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def seed():
    """Every test starts from the same random state, whatever ran before it; tests that do not need agtape run without it."""
    random.seed(SEED)
    np.random.seed(SEED)
    try:
        import agtape as ag
    except ModuleNotFoundError as error:
        if error.name != "agtape":
            raise
    else:
        ag.manual_seed(SEED)
    return SEED


@pytest.fixture
def no_collector():
    """Memory must come back without the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def rng():
    """A NumPy generator of this test's own."""
    return np.random.default_rng(SEED)


def pytest_generate_tests(metafunc):
    """Promises that hold on every device are tested on the CPU and again on the first adapter."""
    devices = devices_of(metafunc)
    if devices:
        metafunc.parametrize("device", devices, indirect=True)


@pytest.fixture(autouse=True)
def device(request):
    """The default device of a test. What a test leaves on an adapter is reported by the next read, so it is waited for."""
    where = getattr(request, "param", "cpu")
    if where == "cpu":
        yield where
        return
    import agtape as ag

    assert where in ag.devices(), "no adapter: install Mesa's software Vulkan (mesa-vulkan-drivers)"
    before = ag.get_default_device()
    ag.set_default_device(where)
    try:
        yield where
    finally:
        ag.set_default_device(before)
        ag.synchronize(where)

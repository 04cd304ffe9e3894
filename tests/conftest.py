"""What every test shares: the judges' configuration, fixed seeds and the hypothesis profiles."""

import os
import random

# Before jax is imported anywhere: it judges float64 gradients, and never looks for an accelerator.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

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
def rng():
    """A NumPy generator of this test's own."""
    return np.random.default_rng(SEED)

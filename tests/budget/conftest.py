"""What every file here starts with: nothing that tests before it left for the garbage collector, since these count bytes."""

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def nothing_stays():
    """Exceptions that tests looked at hold tensors in cycles."""
    gc.collect()

"""Every `>>>` example in the package's docstrings runs and prints what it says."""

import doctest
import importlib
import pkgutil

import agtape
import pytest

MODULES = ["agtape"] + [
    m.name for m in pkgutil.walk_packages(agtape.__path__, "agtape.") if not m.name.endswith("._core")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0

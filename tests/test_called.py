"""Errors at the call name the function that was called, not the one that does its work."""

import agtape as ag
import pytest

pytestmark = pytest.mark.promise("U01")
X = ag.ones((2, 3))
HUGE = (1 << 40, 1 << 40)
CALLS = [
    ("std", lambda: ag.std(X, axis=(0, 0))),
    ("std", lambda: X.std(axis=5)),
    ("argsort", lambda: ag.argsort(ag.tensor(1.0))),
    ("argsort", lambda: X.argsort(axis=7)),
    ("dot", lambda: ag.dot(X, X)),
    ("dot", lambda: ag.ones(2).dot(ag.ones(3))),
    ("view", lambda: X.view(5)),
    ("view", lambda: X.view(-1, -1)),
    *((name, lambda name=name: getattr(ag, name)(HUGE)) for name in ("zeros", "ones", "empty")),
    ("full", lambda: ag.full(HUGE, 1.0)),
]


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_U01_errors_name_the_function_that_was_called(name, call):
    with pytest.raises((ValueError, IndexError, MemoryError), match=rf"^{name}: "):
        call()

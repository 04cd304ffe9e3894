"""detect_anomaly: the first NaN or infinity is named with its op and the user's line."""

import inspect

import agtape as ag
import numpy as np
import pytest


def line_above():
    """This file and the line above the caller's, as messages give them."""
    return f"test_anomaly.py:{inspect.currentframe().f_back.f_lineno - 1}"


def found(function):
    """What detect_anomaly says about a function."""
    with pytest.raises(FloatingPointError) as caught, ag.detect_anomaly():
        function()
    return str(caught.value)


CASES = [
    ("log", lambda x: ag.log(x)),
    ("sqrt", lambda x: ag.sqrt(x)),
    ("divide", lambda x: x / (x - x)),
    ("exp", lambda x: ag.exp(x * -1000)),
    ("pow", lambda x: x**0.3),
    ("arcsin", lambda x: ag.arcsin(x * 5)),
    ("log1p", lambda x: ag.log1p(x - 1)),
    ("multiply", lambda x: x * 1e38 * 1e38),
    ("matmul", lambda x: (x * 1e30) @ (x * 1e30)),
    ("sum", lambda x: ag.sum(x * 1.2e38)),
    ("where", lambda x: ag.where(x < 0, float("inf"), x)),
    ("reciprocal", lambda x: ag.reciprocal(x * 0)),
]


@pytest.mark.parametrize(("op", "f"), CASES, ids=[c[0] for c in CASES])
def test_T13_the_first_op_and_the_users_line_are_named(op, f):
    x = ag.tensor([-2.0, -2.0])
    # What comes after carries it on, and is not to blame.
    text = found(lambda: ag.exp(ag.tanh(f(x)) * 2 + 1).sum().item())
    line = inspect.getsourcelines(f)[1]
    assert op in text.split(":")[0] and f"test_anomaly.py:{line}" in text
    assert "NaN or infinity" in text and "element 0" in text


def test_T13_the_line_is_the_users_also_inside_the_library():
    x = ag.tensor([[float("inf"), 0.0]])
    places = []

    def work():
        loss = ag.nn.functional.cross_entropy(x, ag.tensor([0]))
        places.append(line_above())
        loss.item()

    assert found(work).endswith(places[0])


def test_T13_a_training_step_is_traced_and_leaves_everything_usable():
    w = ag.param([1.0, 0.0])
    opt = ag.optim.SGD([w], lr=0.1)
    places = []

    def work():
        with ag.grad_tape():
            hidden = ag.log(w)
            places.append(line_above())
            loss = (hidden * 2).sum()
        loss.backward()

    text = found(work)
    assert text.startswith("log: ") and text.endswith(places[0])
    assert not ag.is_grad_enabled() and w.tolist() == [1.0, 0.0]
    with ag.grad_tape():
        loss = (w * 3).sum()
    w.grad = None
    loss.backward()
    opt.step()
    np.testing.assert_allclose(w.numpy(), [0.7, -0.3], rtol=1e-6)


def test_T13_a_gradient_that_is_infinite_is_found_too():
    w = ag.param([4.0, 0.0])
    places = []

    def work():
        with ag.grad_tape():
            loss = ag.sqrt(w).sum()
        assert loss.item() == 2.0
        loss.backward()
        places.append(line_above())

    assert "test_anomaly.py:" in found(work) and not places


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_T13_every_float_type_is_looked_at(dtype):
    def overflow():
        x = ag.tensor([60000.0], dtype=dtype)
        for _ in range(8):
            x = x * x
        x.item()

    assert found(overflow).startswith("multiply: ")
    assert found(lambda: ag.log(ag.tensor([-1.0], dtype=dtype)).item()).startswith("log: ")


def test_T13_what_is_finite_raises_nothing():
    with ag.detect_anomaly():
        x = ag.tensor(np.array([0.0, 1.0, -3.0], np.float32))
        assert ag.where(x == 0, 1.0, x).tolist() == [1.0, 1.0, -3.0]
        assert (ag.tensor([2**62]) * 4).tolist() == [0]  # integers wrap
        assert ag.isnan(x).any().item() is False
        assert ag.zeros((0, 3)).sum().item() == 0.0
        assert ag.maximum(x, 0).sum().item() == 1.0


def test_T13_only_inside_the_scope():
    bad = ag.tensor([-1.0])
    assert np.isnan(ag.log(bad).item())
    with ag.detect_anomaly():
        pass
    assert np.isnan(ag.log(bad).item())
    with pytest.raises(FloatingPointError), ag.detect_anomaly():
        ag.log(bad).item()
    assert np.isnan(ag.log(bad).item()) and ag.options().fuse


def test_T13_what_was_recorded_inside_is_checked_at_the_latest_at_the_end():
    bad = ag.tensor([-1.0])
    with pytest.raises(FloatingPointError, match="log"), ag.detect_anomaly():
        kept = ag.log(bad)
    del kept


def test_T13_what_was_reported_is_not_reported_again_by_other_evaluations():
    with ag.detect_anomaly():
        bad, good = ag.log(ag.tensor([-1.0])), ag.tensor([1.0]) * 2
        for _ in range(2):  # each time it is asked for by name
            with pytest.raises(FloatingPointError, match="log"):
                bad.item()
        with ag.grad_tape():
            pass
        assert good.item() == 2.0


def test_T13_as_a_decorator():
    @ag.detect_anomaly()
    def f(x):
        return ag.log(x).item()

    assert f(ag.tensor(1.0)) == 0.0
    with pytest.raises(FloatingPointError, match="log"):
        f(ag.tensor(-1.0))

"""A second run that gives other results, records in another mode or uses another gradient rule is an error, never another gradient."""

import contextlib

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import assert_equal, gradients, plain, segment, weights
from on_device import float_type

FIRST = {"on": True}


@pytest.fixture(autouse=True)
def flag():
    FIRST["on"] = True
    yield
    FIRST["on"] = True


def batch():
    return ag.tensor(np.linspace(-1.0, 1.0, 64).reshape(8, 8), dtype=float_type())


def total(out):
    if isinstance(out, dict):
        return out["a"].sum() + (out["b"] * 10.0).sum()
    if isinstance(out, (tuple, list)):
        return out[0].sum() + (out[1] * 10.0).sum()
    return out.sum()


def changed(inside, message, change=None, **settings):
    """A backward pass after a change of what the function looks at: an error; without the change the plain gradients."""
    leaves = weights(2)
    build = lambda call: total(call(lambda h: inside(h, *leaves), batch()))  # noqa: E731
    assert_equal(gradients(lambda: build(segment("call")), leaves), gradients(lambda: build(plain), leaves))
    for leaf in leaves:
        leaf.grad = None
    with ag.grad_tape():
        loss = total(ag.checkpoint(lambda h: inside(h, *leaves), batch(), replay="call", name="seg", **settings))
    FIRST["on"] = False
    with pytest.raises(RuntimeError, match=message) as caught:
        loss.backward()
    FIRST["on"] = True
    assert [leaf.grad for leaf in leaves] == [None, None]
    return str(caught.value)


def pair(h, w, v):
    return h @ w, h @ v


RESULTS = {
    "choice": lambda a, b, on: a if on else b,
    "swap": lambda a, b, on: (a, b) if on else (b, a),
    "twice": lambda a, b, on: (a, b) if on else (a, a),
    "keys": lambda a, b, on: {"a": a, "b": b} if on else {"a": b, "b": a},
    "order": lambda a, b, on: {"a": a, "b": b} if on else {"b": b, "a": a},
}


@pytest.mark.parametrize("kind", RESULTS)
def test_C11_C15_other_results_of_the_same_ops(kind):
    message = changed(
        lambda h, w, v: RESULTS[kind](*pair(h, w, v), FIRST["on"]), r"result \d is another tensor: op \d, "
    )
    assert "test_results.py:" in message and "in the first run" in message and "in the second" in message


def test_C15_an_input_or_a_captured_tensor_as_result():
    def given(h, w, v):
        product = h @ w
        return product if FIRST["on"] else h

    changed(given, "the tensor given as number 0 in the second")

    def captured(h, w, v):
        product = h @ w
        return product if FIRST["on"] else v

    changed(captured, "a tensor from outside in the second")


def test_C15_other_containers_and_keys_around_the_same_results():
    def keys(h, w, v):
        a, b = pair(h, w, v)
        return {"a": a, "b": b} if FIRST["on"] else {"b": a, "a": b}

    changed(keys, "other containers, or under other keys")
    changed(lambda h, w, v: pair(h, w, v) if FIRST["on"] else list(pair(h, w, v)), "other containers")


@pytest.mark.parametrize("inner", ["trace", "call"])
def test_C07_C15_other_results_of_a_nested_segment(inner):
    def inside(h, w, v):
        return ag.checkpoint(lambda q: RESULTS["choice"](*pair(q, w, v), FIRST["on"]), ag.sin(h), replay=inner)

    changed(inside, r"result \d is another tensor|reads other results")


def test_C14_results_that_are_inputs_captured_or_plain_are_the_same_in_both_runs():
    (w,) = weights(1)
    x, scale = batch(), batch()

    def inside(h):
        return {"y": ag.sin(h @ w), "given": h, "captured": scale, "n": 3, "none": None}

    found = gradients(lambda: ag.checkpoint(inside, x, replay="call")["y"].sum(), [w])
    assert_equal(found, gradients(lambda: inside(x)["y"].sum(), [w]))


def test_C11_C17_an_op_under_no_grad_in_one_run_only():
    def inside(h, w, v):
        with contextlib.nullcontext() if FIRST["on"] else ag.no_grad():
            b = ag.sin(h @ v)
        return b @ w

    for settings in ({}, {"verify": True}):
        message = changed(inside, r"op \d is recorded in one run only \(no_grad", **settings)
        assert "test_results.py:" in message
    changed(lambda h, w, v: (ag.sin(h @ v).reshape(8, 8) if FIRST["on"] else ag.sin(h @ v).detach()) @ w, r"op \d ")


def scaled(k, name="scaled"):
    return ag.custom_gradient(lambda a: a * 1.0, lambda g, inputs, out: g * k, name=name)


def test_C11_C15_a_custom_op_with_another_rule_of_the_same_name_and_forward():
    ops = [scaled(-1.0), scaled(-2.0)]
    message = changed(
        lambda h, w, v: ops[0 if FIRST["on"] else 1](h @ w), r"op \d \(scaled\) has another gradient rule"
    )
    assert "test_results.py:" in message
    changed(lambda h, w, v: scaled(-1.0 if FIRST["on"] else -2.0)(h @ w), "has another gradient rule")
    three, four = np.float32(3.0), np.float32(4.0)
    changed(lambda h, w, v: scaled(three if FIRST["on"] else four)(h @ w), "has another gradient rule")


def test_C11_C15_a_rule_that_captures_another_tensor_of_the_run():
    def inside(h, w, v):
        a, b = pair(h, w, v)
        return scaled(a if FIRST["on"] else b)(ag.sin(a))

    changed(inside, "has another gradient rule")


def test_C11_a_custom_op_whose_rule_gets_other_arguments():
    op = ag.custom_gradient(lambda a, k: a * 1.0, lambda g, inputs, out: (g * inputs[1], None), name="limited")
    changed(lambda h, w, v: op(h @ w, 2.0 if FIRST["on"] else 3.0), "gives its gradient rule other arguments")


def test_C01_a_rule_made_anew_in_each_run_and_one_with_state_are_the_same():
    calls = []

    class Owner:
        def __init__(self):
            self.scale, self.calls = 2.0, 0

        def rule(self, g, inputs, out):
            self.calls += 1
            return g * self.scale

    owner = Owner()

    def counted(g, inputs, out):
        calls.append(1)
        return g * 3.0

    kept = ag.custom_gradient(lambda a: a * 1.0, counted, name="counted")

    def inside(h, w, v):
        mask = (h @ v > 0.0).astype(h.dtype)
        made = ag.custom_gradient(lambda a: a * 1.0, lambda g, inputs, out: owner.rule(g, inputs, out) * mask)
        return kept(kept(made(h @ w))) @ v

    leaves = weights(2)
    x = batch()
    found = gradients(
        lambda: ag.checkpoint(inside, ag.checkpoint(inside, x, *leaves, replay="call"), *leaves, replay="call").sum(),
        leaves,
    )
    assert_equal(found, gradients(lambda: inside(inside(x, *leaves), *leaves).sum(), leaves))
    assert owner.calls and calls

"""Ops of a user's own in segments: rules that read their values often, that call another library, and that keep values outside."""

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import REPLAYS, Counted, assert_equal, batch, gradients, plain, segment, value_bytes, weights
from pool_bytes import active

pytestmark = pytest.mark.parametrize("replay", REPLAYS)


def test_C01_a_custom_ops_rule_may_read_its_values_any_number_of_times(replay):
    (w,) = weights(1)
    x = batch()

    def rule(g, inputs, out):
        first = inputs[0] * inputs[0]
        return g * out * (first / inputs[0]) * 2.0

    op = ag.custom_gradient(lambda x: ag.exp(x * x), rule, name="bell")

    def build(call):
        return call(lambda h: ag.sin(op(ag.tanh(h @ w))), x).sum()

    found = gradients(lambda: build(segment(replay)), [w])
    assert_equal(found, gradients(lambda: build(plain), [w]))
    assert_equal(found, gradients(lambda: ag.sin(ag.exp(ag.tanh(x @ w) ** 2)).sum(), [w]), rtol=1e-10)


def test_C01_a_custom_op_over_another_library(replay):
    (w,) = weights(1)
    x = batch()
    forward = Counted(lambda x: ag.tensor(np.exp(x.numpy()), dtype=x.dtype))
    op = ag.custom_gradient(forward, lambda g, inputs, out: g * out, name="numpy_exp")
    found = gradients(lambda: ag.checkpoint(lambda h: ag.sin(op(h @ w)), x, replay=replay).sum(), [w])
    assert forward.calls == (1 if replay == "trace" else 2)
    assert_equal(found, gradients(lambda: ag.sin(ag.exp(x @ w)).sum(), [w]))


def test_C01_C05_a_custom_op_that_keeps_its_activation_outside(replay):
    """The rule reads a value that its op put aside: held by that variable alone, and said so."""
    (w,) = weights(1)
    x = batch()
    ag.eval(w, x)
    aside = {}

    def forward(x):
        aside["activation"] = ag.exp(x)
        return aside["activation"] * 1.0

    op = ag.custom_gradient(forward, lambda g, inputs, out: g * aside["activation"], name="aside")
    before = active()
    with ag.grad_tape() as tape:
        loss = ag.checkpoint(lambda h: ag.sin(op(h @ w)), x, replay=replay, name="segment").sum()
    loss.item()
    # Of the product, the activation, the op's output and its sine one is held, and the loss.
    assert active() - before == value_bytes() + 64
    held = ag.tape_memory(tape).held_in_segments
    (row,) = held
    assert (row.segment, row.op, row.bytes, row.name) == ("segment", "exp", value_bytes(), "aside['activation']")
    del row, held
    loss.backward()
    found, w.grad = (loss.item(), [w.grad.numpy().copy()]), None
    del loss
    assert active() - before == value_bytes()
    aside.clear()
    assert active() == before
    assert_equal(found, gradients(lambda: ag.sin(ag.exp(x @ w)).sum(), [w]))

"""Gradients through segments equal the plain ones, however segments nest, share, branch and are differentiated again."""

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import REPLAYS, assert_equal, batch, block, gradients, plain, segment, weights
from on_device import assert_close, float_type, is_adapter

pytestmark = pytest.mark.parametrize("replay", REPLAYS)


def test_C01_C02_parameters_inside_before_and_after(replay):
    before, inside, after = leaves = weights(3)
    x = batch()

    def build(call):
        h = block(x, before)
        h = call(block, h, inside)
        return ((h @ after) ** 2).sum()

    assert_equal(gradients(lambda: build(segment(replay)), leaves), gradients(lambda: build(plain), leaves))


def test_C01_the_first_layer_may_be_a_segment(replay):
    leaves = weights(2)
    x = batch()

    def build(call):
        return (call(lambda: block(x, leaves[0])) @ leaves[1]).sum()

    assert_equal(gradients(lambda: build(segment(replay)), leaves), gradients(lambda: build(plain), leaves))


def test_C03_no_input_wants_a_gradient_but_the_weights_inside_do(replay):
    (w,) = weights(1)
    x = batch()
    with ag.grad_tape():
        out = ag.checkpoint(lambda x: block(x, w), x, replay=replay)
        assert out.requires_grad
        loss = out.sum()
    loss.backward()
    assert_equal((0, [w.grad.numpy()]), (0, gradients(lambda: block(x, w).sum(), [w])[1]))


def test_C03_without_any_gradient_inside_the_output_wants_none(replay):
    x = batch()
    (w,) = weights(1)
    with ag.grad_tape():
        out = ag.checkpoint(lambda x: ag.exp(x), x, replay=replay)
        frozen = ag.checkpoint(lambda x: block(x, w.detach()), x, replay=replay)
        assert not out.requires_grad
        assert not frozen.requires_grad
        loss = (out @ w).sum()
    loss.backward()
    assert_close(w.grad.numpy(), np.exp(x.numpy()).sum(0)[:, None] * np.ones((1, 8)), rtol=1e-12)


def test_C07_segments_nest_three_deep_and_stand_in_sequence(replay):
    leaves = weights(6)
    x = batch()

    def build(call):
        def innermost(h):
            return block(block(h, leaves[2]), leaves[3])

        def middle(h):
            return block(call(innermost, block(h, leaves[1])), leaves[4]) + h

        h = call(lambda h: call(middle, block(h, leaves[0])) * h, x)
        return call(lambda h: block(h, leaves[5]), h).sum()

    assert_equal(gradients(lambda: build(segment(replay)), leaves), gradients(lambda: build(plain), leaves))


def test_C07_every_second_layer_in_a_loop_with_a_late_bound_variable(replay):
    leaves = weights(6)
    x = batch()

    def build(call):
        h = x
        for i, w in enumerate(leaves):
            h = call(lambda h: block(h, w), h) if i % 2 else block(h, w)  # noqa: B023
        return h.sum()

    assert_equal(gradients(lambda: build(segment(replay)), leaves), gradients(lambda: build(plain), leaves))


def test_C07_C08_a_nested_segment_over_what_wants_no_gradient(replay):
    (w,) = weights(1)
    x = batch()

    def build(call):
        def inside(v):
            h = ag.dropout(v, 0.3)  # wants no gradient, in a second run either
            return call(lambda: (h @ w, h))

        a, b = call(inside, x * 2.0)
        return ag.tanh(a).sum() + ag.tanh(b).sum()

    assert_equal(gradients(lambda: build(segment(replay)), [w]), gradients(lambda: build(plain), [w]))


def test_C01_a_shared_weight_an_alias_and_an_input_passed_twice(replay):
    leaves = weights(2)
    x = batch()

    def build(call):
        h = call(lambda a, b: (a @ leaves[0]) * ag.tanh(b @ leaves[0]), x @ leaves[1], x @ leaves[1])
        h = call(lambda a, b: a * ag.exp(b * 0.1) + a, h, h)
        return (h @ leaves[0]).sum()

    assert_equal(gradients(lambda: build(segment(replay)), leaves), gradients(lambda: build(plain), leaves))


def test_C01_an_input_returned_as_it_is_and_views_of_it(replay):
    leaves = weights(1)
    x = batch()

    def build(call):
        h = x @ leaves[0]
        same, view, other = call(lambda h: (h, h.T, ag.sin(h)), h)
        return (same * 2).sum() + (view * view).sum() + other.sum()

    assert_equal(gradients(lambda: build(segment(replay)), leaves), gradients(lambda: build(plain), leaves))


def test_C14_several_outputs_of_which_some_are_unused_or_detached(replay):
    leaves = weights(2)
    x = batch()

    def build(call):
        def inside(x):
            h = block(x, leaves[0])
            return {
                "used": ag.exp(h),
                "unused": ag.sin(h @ leaves[1]),
                "detached": h.detach(),
                "count": 3,
                "labels": h.argmax(1),
            }

        out = call(inside, x)
        assert out["count"] == 3
        assert not out["detached"].requires_grad
        assert not out["labels"].requires_grad
        return (out["used"] * out["detached"]).sum()

    found = gradients(lambda: build(segment(replay)), leaves)
    assert found[1][1] is None
    assert_equal(found, gradients(lambda: build(plain), leaves))


def test_C01_parts_under_no_grad_and_detached_parts_inside(replay):
    leaves = weights(2)
    x = batch()

    def build(call):
        def inside(x):
            h = block(x, leaves[0])
            with ag.no_grad():
                scale = ag.exp(h).mean()
            return h * scale + block(h.detach(), leaves[1])

        return call(inside, x).sum()

    assert_equal(gradients(lambda: build(segment(replay)), leaves), gradients(lambda: build(plain), leaves))


def test_C19_double_backward_and_products_with_the_hessian(replay):
    (w,) = weights(1)
    x, v = batch(), batch(5)

    def build(call):
        return lambda x: call(lambda h: ag.sin(h @ w.detach()) * ag.exp(h * 0.1), x * x).sum()

    f, g = build(segment(replay)), build(plain)
    assert_close(ag.hvp(f, x, v).numpy(), ag.hvp(g, x, v).numpy(), rtol=1e-11)
    assert_close(ag.jvp(f, x, v)[1].numpy(), ag.jvp(g, x, v)[1].numpy(), rtol=1e-11)

    def squared_slope(h):
        return ag.grad(lambda x: (ag.grad(h)(x) ** 2).sum())(x).numpy()

    twice = squared_slope(f), squared_slope(g)
    assert_close(twice[0], twice[1], rtol=1e-11)
    if not is_adapter():  # differences of float32 numbers are too coarse for it
        assert ag.testing.gradcheck(
            lambda x: ag.checkpoint(lambda h: ag.tanh(h) * h, x * x, replay=replay), (batch(2, 3, 2),), order=2
        )


def test_C19_create_graph_then_backward_of_the_gradient(replay):
    (w,) = weights(1)
    x = batch()
    results = []
    for call in (segment(replay), plain):
        w.grad = None
        with ag.grad_tape():
            loss = call(lambda x: ag.tanh(x @ w), x).sum()
            loss.backward(create_graph=True)
            first = w.grad
            w.grad = None
            penalty = (first * first).sum()
        penalty.backward()
        results.append(w.grad.numpy())
    assert_close(results[0], results[1], rtol=1e-11)


def test_C19_retain_graph_and_a_second_backward(replay):
    leaves = weights(2)
    x = batch()

    def run(call):
        for leaf in leaves:
            leaf.grad = None
        with ag.grad_tape():
            h = call(lambda x: block(x, leaves[0]), x)
            a, b = (h @ leaves[1]).sum(), ag.exp(h).sum()
        a.backward(retain_graph=True)
        b.backward()
        return 0, [leaf.grad.numpy() for leaf in leaves]

    assert_equal(run(segment(replay)), run(plain))


def test_C19_backward_for_some_leaves_and_grad_for_a_captured_value(replay):
    leaves = weights(2)
    x = batch()

    def build(call):
        return call(lambda x: block(x, leaves[0]) @ leaves[1], x).sum()

    expected = gradients(lambda: build(plain), leaves)[1]
    for wanted, other in (leaves, leaves[::-1]):
        wanted.grad = other.grad = None
        with ag.grad_tape():
            loss = build(segment(replay))
        loss.backward(inputs=[wanted])
        assert other.grad is None
        assert_close(wanted.grad.numpy(), expected[0 if wanted is leaves[0] else 1], rtol=1e-12)

    def through(call):
        def f(x):
            h = ag.exp(x * 0.1)  # captured by the segment, not passed to it
            return call(lambda: ag.sin(h) * h).sum()

        return ag.grad(f)(x).numpy()

    assert_close(through(segment(replay)), through(plain), rtol=1e-12)


def test_C19_two_losses_two_tapes_and_nested_tapes_around_a_segment(replay):
    leaves = weights(2)
    x = batch()

    def run(call):
        for leaf in leaves:
            leaf.grad = None
        with ag.grad_tape(), ag.grad_tape():
            h = call(lambda x: block(x, leaves[0]), x)
            inner = (h @ leaves[1]).sum()
        inner.backward()
        return inner.item(), [leaf.grad.numpy() for leaf in leaves]

    assert_equal(run(segment(replay)), run(plain))


def test_C19_a_gradient_taken_inside_the_segment(replay):
    leaves = weights(1)
    x = batch()

    def build(call):
        def inside(x):
            slope = ag.grad(lambda h: (ag.sin(h @ leaves[0]) * h).sum())(x)
            return ag.tanh(slope @ leaves[0])

        return call(inside, x * 0.5).sum()

    assert_equal(gradients(lambda: build(segment(replay)), leaves), gradients(lambda: build(plain), leaves), rtol=1e-11)


def test_C10_outside_a_tape_and_under_no_grad_it_just_calls(replay):
    x = batch()
    calls = []

    def f(x):
        calls.append(x)
        return ag.exp(x), object

    out, thing = ag.checkpoint(f, x, replay=replay)
    assert thing is object
    assert calls == [x]
    assert_close(out.numpy(), np.exp(x.numpy()), rtol=1e-14)
    with ag.grad_tape() as tape, ag.no_grad():
        ag.checkpoint(f, x, replay=replay)
    assert ag.tape_memory(tape).by_segment == []


def test_C01_accumulation_over_two_passes(replay):
    leaves = weights(1)
    x = batch()

    def run(call):
        leaves[0].grad = None
        for scale in (1.0, 3.0):
            with ag.grad_tape():
                loss = (call(lambda x: block(x, leaves[0]), x) * scale).sum()
            loss.backward()
        return loss.item(), [leaves[0].grad.numpy()]

    assert_equal(run(segment(replay)), run(plain))


def test_C01_indexing_concatenation_and_updates_of_fresh_tensors_inside(replay):
    leaves = weights(1)
    x = batch()

    def build(call):
        def inside(h):
            rows = h[::2] @ leaves[0]
            both = ag.concat([rows, ag.sin(h[1::2])])
            canvas = ag.zeros((16, 8), dtype=float_type())
            canvas[2:10] = both[:8] * both[:8]
            canvas += ag.exp(both * 0.1)
            return ag.softmax(canvas, axis=-1) * canvas[ag.tensor([1, 1, 3, 0] * 4)]

        return call(inside, x @ leaves[0]).sum()

    assert_equal(gradients(lambda: build(segment(replay)), leaves), gradients(lambda: build(plain), leaves))


def test_C01_constants_among_many_inputs_stay_constants(replay):
    w = ag.param(np.ones(1, "float32"))
    with ag.grad_tape():
        constant = (w * 5).detach()
        given = [w * 1 for _ in range(32)] + [constant]
        y = ag.checkpoint(lambda *a: sum(a[1:], a[0]), *given, replay=replay).sum()
        y.backward(create_graph=True)
    assert w.grad.item() == 32


def test_C11_a_value_kept_aside_has_its_gradient_or_is_an_error(replay):
    w, aside = ag.param(np.full(1, 3.0, "float32")), []

    def fn(x):
        aside.append((x * w).sum())
        return x * w

    with ag.grad_tape():
        y = ag.checkpoint(fn, ag.tensor([2.0]), replay=replay)
        loss = y.sum() + 0.5 * aside[0]
    if replay == "trace":
        loss.backward()
        assert w.grad.item() == 3.0
    else:
        with pytest.raises(RuntimeError, match="computed and did not return"):
            loss.backward()
    with ag.grad_tape():
        y = ag.checkpoint(fn, ag.tensor([2.0]), replay=replay)
        loss = y.sum() + 0.5 * aside[-1].detach()
    w.grad = None
    loss.backward()
    assert w.grad.item() == 2.0

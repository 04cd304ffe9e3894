"""The traps that users of other libraries fell into, one test each: the right gradient, or an error that names what is wrong."""

import gc
import re
import threading

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import (
    REPLAYS,
    Counted,
    assert_equal,
    batch,
    block,
    gradients,
    plain,
    segment,
    weights,
)
from fresh_process import run_python
from on_device import assert_close, float_type
from pool_bytes import active

GLOBAL = 1.0


def set_global(value):
    global GLOBAL
    GLOBAL = value


@pytest.mark.parametrize("replay", REPLAYS)
def test_C11_a_python_global_that_changes(replay):
    (w,) = weights(1)
    x = batch()
    set_global(1.0)
    expected = gradients(lambda: (block(x, w) * GLOBAL).sum(), [w])
    w.grad = None
    with ag.grad_tape():
        loss = ag.checkpoint(lambda h: block(h, w) * GLOBAL, x, replay=replay).sum()
    set_global(7.0)
    if replay == "trace":
        loss.backward()
        assert_equal((loss.item(), [w.grad.numpy()]), expected)
    else:
        with pytest.raises(RuntimeError, match=r"was given other numbers.*full at .*test_traps\.py:\d+"):
            loss.backward()


@pytest.mark.parametrize("replay", REPLAYS)
def test_C11_eval_mode_before_backward(replay):
    (w,) = weights(1)
    x = batch()
    drop = ag.nn.Dropout(0.5)

    def run(call, end):
        drop.train()
        w.grad = None
        ag.manual_seed(3)
        with ag.grad_tape():
            # The square's rule reads what came out of the dropout, so the replay draws the mask and multiplies again.
            loss = call(lambda h: drop(h @ w) ** 2, x).sum()
        end()
        loss.backward()
        return loss.item(), [w.grad.numpy()]

    if replay == "trace":
        expected = run(plain, drop.train)
        assert_equal(run(segment(replay), drop.eval), expected)
        drop.eval()
        in_eval = gradients(lambda: (drop(x @ w) ** 2).sum(), [w])[1][0]
        assert np.abs(in_eval - expected[1][0]).max() > 0.1, "the mask makes no difference"
    else:
        with pytest.raises(
            RuntimeError, match=r"op 1 is another op: uniform at .* in the first run, square at .* in the second"
        ):
            run(segment(replay), drop.eval)


@pytest.mark.parametrize("replay", REPLAYS)
def test_C08_noise_made_before_it_is_used(replay):
    """Noise that is a saved value in its own right, as in a randomized leaky ReLU (pytorch#193671)."""
    (w,) = weights(1)
    x = batch()

    def rrelu(h):
        slope = ag.uniform(0.1, 0.3, (16, 8)).astype(float_type())
        return ag.where(h > 0, h, h * slope)

    def build(call):
        return call(lambda h: rrelu(h @ w), x).sum()

    assert_equal(gradients(lambda: build(segment(replay)), [w]), gradients(lambda: build(plain), [w]))


@pytest.mark.parametrize("replay", REPLAYS)
def test_C13_a_handler_in_the_segment_never_sees_a_signal_of_ours(replay):
    (w,) = weights(1)
    seen = []

    def inside(h):
        try:
            return ag.sin(h @ w)
        except BaseException as error:
            seen.append(error)
            raise
        finally:
            seen.append("end")

    x = batch()
    found = gradients(lambda: ag.checkpoint(inside, x, replay=replay).sum(), [w])
    assert seen == ["end"] * (1 if replay == "trace" else 2)
    assert_equal(found, gradients(lambda: ag.sin(x @ w).sum(), [w]))


@pytest.mark.parametrize("replay", REPLAYS)
def test_C01_an_in_place_change_of_a_view_as_output(replay):
    (w,) = weights(1)
    x = batch()

    def inside(h):
        h = h @ w
        rows = h[::2]
        rows *= ag.sin(rows)
        h[0] = rows[1] * 2.0
        return rows, h

    def build(call):
        rows, h = call(inside, x)
        return (rows * rows).sum() + h.sum()

    assert_equal(gradients(lambda: build(segment(replay)), [w]), gradients(lambda: build(plain), [w]))


@pytest.mark.parametrize("replay", REPLAYS)
def test_C01_segments_compose_in_a_loop_and_every_leaf_is_reached(replay):
    leaves = weights(9)
    x = batch()

    def build(call):
        h = x
        for i in range(0, 9, 3):
            h = call(lambda h, part: block(block(block(h, part[0]), part[1]), part[2]), h, leaves[i : i + 3])
        return h.sum()

    found = gradients(lambda: build(segment(replay)), leaves)
    assert all(g is not None and np.abs(g).max() > 0 for g in found[1])
    assert_equal(found, gradients(lambda: build(plain), leaves))


@pytest.mark.parametrize("replay", REPLAYS)
def test_C19_a_mixed_second_derivative(replay):
    (w,) = weights(1)
    x = batch()

    def energy(call):
        def force(x):
            return ag.grad(lambda x: call(lambda h: ag.tanh(h @ w) ** 2, x).sum())(x)

        return call(lambda x: force(x) * ag.sin(x @ w), x * 0.7).sum()

    assert_equal(gradients(lambda: energy(segment(replay)), [w]), gradients(lambda: energy(plain), [w]), rtol=1e-10)


@pytest.mark.parametrize("replay", REPLAYS)
def test_C01_a_frozen_part_before_the_segment(replay):
    frozen, w = weights(2)
    frozen.requires_grad_(False)
    x = batch()
    found = gradients(lambda: ag.checkpoint(block, block(x, frozen), w, replay=replay).sum(), [frozen, w])
    assert found[1][0] is None
    assert_equal(found, gradients(lambda: block(block(x, frozen), w).sum(), [frozen, w]))


@pytest.mark.parametrize("replay", REPLAYS)
def test_C01_dtypes_change_inside_as_they_did(replay):
    (w,) = weights(1)
    x = batch()

    def inside(h):
        low = h.astype("bfloat16") @ w.astype("bfloat16")
        return ag.tanh(low).astype("float32") * 2.0

    expected = gradients(lambda: inside(x).sum(), [w])
    assert_equal(gradients(lambda: ag.checkpoint(inside, x, replay=replay).sum(), [w]), expected)


def test_C15_a_cache_that_grew_names_the_first_op_with_another_shape():
    (w,) = weights(1)
    x = batch()
    cache = []

    def inside(h):
        cache.append(h @ w)
        return ag.concat(cache).sum(0)

    with ag.grad_tape():
        loss = ag.checkpoint(inside, x).sum()
    loss.backward()
    found, w.grad = w.grad.numpy(), None
    cache.clear()
    assert_close(found, gradients(lambda: inside(x).sum(), [w])[1][0], rtol=1e-12)
    cache.clear()
    with ag.grad_tape():
        loss = ag.checkpoint(inside, x, replay="call").sum()
    with pytest.raises(RuntimeError, match=r"op 1 .*(concat|sum) at .*test_traps\.py:\d+"):
        loss.backward()


def test_C15_routing_that_differs_names_the_line():
    (w,) = weights(1)
    sizes = iter([5, 6])

    def inside(h):
        return (h @ w)[: next(sizes)] * 2.0

    with ag.grad_tape():
        loss = ag.checkpoint(inside, batch(), replay="call").sum()
    with pytest.raises(
        RuntimeError, match=r"op 1 has another shape, dtype or attribute: slice at .*test_traps\.py:\d+"
    ):
        loss.backward()


@pytest.mark.parametrize("replay", REPLAYS)
def test_C02_a_shared_weight_used_twice_in_each_of_two_passes_gets_one_sum_a_pass(replay):
    (w,) = weights(1)

    def build(call, x):
        h = call(block, x, w)
        return call(lambda h: block(h, w) + block(h * 0.5, w), h).sum()

    def passes(call):
        w.grad = None
        sums = []
        for seed in (1, 2):
            with ag.grad_tape():
                loss = build(call, batch(seed))
            loss.backward()
            sums.append(w.grad.numpy().copy())
        return loss.item(), sums

    found = passes(segment(replay))
    assert_equal(found, passes(plain))
    alone = [gradients(lambda: build(plain, batch(seed)), [w])[1][0] for seed in (1, 2)]  # noqa: B023
    assert_equal((0, found[1]), (0, [alone[0], alone[0] + alone[1]]))


def test_C09_an_error_in_backward_leaves_every_flag():
    (w,) = weights(1)
    op = ag.custom_gradient(lambda x: x * 1.0, lambda g, i, o: 1 / 0, name="broken")
    x = batch()
    for replay in REPLAYS:
        with ag.grad_tape():
            loss = ag.checkpoint(lambda h: op(h @ w), x, replay=replay).sum()
        before = (ag.get_rng_state(), ag.is_replaying(), ag.is_grad_enabled())
        with pytest.raises(ZeroDivisionError):
            loss.backward()
        assert before == (ag.get_rng_state(), ag.is_replaying(), ag.is_grad_enabled())
        gradients(lambda: ag.checkpoint(block, x, w, replay=replay).sum(), [w])  # noqa: B023


@pytest.mark.parametrize("replay", REPLAYS)
def test_C13_two_threads_over_two_losses_of_one_segment(replay):
    leaves = weights(3)
    x = batch()
    expected = gradients(
        lambda: (block(x, leaves[0]) @ leaves[1]).sum() + ag.exp(block(x, leaves[0]) @ leaves[2]).sum(), leaves
    )[1]
    for _ in range(5):
        for leaf in leaves:
            leaf.grad = None
        f = Counted(lambda h: block(h, leaves[0]))
        with ag.grad_tape():
            h = ag.checkpoint(f, x, replay=replay)
            losses = (h @ leaves[1]).sum(), ag.exp(h @ leaves[2]).sum()
        threads = [threading.Thread(target=loss.backward, kwargs={"retain_graph": True}) for loss in losses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert f.calls == (1 if replay == "trace" else 3)
        for leaf, g in zip(leaves, expected):
            assert_close(leaf.grad.numpy(), g, rtol=1e-12)


def test_C13_nothing_is_computed_past_what_a_rule_reads():
    (w,) = weights(1)
    x = batch()

    def replayed_nodes(last):
        ag.eval(w, x)
        with ag.grad_tape():
            loss = ag.checkpoint(lambda h: last(ag.sin(h @ w)), x).sum()
            loss.item()
        with ag.options(fuse=False):
            loss.backward()
        return ag.last_plan().nodes

    # A dear last op whose rule reads only its input adds its gradient, not itself.
    assert replayed_nodes(lambda h: h @ ag.ones((8, 8), dtype=float_type())) - replayed_nodes(lambda h: h * 1.0) <= 3


@pytest.mark.parametrize("end", ["backward", "clear"])
@pytest.mark.parametrize("replay", REPLAYS)
def test_C20_an_object_that_caches_its_output_is_freed_by_backward_and_by_clear(replay, end):
    gc.collect()
    gc.disable()
    try:

        class Layer:
            def __init__(self, w):
                self.w = w

            def __call__(self, x):
                self.out = block(x, self.w)
                return self.out

        (w,) = weights(1)
        x = batch()
        ag.eval(w, x)
        held = []
        for _ in range(4):
            layer = Layer(w)
            with ag.grad_tape() as tape:
                layer.result = ag.checkpoint(layer, x, replay=replay)
                loss = layer.result.sum()
            loss.backward() if end == "backward" else tape.clear()
            del loss
            w.grad = None
            del layer
            held.append(active())
        assert len(set(held)) == 1
    finally:
        gc.enable()


def test_C20_a_decorated_function_keeps_no_call():
    (w,) = weights(1)

    @ag.checkpoint(replay="call")
    def layer(x):
        return block(x, w)

    x = batch()
    ag.eval(w, x)
    before = active()
    with ag.grad_tape():
        loss = layer(x * 2.0).sum()
    del loss
    assert active() == before


RESET = """
    import agtape as ag

    w = ag.param([[0.5]])
    with ag.grad_tape():
        loss = ag.checkpoint(lambda h: ag.sin(h @ w), ag.ones((2, 1))).sum()
        loss.item()
    ag.reset()
    try:
        loss.backward()
    except RuntimeError as error:
        print(error)
"""


def test_C11_a_weight_whose_pool_was_reset_is_an_error_about_its_handle():
    assert re.search(r"stale handle.*generation", run_python(RESET))

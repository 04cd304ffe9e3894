"""What segments hold, in pool bytes: after the forward pass their inputs, in backward one segment's interior, afterwards nothing."""

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import REPLAYS, Counted, batch, block, plain, segment, value_bytes, weights
from on_device import assert_close, float_type, is_adapter
from pool_bytes import active, class_bytes

pytestmark = pytest.mark.usefixtures("no_collector")


def deep(h, ws):
    for w in ws:
        h = block(h, w)
    return h


@pytest.mark.parametrize("replay", REPLAYS)
def test_C04_holding_the_output_holds_no_interior_value(replay):
    ws = weights(6)
    x = batch()
    ag.eval(x, ws)
    before = active()
    with ag.grad_tape():
        out = ag.checkpoint(deep, x, ws, replay=replay)
        ag.eval(out)
        assert active() - before == value_bytes()
        loss = out.sum()
    loss.backward()
    assert all(w.grad is not None for w in ws)


@pytest.mark.parametrize("replay", REPLAYS)
def test_C05_after_the_loss_alone_only_what_enters_segments_is_held(replay):
    ws = weights(6)
    x = batch()
    ag.eval(x, ws)
    before = active()
    with ag.grad_tape() as tape:
        h = x
        for i in range(0, 6, 2):
            h = ag.checkpoint(deep, h, ws[i : i + 2], replay=replay)
        loss = h.sum()
        del h
    loss.item()
    # The second and third segment's inputs, and the loss; the first one's input is the user's.
    assert active() - before == 2 * value_bytes() + 64
    report = ag.tape_memory(tape)
    assert report.bytes_activations == 2 * value_bytes()
    assert len(report.by_segment) == 3
    loss.backward()
    grads = sum(class_bytes(w.nbytes) for w in ws)
    assert active() - before == grads + 64


def test_C05_a_mask_is_dropped_with_the_rest():
    (w,) = weights(1)
    x = batch()
    before = active()
    with ag.grad_tape():
        loss = ag.checkpoint(lambda h: ag.dropout(ag.exp(ag.dropout(h @ w, 0.5)), 0.5), x).sum()
    loss.item()
    assert active() - before == 64
    loss.backward()


@pytest.mark.parametrize("replay", REPLAYS)
def test_C06_in_backward_one_segment_lives_at_a_time(replay):
    width, rows, layers = 64, 512, 12
    value = value_bytes(rows, width)

    def peak(call, size):
        ws = weights(layers, width=width)
        x = batch(rows=rows, width=width)
        ag.eval(x, ws)
        before = active()
        with ag.peak_memory() as m, ag.grad_tape():
            h = x
            for i in range(0, layers, size):
                h = call(deep, h, ws[i : i + size])
            loss = h.sum()
            del h
            loss.item()
            loss.backward()
        after = active() - before
        assert after == sum(class_bytes(w.nbytes) for w in ws) + 64
        return (m.peak - before - after) / value

    whole, thirds = peak(plain, 4), peak(segment(replay), 4)
    singles = peak(segment(replay), 1)
    # A block keeps five values for its gradient; four are rebuilt at a time, beside two boundaries and the gradients under way.
    assert thirds < 4 * 5 + 2 + 6
    assert singles < layers + 12
    assert thirds < 0.5 * whole


def test_C06_no_interior_survives_backward_even_when_the_output_is_held():
    ws = weights(4)
    x = batch()
    ag.eval(x, ws)
    with ag.grad_tape():
        out = ag.checkpoint(deep, x, ws)
        loss = out.sum()
    before = active()
    loss.backward()
    grads = sum(class_bytes(w.nbytes) for w in ws)
    assert active() - before == grads + value_bytes() + 64
    assert out.shape == (16, 8)


def test_C06_a_nested_segment_is_rebuilt_only_when_the_walk_reaches_it():
    width, rows = 64, 512
    value = value_bytes(rows, width)

    def peak(call):
        ws = weights(16, width=width)
        x = batch(rows=rows, width=width)
        ag.eval(x, ws)
        before = active()

        def outer(h):
            for i in range(0, 16, 4):
                h = call(deep, h, ws[i : i + 4])
            return h

        with ag.grad_tape():
            loss = ag.checkpoint(outer, x).sum()
            loss.item()
        with ag.peak_memory() as m:
            loss.backward()
        return (m.peak - before) / value

    flat, nested = peak(plain), peak(ag.checkpoint)
    assert nested < 0.6 * flat


def test_C13_trace_calls_once_and_call_twice():
    ws = weights(2)
    for replay, calls in (("trace", 1), ("call", 2)):
        f = Counted(deep)
        with ag.grad_tape():
            loss = ag.checkpoint(f, batch(), ws, replay=replay).sum()
        loss.backward()
        assert f.calls == calls


def test_C13_each_segment_is_rebuilt_once_and_only_as_far_as_needed():
    ws = weights(4)
    x = batch()

    def nodes(call):
        for w in ws:
            w.grad = None
        ag.eval(x, ws)
        with ag.grad_tape():
            h = call(lambda h: ag.exp(ag.sin(h @ ws[0])) @ ws[1], x)
            loss = call(lambda h: ag.exp(ag.sin(h @ ws[2])) @ ws[3], h).sum()
        loss.backward()
        return ag.last_plan().nodes

    with ag.options(fuse=False):
        # Rebuilt: the product, its sine and the exponential, once in each segment; not the last product, whose value no rule reads.
        assert nodes(ag.checkpoint) - nodes(plain) == 2 * 3
    assert ag.last_backward().segments_replayed == 0


def test_R10_the_backward_pass_tells_how_many_segments_it_replayed():
    ws = weights(6)
    for replay in REPLAYS:
        with ag.grad_tape():
            h = batch()
            for w in ws:
                h = ag.checkpoint(block, h, w, replay=replay)
            loss = h.sum()
        loss.backward()
        last = ag.last_backward()
        assert last.segments_replayed == 6
        assert last.path == "resident"
        assert last.kernels > 0
        assert last.bytes > 0
    with ag.grad_tape():
        # Nothing in it is read by a gradient rule: nothing is rebuilt.
        loss = ag.checkpoint(lambda h: h + ws[0][0] * 2.0, batch()).sum()
    loss.backward()
    assert ag.last_backward().segments_replayed == 0


def test_C13_the_second_step_hits_the_plan_cache():
    ws = weights(4)
    x = batch()
    for i in range(3):
        with ag.grad_tape():
            loss = ag.checkpoint(deep, ag.checkpoint(deep, x, ws[:2]), ws[2:]).sum()
        loss.backward()
        assert ag.last_plan().cache_hit == (i > 0)
        for w in ws:
            w.grad = None


def test_C13_a_replay_is_not_merged_with_the_forward_pass():
    w, other = weights(2)
    x = batch()

    def kernels(call):
        w.grad = other.grad = None
        ag.eval(w, other, x)
        with ag.grad_tape():
            loss = call(lambda h: ag.exp(ag.tanh(h)) @ other, x @ w).sum()
        loss.backward()
        return ag.last_plan().kernels

    # The factor of the product is computed twice, by two kernels over the same input.
    assert kernels(ag.checkpoint) == kernels(plain) + 1


@pytest.mark.parametrize("replay", REPLAYS)
def test_C18_the_report_says_what_a_segment_keeps_drops_and_costs(replay):
    (w,) = weights(1)
    x = batch()
    with ag.grad_tape() as tape:
        h = x @ w
        # Saved by rules inside: the sine's argument, the exponential's value.
        out = ag.checkpoint(lambda h: ag.exp(ag.sin(h @ w)), h, replay=replay, name="block")
        loss = (out * 2.0).sum()
        del out
    (row,) = ag.tape_memory(tape).by_segment
    assert row.name == "block"
    assert row.kept == value_bytes()
    assert row.dropped == 2 * value_bytes()
    product, elementwise = 2 * 16 * 8 * 8, 4 * 2 * 16 * 8
    assert row.replay_cost == product + 2 * elementwise
    assert not row.saves_nothing
    loss.backward()
    assert ag.tape_memory(tape).by_segment == []


@pytest.mark.parametrize("replay", REPLAYS)
def test_C18_a_segment_that_saves_nothing_says_so_in_text_and_in_html(replay):
    ws = weights(2)
    with ag.grad_tape() as tape:
        h = batch() @ ws[0]
        # The first keeps what entered it, to drop one value; the second drops three.
        h = ag.checkpoint(ag.sin, h, replay=replay, name="single")
        loss = ag.checkpoint(block, h, ws[1], replay=replay, name="layer").sum()
        del h
    report = ag.tape_memory(tape)
    single, layer = report.by_segment
    assert single.dropped <= single.kept and single.saves_nothing
    assert layer.dropped > layer.kept and not layer.saves_nothing
    for text in (repr(report), report._repr_html_()):
        assert text.count("saves nothing") == 1 and "single (saves nothing)" in text
    del loss


def test_C18_a_segment_that_saves_nothing_says_so_and_nested_ones_are_named():
    (w,) = weights(1)
    with ag.grad_tape() as tape:
        h = batch() @ w
        sum_of = ag.checkpoint(lambda h: h + h, h, name="linear")
        out = ag.checkpoint(lambda h: ag.checkpoint(ag.sin, h, name="inner") * 2.0, sum_of, name="outer")
        loss = out.sum()
    rows = {row.name: row for row in ag.tape_memory(tape).by_segment}
    assert set(rows) == {"linear", "outer", "outer / inner"}
    assert rows["linear"].dropped == 0
    assert rows["linear"].kept == 0
    assert rows["outer"].dropped == 0
    assert all(row.saves_nothing for row in rows.values())
    # Nothing of the first segment is read by a gradient rule, so what entered it is let go.
    del h, sum_of, out
    loss.item()
    assert ag.tape_memory(tape).bytes_activations == value_bytes()
    loss.backward()


@pytest.mark.parametrize("replay", REPLAYS)
def test_M03_clear_frees_what_the_report_says_with_segments(replay):
    ws = weights(6)
    x, scale = batch(), batch(4)
    with ag.grad_tape() as tape:
        # The mask is read by nodes of the segment that want no gradient, and held by nobody else.
        part = lambda h, mask: ag.where(ag.logical_not(mask), deep(h, ws[:3]), h)  # noqa: E731
        h = ag.checkpoint(part, x @ ws[5], ag.exp(scale) > 1.0, replay=replay)
        h = ag.checkpoint(deep, h, ws[3:5], replay=replay)
        loss = h.sum()
        kept = h[1:] * 1.0
        del h
    ag.eval(loss, kept)
    freed = ag.tape_memory(tape).bytes_freed_by_clear
    before = active()
    tape.clear()
    assert before - active() == freed > 2 * value_bytes()
    assert kept.shape == (15, 8)


@pytest.mark.parametrize("replay", REPLAYS)
def test_C06_steps_leave_nothing_behind(replay):
    ws = weights(3)
    x = batch()
    held = []
    for i in range(40):
        with ag.grad_tape():
            loss = ag.checkpoint(deep, x, ws, replay=replay).sum()
        if i % 3:
            loss.backward()
        del loss
        for w in ws:
            w.grad = None
        held.append(active())
    assert len(set(held[5:])) == 1


def test_C06_a_chain_of_many_nodes_neither_recurses_nor_keeps_its_values():
    x = ag.param(np.full(4, 0.5), dtype=float_type())

    def chain(h):
        for _ in range(100 if is_adapter() else 30_000):
            h = ag.sin(h)
        return h

    with ag.grad_tape():
        out = ag.checkpoint(chain, x)
        loss = out.sum()
    before = active()
    loss.backward()
    assert active() - before <= 4096
    with ag.grad_tape():
        plain_loss = chain(x).sum()
    found, x.grad = x.grad.numpy(), None
    plain_loss.backward()
    assert_close(found, x.grad.numpy(), rtol=1e-12)

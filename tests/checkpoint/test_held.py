"""What Python variables hold of segments: it stays, is used by the replay as it is, and the report names it."""

import agtape as ag
import pytest
from checkpoint.models import REPLAYS, batch, block, value_bytes, weights
from pool_bytes import active

pytestmark = pytest.mark.usefixtures("no_collector")


def test_C05_a_python_variable_inside_is_held_and_used_itself():
    ws = weights(2)
    x = batch()
    kept = []

    def inside(h):
        h = block(h, ws[0])
        kept.append(h)
        return block(h, ws[1])

    before = active()
    with ag.grad_tape() as tape:
        out = ag.checkpoint(inside, x)
        loss = out.sum()
    ag.eval(loss, out)
    assert active() - before == 2 * value_bytes() + 64
    dropped = ag.tape_memory(tape).by_segment[0].dropped
    kept.clear()
    assert active() - before == value_bytes() + 64
    assert ag.tape_memory(tape).by_segment[0].dropped == dropped + value_bytes()
    del out


@pytest.mark.parametrize("replay", REPLAYS)
def test_C05_what_variables_hold_of_nested_segments_is_counted_and_named(replay):
    ws = weights(3)
    x = batch()
    kept = []

    def inner(h):
        h = block(h, ws[1])
        # Wanting no gradient it is on no tape.
        with ag.no_grad():
            kept.append(ag.sin(h))
        return h

    def outer(h):
        h = block(h, ws[0])
        kept.append(ag.exp(h))
        first, second = ag.split(block(ag.checkpoint(inner, h, replay=replay, name="inner"), ws[2]), 2)
        kept.append(second)
        return first

    ag.eval(x, ws)
    before = active()
    with ag.grad_tape() as tape:
        loss = ag.checkpoint(outer, x, replay=replay, name="outer").sum()
    assert ag.tape_memory(tape).held_in_segments == []  # nothing has memory yet
    ag.eval(loss, kept)
    rows = {row.name: row for row in ag.tape_memory(tape).held_in_segments}
    # The half that is not returned is a view of the whole.
    assert {name: (row.segment.split(" / ")[-1], row.op, row.bytes) for name, row in rows.items()} == {
        "kept[0]": ("outer", "exp", value_bytes()),
        "kept[1]": ("inner", "sin", value_bytes()),
        "kept[2]": ("outer", rows["kept[2]"].op, value_bytes()),
    }
    assert rows["kept[0]"].shape == [16, 8] and rows["kept[2]"].shape == [8, 8]
    assert active() - before == sum(row.bytes for row in rows.values()) + 64
    del rows
    kept.clear()
    assert ag.tape_memory(tape).held_in_segments == []
    assert active() - before == 64
    loss.backward()
    assert all(w.grad is not None for w in ws)

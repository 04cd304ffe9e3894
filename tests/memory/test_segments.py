"""The report's view of checkpoint segments: what each keeps and drops, what its replay costs, and which of its values are held."""

import ast

import agtape as ag
import numpy as np
import pytest
from pool_bytes import active, class_bytes

N = 5000
BYTES = class_bytes(4 * N)


def block(h, w):
    return ag.tanh(ag.exp(h * w))


def record(layers=3, hold=None):
    """A chain of segments; `hold` gets an interior value of the first."""
    ws = [ag.param(np.full(N, 0.1, np.float32)) for _ in range(layers)]
    with ag.grad_tape() as tape:
        h = ag.tensor(np.ones(N, np.float32))

        def first(h, w):
            inner = ag.exp(h * w)
            if hold is not None:
                hold.append(inner)
            return ag.tanh(inner)

        for i, w in enumerate(ws):
            h = ag.checkpoint(first if i == 0 else block, h, w, name=f"layer {i}")
        loss = h.sum()
    return tape, ws, loss


def test_M01_segments_are_rows_with_what_they_keep_and_drop():
    tape, ws, loss = record()
    report = ag.tape_memory(tape)
    assert [r.name for r in report.by_segment] == ["layer 0", "layer 1", "layer 2"]
    for i, row in enumerate(report.by_segment):
        # The first one's input is a leaf, which is no activation. exp's result is dropped; tanh's is the next one's input.
        assert row.kept == (0 if i == 0 else BYTES)
        assert row.dropped == (2 * BYTES if i == 2 else BYTES)
        assert row.replay_cost > 4 * N
    for text in (repr(report), report._repr_html_()):
        assert "layer 1" in text and "replay cost" in text
    assert report.to_dict()["by_segment"][0]["name"] == "layer 0"
    assert len(ag.tape_memory(tape, top=1).by_segment) == 3 and "layer 1" not in repr(ag.tape_memory(tape, top=1))
    del ws, loss


def test_M03_what_segments_keep_is_held_and_freed_to_the_byte():
    tape, ws, loss = record()
    loss.item()
    report, before = ag.tape_memory(tape), active()
    assert report.bytes_held == report.bytes_needed == report.bytes_operands + report.bytes_activations
    assert report.bytes_activations == 2 * BYTES  # the inputs of the second and third segment
    assert report.bytes_operands == 4 * BYTES  # the weights, and the batch that only recipes keep
    tape.clear()
    assert before - active() == report.bytes_freed_by_clear == 3 * BYTES
    assert ag.tape_memory(tape).by_segment == []
    del ws, loss


def test_C05_a_value_of_a_segment_that_a_variable_holds_is_named():
    kept = []
    tape, ws, loss = record(hold=kept)
    ag.eval(loss, kept)
    report = ag.tape_memory(tape)
    (row,) = [r for r in report.held_in_segments if r.op == "exp"]
    assert (row.segment, row.bytes, row.shape, row.name) == ("layer 0", BYTES, [N], "kept[0]")
    assert "layer 0: exp" in repr(report) and "kept[0]" in report._repr_html_()
    kept.clear()
    del row
    assert [r for r in ag.tape_memory(tape).held_in_segments if r.op == "exp"] == []
    before = active()
    expected = ag.tape_memory(tape).bytes_freed_by_clear
    tape.clear()
    assert before - active() == expected
    del ws, loss


@pytest.mark.parametrize("by", ["op", "segment"])
def test_M08_the_timeline_shows_segments(by):
    with ag.memory_timeline() as timeline:
        tape, ws, loss = record()
        loss.backward()
    layers = timeline.layers(by)
    if by == "segment":
        # The last one's values are made by a kernel that stands for what follows it.
        assert (
            {"layer 0", "layer 1"}
            <= {e.segment for e in timeline.events if e.segment}
            == set(layers)
            & {
                "layer 0",
                "layer 1",
                "layer 2",
            }
        )
    assert all(sum(v[i] for v in layers.values()) == e.live for i, e in enumerate(timeline.events))
    del tape, ws


def test_M09_a_checkpointed_model_is_estimated():
    class Model(ag.nn.Module):
        def __init__(self):
            self.blocks = ag.nn.Sequential(*(ag.nn.Sequential(ag.nn.Linear(64, 64), ag.nn.Tanh()) for _ in range(9)))

        def forward(self, x):
            for i in range(0, 9, 3):
                x = ag.checkpoint(lambda x, part: self._run(x, part), x, self.blocks[i : i + 3])
            return x

        def _run(self, x, part):
            for layer in part:
                x = layer(x)
            return x

    model, x = Model(), ag.randn(2000, 64)
    opt = ag.optim.SGD(model.parameters(), lr=0.1)
    ag.eval(x, *model.parameters())
    estimate = ag.estimate_memory(model, x, opt)
    with ag.peak_memory() as scope:
        with ag.grad_tape():
            loss = model(x).sum()
        loss.backward()
        opt.step()
    assert abs(estimate.peak - scope.peak) <= 0.05 * scope.peak


def test_rows_name_plain_values_only():
    tape, ws, loss = record()
    assert ast.literal_eval(repr(ag.tape_memory(tape).to_dict())) == ag.tape_memory(tape).to_dict()
    del ws, loss


def test_M09_a_segment_that_is_called_again_cannot_be_estimated():
    w = ag.param(np.full(N, 0.1, np.float32))
    before, state = active(), ag.get_rng_state()
    with pytest.raises(RuntimeError, match="estimate_memory"):
        ag.estimate_memory(lambda x: ag.checkpoint(block, x, w, replay="call"), ag.ones(N), None)
    assert (active(), ag.get_rng_state(), w.grad) == (before, state, None)
    with ag.grad_tape():
        loss = ag.checkpoint(block, ag.ones(N), w, replay="call").sum()
    loss.backward()
    assert w.grad.shape == (N,)


def test_M01_thousands_of_segments_are_rows_each():
    held = [record(layers) for layers in (3, 3000)]
    few, many = (ag.tape_memory(tape).by_segment for tape, _, _ in held)
    assert len(many) == 3000

    def figures(rows):
        return {(row.kept, row.dropped, row.replay_cost) for row in rows}

    assert figures(many[1:-1]) == figures(few[1:-1]) and figures(many[-1:]) == figures(few[-1:])

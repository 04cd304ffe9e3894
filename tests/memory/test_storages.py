"""Storages of the report: views that keep a larger one, what is charged to whom, and where it was called."""

import agtape as ag
import numpy as np
import pytest
from pool_bytes import class_bytes

N = 5000
BYTES = class_bytes(4 * N)


def vector(value=0.5):
    return np.full(N, value, np.float32)


@pytest.mark.parametrize("evaluated", [True, False])
def test_M04_a_small_view_is_shown_with_the_storage_it_keeps(evaluated):
    w = ag.param(vector())
    with ag.grad_tape() as tape:
        small = w.exp()[:3]
        loss = (small * w[:3]).sum()
    if evaluated:
        loss.item()
    report = ag.tape_memory(tape)
    row = next(r for r in report.by_storage if r.op == "exp")
    assert (row.bytes, row.bytes_read) == (BYTES, 4 * N)  # exp's own rule reads all of it
    with ag.grad_tape() as tape:
        part = (w + 1.0)[:3]
        loss = (part * part).sum()
    if evaluated:
        loss.item()
    report = ag.tape_memory(tape)
    (row,) = report.by_storage
    assert (row.op, row.kind, row.bytes, row.bytes_read, row.values) == ("add", "activation", BYTES, 12, 1)
    assert row.shape == [N] and row.dtype == "float32"
    assert report.bytes_activations == BYTES
    for text in (repr(report), report._repr_html_()):
        assert "12 B" in text and "20.0 KiB" in text and "view that keeps a larger storage" in text


def test_M04_views_that_share_a_storage_between_them_waste_nothing():
    w = ag.param(vector())
    with ag.grad_tape() as tape:
        left, right = ag.split(w + 1.0, 2)
        loss = (left * right).sum()
    loss.item()
    (row,) = ag.tape_memory(tape).by_storage
    assert (row.bytes, row.bytes_read, row.values) == (BYTES, 4 * N, 2)
    assert "larger storage" not in repr(ag.tape_memory(tape))


def test_M04_a_copy_keeps_nothing_larger():
    w = ag.param(vector())
    with ag.grad_tape() as tape:
        part = (w + 1.0)[:3].copy()
        loss = (part * part).sum()
    loss.item()
    (row,) = ag.tape_memory(tape).by_storage
    assert row.bytes == class_bytes(12)
    assert "larger storage" not in repr(ag.tape_memory(tape))


def test_M02_a_storage_that_a_parameter_took_over_is_an_operand():
    w, p = ag.param(vector()), ag.param(vector())
    with ag.grad_tape() as tape:
        h = w.exp()
        p.assign_(h)
        loss = (h * h).sum() + (p * p).sum()
    loss.item()
    (row,) = [r for r in ag.tape_memory(tape).by_storage if r.is_held]
    assert (row.kind, row.op, row.bytes) == ("operand", "leaf", BYTES)


def test_M02_the_value_of_a_users_op_counts_once():
    double = ag.custom_gradient(lambda x: x * 2.0, lambda g, inputs, output: g * 2.0)
    w = ag.param(vector())
    with ag.grad_tape() as tape:
        y = double(w.exp())
        loss = (y * y).sum()
    pending = ag.tape_memory(tape)
    loss.item()
    computed = ag.tape_memory(tape)
    assert pending.bytes_needed == computed.bytes_needed == 2 * BYTES
    assert pending.bytes_activations == computed.bytes_activations == 2 * BYTES
    assert {r.op for r in computed.by_storage} == {"exp", "custom"}


def test_M02_an_outer_tapes_value_is_an_operand_of_the_inner_one():
    w, v = ag.param(vector()), ag.param(vector())
    with ag.grad_tape() as outer:
        h = w.exp()
        with ag.grad_tape() as inner:
            loss = (h * v).sum()
    loss.item()
    inner_row = next(r for r in ag.tape_memory(inner).by_storage if r.name == "h")
    outer_row = next(r for r in ag.tape_memory(outer).by_storage if r.name == "h")
    assert (inner_row.kind, outer_row.kind) == ("operand", "activation")


def lines_of(tape):
    return {row.line.rsplit(":", 1)[1]: row for row in ag.tape_memory(tape).by_line if ":" in row.line}


def test_lines_are_recorded_on_request_and_add_up():
    w = ag.param(vector())
    with ag.options(source_lines=True) as chosen, ag.grad_tape() as tape:
        assert chosen.source_lines
        h = w.exp()
        loss = (h * w).sum()
    assert not ag.options().source_lines
    here = lines_of.__code__.co_firstlineno + 8
    report = ag.tape_memory(tape)
    rows = lines_of(tape)
    assert {line: row.nodes for line, row in rows.items()} == {str(here): 1, str(here + 1): 2}
    assert rows[str(here)].bytes > BYTES > rows[str(here + 1)].bytes
    assert sum(r.bytes for r in report.by_line) == report.bytes_total
    assert sum(r.nodes for r in report.by_line) == report.nodes
    assert next(r for r in report.by_storage if r.op == "exp").line.endswith(f"test_storages.py:{here}")
    assert f"test_storages.py:{here}" in repr(report)
    assert [r.to_dict() for r in report.by_line] == report.to_dict()["by_line"]
    del loss


def test_without_the_option_no_line_is_recorded():
    w = ag.param(vector())
    with ag.grad_tape() as tape:
        loss = w[ag.tensor([0, 1])].exp().sum()  # indexing remembers its line for its own errors
    report = ag.tape_memory(tape)
    assert report.by_line == [] and "line" not in repr(report)
    del loss

"""The tape's memory report: exact bytes of small graphs, each storage once, and nothing disturbed by asking."""

import re

import agtape as ag
import numpy as np
import pytest
from on_device import float_type, is_adapter, item_bytes
from pool_bytes import active, class_bytes, evaluations

N = 5000  # elements of a float32 vector here
BYTES = class_bytes(4 * N)
ONE = class_bytes(4)


def vector(value=0.5):
    return np.full(N, value, np.float32)


def check_sums(report):
    """M01: the parts make up the whole, in nodes and in bytes."""
    assert report.bytes_total == report.bytes_operands + report.bytes_activations + report.bytes_graph
    assert report.bytes_needed == report.bytes_operands + report.bytes_activations
    assert report.nodes == sum(row.nodes for row in report.by_op)
    assert report.bytes_total == sum(row.bytes for row in report.by_op)
    assert len({row.op for row in report.by_op}) == len(report.by_op)
    assert [row.bytes for row in report.by_op] == sorted((row.bytes for row in report.by_op), reverse=True)
    assert 0 <= report.bytes_freed_by_clear <= report.bytes_held <= report.bytes_needed


def measured(build):
    """The reports of a graph before and after it is computed, which must agree on what is needed."""
    with ag.grad_tape() as tape:
        loss = build()
    pending = ag.tape_memory(tape)
    check_sums(pending)
    loss.item()
    computed = ag.tape_memory(tape)
    check_sums(computed)
    for figure in ("nodes", "bytes_operands", "bytes_activations", "bytes_graph"):
        assert getattr(pending, figure) == getattr(computed, figure), figure
    assert computed.bytes_held == computed.bytes_needed
    loss.backward()
    return pending, computed


GRAPHS = [
    # name, what is computed from w, x and v, and its nodes, operands and activations
    ("sum", lambda w, x, v: w.sum(), 1, 0, 0),
    ("multiply", lambda w, x, v: (w * x).sum(), 2, BYTES, 0),
    ("both_factors", lambda w, x, v: (w * v).sum(), 2, 2 * BYTES, 0),
    ("square_of_one", lambda w, x, v: (w * w).sum(), 2, BYTES, 0),
    ("exp", lambda w, x, v: w.exp().sum(), 2, 0, BYTES),
    ("exp_twice", lambda w, x, v: w.exp().exp().sum(), 3, 0, 2 * BYTES),
    ("input_and_output", lambda w, x, v: ag.sin(w.exp()).sum(), 3, 0, BYTES),
    ("add", lambda w, x, v: (w + x + v).sum(), 3, 0, 0),
    ("product_of_results", lambda w, x, v: (w.exp() * v.tanh()).sum(), 4, 0, 2 * BYTES),
    ("dot", lambda w, x, v: w @ x, None, BYTES, 0),
    ("broadcast", lambda w, x, v: (w * v[0]).sum(), None, 2 * BYTES, 0),
    ("cross_views", lambda w, x, v: (w[:10] * v[10:20]).sum(), 4, 2 * BYTES, 0),
]


@pytest.mark.parametrize(("name", "build", "nodes", "operands", "activations"), GRAPHS, ids=[g[0] for g in GRAPHS])
def test_M01_M02_exact_bytes_of_small_graphs(name, build, nodes, operands, activations):
    w, x, v = ag.param(vector()), ag.tensor(vector(2.0)), ag.param(vector(3.0))
    for report in measured(lambda: build(w, x, v)):
        assert nodes in (None, report.nodes)
        assert (report.bytes_operands, report.bytes_activations) == (operands, activations)


def test_M01_a_layer_with_its_bias_and_loss():
    x = ag.ones((40, 30), dtype="float16")
    w, b = (ag.param(np.ones(shape), dtype=float_type()) for shape in ((30, 20), (20,)))
    with ag.grad_tape() as tape:
        hidden = ag.relu(x.astype(float_type()) @ w + b)  # saves the cast of x, and what relu gives
        loss = ((hidden - 1.0) ** 2).mean()  # saves hidden - 1
    report = ag.tape_memory(tape)
    check_sums(report)
    rows = {row.op: row.nodes for row in report.by_op}
    assert rows.pop("leaf") == 0
    assert rows == {"matmul": 1, "add": 1, "relu": 1, "subtract": 1, "square": 1, "mean": 1}
    assert report.bytes_operands == class_bytes(item_bytes() * 40 * 30)
    assert report.bytes_activations == 2 * class_bytes(item_bytes() * 40 * 20)
    loss.backward()


def test_M01_graph_bytes_are_the_same_for_every_node_of_a_kind():
    w = ag.param(vector())

    def graph_bytes(count):
        with ag.grad_tape() as tape:
            y = w
            for _ in range(count):
                y = -y
        report = ag.tape_memory(tape)
        assert (report.nodes, report.bytes_needed) == (count, 0)
        return report.bytes_graph

    each = graph_bytes(1)
    assert 100 < each < 2000 and graph_bytes(100) == 100 * each


@pytest.mark.parametrize("when", ["before", "inside", "after backward", "after clear"])
def test_M01_an_empty_tape_reports_zero_and_says_when_to_call(when):
    w = ag.param(vector())
    with ag.grad_tape() as tape:
        if when == "inside":
            pass
        elif when != "before":
            loss = w.exp().sum()
    if when == "after backward":
        loss.backward()
    if when == "after clear":
        tape.clear()
    report = ag.tape_memory(tape)
    figures = report.to_dict()
    assert {k: v for k, v in figures.items() if v} == {}
    for text in (repr(report), report._repr_html_()):
        assert "grad_tape" in text and "backward()" in text
    with pytest.raises(RuntimeError, match="never entered"):
        ag.tape_memory(ag.grad_tape())


def test_M01_none_means_the_innermost_recording_tape_then_the_newest():
    w = ag.param(vector())
    with ag.grad_tape() as outer:
        kept = w.exp()
        with ag.grad_tape() as inner:
            more = (w * 2).sum()
            assert ag.tape_memory() == ag.tape_memory(inner)
        assert ag.tape_memory() == ag.tape_memory(outer)
        assert ag.tape_memory(outer).nodes == 3 and ag.tape_memory(inner).nodes == 2
    assert ag.tape_memory() == ag.tape_memory(inner)
    del kept, more


def test_M02_views_and_aliases_count_once():
    w, x = ag.param(vector()), ag.tensor(vector(2.0))

    def build():
        h = w.exp()
        parts = [h[i : i + 100] for i in range(0, 1000, 100)] + [h.reshape(50, 100), h[::-1], h[None], h.detach() * w]
        return sum((p * p).sum() for p in parts[:-1]) + (parts[-1] * x).sum()

    for report in measured(build):
        # exp's output, whatever refers to it, is one storage; so is h.detach() * w's other factor. Operands: x, and w.
        assert report.bytes_activations <= 2 * BYTES
        assert report.bytes_operands <= 3 * BYTES


@pytest.mark.parametrize("evaluated", [True, False])
def test_M02_a_view_of_a_parameter_is_an_operand(evaluated):
    w, x = ag.param(np.ones((50, 100), np.float32)), ag.param(np.ones((20, 100), np.float32))
    with ag.grad_tape() as tape:
        loss = (x @ w.T).sum()
    if evaluated:
        loss.item()
    report = ag.tape_memory(tape)
    assert report.bytes_operands == class_bytes(4 * 50 * 100) + class_bytes(4 * 20 * 100)
    assert report.bytes_activations == 0


def test_M02_a_shared_parameter_counts_once():
    w = ag.param(np.full((100, 100), 0.01, np.float32))
    with ag.grad_tape() as tape:
        h = ag.ones((8, 100))
        for _ in range(4):
            h = h @ w
        loss = h.sum()
    loss.item()
    report = ag.tape_memory(tape)
    assert report.bytes_operands in (class_bytes(40_000), class_bytes(40_000) + class_bytes(3200))  # and the ones
    assert report.bytes_activations == 3 * class_bytes(3200)


@pytest.mark.parametrize("held", ["loss", "view", "export", "activation", "nothing"])
def test_M03_clear_frees_exactly_what_the_report_said(held):
    w = ag.param(vector())
    with ag.grad_tape() as tape:
        a = w.exp()
        b = ag.sin(a * 2)
        loss = (a * b).sum()
    ag.eval(loss)
    holders = {"view": lambda a: a[10:20], "export": lambda a: a.numpy(), "activation": lambda a: a}
    keep = holders[held](a) if held in holders else None
    del a, b
    report = ag.tape_memory(tape)
    assert report.bytes_held >= 3 * BYTES
    before = active()
    tape.clear()
    assert before - active() == report.bytes_freed_by_clear
    # From an adapter an export is a copy on the host.
    holding = ("view", "activation") if is_adapter() else ("view", "activation", "export")
    expected = report.bytes_held - (BYTES if held in holding else 0)
    assert expected - report.bytes_operands <= report.bytes_freed_by_clear <= expected
    del keep, loss


def test_M04_a_small_view_is_charged_with_the_storage_it_keeps():
    w = ag.param(vector())
    with ag.grad_tape() as tape:
        small = w.exp()[:3]
        loss = (small * small).sum()
    loss.item()
    assert ag.tape_memory(tape).bytes_activations == BYTES


def test_M05_reporting_computes_and_moves_nothing():
    w = ag.param(vector())
    with ag.grad_tape() as tape:
        loss = (w.exp() * w).sum()
        before = (active(), evaluations(), ag.last_plan(), ag.memory_stats(), ag.plan_cache_stats())
        for report in (ag.tape_memory(), ag.tape_memory(tape, top=1), ag.tape_memory(tape)):
            repr(report), report._repr_html_(), report.to_dict()
        assert report.bytes_held == BYTES and report.bytes_needed == 2 * BYTES  # exp is still pending
        after = (active(), evaluations(), ag.last_plan(), ag.memory_stats(), ag.plan_cache_stats())
    assert before == after
    loss.backward()
    assert w.grad.numpy()[0] == pytest.approx(1.5 * np.exp(0.5), rel=1e-6)


def test_M05_the_report_keeps_nothing_alive():
    w = ag.param(vector())
    before = active()
    with ag.grad_tape() as tape:
        loss = w.exp().exp().sum()
        ag.eval(loss)
        report = ag.tape_memory(tape)
    del loss
    assert active() == before and report.nodes == 3 and ag.tape_memory(tape).nodes == 0


def wide_tape():
    w = ag.param(vector())
    with ag.grad_tape() as tape:
        y = w
        for f in (ag.exp, ag.tanh, ag.sin, ag.cos, ag.sqrt, ag.log1p, ag.sigmoid, ag.square):
            y = f(y)
    return tape, (w, y)  # without its variable the parameter would be the tape's own


@pytest.mark.parametrize("top", [1, 3, 100, None])
def test_M06_top_limits_the_printed_rows_and_nothing_else(top):
    tape, y = wide_tape()
    report = ag.tape_memory(tape, top=top)
    assert len(report.by_op) == len(report.to_dict()["by_op"]) == 8
    shown = 8 if top is None else min(top, 8)
    for text in (repr(report), report._repr_html_()):
        names = [row.op for row in report.by_op if re.search(rf"\b{row.op}\b", text)]
        assert names == [row.op for row in report.by_op][:shown]
        assert (f"{8 - shown} more" in text) == (shown < 8)
    check_sums(report)
    del y


def test_M06_text_dict_and_html_agree(capsys):
    tape, y = wide_tape()
    report = ag.tape_memory(tape, quiet=False)
    assert capsys.readouterr().out.rstrip("\n") == repr(report)
    ag.tape_memory(tape)
    assert capsys.readouterr().out == ""
    cells = re.findall(r"<td>(.*?)</td>", report._repr_html_())
    words = re.split(r"\s{2,}|\n", repr(report).strip())
    assert [c.strip() for c in cells if c.strip()] == [w.strip() for w in words if w.strip()][1:]
    figures = report.to_dict()
    assert figures["bytes_total"] == report.bytes_total and figures["by_segment"] == []
    assert figures["by_op"][0] == {"op": report.by_op[0].op, "nodes": 1, "bytes": report.by_op[0].bytes}
    assert f"{report.nodes:,}" in repr(report) and f"{report.bytes_total / 1024:.1f} KiB" in repr(report)
    del y


def test_M01_memory_stats_add_up():
    stats = ag.memory_stats()
    for figure in ("active", "cached", "reserved"):
        assert getattr(stats, figure) >= 0
    assert stats.active == stats.pools["pass"].active + stats.pools["persistent"].active
    assert stats.reserved >= stats.active and stats.peak >= stats.active
    before = active()
    x = ag.tensor(vector())
    assert active() - before == BYTES == x.handle.is_valid * BYTES and x.handle.pool.startswith("persistent")
    assert ag.memory_stats().to_dict()["pools"]["persistent"]["active"] == ag.memory_stats().pools["persistent"].active

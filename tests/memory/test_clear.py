"""Clearing frees exactly what the report said, over random programs with views, shared parameters and held variables."""

import functools
import gc

import agtape as ag
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from on_device import is_adapter
from pool_bytes import active, class_bytes

# The names of this module refer to more objects than the report walks through: it has to leave them out.
MANY = [[] for _ in range(30_000)]
SIZES = [(4, 6), (6, 4), (24,), (2, 3, 4)]

UNARY = {
    "exp": lambda x: ag.exp(x * 0.1),
    "tanh": ag.tanh,
    "square": lambda x: x * x,
    "neg": lambda x: -x,
    "softmax": lambda x: ag.softmax(x, axis=-1),
    "cumsum": lambda x: ag.cumsum(x, axis=-1) * 0.1,
    "scale": lambda x: x * 0.5 + 1.0,
    "recast": lambda x: x.astype("float16" if is_adapter() else "float64").astype("float32"),
    "reverse": lambda x: x[::-1],
    "head": lambda x: ag.concat([x[:1], x[1:]], axis=0),
    "transposed": lambda x: ag.reshape(x.T, (-1,)).reshape(x.shape),
    "ravelled": lambda x: ag.tanh(x.reshape(-1)).reshape(x.shape),
    "stretched": lambda x: (ag.expand_dims(x, 0) * ag.ones((2, 1) + (1,) * (x.ndim - 1))).sum(axis=0),
    "part": lambda x: x + ag.square(x[:1]).sum(),
    "detached": lambda x: x + x.detach().exp(),
    "lookup": lambda x: x[ag.tensor([0] * x.shape[0])],
    "constant": lambda x: x * ag.tensor(np.full(x.shape, 1.5, np.float32)),
    "offset": lambda x: x + ag.tensor(np.full(x.shape, 0.5, np.float32)),
    "segment": lambda x: ag.checkpoint(lambda x: ag.tanh(ag.exp(x * 0.1) * x), x),
    "nested": lambda x: ag.checkpoint(lambda x: ag.sin(ag.checkpoint(lambda x: ag.exp(x * 0.1) * x, x)), x * 2.0),
    "called": lambda x: ag.checkpoint(lambda h: ag.tanh(ag.exp(h * 0.1) * x), x * 0.5, replay="call"),
    "called twice": lambda x: ag.checkpoint(Captured(x), replay="call"),
    "clipped": lambda x: ag.clip(x, -1.0, 1.0),
    "no_grad": lambda x: x + not_recorded(x),
}
BINARY = {
    "multiply": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "maximum": ag.maximum,
    "matmul": lambda a, b: (a.reshape(4, 6) @ b.reshape(6, 4)).reshape(-1).sum() + a,
    "where": lambda a, b: ag.where(a > b, a, b),
}


class Captured:
    """A segment that finds its values by itself, in a container, and has one nested in it; one of them no gradient rule reads."""

    def __init__(self, x):
        self.values = {"list": [x, x * 2.0, ag.exp(x * 0.1)]}

    def __call__(self):
        x, twice, other = self.values["list"]
        return ag.sin(x) + twice + ag.checkpoint(lambda: ag.tanh(other * x), replay="call")


def not_recorded(x):
    with ag.no_grad():
        return (x * x).mean()


STEPS = st.one_of(
    st.tuples(st.sampled_from(sorted(UNARY)), st.integers(0, 9)),
    st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("read"), st.integers(0, 9)),
)


def run(steps, shape):
    """The tensors of a random program, the parameters first."""
    rng = np.random.default_rng(len(steps))
    made = [ag.param(rng.standard_normal(shape).astype(np.float32)) for _ in range(2)]
    made.append(ag.tensor(rng.standard_normal(shape).astype(np.float32)))
    for name, *which in steps:
        inputs = [made[i % len(made)] for i in which]
        if name == "read":
            inputs[0].sum().item()
            continue
        made.append(UNARY[name](*inputs) if name in UNARY else BINARY[name](*inputs))
    return made


def check(report):
    assert report.bytes_total == report.bytes_operands + report.bytes_activations + report.bytes_graph
    assert report.bytes_needed == report.bytes_operands + report.bytes_activations
    assert report.nodes == sum(r.nodes for r in report.by_op)
    assert report.bytes_total == sum(r.bytes for r in report.by_op)
    rows = report.by_storage
    assert report.bytes_needed == sum(r.bytes for r in rows)
    assert report.bytes_operands == sum(r.bytes for r in rows if r.kind == "operand")
    assert report.bytes_held == sum(r.bytes for r in rows if r.is_held)
    assert report.bytes_freed_by_clear == sum(r.bytes for r in rows if r.is_freed)
    assert all(r.bytes >= class_bytes(0) and r.bytes_read <= r.bytes for r in rows)
    assert all(r.held_by for r in rows if r.is_held and not r.is_freed)
    assert report.bytes_held <= active()


@given(st.lists(STEPS, min_size=1, max_size=10), st.sampled_from(SIZES), st.sets(st.integers(0, 12)), st.booleans())
def test_M01_M02_M03_random_programs(steps, shape, kept, exported):
    with ag.grad_tape() as tape:
        made = run(steps, shape)
        loss = sum((t.sum() for t in made[3:]), made[0].sum())
    check(ag.tape_memory(tape))
    held = [t for i, t in enumerate(made) if i in kept]
    del made
    ag.eval(loss, held)
    arrays = [t.numpy() for t in held[-1:]] if exported else []
    if exported:
        del held[-1:]
    report = ag.tape_memory(tape)
    check(report)
    before = active()
    assert sum(r.bytes for r in report.by_storage if r.is_held) <= before
    tape.clear()
    assert before - active() == report.bytes_freed_by_clear
    assert ag.tape_memory(tape).nodes == 0
    del arrays, loss


@given(st.lists(STEPS, min_size=1, max_size=8), st.sampled_from(SIZES))
@example([("nested", 8), ("clipped", 0), ("matmul", 0, 8)], (4, 6))  # a segment that no parameter enters
def test_M02_needed_is_the_same_before_and_after_computing(steps, shape):
    with ag.grad_tape() as tape:
        made = run([s for s in steps if s[0] != "read"], shape)
        loss = sum((t.sum() for t in made[3:]), made[0].sum())
    pending = ag.tape_memory(tape)
    ag.eval(loss)
    computed = ag.tape_memory(tape)
    for figure in ("nodes", "bytes_operands", "bytes_activations", "bytes_graph"):
        assert getattr(pending, figure) == getattr(computed, figure), figure
    assert computed.bytes_held == computed.bytes_needed


@given(st.lists(STEPS, min_size=1, max_size=6), st.lists(STEPS, min_size=1, max_size=6), st.booleans())
def test_M03_nested_tapes_free_their_own_part(first, second, outer_first):
    with ag.grad_tape() as outer:
        made = run(first, (4, 6))
        with ag.grad_tape() as inner:
            more = [ag.tanh(made[-1]), made[0] * made[-1]]
            for name, *which in second:
                if name in UNARY:
                    more.append(UNARY[name](more[which[0] % len(more)]))
        loss = sum((t.sum() for t in more), made[0].sum())
    ag.eval(loss, more)
    del made
    for tape in (outer, inner) if outer_first else (inner, outer):
        report, before = ag.tape_memory(tape), active()
        check(report)
        tape.clear()
        assert before - active() == report.bytes_freed_by_clear
    del loss


@pytest.mark.parametrize("named", [True, False])
def test_M03_a_leaf_that_only_recipes_keep_is_reported_and_freed(named):
    w = ag.param(np.ones(5000, np.float32))
    with ag.grad_tape() as tape:
        batch = ag.tensor(np.ones(5000, np.float32))
        loss = (w + batch).sum()  # no gradient rule reads the batch
    loss.item()
    if not named:
        del batch
    report, before = ag.tape_memory(tape), active()
    assert report.bytes_operands == (0 if named else class_bytes(20_000))
    tape.clear()
    assert before - active() == report.bytes_freed_by_clear == report.bytes_held


def test_M03_two_tapes_that_saved_one_value_free_it_when_the_second_is_cleared():
    w = ag.param(np.ones(5000, np.float32))
    with ag.grad_tape() as outer:
        h = w.exp()
        with ag.grad_tape() as inner:
            loss = (h * w).sum()
    loss.item()
    del h
    inner_report, before = ag.tape_memory(inner), active()
    assert inner_report.bytes_freed_by_clear == 0
    assert {r.held_by for r in inner_report.by_storage} == {"another tape", "python"}
    inner.clear()
    assert active() == before
    outer_report = ag.tape_memory(outer)
    assert outer_report.bytes_freed_by_clear == class_bytes(20_000)
    outer.clear()
    assert before - active() == class_bytes(20_000)


def test_M03_what_a_variable_keeps_is_named_and_not_freed():
    model = ag.nn.Linear(100, 100)
    x = ag.tensor(np.ones((50, 100), np.float32))
    with ag.grad_tape() as tape:
        hidden = ag.tanh(model(x))
        kept = {"first": hidden[:1]}
        loss = (hidden * hidden).sum()
    loss.item()
    ag.eval(kept["first"])
    del hidden
    report = ag.tape_memory(tape)
    rows = {r.op: r for r in report.by_storage}
    assert rows["tanh"].name == "kept['first']"
    assert (rows["tanh"].held_by, rows["tanh"].is_freed) == ("view or export", False)
    assert {r.name for r in report.by_storage if r.kind == "operand"} <= {"model.weight", "x"}
    for text in (repr(report), report._repr_html_()):
        assert "kept[&#x27;first&#x27;]" in text or "kept['first']" in text
    before = active()
    tape.clear()
    assert before - active() == report.bytes_freed_by_clear == 0


def test_M03_what_only_the_functions_of_segments_hold_is_freed_and_what_others_hold_is_not():
    def segment(w):
        aside, mine, shared = ag.exp(w), ag.sin(w), ag.tanh(w)
        inside = functools.partial(
            lambda rows, h, *, more: (h * rows[0] + more["mine"] + aside).sum(), [shared], more={"mine": mine}
        )
        return ag.checkpoint(inside, w * 3.0, replay="call"), shared

    w = ag.param(np.ones(1000, "float32"))
    with ag.grad_tape() as tape:
        loss, shared = segment(w)
        ag.eval(loss)
        report = ag.tape_memory(tape)
        fates = {row.op: (row.is_freed, row.held_by, row.name) for row in report.by_storage}
        assert fates["tanh"] == (False, "python", "shared")
        assert all(fates[op] == (True, "", "") for op in ("exp", "sin", "multiply"))
        assert report.bytes_freed_by_clear >= 3 * class_bytes(4000)
        before = active()
        tape.clear()
    assert before - active() == report.bytes_freed_by_clear
    assert shared.shape == loss.shape + (1000,)


def test_M05_finding_names_keeps_nothing_alive():
    gc.disable()
    try:
        w = ag.param(np.ones(5000, np.float32))
        with ag.grad_tape() as tape:
            h = w.exp()
            loss = (h * h).sum()
        ag.eval(loss)
        before = active()
        assert [r.name for r in ag.tape_memory(tape).by_storage] == ["h"]
        tape.clear()
        del h
        assert before - active() == class_bytes(20_000)
    finally:
        gc.enable()

"""The timeline of live bytes: its layers add up at every launch, its peak is the pools', and it can be drawn and saved."""

import re
import xml.etree.ElementTree as ElementTree

import agtape as ag
import numpy as np
import pytest
from missing_package import hide_package
from pool_bytes import active, class_bytes

nn = ag.nn
MIB = 1 << 20


def step(model, opt, x):
    with ag.grad_tape():
        loss = (model(x) ** 2).mean()
    loss.backward()
    opt.step()
    opt.zero_grad()


def record(layers=4):
    ag.manual_seed(0)
    model = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(64, 64), nn.Tanh())])
    opt = ag.optim.Adam(model.parameters())
    x = ag.randn(500, 64)
    ag.eval(x, *model.parameters())
    with ag.peak_memory() as scope, ag.memory_timeline() as timeline:
        step(model, opt, x)
    return timeline, scope


@pytest.mark.parametrize("by", ["op", "segment"])
def test_M08_layers_add_up_to_the_live_bytes_of_every_launch(by):
    timeline, scope = record()
    layers = timeline.layers(by)
    assert len(timeline.events) > 20 and {len(values) for values in layers.values()} == {len(timeline.events)}
    for i, event in enumerate(timeline.events):
        assert sum(values[i] for values in layers.values()) == event.live
    assert all(value >= 0 for values in layers.values() for value in values)
    assert timeline.peak == scope.peak >= max(event.live for event in timeline.events)
    assert set(layers["held before"]) == {timeline.held_before}


def test_M08_the_launches_are_the_plans_and_the_peak_is_theirs():
    w = ag.param(np.ones(MIB // 4, np.float32))
    with ag.memory_timeline() as timeline:
        with ag.grad_tape():
            loss = (w.exp() @ w).sum()
        loss.backward()
        first = ag.last_plan()
        (w * 2 + 1).numpy()
    assert [e.launch for e in timeline.events if e.plan == 0] == list(range(first.kernels))
    assert {e.plan for e in timeline.events} == {0, 1}
    assert first.measured_peak_bytes == max(e.live for e in timeline.events if e.plan == 0)
    layers = timeline.layers()
    made = next(i for i, e in enumerate(timeline.events) if e.op == "exp")
    assert layers["exp"][made] == MIB and sum(layers["exp"][:made]) == 0
    # Gradients and the loss outlive their plan: the next one finds them there.
    assert set(layers["kept from earlier plans"][first.kernels :]) == {MIB + class_bytes(4)}
    assert timeline.held_before == active() - MIB - class_bytes(4)


def test_M08_by_op_is_what_was_live_at_the_peak():
    timeline, _ = record()
    highest = max(timeline.events, key=lambda e: e.live)
    for rows in (timeline.by_op, timeline.by_segment):
        assert sum(r.bytes for r in rows) == highest.live
        assert [r.bytes for r in rows] == sorted((r.bytes for r in rows), reverse=True)
    figures = timeline.to_dict()
    assert figures["peak"] == timeline.peak and len(figures["events"]) == len(timeline.events)
    assert figures["events"][0]["op"] == timeline.events[0].op
    for text in (repr(timeline), timeline._repr_html_()):
        assert "matmul" in text and "peak" in text and f"{len(timeline.events):,}" in text


def test_M08_lines_appear_where_they_are_recorded():
    w = ag.param(np.ones(5000, np.float32))
    with ag.options(source_lines=True), ag.memory_timeline() as timeline, ag.grad_tape():
        loss = w.exp().sum()
        loss.item()
    assert all(re.search(r"test_timeline.py:\d+$", e.line) for e in timeline.events)


def test_M08_blocks_made_in_backward_have_the_line_that_called_it():
    here = test_M08_blocks_made_in_backward_have_the_line_that_called_it.__code__.co_firstlineno
    w = ag.param(np.ones((64, 64), np.float32))
    with ag.options(source_lines=True), ag.memory_timeline() as timeline:
        with ag.grad_tape():
            loss = ag.tanh(w.exp() @ w).sum()
        loss.item()
        loss.backward()
    lines = [{e.line.rsplit("test_timeline.py:")[-1] for e in timeline.events if e.plan == plan} for plan in (0, 1)]
    assert lines == [{str(here + 5)}, {str(here + 7)}]
    assert len([e for e in timeline.events if e.plan == 1]) >= 3


def test_M08_an_svg_is_drawn_without_matplotlib(tmp_path, monkeypatch):
    timeline, _ = record()
    hide_package(monkeypatch, "matplotlib")
    timeline.save(tmp_path / "live.svg")
    root = ElementTree.fromstring((tmp_path / "live.svg").read_text())
    paths = [e for e in root.iter() if e.tag.endswith("path")]
    titles = [e[0].text for e in paths]
    assert titles[:2] == ["held before", "kept from earlier plans"] and "matmul" in titles
    words = " ".join(e.text for e in root.iter() if e.tag.endswith("text"))
    assert "iB" in words and "launches" in words
    assert timeline._repr_svg_() == (tmp_path / "live.svg").read_text()
    assert "<svg" in timeline._repr_html_()
    for draw in (timeline.plot, lambda: timeline.save(tmp_path / "live.png")):
        with pytest.raises(ModuleNotFoundError, match=r"pip install matplotlib"):
            draw()


def test_M08_a_png_and_axes_are_drawn_with_matplotlib(tmp_path):
    import matplotlib

    matplotlib.use("Agg")
    timeline, _ = record()
    timeline.save(tmp_path / "live.png", by="segment")
    assert (tmp_path / "live.png").read_bytes().startswith(b"\x89PNG")
    ax = timeline.plot()
    names = [t.get_text() for t in ax.get_legend().get_texts()]
    assert {"held before", "matmul"} <= set(names)
    assert ax.get_ylim()[1] >= max(e.live for e in timeline.events)
    own = matplotlib.figure.Figure().subplots()
    assert timeline.plot(own) is own
    matplotlib.pyplot.close("all")


def test_M08_scopes_nest_and_empty_ones_can_be_drawn(tmp_path):
    x = ag.ones(5000)
    ag.eval(x)
    with ag.memory_timeline() as outer:
        (x + 1).numpy()
        with ag.memory_timeline() as inner:
            (x * 2).numpy()
        (x - 1).numpy()
    with ag.memory_timeline() as empty:
        pass
    assert len(outer.events) == 3 and len(inner.events) == 1
    assert (inner.events[0].op, inner.events[0].plan) == (outer.events[1].op, 0)
    empty.save(tmp_path / "empty.svg")
    assert empty.events == [] and empty.peak == active() and "peak" in repr(empty)


def test_M08_misuse_is_refused(tmp_path):
    timeline = ag.memory_timeline()
    with timeline:
        with pytest.raises(RuntimeError, match="already"):
            timeline.__enter__()
    with pytest.raises(ValueError, match=r"\.svg or \.png"):
        timeline.save(tmp_path / "live.pdf")
    with pytest.raises(ValueError, match="'op' or 'segment'"):
        timeline.layers(by="line")

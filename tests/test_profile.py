"""The profile: launches as the plans count them, bytes and operations as counted by hand, times within the block, a trace that opens."""

import json
import threading
import xml.etree.ElementTree as ElementTree
from collections import Counter

import agtape as ag
import numpy as np
import pytest
from agtape import _core
from missing_package import hide_package

nn = ag.nn


def leaf(*shape):
    x = ag.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    ag.eval(x)
    return x


def only(p):
    """The one row of a profile."""
    (row,) = p.rows
    return row


def profiled(make):
    with ag.profile() as p:
        ag.eval(make())
    return p


def training_step():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    opt = ag.optim.Adam(model.parameters())
    x, y = leaf(64, 16), ag.tensor(np.arange(64) % 4)
    ag.eval(y, *model.parameters())

    def step():
        """One step, and the launches of its two plans."""
        with ag.grad_tape():
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        launches = _core.last_plan_launches()
        opt.step()
        launches += _core.last_plan_launches()
        opt.zero_grad()
        return launches

    return step


def test_launches_are_those_of_the_plans():
    step = training_step()
    for _ in range(3):
        step()
    with ag.profile() as p:
        listed = step() + step()
    assert p.launches == len(listed) == sum(row["count"] for row in p.rows) > 10
    named = Counter()
    for row in p.rows:
        named[row["kernel"], row["shape"]] += row["count"]
    assert named == Counter((launch["kernel"], tuple(launch["shape"])) for launch in listed)
    assert (p.evaluations, p.cache_hits) == (4, 4)
    assert not any(row["rebuilt"] for row in p.rows) and p.notes == []


@pytest.mark.parametrize(
    ("make", "kernel", "figures"),
    [
        (lambda: leaf(20, 30) @ leaf(30, 40), "matmul", ((20, 40), 30, 4 * (600 + 1200), 4 * 800, 2 * 20 * 30 * 40)),
        (lambda: leaf(3, 20, 30) @ leaf(3, 30, 40), "matmul", ((3, 20, 40), 30, 4 * 5400, 4 * 2400, 6 * 20 * 30 * 40)),
        (lambda: leaf(50, 7) + leaf(50, 7), "fused", ((50, 7), None, 4 * 700, 4 * 350, 350)),
        # A row for all rows is read once.
        (lambda: leaf(50, 7) + leaf(7), "fused", ((50, 7), None, 4 * 357, 4 * 350, 350)),
        (lambda: leaf(50, 7).sum(), "sum", ((50, 7), None, 4 * 350, 4, 350)),
        (lambda: leaf(50, 7).sum(axis=0), "sum", ((50, 7), None, 4 * 350, 4 * 7, 350)),
        (lambda: (leaf(50, 7) * leaf(50, 7)).sum(), "sum", ((50, 7), None, 4 * 700, 4, 700)),
        (lambda: ag.relu(leaf(9) * 2.0 + leaf(9)), "fused", ((9,), None, 8 * 9, 4 * 9, 27)),
        (lambda: leaf(50).astype("float64"), "fused", ((50,), None, 200, 400, 0)),
        (lambda: ag.softmax(leaf(5, 8)), "softmax", ((5, 8), None, 160, 160, 200)),
        # Of a table the rows that are looked up, and the indices.
        (lambda: leaf(1000, 8)[ag.tensor([3, 5])], "gather", ((2, 8), None, 4 * 16 + 16, 4 * 16, 0)),
    ],
)
def test_bytes_and_operations_are_those_counted_by_hand(make, kernel, figures):
    row = only(profiled(make))
    assert row["kernel"] == kernel
    assert tuple(row[name] for name in ("shape", "terms", "bytes_read", "bytes_written", "flops")) == figures
    assert row["gb_per_s"] == pytest.approx((row["bytes_read"] + row["bytes_written"]) / row["total_ms"] / 1e6)
    assert row["gflop_per_s"] == pytest.approx(row["flops"] / row["total_ms"] / 1e6)


def test_in_place_only_what_changes_is_written():
    x = ag.zeros(1000)
    ag.eval(x)
    with ag.profile() as p:
        x[10:20] = leaf(10)
        ag.eval(x)
    row = only(p)
    assert (row["kernel"], row["bytes_read"], row["bytes_written"]) == ("slice_assign", 40, 40)


def test_an_epilogue_counts_with_its_product_and_names_its_ops():
    x, w, b = leaf(64, 16), leaf(16, 32), leaf(32)
    row = only(profiled(lambda: ag.relu(x @ w + b)))
    assert (row["kernel"], row["ops"]) == ("fused_matmul", ("matmul", "add", "relu"))
    assert row["flops"] == 2 * 64 * 16 * 32 + 2 * 64 * 32
    assert row["bytes_read"] == 4 * (64 * 16 + 16 * 32 + 32) and row["bytes_written"] == 4 * 64 * 32


def test_times_are_positive_and_lie_within_the_block():
    ag.clear_plan_cache()
    step = training_step()
    with ag.profile() as p:
        for _ in range(20):
            step()
    assert all(row["total_ms"] > 0 and 0 < row["median_ms"] <= row["total_ms"] for row in p.rows)
    kernels = sum(row["total_ms"] for row in p.rows)
    assert kernels < p.stages["run"] < p.wall_ms
    assert sum(p.stages.values()) == pytest.approx(p.wall_ms, rel=1e-9)
    assert set(p.stages) == {"record", "hash", "look up", "plan", "bind", "run", "keep", "other"}
    assert all(took > 0 for took in p.stages.values())
    totals = [row["total_ms"] for row in p.rows]
    assert totals == sorted(totals, reverse=True)


def test_a_plan_that_is_known_is_not_made_again():
    step = training_step()
    for _ in range(3):
        step()
    with ag.profile() as p:
        step()
    assert "plan" not in p.stages and p.cache_hits == p.evaluations == 2


def spans_nest(events):
    """Whether events of one thread lie inside each other or apart."""
    stack = []
    for begin, end in sorted((e["ts"], -(e["ts"] + e["dur"])) for e in events):
        while stack and stack[-1] <= begin + 1e-6:
            stack.pop()
        if stack and -end > stack[-1] + 1e-6:
            return False
        stack.append(-end)
    return True


def test_the_trace_is_what_viewers_read(tmp_path):
    step = training_step()
    with ag.profile() as p:
        step()
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()
    p.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert {e["ph"] for e in trace["traceEvents"]} == {"X", "M"}
    for e in events:
        assert isinstance(e["name"], str) and isinstance(e["pid"], int) and isinstance(e["tid"], int)
        assert e["ts"] >= 0 and e["dur"] >= 0 and e["ts"] + e["dur"] <= p.wall_ms * 1e3 + 1e-3
    kernels = [e for e in events if e["cat"] == "kernel"]
    assert len(kernels) == p.launches and sum(e["dur"] for e in kernels) / 1e3 == pytest.approx(
        sum(row["total_ms"] for row in p.rows)
    )
    assert {"fused_matmul: matmul+add+relu", "adam"} <= {e["name"] for e in kernels}
    threads = {e["tid"] for e in events}
    assert len(threads) == 2
    assert all(spans_nest([e for e in events if e["tid"] == tid]) for tid in threads)
    assert sum(e["name"] == "evaluation" for e in events) == p.evaluations
    with pytest.raises(ValueError, match=r"profile: cannot save as '\.txt'; expected .* \.json"):
        p.save(tmp_path / "trace.txt")


def test_an_exception_leaves_it_closed():
    x = leaf(10)
    p = ag.profile()

    def block():
        with p:
            ag.eval(x + 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert p.launches == 1 and p.wall_ms > 0
    ag.eval(x + 2)
    assert len(p._profiler.figures()["evaluations"]) == 1
    with pytest.raises(RuntimeError, match="entered before"):
        p.__enter__()


def test_an_evaluation_that_fails_is_not_counted():
    x = leaf(10)
    with ag.profile() as p:
        with pytest.raises(IndexError):
            x[ag.tensor([99])].numpy()
        ag.eval(x + 1)
    assert only(p)["kernel"] == "fused" and p.evaluations == 1


def test_profiles_nest_and_stand_side_by_side():
    x = leaf(10)
    outer, other = ag.profile(), ag.profile()
    with outer:
        ag.eval(x + 1)
        other.__enter__()
        with ag.profile() as inner:
            ag.eval(x * 2)
    ag.eval(ag.exp(x))
    other.__exit__(None, None, None)
    ag.eval(x - 1)
    assert [p.launches for p in (outer, inner, other)] == [2, 1, 2]
    assert only(inner)["ops"] == ("multiply",)
    assert {row["ops"] for row in other.rows} == {("multiply",), ("exp",)}


def test_evaluations_of_all_threads_count():
    x = leaf(10)
    barrier = threading.Barrier(4)

    def work():
        barrier.wait()
        for _ in range(50):
            ag.eval(x + 1)

    with ag.profile() as p:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert only(p)["count"] == p.launches == p.evaluations == 200
    # One evaluation runs at a time.
    assert only(p)["total_ms"] <= p.wall_ms


def layer(h, w):
    return ag.tanh(h @ w)


@pytest.mark.parametrize("replay", ["trace", "call"])
def test_what_a_segment_rebuilds_has_its_name(replay):
    ws = [ag.param(np.eye(8, dtype=np.float32)) for _ in range(2)]
    x = leaf(32, 8)

    def deep(h):
        for w in ws:
            h = layer(h, w)
        return h

    with ag.profile() as p:
        with ag.grad_tape():
            loss = ag.checkpoint(deep, x, replay=replay, name="deep").sum()
        loss.backward()
    rebuilt = [row for row in p.rows if row["rebuilt"]]
    assert {row["segment"] for row in rebuilt} == {"deep"}
    # Both products once more, those of the gradients only once.
    assert sum(row["count"] for row in rebuilt if row["ops"][0] == "matmul") == 2
    assert sum(row["count"] for row in p.rows if row["ops"] == ("matmul",) and row["shape"] == (8, 8)) == 2
    assert all(row["segment"] is None for row in p.rows if not row["rebuilt"])
    assert "(rebuilt: deep)" in repr(p)


def test_what_a_budget_rebuilds_is_told():
    ws = [ag.param(np.eye(64, dtype=np.float32)) for _ in range(12)]
    x = leaf(512, 64)
    held = ag.memory_stats("cpu").active
    with ag.profile() as p:
        with ag.grad_tape(budget=held + 12 * 64 * 64 * 4 + 8 * 512 * 64 * 4):
            h = x
            for w in ws:
                h = layer(h, w)
            loss = (h * h).sum()
        loss.backward()
    plan = ag.last_plan()
    assert plan.rebuilds > 0 and p.launches == plan.kernels
    assert sum(row["count"] for row in p.rows if row["rebuilt"]) == plan.rebuilds
    assert all(row["segment"] is None for row in p.rows)


def test_peaks_are_given_or_measured_once():
    p = ag.profile(peaks={"cpu": {"gb_per_s": 10.0, "gflop_per_s": 1000.0}})
    x = leaf(100, 100)
    with p:
        ag.eval(x + 1)
    row = only(p)
    assert row["fraction_of_peak"] == pytest.approx(row["gb_per_s"] / 10)
    assert p.peaks() == {"cpu": {"gb_per_s": 10.0, "gflop_per_s": 1000.0}}
    with ag.profile() as measured:
        ag.eval(x @ x)
    assert only(measured)["fraction_of_peak"] is None
    peaks = measured.peaks()["cpu"]
    row = only(measured)
    fractions = [row[rate] / peaks[rate] for rate in ("gb_per_s", "gflop_per_s")]
    assert peaks["gb_per_s"] > 0.1 and peaks["gflop_per_s"] > 0.1 and row["fraction_of_peak"] == max(fractions)
    assert "peak of cpu" in repr(measured)
    with ag.profile() as later:
        ag.eval(x @ x)
    assert later.peaks()["cpu"] == peaks and later.launches == 1
    open_profile = ag.profile()
    with open_profile, pytest.raises(RuntimeError, match="not been left"):
        open_profile.peaks()


@pytest.mark.parametrize(
    ("peaks", "error", "words"),
    [
        (3, TypeError, "peaks is a int"),
        ({"cpu": 3}, ValueError, r"peaks\['cpu'\] is 3"),
        ({"cpu": {"gb_per_s": 1.0}}, ValueError, "gflop_per_s"),
        ({"cpu": {"gb_per_s": 0.0, "gflop_per_s": 1.0}}, ValueError, "positive"),
    ],
)
def test_U01_other_peaks_are_refused(peaks, error, words):
    with pytest.raises(error, match=words):
        ag.profile(peaks=peaks)


def test_text_html_and_dict_agree():
    step = training_step()
    with ag.profile() as p:
        step()
    text, html = repr(p), p._repr_html_()
    for words in ("record", "look up", "fused_matmul: matmul+add+relu", "64x32 k=16", "GFLOP/s", "adam"):
        assert words in text and words in html
    figures = p.to_dict()
    assert figures["rows"] == p.rows and figures["launches"] == p.launches and figures["stages"] == p.stages
    json.dumps(figures)
    empty = ag.profile()
    with empty:
        pass
    assert (empty.launches, empty.rows) == (0, []) and "launches" in repr(empty)


def test_a_picture_is_drawn_with_and_without_matplotlib(tmp_path, monkeypatch):
    import matplotlib

    matplotlib.use("Agg")
    step = training_step()
    with ag.profile() as p:
        step()
    p.plot(tmp_path / "profile.png")
    assert (tmp_path / "profile.png").read_bytes().startswith(b"\x89PNG")
    ax = p.plot()
    assert len(ax.patches) == len(ax.get_yticklabels()) == min(len(p.rows), 13)
    assert sum(bar.get_width() for bar in ax.patches) == pytest.approx(sum(row["total_ms"] for row in p.rows))
    matplotlib.pyplot.close("all")
    hide_package(monkeypatch, "matplotlib")
    p.plot(tmp_path / "profile.svg")
    root = ElementTree.fromstring((tmp_path / "profile.svg").read_text())
    words = [e.text for e in root.iter() if e.tag.endswith("text")]
    assert sum(word.endswith(" ms") and "of" not in word for word in words) == min(len(p.rows), 13)
    for draw in (p.plot, lambda: p.plot(tmp_path / "profile.png")):
        with pytest.raises(ModuleNotFoundError, match=r"pip install matplotlib"):
            draw()
    with pytest.raises(ValueError, match=r"\.svg or \.png"):
        p.plot(tmp_path / "profile.pdf")

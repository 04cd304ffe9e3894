"""Segments, budgets and the report on GPU pools: gradients equal the plain ones, and bytes are what was promised."""

import agtape as ag
import numpy as np
import pytest
from fresh_process import run_json, run_python

F = ag.nn.functional
WIDTH, ROWS, LAYERS = 32, 64, 12


def layers(depth=LAYERS):
    """The weights of a deep network on the GPU."""
    rng = np.random.default_rng(0)
    draw = lambda: (rng.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)  # noqa: E731
    return [ag.param(draw(), device="gpu") for _ in range(depth)]


def inputs():
    """A batch on the GPU."""
    return ag.tensor(np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype(np.float32), device="gpu")


def run(weights, x, segment=None, budget=None, replay="trace"):
    """Loss and gradients of the network, with every layer a segment or within a budget; and the peak of active bytes."""
    with ag.peak_memory("gpu") as peak:
        with ag.grad_tape(budget=budget) as tape:
            h = x
            for w in weights:
                layer = lambda h, w: F.gelu(h @ w)  # noqa: E731
                h = ag.checkpoint(layer, h, w, replay=replay) if segment else layer(h, w)
            loss = (h * h).mean()
        report = ag.tape_memory(tape)
        loss.backward()
    grads = [w.grad.numpy() for w in weights]
    for w in weights:
        w.grad = None
    return loss.item(), grads, peak.peak, report


def assert_same(a, b):
    """The same loss and gradients, to the tolerance of two orders of addition."""
    assert a[0] == pytest.approx(b[0], rel=1e-6)
    for g, h in zip(a[1], b[1]):
        np.testing.assert_allclose(g, h, rtol=1e-5, atol=1e-8)


@pytest.mark.promise("C01", "C02", "C07")
@pytest.mark.parametrize("replay", ["trace", "call"])
def test_C01_gradients_through_segments_equal_the_plain_ones(replay):
    weights, x = layers(), inputs()
    plain = run(weights, x)
    segmented = run(weights, x, segment=True, replay=replay)
    assert_same(plain, segmented)
    assert segmented[2] < plain[2]


@pytest.mark.promise("C05")
def test_C05_after_the_loss_only_boundaries_are_held():
    weights, x = layers(), inputs()
    ag.eval(*weights, x)
    before = ag.memory_stats("gpu").active
    with ag.grad_tape():
        h = x
        for w in weights:
            h = ag.checkpoint(lambda h, w: F.gelu(F.gelu(h @ w) * 2.0 + h), h, w)
        loss = (h * h).mean()
    ag.eval(loss)
    held = ag.memory_stats("gpu").active - before
    boundary = ROWS * WIDTH * 4
    # One boundary a layer, and the loss.
    assert held <= (LAYERS + 1) * boundary + 64 * 2
    loss.backward()


@pytest.mark.promise("C08")
def test_C08_dropout_replays_the_same_draw():
    x = inputs()

    def gradient(segmented):
        ag.manual_seed(5)
        w = layers(1)[0]
        block = lambda h: ag.dropout(h @ w, 0.5)  # noqa: E731
        with ag.grad_tape():
            y = ag.checkpoint(block, x) if segmented else block(x)
            loss = (y * y * ag.rand(*y.shape, device="gpu")).sum()
        loss.backward()
        return w.grad.numpy()

    np.testing.assert_allclose(gradient(True), gradient(False), rtol=1e-5)


@pytest.mark.promise("C13", "R10")
def test_C13_each_segment_is_rebuilt_once():
    weights, x = layers(), inputs()
    run(weights, x, segment=True)
    assert ag.last_backward().segments_replayed == LAYERS


@pytest.mark.promise("B01", "B02", "B04")
@pytest.mark.parametrize("part", [0.8, 0.5])
def test_B01_the_peak_stays_under_the_budget(part):
    weights, x = layers(), inputs()
    ag.eval(*weights, x)
    before = ag.memory_stats("gpu").active
    plain = run(weights, x)
    budget = before + int((plain[2] - before) * part)
    bounded = run(weights, x, budget=budget)
    assert bounded[2] <= budget
    plan = ag.last_plan()
    assert plan.peak_bytes == plan.measured_peak_bytes
    assert_same(plain, bounded)


@pytest.mark.promise("B03")
def test_B03_too_small_a_budget_is_refused_with_the_smallest():
    weights, x = layers(), inputs()
    ag.eval(*weights, x)
    with pytest.raises(ag.BudgetError) as caught:
        run(weights, x, budget=ag.memory_stats("gpu").active + 1024)
    smallest = caught.value.smallest_bytes
    bounded = run(weights, x, budget=smallest)
    assert bounded[2] <= smallest


@pytest.mark.promise("M03", "M05")
def test_M03_clear_frees_what_the_report_says():
    weights, x = layers(), inputs()
    with ag.grad_tape() as tape:
        h = x
        for w in weights:
            h = F.gelu(h @ w)
        loss = (h * h).mean()
    ag.eval(loss)
    with ag.transfers() as moved:
        report = ag.tape_memory(tape)
    assert (moved.to_host, moved.to_device) == (0, 0)
    assert report.bytes_total == report.bytes_operands + report.bytes_activations + report.bytes_graph
    before = ag.memory_stats("gpu").active
    tape.clear()
    assert before - ag.memory_stats("gpu").active == report.bytes_freed_by_clear > 0


@pytest.mark.promise("M08")
def test_M08_a_timeline_of_the_device():
    weights, x = layers(3), inputs()
    with ag.memory_timeline("gpu") as timeline:
        run(weights, x)
    assert timeline.peak >= timeline.held_before > 0
    assert len(timeline.events) > 6


@pytest.mark.promise("M09")
def test_M09_the_peak_is_estimated_without_running():
    ag.manual_seed(0)
    model = ag.nn.Sequential(ag.nn.Linear(32, 64), ag.nn.GELU(), ag.nn.Linear(64, 8)).to("gpu")
    opt = ag.optim.Adam(model.parameters())
    x = inputs()
    estimate = ag.estimate_memory(model, x, opt, lambda y: (y * y).mean())
    peaks = []
    for _ in range(3):
        with ag.peak_memory("gpu") as m:
            with ag.grad_tape():
                y = model(x)
                loss = (y * y).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            ag.synchronize("gpu")
        peaks.append(m.peak)
    assert estimate.peak == pytest.approx(peaks[-1], rel=0.05)


@pytest.mark.promise("M07")
def test_M07_reserved_is_what_buffers_have():
    x = ag.ones(1000, 10, device="gpu")
    y = (x * 2).sum(axis=0)
    ag.eval(y)
    stats = ag.memory_stats("gpu")
    assert stats.reserved == stats.active + stats.cached
    freed = ag.empty_cache("gpu")
    after = ag.memory_stats("gpu")
    assert (after.cached, stats.reserved - after.reserved) == (0, freed)


@pytest.mark.promise("M07")
def test_M07_at_most_32_mib_of_what_the_driver_handed_out_lie_outside_the_pools():
    """The driver counts every buffer, also those through which bytes go to the device and back, at every moment of a run."""
    highest, least = run_json(
        """
        import json, threading
        import agtape as ag
        import numpy as np
        from agtape import _core

        MIB = 1 << 20
        ag.eval(ag.ones(3, device="gpu"))
        outside, stop = [], threading.Event()

        def look():
            found = _core.adapter_memory("gpu")
            outside.append(found["allocated"] - found["reserved"])

        def watch():
            while not stop.is_set():
                look()

        threading.Thread(target=watch, daemon=True).start()
        # What is waiting to be handed over is held twice: many tensors, and one that is moved in pieces.
        many = [ag.tensor(np.ones(MIB, np.float32), device="gpu") for _ in range(30)]
        large = ag.tensor(np.ones(24 * MIB, np.float32), device="gpu")
        look()
        for size in (1, 3, 6, 12, 24):
            assert large[: size * MIB].numpy().sum() == size * MIB
            look()
        del many, large
        model = ag.nn.Sequential(*[m for _ in range(4) for m in (ag.nn.Linear(512, 512), ag.nn.ReLU())]).to("gpu")
        opt = ag.optim.Adam(model.parameters())
        for _ in range(2):
            x = ag.tensor(np.ones((512, 512), np.float32), device="gpu")
            with ag.grad_tape():
                loss = (model(x) ** 2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            loss.item()
            look()
        ag.synchronize("gpu")
        stop.set()
        assert ag.memory_stats("gpu").reserved > 200 * MIB
        print(json.dumps([max(outside), min(outside)]))
        """
    )
    # Nothing that the pools count is missing, and the flag that kernels raise is there besides.
    assert 0 < least <= highest <= 32 << 20


@pytest.mark.promise("B01")
def test_B01_what_still_comes_from_the_host_does_not_stop_a_budget():
    w, x = ag.param(np.ones((WIDTH, 4), np.float32), device="gpu"), inputs()
    labels = np.arange(ROWS) % 4
    with ag.grad_tape(budget="1 GiB"):
        loss = F.cross_entropy((x @ w)[list(range(ROWS))], labels)
    loss.backward()
    assert w.grad.device == "gpu"
    estimate = ag.estimate_memory(
        lambda given: given @ w,
        np.ones((ROWS, WIDTH), np.float32),
        ag.optim.SGD([w], lr=0.1),
        lambda y: F.cross_entropy(y, labels),
    )
    assert estimate.kernels > 0


@pytest.mark.promise("G03", "B01", "B04")
@pytest.mark.parametrize(("limit", "most"), [("AGTAPE_MAX_BINDING", 1 << 16), ("AGTAPE_MAX_BUFFER", 5 << 15)])
def test_G03_values_of_the_largest_binding_and_budgets_beyond_the_largest_buffer_are_whole(limit, most):
    # Buffers of the second limit hold two such values and a half: what a budget lays side by side takes several of them. The smallest
    # budget leaves a page for the parts of sums, which some adapters' kernels keep.
    printed = run_python(
        """
        import agtape as ag
        import numpy as np
        from agtape import _core

        pages, rng = [], np.random.default_rng(0)
        ws = [rng.normal(size=(128, 128)).astype(np.float32) / 12 for _ in range(6)]
        x = rng.normal(size=(128, 128)).astype(np.float32)

        def gradients(device, spare):
            leaves = [ag.param(w, device=device) for w in ws]
            given = ag.tensor(x, device=device)
            ag.eval(*leaves, given)
            budget = spare and ag.memory_stats(device).active + spare
            with ag.grad_tape(budget=budget):
                scale, h = ag.exp(given[0, 0] * 0.1), given
                for w in leaves:
                    # Numbers live beside values of all that one binding holds.
                    scale = ag.tanh((h * h).mean() * scale)
                    h = ag.tanh(ag.softmax(h @ w, -1) * scale) * 20.0
                loss = (h * h).sum() * scale
            loss.backward()
            if spare:
                plan = ag.last_plan()
                assert plan.peak_bytes == plan.measured_peak_bytes <= budget
                shared = {}
                for launch in _core.last_plan_launches():
                    for operand in launch["outs"] + launch["scratch"]:
                        if operand["place"] and not operand["is_kept"]:
                            end = operand["place"][1] + int(np.prod(operand["shape"])) * operand["item_bytes"]
                            shared[operand["place"][0]] = max(shared.get(operand["place"][0], 0), end)
                assert not IS_BUFFER or max(shared.values()) <= MOST, shared
                pages.append(len(shared))
            return [leaf.grad.numpy() for leaf in leaves]

        expected = gradients("cpu", None)
        for spare in ((14 << 16) + 4096, 16 << 16, 24 << 16):
            for a, b in zip(gradients("gpu", spare), expected):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * np.abs(b).max())
        assert not IS_BUFFER or max(pages) > 2
        print("whole")
        """.replace("MOST", str(most)).replace("IS_BUFFER", str(limit == "AGTAPE_MAX_BUFFER")),
        **{limit: str(most)},
    )
    assert printed == "whole\n"


@pytest.mark.promise("G03")
def test_G03_a_tensor_beyond_the_largest_buffer_is_refused_with_sizes_and_the_way_out():
    printed = run_python(
        """
        import agtape as ag
        from agtape import _core

        most = _core.adapter_limits("gpu")["max_bytes"]
        # The largest size of buffers that is made, below a limit that is none.
        assert most == 90112, most
        assert ag.rand(most // 4, device="gpu").astype("int32").sum().item() == 0
        try:
            ag.rand(most // 4 + 1, device="gpu").sum().item()
        except MemoryError as error:
            print(error)
        """,
        AGTAPE_MAX_BUFFER="98000",
    )
    assert "90116 bytes is larger than gpu can bind at once, 90112 bytes: split it, or keep it on the CPU" in printed


@pytest.mark.promise("B04")
@pytest.mark.parametrize("columns", [1024, 1025])
def test_B04_products_that_end_in_their_kernel_or_behind_it_take_what_was_planned(columns):
    rng = np.random.default_rng(0)
    draw = lambda *shape: ag.param(rng.normal(size=shape).astype(np.float32), device="gpu")  # noqa: E731
    x, w, b = draw(1024, 4), draw(4, columns), draw(columns)
    ag.eval(x, w, b)
    held, value = ag.memory_stats("gpu").active, 1024 * 1025 * 4
    with ag.grad_tape(budget=held + 6 * value):
        y = F.gelu(x @ w + b)
        ag.eval(y)
        plan = ag.last_plan()
        # The product takes nothing beside what becomes of it and what gradient rules need.
        assert plan.peak_bytes == plan.measured_peak_bytes <= held + 2.3 * value
        loss = (y * y).mean()
    loss.backward()
    plan = ag.last_plan()
    assert plan.peak_bytes == plan.measured_peak_bytes
    expected = 1024 * columns
    assert y.shape == (1024, columns) and loss.item() * expected == pytest.approx((y.numpy() ** 2).sum(), rel=1e-4)


@pytest.mark.promise("M09")
def test_M09_a_model_that_computes_on_two_devices_is_estimated():
    w = ag.param(np.ones((WIDTH, WIDTH), np.float32), device="gpu")
    batch = ag.tensor(np.ones((256, WIDTH), np.float32))
    opt = ag.optim.SGD([w], lr=0.1)

    def model(x):
        # Prepared on the host, and looked at there on the way.
        x = (x * 2.0 + 1.0).to("gpu")
        h = ag.tanh(x @ w)
        scale = h.mean().cpu().exp().to("gpu")
        return ag.tanh(h @ w) * scale

    def step():
        with ag.grad_tape():
            loss = (model(batch) ** 2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()

    ag.eval(w, batch)
    estimate = ag.estimate_memory(model, batch, opt, lambda y: (y**2).mean())
    step()
    with ag.peak_memory("gpu") as scope:
        step()
    assert estimate.peak == pytest.approx(scope.peak, rel=0.05)

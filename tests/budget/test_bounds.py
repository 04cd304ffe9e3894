"""The bound: peaks under every budget of a ladder, gradients bit for bit, figures that a test adds up itself (B01, B02, B04, B05)."""

import agtape as ag
import numpy as np
import pytest
from agtape import _core
from budget.models import Chain, Lookup, Mlp, Shared, Skips, Step, Transformer, peak_of, smallest_of, work_of
from on_device import assert_same_bits, is_adapter
from pool_bytes import class_bytes

SIDE = 64
MODELS = {
    "mlp": lambda: Mlp(16, 32, 512),
    "skips": lambda: Skips(16, 32, 512),
    "shared": lambda: Shared(16, 32, 256),
    "transformer": lambda: Transformer(4, 32, 2, 16, 2),
    "dropout": lambda: Transformer(3, 32, 2, 16, 2, dropout=0.2),
    "lookup": lambda: Lookup(16, 32, 512),
    "chain": lambda: Chain(100, 512),
    "lent": lambda: Transformer(6, 32, 2, 32, 4),
}


def roomy_step(model, plain):
    """A step whose budget is no bound but whose plan is one that a budget gets: the plain plan, were it known, would do."""
    ag.clear_plan_cache()
    return Step(model, roomy_budget(plain))


def roomy_budget(plain):
    """Room for all buffers at once, which are obtained before the first kernel, those of the gradients too; where temporaries share a buffer
    on an adapter, each begins at a multiple of 256 bytes."""
    return plain.peak + plain.grad_bytes + (4096 if is_adapter() else 64)


def check(step, plain, budget, roomy):
    assert step.peak <= budget and step.reserved <= budget
    assert step.plan.peak_bytes == step.plan.measured_peak_bytes == step.peak
    assert step.plan.peak_bytes == step.held + peak_of(step.launches)
    assert step.plan.work == work_of(step.launches)
    assert step.plan.work_ratio == pytest.approx(step.plan.work / roomy.plan.work, abs=1e-12)
    assert step.plan.kernels == roomy.plan.kernels + step.plan.rebuilds == len(step.launches)
    assert_same_bits(step.grads, plain.grads)


@pytest.mark.promise("B01")
@pytest.mark.promise("B02")
@pytest.mark.promise("B03")
@pytest.mark.promise("B04")
@pytest.mark.promise("B05")
@pytest.mark.promise("T16")
@pytest.mark.parametrize("name", MODELS)
def test_every_budget_of_a_rising_ladder_holds(name):
    model = MODELS[name]()
    plain = Step(model)
    assert plain.plan.rebuilds == 0 and plain.plan.work_ratio == 1
    smallest = smallest_of(model, plain.held + 64)
    assert smallest - plain.fixed < 0.6 * plain.activations
    largest, work = roomy_budget(plain), None
    roomy = roomy_step(model, plain)
    # What is fused less, so that it can be computed again apart, moves a little more.
    assert roomy.plan.rebuilds == 0 and plain.plan.work <= roomy.plan.work <= 1.03 * plain.plan.work
    for rung in range(20):
        budget = smallest + (largest - smallest) * rung // 19
        step = Step(model, budget)
        check(step, plain, budget, roomy)
        assert work is None or step.plan.work <= work
        work = step.plan.work
    assert step.plan.rebuilds == 0


@pytest.mark.promise("B03")
@pytest.mark.parametrize("name", MODELS)
def test_smallest_budget_works_in_a_fresh_cache_and_one_byte_less_is_refused_with_no_larger_figure(name):
    model = MODELS[name]()
    plain = Step(model)
    smallest = smallest_of(model, plain.held + 64)
    roomy = roomy_step(model, plain)
    ag.clear_plan_cache()
    check(Step(model, smallest), plain, smallest, roomy)
    ag.clear_plan_cache()
    assert smallest_of(model, plain.held + plain.grad_bytes // 2) == smallest


@pytest.mark.promise("B04")
def test_B04_running_sum_without_a_budget_is_what_the_launches_add_up_to():
    step = Step(Mlp(6, 32, 512))
    assert step.plan.peak_bytes == step.plan.measured_peak_bytes == step.peak == step.held + peak_of(step.launches)
    assert step.plan.work == work_of(step.launches)
    # Most of the plan's buffers are used more than once, so the sum of all temporaries is no bound that anybody would want.
    assert step.peak < step.held + sum(
        int(np.prod(o["shape"])) * o["item_bytes"] for launch in step.launches for o in launch["outs"]
    )


def test_second_step_under_a_budget_finds_its_plan():
    model = Mlp(16, 32, 512)
    plain = Step(model)
    budget = plain.fixed + plain.activations // 2
    ag.clear_plan_cache()
    assert not Step(model, budget).plan.cache_hit
    again = Step(model, budget)
    assert again.plan.cache_hit and again.plan.rebuilds > 0
    # What is held differs a little from step to step.
    extra = ag.tensor(np.zeros(16, "float32"))
    assert Step(model, budget + 256).plan.cache_hit
    del extra


@pytest.mark.promise("B01")
def test_B01_update_inside_the_tape_stays_under_the_budget_too():
    model = Mlp(8, 32, 512)
    optimizer = ag.optim.SGD(model.params, lr=0.1)
    plain = Step(model)
    for p in model.params:
        p.grad = None
    budget = plain.fixed + plain.activations // 2
    with ag.peak_memory() as scope, ag.grad_tape(budget=budget):
        model.loss().backward()
        optimizer.step()
    assert scope.peak <= budget


@pytest.mark.promise("B01")
@pytest.mark.parametrize(
    "look", [lambda kept: ag.eval(*kept), lambda kept: ag.tensor(np.ones((8 * SIDE, SIDE), np.float32))]
)
@pytest.mark.parametrize("replay", ["trace", "call"])
def test_B01_what_a_segment_reads_and_makes_inside_obeys_the_budget(replay, look):
    w, x = ag.param(np.ones((SIDE, SIDE), np.float32)), ag.tensor(np.ones((SIDE, SIDE), np.float32))
    ag.eval(w, x)

    def inside(h):
        kept = [h := ag.tanh(h @ w) for _ in range(8)]
        look(kept)
        return kept[-1]

    budget = ag.memory_stats().active + 4 * class_bytes(w.nbytes)
    with ag.peak_memory() as scope, ag.grad_tape(budget=budget), pytest.raises(ag.BudgetError):
        ag.checkpoint(inside, x, replay=replay)
    assert scope.peak <= budget
    assert ag.memory_stats().active <= budget


@pytest.mark.promise("B04")
@pytest.mark.parametrize("model", [lambda: Mlp(12, 1024, 128), lambda: Transformer(4, 512, 4, 64, 2)])
def test_B04_without_a_budget_too_values_lie_in_the_buffers_of_larger_gradients_until_those_are_written(model):
    if is_adapter():
        pytest.skip("on adapters buffers serve one size each where no budget is set")
    model = model()
    step = Step(model)
    assert step.plan.peak_bytes == step.plan.measured_peak_bytes == step.peak
    # What the pools have of the system is what the plan says that is alive.
    assert step.reserved - step.held <= 1.05 * (step.peak - step.held)
    with ag.options(fuse=False):
        assert_same_bits(Step(model).grads, step.grads)


@pytest.mark.promise("B01")
def test_B01_cached_buffers_are_returned_before_reserved_bytes_pass_the_budget():
    mib = 1 << 20
    w = ag.param(np.ones((256, 256), np.float32))
    ag.eval(w)
    ag.empty_cache()

    def fill(count):
        """Leaves so many MiB of buffers in the cache, of a size that nothing here takes."""
        held = [ag.tensor(np.ones(5 * mib // 16, np.float32)) for _ in range(count)]
        del held

    fill(8)
    start = ag.memory_stats()
    assert start.cached == 10 * mib
    budget = start.active + 6 * mib
    with ag.grad_tape(budget=budget):
        # What was free at entry goes as far as it must, and no further.
        entry = ag.memory_stats()
        assert budget - 2 * mib < entry.reserved <= budget
        ag.reset_peak_memory()
        for _ in range(3):
            fill(4)
            batch = ag.tensor(np.ones((256, 256), np.float32))
            large = ag.tensor(np.ones(mib, np.float32))
            del large
        h = ag.tanh(ag.tanh(batch @ w) @ w)
        loss = h.sum()
        loss.item()
        fill(2)
        loss.backward()
    assert start.active < _core.reserved_peak() <= budget


@pytest.mark.promise("B02")
@pytest.mark.parametrize(("replay", "most_refusals"), [("trace", 1), ("call", 5)])
def test_B02_budget_and_segments_combine(replay, most_refusals):
    class Segments(Mlp):
        def loss(self):
            h = self.x
            for at in range(0, len(self.params), 8):
                h = ag.checkpoint(self.run, h, at, replay=replay)
            return (h * h).mean()

        def run(self, h, at):
            for w, b in zip(self.params[at : at + 8 : 2], self.params[at + 1 : at + 8 : 2]):
                h = ag.relu(h @ w + b)
            return h

    plain = Step(Mlp(16, 32, 512))
    model = Segments(16, 32, 512)
    segmented = Step(model)
    assert segmented.peak < plain.peak
    step, tried = None, [segmented.held + 64]
    while step is None and len(tried) <= most_refusals + 1:
        try:
            step = Step(model, tried[-1])
        except ag.BudgetError as refused:
            # Each of the four segments that is called again is a plan of its own, and a later one may ask for more.
            tried.append(refused.smallest_bytes)
    assert step is not None and tried == sorted(set(tried)) and len(tried) > 1
    smallest = tried[-1]
    assert smallest < segmented.peak
    for budget in (smallest, (smallest + segmented.peak) // 2):
        step = Step(model, budget)
        assert step.peak <= budget and step.reserved <= budget
        assert_same_bits(step.grads, plain.grads)


def test_deterministic_off_rebuilds_nothing():
    model = Mlp(8, 32, 512)
    plain = Step(model)
    budget = plain.fixed + plain.activations // 2
    with ag.options(deterministic=False), pytest.raises(ag.BudgetError):
        Step(model, budget)
    with ag.options(deterministic=False):
        assert Step(model, plain.peak + plain.grad_bytes + 64).plan.rebuilds == 0
    assert Step(model, budget).plan.rebuilds > 0


@pytest.mark.promise("B01")
def test_B01_values_lie_in_the_buffers_of_gradients_until_those_are_written():
    model = Mlp(16, 64, 64)
    plain = Step(model)
    value = class_bytes(64 * 64 * 4)
    assert plain.peak - plain.held > 16 * value
    # A gradient's buffer is as large as a value, and all gradients are there from the first kernel on.
    budget = plain.fixed + 5 * value
    step = Step(model, budget)
    check(step, plain, budget, roomy_step(model, plain))
    assert step.plan.rebuilds == 0


def test_deterministic_off_computes_nothing_again_after_a_read_either():
    model = Mlp(8, 32, 512)
    plain = Step(model)
    kernels = []
    for budget, deterministic in ((plain.peak * 4, True), (plain.fixed + plain.activations * 3 // 2, False)):
        with ag.options(deterministic=deterministic):
            step = Step(model, budget, read_loss=True)
        kernels.append(step.plan.kernels)
        assert_same_bits(step.grads, plain.grads)
    assert kernels[0] == kernels[1]

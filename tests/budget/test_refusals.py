"""Refusals: what budgets may be, and that one which cannot be met leaves tape, parameters and gradients as they were (B03)."""

import threading

import agtape as ag
import numpy as np
import pytest
from budget.models import Mlp, Step
from fresh_process import run_json
from on_device import assert_same_bits, is_adapter
from pool_bytes import active


@pytest.mark.parametrize(
    "budget", [0, -1, "0", "-3 MiB", "", "lots", "1.5 parsecs", "MiB", "1..5 GB", "nan", "inf GiB", "0.2 B"]
)
def test_B03_zero_negative_and_unparsable_budgets_are_value_errors(budget):
    with pytest.raises(ValueError, match="grad_tape: budget is"):
        ag.grad_tape(budget=budget)


@pytest.mark.parametrize("budget", [1.5, True, [], object()])
def test_budgets_of_other_types_are_type_errors(budget):
    with pytest.raises(TypeError, match="grad_tape: budget is of type"):
        ag.grad_tape(budget=budget)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (4096, 4096),
        (np.int64(77), 77),
        ("4096", 4096),
        ("256 MiB", 256 << 20),
        ("1.5 GiB", 3 << 29),
        ("2kb", 2000),
        (" 3 tib ", 3 << 40),
        (None, None),
    ],
)
def test_budgets_are_ints_or_texts_with_units(budget, expected):
    assert ag.grad_tape(budget=budget).budget == expected


@pytest.mark.promise("B03")
def test_B03_refusal_runs_nothing_and_leaves_everything_as_it_was():
    model = Mlp(8, 32, 512)
    plain = Step(model)
    first = [p.grad for p in model.params]
    before = [p.numpy().copy() for p in model.params]
    ballast = ag.tensor(np.zeros(plain.activations // 4, "float32"))
    budget = active() + plain.activations // 2
    with ag.grad_tape(budget=budget) as tape:
        loss = model.loss()
    held, ran = active(), ag.last_plan()
    del ballast
    more = ag.tensor(np.zeros(plain.activations // 3, "float32"))
    held = active()
    for _ in range(2):
        with pytest.raises(ag.BudgetError) as refused:
            loss.backward()
        assert isinstance(refused.value, MemoryError) and refused.value.smallest_bytes > budget
    assert ag.last_plan() == ran and active() == held and tape.generation == 0
    assert all(p.grad is not None and np.array_equal(p.grad.numpy(), g.numpy()) for p, g in zip(model.params, first))
    assert all(np.array_equal(p.numpy(), b) for p, b in zip(model.params, before))
    for p in model.params:
        p.grad = None
    del more, first
    loss.backward()
    assert_same_bits([p.grad.numpy() for p in model.params], plain.grads)


@pytest.mark.promise("B03")
def test_B03_message_names_budget_held_and_smallest():
    model = Mlp(4, 32, 512)
    plain = Step(model)
    with pytest.raises(ag.BudgetError, match=f"the budget of tape .* is {plain.held + 9} bytes") as refused:
        Step(model, plain.held + 9)
    assert str(refused.value.smallest_bytes) in str(refused.value)


@pytest.mark.promise("B01")
def test_B01_plan_obeys_the_smallest_budget_of_the_tapes_that_it_computes_for():
    model = Mlp(8, 32, 512)
    plain = Step(model)
    for p in model.params:
        p.grad = None
    small, large = plain.held + plain.activations // 2, plain.peak * 4
    for outer, inner in ((small, large), (large, small), (large, large)):
        with ag.peak_memory() as scope, ag.grad_tape(budget=outer), ag.grad_tape(budget=inner):
            model.loss().item()
        assert (scope.peak <= small) == (small in (outer, inner))


@pytest.mark.promise("B01")
def test_B01_what_another_thread_allocates_does_not_count():
    model = Mlp(8, 32, 512)
    plain = Step(model)
    budget = plain.fixed + plain.activations // 2
    Step(model, budget)
    kept = []
    for p in model.params:
        p.grad = None
    ag.eval()
    with ag.grad_tape(budget=budget):
        other = threading.Thread(target=lambda: kept.append(ag.eval(ag.zeros(plain.activations))))
        other.start()
        other.join()
        model.loss().backward()
    plan = ag.last_plan()
    assert plan.rebuilds > 0 and plan.peak_bytes - 4 * plain.activations <= budget
    assert_same_bits([p.grad.numpy() for p in model.params], plain.grads)


@pytest.mark.promise("B03")
def test_B03_a_refusal_binds_nobody_else():
    model, other = Mlp(8, 32, 512), Mlp(2, 16, 64)
    plain = Step(model)
    for p in model.params:
        p.grad = None
    with ag.grad_tape(budget=plain.held + 64) as tape:
        loss = model.loss()
    metric = loss.detach() * 1
    with pytest.raises(ag.BudgetError):
        loss.backward()
    with ag.grad_tape():
        second = other.loss()
    second.backward()
    assert all(p.grad is not None for p in other.params)
    tape.clear()
    assert metric.item() == loss.item()


@pytest.mark.promise("B03")
def test_B03_what_a_second_attempt_computed_is_not_left_pending():
    model = Mlp(16, 32, 512)
    plain = Step(model)
    budget = plain.fixed + plain.activations // 3
    for p in model.params:
        p.grad = None
    with ag.grad_tape(budget=budget):
        h = model.x
        half = len(model.params) // 2
        for w, b in zip(model.params[:half:2], model.params[1:half:2]):
            h = ag.relu(h @ w + b)
        h.mean().item()
        for w, b in zip(model.params[half::2], model.params[half + 1 :: 2]):
            h = ag.relu(h @ w + b)
        loss = (h * h).mean()
    loss.backward()
    kernels = ag.last_plan()
    assert np.isfinite(loss.item())
    assert ag.last_plan() == kernels, "the loss was computed with its gradients"
    assert_same_bits([p.grad.numpy() for p in model.params], plain.grads)


@pytest.mark.promise("B01")
def test_B01_buffers_cached_before_do_not_push_what_is_reserved_above_the_budget():
    model = Mlp(8, 32, 512)
    plain = Step(model)
    budget = plain.fixed + plain.activations // 2
    Step(model, budget)
    ag.eval(*[ag.zeros(plain.activations + i) + 1 for i in range(3)])
    for p in model.params:
        p.grad = None
    with ag.grad_tape(budget=budget):
        loss = model.loss()
    loss.backward()
    assert ag.memory_stats().reserved <= budget


@pytest.mark.promise("B01")
def test_B01_a_tensor_made_outright_above_the_budget_is_refused_with_both_figures():
    w = ag.param(np.full(256, 3, "float32"))
    large = np.zeros(4096, "float32")
    before = ag.tensor(large)
    held = active()
    with ag.grad_tape(budget=held + 8192) as tape:
        y = w * 2
        # An adapter uses no memory of the host's in place.
        borrow = [] if is_adapter() else [lambda a: ag.asarray(a, copy=False)]
        for make in (ag.tensor, ag.param, *borrow):
            with pytest.raises(ag.BudgetError, match=f"is {held + 8192} bytes, of which {held} are held") as refused:
                make(large)
            assert refused.value.smallest_bytes == held + 16384 and active() == held
        nodes = ag.tape_memory(tape).nodes
        small = ag.tensor(np.full(256, 5, "float32"))
        loss = (y * small).sum()
    assert nodes == 1
    loss.backward()
    assert np.array_equal(w.grad.numpy(), np.full(256, 10, "float32"))
    assert before.shape == ag.tensor(large).shape, "without an open tape nothing is refused"


@pytest.mark.promise("B01")
def test_B01_bytes_count_for_the_thread_that_made_them_whichever_frees_them():
    w = ag.param(np.ones(1 << 16, "float32"))
    box = [ag.tensor(np.zeros(1 << 18, "float32"))]
    with ag.grad_tape(budget=active() + (1 << 10)):
        with pytest.raises(ag.BudgetError):
            ag.tensor(np.zeros(1 << 16, "float32"))
        other = threading.Thread(target=box.clear)
        other.start()
        other.join()
        kept = ag.tensor(np.zeros(1 << 16, "float32"))
    others = []
    other = threading.Thread(target=lambda: others.append(ag.tensor(np.zeros(1 << 18, "float32"))))
    other.start()
    other.join()
    with ag.grad_tape(budget=active() + (1 << 10)):
        others.clear()
        kept = ag.tensor(np.zeros(1 << 16, "float32"))
    assert kept.shape == w.shape


@pytest.mark.promise("B03")
def test_B03_planning_stops_at_the_users_interrupt():
    figures = run_json(
        """
        import json, os, signal, sys, threading, time
        import agtape as ag
        import numpy as np

        w = ag.param(np.ones((1, 256), "float32"))

        def step(budget):
            with ag.grad_tape(budget=budget):
                h = w
                for _ in range(4000):
                    h = ag.softmax(h, axis=-1)
                loss = h.sum()
            loss.backward()

        step(1 << 30)
        w.grad = None
        begin = time.perf_counter()
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            step(ag.memory_stats().active + 3000)
            ended = "no interrupt"
        except KeyboardInterrupt:
            ended = "interrupted"
        took = time.perf_counter() - begin
        timer.join()
        step(1 << 30)
        print(json.dumps({"ended": ended, "took": took, "grad": bool(np.isfinite(w.grad.numpy()).all())}))
        """
    )
    assert figures["ended"] == "interrupted" and figures["grad"] and figures["took"] < 1.5

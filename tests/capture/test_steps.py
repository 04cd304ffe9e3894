"""Captured steps give the bits of the steps themselves: losses, parameters, state and the random stream."""

import agtape as ag
import numpy as np
import pytest
from agtape import _core
from capture.steps import MAKERS, accumulation, floats, mlp, transformer

STEPS = 22


def leaves(result):
    return [r.numpy().tobytes() for r in ag.tree.flatten(result)[0]]


def told(make, is_captured, around=lambda i, parts: None, steps=STEPS):
    """What a run tells: results of every step, the state at its end, and the position of the random stream."""
    step, batches, state, parts = make()
    if is_captured:
        step = ag.capture(step)
    ag.manual_seed(11)
    results = []
    for i, batch in enumerate(batches(steps)):
        around(i, parts)
        results.append(step(*batch))
    if is_captured:
        assert step.is_captured
    return [leaves(r) for r in results], state(), ag.get_rng_state()


@pytest.mark.parametrize("name", MAKERS)
def test_T16_a_captured_step_gives_the_bits_of_the_step(name):
    assert told(MAKERS[name], True) == told(MAKERS[name], False)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda opt: ag.optim.lr_scheduler.StepLR(opt, 3, gamma=0.5),
        lambda opt: ag.optim.lr_scheduler.CosineAnnealingLR(opt, 20),
    ],
)
def test_T16_learning_rates_of_schedules_reach_replays(schedule):
    found = {}

    def around(i, parts):
        if i == 0:
            found["schedule"] = schedule(parts[1])
        else:
            found["schedule"].step()

    captured, plain = told(mlp, True, around), told(mlp, False, around)
    assert captured == plain
    assert captured != told(mlp, False), "the schedule changes nothing: the test would show nothing"


def test_T16_other_numbers_of_optimizers_reach_replays():
    def around(i, parts):
        parts[1].param_groups[0].update(betas=(0.9 - i / 100, 0.99), eps=1e-8 * (i + 1), weight_decay=i / 100)

    assert told(mlp, True, around) == told(mlp, False, around)


def test_T16_values_put_into_parameters_between_replays_are_trained_on():
    kept = {}

    def around(i, parts):
        model = parts[0]
        if i == 4:
            kept["state"] = model.state_dict()
        if i == 9:
            model.load_state_dict(kept["state"])
        if i == 12:
            model[0].weight.assign_(model[0].weight * 0.5)

    assert told(mlp, True, around) == told(mlp, False, around)


def test_G06_seeds_set_between_replays_are_drawn_from():
    def around(i, parts):
        if i in (5, 9):
            ag.manual_seed(i)

    assert told(transformer, True, around) == told(transformer, False, around)


def test_T16_draws_between_replays_are_where_they_would_be():
    def run(is_captured):
        drawn = []
        out = told(accumulation, is_captured, lambda i, parts: drawn.append(ag.rand(5).tolist()))
        return out, drawn

    assert run(True) == run(False)


def test_U02_results_and_copies_keep_their_values_in_later_replays():
    step, batches, _, (model, _opt) = mlp()
    step = ag.capture(step)
    seen = []
    for batch in batches(8):
        loss = step(*batch)
        weight = model[0].weight
        seen.append((loss, weight.detach(), weight.numpy(), loss.numpy().copy(), weight.numpy().copy()))
    for loss, detached, view, loss_then, weight_then in seen:
        assert loss.numpy().tobytes() == loss_then.tobytes()
        assert detached.numpy().tobytes() == view.tobytes() == weight_then.tobytes()
    assert len({w.tobytes() for *_, w in seen}) == len(seen)


def test_T16_what_holds_old_parameters_changes_no_bit():
    held = []
    holding = told(mlp, True, lambda i, parts: held.append([p.detach() for p in parts[0].parameters()]))
    assert holding == told(mlp, False)


def test_T16_values_recorded_before_a_replay_and_computed_after_it_are_of_before():
    step, batches, _, (model, _opt) = mlp()
    step = ag.capture(step)
    for batch in batches(6):
        before = model[2].weight.numpy().copy()
        later = model[2].weight * 2
        step(*batch)
        assert later.numpy().tobytes() == (before * 2).tobytes()


def test_T16_an_evaluation_follows_the_training_around_it():
    step, batches, _, (model, _opt) = mlp()
    step, score = ag.capture(step), ag.capture(lambda x: model(x).sum(), warmup=0)
    x = ag.tensor(floats(5, 8, seed=50))
    for batch in batches(6):
        step(*batch)
        assert score(x).numpy().tobytes() == model(x).sum().numpy().tobytes()


def test_T16_a_part_of_a_step_may_be_captured():
    def run(is_captured):
        ag.manual_seed(1)
        model = ag.nn.Linear(8, 3)
        opt = ag.optim.Adam(model.parameters())

        def update():
            ag.nn.clip_grad_norm_(model.parameters(), 0.1)
            opt.step()
            opt.zero_grad()

        update = ag.capture(update) if is_captured else update
        for i in range(6):
            with ag.grad_tape():
                loss = (model(ag.tensor(floats(4, 8, seed=i))) ** 2).sum()
            loss.backward()
            update()
        return [p.numpy().tobytes() for p in model.parameters()]

    assert run(True) == run(False)


def test_R02_gradients_of_a_replay_are_there_after_it():
    def run(is_captured):
        w = ag.param(floats(4))

        def step(x):
            w.grad = None
            with ag.grad_tape():
                loss = (w * x).sum()
            loss.backward()

        step = ag.capture(step) if is_captured else step
        found = []
        for i in range(5):
            step(ag.tensor(floats(4, seed=i)))
            found.append(w.grad.tolist())
        return found

    assert run(True) == run(False)


def test_R05_gradients_that_are_never_dropped_add_up_over_replays():
    def run(is_captured):
        w = ag.param(floats(4))

        def step(x):
            with ag.grad_tape():
                loss = (w * x).sum()
            loss.backward()

        step = ag.capture(step) if is_captured else step
        for i in range(6):
            step(ag.tensor(floats(4, seed=i)))
        return w.grad.numpy().tobytes()

    assert run(True) == run(False)


def test_T16_arrays_numbers_and_containers_are_arguments_and_results():
    w = ag.param([2.0])

    def step(batch, factor, *, name):
        return {"name": name, "values": [batch["x"] * w * factor, batch["pair"][1]], "none": None}

    captured = ag.capture(step)
    for i in range(5):
        x, y = np.full(3, i, np.float32), ag.tensor([float(i)])
        out = captured({"x": x, "pair": (1, y)}, 3.0, name="a")
        assert list(out) == ["name", "values", "none"] and out["name"] == "a" and out["none"] is None
        assert out["values"][0].tolist() == [6.0 * i] * 3
        assert out["values"][1] is y
        x[:] = -1
        assert out["values"][0].tolist() == [6.0 * i] * 3


def test_T16_parts_of_an_argument_are_read_where_the_next_one_has_them():
    data = ag.tensor(floats(40, 4))

    def step(x):
        return (x[2:5] * 2).sum() + x[0, 1]

    captured = ag.capture(step)
    for i in range(6):
        x = data[4 * i : 4 * i + 8]
        assert captured(x).item() == step(x).item()


def test_T16_methods_are_captured_for_each_object():
    class Scale:
        def __init__(self, value):
            self.w = ag.param([value])

        @ag.capture
        def step(self, x):
            return x * self.w

    two, three = Scale(2.0), Scale(3.0)
    for i in range(4):
        x = ag.tensor([float(i)])
        assert (two.step(x).item(), three.step(x).item()) == (2.0 * i, 3.0 * i)
    assert two.step.is_captured and three.step.is_captured


def test_T16_a_captured_function_inside_another_is_a_part_of_it():
    inner = ag.capture(lambda x: x * 2)
    outer = ag.capture(lambda x: inner(x) + 1)
    assert [outer(ag.tensor([float(i)])).item() for i in range(4)] == [1.0, 3.0, 5.0, 7.0]
    assert outer.is_captured and not inner.is_captured


def test_T16_a_replay_records_no_op_looks_for_no_plan_and_runs_no_python_of_the_step():
    step, batches, _, _ = transformer()

    calls = iter(range(100))

    def counting(*batch):
        next(calls)
        return step(*batch)

    captured = ag.capture(counting)
    given = batches(8)
    for batch in given[:4]:
        captured(*batch)
    assert captured.is_captured
    nodes, stats = _core.recorded_nodes(), ag.plan_cache_stats()
    results = [captured(*batch) for batch in given[4:]]
    after = ag.plan_cache_stats()
    assert _core.recorded_nodes() == nodes
    assert (after.hits, after.misses) == (stats.hits, stats.misses)
    assert next(calls) == 2
    assert ag.last_plan().cache_hit and ag.last_plan().kernels > 0
    assert len(results) == 4

"""Steps that cannot be captured: each is refused by a named error, which says at which line where a line is to blame."""

import random

import agtape as ag
import numpy as np
import pytest
from capture.refusing import refuses
from capture.steps import floats, mlp, regression_batches


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.item(),
        lambda t: t.numpy(),
        lambda t: t.tolist(),
        lambda t: bool(t),
        lambda t: float(t),
        lambda t: int(t),
        lambda t: repr(t),
        lambda t: f"{t:.3f}",
        lambda t: np.asarray(t),
        lambda t: ag.ones(3)[t.reshape(1) > 0],
        lambda t: ag.nonzero(t.reshape(1)),
    ],
)
def test_U01_a_step_that_reads_values_is_refused_with_its_line(read):
    step, _batches, state, (_model, _opt) = mlp()

    def reading(x, y):
        loss = step(x, y)
        read(loss)
        return loss

    def early(x, y):
        read(x.sum())
        return step(x, y)

    batch = regression_batches(1)[0]
    step(*batch)
    for function in (reading, early):
        captured = ag.capture(function, warmup=0)
        refuses(lambda captured=captured: captured(*batch), "reads values on the host", "test_uncapturable.py:")
        assert not captured.is_captured
    before = state()
    refuses(lambda: captured(*batch), "test_uncapturable.py:")
    assert state() == before
    step(*batch)


def test_U01_a_read_that_the_step_hides_is_refused_all_the_same():
    def step(x):
        try:
            print(x.item())
        except RuntimeError:
            pass
        return x * 2

    refuses(lambda: ag.capture(step, warmup=0)(ag.tensor(1.0)), "reads values on the host")


GENERATOR = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("draw", "word"),
    [
        (lambda: random.random(), "Python's random"),
        (lambda: np.random.rand(), "NumPy's global generator"),
        (lambda: GENERATOR.random(), "GENERATOR"),
    ],
)
def test_U01_a_step_that_draws_foreign_random_numbers_is_refused(draw, word):
    def step(x):
        return x * draw()

    refuses(lambda: ag.capture(step, warmup=0)(ag.tensor([1.0])), word)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x * np.float32([1.0, 2.0]),
        lambda x: x + ag.tensor([1.0, 2.0]),
        lambda x: x[[0, 0]],
    ],
)
def test_U01_tensors_made_of_values_of_the_host_are_refused_with_their_line(make):
    refuses(lambda: ag.capture(make, warmup=0)(ag.ones(2)), "values of the host", "test_uncapturable.py:")


def test_U01_a_step_that_sets_the_random_state_is_refused():
    def step(x):
        ag.manual_seed(1)
        return ag.dropout(x, 0.5)

    refuses(lambda: ag.capture(step, warmup=0)(ag.ones(2)), "state of the random numbers")


def test_U01_a_step_that_keeps_a_tensor_is_refused():
    losses = ag.nn.Module()

    def step(x):
        y = x * 2
        object.__setattr__(losses, "newest", y)
        return y + 1

    refuses(lambda: ag.capture(step, warmup=0)(ag.ones(2)), "keeps a tensor", "multiply")
    history = []

    def appending(x):
        history.append(x * 2)
        return x

    refuses(lambda: ag.capture(appending, warmup=0)(ag.ones(2)), "history had 0 entries and has 1")


def test_U01_tensors_that_no_variable_holds_are_refused():
    batches = iter([ag.tensor([float(i)]) for i in range(9)])

    def step(x):
        return x * next(batches)

    refuses(lambda: ag.capture(step, warmup=0)(ag.ones(1)), "[1]", "iterator", "argument")


def test_U01_what_only_a_cycle_of_the_step_holds_is_no_reason(no_collector):
    def step(x):
        cycle = {"tensor": x * 2}
        cycle["itself"] = cycle
        return x + 1

    captured = ag.capture(step, warmup=0)
    captured(ag.ones(2))
    assert captured(ag.zeros(2)).tolist() == [1.0, 1.0]


def test_U01_a_step_that_counts_or_moves_a_schedule_is_refused():
    step, batches, _state, (_model, opt) = mlp()
    schedule = ag.optim.lr_scheduler.StepLR(opt, 1)

    def scheduled(x, y):
        loss = step(x, y)
        schedule.step()
        return loss

    captured = ag.capture(scheduled)
    given = batches(2)
    captured(*given[0])
    refuses(lambda: captured(*given[1]), "last_epoch was 1 and is 2")


def test_U01_an_optimizers_first_step_is_refused_without_a_warmup():
    step, batches, _, _ = mlp()
    refuses(lambda: ag.capture(step, warmup=0)(*batches(1)[0]), "optimizer's new state")


def test_U01_an_optimizer_that_says_nothing_of_its_numbers_is_refused():
    class Plain(ag.optim.Optimizer):
        def _record(self, group, notes):
            for p in group["params"]:
                p.assign_(p - group["lr"] * p.grad)

    w = ag.param([1.0])
    opt = Plain([w], {"lr": 0.1})

    def step(x):
        with ag.grad_tape():
            loss = (w * x).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()

    refuses(lambda: ag.capture(step, warmup=0)(ag.tensor([1.0])), "Plain")


def test_C17_segments_that_are_called_again_are_refused():
    w = ag.param(floats(3))

    def step(x):
        with ag.grad_tape():
            loss = ag.checkpoint(lambda t: (t * w).sum(), x, replay="call")
        loss.backward()

    refuses(lambda: ag.capture(step, warmup=0)(ag.ones(3)), 'replay="call"', 'replay="trace"')
    assert w.grad is None


def test_U01_what_a_step_returns_besides_tensors_is_refused():
    refuses(lambda: ag.capture(lambda x: object(), warmup=0)(ag.ones(1)), "object")

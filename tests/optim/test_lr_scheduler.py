"""Schedules: each rate against its formula, groups, sequences, saving."""

import math

import agtape as ag
import pytest
from agtape.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR, StepLR


def optimizer(*rates):
    return ag.optim.SGD([{"params": [ag.param([1.0])], "lr": r} for r in rates or (0.5,)])


def rates(schedule, steps):
    seen = [schedule.get_last_lr()[0]]
    for _ in range(steps):
        schedule.step()
        seen.append(schedule.get_last_lr()[0])
    return seen


@pytest.mark.parametrize(
    ("make", "formula"),
    [
        (lambda o: LambdaLR(o, lambda n: 0.9**n), lambda n: 0.9**n),
        (lambda o: StepLR(o, 3, gamma=0.5), lambda n: 0.5 ** (n // 3)),
        (lambda o: CosineAnnealingLR(o, 10), lambda n: (1 + math.cos(math.pi * n / 10)) / 2),
        (lambda o: LinearLR(o, 0.2, 1.0, 4), lambda n: 0.2 + 0.8 * min(n, 4) / 4),
    ],
)
def test_rates_follow_the_formula(make, formula):
    assert rates(make(optimizer()), 12) == pytest.approx([0.5 * formula(n) for n in range(13)])


def test_eta_min_and_groups():
    opt = optimizer(1.0, 0.5)
    schedule = CosineAnnealingLR(opt, 2, eta_min=0.1)
    schedule.step()
    assert schedule.get_last_lr() == pytest.approx([0.55, 0.3])
    schedule.step()
    assert [g["lr"] for g in opt.param_groups] == pytest.approx([0.1, 0.1])


def test_a_warm_up_is_followed_by_a_cosine():
    opt = optimizer(1.0)
    schedule = SequentialLR(opt, [LinearLR(opt, 0.25, total_iters=3), CosineAnnealingLR(opt, 4)], [3])
    cosine = [(1 + math.cos(math.pi * n / 4)) / 2 for n in range(5)]
    assert rates(schedule, 7) == pytest.approx([0.25, 0.5, 0.75, *cosine])


def test_the_step_uses_the_rate():
    w = ag.param([1.0])
    opt = ag.optim.SGD([w], lr=1.0)
    schedule = StepLR(opt, 1, gamma=0.5)
    for _ in range(3):
        with ag.grad_tape():
            loss = w.sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        schedule.step()
    assert w.tolist() == [1 - 1 - 0.5 - 0.25]


def test_a_state_dict_goes_on_where_it_stopped():
    schedule = StepLR(optimizer(), 2, gamma=0.5)
    rates(schedule, 5)
    again = StepLR(optimizer(9.0), 2, gamma=0.5)
    again.load_state_dict(schedule.state_dict())
    assert rates(again, 3) == rates(schedule, 3)


def test_bad_settings_are_named():
    opt = optimizer()
    with pytest.raises(TypeError, match="StepLR: got int; expected an optimizer"):
        StepLR(3, 1)
    with pytest.raises(ValueError, match="step_size is 0"):
        StepLR(opt, 0)
    with pytest.raises(ValueError, match="T_max is 0"):
        CosineAnnealingLR(opt, 0)
    with pytest.raises(ValueError, match="LinearLR: factors 0"):
        LinearLR(opt, 0)
    with pytest.raises(ValueError, match="2 schedules and milestones"):
        SequentialLR(opt, [StepLR(opt, 1), StepLR(opt, 1)], [])
    with pytest.raises(ValueError, match="another optimizer"):
        SequentialLR(opt, [StepLR(opt, 1), StepLR(optimizer(), 1)], [3])

"""Owns learning-rate schedules: each sets the rate of every group from its starting rate and the number of steps taken."""

import math
from bisect import bisect_right
from collections.abc import Mapping

from agtape.arguments import as_float, as_int, as_ints, as_list
from agtape.optim.optimizer import Optimizer


class LRScheduler:
    """Base class; `step()` after `optimizer.step()` advances by one. Rates are computed afresh, so they do not drift.

    Args:
        optimizer: the optimizer whose groups to set; their present rates are the starting rates.
        last_epoch: steps taken so far, minus 1 before the first.

    Raises:
        TypeError: not an optimizer.

    >>> import agtape as ag
    >>> opt = ag.optim.SGD([ag.param([1.0])], lr=1.0)
    >>> schedule = ag.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.5)
    >>> schedule.step(); schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer, last_epoch=-1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__}: got {type(optimizer).__name__}; expected an optimizer")
        self.optimizer = optimizer
        self.last_epoch = as_int(type(self).__name__, "last_epoch", last_epoch)
        # Kept in the group, as in PyTorch: a second schedule of the same optimizer starts from the same rate.
        self.base_lrs = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
        self.step()

    def rate(self, base_lr, epoch):
        """The learning rate after `epoch` steps for a group that started with `base_lr`; each schedule defines it."""
        raise TypeError(f"{type(self).__name__}: defines no rate; expected a subclass that does")

    def step(self):
        """Advance by one step and set the rates."""
        self.last_epoch += 1
        self._apply()

    def get_last_lr(self):
        """The present rates, one per group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self):
        """The schedule's own state, without the optimizer."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict):
        """Take the state from a state dict and set the rates."""
        op = f"{type(self).__name__}.load_state_dict"
        missing = [key for key in ("last_epoch", "base_lrs") if key not in _mapping(op, state_dict)]
        if missing:
            raise ValueError(f"{op}: the state dict lacks {missing}; expected what state_dict() returned")
        rates = as_list(op, "'base_lrs'", state_dict["base_lrs"], "a list of numbers")
        if len(rates) != len(self.optimizer.param_groups):
            raise ValueError(f"{op}: {len(rates)} rates; expected {len(self.optimizer.param_groups)}, one per group")
        self.last_epoch, self.base_lrs = as_int(op, "'last_epoch'", state_dict["last_epoch"]), rates
        self._apply()

    def _apply(self):
        for group, base_lr in zip(self.optimizer.param_groups, self.base_lrs):
            group["lr"] = self.rate(base_lr, self.last_epoch)


class LambdaLR(LRScheduler):
    """The starting rate times `lr_lambda(epoch)`.

    Args:
        optimizer: the optimizer.
        lr_lambda: function from the number of steps to a factor.

    >>> import agtape as ag
    >>> opt = ag.optim.SGD([ag.param([1.0])], lr=2.0)
    >>> ag.optim.lr_scheduler.LambdaLR(opt, lambda n: 1 / (n + 1)).get_last_lr()
    [2.0]
    """

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        if not callable(lr_lambda):
            raise TypeError(
                f"LambdaLR: lr_lambda is {type(lr_lambda).__name__}; expected a function of the number of steps"
            )
        self.lr_lambda = lr_lambda
        super().__init__(optimizer, last_epoch)

    def rate(self, base_lr, epoch):
        return base_lr * as_float("LambdaLR", "what lr_lambda returned", self.lr_lambda(epoch))


class StepLR(LRScheduler):
    """The rate times gamma after every `step_size` steps.

    Args:
        optimizer: the optimizer.
        step_size: steps between two cuts.
        gamma: factor of a cut.

    >>> import agtape as ag
    >>> opt = ag.optim.SGD([ag.param([1.0])], lr=1.0)
    >>> ag.optim.lr_scheduler.StepLR(opt, 10).get_last_lr()
    [1.0]
    """

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        self.step_size = as_int("StepLR", "step_size", step_size, least=1)
        self.gamma = as_float("StepLR", "gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def rate(self, base_lr, epoch):
        return base_lr * self.gamma ** (epoch // self.step_size)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the starting rate to `eta_min` in `T_max` steps (Loshchilov and Hutter 2017, equation 5, no restarts).

    Args:
        optimizer: the optimizer.
        T_max: steps to the minimum.
        eta_min: the rate there.

    >>> import agtape as ag
    >>> opt = ag.optim.SGD([ag.param([1.0])], lr=1.0)
    >>> schedule = ag.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=2)
    >>> schedule.step(); round(schedule.get_last_lr()[0], 6)
    0.5
    """

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        self.T_max = as_int("CosineAnnealingLR", "T_max", T_max, least=1)
        self.eta_min = as_float("CosineAnnealingLR", "eta_min", eta_min)
        super().__init__(optimizer, last_epoch)

    def rate(self, base_lr, epoch):
        return self.eta_min + (base_lr - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2


class LinearLR(LRScheduler):
    """The starting rate times a factor that goes evenly from `start_factor` to `end_factor` and stays there: a warm-up.

    Args:
        optimizer: the optimizer.
        start_factor, end_factor: first and last factor.
        total_iters: steps between them.

    >>> import agtape as ag
    >>> opt = ag.optim.SGD([ag.param([1.0])], lr=1.0)
    >>> ag.optim.lr_scheduler.LinearLR(opt, start_factor=0.5).get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1):
        total_iters = as_int("LinearLR", "total_iters", total_iters)
        start_factor = as_float("LinearLR", "start_factor", start_factor)
        end_factor = as_float("LinearLR", "end_factor", end_factor)
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1 or total_iters < 1:
            raise ValueError(
                f"LinearLR: factors {start_factor!r}, {end_factor!r} and total_iters {total_iters!r}; expected factors "
                "above 0 and up to 1, and at least 1 step"
            )
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, base_lr, epoch):
        done = min(epoch, self.total_iters) / self.total_iters
        return base_lr * (self.start_factor + (self.end_factor - self.start_factor) * done)


class SequentialLR(LRScheduler):
    """Schedules one after the other; each counts its steps from its milestone.

    Args:
        optimizer: the optimizer.
        schedulers: schedules of that optimizer.
        milestones: rising numbers of steps at which the next one takes over, one fewer than schedules.

    Raises:
        ValueError: the numbers do not match, or a schedule is of another optimizer.

    >>> import agtape as ag
    >>> from agtape.optim.lr_scheduler import CosineAnnealingLR, LinearLR
    >>> opt = ag.optim.SGD([ag.param([1.0])], lr=1.0)
    >>> SequentialLR(opt, [LinearLR(opt, 0.1, total_iters=10), CosineAnnealingLR(opt, 90)], [10]).get_last_lr()
    [0.1]
    """

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        milestones = as_ints("SequentialLR", "milestones", milestones)
        schedulers = as_list("SequentialLR", "schedulers", schedulers, "a list of schedules")
        if len(milestones) != len(schedulers) - 1 or list(milestones) != sorted(milestones):
            raise ValueError(
                f"SequentialLR: {len(schedulers)} schedules and milestones {milestones!r}; expected rising milestones, one "
                "fewer than schedules"
            )
        if not all(isinstance(s, LRScheduler) for s in schedulers):
            raise TypeError("SequentialLR: something in schedulers is no schedule; expected schedules of one optimizer")
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ValueError("SequentialLR: a schedule is of another optimizer; expected the same for all")
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        super().__init__(optimizer, last_epoch)

    def _apply(self):
        index = bisect_right(self.milestones, self.last_epoch)
        start = self.milestones[index - 1] if index else 0
        scheduler = self.schedulers[index]
        scheduler.last_epoch = self.last_epoch - start
        scheduler._apply()


def _mapping(op, state_dict):
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"{op}: the state dict is {type(state_dict).__name__}; expected a dict")
    return state_dict

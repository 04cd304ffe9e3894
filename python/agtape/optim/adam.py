"""Owns Adam and AdamW."""

import agtape as ag
from agtape import _core
from agtape.arguments import as_float, shown
from agtape.optim.optimizer import Optimizer


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, algorithm 1); weight decay is added to the gradient.

    Args:
        params: leaves, or dicts of them with their own settings.
        lr: learning rate.
        betas: decay of the running mean of the gradient and of its square.
        eps: added to the root of the latter.
        weight_decay: share of the parameter that is added to its gradient.
        maximize: climb instead of descend.

    Raises:
        ValueError: a setting is negative or a beta is not in [0, 1); and as in `Optimizer`.

    >>> import agtape as ag
    >>> ag.optim.Adam([ag.param([1.0])]).param_groups[0]["betas"]
    (0.9, 0.999)
    """

    _decoupled = False

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, *, maximize=False):
        betas = tuple(betas) if isinstance(betas, (tuple, list)) else betas
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize))

    def _check_settings(self, group):
        super()._check_settings(group)
        betas = group["betas"]
        expected = "two numbers from 0 to below 1"
        if not isinstance(betas, (tuple, list)):
            raise TypeError(f"{self._name()}: betas is {shown(betas)}; expected {expected}")
        if len(betas) != 2 or not all(0 <= as_float(self._name(), "one of betas", b) < 1 for b in betas):
            raise ValueError(f"{self._name()}: betas is {betas!r}; expected {expected}")

    def _first_state(self, group):
        new = [p for p in group["params"] if p not in self.state and _core.resident_grad(p) is not None]
        values = {p: p.detach() for p in new}
        return {p: {"step": 0, "exp_avg": ag.zeros_like(v), "exp_avg_sq": ag.zeros_like(v)} for p, v in values.items()}

    def _record(self, group, notes):
        # One call for the parameters that have taken equally many steps: nearly always all of them.
        batches, state, is_max = {}, self.state, group["maximize"]
        for p in group["params"]:
            g = _core.resident_grad(p)
            if g is None:
                continue
            entries = state.get(p)
            if entries is None:
                entries = self._starting[p]
                notes.append((state, p, entries))
            step = entries["step"] + 1
            notes.append((entries, "step", step))
            params, grads, means, squares = batches.setdefault(step, ([], [], [], []))
            params.append(p)
            grads.append(g)
            means.append(entries["exp_avg"])
            squares.append(entries["exp_avg_sq"])
        lr, (beta1, beta2), eps, weight_decay = (group[name] for name in ("lr", "betas", "eps", "weight_decay"))
        for step, (params, grads, *moments) in batches.items():
            grads = [-g for g in grads] if is_max else grads
            _core.adam_update(params, grads, *moments, lr, beta1, beta2, eps, weight_decay, step, self._decoupled)


class AdamW(Adam):
    """Adam with decoupled weight decay: p shrinks by lr * weight_decay * p (Loshchilov and Hutter 2019, algorithm 2).

    Args:
        params: leaves, or dicts of them with their own settings.
        lr: learning rate.
        betas: decay of the running mean of the gradient and of its square.
        eps: added to the root of the latter.
        weight_decay: share by which the parameter shrinks, times lr.
        maximize: climb instead of descend.

    Raises:
        ValueError: a setting is negative or a beta is not in [0, 1); and as in `Optimizer`.

    >>> import agtape as ag
    >>> ag.optim.AdamW([ag.param([1.0])]).param_groups[0]["weight_decay"]
    0.01
    """

    _decoupled = True

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, *, maximize=False):
        super().__init__(params, lr, betas, eps, weight_decay, maximize=maximize)

"""Owns stochastic gradient descent."""

import agtape as ag
from agtape import _core
from agtape.optim.optimizer import Optimizer


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum (Sutskever et al. 2013, section 2, in PyTorch's form) and weight decay.

    With g the gradient plus `weight_decay` * p and b the momentum buffer: b = momentum * b + (1 - dampening) * g (b = g at first);
    p = p - lr * (g + momentum * b if nesterov else b).

    Args:
        params: leaves, or dicts of them with their own settings.
        lr: learning rate.
        momentum, dampening, weight_decay: see above.
        nesterov: needs momentum and no dampening.
        maximize: climb instead of descend.

    Raises:
        ValueError: a setting is negative, or nesterov is combined wrongly; and as in `Optimizer`.

    >>> import agtape as ag
    >>> opt = ag.optim.SGD([ag.param([1.0])], lr=0.1, momentum=0.9)
    >>> opt.param_groups[0]["momentum"]
    0.9
    """

    def __init__(
        self, params, lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, *, maximize=False
    ):
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                dampening=dampening,
                weight_decay=weight_decay,
                nesterov=nesterov,
                maximize=maximize,
            ),
        )

    def _check_settings(self, group):
        super()._check_settings(group)
        if group["nesterov"] and (not group["momentum"] or group["dampening"]):
            raise ValueError("SGD: nesterov=True; expected momentum above 0 and dampening=0 with it")

    def _first_state(self, group):
        if not group["momentum"]:
            return {}
        new = [p for p in group["params"] if p not in self.state and _core.resident_grad(p) is not None]
        return {p: {"momentum_buffer": ag.zeros_like(p.detach())} for p in new}

    def _record(self, group, notes):
        momentum, state = group["momentum"], self.state
        started, fresh = ([], [], []), ([], [], [])
        for p in group["params"]:
            g = _core.resident_grad(p)
            if g is None:
                continue
            params, grads, bufs = started
            if momentum:
                entries = state.get(p)
                if entries is None:
                    entries = self._starting[p]
                    notes.append((state, p, entries))
                    if group["dampening"]:
                        params, grads, bufs = fresh
                bufs.append(entries["momentum_buffer"])
            params.append(p)
            grads.append(g)
        lr, weight_decay, is_nesterov = group["lr"], group["weight_decay"], group["nesterov"]
        # A buffer that starts at zero becomes the gradient itself in its first step: no dampening then.
        for (params, grads, bufs), dampening in ((started, group["dampening"]), (fresh, 0.0)):
            if params:
                grads = [-g for g in grads] if group["maximize"] else grads
                _core.sgd_update(params, grads, bufs or None, lr, weight_decay, momentum, dampening, is_nesterov)

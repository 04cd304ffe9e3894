"""Owns whole training steps for the tests of capture: each maker gives a step, its batches and what it trains, always the same."""

import agtape as ag
import numpy as np

F = ag.nn.functional


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def whole_state(model, *optimizers):
    """Every parameter, buffer and entry of an optimizer's state, as bytes and plain values."""
    found = [t.numpy().tobytes() for t in [*model.parameters(), *model.buffers()]]
    for opt in optimizers:
        for entries in opt.state.values():
            found += [v.numpy().tobytes() if isinstance(v, ag.Tensor) else v for v in entries.values()]
    return found


def regression_batches(n, rows=16, columns=8, seed=1):
    return [
        (ag.tensor(floats(rows, columns, seed=seed + i)), ag.tensor(floats(rows, 3, seed=90 + i))) for i in range(n)
    ]


def mlp(optimizer=lambda params: ag.optim.Adam(params, lr=0.01), clip=None):
    ag.manual_seed(3)
    model = ag.nn.Sequential(ag.nn.Linear(8, 32), ag.nn.ReLU(), ag.nn.Linear(32, 32), ag.nn.Tanh(), ag.nn.Linear(32, 3))
    opt = optimizer(model.parameters())

    def step(x, y):
        opt.zero_grad()
        with ag.grad_tape():
            loss = F.mse_loss(model(x), y)
        loss.backward()
        if clip:
            ag.nn.clip_grad_norm_(model.parameters(), clip)
        opt.step()
        return loss

    return step, regression_batches, lambda: whole_state(model, opt), (model, opt)


class Block(ag.nn.Module):
    def __init__(self, width, segment):
        self.norm, self.attention = ag.nn.LayerNorm(width), ag.nn.MultiHeadAttention(width, 2)
        self.first, self.second = ag.nn.Linear(width, 4 * width), ag.nn.Linear(4 * width, width)
        self.last, self.drop, self.segment = ag.nn.LayerNorm(width), ag.nn.Dropout(0.2), segment

    def inner(self, x):
        h = self.norm(x)
        x = x + self.drop(self.attention(h, h, h, is_causal=True)[0])
        return x + self.drop(self.second(F.gelu(self.first(self.last(x)))))

    def forward(self, x):
        return ag.checkpoint(self.inner, x) if self.segment else self.inner(x)


class Transformer(ag.nn.Module):
    def __init__(self, segment=False, width=16):
        self.tokens, self.positions = ag.nn.Embedding(11, width), ag.param(floats(6, width, seed=5) * 0.1)
        self.blocks = ag.nn.Sequential(Block(width, segment), Block(width, segment))
        self.head = ag.nn.Linear(width, 11)

    def forward(self, ids):
        return self.head(self.blocks(self.tokens(ids) + self.positions))


def token_batches(n):
    rng = np.random.default_rng(8)
    draws = [rng.integers(0, 11, (4, 7)) for _ in range(n)]
    return [(ag.tensor(d[:, :-1]), ag.tensor(d[:, 1:])) for d in draws]


def transformer(segment=False, budget=None):
    ag.manual_seed(4)
    model = Transformer(segment)
    opt = ag.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)

    def step(ids, targets):
        with ag.grad_tape(budget=budget):
            loss = F.cross_entropy(model(ids).reshape(-1, 11), targets.reshape(-1))
        loss.backward()
        norm = ag.nn.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        opt.zero_grad()
        return {"loss": loss, "norm": norm}

    return step, token_batches, lambda: whole_state(model, opt), (model, opt)


def accumulation():
    ag.manual_seed(5)
    model = ag.nn.Sequential(ag.nn.Linear(8, 16), ag.nn.ReLU(), ag.nn.Dropout(0.3), ag.nn.Linear(16, 3))
    opt = ag.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)

    def step(x, y):
        losses = []
        for half in (slice(0, 8), slice(8, 16)):
            with ag.grad_tape():
                loss = F.mse_loss(model(x[half]), y[half]) / 2
            loss.backward()
            losses.append(loss)
        opt.step()
        opt.zero_grad()
        return losses[0] + losses[1]

    return step, regression_batches, lambda: whole_state(model, opt), (model, opt)


def batch_norm(momentum=0.1):
    ag.manual_seed(6)
    model = ag.nn.Sequential(
        ag.nn.Linear(8, 16), ag.nn.BatchNorm1d(16, momentum=momentum), ag.nn.ReLU(), ag.nn.Linear(16, 3)
    )
    opt = ag.optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        with ag.grad_tape():
            loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=False)
        return loss

    return step, regression_batches, lambda: whole_state(model, opt), (model, opt)


def by_hand():
    ag.manual_seed(7)
    model = ag.nn.Linear(8, 3)
    slope = ag.value_and_grad(lambda w, b, x, y: F.mse_loss(x @ w.T + b, y), argnums=(0, 1))

    def step(x, y):
        loss, grads = slope(model.weight, model.bias, x, y)
        for p, g in zip((model.weight, model.bias), grads):
            p.assign_(p - 0.1 * g)
        return loss

    return step, regression_batches, lambda: whole_state(model), (model, None)


MAKERS = {
    "MLP and Adam": mlp,
    "MLP, SGD and clipping": lambda: mlp(lambda params: ag.optim.SGD(params, lr=0.1), clip=0.1),
    "transformer, AdamW, dropout and clipping": transformer,
    "segments with dropout": lambda: transformer(segment=True),
    "a budget": lambda: transformer(budget="64 MiB"),
    "two micro-steps": accumulation,
    "batch norm": batch_norm,
    "batch norm with the mean of all batches": lambda: batch_norm(momentum=None),
    "value_and_grad and assign_": by_hand,
}

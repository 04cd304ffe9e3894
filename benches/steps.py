"""Owns the cost of a training step by stages, as it is and captured: recording, keys, binding, kernels.

`python benches/steps.py` prints milliseconds a step for each stage that `ag.profile(kernels=False)` tells, and the whole step without a
profile, for an MLP and a small transformer; `--device gpu` runs them on an adapter, `--only mlp` one of them.
"""

import argparse
import itertools
import statistics
import time

import agtape as ag
import numpy as np

F = ag.nn.functional
WARM_STEPS = 20


def mlp(device):
    """An MLP of three layers of 128 and Adam on batches of 64."""
    widths = [64, 128, 128, 128, 10]
    layers = []
    for i, o in itertools.pairwise(widths):
        layers += [ag.nn.Linear(i, o), ag.nn.ReLU()]
    model = ag.nn.Sequential(*layers[:-1]).to(device)
    rng = np.random.default_rng(0)
    batch = rng.standard_normal((64, 64)).astype(np.float32), rng.integers(0, 10, 64)
    return model, lambda x, y: F.cross_entropy(model(x), y), [ag.tensor(a, device=device) for a in batch]


class Block(ag.nn.Module):
    """A transformer's block: attention and a wide layer, each on normalized values."""

    def __init__(self, width, heads):
        self.first, self.attention = ag.nn.LayerNorm(width), ag.nn.MultiHeadAttention(width, heads)
        self.second = ag.nn.LayerNorm(width)
        self.wide, self.narrow = ag.nn.Linear(width, 4 * width), ag.nn.Linear(4 * width, width)

    def forward(self, x):
        """The next state of each position."""
        h = self.first(x)
        x = x + self.attention(h, h, h, need_weights=False, is_causal=True)[0]
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


def transformer(device, width=64, blocks=4, vocabulary=65, length=64):
    """A character transformer and AdamW on 8 texts of 64."""
    model = ag.nn.Sequential(
        ag.nn.Embedding(vocabulary, width), *(Block(width, 4) for _ in range(blocks)), ag.nn.Linear(width, vocabulary)
    ).to(device)
    ids = np.random.default_rng(0).integers(0, vocabulary, (2, 8, length))

    def loss(x, y):
        return F.cross_entropy(model(x).reshape(-1, vocabulary), y.reshape(-1))

    return model, loss, [ag.tensor(a, device=device) for a in ids]


MODELS = {
    "mlp": (mlp, lambda p: ag.optim.Adam(p, lr=1e-3)),
    "transformer": (transformer, lambda p: ag.optim.AdamW(p, lr=1e-3)),
}


def step_of(name, device, is_captured):
    """A step without arguments of its own, and captured if asked for."""
    make, optimizer = MODELS[name]
    ag.manual_seed(0)
    model, loss_of, batch = make(device)
    opt = optimizer(list(model.parameters()))

    def step(x, y):
        with ag.grad_tape():
            loss = loss_of(x, y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    step = ag.capture(step) if is_captured else step
    return lambda: step(*batch)


def measured(step, device, steps):
    """Milliseconds of each stage, those of the whole step (the median), and the loss in the end."""
    for _ in range(WARM_STEPS):
        loss = step()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        loss = step()
        ag.synchronize(device)
        times.append((time.perf_counter() - begin) * 1e3)
    with ag.profile(kernels=False) as profile:
        for _ in range(steps):
            step()
        ag.synchronize(device)
    stages = {stage: took / steps for stage, took in profile.stages.items()}
    return {**stages, "whole step": statistics.median(times)}, loss.item()


def main():
    """Print one table a model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    for name in [options.only] if options.only else MODELS:
        plain, loss = measured(step_of(name, options.device, False), options.device, options.steps)
        captured, same = measured(step_of(name, options.device, True), options.device, options.steps)
        print(f"{name} on {options.device}, milliseconds a step; losses {loss:.6g} and {same:.6g}")
        print(f"  {'stage':<12}{'plain':>10}{'captured':>10}")
        for stage in {**plain, **captured}:
            print(f"  {stage:<12}{plain.get(stage, 0.0):>10.4f}{captured.get(stage, 0.0):>10.4f}")


if __name__ == "__main__":
    main()

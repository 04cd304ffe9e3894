"""Owns the memory example: one transformer trained plain, checkpointed and under three budgets, with equal losses and unequal peaks.

Prints a table of peak, time and loss, what the tape holds, and saves pictures of the live bytes over one step. Try
`python examples/memory.py --layers 12`.
"""

import argparse
import time
from contextlib import nullcontext
from pathlib import Path

import agtape as ag
import numpy as np
from transformer import CharTransformer, draw_batch, load_text

F = ag.nn.functional
FRACTIONS = (2, 3, 5)  # budgets: what must be held anyway, and 1/2, 1/3, 1/5 of the plain run's activations


class Checkpointed(CharTransformer):
    """The same model; each block is a segment, whose values are rebuilt in backward."""

    def forward(self, ids):
        """Integers (N, T) to logits (N, T, vocabulary)."""
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = ag.checkpoint(block, x)
        return self.head(self.norm(x))


def loss_of(model, x, y):
    """Cross-entropy of the next character."""
    logits = model(x)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def start(kind, options, alphabet):
    """A model and its optimizer, equal whatever the kind."""
    ag.manual_seed(options.seed)
    model = kind(alphabet, options.context, width=options.width, layers=options.layers)
    return model, ag.optim.AdamW(model.parameters(), lr=1e-3)


def step(model, opt, x, y, budget=None):
    """One training step; returns the loss as a number and the tape's report."""
    with ag.grad_tape(budget=budget) if budget else ag.grad_tape() as tape:
        loss = loss_of(model, x, y)
    report = ag.tape_memory(tape)
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.item(), report


def train(kind, options, ids, alphabet, budget=None, picture=None):
    """Some steps on equal batches: the peak of the later ones, the time of the fastest, the losses, the report of the last."""
    rng = np.random.default_rng(options.seed)
    model, opt = start(kind, options, alphabet)
    losses, times, peak = [], [], 0
    for number in range(options.steps):
        x, y = draw_batch(rng, ids, options.batch, options.context)
        begin = time.perf_counter()
        is_last = number == options.steps - 1
        with ag.peak_memory() as scope, ag.memory_timeline() if is_last and picture else nullcontext() as timeline:
            loss, report = step(model, opt, x, y, budget)
        times.append(time.perf_counter() - begin)
        losses.append(loss)
        peak = max(peak, scope.peak if number else 0)  # the first step has no optimizer state yet
    if picture:
        timeline.save(picture)
    return {"peak": peak, "time": min(times[1:]), "losses": losses, "report": report}


def held_anyway(model, opt):
    """Bytes that every way has to hold: parameters, gradients, the optimizer's state."""
    estimate = ag.estimate_memory(model, ag.zeros((1, 1), dtype="int64"), opt, lambda out: out.sum())
    return estimate.parameters + estimate.gradients + estimate.optimizer_state


def estimated(options, ids, alphabet):
    """The peak that a plain step will have, without running one."""
    model, opt = start(CharTransformer, options, alphabet)
    x, y = draw_batch(np.random.default_rng(options.seed), ids, options.batch, options.context)
    return ag.estimate_memory(
        model, x, opt, lambda logits: F.cross_entropy(logits.reshape(-1, alphabet), y.reshape(-1)), holds_result=False
    ).peak


def ways(options, ids, alphabet, pictures):
    """Yield (name, figures) of every way to train; budgets follow from what the plain run needs."""
    plain = train(CharTransformer, options, ids, alphabet, picture=pictures / f"memory_plain{options.ending}")
    yield "plain", plain
    checkpointed = pictures / f"memory_checkpointed{options.ending}"
    yield "checkpointed", train(Checkpointed, options, ids, alphabet, picture=checkpointed)
    base = held_anyway(*start(CharTransformer, options, alphabet)) + 2 * 8 * options.batch * options.context
    for fraction in FRACTIONS:
        budget = base + (plain["peak"] - base) // fraction
        figures = None
        while figures is None:
            try:
                figures = train(CharTransformer, options, ids, alphabet, budget)
            except ag.BudgetError as refused:
                # A small model: the error says what would do for the plan that was refused.
                budget = refused.smallest_bytes
        yield f"budget 1/{fraction}: {budget / 2**20:.1f} MiB", figures


def main(argv=None):
    """Train every way and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=6, help="blocks of the transformer")
    parser.add_argument("--width", type=int, default=128, help="features of a character")
    parser.add_argument("--batch", type=int, default=16, help="stretches of text in a step")
    parser.add_argument("--context", type=int, default=64, help="characters the model looks back")
    parser.add_argument("--steps", type=int, default=6, help="training steps of each way, at least 2")
    parser.add_argument("--pictures", type=Path, default=Path("out"), help="folder for the pictures")
    parser.add_argument("--ending", choices=(".svg", ".png"), default=".png", help=".png needs matplotlib")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    options.steps = max(options.steps, 2)
    options.pictures.mkdir(parents=True, exist_ok=True)
    text = load_text()
    letters = sorted(set(text))
    number = {c: i for i, c in enumerate(letters)}
    ids = np.array([number[c] for c in text], np.int32)

    print(f"estimated peak of a plain step: {estimated(options, ids, len(letters)) / 2**20:.1f} MiB")
    first = None
    print(f"{'way':<28}{'peak':>12}{'ms a step':>12}{'last loss':>12}  equal losses")
    for name, figures in ways(options, ids, len(letters), options.pictures):
        first = first or figures
        equal = "yes" if figures["losses"] == first["losses"] else "NO"
        peak, ms, loss = figures["peak"] / 2**20, 1e3 * figures["time"], figures["losses"][-1]
        print(f"{name:<28}{peak:>8.1f} MiB{ms:>12.1f}{loss:>12.6f}  {equal}")
    print(f"\nwhat the plain tape holds:\n{first['report']}")
    print(f"pictures: {', '.join(str(p) for p in sorted(options.pictures.glob('memory_*' + options.ending)))}")


if __name__ == "__main__":
    main()

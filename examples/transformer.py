"""Owns the second example: a small transformer that learns, character by character, to write like Python's own manual.

The text is `pydoc_data.topics`, the language reference that ships with Python. Try `python examples/transformer.py --steps 300`.
"""

import argparse
import pydoc_data.topics

import agtape as ag
import numpy as np
from tqdm import tqdm

nn = ag.nn


def load_text():
    """The manual's text as one string of printable ASCII."""
    topics = pydoc_data.topics.topics
    text = "\n\n".join(topics[name] for name in sorted(topics))
    return "".join(c for c in text if c == "\n" or " " <= c <= "~")


class Block(nn.Module):
    """One pre-norm layer: attention to what came before, then two linear layers, each added to its input."""

    def __init__(self, width, heads, dropout):
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiHeadAttention(width, heads, dropout, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x):
        """(N, T, width) to the same shape."""
        x = x + self.attention(self.norm1(x), need_weights=False, is_causal=True)[0]
        return x + self.mlp(self.norm2(x))


class CharTransformer(nn.Module):
    """Predicts the next character from the `context` characters before it."""

    def __init__(self, vocabulary, context, width=96, heads=4, layers=3, dropout=0.1):
        self.context = context
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids):
        """Integers (N, T) to logits (N, T, vocabulary)."""
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def draw_batch(rng, ids, batch, context):
    """Random stretches of the text and the same moved on by one character."""
    starts = rng.integers(0, len(ids) - context - 1, batch)[:, None] + np.arange(context)
    return ag.tensor(ids[starts]), ag.tensor(ids[starts + 1])


def write(model, rng, ids, length):
    """Let the model go on from `ids`, drawing each character from its prediction."""
    model.eval()
    ids = list(ids)
    for _ in range(length):
        window = np.array([ids[-model.context :]])
        logits = model(ag.tensor(window)).numpy()[0, -1].astype(np.float64)
        odds = np.exp(logits - logits.max())
        ids.append(int(rng.choice(len(odds), p=odds / odds.sum())))
    return ids


def train(model, ids, options):
    """Train with AdamW and gradient clipping; returns the losses."""
    rng = np.random.default_rng(options.seed)
    opt = ag.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.1)
    schedule = ag.optim.lr_scheduler.CosineAnnealingLR(opt, max(options.steps, 1), eta_min=options.lr / 10)
    losses = []
    with tqdm(total=options.steps, unit="step", mininterval=0.5) as bar:
        for step in range(options.steps):
            x, y = draw_batch(rng, ids, options.batch, model.context)
            with ag.grad_tape():
                logits = model(x)
                loss = nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
            loss.backward()
            nn.clip_grad_norm_(opt.param_groups[0]["params"], 1.0)
            opt.step()
            opt.zero_grad()
            schedule.step()
            losses.append(loss.item())
            bar.update()
            if step % 10 == 9:
                bar.set_postfix(loss=f"{np.mean(losses[-20:]):.3f}")
    return losses


def main(argv=None):
    """Train, then let the model write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500, help="training steps")
    parser.add_argument("--batch", type=int, default=16, help="stretches of text in a step")
    parser.add_argument("--context", type=int, default=64, help="characters the model looks back")
    parser.add_argument("--lr", type=float, default=2e-3, help="learning rate")
    parser.add_argument("--write", type=int, default=300, help="characters to write at the end")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    ag.manual_seed(options.seed)
    text = load_text()
    alphabet = sorted(set(text))
    number = {c: i for i, c in enumerate(alphabet)}
    ids = np.array([number[c] for c in text], np.int32)
    model = CharTransformer(len(alphabet), options.context)
    print(f"{len(text):,} characters of {len(alphabet)} kinds; {sum(p.size for p in model.parameters()):,} parameters")
    losses = train(model, ids, options)
    if losses:
        print(
            f"loss: {losses[0]:.3f} at first, {np.mean(losses[-20:]):.3f} at the end (even odds: {np.log(len(alphabet)):.3f})"
        )
    start = [number[c] for c in "The "]
    print("".join(alphabet[i] for i in write(model, np.random.default_rng(options.seed), start, options.write)))


if __name__ == "__main__":
    main()

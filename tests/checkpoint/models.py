"""Owns what the checkpoint tests share: small models in the widest float type, gradients with and without segments, nested programs, counting."""

import collections
import functools

import agtape as ag
import numpy as np
from hypothesis import strategies as st
from on_device import assert_close, float_type, is_adapter, item_bytes
from pool_bytes import class_bytes

WIDTH, BATCH = 8, 16
REPLAYS = ("trace", "call")
# What may be done to a loss before its backward pass, a read of one or another kind.
LOOKS = (lambda loss: None, ag.Tensor.item, str, ag.eval)


def weights(n, seed=0, width=WIDTH):
    """Fresh leaves with the same values every time."""
    rng = np.random.default_rng(seed)
    return [ag.param(rng.standard_normal((width, width)) / np.sqrt(width), dtype=float_type()) for _ in range(n)]


def batch(seed=1, rows=BATCH, width=WIDTH):
    """An input without a gradient."""
    return ag.tensor(np.random.default_rng(seed).standard_normal((rows, width)), dtype=float_type())


def value_bytes(rows=BATCH, width=WIDTH):
    """Pool bytes of a layer's value."""
    return class_bytes(rows * width * item_bytes())


def block(h, w):
    """A layer whose gradient needs three values of its own."""
    return ag.tanh(h @ w) * ag.sigmoid(h @ w)


def plain(fn, *args, **kwargs):
    """What `checkpoint` is compared with: just the call."""
    return fn(*args, **kwargs)


def segment(replay):
    """`checkpoint` with a replay, called like `plain`."""
    return lambda fn, *args, **kwargs: ag.checkpoint(fn, *args, replay=replay, **kwargs)


def gradients(build, leaves, look=LOOKS[0], passes=1, budget=None):
    """The loss, and the gradients of the leaves, of one fresh run; before each backward pass `look` is called with the loss."""
    for leaf in leaves:
        leaf.grad = None
    ag.manual_seed(3)
    with ag.grad_tape(budget=budget):
        loss = build()
    for number in range(passes):
        look(loss)
        loss.backward(retain_graph=number + 1 < passes)
    grads = [None if leaf.grad is None else leaf.grad.numpy().copy() for leaf in leaves]
    return loss.item(), grads


def few_on_an_adapter(test):
    """The test, of whose examples an adapter runs the first few for each replay: on software Vulkan each takes seconds."""
    seen = collections.Counter()

    @functools.wraps(test)
    def some(*args, **kwargs):
        seen[kwargs.get("replay")] += is_adapter()
        if seen[kwargs.get("replay")] <= 3 or not is_adapter():
            test(*args, **kwargs)

    return some


def nests(simple):
    """Instructions of random programs: a segment in a segment, or three, each with its own replay and with ops before and after."""
    level = st.tuples(st.integers(0, 1), st.lists(simple, max_size=2), st.lists(simple, max_size=2))

    def nest(innermost, levels):
        program = [innermost]
        for replay, before, after in levels:
            program = [("segment", [*before, *program, *after], [0], 0, replay)]
        return program[0]

    return st.builds(nest, simple, st.lists(level, min_size=2, max_size=3))


def assert_equal(found, expected, rtol=1e-12):
    """Losses and gradients that agree as the promises say, `None` where the other has none."""
    assert_close(found[0], expected[0], rtol=rtol)
    assert [g is None for g in found[1]] == [g is None for g in expected[1]]
    for a, b in zip(found[1], expected[1]):
        if b is not None:
            assert_close(a, b, rtol=rtol, atol=1e-300)


class Counted:
    """A callable that counts its calls."""

    def __init__(self, fn):
        self.fn, self.calls = fn, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.fn(*args, **kwargs)

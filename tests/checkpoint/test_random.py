"""Random numbers in segments: a replay draws what the first run drew, and what follows draws as if nothing had been replayed."""

import dataclasses
import random
import threading

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import REPLAYS, assert_equal, batch, block, gradients, plain, segment, weights
from on_device import float_type


@pytest.mark.parametrize("replay", REPLAYS)
def test_C08_dropout_replays_the_same_draw_and_the_stream_goes_on(replay):
    leaves = weights(3)
    x = batch()
    drawn = []

    def build(call):
        h = call(lambda h: ag.dropout(block(h, leaves[0]), 0.4), x)
        h = ag.dropout(h, 0.2)
        h = call(lambda h: ag.dropout(block(h, leaves[1]), 0.4) * ag.randn(16, 8), h)
        return (ag.dropout(h, 0.1) @ leaves[2]).sum()

    def run(call):
        result = gradients(lambda: build(call), leaves)
        drawn.append(ag.rand(3).tolist())
        return result

    assert_equal(run(segment(replay)), run(plain))
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("replay", REPLAYS)
def test_C08_draws_between_forward_and_backward_do_not_matter(replay):
    (w,) = weights(1)
    x = batch()
    grads = []
    for extra in (0, 5):
        ag.manual_seed(7)
        w.grad = None
        with ag.grad_tape():
            loss = ag.checkpoint(lambda h: ag.dropout(h @ w, 0.5), x, replay=replay).sum()
        for _ in range(extra):
            ag.rand(3)
        state = ag.get_rng_state()
        loss.backward()
        assert ag.get_rng_state() == state
        grads.append(w.grad.numpy())
    np.testing.assert_array_equal(*grads)


def test_C08_C17_another_threads_draws_during_a_replay_are_those_of_the_stream():
    (w,) = weights(1)
    drawn = []

    def inside(h):
        h = ag.dropout(h @ w, 0.5)
        if ag.is_replaying():
            thread = threading.Thread(target=lambda: drawn.append(ag.rand(2).tolist()))
            thread.start()
            thread.join(60)
        return ag.dropout(h, 0.5)

    with ag.grad_tape():
        loss = ag.checkpoint(inside, batch(), replay="call").sum()
    state = ag.get_rng_state()
    expected = [ag.rand(2).tolist(), ag.rand(2).tolist()]
    ag.set_rng_state(state)
    loss.backward()
    assert [*drawn, ag.rand(2).tolist()] == expected


@pytest.mark.parametrize("replay", REPLAYS)
def test_C14_foreign_generators_replay(replay):
    (w,) = weights(1)
    x = batch()
    mine = np.random.default_rng(11)
    also = random.Random(12)

    def inside(h):
        h = h * random.random() + np.random.standard_normal(8).astype(float_type())
        return ag.tanh(h @ w) * mine.standard_normal((16, 8)).astype(float_type()) * also.random()

    def run(call, **settings):
        random.seed(1)
        np.random.seed(2)
        mine.bit_generator.state = np.random.default_rng(11).bit_generator.state
        also.seed(12)
        result = gradients(lambda: call(inside, x, **settings).sum(), [w])
        return result, (random.random(), np.random.rand(), mine.random(), also.random())

    found, after = run(ag.checkpoint, replay=replay, rngs=[mine, also])
    expected, expected_after = run(plain)
    assert_equal(found, expected)
    assert after == expected_after


def test_C14_a_generator_that_was_not_named_is_an_error_not_a_wrong_number():
    (w,) = weights(1)
    mine = np.random.default_rng(0)
    with ag.grad_tape():
        loss = ag.checkpoint(
            lambda h: (h @ w) * mine.random((16, 8)).astype(float_type()), batch(), replay="call"
        ).sum()
    with pytest.raises(RuntimeError, match="was given other numbers"):
        loss.backward()


class Stubborn:
    """A generator of the user's that refuses a state at the calls with these numbers."""

    def __init__(self, *failing):
        self.failing, self.calls = failing, 0

    def get_state(self):
        return "state"

    def set_state(self, state):
        self.calls += 1
        if self.calls in self.failing:
            raise LookupError(f"call {self.calls}")


# A replay gives a generator the first run's state, then its own back.
@pytest.mark.parametrize("failing", [(1,), (2,), (1, 2)])
def test_C09_C14_a_generator_that_fails_around_a_replay_leaves_the_rest_right(failing):
    (w,) = weights(1)
    mine = np.random.default_rng(3)

    def inside(h):
        return ag.dropout(h @ w, 0.5) * random.random() * np.random.rand() * mine.random()

    def states():
        python, numpy, options = random.getstate(), np.random.get_state()[2], ag.options()
        return ag.get_rng_state(), python, numpy, mine.bit_generator.state, options.fuse, ag.is_replaying()

    with ag.grad_tape(), ag.options(fuse=False):
        loss = ag.checkpoint(inside, batch(), replay="call", rngs=[Stubborn(*failing), mine]).sum()
    state = ag.get_rng_state()
    expected = [ag.rand(2).tolist(), ag.rand(2).tolist()]
    ag.set_rng_state(state)
    before = states()
    with pytest.raises(LookupError, match=f"call {failing[-1]}") as caught:
        loss.backward()
    note = "checkpoint: rngs[0] (Stubborn) refused a state; expected it to take what it had given"
    assert note in caught.value.__notes__
    assert states() == before
    drawn = []
    # Both threads draw from the process's stream.
    thread = threading.Thread(target=lambda: drawn.append(ag.rand(2).tolist()))
    thread.start()
    thread.join(60)
    assert [*drawn, ag.rand(2).tolist()] == expected
    loss.backward()
    assert w.grad is not None


DRAWS = {
    "ours": lambda own: ag.rand(3).tolist(),
    "Python's": lambda own: random.random(),
    "NumPy's": lambda own: np.random.standard_normal(),
    "rngs=": lambda own: (own[0].random(), own[1].random(), own[2].rand()),
}


@pytest.mark.parametrize("replay", REPLAYS)
@pytest.mark.parametrize("kind", DRAWS)
def test_C09_a_segment_that_raises_has_drawn_nothing_and_a_retry_draws_the_same(kind, replay):
    (w,) = weights(1)
    x, failing, drawn = batch(), [True], []
    own = [np.random.default_rng(3), random.Random(4), np.random.RandomState(5)]

    def inside(h):
        drawn.append(DRAWS[kind](own))
        with ag.options(fuse=False):
            if failing[0]:
                ag.options(plan_cache=False).__enter__()
                raise ZeroDivisionError
        return h @ w * float(np.mean(drawn[-1]))

    with ag.grad_tape():
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                ag.checkpoint(inside, x, replay=replay, rngs=own)
            assert ag.options().fuse and ag.options().plan_cache
        failing[0] = False
        loss = ag.checkpoint(inside, x, replay=replay, rngs=own).sum()
    assert drawn[0] == drawn[1] == drawn[2]
    assert DRAWS[kind](own) != drawn[0]
    loss.backward()
    assert w.grad is not None


@pytest.mark.parametrize("replay", REPLAYS)
def test_C09_C14_another_generator_in_the_place_of_numpys_global_one(replay):
    (w,) = weights(1)
    x, former = batch(), np.random.get_bit_generator()
    failing, drawn = [True], []

    def inside(h):
        drawn.append(np.random.random())
        if failing[0]:
            raise ZeroDivisionError
        return (h @ w) * drawn[-1]

    np.random.set_bit_generator(np.random.PCG64(3))
    try:
        with ag.grad_tape():
            with pytest.raises(ZeroDivisionError):
                ag.checkpoint(inside, x, replay=replay)
            failing[0] = False
            loss = ag.checkpoint(inside, x, replay=replay).sum()
        loss.backward()
    finally:
        np.random.set_bit_generator(former)
    assert drawn == [drawn[0]] * (2 if replay == "trace" else 3)


@pytest.mark.parametrize("replay", REPLAYS)
def test_C09_C14_a_generator_that_fails_after_a_failed_segment_is_a_note_on_the_users_error(replay):
    mine = np.random.default_rng(3)
    error = ValueError("mine")

    def inside(h):
        ag.rand(2)
        random.random()
        np.random.rand()
        mine.random()
        raise error

    def states():
        return ag.get_rng_state(), random.getstate(), np.random.get_state()[2], mine.bit_generator.state

    before = states()
    with ag.grad_tape(), pytest.raises(ValueError, match="mine") as caught:
        ag.checkpoint(inside, batch(), replay=replay, rngs=[Stubborn(1), mine], name="the block")
    assert caught.value is error
    assert error.__context__ is None
    assert error.__notes__ == [
        "raised in checkpoint segment 'the block'; its draws of random numbers were taken back",
        "but not all of them: LookupError('call 1'); checkpoint: rngs[0] (Stubborn) refused a state; expected it to take what it "
        "had given",
    ]
    assert states() == before


@dataclasses.dataclass
class Pair:
    left: ag.Tensor
    right: ag.Tensor
    scale: float = 2.0


@pytest.mark.parametrize("replay", REPLAYS)
def test_C14_any_nesting_of_arguments_and_outputs(replay):
    leaves = weights(2)
    x = batch()

    def inside(pair, options, none, *rest, factor, names=("a", "b")):
        assert none is None
        a = block(pair.left, leaves[0]) * pair.scale + options["bias"][0]
        b = ag.dropout(pair.right, 0.3) * factor + rest[0][1]
        return Pair(a, b), [{names[0]: a * b}, none, 7, "text"], options["labels"]

    def build(call):
        h = x @ leaves[1]
        options = {"bias": [h.mean(0)], "labels": ag.tensor([1, 2])}
        pair, (products, none, seven, text), labels = call(inside, Pair(h, h * h), options, None, (1, h), factor=0.5)
        assert (none, seven, text, labels.tolist()) == (None, 7, "text", [1, 2])
        assert isinstance(pair, Pair)
        return (pair.left * products["a"]).sum() + pair.right.sum()

    assert_equal(gradients(lambda: build(segment(replay)), leaves), gradients(lambda: build(plain), leaves))

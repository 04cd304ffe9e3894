"""Random programs of everything at once: nested segments, budgets, views, in-place writes, draws, buffers, errors; to the bit (C01-C14, B01, B02)."""

import contextlib
import gc
import random

import agtape as ag
import numpy as np
import pytest
from agtape import _core
from checkpoint.models import LOOKS, REPLAYS, assert_equal, few_on_an_adapter, nests
from hypothesis import given
from hypothesis import strategies as st
from on_device import assert_close, assert_same_bits, float_type
from pool_bytes import active

SIDE = 16
UNARY = (ag.sin, ag.tanh, ag.sigmoid, lambda t: t * t * 0.5, lambda t: ag.exp(t * 0.1), ag.relu, ag.softplus)
BINARY = (lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a @ b * 0.1, lambda a, b: a - ag.tanh(b), ag.maximum)
VIEWS = (
    lambda t: t.T,
    lambda t: t[::-1],
    lambda t: t.reshape(4, -1).reshape(SIDE, SIDE).T,
    lambda t: ag.broadcast_to(t[3:4], (SIDE, SIDE)),
    lambda t: ag.concat([t[8:], t[:8]]),
    lambda t: ag.flip(t, 1)[ag.tensor([1, 1, 3, 0] * 4)],
)
# Writes into a tensor of one's own from another.
WRITES = (
    lambda mine, other: mine.__setitem__(slice(2, 6), other[:4]),
    lambda mine, other: mine.__setitem__((slice(None), 3), other[5] * 2.0),
    lambda mine, other: mine.__setitem__(slice(None, None, 2), 0.5),
    lambda mine, other: mine.__iadd__(other),
    lambda mine, other: mine.__imul__(ag.tanh(other)),
)


class Failed(Exception):
    """What a segment raises that is to be tried and given up."""


class Broken(Exception):
    """What a second run raises that nobody inside the program expects."""


class Env:
    """One run of a program: its leaves, its module, its generators, how a segment is called, and who was called how often."""

    def __init__(self, replay):
        rng = np.random.default_rng(9)
        kind = float_type()
        self.leaves = [ag.param(rng.standard_normal((SIDE, SIDE)) / 4, dtype=kind) for _ in range(3)]
        self.x = ag.tensor(rng.standard_normal((SIDE, SIDE)), dtype=kind)
        self.norm = ag.nn.BatchNorm(SIDE).to(kind)
        self.leaves += list(self.norm.parameters())
        self.own = np.random.default_rng(5)
        self.replay, self.depth, self.is_failing = replay, 0, False
        self.calls, self.deepest = {}, {}
        # How many second runs there were, and which one breaks.
        self.again, self.broken = 0, None
        random.seed(3)
        np.random.seed(3)
        ag.manual_seed(3)
        ag.eval(self.x, *self.leaves)

    def draws(self):
        """What every generator draws next."""
        return ag.rand(2).tolist(), random.random(), np.random.random(), self.own.random()

    def segment(self, body, outside, values, wanted, own, fails):
        """The body as a segment over the values outside and the values passed, with its own replay where they are mixed; two results."""
        own_depth = self.depth

        def inside(*given):
            self.calls[id(body)] = self.calls.get(id(body), 0) + 1
            self.deepest[id(body)] = own_depth
            if ag.is_replaying():
                self.again += 1
                if self.again == self.broken:
                    raise Broken
            before = self.depth, self.is_failing
            self.depth, self.is_failing = own_depth + 1, self.is_failing or fails
            try:
                left = self.run(body, [*outside, *given])
                if fails:
                    raise Failed
            finally:
                self.depth, self.is_failing = before
            return {"top": left[-1], "more": [left[-1 - wanted % len(left)], 3]}

        replay = self.replay if self.replay != "mixed" else REPLAYS[own]
        if replay is None:
            found = inside(*values)
        else:
            found = ag.checkpoint(inside, *values, replay=replay, rngs=[self.own])
        return [found["top"], found["more"][0]]

    def run(self, program, stack):
        """Run a program on a stack; the stack that is left."""
        stack = list(stack)
        for kind, *args in program:
            if kind == "segment":
                body, passed, wanted, own = args
                stack += self.segment(body, list(stack), [at(stack, p) for p in passed], wanted, own, fails=False)
            elif kind == "attempt":
                # A plain program would not have tried.
                if self.replay is not None:
                    with contextlib.suppress(Failed):
                        self.segment(args[0], list(stack), [], 0, args[1], fails=True)
            else:
                stack.append(self.step(kind, args, stack))
        return stack

    def step(self, kind, args, stack):
        value = at(stack, args[-1])
        match kind:
            case "unary":
                return UNARY[args[0]](value)
            case "binary":
                return BINARY[args[0]](at(stack, args[1]), value)
            case "weight":
                return value @ self.leaves[args[0]]
            case "view":
                return VIEWS[args[0]](value)
            case "write":
                mine = value * 1.0
                WRITES[args[0]](mine, at(stack, args[1]))
                return mine
            case "view write":
                mine = ag.tanh(value)
                rows = mine[::2]
                rows += at(stack, args[0])[:8]
                mine[1] = rows[0]
                return ag.concat([rows, mine[8:]])
            case "dropout":
                return ag.dropout(value, 0.3)
            case "noise":
                return value * (0.5 + random.random() + np.random.random() * self.own.random())
            case "frozen":
                with ag.no_grad():
                    return UNARY[args[0]](value)
            case "detach":
                return value.detach()
            case "slope":
                return ag.grad(lambda inner: (ag.sin(inner @ self.leaves[0] * 0.3) * value).sum())(value)
            case "norm":
                return value if self.is_failing else self.norm(value)
            case "read":
                # An evaluation in the midst, and a number that depends on it.
                return value * float(np.tanh(value.numpy()).mean())
        raise AssertionError(kind)


def at(stack, place):
    return stack[-1 - place % len(stack)]


position = st.integers(0, 5)
simple = st.one_of(
    st.tuples(st.just("unary"), st.integers(0, len(UNARY) - 1), position),
    st.tuples(st.just("binary"), st.integers(0, len(BINARY) - 1), position, position),
    st.tuples(st.just("weight"), st.integers(0, 2), position),
    st.tuples(st.just("view"), st.integers(0, len(VIEWS) - 1), position),
    st.tuples(st.just("write"), st.integers(0, len(WRITES) - 1), position, position),
    st.tuples(st.sampled_from(["view write"]), position, position),
    st.tuples(st.sampled_from(["dropout", "noise", "detach", "norm", "read", "slope"]), position),
    st.tuples(st.just("frozen"), st.integers(0, len(UNARY) - 1), position),
)
instruction = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(
            st.just("segment"),
            st.lists(inner, min_size=1, max_size=6),
            st.lists(position, max_size=2),
            position,
            st.integers(0, 1),
        ),
        st.tuples(st.just("attempt"), st.lists(inner, min_size=1, max_size=3), st.integers(0, 1)),
    ),
    max_leaves=14,
)
programs = st.lists(st.one_of(instruction, nests(simple)), min_size=3, max_size=12)
shallow = st.lists(instruction, min_size=3, max_size=12)


def train(program, replay, passes=1, budget=None, look=LOOKS[0]):
    """One or two backward passes over one fresh run: losses, gradients, buffers, what is drawn next, calls and the peak."""
    env = Env(replay)
    ag.empty_cache()
    ag.reset_peak_memory()
    with ag.peak_memory() as scope:
        with ag.grad_tape(budget=budget):
            stack = env.run(program, [env.x * 1.0, env.x @ env.leaves[0]])
            loss = sum((ag.tanh(t).sum() for t in stack[-3:]), (env.leaves[0] * 0.0).sum())
            del stack
        for number in range(passes):
            look(loss)
            loss.backward(retain_graph=number + 1 < passes)
        peak, reserved = scope.peak, _core.reserved_peak()
    grads = [p.grad.numpy().copy() if p.grad is not None else None for p in env.leaves]
    buffers = [b.numpy().copy() for b in env.norm.buffers()]
    found = {"loss": loss.item(), "grads": grads, "buffers": buffers, "draws": env.draws(), "env": env}
    return {**found, "peak": peak, "reserved": reserved}


def assert_same(found, expected, replay):
    """To the bit where the ops and the sums are those of the plain program; where a segment is called again its sums are made apart."""
    assert [g is None for g in found["grads"]] == [g is None for g in expected["grads"]]
    assert found["draws"] == expected["draws"]
    if replay == "trace":
        assert_same_bits([np.float64(found["loss"])], [np.float64(expected["loss"])])
        present = [(a, b) for a, b in zip(found["grads"], expected["grads"]) if b is not None]
        assert_same_bits([a for a, _ in present], [b for _, b in present])
    else:
        assert_equal((found["loss"], found["grads"]), (expected["loss"], expected["grads"]), rtol=1e-9)
    assert_same_bits(found["buffers"], expected["buffers"])


def assert_calls(found, expected, replay, passes):
    """Traced functions are called as often as in the plain program; others once more for each replay of them and of what they lie in."""
    for body, calls in expected["env"].calls.items():
        most = 1 if replay == "trace" else 1 + passes * (1 + expected["env"].deepest[body])
        assert calls <= found["env"].calls[body] <= calls * most


def refusal(program, replay, passes, budget):
    """The smallest budget that a refusal names; `None` if nothing was refused."""
    try:
        train(program, replay, passes, budget)
    except ag.BudgetError as refused:
        return refused.smallest_bytes
    return None


def smallest_budget(program, replay, passes):
    """The smallest budget under which a step works: each part that is evaluated by itself may ask for more than the one before."""
    held = active()
    budget = held + 1
    for _ in range(60):
        larger = refusal(program, replay, passes, budget)
        assert active() == held, "a step left something behind"
        if larger is None:
            return budget
        assert larger > budget
        budget = larger
    raise AssertionError("sixty refusals, each with a larger figure")


@pytest.mark.parametrize("replay", [*REPLAYS, "mixed"])
@given(program=programs, passes=st.integers(1, 2), look=st.sampled_from(LOOKS))
@few_on_an_adapter
def test_C01_C09_C12_C13_C14_random_combinations_are_the_plain_program(replay, program, passes, look):
    expected, found = train(program, None, passes, look=look), train(program, replay, passes, look=look)
    assert_same(found, expected, replay)
    assert_calls(found, expected, replay, passes)


@pytest.mark.promise("B01")
@pytest.mark.promise("B02")
@pytest.mark.promise("B03")
@pytest.mark.parametrize("replay", [*REPLAYS, "mixed"])
@given(program=shallow, passes=st.integers(1, 2), part=st.sampled_from([0.0, 0.1, 0.4, 0.8]))
@few_on_an_adapter
def test_C01_random_combinations_under_budgets(replay, program, passes, part):
    free = train(program, replay, passes)
    peak, calls = free["peak"], free["env"].calls
    free["env"] = None
    smallest = smallest_budget(program, replay, passes)
    budget = smallest + int(part * max(peak - smallest, 0))
    found = train(program, replay, passes, budget)
    assert found["peak"] <= budget and found["reserved"] <= budget
    assert found["env"].calls == calls
    assert found["draws"] == free["draws"]
    present = [(a, b) for a, b in zip(found["grads"], free["grads"]) if b is not None]
    assert_same_bits([np.float64(found["loss"])], [np.float64(free["loss"])])
    assert_same_bits([a for a, _ in present], [b for _, b in present])
    assert_same_bits(found["buffers"], free["buffers"])


@pytest.mark.parametrize("replay", ["call", "mixed"])
@given(program=programs, broken=st.integers(1, 9))
@few_on_an_adapter
def test_C09_C17_random_second_runs_that_break_can_be_tried_again(replay, program, broken):
    expected = train(program, replay)
    env = Env(replay)
    with ag.grad_tape():
        stack = env.run(program, [env.x * 1.0, env.x @ env.leaves[0]])
        loss = sum((ag.tanh(t).sum() for t in stack[-3:]), (env.leaves[0] * 0.0).sum())
        del stack
    if expected["env"].again:
        env.broken = 1 + broken % expected["env"].again
        flags = ag.is_grad_enabled(), ag.get_rng_state()
        with pytest.raises(Broken):
            loss.backward()
        assert all(p.grad is None for p in env.leaves) and not ag.is_replaying()
        assert (ag.is_grad_enabled(), ag.get_rng_state()) == flags
    loss.backward()
    assert_same_bits([b.numpy() for b in env.norm.buffers()], expected["buffers"])
    present = [(p.grad.numpy(), b) for p, b in zip(env.leaves, expected["grads"]) if b is not None]
    assert_same_bits([a for a, _ in present], [b for _, b in present])
    assert env.draws() == expected["draws"]


@pytest.mark.parametrize("replay", [*REPLAYS, "mixed"])
@given(program=programs)
@few_on_an_adapter
def test_C19_random_combinations_have_second_derivatives(replay, program):
    def product(replay):
        env = Env(replay)

        def slope(x):
            def energy(x):
                return sum((ag.tanh(t).sum() for t in env.run(program, [x * 1.0, ag.sin(x)])[-2:]), x.sum())

            return (ag.grad(energy)(x) * env.leaves[0].detach()).sum()

        found = ag.grad(slope)(env.x).numpy()
        return found, env.draws()

    (found, draws), (expected, plain_draws) = product(replay), product(None)
    assert draws == plain_draws
    assert_close(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("replay", [*REPLAYS, "mixed"])
@given(program=programs, passes=st.integers(1, 2))
@few_on_an_adapter
def test_C06_C20_random_combinations_leave_nothing_behind(replay, program, passes):
    gc.collect()
    gc.disable()
    try:
        before, held = active(), []
        for _ in range(2):
            train(program, replay, passes)
            held.append(active())
        assert held == [before, before]
    finally:
        gc.enable()

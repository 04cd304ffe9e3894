"""Random programs of nested segments against the same program without them: gradients, draws, and what is held afterwards."""

import functools

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import LOOKS, REPLAYS, assert_equal, few_on_an_adapter, gradients, nests, plain, weights
from hypothesis import given
from hypothesis import strategies as st
from on_device import assert_close, float_type
from pool_bytes import active

SHAPE = (4, 4)
UNARY = (ag.sin, ag.tanh, ag.sigmoid, lambda t: t * t, lambda t: ag.exp(t * 0.1), lambda t: t.T, ag.relu)
BINARY = (lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a @ b * 0.3, lambda a, b: a - ag.tanh(b), ag.maximum)

# An instruction works on a stack of values, addressed from its end; a segment is a list of them with values passed and captured, and with
# the replay that it has where replays are mixed.
position = st.integers(0, 5)
simple = st.one_of(
    st.tuples(st.just("unary"), st.integers(0, len(UNARY) - 1), position),
    st.tuples(st.just("binary"), st.integers(0, len(BINARY) - 1), position, position),
    st.tuples(st.just("weight"), st.integers(0, 2), position),
    st.tuples(st.just("dropout"), position),
    st.tuples(st.just("detach"), position),
    st.tuples(st.just("read"), position),
)
instruction = st.recursive(
    simple,
    lambda inner: st.tuples(
        st.just("segment"),
        st.lists(inner, min_size=1, max_size=6),
        st.lists(position, max_size=2),
        position,
        st.integers(0, 1),
    ),
    max_leaves=12,
)
programs = st.lists(st.one_of(instruction, nests(simple)), min_size=2, max_size=12)


def run(program, stack, ws, call):
    """Run a program on a stack; the stack that is left."""
    stack = list(stack)
    for kind, *args in program:
        if kind == "segment":
            body, passed, wanted, own = args
            outside = list(stack)

            def inside(*values, body=body, outside=outside, wanted=wanted):
                left = run(body, [*outside, *values], ws, call)
                return left[-1], left[-1 - wanted % len(left)]

            stack += call(own)(inside, *[at(stack, p) for p in passed])
        else:
            stack.append(step(kind, args, stack, ws))
    return stack


def at(stack, place):
    return stack[-1 - place % len(stack)]


def step(kind, args, stack, ws):
    if kind == "unary":
        return UNARY[args[0]](at(stack, args[1]))
    if kind == "binary":
        return BINARY[args[0]](at(stack, args[1]), at(stack, args[2]))
    if kind == "weight":
        return at(stack, args[1]) @ ws[args[0]]
    if kind == "dropout":
        return ag.dropout(at(stack, args[0]), 0.3)
    value = at(stack, args[0])
    if kind == "read":
        # An evaluation in the midst, and a number that depends on it.
        return value * float(np.tanh(value.numpy()).mean())
    return value.detach()


def calling(replay):
    """How a segment is called, given the number of its own replay: with this one, or with its own where they are mixed; `None` just calls."""
    if replay is None:
        return lambda own: plain
    return lambda own: functools.partial(ag.checkpoint, replay=REPLAYS[own] if replay == "mixed" else replay)


@pytest.mark.parametrize("replay", [*REPLAYS, "mixed"])
@given(program=programs, look=st.sampled_from(LOOKS), passes=st.integers(1, 2))
@few_on_an_adapter
def test_C01_C07_C08_random_programs_of_segments(replay, program, look, passes):
    leaves = weights(3, width=4)
    x = ag.tensor(np.random.default_rng(9).standard_normal(SHAPE), dtype=float_type())

    def build(call):
        stack = run(program, [x, x @ leaves[0]], leaves, call)
        return sum((ag.tanh(t).sum() for t in stack[-3:]), (leaves[0] * 0.0).sum())

    found = gradients(lambda: build(calling(replay)), leaves, look, passes)
    drawn = ag.rand(2).tolist()
    expected = gradients(lambda: build(calling(None)), leaves, look, passes)
    assert drawn == ag.rand(2).tolist()
    assert_equal(found, expected, rtol=1e-9)


@given(program=programs)
@few_on_an_adapter
def test_C19_second_derivatives_of_random_programs(program):
    ws = [w.detach() for w in weights(3, width=4)]
    x = ag.tensor(np.random.default_rng(9).standard_normal(SHAPE) * 0.5, dtype=float_type())
    v = ag.tensor(np.random.default_rng(10).standard_normal(SHAPE), dtype=float_type())

    def product(call):
        ag.manual_seed(4)

        def f(x):
            return sum((ag.tanh(t).sum() for t in run(program, [x, ag.sin(x)], ws, call)[-2:]), x.sum())

        return ag.hvp(f, x, v).numpy()

    assert_close(product(calling("trace")), product(calling(None)), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("replay", [*REPLAYS, "mixed"])
@given(program=programs)
@few_on_an_adapter
def test_C06_random_programs_leave_nothing_behind(replay, program):
    leaves = weights(3, width=4)
    x = ag.tensor(np.ones(SHAPE), dtype=float_type())
    held = []
    for _ in range(2):
        gradients(
            lambda: ag.tanh(run(program, [x, x @ leaves[0]], leaves, calling(replay))[-1]).sum() + leaves[0].sum(),
            leaves,
        )
        for leaf in leaves:
            leaf.grad = None
        held.append(active())
    assert held[0] == held[1]

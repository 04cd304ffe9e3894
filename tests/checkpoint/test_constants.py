"""What a segment cuts off (detach, no_grad, straight-through) stays cut off in its replay, in second derivatives too."""

import contextlib

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import REPLAYS, plain, segment
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import assert_close, float_type


def unrecorded(h):
    with ag.no_grad():
        c = h * 2.0
    return c * h * h


def mean_apart(h):
    with ag.no_grad():
        m = (h * h).mean()
    return h * h * h / (m + 1.0)


CUTS = {
    "detach": lambda h: h.detach() * h * h,
    "detached inside": lambda h: ag.exp(h.detach()) * h * h,
    "detached result": lambda h: ag.exp(h).detach() * h * h,
    "no_grad": unrecorded,
    "mean": mean_apart,
    "straight through": lambda h: (h.round() - h).detach() * h + h * h,
    "shifted": lambda h: ag.exp(h - h.max().detach()) * h,
}


def leaf(values=(0.5, 0.7)):
    return ag.param(np.array(values), dtype=float_type())


def of_grad(f, call):
    def first(z):
        return call(f, z).sum()

    return ag.grad(lambda z: (ag.grad(first)(z) ** 2).sum())(leaf()).numpy()


def by_hvp(f, call):
    v = ag.tensor([1.0, -0.5], dtype=float_type())
    return ag.hvp(lambda z: call(f, z).sum(), leaf().detach(), v).numpy()


def by_jvp(f, call):
    v = ag.tensor([1.0, -0.5], dtype=float_type())
    return ag.jvp(ag.grad(lambda z: call(f, z).sum()), (leaf().detach(),), (v,))[1].numpy()


def by_graph(f, call):
    w = leaf()
    with ag.grad_tape():
        call(f, w).sum().backward(create_graph=True)
        loss = (w.grad**2).sum()
        w.grad = None
        loss.backward()
    return w.grad.numpy()


def by_outer_tape(f, call):
    w = leaf()
    with ag.grad_tape():
        with ag.grad_tape():
            inner = call(f, w).sum()
        inner.backward()
        loss = (w.grad**2).sum()
        w.grad = None
    loss.backward()
    return w.grad.numpy()


WAYS = {"grad of grad": of_grad, "hvp": by_hvp, "jvp": by_jvp, "create_graph": by_graph, "outer tape": by_outer_tape}


@pytest.mark.parametrize("replay", REPLAYS)
@pytest.mark.parametrize("cut", CUTS)
def test_C01_C19_what_a_segment_cuts_off_stays_constant_in_second_derivatives(replay, cut):
    for name, way in WAYS.items():
        found = way(CUTS[cut], segment(replay))
        assert_close(found, way(CUTS[cut], plain), rtol=1e-6, err_msg=name)


def test_C19_the_second_derivative_beside_a_detached_factor_by_hand():
    # d/dz of (2 c z)^2 with c = z held: 8 c^2 z.
    assert_close(of_grad(CUTS["detach"], ag.checkpoint), [1.0, 2.744], rtol=1e-6)
    # Of h * 0 + h * h with what is rounded away held: (c + 2 z) has the derivative 2.
    z = np.array([0.5, 0.7])
    c = z.round() - z
    assert_close(of_grad(CUTS["straight through"], ag.checkpoint), 4.0 * (c + 2.0 * z), rtol=1e-5)


def test_C19_another_living_tape_meets_the_replay_as_it_meets_the_values():
    """A tape that did not record the segment can follow a rebuilt value no more than the value: the same error as without segments."""
    for call in (plain, segment("trace")):
        w = leaf()
        with ag.grad_tape():
            loss = call(lambda h: ag.exp(h * h) * h, w).sum()
        with ag.grad_tape():
            loss.backward(retain_graph=True)
            second = (w.grad**2).sum()
        with pytest.raises(RuntimeError, match="both are alive"):
            second.backward()


steps = st.sampled_from(["sin", "square", "detach", "no_grad", "through", "product", "times first"])
bodies = st.recursive(
    st.lists(steps, min_size=1, max_size=4), lambda inner: st.lists(st.one_of(steps, inner), min_size=1, max_size=4)
)


def run(body, h, call):
    """A list of steps on a value, lists in it as segments; `first` is what the list began with."""
    first = h
    for step in body:
        if isinstance(step, list):
            h = call(lambda q, step=step: run(step, q, call), h)
        elif step == "sin":
            h = ag.sin(h)
        elif step == "square":
            h = h * h
        elif step == "detach":
            h = h.detach() * first + h
        elif step == "through":
            h = (h.round() - h).detach() * first + h
        elif step == "product":
            h = h * ag.exp(first * 0.5).detach()
        elif step == "times first":
            h = h * first
        else:
            with ag.no_grad():
                c = ag.cos(h)
            h = c * h
    return h


@pytest.mark.parametrize("replay", REPLAYS)
@settings(max_examples=12)
@given(body=bodies)
def test_C01_C07_C19_random_segments_with_constants_inside(replay, body):
    def of(call):
        def f(z):
            return call(lambda h: run(body, h, call), z).sum()

        return [ag.grad(f)(leaf()).numpy(), of_grad(lambda h: run(body, h, call), call), by_hvp(f, lambda g, z: g(z))]

    for found, expected in zip(of(segment(replay)), of(plain)):
        assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_C19_the_scope_of_a_constant_may_be_chosen_at_run_time():
    for is_cut in (False, True):

        def f(h, is_cut=is_cut):
            with ag.no_grad() if is_cut else contextlib.nullcontext():
                c = ag.sin(h)
            return c * h * h

        assert_close(of_grad(f, ag.checkpoint), of_grad(f, plain), rtol=1e-6)

"""The peak of a step with segments: in one plan, in plans cut in the midst of the walk, and in the first run of a function called twice."""

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import REPLAYS, batch, plain, segment, value_bytes, weights
from on_device import assert_close, float_type
from pool_bytes import active, class_bytes

WIDTH, ROWS = 64, 512


def peak_of_step(layer, n, size, call, read=False):
    """The highest number of values above what is held before and after one step of n layers in segments of some length."""
    ws = weights(n, width=WIDTH)
    x = batch(rows=ROWS, width=WIDTH)
    ag.eval(x, ws)

    def part(h, ws):
        for w in ws:
            h = layer(h, w)
        return h

    before = active()
    with ag.peak_memory() as m:
        with ag.grad_tape():
            h = x
            for i in range(0, n, size):
                h = call(part, h, ws[i : i + size])
            loss = h.sum()
            del h
        if read:
            loss.item()
        loss.backward()
    grads = sum(class_bytes(w.nbytes) for w in ws)
    return (m.peak - before - grads) / value_bytes(ROWS, WIDTH)


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("replay", REPLAYS)
def test_C06_a_chain_peaks_at_its_boundaries_and_one_segment(replay, read):
    def layer(h, w):
        return ag.tanh(h @ w)

    n, k = 36, 6
    assert peak_of_step(layer, n, n, plain, read) > 0.8 * n
    assert peak_of_step(layer, n, k, segment(replay), read) <= 1.1 * (n / k + k + 2)


def test_C06_a_boundary_is_computed_once():
    """Two products make each boundary, and only elementwise ops read it: inlined into its late reader, it would keep both until then."""

    def layer(h, w):
        h = h * 0.5
        return h @ w + h @ w.T

    n = 12
    assert peak_of_step(layer, n, 1, segment("trace")) <= 1.1 * (n + 1 + 2)


def test_C06_one_segment_lives_at_a_time_when_the_walk_is_evaluated_in_parts():
    x = ag.param(np.full(4, 0.5), dtype=float_type())

    def chain(h):
        for _ in range(6_000):
            h = ag.sin(h)
        return h

    with ag.grad_tape():
        h = x
        for _ in range(4):
            h = ag.checkpoint(chain, h)
        loss = h.sum()
        del h
    loss.item()
    before = active()
    with ag.peak_memory() as m:
        loss.backward()
    one = 6_000 * 64
    assert one < m.peak - before < 2.5 * one


def test_C06_the_first_run_of_a_function_called_twice_keeps_nothing():
    x = ag.param(np.full(4, 0.5), dtype=float_type())

    def chain(h):
        for _ in range(25_000):
            h = ag.sin(h)
        return h

    with ag.grad_tape():
        before = active()
        with ag.peak_memory() as m:
            loss = ag.checkpoint(chain, x, replay="call").sum()
            loss.item()
        assert m.peak - before < 2_000 * 64
    loss.backward()
    found, x.grad = x.grad.numpy(), None
    with ag.grad_tape():
        loss = chain(x).sum()
    loss.backward()
    assert_close(found, x.grad.numpy(), rtol=1e-12)

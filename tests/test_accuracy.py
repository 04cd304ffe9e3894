"""Reductions of many values: close to the exact sum, and the same bits however the work is split."""

import agtape as ag
import numpy as np
import pytest
from fresh_process import run_python

COUNT = 1 << 24
BOUND = 1e-6  # of the sum of magnitudes


def exact_sum(values):
    """NumPy's pairwise sum in float64: its error is a billionth of the bound's."""
    return float(values.astype(np.float64).sum())


def uniform(rng):
    return rng.random(COUNT, dtype=np.float32)


def normal(rng):
    return rng.standard_normal(COUNT, dtype=np.float32)


def same(rng):
    return np.full(COUNT, 0.1, np.float32)


def rising(rng):
    return np.linspace(0, 1e6, COUNT, dtype=np.float32)


def one_large(rng):
    values = np.full(COUNT, 1e-3, np.float32)
    values[0] = 1e6
    return values


def cancelling(rng):
    values = rng.random(COUNT, dtype=np.float32) * 1e4
    values[1::2] = -values[::2] + 1e-3
    return values


INPUTS = [uniform, normal, same, rising, one_large, cancelling]


@pytest.mark.parametrize("make", INPUTS)
def test_T14_the_sum_and_mean_of_2_to_the_24_values(make, rng):
    values = make(rng)
    exact, magnitude = exact_sum(values), exact_sum(np.abs(values))
    x = ag.tensor(values)
    assert abs(x.sum().item() - exact) <= BOUND * magnitude
    assert abs(x.mean().item() - exact / COUNT) <= BOUND * magnitude / COUNT
    # The same values along either axis of a table, and read backwards.
    assert abs(x.reshape(4096, 4096).T.sum().item() - exact) <= BOUND * magnitude
    assert abs(ag.flip(x).sum().item() - exact) <= BOUND * magnitude


@pytest.mark.parametrize("shape", [(1 << 22, 4), (4, 1 << 22), (1 << 12, 1 << 12), (16, 1 << 16, 16)])
def test_T14_sums_along_an_axis(shape, rng):
    values = rng.random(COUNT, dtype=np.float32).reshape(shape) + np.float32(0.5)
    x, wide = ag.tensor(values), values.astype(np.float64)
    for axis in range(len(shape)):
        exact = wide.sum(axis)
        assert (np.abs(x.sum(axis=axis).numpy() - exact) <= BOUND * exact).all(), axis
        count = shape[axis]
        assert (np.abs(x.mean(axis=axis).numpy() - exact / count) <= BOUND * exact / count).all(), axis


def test_T14_fused_sums_and_the_gradients_of_broadcasts(rng):
    values = rng.random(COUNT, dtype=np.float32)
    x, b = ag.tensor(values), ag.param(np.zeros((), np.float32))
    exact = float((values.astype(np.float64) ** 2).sum())
    assert abs((x * x).sum().item() - exact) <= 2 * BOUND * exact  # half a unit in the last place for each product
    with ag.grad_tape():
        loss = ((x + b) * x).sum()
    loss.backward()
    exact = exact_sum(values)
    assert abs(b.grad.item() - exact) <= BOUND * exact


def test_T14_half_floats_add_up_in_f32():
    for dtype in ("float16", "bfloat16"):
        x = ag.ones(1 << 20, dtype=dtype)
        assert x.mean().item() == 1.0
        assert (x * 0.03125).sum().item() == 32768.0


HASH = """
import hashlib
import agtape as ag, numpy as np
def bits(fuse):
    seen = hashlib.sha256()
    values = np.random.default_rng(5).standard_normal(1 << 24, dtype=np.float32)
    x = ag.tensor(values)
    with ag.options(fuse=fuse):
        for t in [x.sum(), x.mean(), (x * x).sum(), x.reshape(1 << 20, 16).sum(0), x.reshape(16, 1 << 20).sum(1),
                  x.reshape(4096, 4096).T.mean(0), x[: (1 << 24) - 77].sum(), x.astype("float64").sum(), x.var(), x.max()]:
            seen.update(t.numpy().tobytes())
    return seen.hexdigest()
"""


def test_T14_T16_sums_do_not_depend_on_how_work_was_split():
    scope = {}
    exec(HASH, scope)
    here = scope["bits"](True)
    assert here == scope["bits"](False)
    for threads in (1, 2, 5):
        assert run_python(HASH + "print(bits(True))", RAYON_NUM_THREADS=str(threads)).split() == [here], threads


def test_T14_the_bound_is_one_that_a_plain_loop_misses():
    values = np.full(COUNT, 0.1, np.float32)
    running = np.cumsum(values, dtype=np.float32)[-1]
    assert abs(float(running) - exact_sum(values)) > 100 * BOUND * COUNT * 0.1

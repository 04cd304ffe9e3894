"""Out of memory: cached buffers are returned and it is tried once more; then an error that names the largest holders, and nothing is lost."""

import re

import agtape as ag
import numpy as np
import pytest
from pool_bytes import active, class_bytes

MIB = 1 << 20


def reserved():
    return ag.memory_stats().reserved


@pytest.fixture(autouse=True)
def no_cached_buffers():
    ag.empty_cache()


def model_and_batch():
    ag.manual_seed(0)
    model = ag.nn.Sequential(ag.nn.Linear(64, 256), ag.nn.ReLU(), ag.nn.Linear(256, 8))
    x = ag.randn(512, 64)
    ag.eval(x, *model.parameters())
    return model, x


def step(model, opt, x):
    with ag.grad_tape():
        loss = (model(x) ** 2).mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.item()


def test_M07_cached_buffers_are_returned_before_memory_runs_out():
    with ag.testing.memory_limit(reserved() + 40 * MIB):
        for size in (20, 30, 36):  # each of its own size class: the one before lies in the cache
            x = ag.zeros(size * MIB // 4)
            ag.eval(x)
            assert x.handle.is_valid
            del x
        assert ag.memory_stats().cached < 40 * MIB


def test_the_error_names_the_largest_holders_with_op_shape_and_line():
    with ag.options(source_lines=True):
        big = ag.exp(ag.zeros((1024, 512)))
    leaf = ag.tensor(np.ones((300, 1000), np.float32))
    ag.eval(big)
    with ag.testing.memory_limit(reserved() + MIB), pytest.raises(MemoryError) as caught:
        ag.eval(ag.ones(3 * MIB))
    text = str(caught.value)
    assert "out of memory on cpu" in text and f"{class_bytes(12 * MIB)} bytes were asked for" in text
    holders = text.split("largest holders: ")[1]
    assert re.search(
        rf"{2 * MIB} bytes exp \[1024, 512\] float32 at \S*test_out_of_memory.py:\d+ \(pool 'persistent'\)", holders
    )
    assert f"{class_bytes(1_200_000)} bytes leaf [300, 1000] float32" in holders
    sizes = [int(n) for n in re.findall(r"(\d+) bytes", holders)]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) <= 5
    del leaf


def test_an_absurdly_large_tensor_is_refused():
    for shape in ((1 << 40,), (1 << 20, 1 << 25)):
        with pytest.raises(MemoryError, match="out of memory on cpu"):
            ag.zeros(shape).numpy()
    assert ag.zeros(3).tolist() == [0, 0, 0]


def test_a_new_leaf_is_refused_with_what_asked_for_it():
    before = active()
    with ag.testing.memory_limit(reserved() + MIB), pytest.raises(MemoryError, match=r"^tensor: out of memory on cpu"):
        ag.tensor(np.ones(MIB, np.float32))
    assert active() == before


def test_whatever_request_is_refused_nothing_is_lost():
    """The limit is raised step by step: every step of training either works or raises, and then leaves everything as it was."""
    model, x = model_and_batch()
    opt = ag.optim.Adam(model.parameters(), lr=1e-2)
    step(model, opt, x)  # the optimizer's state exists
    ag.empty_cache()
    refused, limit = 0, reserved()
    while True:
        ag.empty_cache()
        before = [p.numpy().copy() for p in model.parameters()]
        held = active()
        message = None
        try:
            with ag.testing.memory_limit(limit):
                step(model, opt, x)
        except MemoryError as error:
            message = str(error)
        if message is None:
            break
        assert "largest holders" in message
        refused, limit = refused + 1, limit + 100_000
        opt.zero_grad()
        assert all(np.array_equal(a, p.numpy()) for a, p in zip(before, model.parameters()))
        assert active() == held
    assert refused >= 3
    assert not any(np.array_equal(a, p.numpy()) for a, p in zip(before, model.parameters()))


def test_limits_nest_and_end():
    with ag.testing.memory_limit(1 << 40):
        with ag.testing.memory_limit(0), pytest.raises(MemoryError):
            ag.eval(ag.zeros(MIB))
        ag.eval(ag.zeros(MIB))
    for bad, error in (("1 MiB", TypeError), (-1, ValueError), (True, TypeError)):
        with pytest.raises(error, match="memory_limit"):
            ag.testing.memory_limit(bad)

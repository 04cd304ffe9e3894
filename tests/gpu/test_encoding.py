"""How work is handed over: the dispatches of a batch are one compute pass and one submission, counted where passes begin."""

import re
from contextlib import contextmanager
from pathlib import Path

import agtape as ag
import numpy as np
import pytest
import rust_source
from agtape import _core

BACKEND = Path(__file__).resolve().parent.parent.parent / "src/backend/gpu"
# Dispatches after which what was recorded is handed over.
BATCH = int(re.search(r"const BATCH: usize = (\d+);", (BACKEND / "execute.rs").read_text())[1])


@contextmanager
def counted():
    """Submissions, passes and dispatches of a block, in a list that is filled at its end."""
    before, found = _core.adapter_work("gpu"), []
    yield found
    after = _core.adapter_work("gpu")
    found += [after[name] - before[name] for name in ("submissions", "passes", "dispatches")]


def chain(length):
    """A plan of so many launches of one dispatch each, made and run once before."""
    x = ag.ones(8, device="gpu")

    def run():
        with ag.options(fuse=False):
            y = x
            for _ in range(length):
                y = y + 1.0
            ag.eval(y)
        return y

    run()
    return run


@pytest.mark.parametrize("length", [1, 2, 40, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH + 88])
def test_a_batch_is_one_pass_and_one_submission(length):
    run = chain(length)
    with counted() as found:
        run()
    batches = -(-length // BATCH)
    assert found == [batches, batches, length]


def test_a_training_step_is_a_pass_of_values_and_gradients_and_one_of_the_update():
    model = ag.nn.Sequential(ag.nn.Linear(8, 16), ag.nn.ReLU(), ag.nn.Linear(16, 4)).to("gpu")
    opt = ag.optim.Adam(model.parameters())
    x, y = ag.rand(5, 8, device="gpu"), ag.randint(0, 4, (5,), device="gpu")

    def step():
        with ag.grad_tape():
            loss = ag.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        launches = ag.last_plan().kernels
        opt.step()
        opt.zero_grad()
        return launches + ag.last_plan().kernels

    step()
    with counted() as found:
        launches = step()
    submissions, passes, dispatches = found
    assert (submissions, passes) == (2, 2)
    # Some launches take several dispatches.
    assert dispatches >= launches > 8


def test_an_update_is_one_pass_however_large_it_is():
    params = [ag.param(np.full(2, i, np.float32), device="gpu") for i in range(2 * BATCH + 88)]
    opt = ag.optim.SGD(params, lr=0.5)
    for p in params:
        p.grad = ag.ones_like(p)
    ag.eval(*params, *(p.grad for p in params))
    with counted() as found:
        opt.step()
    assert found == [1, 1, len(params)]
    assert all(p.tolist() == [i - 0.5] * 2 for i, p in list(enumerate(params))[::100])


def test_reading_takes_no_pass_and_what_is_there_no_submission():
    y = chain(3)()
    with counted() as read:
        assert y.tolist() == [4.0] * 8
    with counted() as again:
        ag.eval(y)
        ag.synchronize("gpu")
    assert (read, again) == ([1, 0, 0], [0, 0, 0])


def test_a_profile_has_a_pass_for_each_launch_where_the_device_has_a_clock():
    run = chain(40)
    with counted() as found, ag.profile() as p:
        run()
    assert p.launches == 40
    assert found == ([40, 40, 40] if p.notes else [1, 40, 40])


def test_passes_begin_at_one_place():
    sources = [rust_source.without_tests(rust_source.code(path.read_text())) for path in BACKEND.rglob("*.rs")]
    assert sum(source.count("begin_compute_pass") for source in sources) == 1

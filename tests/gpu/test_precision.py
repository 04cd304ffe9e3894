"""How exact products are: the option, what it changes, and that gradients keep it."""

import os
import subprocess
import sys
import textwrap

import agtape as ag
import numpy as np
import pytest


@pytest.fixture
def operands(rng):
    """Two matrices on the CPU."""
    return rng.standard_normal((70, 40), np.float32), rng.standard_normal((40, 52), np.float32)


def test_the_option_is_read_back_and_ends_with_its_scope():
    assert ag.options().matmul_precision == "highest"
    with ag.options(matmul_precision="high") as inside:
        assert inside.matmul_precision == "high"
        with ag.options(matmul_precision="medium", fuse=False):
            assert ag.options().matmul_precision == "medium"
        assert ag.options().matmul_precision == "high"
    assert ag.options().matmul_precision == "highest"


@pytest.mark.promise("U01")
@pytest.mark.parametrize(
    ("word", "error"), [("higest", ValueError), ("", ValueError), (1, TypeError), (True, TypeError)]
)
def test_U01_another_word_is_refused_and_the_three_are_named(word, error):
    with pytest.raises(error, match=r"matmul_precision.*'highest', 'high' or 'medium'"):
        ag.options(matmul_precision=word)
    assert ag.options().matmul_precision == "highest"


def test_on_the_cpu_every_precision_gives_the_same_bits(operands):
    a, b = (ag.tensor(x) for x in operands)
    found = []
    for word in ("highest", "high", "medium"):
        with ag.options(matmul_precision=word):
            found.append((a @ b).numpy())
    assert all(np.array_equal(found[0], other) for other in found)


def test_a_product_keeps_what_held_when_it_was_called_and_is_a_plan_of_its_own(operands):
    a, b = (ag.tensor(x, device="gpu") for x in operands)

    def hits(word):
        with ag.options(matmul_precision=word):
            product = a @ b
        # Evaluated outside of the scope.
        product.numpy()
        return ag.last_plan().cache_hit

    assert [hits(word) for word in ("highest", "high", "highest", "high")] == [False, False, True, True]


IN_ANOTHER_PROCESS = """
    import agtape as ag, numpy as np

    rng = np.random.default_rng(3)
    x, w, v = (rng.standard_normal(s, np.float32) for s in ((70, 40), (40, 52), (52,)))

    def step(word):
        a, b = (ag.param(z, device="gpu") for z in (x, w))
        with ag.options(matmul_precision=word), ag.grad_tape():
            y = ag.relu(a @ b + ag.tensor(v, device="gpu"))
            loss = (y * y).sum()
        loss.backward()
        return y.numpy(), a.grad.numpy(), b.grad.numpy()

    exact = np.maximum(x.astype(np.float64) @ w + v, 0)
    exact = exact, 2 * exact @ w.T.astype(np.float64), x.T.astype(np.float64) @ (2 * exact)
    for word in ("highest", "high"):
        print(*(np.linalg.norm(f - e) / np.linalg.norm(e) for f, e in zip(step(word), exact)))
    for dtype in ("float16", "bfloat16"):
        a, b = (ag.tensor(z, device="gpu").astype(dtype) for z in (x, w))
        p, q = (z.numpy().astype(np.float64) for z in (a, b))
        y = (a @ b).numpy().astype(np.float64)
        print(np.linalg.norm(y - p @ q) / np.linalg.norm(p @ q))
"""


@pytest.mark.promise("G01")
def test_G01_products_by_fragments_and_their_gradients_are_as_exact_as_their_precision():
    # Threads stand for fragments, which software adapters do not have.
    environment = {**os.environ, "AGTAPE_COOPERATIVE": "scalar"}
    script = textwrap.dedent(IN_ANOTHER_PROCESS)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    highest, high, (half,), (short,) = ([float(e) for e in line.split()] for line in done.stdout.splitlines())
    assert max(highest) < 5e-7, highest
    assert max(high) < 2e-3, high
    # Forward and both gradients really are of halves.
    assert min(high) > 1e-5, high
    # Sums in f32, rounded once.
    assert half < 5e-4 and short < 4e-3, (half, short)


@pytest.mark.promise("U01")
@pytest.mark.parametrize("given", ["yes", "128,128,32,64", "128,128,32,64,48"])
def test_U01_a_block_that_is_none_is_refused_with_what_is_one(given):
    script = "import agtape as ag\nag.eval(ag.ones(2, device='gpu'))"
    environment = {**os.environ, "AGTAPE_COOPERATIVE": given}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "ValueError" in done.stderr and "AGTAPE_COOPERATIVE" in done.stderr and given in done.stderr
    assert "128,128,32,64,32" in done.stderr

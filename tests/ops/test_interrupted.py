"""Ops made of several nodes, and gradient rules, give the same whatever node the bound on pending nodes falls on."""

import agtape as ag
import numpy as np
import pytest
from ops.registry import ROWS
from ops.samples import as_list, make_param, to_dtype

# So many pending nodes are evaluated at once (see src/graph/pending.rs).
MOST_PENDING = 10_000
COMPOSED = (
    "var", "std", "logsumexp", "logaddexp", "nan_to_num", "round decimals", "clip", "isclose", "sort down",
    "topk values", "cumulative_prod", "setitem arrays", "getitem apart", "diag", "diag vector", "trace", "dropout",
    "pad edge", "roll axes", "one_hot", "meshgrid", "split", "triu", "take", "index_add", "count_nonzero", "diff",
    "tensordot", "einsum ij,jk,kl->il", "broadcast_arrays", "unstack", "concat many", "prod", "cumprod", "gelu",
)  # fmt: skip
CHOSEN = [row for row in ROWS if row.name in COMPOSED]


def add_nodes(count):
    """Records a chain of nodes and gives its end, which keeps them pending: what is dropped does not count."""
    x = ag.tensor(np.ones(1))
    for _ in range(count):
        x = x.negative()
    return x


def fill_to(left):
    """Records nodes until only `left` more fit, and gives what keeps them pending."""
    for _ in range(
        2
    ):  # opening a tape evaluates what is pending; the second finds it computed, and takes it off the list
        with ag.grad_tape():
            pass
    return add_nodes(MOST_PENDING - left)


def evaluations():
    """How often something was evaluated so far."""
    stats = ag.plan_cache_stats()
    return stats.hits + stats.misses


def test_filling_up_ends_in_an_evaluation():
    """What the other tests stand on: one node less is not evaluated, one more is."""
    x = ag.tensor(np.ones(1))
    held = [fill_to(10)]
    before = evaluations()
    kept = x.exp()
    held.append(add_nodes(5))
    assert evaluations() == before
    held.append(add_nodes(10))
    assert evaluations() > before
    assert kept.item() == np.exp(1.0)


def arrays_of(row, rng):
    """Arrays for a row, in its first dtype."""
    shapes = row.shapes(5)
    return [to_dtype(draw(rng, shape), row.dtypes[0]) for draw, shape in zip(row.draws(len(shapes)), shapes)]


def test_every_name_is_a_row():
    assert sorted(row.name for row in CHOSEN) == sorted(COMPOSED)


@pytest.mark.parametrize("row", CHOSEN, ids=lambda row: row.name)
def test_values_do_not_depend_on_when_pending_nodes_are_evaluated(row, rng):
    inputs = [ag.tensor(a) for a in arrays_of(row, rng)]
    wanted = [y.numpy() for y in as_list(row.run(*inputs))]
    for left in range(12):
        held = fill_to(left)
        for got, expected in zip(as_list(row.run(*inputs)), wanted):
            np.testing.assert_array_equal(got.numpy(), expected)
        del held


TWO_RESULTS = ag.custom_gradient(
    lambda x: (x * 2.0, (x * 2.0).exp()), lambda g, inputs, outs: 2.0 * (g[0] + g[1] * outs[1]), name="two_results"
)


@pytest.mark.parametrize("op", [lambda x: ag.topk(x, 3), TWO_RESULTS], ids=["topk", "custom"])
def test_all_results_of_one_node_live(op, rng):
    """What was returned together can be read, whichever of it the evaluation of pending nodes took."""
    leaf = make_param(rng.permutation(6).reshape(2, 3))
    wanted = [y.numpy() for y in op(leaf)]
    for left in range(12):
        held = fill_to(left)
        for got, expected in zip(op(leaf), wanted):
            np.testing.assert_array_equal(got.numpy(), expected)
    for left in range(12):
        with ag.grad_tape():
            held = add_nodes(MOST_PENDING - left)
            results = op(leaf)
        for got, expected in zip(results, wanted):
            np.testing.assert_array_equal(got.numpy(), expected)
        del held


@pytest.mark.parametrize("row", [row for row in CHOSEN if row.gradient == "full"], ids=lambda row: row.name)
def test_gradients_do_not_depend_on_when_pending_nodes_are_evaluated(row, rng):
    arrays = arrays_of(row, rng)

    def gradients(left=None):
        leaves = [make_param(a) for a in arrays]
        with ag.grad_tape():
            loss = sum((y * y).sum() for y in as_list(row.run(*leaves)))
            held = None if left is None else add_nodes(MOST_PENDING - left)
        loss.backward()
        del held
        return [leaf.grad.numpy() for leaf in leaves]

    wanted = gradients()
    for left in range(30, 90, 4):
        for got, expected in zip(gradients(left), wanted):
            np.testing.assert_array_equal(got, expected)

"""Gradients of every op: to second order on every layout, exact zeros, and ops that say they have none."""

import agtape as ag
import numpy as np
import pytest
from ops.registry import ROWS
from ops.samples import ARRANGEMENTS, GRADIENT_SIZES, arrange, as_list, make_param, to_dtype

SMOOTH = [row for row in ROWS if row.gradient == "full"]
FLAT = [row for row in ROWS if row.gradient == "zero" and "float64" in row.dtypes]
WITHOUT = [row for row in ROWS if row.gradient == "none" and "float64" in row.dtypes]


def arrays_of(row, n, rng):
    """Float64 arrays for a row at a size."""
    shapes = row.shapes(n)
    return [to_dtype(draw(rng, shape), "float64") for draw, shape in zip(row.draws(len(shapes)), shapes)]


@pytest.mark.promise("T09")
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("row", SMOOTH, ids=lambda row: row.name)
def test_T09_gradients_to_second_order(row, arrangement, rng):
    for n in (n for n in GRADIENT_SIZES if n >= row.least):
        bases, view = arrange(arrays_of(row, n, rng), arrangement)

        def fn(*given, view=view):
            return row.run(*view(ag, given))

        if n == 0 and any(not np.isfinite(y.numpy()).all() for y in as_list(fn(*map(ag.tensor, bases)))):
            check_undefined(fn, bases)
        else:
            ag.testing.gradcheck(fn, tuple(bases), order=2, directions=1, seed=n)


def check_undefined(fn, bases):
    """A mean of nothing is NaN: differences say nothing, but gradients have their inputs' shapes and are 0."""
    leaves = [make_param(b) for b in bases]
    with ag.grad_tape():
        loss = sum(y.sum() for y in as_list(fn(*leaves)))
    loss.backward()
    for leaf in leaves:
        assert leaf.grad.shape == leaf.shape
        np.testing.assert_array_equal(leaf.grad.numpy(), 0.0)


@pytest.mark.promise("T09")
@pytest.mark.parametrize("row", FLAT, ids=lambda row: row.name)
def test_T09_piecewise_constant_ops_give_exact_zeros(row, rng):
    for n in GRADIENT_SIZES:
        leaves = [make_param(a) for a in arrays_of(row, n, rng)]
        with ag.grad_tape():
            y = row.run(*leaves)
            loss = (y * 3.0).sum()
        assert y.requires_grad
        loss.backward()
        for leaf in leaves:
            assert leaf.grad.shape == leaf.shape
            np.testing.assert_array_equal(leaf.grad.numpy(), 0.0)


@pytest.mark.promise("T09")
@pytest.mark.parametrize("row", WITHOUT, ids=lambda row: row.name)
def test_T09_ops_without_a_gradient_say_so(row, rng):
    leaves = [make_param(a) for a in arrays_of(row, 5, rng)]
    with ag.grad_tape():
        results = as_list(row.run(*leaves))
        loss = sum(y.astype("float64").sum() for y in results)
    assert not any(y.requires_grad for y in [*results, loss])
    with pytest.raises(RuntimeError, match=r"^backward: this tensor was not recorded"):
        loss.backward()
    assert all(leaf.grad is None for leaf in leaves)
    for y in results:
        if "float" not in str(y.dtype):
            with pytest.raises(TypeError, match="only floating-point outputs have gradients"):
                y.backward(ag.ones_like(y))


def test_T09_integers_cannot_require_a_gradient():
    with pytest.raises(TypeError, match="only floating-point"):
        ag.tensor([1, 2], requires_grad=True)
    with pytest.raises(TypeError, match="only floating-point"):
        ag.param(np.array([True]))


def test_T09_a_custom_op_without_a_rule_says_so():
    op = ag.custom_op(lambda x: x * 2, name="doubled")
    w = make_param([1.0])
    with ag.grad_tape():
        loss = op(w).sum()
    with pytest.raises(TypeError, match="doubled: has no gradient rule"):
        loss.backward()
    assert w.grad is None


def test_T09_integer_results_beside_floats_get_none():
    """topk and sort have positions beside values: values carry the gradient, positions none."""
    w = make_param([3.0, 1.0, 2.0])
    with ag.grad_tape():
        values, positions = ag.topk(w, 2)
        loss = (values * ag.tensor(np.array([10.0, 1.0]))).sum()
    assert values.requires_grad
    assert not positions.requires_grad
    loss.backward()
    assert w.grad.tolist() == [10.0, 0.0, 1.0]


SMALLER = [
    pytest.param(row, dtype, id=f"{row.name}-{dtype}")
    for row in SMOOTH
    for dtype in ("float32", "float16", "bfloat16")
    if dtype in row.dtypes
]


@pytest.mark.parametrize(("row", "dtype"), SMALLER)
def test_gradients_keep_their_dtype(row, dtype, rng):
    """Smaller floats run the same rules: right dtype and shape, and near the float64 gradient."""
    small = [a.astype(np.float32) for a in arrays_of(row, 5, rng)]
    results = []
    for name in (dtype, "float64"):
        leaves = [ag.param(ag.tensor(a).astype(dtype).astype(name)) for a in small]
        with ag.grad_tape():
            loss = sum(
                (y.astype("float64") * np.arange(1.0, y.size + 1).reshape(y.shape)).sum()
                for y in as_list(row.run(*leaves))
                if "float" in str(y.dtype)
            )
        loss.backward()
        results.append([leaf.grad for leaf in leaves])
        assert all(g.dtype == leaf.dtype and g.shape == leaf.shape for g, leaf in zip(results[-1], leaves))
    unit = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    for got, wanted in zip(*results):
        scale = np.abs(wanted.numpy()).max(initial=1.0)
        np.testing.assert_allclose(got.numpy().astype(np.float64), wanted.numpy(), rtol=0, atol=16 * unit * scale)


@pytest.mark.parametrize(
    ("cuts", "is_joined"),
    [
        (((0, 2), (2, 5), (5, 6)), True),
        (((5, 6), (0, 2), (2, 5)), True),
        (((0, 2), (2, 5)), False),
        (((0, 3), (2, 6)), False),
        (((0, 3), (2, 4), (5, 6)), False),
        (((0, 6), (2, 5)), False),
        (tuple((i % 6, i % 6 + 1) for i in range(40)), False),
    ],
)
def test_T05_gradients_of_slices_are_summed_and_joined_where_they_tile(cuts, is_joined):
    values = np.arange(24, dtype="float32").reshape(4, 6)
    x = ag.param(values)
    with ag.grad_tape():
        h = ag.exp(x / 24)
        loss = sum(((i + 1) * h[:, a:b] ** 2).sum() for i, (a, b) in enumerate(cuts))
    loss.backward()
    kernels = [launch["kernel"] for launch in ag._core.last_plan_launches()]
    assert ("concat" in kernels) == is_joined and ("slice_assign" in kernels) != is_joined
    weight = np.zeros(6)
    for i, (a, b) in enumerate(cuts):
        weight[a:b] += i + 1
    expected = 2 * weight * np.exp(values / 12) / 24
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=2e-6)

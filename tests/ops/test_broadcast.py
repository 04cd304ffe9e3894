"""Broadcast inputs get gradients of their own shape, and inputs that are used several times their sum."""

import agtape as ag
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from ops.registry import ROWS
from ops.row import two
from ops.samples import make_param, to_dtype

PAIRS = [
    ((3, 4), (4,)),
    ((3, 4), ()),
    ((3, 1), (1, 4)),
    ((1,), (5,)),
    ((2, 1, 3), (4, 1)),
    ((0, 3), (3,)),
    ((0, 3), (1, 3)),
    ((1, 3), (0, 1)),
    ((1, 1), (1,)),
    ((), ()),
]
ELEMENTWISE = [row for row in ROWS if row.shapes is two and row.gradient == "full" and "bfloat16" in row.dtypes]
SKIPPED = ("relu_grad", "concat", "concat flat", "stack", "diff", "setitem slice")
BINARY = [row for row in ELEMENTWISE if row.name not in SKIPPED]


@pytest.mark.promise("T12", "T09")
@pytest.mark.parametrize("shapes", PAIRS, ids=str)
@pytest.mark.parametrize("row", BINARY, ids=lambda row: row.name)
def test_T12_broadcast_gradients_have_the_inputs_shapes(row, shapes, rng):
    arrays = [to_dtype(draw(rng, shape), "float64") for draw, shape in zip(row.draws(2), shapes)]
    arrays = [np.asarray(a) for a in arrays]
    for given_arrays in (arrays, [np.asarray(draw(rng, s)) for draw, s in zip(row.draws(2), shapes[::-1])]):
        leaves = [make_param(a) for a in given_arrays]
        with ag.grad_tape():
            y = row.run(*leaves)
            loss = y.sum()
        assert y.shape == np.broadcast_shapes(*(a.shape for a in given_arrays))
        loss.backward()
        assert [leaf.grad.shape for leaf in leaves] == [a.shape for a in given_arrays]
        ag.testing.gradcheck(row.run, tuple(given_arrays), order=2, directions=1)


def test_T12_the_sum_is_over_the_broadcast_axes():
    a, b = make_param(np.ones((2, 1, 3))), make_param(np.ones((4, 1)))
    weights = np.arange(24.0).reshape(2, 4, 3)
    with ag.grad_tape():
        loss = ((a + b) * weights).sum()
    loss.backward()
    np.testing.assert_array_equal(a.grad.numpy(), weights.sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(b.grad.numpy(), weights.sum(axis=(0, 2)).reshape(4, 1))


def test_T12_three_inputs():
    condition = np.array([[True], [False]])
    a, b = make_param(np.zeros(3)), make_param(0.0)
    with ag.grad_tape():
        loss = (ag.where(ag.tensor(condition), a, b) * np.array([1.0, 2.0, 4.0])).sum()
    loss.backward()
    assert a.grad.tolist() == [1.0, 2.0, 4.0]
    assert b.grad.tolist() == 7.0


@pytest.mark.promise("T12")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_T12_dtypes_of_mixed_inputs_come_back(dtype):
    small, wide = ag.param(np.ones(3), dtype=dtype), make_param(np.ones((2, 3)))
    with ag.grad_tape():
        loss = (small * wide * np.arange(6.0).reshape(2, 3)).sum()
    loss.backward()
    assert str(small.grad.dtype) == dtype
    assert str(wide.grad.dtype) == "float64"
    assert small.grad.tolist() == [3.0, 5.0, 7.0]


@given(
    hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, min_side=0, max_side=3),
    st.sampled_from(["float64", "float32"]),
)
def test_T12_random_shapes(shapes, dtype):
    leaves = [ag.param(np.full(s, i + 1.0), dtype=dtype) for i, s in enumerate(shapes.input_shapes)]
    weights = np.arange(np.prod(shapes.result_shape)).reshape(shapes.result_shape)
    with ag.grad_tape():
        a, b, c = leaves
        loss = ((a * b + c) * ag.tensor(weights.astype(dtype))).sum()
    loss.backward()
    for leaf, slope in zip(leaves, (2.0, 1.0, 1.0)):
        axes = tuple(range(weights.ndim - leaf.ndim))
        wanted = slope * weights.sum(axis=axes) if axes else slope * weights
        kept = tuple(i for i, d in enumerate(leaf.shape) if d == 1 and wanted.shape[i] != 1)
        np.testing.assert_array_equal(leaf.grad.numpy(), np.sum(wanted, axis=kept, keepdims=True).reshape(leaf.shape))


@pytest.mark.parametrize(("a", "b"), [((3,), (4,)), ((2, 3), (3, 2)), ((0,), (2,)), ((5, 1, 2), (3, 3))], ids=str)
def test_shapes_that_do_not_broadcast_are_named(a, b):
    for op in (ag.add, ag.maximum, ag.equal, ag.arctan2):
        with pytest.raises(ValueError, match=r"\[.*\] and \[.*\]"):
            op(ag.zeros(a), ag.zeros(b))
    with pytest.raises(ValueError, match="where"):
        ag.where(ag.ones(a, dtype="bool"), ag.zeros(b), 0.0)


@pytest.mark.promise("T05")
@pytest.mark.parametrize("row", BINARY, ids=lambda row: row.name)
def test_T05_an_input_passed_twice_gets_both_gradients(row, rng):
    first, second = row.draws(2)
    draw = second if first.__name__ == "normal" else first
    x = draw(rng, (2, 3))
    leaf, left, right = make_param(x), make_param(x), make_param(x)
    with ag.grad_tape():
        loss = row.run(leaf, leaf).sum()
        apart = row.run(left, right).sum()
    loss.backward(retain_graph=True)
    apart.backward()
    np.testing.assert_allclose(leaf.grad.numpy(), (left.grad + right.grad).numpy(), rtol=1e-12, atol=1e-13)


def test_T05_an_input_used_several_times_gets_the_sum():
    x = make_param([1.0, 2.0])
    with ag.grad_tape():
        y = x * x
        loss = (y + x + y * x).sum() + x[0] + x.sum()
    loss.backward()
    # 2x + 1 + 3x^2 + [1, 0] + 1
    assert x.grad.tolist() == [8.0, 18.0]


def test_T05_one_of_many_in_a_list():
    x = make_param([1.0, 2.0])
    with ag.grad_tape():
        loss = (ag.concat([x, x * 2.0, x]) * ag.tensor(np.arange(1.0, 7.0))).sum() + ag.einsum("i,i,i->", x, x, x)
    loss.backward()
    assert x.grad.tolist() == [1 + 2 * 3 + 5 + 3.0, 2 + 2 * 4 + 6 + 12.0]


def test_T05_a_leaf_returned_as_its_own_output():
    """Views that change nothing, and a function that returns its input."""
    x = make_param([1.0, 2.0])
    with ag.grad_tape():
        same = x.reshape(2).squeeze().astype("float64").broadcast_to(2)
        loss = (same * 3.0 + x).sum()
    loss.backward()
    assert x.grad.tolist() == [4.0, 4.0]
    y, pull = ag.vjp(lambda t: t, ag.tensor([5.0]))
    assert y.tolist() == [5.0]
    assert pull(ag.tensor([2.0]))[0].tolist() == [2.0]
    y, pull = ag.vjp(lambda t: (t, t), ag.tensor([5.0]))
    assert pull((ag.tensor([2.0]), ag.tensor([3.0])))[0].tolist() == [5.0]


def test_T05_the_alias_that_a_transform_makes_is_one_input():
    """vjp and grad watch an alias: gradients at the alias and at what was passed twice meet."""
    x = ag.tensor(np.array([2.0]))
    assert ag.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x)[0].tolist() == [2.0]
    assert ag.grad(lambda a: (a * a.detach()).sum())(x).tolist() == [2.0]
    assert ag.grad(lambda a: ag.grad(lambda b: (a * b * b).sum())(a).sum())(x).tolist() == [8.0]

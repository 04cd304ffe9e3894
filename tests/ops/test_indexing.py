"""Indexing against NumPy: random indices of every kind, read and written, their gradients, and what is out of range."""

import agtape as ag
import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from ops.samples import make_param

SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)


def numbered(shape, start=1.0):
    """Distinct numbers in a shape."""
    return np.arange(start, start + np.prod(shape)).reshape(shape)


@st.composite
def slices(draw, size):
    """Any slice, beyond the ends too."""
    bound = st.none() | st.integers(-size - 2, size + 2)
    step = draw(st.none() | st.integers(-3, 3).filter(bool))
    return slice(draw(bound), draw(bound), step)


@st.composite
def items(draw, size, points):
    """One item for an axis: a slice, an integer, or integers of a shape that broadcasts with the others."""
    choices = [slices(size)]
    if size:
        inside = st.integers(-size, size - 1)
        shape = draw(st.sampled_from([points, points[-1:], (1,) * len(points), ()]))
        choices += [inside, hnp.arrays(np.int64, shape, elements=inside)]
    return draw(st.one_of(choices))


@st.composite
def expressions(draw, shape):
    """An index expression for a shape: items for some axes, a mask, new axes and an ellipsis in any order."""
    points = draw(st.sampled_from([(2,), (3,), (2, 3), (1, 2)]))
    used = draw(st.integers(0, len(shape)))
    parts = []
    axis = 0
    while axis < used:
        if draw(st.integers(0, 9)) == 0 and not any(isinstance(p, np.ndarray) for p in parts):
            # A mask of one or two axes; as many points as it is true at, so it stands without other arrays.
            axes = draw(st.integers(1, min(2, used - axis)))
            parts.append(draw(hnp.arrays(bool, shape[axis : axis + axes])))
            parts += [draw(slices(d)) for d in shape[axis + axes : used]]
            break
        parts.append(draw(items(shape[axis], points)))
        axis += 1
    for extra in draw(st.lists(st.none(), max_size=2)):
        parts.insert(draw(st.integers(0, len(parts))), extra)
    if used < len(shape) and draw(st.booleans()):
        parts.append(Ellipsis)
    return tuple(parts)


@st.composite
def cases(draw):
    """An array and an index expression for it."""
    shape = draw(SHAPES)
    return numbered(shape), draw(expressions(shape))


def as_tensors(key):
    """Arrays in an expression as tensors."""
    return tuple(ag.tensor(k) if isinstance(k, np.ndarray) else k for k in key)


@given(cases())
def test_reads_equal_numpy(case):
    x, key = case
    wanted = x[key]
    for form in (key, as_tensors(key)):
        got = ag.tensor(x)[form]
        assert got.shape == wanted.shape
        np.testing.assert_array_equal(got.numpy(), wanted)


@given(cases())
def test_T09_gradients_of_reads_add_up(case):
    """Repeated indices add their gradients."""
    x, key = case
    weights = numbered(x[key].shape)
    wanted = np.zeros_like(x)
    np.add.at(wanted, key, weights)
    for form in (key, as_tensors(key)):
        leaf = make_param(x)
        with ag.grad_tape():
            loss = (leaf[form] * weights).sum()
        loss.backward()
        np.testing.assert_array_equal(leaf.grad.numpy(), wanted)


@given(cases(), st.data())
def test_writes_equal_numpy(case, data):
    x, key = case
    shape = x[key].shape
    shape = data.draw(st.sampled_from([shape, shape[-1:], (1,) * len(shape), (), (1, *shape)]))
    value = numbered(shape, 100.0)
    wanted = x.copy()
    wanted[key] = value
    for form in (key, as_tensors(key)):
        t = ag.tensor(x)
        before, view = t * 1.0, t[...]
        t[form] = ag.tensor(value)
        np.testing.assert_array_equal(t.numpy(), wanted)
        np.testing.assert_array_equal(before.numpy(), x)
        np.testing.assert_array_equal(view.numpy(), x, err_msg="a view never shows later updates of its base")


def slope_of(leaf):
    """A leaf's gradient as an array; what was written over as a whole, or never used, has none."""
    return np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()


@given(cases())
def test_T09_gradients_of_writes(case):
    """x gets nothing where it was replaced; of values put at one place only the last gets its gradient."""
    x, key = case
    value = numbered(x[key].shape, 100.0)
    weights = numbered(x.shape, 5.0)
    written = x.copy()
    written[key] = value
    last = written[key] == value
    for form in (key, as_tensors(key)):
        base, put = make_param(x), make_param(value)
        with ag.grad_tape():
            y = base * 1.0
            y[form] = put
            loss = (y * weights).sum()
        loss.backward()
        np.testing.assert_array_equal(slope_of(base), np.where(written == x, weights, 0.0))
        np.testing.assert_array_equal(slope_of(put), np.where(last, weights[key], 0.0))


TRUTHS = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=2)


def with_truths(case, truths):
    """An index expression with booleans without axes in it, that NumPy takes."""
    x, key = case
    key = list(key)
    for at, truth in truths:
        key.insert(at, truth)
    try:
        return x, tuple(key), x[tuple(key)]
    except IndexError:  # no points do not broadcast with several
        reject()


@given(cases(), TRUTHS)
def test_reads_at_truth_values_equal_numpy(case, truths):
    x, key, wanted = with_truths(case, truths)
    weights = numbered(wanted.shape)
    slope = np.zeros_like(x)
    np.add.at(slope, key, weights)
    for form in (key, as_tensors(np.array(k) if isinstance(k, bool) else k for k in key)):
        leaf = make_param(x)
        with ag.grad_tape():
            got = leaf[form]
            loss = (got * weights).sum()
        loss.backward()
        assert got.shape == wanted.shape
        np.testing.assert_array_equal(got.numpy(), wanted)
        np.testing.assert_array_equal(leaf.grad.numpy(), slope)


@given(cases(), TRUTHS, st.data())
def test_writes_at_truth_values_equal_numpy(case, truths, data):
    x, key, read = with_truths(case, truths)
    shape = data.draw(st.sampled_from([read.shape, read.shape[1:], (1,) * read.ndim, ()]))
    value = numbered(shape, 100.0)
    wanted = x.copy()
    wanted[key] = value
    t = ag.tensor(x)
    before = t * 1.0
    t[key] = ag.tensor(value)
    np.testing.assert_array_equal(t.numpy(), wanted)
    np.testing.assert_array_equal(before.numpy(), x)


@given(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), st.data())
def test_take_along_no_axis_reads_the_elements_in_order(shape, data):
    x = numbered(shape)
    inside = st.integers(-x.size, x.size - 1)
    index = np.array(data.draw(st.lists(inside, max_size=5)) if x.size else [], np.int64)
    for at in (index, ag.tensor(index)):
        got = ag.take_along_axis(ag.tensor(x), at, axis=None)
        np.testing.assert_array_equal(got.numpy(), np.take_along_axis(x, index, axis=None))
    np.testing.assert_array_equal(ag.tensor(x).take_along_axis(index, None).numpy(), x.ravel()[index])


@given(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4), st.data())
def test_take_and_scatter_along_an_axis_equal_numpy(shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    size = shape[axis]
    length = data.draw(st.integers(0, 5))
    where = list(shape)
    where[axis] = length
    index = data.draw(hnp.arrays(np.int64, tuple(where), elements=st.integers(-size, size - 1)))
    x, v = numbered(shape), numbered(tuple(where), 50.0)
    np.testing.assert_array_equal(
        ag.take_along_axis(ag.tensor(x), index, axis).numpy(), np.take_along_axis(x, index, axis)
    )
    grid = list(np.indices(index.shape, sparse=True))
    grid[axis] = index
    wanted = x.copy()
    np.add.at(wanted, tuple(grid), v)
    np.testing.assert_array_equal(ag.scatter_add(ag.tensor(x), axis, ag.tensor(index), ag.tensor(v)).numpy(), wanted)
    flat = data.draw(hnp.arrays(np.int64, (2, 3), elements=st.integers(-size, size - 1)))
    np.testing.assert_array_equal(ag.take(ag.tensor(x), flat, axis).numpy(), np.take(x, flat, axis))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_index_tensors_of_any_integer_type(dtype):
    x = numbered((4, 3))
    index = ag.tensor(np.array([2, 0, 2]), dtype=dtype)
    np.testing.assert_array_equal(ag.tensor(x)[index].numpy(), x[[2, 0, 2]])
    np.testing.assert_array_equal(ag.take(ag.tensor(x), index, 0).numpy(), x[[2, 0, 2]])


@given(cases(), st.data())
def test_out_of_range_is_an_index_error_everywhere(case, data):
    """What NumPy refuses is refused: at the call for Python and NumPy indices, when computed for tensors."""
    x, key = case
    axis = data.draw(st.integers(0, x.ndim - 1))
    size = x.shape[axis]
    wrong = data.draw(st.sampled_from([size, size + 3, -size - 1, 2**40]))
    key = (slice(None),) * axis
    with pytest.raises(IndexError, match=rf"index {wrong} is out of range for axis {axis} of size {size}"):
        ag.tensor(x)[(*key, wrong)]
    with pytest.raises(IndexError, match=rf"index {wrong} is out of range for axis {axis} of size {size}"):
        ag.tensor(x)[(*key, [wrong])]
    if 0 in x.shape[:axis] + x.shape[axis + 1 :]:
        return
    late = ag.tensor(x)[(*key, ag.tensor([wrong]))]
    with pytest.raises(IndexError, match=rf"{wrong}.*out of range"):
        late.numpy()
    with pytest.raises(IndexError):
        late.numpy()


def test_late_errors_name_the_line_and_leave_others_alone():
    x = ag.tensor(np.arange(3.0))
    good = x + 1.0
    bad = x[ag.tensor([7])]
    after = bad * 2.0
    with pytest.raises(IndexError, match=r"getitem.*7.*test_indexing\.py:\d+"):
        after.numpy()
    assert good.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(IndexError):
        bad.tolist()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: x[0, 0, 0], IndexError, "too many indices"),
        (lambda x: x[..., ...], IndexError, "one ellipsis"),
        (lambda x: x[::0], ValueError, "step of a slice is 0"),
        (lambda x: x[0.5], IndexError, "got float"),
        (lambda x: x["a"], IndexError, "got str"),
        (lambda x: x[[0.5]], IndexError, "float64"),
        (lambda x: x[ag.tensor([0.5])], IndexError, "float32"),
        (lambda x: x[[True, False, True]], IndexError, "boolean mask"),
        (lambda x: x[[0, 1], [0, 1, 2]], (IndexError, ValueError), r"\[2\] and \[3\]"),
        (lambda x: x["a":], TypeError, "slice bound"),
        (lambda x: x[{}], IndexError, "got dict"),
        (lambda x: ag.take(x, [5], 0), IndexError, "5"),
        (lambda x: ag.take(x, [0], 2), ValueError, "axis 2"),
        (lambda x: ag.take_along_axis(x, [0, 1], 0), ValueError, "same number of axes"),
        (lambda x: ag.take_along_axis(x, [[0]], None), ValueError, r"\[1, 1\] for shape \[6\].*same number of axes"),
        (lambda x: ag.take_along_axis(x, [6], None), IndexError, "6"),
        (lambda x: x[False, [0, 1]], (IndexError, ValueError), r"\[2\] and \[0\]"),
        (lambda x: x.__setitem__(False, np.ones(7)), ValueError, r"\[7\].*\[0, 2, 3\]"),
        (lambda x: ag.one_hot([3], 3), IndexError, "3"),
        (lambda x: ag.one_hot([-1], 3), IndexError, "-1"),
        (lambda x: ag.one_hot([0.5], 3), (IndexError, TypeError), "float"),
        (lambda x: ag.scatter_add(x, 0, [[9, 0, 0]], 1.0), IndexError, "9"),
        (lambda x: x.__setitem__(0, np.ones(5)), ValueError, r"\[5\].*\[3\]"),
        (lambda x: x.__setitem__((0, 0, 0), 1.0), IndexError, "too many indices"),
        (lambda x: x.__setitem__(0, "a"), TypeError, "got str"),
        (lambda x: x.__setitem__(5, 1.0), IndexError, "index 5 is out of range"),
    ],
)
def test_bad_indices_are_explained(call, error, text):
    x = ag.tensor(np.arange(6.0).reshape(2, 3))
    with pytest.raises(error, match=text):
        call(x)
    assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_one_hot_labels_in_tensors_are_checked_when_computed():
    with pytest.raises(IndexError):
        ag.one_hot(ag.tensor([0, 3]), 3).numpy()
    assert ag.one_hot(ag.tensor([0, 2], dtype="uint8"), 3).tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    assert ag.one_hot(np.zeros((2, 0), np.int64), 3).shape == (2, 0, 3)


def test_truth_values_without_axes():
    x = numbered((2, 3))
    for truth in (True, False, np.True_, ag.tensor(True)):
        np.testing.assert_array_equal(ag.tensor(x)[truth].numpy(), x[bool(truth)])
    t = ag.tensor(x)
    t[False] = 7.0
    np.testing.assert_array_equal(t.numpy(), x)
    t[True] = 7.0
    np.testing.assert_array_equal(t.numpy(), np.full((2, 3), 7.0))


def test_masks_by_comparison():
    x = np.array([[1.0, -2.0], [-3.0, 4.0]])
    t = ag.tensor(x)
    np.testing.assert_array_equal(t[t > 0].numpy(), x[x > 0])
    t[t < 0] = 0.0
    np.testing.assert_array_equal(t.numpy(), np.maximum(x, 0))
    np.testing.assert_array_equal(ag.tensor(x).masked_select(x > 0).numpy(), [1.0, 4.0])


def test_iteration_length_and_membership():
    t = ag.tensor(np.arange(6.0).reshape(3, 2))
    assert len(t) == 3
    assert [row.tolist() for row in t] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert 4.0 in t
    assert 9.0 not in t
    for call in (len, iter):
        with pytest.raises(TypeError):
            call(ag.tensor(1.0))


def test_large_indices_in_parallel(rng):
    """Many repeated indices: the order of their sums depends on their positions alone."""
    x, v = np.zeros((50, 40)), rng.standard_normal((30_000, 40))
    index = rng.integers(0, 50, 30_000)
    wanted = x.copy()
    np.add.at(wanted, index, v)
    first = ag.index_add(ag.tensor(x), 0, index, ag.tensor(v)).numpy()
    np.testing.assert_allclose(first, wanted, rtol=1e-11, atol=1e-11)
    for _ in range(3):
        np.testing.assert_array_equal(ag.index_add(ag.tensor(x), 0, index, ag.tensor(v)).numpy(), first)

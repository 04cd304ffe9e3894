"""Einsum with lists of labels: NumPy's results, the equation's gradients, and errors that name what was given."""

import re

import agtape as ag
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops.samples import make_param

# Large labels too: they are sorted by number.
LABELS = st.sampled_from([0, 1, 3, 26, 51])
SIZES = {0: 2, 1: 3, 3: 1, 26: 4, 51: 5}


@st.composite
def sums(draw):
    """Operands, each with its labels, and at times those of the output."""
    lists = draw(st.lists(st.lists(LABELS, max_size=3), min_size=1, max_size=3))
    has_ellipsis = draw(st.booleans())
    arguments = []
    for i, labels in enumerate(lists):
        shape = [SIZES[label] for label in labels]
        if has_ellipsis:
            at = draw(st.integers(0, len(labels)))
            labels, shape = [*labels[:at], ..., *labels[at:]], [*shape[:at], 2, *shape[at:]]
        arguments += [np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) * 0.5 - i), labels]
    if draw(st.booleans()):
        used = sorted({label for labels in lists for label in labels})
        wanted = draw(st.lists(st.sampled_from(used), unique=True)) if used else []
        arguments.append([..., *wanted] if has_ellipsis else wanted)
    return arguments


@given(sums())
def test_lists_of_labels_equal_numpy(arguments):
    wanted = np.einsum(*arguments)
    for kind in (list, tuple):
        given = [ag.tensor(a) if isinstance(a, np.ndarray) else kind(a) for a in arguments]
        got = ag.einsum(*given)
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-12, atol=1e-12)


def test_T09_lists_of_labels_have_the_gradients_of_the_equation():
    x, y = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    slopes = []
    for call in (
        lambda a, b: ag.einsum(a, [7, 8], b, [8, 9], [7, 9]),
        lambda a, b: ag.einsum("ij,jk->ik", a, b),
    ):
        a, b = make_param(x), make_param(y)
        with ag.grad_tape():
            loss = (call(a, b) ** 2).sum()
        loss.backward()
        slopes.append((a.grad.tolist(), b.grad.tolist()))
    assert slopes[0] == slopes[1]


X = np.ones((2, 3))


@pytest.mark.promise("U01")
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ag.einsum(X, [0, 52]), ValueError, "einsum: got label 52; expected a list of integers from 0 to 51"),
        (lambda: ag.einsum(X, [0, -1]), ValueError, "got label -1; expected"),
        (lambda: ag.einsum(X, [0, 2**70]), ValueError, "got label 1180591620717411303424; expected"),
        (lambda: ag.einsum(X, [0, 0.5]), TypeError, "einsum: got float; expected a list of integers"),
        (lambda: ag.einsum(X, [0, True]), TypeError, "einsum: got bool; expected a list of integers"),
        (lambda: ag.einsum(X, [0, 1], X, 3), TypeError, "got int; expected .* the labels of operand 1"),
        (lambda: ag.einsum(X, [0, 1], [0, "a"]), TypeError, "got str; expected .* the labels of the output"),
        (lambda: ag.einsum(X, [..., 0, ...]), ValueError, "two ellipses in the labels of operand 0"),
        (lambda: ag.einsum(X, [0]), ValueError, r"operand 0 has shape \[2, 3\]; expected 1 axes"),
        (lambda: ag.einsum(X, [0, 1], X, [1, 2]), ValueError, "label 1 has size 3 in operand 0 and 2 in operand 1"),
        (lambda: ag.einsum(X, [0, 1], [4]), ValueError, "label 4 of the output is in no operand"),
        (lambda: ag.einsum(X, [0, 1], [1, 1]), ValueError, "label 1 appears twice in the output"),
        (lambda: ag.einsum(X, [..., 1], [1]), ValueError, "the output must have an ellipsis"),
        (lambda: ag.einsum(None, [0, 1], X, [1, 2]), TypeError, "einsum: got NoneType; expected a tensor"),
        (lambda: ag.einsum(X, X), TypeError, "einsum: got ndarray; expected an equation .* or an operand and a list"),
        (lambda: ag.einsum(X), TypeError, "einsum: got ndarray; expected an equation"),
    ],
)
def test_U01_labels_that_do_not_fit_are_named(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call()
    assert re.match("einsum: ", str(caught.value))

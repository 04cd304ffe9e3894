"""Linear, Embedding, one_hot, normalize, Flatten: values against NumPy, gradients, bad input."""

import agtape as ag
import numpy as np
import pytest

F = ag.nn.functional


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (0, 3)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_linear_equals_numpy(shape, has_bias, rng):
    x, w, b = rng.standard_normal(shape), rng.standard_normal((4, 3)), rng.standard_normal(4)
    args = [ag.tensor(x), ag.tensor(w), *([ag.tensor(b)] if has_bias else [])]
    np.testing.assert_allclose(F.linear(*args).numpy(), x @ w.T + (b if has_bias else 0), rtol=1e-12)
    assert ag.testing.gradcheck(F.linear, tuple(args), order=2)


def test_linear_starts_like_torch_and_trains():
    layer = ag.nn.Linear(400, 300)
    weight, bias = layer.weight.numpy(), layer.bias.numpy()
    assert weight.shape == (300, 400)
    assert bias.shape == (300,)
    for values in (weight, bias):  # even in plus or minus 1 / sqrt(400)
        assert np.abs(values).max() <= 0.05
        assert np.abs(values).max() > 0.048
        assert abs(values.std() - 0.05 / np.sqrt(3)) < 0.003
    with ag.grad_tape():
        loss = layer(ag.ones((7, 400))).sum()
    loss.backward()
    np.testing.assert_allclose(layer.weight.grad.numpy(), np.full((300, 400), 7.0))
    np.testing.assert_allclose(layer.bias.grad.numpy(), np.full(300, 7.0))
    assert ag.nn.Linear(3, 4, bias=False).bias is None


def test_U01_linear_names_what_does_not_fit():
    with pytest.raises(ValueError, match=r"linear: input \(2, 5\), weight \(4, 3\), bias \(4,\); expected input"):
        ag.nn.Linear(3, 4)(ag.ones((2, 5)))
    with pytest.raises(ValueError, match="Linear: in_features is -1; expected at least 0"):
        ag.nn.Linear(-1, 4)
    with pytest.raises(TypeError, match="out_features is float"):
        ag.nn.Linear(1, 2.5)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_embedding_looks_up_rows_and_sums_gradients_of_repeated_ones(dtype, rng):
    table, ids = rng.standard_normal((5, 3)), np.array([[1, 4, 1], [0, 1, 4]])
    out = F.embedding(ag.tensor(ids.astype(dtype)), ag.tensor(table))
    np.testing.assert_array_equal(out.numpy(), table[ids])
    slopes = rng.standard_normal((2, 3, 3))
    grad = ag.grad(lambda w: (F.embedding(ag.tensor(ids.astype(dtype)), w) * ag.tensor(slopes)).sum())(ag.tensor(table))
    expected = np.zeros_like(table)
    np.add.at(expected, ids, slopes)
    np.testing.assert_allclose(grad.numpy(), expected, rtol=1e-12)


def test_embedding_padding_row_starts_at_zero_and_gets_no_gradient():
    layer = ag.nn.Embedding(4, 2, padding_idx=-1)
    assert layer.padding_idx == 3
    np.testing.assert_array_equal(layer.weight.numpy()[3], [0, 0])
    assert np.abs(layer.weight.numpy()[:3]).min() > 0
    with ag.grad_tape():
        loss = layer(ag.tensor(np.array([3, 0, 3]))).sum()
    loss.backward()
    np.testing.assert_array_equal(layer.weight.grad.numpy(), [[1, 1], [0, 0], [0, 0], [0, 0]])


def test_U01_embedding_checks_host_indices_at_the_call():
    table = ag.ones((3, 2))
    with pytest.raises(IndexError, match="embedding: input holds 3; expected integers from 0 to 2"):
        F.embedding([0, 3], table)
    with pytest.raises(IndexError, match="holds -1"):
        F.embedding(np.array([-1]), table)
    with pytest.raises(TypeError, match="embedding: input holds float64; expected integers"):
        F.embedding(np.array([np.nan]), table)
    with pytest.raises(TypeError, match="float32; expected integers"):
        F.embedding(ag.ones(2), table)
    with pytest.raises(ValueError, match=r"weight has shape \(3,\); expected \(num, dim\)"):
        F.embedding([0], ag.ones(3))
    with pytest.raises(IndexError, match="padding_idx is 4"):
        ag.nn.Embedding(4, 2, padding_idx=4)


def test_embedding_of_nothing_is_empty():
    assert F.embedding(np.zeros((2, 0), np.int64), ag.ones((3, 4))).shape == (2, 0, 4)
    assert F.embedding([], ag.ones((3, 4))).shape == (0, 4)


def test_one_hot_follows_torch():
    ids = np.array([[0, 2], [1, 1]], np.int32)
    np.testing.assert_array_equal(F.one_hot(ag.tensor(ids), 4).numpy(), np.eye(4, dtype=np.int64)[ids])
    assert F.one_hot(ag.tensor(ids)).shape == (2, 2, 3)
    assert str(F.one_hot(ids, 3).dtype) == "int64"
    with pytest.raises(TypeError, match="one_hot: the indices are float32"):
        F.one_hot(ag.ones(2), 3)
    with pytest.raises(ValueError, match="num_classes is -2"):
        F.one_hot(ids, -2)


@pytest.mark.parametrize("p", [1, 2, 3, float("inf")])
def test_normalize_divides_by_the_norm(p, rng):
    x = rng.standard_normal((3, 4)) + 0.1
    norm = np.linalg.norm(x, p, axis=1, keepdims=True)
    np.testing.assert_allclose(F.normalize(ag.tensor(x), p).numpy(), x / norm, rtol=1e-12)
    assert ag.testing.gradcheck(lambda t: F.normalize(t, p), ag.tensor(x))


def test_normalize_of_zeros_is_zero_with_a_finite_gradient():
    assert F.normalize(ag.zeros((1, 3))).tolist() == [[0.0, 0.0, 0.0]]
    assert np.isfinite(ag.grad(lambda x: F.normalize(x).sum())(ag.tensor(np.zeros((1, 3)))).numpy()).all()


def test_cosine_similarity_equals_numpy(rng):
    a, b = rng.standard_normal((2, 3, 4))
    expected = (a * b).sum(0) / np.linalg.norm(a, axis=0) / np.linalg.norm(b, axis=0)
    np.testing.assert_allclose(F.cosine_similarity(ag.tensor(a), ag.tensor(b), dim=0).numpy(), expected, rtol=1e-12)


def test_flatten_joins_axes():
    x = ag.ones((2, 3, 4, 5))
    assert ag.nn.Flatten()(x).shape == (2, 60)
    assert ag.nn.Flatten(0, 1)(x).shape == (6, 4, 5)
    assert ag.nn.Flatten(-2)(x).shape == (2, 3, 20)
    with pytest.raises(IndexError, match="Flatten: the input has shape"):
        ag.nn.Flatten(4)(x)

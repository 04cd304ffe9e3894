"""Batches: order, seeds, last batches, transforms, bad input."""

import agtape as ag
import numpy as np
import pytest
from agtape.data import DataLoader, TensorDataset

X, Y = np.arange(10, dtype=np.float32).reshape(5, 2), np.arange(5)


def rows(loader):
    return [y.tolist() for _, y in loader]


def test_batches_in_order():
    loader = DataLoader((X, Y), batch_size=2)
    batches = list(loader)
    assert len(loader) == len(batches) == 3
    assert all(isinstance(t, ag.Tensor) for batch in batches for t in batch)
    assert [y.tolist() for _, y in batches] == [[0, 1], [2, 3], [4]]
    np.testing.assert_array_equal(batches[1][0].numpy(), X[2:4])
    assert rows(DataLoader((X, Y), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert len(DataLoader((X, Y), 2, drop_last=True)) == 2
    assert rows(DataLoader((X, Y), 9)) == [[0, 1, 2, 3, 4]]


def test_shuffling_is_the_same_for_the_same_seed_and_new_in_each_pass():
    loader, again = DataLoader((X, Y), 2, shuffle=True, seed=1), DataLoader((X, Y), 2, shuffle=True, seed=1)
    first, second = rows(loader), rows(loader)
    assert all(sorted(y for batch in one for y in batch) == [0, 1, 2, 3, 4] for one in (first, second))
    assert [rows(again), rows(again)] == [first, second]
    assert first != second
    assert rows(DataLoader((X, Y), 2, shuffle=True, seed=2)) != first


def test_a_transform_sees_each_batch_and_a_seeded_generator():
    def noisy(rng, x, y):
        return x + rng.random(x.shape, np.float32), y

    loaders = [DataLoader((X, Y), 3, seed=5, transform=noisy) for _ in range(2)]
    for (a, _), (b, _) in zip(*loaders):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert [x.tolist() for (x,) in DataLoader(np.ones(2), 2, transform=lambda rng, x: x * 2)] == [[2.0, 2.0]]


def test_datasets_of_tensors_and_lists():
    data = TensorDataset(ag.tensor(X), [0, 1, 2, 3, 4])
    assert len(data) == 5
    np.testing.assert_array_equal(data[1:3][0], X[1:3])
    assert rows(DataLoader(data, 5)) == [[0, 1, 2, 3, 4]]


def test_U01_misuse_is_named():
    with pytest.raises(ValueError, match=r"TensorDataset: arrays of \[5, 4\] entries"):
        TensorDataset(X, Y[:4])
    with pytest.raises(ValueError, match="no array or a scalar"):
        TensorDataset(3.0)
    with pytest.raises(ValueError, match="batch_size is 0"):
        DataLoader(X, 0)

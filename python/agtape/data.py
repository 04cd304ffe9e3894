"""Owns batches: data sets of arrays, and a loader that shuffles them the same way for the same seed."""

import numpy as np

import agtape as ag
from agtape._core import Tensor
from agtape.arguments import as_flag, as_int, as_place, shown


class TensorDataset:
    """Arrays with equally many rows; an index or index array gives a tuple with those rows of each.

    Args:
        *arrays: arrays (or tensors, which are read) whose first axis is the entries.

    Raises:
        ValueError: no array, a scalar, or different lengths.

    >>> data = TensorDataset([[1.0], [2.0]], [0, 1])
    >>> len(data), data[1][1].item()
    (2, 1)
    """

    def __init__(self, *arrays):
        self.arrays = [_array(i, a) for i, a in enumerate(arrays)]
        if not self.arrays or any(a.ndim == 0 for a in self.arrays):
            raise ValueError("TensorDataset: no array or a scalar was given; expected arrays with a first axis")
        lengths = [len(a) for a in self.arrays]
        if len(set(lengths)) != 1:
            raise ValueError(f"TensorDataset: arrays of {lengths} entries; expected equally many")

    def __len__(self):
        return len(self.arrays[0])

    def __getitem__(self, index):
        return tuple(a[index] for a in self.arrays)


class DataLoader:
    """Iterates over a data set in batches of tensors; each pass shuffles anew, the same way for the same seed and pass.

    Args:
        dataset: a `TensorDataset`, an array, or a tuple of arrays.
        batch_size: entries in a batch.
        shuffle: whether to draw a new order for each pass.
        drop_last: whether to leave out a last batch that is smaller.
        seed: seed of order and transform.
        transform: function `(rng, *arrays) -> array or tuple of arrays`, applied to each batch before it becomes tensors; `rng`
            is a NumPy generator.
        device: where the tensors go.

    Raises:
        TypeError: batch_size or seed is no int; ValueError: batch_size is below 1, seed negative, or the arrays do not match.

    >>> [x.shape for (x,) in DataLoader([1.0, 2.0, 3.0], batch_size=2)]
    [(2,), (1,)]
    """

    def __init__(self, dataset, batch_size=1, shuffle=False, drop_last=False, *, seed=0, transform=None, device=None):
        batch_size = as_int("DataLoader", "batch_size", batch_size, least=1)
        seed = as_int("DataLoader", "seed", seed, least=0)
        if transform is not None and not callable(transform):
            raise TypeError(f"DataLoader: transform is {shown(transform)}; expected a function or None")
        if not isinstance(dataset, TensorDataset):
            dataset = TensorDataset(*(dataset if isinstance(dataset, tuple) else (dataset,)))
        self.shuffle, self.drop_last = (
            as_flag("DataLoader", "shuffle", shuffle),
            as_flag("DataLoader", "drop_last", drop_last),
        )
        self.dataset, self.batch_size = dataset, batch_size
        self.seed, self.transform = seed, transform
        self.device = as_place("DataLoader", None, device)["device"]
        self.passes = 0

    def __len__(self):
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self):
        rng = np.random.default_rng((self.seed, self.passes))
        self.passes += 1
        order = rng.permutation(len(self.dataset)) if self.shuffle else np.arange(len(self.dataset))
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            batch = self.dataset[order[start : start + self.batch_size]]
            if self.transform is not None:
                batch = self.transform(rng, *batch)
                batch = batch if isinstance(batch, tuple) else (batch,)
            yield tuple(ag.tensor(a, device=self.device) for a in batch)


def _array(i, given):
    try:
        return given.numpy() if isinstance(given, Tensor) else np.asarray(given)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"TensorDataset: array {i} is {type(given).__name__}; expected rows of equal shapes ({error})"
        ) from error

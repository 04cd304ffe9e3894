"""Nothing is computed on the CPU behind the user's back: what a call reads from the device is counted for every op of the table."""

import agtape as ag
import numpy as np
import pytest
from ops.registry import ROWS
from ops.samples import arrange, as_list, to_dtype

# Shapes that depend on values: how many there are is read, 8 bytes.
READS_A_COUNT = {"nonzero", "where positions"}


def dtype_of(row):
    """The type that a row is tried in; None for one that gives what no adapter has."""
    return next((d for d in ("float32", "int32", "bool") if d in row.dtypes and row.result_dtype(d) != "float64"), None)


@pytest.mark.promise("G02", "R03")
@pytest.mark.parametrize("row", [row for row in ROWS if dtype_of(row)], ids=lambda row: row.name)
def test_G02_no_op_reads_its_operands(row, rng):
    dtype, n = dtype_of(row), max(9, row.least)
    shapes = row.shapes(n)
    arrays = [to_dtype(draw(rng, shape), dtype) for draw, shape in zip(row.draws(len(shapes)), shapes)]
    bases, view = arrange(arrays, "mixed")
    tensors = [ag.tensor(a, dtype=dtype, device="gpu") for a in bases]
    ag.eval(*tensors)
    with ag.device("gpu"), ag.transfers() as moved:
        results = as_list(row.run(*view(ag, tensors)))
        ag.eval(*results)
        ag.synchronize("gpu")
    expected = (1, 8) if row.name in READS_A_COUNT else (0, 0)
    assert (moved.to_host, moved.to_host_bytes) == expected
    assert all(t.device == "gpu" for t in results)


@pytest.mark.promise("G02")
@pytest.mark.parametrize("shape", [(1,), (7,), (5, 3), (2, 3, 4), (300, 7), (70_001,), (3, 0)])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_G02_positions_are_found_on_the_device(shape, share, rng):
    x = (rng.random(shape) < share) * rng.integers(1, 9, shape)
    for dtype in ("float32", "int64", "bool", "uint8"):
        array = x.astype(dtype)
        t = ag.tensor(array, device="gpu")
        ag.eval(t)
        with ag.transfers() as moved:
            found = ag.nonzero(t)
            ag.eval(*found)
            ag.synchronize("gpu")
        assert moved.to_host_bytes == (8 if array.size else 0)
        assert moved.to_device == (0 if array.size else moved.to_device)
        for a, b in zip(found, np.nonzero(array), strict=True):
            assert (str(a.dtype), a.shape) == ("int64", b.shape)
            np.testing.assert_array_equal(a.numpy(), b)
            assert not array.size or a.device == "gpu"


@pytest.mark.promise("G02")
def test_G02_masks_choose_and_write_on_the_device(rng):
    x = rng.normal(size=(6, 5)).astype(np.float32)
    w = ag.param(x, device="gpu")
    mask = w.detach() > 0
    ag.eval(w, mask)
    with ag.transfers() as moved:
        with ag.grad_tape():
            loss = (w[mask] ** 2).sum() + w[mask[:, 0]].sum()
        loss.backward()
        ag.synchronize("gpu")
    # One count for each mask.
    assert (moved.to_host, moved.to_host_bytes) == (2, 16)
    positive = x > 0
    np.testing.assert_allclose(loss.item(), (x[positive] ** 2).sum() + x[positive[:, 0]].sum(), rtol=1e-5)
    np.testing.assert_allclose(w.grad.numpy(), 2 * x * positive + positive[:, :1], rtol=1e-6)
    y = w.detach().copy()
    y[mask] = -1.0
    y[y < -0.5] = ag.arange(int((np.where(positive, -1.0, x) < -0.5).sum()), dtype="float32", device="gpu")
    expected = np.where(positive, np.float32(-1), x)
    expected[expected < -0.5] = np.arange((expected < -0.5).sum())
    np.testing.assert_array_equal(y.numpy(), expected)


@pytest.mark.promise("G02")
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 128, 1000])
def test_G02_sorted_values_are_searched_on_the_device(side, n, rng):
    a = np.sort(rng.integers(0, 50, n).astype(np.float32))
    v = np.concatenate([rng.uniform(-5, 55, 40).astype(np.float32), a[:20], [np.inf, -np.inf, np.nan]]).astype(
        np.float32
    )
    if n > 2:
        a[-2:] = np.nan
    t, u = ag.tensor(a, device="gpu"), ag.tensor(v.reshape(1, -1), device="gpu")
    ag.eval(t, u)
    with ag.transfers() as moved:
        found = ag.searchsorted(t, u, side=side)
        ag.eval(found)
        ag.synchronize("gpu")
    assert moved.to_host == 0
    assert (found.device, str(found.dtype)) == ("gpu", "int64")
    np.testing.assert_array_equal(found.numpy(), np.searchsorted(a, v.reshape(1, -1), side))
    order = rng.permutation(n)
    back = np.argsort(order)
    shuffled = ag.searchsorted(ag.tensor(a[order], device="gpu"), u, side=side, sorter=ag.tensor(back, device="gpu"))
    np.testing.assert_array_equal(shuffled.numpy(), found.numpy())


WHOLE = [0, 1, 2, 255, 256, 257, 2047, 2048, 2049, 16777215, 16777216, 16777217, -1, -3]
FLOATS = [0.0, 1.0, 1.5, 255.0, 256.0, 257.0, 2048.0, 2049.0, 16777216.0, -1.5, 1e30, np.inf, -np.inf, np.nan]


@pytest.mark.promise("G01")
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("whole", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("real", ["float32", "float16", "bfloat16"])
def test_G01_integers_and_floats_are_searched_among_each_other_by_their_values(whole, real, side, rng):
    for _ in range(3):
        choices = [n for n in WHOLE if whole != "uint8" or 0 <= n < 256]
        a = ag.sort(ag.tensor(rng.choice(choices, 9)).astype(whole))
        b = ag.sort(ag.tensor(rng.choice(FLOATS, 9)).astype(real))
        values = [t.astype("float32").numpy().astype(np.float64) if t is b else t.numpy() for t in (a, b)]
        for (x, v), (t, u) in ((values, (a, b)), (values[::-1], (b, a))):
            found = ag.searchsorted(t.to("gpu"), u.to("gpu"), side=side)
            np.testing.assert_array_equal(found.numpy(), np.searchsorted(x, v, side), err_msg=f"{t} {u}")


def test_U01_searches_name_what_they_cannot_use_on_every_device():
    for device in ("cpu", "gpu"):
        x = ag.tensor([1.0, 2.0, 4.0], device=device)
        for values, places in (([2, 3], [1, 2]), (np.array([2, 3]), [1, 2]), (2.5, 2)):
            found = ag.searchsorted(x, values)
            assert found.device == device and found.tolist() == places
        for sorter in ([0, 1], [[0, 1, 2]], [True, True, False]):
            with pytest.raises(ValueError, match=r"searchsorted: sorter is .* expected integers of shape \(3,\)"):
                ag.searchsorted(x, [3.5], sorter=sorter)
    with pytest.raises(ValueError, match="searchsorted: x1 is on gpu and x2 on cpu"):
        ag.searchsorted(x, ag.tensor([1.0]))

"""Elements smaller than a word: whatever their layout, they are moved bit for bit, and what is written beside them does not touch them."""

import agtape as ag
import ml_dtypes
import numpy as np
import pytest
from fresh_process import WITH_TESTS, run_python
from hypothesis import given
from hypothesis import strategies as st

DTYPES = ("bool", "uint8", "bfloat16", "float16", "int32", "int64", "float32")
SPECIAL = [0.0, -0.0, 1.0, -1.5, 3.0, 7.0, 11.0, np.inf, -np.inf, np.nan, 6e-8, -1e-39, 65504.0]


def numbers(rng, shape, dtype):
    """An array of numbers that a type holds; floats among them the special ones."""
    if dtype in ("bool", "uint8", "int32", "int64"):
        high = {"bool": 2, "uint8": 256, "int32": 1 << 31, "int64": 1 << 62}[dtype]
        return rng.integers(0 if high < 1 << 31 else -high, high, shape).astype(dtype)
    return rng.choice(np.array(SPECIAL, np.float32), shape)


def permuted(x, order):
    """Axes in another order."""
    return x.transpose(order) if isinstance(x, np.ndarray) else x.permute(order)


def repeated(x, count):
    """As many rows side by side, all of them the same memory."""
    return (np if isinstance(x, np.ndarray) else ag).broadcast_to(x, (count, *x.shape))


@st.composite
def views(draw):
    """A shape, and functions that see an array of it otherwise: windows, steps, steps backwards, axes in another order, repeats."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    seen, steps = np.zeros(shape), []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(("window", "order", "repeat")))
        if kind == "window":
            window = []
            for size in seen.shape:
                start = draw(st.integers(0, size - 1))
                step = draw(st.sampled_from((1, 1, 2, 3, -1, -2)))
                window.append(slice(start, None, step))
            steps.append(lambda x, w=tuple(window): x[w])
        elif kind == "order":
            order = tuple(draw(st.permutations(range(seen.ndim))))
            steps.append(lambda x, o=order: permuted(x, o))
        elif seen.ndim < 4:
            count = draw(st.integers(1, 3))
            steps.append(lambda x, n=count: repeated(x, n))
        else:
            continue
        seen = steps[-1](seen)
    return shape, steps


def on(x, array):
    """An array as a tensor beside x."""
    return ag.tensor(array, device=x.device)


def rows(rng, x, count):
    """Numbers of rows of x, half of them counted from the end."""
    n = x.shape[0]
    return on(x, rng.integers(-n, n, count))


def set_items(x, rng):
    """One element alone, then a window beside it."""
    y = x.copy()
    y[tuple(int(rng.integers(d)) for d in y.shape)] = 1
    axis = int(rng.integers(y.ndim))
    start, step = int(rng.integers(y.shape[axis])), int(rng.integers(1, 4))
    window = (slice(None),) * axis + (slice(start, None, step),)
    y[window] = ag.flip(x, axis)[window]
    return y


def put_rows(x, rng):
    """Rows that others replace; of repeated ones the last stays."""
    y, i = x.copy(), rows(rng, x, 5)
    y[i] = x[rows(rng, x, 5)]
    return y


def added(x, rng):
    """Rows added to others."""
    if str(x.dtype) == "bool":
        return put_rows(x, rng)
    y = ag.where(ag.isfinite(x), x, 1).astype(x.dtype)
    i = on(x, rng.permutation(x.shape[0]))
    return ag.index_add(y, 0, i, ag.flip(y, 0))


def along(x, rng):
    """Elements by a number of their own along an axis."""
    axis = int(rng.integers(x.ndim))
    shape = list(x.shape)
    shape[axis] = int(rng.integers(1, 6))
    return ag.take_along_axis(x, on(x, rng.integers(0, x.shape[axis], shape)), axis)


def joined(x, rng):
    """Parts of any length one after the other."""
    axis = int(rng.integers(x.ndim))
    cut = int(rng.integers(1, x.shape[axis] + 1))
    window = (slice(None),) * axis + (slice(0, cut),)
    return ag.concat([x[window], x, ag.flip(x, axis)[window]], axis=axis)


def padded(x, rng):
    """Something before and behind each axis."""
    return ag.pad(x, tuple((int(a), int(b)) for a, b in rng.integers(0, 4, (x.ndim, 2))))


def rolled(x, rng):
    """Moved around."""
    axis = int(rng.integers(x.ndim))
    return ag.roll(x, int(rng.integers(-9, 10)), axis)


def chosen(x, rng):
    """One of two, element by element."""
    return ag.where(on(x, rng.random(x.shape) < 0.5), x, ag.flip(x, 0))


MOVES = {
    "copy": lambda x, rng: x.copy(),
    "setitem": set_items,
    "gather": lambda x, rng: x[rows(rng, x, 7)],
    "take_along_axis": along,
    "index_put": put_rows,
    "scatter_add": added,
    "concat": joined,
    "pad": padded,
    "flip": lambda x, rng: ag.flip(x, int(rng.integers(x.ndim))).copy(),
    "roll": rolled,
    "where": chosen,
    "reshape": lambda x, rng: x.reshape(-1)[1:],
    "sort": lambda x, rng: ag.sort(x, axis=int(rng.integers(x.ndim))) if str(x.dtype) != "bool" else x,
    "astype": lambda x, rng: x.astype(DTYPES[int(rng.integers(len(DTYPES)))]),
    "any": lambda x, rng: ag.any(x, axis=int(rng.integers(x.ndim))),
    "max": lambda x, rng: ag.max(x, axis=int(rng.integers(x.ndim))) if str(x.dtype) != "bool" else x,
}


def flushed(x):
    """Without what is below the smallest normal float32: adapters' sums may or may not keep it."""
    return ag.where(ag.abs(x) < 2.0**-126, 0, x) if "float" in str(x.dtype) else x


def assert_same(found, expected, what, is_moved):
    """The same numbers, and where they were only moved the same bits."""
    a, b = found.numpy(), expected.numpy()
    assert (a.dtype, a.shape) == (b.dtype, b.shape), what
    np.testing.assert_array_equal(a, b, err_msg=what)
    if is_moved and a.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(a) & ~np.isnan(a), np.signbit(b) & ~np.isnan(b), err_msg=what)


@pytest.mark.promise("G01")
@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_G01_elements_of_every_type_are_moved_from_and_to_any_layout(dtype, data):
    shape, steps = data.draw(views())
    seed = data.draw(st.integers(0, 1 << 20))
    base = ag.tensor(numbers(np.random.default_rng(seed), shape, dtype)).astype(dtype)
    for name in data.draw(st.lists(st.sampled_from(list(MOVES)), min_size=3, max_size=3, unique=True)):
        results = []
        for device in ("cpu", "gpu"):
            x = base.to(device)
            for see in steps:
                x = see(x)
            results.append(MOVES[name](x, np.random.default_rng(seed)))
        expected, found = results
        assert found.device == "gpu"
        is_moved = name not in ("astype", "any", "max", "sort", "scatter_add")
        if name == "scatter_add":
            found, expected = flushed(found), flushed(expected)
        assert_same(found, expected, f"{name} of {dtype} {shape}, seed {seed}", is_moved)


@pytest.mark.promise("G01")
@pytest.mark.parametrize("dtype", ["bool", "uint8", "bfloat16", "float16"])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 1023, 70_001])
def test_G01_neighbours_in_a_word_are_written_by_different_threads_without_a_race(dtype, n, rng):
    """Every element comes from another thread than its neighbour, in an order that differs from run to run."""
    values = rng.integers(0, 2 if dtype == "bool" else 100, n)
    for _ in range(3):
        order = rng.permutation(n)
        x = ag.zeros(n, dtype=dtype, device="gpu")
        x[ag.tensor(order, device="gpu")] = ag.tensor(values, device="gpu").astype(dtype)
        expected = np.zeros(n, values.dtype)
        expected[order] = values
        np.testing.assert_array_equal(x.numpy().astype(values.dtype), expected)
        # One element beside others that stay.
        at = int(rng.integers(n))
        x[at], expected[at] = 1, 1
        x[at % 2 :: 2], expected[at % 2 :: 2] = 0, 0
        np.testing.assert_array_equal(x.numpy().astype(values.dtype), expected)


def every_16_bits(dtype, device):
    """A tensor of each of the 65,536 elements that 16 bits can be, in any order, and their bits."""
    bits = np.random.default_rng(9).permutation(np.arange(1 << 16, dtype=np.uint16)).reshape(256, 256)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    return bits, ag.tensor(bits.view(kind), device=device)


def bits_of(x, folder):
    """The bits of a tensor as they are written to a file."""
    ag.save({"x": x}, folder / "x")
    return np.frombuffer((folder / "x").read_bytes()[-x.nbytes :], np.uint16).reshape(x.shape)


def replaced(x, at, by):
    """A copy with something replaced."""
    y = x.copy()
    y[at] = by
    return y


ORDER = np.random.default_rng(3).permutation(256)
COLUMNS = np.random.default_rng(4).integers(0, 256, (256, 256))
CHOSEN = np.random.default_rng(5).random((256, 256)) < 0.5
# What moves elements, as a function of an array or tensor, the library, and what makes an index.
EXACT = {
    "as it is": lambda x, xp, i: x,
    "copy": lambda x, xp, i: x.copy(),
    "transpose": lambda x, xp, i: x.T.copy(),
    "steps": lambda x, xp, i: x[1:, ::-3].copy(),
    "broadcast": lambda x, xp, i: xp.broadcast_to(x[3:5, None, :], (2, 3, 256)).copy(),
    "flip": lambda x, xp, i: xp.flip(x, (0, 1)).copy(),
    "roll": lambda x, xp, i: xp.roll(x, (3, 5), (0, 1)),
    "pad": lambda x, xp, i: xp.pad(x, ((1, 2), (3, 0))),
    "concat": lambda x, xp, i: xp.concatenate([x[:, :3], x[:, 5:], x.T], axis=1),
    "stack": lambda x, xp, i: xp.stack([x, x[::-1]], axis=1),
    "repeat": lambda x, xp, i: xp.repeat(x, 3, axis=1),
    "gather": lambda x, xp, i: x[i(ORDER)],
    "gather of columns": lambda x, xp, i: x.T[i(ORDER)],
    "gather of elements": lambda x, xp, i: x[i(ORDER), i(ORDER[::-1].copy())],
    "take_along_axis": lambda x, xp, i: xp.take_along_axis(x, i(COLUMNS), 1),
    "window assigned": lambda x, xp, i: replaced(x, (slice(1, -1, 2), slice(3, None)), x[2::2, :-3]),
    "rows assigned": lambda x, xp, i: replaced(x, i(ORDER[:99]), x[100:199]),
    "chosen assigned": lambda x, xp, i: replaced(x, i(CHOSEN), 0),
    "where": lambda x, xp, i: xp.where(i(CHOSEN), x, x[::-1]),
    "where a number is": lambda x, xp, i: xp.where(i(CHOSEN), 0, x.T),
    "where of where": lambda x, xp, i: xp.where(i(CHOSEN), x[:1], xp.where(i(CHOSEN.T.copy()), x[:, 3:4], x)),
    "triu": lambda x, xp, i: xp.triu(x),
    "tril": lambda x, xp, i: xp.tril(x, 3),
}


@pytest.mark.promise("G01")
@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", EXACT)
def test_G01_all_16_bits_survive_being_moved(name, dtype, device, tmp_path):
    """Signs of zeros, denormals, infinities, and what NaNs carry: a conversion there and back would make some of them quiet."""
    bits, x = every_16_bits(dtype, device)
    if name == "concat":
        moved = ag.concat([x[:, :3], x[:, 5:], x.T], axis=1)
    else:
        moved = EXACT[name](x, ag, lambda array: ag.tensor(array, device=device))
    expected = EXACT[name](bits, np, lambda array: array)
    np.testing.assert_array_equal(bits_of(moved, tmp_path), expected)


@pytest.mark.promise("G01")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_G01_all_16_bits_survive_being_sorted(dtype, tmp_path):
    bits, x = every_16_bits(dtype, "gpu")
    order = ag.argsort(x, axis=1).numpy()
    found = bits_of(ag.sort(x, axis=1), tmp_path)
    np.testing.assert_array_equal(found, np.take_along_axis(bits, order, 1))
    np.testing.assert_array_equal(found, bits_of(ag.sort(x.cpu(), axis=1), tmp_path))


@pytest.mark.promise("G01")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_G01_all_16_bits_survive_where_nothing_is_added(dtype, tmp_path):
    bits, x = every_16_bits(dtype, "gpu")
    rows = ag.tensor([3, 7, 3], device="gpu")
    found = bits_of(ag.index_add(x, 0, rows, ag.ones(3, 256, dtype=dtype, device="gpu")), tmp_path)
    changed = [r for r in range(256) if not np.array_equal(found[r], bits[r])]
    assert changed == [3, 7]
    first = ag.zeros(256, 1, dtype="int64", device="gpu")
    found = bits_of(ag.scatter_add(x.T, 1, first, ag.ones(256, 1, dtype=dtype, device="gpu")), tmp_path)
    np.testing.assert_array_equal(found[:, 1:], bits.T[:, 1:])
    assert not np.array_equal(found[:, 0], bits.T[:, 0])


@pytest.mark.promise("G01")
def test_G01_all_16_bits_survive_where_two_lie_in_a_word(tmp_path):
    done = run_python(
        """
        import sys
        from pathlib import Path
        import agtape as ag
        from agtape import _core
        from gpu import test_packed as packed

        assert not _core.adapter_limits("gpu")["f16"]
        for name in packed.EXACT:
            packed.test_G01_all_16_bits_survive_being_moved(name, "float16", "gpu", Path(sys.argv[1]))
        packed.test_G01_all_16_bits_survive_being_sorted("float16", Path(sys.argv[1]))
        packed.test_G01_all_16_bits_survive_where_nothing_is_added("float16", Path(sys.argv[1]))
        print("all")
        """,
        tmp_path,
        AGTAPE_NO_F16="1",
        **WITH_TESTS,
    )
    assert done == "all\n"


ROWS, WIDTH = 3001, 9


def spoiled(array, device):
    """A tensor of an array, while what its results will be written to holds something else."""
    x = ag.tensor(array, device=device)
    other = ~x if str(x.dtype) in ("bool", "uint8") else x + 1
    ag.eval(other)
    del other
    return x


# What moves elements, from two arrays, to more places than scratch of a word for each has room for. Where each element has an index of its
# own, or is sorted, the indices have no room sooner.
CROWDED = {
    "parts joined": lambda a, b, i, d: ag.concat([spoiled(a, d)[:1001], ag.flip(ag.tensor(b, device=d)[1001:], 0)]),
    "columns joined": lambda a, b, i, d: ag.concat([(x := spoiled(a, d))[:, :4], x[:, 7:], x[:, 4:7]], axis=1),
    "rows taken": lambda a, b, i, d: spoiled(a, d)[i(ORDERED)],
    "rows assigned": lambda a, b, i, d: replaced(spoiled(a, d), i(ORDERED), ag.tensor(b, device=d)[: len(ORDERED)]),
    "window assigned": lambda a, b, i, d: replaced(spoiled(a, d), slice(1, None), ag.tensor(b, device=d)[1:]),
}
ORDERED = np.random.default_rng(6).permutation(ROWS)[:2900].astype(np.int32)


def move_crowded(dtype):
    """Moves elements of a type in every such way, on both devices."""
    rng = np.random.default_rng(8)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    a, b = (rng.integers(0, 2 if dtype == "bool" else 100, (ROWS, WIDTH)).astype(kind) for _ in range(2))
    for name, move in CROWDED.items():
        expected, found = (move(a, b, lambda array, d=d: ag.tensor(array, device=d), d) for d in ("cpu", "gpu"))
        np.testing.assert_array_equal(found.numpy(), expected.numpy(), err_msg=f"{name}, {dtype}")


@pytest.mark.promise("G01", "G03")
@pytest.mark.parametrize("f16", ["0", "1"])
def test_G03_packed_elements_are_moved_where_scratch_of_a_word_for_each_is_more_than_can_be_bound(f16):
    done = run_python(
        """
        from agtape import _core
        from gpu import test_packed as packed

        limits = _core.adapter_limits("gpu")
        assert 2 * packed.ROWS * packed.WIDTH <= limits["max_bytes"] < 4 * len(packed.ORDERED) * packed.WIDTH, limits
        for dtype in ("bool", "uint8", "bfloat16", "float16"):
            packed.move_crowded(dtype)
        print("all")
        """,
        AGTAPE_MAX_BUFFER="90000",
        AGTAPE_NO_F16=f16,
        **WITH_TESTS,
    )
    assert done == "all\n"

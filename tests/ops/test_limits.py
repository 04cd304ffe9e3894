"""Sizes, axes and numbers at the edge of what fits: a right result or an error, never an abort or another's memory."""

import agtape as ag
import numpy as np
import pytest

HUGE = 1 << 40


def wide(*shape):
    """A tensor of so many elements in the memory of one."""
    return ag.broadcast_to(ag.tensor([1.0]), shape)


TOO_LARGE = {
    "add": lambda: wide(HUGE, 1) + wide(1, HUGE),
    "where": lambda: ag.where(wide(HUGE, 1) > 0, wide(1, HUGE), 0.0),
    "matmul": lambda: wide(HUGE, 1) @ wide(1, HUGE),
    "outer": lambda: ag.outer(wide(HUGE), wide(HUGE)),
    "einsum": lambda: ag.einsum("i,j->ij", wide(HUGE), wide(HUGE)),
    "meshgrid": lambda: ag.meshgrid(wide(HUGE), wide(HUGE)),
    "tile": lambda: ag.tile(ag.ones(2), (1 << 62,)),
    "one_hot": lambda: ag.one_hot(ag.tensor([0]), 1 << 62),
    "arange": lambda: ag.arange(-(2**63), 2**63 - 1),
    "diag": lambda: ag.diag(ag.ones(2), -(2**63)),
    "concat": lambda: ag.concat([wide(1 << 59)] * 32),
    "borrowed": lambda: ag.asarray(np.broadcast_to(np.zeros(1, np.uint8), (1 << 62,)), copy=False),
    # Axes of size 0 do not make the others harmless.
    "reshape of nothing": lambda: ag.zeros(0).reshape(0, HUGE, HUGE),
    "tile of nothing": lambda: ag.tile(wide(1 << 30, 1 << 30), (0, 1 << 29)),
    "matmul of nothing": lambda: wide(0, HUGE, 1) @ wide(1, HUGE),
    "tensordot of nothing": lambda: ag.tensordot(wide(0, HUGE, 1), wide(1, HUGE), 1),
    "einsum of nothing": lambda: ag.einsum("aij,jk->aik", wide(0, HUGE, 1), wide(1, HUGE)),
}
# What a kernel needs beside its result is longer than any memory.
BESIDE = {
    "sum": lambda: wide(1 << 58).sum(),
    "mean of rows": lambda: wide(2, 1 << 57).mean(axis=1),
    "max of columns": lambda: wide(1 << 57, 2).max(axis=0),
    "cross_entropy": lambda: ag.nn.functional.cross_entropy(wide(1, 1 << 58), [0]),
}
NO_MEMORY = {
    "repeat": lambda: ag.repeat(ag.ones(2), [1, HUGE]),
    "pad": lambda: ag.pad(ag.ones(2), (0, HUGE), mode="edge"),
    "split": lambda: ag.split(ag.ones(0), HUGE),
    "permutation": lambda: ag.permutation(HUGE),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_U01_too_many_elements_are_refused_at_the_call(name):
    with pytest.raises(ValueError, match="too many elements"):
        TOO_LARGE[name]()


@pytest.mark.parametrize("name", NO_MEMORY)
def test_U01_what_does_not_fit_into_memory_is_an_error(name):
    with pytest.raises(MemoryError, match="memory"):
        ag.eval(NO_MEMORY[name]())


@pytest.mark.parametrize("name", BESIDE)
def test_U01_what_a_kernel_has_no_room_for_is_an_error(name):
    with pytest.raises(MemoryError, match=r"no memory for \d+ entries"):
        ag.eval(BESIDE[name]())


@pytest.mark.parametrize("budget", [None, 2**62])
def test_U01_values_whose_bytes_cannot_be_counted_together_are_refused(budget):
    x = wide(1 << 59)
    with ag.grad_tape(budget=budget), pytest.raises(MemoryError, match="evaluation: "):
        ag.eval(ag.concat([ag.softmax(x * i).sum().reshape(1) for i in range(9)]))


def test_U01_a_tensor_longer_than_memory_is_not_saved(tmp_path):
    with pytest.raises((MemoryError, OSError)):
        ag.save({"x": wide(1 << 58)}, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())


def test_U01_more_objects_than_anybody_uses_are_refused():
    for name, call in {"unstack": lambda: ag.unstack(wide(HUGE)), "reversed": lambda: reversed(wide(HUGE))}.items():
        with pytest.raises(ValueError, match=rf"^{name}: axis.* has 1099511627776 members; expected at most 1048576"):
            call()


@pytest.mark.parametrize("k", [2**63 - 1, 2**62, 3, -3, -(2**62), -(2**63)])
def test_diagonals_beyond_the_matrix(k):
    x = np.arange(1, 7).reshape(2, 3)
    at = min(max(k, -5), 5)
    assert ag.triu(ag.tensor(x), k).tolist() == np.triu(x, at).tolist()
    assert ag.tril(ag.tensor(x), k).tolist() == np.tril(x, at).tolist()
    assert ag.eye(2, 3, k).tolist() == np.eye(2, 3, at).tolist()
    assert ag.trace(ag.tensor(x), k).item() == np.trace(x, at) and ag.diagonal(ag.tensor(x), k).shape == (0,)


def test_U01_more_axes_than_masks_can_name_are_refused():
    x = ag.ones((2,) + (1,) * 39)
    for call in (lambda: x.sum(axis=35), lambda: x.argmax(axis=35), lambda: x[(ag.tensor([0]),) * 40]):
        with pytest.raises((ValueError, IndexError), match="40"):
            call()
    assert x[(0,) * 30].shape == (1,) * 10 and x.reshape(2).tolist() == [1.0, 1.0]


def test_shifts_and_positions_at_the_ends_of_int64():
    x = np.arange(5)
    assert ag.roll(ag.tensor(x), (2**63 - 1, 2**63 - 1)).tolist() == np.roll(x, 2 * ((2**63 - 1) % 5)).tolist()
    assert ag.roll(ag.tensor(x), -(2**63)).tolist() == np.roll(x, -(2**63 % 5)).tolist()
    assert ag.tensor(x)[-(2**63) : 2**63 - 1 : 2**62].tolist() == [0]
    with pytest.raises(IndexError, match="index 18446744073709551615 is out of range"):
        ag.tensor(x)[np.array([2**64 - 1], np.uint64)]
    with pytest.raises(ValueError, match="swapaxes: axis 5"):
        ag.swapaxes(ag.ones((2, 3)), 0, 5)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_vecdot_aligns_the_axis_of_each_operand(axis, rng):
    a, b = rng.standard_normal((3, 3)), rng.standard_normal((3, 3, 3))
    np.testing.assert_allclose(ag.vecdot(ag.tensor(a), ag.tensor(b), axis=axis).numpy(), np.vecdot(a, b, axis=axis))
    if axis in (0, -1):
        v = rng.standard_normal(3)
        np.testing.assert_allclose(ag.vecdot(ag.tensor(v), ag.tensor(a), axis=axis).numpy(), np.vecdot(v, a, axis=axis))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_decimals_of_16_bit_floats_are_rounded_in_float32(dtype):
    x = ag.tensor([1.2345, -3.9999], dtype=dtype)
    for decimals in (2, 5):
        expected = ag.tensor(np.round(x.astype("float32").numpy(), decimals), dtype=dtype)
        assert ag.round(x, decimals).tolist() == expected.tolist()

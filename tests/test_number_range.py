"""Integer tensors beside Python integers that their type does not hold: comparisons go by value, bounds bound nothing, the rest refuses."""

import agtape as ag
import numpy as np
import pytest

pytestmark = pytest.mark.promise("U01")

HELD = {"uint8": (0, 1, 200, 255), "int32": (-(2**31), -2, 1, 2**31 - 1), "int64": (-(2**63), -5, 1, 2**63 - 1)}
NUMBERS = (-(2**70), -(2**63) - 1, -(2**31) - 1, -1, 0, 255, 256, 300, 2**31, 2**32 + 1, 2**40, 2**63, 2**70, 10**400)
BY_NAME = {
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
}
METHODS = {"equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"}
BEYOND = [("uint8", 300), ("uint8", -1), ("uint8", 2**70), ("int32", 2**40), ("int32", -(2**40)), ("int64", -(2**70))]


def held(dtype):
    return ag.tensor(np.array(HELD[dtype], dtype))


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("dtype", HELD)
def test_U01_comparisons_with_any_integer_go_by_value(dtype, name):
    x, compare = held(dtype), BY_NAME[name]
    for n in NUMBERS:
        expected = [compare(v, n) for v in HELD[dtype]]
        assert compare(x, n).tolist() == expected, n
        assert getattr(ag, name)(x, n).tolist() == expected, n
        assert getattr(x, METHODS[name])(n).tolist() == expected, n
        swapped = [compare(n, v) for v in HELD[dtype]]
        assert compare(n, x).tolist() == swapped, n
        assert getattr(ag, name)(n, x).tolist() == swapped, n


def test_U01_comparisons_of_bools_and_membership_go_by_value():
    bools = ag.tensor([True, False])
    assert (bools < 300).tolist() == [True, True] and (bools == 2**70).tolist() == [False, False]
    assert 300 not in held("uint8") and 200 in held("uint8") and 2**70 not in held("int32")
    assert not ag.array_equal(ag.tensor(np.uint8(44)), 300) and ag.array_equal(ag.tensor(np.uint8(44)), 44)
    assert ag.isclose(ag.tensor(np.array([44, 255], np.uint8)), 300).tolist() == [False, False]
    assert not ag.allclose(ag.tensor(np.array([1], np.int32)), 2**32 + 1)
    assert ag.logical_and(held("uint8"), 256).tolist() == [False, True, True, True]
    assert held("uint8").logical_xor(2**70).tolist() == [True, False, False, False]


@pytest.mark.parametrize("dtype", HELD)
def test_U01_bounds_outside_the_type_do_not_bound(dtype):
    x, values = held(dtype), np.array(HELD[dtype], object)
    for low in (None, *NUMBERS):
        for high in (None, *NUMBERS):
            if low is None and high is None:
                continue
            end = np.iinfo(dtype)
            expected = values if low is None else np.maximum(values, min(max(low, end.min), end.max))
            expected = expected if high is None else np.minimum(expected, min(max(high, end.min), end.max))
            for y in (ag.clip(x, low, high), x.clip(low, high), x.clamp(low, high)):
                assert y.tolist() == list(expected) and str(y.dtype) == dtype


@pytest.mark.parametrize(("dtype", "n"), BEYOND)
def test_U01_other_ops_refuse_an_integer_that_the_type_does_not_hold(dtype, n):
    x = held(dtype)

    def put():
        x[0] = n

    def add():
        y = held(dtype)
        y += n

    calls = {
        "add": lambda: x + n, "subtract": lambda: n - x, "multiply": lambda: ag.multiply(x, n), "floor_divide": lambda: x // n,
        "remainder": lambda: n % x, "pow": lambda: ag.pow(n, x), "maximum": lambda: ag.maximum(x, n), "minimum": lambda: ag.minimum(n, x),
        "bitwise_and": lambda: x & n, "bitwise_left_shift": lambda: x << n, "where": lambda: ag.where(x > 0, x, n),
        "full": lambda: ag.full((2,), n, dtype=dtype), "full_like": lambda: ag.full_like(x, n), "setitem": put, "+=": add,
        "pad": lambda: ag.pad(x, 1, constant_values=n), "fill_": lambda: held(dtype).fill_(n), "copy_": lambda: held(dtype).copy_(n),
        "scatter_add": lambda: ag.scatter_add(x, 0, [0], n), "index_add": lambda: ag.index_add(x, 0, [0], n),
        "matmul": lambda: ag.matmul(x, n), "dot": lambda: ag.dot(x, n), "tensordot": lambda: ag.tensordot(x, n, axes=0),
        "linspace": lambda: ag.linspace(0, n, 3, dtype=dtype),
    }  # fmt: skip
    for op, call in calls.items():
        with pytest.raises(ValueError, match=rf"^{op.replace('+', '[+]')}: ") as caught:
            call()
        text = str(caught.value)
        # Ops that take floats as well give the number as one.
        assert f"does not fit into {dtype}; expected one that does" in text or "int64 holds" in text, text
        assert x.tolist() == list(HELD[dtype])


def test_U01_ranges_refuse_values_that_the_type_does_not_hold():
    assert ag.arange(250, 256, dtype="uint8").tolist() == [250, 251, 252, 253, 254, 255]
    assert ag.arange(3, -1, -1, dtype="uint8").tolist() == [3, 2, 1, 0]
    assert ag.linspace(0, 256, 4, endpoint=False, dtype="uint8").tolist() == [0, 64, 128, 192]
    assert ag.arange(-(2**63), 2**63 - 1, 2**63 - 1, dtype="int64").tolist() == [-(2**63), -1, 2**63 - 2]
    for call in (
        lambda: ag.arange(250, 257, dtype="uint8"), lambda: ag.arange(-1, 3, dtype="uint8"), lambda: ag.arange(3, -2, -1, dtype="uint8"),
        lambda: ag.arange(2**40, 2**40 + 2, dtype="int32"), lambda: ag.linspace(-1, 3, 3, dtype="uint8"),
        lambda: ag.linspace(0, 2**40, 3, dtype="int32"), lambda: ag.full((2,), 3e9, dtype="int32"),
        lambda: ag.full((2,), float("nan"), dtype="int32"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"^(arange|linspace|full): the (integer|number) .* does not fit into"):
            call()


def test_U01_quotients_and_angles_of_large_integers_are_those_of_floats():
    x = ag.tensor(np.array([1, 200], np.uint8))
    np.testing.assert_allclose((x / 300).numpy(), np.array([1, 200]) / 300, rtol=1e-6)
    np.testing.assert_allclose((2**40 / ag.tensor(np.array([1, 2], np.int32))).numpy(), [2.0**40, 2.0**39])
    np.testing.assert_allclose(ag.arctan2(x, 300).numpy(), np.arctan2([1, 200], 300), rtol=1e-6)
    assert ag.logaddexp(x, 300).tolist() == [300.0, 300.0]
    assert (ag.tensor([1.0]) + 2**70).item() == float(np.float32(2**70)) and str((x / 300).dtype) == "float32"

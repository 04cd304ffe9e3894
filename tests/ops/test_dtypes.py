"""Dtypes: the promotion table, weak Python numbers, what data becomes, and conversions with their gradients."""

import itertools
from fractions import Fraction

import agtape as ag
import ml_dtypes
import numpy as np
import pytest
from ops.registry import ROWS
from ops.samples import EVERY, FLOATS, INTS

ORDER = {"bool": 0, "uint8": 1, "int32": 2, "int64": 3}


def promoted(a, b):
    """The design's rule: as in NumPy, but an integer with a float gives the float's type."""
    floats = [d for d in (a, b) if d in FLOATS]
    if not floats:
        return max(a, b, key=ORDER.get)
    if len(floats) == 1:
        return floats[0]
    # NumPy knows no pair of the two 16-bit floats: the smallest that holds both is float32.
    if set(floats) == {"float16", "bfloat16"}:
        return "float32"
    return min(floats, key=FLOATS.index)


def sample(dtype):
    """Ones and a two, as a tensor."""
    return ag.tensor([1, 2, 1]).astype(dtype)


PAIRS = list(itertools.product(EVERY, EVERY))


def test_the_table_itself():
    """The rows that a reader would look up."""
    assert promoted("int64", "float16") == "float16"
    assert promoted("int32", "bfloat16") == "bfloat16"
    assert promoted("float16", "bfloat16") == "float32"
    assert promoted("bfloat16", "float64") == "float64"
    assert promoted("uint8", "int32") == "int32"
    assert promoted("bool", "uint8") == "uint8"


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_two_tensors_promote(a, b):
    x, y = sample(a), sample(b)
    wanted = promoted(a, b)
    for result in (
        x + y,
        x * y,
        ag.maximum(x, y),
        ag.where(ag.tensor(True), x, y),
        ag.concat([x, y]),
        ag.stack([x, y]),
    ):
        assert str(result.dtype) == wanted
    quotient = wanted if wanted in FLOATS else "float32"
    for result in (x / y, ag.arctan2(x, y), ag.logaddexp(x, y)):
        assert str(result.dtype) == quotient
    for result in (x == y, x < y, x >= y, ag.logical_and(x, y), ag.isclose(x, y)):
        assert str(result.dtype) == "bool"
    for result in (x // y, x % y, x**y):
        assert str(result.dtype) == ("uint8" if wanted == "bool" else wanted)
    if wanted != "bool":
        assert str((x - y).dtype) == wanted
        assert str((x @ y).dtype) == wanted
    assert str(ag.result_type(x, y)) == str(ag.result_type(x.dtype, y.dtype)) == wanted


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_bits_are_for_integers_and_bools(a, b):
    x, y = sample(a), sample(b)
    wanted = promoted(a, b)
    for op in (ag.bitwise_and, ag.bitwise_or, ag.bitwise_xor):
        if wanted in FLOATS:
            with pytest.raises(TypeError, match=rf"^{op.__name__}: got {a} and {b}"):
                op(x, y)
        else:
            assert str(op(x, y).dtype) == wanted
    for op in (ag.bitwise_left_shift, ag.bitwise_right_shift):
        if wanted in INTS:
            assert str(op(x, y).dtype) == wanted
        else:
            with pytest.raises(TypeError, match=rf"^{op.__name__}: got {a} and {b}"):
                op(x, y)


WEAK = {True: "bool", 3: "int64", 2.5: "float32"}


@pytest.mark.parametrize("number", WEAK, ids=str)
@pytest.mark.parametrize("dtype", EVERY)
def test_python_numbers_are_weak(dtype, number):
    kind = WEAK[number]
    wanted = {
        "bool": dtype,
        "int64": "int64" if dtype == "bool" else dtype,
        "float32": dtype if dtype in FLOATS else "float32",
    }[kind]
    x = sample(dtype)
    for result in (x + number, number + x, x * number, ag.maximum(x, number), ag.where(x > 0, x, number)):
        assert str(result.dtype) == wanted
    assert str((x / number).dtype) == (wanted if wanted in FLOATS else "float32")
    assert str((number / x).dtype) == (wanted if wanted in FLOATS else "float32")
    assert str(ag.result_type(x, number)) == wanted
    assert str((x == number).dtype) == "bool"


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int32", "int64", "uint8", "bool"])
def test_numpy_numbers_have_their_own_dtype(dtype):
    x = sample("float32")
    assert str((x + np.ones((), dtype)[()]).dtype) == promoted("float32", dtype)
    assert str((np.ones((), dtype)[()] * x).dtype) == promoted("float32", dtype)
    assert str((x + np.ones(3, dtype)).dtype) == promoted("float32", dtype)


def test_float64_arises_only_from_float64():
    """No op gives float64 for inputs that have none (astype apart)."""
    for row in ROWS:
        for dtype in row.dtypes:
            if dtype != "float64":
                assert row.result_dtype(dtype) != "float64" or row.function == "astype", row.name
    for value in (0.1, 1, True, [0.5], [[1, 2.5]], (1.0, 2)):
        assert str(ag.tensor(value).dtype) != "float64"
    for made in (ag.zeros(1), ag.linspace(0, 1, 3), ag.arange(0.5, 2), ag.eye(2), ag.rand(1), ag.full((1,), 0.5)):
        assert str(made.dtype) == "float32"


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1.5, "float32"),
        (2, "int64"),
        (True, "bool"),
        ([1.5, 2], "float32"),
        ([1, 2], "int64"),
        ([True, False], "bool"),
        ([], "float32"),
        (np.float64(1.5), "float64"),
        (np.array([1.5]), "float64"),
        (np.array([1, 2], np.int16), "int32"),
        (np.array([1, 2], np.int8), "int32"),
        (np.array([1, 2], np.uint16), "int32"),
        (np.array([1, 2], np.uint32), "int64"),
        (np.array([1, 2], ">f4"), "float32"),
        (np.array([1, 2], ml_dtypes.bfloat16), "bfloat16"),
        *((np.ones(2, d), d) for d in ("float64", "float32", "float16", "int32", "int64", "uint8", "bool")),
    ],
    ids=str,
)
def test_what_data_becomes(data, dtype):
    t = ag.tensor(data)
    assert str(t.dtype) == dtype
    np.testing.assert_array_equal(t.numpy(), np.asarray(data).astype("float32" if dtype == "bfloat16" else dtype))


@pytest.mark.parametrize("dtype", EVERY)
def test_dtypes_are_strings_or_objects(dtype):
    forms = [dtype, getattr(ag, "bool_" if dtype == "bool" else dtype)]
    forms.append(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype))
    for form in forms:
        t = ag.zeros(2, dtype=form)
        assert str(t.dtype) == t.dtype.name == dtype
        assert t.dtype == form
        assert t.astype(form).dtype == t.dtype
    assert t.nbytes == 2 * t.itemsize == 2 * t.dtype.itemsize
    with pytest.raises((TypeError, ValueError), match="complex64"):
        ag.zeros(2, dtype="complex64")


def test_bfloat16_reads_as_float32():
    t = ag.tensor([1.0, 1.00390625, 3.0e38]).astype("bfloat16")
    assert t.numpy().dtype == np.float32
    np.testing.assert_array_equal(
        t.numpy(), np.array([1.0, 1.0, 3.0e38], np.float32).astype(ml_dtypes.bfloat16).astype("f4")
    )


CAST_INPUT = np.array(
    [0.0, -0.0, 1.5, -1.5, 2.5, 100.7, 255.0, 1e-8, 65519.0, 65520.0, 3.4e38, np.inf, -np.inf, np.nan]
)


@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("start", FLOATS)
def test_casts_between_floats_round_to_nearest_even(start, to):
    kinds = {name: ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name) for name in FLOATS}
    with np.errstate(over="ignore"):
        given = CAST_INPUT.astype(kinds[start])
        wanted = given.astype(kinds[to])
        # float64 to bfloat16 in one rounding, not through float32: NumPy's extension rounds through float32.
        got = ag.tensor(given).astype(to).numpy()
    np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize("to", INTS)
@pytest.mark.parametrize("start", FLOATS)
def test_casts_to_integers_cut_off(start, to):
    x = ag.tensor([0.0, 0.9, 1.5, 100.7]).astype(start)
    np.testing.assert_array_equal(x.astype(to).numpy(), np.trunc(x.numpy()))
    if to != "uint8":
        np.testing.assert_array_equal((-x).astype(to).numpy(), np.trunc(-x.numpy()))


def test_casts_of_integers_and_bools():
    x = np.array([0, 1, 255, 256, -1, 2**31, 2**40 + 3])
    for to in ("int32", "uint8", "bool"):
        np.testing.assert_array_equal(ag.tensor(x).astype(to).numpy(), x.astype(to))
    assert ag.tensor([0.0, 0.5, float("nan"), -0.0]).astype("bool").tolist() == [False, True, True, False]
    assert ag.tensor([True, False]).astype("float16").tolist() == [1.0, 0.0]
    assert ag.tensor(x).astype("float64").tolist() == x.astype(float).tolist()


@pytest.mark.promise("T09")
@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("start", FLOATS)
def test_T09_gradients_go_back_in_the_inputs_dtype(start, to):
    w = ag.param([1.0, -2.0], dtype=start)
    with ag.grad_tape():
        loss = (w.astype(to) * ag.tensor([3.0, 0.5]).astype(to)).sum()
    loss.backward()
    assert str(w.grad.dtype) == start
    assert w.grad.tolist() == [3.0, 0.5]
    ag.testing.gradcheck(lambda x: x.astype("float64") * 2.0, np.array([1.0, 2.0]), order=2)


def test_reductions_widen_integers():
    x = ag.tensor(np.full(300, 200, np.uint8))
    assert x.sum().item() == 60_000
    assert str(x.sum().dtype) == str(x.prod().dtype) == str(x.cumsum().dtype) == "int64"
    assert str(x.mean().dtype) == str(x.var().dtype) == "float32"
    assert x.mean().item() == 200.0
    assert str(ag.tensor([True, True]).sum().dtype) == "int64"
    assert str(x.sum(dtype="float64").dtype) == "float64"
    assert str(x.max().dtype) == "uint8"


@pytest.mark.parametrize("name", ["sub", "negative", "square", "sign", "matmul"])
def test_bools_are_refused_where_they_mean_nothing(name):
    b = ag.tensor([True, False])
    with pytest.raises(TypeError, match="bool"):
        getattr(ag, name)(*([b, b] if name in ("sub", "matmul") else [b]))


def test_all_close_and_array_equal():
    assert ag.allclose(ag.tensor([1.0, 2.0]), [1.0, 2.0 + 1e-6])
    assert not ag.allclose(ag.tensor([1.0]), [1.1])
    assert not ag.allclose(ag.tensor([float("nan")]), ag.tensor([float("nan")]))
    assert ag.allclose(ag.tensor([float("nan")]), ag.tensor([float("nan")]), equal_nan=True)
    assert ag.array_equal(ag.tensor([1, 2]), [1, 2])
    assert not ag.array_equal(ag.tensor([1, 2]), [1, 2, 3])


def rounded_once(value, dtype):
    """The 16-bit float nearest to an exact number, ties to even; by integers alone."""
    exact = Fraction(value)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    near = kind(float(exact))
    around = [np.nextafter(near, kind(-np.inf)), near, np.nextafter(near, kind(np.inf))]
    best = min(around, key=lambda c: (abs(Fraction(float(c)) - exact), int(np.array(c).view(np.uint16)) & 1))
    return float(best)


HALF_UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.mark.parametrize("dtype", HALF_UNITS)
def test_numbers_beside_a_tie_are_rounded_once_to_16_bits(dtype):
    """Rounded to float32 first, each of these would lie on the tie."""
    tie = 1 + HALF_UNITS[dtype]
    for value in (tie + 2.0**-40, tie - 2.0**-40, tie, -tie - 2.0**-45, 3 * tie + 2.0**-40):
        expected = rounded_once(value, dtype)
        made = {
            "tensor of a float": ag.tensor(value, dtype=dtype),
            "tensor of a list": ag.tensor([value], dtype=dtype),
            "asarray": ag.asarray(value, dtype=dtype),
            "param": ag.param(value, dtype=dtype),
            "tensor of an array": ag.tensor(np.float64(value), dtype=dtype),
            "cast": ag.tensor(np.array([value])).astype(dtype),
            "full": ag.full((3,), value, dtype=dtype)[2],
            "full_like": ag.full_like(ag.ones(2, dtype=dtype), value)[0],
            "arange": ag.arange(value, value + 0.5, dtype=dtype),
            "linspace": ag.linspace(value, 9.0, 2, dtype=dtype)[0],
            "where": ag.where(ag.tensor([True]), ag.tensor(value, dtype="float64"), 0.0).astype(dtype),
            "add": ag.zeros(1, dtype=dtype) + value,
            "cumsum": ag.tensor([0.0, value], dtype="float64").cumsum(0).astype(dtype)[1],
            "item assignment": put(ag.zeros(2, dtype=dtype), value),
        }
        for name, t in made.items():
            assert str(t.dtype) == dtype and t.item() == expected, (name, value)


def put(t, value):
    t[0] = value
    return t[0]


@pytest.mark.parametrize("dtype", HALF_UNITS)
def test_running_sums_of_16_bit_floats_are_rounded_once(dtype):
    small = 2.0**-24
    x = ag.tensor([1.0, HALF_UNITS[dtype], small], dtype=dtype)
    assert x.cumsum(0).tolist()[2] == rounded_once(1 + HALF_UNITS[dtype] + small, dtype) > 1
    y = ag.tensor([1 + 2 * HALF_UNITS[dtype]] * 9, dtype=dtype)
    exact = [Fraction(y[0].item()) ** (i + 1) for i in range(9)]
    assert y.cumprod(0).tolist() == [rounded_once(p, dtype) for p in exact[:3]] + y.cumprod(0).tolist()[3:]


def test_wide_integers_are_rounded_once_to_bfloat16():
    tie = 2**60 + 2**52
    x = np.array([tie, tie + 1, tie - 1, -tie - 1, 2**63 - 1])
    assert ag.tensor(x).astype("bfloat16").tolist() == [rounded_once(int(v), "bfloat16") for v in x]


def test_python_floats_keep_their_digits_in_float64():
    assert ag.linspace(0, 2**24 + 1, 2, dtype="int64").tolist() == [0, 2**24 + 1]
    assert ag.tensor(0.1, dtype="float64").item() == 0.1
    assert ag.tensor([[0.1, 1e300]], dtype="float64").tolist() == [[0.1, 1e300]]
    assert ag.param([0.1], dtype="float64").tolist() == [0.1]
    assert str(ag.tensor([0.1]).dtype) == "float32"


def test_integers_that_do_not_fit_are_refused():
    for values, dtype, given in [([1, 300], "uint8", "300"), (-1, "uint8", "-1"), ([2**31], "int32", "2147483648")]:
        with pytest.raises(ValueError, match=f"tensor: the integer {given} does not fit into {dtype}; expected"):
            ag.tensor(values, dtype=dtype)
    with pytest.raises(ValueError, match="the integer 9223372036854775808 does not fit into int64"):
        ag.tensor(np.array([1, 2**63], np.uint64))
    assert ag.tensor(np.array([1, 2**63 - 1], np.uint64)).tolist() == [1, 2**63 - 1]
    assert ag.tensor([0, 255], dtype="uint8").tolist() == [0, 255] and ag.tensor([], dtype="uint8").shape == (0,)
    assert ag.tensor(np.array([300]), dtype="uint8").tolist() == [44]  # an array is converted, as NumPy's astype does

"""Each op against NumPy: dtypes, sizes and layouts; what is refused when empty; methods against functions; creation."""

import agtape as ag
import numpy as np
import pytest
from ops.registry import CREATION, LINEAR, ROWS
from ops.rows_elementwise import BINARY, UNARY
from ops.rows_reductions import ALONG, REDUCTIONS
from ops.samples import ARRANGEMENTS, VALUE_SIZES, arrange, as_list, check_close, reference, to_dtype

CASES = [pytest.param(row, dtype, id=f"{row.name}-{dtype}") for row in ROWS for dtype in row.dtypes]


def inputs_of(row, n, dtype, rng):
    """Arrays for a row at a size."""
    shapes = row.shapes(n)
    return [to_dtype(draw(rng, shape), dtype) for draw, shape in zip(row.draws(len(shapes)), shapes)]


def check_row(row, arrays, arrangement, dtype):
    """One call on one layout."""
    bases, view = arrange(arrays, arrangement)
    expected = reference(row, view(np, bases))
    results = as_list(row.run(*view(ag, [ag.tensor(b) for b in bases])))
    what = f"{row.name} of {dtype}, {arrangement}, shapes {[a.shape for a in arrays]}"
    assert len(results) == len(expected), what
    for result, wanted in zip(results, expected):
        check_close(result, wanted, row.family, what)
        assert str(result.dtype) == row.result_dtype(dtype), what


@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_values_equal_numpy(row, dtype, rng):
    for n in (n for n in VALUE_SIZES if n >= row.least):
        arrays = inputs_of(row, n, dtype, rng)
        for arrangement in ARRANGEMENTS:
            check_row(row, arrays, arrangement, dtype)


@pytest.mark.parametrize("row", [*UNARY, *BINARY], ids=lambda row: row.name)
def test_tensors_without_axes(row, rng):
    for dtype in row.dtypes:
        arrays = [to_dtype(draw(rng, ()), dtype) for draw in row.draws(len(row.shapes(0)))]
        check_row(row, [np.asarray(a) for a in arrays], "contiguous", dtype)


@pytest.mark.parametrize("row", [row for row in UNARY if "float64" in row.dtypes], ids=lambda row: row.name)
def test_special_values(row):
    """NaN, infinities, signed zeros and values outside the domain follow NumPy."""
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1e-300, 1e300, -1e300])
    # NumPy's formulas for these do not hold at infinity; the largest number is the dtype's own.
    if row.function in ("gelu", "silu", "softplus", "nan_to_num"):
        x = x[3:10]
    # Rounding to decimals scales first.
    if row.name == "round decimals":
        x = x[:10]
    for dtype in ("float64", "float32"):
        with np.errstate(over="ignore"):
            given = x.astype(dtype)
        check_row(row, [given], "contiguous", dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_nan_to_num_takes_the_largest_of_the_dtype(dtype):
    x = ag.tensor([float("nan"), float("inf"), -float("inf"), 1.5]).astype(dtype)
    assert ag.nan_to_num(x).tolist() == [0.0, ag.finfo(dtype).max, ag.finfo(dtype).min, 1.5]
    assert ag.nan_to_num(x, nan=2.0, posinf=3.0, neginf=-4.0).tolist() == [2.0, 3.0, -4.0, 1.5]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_nan_is_larger_than_every_number(dtype):
    """As in torch and `jax.numpy.sort`: first among the largest, last among the smallest; the extremes are NaN where there is one."""
    x = ag.tensor([1.0, np.nan, 3.0, -np.nan, np.inf]).astype(dtype)
    assert ag.argsort(x).tolist() == [0, 2, 4, 1, 3]
    assert ag.argsort(x, descending=True).tolist() == [1, 3, 4, 2, 0]
    assert ag.topk(x, 3)[1].tolist() == [1, 3, 4] and ag.topk(x, 4, largest=False)[1].tolist() == [0, 2, 4, 1]
    down = [np.nan, np.nan, np.inf, 3.0, 1.0]
    np.testing.assert_array_equal(ag.sort(x, descending=True).numpy(), down)
    np.testing.assert_array_equal(ag.topk(x, 3)[0].numpy(), down[:3])
    np.testing.assert_array_equal(ag.sort(x).numpy(), [1.0, 3.0, np.inf, np.nan, np.nan])
    assert ag.argmax(x).item() == ag.topk(x, 1)[1].item() == ag.argmin(x).item() == 1
    assert np.isnan(ag.max(x).item()) and np.isnan(ag.min(x).item())


COMPARES = [row for row in [*REDUCTIONS, *ALONG] if row.function in ("max", "min", "argmax", "argmin")]
NEEDS_ELEMENTS = [row for row in COMPARES if row.least and "two axes" not in row.name]


@pytest.mark.parametrize("row", NEEDS_ELEMENTS, ids=lambda row: row.name)
def test_nothing_to_compare_is_an_error(row):
    with pytest.raises(ValueError, match=rf"^{row.function}: .*size 0; expected at least one element"):
        row.run(ag.zeros(*row.shapes(0)))


METHODS = [row for row in ROWS if not row.call and hasattr(ag.Tensor, row.function)]


@pytest.mark.parametrize("row", METHODS, ids=lambda row: row.name)
def test_methods_equal_functions(row, rng):
    x, *others = (ag.tensor(a) for a in inputs_of(row, 5, row.dtypes[0], rng))
    method = getattr(x, row.function)(*others, **row.options)
    for got, wanted in zip(as_list(method), as_list(row.run(x, *others))):
        np.testing.assert_array_equal(got.numpy(), wanted.numpy())


OPERATORS = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "pow": lambda a, b: a**b,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_left_shift": lambda a, b: a << b,
    "bitwise_right_shift": lambda a, b: a >> b,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_equal_functions(name):
    function, operator = getattr(ag, name), OPERATORS[name]
    a, b = np.array([6, 3, 1]), np.array([2, 3, 2])
    if "bitwise" not in name:
        a = a.astype(np.float64)
    x, y = ag.tensor(a), ag.tensor(b)
    for left, right in ((x, y), (x, b), (a, y), (x, 2), (5, y)):
        wanted = function(ag.asarray(left) if isinstance(left, np.ndarray) else left, right)
        got = operator(left, right)
        assert isinstance(got, ag.Tensor), (type(left), type(right))
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got.numpy(), wanted.numpy())


def test_operators_of_one():
    x = ag.tensor(np.array([1.5, -2.0]))
    assert (-x).tolist() == [-1.5, 2.0]
    assert (+x).tolist() == [1.5, -2.0]
    assert abs(x).tolist() == [1.5, 2.0]
    assert (~ag.tensor([True, False])).tolist() == [False, True]
    assert (ag.ones(2, 3) @ np.ones((3, 1), np.float32)).tolist() == [[3.0], [3.0]]
    assert (np.ones((1, 2), np.float32) @ ag.ones(2, 3)).tolist() == [[2.0, 2.0, 2.0]]


IN_PLACE = {
    "+=": lambda x: x.__iadd__(2),
    "-=": lambda x: x.__isub__(2),
    "*=": lambda x: x.__imul__(3),
    "/=": lambda x: x.__itruediv__(2),
    "//=": lambda x: x.__ifloordiv__(2),
    "%=": lambda x: x.__imod__(4),
    "**=": lambda x: x.__ipow__(2),
}
PLAIN = {
    "+=": lambda x: x + 2,
    "-=": lambda x: x - 2,
    "*=": lambda x: x * 3,
    "/=": lambda x: x / 2,
    "//=": lambda x: x // 2,
    "%=": lambda x: x % 4,
    "**=": lambda x: x**2,
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_operators_keep_the_object_and_its_views(name):
    array = np.array([[1.0, -5.0], [7.0, 2.5]])
    x = ag.tensor(array)
    view, same = x[0], x
    changed = IN_PLACE[name](x)
    assert changed is x is same
    np.testing.assert_array_equal(x.numpy(), PLAIN[name](array))
    np.testing.assert_array_equal(view.numpy(), array[0], err_msg="a view never shows later updates of its base")


@pytest.mark.parametrize(("name", "make", "dtype"), CREATION, ids=[case[0] for case in CREATION])
def test_creation(name, make, dtype):
    for n in VALUE_SIZES:
        result, wanted = make(ag, n), make(np, n)
        assert str(result.dtype) == dtype
        assert not result.requires_grad
        rounding = 0.0 if wanted.dtype.kind in "biu" else 2.0**-23 if dtype == "float32" else 2.0**-52
        np.testing.assert_allclose(result.numpy(), wanted, rtol=2 * rounding, atol=2 * rounding)


def test_empty_gives_a_shape_and_no_garbage():
    assert ag.empty(2, 3).tolist() == [[0.0] * 3] * 2
    assert ag.empty_like(ag.tensor([1, 2])).tolist() == [0, 0]


@pytest.mark.parametrize("row", [row for row in LINEAR if row.function == "matmul"], ids=lambda row: row.name)
def test_large_products(row, rng):
    """Sizes past every block of the kernel."""
    arrays = [a.astype(np.float32) for a in inputs_of(row, 300, "float32", rng)]
    for arrangement in ("contiguous", "transposed", "mixed"):
        check_row(row, arrays, arrangement, "float32")


def test_every_row_has_its_own_name():
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)

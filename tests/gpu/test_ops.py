"""Every op of the table on the GPU: values against NumPy at sizes and layouts, gradients against the CPU's."""

import agtape as ag
import numpy as np
import pytest
from ops.registry import CREATION, ROWS
from ops.rows_elementwise import BINARY, UNARY
from ops.samples import ARRANGEMENTS, VALUE_SIZES, arrange, as_list, check_close, reference, to_dtype

# Every elementwise kind in every dtype is compared by the Rust tests of generated kernels; here one of each sort is enough.
ELEMENTWISE = {id(row) for row in [*UNARY, *BINARY]}
CASES = [
    pytest.param(row, dtype, id=f"{row.name}-{dtype}")
    for row in ROWS
    for dtype in row.dtypes
    if dtype != "float64" and (id(row) not in ELEMENTWISE or dtype in ("float32", "int32", "bool"))
]
SMOOTH = [row for row in ROWS if row.gradient == "full" and "float32" in row.dtypes and row.gives != "float64"]
# Devices need not round a quotient or a root correctly: they are allowed two and a half units in the last place.
NEAREST = {"rounded": "function"}
# Between both devices: every rounding may fall the other way on the way back.
GRADIENT = (2e-5, 1e-4)


def inputs_of(row, n, dtype, rng):
    """Arrays for a row at a size."""
    shapes = row.shapes(n)
    return [to_dtype(draw(rng, shape), dtype) for draw, shape in zip(row.draws(len(shapes)), shapes)]


def outcome(row, tensors, dtype):
    """A row's results; None for one that gives float64, which is refused at the call."""
    if row.result_dtype(dtype) != "float64":
        return as_list(row.run(*tensors))
    with pytest.raises(TypeError, match="float64 runs on the CPU only"):
        row.run(*tensors)
    return None


def placed(arrays, dtype, device, **options):
    """The arrays as tensors of a dtype on a device."""
    return [ag.tensor(a, dtype=dtype, device=device, **options) for a in arrays]


@pytest.mark.promise("G01")
@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_G01_values_equal_numpy(row, dtype, rng):
    for n in (n for n in VALUE_SIZES if n >= row.least):
        arrays = inputs_of(row, n, dtype, rng)
        # Other dtypes differ in how they are loaded and stored, not in how they are stepped through.
        for arrangement in ARRANGEMENTS if dtype == "float32" else ("contiguous", "mixed"):
            bases, view = arrange(arrays, arrangement)
            tensors = view(ag, placed(bases, dtype, "gpu"))
            # Rows make indices and the like without saying where.
            with ag.device("gpu"):
                results = outcome(row, tensors, dtype)
            what = f"{row.name} of {dtype}, {arrangement}, shapes {[a.shape for a in arrays]}"
            if results is None:
                continue
            expected = reference(row, view(np, bases))
            assert len(results) == len(expected), what
            for result, wanted in zip(results, expected):
                assert result.device == "gpu", what
                assert str(result.dtype) == row.result_dtype(dtype), what
                # A running product is cut into parts, each rounded for itself.
                family = (
                    "composed" if "prod" in row.name and row.family == "sum" else NEAREST.get(row.family, row.family)
                )
                check_close(result, wanted, family, what)


def gradients(row, bases, view, device):
    """The gradients of a weighted sum of a row's results."""
    leaves = placed(bases, "float32", device, requires_grad=True)
    with ag.device(device), ag.grad_tape():
        results = as_list(row.run(*view(ag, leaves)))
        loss = 0.0
        for i, y in enumerate(results):
            weights = np.cos(np.arange(y.size, dtype=np.float32) + i).reshape(y.shape)
            loss = (y.astype("float32") * ag.tensor(weights, device=device)).sum() + loss
    loss.backward()
    return [leaf.grad for leaf in leaves]


@pytest.mark.promise("G01", "R01", "T09")
@pytest.mark.parametrize("row", SMOOTH, ids=lambda row: row.name)
def test_T09_gradients_equal_the_cpus(row, rng):
    for n in (n for n in (7, 129) if n >= row.least):
        for arrangement in ("contiguous", "mixed"):
            bases, view = arrange(inputs_of(row, n, "float32", rng), arrangement)
            expected = gradients(row, bases, view, "cpu")
            found = gradients(row, bases, view, "gpu")
            for leaf, (a, b) in enumerate(zip(expected, found)):
                what = f"{row.name}, {arrangement}, size {n}, input {leaf}"
                assert (a is None) == (b is None), what
                if a is not None:
                    assert b.device == "gpu", what
                    rtol, atol = GRADIENT
                    np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=rtol, atol=atol, err_msg=what)


@pytest.mark.promise("G01")
@pytest.mark.parametrize(("name", "call", "dtype"), CREATION, ids=[name for name, _, _ in CREATION])
def test_G01_what_is_made_from_nothing(name, call, dtype):
    for n in (0, 1, 13, 129):
        with ag.device("gpu"):
            if dtype == "float64":
                with pytest.raises(TypeError, match="float64 runs on the CPU only"):
                    ag.eval(call(ag, n))
                continue
            made = call(ag, n)
        assert made.device == "gpu"
        check_close(made, call(ag, n).numpy(), "rounded", name)

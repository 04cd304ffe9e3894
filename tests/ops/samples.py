"""What the op tests feed and compare: dtypes, draws, layouts, sizes and the tolerance of each family."""

import warnings

import agtape as ag
import ml_dtypes
import numpy as np

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTS = ("int32", "int64", "uint8")
NUMBERS = FLOATS + INTS
EVERY = NUMBERS + ("bool",)

# Nothing, one, a prime, what one tile of an elementwise kernel holds, and one more.
VALUE_SIZES = (0, 1, 13, 128, 129)
GRADIENT_SIZES = (0, 1, 7, 8, 9)

# (relative, absolute) by family and dtype, each with its reason. Integers and bools are always exact.
TOLERANCES = {
    # Moves, selects or compares: nothing is rounded.
    "exact": dict.fromkeys(FLOATS, (0.0, 0.0)),
    # One correctly rounded operation: half a unit in the last place (and half the smallest subnormal of float16).
    "rounded": {
        "float64": (2.3e-16, 0.0),
        "float32": (6.1e-8, 0.0),
        "float16": (4.9e-4, 3e-8),
        "bfloat16": (4e-3, 0.0),
    },
    # A transcendental function, a few units in the last place; absolute near its zeros. 16 bits: rounded once.
    "function": {
        "float64": (4e-15, 1e-15),
        "float32": (2e-6, 5e-7),
        "float16": (5.5e-4, 3e-7),
        "bfloat16": (4.5e-3, 3e-7),
    },
    # A sum of up to a few hundred terms of order 1, absolute by their magnitudes. 16 bits: in float32, rounded once.
    "sum": {"float64": (1e-14, 1e-13), "float32": (2e-6, 2e-5), "float16": (5.5e-4, 2e-5), "bfloat16": (4.5e-3, 2e-5)},
    # A product of matrices: a few hundred terms one after the other, at worst all rounded one way. 16 bits: in float32.
    "product": {
        "float64": (4e-14, 2e-13),
        "float32": (1e-5, 1e-4),
        "float16": (5.5e-4, 1e-4),
        "bfloat16": (4.5e-3, 1e-4),
    },
    # Several ops whose results are each rounded to the dtype, before a sum over a few hundred of them.
    "composed": {"float64": (4e-14, 2e-13), "float32": (1e-5, 1e-4), "float16": (4e-3, 2e-2), "bfloat16": (3e-2, 2e-1)},
}


def normal(rng, shape):
    """Of order 1, both signs."""
    return rng.uniform(-2, 2, shape)


def positive(rng, shape):
    """Well above 0."""
    return rng.uniform(0.5, 2.5, shape)


def open_unit(rng, shape):
    """Inside (-1, 1)."""
    return rng.uniform(-0.9, 0.9, shape)


def above_one(rng, shape):
    """Well above 1."""
    return rng.uniform(1.3, 3, shape)


def off_zero(rng, shape):
    """Both signs, away from 0."""
    return rng.uniform(0.3, 2, shape) * rng.choice([-1, 1], shape)


def off_integers(rng, shape):
    """Away from integers and from halves."""
    return rng.integers(-3, 3, shape) + rng.uniform(0.1, 0.4, shape) + 0.5 * rng.integers(0, 2, shape)


def near_one(rng, shape):
    """Both signs, near 1: products of many stay of order 1."""
    return rng.uniform(0.95, 1.05, shape) * rng.choice([-1, 1], shape)


def distinct(rng, shape):
    """No two alike, apart by more than a central difference moves them."""
    size = int(np.prod(shape))
    return (rng.permutation(size).reshape(shape) + 0.5) / max(size, 1) * 4 - 2


def small(rng, shape):
    """Integers from 0 to 3."""
    return rng.integers(0, 4, shape).astype(float)


def to_dtype(x, dtype):
    """A float64 array in a dtype by name: integers rounded (uint8 without signs), bools by sign."""
    if dtype == "bool":
        return x > 0
    if dtype in INTS:
        return np.rint(np.abs(x) if dtype == "uint8" else x).astype(dtype)
    return x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def _spread(a):
    """Every second element of a larger array; what lies between would poison a result that reads it."""
    filler = np.nan if a.dtype.kind not in "biu" else 99
    base = np.full([2 * d + 1 for d in a.shape], filler).astype(a.dtype)
    base[(slice(1, None, 2),) * a.ndim] = a
    return base


def _first(a, axis):
    return a[(slice(None),) * axis + (slice(0, 1),)]


# How a tensor lies in memory: the base made from an array, and its view, of arrays and tensors alike (`xp`: their library).
LAYOUTS = {
    "contiguous": (lambda a: a, lambda xp, x, shape: x),
    "transposed": (lambda a: a.T, lambda xp, x, shape: x.T),
    "stepped": (_spread, lambda xp, x, shape: x[(slice(1, None, 2),) * x.ndim]),
    "reversed": (
        lambda a: a[(slice(None, None, -1),) * a.ndim],
        lambda xp, x, shape: x[(slice(None, None, -1),) * x.ndim],
    ),
    "broadcast rows": (lambda a: _first(a, 0) if a.ndim else a, lambda xp, x, shape: xp.broadcast_to(x, shape)),
    "broadcast columns": (
        lambda a: _first(a, a.ndim - 1) if a.ndim else a,
        lambda xp, x, shape: xp.broadcast_to(x, shape),
    ),
}
# One layout for all inputs of an op, and another for each.
ARRANGEMENTS = {name: (name,) for name in LAYOUTS} | {"mixed": ("transposed", "contiguous", "stepped", "reversed")}


def arrange(arrays, arrangement):
    """Bases of arrays, and the function that views them: `view(library, bases)`."""
    names = ARRANGEMENTS[arrangement]
    chosen = [LAYOUTS[names[i % len(names)]] for i in range(len(arrays))]
    bases = [np.ascontiguousarray(base(a)).reshape(base(a).shape) for (base, _), a in zip(chosen, arrays)]
    shapes = [a.shape for a in arrays]

    def view(xp, given):
        return [see(xp, x, shape) for (_, see), x, shape in zip(chosen, given, shapes)]

    return bases, view


def reference(row, arrays):
    """A row's expected results: floats in float64; integers as they are, unless the op turns them into floats."""
    wide = [a.astype(np.float64) if a.dtype.kind not in "biu" or row.gives == "float" else a for a in arrays]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        result = row.expected(*wide)
    return list(result) if isinstance(result, tuple | list) else [result]


def as_list(result):
    """One tensor or several, as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]


def check_close(actual, expected, family, what=""):
    """Compares a tensor with an array by its family's tolerance at the tensor's dtype."""
    rtol, atol = TOLERANCES[family].get(str(actual.dtype), (0.0, 0.0))
    a, e = actual.numpy(), np.asarray(expected)
    assert a.shape == e.shape, f"{what}: shape {a.shape}, expected {e.shape}"
    if a.dtype.kind in "biu":
        np.testing.assert_array_equal(a, e, err_msg=what)
        return
    a, e = a.astype(np.float64), e.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.isfinite(e) & (np.abs(a - e) <= atol + rtol * np.abs(e)) | (a == e) | (np.isnan(a) & np.isnan(e))
    if not near.all():
        at = tuple(int(i) for i in np.unravel_index(np.argmin(near), a.shape))
        raise AssertionError(f"{what}: {(~near).sum()} of {near.size} differ; at {at}: {a[at]!r}, expected {e[at]!r}")


def make_param(array):
    """A float64 leaf that wants a gradient."""
    return ag.param(np.asarray(array, np.float64))

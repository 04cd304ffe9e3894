"""Owns the public checks: `gradcheck` for gradient rules, `assert_close` for values, `memory_limit` for scarce memory."""

import numpy as np

import agtape as ag
from agtape import _core
from agtape._core import Tensor
from agtape.arguments import as_flag, as_float, as_int, as_number, as_text
from agtape.tree import flatten

_FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))
_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


class GradcheckError(AssertionError):
    """A gradient differs from the central difference; the message gives both numbers."""


def gradcheck(fn, inputs, order=1, eps=1e-6, atol=1e-5, rtol=1e-3, directions=2, seed=0):
    """Compare the gradients of a function with central differences along random directions, in float64 on the CPU.

    For a random direction `v` of the inputs and `u` of the outputs, `u . (f(x + eps v) - f(x - eps v)) / (2 eps)` must equal
    `vjp(u) . v`. With `order=2` the same is asked of the function that maps `(x, u)` to `vjp(u)`. (A. Griewank and A. Walther,
    "Evaluating Derivatives", 2nd ed. 2008, section 3.3, for the projection; the check of HIPS autograd has the same form.)

    Args:
        fn: function of the inputs that returns a tensor or a nested container of tensors.
        inputs: tuple of arguments, or one argument: tensors, arrays, or nested containers. Floating ones are converted to
            float64 and differentiated; the rest is passed on.
        order: 1, or 2 for second derivatives too.
        eps: step of the central difference.
        atol, rtol: the two numbers may differ by `atol + rtol * |numeric|`.
        directions: number of random directions at each order.
        seed: seed of the directions.

    Returns:
        True.

    Raises:
        GradcheckError: the numbers differ (it is an `AssertionError`).
        TypeError, ValueError: no floating input, no floating output, `order` is neither 1 nor 2, or there is no direction.

    >>> import agtape as ag
    >>> ag.testing.gradcheck(lambda x: x.tanh(), ag.tensor([0.1, 0.2]), order=2)
    True
    """
    order = as_int("gradcheck", "order", order)
    directions, seed = (
        as_int("gradcheck", "directions", directions, least=1),
        as_int("gradcheck", "seed", seed, least=0),
    )
    tolerances = [as_float("gradcheck", *pair) for pair in (("eps", eps), ("atol", atol), ("rtol", rtol))]
    if order not in (1, 2):
        raise ValueError(f"gradcheck: order={order!r}; expected 1 or 2")
    args = inputs if isinstance(inputs, tuple) else (inputs,)
    leaves, build = flatten(args)
    leaves = [_to_float64(leaf) for leaf in leaves]
    mask = [_is_float(leaf) for leaf in leaves]
    if not any(mask):
        raise TypeError("gradcheck: no input is a floating tensor; expected at least one")
    points = [leaf for leaf, active in zip(leaves, mask) if active]

    def flat_fn(*tensors):
        given = iter(tensors)
        outs, _ = flatten(fn(*build([next(given) if active else leaf for leaf, active in zip(leaves, mask)])))
        outs = tuple(o for o in outs if _is_float(o))
        if not outs:
            raise TypeError("gradcheck: the function returned no floating tensor; expected at least one")
        return outs

    def pulled_back(*tensors):
        return ag.vjp(flat_fn, *tensors[: len(points)])[1](tensors[len(points) :])

    rng = np.random.default_rng(seed)
    for _ in range(directions):
        cots = _check_direction("first-order gradient", flat_fn, points, rng, tolerances)
        if order == 2:
            _check_direction("second-order gradient", pulled_back, points + cots, rng, tolerances)
    return True


def assert_close(actual, expected, rtol=None, atol=None, equal_nan=False, msg=None):
    """Raise unless two tensors (or arrays, numbers, nested containers of them) have equal shapes and close values.

    Args:
        actual, expected: what to compare; expected may be an array or number.
        rtol, atol: allowed difference `atol + rtol * |expected|`; defaults by the coarser dtype, as in `torch.testing`: float64
            1e-7 and 1e-7, float32 1.3e-6 and 1e-5, bfloat16 1.6e-2 and 1e-5, float16 1e-3 and 1e-5, integers exact.
        equal_nan: whether NaN equals NaN.
        msg: text put in front of the message.

    Returns:
        None.

    Raises:
        AssertionError: structures, shapes or values differ; the message gives the largest difference and where it is.

    >>> import agtape as ag
    >>> ag.testing.assert_close(ag.tensor([1.0, 2.0]), [1.0, 2.0 + 1e-7])
    """
    prefix = "" if msg is None else f"{as_text('assert_close', 'msg', msg)}: "
    equal_nan = as_flag("assert_close", "equal_nan", equal_nan)
    rtol, atol = (
        value if value is None else as_number("assert_close", name, value)
        for name, value in (("rtol", rtol), ("atol", atol))
    )
    if not isinstance(actual, (list, tuple, dict)) or _is_numeric(actual):
        return _assert_leaf_close(prefix, actual, expected, rtol, atol, equal_nan)
    got, _ = flatten(actual)
    wanted, _ = flatten(expected)
    if len(got) != len(wanted):
        raise AssertionError(f"{prefix}assert_close: {len(got)} leaves; expected {len(wanted)}")
    for a, e in zip(got, wanted):
        _assert_leaf_close(prefix, a, e, rtol, atol, equal_nan)


class memory_limit:
    """A scope in which the buffers of all pools may take at most so many bytes together, as on a smaller machine.

    What does not fit raises MemoryError, after cached buffers were returned. The limit is the process's, not the thread's.

    Args:
        limit: bytes.

    Raises:
        TypeError: limit is not an int; ValueError: it is negative or takes more than 64 bits.

    >>> import agtape as ag
    >>> _ = ag.empty_cache()
    >>> with ag.testing.memory_limit(1 << 20):
    ...     try:
    ...         ag.eval(ag.zeros(1 << 20))
    ...     except MemoryError:
    ...         print("refused")
    refused
    """

    def __init__(self, limit):
        self.limit, self._former = as_int("memory_limit", "limit", limit, least=0), []

    def __enter__(self):
        self._former.append(_core.set_memory_limit(self.limit))
        return self

    def __exit__(self, *_exception):
        _core.set_memory_limit(self._former.pop())
        return False


def _check_direction(what, fn, points, rng, tolerances):
    """Compare one random directional derivative; returns the cotangents used, as float64 tensors."""
    eps, atol, rtol = tolerances
    outs, pull = ag.vjp(fn, *points)
    cots = [rng.standard_normal(tuple(o.shape)) for o in outs]
    steps = [rng.standard_normal(tuple(p.shape)) for p in points]
    slopes = pull(tuple(ag.tensor(c, dtype=str(o.dtype)) for c, o in zip(cots, outs)))
    analytic = sum(float(np.vdot(_array(s), v)) for s, v in zip(slopes, steps))
    arrays = [_array(p) for p in points]
    ends = []
    for sign in (1.0, -1.0):
        moved = fn(*[ag.tensor(a + sign * eps * v) for a, v in zip(arrays, steps)])
        ends.append(sum(float(np.vdot(_array(o), c)) for o, c in zip(moved, cots)))
    numeric = (ends[0] - ends[1]) / (2 * eps)
    if not abs(analytic - numeric) <= atol + rtol * abs(numeric):
        shapes = ", ".join(str(tuple(p.shape)) for p in points)
        raise GradcheckError(
            f"gradcheck: {what} along a random direction is {analytic:.10g}, the central difference is "
            f"{numeric:.10g} (difference {abs(analytic - numeric):.3g}, allowed {atol + rtol * abs(numeric):.3g}; "
            f"inputs of shape {shapes})"
        )
    return [ag.tensor(c) for c in cots]


def _assert_leaf_close(prefix, actual, expected, rtol, atol, equal_nan):
    a, e = _array(actual), _array(expected)
    if a.shape != e.shape:
        raise AssertionError(f"{prefix}assert_close: shape {a.shape}; expected {e.shape}")
    default = max(
        (_TOLERANCES.get(_dtype_name(x), (0.0, 0.0)) for x in (actual, expected) if hasattr(x, "dtype")),
        default=(1e-7, 1e-7),
    )
    rtol, atol = default[0] if rtol is None else rtol, default[1] if atol is None else atol
    if np.allclose(a, e, rtol=rtol, atol=atol, equal_nan=equal_nan):
        return
    a, e = np.asarray(a, np.float64), np.asarray(e, np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.abs(a - e)
    bad = ~np.isclose(a, e, rtol=rtol, atol=atol, equal_nan=equal_nan)
    where = np.unravel_index(np.argmax(np.where(bad, np.nan_to_num(gap, nan=np.inf), -1)), a.shape)
    place = tuple(int(i) for i in where)
    raise AssertionError(
        f"{prefix}assert_close: {int(bad.sum())} of {bad.size} values differ by more than {atol:g} + {rtol:g} * "
        f"|expected|; the largest difference, {gap[where]:.6g}, is at {place}: {a[where]:.9g}, expected {e[where]:.9g}"
    )


def _to_float64(leaf):
    """A floating tensor, array or number as a float64 tensor; anything else unchanged."""
    if isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "fiub":
        leaf = ag.tensor(leaf)
    elif isinstance(leaf, float):
        leaf = ag.tensor(np.asarray(leaf, np.float64))
    return leaf.detach().astype("float64") if _is_float(leaf) and str(leaf.dtype) != "float64" else leaf


def _array(value):
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value)


def _dtype_name(value):
    return str(value.dtype)


def _is_float(value):
    return isinstance(value, Tensor) and str(value.dtype) in _FLOATS


def _is_numeric(value):
    """Whether nested lists hold plain numbers only: then they are one array."""
    leaves, _ = flatten(value)
    return not isinstance(value, dict) and all(isinstance(leaf, (bool, int, float)) for leaf in leaves)

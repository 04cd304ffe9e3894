"""Owns what the array API standard asks for beyond the ops: what is known of dtypes and the namespace, and names made of other ops."""

import numpy as np

import agtape as ag
from agtape import _core
from agtape._core import Tensor
from agtape.arguments import as_flag, as_int, as_word

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int32", "int64"),
    "unsigned integer": ("uint8",),
    "integral": ("uint8", "int32", "int64"),
    "real floating": ("float16", "bfloat16", "float32", "float64"),
    "complex floating": (),
}
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"]
_ORDER = ("bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
_FINFO = {
    # name: bits, digits that count in the significand, largest exponent
    "float16": (16, 10, 15),
    "bfloat16": (16, 7, 127),
    "float32": (32, 23, 127),
    "float64": (64, 52, 1023),
}


class finfo:
    """Limits of a floating-point dtype: `bits`, `eps`, `max`, `min`, `smallest_normal`, `dtype`.

    Raises:
        TypeError: the dtype is no float.

    >>> import agtape as ag
    >>> ag.finfo("float32").bits
    32
    """

    def __init__(self, type):
        self.dtype = _dtype("finfo", type, "type")
        if self.dtype.name not in _FINFO:
            raise TypeError(f"finfo: got {self.dtype.name}; expected a floating-point dtype")
        self.bits, digits, exponent = _FINFO[self.dtype.name]
        self.eps = 2.0**-digits
        self.max = (2.0 - self.eps) * 2.0**exponent
        self.min = -self.max
        self.smallest_normal = 2.0 ** (1 - exponent)
        self.tiny = self.smallest_normal

    def __repr__(self):
        return f"finfo({self.dtype.name}, eps={self.eps:g}, max={self.max:g}, smallest_normal={self.smallest_normal:g})"


class iinfo:
    """Limits of an integer dtype: `bits`, `max`, `min`, `dtype`.

    Raises:
        TypeError: the dtype is no integer.

    >>> import agtape as ag
    >>> ag.iinfo("uint8").max
    255
    """

    def __init__(self, type):
        self.dtype = _dtype("iinfo", type, "type")
        if self.dtype.name not in _KINDS["integral"]:
            raise TypeError(f"iinfo: got {self.dtype.name}; expected an integer dtype")
        self.bits = 8 * self.dtype.itemsize
        signed = self.dtype.name != "uint8"
        self.max = 2 ** (self.bits - signed) - 1
        self.min = -(2 ** (self.bits - 1)) if signed else 0

    def __repr__(self):
        return f"iinfo({self.dtype.name}, min={self.min}, max={self.max})"


def isdtype(dtype, kind):
    """Whether a dtype is of a kind, by the array API's words, or equals a dtype, or any of a tuple of these.

    Args:
        dtype: a dtype.
        kind: "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric", a dtype, or
            a tuple.

    Raises:
        ValueError: the kind is another word; TypeError: not a dtype.

    >>> import agtape as ag
    >>> ag.isdtype(ag.float32, "real floating")
    True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    name = _dtype("isdtype", dtype).name
    if isinstance(kind, str) and (kind == "bool" or kind not in _ORDER):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: kind is {kind!r}; expected a dtype or one of {', '.join(_KINDS)}")
        return name in _KINDS[kind]
    return name == _dtype("isdtype", kind, "kind").name


def result_type(*arrays_and_dtypes):
    """The dtype that an op of these tensors, dtypes and Python numbers gives; Python numbers adapt.

    Raises:
        ValueError: nothing was given; TypeError: something is neither tensor, dtype nor number.

    >>> import agtape as ag
    >>> str(ag.result_type(ag.int64, ag.float32)), str(ag.result_type(ag.float16, 1.0))
    ('float32', 'float16')
    """
    weak = [x for x in arrays_and_dtypes if type(x) in (bool, int, float)]
    strong = [x for x in arrays_and_dtypes if type(x) not in (bool, int, float)]
    if not arrays_and_dtypes:
        raise ValueError("result_type: got nothing; expected at least one tensor, dtype or number")
    # One element of each dtype: promotion is the ops' own.
    total = None
    for x in strong:
        name = _dtype("result_type", x.dtype if hasattr(x, "dtype") else x)
        one = ag.zeros((), dtype=name)
        total = one if total is None else ag.maximum(total, one)
    for x in weak:
        total = ag.asarray(x) if total is None else ag.maximum(total, type(x)(0))
    return total.dtype


def can_cast(from_, to):
    """Whether every value of a dtype (or of a tensor's) is one of another, so that conversion keeps it, by promotion's rules.

    >>> import agtape as ag
    >>> ag.can_cast("float32", "float64"), ag.can_cast("float64", "float32")
    (True, False)
    """
    given = _dtype("can_cast", from_.dtype if isinstance(from_, Tensor) else from_, "from_")
    return result_type(given, _dtype("can_cast", to, "to")) == to


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """The running sum along an axis, which a tensor of one axis need not name; with a 0 in front if asked for.

    Raises:
        ValueError: the axis does not exist, or is not given for several axes.

    >>> import agtape as ag
    >>> ag.cumulative_sum(ag.tensor([1, 2, 3]), include_initial=True).tolist()
    [0, 1, 3, 6]
    """
    return _cumulative("cumulative_sum", ag.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """The running product along an axis, which a tensor of one axis need not name; with a 1 in front if asked for.

    Raises:
        ValueError: the axis does not exist, or is not given for several axes.

    >>> import agtape as ag
    >>> ag.cumulative_prod(ag.tensor([1, 2, 3])).tolist()
    [1, 2, 6]
    """
    return _cumulative("cumulative_prod", ag.cumprod, 1, x, axis, dtype, include_initial)


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    """The n-th differences of neighbours along an axis.

    Args:
        prepend, append: tensors put before and after x first.

    Raises:
        ValueError: n is negative, or the axis does not exist; TypeError: something is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.diff(ag.tensor([1, 4, 9])).tolist()
    [3, 5]
    """
    n, axis = as_int("diff", "n", n, least=0), as_int("diff", "axis", axis)
    x = _array("diff", "x", x)
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"diff: axis {axis} is out of range for {x.ndim} dimension(s); expected one that x has")
    if n == 0:
        return x
    parts = [part if part is x else _array("diff", "a part", part) for part in (prepend, x, append) if part is not None]
    x = ag.concat(parts, axis=axis) if len(parts) > 1 else parts[0]
    # From so many differences on there is none left.
    for _ in range(min(n, x.shape[axis])):
        rows = ag.moveaxis(x, axis, 0)
        step = rows[1:] != rows[:-1] if x.dtype == ag.bool_ else rows[1:] - rows[:-1]
        x = ag.moveaxis(step, 0, axis)
    return x


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    """Where to insert values into a sorted vector so that it stays sorted, int64; on the CPU it reads both.

    Args:
        x1: the sorted vector (or one that `sorter`, a vector of positions, sorts).
        x2: values of any shape; numbers, lists and arrays go to the device of x1.
        side: "left" or "right" of equal values.
        sorter: integers, as many as x1 has elements; on a GPU negative ones count from the end.

    Raises:
        ValueError: side is another word, x1 has not one axis, sorter is no such vector, or x2 lies on another device; TypeError: something
            is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.searchsorted(ag.tensor([1, 2, 4]), ag.tensor([2, 3])).tolist()
    [1, 2]
    """
    as_word("searchsorted", "side", side, ("left", "right"))
    x1 = _array("searchsorted", "x1", x1)
    x2 = x2 if isinstance(x2, ag.Tensor) else _array("searchsorted", "x2", x2, x1.device)
    if x1.ndim != 1:
        raise ValueError(f"searchsorted: x1 has shape {x1.shape}; expected one axis")
    if x1.device != x2.device:
        raise ValueError(
            f"searchsorted: x1 is on {x1.device} and x2 on {x2.device}; expected one device: move one with .to(device)"
        )
    if sorter is not None:
        sorter = sorter if isinstance(sorter, ag.Tensor) else _array("searchsorted", "sorter", sorter, x1.device)
        if sorter.shape != x1.shape or not isdtype(sorter.dtype, "integral"):
            raise ValueError(
                f"searchsorted: sorter is {sorter.dtype} of shape {sorter.shape}; expected integers of shape {x1.shape}"
            )
    if x1.device != "cpu":
        return _searched(x1 if sorter is None else x1[sorter], x2, side)
    order = None if sorter is None else sorter.numpy()
    return ag.tensor(np.searchsorted(x1.numpy(), x2.numpy(), side, order), device=x1.device)


def _searched(x1, x2, side):
    """`searchsorted` where the tensors lie: the part in which each value belongs is halved until nothing is left of it."""
    reached, is_before = x1.shape[0], _before(x1, x2, side)
    low = ag.zeros(x2.shape, dtype="int64", device=x1.device)
    high = low + reached
    for _ in range(reached.bit_length()):
        is_open, middle = low < high, (low + high) // 2
        is_after = is_before(ag.minimum(middle, reached - 1))
        low = ag.where(is_open & is_after, middle + 1, low)
        high = ag.where(is_open & ~is_after, middle, high)
    return low


def _before(x1, x2, side):
    """Whether elements of x1 lie before x2, as a function of their positions. NaNs are sorted behind everything else."""
    is_left = side == "left"
    compare = ag.less if is_left else ag.less_equal
    kinds = [isdtype(x.dtype, "real floating") for x in (x1, x2)]
    if kinds == [False, True]:
        whole, above, below = _whole(x2, ag.ceil if is_left else ag.floor)
        return lambda i: above | (~below & compare(x1[i], whole))
    if kinds == [True, False]:
        whole, above, below = _whole(x1, ag.floor if is_left else ag.ceil)
        return lambda i: below[i] | (~above[i] & compare(whole[i], x2))
    is_nan = ag.isnan(x2)
    if is_left:
        return lambda i: compare(x1[i], x2) | (is_nan & ~ag.isnan(x1[i]))
    return lambda i: compare(x1[i], x2) | is_nan


def _whole(x, function):
    """Floats as integers that lie among integers as the floats do, and which of them lie above and below all integers."""
    whole = function(x.astype("float32"))
    above, below = (whole >= 2.0**63) | ag.isnan(whole), whole < -(2.0**63)
    return ag.where(above | below, 0.0, whole).astype("int64"), above, below


class _NamespaceInfo:
    """What the array API asks a namespace about itself."""

    def capabilities(self):
        """Boolean indexing and shapes that depend on values are there, by evaluation at the call."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}

    def default_device(self):
        """The device of new tensors."""
        return ag.get_default_device()

    def default_dtypes(self, *, device=None):
        """The dtypes of new tensors."""
        return {"real floating": ag.float32, "integral": ag.int64, "indexing": ag.int64}

    def dtypes(self, *, device=None, kind=None):
        """All dtypes, or those of a kind, by name."""
        every = {name: _core.dtype_of(name) for name in _ORDER}
        return every if kind is None else {name: d for name, d in every.items() if isdtype(d, kind)}

    def devices(self):
        """The devices of this build."""
        return ag.devices()


def __array_namespace_info__():
    """What the array API asks a namespace about itself.

    >>> import agtape as ag
    >>> ag.__array_namespace_info__().default_device()
    'cpu'
    """
    return _NamespaceInfo()


def _dtype(op, value, name="dtype"):
    return _core.dtype_of(value, op, name)


def _array(op, name, value, device=None):
    try:
        return ag.asarray(value, device=device)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{op}: {name} is {type(value).__name__}; expected a tensor or an array") from error


def _cumulative(op, function, first, x, axis, dtype, include_initial):
    x = _array(op, "x", x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{op}: the tensor has shape {x.shape}; expected an axis, or a vector")
        axis = 0
    axis, include_initial = as_int(op, "axis", axis), as_flag(op, "include_initial", include_initial)
    dtype = None if dtype is None else _dtype(op, dtype)
    y = function(x if dtype is None else x.astype(dtype), axis)
    y = y if dtype is None else y.astype(dtype)
    if not include_initial:
        return y
    edge = [1 if i == axis % x.ndim else size for i, size in enumerate(x.shape)]
    return ag.concat([ag.full(edge, first, dtype=y.dtype, device=y.device), y], axis=axis)

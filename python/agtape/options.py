"""Owns the scope that changes options, and their defaults from the environment."""

import os
import threading

from agtape import _core
from agtape.arguments import as_flag, as_word

_PRECISIONS = ("highest", "high", "medium")
_EXPECTED = "'highest', 'high' or 'medium'"


class options:
    """A scope with other options; its attributes read the values in force on this thread.

    Args:
        fuse: whether elementwise chains become one kernel.
        plan_cache: whether plans are kept and used again.
        deterministic: whether results are the same bits every time; on the CPU they always are. With it off a budget computes
            nothing twice.
        resident_grads: whether `.grad` stays on the device; else backward leaves read-only NumPy arrays of equal numbers there
            (tensors still, where the gradients' own computation is recorded).
        matmul_precision: how exact products of float32 on a GPU are at least: "highest" (as float32), "high" (11 significant bits of
            each element unless its row or column holds others 2^29 times as large, sums in float32) or "medium" (8 bits; computed as "high"). The CPU, adapters without
            cooperative matrices, and every adapter unless AGTAPE_COOPERATIVE=1 is set compute all of them as "highest". A product
            and its gradients keep what is in force when the product is called.
        source_lines: whether every op remembers the line that called it, for reports and out-of-memory errors; costs some
            microseconds an op.

    Environment variables `AGTAPE_FUSE`, `AGTAPE_PLAN_CACHE`, `AGTAPE_RESIDENT_GRADS` and `AGTAPE_DETERMINISTIC` (0 or 1), and
    `AGTAPE_MATMUL_PRECISION`, set what every thread starts from; they are read when agtape is imported.

    Raises:
        TypeError: a switch is neither True nor False; ValueError: a value that this version does not have.

    >>> import agtape as ag
    >>> with ag.options(fuse=False) as o:
    ...     o.fuse
    False
    >>> ag.options().fuse
    True
    """

    def __init__(
        self,
        *,
        fuse=None,
        plan_cache=None,
        deterministic=None,
        resident_grads=None,
        matmul_precision=None,
        source_lines=None,
    ):
        switches = {
            "fuse": fuse,
            "plan_cache": plan_cache,
            "deterministic": deterministic,
            "resident_grads": resident_grads,
            "source_lines": source_lines,
        }
        given = {name: value if value is None else as_flag("options", name, value) for name, value in switches.items()}
        if matmul_precision is not None:
            as_word("options", "matmul_precision", matmul_precision, _PRECISIONS)
        self._lines = given.pop("source_lines")
        self._core = {**given, "matmul_precision": matmul_precision}
        self._former = []

    def __enter__(self):
        lines = _core.get_source_lines()
        if self._lines is not None:
            _core.set_source_lines(self._lines)
        self._former.append((threading.get_ident(), _core.set_options(**self._core), lines))
        return self

    def __exit__(self, *_exception):
        # Several threads may be inside one scope: each leaves what it entered last.
        here = threading.get_ident()
        last = max((i for i, entry in enumerate(self._former) if entry[0] == here), default=None)
        if last is None:
            raise RuntimeError("options: a scope must be left on the thread that entered it")
        _, former, lines = self._former.pop(last)
        _core.set_source_lines(lines)
        _core.set_options(**{name: former[name] for name in self._core})
        return False

    @property
    def fuse(self):
        """Whether elementwise chains become one kernel."""
        return _core.get_options()["fuse"]

    @property
    def plan_cache(self):
        """Whether plans are kept and used again."""
        return _core.get_options()["plan_cache"]

    @property
    def deterministic(self):
        """Whether results are the same bits every time."""
        return _core.get_options()["deterministic"]

    @property
    def matmul_precision(self):
        """The precision of matrix products."""
        return _core.get_options()["matmul_precision"]

    @property
    def resident_grads(self):
        """Whether gradients stay on the device."""
        return _core.get_options()["resident_grads"]

    @property
    def source_lines(self):
        """Whether ops remember the line that called them."""
        return _core.get_source_lines()

    def __repr__(self):
        names = ("fuse", "plan_cache", "deterministic", "resident_grads", "matmul_precision", "source_lines")
        return f"options({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


def _switch(name):
    """An environment variable as True, False or None if it is not set."""
    text = os.environ.get(name)
    if text in (None, ""):
        return None
    if text not in ("0", "1"):
        raise ValueError(f"{name} is {text!r}; expected 0 or 1")
    return text == "1"


def _precision():
    word = os.environ.get("AGTAPE_MATMUL_PRECISION") or "highest"
    if word not in _PRECISIONS:
        raise ValueError(f"AGTAPE_MATMUL_PRECISION is {word!r}; expected {_EXPECTED}")
    return word


_core.set_default_options(
    fuse=_switch("AGTAPE_FUSE"),
    plan_cache=_switch("AGTAPE_PLAN_CACHE"),
    resident_grads=_switch("AGTAPE_RESIDENT_GRADS"),
    deterministic=_switch("AGTAPE_DETERMINISTIC"),
    matmul_precision=_precision(),
)

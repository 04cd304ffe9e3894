"""Owns the display of memory: statistics, the tape's report and the last plan as objects with text, dict and HTML forms."""

from html import escape

from agtape import _core

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_bytes(count):
    """A number of bytes for people to read.

    >>> format_bytes(1536), format_bytes(12)
    ('1.5 KiB', '12 B')
    """
    value, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


class Record:
    """Named figures: attributes, `to_dict()` and equality; subclasses say how they are shown."""

    def __init__(self, figures):
        self.__dict__.update(figures)

    def to_dict(self):
        """The figures as a dict of numbers, texts, lists and dicts.

        >>> Record({"peak": 8}).to_dict()
        {'peak': 8}
        """
        return {key: _plain(value) for key, value in self.__dict__.items() if not key.startswith("_")}

    def __eq__(self, other):
        return type(self) is type(other) and self.to_dict() == other.to_dict()

    __hash__ = None

    def __repr__(self):
        figures = ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items() if not k.startswith("_"))
        return f"{type(self).__name__}({figures})"


class PoolStats(Record):
    """Pool bytes of one kind of pool: `active`, `peak`, `cached`, `reserved` and `generation`."""


class MemoryStats(Record):
    """Pool bytes of a device: `active`, `peak`, `cached`, `reserved`, and `pools["pass"]`, `pools["persistent"]` with the same."""

    def __init__(self, figures):
        pools = {name: PoolStats(pool) for name, pool in figures["pools"].items()}
        super().__init__({**figures, "pools": pools})

    def _rows(self):
        yield "", "active", "peak", "cached", "reserved"
        for name, pool in (("all", self), *self.pools.items()):
            yield name, *(format_bytes(getattr(pool, k)) for k in ("active", "peak", "cached", "reserved"))

    def __repr__(self):
        return "MemoryStats\n" + _text_table(self._rows())

    def _repr_html_(self):
        return _html_table("Memory", self._rows())


class TapeReport(Record):
    """What a tape holds for backward, in bytes.

    `nodes`; `bytes_total` = `bytes_operands` + `bytes_activations` + `bytes_graph`; `bytes_needed`, `bytes_held`,
    `bytes_freed_by_clear`; `by_op`, rows of `op`, `nodes` and `bytes`, largest first; `by_segment`.
    """

    def __init__(self, figures, top=10):
        super().__init__(figures)
        self.by_op = [OpRow(row) for row in self.by_op]
        self.by_segment = [Record(row) for row in self.by_segment]
        self._top = top

    def _figures(self):
        yield "nodes", f"{self.nodes:,}"
        yield "total", format_bytes(self.bytes_total)
        yield "  operands", format_bytes(self.bytes_operands)
        yield "  activations", format_bytes(self.bytes_activations)
        yield "  graph", format_bytes(self.bytes_graph)
        yield "held now", format_bytes(self.bytes_held)
        yield "freed by clear()", format_bytes(self.bytes_freed_by_clear)

    def _rows(self):
        yield "op", "nodes", "bytes"
        shown = self.by_op[: self._top] if self._top is not None else self.by_op
        for row in shown:
            yield row.op, f"{row.nodes:,}", format_bytes(row.bytes)
        rest = self.by_op[len(shown) :]
        if rest:
            yield f"{len(rest)} more", f"{sum(r.nodes for r in rest):,}", format_bytes(sum(r.bytes for r in rest))

    def _hint(self):
        if self.nodes:
            return ""
        return (
            "Nothing is recorded: call it inside `with ag.grad_tape():`, or after it and before backward() or clear()."
        )

    def __repr__(self):
        parts = ["TapeReport", _text_table(self._figures()), self._hint() or "\n" + _text_table(self._rows())]
        return "\n".join(parts)

    def _repr_html_(self):
        parts = [_html_table("Tape", self._figures()), f"<p>{escape(self._hint())}</p>" if self._hint() else ""]
        return "".join(parts) + ("" if self._hint() else _html_table("By op", self._rows()))


class OpRow(Record):
    """One row of a tape report: `op`, `nodes`, `bytes`."""


class LastPlan(Record):
    """This thread's last plan that ran a kernel.

    `peak_bytes` was to be expected and `measured_peak_bytes` was seen: the highest active bytes while it ran, everything else
    held included. `kernels`, `nodes`, `buffer_bytes`, `work`, `cache_hit`.
    """


class LastBackward(Record):
    """This thread's last backward pass: `path`, `nodes`, `segments_replayed`, `kernels`, `bytes`, `cache_hit`."""


class PlanCacheStats(Record):
    """The plan cache: `hits`, `misses`, and `plans` kept."""


def memory_stats(device=None):
    """Pool bytes of a device.

    Args:
        device: "cpu" or None.

    Returns:
        A `MemoryStats`.

    Raises:
        ValueError: this build does not have the device.

    >>> import agtape as ag
    >>> x = ag.tensor([1.0, 2.0])
    >>> ag.memory_stats("cpu").active >= 8
    True
    """
    if device is not None:
        _core.set_default_device(device)
    return MemoryStats(_core.memory_stats_dict())


def tape_memory(tape=None, top=10, quiet=True):
    """What a tape holds for backward; evaluates and downloads nothing.

    Args:
        tape: a tape that was entered; None for the innermost recording one, else this thread's newest.
        top: how many rows by op text and HTML show (None: all); the object has all of them.
        quiet: False prints the report as well.

    Returns:
        A `TapeReport`; all zeros if nothing is recorded.

    Raises:
        RuntimeError: the tape was never entered.

    >>> import agtape as ag
    >>> w = ag.param([1.0, 2.0])
    >>> with ag.grad_tape() as tape:
    ...     loss = (w * w).sum()
    >>> ag.tape_memory(tape).nodes
    2
    """
    report = TapeReport(_core.tape_report_dict(tape), top)
    if not quiet:
        print(report)
    return report


def last_plan():
    """This thread's last plan that ran a kernel.

    Returns:
        A `LastPlan`.

    >>> import agtape as ag
    >>> ag.eval(ag.tensor([1.0]) + 1)
    >>> ag.last_plan().kernels
    1
    """
    return LastPlan(_core.last_plan_dict())


def last_backward():
    """What this thread's last backward pass did.

    Returns:
        A `LastBackward`.

    >>> import agtape as ag
    >>> ag.last_backward().path
    'resident'
    """
    return LastBackward(_core.last_backward_dict())


def plan_cache_stats():
    """Hits, misses and kept plans of the plan cache.

    Returns:
        A `PlanCacheStats`.

    >>> import agtape as ag
    >>> ag.plan_cache_stats().misses >= 0
    True
    """
    return PlanCacheStats(_core.plan_cache_dict())


def _plain(value):
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list) else value


def _text_table(rows):
    """Lines with the first column to the left and the others to the right."""
    rows = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(others, widths[1:]))]
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines)


def _html_table(title, rows):
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption>{body}</table>"

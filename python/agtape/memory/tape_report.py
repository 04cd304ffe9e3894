"""Owns the tape's report: what a tape holds for backward, by op, segment, source line and storage, as object, text and HTML."""

import sys
from numbers import Integral

from agtape import _core
from agtape.arguments import as_flag
from agtape.memory.captured import held_alone
from agtape.memory.names import names_of
from agtape.memory.record import Record, Tables, format_bytes, limited


class OpRow(Record):
    """One row of a tape report: `op`, `nodes`, `bytes`."""


class SegmentRow(Record):
    """One checkpoint segment: `name`, `kept` and `dropped` in bytes, `replay_cost` in units of work."""

    @property
    def saves_nothing(self):
        """Whether it drops no more than it makes the tape keep."""
        return self.dropped <= self.kept

    def _shown_name(self):
        return f"{self.name} (saves nothing)" if self.saves_nothing else self.name


class InteriorRow(Record):
    """A value made inside a segment that is alive because a Python tensor holds it.

    `segment`, `op`, `shape`, `dtype`, `bytes` of its storage, `name` as in a `StorageRow`.
    """


class LineRow(Record):
    """What the ops called on one source line hold: `line`, `nodes`, `bytes`."""


class StorageRow(Record):
    """One storage that backward needs.

    `op` that made it (`leaf` for parameters and inputs), `shape`, `dtype`; `bytes` of the storage, `bytes_read` of what gradient
    rules read in it (less: a view keeps a larger storage alive), `values` in it that rules read; `kind`, "operand" or
    "activation"; `is_held` (it has memory now), `is_freed` (by `clear()`), `held_by` (who else holds it: "python", "view or export",
    "another tape", "pending values" or ""), `name` (the caller's variable that holds it, or leads to what does: `h`, `model.h`,
    `kept['h'][0]`, `h of step()`; "" if none was found), `line` (where the op was called, if recorded).
    """


class TapeReport(Tables):
    """What a tape holds for backward, in bytes.

    `nodes`; `bytes_total` = `bytes_operands` + `bytes_activations` + `bytes_graph`; `bytes_needed`, `bytes_held`,
    `bytes_freed_by_clear`; `by_op`, rows of `op`, `nodes` and `bytes`, largest first; `by_segment`, rows of `name`, `kept`,
    `dropped` and `replay_cost`; `held_in_segments`, one `InteriorRow` for each value of a segment that Python holds; `by_line`, rows of `line`, `nodes` and `bytes`, where lines were recorded
    (`ag.options(source_lines=True)`); `by_storage`, one `StorageRow` for each storage. All lists are complete.
    """

    def __init__(self, figures, top=10):
        super().__init__(figures)
        self.by_op = [OpRow(row) for row in self.by_op]
        self.by_segment = [SegmentRow(row) for row in self.by_segment]
        self.held_in_segments = [InteriorRow(row) for row in self.held_in_segments]
        self.by_line = [LineRow(row) for row in self.by_line]
        self.by_storage = [StorageRow(row) for row in self.by_storage]
        self._top = top

    def _sections(self):
        yield "Tape", self._figures()
        if not self.nodes:
            return
        yield "By op", self._counted("op", self.by_op)
        if self.by_segment:
            yield "By segment", self._segments()
        if self.held_in_segments:
            yield "Held in segments", self._interiors()
        if self.by_line:
            yield "By line", self._counted("line", self.by_line)
        larger = [s for s in self.by_storage if s.bytes > _core.class_bytes(s.bytes_read)]
        if larger:
            yield "Views that keep a larger storage", self._views(larger)
        kept = [s for s in self.by_storage if s.kind == "activation" and s.is_held and not s.is_freed]
        if kept:
            yield "Not freed by clear()", self._kept(kept)

    def _notes(self):
        if not self.nodes:
            yield "Nothing is recorded: call it inside `with ag.grad_tape():`, or after it and before backward() or clear()."

    def _figures(self):
        yield "nodes", f"{self.nodes:,}"
        yield "total", format_bytes(self.bytes_total)
        yield "  operands", format_bytes(self.bytes_operands)
        yield "  activations", format_bytes(self.bytes_activations)
        yield "  graph", format_bytes(self.bytes_graph)
        yield "held now", format_bytes(self.bytes_held)
        yield "freed by clear()", format_bytes(self.bytes_freed_by_clear)

    def _counted(self, what, rows):
        return limited(
            (what, "nodes", "bytes"),
            rows,
            self._top,
            lambda r: (getattr(r, what), f"{r.nodes:,}", format_bytes(r.bytes)),
            lambda left: (f"{len(left)} more", f"{sum(r.nodes for r in left):,}", _sum(left, "bytes")),
        )

    def _segments(self):
        return limited(
            ("segment", "kept", "dropped", "replay cost"),
            self.by_segment,
            self._top,
            lambda r: (r._shown_name(), format_bytes(r.kept), format_bytes(r.dropped), f"{r.replay_cost:,}"),
            lambda left: (
                f"{len(left)} more",
                _sum(left, "kept"),
                _sum(left, "dropped"),
                f"{sum(r.replay_cost for r in left):,}",
            ),
        )

    def _interiors(self):
        return limited(
            ("made in a segment and held", "held by", "bytes"),
            self.held_in_segments,
            self._top,
            lambda r: (f"{r.segment}: {_title(r)}", r.name or "python", format_bytes(r.bytes)),
            lambda left: (f"{len(left)} more", "-", _sum(left, "bytes")),
        )

    def _views(self, rows):
        return limited(
            ("view that keeps a larger storage", "needed", "storage"),
            rows,
            self._top,
            lambda r: (_title(r), format_bytes(r.bytes_read), format_bytes(r.bytes)),
            lambda left: (f"{len(left)} more", _sum(left, "bytes_read"), _sum(left, "bytes")),
        )

    def _kept(self, rows):
        return limited(
            ("not freed by clear()", "held by", "bytes"),
            rows,
            self._top,
            lambda r: (_title(r), r.name or r.held_by or "pending", format_bytes(r.bytes)),
            lambda left: (f"{len(left)} more", "-", _sum(left, "bytes")),
        )


def tape_memory(tape=None, top=10, quiet=True):
    """What a tape holds for backward; evaluates and downloads nothing.

    Args:
        tape: a tape that was entered; None for the innermost recording one, else this thread's newest.
        top: how many rows of each table text and HTML show (None: all); the object has all of them.
        quiet: False prints the report as well.

    Returns:
        A `TapeReport`; all zeros if nothing is recorded.

    Raises:
        TypeError: `tape` is not a tape, `top` not an int or `quiet` no bool; ValueError: `top` is negative.
        RuntimeError: the tape was never entered.

    >>> import agtape as ag
    >>> w = ag.param([1.0, 2.0])
    >>> with ag.grad_tape() as tape:
    ...     loss = (w * w).sum()
    >>> ag.tape_memory(tape).nodes
    2
    """
    if tape is not None and not isinstance(tape, _core.grad_tape):
        raise TypeError(f"tape_memory: tape is {type(tape).__name__}; expected a grad_tape or None")
    if top is not None and (isinstance(top, bool) or not isinstance(top, Integral)):
        raise TypeError(f"tape_memory: top is {top!r}; expected an int or None")
    if top is not None and top < 0:
        raise ValueError(f"tape_memory: top is {top}; expected at least 0")
    quiet = as_flag("tape_memory", "quiet", quiet)
    figures = _core.tape_report_dict(tape, held_alone(_core.replay_functions(tape)))
    stays = {row["_key"] for row in figures["by_storage"] if row["held_by"]}
    stays.update(row["_key"] for row in figures["held_in_segments"])
    names = names_of(sys._getframe(1), stays) if stays else {}
    for row in [*figures["by_storage"], *figures["held_in_segments"]]:
        row["name"] = names.get(row.pop("_key"), "")
    report = TapeReport(figures, top)
    if not quiet:
        print(report)
    return report


def _title(row):
    """A storage in a few words: what made it, its shape, and the line if it is known."""
    text = f"{row.op} {tuple(row.shape)} {row.dtype}"
    line = getattr(row, "line", None)
    return f"{text} at {line}" if line else text


def _sum(rows, figure):
    return format_bytes(sum(getattr(r, figure) for r in rows))

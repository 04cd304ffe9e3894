"""Owns the memory timeline: live bytes from launch to launch, by op and by segment, as figures, text and pictures."""

import os
from itertools import accumulate
from pathlib import Path

from agtape import _core
from agtape.arguments import as_word
from agtape.memory.drawing import COLOURS, load_matplotlib, stacked_areas
from agtape.memory.record import Record, Tables, format_bytes, limited

_HELD, _KEPT, _OTHERS, _OUTSIDE = "held before", "kept from earlier plans", "others", "no segment"
# Layers of a picture beside what was held, and columns: more than that nobody can tell apart.
_MAX_LAYERS, _MAX_COLUMNS = 8, 1000


class TimelineEvent(Record):
    """One kernel launch: numbers of its `plan` and `launch`, `op`, `segment` and `line` (None where unknown), `live` bytes during it."""


class TimelineRow(Record):
    """Bytes that were live at the peak: `name` of an op or a segment, `bytes`."""


class memory_timeline(Tables):
    """A scope that records the live bytes of a device from launch to launch, on this thread: one training step, say.

    Afterwards: `peak`, the highest `memory_stats().active` inside the scope; `held_before`, what was active at its start; `events`, one
    `TimelineEvent` for each launch; `by_op` and `by_segment`, whose bytes were live at the launch with the most, largest first. Bytes
    are charged to the op whose launch made them (of a fused kernel: its last op). `plot`, `save` and notebooks draw it.

    Args:
        device: a name of `ag.devices()`; None for the default device.

    Raises:
        TypeError: `device` is no name; ValueError: it is unknown.
        RuntimeError: entered twice, or left on another thread.

    >>> import agtape as ag
    >>> w = ag.param([1.0, 2.0])
    >>> with ag.memory_timeline() as timeline:
    ...     with ag.grad_tape():
    ...         loss = (w.exp() * w).sum()
    ...     loss.backward()
    >>> timeline.peak >= timeline.held_before and len(timeline.events) > 0
    True
    """

    def __init__(self, device=None):
        if device is not None and not isinstance(device, str):
            raise TypeError(
                f"memory_timeline: device is {type(device).__name__}; expected a name such as 'cpu', or None"
            )
        super().__init__({"peak": 0, "held_before": 0, "events": [], "by_op": [], "by_segment": []})
        self._recorder, self._peak, self._made = _core._LaunchRecorder(), _core.peak_memory(device), []
        self._device = device

    def __enter__(self):
        self._recorder.start()
        self._peak.__enter__()
        self.held_before = _core.memory_stats_dict(self._device)["active"]
        return self

    def __exit__(self, *_exception):
        self._recorder.stop()
        self._peak.__exit__(None, None, None)
        self.peak = self._peak.peak
        rows = self._recorder.rows()
        names = ("plan", "launch", "op", "segment", "line", "live")
        self.events = [TimelineEvent(dict(zip(names, row))) for row in rows]
        self._made = [row[-1] for row in rows]
        self.by_op, self.by_segment = self._at_peak("op"), self._at_peak("segment")
        return False

    def layers(self, by="op"):
        """The live bytes of every event, split.

        Args:
            by: "op" or "segment".

        Returns:
            A dict from names to lists with one number for each event. The numbers of one event add up to its `live` bytes; "held
            before" is what was there at the start, "kept from earlier plans" what plans of this scope left behind.

        Raises:
            ValueError: by is neither.

        >>> memory_timeline().layers()
        {'held before': [], 'kept from earlier plans': []}
        """
        as_word("memory_timeline", "by", by, ("op", "segment"))
        count, ends = len(self.events), {}
        for i, event in enumerate(self.events):
            ends[event.plan] = i + 1
        # What begins and ends at each event; the running sums are the layers.
        steps, own = {}, [0] * (count + 1)
        for i, (event, made) in enumerate(zip(self.events, self._made)):
            step = steps.setdefault(getattr(event, by) or _OUTSIDE, [0] * (count + 1)) if made else own
            for size, last in made:
                end = ends[event.plan] if last is None else min(i + last - event.launch + 1, count)
                for sums in (step, own):
                    sums[i] += size
                    sums[end] -= size
        rest = [event.live - mine for event, mine in zip(self.events, accumulate(own))]
        held = [min(r, self.held_before) for r in rest]
        layers = {_HELD: held, _KEPT: [r - h for r, h in zip(rest, held)]}
        layers.update((name, list(accumulate(step[:count]))) for name, step in steps.items())
        return layers

    def plot(self, ax=None, by="op"):
        """Draw with matplotlib.

        Args:
            ax: axes to draw on; None for new ones.
            by: "op" or "segment".

        Returns:
            The axes.

        Raises:
            ModuleNotFoundError: matplotlib is not installed.
            TypeError: `ax` is no axes; ValueError: by is neither "op" nor "segment".

        >>> memory_timeline().plot(by="line")
        Traceback (most recent call last):
        ...
        ValueError: memory_timeline: by is 'line'; expected 'op' or 'segment'
        """
        if ax is not None and not hasattr(ax, "stairs"):
            raise TypeError(f"memory_timeline: ax is {type(ax).__name__}; expected axes of matplotlib, or None")
        layers = self._drawn(by)
        if ax is None:
            ax = _matplotlib("pyplot").subplots(figsize=(9, 4.2))[1]
        edges = range(len(layers[0][1]) + 1)
        below = [0] * len(layers[0][1])
        for number, (name, values) in enumerate(layers):
            above = [b + v for b, v in zip(below, values)]
            ax.stairs(above, edges, baseline=below, fill=True, color=COLOURS[number % len(COLOURS)], label=name)
            below = above
        _name_axes(ax, self._title())
        return ax

    def save(self, path, by="op"):
        """Write the picture to a file.

        Args:
            path: its name ends in .svg (drawn without matplotlib) or .png.
            by: "op" or "segment".

        Raises:
            TypeError: `path` is no path; ValueError: another ending.
            ModuleNotFoundError: a PNG is asked for and matplotlib is not installed.

        >>> memory_timeline().save("timeline.doc")
        Traceback (most recent call last):
        ...
        ValueError: memory_timeline: cannot save as '.doc'; expected a name that ends in .svg or .png
        """
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"memory_timeline: path is {type(path).__name__}; expected a text or a path")
        path = Path(path)
        if path.suffix == ".svg":
            path.write_text(self._svg(by), encoding="utf-8")
        elif path.suffix == ".png":
            figure = _matplotlib("figure").Figure(figsize=(9, 4.2), layout="constrained")
            self.plot(figure.subplots(), by)
            figure.savefig(path, dpi=120)
        else:
            raise ValueError(
                f"memory_timeline: cannot save as {path.suffix!r}; expected a name that ends in .svg or .png"
            )

    def _repr_svg_(self):
        return self._svg("op")

    def _repr_html_(self):
        return self._svg("op") + super()._repr_html_()

    def _sections(self):
        yield "Timeline", self._figures()
        for what, rows in (("op at the peak", self.by_op), ("segment at the peak", self.by_segment)):
            if rows:
                yield f"By {what}", _table(what, rows)

    def _figures(self):
        yield "launches", f"{len(self.events):,}"
        yield "plans", f"{self.events[-1].plan + 1 if self.events else 0:,}"
        yield "held before", format_bytes(self.held_before)
        yield "peak", format_bytes(self.peak)

    def _at_peak(self, by):
        if not self.events:
            return []
        at = max(range(len(self.events)), key=lambda i: self.events[i].live)
        rows = [TimelineRow({"name": name, "bytes": values[at]}) for name, values in self.layers(by).items()]
        return sorted((r for r in rows if r.bytes), key=lambda r: -r.bytes)

    def _drawn(self, by):
        """Layers for a picture: the largest by name, the others together; many launches share a column, which shows the highest."""
        layers = self.layers(by)
        fixed = [(name, layers.pop(name)) for name in (_HELD, _KEPT)]
        ranked = sorted(layers.items(), key=lambda item: -sum(item[1]))
        drawn = [*fixed, *ranked[:_MAX_LAYERS]]
        if ranked[_MAX_LAYERS:]:
            drawn.append((_OTHERS, [sum(column) for column in zip(*(values for _, values in ranked[_MAX_LAYERS:]))]))
        width = -(-len(self.events) // _MAX_COLUMNS) or 1
        starts = range(0, len(self.events), width)
        shown = [max(range(s, min(s + width, len(self.events))), key=lambda i: self.events[i].live) for s in starts]
        return [(name, [values[i] for i in shown]) for name, values in drawn]

    def _svg(self, by):
        return stacked_areas(self._drawn(by), self._title(), "launches", format_bytes)

    def _title(self):
        return f"live bytes of {len(self.events):,} launches: peak {format_bytes(self.peak)}"


def _table(what, rows):
    return limited(
        (what, "bytes"),
        rows,
        10,
        lambda r: (r.name, format_bytes(r.bytes)),
        lambda left: (f"{len(left)} more", format_bytes(sum(r.bytes for r in left))),
    )


def _name_axes(ax, title):
    """Axes with byte counts for people."""
    ticker = _matplotlib("ticker")
    ax.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: format_bytes(round(value))))
    ax.set_xlabel("launches")
    ax.set_title(title)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small", reverse=True)


def _matplotlib(part):
    return load_matplotlib(part, "memory_timeline", "save('name.svg')")

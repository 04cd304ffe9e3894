"""Owns the profile: where the time of a block goes, by kernel and by stage, as rows, text, a trace and a picture."""

import os
from pathlib import Path

from agtape import _core
from agtape.arguments import as_flag, as_path
from agtape.memory.drawing import bars, load_matplotlib
from agtape.memory.record import Tables, limited
from agtape.timings import RATES, label_of, rows_of, stage_times, trace_events

# Rows of the table and bars of the picture; wider names are cut.
_TOP, _MAX_BARS, _MAX_NAME = 20, 12, 44
# Elements of the tensor that is read for a peak, and how long a product must take to count.
_STREAM, _LONG_MS = 1 << 25, 2.0
# Peaks by device, measured when first asked for.
_MEASURED = {}


class profile(Tables):
    """A scope that times every kernel launch and every stage of all threads' evaluations, on all devices.

    Evaluations count that begin and end inside the block; one that fails does not. Several profiles may be open at once and each sees
    everything. On the CPU a launch's time is the wall time of its kernel, on a GPU that between two stamps of the device's own clock;
    where it has none, each launch is submitted alone and waited for, and `notes` says so. While a profile is open a GPU has a pass for
    each launch, so that its kernels do not overlap; leaving the block waits for it. Everything that is heard is kept, some hundred
    bytes a launch.

    Afterwards:
        rows: list of dicts, the longest first; one for all launches of the same kernel on the same shapes: `device`, `kernel`, `ops`,
            `dtype`, `shape` (of the iteration), `terms` (of a product's sums, else None), `rebuilt` and `segment` (of a launch that
            computes again what a segment or a budget had dropped), `count`, `total_ms`, `median_ms`, of one launch `bytes_read`,
            `bytes_written` and `flops`, over all `gb_per_s`, `gflop_per_s` (None without a time), `fraction_of_peak` (None without
            peaks), and `dispatches` (milliseconds by shader, where AGTAPE_TIME_DISPATCHES has a GPU's dispatches timed apart).
        stages: dict from stages to milliseconds. `record`: the rest of the block, recording and the caller's own Python; `hash`: pending
            nodes are gathered and written as a key; `look up`: the plan is looked for; `plan`: one is made; `bind`: buffers are taken,
            and on a device each launch learns where its tensors lie; `run`: kernels run on the CPU; `encode`, `submit`: a device's
            commands are encoded and handed over; `wait`: a device is waited for; `keep`: values are handed to their nodes and what nobody needs is freed; `other`. Of one thread's block they
            add up to `wall_ms`.
        wall_ms, evaluations, cache_hits, launches, notes.

    A product has 2 flops a term, other kernels one for each element that an elementwise op makes or a reduction takes in, whatever it
    costs; casts, moves, sorts and draws have none. What a broadcast repeats is read once.

    Args:
        peaks: dict from devices to dicts with `gb_per_s` and `gflop_per_s`; None to have `peaks()` measure them on request.
        kernels: False to hear of stages alone. Launches then run as they would without a profile and have no times: `rows` is empty,
            and leaving the block waits for nothing.

    Raises:
        RuntimeError: entered twice.
        TypeError, ValueError: peaks is something else.

    >>> import agtape as ag
    >>> x = ag.rand(100, 100)
    >>> ag.eval(x)
    >>> with ag.profile() as p:
    ...     ag.eval(x @ x)
    >>> row = p.rows[0]
    >>> row["kernel"], row["shape"], row["terms"], row["count"], row["flops"], row["bytes_read"]
    ('matmul', (100, 100), 100, 1, 2000000, 80000)
    >>> 0 < row["total_ms"] < p.wall_ms
    True
    """

    def __init__(self, peaks=None, kernels=True):
        names = {
            "wall_ms": 0.0,
            "evaluations": 0,
            "cache_hits": 0,
            "launches": 0,
            "stages": {},
            "rows": [],
            "notes": [],
        }
        super().__init__(names)
        self._given, self._profiler, self._figures = _checked(peaks), _core._Profiler(), None
        self._hears_kernels = as_flag("profile", "kernels", kernels)

    def __enter__(self):
        self._profiler.start(self._hears_kernels)
        return self

    def __exit__(self, *_exception):
        try:
            self._profiler.stop()
        finally:
            self._take(self._profiler.figures())
        return False

    def peaks(self):
        """What the devices in the rows can do: measured once per process by a kernel that reads one tensor and writes another (2 x 128
        MiB) and by float32 products, unless given. Fills `fraction_of_peak`: the larger of the two fractions. More than 1 means
        that the data were in a cache.

        Returns:
            A dict from devices to dicts with `gb_per_s` and `gflop_per_s`.

        Raises:
            RuntimeError: the block has not been left.

        >>> profile().peaks()
        Traceback (most recent call last):
        ...
        RuntimeError: profile: the block has not been left yet; expected peaks() after it
        """
        if self._figures is None:
            raise RuntimeError("profile: the block has not been left yet; expected peaks() after it")
        for device in {row["device"] for row in self.rows} - set(self._given):
            if device not in _MEASURED:
                _MEASURED[device] = _measure(device)
            self._given[device] = _MEASURED[device]
        self._rate()
        return {device: dict(rates) for device, rates in self._given.items()}

    def save(self, path):
        """Write a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open: stages and launches of each thread, and launches of
        each device, which are placed on the process's clock as early as their submission allows.

        Args:
            path: its name ends in .json.

        Raises:
            ValueError: another ending.

        >>> profile().save("trace.txt")
        Traceback (most recent call last):
        ...
        ValueError: profile: cannot save as '.txt'; expected a name that ends in .json
        """
        import json

        path = Path(os.fsdecode(as_path("profile", path)))
        if path.suffix != ".json":
            raise ValueError(f"profile: cannot save as {path.suffix!r}; expected a name that ends in .json")
        events = trace_events(self._figures) if self._figures else []
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), encoding="utf-8")

    def plot(self, to=None):
        """Draw the kernels with the most time as bars.

        Args:
            to: a file's name that ends in .svg (drawn without matplotlib) or .png; matplotlib axes; None for new axes.

        Returns:
            The axes, or None for a file.

        Raises:
            ValueError: another ending.
            ModuleNotFoundError: matplotlib is needed and not installed.

        >>> profile().plot("profile.doc")
        Traceback (most recent call last):
        ...
        ValueError: profile: cannot draw as '.doc'; expected a name that ends in .svg or .png
        """
        if to is not None and not isinstance(to, str | os.PathLike) and not hasattr(to, "barh"):
            raise TypeError(f"profile: to is {type(to).__name__}; expected a path, axes of matplotlib, or None")
        if not isinstance(to, str | os.PathLike):
            return self._draw(_matplotlib("pyplot").subplots(figsize=(9, 4.8))[1] if to is None else to)
        path = Path(os.fspath(to))
        if path.suffix == ".svg":
            path.write_text(self._repr_svg_(), encoding="utf-8")
        elif path.suffix == ".png":
            figure = _matplotlib("figure").Figure(figsize=(9, 4.8), layout="constrained")
            self._draw(figure.subplots())
            figure.savefig(path, dpi=120)
        else:
            raise ValueError(f"profile: cannot draw as {path.suffix!r}; expected a name that ends in .svg or .png")
        return None

    def _repr_svg_(self):
        return bars(self._bars(), self._title(), _milliseconds)

    def _repr_html_(self):
        return self._repr_svg_() + super()._repr_html_()

    def _draw(self, ax):
        names, values = zip(*self._bars()) if self.rows else ((), ())
        places = range(len(names))
        ax.barh(places, values)
        ax.set_yticks(places, names, fontsize="small")
        ax.invert_yaxis()
        ax.set_xlabel("ms")
        ax.set_title(self._title())
        return ax

    def _take(self, figures):
        """Turn what was heard into figures."""
        self._figures = figures
        self.wall_ms = (figures["end"] - figures["begin"]) / 1e6
        self.evaluations, self.launches = len(figures["evaluations"]), len(figures["launches"])
        self.cache_hits = sum(is_hit for _, _, _, _, is_hit, _ in figures["evaluations"])
        self.stages = stage_times(figures)
        self.rows = rows_of(figures) if self._hears_kernels else []
        if not self._hears_kernels:
            return
        devices = [evaluation[0] for evaluation in figures["evaluations"]]
        timed = [(devices[at], time, is_own) for at, _, time, is_own, *_ in figures["launches"]]
        # A launch that had nothing to do has no length, and no clock.
        waited = sorted({device for device, time, is_own in timed if time and time[1] > time[0] and not is_own})
        self.notes = [
            f"{device} has no clock of its own: each launch was submitted alone and took until the device was found to be done; those of "
            "an update went together and have equal parts of its time"
            for device in waited
        ]
        if untold := sum(time is None for _, time, _ in timed):
            self.notes.append(
                f"{untold} launches have no time: the device had no room for its stamps, or failed before it told"
            )
        self._rate()

    def _rate(self):
        for row in self.rows:
            peak = self._given.get(row["device"])
            if peak and row["gb_per_s"] is not None:
                row["fraction_of_peak"] = max(row[rate] / peak[rate] for rate in RATES)

    def _bars(self):
        shown = [(f"{_name(row)} {_shape(row)}", row["total_ms"]) for row in self.rows[:_MAX_BARS]]
        rest = sum(row["total_ms"] for row in self.rows[_MAX_BARS:])
        return [*shown, (f"{len(self.rows) - _MAX_BARS} others", rest)] if self.rows[_MAX_BARS:] else shown

    def _title(self):
        return f"{self.launches:,} launches: {_milliseconds(self._kernel_ms())} of {_milliseconds(self.wall_ms)}"

    def _kernel_ms(self):
        return sum(row["total_ms"] for row in self.rows)

    def _sections(self):
        yield "Profile", self._overview()
        if self.stages:
            yield "By stage", self._stage_table()
        if self.rows:
            yield "By kernel", self._kernel_table()

    def _overview(self):
        yield "wall time", _milliseconds(self.wall_ms)
        yield "in kernels", _milliseconds(self._kernel_ms())
        yield "launches", f"{self.launches:,}"
        yield "evaluations", f"{self.evaluations:,}"
        yield "plans found", f"{self.cache_hits:,}"

    def _stage_table(self):
        yield "stage", "ms", "share"
        for name, took in self.stages.items():
            yield name, f"{took:.3f}", _percent(took, self.wall_ms)

    def _kernel_table(self):
        total = self._kernel_ms()
        devices = {row["device"] for row in self.rows}
        # The last column is there where peaks are.
        columns = 9 if any(row["fraction_of_peak"] is not None for row in self.rows) else 8

        def cells(row):
            where = f"{row['device']} " if len(devices) > 1 else ""
            rates = [_rounded(row[rate]) for rate in RATES]
            fraction = row["fraction_of_peak"]
            took = (f"{row['total_ms']:.3f}", _percent(row["total_ms"], total), f"{row['median_ms'] * 1e3:.1f}")
            return (where + _name(row), _shape(row), f"{row['count']:,}", *took, *rates, _percent(fraction, 1))[
                :columns
            ]

        def others(left):
            took = sum(row["total_ms"] for row in left)
            count = sum(row["count"] for row in left)
            return (f"{len(left)} more", "", f"{count:,}", f"{took:.3f}", _percent(took, total), "", "", "", "")[
                :columns
            ]

        header = ("kernel", "shape", "count", "ms", "share", "median us", "GB/s", "GFLOP/s", "of peak")
        yield from limited(header[:columns], self.rows, _TOP, cells, others)

    def _notes(self):
        peaks = (
            f"peak of {device}: {_rounded(rates['gb_per_s'])} GB/s, {_rounded(rates['gflop_per_s'])} GFLOP/s"
            for device, rates in sorted(self._given.items())
        )
        return [*self.notes, *peaks]


def _checked(peaks):
    """Peaks that a user gives."""
    if peaks is None:
        return {}
    if not isinstance(peaks, dict):
        raise TypeError(f"profile: peaks is a {type(peaks).__name__}; expected a dict from devices to dicts")
    for device, rates in peaks.items():
        if not isinstance(rates, dict) or set(rates) != set(RATES) or not all(rates[rate] > 0 for rate in RATES):
            raise ValueError(
                f"profile: peaks[{device!r}] is {rates!r}; expected positive numbers gb_per_s and gflop_per_s"
            )
    return {device: dict(rates) for device, rates in peaks.items()}


def _measure(device):
    """What a device reaches: bytes of a kernel that reads one tensor and writes another, operations of a product."""
    from concurrent.futures import ThreadPoolExecutor

    # A thread of its own has no tape with a budget, and the options that programs start with.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_measure_here, device).result()


def _measure_here(device):
    def best(run, shape, rate):
        with profile() as p:
            for _ in range(5):
                _core.eval(run())
        # Other threads may compute meanwhile.
        row = next(
            row for row in p.rows if row["device"] == device and list(row["shape"]) == shape and row["count"] >= 5
        )
        return sum(row[name] for name in rate) / (row["median_ms"] * 1e6), row["median_ms"]

    x = _core.ones(_STREAM, device=device)
    _core.eval(x)
    bandwidth, _ = best(lambda x=x: _core.negative(x), [_STREAM], ("bytes_read", "bytes_written"))
    del x
    side, took, product = 256, 0.0, 0.0
    while took < _LONG_MS and side < 8192:
        side *= 2
        a = _core.ones(side, side, device=device)
        _core.eval(a)
        rate, took = best(lambda a=a: _core.matmul(a, a), [side, side], ("flops",))
        product = max(product, rate)
        del a
    _core.empty_cache(device)
    return {"gb_per_s": bandwidth, "gflop_per_s": product}


def _name(row):
    name = label_of(row)
    name = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
    if not row["rebuilt"]:
        return name
    return f"{name} (rebuilt: {row['segment']})" if row["segment"] else f"{name} (rebuilt)"


def _shape(row):
    sizes = "x".join(map(str, row["shape"])) or "1"
    return sizes if row["terms"] is None else f"{sizes} k={row['terms']}"


def _milliseconds(value):
    return f"{value:,.3f} ms" if value < 100 else f"{value:,.0f} ms"


def _percent(part, whole):
    return "" if part is None or not whole else f"{100 * part / whole:.1f}%"


def _rounded(rate):
    return "" if rate is None else f"{rate:,.1f}" if rate < 1000 else f"{rate:,.0f}"


def _matplotlib(part):
    return load_matplotlib(part, "profile", "plot('name.svg')")

"""Owns what becomes of the times that a profile heard: rows by kernel, milliseconds by stage, and the events of a trace."""

from itertools import groupby

RATES = ("gb_per_s", "gflop_per_s")
_STAGES = ("record", "hash", "look up", "plan", "bind", "run", "encode", "submit", "wait", "keep", "other")
_COUNTS = ("kernel", "ops", "dtype", "shape", "terms", "bytes_read", "bytes_written", "flops")


def label_of(counts):
    """A kernel's name for people: of one that computes several things, what.

    >>> label_of({"kernel": "matmul", "ops": ("matmul",)}), label_of({"kernel": "fused", "ops": ["exp", "add"]})
    ('matmul', 'fused: exp+add')
    """
    kernel, ops = counts["kernel"], list(counts["ops"])
    return kernel if ops == [kernel] else f"{kernel}: {'+'.join(ops)}"


def trace_events(figures):
    """The events of a trace in Chrome's format: complete ones with times in microseconds since the block began, and names.

    >>> nothing = {"begin": 0, "end": 9, "thread": 1, "kernels": [], "evaluations": [], "launches": [], "spans": []}
    >>> [event["name"] for event in trace_events(nothing)]
    ['process_name']
    """
    begin, evaluations = figures["begin"], figures["evaluations"]
    devices = sorted({device for device, *_ in evaluations} - {"cpu"})
    # Process 1 is the host with its threads; every other device is a process of its own.
    processes = {"cpu": 1, **{device: 2 + i for i, device in enumerate(devices)}}

    def event(name, category, pid, tid, time, arguments=None):
        ts, duration = (time[0] - begin) / 1e3, (time[1] - time[0]) / 1e3
        made = {"name": name, "cat": category, "ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": duration}
        return {**made, "args": arguments} if arguments else made

    names = {"cpu": "agtape", **{device: f"device {device}" for device in devices}}
    events = [
        {"name": "process_name", "ph": "M", "pid": processes[d], "tid": 0, "args": {"name": n}}
        for d, n in names.items()
    ]
    for stage, thread, *time in figures["spans"]:
        events.append(event(stage, "stage", 1, thread, time))
    for device, thread, start, end, is_hit, _ in evaluations:
        arguments = {"device": device, "plan": "found" if is_hit else "made"}
        events.append(event("evaluation", "evaluation", 1, thread, (start, end), arguments))
    for at, kernel, time, _, is_rebuilt, segment, _ in figures["launches"]:
        if time is not None:
            device, thread = evaluations[at][:2]
            counts = figures["kernels"][kernel]
            arguments = {**counts, "rebuilt": is_rebuilt, "segment": segment}
            pid = processes[device]
            events.append(event(label_of(counts), "kernel", pid, thread if pid == 1 else 0, time, arguments))
    return events


def stage_times(figures):
    """Milliseconds of every stage without the stages inside it; `record` is what no evaluation took of the block's thread.

    >>> spans = [("hash", 1, 2_000_000, 3_000_000)]
    >>> evaluations = [("cpu", 1, 2_000_000, 4_000_000, True, 0)]
    >>> stage_times({"begin": 0, "end": 9_000_000, "thread": 1, "evaluations": evaluations, "spans": spans})
    {'record': 7.0, 'hash': 1.0, 'other': 1.0}
    """
    spans = [
        *figures["spans"],
        *(("other", thread, begin, end) for _, thread, begin, end, _, _ in figures["evaluations"]),
    ]
    spans.sort(key=lambda s: (s[1], s[2], -s[3]))
    own, outside = dict.fromkeys(_STAGES, 0), figures["end"] - figures["begin"]
    for thread, group in groupby(spans, key=lambda s: s[1]):
        stack = []
        for stage, _, begin, end in group:
            while stack and stack[-1][1] <= begin:
                stack.pop()
            own[stage] += end - begin
            if stack:
                own[stack[-1][0]] -= end - begin
            elif thread == figures["thread"]:
                outside -= end - begin
            stack.append((stage, end))
    own["record"] = outside
    return {stage: took / 1e6 for stage, took in own.items() if took}


def rows_of(figures):
    """One row for all launches of the same kernel on the same shapes, the longest first.

    >>> import agtape as ag
    >>> with ag.profile() as p:
    ...     total = ag.ones(4).exp().sum().item()
    >>> [(row["kernel"], row["ops"]) for row in rows_of(p._figures)]
    [('sum', ('exp', 'sum'))]
    """
    devices = [evaluation[0] for evaluation in figures["evaluations"]]
    kernels = [tuple(_frozen(counts[name]) for name in _COUNTS) for counts in figures["kernels"]]
    groups = {}
    for at, kernel, time, _, is_rebuilt, segment, dispatches in figures["launches"]:
        times, apart = groups.setdefault((devices[at], kernels[kernel], is_rebuilt, segment), ([], {}))
        times.append(None if time is None else time[1] - time[0])
        for shader, took in dispatches:
            apart[shader] = apart.get(shader, 0) + took / 1e6
    rows = []
    for (device, counts, is_rebuilt, segment), (times, apart) in groups.items():
        told = [time for time in times if time is not None]
        row = {"device": device, **dict(zip(_COUNTS, counts)), "rebuilt": is_rebuilt, "segment": segment}
        moved, total = row["bytes_read"] + row["bytes_written"], sum(told)
        row.update(count=len(times), total_ms=total / 1e6, median_ms=_median(told) / 1e6)
        # A byte, or an operation, a nanosecond is 10^9 a second.
        amounts = dict(zip(RATES, (moved, row["flops"])))
        row.update({rate: amount * len(told) / total if total else None for rate, amount in amounts.items()})
        row.update(fraction_of_peak=None, dispatches=apart)
        rows.append(row)
    return sorted(rows, key=lambda row: -row["total_ms"])


def _median(times):
    """0 of nothing. The standard library's takes long to import."""
    ordered, middle = sorted(times), len(times) // 2
    return (ordered[middle] + ordered[~middle]) / 2 if ordered else 0


def _frozen(value):
    return tuple(value) if isinstance(value, list) else value

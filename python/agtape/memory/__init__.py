"""Owns the display of memory: statistics, the tape's report and the last plan as objects with text, dict and HTML forms."""

from agtape import _core
from agtape.memory.record import Record, Tables, format_bytes


class PoolStats(Record):
    """Pool bytes of one kind of pool: `active`, `peak`, `cached`, `reserved` and `generation`."""


class MemoryStats(Tables):
    """Pool bytes of a device: `active`, `peak`, `cached`, `reserved`, and `pools["pass"]`, `pools["persistent"]` with the same."""

    def __init__(self, figures):
        pools = {name: PoolStats(pool) for name, pool in figures["pools"].items()}
        super().__init__({**figures, "pools": pools})

    def _sections(self):
        yield "Memory", self._rows()

    def _rows(self):
        yield "", "active", "peak", "cached", "reserved"
        for name, pool in (("all", self), *self.pools.items()):
            yield name, *(format_bytes(getattr(pool, k)) for k in ("active", "peak", "cached", "reserved"))


class LastPlan(Record):
    """This thread's last plan that ran a kernel.

    `peak_bytes` was to be expected and `measured_peak_bytes` was seen: the highest active bytes while it ran, everything else
    held included. `kernels` that ran, and their `work` in floating-point operations of products and 4 for each element moved.
    `rebuilds` and `work_ratio` are of the whole step where a tape has a budget: of all plans that have run since it began to
    record what this backward pass ends, the kernels that computed again what an earlier kernel had computed, and the work of all
    kernels divided by that of the others. So a value read before backward changes neither. `nodes`, `buffer_bytes`, `cache_hit`.
    """


class LastBackward(Record):
    """This thread's last backward pass: `path` ("resident", or "host" where gradients are copies on the host), `nodes`,
    `segments_replayed`, `kernels`, `bytes`, `cache_hit`."""


class PlanCacheStats(Record):
    """The plan cache: `hits`, `misses`, and `plans` kept."""


def memory_stats(device=None):
    """Pool bytes of a device.

    Args:
        device: "cpu", "gpu" or another name of `ag.devices()`; None for the default device.

    Returns:
        A `MemoryStats`.

    Raises:
        ValueError: the name is unknown; DeviceError: this machine does not have the device.

    >>> import agtape as ag
    >>> x = ag.tensor([1.0, 2.0])
    >>> ag.memory_stats("cpu").active >= 8
    True
    """
    return MemoryStats(_core.memory_stats_dict(device))


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

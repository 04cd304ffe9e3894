"""Owns the count of what moves between host and devices, in all or within a scope."""

from agtape import _core


class transfers:
    """What moved between host and devices, over all threads: since the process began, or inside a scope.

    `to_host` and `to_device` count tensors' bytes that were moved, `arguments_bytes` the numbers that plans were given (random
    counters, learning rates, scalars). The CPU's memory is the host's, so there nothing moves. The figures are those of the call;
    as a scope they run until it ends, and are frozen then.

    >>> import agtape as ag
    >>> with ag.transfers() as moved:
    ...     ag.eval(ag.tensor([1.0, 2.0]) * 3.0)
    >>> moved.to_host_bytes, moved.to_device_bytes, moved.arguments_bytes
    (0, 0, 8)
    """

    def __init__(self):
        now = _core.transfers_dict()
        self._begin, self._end = dict.fromkeys(now, 0), now

    def __enter__(self):
        self._begin, self._end = _core.transfers_dict(), None
        return self

    def __exit__(self, *_exception):
        self._end = _core.transfers_dict()
        return False

    def to_dict(self):
        """The figures as a dict.

        >>> sorted(transfers().to_dict())
        ['arguments_bytes', 'to_device', 'to_device_bytes', 'to_host', 'to_host_bytes']
        """
        end = self._end if self._end is not None else _core.transfers_dict()
        return {name: end[name] - begin for name, begin in self._begin.items()}

    @property
    def to_host(self):
        """How often values were copied to the host."""
        return self.to_dict()["to_host"]

    @property
    def to_host_bytes(self):
        """Bytes of those copies."""
        return self.to_dict()["to_host_bytes"]

    @property
    def to_device(self):
        """How often values were copied to a device."""
        return self.to_dict()["to_device"]

    @property
    def to_device_bytes(self):
        """Bytes of those copies."""
        return self.to_dict()["to_device_bytes"]

    @property
    def arguments_bytes(self):
        """Bytes of the numbers that plans were given."""
        return self.to_dict()["arguments_bytes"]

    def __eq__(self, other):
        return isinstance(other, transfers) and self.to_dict() == other.to_dict()

    __hash__ = None

    def __repr__(self):
        return f"transfers({', '.join(f'{name}={value}' for name, value in self.to_dict().items())})"

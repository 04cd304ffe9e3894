"""Owns what Python adds to devices: the scoped default, and what is known of each adapter."""

import atexit

from agtape import _core
from agtape.memory.record import Record

# What was compiled is kept for the next process; nothing happens if no adapter was opened.
atexit.register(_core.save_pipelines)


class device:
    """The default device inside a `with` block, for this thread.

    Args:
        name: "auto", "cpu", "gpu", "gpu:1", ...

    Raises:
        ValueError: the name is unknown; DeviceError: this machine does not have the device.

    >>> import agtape as ag
    >>> with ag.device("cpu"):
    ...     x = ag.zeros(2)
    >>> x.device
    'cpu'
    """

    def __init__(self, name):
        self.name = name
        self._before = []

    def __enter__(self):
        self._before.append(_core.choose_device(self.name))
        return self

    def __exit__(self, *_):
        _core.choose_device(self._before.pop())

    def __repr__(self):
        return f"device({self.name!r})"


class AdapterInfo(Record):
    """An adapter: `device` (its name here), `name`, `backend`, `driver`, `kind` and `is_software`, as the driver gives them."""


def adapters():
    """What is known of every adapter of this machine, without opening any.

    Returns:
        A list of `AdapterInfo`, in the order of `ag.devices()[1:]`.

    >>> import agtape as ag
    >>> [a.device for a in ag.adapters()] == ag.devices()[1:]
    True
    """
    return [AdapterInfo(figures) for figures in _core.adapter_dicts()]


def selftest(device="gpu", large=True, progress=None):
    """Try every kernel of a device against the CPU; see `python -m agtape.selftest`.

    Args:
        device: a name of `ag.devices()`.
        large: also 2**24 elements, for an op of every family.
        progress: called with a text after every case; None for silence.

    Returns:
        An object with `is_ok`, `failures` (texts), `cases`, `seconds`, `adapter`, `to_dict()`; print it for a report to paste into an issue.

    Raises:
        ValueError: the name is unknown; DeviceError: this machine does not have the device.

    >>> import agtape as ag
    >>> ag.selftest("cpu", large=False).is_ok
    True
    """
    # Here and not at the top: most programs never run it.
    from agtape.kernelcheck import selftest as run

    return run(device, large, progress)

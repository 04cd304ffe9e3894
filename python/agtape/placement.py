"""Owns what Python adds to devices: the scoped default, what is known of each adapter, and which one "auto" picks."""

import atexit
import json
import os
import time
from pathlib import Path

from agtape import _core
from agtape.arguments import as_flag, shown
from agtape.memory.record import Record


def _folder():
    """Where measurements and pipelines are kept: AGTAPE_CACHE_DIR, else the user's cache folder; None without either."""
    if own := os.environ.get("AGTAPE_CACHE_DIR"):
        return Path(own)
    for variable, below in (("XDG_CACHE_HOME", ()), ("LOCALAPPDATA", ()), ("HOME", (".cache",))):
        if root := os.environ.get(variable):
            return Path(root, *below, "agtape")
    return None


def _kept():
    """The kept measurement, or {}."""
    try:
        kept = json.loads((_folder() / "tune.json").read_text())
        return kept if isinstance(kept, dict) and isinstance(kept.get("faster"), str | None) else {}
    except (OSError, ValueError, TypeError):
        return {}


_core.set_faster_adapter(_kept().get("faster"))
# What was compiled is kept for the next process; nothing happens if no adapter was opened.
atexit.register(_core.save_pipelines)


class device:
    """The default device inside a `with` block, for this thread.

    Args:
        name: "auto", "cpu", "gpu", "gpu:1", ...

    Raises:
        TypeError: the name is no text; ValueError: it is unknown; DeviceError: this machine does not have the device.

    >>> import agtape as ag
    >>> with ag.device("cpu"):
    ...     x = ag.zeros(2)
    >>> x.device
    'cpu'
    """

    def __init__(self, name):
        if not isinstance(name, str):
            raise TypeError(f'device: name is {type(name).__name__}; expected a text such as "cpu"')
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
    """Try every op of a device against the CPU; see `python -m agtape.selftest`.

    Args:
        device: a name of `ag.devices()`.
        large: also 2**24 elements, or as many as the device can bind, for an op of every family.
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

    if not isinstance(device, str):
        raise TypeError(f"selftest: device is {shown(device)}; expected a name such as 'gpu'")
    if progress is not None and not callable(progress):
        raise TypeError(f"selftest: progress is {shown(progress)}; expected a function or None")
    return run(device, as_flag("selftest", "large", large), progress)


class Tuning(Record):
    """What `ag.tune` measured: `ms`, milliseconds of a training step by device, `faster`, the adapter's name or None, and `file`."""


def _step_ms(name, width=1024, batch=512, steps=5):
    """The median time of a training step of a three-layer network on a device, the value of its loss read each time."""
    # Here and not at the top: nn needs this module's package.
    from agtape import nn, optim, rand
    from agtape._core import grad_tape

    layers = [nn.Linear(width, width, device=name), nn.GELU(), nn.Linear(width, width, device=name), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(width, 10, device=name))
    opt = optim.Adam(model.parameters(), lr=1e-4)
    x = rand(batch, width, device=name)
    times = []
    for _ in range(steps + 2):
        begin = time.perf_counter()
        with grad_tape():
            loss = model(x).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        loss.item()
        times.append((time.perf_counter() - begin) * 1e3)
    return sorted(times[2:])[steps // 2]


def tune():
    """Measure a training step on the CPU and on every adapter that is no software, and keep which is faster: what "auto" picks from now on.

    The measurement is kept in a file of the user's cache folder and read by the next process; this one keeps the "auto" it began with.

    Returns:
        A `Tuning`: `ms` by device, `faster` (an adapter's name, or None for the CPU) and `file` (None if nothing could be written).

    >>> import agtape as ag
    >>> ag.tune().ms["cpu"] > 0  # doctest: +SKIP
    True
    """
    real = [a for a in adapters() if not a.is_software]
    state = _core.get_rng_state()
    try:
        ms = {name: _step_ms(name) for name in ["cpu", *(a.device for a in real)]}
    finally:
        _core.set_rng_state(state)
    best = min(real, key=lambda a: ms[a.device], default=None)
    faster = best.name if best is not None and ms[best.device] < ms["cpu"] else None
    return Tuning({"ms": ms, "faster": faster, "file": _keep({"ms": ms, "faster": faster})})


def _keep(figures):
    """Write a measurement by way of a temporary name; the file's name, or None where there is nowhere to write."""
    folder = _folder()
    if folder is None:
        return None
    part = folder / f"tune.json.{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(figures, indent=1))
        part.replace(folder / "tune.json")
    except OSError:
        return None
    return str(folder / "tune.json")

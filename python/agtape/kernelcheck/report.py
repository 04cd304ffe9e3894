"""Owns the comparison of a device with the CPU, and its report: text to paste into an issue, and whether all is well."""

import platform
import time

import numpy as np

import agtape as ag
from agtape import _core
from agtape.kernelcheck.case import BYTES_AN_ELEMENT, LARGE, SIZES, TOLERANCES
from agtape.kernelcheck.cases import all_cases


class SelfTest:
    """What a device's self-test found: `device`, `adapter`, `cases`, `failures` (texts), `is_ok` and `seconds`."""

    def __init__(self, device, adapter, cases, failures, seconds):
        self.device, self.adapter, self.cases, self.failures, self.seconds = device, adapter, cases, failures, seconds

    @property
    def is_ok(self):
        """Whether every result is near the CPU's."""
        return not self.failures

    def to_dict(self):
        """The figures as a dict."""
        return dict(vars(self), is_ok=self.is_ok)

    def __repr__(self):
        head = [
            f"agtape {ag.__version__} selftest of {self.device} on {platform.platform()}, Python {platform.python_version()}",
            *(f"  {name}: {value}" for name, value in self.adapter.items()),
            f"  {self.cases} comparisons in {self.seconds:.1f} s, {len(self.failures)} failed",
        ]
        return "\n".join([*head, *self.failures])


def difference(found, expected, family):
    """What is wrong with a result, in words; None if it is near enough. A flushed denormal is 0."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"gave {found.dtype} {found.shape}, expected {expected.dtype} {expected.shape}"
    if expected.dtype.kind in "biu":
        wrong = found != expected
    else:
        relative, absolute = TOLERANCES[family]
        # 16-bit results may be rounded to the neighbour.
        relative = max(relative, {"float16": 1e-3}.get(str(expected.dtype), 0.0))
        a, b = found.astype(np.float64), expected.astype(np.float64)
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= np.maximum(absolute, 1.2e-38) + relative * np.abs(b)
            wrong = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements differ; at {at}: {found[at]!r}, expected {expected[at]!r}"


def as_arrays(result):
    """One tensor or several as arrays."""
    return [t.numpy() for t in (result if isinstance(result, tuple | list) else [result])]


def compare(case, n, device):
    """What is wrong with a case at a size, in words; None if nothing is."""
    arrays = case.draw(np.random.default_rng(n), n)
    try:
        expected, found = ([*as_arrays(case.call(*[ag.tensor(a, device=d) for a in arrays]))] for d in ("cpu", device))
        wrong = next(filter(None, (difference(f, e, case.family) for f, e in zip(found, expected, strict=True))), None)
    except Exception as error:  # a report goes on: what one kernel raises is one of its lines
        wrong = f"{type(error).__name__}: {error}"
    return wrong and f"FAILED {case.name}, size {n}: {wrong}"


def largest_of(limits):
    """The most elements to try: 2**24, or what one binding of the device holds with every kernel's scratch."""
    n = LARGE
    while n * BYTES_AN_ELEMENT > limits.get("max_bytes", n * BYTES_AN_ELEMENT):
        n //= 2
    return n


def selftest(device="gpu", large=True, progress=None):
    """Try every op of a device against the CPU.

    Args:
        device: a name of `ag.devices()`.
        large: also 2**24 elements, or as many as the device can bind, for an op of every family.
        progress: called with a text after every case; None for silence.

    Returns:
        A `SelfTest`: print it for a report.

    Raises:
        ValueError: the name is unknown; DeviceError: this machine does not have the device.

    >>> import agtape as ag
    >>> ag.selftest("cpu", large=False).is_ok
    True
    """
    begin, failures, count = time.perf_counter(), [], 0
    adapter, largest = {}, LARGE
    if device != "cpu":
        known = {a.device: a.to_dict() for a in ag.adapters()}
        limits = _core.adapter_limits(device)
        adapter, largest = known.get(device, {}) | limits, largest_of(limits)
    for case in all_cases():
        sizes = [n for n in SIZES if n <= case.most] + [largest] * (large and case.is_large)
        for n in sizes:
            count += 1
            wrong = compare(case, n, device)
            failures += [wrong] if wrong else []
            if progress:
                progress(wrong or f"ok {case.name}, size {n}")
    return SelfTest(device, adapter, count, failures, time.perf_counter() - begin)


def main(arguments):
    """Run a self-test as a program: `python -m agtape.selftest gpu [--small]`; 0 if all is well, else 1."""
    names = [a for a in arguments if not a.startswith("-")] or ["gpu"]
    reports = [selftest(name, large="--small" not in arguments) for name in names]
    for report in reports:
        print(report)
    return 0 if all(r.is_ok for r in reports) else 1

"""Owns the form of a comparison: one call with its inputs, the sizes it is tried at, and how near two devices must be."""

from dataclasses import dataclass

import numpy as np

# (relative, absolute) in float32, each with its reason; integers and bools are always exact.
TOLERANCES = {
    "exact": (0.0, 0.0),  # moves, selects or compares
    "rounded": (2e-7, 1e-37),  # one operation, which some devices do not round correctly
    "function": (4e-6, 1e-6),  # a function of the device's own
    "sum": (5e-6, 3e-5),  # added in another order
    "product": (3e-5, 3e-4),  # a few thousand terms in another order
    "float16": (2e-3, 1e-3),  # rounded to the neighbour after one of those
    "bfloat16": (1.6e-2, 8e-3),
}
SIZES = (1, 7, 1009, 40_009)
LARGE = 1 << 24
# Bytes of the widest scratch that a kernel has for an element: a sort's pairs.
BYTES_AN_ELEMENT = 8


@dataclass(frozen=True)
class Case:
    """One call: its name, the engine's ops that it runs, its inputs for a size, and the family that says how near results are."""

    name: str
    ops: tuple
    draw: object  # (rng, n) -> arrays
    call: object  # tensors -> a tensor or several
    family: str = "exact"
    is_large: bool = False  # tried at 2^24 elements too
    most: int = 1 << 30  # the largest size it is tried at


def spread(rng, n):
    """Of order 1, both signs."""
    return rng.uniform(-2, 2, n).astype(np.float32)


def positive(rng, n):
    """Well above 0."""
    return rng.uniform(0.3, 3, n).astype(np.float32)


def unit(rng, n):
    """Inside (-1, 1)."""
    return rng.uniform(-0.95, 0.95, n).astype(np.float32)


def above_one(rng, n):
    """Above 1."""
    return rng.uniform(1.1, 4, n).astype(np.float32)


def integers(rng, n):
    """Small integers, both signs."""
    return rng.integers(-50, 50, n).astype(np.int32)


def rows_of(n, width):
    """How many rows of a width hold about n elements."""
    return max(n // width, 1)

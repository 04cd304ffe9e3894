"""Owns the form of a row of the op table, and the shapes rows are tried at."""

from dataclasses import dataclass, field

import agtape as ag
import numpy as np
from ops.samples import NUMBERS, normal


@dataclass(frozen=True)
class Row:
    """One form of an op.

    The first word of `name` is the function of `ag` (and the method), called with `options` unless `call(xp, *inputs)`
    says otherwise. `reference` takes arrays; without it the judge is NumPy's function of that name, or `call` with NumPy.
    """

    name: str
    shapes: object  # n -> the shapes of the inputs
    reference: object = None
    call: object = None
    options: dict = field(default_factory=dict)
    family: str = "exact"
    gives: str = "same"  # dtype of each result: "same", "float", "wide" (integers and bools int64), or its name
    dtypes: tuple = NUMBERS
    gradient: str = "full"  # "full", "zero" (piecewise constant) or "none"
    draw: object = normal  # how inputs are drawn: a function, or a tuple of them
    least: int = 0  # the smallest size that it is defined for
    ops: tuple = ()  # engine ops that this row runs; where it has a gradient, its tape shows them

    @property
    def function(self):
        """The name of the public function."""
        return self.name.split()[0]

    def run(self, *inputs):
        """The op on tensors."""
        if self.call:
            return self.call(ag, *inputs)
        return getattr(ag, self.function)(*inputs, **self.options)

    def expected(self, *arrays):
        """What it should give, on arrays."""
        if self.reference:
            return self.reference(*arrays)
        return self.call(np, *arrays) if self.call else getattr(np, self.function)(*arrays, **self.options)

    def draws(self, count):
        """How each input is drawn."""
        return self.draw if isinstance(self.draw, tuple) else (self.draw,) * count

    def result_dtype(self, dtype):
        """The name of the results' dtype for inputs of a dtype."""
        is_float = "float" in dtype
        by_word = {"same": dtype, "float": dtype if is_float else "float32", "wide": dtype if is_float else "int64"}
        return by_word.get(self.gives, self.gives)


def one(n):
    """A matrix with two rows."""
    return ((2, n),)


def two(n):
    """Two matrices with two rows."""
    return ((2, n), (2, n))


def three(n):
    """Three matrices with two rows."""
    return ((2, n), (2, n), (2, n))


def cube(n):
    """Three axes."""
    return ((2, n, 3),)


def line(n):
    """A vector."""
    return ((n,),)

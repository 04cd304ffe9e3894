"""Owns what a segment's second run must find as the first did: random states, options, the default device."""

import contextlib
import random

import numpy as np

from agtape import _core
from agtape.arguments import as_list


class World:
    """The random states, options and default device of this moment, and the way back to them.

    Args:
        rngs: what `generators` gave: the user's besides ours, Python's and NumPy's global ones.

    >>> import random
    >>> world = World()
    >>> first = random.random()
    >>> world.restore()
    >>> random.random() == first
    True
    """

    def __init__(self, rngs=()):
        self.rngs = rngs
        self._own = [_access(rng) for rng in self.rngs]
        self._states = [get() for get, _ in self._own]
        # As a dict it is known of every kind of generator that may have been put in the place of NumPy's global one.
        self._random, self._numpy = random.getstate(), np.random.get_state(legacy=False)
        self.ours = _core.get_rng_state()
        self._plans, self._device = _core.get_options(), _core.get_default_device()
        self._choice = _core.choose_device(None)
        _core.choose_device(self._choice)

    def restore(self, ours=True):
        """Put everything back to how it was; what is not the user's first, so that a failing generator leaves the rest right.

        Args:
            ours: also our own generator's state.

        Raises:
            Exception: whatever a generator of the user's raises, with a note that names it; the others have their states then.
        """
        random.setstate(self._random)
        np.random.set_state(self._numpy)
        if ours:
            _core.set_rng_state(self.ours)
        _core.set_options(**self._plans)
        _core.choose_device(self._choice)
        if _core.get_default_device() != self._device:
            _core.choose_device(self._device)
        # A stack runs every entry, also after one that raised.
        with contextlib.ExitStack() as stack:
            for i in reversed(range(len(self.rngs))):
                stack.callback(self._restore_own, i)

    def _restore_own(self, i):
        try:
            self._own[i][1](self._states[i])
        except BaseException as error:
            name = type(self.rngs[i]).__name__
            error.add_note(f"checkpoint: rngs[{i}] ({name}) refused a state; expected it to take what it had given")
            raise


def generators(rngs, op="checkpoint"):
    """The user's generators as a tuple.

    Args:
        rngs: a list, tuple or other iterable of generators.
        op: the function that they were given to, for errors.

    Returns:
        A tuple.

    Raises:
        TypeError: `rngs` cannot be looked through, or one of them has no state that can be read and set.

    >>> import random
    >>> generators([3])
    Traceback (most recent call last):
    ...
    TypeError: checkpoint: rngs[0] is int; expected numpy.random.Generator, random.Random or something with get_state and set_state
    >>> len(generators([random.Random(1)]))
    1
    """
    if not rngs and isinstance(rngs, tuple):
        return rngs
    known = tuple(as_list(op, "rngs", rngs, "a list of generators"))
    for i, rng in enumerate(known):
        if _access(rng) is None:
            raise TypeError(
                f"{op}: rngs[{i}] is {type(rng).__name__}; expected numpy.random.Generator, random.Random or something with "
                "get_state and set_state"
            )
    return known


def _access(rng):
    """How a generator's state is read and set; None for what has none."""
    bits = getattr(rng, "bit_generator", rng)
    if isinstance(bits, np.random.BitGenerator):
        return (lambda: bits.state), (lambda state: setattr(bits, "state", state))
    for get, put in (("getstate", "setstate"), ("get_state", "set_state")):
        if callable(getattr(rng, get, None)) and callable(getattr(rng, put, None)):
            return getattr(rng, get), getattr(rng, put)
    return None

"""Owns `capture`: a step that is run once under observation and from then on repeated without its Python code."""

import functools
import gc
import random
import threading
import weakref

import numpy as np

import agtape as ag
from agtape import _core
from agtape._core import CaptureError, Tensor
from agtape.arguments import as_int
from agtape.optim import updates
from agtape.surroundings import Surroundings, check_same
from agtape.tree import flatten, tree_map

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)


def capture(fn=None, *, warmup=1):
    """Make a function that runs `fn` as it is at first and then repeats what it computed, on new tensors, without calling it.

    The first `warmup` calls are ordinary ones, the next is observed, and all later ones replay its plans: nothing is recorded, no plan
    is looked for. See docs/capture.md for what a replay takes anew and what it refuses.

    Args:
        fn: a function, method, module or other callable: a whole training step, a part of it, or an evaluation. Its tensors may be in
            nested containers; NumPy arrays among its arguments reach it as tensors on the default device, copied at every call.
        warmup: how many ordinary calls come first; optimizers make their state in the first one.

    Returns:
        A `Capture`, called like `fn`. Without `fn`: a decorator.

    Raises:
        TypeError: `fn` is not callable, `warmup` no int; ValueError: `warmup` is negative. Calls raise what `fn` raises, or `ag.CaptureError`.

    >>> import agtape as ag
    >>> w = ag.param([1.0])
    >>> opt = ag.optim.SGD([w], lr=0.5)
    >>> @ag.capture
    ... def step(x):
    ...     with ag.grad_tape():
    ...         loss = (w * x).sum()
    ...     loss.backward()
    ...     opt.step()
    ...     opt.zero_grad()
    ...     return loss
    >>> [step(ag.tensor([2.0])).item() for _ in range(4)]
    [2.0, 0.0, -2.0, -4.0]
    >>> step.is_captured
    True
    """
    warmup = as_int("capture", "warmup", warmup, least=0)
    if fn is None:
        return functools.partial(capture, warmup=warmup)
    if not callable(fn):
        raise TypeError(f"capture: the step is {type(fn).__name__}; expected something callable")
    return Capture(fn, warmup)


class Capture:
    """A step that is captured in one of its first calls; made by `ag.capture`.

    Args:
        fn: the step.
        warmup: how many ordinary calls come first.

    >>> import agtape as ag
    >>> double = ag.capture(lambda x: x * 2)
    >>> [double(ag.tensor([v])).item() for v in (1.0, 2.0, 3.0)]
    [2.0, 4.0, 6.0]
    """

    def __init__(self, fn, warmup):
        self._fn, self._warmup = fn, warmup
        self._lock, self._bound = threading.Lock(), weakref.WeakKeyDictionary()
        functools.update_wrapper(self, fn, updated=())
        self.reset()

    def __call__(self, *args, **kwargs):
        if _core.is_capturing():
            # Inside another step under capture it is a part of that.
            return self._fn(*args, **kwargs)
        if not self._lock.acquire(blocking=False):
            raise CaptureError(
                "capture: the step is called while a call of it is under way (on another thread, or by itself)"
            )
        try:
            return self._call(args, kwargs)
        finally:
            self._lock.release()

    def __get__(self, instance, owner=None):
        """As a method: each instance has a capture of its own."""
        if instance is None:
            return self
        found = self._bound.get(instance)
        if found is None:
            # The instance is held weakly, so that its capture, which it keeps alive, does not keep it.
            found = self._bound[instance] = Capture(_WeakMethod(self._fn, instance), self._warmup)
        return found

    @property
    def is_captured(self):
        """Whether the next call is a replay."""
        return self._replay is not None

    def reset(self):
        """Forget what was captured; the next call is observed, without calls before it if there were any.

        Returns:
            None.

        >>> import agtape as ag
        >>> step = ag.capture(lambda x: x + 1, warmup=0)
        >>> _ = step(ag.ones(2))
        >>> step.reset()
        >>> step.is_captured
        False
        """
        self._calls_before = getattr(self, "_calls_before", self._warmup)
        self._replay = self._key = self._held = self._around = self._build = None
        self._updates = []

    def _call(self, args, kwargs):
        inputs, held, key = [], [], None
        key = (_opened(args, inputs, held), _opened(kwargs, inputs, held)) if kwargs else _opened(args, inputs, held)
        if self._replay is not None:
            return self._repeat(inputs, key, args, kwargs)
        args, kwargs = tree_map(_as_tensor, (args, kwargs))
        if self._calls_before > 0:
            result = self._fn(*args, **kwargs)
            self._calls_before -= 1
            return result
        return self._observe(args, kwargs, held, key)

    def _observe(self, args, kwargs, held, key):
        """An ordinary call under observation, from which the following ones are repeated."""
        leaves, _ = flatten((args, kwargs))
        inputs = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        fn = self._fn.method if isinstance(self._fn, _WeakMethod) else self._fn
        around = Surroundings(fn, held)
        states = random.getstate(), np.random.get_state(legacy=False)
        _core.begin_capture()
        try:
            with updates.noting() as noted:
                result = self._fn(*args, **kwargs)
            _check_run(around, states)
            results, build = flatten(result)
            _check_results(results)
            # What only cycles hold is nobody's.
            gc.collect()
            names = [f"tensor {i} of the arguments" for i in range(len(inputs))]
            replay = _core.end_capture(inputs, names, [r for r in results if isinstance(r, Tensor)], around.tensors)
            around.tensors = None
        finally:
            _core.abandon_capture()
        self._build = None if isinstance(result, Tensor) else _Shape(results, build)
        self._key, self._held, self._around, self._updates = key, held, around, noted
        self._steppers = [update.optimizer for update in noted]
        self._described = _described(args, kwargs)
        self._replay = replay
        return result

    def _repeat(self, inputs, key, args, kwargs):
        if key != self._key:
            raise CaptureError(
                f"capture: the step is called with {_described(args, kwargs)}; expected {self._described}, as when it was captured: what is "
                "no tensor is baked in (captured.reset() captures anew)"
            )
        check_same(self._around, self._steppers)
        numbers = [update.numbers() for update in self._updates]
        results = self._replay.replay([_as_tensor(x) for x in inputs], numbers)
        return results[0] if self._build is None else self._build(results)


class _WeakMethod:
    """A method of an object that it does not keep alive."""

    def __init__(self, function, instance):
        self._function, self._instance = function, weakref.ref(instance)
        functools.update_wrapper(self, function, updated=())

    @property
    def method(self):
        """The bound method."""
        instance = self._instance()
        if instance is None:
            raise CaptureError("capture: the object whose method is called is gone")
        return self._function.__get__(instance)

    def __call__(self, *args, **kwargs):
        return self.method(*args, **kwargs)


class _Shape:
    """Builds what the step returned around new tensors; holds none of those that it returned then."""

    def __init__(self, results, build):
        self._plain = [None if isinstance(r, Tensor) else r for r in results]
        self._places = [i for i, r in enumerate(results) if isinstance(r, Tensor)]
        _, self._build = flatten(build([None] * len(results)))

    def __call__(self, tensors):
        values = list(self._plain)
        for place, t in zip(self._places, tensors):
            values[place] = t
        return self._build(values)


def _as_tensor(value):
    return ag.tensor(value) if isinstance(value, np.ndarray) else value


def _opened(node, inputs, held):
    """What of a container of arguments must be the same in every call; tensors and arrays in it are added to `inputs`, other objects to
    `held`, which keeps their identities."""
    if isinstance(node, (Tensor, np.ndarray)):
        inputs.append(node)
        return Tensor
    if isinstance(node, _PLAIN):
        return type(node), node
    if isinstance(node, dict):
        return dict, tuple((key, _opened(value, inputs, held)) for key, value in node.items())
    if isinstance(node, (list, tuple)):
        return type(node), tuple([_opened(value, inputs, held) for value in node])
    leaves, _ = flatten(node)
    if len(leaves) == 1 and leaves[0] is node:
        held.append(node)
        return type(node), id(node)
    return type(node), tuple([_opened(leaf, inputs, held) for leaf in leaves])


def _described(args, kwargs):
    """Arguments as a text, without the values of tensors."""
    parts = [repr(tree_map(_Word.of, a)) for a in args] + [f"{k}={tree_map(_Word.of, v)!r}" for k, v in kwargs.items()]
    return f"({', '.join(parts)})"


class _Word:
    """Stands for a tensor in a text."""

    @staticmethod
    def of(value):
        """What stands for a value: itself unless it is a tensor or an array."""
        return _Word() if isinstance(value, (Tensor, np.ndarray)) else value

    def __repr__(self):
        return "tensor"


def _check_run(around, states):
    """Refuse a step that drew random numbers which are not ours, or changed what is around it."""
    if random.getstate() != states[0]:
        raise _refused("it drew from Python's random module")
    now = np.random.get_state(legacy=False)
    if now["state"]["pos"] != states[1]["state"]["pos"] or not np.array_equal(
        now["state"]["key"], states[1]["state"]["key"]
    ):
        raise _refused("it drew from NumPy's global generator")
    drawn = around.drawn()
    if drawn:
        raise _refused(f"it drew from the generator {drawn}")
    found = around.difference()
    if found:
        raise _refused(f"it changes what is around it: {found}")


def _check_results(results):
    other = next((r for r in results if not isinstance(r, (Tensor, *_PLAIN))), None)
    if other is not None:
        raise _refused(f"it returns a {type(other).__name__}; expected tensors, numbers, texts and None, in containers")


def _refused(reason):
    return CaptureError(
        f"capture: the step cannot be repeated: {reason}, which a replay would not do anew; expected a step that depends on its "
        "arguments and on tensors only (this call has run, uncaptured)"
    )

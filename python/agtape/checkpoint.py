"""Owns `checkpoint`: segments of a model whose values are dropped after the forward pass and rebuilt in the backward pass."""

import functools
import inspect
import types

from agtape import _core

_REPLAYS = ("trace", "call")
_UNFINISHED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


def checkpoint(fn=None, /, *args, replay="trace", verify=False, rngs=(), name=None, **kwargs):
    """Call `fn(*args, **kwargs)` and keep for backward only what enters it; the values inside are rebuilt when backward needs them.

    Args:
        fn: any callable: function, method, `functools.partial`, module, object with `__call__`. Without it, or given no arguments
            while it needs some, the result is a decorator, or the decorated function.
        *args, **kwargs: anything, nested containers of tensors too.
        replay: "trace" rebuilds what ran from its recipes, without calling the function again.
        verify: whether a second call is compared by values too; what is rebuilt from recipes cannot differ.
        rngs: generators whose state a second call must find as the first did.
        name: what reports and errors call the segment; default: the callable's name.

    Returns:
        What `fn` returned. Outside a tape and under `ag.no_grad()` nothing else happens.

    Raises:
        TypeError: `fn` is not callable, or returned a generator or coroutine, of which nothing has run yet.
        ValueError: `replay` is not a known word. Whatever `fn` raises, with a note that names the segment.

    >>> import agtape as ag
    >>> w = ag.param([0.5])
    >>> with ag.grad_tape():
    ...     loss = ag.checkpoint(lambda x: (x * w).exp().sum(), ag.tensor([0.0]))
    >>> loss.backward()
    >>> w.grad.tolist()
    [0.0]
    """
    settings = {"replay": replay, "verify": verify, "rngs": rngs, "name": name}
    if replay not in _REPLAYS:
        raise ValueError(f"checkpoint: replay is {replay!r}; expected 'trace' or 'call'")
    if fn is None and not args and not kwargs:
        return functools.partial(_decorated, settings=settings)
    if not callable(fn):
        raise TypeError(f"checkpoint: the segment is {type(fn).__name__}; expected something callable")
    if not args and not kwargs and _needs_arguments(fn):
        return _decorated(fn, settings=settings)
    return _run(fn, args, kwargs, **settings)


def _decorated(fn, *, settings):
    """The function, run as a segment each time it is called."""
    if not callable(fn):
        raise TypeError(f"checkpoint: the segment is {type(fn).__name__}; expected something callable")

    @functools.wraps(fn, updated=())
    def wrapped(*args, **kwargs):
        return _run(fn, args, kwargs, **settings)

    return wrapped


def _run(fn, args, kwargs, *, replay, verify, rngs, name):
    if not _core.is_recording():
        return fn(*args, **kwargs)
    name = name or _name_of(fn)
    state = _core.get_rng_state()
    try:
        with _core._Segment(name):
            result = fn(*args, **kwargs)
    except BaseException as error:
        _core.set_rng_state(state)
        error.add_note(f"raised in checkpoint segment {name!r}, whose draws of random numbers were taken back")
        raise
    return _finished(name, result)


def _finished(name, result):
    """The result, unless it is something whose body has not run."""
    if isinstance(result, _UNFINISHED) or inspect.isawaitable(result):
        raise TypeError(
            f"checkpoint: segment {name!r} returned a {type(result).__name__}, of which nothing has run yet; expected tensors "
            "and containers of plain values (let the function run to its end and return a list)"
        )
    return result


def _needs_arguments(fn):
    """Whether a call without arguments cannot work; for a module its `forward` says so."""
    try:
        signature = inspect.signature(getattr(fn, "forward", fn))
    except (TypeError, ValueError):
        return False
    try:
        signature.bind()
    except TypeError:
        return True
    return False


def _name_of(fn):
    """A callable's name for reports: the function's, of a partial its function's, of an object its class's."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__

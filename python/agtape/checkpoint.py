"""Owns `checkpoint`: segments of a model whose values are dropped after the forward pass and rebuilt in the backward pass."""

import functools
import inspect
import threading
import types

import numpy as np

import agtape as ag
from agtape import _core
from agtape._core import Tensor
from agtape.ambient import World, generators
from agtape.arguments import as_flag, as_word, shown
from agtape.fingerprint import outline
from agtape.tree import flatten

_REPLAYS = ("trace", "call")
# What a captured variable holds that has no value yet, and one that holds the function.
_UNBOUND, _ITSELF = object(), object()
_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    np.ndarray,
    np.generic,
    np.dtype,
    _core.dtype,
    range,
    slice,
)
_REPLAYING = threading.local()
_UNFINISHED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


def checkpoint(fn=None, /, *args, replay="trace", verify=False, rngs=(), name=None, **kwargs):
    """Call `fn(*args, **kwargs)` and keep for backward only what enters it; the values inside are rebuilt when backward needs them.

    Args:
        fn: any callable: function, method, `functools.partial`, module, object with `__call__`. Without it, or given no arguments
            while it needs some, the result is a decorator, or the decorated function.
        *args, **kwargs: anything, nested containers of tensors too.
        replay: "trace" rebuilds what ran from its recipes, without calling the function again. "call" keeps no recipe and calls the
            function a second time in backward, with the random state, options, argument values and variables captured by
            `fn` itself of the first call; a second run of other ops, numbers, tensors, results or gradient rules is an error.
        verify: whether the outputs of a second call are compared too; what is rebuilt from recipes cannot differ.
        rngs: list of generators of the user's (`numpy.random.Generator`, `random.Random`, anything with `get_state` and `set_state`)
            that a second call must find as the first did, and that are set back where `fn` raises; ours, Python's and NumPy's global
            ones are known.
        name: what reports and errors call the segment; default: the callable's name.

    Returns:
        What `fn` returned. Outside a tape and under `ag.no_grad()` nothing else happens.

    Raises:
        TypeError: `fn` is not callable, or returned a generator or coroutine, of which nothing has run yet; `verify` is no bool,
            `name` no text, `rngs` no list of generators.
        ValueError: `replay` is not a known word.
        RuntimeError: in backward, a second run that differs, naming the first op that does and its line in both runs.
        Whatever `fn` raises, unchanged, with a note that names the segment; all random states, options and the default device are
            then as they were before.

    >>> import agtape as ag
    >>> w = ag.param([0.5])
    >>> with ag.grad_tape():
    ...     loss = ag.checkpoint(lambda x: ((x * w) ** 2).sum(), ag.tensor([2.0]))
    >>> loss.backward()
    >>> w.grad.tolist()
    [4.0]
    """
    checked = settings(replay, verify, rngs, name)
    if fn is None and not args and not kwargs:
        return functools.partial(_decorated, checked=checked)
    if not callable(fn):
        raise TypeError(f"checkpoint: the segment is {type(fn).__name__}; expected something callable")
    if not args and not kwargs and _needs_arguments(fn):
        return _decorated(fn, checked=checked)
    return _run(fn, args, kwargs, **checked)


def settings(replay, verify, rngs, name, op="checkpoint"):
    """The keywords of `checkpoint`, checked: a wrong one is told where it is written, not where a segment runs.

    Args:
        replay, verify, rngs, name: as in `checkpoint`.
        op: the function that they were given to, for errors.

    Returns:
        A dict of them.

    Raises:
        TypeError, ValueError: as in `checkpoint`.

    >>> settings("call", 1, (), None)
    {'replay': 'call', 'verify': True, 'rngs': (), 'name': None}
    """
    replay, verify = as_word(op, "replay", replay, _REPLAYS), as_flag(op, "verify", verify)
    if name is not None and not isinstance(name, str):
        raise TypeError(f"{op}: name is {shown(name)}; expected a text or None")
    return {"replay": replay, "verify": verify, "rngs": generators(rngs, op), "name": name}


def _decorated(fn, *, checked):
    """The function, run as a segment each time it is called."""
    if not callable(fn):
        raise TypeError(f"checkpoint: the segment is {type(fn).__name__}; expected something callable")

    @functools.wraps(fn, updated=())
    def wrapped(*args, **kwargs):
        return _run(fn, args, kwargs, **checked)

    return wrapped


def is_replaying():
    """Whether this thread is inside the second run of a segment with `replay="call"`: for counters, caches and logs of one's own.

    Returns:
        A bool; False while a segment is traced, which calls its function once.

    >>> import agtape as ag
    >>> ag.is_replaying()
    False
    """
    return getattr(_REPLAYING, "depth", 0) > 0


def _run(fn, args, kwargs, *, replay, verify, rngs, name):
    if not _core.is_recording():
        return fn(*args, **kwargs)
    name = name or _name_of(fn)
    if replay == "call":
        return _call(fn, args, kwargs, verify, rngs, name)
    world = World(rngs)
    try:
        with _core._Segment(name):
            return _finished(name, fn(*args, **kwargs))
    except BaseException as error:
        _take_back(world, error, name)
        raise


def _call(fn, args, kwargs, verify, rngs, name):
    """The first run of a segment whose function is called again."""
    leaves, build = flatten((args, kwargs))
    # An array may be written to later; tensors are given to the second run by the node, so nothing here holds one.
    plain = [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves if not isinstance(leaf, Tensor)]
    is_tensor = [isinstance(leaf, Tensor) for leaf in leaves]
    n_given, twin = sum(is_tensor), _bound_as_now(fn)
    world = World(rngs)
    run = _core._Run(name, [leaf for leaf in leaves if isinstance(leaf, Tensor)])
    try:
        with run:
            result = _finished(name, fn(*args, **kwargs))
            outs, rebuild = _outputs(name, result)
            run.enter_results(outs, outline(result))
    except BaseException as error:
        _take_back(world, error, name)
        raise
    checks = [_checksum(t) for t in outs] if verify else []

    def replay(grads, inputs):
        tensors, others = iter(inputs[:n_given]), iter(plain)
        values = [next(tensors) if is_one else next(others) for is_one in is_tensor]
        again_args, again_kwargs = build(values)
        again = run.again(inputs)
        try:
            found = _again(again, twin(), again_args, again_kwargs, world, name)
            if len(found) != n_outs:
                raise RuntimeError(
                    f"checkpoint: the replay of segment {name!r} gave {len(found)} tensors, the first run {n_outs}; expected as many"
                )
            _compare(name, checks, found)
            return again.gradients(found, grads)
        finally:
            again.undo()

    n_outs = len(outs)
    made = run.record(outs, replay)
    return rebuild([new if new is not None else old for new, old in zip(made, outs)])


def _bound_as_now(fn):
    """A function that makes twins of `fn`, each with the variables that `fn` captured bound as they are now.

    What a loop binds them to later is no concern of a second run, nor what an earlier second run did; and were one of them bound to the
    segment's own output, that would keep the function alive which it needs itself.
    """
    if type(fn) is functools.partial:
        inner, args, keywords = _bound_as_now(fn.func), fn.args, fn.keywords
        return lambda: functools.partial(inner(), *args, **keywords)
    if not isinstance(fn, types.FunctionType) or not fn.__closure__:
        return lambda: fn
    # Not the function itself, which its own output may be captured by.
    code, space, defaults, keywords = fn.__code__, fn.__globals__, fn.__defaults__, fn.__kwdefaults__
    names, extra = (fn.__name__, fn.__qualname__, fn.__module__), dict(fn.__dict__)
    captured = [_contents(cell) for cell in fn.__closure__]
    # A function that calls itself finds its twin.
    captured = [_ITSELF if value is fn else value for value in captured]

    def twin():
        cells = tuple(types.CellType() for _ in captured)
        made = types.FunctionType(code, space, names[0], defaults, cells)
        made.__kwdefaults__ = keywords
        made.__name__, made.__qualname__, made.__module__ = names
        made.__dict__.update(extra)
        for cell, value in zip(cells, captured):
            if value is not _UNBOUND:
                cell.cell_contents = made if value is _ITSELF else value
        return made

    return twin


def _contents(cell):
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value yet
        return _UNBOUND


def _take_back(world, error, name):
    """Restore the world after `error`, which stays what the user sees: a generator that fails now is only noted there."""
    error.add_note(f"raised in checkpoint segment {name!r}; its draws of random numbers were taken back")
    try:
        world.restore()
    except Exception as failure:
        reasons = "; ".join([repr(failure), *getattr(failure, "__notes__", ())])
        error.add_note(f"but not all of them: {reasons}")


def _again(run, fn, args, kwargs, world, name):
    """The tensors that a second run gives, in the world of the first."""
    present = World(world.rngs)
    depth = getattr(_REPLAYING, "depth", 0)
    generator, swapped = None, False
    try:
        # Draws of the second run come from a generator of this thread's own: the process's stream goes on for other threads.
        generator = _core.swap_own_rng(world.ours)
        swapped = True
        _REPLAYING.depth = depth + 1
        world.restore(ours=False)
        with run:
            result = fn(*args, **kwargs)
            outs, _ = _outputs(name, result)
            run.enter_results(outs, outline(result))
            found = run.snapshot(outs)
    except StopIteration as error:
        # It would end a loop of the caller's without a word.
        message = (
            f"checkpoint: the replay of segment {name!r} ran out of an iterator; pass a list, or use replay='trace'"
        )
        raise RuntimeError(message) from error
    except BaseException as error:
        error.add_note(f"raised in the replay of checkpoint segment {name!r}")
        raise
    finally:
        _REPLAYING.depth = depth
        # A generator of the user's may fail here; this thread must leave its private stream all the same.
        try:
            present.restore(ours=False)
        finally:
            if swapped:
                _core.swap_own_rng(generator)
    run.check()
    return found


def _outputs(name, result):
    """The tensors of a result, and a function that puts others in their places; refuses what could hide tensors."""
    leaves, build = flatten(result)
    for leaf in leaves:
        if not isinstance(leaf, (Tensor, *_PLAIN)):
            raise TypeError(
                f"checkpoint: segment {name!r} returned {type(leaf).__name__}; with replay='call' expected tensors, plain values and "
                "lists, tuples, dicts and dataclasses of them (use replay='trace' for any result)"
            )

    def rebuild(tensors):
        new = iter(tensors)
        return build([next(new) if isinstance(leaf, Tensor) else leaf for leaf in leaves])

    return [leaf for leaf in leaves if isinstance(leaf, Tensor)], rebuild


def _checksum(t):
    """Two sums over a tensor's values, one of them weighted by position; pending until somebody asks."""
    with ag.no_grad():
        # Adapters have no float64; their kernels give the same bits every time, so float32 tells values apart as well.
        wide = "float64" if t.device == "cpu" else "float32"
        flat = t.detach().astype(wide).reshape(-1)
        weights = ag.sin(ag.arange(flat.size, dtype=wide, device=t.device) + 1.0)
        return ag.stack([flat.sum(), (flat * weights).sum()])


def _compare(name, checks, found):
    for i, (check, t) in enumerate(zip(checks, found)):
        if not np.array_equal(check.numpy(), _checksum(t).numpy(), equal_nan=True):
            raise RuntimeError(
                f"checkpoint: the replay of segment {name!r} gave other values in output {i} than the first run; it reads something "
                "that changed, such as an array from another library"
            )


def _finished(name, result):
    """The result, unless it is something whose body has not run."""
    if isinstance(result, _UNFINISHED) or inspect.isawaitable(result):
        if isinstance(result, types.CoroutineType):
            result.close()
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

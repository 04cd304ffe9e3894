"""What may be a segment, how it is written, what it may return, and that nothing keeps it alive after its tape."""

import contextlib
import functools
import gc
import weakref

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import REPLAYS, Counted, assert_equal, batch, block, gradients, plain, segment, weights
from on_device import assert_close, float_type
from pool_bytes import active


class Layer:
    """A callable object with a method that is one, too."""

    def __init__(self, w):
        self.w = w

    def __call__(self, x, power=1):
        return block(x, self.w) ** power

    def method(self, x, power=1):
        return self(x, power)


class Net(ag.nn.Module):
    def __init__(self, w):
        self.w = w

    def forward(self, x, power=1):
        return block(x, self.w) ** power


def forms(w):
    """Every kind of callable over one weight."""
    return {
        "function": lambda x, power=1: block(x, w) ** power,
        "object": Layer(w),
        "method": Layer(w).method,
        "partial": functools.partial(Layer(w).method, power=3),
        "module": Net(w),
        "module's method": Net(w).forward,
        "partial of a module": functools.partial(functools.partial(Net(w)), power=3),
        "builtin": ag.sin,
    }


def references(fn):
    """Weak references to what a callable consists of: partials, what they call, and what a bound method belongs to."""
    parts = [fn]
    while isinstance(parts[-1], functools.partial):
        parts.append(parts[-1].func)
    # A bound method is made anew whenever it is looked up.
    parts[-1] = getattr(parts[-1], "__self__", parts[-1])
    return [weakref.ref(part) for part in parts]


def held_after(form, w, replay, end):
    """Whether anything of a callable outlives its tape."""
    fn = forms(w)[form]
    parts = references(fn)
    assert all(part() is not None for part in parts)
    with ag.grad_tape() as tape:
        loss = ag.checkpoint(fn, batch(), replay=replay).sum()
        other = ag.exp(loss)
    del fn
    if end == "backward":
        loss.backward()
    elif end == "clear":
        tape.clear()
    else:
        del loss, other, tape
    return any(part() is not None for part in parts)


@pytest.mark.parametrize("replay", REPLAYS)
@pytest.mark.parametrize("form", list(forms(None)))
def test_C20_every_kind_of_callable_works_and_is_let_go(replay, form):
    gc.collect()
    gc.disable()
    try:
        (w,) = weights(1)
        x = batch()
        expected = gradients(lambda: forms(w)[form](x @ w).sum(), [w])[1][0]
        w.grad = None
        with ag.grad_tape():
            loss = ag.checkpoint(forms(w)[form], x @ w, replay=replay).sum()
        loss.backward()
        assert_close(w.grad.numpy(), expected, rtol=1e-12)
        if form != "builtin":  # nobody can let go of it
            for end in ("backward", "clear", "drop"):
                assert not held_after(form, w, replay, end), end
    finally:
        gc.enable()


@pytest.mark.parametrize("replay", REPLAYS)
@pytest.mark.parametrize("end", ["backward", "clear", "drop"])
def test_C20_a_function_that_captures_the_name_of_its_own_output_is_freed(replay, end):
    gc.collect()
    gc.disable()
    try:
        (w,) = weights(1)
        x = batch()
        ag.eval(w, x)
        before = active()

        def run():
            h = x
            with ag.grad_tape() as tape:
                for _ in range(3):
                    h = ag.checkpoint(lambda: block(h, w), replay=replay)  # noqa: B023
                loss = h.sum()
            ag.eval(h, loss)
            if end == "backward":
                loss.backward()
            elif end == "clear":
                tape.clear()

        run()
        found = None if w.grad is None else w.grad.numpy().copy()
        w.grad = None
        assert active() == before
    finally:
        gc.enable()
    if end == "backward":
        assert_close(found, gradients(lambda: block(block(block(x, w), w), w).sum(), [w])[1][0], rtol=1e-12)


@pytest.mark.parametrize("replay", REPLAYS)
def test_C20_an_object_that_raised_in_either_run_is_let_go(replay):
    class Failing(Layer):
        fails = False

        def __call__(self, x, power=1):
            y = super().__call__(x, power)
            if self.fails:
                raise ZeroDivisionError
            return y

    (w,) = weights(1)
    x = batch()
    gc.collect()
    gc.disable()
    try:
        for fails_first in (True, False):
            layer = Failing(w)
            layer.fails, gone, loss = fails_first, weakref.ref(layer), None
            with ag.grad_tape() as tape, contextlib.suppress(ZeroDivisionError):
                loss = ag.checkpoint(layer, x, replay=replay).sum()
            layer.fails = True
            with contextlib.suppress(ZeroDivisionError):
                if loss is not None:
                    loss.backward()
            del layer, loss
            assert gone() is None, fails_first
            assert ag.tape_memory(tape).nodes == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("replay", REPLAYS)
def test_C11_captured_variables_that_are_bound_again(replay):
    leaves = weights(2)
    x, scale, calls = batch(), 2.0, 0

    def inside(h, depth=2):
        nonlocal scale, calls
        scale, calls = scale * 2.0, calls + 1
        return inside(h, depth - 1) if depth else block(h, leaves[0]) * scale

    def build(call):
        nonlocal scale
        scale = 2.0
        out = call(inside, x).sum()
        scale = 5.0
        return out

    expected = gradients(lambda: build(plain), leaves[:1])
    calls = 0
    assert_equal(gradients(lambda: build(segment(replay)), leaves[:1]), expected)
    # A second run has variables of its own.
    assert (scale, calls) == (5.0, 3)


def test_C20_the_decorator_forms():
    (w,) = weights(1)

    @ag.checkpoint
    def bare(x):
        """Documented."""
        return block(x, w)

    @ag.checkpoint(replay="call", name="named")
    def with_settings(x):
        return block(x, w)

    class Model:
        @ag.checkpoint(name="method")
        def layer(self, x):
            return block(x, w)

    assert bare.__name__ == "bare"
    assert bare.__doc__ == "Documented."
    x = batch()
    with ag.grad_tape() as tape:
        loss = Model().layer(with_settings(bare(x))).sum()
    names = [row.name for row in ag.tape_memory(tape).by_segment]
    assert names[1:] == ["named", "method"]
    assert names[0].endswith("bare")
    loss.backward()
    found, w.grad = w.grad.numpy(), None
    with ag.grad_tape():
        loss = block(block(block(x, w), w), w).sum()
    loss.backward()
    assert_close(found, w.grad.numpy(), rtol=1e-12)


def test_C20_a_function_without_arguments_is_called():
    (w,) = weights(1)
    x = batch()
    f = Counted(lambda: block(x, w))
    with ag.grad_tape():
        loss = ag.checkpoint(f).sum()
    loss.backward()
    assert f.calls == 1


@pytest.mark.parametrize("replay", REPLAYS)
def test_U01_bad_segments_are_named(replay):
    (w,) = weights(1)
    x = batch()
    with ag.grad_tape():
        with pytest.raises(TypeError, match="the segment is int; expected something callable"):
            ag.checkpoint(3, x, replay=replay)

        def generator(h):
            yield h @ w

        with pytest.raises(TypeError, match="returned a generator, of which nothing has run yet"):
            ag.checkpoint(generator, x, replay=replay)

        async def coroutine(h):
            return h @ w

        with pytest.raises(TypeError, match="returned a coroutine, of which nothing has run yet"):
            ag.checkpoint(coroutine, x, replay=replay)
        with pytest.raises(ValueError, match="replay is 'again'; expected 'trace' or 'call'"):
            ag.checkpoint(block, x, w, replay="again")
        loss = ag.checkpoint(block, x, w, replay=replay).sum()
    loss.backward()
    assert w.grad is not None


class Opaque:
    """Something that hides a tensor."""

    def __init__(self, tensor):
        self.tensor = tensor


def test_U01_a_result_that_hides_tensors_is_right_or_refused():
    (w,) = weights(1)
    x = batch()
    expected = gradients(lambda: block(x, w).sum(), [w])[1][0]
    w.grad = None
    with ag.grad_tape():
        loss = ag.checkpoint(lambda h: Opaque(block(h, w)), x).tensor.sum()
    loss.backward()
    assert_close(w.grad.numpy(), expected, rtol=1e-12)
    with (
        ag.grad_tape(),
        pytest.raises(TypeError, match=r"segment .* returned Opaque; with replay='call' expected tensors"),
    ):
        ag.checkpoint(lambda h: Opaque(block(h, w)), x, replay="call")


def test_U01_a_segment_that_consumes_an_iterator():
    (w,) = weights(1)
    x = batch()

    def inside(h, source):
        for w in source:
            h = block(h, w)
        return h

    expected = gradients(lambda: inside(x, [w, w]).sum(), [w])[1][0]
    w.grad = None
    with ag.grad_tape():
        loss = ag.checkpoint(inside, x, iter([w, w])).sum()
    loss.backward()
    assert_close(w.grad.numpy(), expected, rtol=1e-12)
    with ag.grad_tape():
        loss = ag.checkpoint(inside, x, iter([w, w]), replay="call").sum()
    with pytest.raises(RuntimeError, match="the second run ended after 0 ops; the first went on with matmul"):
        loss.backward()


def test_U01_a_segment_that_runs_out_of_an_iterator_ends_no_loop_of_the_callers():
    (w,) = weights(1)
    x = batch()

    def step(_):
        with ag.grad_tape():
            loss = ag.checkpoint(lambda h, source: block(h, next(source)), x, iter([w]), replay="call").sum()
        loss.backward()

    with pytest.raises(RuntimeError, match="ran out of an iterator"):
        list(map(step, range(3)))


@pytest.mark.parametrize("replay", REPLAYS)
def test_C19_every_backward_finds_captured_variables_as_they_were(replay):
    (w,) = weights(1)
    x, calls = batch(), 0

    def inside(h):
        nonlocal calls
        calls += 1
        return block(h, w) * float(calls)

    with ag.grad_tape():
        loss = ag.checkpoint(inside, x, replay=replay).sum()
    found = []
    for _ in range(2):
        w.grad = None
        loss.backward(retain_graph=True)
        found.append(w.grad.numpy().copy())
    assert_equal(found[0], found[1])


def test_U01_a_tape_or_a_backward_pass_inside():
    (w,) = weights(1)
    x = batch()
    side = ag.param(np.array([2.0]), dtype=float_type())

    def inside(h):
        with ag.grad_tape():
            inner = (side * side).sum()
        inner.backward()
        return block(h, w) * side.grad

    def run(call):
        w.grad = side.grad = None
        with ag.grad_tape():
            loss = call(inside, x).sum()
        loss.backward()
        return w.grad.numpy(), side.grad.numpy()

    for found, expected in zip(run(ag.checkpoint), run(lambda f, x: f(x))):
        assert_close(found, expected, rtol=1e-12)
    with ag.grad_tape(), pytest.raises(RuntimeError, match='called inside a checkpoint segment with replay="call"'):
        ag.checkpoint(inside, x, replay="call")


def test_U01_changes_in_place_of_what_lies_outside():
    (w,) = weights(1)
    x = batch()

    def inside(state, h):
        state += h @ w
        return ag.sin(state)

    def run(call):
        w.grad = None
        with ag.grad_tape():
            state = ag.zeros((16, 8), dtype=float_type()) + x @ w
            out = call(inside, state, x)
            loss = (out * state).sum()
        loss.backward()
        return w.grad.numpy()

    assert_close(run(ag.checkpoint), run(lambda f, *args: f(*args)), rtol=1e-12)
    with pytest.raises(RuntimeError, match="changed a tensor from outside in place, by recorded ops"):
        run(functools.partial(ag.checkpoint, replay="call"))
    with ag.grad_tape(), pytest.raises(RuntimeError, match=r"made a leaf of shape \[8, 8\] that requires a gradient"):
        ag.checkpoint(lambda h: h @ weights(1)[0], x, replay="call")

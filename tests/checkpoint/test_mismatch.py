"""A second run that is not the first one: an error that names the first op that differs and its line in both runs."""

import inspect
import re
import sys

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import batch, weights
from on_device import assert_close, float_type


def replayed(inside, *args, **settings):
    """The error of a backward pass through one segment."""
    with ag.grad_tape():
        out = ag.checkpoint(inside, *args, replay="call", name="seg", **settings)
        loss = out.sum() if isinstance(out, ag.Tensor) else out[0].sum()
    with pytest.raises(RuntimeError) as caught:
        loss.backward()
    return str(caught.value)


def line_of(inside, text):
    """`file:line` of a line of a function."""
    lines, start = inspect.getsourcelines(inside)
    at = next(i for i, line in enumerate(lines) if text in line)
    return f"{inspect.getsourcefile(inside)}:{start + at}"


def test_C15_another_op_is_named_with_its_line_in_both_runs():
    (w,) = weights(1)

    def inside(h):
        h = h @ w
        if ag.is_replaying():
            h = ag.cos(h)
        else:
            h = ag.sin(h)
        return h * 2.0

    message = replayed(inside, batch())
    assert message.startswith(
        "checkpoint: the replay of segment seg is not what ran first: op 1 is another op: sin at "
    )
    assert f"sin at {line_of(inside, 'ag.sin')} in the first run" in message
    assert f"cos at {line_of(inside, 'ag.cos')} in the second" in message


def test_C15_another_shape_dtype_or_attribute():
    (w,) = weights(1)
    cases = {
        "shape": lambda h: (h @ w)[: 4 if ag.is_replaying() else 8] * 1.0,
        "dtype": lambda h: (h @ w).astype("bfloat16" if ag.is_replaying() else "float16"),
        "attribute": lambda h: (h @ w).sum(axis=0 if ag.is_replaying() else 1, keepdims=True),
    }
    for name, inside in cases.items():
        assert re.search(r"op \d+ has another shape, dtype or attribute", replayed(inside, batch())), name


def test_C15_more_or_fewer_ops_and_outputs():
    (w,) = weights(1)

    def more(h):
        h = h @ w
        return ag.sin(h) if ag.is_replaying() else h

    assert re.search(
        r"the first run ended after 1 ops; the second goes on with sin at .*test_mismatch.py:\d+",
        replayed(more, batch()),
    )

    def fewer(h):
        h = h @ w
        return h if ag.is_replaying() else ag.sin(h)

    assert re.search(
        r"the second run ended after 1 ops; the first went on with sin at .*test_mismatch.py:\d+",
        replayed(fewer, batch()),
    )

    def outputs(h):
        h = h @ w
        return [h] if ag.is_replaying() else [h, h]

    assert "gave 1 tensors, the first run 2; expected as many" in replayed(outputs, batch())


def test_C15_other_numbers_and_other_wiring():
    (w,) = weights(1)
    scale = [1.0]

    def numbers(h):
        scale[0] += 1.0
        return (h @ w) * scale[0]

    assert re.search(r"op \d was given other numbers", replayed(numbers, batch()))

    def wiring(h):
        a, b = ag.sin(h @ w), ag.cos(h @ w)
        return b - a if ag.is_replaying() else a - b

    assert re.search(r"op \d reads other results: subtract at", replayed(wiring, batch()))


def test_C15_the_order_of_equal_inputs_counts():
    (w,) = weights(1)

    def inside(a, b):
        return (b - a) @ w if ag.is_replaying() else (a - b) @ w

    assert "op 0 reads other results" in replayed(inside, batch(1), batch(2))


def test_C11_values_from_other_libraries_are_compared_too():
    (w,) = weights(1)
    array = np.ones((16, 8), float_type())
    with ag.grad_tape():
        loss = ag.checkpoint(lambda h: (h @ w) * array, batch(), replay="call").sum()
    array *= 3.0
    with pytest.raises(RuntimeError, match="was given other numbers"):
        loss.backward()
    # An array that is an argument is copied at the call.
    array[:] = 1.0
    x = batch()
    with ag.grad_tape():
        loss = ag.checkpoint(lambda h, a: (h @ w) * a, x, array, replay="call").sum()
    array *= 3.0
    loss.backward()
    assert_close(w.grad.numpy(), x.numpy().sum(0)[:, None] * np.ones((1, 8)), rtol=1e-12)


def test_C11_a_slice_of_data_that_changed_is_seen():
    (w,) = weights(1)
    data = batch(4)
    with ag.grad_tape():
        loss = ag.checkpoint(lambda h: (h[:4] @ w) * data[4:8], batch(), replay="call").sum()
    data.assign_(data + 1.0)
    with pytest.raises(RuntimeError, match=r"op \d (reads another tensor or version|is another op: leaf at)"):
        loss.backward()


def test_C15_verify_compares_values():
    (w,) = weights(1)
    x = batch()
    for inside in (lambda h: ag.dropout(h @ w, 0.5), lambda h: [h @ w, h.argmax(1), h / 0.0]):
        w.grad = None
        with ag.grad_tape():
            out = ag.checkpoint(inside, x, replay="call", verify=True)
            loss = (out[0] if isinstance(out, list) else out).sum()
        loss.backward()
        assert w.grad is not None


def test_C15_verify_sees_what_no_recipe_shows(monkeypatch):
    from agtape import _core

    (w,) = weights(1)
    # A log that sees nothing: what is left is the comparison of values.
    monkeypatch.setattr(sys.modules["agtape.checkpoint"], "_core", Blind(_core))
    scale = [1.0]

    def inside(h):
        scale[0] *= 2.0
        return (h @ w) * scale[0]

    assert "gave other values in output 0 than the first run" in replayed(inside, batch(), verify=True)


class Blind:
    """The core with runs that never say that they differ."""

    def __init__(self, core):
        self._core = core

    def __getattr__(self, name):
        return getattr(self._core, name)

    def _Run(self, *args):
        return BlindRun(self._core._Run(*args))


class BlindRun:
    def __init__(self, run):
        self.run = run

    def __getattr__(self, name):
        return getattr(self.run, name)

    def __enter__(self):
        return self.run.__enter__()

    def __exit__(self, *exception):
        return self.run.__exit__(*exception)

    def again(self, inputs):
        return BlindRun(self.run.again(inputs))

    def check(self):
        """Nothing is compared."""

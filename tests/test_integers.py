"""Every public function, method and layer that takes integers refuses what is none, by name: found by their signatures, so none can be forgotten."""

import agtape as ag
import numpy as np
import pytest
from public_calls import X, call, callables, kind_of, signature

pytestmark = pytest.mark.promise("U01")


NEITHER = (1.5, "one", np.float64(1.0), np.array([1.5]), object())
TOO_LARGE = (2**63, -(2**63) - 1, 2**200, 1 << 20000)
WRONG = {
    "integer": (*NEITHER, *TOO_LARGE, True, np.True_, None),
    "integers": (*NEITHER, *TOO_LARGE, True, np.True_, None, (0, True), [0, "one"], (2**63,), (0, 1.5), (None, 0)),
    "quantity": ("one", object(), True, *TOO_LARGE[:3]),
    "quantity or bool": ("one", object(), *TOO_LARGE[:3]),
}
# Limits of what is shown: more than there is is no mistake.
NO_LIMIT = {"tape_memory.top"}
# Where None says something else than the default does.
NONE_IS_MEANT = {
    "argsort.axis", "sort.axis", "concat.axis", "take_along_axis.axis", "cross_entropy.ignore_index", "nll_loss.ignore_index",
    "NLLLoss.ignore_index", "CrossEntropyLoss.ignore_index", "tape_memory.top",
}  # fmt: skip
# Seeds of NumPy's and counters: any that 64 bits hold, without a sign.
UNSIGNED = {"manual_seed.seed"}
# Names in errors where one function does the work of two.
SAID = {"value_and_grad": "grad", "cumulative_sum": "cumulative_sum"}


ROWS = [
    (label, name, function, parameter)
    for label, name, function in callables()
    for parameter in signature(function)
    if kind_of(label, name, parameter)[0] in (*WRONG, "positional")
]


def wrong_values(label, name, parameter):
    """What is refused in that place."""
    kind, fits = kind_of(label, name, parameter)
    if kind == "positional":
        values = [v for v in WRONG["integer"] if v is not None]
        return [(v,) for v in values] + [(*fits[:-1], v) for v in values]
    owner = f"{name}.{parameter.name}"
    values = [v for v in WRONG[kind] if not (v is None and (parameter.default is None or owner in NONE_IS_MEANT))]
    if owner in NO_LIMIT:
        values = [v for v in values if not (type(v) is int and v > 0)]
    if owner in UNSIGNED:
        values = [*(v for v in values if not (type(v) is int and 0 < v < 2**64)), -1, 2**64]
    return values


def text_of(value):
    """How an error may show what it was given."""
    if isinstance(value, (tuple, list)):
        return [word for item in value for word in text_of(item)]
    if type(value) is int and value.bit_length() >= 256:
        return ["bits", "more digits", "budget is ?"]
    return [str(value), "float64" if isinstance(value, np.ndarray) else type(value).__name__, type(value).__name__]


def shown(value):
    """A value in a few letters: Python does not write every integer."""
    return f"{value:#x}"[:24] if type(value) is int else repr(value)[:40]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}({row[3].name})")
def test_U01_what_is_no_integer_is_refused_by_the_name_of_the_function(row):
    label, name, _, parameter = row
    state = ag.get_rng_state()
    fits = kind_of(label, name, parameter)[1]
    call(*row, fits)
    said = SAID.get(name, name)
    for value in wrong_values(label, name, parameter):
        with pytest.raises(Exception) as caught:
            call(*row, value)
        text = str(caught.value)
        assert type(caught.value) in (TypeError, ValueError, IndexError), f"{shown(value)}: {caught.value!r:.300}"
        assert text.startswith(f"{said}: "), f"{shown(value)}: {text!r} does not name {said}"
        assert "expected" in text, f"{shown(value)}: {text!r} does not say what was expected"
        assert any(word in text for word in text_of(value)), f"{shown(value)}: {text!r} does not say what was given"
    ag.set_rng_state(state)


def test_U01_every_parameter_of_a_public_function_is_known_here():
    unknown = [
        f"{label}({parameter.name})"
        for label, name, function in callables()
        for parameter in signature(function)
        if kind_of(label, name, parameter)[0] == "unknown"
    ]
    assert not unknown, f"say in tests/public_calls.py what these take: {', '.join(unknown)}"
    assert len(ROWS) > 150 and {"sum", "F.softmax", "nn.Linear", "Tensor.topk", "data.DataLoader"} <= {
        row[0] for row in ROWS
    }


@pytest.mark.parametrize("wrong", [1.5, "one", 2**63, -(2**63) - 1, 1 << 20000, np.array([1.5]), object()], ids=shown)
def test_U01_what_is_no_index_is_refused(wrong):
    for index in (wrong, (0, wrong), (Ellipsis, wrong)):
        with pytest.raises(IndexError, match=r"^getitem: .*(expected|out of range)"):
            X[index]
        with pytest.raises(IndexError, match=r"^setitem: .*(expected|out of range)"):
            ag.zeros(2, 4)[index] = 1.0


@pytest.mark.parametrize("wrong", [1.5, "one", True, np.True_, np.array([0, 1]), object()], ids=shown)
def test_U01_what_is_no_bound_of_a_slice_is_refused(wrong):
    for bounds in (slice(wrong, None), slice(None, wrong), slice(None, None, wrong)):
        with pytest.raises(TypeError, match=r"^getitem: slice bound .* expected integers or None"):
            X[bounds]


@pytest.mark.parametrize(
    "name", "sum mean prod max min any all var std logsumexp count_nonzero flip squeeze expand_dims roll".split()
)
def test_U01_each_of_several_axes_is_looked_at(name):
    x, shift = (X[:1], ()) if name == "squeeze" else (X, (1,) if name == "roll" else ())
    for wrong in ((0, True), [0, "one"], (2**63,), (0, 1.5), (None, 0), np.array([0.0, 1.0]), "01", {0: 1}):
        with pytest.raises((TypeError, ValueError)) as caught:
            getattr(ag, name)(x, *shift, axis=wrong)
        assert str(caught.value).startswith(f"{name}: ") and "expected" in str(caught.value)


def test_integers_of_numpy_and_tensors_are_integers():
    for axis in (1, np.int8(1), np.uint64(1), np.array(1), ag.tensor(1), ag.tensor([1])):
        assert X.sum(axis=axis).shape == X.softmax(axis=axis).sum(axis=(axis,)).shape == (2,)
        assert ag.nn.GLU(dim=axis)(X).shape == (2, 2) and ag.zeros(axis, axis).shape == (1, 1)
    assert X[:, 0 : 2**70].shape == (2, 1 * 4) and X[:, -(2**70) :].shape == (2, 4)
    assert X.reshape(np.array([4, 2])).shape == ag.zeros(ag.tensor([4, 2])).shape == (4, 2)
    assert ag.pad(X, np.array([[1, 0], [0, 2]])).shape == (3, 6) and ag.split(X, np.array([1]))[1].shape == (1, 4)


@pytest.mark.parametrize(
    "call",
    [ag.reset, ag.synchronize, ag.set_default_device, ag.device, ag.memory_stats, ag.empty_cache, ag.reset_peak_memory],
    ids=lambda call: call.__name__,
)
def test_U01_devices_that_are_no_names_are_refused(call):
    for wrong in (3, 1.5, True, b"cpu", object()):
        with pytest.raises(TypeError) as caught:
            call(wrong)
        assert str(caught.value).startswith(f"{call.__name__}: ") and type(wrong).__name__ in str(caught.value)
        assert "expected" in str(caught.value)


PLACED = [
    (label, name, function, parameter)
    for label, name, function in callables()
    for parameter in signature(function)
    if parameter.name == "device" and (label.startswith("Tensor.") or type(function) is type(ag.exp))
]


@pytest.mark.parametrize("row", PLACED, ids=lambda row: row[0])
def test_U01_a_device_that_is_none_is_refused_by_the_name_of_the_function(row):
    for wrong, kind in ((3, TypeError), (b"cpu", TypeError), (object(), TypeError), ("quantum", ValueError)):
        with pytest.raises(kind) as caught:
            call(*row, wrong)
        text = str(caught.value)
        assert text.startswith(f"{row[1]}: ") and "expected" in text
        assert "quantum" in text or type(wrong).__name__ in text


def test_U01_integers_beyond_every_float_are_refused_beside_floats():
    for huge in (10**400, 1 << 20000):
        with pytest.raises(ValueError, match=r"^add: the integer .* does not fit into float64; expected one that does"):
            X + huge
        with pytest.raises(ValueError, match=r"^var: correction is .* expected a number that float64 holds"):
            ag.var(X, correction=huge)

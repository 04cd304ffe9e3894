"""Flags, words, real numbers and dtypes that are none are refused by the name of the function, wherever a public signature has one."""

import types

import agtape as ag
import numpy as np
import pytest
from public_calls import X, call, callables, kind_of, signature

pytestmark = pytest.mark.promise("U01")

FLAT = {"flag", "word", "real", "dtype", "text"}
LAYER, OPTIMIZER = ag.nn.Linear(2, 2), ag.optim.SGD([ag.param([1.0])], lr=0.1)
# Methods of objects, whose errors name the method or, where that says little, the class.
BOUND = [
    (f"Module.{name}", name, getattr(LAYER, name))
    for name in (
        "train", "requires_grad_", "zero_grad", "named_modules", "named_parameters", "parameters", "named_buffers", "buffers", "state_dict",
        "load_state_dict", "register_buffer", "to",
    )
] + [
    ("MultiHeadAttention.forward", "MultiHeadAttention", ag.nn.MultiHeadAttention(4, 2).forward),
    ("SGD.zero_grad", "zero_grad", OPTIMIZER.zero_grad),
    ("memory_timeline.layers", "memory_timeline", ag.memory_timeline().layers),
    ("Tensor.__array__", "__array__", X.__array__),
    ("Tensor.__dlpack__", "__dlpack__", X.__dlpack__),
    ("Tensor.__array_namespace__", "__array_namespace__", X.__array_namespace__),
]  # fmt: skip
ROWS = [
    (label, name, function, parameter)
    for label, name, function in [*callables(), *BOUND]
    for parameter in signature(function)
    if kind_of(label, name, parameter)[0] in FLAT
]
NOT_ONE = np.array([True, False])
WRONG = {
    "flag": ("x", b"1", 3.5, np.float64(1.0), None, object(), [], (True,), NOT_ONE, X, ag.tensor(1.0), bool),
    "word": (3, 1.5, True, None, b"none", object(), ["none"], X),
    "real": ("x", b"1", None, object(), [1.0], {}, float, 1j),
    "dtype": (5, 1.5, None, object(), "flaot32", "int128", np.dtype("complex64"), np.int8, [1], X),
    "text": (3, 1.5, True, b"none", object(), ["none"]),
}
RIGHT = {
    "flag": (True, np.True_, np.array(True), 1, np.int64(1), ag.tensor(True), ag.tensor([1])),
    "real": (1, np.float32(0.5), np.float64(0.5), np.array(0.5), ag.tensor(0.5)),
    "dtype": (),
    "word": (),
    "text": (),
}
# None is as good as the default there.
NONE_IS_MEANT = {
    "BatchNorm.momentum",
    "BatchNorm1d.momentum",
    "BatchNorm2d.momentum",
    "RMSNorm.eps",
    "rms_norm.eps",
    "kaiming_uniform_.a",
    "kaiming_normal_.a",
}
# Numbers that are not, of those that are right elsewhere: bounds that meet, or what another argument must fit.
SAID = {"value_and_grad": "grad", "custom_gradient": "custom_op", "CustomOp": "custom_op"}


def used(result):
    """A result; of a generator, what it gives."""
    return list(result) if isinstance(result, types.GeneratorType) else result


def wrong_values(row):
    label, name, _, parameter = row
    values = WRONG[kind_of(label, name, parameter)[0]]
    may_be_none = parameter.default is None or f"{name}.{parameter.name}" in NONE_IS_MEANT
    return [v for v in values if not (v is None and may_be_none)]


def given(value):
    """How an error may show what it was given."""
    kind = value if isinstance(value, type) else type(value)
    return [repr(value), str(value), kind.__name__, type(value).__name__]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}({row[3].name})")
def test_U01_what_is_no_such_argument_is_refused_by_the_name_of_the_function(row):
    label, name, _, parameter = row
    kind, fits = kind_of(label, name, parameter)
    state = ag.get_rng_state()
    used(call(*row, fits))
    said = SAID.get(name, name)
    for value in wrong_values(row):
        with pytest.raises((TypeError, ValueError)) as caught:
            used(call(*row, value))
        text = str(caught.value)
        assert type(caught.value) is TypeError, f"{value!r}: {caught.value!r:.300}"
        assert text.startswith(f"{said}: "), f"{value!r}: {text!r} does not name {said}"
        assert parameter.name in text and "expected" in text, f"{value!r}: {text!r}"
        assert any(word in text for word in given(value)), f"{value!r}: {text!r} does not say what was given"
    if kind == "word":
        with pytest.raises(ValueError, match=rf"^{said}: {parameter.name} is 'nonsense'; expected .*'"):
            used(call(*row, "nonsense"))
    if kind == "real":
        with pytest.raises(ValueError, match=rf"^{said}: .*expected"):
            call(*row, 10**400)
    ag.set_rng_state(state)


def test_U01_the_arguments_of_every_kind_are_found():
    found = {(row[0], row[3].name) for row in ROWS}
    assert {
        ("sum", "keepdims"),
        ("Tensor.sort", "descending"),
        ("F.cross_entropy", "reduction"),
        ("nn.Linear", "bias"),
    } <= found
    assert {("pad", "mode"), ("zeros", "dtype"), ("optim.SGD", "nesterov"), ("nn.LayerNorm", "eps")} <= found
    assert len(ROWS) > 280


FLAGS = [row for row in ROWS if kind_of(*row[:2], row[3])[0] == "flag"]


@pytest.mark.parametrize("row", FLAGS, ids=lambda row: f"{row[0]}({row[3].name})")
def test_U01_what_numpy_takes_for_a_flag_is_one_everywhere(row):
    on = (np.True_, np.array(True), 1, np.int64(1), 2, ag.tensor(True), ag.tensor(1))
    off = (np.False_, np.array(False), 0, np.int64(0), ag.tensor(False), ag.tensor(0))
    for flag, same in ((True, on), (False, off)):
        expected = outcome(row, flag)
        for value in same:
            assert outcome(row, value) == expected, f"{value!r} is not taken for {flag}"


def outcome(row, value):
    """What a call gives, or how it fails: some flags ask for what cannot be done here."""
    ag.manual_seed(0)
    try:
        return described(call(*row, value))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def described(result):
    """A result as text, without addresses."""
    if isinstance(result, (tuple, list)):
        return [described(part) for part in result]
    return (
        str(result)
        if isinstance(result, (ag.Tensor, ag.nn.Module, ag.optim.Optimizer, bool))
        else type(result).__name__
    )

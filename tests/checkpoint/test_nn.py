"""Modules in segments: `Sequential(checkpoint_every=k)` and `checkpoint_sequential`."""

import copy
import pickle

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import REPLAYS, assert_equal, batch, gradients
from on_device import float_type

nn = ag.nn


def layers(n=7):
    ag.manual_seed(2)
    made = []
    for _ in range(n):
        made += [nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.2)]
    return [m.to(float_type()) for m in made]


def test_C07_sequential_in_segments():
    x = batch()
    reference = nn.Sequential(*layers())
    expected = gradients(lambda: (reference(x) ** 2).sum(), list(reference.parameters()))
    for every in (1, 3, 5, 21, 100):
        model = nn.Sequential(*layers(), checkpoint_every=every)
        assert_equal(gradients(lambda: (model(x) ** 2).sum(), list(model.parameters())), expected)  # noqa: B023
        with ag.grad_tape() as tape:
            loss = model(x).sum()
        names = [row.name for row in ag.tape_memory(tape).by_segment]
        assert names == [f"Sequential[{at}:{min(at + every, 21)}]" for at in range(0, 21, every)]
        del loss
    assert list(model.state_dict()) == list(reference.state_dict())
    model.load_state_dict(reference.state_dict())
    np.testing.assert_array_equal(model.eval()(x).numpy(), reference.eval()(x).numpy())


def test_C18_sequentials_segments_have_names():
    model = nn.Sequential(*layers(2), checkpoint_every=4)
    with ag.grad_tape() as tape:
        loss = model(batch()).sum()
    assert [row.name for row in ag.tape_memory(tape).by_segment] == ["Sequential[0:4]", "Sequential[4:6]"]
    loss.backward()


PARTS = {
    "slice": lambda model: model[:4],
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "insert": lambda model: model.insert(0, nn.Tanh()),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
def test_C07_parts_and_copies_of_a_sequential_run_in_its_segments(part):
    model = part(nn.Sequential(*layers(2), checkpoint_every=3))
    with ag.grad_tape() as tape:
        loss = model(batch()).sum()
    names = [row.name for row in ag.tape_memory(tape).by_segment]
    assert names == [f"Sequential[{at}:{min(at + 3, len(model))}]" for at in range(0, len(model), 3)]
    loss.backward()


@pytest.mark.parametrize("replay", REPLAYS)
@pytest.mark.parametrize("segments", [1, 4, 21])
def test_C07_checkpoint_sequential(replay, segments):
    x = batch()
    reference, functions = nn.Sequential(*layers()), nn.Sequential(*layers())
    expected = gradients(lambda: reference(x).sum(), list(reference.parameters()))
    calls = []

    def counted(module):
        return lambda h: (calls.append(1), module(h))[1]

    parts = [counted(m) for m in functions]
    found = gradients(
        lambda: nn.checkpoint_sequential(parts, segments, x, replay=replay).sum(), list(functions.parameters())
    )
    assert_equal(found, expected)
    # The last segment is one like the others.
    assert len(calls) == (21 if replay == "trace" else 42)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.checkpoint_sequential([ag.sin], 0, 1.0), ValueError, "segments is 0; expected at least 1"),
        (
            lambda: nn.checkpoint_sequential([ag.sin], 2, 1.0),
            ValueError,
            "2 segments of 1 functions; expected at most as many",
        ),
        (lambda: nn.checkpoint_sequential([ag.sin], 1.5, 1.0), TypeError, "segments is float; expected an int"),
        (
            lambda: nn.Sequential(nn.ReLU(), checkpoint_every=0),
            ValueError,
            "checkpoint_every is 0; expected at least 1",
        ),
        (
            lambda: nn.Sequential(nn.ReLU(), checkpoint_every=True),
            TypeError,
            "checkpoint_every is bool; expected an int",
        ),
    ],
)
def test_U01_bad_lengths_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()

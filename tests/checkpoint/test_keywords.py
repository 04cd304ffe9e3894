"""Wrong keywords of segments, tapes and reports: errors that name the call, the argument, what was given and what was expected."""

import random

import agtape as ag
import numpy as np
import pytest
from checkpoint.models import REPLAYS, batch, weights

GENERATOR = np.random.default_rng(0)
CHECKPOINT = [
    ({"replay": None}, TypeError, "replay is None; expected 'trace' or 'call'"),
    ({"replay": np.array([1, 2])}, TypeError, "replay is ndarray; expected 'trace' or 'call'"),
    ({"replay": "again"}, ValueError, "replay is 'again'; expected 'trace' or 'call'"),
    ({"verify": "yes"}, TypeError, "verify is 'yes'; expected True or False"),
    ({"verify": None}, TypeError, "verify is None; expected True or False"),
    ({"name": 3}, TypeError, "name is 3; expected a text or None"),
    ({"name": b"x"}, TypeError, "name is b'x'; expected a text or None"),
    (
        {"rngs": [random.Random(0), 3]},
        TypeError,
        "rngs[1] is int; expected numpy.random.Generator, random.Random or something",
    ),
    ({"rngs": GENERATOR}, TypeError, "rngs is Generator; expected a list of generators"),
    ({"rngs": None}, TypeError, "rngs is NoneType; expected a list of generators"),
]


@pytest.mark.promise("U01")
@pytest.mark.parametrize("replay", REPLAYS)
@pytest.mark.parametrize(("keywords", "kind", "message"), CHECKPOINT)
def test_U01_a_wrong_keyword_of_checkpoint_is_named_before_anything_runs(keywords, kind, message, replay):
    (w,) = weights(1)
    calls = []

    def inside(h):
        calls.append(h)
        return h @ w

    keywords = {"replay": replay, **keywords}
    x = batch()
    with ag.grad_tape() as tape:
        h = x @ w
        ways = [("checkpoint", lambda: ag.checkpoint(inside, h, **keywords))]
        ways += [
            ("checkpoint", lambda: ag.checkpoint(inside, **keywords)),
            ("checkpoint", lambda: ag.checkpoint(**keywords)),
        ]
        if "name" not in keywords:
            ways.append(
                ("checkpoint_sequential", lambda: ag.nn.checkpoint_sequential([inside, inside], 2, h, **keywords))
            )
        for op, way in ways:
            with pytest.raises(kind) as caught:
                way()
            assert str(caught.value).startswith(f"{op}: {message}")
            assert not hasattr(caught.value, "__notes__")
        assert ag.tape_memory(tape).nodes == 1 and calls == []
        loss = ag.checkpoint(inside, h, replay=replay).sum()
    with pytest.raises(kind):
        ag.checkpoint(inside, x, **keywords)  # outside a tape too
    loss.backward()
    assert w.grad is not None


def layer():
    return ag.nn.Linear(4, 4)


def estimate(model=None, optimizer=None, loss=None):
    return ag.estimate_memory(model or layer(), ag.ones((2, 4)), optimizer, loss)


OTHERS = {
    "grad_tape: budget is of type float; expected a positive int of bytes": lambda: ag.grad_tape(budget=1.5),
    "grad_tape: budget is of type ndarray; expected a positive int": lambda: ag.grad_tape(budget=np.array([3])),
    "grad_tape: budget is of type Tensor; expected a positive int": lambda: ag.grad_tape(budget=ag.tensor([1, 2])),
    "tape_memory: tape is int; expected a grad_tape or None": lambda: ag.tape_memory(3),
    "tape_memory: top is 'x'; expected an int or None": lambda: ag.tape_memory(top="x"),
    "tape_memory: top is -1; expected at least 0": lambda: ag.tape_memory(top=-1),
    "tape_memory: quiet is 'yes'; expected True or False": lambda: ag.tape_memory(quiet="yes"),
    "memory_stats: device is of type int; expected a name": lambda: ag.memory_stats(3),
    "peak_memory: device is of type list; expected a name": lambda: ag.peak_memory(["cpu"]),
    "reset_peak_memory: device is of type int; expected a name": lambda: ag.reset_peak_memory(3),
    "empty_cache: device is of type int; expected a name": lambda: ag.empty_cache(3),
    "memory_timeline: device is int; expected a name": lambda: ag.memory_timeline(3),
    "memory_timeline: by is 3; expected 'op' or 'segment'": lambda: ag.memory_timeline().layers(by=3),
    "memory_timeline: ax is int; expected axes": lambda: ag.memory_timeline().plot(ax=3),
    "memory_timeline: path is int; expected a text or a path": lambda: ag.memory_timeline().save(3),
    "estimate_memory: model is int; expected a module or a function": lambda: estimate(model=3),
    "estimate_memory: optimizer is str; expected one of ag.optim": lambda: estimate(optimizer="adam"),
    "estimate_memory: loss is int; expected a function": lambda: estimate(loss=3),
    "checkpoint_sequential: functions is int; expected a Sequential": lambda: ag.nn.checkpoint_sequential(3, 1, 0),
    "checkpoint_sequential: functions[1] is int; expected something callable": lambda: ag.nn.checkpoint_sequential(
        [abs, 3], 1, 0
    ),
    "checkpoint_sequential: segments is str; expected an int": lambda: ag.nn.checkpoint_sequential([abs], "1", 0),
    "checkpoint_sequential: name is 3; expected a text": lambda: ag.nn.checkpoint_sequential([abs], 1, 0, name=3),
    "Sequential: checkpoint_every is str; expected an int": lambda: ag.nn.Sequential(layer(), checkpoint_every="2"),
    "Sequential: checkpoint_every is 0; expected at least 1": lambda: ag.nn.Sequential(layer(), checkpoint_every=0),
}


@pytest.mark.promise("U01")
@pytest.mark.parametrize("message", OTHERS)
def test_U01_a_wrong_argument_of_tapes_and_reports_is_named(message):
    with pytest.raises((TypeError, ValueError)) as caught:
        OTHERS[message]()
    assert str(caught.value).startswith(message)


def test_C18_segments_of_a_sequence_have_the_name_that_they_are_given():
    (w,) = weights(1)
    with ag.grad_tape() as tape:
        y = ag.nn.checkpoint_sequential([lambda h: h @ w] * 3, 2, batch(), name="tower")
    assert [row.name for row in ag.tape_memory(tape).by_segment] == ["tower[0:1]", "tower[1:3]"]
    del y

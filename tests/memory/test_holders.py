"""Names of what holds a storage: attributes, entries and variables of functions that the caller's variables lead to."""

import functools
import types
from collections import deque, namedtuple
from dataclasses import dataclass

import agtape as ag
import numpy as np
import pytest

Pair = namedtuple("Pair", ["first", "second"])


@dataclass(slots=True)
class Slotted:
    h: object = None
    empty: object = None


class Model(ag.nn.Module):
    def __init__(self):
        self.inner = ag.nn.Sequential(ag.nn.Linear(3, 3))


def closure(h):
    def step():
        return h

    return step


def on_a_child(h):
    model = Model()
    model.inner[0].h = h
    return model


HOLDERS = {
    "it.h": lambda h: types.SimpleNamespace(h=h),
    "it.state.h": lambda h: types.SimpleNamespace(state=types.SimpleNamespace(h=h)),
    "it.inner.0.h": on_a_child,
    "it['h']": lambda h: {"h": h},
    "it['h'][1]": lambda h: {"h": [None, h]},
    "it[(0, 'h')]": lambda h: {(0, "h"): h},
    "it[0]['h'].second": lambda h: [{"h": Pair(None, h)}],
    "it[0]": lambda h: deque([h]),
    "it.keywords['h']": lambda h: functools.partial(print, h=h),
    "h of step()": closure,
    "it": lambda h: h,
}


def pending():
    w = ag.param(np.ones(100, np.float32))
    with ag.grad_tape() as tape:
        h = w.exp()
        loss = (h * h).sum()
    return tape, h, loss


@pytest.mark.parametrize("name", HOLDERS)
def test_M03_a_storage_has_the_name_that_leads_to_it(name):
    tape, h, loss = pending()
    it = HOLDERS[name](h)
    del h
    loss.item()
    (row,) = [r for r in ag.tape_memory(tape).by_storage if r.op == "exp"]
    assert (row.held_by, row.name) == ("python", name)
    del it


def test_M03_slots_have_names_and_empty_ones_none():
    tape, h, loss = pending()
    it = Slotted(h)
    del h, it.empty
    loss.item()
    assert "it.h" in [r.name for r in ag.tape_memory(tape).by_storage]


def test_M05_looking_for_names_runs_nothing_and_keeps_nothing():
    class Loud:
        def __getattr__(self, name):
            raise AssertionError(name)

        def __eq__(self, other):
            raise AssertionError("compared")

        __hash__ = object.__hash__

        def __repr__(self):
            raise AssertionError("shown")

    tape, h, loss = pending()
    loss.item()
    pending_key = ag.ones(3) * 2.0
    loud, cyclic = Loud(), [h]
    cyclic.append(cyclic)
    table = {loud: loud, pending_key: 1, "cyclic": cyclic}
    later = closure(loud)
    del h
    before = ag.last_plan()
    assert "cyclic[0]" in [r.name for r in ag.tape_memory(tape).by_storage]
    assert ag.last_plan() == before
    freed = ag.tape_memory(tape).bytes_freed_by_clear
    cyclic.clear()
    assert ag.tape_memory(tape).bytes_freed_by_clear > freed
    del table, later


def test_M05_a_walk_for_names_ends_in_large_data():
    tape, h, loss = pending()
    rows = [[object() for _ in range(1000)] for _ in range(1000)]
    behind = [*rows, h]
    del h
    loss.item()
    (row,) = [r for r in ag.tape_memory(tape).by_storage if r.op == "exp"]
    assert (row.held_by, row.name) == ("python", "")
    del rows, behind

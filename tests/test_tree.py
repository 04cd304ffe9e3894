"""Nested containers: what is opened, what is a leaf, and that building again gives the same structure."""

import dataclasses
from collections import OrderedDict, defaultdict
from typing import NamedTuple

from agtape.tree import flatten, tree_map
from hypothesis import given
from hypothesis import strategies as st


class Point(NamedTuple):
    x: object
    y: object


@dataclasses.dataclass(frozen=True)
class Record:
    value: object
    label: str = "r"


class Rows(list):
    """A list subclass: a leaf, since nothing says how to build it again."""


def test_every_kind_of_container():
    rows = Rows([1])
    tree = {"b": [1, (2, None)], "a": Point(3, Record(4)), "o": OrderedDict(z=5, y=6), "rows": rows, "empty": []}
    leaves, build = flatten(tree)
    assert leaves == [1, 2, None, 3, 4, "r", 5, 6, rows]
    again = build(leaves)
    assert again == tree
    assert list(again) == list(tree)
    assert type(again["o"]) is OrderedDict
    assert type(again["a"]) is Point
    assert again is not tree
    assert again["b"] is not tree["b"]


def test_a_default_dict_keeps_its_default():
    tree = defaultdict(list, a=1)
    again = tree_map(lambda x: x + 1, tree)
    assert again == {"a": 2}
    assert again["new"] == []
    assert tree == {"a": 1}


TREES = st.recursive(
    st.integers() | st.none() | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.builds(Point, inner, inner)
        | st.builds(Record, inner)
    ),
)


@given(TREES)
def test_building_again_gives_an_equal_tree(tree):
    leaves, build = flatten(tree)
    assert build(leaves) == tree
    assert flatten(build(range(len(leaves))))[0] == list(range(len(leaves)))

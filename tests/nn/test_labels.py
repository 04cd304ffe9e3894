"""Labels in tensors: negative ones are out of range, and errors at evaluation name the function that was called."""

import agtape as ag
import numpy as np
import pytest
from agtape.nn import functional as F

pytestmark = pytest.mark.promise("U01")
DTYPES = ("int32", "int64")
TABLE = ag.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def ids(*values, dtype="int64"):
    return ag.tensor(np.array(values, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("label", [-1, -3, 3, -(2**31)])
def test_U01_labels_outside_the_classes_are_refused_when_they_are_read(label, dtype):
    at, logp = ids(0, label, dtype=dtype), ag.zeros((2, 3))
    calls = {
        "embedding": lambda: F.embedding(at, TABLE),
        "one_hot": lambda: ag.one_hot(at, 3),
        "nll_loss": lambda: F.nll_loss(logp, at),
        "cross_entropy": lambda: F.cross_entropy(logp, at, label_smoothing=0.1, weight=ag.ones(3)),
    }
    for op, call in calls.items():
        with pytest.raises(IndexError, match=rf"^{op}: .*{label}.*\(called at .*test_labels\.py:"):
            call().numpy()
    with pytest.raises(IndexError, match=rf"^embedding: index {label} is out of range for axis 0 of size 3"):
        ag.nn.Embedding(3, 2)(at).numpy()


def test_U01_labels_inside_the_classes_are_as_they_were():
    assert F.embedding(ids(2, 0), TABLE).tolist() == [[5.0, 6.0], [1.0, 2.0]]
    assert ag.one_hot(ids(2, 0), 3).tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    assert F.nll_loss(ag.tensor([[-1.0, -2.0], [-3.0, -4.0]]), ids(1, -100)).item() == 2.0
    table = ag.param(TABLE)
    with ag.grad_tape():
        loss = F.embedding(ids(2, 2, 0), table).sum()
    loss.backward()
    assert table.grad.tolist() == [[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]]


def table_at(i):
    """The table on the device of the indices."""
    return TABLE.to(i.device)


def put(t, *key):
    t[key if len(key) > 1 else key[0]] = 1.0
    return t


CALLS = {
    "take": lambda i: ag.take(table_at(i), i, axis=0),
    "getitem": lambda i: table_at(i)[i],
    "setitem": lambda i: put(table_at(i) * 1, i),
    "take_along_axis": lambda i: ag.take_along_axis(table_at(i), i.reshape(1, 1), axis=0),
    "scatter_add": lambda i: ag.scatter_add(table_at(i), 0, i.reshape(1, 1), ag.ones((1, 1), device=i.device)),
    "index_add": lambda i: ag.index_add(table_at(i), 0, i, ag.ones((1, 2), device=i.device)),
}


@pytest.mark.parametrize("op", CALLS)
def test_U01_indices_are_refused_by_the_name_of_the_function_that_was_called(op):
    CALLS[op](ids(-1)).numpy()
    for wrong in (3, -4):
        with pytest.raises(
            IndexError, match=rf"^{op}: index {wrong} is out of range for axis \d of size 3 \(called at "
        ):
            CALLS[op](ids(wrong)).numpy()


@pytest.mark.gpu
@pytest.mark.parametrize("op", [*CALLS, "embedding", "one_hot", "nll_loss"])
def test_U01_a_gpu_refuses_indices_by_the_same_name(op):
    labels = {
        "embedding": lambda i: F.embedding(i, table_at(i)),
        "one_hot": lambda i: ag.one_hot(i, 3),
        "nll_loss": lambda i: F.nll_loss(ag.zeros((1, 3), device="gpu"), i),
    }
    call, wrong = (labels[op], -1) if op in labels else (CALLS[op], -4)
    with pytest.raises(IndexError, match=rf"^{op}: an index or label is out of range"):
        call(ids(wrong).to("gpu")).numpy()
    call(ids(2).to("gpu")).numpy()
    if op not in labels:
        call(ids(-1).to("gpu")).numpy()


def test_U01_eval_refuses_what_holds_no_tensors():
    for wrong in ("x", None, 3, 1.5, object(), ag.nn.Linear(1, 1)):
        with pytest.raises(TypeError, match=rf"^eval: got {type(wrong).__name__}; expected tensors"):
            ag.eval(ag.ones(1), wrong)
    ag.eval()
    ag.eval([], {"x": ag.ones(1) + 1, "none": None}, (3, "x"))

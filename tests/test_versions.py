"""Versions, views and exports: an update gives a tensor a new value and leaves every earlier look at it as it was."""

import agtape as ag
import numpy as np
import pytest
from pool_bytes import active, class_bytes

MIB = 1 << 20


@pytest.mark.parametrize("is_early", [True, False], ids=["evaluated", "pending"])
@pytest.mark.parametrize(
    "update",
    [
        lambda t: t.__iadd__(10.0),
        lambda t: t.__setitem__(slice(None), 99.0),
        lambda t: t.__setitem__((0, 1), 99.0),
        lambda t: t.__setitem__(ag.tensor([0, 1]), 99.0),
        lambda t: t.__setitem__(np.array([[True, False, True], [False, True, False]]), 99.0),
        lambda t: t.assign_(np.full((2, 3), 99.0, np.float32)),
        lambda t: t.fill_(99.0),
        lambda t: t.copy_(99.0),
    ],
)
def test_a_view_never_shows_an_update_of_its_base(update, is_early):
    t = ag.tensor(np.arange(6, dtype=np.float32).reshape(2, 3)) + 0
    views = {
        "slice": t[0], "column": t[:, 1], "T": t.T, "reshape": t.reshape(3, 2), "flip": ag.flip(t), "step": t[::-1, ::2],
        "broadcast": ag.broadcast_to(t, (2, 2, 3)), "detach": t.detach(), "expand": t[None],
    }  # fmt: skip
    expected = {name: view.numpy().copy() if is_early else None for name, view in views.items()}
    original = np.arange(6, dtype=np.float32).reshape(2, 3)
    export = t.numpy() if is_early else None
    update(t)
    assert not np.array_equal(t.numpy(), original)
    if is_early:
        np.testing.assert_array_equal(export, original)
    np.testing.assert_array_equal(views["slice"].numpy(), original[0])
    np.testing.assert_array_equal(views["column"].numpy(), original[:, 1])
    np.testing.assert_array_equal(views["T"].numpy(), original.T)
    np.testing.assert_array_equal(views["reshape"].numpy(), original.reshape(3, 2))
    np.testing.assert_array_equal(views["step"].numpy(), original[::-1, ::2])
    for name, value in expected.items():
        if value is not None:
            np.testing.assert_array_equal(views[name].numpy(), value)


def test_an_update_of_a_view_leaves_its_base():
    t = ag.zeros(4) + 0
    view = t[1:3]
    view += 5
    view[0] = 7
    assert t.tolist() == [0.0] * 4 and view.tolist() == [7.0, 5.0]


def test_an_update_reuses_the_buffer_when_nobody_needs_the_old_value():
    t = ag.tensor(np.zeros(MIB, np.float32))
    with ag.peak_memory() as memory:
        before = active()
        for i in range(5):
            t[i] = 1.0
            ag.eval(t)
    assert memory.peak - before < class_bytes(4 * MIB)
    assert t[:6].tolist() == [1.0] * 5 + [0.0]
    kept, export = t.detach(), t.numpy()
    t[5] = 1.0
    assert (t[5].item(), kept[5].item(), export[5]) == (1.0, 0.0, 0.0)


def test_assign_takes_the_value_only():
    w, source = ag.param([1.0]), ag.tensor([2.0])
    with ag.grad_tape():
        made = source * 2
        w.assign_(made)
        loss = (w * w).sum()
    source += 100
    loss.backward()
    assert w.tolist() == [4.0] and w.grad.tolist() == [8.0] and w.is_leaf

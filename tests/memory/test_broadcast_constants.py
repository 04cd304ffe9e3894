"""Constants as values that outlive a plan: a view of one has as much memory as it would have of a computed base."""

import agtape as ag
import pytest
from pool_bytes import active, class_bytes

HUGE = 1 << 33
BROADCAST = {
    "one": (lambda: ag.broadcast_to(ag.ones(1), (HUGE,)), 1.0),
    "no axes": (lambda: ag.broadcast_to(ag.full((), 2.0), (3, HUGE)).T, 2.0),
    "rows": (lambda: ag.broadcast_to(ag.full((3, 1), 3.0), (3, HUGE))[:, ::-2].T, 3.0),
    "reshaped": (lambda: ag.broadcast_to(ag.zeros(1), (1 << 16, 1 << 17)).reshape(HUGE, 1)[5:], 0.0),
    "reshaped rows": (lambda: ag.broadcast_to(ag.full((3, 1), 3.0), (3, HUGE)).reshape(3 * HUGE), 3.0),
}


@pytest.mark.parametrize(("make", "value"), BROADCAST.values(), ids=BROADCAST.keys())
def test_a_broadcast_constant_needs_the_memory_of_its_base(make, value):
    before = active()
    with ag.peak_memory() as scope:
        held = make()
        part = held[1:3]
        assert part.numpy().ravel()[:2].tolist() == [value] * 2 and ag.last_plan().kernels > 0
        ag.eval(held)
        assert held[-1:].numpy().ravel()[0] == value
    assert scope.peak - before <= 1024


@pytest.mark.parametrize("base", [(), (1,), (4, 1)])
def test_a_sum_of_a_broadcast_constant_needs_tiles(base):
    held = ag.broadcast_to(ag.full(base, 2.0), (4, 1 << 22))
    before = active()
    with ag.peak_memory() as scope:
        assert held.sum().item() == 2.0 * held.size
    assert scope.peak - before <= 1 << 20


def test_constants_have_the_memory_that_their_shape_says():
    before = active()
    x = ag.zeros((100, 100))
    y, z = ag.ones((100, 100)).T, ag.ones((2, 10_000)).reshape(100, 200)[:50]
    ag.eval(x, y, z)
    assert active() - before == 3 * class_bytes(40_000)
    assert [t.numpy().sum() for t in (x, y, z)] == [0.0, 1e4, 1e4]

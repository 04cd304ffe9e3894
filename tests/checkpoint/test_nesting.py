"""Segments of both replays in each other: every mix of three, with ops before and after the inner ones, whenever their values are read."""

import gc
import itertools

import agtape as ag
import pytest
from checkpoint.models import REPLAYS, assert_equal, batch, block, gradients, plain, value_bytes, weights
from on_device import assert_close, float_type, is_adapter
from pool_bytes import active

MIXES = tuple(itertools.product(REPLAYS, repeat=3))
mixed = pytest.mark.parametrize("replays", MIXES, ids="-".join)
# Where an op stands: before and after the segment in the first level, and the same in the second.
PLACES = tuple(itertools.product((False, True), repeat=4))


def tower(replays, places, ws):
    """Segments with these replays in each other around a layer, outermost first; `None` just calls."""

    def level(i, h):
        if i == len(replays):
            return ag.tanh(h @ ws[i])

        def inside(h):
            before, after = places[2 * i : 2 * i + 2] or (False, False)
            h = ag.sin(h @ ws[i]) if before else h
            h = level(i + 1, h)
            return ag.tanh(h) * h if after else h

        return inside(h) if replays[i] is None else ag.checkpoint(inside, h, replay=replays[i])

    return lambda h: level(0, h)


WAYS = {
    "unread": (lambda loss: None, 1, None),
    "read": (lambda loss: loss.item(), 1, None),
    "printed under a budget": (str, 1, "1 MiB"),
    "evaluated": (ag.eval, 1, None),
    "two passes": (lambda loss: None, 2, None),
}


@mixed
@pytest.mark.parametrize("way", WAYS)
def test_C07_C19_U01_every_mix_of_three_has_the_plain_gradients(replays, way):
    when, passes, budget = WAYS[way]
    leaves = weights(4)
    x = batch()
    for places in PLACES[:: 5 if is_adapter() else 1]:
        expected = gradients(
            lambda p=places: tower((None,) * 3, p, leaves)(x @ leaves[3]).sum(), leaves, when, passes, budget
        )
        found = gradients(lambda p=places: tower(replays, p, leaves)(x @ leaves[3]).sum(), leaves, when, passes, budget)
        assert_equal(found, expected, rtol=1e-11)


@mixed
def test_C04_C05_C06_no_mix_holds_interior_values(replays):
    leaves = weights(4)
    x = batch()
    ag.eval(x, leaves)
    gc.collect()  # what other tests left in cycles would go in between
    before = active()
    with ag.grad_tape():
        out = tower(replays, (True,) * 4, leaves)(x)
        loss = out.sum()
    del out
    loss.item()
    # The loss alone: what enters is an argument of the user's.
    assert active() - before == 64
    loss.backward()
    for leaf in leaves:
        leaf.grad = None
    del loss, leaf
    assert active() == before


@mixed
def test_C05_of_what_enters_just_what_a_replay_reads_is_kept(replays):
    leaves = weights(4)
    x = batch()
    ag.eval(x, leaves)
    gc.collect()
    before = active()
    with ag.grad_tape():
        loss = tower(replays, (True,) * 4, leaves)(ag.exp(x @ leaves[3])).sum()
    loss.item()
    # What enters; the exponential's own rule reads it too.
    assert active() - before == value_bytes() + 64
    loss.backward()


@mixed
def test_C07_an_evaluation_inside_forgets_no_recipe(replays):
    leaves = weights(4)
    x = batch()

    def build(replays):
        def read(h):
            return tower(replays[2:], (), leaves)(h) * float(h.numpy().mean())

        def middle(h):
            h = read(ag.sin(h)) if replays[1] is None else ag.checkpoint(read, ag.sin(h), replay=replays[1])
            return h * float(h.numpy().mean())

        h = x @ leaves[3]
        return ag.tanh(middle(h) if replays[0] is None else ag.checkpoint(middle, h, replay=replays[0])).sum()

    found = gradients(lambda: build(replays), leaves)
    assert_equal(found, gradients(lambda: build((None,) * 3), leaves), rtol=1e-11)


@mixed
def test_C07_inputs_require_a_gradient_and_are_leaves_in_a_second_run_as_in_the_first(replays):
    (w,) = weights(1)
    seen = {False: [], True: []}

    def level(i, h, still):
        if i == len(replays):
            return h * still
        if i:
            h, still = ag.tanh(h @ w), ag.sin(still)

        def inside(h, still):
            facts = [(t.requires_grad, t.is_leaf) for t in (h, still, w, h.detach(), h * 1.0)]
            seen[ag.is_replaying()].append((i, facts))
            # Whatever the function makes of it, it makes it twice.
            return level(i + 1, ag.exp(h * 0.1) if h.requires_grad else h, still)

        return ag.checkpoint(inside, h, still, replay=replays[i])

    with ag.grad_tape():
        loss = level(0, batch() @ w, batch(2)).sum()
    loss.backward()
    facts = [(True, False), (False, True), (True, True), (False, True), (True, False)]
    assert seen[False] == [(i, facts) for i in range(3)]
    assert all(again in seen[False] for again in seen[True])


def test_C07_what_a_module_keeps_of_its_input_is_no_parameter_after_a_second_run():
    class Keeping(ag.nn.Module):
        def forward(self, x):
            self.kept = x
            return (x * w).sum()

    (w,), model = weights(1), Keeping()
    with ag.grad_tape():
        loss = ag.checkpoint(lambda x: ag.checkpoint(model, x * 2.0, replay="call"), w)
        assert not list(model.parameters())
    del model.kept  # so that the second run gets another tensor
    loss.backward()
    assert not list(model.parameters())


@mixed
def test_C07_C19_gradients_that_are_computed_before_an_inner_segment_is_replayed_are_kept(replays):
    w, beside = weights(1) + [ag.param(batch(2).numpy(), dtype=float_type())]
    scale, shift = (ag.param([value] * 8, dtype=float_type()) for value in (1.0, 0.5))
    leaves = [w, scale, shift, beside]
    x = batch()

    def build(replays):
        def normed(h):
            # One kernel makes the gradients of scale, shift and what is normed: they are computed when the walk is at the tower.
            return ag.nn.functional.layer_norm(tower(replays[1:], (), [w] * 3)(h) + beside, (8,), scale, shift)

        h = x @ w
        return ag.tanh(normed(h) if replays[0] is None else ag.checkpoint(normed, h, replay=replays[0])).sum()

    expected = gradients(lambda: build((None,) * 3), leaves)
    assert_equal(gradients(lambda: build(replays), leaves), expected, rtol=1e-11)
    found = ag.grad(lambda *ps: layer(replays, x, *ps), argnums=(0, 1, 2, 3))(*(p.detach() for p in leaves))
    wanted = ag.grad(lambda *ps: layer((None,) * 3, x, *ps), argnums=(0, 1, 2, 3))(*(p.detach() for p in leaves))
    for a, b in zip(found, wanted, strict=True):
        assert_close(a.numpy(), b.numpy(), rtol=1e-11)


def layer(replays, x, w, scale, shift, beside):
    """A normed tower of tensors that are all given."""
    h = tower(replays, (), [w] * 4)(x @ w) + beside
    return ag.tanh(ag.nn.functional.layer_norm(h, (8,), scale, shift)).sum()


@mixed
@pytest.mark.parametrize("reads_outside", [False, True])
def test_C19_a_gradient_taken_inside_of_what_outer_tapes_recorded(replays, reads_outside):
    if is_adapter() and (reads_outside or replays[0] != replays[2]):
        return  # on software Vulkan each takes seconds
    leaves = weights(2)
    x = batch()

    def build(replays):
        call = [plain if r is None else lambda fn, h, r=r: ag.checkpoint(fn, h, replay=r) for r in replays]

        def inside(h):
            def energy(q):
                inner = call[2](lambda q: block(q, leaves[0]) * (h if reads_outside else 2.0), ag.sin(q))
                return (inner * inner).sum()

            return ag.grad(energy)(h) * h

        return call[0](lambda h: ag.sin(call[1](inside, ag.tanh(h))), x @ leaves[1]).sum()

    found = gradients(lambda: build(replays), leaves)
    assert_equal(found, gradients(lambda: build((None,) * 3), leaves), rtol=1e-9)

"""The tape over time: passes over passes, second passes, weights that change meanwhile, and chains without end."""

import time

import agtape as ag
import numpy as np
import pytest
from pool_bytes import active, class_bytes

BIG = 4096


def big(value=1.0):
    return np.full(BIG, value, np.float32)


# Second derivatives


def quartic(x):
    """x0^3 x1 + x0 x1^2, whose Hessian is [[6 x0 x1, 3 x0^2 + 2 x1], [3 x0^2 + 2 x1, 2 x0]]."""
    return x[0] ** 3 * x[1] + x[0] * x[1] ** 2


POINT = np.array([2.0, 5.0])
HESSIAN = np.array([[60.0, 22.0], [22.0, 4.0]])


def test_T06_grad_of_grad_of_grad():
    x = ag.tensor(np.array(1.5))
    f = lambda x: x**5  # noqa: E731
    for power, factor in ((4, 5.0), (3, 20.0), (2, 60.0), (1, 120.0)):
        f = ag.grad(f)
        assert f(x).item() == pytest.approx(factor * 1.5**power, rel=1e-12)


def test_T06_hessian_products_and_rows_agree():
    x = ag.tensor(POINT)
    v = np.array([1.0, -3.0])
    np.testing.assert_allclose(ag.hvp(quartic, x, ag.tensor(v)).numpy(), HESSIAN @ v, rtol=1e-12)
    rows = [ag.grad(lambda y, i=i: ag.grad(quartic)(y)[i])(x).numpy() for i in range(2)]
    np.testing.assert_allclose(np.stack(rows), HESSIAN, rtol=1e-12)
    _, forward = ag.jvp(ag.grad(quartic), (x,), (ag.tensor(v),))
    np.testing.assert_allclose(forward.numpy(), HESSIAN @ v, rtol=1e-12)


@pytest.mark.parametrize("is_inside", [True, False])
def test_T06_create_graph_records_the_gradient(is_inside):
    w = ag.param(POINT)
    tape = ag.grad_tape()
    with tape:
        loss = quartic(w)
        if is_inside:
            loss.backward(create_graph=True)
            penalty = (w.grad * ag.tensor(np.array([1.0, -3.0]))).sum()
    if not is_inside:
        loss.backward(create_graph=True)
        with tape:
            penalty = (w.grad * ag.tensor(np.array([1.0, -3.0]))).sum()
    np.testing.assert_allclose(w.grad.numpy(), [3 * 4 * 5 + 25, 8 + 20], rtol=1e-12)
    w.grad = None
    penalty.backward()
    np.testing.assert_allclose(w.grad.numpy(), HESSIAN @ [1.0, -3.0], rtol=1e-12)


def test_T06_without_create_graph_the_gradient_is_a_constant():
    w = ag.param(POINT)
    with ag.grad_tape():
        loss = quartic(w)
        loss.backward(retain_graph=True)
        slope, w.grad = w.grad, None
        assert not slope.requires_grad
        (slope * w).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), slope.numpy())


def test_T06_a_second_pass_through_a_retained_graph_is_equal():
    w = ag.param(np.linspace(0.1, 1.0, 7))
    with ag.grad_tape():
        loss = (w.tanh() * w.exp()).sum().sqrt()
    loss.backward(retain_graph=True)
    first, w.grad = w.grad.numpy(), None
    loss.backward(retain_graph=True)
    second, w.grad = w.grad.numpy(), None
    loss.backward()
    assert first.tolist() == second.tolist() == w.grad.tolist()


def test_T06_outer_tapes_record_an_inner_pass():
    w = ag.param(np.array(3.0))
    with ag.grad_tape():
        slope = ag.grad(lambda x: x**3)(w)  # 3 w^2
        loss = slope * w  # 3 w^3
    loss.backward()
    assert w.grad.item() == pytest.approx(81.0)


# How long the saved set lives


def test_T07_backward_frees_the_saved_set(no_collector):
    w = ag.param(big())
    before = active()
    with ag.grad_tape() as tape:
        y = w
        for _ in range(5):
            y = ag.sin(y).exp()
        loss = y.sum()
    del y
    loss.item()
    held = active() - before
    assert held == 5 * class_bytes(4 * BIG) + class_bytes(
        4
    )  # outputs of exp, which the next sin reads too; and the loss
    loss.backward()
    assert active() - before == class_bytes(4 * BIG) + class_bytes(4)  # w.grad and the loss
    assert ag.tape_memory(tape).nodes == 0 and ag.tape_memory(tape).bytes_total == 0
    with pytest.raises(RuntimeError, match=r"backward: tape \d+ .*retain_graph=True"):
        loss.backward()


def test_T07_retain_graph_keeps_it(no_collector):
    w = ag.param(big())
    with ag.grad_tape() as tape:
        loss = ag.sin(w).exp().sum()
    loss.backward(retain_graph=True)
    kept = ag.tape_memory(tape)
    assert kept.nodes == 3 and kept.bytes_held == kept.bytes_needed == 2 * class_bytes(4 * BIG)
    loss.backward()
    assert ag.tape_memory(tape).nodes == 0
    with pytest.raises(RuntimeError, match="retain_graph"):
        loss.backward()


def test_T07_a_failed_call_frees_nothing():
    w = ag.param([1.0, 2.0])
    with ag.grad_tape():
        out = w * w
    with pytest.raises(ValueError):
        out.backward()
    with pytest.raises(ValueError):
        out.backward(ag.ones(3))
    out.backward(ag.ones(2))
    assert w.grad.tolist() == [2.0, 4.0]


def test_T07_a_tape_goes_on_recording_after_backward_and_clear():
    w = ag.param([2.0])
    with ag.grad_tape() as tape:
        old = w * w
        (old * 1.0).sum().backward()
        fresh = (w * w * w).sum()
        mixed = (old * w).sum()
        apart = (old.detach() * w).sum()
        w.grad = None
        with pytest.raises(RuntimeError, match="detach"):
            mixed.backward()
        apart.backward(retain_graph=True)
        assert w.grad.tolist() == [4.0]
        w.grad = None
        fresh.backward()
        assert w.grad.tolist() == [12.0]
        tape.clear()
        after = (w * 5.0).sum()
    w.grad = None
    after.backward()
    assert w.grad.tolist() == [5.0]


@pytest.mark.parametrize("end", ["clear", "backward"])
@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize(
    "between", [lambda y: y, lambda y: ag.sin(y), lambda y: y[0] * 2.0, lambda y: ag.checkpoint(ag.exp, y)]
)
def test_T07_what_was_freed_is_an_error_however_far_away_it_is_read(end, others, between):
    w, v = ag.param([2.0, 3.0]), ag.param([5.0, 7.0])
    with ag.grad_tape() as tape:
        old = w * w
        if end == "clear":
            tape.clear()
        else:
            old.sum().backward()
        new = between(old)
        loss = (new * v).sum() if others else (new * 2.0).sum()
    with pytest.raises(RuntimeError, match="has freed what this needs"):
        loss.backward()
    assert v.grad is None


def test_T07_clear_is_always_allowed(no_collector):
    w = ag.param(big())
    before = active()
    with ag.grad_tape() as tape:
        tape.clear()
        loss = w.exp().sum()
        tape.clear()
        tape.clear()
    tape.clear()
    with pytest.raises(RuntimeError, match="cleared"):
        loss.backward()
    assert loss.item() == pytest.approx(BIG * np.e, rel=1e-5)  # what Python holds keeps its value
    assert active() - before == class_bytes(4)


@pytest.mark.parametrize("evaluated", [True, False])
def test_T07_dropping_the_loss_frees_everything(no_collector, evaluated):
    w = ag.param(big())
    before = active()
    with ag.grad_tape() as tape:
        loss = ag.sin(w.exp() * w).sum()
        if evaluated:
            loss.item()
    del loss
    assert active() == before
    assert ag.tape_memory(tape).nodes == 0
    del tape
    assert active() == before


# Weights that change between forward and backward


def change_assign(w):
    w.assign_(np.full(3, 100.0, np.float32))


def change_add(w):
    with ag.no_grad():
        w += 98.0


def change_item(w):
    with ag.no_grad():
        w[:] = 100.0


def change_step(w):
    w.grad = ag.full((3,), -98.0)
    ag.optim.SGD([w], lr=1.0).step()
    w.grad = None


def change_fill(w):
    with ag.no_grad():
        w.fill_(100.0)


@pytest.mark.parametrize("evaluated", [True, False])
@pytest.mark.parametrize("change", [change_assign, change_add, change_item, change_step, change_fill])
def test_T08_the_gradient_is_that_of_the_value_used(change, evaluated, no_collector):
    w = ag.param(np.full(3, 2.0, np.float32))
    before = active()
    with ag.grad_tape():
        loss = (w * w * w).sum()
    if evaluated:
        loss.item()
    change(w)
    assert w.requires_grad and w.tolist() == [100.0] * 3
    loss.backward()
    assert w.grad.tolist() == [12.0] * 3  # 3 * 2^2, not 3 * 100^2
    assert loss.item() == 24.0 and w.tolist() == [100.0] * 3
    assert active() - before == class_bytes(12) + class_bytes(4)  # the old value is gone
    with ag.grad_tape():
        loss = (w * w).sum()
    w.grad = None
    loss.backward()
    assert w.grad.tolist() == [200.0] * 3


def test_T08_one_leafs_gradient_sums_over_the_versions_used():
    w = ag.param(np.full(2, 2.0, np.float32))
    with ag.grad_tape():
        first = (w * w).sum()
        w.assign_(ag.full((2,), 5.0))
        second = (w * w * w).sum()
        loss = first + second
    loss.backward()
    assert w.grad.tolist() == [4.0 + 75.0] * 2


def test_T08_a_loaded_state_does_not_change_the_gradient():
    layer = ag.nn.Linear(2, 1, bias=False)
    layer.weight.assign_(np.array([[2.0, 3.0]], np.float32))
    x = ag.param(np.ones((1, 2), np.float32))
    with ag.grad_tape():
        loss = layer(x).sum()
    layer.load_state_dict({"weight": np.array([[70.0, 80.0]], np.float32)})
    loss.backward()
    assert x.grad.tolist() == [[2.0, 3.0]] and layer.weight.tolist() == [[70.0, 80.0]]


IN_PLACE = [
    ("+=", lambda w: w.__iadd__(1.0)),
    ("-=", lambda w: w.__isub__(1.0)),
    ("*=", lambda w: w.__imul__(2.0)),
    ("/=", lambda w: w.__itruediv__(2.0)),
    ("**=", lambda w: w.__ipow__(2.0)),
    ("t[i] = v", lambda w: w.__setitem__(0, 5.0)),
    ("fill_", lambda w: w.fill_(1.0)),
    ("zero_", lambda w: w.zero_()),
    ("copy_", lambda w: w.copy_(ag.ones(2))),
]


@pytest.mark.parametrize(("name", "call"), IN_PLACE, ids=[name for name, _ in IN_PLACE])
def test_T08_an_in_place_change_of_a_leaf_while_recording_is_an_error(name, call):
    w = ag.param([1.0, 2.0])
    with ag.grad_tape():
        loss = (w * w).sum()
        with pytest.raises(RuntimeError) as caught:
            call(w)
        assert str(caught.value).startswith(f"{name}: ") and "no_grad" in str(caught.value)
    loss.backward()
    assert w.tolist() == [1.0, 2.0] and w.grad.tolist() == [2.0, 4.0]
    call(w)  # outside it is an update like any other
    assert w.requires_grad and w.tolist() != [1.0, 2.0]


def test_T08_in_place_ops_on_other_tensors_are_recorded():
    w = ag.param([2.0, 3.0])
    with ag.grad_tape():
        h = w * 1.0
        kept = h * h  # reads h before it changes
        h += w
        h *= 2.0
        h[0] = w[1] * 10.0
        out = ag.zeros(3)
        out[1:] = w
        loss = (kept + h).sum() + (out * ag.tensor([7.0, 8.0, 9.0])).sum()
    loss.backward()
    # kept: 2 w; h[0]: 10 to w[1]; h[1]: 4 to w[1]; out: 8 and 9
    assert w.grad.tolist() == [4.0 + 8.0, 6.0 + 10.0 + 4.0 + 9.0]
    assert h.tolist() == [30.0, 12.0] and out.tolist() == [0.0, 2.0, 3.0]


# Chains of a million nodes

LONG = 1_000_000
LONG_S = 25.0


def test_T10_a_million_nodes_record_run_backward_and_drop(no_collector):
    w = ag.param(np.array(1e-3))
    before = active()
    begin = time.process_time()
    with ag.grad_tape() as tape:
        y = w
        for _ in range(LONG // 2):
            y = (y + w) * 1.0
    assert ag.tape_memory(tape).nodes == LONG
    y.backward()
    assert w.grad.item() == LONG // 2 + 1 and ag.last_backward().nodes == LONG
    assert y.item() == pytest.approx((LONG // 2 + 1) * 1e-3, rel=1e-9)
    del y
    w.grad = None
    assert ag.tape_memory(tape).nodes == 0 and active() == before
    assert time.process_time() - begin < LONG_S


@pytest.mark.parametrize("evaluated", [True, False])
def test_T10_a_million_nodes_are_dropped_without_backward(no_collector, evaluated):
    w = ag.param(np.ones(2))
    before = active()
    with ag.grad_tape() as tape:
        y = w
        for _ in range(LONG // 2):
            y = -y
        if evaluated:
            ag.eval(y)
    del y
    assert ag.tape_memory(tape).nodes == 0 and active() == before


def test_T10_a_long_chain_outside_a_tape_holds_one_value(no_collector):
    x = ag.tensor(np.zeros(BIG))
    before = active()
    with ag.peak_memory() as memory:
        for _ in range(100_000):
            x = x + 1.0
    assert x.numpy()[0] == 100_000.0
    assert memory.peak - before <= 4 * class_bytes(8 * BIG)

"""The tape: which leaves get gradients, what is kept for them, and how long."""

import agtape as ag
import numpy as np
import pytest
from pool_bytes import active, class_bytes

BIG = 4096  # elements; 16 KiB of float32 is a size class of its own


def big(value=1.0):
    return np.full(BIG, value, np.float32)


def test_T01_leaves_are_filled_and_nothing_else():
    w, v, unused = ag.param([1.0, 2.0]), ag.param([3.0, 4.0]), ag.param([5.0])
    frozen = ag.tensor([6.0, 7.0])
    with ag.grad_tape():
        hidden = w * v + frozen
        loss = (hidden * hidden).sum()
    loss.backward()
    assert w.grad.tolist() == [54.0, 120.0] and v.grad.tolist() == [18.0, 60.0]
    assert unused.grad is None and frozen.grad is None and hidden.grad is None and loss.grad is None
    assert (w.grad.shape, str(w.grad.dtype), w.grad.device) == ((2,), "float32", "cpu")
    assert not w.grad.requires_grad


def test_T01_a_second_pass_adds_until_zero_grad():
    w = ag.param([1.0, 2.0])
    opt = ag.optim.SGD([w], lr=0.1)
    for expected in ([2.0, 4.0], [4.0, 8.0], [6.0, 12.0]):
        with ag.grad_tape():
            loss = (w * w).sum()
        loss.backward()
        assert w.grad.tolist() == expected
    opt.zero_grad()
    assert w.grad is None
    with ag.grad_tape():
        loss = (w * w).sum()
    loss.backward()
    assert w.grad.tolist() == [2.0, 4.0]
    w.grad = None
    assert w.grad is None


def test_T01_twice_the_same_loss_gives_twice_the_gradient():
    w = ag.param([1.0, 2.0])
    with ag.grad_tape():
        loss = (w * w).sum()
        both = loss + loss
    both.backward(retain_graph=True)
    assert w.grad.tolist() == [4.0, 8.0]
    w.grad = None
    loss.backward(retain_graph=True)
    loss.backward()
    assert w.grad.tolist() == [4.0, 8.0]


def test_T01_a_gradient_read_before_stays_what_it_was():
    w = ag.param([1.0, 2.0])
    with ag.grad_tape():
        loss = (w * w).sum()
    loss.backward(retain_graph=True)
    first, array = w.grad, w.grad.numpy()
    loss.backward()
    assert w.grad.tolist() == [4.0, 8.0]
    assert first.tolist() == [2.0, 4.0] and array.tolist() == [2.0, 4.0]


def test_T01_inputs_and_gradient_say_what_and_how_much():
    w, v = ag.param([1.0, 2.0]), ag.param([3.0, 4.0])
    with ag.grad_tape():
        out = w * v
    out.backward(gradient=ag.tensor([10.0, 100.0]), inputs=[v])
    assert w.grad is None and v.grad.tolist() == [10.0, 200.0]
    with ag.grad_tape():
        out = w * v
    with pytest.raises(ValueError, match=r"backward: .*\[2\].*gradient="):
        out.backward()
    out.backward(np.array([1.0, 0.0], np.float32))
    assert w.grad.tolist() == [3.0, 0.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_T01_gradients_have_the_leafs_dtype_and_shape(dtype):
    w = ag.param(np.ones((2, 3)), dtype=dtype)
    with ag.grad_tape():
        loss = (w.astype("float64") * 3.0).sum()
    loss.backward()
    assert str(w.grad.dtype) == dtype and w.grad.numpy().tolist() == [[3.0] * 3] * 2


def test_T02_outside_a_tape_nothing_is_recorded():
    w = ag.param(big())
    y = (w.exp() * w).sum()
    assert not y.requires_grad and y.is_leaf
    y.item()
    with pytest.raises(RuntimeError, match=r"with ag\.grad_tape"):
        y.backward()
    with ag.grad_tape() as tape:
        with ag.no_grad():
            hidden = (w * 2).sum()
        assert not hidden.requires_grad and ag.tape_memory(tape).nodes == 0
        with pytest.raises(RuntimeError, match="no_grad"):
            hidden.backward()
    assert w.grad is None


def test_T02_outside_a_tape_no_intermediate_is_held(no_collector):
    w = ag.param(big())
    before = active()
    y = w
    for _ in range(20):
        y = ag.sin(y @ ag.ones((BIG, 1)) * w)  # the product keeps the chain from becoming one kernel
        ag.eval(y)
    assert active() - before == class_bytes(4 * BIG)


def test_T03_frozen_parts_cost_nothing(no_collector):
    x, frozen = ag.tensor(big()), ag.tensor(big(0.5))
    w = ag.param(np.ones((), np.float32))
    before = active()
    with ag.grad_tape() as tape:
        h = x
        for _ in range(10):
            h = ag.tanh(h * frozen).exp()
        assert ag.tape_memory(tape).nodes == 0 and ag.tape_memory(tape).bytes_total == 0
        loss = (h * w).sum()
    del h
    report = ag.tape_memory(tape)
    assert report.nodes == 2 and {r.op for r in report.by_op} == {"multiply", "sum", "leaf"}
    # Only what w's gradient reads: the last frozen value, which is no activation of the tape.
    assert report.bytes_needed == class_bytes(4 * BIG)
    loss.item()
    assert active() - before == class_bytes(4 * BIG) + class_bytes(4)
    loss.backward()
    assert w.grad.item() == pytest.approx(float(loss.item()), rel=1e-6) and x.grad is None


def test_T03_what_a_rule_does_not_read_is_not_kept(no_collector):
    w = ag.param(big())
    with ag.grad_tape() as tape:
        loss = (w + 1 - 2 * w).sum()  # linear: no value is needed to differentiate it
    report = ag.tape_memory(tape)
    assert report.nodes == 4 and report.bytes_needed <= class_bytes(4)  # the number 2
    loss.backward()
    assert w.grad.numpy().max() == w.grad.numpy().min() == -1.0


def test_T04_a_tape_is_left_on_any_exception():
    w = ag.param([2.0])
    for error in (ValueError, KeyboardInterrupt, GeneratorExit):
        made = []

        def work(error=error, made=made):
            with ag.grad_tape() as tape:
                made[:] = tape, (w * w).sum()
                raise error

        with pytest.raises(error):
            work()
        tape, loss = made
        assert not ag.is_grad_enabled() and not tape.is_recording and not (w * 2).requires_grad
        loss.backward()  # what was recorded before the exception is not lost
        assert w.grad.tolist() == [4.0]
        w.grad = None


def test_T04_an_inner_exception_gives_the_outer_state_back():
    w = ag.param([2.0])
    with ag.grad_tape() as outer:
        a = w * 3
        with pytest.raises(ValueError), ag.grad_tape():
            w @ ag.ones((5, 5))
        assert ag.is_grad_enabled() and outer.is_recording
        with pytest.raises(AttributeError), ag.no_grad():
            w.no_such_name  # noqa: B018
        assert ag.is_grad_enabled()
        loss = (a * w).sum()
    loss.backward()
    assert w.grad.tolist() == [12.0]


def test_T04_two_losses_two_tapes_two_backwards():
    w = ag.param([2.0])
    with ag.grad_tape() as first:
        a = (w * w).sum()
    with ag.grad_tape() as second:
        b = (w * w * w).sum()
    assert first is not second and ag.tape_memory(first).nodes == 2 and ag.tape_memory(second).nodes == 3
    b.backward()
    assert w.grad.tolist() == [12.0]
    assert ag.tape_memory(first).nodes == 2  # untouched by the other's backward
    a.backward()
    assert w.grad.tolist() == [16.0]


def test_T04_a_tape_may_be_entered_again():
    w = ag.param([3.0])
    tape = ag.grad_tape()
    with tape:
        a = w * w
    outside = a * 2
    with tape:
        loss = (a * w).sum()
    assert not outside.requires_grad
    loss.backward()
    assert w.grad.tolist() == [27.0]


def test_T04_an_inner_tape_sees_only_what_it_recorded():
    w = ag.param([2.0])
    with ag.grad_tape() as outer:
        a = w * w
        with ag.grad_tape():
            inner_loss = (a * w).sum()  # for the inner tape, a is a constant
            inner_loss.backward()
        assert w.grad.tolist() == [4.0]
        w.grad = None
        outer_loss = (a * w).sum() + inner_loss
        assert outer.is_recording
    outer_loss.backward()
    assert w.grad.tolist() == [24.0]  # w^3 twice


def test_T04_reaching_another_live_tape_names_both():
    w = ag.param([2.0])
    with ag.grad_tape():
        a = w * w
    with ag.grad_tape():
        loss = (a * w).sum()
        apart = (a.detach() * w).sum()
    with pytest.raises(RuntimeError, match=r"tape \d+ .*tape \d+ .*detach"):
        loss.backward()
    assert w.grad is None
    apart.backward()
    assert w.grad.tolist() == [4.0]


@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (lambda x: x * x, 2.0 * 3.0),
        (lambda x: x + x, 2.0),
        (lambda x: x - x, 0.0),
        (lambda x: x / x, 0.0),
        (lambda x: x**x, 27.0 * (1 + np.log(3.0))),
        (lambda x: ag.maximum(x, x), 1.0),
        (lambda x: ag.where(ag.tensor(True), x, x), 1.0),
        (lambda x: ag.where(x > 0, x, x * x) + x * 0, 1.0),
        (lambda x: ag.concat([x.reshape(1), x.reshape(1), x.reshape(1)]), 3.0),
        (lambda x: ag.stack([x, x * x]), 7.0),
        (lambda x: x.reshape(1, 1) @ x.reshape(1, 1), 6.0),
        (lambda x: ag.einsum("i,i,i->", x.reshape(1), x.reshape(1), x.reshape(1)), 27.0),
        (lambda x: x * x.exp() + x * x.exp(), 2 * np.exp(3.0) * 4.0),
        (lambda x: x, 1.0),
    ],
)
def test_T05_every_use_of_a_tensor_counts(f, slope):
    w = ag.param(np.array(3.0))
    with ag.grad_tape():
        loss = f(w).sum()
    loss.backward()
    assert w.grad.item() == pytest.approx(slope, rel=1e-12, abs=1e-12)
    assert ag.grad(lambda x: f(x).sum())(ag.tensor(np.array(3.0))).item() == pytest.approx(slope, rel=1e-12, abs=1e-12)


def test_T05_a_tensor_returned_as_its_own_output():
    w = ag.param([2.0])
    with ag.grad_tape():
        pass
    w.backward()
    assert w.grad.tolist() == [1.0]
    outs, pull = ag.vjp(lambda x: (x, x, x * 2), ag.tensor([3.0]))
    assert [o.tolist() for o in outs] == [[3.0], [3.0], [6.0]]
    assert pull((ag.tensor([1.0]), ag.tensor([10.0]), ag.tensor([100.0])))[0].tolist() == [211.0]


def test_T05_one_leaf_passed_as_two_arguments():
    x = ag.tensor([3.0])
    first, second = ag.grad(lambda a, b: (a * a * b).sum(), argnums=(0, 1))(x, x)
    assert (first.tolist(), second.tolist()) == ([18.0], [9.0])


def test_T12_broadcast_leaves_get_gradients_of_their_own_shape():
    b, s = ag.param(np.ones((3, 1))), ag.param(np.array(2.0))
    with ag.grad_tape():
        loss = (ag.ones((2, 3, 4), dtype="float64") * b * s).sum()
    loss.backward()
    assert b.grad.tolist() == [[16.0]] * 3 and s.grad.item() == 24.0


def test_U01_no_leaves_to_fill_is_an_error_that_uses_nothing_up():
    w = ag.param([2.0])
    with ag.grad_tape():
        loss = (w * w).sum()
    for empty in ([], ()):
        with pytest.raises(ValueError, match="backward: inputs is empty; expected leaves"):
            loss.backward(inputs=empty)
    loss.backward(inputs=w)
    assert w.grad.tolist() == [4.0]

"""Custom ops: several inputs and outputs, plain arguments, second derivatives, no leaks, errors in rules."""

import gc
import weakref

import agtape as ag
import numpy as np
import pytest

X, Y = ag.tensor(np.array([0.5, 1.5, -2.0])), ag.tensor(np.array([2.0, -1.0, 3.0]))


def test_one_input_one_output():
    square = ag.custom_gradient(lambda x: x * x, lambda g, inputs, out: g * 2 * inputs[0], name="my_square")
    assert square.name == "my_square"
    assert square(X).tolist() == [0.25, 2.25, 4.0]
    assert ag.grad(lambda x: square(x).sum())(X).tolist() == [1.0, 3.0, -4.0]
    leaf = ag.tensor(X.numpy(), requires_grad=True)
    with ag.grad_tape():
        loss = square(leaf).sum()
    loss.backward()
    assert leaf.grad.tolist() == [1.0, 3.0, -4.0]


def test_several_inputs_outputs_and_plain_arguments():
    @ag.custom_op
    def sum_and_product(x, power, y, *, scale=1.0):
        return x**power + y, x * y * scale

    @sum_and_product.gradient
    def rule(grads, inputs, outputs):
        x, power, y = inputs
        return grads[0] * power * x ** (power - 1) + grads[1] * y, None, grads[0] + grads[1] * x

    s, _ = sum_and_product(X, 2, Y)
    np.testing.assert_array_equal(s.numpy(), X.numpy() ** 2 + Y.numpy())
    assert ag.testing.gradcheck(lambda x, y: sum_and_product(x, 3, y), (X, Y), order=2)
    assert ag.testing.gradcheck(lambda x, y: sum_and_product(x, 3, y)[1], (X, Y), order=2)  # one output unused


def test_T06_a_rule_written_with_the_output_has_a_right_second_derivative():
    exp = ag.custom_gradient(lambda x: x.exp(), lambda g, inputs, out: g * out)
    assert ag.testing.gradcheck(exp, X, order=2)
    np.testing.assert_allclose(ag.grad(ag.grad(exp))(ag.tensor(np.array(0.3))).item(), np.exp(0.3), rtol=1e-12)


def test_the_forward_function_is_not_recorded_and_runs_once():
    calls = []

    @ag.custom_op
    def op(x):
        calls.append(x.requires_grad)
        for _ in range(5):
            x = x * 2
        return x

    op.gradient(lambda g, inputs, out: g * 32)
    leaf = ag.tensor(X.numpy(), requires_grad=True)
    with ag.grad_tape() as tape:
        out = op(leaf)
        assert ag.tape_memory(tape).nodes <= 2  # the op, and the leaf if it is counted
        loss = out.sum()
    loss.backward()
    assert calls == [False]
    assert leaf.grad.tolist() == [32.0] * 3


def test_an_op_without_rule_refuses_to_be_differentiated():
    sort = ag.custom_op(lambda x: x * 1, name="my_sort")
    assert repr(sort) == "CustomOp(my_sort, not differentiable)"
    assert sort(X).tolist() == X.tolist()
    with pytest.raises(TypeError, match="custom_op my_sort: has no gradient rule"):
        ag.grad(lambda x: sort(x).sum())(X)


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        (lambda g, i, o: (g, g), ValueError, "returned 2 gradients; expected 1"),
        (lambda g, i, o: g.sum(), ValueError, r"gradient 0 has shape \(\); expected \(3,\)"),
        (lambda g, i, o: 1.0, TypeError, "gradient 0 is float; expected a tensor or None"),
        (lambda g, i, o: 1 / 0, ZeroDivisionError, "division"),
    ],
)
def test_U01_a_rules_mistakes_are_named_and_its_own_errors_pass_through(rule, error, message):
    op = ag.custom_gradient(lambda x: x * 1, rule, name="broken")
    with pytest.raises(error, match=message):
        ag.grad(lambda x: op(x).sum())(X)
    assert ag.grad(lambda x: x.sum())(X).tolist() == [1.0] * 3


def test_bad_definitions_are_named():
    with pytest.raises(TypeError, match="custom_op: forward is int; expected a function"):
        ag.custom_op(3)
    with pytest.raises(TypeError, match="custom_gradient: backward is NoneType"):
        ag.custom_gradient(abs, None)
    with pytest.raises(TypeError, match="forward returned list; expected a tensor or a tuple of tensors"):
        ag.custom_op(lambda x: [x])(X)


def test_nothing_keeps_a_custom_op_alive_after_its_tape():
    gc.collect()
    gc.disable()
    try:

        class Marker:
            def __call__(self, g, inputs, out):
                return g * out

        marker = Marker()
        op = ag.custom_gradient(lambda x: x.exp(), marker)
        leaf = ag.tensor(X.numpy(), requires_grad=True)
        with ag.grad_tape():
            loss = op(leaf).sum()
        gone = weakref.ref(marker)
        del op, marker, loss
        assert gone() is None
    finally:
        gc.enable()

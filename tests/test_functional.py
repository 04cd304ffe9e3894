"""Function transforms: values against formulas, JAX as judge, nesting, containers, bad input."""

import dataclasses
from typing import NamedTuple

import agtape as ag
import jax
import numpy as np
import pytest
from jax.test_util import check_vjp
from pool_bytes import active, class_bytes


def t(*values):
    return ag.tensor(np.array(values, np.float64))


def test_grad_and_value_and_grad():
    value, slope = ag.value_and_grad(lambda x: (x**3).sum())(t(1.0, 2.0))
    assert value.item() == 9.0
    assert slope.tolist() == [3.0, 12.0]
    assert ag.grad(lambda x, y: (x * y).sum(), argnums=1)(t(3.0), t(4.0)).tolist() == [3.0]
    both = ag.grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(t(3.0), t(4.0))
    assert [g.tolist() for g in both] == [[4.0], [3.0]]
    assert ag.grad(lambda x, k=1: (x * k).sum())(t(1.0), k=5).tolist() == [5.0]
    assert ag.grad(lambda *a: (a[-1] ** 2).sum(), argnums=-1)(t(1.0), t(3.0)).tolist() == [6.0]


def test_arrays_and_numbers_are_taken():
    assert ag.grad(lambda x: x * x)(3.0).item() == 6.0
    assert ag.grad(lambda x: (x * x).sum())(np.array([1.0, 2.0])).tolist() == [2.0, 4.0]


def test_aux_is_passed_on():
    (value, aux), slope = ag.value_and_grad(lambda x: ((x * 2).sum(), {"n": x.size}), has_aux=True)(t(1.0, 2.0))
    assert value.item() == 6.0
    assert aux == {"n": 2}
    slope2, aux = ag.grad(lambda x: ((x * 2).sum(), "kept"), has_aux=True)(t(1.0, 2.0))
    assert slope2.tolist() == slope.tolist() == [2.0, 2.0]
    assert aux == "kept"


def test_an_unused_argument_has_zero_gradient():
    assert ag.grad(lambda x, y: x.sum(), argnums=1)(t(1.0), t(1.0, 2.0)).tolist() == [0.0, 0.0]
    assert ag.grad(lambda x: x.detach().sum() + 0 * x.sum())(t(5.0)).tolist() == [0.0]
    assert ag.grad(lambda x: t(1.0).sum())(t(5.0)).tolist() == [0.0]


def test_grad_leaves_no_trace_on_leaves():
    w, x = ag.param([2.0]), ag.param([3.0])
    assert ag.grad(lambda x: (w * x).sum())(x).tolist() == [2.0]
    assert w.grad is None
    assert x.grad is None


class Pair(NamedTuple):
    a: object
    b: object


@dataclasses.dataclass
class Box:
    value: object
    name: str = "box"


def test_nested_containers_keep_their_structure():
    def loss(tree):
        return (tree["x"][0] * 2 + tree["x"][1].a * 3 + tree["box"].value * 4).sum()

    tree = {"x": [t(1.0), Pair(t(2.0), None)], "box": Box(t(3.0)), "flag": True}
    value, grads = ag.value_and_grad(loss)(tree)
    assert value.item() == 20.0
    assert grads["x"][0].tolist() == [2.0]
    assert isinstance(grads["x"][1], Pair)
    assert grads["x"][1].a.tolist() == [3.0]
    assert grads["x"][1].b is None
    assert isinstance(grads["box"], Box)
    assert grads["box"].value.tolist() == [4.0]
    assert grads["flag"] is None
    hv = ag.hvp(lambda p: (p["a"] ** 3 * p["b"]).sum(), {"a": t(2.0), "b": t(3.0)}, {"a": t(1.0), "b": t(10.0)})
    assert hv["a"].tolist() == [6 * 2 * 3 * 1.0 + 3 * 4 * 10.0]
    assert hv["b"].tolist() == [3 * 4 * 1.0]


def test_T06_grad_nests_to_any_depth():
    f = ag.grad(ag.grad(ag.grad(lambda x: x**5)))
    assert f(t(2.0).reshape(())).item() == 60 * 4.0
    mixed = ag.grad(lambda x: ag.grad(lambda y: (x * y * y).sum())(x).sum())
    assert mixed(t(3.0)).tolist() == [4 * 3.0]  # d/dx of 2 x y at y = x, y held by the inner grad: 2y + 2x


def test_T06_nested_grad_keeps_the_two_variables_apart():
    # Perturbation confusion (Siskind and Pearlmutter 2005): d/dx [x * d/dy (x + y)] = 1, not 2.
    outer = ag.grad(lambda x: x * ag.grad(lambda y: x + y)(ag.tensor(1.0)))
    assert outer(ag.tensor(1.0)).item() == 1.0


def test_T06_hessian_vector_products_agree_in_four_ways(rng):
    a, x, v = rng.standard_normal((4, 4)), rng.standard_normal(4), rng.standard_normal(4)
    f = lambda x: ag.tanh(ag.tensor(a) @ x).sum() + (x**4).sum()  # noqa: E731
    x, v = ag.tensor(x), ag.tensor(v)
    expected = jax.jvp(jax.grad(lambda x: jax.numpy.tanh(a @ x).sum() + (x**4).sum()), (x.numpy(),), (v.numpy(),))[1]
    ways = {
        "hvp": ag.hvp(f, x, v),
        "jvp of grad": ag.jvp(ag.grad(f), (x,), (v,))[1],
        "grad of the product": ag.grad(lambda x: (ag.grad(f)(x) * v).sum())(x),
        "vjp of grad": ag.vjp(ag.grad(f), x)[1](v)[0],
    }
    for way, got in ways.items():
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10, err_msg=way)
    leaf = ag.tensor(x.numpy(), requires_grad=True)
    with ag.grad_tape():
        loss = f(leaf)
        loss.backward(create_graph=True)
        product = (leaf.grad * v).sum()
    leaf.grad = None
    product.backward()
    np.testing.assert_allclose(leaf.grad.numpy(), expected, rtol=1e-10)


def test_vjp_may_be_called_again_and_takes_containers():
    (y, z), pull = ag.vjp(lambda a, b: (a * b, {"s": a + b}), t(2.0), t(3.0))
    assert y.tolist() == [6.0]
    assert z["s"].tolist() == [5.0]
    assert [g.tolist() for g in pull((t(1.0), {"s": t(0.0)}))] == [[3.0], [2.0]]
    assert [g.tolist() for g in pull((t(0.0), {"s": t(1.0)}))] == [[1.0], [1.0]]
    y, pull, aux = ag.vjp(lambda a: (a * 2, "kept"), t(1.0), has_aux=True)
    assert aux == "kept"
    assert pull(t(1.0))[0].tolist() == [2.0]


def test_jvp_equals_the_directional_derivative(rng):
    x, v = rng.standard_normal((3, 2)), rng.standard_normal((3, 2))
    f = lambda m: {"e": m.exp(), "p": (m * m).sum(axis=0), "n": 3}  # noqa: E731
    y, dy = ag.jvp(f, ag.tensor(x), ag.tensor(v))
    np.testing.assert_allclose(y["e"].numpy(), np.exp(x))
    np.testing.assert_allclose(dy["e"].numpy(), np.exp(x) * v)
    np.testing.assert_allclose(dy["p"].numpy(), (2 * x * v).sum(0))
    assert dy["n"] is None
    _, still = ag.jvp(lambda x: t(1.0), t(2.0), t(1.0))
    assert still.tolist() == [0.0]
    _, two = ag.jvp(lambda a, b: a * b, (t(2.0), t(3.0)), (t(1.0), t(10.0)))
    assert two.tolist() == [23.0]


def test_jvp_nests(rng):
    second = ag.jvp(lambda x: ag.jvp(lambda y: y**3, (x,), (t(1.0),))[1], (t(2.0),), (t(1.0),))[1]
    assert second.tolist() == [12.0]
    assert ag.grad(lambda x: ag.jvp(lambda y: y**3, (x,), (t(1.0),))[1].sum())(t(2.0)).tolist() == [12.0]


F = ag.nn.functional
JUDGED = {
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b, 1e-3), [(3, 4), (4,), (4,)]),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(2, 3, 4), (2, 3, 4), (2, 3, 2)],
    ),
    "cross_entropy": (lambda x: F.cross_entropy(x, [0, 2, 1], label_smoothing=0.1), [(3, 4)]),
    "linear": (F.linear, [(2, 3, 4), (5, 4), (5,)]),
    "gelu": (lambda x: F.gelu(x) + F.gelu(x, approximate="tanh"), [(3, 4)]),
}


@pytest.mark.parametrize("name", JUDGED)
def test_jax_judges_the_gradients(name, rng):
    f, shapes = JUDGED[name]
    args = tuple(rng.standard_normal(s) for s in shapes)

    def run(*arrays):
        return f(*map(ag.tensor, arrays)).numpy()

    def run_vjp(*arrays):
        y, pull = ag.vjp(f, *map(ag.tensor, arrays))
        return y.numpy(), lambda cotangent: tuple(g.numpy() for g in pull(ag.tensor(np.asarray(cotangent))))

    check_vjp(run, run_vjp, args, eps=1e-5)


def test_U01_misuse_is_named():
    square = lambda x: (x * x).sum()  # noqa: E731
    for bad, message in [
        (ag.tensor(np.ones(2, np.int64)), "grad: argument 0 is int64; expected a floating tensor"),
        (3, "grad: argument 0 is int64"),
        ("text", "grad: argument 0 is str"),
        ([1, "a"], "grad: argument 0 is list; expected a floating tensor or a container of them"),
    ]:
        with pytest.raises(TypeError, match=message):
            ag.grad(square)(bad)
    with pytest.raises(ValueError, match="argnums=2 but 1 positional arguments were given"):
        ag.grad(square, argnums=2)(t(1.0))
    with pytest.raises(TypeError, match=r"grad: the function returned shape \(2,\); expected a scalar"):
        ag.grad(lambda x: x)(t(1.0, 2.0))
    with pytest.raises(TypeError, match="grad: the function returned float; expected a floating scalar tensor"):
        ag.grad(lambda x: 1.0)(t(1.0))
    with pytest.raises(TypeError, match="with has_aux=True expected"):
        ag.grad(square, has_aux=True)(t(1.0))
    with pytest.raises(ValueError, match="2 primals but 1 vectors"):
        ag.jvp(lambda a, b: a, (t(1.0), t(1.0)), (t(1.0),))
    with pytest.raises(ValueError, match=r"hvp: a vector has shape \(2,\); expected \(1,\)"):
        ag.hvp(square, t(1.0), t(1.0, 2.0))
    with pytest.raises(ValueError, match="the cotangent has 2 leaves; expected 1"):
        ag.vjp(square, t(1.0))[1]((t(1.0), t(1.0)))
    # nothing above left a tape open
    assert ag.grad(square)(t(3.0)).tolist() == [6.0]


def held_bytes(step):
    """Bytes that what 20 calls return keeps alive, and nothing else of them."""
    kept, before = [], active()
    for _ in range(20):
        kept.append(step())
    ag.eval(*kept)
    return active() - before


def test_T07_T15_results_keep_only_themselves_alive():
    """Not the values that the gradient was computed from: a list of losses is common."""
    p = ag.param(np.ones(100_000, np.float32))
    ones = ag.ones(100_000)
    ag.eval(p, ones)
    loss = lambda a: (ag.exp(a) * a).sum()  # noqa: E731
    aside = []

    def keeping(a):
        h = ag.exp(a)
        aside.append(h.mean())
        return (h * a).sum()

    def kept_aside():
        ag.value_and_grad(keeping)(p)
        return aside.pop()

    steps = {
        "what the function kept": kept_aside,
        "value": lambda: ag.value_and_grad(loss)(p)[0],
        "aux": lambda: ag.value_and_grad(lambda a: (loss(a), {"mean": [a.mean()]}), has_aux=True)(p)[0][1]["mean"][0],
        "vjp": lambda: ag.vjp(loss, p)[0],
        "vjp aux": lambda: ag.vjp(lambda a: (loss(a), a.mean()), p, has_aux=True)[2],
        "jvp": lambda: ag.jvp(loss, (p,), (ones,))[0],
        "tangent": lambda: ag.jvp(loss, (p,), (ones,))[1],
        "nested": lambda: ag.value_and_grad(lambda a: (ag.grad(loss)(a) ** 2).sum())(p)[0],
    }
    for name, step in steps.items():
        assert held_bytes(step) == 20 * class_bytes(4), name


def test_T07_results_are_plain_where_no_tape_is_open_and_recorded_where_one_is():
    square = lambda a: (a * a).sum()  # noqa: E731
    p = ag.param([3.0])
    value, _ = ag.value_and_grad(square)(p)
    result, _ = ag.vjp(square, p)
    for plain in (value, result, ag.jvp(square, (p,), (ag.ones(1),))[0]):
        with ag.grad_tape():
            (scaled,) = ag.grad(lambda a, plain=plain: (a * plain).sum())(p)
            total = (p * plain).sum()
        total.backward()
        assert (scaled.item(), p.grad.tolist()) == (9.0, [9.0])
        p.grad = None
    with ag.grad_tape():
        value, slope = ag.value_and_grad(square)(p)
        total = value + slope.sum()
    total.backward()
    assert p.grad.tolist() == [8.0]


def test_T07_a_leaf_in_aux_is_the_leaf():
    p = ag.param([3.0])
    (_, (leaf,)), _ = ag.value_and_grad(lambda a: ((a * p).sum(), (p,)), has_aux=True)(ag.tensor([1.0]))
    assert leaf is p

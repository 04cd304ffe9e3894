"""Products take the elementwise ops that read them as epilogues: the same bits, fewer launches, fewer bytes."""

import math

import agtape as ag
import numpy as np
import pytest
from agtape import _core

SHAPE = (6, 23, 70)


def arrays(dtype):
    rng = np.random.default_rng(3)
    sizes = {"x": SHAPE, "w": (70, 130), "b": (130,), "v": (130, 70), "c": (70,)}
    made = {k: rng.standard_normal(s).astype("float32") * (1 if k == "x" else 0.2) for k, s in sizes.items()}
    return {k: ag.tensor(v).astype(dtype) for k, v in made.items()}


def launches():
    return _core.last_plan_launches()


def named(rows):
    return [row["kernel"] for row in rows]


def results(fuse, compute, dtype="float32"):
    """Outputs of a function of tensors and its gradients, as arrays, and the launches of forward and backward."""
    with ag.options(fuse=fuse):
        leaves = {k: t.detach() for k, t in arrays(dtype).items()}
        for t in leaves.values():
            t.requires_grad = True
        with ag.grad_tape():
            outs = compute(**leaves)
            loss = sum((o.astype("float32") ** 2).sum() for o in outs)
        loss.backward()
        rows = launches()
        grads = [t.grad for t in leaves.values() if t.grad is not None]
        return [t.numpy() for t in [*outs, loss, *grads]], rows


def bias(x, w, b, v, c):
    return [x @ w + b]


def layers(x, w, b, v, c):
    u = ag.nn.functional.gelu(x @ w + b, approximate="tanh")
    return [x + ag.relu(u @ v + c)]


def tied(x, w, b, v, c):
    h = x
    for _ in range(3):
        h = ag.tanh(ag.silu(h @ w + b) @ v * 0.3) + h
    return [h]


def several(x, w, b, v, c):
    p = x @ w
    return [ag.exp(p * 0.1), p - b, ag.where(p > 0, p, 0.5 * p)]


def wider(x, w, b, v, c):
    return [(x @ w + b).astype("float64"), ((x @ w) * 2).astype("float16")]


def vectors(x, w, b, v, c):
    return [(x @ c) * 2 + 1, ag.relu(c @ w + b), (x.transpose(1, 2) @ x) + 1]


@pytest.mark.promise("T16")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("compute", [bias, layers, tied, several, wider, vectors])
def test_T16_epilogues_change_no_bit(compute, dtype):
    fused, rows = results(True, compute, dtype)
    apart, plain = results(False, compute, dtype)
    assert "fused_matmul" in named(rows) and "fused_matmul" not in named(plain)
    assert len(rows) < len(plain)
    for x, y in zip(fused, apart, strict=True):
        assert x.dtype == y.dtype and x.tobytes() == y.tobytes()


@pytest.mark.promise("T16")
def test_T16_integer_products_take_epilogues_too():
    a, b = ag.arange(35).reshape(5, 7), ag.arange(42).reshape(7, 6)
    ag.eval(a, b)
    y = (a @ b + 3) // 2
    ag.eval(y)
    assert named(launches()) == ["fused_matmul"]
    np.testing.assert_array_equal(y.numpy(), (np.arange(35).reshape(5, 7) @ np.arange(42).reshape(7, 6) + 3) // 2)


def test_a_layer_is_one_launch_without_a_place_for_the_product():
    t = arrays("float32")
    y = ag.relu((t["x"] @ t["w"]).reshape(2, 3, 23, 130) * 2)
    ag.eval(y)
    (row,) = launches()
    assert row["kernel"] == "fused_matmul" and len(row["ins"]) == 2
    assert [o["shape"] for o in row["outs"]] == [[2, 3, 23, 130]]
    with ag.peak_memory() as scope:
        held = ag.memory_stats("cpu").active
        z = ag.relu(t["x"] @ t["w"] + t["b"])
        ag.eval(z)
    # The result's bytes alone were ever alive.
    assert scope.peak - held == ag.memory_stats("cpu").active - held >= z.nbytes


def test_a_product_that_others_need_is_an_output_beside_its_epilogue():
    t = arrays("float32")
    p = t["x"] @ t["w"]
    y = ag.relu(p + t["b"])
    ag.eval(y)
    (row,) = launches()
    assert row["kernel"] == "fused_matmul" and len(row["outs"]) == 2 and all(o["is_kept"] for o in row["outs"])
    expected = np.maximum(p.numpy() + t["b"].numpy(), 0)
    assert y.numpy().tobytes() == expected.tobytes()


def test_a_gradient_of_a_shared_weight_is_added_up_in_its_products():
    w = ag.param(np.full((8, 8), 0.1, "float32"))
    with ag.grad_tape():
        h = ag.ones((4, 8))
        for _ in range(5):
            h = ag.relu(h @ w)
        loss = h.sum()
    loss.backward()
    rows = launches()
    sums = [r for r in rows if r["kernel"] == "fused_matmul" and r["shape"] == [8, 8]]
    assert len(sums) == 4 and all(len(r["ins"]) == 3 and len(r["outs"]) == 1 for r in sums)
    # Five layers, the loss, the slope of the last layer, four gradients of inputs and five of the weight.
    assert len(rows) - named(rows).count("full") == 16 and named(rows).count("fused") == 1


@pytest.mark.promise("T01")
def test_T01_an_earlier_gradient_is_added_in_the_products_of_the_next():
    t = arrays("float32")
    w, v = ag.param(t["w"].numpy()), ag.param(t["v"].numpy())

    def backward():
        with ag.grad_tape():
            h = ag.relu(t["x"] @ w) @ v
            loss = (h * h).mean()
        loss.backward()
        return launches()

    backward()
    first = [p.grad.numpy().copy() for p in (w, v)]
    rows = backward()
    shapes = [list(p.shape) for p in (w, v)]
    added = [r for r in rows if r["kernel"] == "fused_matmul" and r["shape"] in shapes]
    assert len(added) == 2 and all(len(r["ins"]) == 3 and len(r["outs"]) == 1 for r in added)
    for p, g in zip((w, v), first, strict=True):
        np.testing.assert_array_equal(p.grad.numpy(), g + g)


@pytest.mark.parametrize(
    ("name", "compute"),
    [
        ("transposed", lambda p, x: p.transpose(1, 2) + 1),
        ("a part", lambda p, x: p[:3] + 1),
        ("spread", lambda p, x: p.reshape(1, 6, 23, 130) + ag.ones((2, 1, 1, 1))),
        ("a sum", lambda p, x: (p * 2).sum()),
    ],
)
def test_what_is_not_elementwise_of_the_whole_product_is_no_epilogue(name, compute):
    t = arrays("float32")
    p = t["x"] @ t["w"]
    y = compute(p, t["x"])
    expected = compute(ag.tensor(p.detach().numpy()), None).numpy()
    p = t["x"] @ t["w"]
    y = compute(p, t["x"])
    ag.eval(y)
    assert "fused_matmul" not in named(launches())
    np.testing.assert_array_equal(y.numpy(), expected)


def test_what_is_made_after_the_product_is_not_moved_before_it():
    t = arrays("float32")
    p = t["x"] @ t["w"]
    y = p + ag.cumsum(p, axis=-1)
    ag.eval(y)
    assert named(launches()) == ["matmul", "cumsum", "fused"]
    np.testing.assert_array_equal(y.numpy(), p.numpy() + ag.cumsum(p, axis=-1).numpy())


def test_no_epilogue_has_more_tensors_than_a_kernel_may_bind():
    t = arrays("float32")
    p = t["x"] @ t["w"]
    more = [ag.tensor(np.full((6, 23, 130), i, "float32")) for i in range(12)]
    y = p
    for m in more:
        y = y * 0.5 + m
    ag.eval(y)
    assert all(len(r["ins"]) + len(r["outs"]) <= 8 for r in launches())
    expected = p.numpy()
    for i in range(12):
        expected = expected * np.float32(0.5) + np.float32(i)
    np.testing.assert_array_equal(y.numpy(), expected)


def test_empty_products_keep_their_expression():
    x, w = ag.zeros((3, 0)), ag.zeros((0, 4))
    np.testing.assert_array_equal(ag.exp(x @ w + 1).numpy(), np.full((3, 4), math.e, "float32"))
    assert ag.relu(ag.zeros((0, 5)) @ ag.zeros((5, 4)) + 1).shape == (0, 4)


@pytest.mark.promise("C01")
def test_C01_a_replay_is_not_merged_with_the_product_it_repeats():
    def grads(checkpointed):
        t = arrays("float32")
        w, v = t["w"].detach(), t["v"].detach()
        w.requires_grad = v.requires_grad = True

        def block(h):
            return ag.nn.functional.gelu(h @ w) @ v + h

        with ag.grad_tape():
            h = t["x"]
            for _ in range(2):
                h = ag.checkpoint(block, h) if checkpointed else block(h)
            loss = (h**2).mean()
        loss.backward()
        rows = launches()
        return (w.grad.numpy(), v.grad.numpy()), sum(k in ("matmul", "fused_matmul") for k in named(rows))

    (plain, products), (replayed, more) = grads(False), grads(True)
    assert all(x.tobytes() == y.tobytes() for x, y in zip(plain, replayed, strict=True))
    assert more > products

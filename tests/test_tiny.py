"""The front door: what a newcomer notices first, all of it in a few seconds."""

import pickle
import time

import agtape as ag
import numpy as np
import pytest

LIMIT_S = 5.0


@pytest.fixture(scope="module", autouse=True)
def clock():
    """This file stays quick; processor time, so that a busy machine does not fail it."""
    begin = time.process_time()
    yield
    spent = time.process_time() - begin
    assert spent < LIMIT_S, f"the tests of this file took {spent:.1f} s of processor time"


def test_numbers_go_in_and_come_out():
    x = ag.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert (str(x.dtype), x.shape, x.device, x.nbytes) == ("float32", (2, 2), "cpu", 16)
    assert (x @ x + 1).tolist() == [[8.0, 11.0], [16.0, 23.0]]
    assert x.mean().item() == 2.5
    assert "3." in repr(x)
    np.testing.assert_array_equal(x.numpy(), np.array([[1, 2], [3, 4]], np.float32))


def test_results_agree_with_numpy(rng):
    a, b = rng.standard_normal((3, 4)), rng.standard_normal(4)
    x, y = ag.tensor(a), ag.tensor(b)
    got = ag.sum(ag.exp(-x) * y.sin(), axis=1) / (1 + ag.max(x))
    np.testing.assert_allclose(got.numpy(), (np.exp(-a) * np.sin(b)).sum(1) / (1 + a.max()), rtol=1e-12)


def test_T01_a_gradient_is_what_calculus_says():
    w = ag.param([1.0, 2.0, 3.0])
    with ag.grad_tape():
        loss = (w**3).sum()
    loss.backward()
    assert w.grad.tolist() == [3.0, 12.0, 27.0]


def test_T02_without_a_tape_the_error_says_how_to_record():
    with pytest.raises(RuntimeError, match="grad_tape"):
        (ag.param([1.0]) * 2).sum().backward()


def test_T06_functions_are_differentiated_twice():
    assert ag.grad(ag.grad(lambda x: x**4))(ag.tensor(2.0)).item() == 48.0
    product = ag.hvp(lambda x: (x[0] ** 2) * x[1], ag.tensor([3.0, 5.0]), ag.tensor([1.0, 0.0]))
    assert product.tolist() == [10.0, 6.0]


def test_a_line_is_fitted_and_the_second_step_reuses_its_plans(rng):
    x = rng.standard_normal((64, 3)).astype(np.float32)
    true = np.array([1.0, -2.0, 0.5], np.float32)
    inputs, targets = ag.tensor(x), ag.tensor(x @ true + 3.0)
    w, b = ag.param(np.zeros(3, np.float32)), ag.param(np.zeros((), np.float32))
    opt = ag.optim.SGD([w, b], lr=0.2)
    for step in range(100):
        if step == 2:
            before = ag.plan_cache_stats()
        with ag.grad_tape():
            loss = ((inputs @ w + b - targets) ** 2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
    after = ag.plan_cache_stats()
    np.testing.assert_allclose(w.numpy(), true, atol=1e-3)
    assert abs(b.item() - 3.0) < 1e-3 and loss.item() < 1e-5
    assert after.misses == before.misses and after.hits > before.hits


def test_a_module_learns(rng):
    x = rng.standard_normal((128, 2)).astype(np.float32)
    inputs, labels = ag.tensor(x), ag.tensor((x[:, 0] * x[:, 1] > 0).astype(np.int64))
    ag.manual_seed(1)
    model = ag.nn.Sequential(ag.nn.Linear(2, 32), ag.nn.ReLU(), ag.nn.Linear(32, 2))
    opt = ag.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        with ag.grad_tape():
            loss = ag.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        opt.step()
        opt.zero_grad()
    right = (model(inputs).argmax(axis=1) == labels).numpy().mean()
    assert loss.item() < 0.2 and right > 0.95
    assert set(model.state_dict()) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_M01_the_report_adds_up_and_clear_frees():
    w = ag.param(np.ones(1000, np.float32))
    with ag.grad_tape() as tape:
        loss = (w.exp() * w).sum()
        report = ag.tape_memory(tape)
        assert report.nodes == 3
        assert report.bytes_total == report.bytes_operands + report.bytes_activations + report.bytes_graph
        assert report.bytes_needed >= 8000
    tape.clear()
    assert ag.tape_memory(tape).bytes_total == 0
    with pytest.raises(RuntimeError, match="clear"):
        loss.backward()


def test_views_and_exports_keep_their_values():
    x = ag.zeros(4)
    view, array = x[1:3], x.numpy()
    x += 1
    x[0] = 9
    assert x.tolist() == [9.0, 1.0, 1.0, 1.0]
    assert view.tolist() == [0.0, 0.0] and array.tolist() == [0.0] * 4
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_U01_a_mistake_is_named_and_costs_nothing():
    w = ag.param(np.ones((2, 3), np.float32))
    with ag.grad_tape():
        y = (w * 2).sum()
        with pytest.raises(ValueError, match=r"matmul.*\[2, 3\].*\[2, 3\]"):
            w @ w
        loss = y * y
    loss.backward()
    assert w.grad.tolist() == [[48.0] * 3] * 2


def test_a_seed_repeats_the_draw():
    ag.manual_seed(7)
    first = ag.randn(5).tolist()
    second = ag.randn(5).tolist()
    ag.manual_seed(7)
    assert ag.randn(5).tolist() == first != second


def test_U02_tensors_travel():
    x = ag.tensor(np.arange(3.0))
    assert pickle.loads(pickle.dumps(x)).tolist() == [0.0, 1.0, 2.0]
    assert isinstance(np.ones(3) * x, ag.Tensor)
    assert [float(v) for v in x] == [0.0, 1.0, 2.0] and len(x) == 3 and bool(x.sum())


def test_T13_a_nan_is_traced_to_its_op():
    with pytest.raises(FloatingPointError, match=r"log.*test_tiny\.py"), ag.detect_anomaly():
        ag.log(ag.tensor([-1.0])).sum().item()

"""Optimizers: many steps against NumPy, groups, state dicts, leaves of every kind, bad input."""

import agtape as ag
import numpy as np
import pytest

SHAPES = [(3, 4), (5,), ()]


def sgd_reference(p, grads, lr=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False):
    buf = None
    for g in grads:
        g = (-g if maximize else g) + weight_decay * p
        if momentum:
            buf = g if buf is None else momentum * buf + (1 - dampening) * g
            g = g + momentum * buf if nesterov else buf
        p = p - lr * g
    return p


def adam_reference(p, grads, decoupled=False, lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, maximize=False):
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        g = -g if maximize else g
        if decoupled:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
        p = p - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
    return p


CASES = [
    (ag.optim.SGD, sgd_reference, {}),
    (ag.optim.SGD, sgd_reference, {"weight_decay": 0.1}),
    (ag.optim.SGD, sgd_reference, {"momentum": 0.9}),
    (ag.optim.SGD, sgd_reference, {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    (ag.optim.SGD, sgd_reference, {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
    (ag.optim.SGD, sgd_reference, {"momentum": 0.8, "maximize": True}),
    (ag.optim.Adam, adam_reference, {}),
    (ag.optim.Adam, adam_reference, {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (ag.optim.Adam, adam_reference, {"maximize": True}),
    (ag.optim.AdamW, lambda p, g, **k: adam_reference(p, g, True, **k), {"weight_decay": 0.2}),
    (ag.optim.AdamW, lambda p, g, **k: adam_reference(p, g, True, **k), {"weight_decay": 0.0, "betas": (0.0, 0.5)}),
]


def give_gradients(leaves, slopes):
    """Make each leaf's gradient the given array, by a backward pass."""
    with ag.grad_tape():
        loss = sum((p * ag.tensor(s.astype(str(p.dtype)))).sum() for p, s in zip(leaves, slopes))
    loss.backward()


def drawn(rng, steps, dtype=np.float64):
    starts = [rng.standard_normal(s).astype(dtype) for s in SHAPES]
    return starts, [[rng.standard_normal(s) for s in SHAPES] for _ in range(steps)]


@pytest.mark.parametrize(("optimizer", "reference", "options"), CASES)
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-10), (np.float32, 2e-4)])
def test_seven_steps_equal_numpy(optimizer, reference, options, dtype, rtol, rng):
    starts, slopes = drawn(rng, 7, dtype)
    leaves = [ag.tensor(p, requires_grad=True) for p in starts]
    opt = optimizer(leaves, lr=0.1, **options)
    identities = [id(p) for p in leaves]
    for step in slopes:
        give_gradients(leaves, step)
        assert opt.step() is None
        opt.zero_grad()
    assert [id(p) for p in leaves] == identities
    for i, (p, start) in enumerate(zip(leaves, starts)):
        assert p.requires_grad
        assert p.is_leaf
        assert p.grad is None
        expected = reference(start.astype(np.float64), [s[i] for s in slopes], lr=0.1, **options)
        np.testing.assert_allclose(p.numpy(), expected, rtol=rtol, atol=rtol)


def test_groups_have_their_own_settings_and_one_closure(rng):
    starts, slopes = drawn(rng, 3)
    leaves = [ag.tensor(p, requires_grad=True) for p in starts]
    opt = ag.optim.Adam([{"params": leaves[:1], "lr": 0.3}, {"params": leaves[1]}], lr=0.1)
    opt.add_param_group({"params": leaves[2:], "betas": (0.5, 0.5)})
    for step in slopes:

        def closure(step=step):
            opt.zero_grad()
            give_gradients(leaves, step)
            return "loss"

        assert opt.step(closure) == "loss"
    for i, options in enumerate([{"lr": 0.3}, {}, {"betas": (0.5, 0.5)}]):
        expected = adam_reference(starts[i], [s[i] for s in slopes], **options)
        np.testing.assert_allclose(leaves[i].numpy(), expected, rtol=1e-10)


def test_a_leaf_without_gradient_is_skipped_and_keeps_its_own_count(rng):
    starts, slopes = drawn(rng, 4)
    leaves = [ag.tensor(p, requires_grad=True) for p in starts]
    opt = ag.optim.Adam(leaves, lr=0.1)
    for number, step in enumerate(slopes):
        give_gradients(leaves, step)
        if number in (0, 2):
            leaves[1].grad = None
        opt.step()
        opt.zero_grad()
    assert [opt.state[p]["step"] for p in leaves] == [4, 2, 4]
    for i, used in enumerate([(0, 1, 2, 3), (1, 3), (0, 1, 2, 3)]):
        np.testing.assert_allclose(
            leaves[i].numpy(), adam_reference(starts[i], [slopes[k][i] for k in used]), rtol=1e-10
        )


def test_accumulated_gradients_are_summed(rng):
    starts, slopes = drawn(rng, 2)
    leaves = [ag.tensor(p, requires_grad=True) for p in starts]
    for step in slopes:
        give_gradients(leaves, step)
    ag.optim.SGD(leaves, lr=0.1).step()
    for i, p in enumerate(leaves):
        np.testing.assert_allclose(p.numpy(), starts[i] - 0.1 * (slopes[0][i] + slopes[1][i]), rtol=1e-10)


@pytest.mark.parametrize(("optimizer", "options"), [(ag.optim.SGD, {"momentum": 0.9}), (ag.optim.AdamW, {})])
def test_a_state_dict_continues_the_same_run(optimizer, options, rng):
    starts, slopes = drawn(rng, 6)

    def run(leaves, opt, steps):
        for step in steps:
            give_gradients(leaves, step)
            opt.step()
            opt.zero_grad()

    whole = [ag.tensor(p, requires_grad=True) for p in starts]
    run(whole, optimizer(whole, lr=0.1, **options), slopes)
    first = [ag.tensor(p, requires_grad=True) for p in starts]
    opt = optimizer(first, lr=0.1, **options)
    run(first, opt, slopes[:3])
    state, values = opt.state_dict(), [p.numpy().copy() for p in first]
    run(first, opt, slopes[3:])  # the saved state is a snapshot
    second = [ag.tensor(p, requires_grad=True) for p in values]
    again = optimizer(second, lr=7.0, **options)
    again.load_state_dict(state)
    assert again.param_groups[0]["lr"] == 0.1
    run(second, again, slopes[3:])
    for a, b, c in zip(whole, first, second):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        np.testing.assert_array_equal(a.numpy(), c.numpy())


def test_loading_checks_before_it_changes():
    opt = ag.optim.Adam([ag.param([1.0, 2.0])], lr=0.1)
    with pytest.raises(
        ValueError, match=r"Adam.load_state_dict: groups of \[2\] parameters were given; expected \[1\]"
    ):
        opt.load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]})
    state = {0: {"step": 1, "exp_avg": np.zeros(3), "exp_avg_sq": np.zeros(2)}}
    with pytest.raises(ValueError, match=r"exp_avg of parameter 0 has shape \(3,\); expected \(2,\)"):
        opt.load_state_dict({"state": state, "param_groups": opt.state_dict()["param_groups"]})
    assert not opt.state


def test_a_state_dict_that_lacks_something_is_refused_before_anything_changes(rng):
    leaves = [ag.tensor(rng.standard_normal(2), requires_grad=True) for _ in range(2)]
    opt = ag.optim.Adam([{"params": leaves[:1]}, {"params": leaves[1:], "lr": 0.2}], lr=0.1)
    give_gradients(leaves, [np.ones(2)] * 2)
    opt.step()
    saved = opt.state_dict()
    first, second = saved["param_groups"]
    no_rate = {k: v for k, v in second.items() if k not in ("lr", "eps")}
    both = r"expected a dict with 'state', 'param_groups'$"
    cases = [
        ({}, ValueError, r"the state dict has the keys \[\] and lacks \['state', 'param_groups'\]; " + both),
        ({"state": {}}, ValueError, r"the state dict has the keys \['state'\] and lacks \['param_groups'\]; " + both),
        ([1], TypeError, r"the state dict is list; " + both),
        ({**saved, "state": None}, TypeError, r"'state' is NoneType; expected a dict$"),
        ({**saved, "state": {0: 1}}, TypeError, r"the state of parameter 0 is int; expected a dict$"),
        ({**saved, "param_groups": [first, 3]}, TypeError, r"group 1 is int; expected a dict with 'params'$"),
        (
            {**saved, "param_groups": [{"lr": 1.0}, second]},
            ValueError,
            r"group 0 has the keys \['lr'\] and lacks \['params'\]",
        ),
        (
            {**saved, "param_groups": [{**first, "lr": 9.0}, no_rate]},
            ValueError,
            r"group 1 has the keys \['betas', 'weight_decay', 'maximize', 'params'\] and lacks \['lr', 'eps'\]; expected a dict "
            r"with 'lr', 'betas', 'eps', 'weight_decay', 'maximize'$",
        ),
    ]
    for given, error, message in cases:
        state, groups = opt.state, opt.param_groups
        with pytest.raises(error, match=r"^Adam\.load_state_dict: " + message):
            opt.load_state_dict(given)
        assert opt.state is state
        assert opt.param_groups is groups
        assert [g["lr"] for g in groups] == [0.1, 0.2]
    opt.load_state_dict({**saved, "param_groups": [{**first, "initial_lr": 0.1}, second]})
    opt.step()


def test_state_of_a_parameter_that_left_its_group_is_not_saved():
    leaves = [ag.param([1.0]), ag.param([2.0])]
    opt = ag.optim.SGD(leaves, lr=0.1, momentum=0.9)
    give_gradients(leaves, [np.array([1.0]), np.array([3.0])])
    opt.step()
    opt.param_groups[0]["params"].remove(leaves[0])
    saved = opt.state_dict()
    assert saved["param_groups"][0]["params"] == [0]
    assert list(saved["state"]) == [0]
    assert saved["state"][0]["momentum_buffer"].tolist() == [3.0]
    again = ag.optim.SGD(leaves[1:], lr=0.5)
    again.load_state_dict(saved)
    assert again.state[leaves[1]]["momentum_buffer"].tolist() == [3.0]


def test_T08_a_step_between_forward_and_backward_does_not_change_the_gradient():
    w = ag.param([2.0, 3.0])
    opt = ag.optim.SGD([w], lr=1.0)
    with ag.grad_tape():
        first = (w * 1.0).sum()
    with ag.grad_tape():
        second = (w * w).sum()
    first.backward()
    opt.step()
    opt.zero_grad()
    second.backward()
    assert w.tolist() == [1.0, 2.0]
    assert w.grad.tolist() == [4.0, 6.0]


def test_an_update_is_not_recorded():
    w = ag.param([1.0])
    opt = ag.optim.SGD([w], lr=0.5)
    give_gradients([w], [np.array([1.0])])
    with ag.grad_tape():
        opt.step()
        opt.zero_grad()
        loss = (w * 3).sum()
    loss.backward()
    assert w.is_leaf
    assert w.tolist() == [0.5]
    assert w.grad.tolist() == [3.0]


def test_zero_grad_can_set_to_zero():
    w = ag.param([1.0])
    give_gradients([w], [np.array([1.0])])
    opt = ag.optim.SGD([w])
    opt.zero_grad(set_to_none=False)
    assert w.grad.tolist() == [0.0]
    opt.zero_grad()
    assert w.grad is None


def test_a_network_learns_with_every_optimizer(rng):
    x = rng.standard_normal((64, 3)).astype(np.float32)
    y = ag.tensor((x @ np.array([[1.0], [-2.0], [0.5]], np.float32)) ** 2)
    for make in (lambda p: ag.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True), lambda p: ag.optim.AdamW(p, lr=0.02)):
        model = ag.nn.Sequential(ag.nn.Linear(3, 32), ag.nn.Tanh(), ag.nn.Linear(32, 1))
        opt, losses = make(model.parameters()), []
        for _ in range(200):
            with ag.grad_tape():
                loss = ag.nn.functional.mse_loss(model(ag.tensor(x)), y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses.append(loss)
        assert losses[-1].item() < 0.1 * losses[0].item()


def test_U01_bad_settings_are_named():
    w = ag.param([1.0])
    for options, message in [
        ({"lr": -1.0}, "SGD: lr is -1.0"),
        ({"momentum": -0.1}, "momentum is -0.1"),
        ({"weight_decay": float("nan")}, "weight_decay is nan"),
        ({"nesterov": True}, "nesterov=True; expected momentum above 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            ag.optim.SGD([w], **options)
    with pytest.raises(ValueError, match="AdamW: betas is"):
        ag.optim.AdamW([w], betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="params is empty"):
        ag.optim.SGD([])
    with pytest.raises(ValueError, match="given twice"):
        ag.optim.SGD([w, w])
    with pytest.raises(TypeError, match="params is one Tensor; expected an iterable"):
        ag.optim.SGD(w)
    with pytest.raises(TypeError, match="a parameter is str"):
        ag.optim.SGD(["w"])
    with pytest.raises(TypeError, match="a group has rate; expected lr"):
        ag.optim.SGD([{"params": [w], "rate": 1}])
    with pytest.raises(ValueError, match="a parameter is int64"):
        ag.optim.SGD([ag.tensor(np.ones(2, np.int64))])
    with ag.grad_tape():
        computed = w * 2
        with pytest.raises(ValueError, match="expected a leaf"):
            ag.optim.SGD([computed])

"""Values read before backward: a printed loss, an activation, a step in the middle (B01, B02, B03)."""

import agtape as ag
import numpy as np
import pytest
from budget.models import Mlp, Step, Transformer
from on_device import assert_same_bits, is_adapter
from pool_bytes import active

MODELS = {"mlp": lambda: Mlp(16, 32, 512), "transformer": lambda: Transformer(6, 32, 2, 16, 8)}


@pytest.mark.promise("B01")
@pytest.mark.promise("B02")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("part", [2, 3, 5])
def test_printed_loss_stays_under_the_budget(name, part):
    model = MODELS[name]()
    plain = Step(model)
    # On an adapter what kernels need for themselves takes a part of the room.
    budget = plain.fixed + plain.activations // (min(part, 4) if is_adapter() else part)
    step = Step(model, budget, read_loss=True)
    assert step.peak <= budget and step.reserved <= budget
    assert_same_bits(step.grads, plain.grads)


@pytest.mark.promise("B01")
def test_B01_values_read_on_the_way_forward():
    class Read(Mlp):
        def loss(self):
            h = self.x
            for at, (w, b) in enumerate(zip(self.params[::2], self.params[1::2])):
                h = ag.relu(h @ w + b)
                if at % 5 == 4:
                    assert np.isfinite(h.sum().item())
            return (h * h).mean()

    plain = Step(Mlp(16, 32, 512))
    model = Read(16, 32, 512)
    budget = plain.fixed + plain.activations // 2
    step = Step(model, budget)
    assert step.peak <= budget
    assert_same_bits(step.grads, plain.grads)


@pytest.mark.promise("B01")
def test_B01_graph_retained_for_a_second_pass():
    model = Mlp(12, 32, 512)
    plain = Step(model)
    budget = plain.fixed + plain.grad_bytes + plain.activations // 2
    for p in model.params:
        p.grad = None
    ag.eval()
    with ag.peak_memory() as scope:
        with ag.grad_tape(budget=budget):
            loss = model.loss()
        loss.backward(retain_graph=True)
        loss.backward()
    assert scope.peak <= budget
    assert_same_bits([p.grad.numpy() for p in model.params], [g + g for g in plain.grads])


@pytest.mark.promise("B03")
def test_B03_a_refused_backward_keeps_what_a_read_has_computed():
    model = Mlp(16, 32, 512)
    plain = Step(model)
    for p in model.params:
        p.grad = None
    budget = plain.fixed + plain.activations
    with ag.grad_tape(budget=budget) as tape:
        loss = model.loss()
        assert np.isfinite(loss.item())
    kept = ag.tape_memory(tape).bytes_held
    values = active() - plain.held
    assert values > plain.activations // 4
    # Even without those values there is no room for a backward pass.
    ballast = ag.tensor(np.zeros((budget - active() + values * 7 // 8) // 4, "float32"))
    held = active()
    for _ in range(2):
        with pytest.raises(ag.BudgetError):
            loss.backward()
        assert active() == held and ag.tape_memory(tape).bytes_held == kept
    del ballast
    with ag.peak_memory() as scope:
        loss.backward()
    assert scope.peak <= budget
    assert_same_bits([p.grad.numpy() for p in model.params], plain.grads)

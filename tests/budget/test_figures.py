"""What budgets cost: the work ratios that the project promises, and the plain run's saved bytes counted by hand (B03)."""

import agtape as ag
import pytest
from budget.models import Chain, Mlp, Step, Transformer, most_scratch
from on_device import is_adapter
from pool_bytes import class_bytes

MIB = 1 << 20


def ratio(model, plain, fraction):
    budget = plain.fixed + int(plain.activations * fraction)
    step = Step(model, budget)
    assert step.peak <= budget
    return step.plan.work_ratio


@pytest.mark.promise("B03")
def test_B03_twelve_blocks_fit_into_a_tenth_of_their_activations():
    # A batch of which activations outweigh the gradients, which every budget holds besides.
    model = Transformer(width=64, length=64, batch=16)
    plain = Step(model)
    # On an adapter what kernels need for themselves takes a part of the room.
    rise = 1.05 if is_adapter() else 1.0
    for fraction, most in ((1 / 3, 1.18), (1 / 5, 1.24), (1 / 10, 1.30)):
        assert ratio(model, plain, fraction) <= most * rise
    with pytest.raises(ag.BudgetError) as refused:
        Step(model, plain.fixed)
    assert refused.value.smallest_bytes <= plain.fixed + plain.activations / 10


@pytest.mark.parametrize(("width", "length"), [(32, 32), (64, 64)])
def test_small_batches_cost_no_more_though_gradients_are_large_beside_their_activations(width, length):
    model = Transformer(width=width, length=length, batch=4)
    plain = Step(model)
    for fraction, most in ((1 / 3, 1.18), (1 / 5, 1.24), (1 / 10, 1.30)):
        assert ratio(model, plain, fraction) <= most


def test_deep_mlp_costs_no_more_than_promised():
    model = Mlp()
    plain = Step(model)
    for fraction, most in ((1 / 2, 1.20), (1 / 3, 1.27), (1 / 5, 1.45)):
        assert ratio(model, plain, fraction) <= most


def test_thousand_layers_fit_into_twice_the_root_of_their_activations():
    model = Chain()
    plain = Step(model)
    layer = class_bytes(4096)
    # One activation a layer, counted by hand: the fraction below is of the true size.
    assert plain.activations == pytest.approx(1000 * layer, rel=0.01)
    assert ratio(model, plain, 2 * 1000**0.5 * layer / plain.activations) <= 1.6


def test_plain_run_of_an_mlp_saves_one_activation_a_layer():
    model = Mlp()
    with ag.grad_tape() as tape:
        loss = model.loss()
    report = ag.tape_memory(tape)
    # Every relu's output, which is the next product's input: 4096 x 64 float32. Parameters and the input are operands.
    assert report.bytes_activations == 48 * MIB
    loss.backward()
    plain = Step(model)
    # Beside them live at most two gradients of that size, and what is smaller than a layer.
    assert 48 * MIB <= plain.activations <= 51 * MIB


@pytest.mark.parametrize(("width", "length", "batch"), [(32, 32, 4), (64, 64, 16)])
def test_plain_run_of_a_transformer_saves_what_its_rules_name(width, length, batch):
    blocks, heads = 12, 2
    model = Transformer(blocks, width, heads, length, batch)
    with ag.grad_tape() as tape:
        loss = model.loss()
    report = ag.tape_memory(tape)
    del loss
    unit = batch * length * width * 4
    scores = batch * heads * length * length * 4
    statistic = batch * length * 4
    # A block: both norms' inputs, outputs, means and deviations, q, k and v, probabilities, the attention's output, and twice
    # the inner width. The first norm's input is an operand; the last block's output is saved by the square instead.
    by_hand = blocks * (4 * unit + 4 * statistic + 3 * unit + scores + unit + 8 * unit)
    assert by_hand <= report.bytes_activations <= by_hand * 1.01
    step = Step(model)
    # An adapter with many cores cuts long sums into parts, which lie beside the activations for one kernel.
    own = most_scratch(step.launches) if is_adapter() else 0
    # Every figure of a budget is over this: the peak less all gradients, of which few are there when it is reached.
    assert step.activations <= by_hand + own
    assert by_hand <= step.peak - step.held <= by_hand * 1.01 + own

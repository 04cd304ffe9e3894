"""Dropout: statistics, train and eval, seeds, gradients, bad input."""

import agtape as ag
import numpy as np
import pytest

F = ag.nn.functional


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_drops_the_stated_share_and_keeps_the_mean(p):
    out = F.dropout(ag.ones(100_000), p).numpy()
    kept = out != 0
    assert abs(kept.mean() - (1 - p)) < 0.01
    np.testing.assert_allclose(out[kept], 1 / (1 - p), rtol=1e-6)
    assert abs(out.mean() - 1) < 0.05


def test_the_limits_are_exact():
    x = ag.tensor([1.0, np.inf, -2.0])
    assert F.dropout(x, 0.0).tolist() == [1.0, np.inf, -2.0]
    assert F.dropout(x, 1.0).tolist() == [0.0, 0.0, 0.0]
    assert F.dropout(x, 0.5, training=False).tolist() == [1.0, np.inf, -2.0]


def test_the_layer_follows_train_and_eval():
    layer, x = ag.nn.Dropout(0.5), ag.ones(1000)
    assert (layer(x).numpy() == 0).any()
    assert (layer.eval()(x).numpy() == 1).all()
    assert (layer.train()(x).numpy() == 0).any()


def test_a_seed_repeats_the_draw_and_the_stream_goes_on():
    x = ag.ones(1000)
    ag.manual_seed(3)
    first, second = F.dropout(x).numpy(), F.dropout(x).numpy()
    ag.manual_seed(3)
    np.testing.assert_array_equal(F.dropout(x).numpy(), first)
    assert (first != second).any()


def test_the_gradient_passes_where_values_were_kept():
    x = ag.tensor(np.ones(1000), requires_grad=True)
    with ag.grad_tape():
        out = F.dropout(x, 0.25)
        loss = out.sum()
    loss.backward()
    np.testing.assert_array_equal(x.grad.numpy(), out.numpy())


@pytest.mark.parametrize(
    ("p", "kind"), [(-0.1, ValueError), (1.1, ValueError), (float("nan"), ValueError), ("half", TypeError)]
)
def test_U01_p_must_be_a_probability(p, kind):
    with pytest.raises(kind, match=r"dropout: p is .* expected a number"):
        F.dropout(ag.ones(2), p)
    with pytest.raises(kind, match="Dropout: p is"):
        ag.nn.Dropout(p)

"""Owns the small model that tests of failing devices train."""

import agtape as ag


def build():
    """A small model on the GPU, its optimizer, and a batch."""
    ag.manual_seed(0)
    with ag.device("gpu"):
        model = ag.nn.Sequential(ag.nn.Linear(6, 8), ag.nn.Tanh(), ag.nn.Linear(8, 3))
        x, y = ag.rand(5, 6), ag.randint(0, 3, (5,))
    return model, ag.optim.Adam(model.parameters(), lr=0.1), x, y


def step(model, opt, x, y):
    """One training step; the loss."""
    with ag.grad_tape():
        loss = ag.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.item()

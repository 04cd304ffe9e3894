"""Owns the list of names in `agtape.optim`: optimizers and learning-rate schedules."""

from agtape.optim import lr_scheduler
from agtape.optim.adam import Adam, AdamW
from agtape.optim.optimizer import Optimizer
from agtape.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]

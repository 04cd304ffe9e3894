"""Owns the loss layers: each calls the function in `nn.functional` with the settings it was made with."""

from agtape.arguments import as_int, as_number, as_word
from agtape.nn import functional as F
from agtape.nn.functional.checks import REDUCTIONS
from agtape.nn.module import Module


class _Loss(Module):
    """A loss with a reduction."""

    def __init__(self, reduction="mean"):
        self.reduction = as_word(type(self).__name__, "reduction", reduction, REDUCTIONS)

    def extra_repr(self):
        return f"reduction={self.reduction!r}"


class MSELoss(_Loss):
    """The mean squared error of two tensors of equal shape.

    Args:
        reduction: 'mean', 'sum' or 'none'.

    Raises:
        TypeError: input or target is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.MSELoss()(ag.tensor([1.0]), ag.tensor([3.0])).item()
    4.0
    """

    def forward(self, input, target):
        """Compare input and target, of equal shape."""
        return F.mse_loss(input, target, self.reduction)


class L1Loss(_Loss):
    """The mean absolute error of two tensors of equal shape.

    Args:
        reduction: 'mean', 'sum' or 'none'.

    Raises:
        TypeError: input or target is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.L1Loss()(ag.tensor([1.0]), ag.tensor([3.0])).item()
    2.0
    """

    def forward(self, input, target):
        """Compare input and target, of equal shape."""
        return F.l1_loss(input, target, self.reduction)


class HuberLoss(_Loss):
    """Half the squared error up to delta and linear beyond, see `functional.huber_loss`.

    Args:
        reduction: 'mean', 'sum' or 'none'.
        delta: where the line takes over.

    Raises:
        TypeError: input or target is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.HuberLoss()(ag.tensor([0.0]), ag.tensor([3.0])).item()
    2.5
    """

    def __init__(self, reduction="mean", delta=1.0):
        super().__init__(reduction)
        self.delta = as_number("HuberLoss", "delta", delta)

    def forward(self, input, target):
        """Compare input and target, of equal shape."""
        return F.huber_loss(input, target, self.reduction, self.delta)


class NLLLoss(_Loss):
    """The negative log-likelihood of labels, from log-probabilities; see `functional.nll_loss`.

    Args:
        weight: a weight per class, or `None`.
        ignore_index: a label whose entries count for nothing.
        reduction: 'mean', 'sum' or 'none'.

    Raises:
        TypeError: input or target is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.NLLLoss()(ag.tensor([[-1.0, -2.0]]), [1]).item()
    2.0
    """

    def __init__(self, weight=None, ignore_index=-100, reduction="mean"):
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = None if ignore_index is None else as_int("NLLLoss", "ignore_index", ignore_index)

    def forward(self, input, target):
        """Compare log-probabilities (N, C, ...) with labels (N, ...)."""
        return F.nll_loss(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class CrossEntropyLoss(_Loss):
    """Cross-entropy of logits with labels or probabilities; see `functional.cross_entropy`.

    Args:
        weight: a weight per class, or `None`.
        ignore_index: a label whose entries count for nothing.
        reduction: 'mean', 'sum' or 'none'.
        label_smoothing: share of the target that is spread over all classes.

    Raises:
        TypeError: input or target is neither a tensor nor an array.

    >>> import agtape as ag
    >>> round(ag.nn.CrossEntropyLoss()(ag.zeros((1, 2)), [0]).item(), 4)
    0.6931
    """

    def __init__(self, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = None if ignore_index is None else as_int("CrossEntropyLoss", "ignore_index", ignore_index)
        self.label_smoothing = as_number("CrossEntropyLoss", "label_smoothing", label_smoothing)

    def forward(self, input, target):
        """Compare logits (N, C, ...) with labels (N, ...) or probabilities (N, C, ...)."""
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )

    def extra_repr(self):
        return f"reduction={self.reduction!r}, label_smoothing={self.label_smoothing}, ignore_index={self.ignore_index}"


class BCEWithLogitsLoss(_Loss):
    """Cross-entropy of independent yes-or-no labels, from logits; see `functional.binary_cross_entropy_with_logits`.

    Args:
        weight: a tensor that multiplies each term, or `None`.
        reduction: 'mean', 'sum' or 'none'.
        pos_weight: a tensor: the weight of the positive answers, or `None`.

    Raises:
        TypeError: input or target is neither a tensor nor an array.

    >>> import agtape as ag
    >>> round(ag.nn.BCEWithLogitsLoss()(ag.tensor([0.0]), ag.tensor([1.0])).item(), 4)
    0.6931
    """

    def __init__(self, weight=None, reduction="mean", pos_weight=None):
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input, target):
        """Compare logits with targets from 0 to 1, of equal shape."""
        return F.binary_cross_entropy_with_logits(input, target, self.weight, self.reduction, self.pos_weight)

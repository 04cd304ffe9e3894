"""Owns the losses over classes: cross-entropy from logits and the negative log-likelihood."""

import agtape as ag
from agtape import _core
from agtape.arguments import as_int, as_number
from agtape.nn.functional.checks import as_indices, as_tensor, kind_of, reduce


def cross_entropy(input, target, weight=None, *, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """Cross-entropy of logits with labels or with probabilities.

    Args:
        input: logits of shape (C,), (N, C) or (N, C, d1, ...).
        target: labels from 0 to C - 1 of any integer type and of the input's shape without C; or probabilities, floating and of
            the input's shape. Labels in lists and arrays are checked at the call, those in tensors when they are read.
        weight: a weight per class, of shape (C,); 'mean' divides by the sum of the weights of the labels.
        ignore_index: a label whose entries count for nothing, or `None`.
        reduction: 'mean', 'sum' or 'none'.
        label_smoothing: share of the target, from 0 to 1, that is spread over all classes (Szegedy et al. 2016, section 7).

    Returns:
        A scalar, or with 'none' a tensor of the input's shape without C.

    Raises:
        ValueError: shapes, reduction or smoothing do not fit; TypeError: a dtype does not, `ignore_index` is no int, or something is
            neither a tensor nor an array; IndexError: a label is out of range.

    >>> import agtape as ag
    >>> round(ag.nn.functional.cross_entropy(ag.zeros((2, 4)), [0, 3]).item(), 4)
    1.3863
    """
    input = as_tensor("cross_entropy", "input", input)
    axis = _class_axis("cross_entropy", input)
    label_smoothing = as_number("cross_entropy", "label_smoothing", label_smoothing)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"cross_entropy: label_smoothing is {label_smoothing!r}; expected a number from 0 to 1")
    target_dtype = getattr(target, "dtype", None)
    if target_dtype is not None and kind_of(target_dtype) == "float" and tuple(target.shape) == tuple(input.shape):
        target = as_tensor("cross_entropy", "target", target, input)
        logp = ag.log_softmax(input, axis=axis)
        return _soft_labels(logp, target, axis, weight, reduction, label_smoothing)
    if weight is not None:
        weight = as_tensor("cross_entropy", "weight", weight, input)
        if weight.requires_grad:
            # The row kernel takes class weights as constants.
            logp = ag.log_softmax(input, axis=axis)
            return _hard_labels("cross_entropy", logp, target, axis, weight, ignore_index, reduction, label_smoothing)
        _check_class_weight("cross_entropy", weight, input.shape[axis])
    target, is_clean = _labels("cross_entropy", target, input, axis, ignore_index)
    ignored = None if is_clean else ignore_index
    return _core.cross_entropy(input, target, weight, axis, ignored, label_smoothing, reduction)


def nll_loss(input, target, weight=None, *, ignore_index=-100, reduction="mean"):
    """The negative log-likelihood of labels, from log-probabilities.

    Args:
        input: log-probabilities of shape (C,), (N, C) or (N, C, d1, ...).
        target: labels from 0 to C - 1 of any integer type and of the input's shape without C.
        weight: a weight per class, of shape (C,); 'mean' divides by the sum of the weights of the labels.
        ignore_index: a label whose entries count for nothing, or `None`.
        reduction: 'mean', 'sum' or 'none'.

    Returns:
        A scalar, or with 'none' a tensor of the input's shape without C.

    Raises:
        ValueError: shapes or reduction do not fit; TypeError: the labels are not integers, `ignore_index` is no int, or something is
            neither a tensor nor an array; IndexError: a label is out of range.

    >>> import agtape as ag
    >>> ag.nn.functional.nll_loss(ag.tensor([[-1.0, -2.0]]), [1]).item()
    2.0
    """
    input = as_tensor("nll_loss", "input", input)
    return _hard_labels("nll_loss", input, target, _class_axis("nll_loss", input), weight, ignore_index, reduction, 0.0)


def _hard_labels(op, logp, target, axis, weight, ignore_index, reduction, smoothing):
    """The loss of integer labels, of log-probabilities along `axis`."""
    target, is_clean = _labels(op, target, logp, axis, ignore_index)
    shape, classes, expected = tuple(logp.shape), logp.shape[axis], tuple(target.shape)
    labels = target.reshape(shape[:axis] + (1,) + shape[axis + 1 :])
    is_counted = None
    if not is_clean and ignore_index is not None and not (ignore_index < 0 and str(target.dtype) == "uint8"):
        is_counted = labels != ignore_index
        labels = ag.where(is_counted, labels, 0)
    picked = _core.picked_by_labels(logp, labels, axis, op)
    if weight is None and not smoothing:
        return _unweighted(op, picked, is_counted, expected, reduction)
    label_weight = _label_weight(op, weight, labels, classes, logp)
    loss = -picked if label_weight is None else -picked * label_weight
    if smoothing:
        spread = logp if weight is None else logp * _along(weight, axis, logp)
        loss = loss * (1 - smoothing) - spread.sum(axis=axis, keepdims=True) * (smoothing / classes)
    if is_counted is not None:
        loss = ag.where(is_counted, loss, 0.0)
    if reduction == "mean":
        share = label_weight
        if is_counted is not None:
            share = is_counted if share is None else ag.where(is_counted, share, 0.0)
        return loss.mean() if share is None else loss.sum() / share.sum()
    return reduce(op, loss.reshape(expected), reduction)


def _labels(op, target, input, axis, ignore_index):
    """Labels of the input's shape without the class axis, and whether they are known to be classes with none ignored."""
    if ignore_index is not None:
        ignore_index = as_int(op, "ignore_index", ignore_index)
    target, is_clean = as_indices(op, "target", target, input.shape[axis], input, ignore_index)
    shape = tuple(input.shape)
    expected = shape[:axis] + shape[axis + 1 :]
    if tuple(target.shape) != expected:
        raise ValueError(
            f"{op}: input has shape {shape} and target {tuple(target.shape)}; expected labels of shape {expected}"
        )
    return target, is_clean


def _unweighted(op, picked, is_counted, shape, reduction):
    """The common case in few ops: negate after reducing, and divide by the number of entries that count."""
    if is_counted is None:
        return -reduce(op, picked.reshape(shape) if reduction == "none" else picked, reduction)
    picked = ag.where(is_counted, picked, 0.0)
    if reduction == "mean":
        return -(picked.sum() / is_counted.sum())
    return -reduce(op, picked.reshape(shape) if reduction == "none" else picked, reduction)


def _soft_labels(logp, target, axis, weight, reduction, smoothing):
    """The loss of probabilities; 'mean' divides by the number of entries, whatever the weights, as in PyTorch."""
    if smoothing:
        target = target * (1 - smoothing) + smoothing / logp.shape[axis]
    terms = logp * target
    if weight is not None:
        terms = terms * _along(weight, axis, logp)
    if reduction == "mean":
        entries = logp.size // logp.shape[axis] if logp.shape[axis] else 0
        return -(terms.sum() / float(entries)) if entries else -terms.sum() / ag.zeros((), device=logp.device)
    return -reduce("cross_entropy", terms.sum(axis=axis), reduction)


def _label_weight(op, weight, labels, classes, logp):
    """The weight of each entry's label, in the shape of `labels`, or None without weights."""
    if weight is None:
        return None
    weight = as_tensor(op, "weight", weight, logp)
    _check_class_weight(op, weight, classes)
    return weight[labels]


def _along(weight, axis, logp):
    """A weight per class, shaped to multiply along the class axis."""
    weight = as_tensor("cross_entropy", "weight", weight, logp)
    _check_class_weight("cross_entropy", weight, logp.shape[axis])
    return weight.reshape([-1] + [1] * (logp.ndim - axis - 1))


def _check_class_weight(op, weight, classes):
    if tuple(weight.shape) != (classes,):
        raise ValueError(f"{op}: weight has shape {tuple(weight.shape)}; expected ({classes},), one per class")


def _class_axis(op, input):
    """The axis of the classes: 0 for one entry, else 1."""
    if input.ndim == 0:
        raise ValueError(f"{op}: the input is a scalar; expected shape (C,), (N, C) or (N, C, d1, ...)")
    if kind_of(input.dtype) != "float":
        raise TypeError(f"{op}: the input is {input.dtype}; expected a floating dtype")
    return 1 if input.ndim > 1 else 0

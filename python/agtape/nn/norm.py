"""Owns the normalization layers: LayerNorm, RMSNorm and the batch norms."""

import agtape as ag
from agtape.arguments import as_flag, as_int, as_ints, as_number, as_place
from agtape.nn import functional as F
from agtape.nn.functional.checks import as_tensor
from agtape.nn.module import Module, Parameter


class LayerNorm(Module):
    """Normalize over the last axes, then scale and shift (see `functional.layer_norm`).

    Args:
        normalized_shape: int or tuple of ints: the lengths of those axes.
        eps: added to the variance.
        elementwise_affine: whether to scale and shift.
        bias: whether to shift.
        dtype, device: of the parameters.

    Attributes: `weight` (ones) and `bias` (zeros) of shape `normalized_shape`, or `None`.

    Raises:
        ValueError: an input does not end in `normalized_shape`; TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.LayerNorm(4)(ag.ones((2, 4))).shape
    (2, 4)
    """

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, dtype=None, device=None):
        self.normalized_shape = as_ints("LayerNorm", "normalized_shape", normalized_shape)
        self.eps, bias = as_number("LayerNorm", "eps", eps), as_flag("LayerNorm", "bias", bias)
        self.elementwise_affine = elementwise_affine = as_flag("LayerNorm", "elementwise_affine", elementwise_affine)
        weight, bias_vector, place = None, None, as_place("LayerNorm", dtype, device)
        if elementwise_affine:
            weight = Parameter(ag.ones(self.normalized_shape, **place))
            bias_vector = Parameter(ag.zeros(self.normalized_shape, **place)) if bias else None
        self.register_parameter("weight", weight)
        self.register_parameter("bias", bias_vector)

    def forward(self, input):
        """Normalize: (..., *normalized_shape) to the same shape."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Module):
    """Divide by the root mean square over the last axes, then scale (see `functional.rms_norm`).

    Args:
        normalized_shape: int or tuple of ints: the lengths of those axes.
        eps: added to the mean square; default: the dtype's machine epsilon.
        elementwise_affine: whether to scale.
        dtype, device: of the parameter.

    Attributes: `weight` (ones) of shape `normalized_shape`, or `None`.

    Raises:
        ValueError: an input does not end in `normalized_shape`; TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.RMSNorm(4)(ag.ones((2, 4))).shape
    (2, 4)
    """

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, dtype=None, device=None):
        self.normalized_shape = as_ints("RMSNorm", "normalized_shape", normalized_shape)
        self.eps = None if eps is None else as_number("RMSNorm", "eps", eps)
        self.elementwise_affine = elementwise_affine = as_flag("RMSNorm", "elementwise_affine", elementwise_affine)
        place = as_place("RMSNorm", dtype, device)
        weight = Parameter(ag.ones(self.normalized_shape, **place)) if elementwise_affine else None
        self.register_parameter("weight", weight)

    def forward(self, input):
        """Normalize: (..., *normalized_shape) to the same shape."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class BatchNorm(Module):
    """Normalize each channel over the batch and any positions (see `functional.batch_norm`).

    Training uses the batch's statistics and moves the running ones; evaluation uses those.

    Args:
        num_features: number of channels, the length of axis 1.
        eps: added to the variance.
        momentum: share of the batch in the updated running statistics; `None` averages over all batches so far.
        affine: whether to scale and shift.
        track_running_stats: whether to keep running statistics; without them evaluation uses the batch's too.
        dtype, device: of parameters and buffers.

    Attributes: parameters `weight`, `bias`; buffers `running_mean`, `running_var` and the int64 scalar `num_batches_tracked`.

    Raises:
        ValueError: an input has another number of axes or channels, or one value a channel in training; TypeError: an input is
            neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.BatchNorm(3)(ag.rand((8, 3, 5))).shape
    (8, 3, 5)
    """

    _axes = None  # allowed numbers of axes; None: two or more

    def __init__(
        self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, dtype=None, device=None
    ):
        op = type(self).__name__
        self.num_features = num_features = as_int(op, "num_features", num_features, least=0)
        self.eps = as_number(op, "eps", eps)
        self.momentum = None if momentum is None else as_number(op, "momentum", momentum)
        self.affine = affine = as_flag(op, "affine", affine)
        self.track_running_stats = as_flag(op, "track_running_stats", track_running_stats)
        track_running_stats = self.track_running_stats
        place = as_place(op, dtype, device)
        self.register_parameter("weight", Parameter(ag.ones((num_features,), **place)) if affine else None)
        self.register_parameter("bias", Parameter(ag.zeros((num_features,), **place)) if affine else None)
        self.register_buffer("running_mean", ag.zeros((num_features,), **place) if track_running_stats else None)
        self.register_buffer("running_var", ag.ones((num_features,), **place) if track_running_stats else None)
        self.register_buffer(
            "num_batches_tracked", ag.zeros((), dtype="int64", device=place["device"]) if track_running_stats else None
        )

    def forward(self, input):
        """Normalize: (N, C, ...) to the same shape."""
        input = as_tensor(type(self).__name__, "input", input)
        if (
            (self._axes is not None and input.ndim not in self._axes)
            or input.ndim < 2
            or input.shape[1] != self.num_features
        ):
            axes = " or ".join(map(str, self._axes)) if self._axes else "two or more"
            raise ValueError(
                f"{type(self).__name__}: the input has shape {tuple(input.shape)}; expected {axes} axes, the second of "
                f"length {self.num_features}"
            )
        momentum = self.momentum
        if self.training and self.track_running_stats:
            with ag.no_grad():
                self.num_batches_tracked.assign_(self.num_batches_tracked + 1)
                if momentum is None:
                    momentum = 1.0 / self.num_batches_tracked
        return F.batch_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            momentum,
            self.eps,
        )

    def extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(BatchNorm):
    """Batch norm of inputs of shape (N, C) or (N, C, L); see `BatchNorm`.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.BatchNorm1d(3)(ag.rand((8, 3))).shape
    (8, 3)
    """

    _axes = (2, 3)


class BatchNorm2d(BatchNorm):
    """Batch norm of inputs of shape (N, C, H, W); see `BatchNorm`.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.BatchNorm2d(3)(ag.rand((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    _axes = (4,)

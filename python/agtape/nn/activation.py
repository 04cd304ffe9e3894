"""Owns the activation layers: each calls the function of the same name in `nn.functional` with the settings it was made with."""

from agtape.arguments import as_int, as_number, as_word
from agtape.nn import functional as F
from agtape.nn.module import Module


class _Elementwise(Module):
    """An activation whose settings are the attributes named in `_settings`."""

    _settings = ()

    def extra_repr(self):
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._settings)


class ReLU(_Elementwise):
    """max(x, 0), of any shape.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.ReLU()(ag.tensor([-1.0, 1.0])).tolist()
    [0.0, 1.0]
    """

    def forward(self, input):
        """Apply it to each value."""
        return F.relu(input)


class ReLU6(_Elementwise):
    """min(max(x, 0), 6), of any shape.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.ReLU6()(ag.tensor([-1.0, 9.0])).tolist()
    [0.0, 6.0]
    """

    def forward(self, input):
        """Apply it to each value."""
        return F.relu6(input)


class LeakyReLU(_Elementwise):
    """x where positive, else negative_slope * x.

    Args:
        negative_slope: slope below 0.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.LeakyReLU(0.5)(ag.tensor([-2.0])).tolist()
    [-1.0]
    """

    _settings = ("negative_slope",)

    def __init__(self, negative_slope=0.01):
        self.negative_slope = as_number("LeakyReLU", "negative_slope", negative_slope)

    def forward(self, input):
        """Apply it to each value."""
        return F.leaky_relu(input, self.negative_slope)


class ELU(_Elementwise):
    """x where positive, else alpha * (exp(x) - 1).

    Args:
        alpha: scale of the negative part.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.ELU()(ag.tensor([0.0])).tolist()
    [0.0]
    """

    _settings = ("alpha",)

    def __init__(self, alpha=1.0):
        self.alpha = as_number("ELU", "alpha", alpha)

    def forward(self, input):
        """Apply it to each value."""
        return F.elu(input, self.alpha)


class GELU(_Elementwise):
    """x * Phi(x), see `functional.gelu`.

    Args:
        approximate: 'none' or 'tanh'.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.GELU()(ag.tensor([0.0])).tolist()
    [0.0]
    """

    _settings = ("approximate",)

    def __init__(self, approximate="none"):
        self.approximate = as_word("GELU", "approximate", approximate, ("none", "tanh"))

    def forward(self, input):
        """Apply it to each value."""
        return F.gelu(input, approximate=self.approximate)


class SiLU(_Elementwise):
    """x * sigmoid(x), of any shape.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.SiLU()(ag.tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, input):
        """Apply it to each value."""
        return F.silu(input)


class Mish(_Elementwise):
    """x * tanh(softplus(x)), of any shape.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.Mish()(ag.tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, input):
        """Apply it to each value."""
        return F.mish(input)


class Tanh(_Elementwise):
    """The hyperbolic tangent, of any shape.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.Tanh()(ag.tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, input):
        """Apply it to each value."""
        return F.tanh(input)


class Sigmoid(_Elementwise):
    """1 / (1 + exp(-x)), of any shape.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.Sigmoid()(ag.tensor([0.0])).tolist()
    [0.5]
    """

    def forward(self, input):
        """Apply it to each value."""
        return F.sigmoid(input)


class LogSigmoid(_Elementwise):
    """log(sigmoid(x)), of any shape.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.LogSigmoid()(ag.tensor([-200.0])).tolist()
    [-200.0]
    """

    def forward(self, input):
        """Apply it to each value."""
        return F.logsigmoid(input)


class Softplus(_Elementwise):
    """log(1 + exp(beta * x)) / beta, see `functional.softplus`.

    Args:
        beta: sharpness.
        threshold: where beta * x exceeds it, x itself.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.Softplus()(ag.tensor([100.0])).tolist()
    [100.0]
    """

    _settings = ("beta", "threshold")

    def __init__(self, beta=1.0, threshold=20.0):
        self.beta = as_number("Softplus", "beta", beta)
        self.threshold = as_number("Softplus", "threshold", threshold)

    def forward(self, input):
        """Apply it to each value."""
        return F.softplus(input, self.beta, self.threshold)


class Softmax(_Elementwise):
    """exp(x) divided by its sum along one axis.

    Args:
        dim: the axis; default: the last.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.Softmax(dim=-1)(ag.zeros((1, 2))).tolist()
    [[0.5, 0.5]]
    """

    _settings = ("dim",)

    def __init__(self, dim=None):
        self.dim = None if dim is None else as_int("Softmax", "dim", dim)

    def forward(self, input):
        """Apply it along the axis."""
        return F.softmax(input, self.dim)


class LogSoftmax(_Elementwise):
    """The logarithm of softmax along one axis.

    Args:
        dim: the axis; default: the last.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.LogSoftmax(dim=-1)(ag.zeros((1, 1))).tolist()
    [[0.0]]
    """

    _settings = ("dim",)

    def __init__(self, dim=None):
        self.dim = None if dim is None else as_int("LogSoftmax", "dim", dim)

    def forward(self, input):
        """Apply it along the axis."""
        return F.log_softmax(input, self.dim)


class GLU(_Elementwise):
    """The first half along one axis times the sigmoid of the second.

    Args:
        dim: the axis.

    Raises:
        TypeError: an input is neither a tensor nor an array.

    >>> import agtape as ag
    >>> ag.nn.GLU()(ag.tensor([4.0, 0.0])).tolist()
    [2.0]
    """

    _settings = ("dim",)

    def __init__(self, dim=-1):
        self.dim = as_int("GLU", "dim", dim)

    def forward(self, input):
        """Gate: length 2n along the axis to n."""
        return F.glu(input, self.dim)

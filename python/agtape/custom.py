"""Owns custom ops from Python: a forward function and a gradient rule, both written in terms of agtape's own ops."""

import functools

import agtape as ag
from agtape import _core
from agtape._core import Tensor
from agtape.arguments import as_text
from agtape.fingerprint import fingerprint


class CustomOp:
    """An op made of a forward function and, unless it is not differentiable, a gradient rule.

    `forward(*args, **kwargs)` runs once per call, unrecorded, on detached tensors, and returns a tensor or a tuple of tensors.
    `rule(grads, inputs, outputs)` returns the gradients of the tensors among the positional arguments: `grads` and `outputs`
    are a tensor each (tuples if `forward` returned a tuple), `inputs` a tuple with all positional arguments as they were
    given. It returns one gradient or `None` per positional argument (just the gradient if there is one argument), and is
    itself differentiated for second derivatives. On the tape the call is one node.

    Args:
        forward: the function that computes the result.
        rule: the gradient rule, or `None` for an op that refuses to be differentiated.
        name: the op's name in reports and errors; default: the name of `forward`.

    Raises:
        TypeError: `forward` or `rule` is not callable.

    >>> import agtape as ag
    >>> cube = ag.custom_gradient(lambda x: x ** 3, lambda g, inputs, out: g * 3 * inputs[0] ** 2, name="cube")
    >>> ag.grad(cube)(ag.tensor(2.0)).item()
    12.0
    """

    def __init__(self, forward, rule=None, name=None):
        for part, role in ((forward, "forward"), (rule, "rule")):
            if not callable(part) and not (part is None and role == "rule"):
                raise TypeError(f"custom_op: {role} is {type(part).__name__}; expected a function")
        if name is not None:
            as_text("custom_op", "name", name)
        self.forward, self.rule = forward, rule
        self.name = name or getattr(forward, "__name__", type(forward).__name__)
        functools.update_wrapper(self, forward, updated=())

    def gradient(self, rule):
        """Set the gradient rule; usable as a decorator.

        Args:
            rule: `rule(grads, inputs, outputs)`, see the class.

        Returns:
            `rule`, unchanged.

        Raises:
            TypeError: `rule` is not callable.

        >>> import agtape as ag
        >>> @ag.custom_op
        ... def double(x):
        ...     return x * 2
        >>> @double.gradient
        ... def double_rule(grad, inputs, outputs):
        ...     return grad * 2
        >>> ag.grad(double)(ag.tensor(1.0)).item()
        2.0
        """
        if not callable(rule):
            raise TypeError(f"custom_op {self.name}: the rule is {type(rule).__name__}; expected a function")
        self.rule = rule
        return rule

    def __call__(self, *args, **kwargs):
        """Run the op and record it as one node."""
        positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        with ag.no_grad():
            raw = self.forward(*[a.detach() if isinstance(a, Tensor) else a for a in args], **kwargs)
        is_tuple = isinstance(raw, tuple)
        raws = list(raw) if is_tuple else [raw]
        for value in raws:
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"custom_op {self.name}: forward returned {type(value).__name__}; expected a tensor or a tuple of "
                    "tensors"
                )
        rule = self._bind(args, positions, is_tuple)
        others = [a for a in args if not isinstance(a, Tensor)]
        fingerprints = functools.partial(_fingerprints, self.rule, others)
        outs = _core.custom([args[i] for i in positions], raws, rule, self.name, fingerprints)
        return tuple(outs) if is_tuple else outs[0]

    def __repr__(self):
        return f"CustomOp({self.name}{'' if self.rule else ', not differentiable'})"

    def _bind(self, args, positions, is_tuple):
        """The rule in the core's form: lists of tensors in, a list with one gradient or None per tensor input out.

        It holds no tensor: the core hands the node's own inputs and outputs back, so that nothing keeps itself alive.
        """
        plain = [None if isinstance(a, Tensor) else a for a in args]
        user_rule, name = self.rule, self.name

        def rule(grads, inputs, outputs):
            if user_rule is None:
                raise TypeError(
                    f"custom_op {name}: has no gradient rule; give one with @{name}.gradient or detach its inputs"
                )
            given = list(plain)
            for position, tensor in zip(positions, inputs):
                given[position] = tensor
            result = user_rule(
                *((tuple(grads), tuple(given), tuple(outputs)) if is_tuple else (grads[0], tuple(given), outputs[0]))
            )
            results = result if isinstance(result, (tuple, list)) else (result,)
            if len(results) != len(given):
                raise ValueError(
                    f"custom_op {name}: the rule returned {len(results)} gradients; expected {len(given)}, one or None "
                    "per positional argument"
                )
            return [_checked(name, position, results[position], given[position]) for position in positions]

        return rule


def custom_op(forward=None, rule=None, name=None):
    """Make a custom op of a function; usable as a decorator, with the rule added by `@op.gradient`.

    Args:
        forward: function of tensors (and plain values) that returns a tensor or a tuple of tensors.
        rule: `rule(grads, inputs, outputs)`, see `CustomOp`; without one the op is not differentiable.
        name: the op's name in reports and errors.

    Returns:
        A `CustomOp`, called like `forward`.

    Raises:
        TypeError: `forward` or `rule` is not callable.

    >>> import agtape as ag
    >>> @ag.custom_op
    ... def halve(x):
    ...     return x / 2
    >>> halve(ag.tensor([2.0])).tolist()
    [1.0]
    """
    if name is not None:
        as_text("custom_op", "name", name)
    if forward is None:
        return lambda f: CustomOp(f, rule, name)
    return CustomOp(forward, rule, name)


def custom_gradient(forward, backward, name=None):
    """Make an op of a forward function and its gradient rule.

    Args:
        forward: function of tensors (and plain values) that returns a tensor or a tuple of tensors.
        backward: `backward(grad_outputs, inputs, outputs)`, which returns one gradient or `None` per positional argument.
        name: the op's name in reports and errors; default: the name of `forward`.

    Returns:
        A `CustomOp`, called like `forward`.

    Raises:
        TypeError: `forward` or `backward` is not callable.

    >>> import agtape as ag
    >>> straight_through = ag.custom_gradient(lambda x: x.round(), lambda g, inputs, out: g)
    >>> ag.grad(straight_through)(ag.tensor(0.6)).item()
    1.0
    """
    if not callable(backward):
        raise TypeError(f"custom_gradient: backward is {type(backward).__name__}; expected a function")
    return CustomOp(forward, backward, name)


def _fingerprints(rule, arguments):
    """What tells a rule and its arguments from those of another run."""
    return [fingerprint(rule), fingerprint(arguments) if arguments else ([], [])]


def _checked(name, position, gradient, tensor):
    """Check one gradient that a rule returned."""
    if gradient is None:
        return None
    if not isinstance(gradient, Tensor):
        raise TypeError(
            f"custom_op {name}: gradient {position} is {type(gradient).__name__}; expected a tensor or None"
        )
    if tuple(gradient.shape) != tuple(tensor.shape):
        raise ValueError(
            f"custom_op {name}: gradient {position} has shape {tuple(gradient.shape)}; expected {tuple(tensor.shape)}, "
            "the shape of its input"
        )
    return gradient

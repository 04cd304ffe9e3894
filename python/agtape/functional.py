"""Owns function transforms: gradients and products with Jacobians and Hessians, over tensors and nested containers."""

import functools

import agtape as ag
from agtape import _core
from agtape._core import Tensor
from agtape.arguments import as_flag, as_ints, shown
from agtape.tree import flatten, tree_map

_FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))


def value_and_grad(fn, argnums=0, has_aux=False):
    """Make a function that returns what `fn` returns together with its gradient.

    Args:
        fn: function whose result is a scalar tensor (with `has_aux`, a pair of that and anything).
        argnums: int or tuple of ints: the positional arguments to differentiate. Each is a floating tensor, array, Python
            number or a nested container of tensors; what a container holds besides floating tensors is passed on unchanged.
        has_aux: whether `fn` returns `(scalar, anything)`.

    Returns:
        A function with the arguments of `fn` that returns `(value, gradient)`, or `((value, aux), gradient)`. The gradient
        has the structure and shapes of the argument (a tuple of them if `argnums` is a tuple): zeros where the value does
        not depend on a tensor, `None` in place of what is not a floating tensor. Value, aux and gradient are recorded on
        the tapes that are open outside the call; without one they keep nothing else alive.

    Raises:
        TypeError: an argument holds no floating tensor, or the result is not a floating scalar.
        ValueError: `argnums` names an argument that was not given; TypeError: it is neither an int nor a tuple of ints.

    >>> import agtape as ag
    >>> value, slope = ag.value_and_grad(lambda x: (x * x).sum())(ag.tensor([1.0, 2.0]))
    >>> value.item(), slope.tolist()
    (5.0, [2.0, 4.0])
    """
    _check_function("grad", fn)
    positions = as_ints("grad", "argnums", argnums)
    is_one, has_aux = not isinstance(argnums, (tuple, list)), as_flag("grad", "has_aux", has_aux)

    @functools.wraps(fn, updated=())
    def wrapped(*args, **kwargs):
        picked = [_pick("grad", args, i) for i in positions]
        outermost = not _core.is_recording()
        with ag.grad_tape() as tape:
            sources, built = _watch("grad", picked)
            call_args = list(args)
            for i, value in zip(positions, built):
                call_args[i] = value
            result = fn(*call_args, **kwargs)
            value, aux = _split_aux("grad", result) if has_aux else (result, None)
            _check_scalar("grad", value)
            grads = _core.gradient([value], [None], sources.flat, False, True)
        grads = sources.restore(grads)
        if outermost:
            value, aux = _free((value, aux), tape)
        grads = grads[0] if is_one else tuple(grads)
        return ((value, aux), grads) if has_aux else (value, grads)

    return wrapped


def grad(fn, argnums=0, has_aux=False):
    """Make a function that returns the gradient of `fn`.

    Args:
        fn: function whose result is a scalar tensor (with `has_aux`, a pair of that and anything).
        argnums: int or tuple of ints: the positional arguments to differentiate (see `value_and_grad`).
        has_aux: whether `fn` returns `(scalar, anything)`.

    Returns:
        A function with the arguments of `fn` that returns the gradient, or `(gradient, aux)` with `has_aux`.

    Raises:
        TypeError: an argument holds no floating tensor, or the result is not a floating scalar.
        ValueError: `argnums` names an argument that was not given; TypeError: it is neither an int nor a tuple of ints.

    >>> import agtape as ag
    >>> ag.grad(ag.grad(lambda x: x ** 3))(ag.tensor(2.0)).item()
    12.0
    """
    transformed, has_aux = value_and_grad(fn, argnums, has_aux), as_flag("grad", "has_aux", has_aux)

    @functools.wraps(fn, updated=())
    def wrapped(*args, **kwargs):
        value, grads = transformed(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapped


def vjp(fn, *primals, has_aux=False):
    """Run `fn` and return its result with the function that multiplies a vector by its Jacobian.

    Args:
        fn: function of the primals; its result is a tensor or a nested container of tensors.
        *primals: floating tensors or nested containers of them.
        has_aux: whether `fn` returns `(result, anything)`.

    Returns:
        `(result, vjp_fn)`, or `(result, vjp_fn, aux)`. `vjp_fn(cotangent)` takes a container shaped like the result and
        returns a tuple with one gradient per primal; it may be called any number of times.

    Raises:
        TypeError: a primal holds no floating tensor; ValueError: a cotangent of another structure or shape.

    >>> import agtape as ag
    >>> y, pull = ag.vjp(lambda x: x * x, ag.tensor([1.0, 3.0]))
    >>> pull(ag.tensor([1.0, 10.0]))[0].tolist()
    [2.0, 60.0]
    """
    _check_function("vjp", fn)
    has_aux = as_flag("vjp", "has_aux", has_aux)
    outermost = not _core.is_recording()
    with ag.grad_tape() as tape:
        sources, built = _watch("vjp", primals)
        result = fn(*built)
        result, aux = _split_aux("vjp", result) if has_aux else (result, None)
        outs, _ = flatten(result)
    if outermost:
        result, aux = tree_map(_plain, (result, aux))

    def vjp_fn(cotangent, tape=tape):  # the default argument keeps the tape alive as long as this function
        cots = _match("vjp", outs, cotangent)
        pairs = [(o, c) for o, c in zip(outs, cots) if c is not None]
        grads = _core.gradient([o for o, _ in pairs], [c for _, c in pairs], sources.flat, False, True)
        grads = tuple(sources.restore(grads))
        if not _core.is_recording():
            _core.eval_pending()
        return grads

    return (result, vjp_fn, aux) if has_aux else (result, vjp_fn)


def jvp(fn, primals, tangents):
    """Multiply the Jacobian of `fn` by a vector, in one forward and two backward passes.

    The transposed Jacobian's product is linear in its vector, so differentiating it once more in that vector gives the
    forward product: J. Townsend, "A new trick for calculating Jacobian vector products" (2017).

    Args:
        fn: function of the primals; its result is a tensor or a nested container of tensors.
        primals: tuple with the arguments, or one argument that is not a tuple.
        tangents: the direction, shaped like `primals`.

    Returns:
        `(result, tangent)`: what `fn` returns, and its directional derivative in the same structure (zeros where a result
        is not floating or does not depend on the primals).

    Raises:
        TypeError: a primal holds no floating tensor; ValueError: a tangent of another structure or shape.

    >>> import agtape as ag
    >>> y, dy = ag.jvp(lambda x: x ** 2, (ag.tensor(3.0),), (ag.tensor(1.0),))
    >>> dy.item()
    6.0
    """
    _check_function("jvp", fn)
    primals, tangents = _as_tuple(primals), _as_tuple(tangents)
    outermost = not _core.is_recording()
    with ag.grad_tape() as tape:
        sources, built = _watch("jvp", primals)
        directions = sources.align("jvp", tangents)
        result = fn(*built)
        outs, build = flatten(result)
        live = [o for o in outs if _is_float(o)]
        cots = [_core.watch(ag.zeros_like(o.detach())) for o in live]
        pulled = _core.gradient(live, cots, sources.flat, True, True)
        pairs = [(p, d) for p, d in zip(pulled, directions) if p is not None]
        pushed = [None] * len(cots)
        if pairs:
            pushed = _core.gradient([p for p, _ in pairs], [d for _, d in pairs], cots, False, True)
    by_output = iter(pushed)
    derivative = build([_tangent_of(o, by_output) for o in outs])
    return _free((result, derivative), tape) if outermost else (result, derivative)


def hvp(fn, primals, vectors):
    """Multiply the Hessian of a scalar function by a vector, as the gradient of the gradient's product with it.

    Two reverse passes: B. A. Pearlmutter, "Fast exact multiplication by the Hessian" (1994), in its reverse-over-reverse form.

    Args:
        fn: function of the primals whose result is a scalar tensor.
        primals: tuple with the arguments, or one argument that is not a tuple.
        vectors: the vector, shaped like `primals`.

    Returns:
        The product, shaped like `primals`.

    Raises:
        TypeError: a primal holds no floating tensor, or the result is not a floating scalar; ValueError: a vector of another
        structure or shape.

    >>> import agtape as ag
    >>> ag.hvp(lambda x: (x ** 3).sum(), ag.tensor([1.0, 2.0]), ag.tensor([1.0, 1.0])).tolist()
    [6.0, 12.0]
    """
    _check_function("hvp", fn)
    args, directions = _as_tuple(primals), _as_tuple(vectors)
    outermost = not _core.is_recording()
    with ag.grad_tape() as tape:
        sources, built = _watch("hvp", args)
        vecs = sources.align("hvp", directions)
        value = fn(*built)
        _check_scalar("hvp", value)
        slopes = _core.gradient([value], [None], sources.flat, True, True)
        pairs = [(s, v) for s, v in zip(slopes, vecs) if s is not None]
        products = [None] * len(sources.flat)
        if pairs:
            products = _core.gradient([s for s, _ in pairs], [v for _, v in pairs], sources.flat, False, True)
    products = sources.restore(products)
    if outermost:
        products = _free(products, tape)
    return tuple(products) if isinstance(primals, tuple) else products[0]


def _free(results, tape):
    """Compute what is pending and let go of what the tape recorded; returns the results as tensors that no tape recorded."""
    results = tree_map(_plain, results)
    _core.eval_pending()
    tape.clear()
    return results


def _plain(leaf):
    return leaf.detach() if isinstance(leaf, Tensor) and not leaf.is_leaf else leaf


def _in_scope(scope, function):
    """The function, run inside a scope each time it is called: what `@ag.no_grad()` makes."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        with scope:
            return function(*args, **kwargs)

    return wrapped


class _Sources:
    """The floating leaves of some arguments: `flat` in order, and how to put results back in their places."""

    def __init__(self, flat, layouts):
        self.flat, self._layouts = flat, layouts

    def restore(self, results):
        """Put one result per source into containers shaped like the arguments; `None` results become zeros."""
        filled = (ag.zeros_like(s.detach()) if r is None else r for s, r in zip(self.flat, results))
        return [build([next(filled) if is_source else None for is_source in mask]) for mask, build in self._layouts]

    def align(self, op, vectors):
        """Flatten vectors shaped like the arguments to one tensor per source, checking structure and shapes."""
        if len(vectors) != len(self._layouts):
            raise ValueError(
                f"{op}: {len(self._layouts)} primals but {len(vectors)} vectors were given; expected one each"
            )
        flat = []
        for (mask, _), vector in zip(self._layouts, vectors):
            leaves, _ = flatten(vector)
            if len(leaves) != len(mask):
                raise ValueError(f"{op}: a vector has {len(leaves)} leaves; expected {len(mask)}, as in its primal")
            flat += [leaf for leaf, is_source in zip(leaves, mask) if is_source]
        return [_like(op, source, vector) for source, vector in zip(self.flat, flat)]


def _watch(op, arguments):
    """Give every floating leaf a fresh source on the innermost tape; returns the sources and the arguments built on them."""
    flat, layouts, built = [], [], []
    for position, argument in enumerate(arguments):
        leaves, build = flatten(argument)
        if len(leaves) == 1 and leaves[0] is argument and not isinstance(argument, Tensor):
            leaves = [_to_tensor(op, position, argument)]
        mask = [_is_float(leaf) for leaf in leaves]
        if not any(mask):
            found = leaves[0].dtype if len(leaves) == 1 and isinstance(leaves[0], Tensor) else type(argument).__name__
            raise TypeError(f"{op}: argument {position} is {found}; expected a floating tensor or a container of them")
        leaves = [_core.watch(leaf) if is_source else leaf for leaf, is_source in zip(leaves, mask)]
        flat += [leaf for leaf, is_source in zip(leaves, mask) if is_source]
        layouts.append((mask, build))
        built.append(build(leaves))
    return _Sources(flat, layouts), built


def _to_tensor(op, position, value):
    """Make a tensor of an array or number given as a whole argument."""
    try:
        return ag.tensor(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{op}: argument {position} is {type(value).__name__}; expected a floating tensor, array, number or a "
            "container of tensors"
        ) from error


def _match(op, outs, cotangent):
    """Flatten a cotangent to one tensor per output (None for outputs that are not floating)."""
    cots, _ = flatten(cotangent)
    if len(cots) != len(outs):
        raise ValueError(f"{op}: the cotangent has {len(cots)} leaves; expected {len(outs)}, as in the result")
    return [_like(op, o, c) if _is_float(o) else None for o, c in zip(outs, cots)]


def _like(op, source, vector):
    """Make `vector` a tensor of the source's dtype, or raise if its shape differs."""
    vector = vector if isinstance(vector, Tensor) else ag.tensor(vector, device=source.device)
    if tuple(vector.shape) != tuple(source.shape):
        raise ValueError(f"{op}: a vector has shape {tuple(vector.shape)}; expected {tuple(source.shape)}")
    return vector if vector.dtype == source.dtype else vector.astype(source.dtype)


def _tangent_of(out, by_output):
    """The next derivative for a floating output, zeros for any other tensor, None for the rest."""
    derivative = next(by_output) if _is_float(out) else None
    if derivative is None and isinstance(out, Tensor):
        return ag.zeros_like(out.detach())
    return derivative


def _check_function(op, fn):
    if not callable(fn):
        raise TypeError(f"{op}: fn is {shown(fn)}; expected a function of tensors")


def _is_float(value):
    return isinstance(value, Tensor) and str(value.dtype) in _FLOATS


def _pick(op, args, position):
    if not -len(args) <= position < len(args):
        raise ValueError(f"{op}: argnums={position} but {len(args)} positional arguments were given")
    return args[position]


def _split_aux(op, result):
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(
            f"{op}: the function returned {type(result).__name__}; with has_aux=True expected (result, aux)"
        )
    return result


def _as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def _check_scalar(op, value):
    if not _is_float(value):
        found = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"{op}: the function returned {found}; expected a floating scalar tensor")
    if value.size != 1:
        raise TypeError(
            f"{op}: the function returned shape {tuple(value.shape)}; expected a scalar (use vjp, or sum it)"
        )

"""Owns what a device is tried with: a call for every op of the engine, and its inputs."""

import numpy as np

import agtape as ag
from agtape.kernelcheck.case import Case, above_one, integers, positive, rows_of, spread, unit
from agtape.kernelcheck.typed_cases import typed_cases

UNARY = {
    "exact": {
        spread: ("negative", "abs", "sign", "relu", "floor", "ceil", "round", "trunc", "isnan", "isfinite", "isinf"),
        integers: ("bitwise_not", "logical_not"),
    },
    "rounded": {spread: ("square",), positive: ("sqrt", "reciprocal")},
    "function": {
        spread: (
            "exp",
            "expm1",
            "sin",
            "cos",
            "arctan",
            "sinh",
            "cosh",
            "tanh",
            "arcsinh",
            "sigmoid",
            "gelu",
            "silu",
            "softplus",
            "erf",
        ),
        positive: ("rsqrt", "log", "log1p", "log2", "log10"),
        unit: ("tan", "arcsin", "arccos", "arctanh"),
        above_one: ("arccosh",),
    },
}
BINARY = {
    "exact": {
        (spread, spread): (
            "maximum",
            "minimum",
            "equal",
            "not_equal",
            "less",
            "less_equal",
            "greater",
            "greater_equal",
        ),
        (integers, integers): ("bitwise_and", "bitwise_or", "bitwise_xor"),
    },
    "rounded": {(spread, spread): ("add", "subtract", "multiply"), (spread, positive): ("divide",)},
    "function": {(positive, spread): ("pow", "arctan2"), (spread, positive): ("floor_divide", "remainder")},
}


def elementwise():
    """Cases of the elementwise kernels."""
    for family, groups in UNARY.items():
        for draw, names in groups.items():
            for name in names:
                yield Case(
                    name,
                    (name,),
                    lambda rng, n, d=draw: [d(rng, n)],
                    getattr(ag, name) if hasattr(ag, name) else getattr(ag.nn.functional, name),
                    family,
                )
    for family, groups in BINARY.items():
        for draws, names in groups.items():
            for name in names:
                draw = lambda rng, n, d=draws: [each(rng, n) for each in d]
                yield Case(name, (name,), draw, getattr(ag, name), family)
    shifts = lambda rng, n: [integers(rng, n), rng.integers(0, 5, n).astype(np.int32)]
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        yield Case(name, (name,), shifts, getattr(ag, name))
    yield Case(
        "gelu_tanh",
        ("gelu_tanh",),
        lambda rng, n: [spread(rng, n)],
        lambda x: ag.nn.functional.gelu(x, approximate="tanh"),
        "function",
    )
    yield Case(
        "where",
        ("where", "greater"),
        lambda rng, n: [spread(rng, n), spread(rng, n)],
        lambda a, b: ag.where(a > b, a, b),
    )
    for dtype in ("float16", "bfloat16", "int32", "int64", "uint8", "bool"):
        yield Case(f"astype {dtype}", ("astype",), lambda rng, n: [positive(rng, n)], lambda x, d=dtype: x.astype(d))
        yield Case(
            f"from {dtype}",
            ("astype",),
            lambda rng, n: [positive(rng, n)],
            lambda x, d=dtype: ag.eval(y := x.astype(d)) or y.astype("float32"),
        )
    yield Case(
        "fused",
        ("multiply", "add", "relu"),
        lambda rng, n: [spread(rng, n), spread(rng, n)],
        lambda x, y: ag.relu(x * y + x),
        "function",
        True,
    )
    for name in ("gelu", "silu"):
        yield gradient_case(f"{name} slope", (f"{name}_slope",), getattr(ag.nn.functional, name))
    yield gradient_case("gelu tanh slope", ("gelu_tanh_slope",), lambda x: ag.nn.functional.gelu(x, approximate="tanh"))
    yield gradient_case("relu gradient", ("relu_grad",), ag.relu, family="exact")


def gradient_of(function, *tensors):
    """The gradient of a weighted sum of a function's results for its first input."""

    def loss(x):
        y = function(x, *tensors[1:])
        # A single result must not be weighed by 0.
        weights = ag.arange(1, y.size + 1, dtype="float32", device=y.device).remainder(7.0)
        return (y * weights.reshape(y.shape)).sum()

    return ag.grad(loss)(tensors[0])


def gradient_case(name, ops, function, draw=lambda rng, n: [spread(rng, n)], family="function", **rest):
    """A case of the gradient of a function's first input."""
    return Case(name, ops, draw, lambda *t: gradient_of(function, *t), family, **rest)


def _swapped(first, second, *rest):
    """The inputs with the first two in each other's place."""
    return [second, first, *rest]


def reductions():
    """Cases of reductions, scans, orderings and positions."""
    for name, draw in (("sum", spread), ("mean", spread), ("max", spread), ("min", spread)):
        family = "sum" if name in ("sum", "mean") else "exact"
        yield Case(name, (name,), lambda rng, n, d=draw: [d(rng, n)], getattr(ag, name), family, name in ("sum", "max"))
        for axis in (0, 1):
            matrix = lambda rng, n, d=draw: [d(rng, (rows_of(n, 61), 61))]
            yield Case(
                f"{name} axis {axis}", (name,), matrix, lambda x, f=getattr(ag, name), a=axis: f(x, axis=a), family
            )
    yield Case("prod", ("prod",), lambda rng, n: [rng.uniform(0.999, 1.001, n).astype(np.float32)], ag.prod, "product")
    yield Case("any", ("any",), lambda rng, n: [spread(rng, n) > 1.99], ag.any)
    yield Case("all", ("all",), lambda rng, n: [spread(rng, n) > -1.99], ag.all)
    yield Case("sum of integers", ("sum", "astype"), lambda rng, n: [integers(rng, n)], ag.sum)
    for name in ("argmax", "argmin"):
        yield Case(name, (name,), lambda rng, n: [spread(rng, n)], getattr(ag, name), is_large=name == "argmax")
        yield Case(
            f"{name} axis",
            (name,),
            lambda rng, n: [spread(rng, (rows_of(n, 61), 61))],
            lambda x, f=getattr(ag, name): f(x, axis=1),
        )
    yield Case("cumsum", ("cumsum",), lambda rng, n: [spread(rng, n)], lambda x: ag.cumsum(x, 0), "product", True)
    yield Case(
        "cumprod",
        ("cumprod",),
        lambda rng, n: [rng.uniform(0.999, 1.001, n).astype(np.float32)],
        lambda x: ag.cumprod(x, 0),
        "product",
    )
    yield Case("sort", ("sort",), lambda rng, n: [spread(rng, n)], ag.sort, is_large=True)
    yield Case("argsort", ("sort",), lambda rng, n: [integers(rng, n)], ag.argsort)
    few = np.array([1.0, -2.0, 0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], np.float32)
    yield Case("argsort down", ("sort",), lambda rng, n: [rng.choice(few, n)], lambda x: ag.argsort(x, descending=True))
    for width in (10, 200, 5000):
        rows = lambda rng, n, w=width: [spread(rng, (rows_of(n, w), w))]
        yield Case(f"softmax {width}", ("softmax",), rows, lambda x: ag.softmax(x, -1), "function", width == 200)
        yield Case(f"log_softmax {width}", ("log_softmax",), rows, lambda x: ag.log_softmax(x, -1), "function")


def network():
    """Cases of products, norms, losses and what trains."""
    nn = ag.nn.functional
    for m, k, n in ((1, 1, 1), (7, 5, 3), (64, 64, 64), (130, 257, 66), (1, 300, 300), (300, 300, 1), (33, 2000, 35)):
        for left, right in ((False, False), (True, False), (False, True), (True, True)):
            draw = lambda rng, _, s=((k, m) if left else (m, k), (n, k) if right else (k, n)): [
                spread(rng, x) for x in s
            ]
            call = lambda a, b, t=left, u=right: (a.T if t else a) @ (b.T if u else b)
            yield Case(
                f"matmul {m}x{k}x{n} {'T' if left else 'N'}{'T' if right else 'N'}",
                ("matmul",),
                draw,
                call,
                "product",
                most=1,
            )
    batched = lambda rng, n: [spread(rng, (5, 3, 17, 20)), spread(rng, (3, 20, 9))]
    yield Case("matmul batches", ("matmul",), batched, ag.matmul, "product", most=1)
    square = lambda rng, n: [spread(rng, (round(n**0.5), 16)), spread(rng, (16, round(n**0.5)))]
    yield Case("matmul square", ("matmul",), square, ag.matmul, "product", True)
    yield Case("matmul large", ("matmul",), lambda rng, n: [spread(rng, (648, 648))] * 2, ag.matmul, "product", most=1)
    for width in (16, 768):
        rows = lambda rng, n, w=width: [spread(rng, (rows_of(n, w), w)), positive(rng, w), spread(rng, w)]
        layer = lambda x, w, b: nn.layer_norm(x, (x.shape[-1],), w, b)
        root = lambda x, w, b: nn.rms_norm(x, (x.shape[-1],), w)
        yield Case(f"layer_norm {width}", ("layer_norm",), rows, layer, "sum", width == 768)
        yield Case(f"rms_norm {width}", ("rms_norm",), rows, root, "sum")
        yield gradient_case(f"layer_norm gradient {width}", ("layer_norm_gradient",), layer, rows, "product")
        yield gradient_case(f"rms_norm gradient {width}", ("rms_norm_gradient",), root, rows, "product")
        # The gradient of the first input is taken: the weight changes places with the rows.
        weighted = lambda rng, n, r=rows: _swapped(*r(rng, n))
        for name, f in (("layer_norm", layer), ("rms_norm", root)):
            by_weight = lambda *t, f=f: f(*_swapped(*t))
            yield gradient_case(
                f"{name} gradient of weight {width}", (f"{name}_gradient",), by_weight, weighted, "product"
            )
    labelled = lambda rng, n: [spread(rng, (rows_of(n, 100), 100)), rng.integers(0, 100, rows_of(n, 100))]
    yield Case("cross_entropy", ("cross_entropy",), labelled, nn.cross_entropy, "sum", True)
    yield gradient_case("cross_entropy gradient", ("cross_entropy_gradient",), nn.cross_entropy, labelled, "function")


def movement():
    """Cases of what moves elements."""
    matrix = lambda rng, n: [spread(rng, (rows_of(n, 61), 61))]
    yield Case("copy", ("copy", "permute"), matrix, lambda x: x.T.copy(), is_large=True)
    yield Case("reshape", ("reshape", "permute"), matrix, lambda x: x.T.reshape(-1))
    yield Case(
        "broadcast_to",
        ("broadcast_to",),
        lambda rng, n: [spread(rng, n)],
        lambda x: ag.broadcast_to(x, (3, *x.shape)).copy(),
    )
    yield Case("slice", ("slice",), matrix, lambda x: x[::-1, 3:50:4].copy())
    yield Case(
        "concat",
        ("concat",),
        lambda rng, n: [spread(rng, (rows_of(n, 8), 3)), spread(rng, (rows_of(n, 8), 5))],
        lambda a, b: ag.concat([a, b], axis=1),
        is_large=True,
    )
    indexed = lambda rng, n: [spread(rng, (100, rows_of(n, 100))), rng.integers(-100, 100, 90)]
    yield Case("gather", ("gather",), indexed, lambda x, i: x[i], is_large=True)
    added = lambda rng, n: [*indexed(rng, n), spread(rng, (90, rows_of(n, 100)))]
    yield Case(
        "scatter_add", ("scatter_add",), added, lambda x, i, v: ag.index_add(x, 0, i.remainder(100), v), "sum", True
    )
    yield Case(
        "embedding gradient", ("scatter_add",), indexed, lambda x, i: gradient_of(lambda t, j: t[j], x, i), "product"
    )
    yield Case("index_put", ("index_put",), added, assigned)
    along = lambda rng, n: [spread(rng, (rows_of(n, 61), 61)), rng.integers(0, 61, (rows_of(n, 61), 9))]
    yield Case("take_along_axis", ("take_along_axis",), along, lambda x, i: ag.take_along_axis(x, i, 1))
    yield Case(
        "scatter_along_axis",
        ("scatter_along_axis",),
        along,
        lambda x, i: ag.scatter_add(x, 1, i, ag.ones(i.shape, device=x.device)),
        "sum",
    )
    yield Case("slice_assign", ("slice_assign",), matrix, sliced)
    yield Case("to_device", ("to_device",), lambda rng, n: [spread(rng, n)], lambda x: x.cpu().to(x.device))


def assigned(x, i, v):
    """x with rows replaced; of repeated ones the last stays."""
    y = x * 1.0
    y[i] = v
    return y


def sliced(x):
    """x with every second column replaced."""
    y = x * 1.0
    y[:, ::2] = x[:, ::2] * 2.0
    return y


def generators():
    """Cases of what is made from nothing: `device` is where the empty input lies."""
    here = lambda rng, n: [np.zeros(n, np.float32)]
    yield Case("full", ("full",), here, lambda x: ag.full(x.shape, 2.5, device=x.device))
    yield Case("arange", ("arange",), here, lambda x: ag.arange(x.size, device=x.device), is_large=True)
    for name, call, family in (
        ("uniform", lambda x: ag.rand(x.shape, device=x.device), "exact"),
        ("randint", lambda x: ag.randint(-5, 1000, x.shape, device=x.device), "exact"),
        ("normal", lambda x: ag.randn(x.shape, device=x.device), "function"),
        ("dropout", lambda x: ag.dropout(x + 1.0, 0.3), "exact"),
    ):
        ops = (name,) if name != "dropout" else ("uniform", "where")
        yield Case(name, ops, here, lambda x, c=call: ag.manual_seed(5) or c(x), family, name == "uniform")


def updates():
    """Cases of optimizer steps: parameters after three of them."""
    draw = lambda rng, n: [spread(rng, n), spread(rng, n)]
    for name, ops, make in (
        ("SGD", ("sgd",), lambda p: ag.optim.SGD(p, lr=0.1, weight_decay=0.01)),
        ("SGD momentum", ("sgd_momentum",), lambda p: ag.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True)),
        ("Adam", ("adam",), lambda p: ag.optim.Adam(p, lr=0.1)),
        ("AdamW", ("adam",), lambda p: ag.optim.AdamW(p, lr=0.1, weight_decay=0.1)),
    ):
        yield Case(name, ops, draw, lambda x, g, m=make: stepped(x, g, m), "function", name == "Adam")


def stepped(x, g, make):
    """A parameter after three steps with the same gradient."""
    p = ag.param(x)
    opt = make([p])
    for _ in range(3):
        p.grad = g
        opt.step()
    return p.detach()


def all_cases():
    """Every case."""
    return [*elementwise(), *reductions(), *network(), *movement(), *generators(), *updates(), *typed_cases()]

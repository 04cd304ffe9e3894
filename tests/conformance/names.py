"""Owns the names: which of agtape's functions jax.numpy, torch and the array API have too, and their judgement under those names."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")

import agtape as ag
import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import torch
from bridge import compare, compare_one, flat_outputs
from calls import arrays
from calls_creation import CALLS
from rows import DIFFERENCE, FAILURE, PASS, Count

SEED = 20_231
NAMESPACES = {
    "torch": (torch, torch.Tensor, torch.nn.functional),
    "jax.numpy": (jnp, jnp.ndarray),
    "array API": (array_api_strict,),
}
NOT_OPS = {
    "modules": ("data", "functional", "nn", "optim", "serialization", "testing"),
    "types and constants": ("Tensor", "dtype", "e", "inf", "nan", "newaxis", "pi"),
    "dtypes": ("bfloat16", "bool", "bool_", "float16", "float32", "float64", "int32", "int64", "uint8"),
    "state of the thread or process": (
        "enable_grad",
        "get_default_device",
        "get_rng_state",
        "is_grad_enabled",
        "manual_seed",
        "no_grad",
        "set_default_device",
        "set_rng_state",
    ),
    "another thing of the same name": ("grad",),
    "files, whose tests are tests/test_serialization.py": ("load", "save"),
    "properties and reads of a tensor": (
        "backward",
        "copy",
        "copy_",
        "cpu",
        "detach",
        "device",
        "dim",
        "is_leaf",
        "itemsize",
        "nbytes",
        "ndim",
        "numel",
        "numpy",
        "requires_grad",
        "requires_grad_",
        "shape",
        "size",
        "to_device",
        "tolist",
    ),
}


def groups():
    """agtape's functions and the names of each, its own first: aliases are one function."""
    found = {}
    for name in dir(ag):
        if not name.startswith("_"):
            value = getattr(ag, name)
            names = found.setdefault(id(value) if callable(value) else name, [])
            names.insert(0 if name == getattr(value, "__name__", "") else len(names), name)
    return list(found.values())


def offered():
    """(agtape's names, namespaces that have one of them) of every op that some namespace has: functions, methods, nn.functional."""
    excluded = {name for names in NOT_OPS.values() for name in names}
    rows = [(names, names) for names in groups()]
    functions = {name for names in groups() for name in names}
    operators = {"eq", "ne", "lt", "le", "gt", "ge"}  # the comparison functions under torch's names
    rows += [([f"Tensor.{n}"], [n]) for n in dir(ag.Tensor) if not n.startswith("_") and n not in functions | operators]
    rows += [([f"nn.functional.{n}"], [n]) for n in ag.nn.functional.__all__]
    for shown, names in rows:
        if excluded.isdisjoint(names):
            where = [space for space, parts in NAMESPACES.items() if any(hasattr(p, n) for p in parts for n in names)]
            if where:
                yield shown, where


class Namespace:
    """A judge's functions under any name that agtape has for the same function, and how arrays come and go."""

    def __init__(self, judge, modules, aliases):
        self.judge, self._modules, self._aliases = judge, modules, aliases

    def __getattr__(self, name):
        for known in (name, *self._aliases.get(name, ())):
            for module in self._modules:
                if hasattr(module, known):
                    return getattr(module, known)
        raise AttributeError(f"{self.judge} has no {name}")


def namespaces():
    """agtape and the judges by name."""
    aliases = {name: names for names in groups() for name in names}
    parts = {
        "agtape": (ag,),
        "jax.numpy": (jnp,),
        "array API": (array_api_strict,),
        "torch": (torch, torch.nn.functional),
    }
    return {judge: Namespace(judge, modules, aliases) for judge, modules in parts.items()}


def as_compared(value):
    """A judge's output as NumPy's array, or the Python value that it is."""
    if isinstance(value, (bool, int, float, str)):
        return value
    return value if isinstance(value, torch.Tensor) else np.asarray(value)


def judge_values(call, spaces, judge, inputs):
    """Compare the outputs of one call."""
    ours = flat_outputs(call.call(spaces["agtape"], *[ag.tensor(x) for x in inputs]))
    maker = torch.from_numpy if judge == "torch" else spaces[judge].asarray
    theirs = [as_compared(v) for v in flat_outputs(call.call(spaces[judge], *[maker(x) for x in inputs]))]
    if len(ours) == 1 and type(ours[0]) is bool:
        theirs = [bool(v) for v in theirs]
    if call.name == "iinfo" or call.name == "finfo":
        compare_one("result", ours[0], float(theirs[0]))
        return ours
    compare("result", ours, theirs, slack=4, compares=call.compares)
    return ours


def judge_gradient(call, spaces, inputs, rng):
    """Compare the gradients with jax's for one random cotangent (in float64: jax compiles every call anew)."""
    ours, pull = ag.vjp(lambda *x: flat_outputs(call.call(spaces["agtape"], *x)), *[ag.tensor(x) for x in inputs])
    cots = [rng.standard_normal(tuple(o.shape)).astype(str(o.dtype)) for o in ours]
    _, jax_pull = jax.vjp(lambda *x: flat_outputs(call.call(spaces["jax.numpy"], *x)), *map(jnp.asarray, inputs))
    theirs = jax_pull([jnp.asarray(c) for c in cots])
    compare("gradient", list(pull([ag.tensor(c) for c in cots])), [np.asarray(g) for g in theirs], slack=4)


def is_float(value):
    """Whether an output has a gradient."""
    return isinstance(value, ag.Tensor) and str(value.dtype) in ("float32", "float64")


def run_call(call, spaces, judge, dtype):
    """What one call under one judge in one dtype ends in."""
    rng = np.random.default_rng(SEED)
    inputs = arrays(call, dtype, rng)
    try:
        ours = judge_values(call, spaces, judge, inputs)
        if (
            judge == "jax.numpy"
            and inputs
            and dtype == "float64"
            and all(map(is_float, ours))
            and call.compares == "all"
        ):
            judge_gradient(call, spaces, inputs, rng)
    except Exception as error:
        if judge in call.differs:
            return DIFFERENCE, call.differs[judge]
        shapes = ", ".join(str(s) for s in call.shapes)
        return FAILURE, f"{call.name} against {judge} on {dtype} {shapes}: {type(error).__name__}: {error}"[:400]
    if judge in call.differs:
        return (
            FAILURE,
            f"{call.name} against {judge} on {dtype}: shows no difference {call.differs[judge]!r}; remove it",
        )
    return PASS, ""


def run(is_chosen):
    """Counts by (agtape's name, judge)."""
    spaces = namespaces()
    results = {}
    for call in CALLS:
        if not is_chosen(call.name):
            continue
        for judge in call.judges:
            try:
                getattr(spaces[judge], call.name)
            except AttributeError:
                continue
            for dtype in call.dtypes:
                results.setdefault((call.name, judge), Count()).add(*run_call(call, spaces, judge, dtype))
    return results

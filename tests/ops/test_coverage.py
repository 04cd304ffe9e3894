"""Every op of the engine has a row that runs it, every public op a row and an example; and the checkers are checked."""

import re
from pathlib import Path

import agtape as ag
import numpy as np
import pytest
from ops.registry import CREATION, ELSEWHERE, FUNCTIONS_ELSEWHERE, ROWS
from ops.samples import as_list, check_close, make_param, to_dtype

ROOT = Path(__file__).resolve().parent.parent.parent
KIND = re.compile(r"kinds! \{.*?\b(?P<family>\w+Kind) \{(?P<body>.*?)\n    \}\n\}", re.DOTALL)
MEMBER = re.compile(r"^\s*(\w+) = \"(\w+)\",", re.MULTILINE)
NAME_ARM = re.compile(r"^\s*Op::(\w+)[^=\n]*=> \"(\w+)\",", re.MULTILINE)


def kinds(source):
    """Family -> {member: name} of a kind.rs."""
    return {m["family"]: dict(MEMBER.findall(m["body"])) for m in KIND.finditer(source)}


def variants(source):
    """The members of `pub enum Op` in an op.rs."""
    body = re.search(r"pub enum Op \{(.*?)\n\}", source, re.DOTALL)[1]
    return re.findall(r"^    (\w+)(?:\(.*\)| \{)?,?$", re.sub(r"///[^\n]*", "", body), re.MULTILINE)


def op_names(source):
    """Variant -> the names that `Op::name` gives it."""
    names = {}
    for variant, name in NAME_ARM.findall(source):
        names.setdefault(variant, []).append(name)
    return names


def uncovered(wanted, rows, elsewhere):
    """Names of engine ops that no row runs and no other test owns."""
    covered = {op for row in rows for op in row.ops} | {row.function for row in rows} | set(elsewhere)
    return sorted(set(wanted) - covered)


def engine_ops():
    """The names of every op of the engine."""
    backend = ROOT / "src/backend"
    families = kinds((backend / "kind.rs").read_text())
    assert set(families) == {"UnaryKind", "BinaryKind", "ReduceKind"}
    source = (backend / "op.rs").read_text()
    names = op_names(source)
    # These delegate to their kind's name.
    assert set(variants(source)) - set(names) == {"Unary", "Binary", "Reduce"}
    of_kinds = [name for family in families.values() for name in family.values()]
    return of_kinds + [name for group in names.values() for name in group]


def test_every_engine_op_has_a_row():
    names = engine_ops()
    assert len(names) > 100
    created = {name.split()[0] for name, _, _ in CREATION}
    missing = uncovered(names, ROWS, {**ELSEWHERE, **dict.fromkeys(created)})
    assert not missing, f"no row in tests/ops runs {', '.join(missing)}"


RECORDED = [row for row in ROWS if row.gradient != "none" and row.ops and "float64" in row.dtypes]


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row.name)
def test_rows_record_the_ops_they_name(row, rng):
    """What a row says it runs stands in its tape's report."""
    shapes = row.shapes(7)
    leaves = [make_param(to_dtype(draw(rng, shape), "float64")) for draw, shape in zip(row.draws(len(shapes)), shapes)]
    if row.ops == ("relu_grad",):
        w = leaves[0]
        with ag.grad_tape() as tape:
            loss = ag.relu(w).sum()
            loss.backward(create_graph=True)
            names = {r.op for r in ag.tape_memory(tape).by_op}
    else:
        with ag.grad_tape() as tape:
            results = as_list(row.run(*leaves))
        names = {r.op for r in ag.tape_memory(tape).by_op}
        assert any(y.requires_grad for y in results)
    assert set(row.ops) <= names


@pytest.mark.parametrize("name", ELSEWHERE)
def test_ops_tested_elsewhere_are_named_there(name):
    """The file exists and mentions the op."""
    assert re.search(rf"{name.split('_')[0]}", (ROOT / "tests" / ELSEWHERE[name]).read_text(), re.IGNORECASE)


# What `ag` has besides ops: made of no tensors, or of objects.
ENGINE = {
    "asarray", "clear_plan_cache", "detect_anomaly", "devices", "empty_cache", "enable_grad", "eval", "from_dlpack",
    "get_default_device", "get_rng_state", "is_grad_enabled", "manual_seed", "no_grad", "param", "reset",
    "reset_peak_memory", "set_default_device", "set_rng_state", "synchronize",
}  # fmt: skip
BUILTIN = type(ag.exp)


def public_ops(namespace):
    """Name -> function of the public ops: the core's functions, and those of the array API that are made of them."""
    found = {}
    for name, value in vars(namespace).items():
        is_made_of_ops = getattr(value, "__module__", "") == "agtape.array_api" and name in (
            "cumulative_sum", "cumulative_prod", "diff", "searchsorted",
        )  # fmt: skip
        if not name.startswith("_") and (isinstance(value, BUILTIN) or is_made_of_ops):
            found[name] = value
    return found


def example_of(function):
    """The lines of a docstring's example that call the function."""
    lines = re.findall(r"^\s*>>> (.*)$", function.__doc__ or "", re.MULTILINE)
    return [line for line in lines if re.search(rf"\bag\.{function.__name__}\b", line)]


def is_documented(function):
    """A first sentence, and an example that calls the function."""
    text = (function.__doc__ or "").strip()
    return bool(text) and text.split("\n")[0].endswith(".") and bool(example_of(function))


OPS = {name: f for name, f in public_ops(ag).items() if f.__name__ not in ENGINE}


def test_every_public_op_has_a_row():
    tested = {row.function for row in ROWS} | {name.split()[0] for name, _, _ in CREATION} | set(FUNCTIONS_ELSEWHERE)
    missing = sorted({f.__name__ for f in OPS.values()} - tested)
    assert not missing, f"no row in tests/ops calls {', '.join(missing)}"


@pytest.mark.parametrize("name", FUNCTIONS_ELSEWHERE)
def test_functions_tested_elsewhere_are_called_there(name):
    assert f"ag.{name}(" in (ROOT / "tests" / FUNCTIONS_ELSEWHERE[name]).read_text()


@pytest.mark.parametrize("name", OPS)
def test_every_public_op_has_a_docstring_with_an_example(name):
    assert is_documented(OPS[name]), f"ag.{name}: one sentence, and an example that calls it"


def test_a_missing_row_is_seen():
    row = next(row for row in ROWS if row.name == "exp")
    assert uncovered(["exp", "made_up"], [row], {}) == ["made_up"]
    assert uncovered(["exp", "leaf"], [], {"leaf": "x.py"}) == ["exp"]


def test_kinds_and_ops_are_read():
    source = """
kinds! {
    /// Ops of one input.
    UnaryKind {
        /// -x
        Neg = "negative",
        /// |x|
        Abs = "abs",
    }
}

kinds! {
    /// Sums.
    ReduceKind {
        /// Sum.
        Sum = "sum",
    }
}
"""
    assert kinds(source) == {"UnaryKind": {"Neg": "negative", "Abs": "abs"}, "ReduceKind": {"Sum": "sum"}}
    source = """
pub enum Op {
    /// A value.
    Leaf,
    /// Elementwise.
    Unary(UnaryKind),
    /// Running sum.
    Cumsum {
        /// The axis.
        axis: usize,
    },
    /// A slice.
    Slice(Box<[Range]>),
}

        match self {
            Op::Leaf => "leaf",
            Op::Unary(k) => k.name(),
            Op::Cumsum { .. } => "cumsum",
            Op::Slice(_) => "slice",
        }
"""
    assert variants(source) == ["Leaf", "Unary", "Cumsum", "Slice"]
    assert op_names(source) == {"Leaf": ["leaf"], "Cumsum": ["cumsum"], "Slice": ["slice"]}


def test_poor_docstrings_are_seen():
    def good():
        """Adds.

        >>> ag.good()
        """

    def no_example():
        """Adds."""

    def another_example():
        """Adds.

        >>> ag.other()
        """

    def nothing():
        pass

    assert is_documented(good)
    assert not any(map(is_documented, (no_example, another_example, nothing)))


def test_rows_that_differ_from_numpy_are_seen():
    """The comparison itself: values, shapes and positions."""
    x = ag.tensor(np.array([1.0, np.nan, np.inf]))
    check_close(x, np.array([1.0, np.nan, np.inf]), "exact")
    for wrong in ([1.0, 0.0, np.inf], [1.0, np.nan, -np.inf], [1.0 + 1e-9, np.nan, np.inf]):
        with pytest.raises(AssertionError, match="1 of 3 differ"):
            check_close(x, np.array(wrong), "rounded")
    with pytest.raises(AssertionError, match="shape"):
        check_close(x, np.ones((3, 1)), "exact")
    with pytest.raises(AssertionError):
        check_close(ag.tensor([1, 2]), np.array([1, 3]), "sum")

"""Every promise listed in tests/promised.txt has a test that names it and runs."""

import ast
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NUMBER = re.compile(r"[A-Z]\d\d")
IN_PYTHON = re.compile(r"(?<![A-Za-z0-9])([A-Z]\d\d)(?=_|$)")
IN_RUST = re.compile(r"(?<![a-z0-9])([a-z]\d\d)(?=_|$)")
NOT_RUN = {"skip", "skipif", "xfail", "importorskip"}
RUST_FN = re.compile(r"(?P<attributes>(?:#\[[^\]]*\]\s*)+)(?:pub(?:\([a-z]+\))?\s+)?fn\s+(?P<name>test_\w+)")


def listed(text):
    """The promise numbers of a promised.txt, one a line, comments apart."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line]


def marks(node):
    """(name, arguments) of every pytest mark in a decorator or in a pytestmark value."""
    for item in node.elts if isinstance(node, ast.List | ast.Tuple) else [node]:
        call = item if isinstance(item, ast.Call) else None
        target = call.func if call else item
        if isinstance(target, ast.Attribute) and ast.unparse(target.value).endswith("mark"):
            yield target.attr, [a.value for a in call.args if isinstance(a, ast.Constant)] if call else []


def is_given_up(function):
    """Whether a test may end itself without proving anything: pytest.skip(...) and its kind anywhere in its body."""
    calls = [n.func for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return any(c.attr in NOT_RUN and ast.unparse(c.value) == "pytest" for c in calls)


def proved_in_python(source):
    """The numbers that tests in a Python file prove: named in the function or in a promise mark, and not skipped or xfail."""

    def visit(body, outer):
        module_marks = [
            m
            for n in body
            if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "pytestmark"
            for m in marks(n.value)
        ]
        outer = outer + module_marks
        top_calls = [n.value for n in body if isinstance(n, ast.Expr | ast.Assign) and isinstance(n.value, ast.Call)]
        if any(ast.unparse(c.func) in ("pytest.skip", "pytest.importorskip") for c in top_calls):
            return
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                yield from visit(node.body, outer + [m for d in node.decorator_list for m in marks(d)])
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                own = outer + [m for d in node.decorator_list for m in marks(d)]
                if any(name in NOT_RUN for name, _ in own) or is_given_up(node):
                    continue
                yield from IN_PYTHON.findall(node.name)
                for name, arguments in own:
                    if name == "promise":
                        yield from arguments

    return set(visit(ast.parse(source).body, []))


def proved_in_rust(source):
    """The numbers that tests in a Rust file prove: `fn test_t01_...` under #[test] (in proptest! too) and not #[ignore]d."""
    found = set()
    for match in RUST_FN.finditer(re.sub(r"//[^\n]*", "", source)):
        attributes = match["attributes"]
        if re.search(r"\btest\b", attributes) and not re.search(r"\bignore\b", attributes):
            found.update(number.upper() for number in IN_RUST.findall(match["name"]))
    return found


def proved(root):
    """The numbers that the tests of a checkout prove."""
    found = set()
    for path in (root / "tests").rglob("*.py"):
        if path.name.startswith("test_"):
            found |= proved_in_python(path.read_text())
    for folder in ("src", "tests"):
        for path in (root / folder).rglob("*.rs"):
            found |= proved_in_rust(path.read_text())
    return found


def test_every_listed_promise_has_a_running_test():
    numbers = listed((ROOT / "tests/promised.txt").read_text())
    assert all(NUMBER.fullmatch(n) for n in numbers), numbers
    assert len(numbers) == len(set(numbers)), "tests/promised.txt lists a number twice"
    missing = sorted(set(numbers) - proved(ROOT))
    assert not missing, (
        f"no running test names {', '.join(missing)}: test_T01_..., fn test_t01_... or @pytest.mark.promise(...)"
    )


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("def test_T01_fills_grad(): pass", {"T01"}),
        ("def test_T01_M05_together(): pass", {"T01", "M05"}),
        ("@pytest.mark.promise('T01', 'T02')\ndef test_x(): pass", {"T01", "T02"}),
        ("pytestmark = pytest.mark.promise('T03')\ndef test_x(): pass", {"T03"}),
        ("class TestA:\n    def test_T04(self): pass", {"T04"}),
        ("@pytest.mark.promise('T05')\nclass TestA:\n    def test_x(self): pass", {"T05"}),
        ("def helper_T01_x(): pass", set()),
        ("def test_float16_and_AT01_x(): pass", set()),
        ("@pytest.mark.skip(reason='later')\ndef test_T01_x(): pass", set()),
        ("@pytest.mark.skipif(True, reason='later')\ndef test_T01_x(): pass", set()),
        ("@pytest.mark.xfail\ndef test_T01_x(): pass", set()),
        ("def test_T01_x():\n    if slow:\n        pytest.skip('slow')", set()),
        ("def test_T01_x():\n    np = pytest.importorskip('numpy')", set()),
        ("pytestmark = [pytest.mark.skip]\ndef test_T01_x(): pass", set()),
        ("torch = pytest.importorskip('torch')\ndef test_T01_x(): pass", set()),
        ("@pytest.mark.skip\ndef test_T01_x(): pass\ndef test_T01_y(): pass", {"T01"}),
    ],
)
def test_python_tests_are_read(source, numbers):
    assert proved_in_python(source) == numbers


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("#[test]\nfn test_r08_stale() {}", {"R08"}),
        ("#[test]\n#[should_panic]\nfn test_r08_t01_both() {}", {"R08", "T01"}),
        ("proptest! {\n    #[test]\n    fn test_r08_model(ops in any::<u8>()) {}\n}", {"R08"}),
        ("#[test]\n#[ignore]\nfn test_r08_stale() {}", set()),
        ("#[test]\n#[ignore = \"slow\"]\nfn test_r08_stale() {}", set()),
        ("fn test_r08_stale() {}", set()),
        ("// #[test]\n// fn test_r08_stale() {}", set()),
        ("#[test]\nfn test_float16_x() {}", set()),
    ],
)  # fmt: skip
def test_rust_tests_are_read(source, numbers):
    assert proved_in_rust(source) == numbers


def test_a_missing_promise_is_seen(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "tests/test_a.py").write_text(
        textwrap.dedent("""
        def test_T01_x(): pass
    """)
    )
    (tmp_path / "src/pool.rs").write_text("#[cfg(test)]\nmod tests {\n    #[test]\n    fn test_r08_x() {}\n}\n")
    assert proved(tmp_path) == {"T01", "R08"}
    assert listed("# all\nT01\nM01 # later\n\n") == ["T01", "M01"]

"""The tree keeps its shape: which layer names what, how big things get, what modules are called, no panics."""

import ast
import re
from pathlib import Path

import pytest
import rust_source

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES, FUNCTION_LINES, SHADER_LINES, EXCEPTIONS = 400, 60, 150, 5
FOLDERS = ("src", "python", "shaders", "tests", "benches", "examples")
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager"}
PANICS = re.compile(r"\.unwrap\(\)|\.expect\(|\b(?:panic|todo|unimplemented)!|\bunreachable!\(\s*\)")
# Outer layers may use inner ones (a smaller number may use a larger); layers with one number belong together. What stands
# in no layer (dtype, shape, layout and other plain data) may be used by all, and itself uses only its like and error.
LAYERS = {
    "py": 0,
    "checkpoint": 1,
    "ops": 1,
    "tape": 1,
    "optim": 1,
    "plan": 2,
    "graph": 3,
    "backend": 4,
    "pool": 5,
    "error": 6,
}


def files(*suffixes, folders=FOLDERS):
    """The files of the tree with one of these suffixes, build products apart."""
    found = [p for folder in folders for p in sorted((ROOT / folder).rglob("*")) if p.suffix in suffixes]
    return [p for p in [*found, *ROOT.glob("build.rs")] if p.suffix in suffixes and "__pycache__" not in p.parts]


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def engine():
    """(path, code without comments, literals and tests) of every Rust file that ships."""
    tests = rust_source.test_files(ROOT / "src")
    for path in files(".rs", folders=["src"]):
        if path.is_relative_to(ROOT / "src") and path not in tests:
            yield path, rust_source.without_tests(rust_source.code(path.read_text()))


def exceptions():
    """{path: reason} of tests/size_exceptions.txt."""
    lines = (ROOT / "tests/size_exceptions.txt").read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#"))


def python_functions(source):
    """(name, first line, lines) of every Python function, its docstring not counted."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            has_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1
            doc = first.end_lineno - first.lineno + 1 if has_doc and isinstance(first.value.value, str) else 0
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1 - doc


def oversizes(path):
    """What is too big in one file, in words."""
    source = path.read_text()
    if path.suffix == ".wgsl":
        lines, limit, long = source.count("\n"), SHADER_LINES, []
    elif path.suffix == ".py":
        lines, limit, long = source.count("\n"), FILE_LINES, list(python_functions(source))
    else:
        text = rust_source.code(source)
        tests = sum(text.count("\n", start, end) + 1 for start, end in rust_source.test_spans(text))
        lines, limit = source.count("\n") - tests, FILE_LINES
        long = list(rust_source.functions(rust_source.without_tests(text)))
    if lines > limit:
        yield f"{name_of(path)}: {lines} lines, budget {limit}"
    for function, line, count in long:
        if count > FUNCTION_LINES:
            yield f"{name_of(path)}:{line}: {function} has {count} lines, budget {FUNCTION_LINES}"


@pytest.mark.parametrize(("word", "home"), [("pyo3", "src/py/"), ("wgpu", "src/backend/gpu/")])
def test_a_foreign_library_is_named_in_one_place(word, home):
    # lib.rs may name pyo3 for the one line that registers the module.
    registers = {"src/lib.rs"} if word == "pyo3" else set()
    named = {name_of(path) for path, text in engine() if re.search(rf"\b{word}\b", text)}
    assert not {n for n in named - registers if not n.startswith(home)}


def test_layers_use_only_what_lies_below_them():
    wrong = []
    for path, text in engine():
        own = path.relative_to(ROOT / "src").parts[0].removesuffix(".rs")
        if own in ("lib", "main"):
            continue
        rank = LAYERS.get(own, LAYERS["error"])
        used = set(re.findall(r"\bcrate::(\w+)", text)) | {
            name
            for group in re.findall(r"\bcrate::\{([^;]*)\}\s*;", text)
            for name in re.findall(r"(?:^|,)\s*(\w+)", group)
        }
        wrong += [f"{name_of(path)} uses {name}" for name in sorted(used) if LAYERS.get(name, 9) < rank]
    assert not wrong, "\n".join(wrong)


def test_files_and_functions_stay_within_their_budgets():
    allowed = exceptions()
    # A `#[cfg(test)] mod name;` in a file of its own is as free as one written inline.
    outlined = rust_source.test_files(ROOT / "src")
    big = {name_of(p): list(oversizes(p)) for p in files(".rs", ".py", ".wgsl") if p not in outlined}
    over = [line for path, lines in big.items() if path not in allowed for line in lines]
    assert not over, "\n".join(over)
    assert len(allowed) <= EXCEPTIONS
    stale = [path for path in allowed if not big.get(path)]
    assert not stale, f"tests/size_exceptions.txt lists what needs no exception: {stale}"


def test_modules_have_names_that_say_something():
    stems = {name_of(p): {p.stem, *p.relative_to(ROOT).parts[:-1]} for p in files(".rs", ".py", ".wgsl")}
    # Criterion's shared set-up is the one exception: every bench is a program of its own and has nowhere else to put it.
    assert not {path for path, names in stems.items() if names & BANNED_NAMES and path != "benches/common.rs"}


def test_the_engine_does_not_panic():
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path, text in engine()
        for number, line in enumerate(text.splitlines(), 1)
        if PANICS.search(line)
    ]
    assert not found, "return an Error, or name the invariant in unreachable!(...):\n" + "\n".join(found)


def test_every_file_opens_with_a_sentence_that_says_what_it_owns():
    openings = {".rs": r"//! .*", ".py": r'[rR]?"""\S.*', ".wgsl": r"// \S.*"}
    silent = []
    for path in files(*openings):
        lines = path.read_text().split("\n")
        first = lines[1] if lines[0].startswith("#!") else lines[0]
        if not re.fullmatch(openings[path.suffix], first):
            silent.append(name_of(path))
    assert not silent, silent


RUST = """//! What it owns.
use crate::{error::Error, dtype::{A, B}};
/* fn in_a_comment() { */
fn short<'a>(x: &'a [u8; 4]) -> char { let s = "fn } {"; let r = r#"" { "#; '{' }
trait T { fn no_body(x: [u8; 4]); }
fn long() {
    // pyo3 in a comment
    if true { body() }
    ok.unwrap_or(1);
}
#[cfg(test)]
#[allow(dead_code)]
mod tests {
    fn hidden() { x.unwrap() }
}
fn after() {}
"""


def test_the_reading_of_rust_is_right():
    text = rust_source.code(RUST)
    assert text.count("\n") == RUST.count("\n")
    assert "pyo3" not in text
    shipped = rust_source.without_tests(text)
    assert list(rust_source.functions(shipped)) == [("short", 4, 1), ("long", 6, 5), ("after", 16, 1)]
    assert PANICS.search(text)
    assert not PANICS.search(shipped)


def test_files_compiled_for_tests_alone_are_found(tmp_path):
    (tmp_path / "pool/slots/model").mkdir(parents=True)
    for name in (
        "pool/mod.rs",
        "pool/slots.rs",
        "pool/model_test.rs",
        "pool/slots/model.rs",
        "pool/slots/model/deep.rs",
    ):
        (tmp_path / name).write_text("//! X.\n")
    (tmp_path / "pool/mod.rs").write_text("mod slots;\n#[cfg(test)]\nmod model_test;\n")
    (tmp_path / "pool/slots.rs").write_text("#[cfg(test)]\nmod model;\n")
    found = {p.relative_to(tmp_path).as_posix() for p in rust_source.test_files(tmp_path)}
    assert found == {"pool/model_test.rs", "pool/slots/model.rs", "pool/slots/model/deep.rs"}


@pytest.mark.parametrize(
    "line", ["x.unwrap();", 'x.expect("     ")', 'panic!("  ")', "todo!()", "unimplemented!()", "unreachable!()"]
)
def test_panics_are_seen(line):
    assert PANICS.search(line)


@pytest.mark.parametrize("line", ["x.unwrap_or(0)", "x.unwrap_or_default()", 'unreachable!("  ")', "expected(1)"])
def test_what_does_not_panic_is_left_alone(line):
    assert not PANICS.search(line)

"""What README.md says is true: its Python runs, its report is the one shown, and what it names exists."""

import contextlib
import io
import re
from pathlib import Path

import agtape as ag
import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(
    r"<!-- tape report: the first lines that the example above prints -->\s*^```\w*\n(.*?)^```$", re.M | re.S
)


@pytest.fixture(scope="module")
def printed():
    """What README's Python blocks print, run one after the other in one namespace, as a reader would."""
    sources = [code for language, code in BLOCK.findall(README) if language == "python"]
    assert sources, "README.md has no Python example"
    scope, out = {"__name__": "__main__"}, io.StringIO()
    with contextlib.redirect_stdout(out):
        for source in sources:
            exec(compile(source, "README.md", "exec"), scope)
    return out.getvalue()


def test_U01_the_first_example_learns(printed):
    last = printed.rstrip().splitlines()[-1]
    figures = re.fullmatch(r"loss (\d\.\d{3}), (\d+)% right", last)
    assert figures, last
    assert float(figures[1]) < 0.3 and int(figures[2]) >= 90


def test_M01_the_example_prints_the_tapes_report(printed):
    assert printed.startswith("TapeReport\n")
    for word in ("nodes", "operands", "activations", "freed by clear()", "matmul"):
        assert word in printed


def test_the_report_shown_is_the_one_printed(printed):
    for shown in SHOWN.findall(README):
        assert printed.startswith(shown.rstrip("\n")), shown


def test_M01_the_table_of_fields_is_that_of_the_report():
    table = re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)
    fields = ag.tape_memory(None).to_dict()
    assert table and set(table) <= set(fields)
    assert set(fields) - set(table) <= {"bytes_needed", "by_segment"}


def test_links_and_targets_exist():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in link or (ROOT / link).exists(), link
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make (\w+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target

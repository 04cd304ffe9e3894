"""What README.md says is true: its Python runs, its report is the one shown, and what it names exists."""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import agtape as ag
import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown(first_words):
    """The one block of README's that begins with these words."""
    (block,) = [code for _, code in BLOCK.findall(README) if code.startswith(first_words)]
    return block


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
    report, _ = printed.rsplit("loss ", 1)
    assert shown("TapeReport") == report


def test_M08_M09_the_peaks_shown_are_those_of_the_memory_example(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "memory.py"), "--steps", "2", "--ending", ".svg"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    table, found = shown("estimated peak"), done.stdout.split("\n\n")[0]
    assert table.splitlines()[1] == found.splitlines()[1]
    assert names(table) == names(found) and len(names(table)) == 5
    # Rounded in the table; times are the machine's, and the losses those of more steps.
    assert mebibytes(table) == pytest.approx(mebibytes(found), rel=0.01)
    for way in ("plain", "checkpointed"):
        picture = (ROOT / "docs" / f"memory_{way}.svg").read_text()
        (peak,) = re.findall(r"launches: peak ([\d.]+ MiB)<", picture)
        assert re.search(rf"^{way} +{re.escape(peak)} ", table, re.MULTILINE), f"{way}: the picture's peak is {peak}"


def names(table):
    """The ways to train that a table compares, without their budgets in bytes."""
    return [re.split(r":|  ", line)[0] for line in table.splitlines()[2:]]


def mebibytes(table):
    """Every figure in MiB, in the order of the table."""
    return [float(figure) for figure in re.findall(r"([\d.]+) MiB", table)]


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

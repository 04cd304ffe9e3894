"""What docs/gpu.md says is what there is: every error that a user can see is explained, and every switch is named."""

import re
from pathlib import Path

import pytest
import rust_source

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs/gpu.md").read_text()
BACKEND = ROOT / "src/backend/gpu"
# Where else messages about devices are made.
BESIDE = [ROOT / "src/py/devices.rs", ROOT / "src/plan/transfer.rs"]
LITERAL = re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)
# What makes an error, names what failed in one, or holds the text of either.
MAKES = re.compile(
    r"Error::(?:value|device|dtype|index|Memory)\b|\b(?:made|guarded|refusal)\(|let (?:what|message)\b|const SUBMISSION"
)
# Ops that stand before a message.
OPS = {"gpu", "device", "tensor", "matmul"}
# Parts of messages, and failures that are no errors: things are done without.
NO_MESSAGES = {"no reason given", "a test", "X: X", "X: X: X", "a cache of pipelines", "a set of stamps"}


def argument_end(code, start):
    """Where the call, or the statement, ends that begins at a place."""
    depth = 0
    for at in range(start, len(code)):
        depth += (code[at] in "([{") - (code[at] in ")]}")
        if (code[at] in ")]}" and depth <= 0) or (code[at] == ";" and depth == 0):
            return at + 1
    return len(code)


def messages():
    """Every text that becomes (part of) an exception of the backend, with X for what is filled in."""
    tests = rust_source.test_files(ROOT / "src")
    found = set()
    for path in [*BACKEND.rglob("*.rs"), *BESIDE]:
        source = path.read_text()
        code = rust_source.without_tests(rust_source.code(source))
        for match in MAKES.finditer(code) if path not in tests else ():
            start = match.end() - match[0].endswith("(")
            for literal in LITERAL.finditer(source, start, argument_end(code, start)):
                text = re.sub(r"\\\n\s*", "", literal[1]).replace('\\"', '"')
                found.add(re.sub(r"\{[^}]*\}", "X", text))
    return sorted(found - NO_MESSAGES - OPS)


def explained():
    """The errors of the guide's table, by their text without the class, as patterns."""
    rows = re.findall(r"^\| (`.*?`) \| ", GUIDE.split("## What errors mean")[1].split("\n## ")[0], re.MULTILINE)
    patterns = [pattern for row in rows for pattern in re.findall(r"`([^`]+)`", row)]
    for pattern in patterns:
        assert re.match(r"(ag\.)?\w+Error: ", pattern), pattern
    return [re.sub(r"^(ag\.)?\w+Error: ", "", pattern) for pattern in patterns]


def is_told(message, patterns):
    """Whether a pattern fits a message: as it is, behind an op's or a device's name, or with the driver's words behind it."""
    forms = [message, f"X: {message}: X", *(f"{op}: {message}" for op in ("X", *OPS))]
    return any(re.fullmatch(".*".join(map(re.escape, p.split("..."))), form) for p in patterns for form in forms)


def test_the_messages_of_the_backend_are_found():
    found = messages()
    assert len(found) > 30
    for part in (
        "was lost (X)",
        "could not be compiled",
        "no adapter was found",
        "bind at once",
        "reported outside a call",
    ):
        assert any(part in message for message in found), part


@pytest.mark.parametrize("message", messages())
def test_every_message_is_explained_in_the_guide(message):
    assert is_told(message, explained()), "docs/gpu.md, What errors mean, does not explain it"


def test_what_is_explained_can_be_raised():
    sources = [*(ROOT / "src").rglob("*.rs"), *(ROOT / "python").rglob("*.py")]
    text = re.sub(r"\\\n\s*", "", "".join(path.read_text() for path in sources)).replace('\\"', '"')
    for pattern in explained():
        parts = [part for part in re.split(r"\.\.\.", pattern) if len(part.strip(" :;,()")) > 3]
        assert parts, f"{pattern}: says nothing"
        for part in parts:
            # Messages may stand behind the name of an op, which is no part of them.
            bare = re.sub(r"^(gpu|device|tensor|matmul): ", "", part).strip(" :;")
            assert bare in text, f"{pattern}: {bare!r} is nowhere in the source"


def test_the_guide_names_every_switch_of_the_backend_and_no_other():
    source = "".join(path.read_text() for path in (ROOT / "src/backend").rglob("*.rs"))
    switches = set(re.findall(r'"(AGTAPE_\w+)"', source))
    named = set(re.findall(r"^\| `(AGTAPE_\w+)", GUIDE.split("## Switches")[1].split("\n## ")[0], re.MULTILINE))
    assert switches
    assert switches == named


def test_what_was_never_run_is_said_to_be():
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", GUIDE.split("## Does it work")[1].split("\n## ")[0], re.MULTILINE)
    for name in ("AMD", "Intel", "subgroups of 64", "Metal", "DX12"):
        (state,) = [state for where, state in rows if name in where]
        assert "not run" in state, name

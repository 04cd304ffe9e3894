"""A reading of Rust source that is just good enough for the layer and size rules: no parser, only what they ask."""

import re

NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^\\'])'""", re.DOTALL
)
FUNCTION = re.compile(r"\bfn\s+(\w+)")
TEST_ONLY = re.compile(r"#\[cfg\((?:test|all\(test\b[^\]]*)\)\]")
TEST_FILE = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([a-z]+\))?\s+)?mod\s+(\w+)\s*;")


def blank(text):
    """The text with everything but its line breaks turned into spaces."""
    return re.sub(r"[^\n]", " ", text)


def code(source):
    """The source without comments and the contents of literals; quotes and line breaks stay where they were."""

    def keep_quotes(match):
        text = match[0]
        return blank(text) if text.startswith("/") else text[0] + blank(text[1:-1]) + text[-1]

    return NOT_CODE.sub(keep_quotes, source)


def item_end(text, start):
    """Where the item that begins at `start` ends: after its matching brace, or after a semicolon outside all brackets."""
    depth, open_, close = 0, "([{", ")]}"
    for index in range(start, len(text)):
        char = text[index]
        if char in open_:
            depth += 1
        elif char in close:
            depth -= 1
            if depth == 0 and char == "}":
                return index + 1
        elif char == ";" and depth == 0:
            return index + 1
    return len(text)


def test_spans(text):
    """(start, end) of every item under #[cfg(test)] in code (see `code`)."""
    match = TEST_ONLY.search(text)
    while match:
        # Further attributes end in `]`, so the item's own brace or semicolon is the first at depth 0 after them.
        end = item_end(text, match.end())
        yield match.start(), end
        match = TEST_ONLY.search(text, end)


def without_tests(text):
    """Code (see `code`) with the items under #[cfg(test)] blanked."""
    for start, end in test_spans(text):
        text = text[:start] + blank(text[start:end]) + text[end:]
    return text


def functions(text):
    """(name, first line, lines) of every function with a body in code (see `code`); a nested one counts in its outer one too."""
    for match in FUNCTION.finditer(text):
        end = item_end(text, match.start())
        body = text[match.start() : end]
        if body.endswith("}"):
            yield match[1], text.count("\n", 0, match.start()) + 1, body.count("\n") + 1


def test_files(folder):
    """The files under a source folder that are compiled for tests alone: `#[cfg(test)] mod name;` and what lies below."""
    found = set()
    for path in folder.rglob("*.rs"):
        home = path.parent if path.stem in ("mod", "lib", "main") else path.parent / path.stem
        for name in TEST_FILE.findall(code(path.read_text())):
            found.update(p for p in [home / f"{name}.rs", *(home / name).rglob("*.rs")] if p.exists())
    return found

"""Owns how figures are shown: named figures as objects, byte counts for people, and tables as text and HTML."""

from html import escape

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_bytes(count):
    """A number of bytes for people to read.

    >>> format_bytes(1536), format_bytes(12)
    ('1.5 KiB', '12 B')
    """
    value, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


class Record:
    """Named figures: attributes, `to_dict()` and equality; subclasses say how they are shown."""

    def __init__(self, figures):
        self.__dict__.update(figures)

    def to_dict(self):
        """The figures as a dict of numbers, texts, lists and dicts.

        >>> Record({"peak": 8}).to_dict()
        {'peak': 8}
        """
        return {key: _plain(value) for key, value in self.__dict__.items() if not key.startswith("_")}

    def __eq__(self, other):
        return type(self) is type(other) and self.to_dict() == other.to_dict()

    __hash__ = None

    def __repr__(self):
        figures = ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items() if not k.startswith("_"))
        return f"{type(self).__name__}({figures})"


class Tables(Record):
    """Figures shown as tables, the same in text and in HTML: a subclass yields `(title, rows)` from `_sections`."""

    def __repr__(self):
        tables = [text_table(rows) for _, rows in self._sections()]
        return "\n".join([type(self).__name__, "\n\n".join(tables), *self._notes()])

    def _repr_html_(self):
        tables = [html_table(title, rows) for title, rows in self._sections()]
        return "".join([*tables, *(f"<p>{escape(note)}</p>" for note in self._notes())])

    def _notes(self):
        """Sentences below the tables."""
        return []


def limited(header, rows, top, cells, rest):
    """The header, the cells of the first `top` rows (all for None), and for the others one row made by `rest`.

    >>> list(limited(("n",), [1, 2, 3], 1, lambda n: (str(n),), lambda ns: (f"{len(ns)} more",)))
    [('n',), ('1',), ('2 more',)]
    """
    yield header
    shown = rows if top is None else rows[: max(top, 0)]
    yield from map(cells, shown)
    left = rows[len(shown) :]
    if left:
        yield rest(left)


def text_table(rows):
    """Lines with the first column to the left and the others to the right.

    >>> print(text_table([("op", "bytes"), ("add", "8 B")]))
      op   bytes
      add    8 B
    """
    rows = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(others, widths[1:]))]
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines)


def html_table(title, rows):
    """A table with a caption; every cell is escaped.

    >>> html_table("T", [("a<b",)])
    '<table><caption>T</caption><tr><td>a&lt;b</td></tr></table>'
    """
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption>{body}</table>"


def _plain(value):
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list) else value

"""Owns the drawing of stacked areas and bars as SVG text, which needs no other package, and the way to matplotlib, which is one."""

import importlib
from html import escape

# What was there before is grey and what plans leave behind yellow; the last one is for what has no layer of its own.
COLOURS = (
    "#c7cad1",
    "#efb118",
    "#ff725c",
    "#6cc5b0",
    "#3ca951",
    "#ff8ab7",
    "#a463f2",
    "#97bbf5",
    "#9c6b4e",
    "#4269d0",
    "#70747c",
)
_WIDTH, _HEIGHT = 900, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 210, 40, 45


def stacked_areas(layers, title, x_label, format_y):
    """An SVG picture of layers on top of each other, the first at the bottom; every column is as wide as the next.

    Args:
        layers: list of `(name, values)`, equally many values each.
        title, x_label: texts.
        format_y: function from a height to its text.

    Returns:
        The picture as text.

    >>> picture = stacked_areas([("a", [1, 2]), ("b", [0, 3])], "two", "time", str)
    >>> picture.count("<path"), picture.startswith("<svg")
    (2, True)
    """
    count = max((len(values) for _, values in layers), default=0)
    top = max((sum(column) for column in zip(*(values for _, values in layers))), default=0) or 1
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x(i):
        return _LEFT + (right - _LEFT) * i / max(count, 1)

    def y(value):
        return bottom - (bottom - _TOP) * value / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 22, title, "start", "15"),
        _text((_LEFT + right) / 2, _HEIGHT - 10, f"{x_label} ({count:,})", "middle"),
    ]
    for tick in range(5):
        value = top * tick / 4
        parts.append(f'<line x1="{_LEFT}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#dddddd"/>')
        parts.append(_text(_LEFT - 6, y(value) + 4, format_y(round(value)), "end"))
    below = [0] * count
    for number, (name, values) in enumerate(layers):
        above = [b + v for b, v in zip(below, values)]
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<path d="{_area(x, y, below, above)}" fill="{colour}"><title>{escape(name)}</title></path>')
        row = _TOP + 18 * (len(layers) - 1 - number)
        parts.append(f'<rect x="{right + 14}" y="{row}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(right + 32, row + 10, name if len(name) <= 26 else name[:25] + "…", "start"))
        below = above
    return "".join([*parts, "</svg>"])


def bars(rows, title, format_value):
    """An SVG picture of horizontal bars from top to bottom.

    Args:
        rows: list of `(name, value)`.
        title: text.
        format_value: function from a value to its text.

    Returns:
        The picture as text.

    >>> picture = bars([("a", 2.0), ("b", 1.0)], "two", str)
    >>> picture.count("<rect"), picture.startswith("<svg")
    (3, True)
    """
    height, left, right = _TOP + 24 * len(rows) + 12, 420, _WIDTH - 110
    longest = max((value for _, value in rows), default=0) or 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(20, 22, title, "start", "15"),
    ]
    for i, (name, value) in enumerate(rows):
        top, width = _TOP + 24 * i, (right - left) * value / longest
        parts.append(_text(left - 8, top + 14, name if len(name) <= 62 else name[:61] + "…", "end"))
        parts.append(f'<rect x="{left}" y="{top}" width="{width:.1f}" height="18" fill="{COLOURS[-2]}"/>')
        parts.append(_text(left + width + 6, top + 14, format_value(value), "start"))
    return "".join([*parts, "</svg>"])


def load_matplotlib(part, caller, instead):
    """A part of matplotlib.

    Args:
        part: the module's name, such as "pyplot".
        caller, instead: what is drawing, and what does without, for the message.

    Returns:
        The module.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.

    >>> load_matplotlib("no_such_part", "f", "g()")
    Traceback (most recent call last):
    ...
    ModuleNotFoundError: f: drawing with matplotlib needs it installed (pip install matplotlib); g() does without
    """
    try:
        return importlib.import_module(f"matplotlib.{part}")
    except ModuleNotFoundError as error:
        if error.name is not None and not error.name.startswith("matplotlib"):
            raise
        raise ModuleNotFoundError(
            f"{caller}: drawing with matplotlib needs it installed (pip install matplotlib); {instead} does without",
            name="matplotlib",
        ) from None


def _area(x, y, below, above):
    """The outline between two staircases: along the upper one and back along the lower, with a corner where a step is."""
    if not above:
        return ""
    count = len(above)
    parts = [f"M{x(0):.1f} {y(above[0]):.1f}"]
    parts += [f"H{x(i):.1f}V{y(above[i]):.1f}" for i in range(1, count) if above[i] != above[i - 1]]
    parts.append(f"H{x(count):.1f}V{y(below[-1]):.1f}")
    parts += [f"H{x(i):.1f}V{y(below[i - 1]):.1f}" for i in range(count - 1, 0, -1) if below[i] != below[i - 1]]
    return "".join([*parts, f"H{x(0):.1f}Z"])


def _text(x, y, words, anchor, size=None):
    bigger = f' font-size="{size}"' if size else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{bigger}>{escape(words)}</text>'

r"""Text from data, made fit to be drawn: never maths, never invisible, never wider than the plot.

Widths are counted in columns, the width of an ordinary character of our font.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from os.path import commonprefix
from typing import Final

from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import LoadFlags
from matplotlib.text import Text

from toolkit.plots.style import FONT, Theme
from toolkit.redaction import visible

COLUMN: Final = 0.085
"""Inches of a column of a text of 9 points."""

_LONGEST: Final = 48
_READ: Final = 4_000  # characters that are looked at
_MARKS: Final = 2  # on one character: more would overlap the adjacent lines
_EM: Final = COLUMN * 72 / 9  # of a column
_PART: Final = re.compile(r"\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|.", re.DOTALL)


def drawable(value: object, *, longest: float = _LONGEST) -> str:
    r"""A text from data as it can be drawn in our font, on one line of at most so many columns.

    Long ones lose their middle, because URLs differ at both ends. Characters that the font does not have are
    written out. Draw it with ``parse_math=False`` (`as_written`), else ``$`` makes it maths.

    >>> drawable("https://example.com/" + "a" * 500 + "/pay", longest=24)
    'https://exa…aaaaaaa/pay'
    >>> drawable(chr(0x65E5) * 9, longest=20)
    '\\u65e5…\\u65e5\\u65e5'
    """
    written, marks = "", 0
    for character in str(value)[:_READ]:
        marks = marks + 1 if columns(character) == 0 else 0
        shown = visible(character)
        if shown != character or character.isspace():
            written += " " if shown == character else shown
        elif marks > _MARKS or columns(character) is None:
            written += _escaped(character)
        else:
            written += character
    return _shortened(_parts(" ".join(written.split())), longest) or "(empty)"


def drawable_names(names: Sequence[object], *, longest: float = _LONGEST) -> list[str]:
    """Texts as `drawable` makes them; those that would look alike end with what distinguishes them.

    >>> drawable_names([f"flow-{n}-reconcile-the-ledger" for n in (1, 2)], longest=12)
    ['flow-1…', 'flow-2…']
    """
    texts = [drawable(name, longest=longest) for name in names]
    for text in sorted({text for text in texts if texts.count(text) > 1}):
        alike = [number for number, other in enumerate(texts) if other == text]
        whole = [_parts(drawable(names[number], longest=_READ)) for number in alike]
        shared = len(commonprefix([parts[::-1] for parts in whole]))  # noqa: RUF071 - of parts, not of paths
        for number, parts in zip(alike, whole, strict=True):
            left = parts[: len(parts) - shared] or parts
            size = _fitting([width(part) for part in left[::-1]], longest - 2 * width("…"))
            begin = "…" if size < len(left) else ""
            texts[number] = f"{begin}{''.join(left[len(left) - size :])}{'…' if shared else ''}"
    return texts


@cache
def columns(character: str) -> float | None:
    """How wide one character is drawn, at least 1 or else 0; None where the font does not have it."""
    font = get_font(findfont(FontProperties(family=FONT)))
    if not font.get_char_index(ord(character)):
        return None
    advance: float = font.load_char(ord(character), flags=LoadFlags.NO_SCALE).horiAdvance
    return max(1.0, advance / font.units_per_EM / _EM) if advance else 0.0


def width(text: str) -> float:
    """How wide a drawable text is, in columns."""
    return sum(columns(character) or 0.0 for character in text)


def wrapped(text: str, limit: float) -> list[str]:
    r"""A drawable text on lines of at most so many columns; long words are broken, but no character in them.

    >>> print(*wrapped(r"what the \u4e2d\u6587\u5b57 says", 13), sep=" / ")
    what the / \u4e2d\u6587 / \u5b57 says
    """
    lines = [""]
    for word in re.findall(r"[^ ]+", text):
        if width(f"{lines[-1]} {word}") <= limit:
            lines[-1] = f"{lines[-1]} {word}".lstrip()
            continue
        lines.append("")
        for part in _parts(word):
            if lines[-1] and width(lines[-1] + part) > limit:
                lines.append("")
            lines[-1] += part
    return [line for line in lines if line]


def _parts(text: str) -> list[str]:
    """The unbreakable parts: characters with their marks, and escapes."""
    parts: list[str] = []
    for part in _PART.findall(text):
        if parts and columns(part[0]) == 0:
            parts[-1] += part
        else:
            parts.append(part)
    return parts


def _shortened(parts: list[str], longest: float) -> str:
    widths = [width(part) for part in parts]
    if sum(widths) <= longest:
        return "".join(parts)
    limit = longest - width("…")
    head = _fitting(widths, limit / 2)
    tail = _fitting(widths[::-1], limit - sum(widths[:head]))
    head = _fitting(widths, limit - sum(widths[len(widths) - tail :]))
    return f"{''.join(parts[:head])}…{''.join(parts[len(parts) - tail :])}"


def _fitting(widths: Sequence[float], limit: float) -> int:
    """How many of the first parts fit."""
    number, taken = 0, 0.0
    while number < len(widths) and taken + widths[number] <= limit:
        taken += widths[number]
        number += 1
    return number


def without_prefix(names: Sequence[str]) -> tuple[list[str], str]:
    """Addresses without their common prefix, up to a slash, and that prefix; others unchanged.

    >>> without_prefix(["https://a.example/flows/pay", "https://a.example/flows/ship", "other (3)"])
    (['pay', 'ship', 'other (3)'], 'https://a.example/flows/')
    """
    addresses = {name for name in names if "://" in name}
    if len(addresses) < 2:  # noqa: PLR2004 - one address alone stays whole
        return list(names), ""
    prefix = commonprefix(sorted(addresses))  # noqa: RUF071 - cut at a slash below
    prefix = prefix[: prefix.rfind("/") + 1]
    return [(name.removeprefix(prefix) or "/") if name in addresses else name for name in names], prefix


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - the basic plane's end


def as_written(texts: list[Text]) -> None:
    """Take texts literally: ``$`` is a dollar sign."""
    for text in texts:
        text.set_usetex(False)
        text.set_parse_math(False)


def say(ax: Axes, sentence: str, theme: Theme) -> Axes:
    """A sentence instead of an empty plot."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.text(
        0.5, 0.5, sentence, transform=ax.transAxes, ha="center", va="center", color=theme.muted, fontsize=11,
        wrap=True, parse_math=False,
    )  # fmt: skip
    return ax

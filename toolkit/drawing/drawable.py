"""Prepare text from data for plots: one line, never maths, never invisible, never wider than the plot.

Widths of text are counted in columns, the width of an ordinary character of the font.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from os.path import commonprefix
from typing import Final

from toolkit.drawing.fonts import advance, draws_for_browser, replacement
from toolkit.secrets.redaction import visible

COLUMN: Final = 0.085
"""Inches of a column if the font size is 9 points."""

_LONGEST: Final = 48
_READ: Final = 4_000  # characters of a value that are read; the plot shows far fewer
_MARKS: Final = 2  # marks on one character: more would overlap the adjacent lines
_EM: Final = COLUMN * 72 / 9  # width of a column in units of the font size
_PART: Final = re.compile(r"\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|.", re.DOTALL)


def drawable(value: object, *, longest: float = _LONGEST) -> str:
    r"""Return a value from data as one line that the fonts can draw, of at most `longest` columns.

    If it is longer, the middle is cut out, because URLs differ at both ends. If no font has the letters of a
    script, the script is named: see `fonts.py`. Draw the text with ``parse_math=False`` (`as_written`):
    otherwise ``$`` begins maths.

    >>> drawable("https://example.com/" + "a" * 500 + "/pay", longest=24)
    'https://exa…aaaaaaa/pay'
    >>> drawable("fire " + chr(0x1F525) + " at " + chr(0xFF15))
    'fire :fire: at 5'
    """
    return fitted(drawable_parts(value), longest)


def drawable_parts(value: object) -> list[str]:
    """Return a value as one line of any length, in parts that `fitted` joins."""
    return _parts(_one_line(value))


def fitted(parts: list[str], longest: float) -> str:
    """Join the parts of a value, as `drawable` does: at most `longest` columns."""
    return _shortened(parts, longest) or "(empty)"


def _one_line(value: object) -> str:
    """Return a value with characters that can be drawn, in one line of any length."""
    # For example, "at " and a Thai letter are two runs: one is drawn, and the script of the other is named.
    runs = groupby(_characters(value), _is_missing)
    line = "".join(_WRITERS[is_missing]("".join(run)) for is_missing, run in runs)
    return " ".join(line.split())


_WRITERS: Final = {True: replacement, False: visible}
"""The function that makes characters drawable, by whether no font has them."""


def _characters(value: object) -> Iterator[str]:
    """Yield the characters of a value without excess marks, and in their plain form if only it can be drawn.

    For example, the full-width digit five is drawn as 5 if no font has it.
    """
    marks = 0
    for character in str(value)[:_READ]:
        # ASCII has no marks, and no letter that a font lacks
        if character.isascii():
            marks = 0
            yield character
            continue

        is_mark = columns(character) == 0
        if is_mark:
            marks += 1
        else:
            marks = 0

        if marks > _MARKS:
            continue
        if _is_missing(character):
            yield from _plain_form(character)
        else:
            yield character


def _plain_form(character: str) -> str:
    """Return the plain form of a character that no font has; a browser may have another font."""
    if draws_for_browser():
        return character
    return unicodedata.normalize("NFKC", character)


def _is_missing(character: str) -> bool:
    """Return whether no font has a character that is not escaped in any text."""
    has_font = columns(character) is not None
    if has_font or character.isspace():
        return False

    return visible(character) == character


def drawable_names(names: Sequence[object], *, longest: float = _LONGEST) -> list[str]:
    """Return names as `drawable` does. Names that would look alike end with their first difference.

    >>> drawable_names([f"flow-{n}-reconcile-the-ledger" for n in (1, 2)], longest=12)
    ['flow-1…', 'flow-2…']
    """
    # Cutting the middle out can make two names equal. These show the first part that differs instead:
    #
    #     names              flow-1-reconcile-the-ledger   flow-2-reconcile-the-ledger
    #     middle cut out     flow-1…ledger                 flow-2…ledger    different: done
    #     or                 flow-…ledger                  flow-…ledger     equal
    #     shared end cut     flow-1…                       flow-2…
    parts_of_names = list(map(_parts, _numbered_lines(names)))
    shown = [_shortened(parts, longest) or "(empty)" for parts in parts_of_names]
    for repeated in _repeated(shown):
        alike = [number for number, name in enumerate(shown) if name == repeated]
        shared = _shared_end(parts_of_names[number] for number in alike)
        for number in alike:
            parts = parts_of_names[number]
            shown[number] = _without_shared_end(parts, shared, longest)

    return shown


def _repeated(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once, sorted."""
    counts = Counter(names)
    return sorted(name for name, count in counts.items() if count > 1)


def _shared_end(names: Iterable[list[str]]) -> int:
    """Return how many parts at the end are the same in all names.

    >>> _shared_end([["a", "b", "c"], ["x", "b", "c"]])
    2
    """
    from_the_end = [parts[::-1] for parts in names]
    return len(commonprefix(from_the_end))  # noqa: RUF071 - compared by letters


def _numbered_lines(names: Sequence[object]) -> list[str]:
    """Return names as lines. Different names with the same line, for example ``[Thai]``, get numbers."""
    lines = list(map(_one_line, names))
    texts = list(map(str, names))
    # by line, the different names and their numbers
    numbers: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for line, text in zip(lines, texts, strict=True):
        numbers_of_line = numbers[line]
        numbers_of_line.setdefault(text, len(numbers_of_line) + 1)

    return [
        _numbered(line, numbers[line], text)
        for line, text in zip(lines, texts, strict=True)
    ]


def _numbered(line: str, numbers: dict[str, int], name: str) -> str:
    """Return a line with the number of the name, if several names have this line."""
    if line and len(numbers) > 1:
        return f"{line} {numbers[name]}"
    return line


def _without_shared_end(parts: list[str], shared: int, longest: float) -> str:
    """Cut the last `shared` parts off, and as many of the first ones as do not fit."""
    rest = parts[: len(parts) - shared] or parts
    widths_from_end = list(map(width, reversed(rest)))
    size = _fitting(widths_from_end, longest - 2 * width("…"))
    shortened = "".join(rest[len(rest) - size :])
    if size < len(rest):
        shortened = f"…{shortened}"
    if shared:
        shortened += "…"
    return shortened


def columns(character: str) -> float | None:
    """Return the width of a character: 0 for marks, else at least 1; None if no font has it."""
    size = advance(character)
    if not size:
        return size

    return max(1.0, size / _EM)


def width(text: str) -> float:
    """Return the width of drawable text, in columns."""
    return sum(filter(None, map(columns, text)))


def wrapped(text: str, limit: float) -> list[str]:
    r"""Wrap drawable text into lines of at most `limit` columns. Long words are broken, escapes are not.

    >>> print(*wrapped(r"read the \u202e\u202d page", 13), sep=" / ")
    read the / \u202e\u202d / page
    """
    lines = [""]
    for word in re.findall(r"[^ ]+", text):
        line_with_word = f"{lines[-1]} {word}"
        if width(line_with_word) <= limit:
            lines[-1] = line_with_word.lstrip()
        else:
            lines += _broken_word(word, limit)

    return list(filter(None, lines))


def _broken_word(word: str, limit: float) -> list[str]:
    """Return the lines of a word that begins a line; only words longer than `limit` are broken."""
    lines: list[str] = []
    line = ""
    columns_of_line = 0.0
    for part in _parts(word):
        columns_of_part = width(part)
        is_full = columns_of_line + columns_of_part > limit
        if is_full and line:
            lines.append(line)
            line = ""
            columns_of_line = 0.0

        line += part
        columns_of_line += columns_of_part

    return [*lines, line]


def _parts(text: str) -> list[str]:
    """Split text into unbreakable parts: characters with their marks, and escapes."""
    parts: list[str] = []
    for part in _PART.findall(text):
        if parts and columns(part[0]) == 0:
            parts[-1] += part
        else:
            parts.append(part)

    return parts


def _shortened(parts: list[str], longest: float) -> str:
    """Join parts; cut the middle out if they are longer than `longest`."""
    widths = list(map(width, parts))
    if sum(widths) <= longest:
        return "".join(parts)

    limit = longest - width("…")
    head = _fitting(widths, limit / 2)
    tail = _fitting(widths[::-1], limit - sum(widths[:head]))
    head = _fitting(widths, limit - sum(widths[len(widths) - tail :]))

    return f"{''.join(parts[:head])}…{''.join(parts[len(parts) - tail :])}"


def _fitting(widths: Sequence[float], limit: float) -> int:
    """Return how many of the first parts fit."""
    return bisect_right(list(accumulate(widths)), limit)

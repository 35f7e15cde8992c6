"""Read the causes of an error that are listed after it, as `anyhow` and `eyre` of Rust print them.

For example, the text

    Error: could not render label

    Caused by:
        0: could not read the template
        1: could not open the store
        2: disk quota exceeded

has three causes, the last of which is the root cause. A single cause has no number. With the causes, the
error is "Error: could not render label: could not read the template: could not open the store: disk quota
exceeded", which is the form that these packages print in one line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_TITLE: Final = "Caused by:"
_LIST: Final = re.compile(r"\nCaused by:[ \r]*\n[ \t]")
"""The start of a list. In Java, the cause follows in the line of the title."""
_NUMBER: Final = re.compile(r"\d{1,4}: ")
_MOST_CAUSES: Final = 20
"""Causes that are read: the outermost ones, and the root cause."""
_LONGEST: Final = 1_000
"""Characters of an error with all causes. Of a longer one, only the root cause is named."""


@dataclass(frozen=True)
class Causes:
    """The causes of an error, the root cause last."""

    listed: tuple[str, ...] = ()
    title: int = 0
    """The number of the line "Caused by:"."""
    end: int = 0
    """The number of the line after the causes."""

    def after(self, error: str) -> str:
        """Return an error with the causes, as one line."""
        if not self.listed:
            return error

        line = ": ".join([error, *self.listed])
        if len(line) > _LONGEST:
            return ": ".join([error, self.listed[-1]])
        return line


def has_causes(text: str) -> bool:
    """Return whether a text has a list of causes."""
    return _TITLE in text and _LIST.search(text) is not None


def causes_in(lines: Sequence[str]) -> Causes:
    """Return the first list of causes in the lines of a text; no causes without one.

    >>> causes_in(["Error: no label", "", "Caused by:", "    0: no file", "    1: disk full"])
    Causes(listed=('no file', 'disk full'), title=2, end=5)
    """
    for title, line in enumerate(lines):
        if line.strip() == _TITLE:
            return _causes_after(lines, title)

    return Causes()


def _causes_after(lines: Sequence[str], title: int) -> Causes:
    """Return the indented lines after a title. A line without a number continues the one before it."""
    causes: list[str] = []
    end = title + 1
    for line in lines[end:]:
        if not line[:1].isspace() or not line.strip():
            break

        end += 1
        text = line.strip()
        number = _NUMBER.match(text)
        if number is not None:
            causes.append(text[number.end() :])
        elif causes:
            causes[-1] = f"{causes[-1]} {text}"
        else:
            causes.append(text)

    if len(causes) > _MOST_CAUSES:
        causes = [*causes[: _MOST_CAUSES - 1], causes[-1]]
    return Causes(tuple(causes), title, end)

"""Offer error lines that differ only in values as one choice, for the filter of failures."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from toolkit.filters.failure_rows import names_error
from toolkit.signatures.placeholders import with_placeholders

_PLACEHOLDER: Final = re.compile(r"<[a-z]+>")
_LONG: Final = 15  # characters that are enough to recognise an error
_SHORT: Final = 6  # fewer characters are in too many other lines
# of choices with lines; if there are more, it takes over a second
_COMPARISONS: Final = 2_000_000


class ErrorChoices:
    """Count failures by parts that their error lines contain, as `error` of a filter compares them.

    Lines that differ only in values, for example numbers, ids and times, share a choice: the part that all of
    them contain. Each other line is a choice itself.

    >>> choices = ErrorChoices(["timed out after 30 ms", "timed out after 41 ms", "Bad Gateway"])
    >>> choices.count([("timed out after 30 ms", 2), ("timed out after 41 ms", 1), ("Bad Gateway", 1)])
    [('timed out after', 3), ('Bad Gateway', 1)]
    """

    def __init__(self, lines: Iterable[str]) -> None:
        distinct = list(dict.fromkeys(lines))
        alike: dict[str, list[str]] = defaultdict(list)
        for line in distinct:
            alike[with_placeholders(line)].append(line)
        self._lines: dict[str, list[str]] = defaultdict(list)

        for template, members in alike.items():
            shared = shared_text(template, members)
            for line in members:
                self._lines[shared or line].append(line)

        # if there are too many, only the lines that made a choice are counted for it
        if len(self._lines) * len(distinct) <= _COMPARISONS:
            self._compare(distinct)

    def _compare(self, distinct: Sequence[str]) -> None:
        """Find all lines of each choice. Remove choices if another one matches all their lines anyway."""
        shared = [text for text, members in self._lines.items() if len(members) > 1]
        for text in list(self._lines):
            if any(
                names_error(text, (part,))
                for part in shared
                if part.casefold() != text.casefold()
            ):
                del self._lines[text]
            else:
                self._lines[text] = [
                    line for line in distinct if names_error(line, (text,))
                ]

    def count(self, lines: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the choices with their numbers of failures, the most frequent first."""
        known = dict(lines)
        counts = [
            (text, sum(known.get(line, 0) for line in chosen))
            for text, chosen in self._lines.items()
        ]
        return sorted(counts, key=lambda pair: -pair[1])


def shared_text(template: str, lines: Sequence[str]) -> str | None:
    """Return a part of a template that all lines contain, or None. A single line has no shared part.

    The first long part is preferred, because error messages begin with a name. If no part is long, the
    longest is returned.

    >>> shared_text("no user <num> in shop <num>", ["no user 1 in shop 2", "no user 3 in shop 4"])
    'no user'
    """
    if len(lines) == 1:
        return None

    # For example, "order <num> not found in <id>" has the parts "order" and "not found in". "order" is too
    # short, so the choice is "not found in".
    parts = [part.strip(" :,;()[]'\"=") for part in _PLACEHOLDER.split(template)]
    parts = [part for part in parts if len(part) >= _SHORT]
    # of equal ones, the first stays first
    parts.sort(key=lambda part: min(len(part), _LONG), reverse=True)
    for part in parts:
        if all(names_error(line, (part,)) for line in lines):
            return part

    return None

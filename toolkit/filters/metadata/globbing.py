"""GLOB patterns in bounded time: ``*``, ``?``, ``[abc]``, ``[a-z]``, ``[^a-z]``; case sensitive.

A pattern is cut at its stars. Each piece then has a fixed length and is searched for once, the leftmost place
being as good as any later one, so nothing is ever tried again: time grows at most with the length of the text
times the length of the pattern.
"""

from __future__ import annotations

import re
from typing import Final

from toolkit.errors import InputError

MAX_PATTERN: Final = 1000
"""Longest pattern, in characters."""

# a set may begin with a "]" that belongs to it, as in []a] and [^]]
_PIECE: Final = re.compile(r"\[(\^?)(\]?[^\]]*)\]|(.)", re.DOTALL)


class GlobPattern:
    """A compiled pattern.

    Parameters
    ----------
    pattern : str
        At most `MAX_PATTERN` characters. A ``[`` needs its ``]``; a literal ``*``, ``?`` or ``[`` is
        written as a set of its own: ``[*]``.

    Raises
    ------
    InputError

    Examples
    --------
    >>> GlobPattern("run-[0-9]*.log").matches("run-7-final.log")
    True
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise _refusal(f"{len(pattern)} characters", f"at most {MAX_PATTERN}")
        compiled = [(len(piece), re.compile("".join(piece), re.DOTALL)) for piece in _cut(pattern)]
        self._first, *self._others = compiled

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        length, first = self._first
        if not first.match(text):
            return False
        if not self._others:
            return len(text) == length
        *between, (tail_length, tail) = self._others
        position, end = length, len(text) - tail_length
        for _, piece in between:
            found = piece.search(text, position)
            if found is None:
                return False
            position = found.end()
        return position <= end and tail.match(text, end) is not None


def _cut(pattern: str) -> list[list[str]]:
    """The pieces between the stars; each is a list of regular expressions for one character."""
    pieces: list[list[str]] = [[]]
    for found in _PIECE.finditer(pattern):
        negated, members, single = found[1], found[2], found[3]
        if single is None:
            pieces[-1].append(_set(negated, members))
        elif single == "*":
            pieces.append([])
        elif single == "[":
            raise _refusal(
                f"a '[' that is not closed at character {found.start()}",
                "']' after the characters of the set",
            )
        else:
            pieces[-1].append("." if single == "?" else re.escape(single))
    # stars in a row leave empty pieces, which match anywhere
    return [pieces[0], *(piece for piece in pieces[1:-1] if piece), *pieces[1:][-1:]]


def _set(negated: str, members: str) -> str:
    if not members:
        raise _refusal("an empty set", "characters between '[' and ']'")
    parts: list[str] = []
    place = 0
    while place < len(members):
        low = high = members[place]
        if members[place + 1 : place + 2] == "-" and place + 2 < len(members):
            high = members[place + 2]
            place += 2
        if low > high:
            raise _refusal(f"the range {low}-{high}", "its lower end first")
        parts.append(re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}")
        place += 1
    return f"[{negated}{''.join(parts)}]"


def _refusal(got: str, expected: str) -> InputError:
    return InputError("reading a GLOB pattern", got=got, expected=expected)

r"""Match strings against GLOB patterns in bounded time.

A pattern becomes one regular expression. For example, ``run-[0-9]*failed*.log`` becomes::

    run\-[0-9]                 the part before the first star, at the start
    (?>.*?failed)              each part between two stars: only the leftmost match
    (?=.{4}).*+(?<=\.log)      the part after the last star, at the end

Without atomic groups, ``*a*a*a*b`` would try every combination of positions for the three ``a``. An atomic
group ``(?>…)`` keeps the first match. This loses no result: if a later position leads to a match, the
leftmost position does so as well, because it leaves more characters to the rest of the pattern.

The possessive ``.*+`` jumps to the end of the string. The lookbehind compares the last part there, and
``(?=.{4})`` ensures that the last part does not overlap with the part before it.

The time is at most proportional to the length of the string times the length of the longest part.
"""

from __future__ import annotations

import re
from typing import Final

from toolkit.errors import InputError

MAX_PATTERN: Final = 1000
"""Longest pattern of GLOB, in characters."""

# A set may begin with a "]" that belongs to it, as in []a] and [^]].
_TOKEN: Final = re.compile(r"\[(?P<negation>\^?)(?P<members>\]?[^\]]*)\]|(?P<single>.)", re.DOTALL)
_RANGE: Final = re.compile(r"(?P<low>.)-(?P<high>.)|(?P<single>.)", re.DOTALL)


class GlobPattern:
    """A compiled pattern: ``*``, ``?``, ``[abc]``, ``[a-z]``, ``[^a-z]``; case sensitive.

    It has at most `MAX_PATTERN` characters; a literal ``*`` is written ``[*]``.

    >>> GlobPattern("run-[0-9]*.log").matches("run-7-final.log")
    True
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise _pattern_error(f"{len(pattern)} characters", f"at most {MAX_PATTERN} characters")
        self._compiled = re.compile(_expression(_segments(pattern)), re.DOTALL)

    def matches(self, text: str) -> bool:
        """Return True if the pattern matches the complete string."""
        return self._compiled.fullmatch(text) is not None


def _expression(segments: list[list[str]]) -> str:
    """Return the regular expression of a pattern that was split at its stars."""
    first, *later = ["".join(segment) for segment in segments]
    if not later:
        return first
    *between, last = later
    searches = [f"(?>.*?{segment})" for segment in between]
    last_length = len(segments[-1])
    return f"{first}{''.join(searches)}(?=.{{{last_length}}}).*+(?<={last})"


def _segments(pattern: str) -> list[list[str]]:
    """Split a pattern at its stars. Each item of a segment is an expression that matches one character.

    >>> _segments("a?*[^x]")
    [['a', '.'], ['[^x]']]
    """
    segments: list[list[str]] = [[]]
    for token in _TOKEN.finditer(pattern):
        if token["single"] == "*":
            segments.append([])
        else:
            segments[-1].append(_character(token))
    # "**" leaves an empty segment, which matches anywhere and can be dropped.
    between = [segment for segment in segments[1:-1] if segment]
    return [segments[0], *between, *segments[1:][-1:]]


def _character(token: re.Match[str]) -> str:
    """Return the expression for one token of a pattern that is not a star."""
    single = token["single"]
    if single is None:
        return f"[{token['negation']}{_set_members(token['members'])}]"
    if single == "?":
        return "."
    if single == "[":
        raise _pattern_error(
            f"a '[' that is not closed at character {token.start()}", "']' after the characters of the set"
        )
    return re.escape(single)


def _set_members(members: str) -> str:
    r"""Return the members of a set, escaped for a regular expression.

    >>> _set_members("a-f]")
    'a-f\\]'
    """
    if not members:
        raise _pattern_error("an empty set", "characters between '[' and ']'")
    parts = []
    # For example, "a-f]" is the range a-f and the character "]".
    for part in _RANGE.finditer(members):
        if part["single"] is not None:
            parts.append(re.escape(part["single"]))
            continue
        low, high = part["low"], part["high"]
        if low > high:
            raise _pattern_error(f"the range {low}-{high}", "a range with the lower end first")
        parts.append(f"{re.escape(low)}-{re.escape(high)}")
    return "".join(parts)


def _pattern_error(got: str, expected: str) -> InputError:
    return InputError("reading a GLOB pattern", got=got, expected=expected)

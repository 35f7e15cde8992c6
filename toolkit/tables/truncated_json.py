"""Read JSON that was truncated, for example because a body is larger than the service keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from toolkit.base.members import read_json

_CLOSING: Final = {"[": "]", "{": "}"}
# Marks of JSON structure: a string (possibly truncated), a bracket, a brace or a comma.
_MARK: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{},]', re.DOTALL)
_HALF_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?)\Z")


def parse_truncated(text: str) -> tuple[Any, bool]:
    """Return the value of JSON text up to the end of the text, and True if it is truncated.

    Return None if the text is not JSON. For example, ``[{"a": 1}, {"b`` is ``[{"a": 1}, {}]``, truncated.
    """
    with suppress(ValueError, RecursionError):
        return read_json(text), False
    for completed in _completions(text):
        with suppress(ValueError, RecursionError):
            return read_json(completed), True

    return None, False


def _completions(text: str) -> Iterator[str]:
    """Yield possible completions of truncated JSON, the one that keeps most of the text first.

    1. If the text ends within a string, close the string and all open brackets.
    2. If the text ends after a value, close all open brackets.
    3. Remove everything after the last value that is complete, and close all open brackets.
    """
    brackets = _scan_brackets(text)
    closing = "".join(reversed(brackets.open))
    without_half_escape = _HALF_ESCAPE.sub(lambda half: half[0][: -len(half[1])], text)
    yield f'{without_half_escape}"{closing}'
    # a number or a name at the end may be cut, so it is not a complete value
    if text.rstrip().endswith(("]", "}", '"')):
        yield text + closing
    open_at_complete_end = [*brackets.open, *reversed(brackets.closed_since)]
    closing_at_complete_end = "".join(reversed(open_at_complete_end))
    yield text[: brackets.complete_end] + closing_at_complete_end


@dataclass
class _Brackets:
    """The brackets of truncated JSON, as the closing brackets that belong to them.

    For example, ``[{"a": 1}, {"b": [2]`` has the open brackets ``]}``. The last value that is certainly
    complete ends before the comma; ``]`` was closed after it.
    """

    open: list[str]
    closed_since: list[str]
    complete_end: int = 0

    def mark_complete(self, position: int) -> None:
        """Note that all values before a position are complete."""
        self.complete_end = position
        self.closed_since.clear()


def _scan_brackets(text: str) -> _Brackets:
    """Return the brackets of truncated JSON, up to the end of the text or a bracket that closes none."""
    brackets = _Brackets([], [])
    for mark in _MARK.finditer(text):
        sign = mark[0][0]
        if sign in _CLOSING:
            brackets.open.append(_CLOSING[sign])
            brackets.mark_complete(mark.end())
        elif sign == ",":
            brackets.mark_complete(mark.start())
        elif sign != '"':
            if brackets.open[-1:] != [sign]:
                break
            brackets.closed_since.append(brackets.open.pop())

    return brackets

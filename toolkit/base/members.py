"""Read JSON that strict readers refuse: members as raw text, and values that Python can represent.

The reader of the standard library accepts NaN, lone surrogates and bytes that are not UTF-8. It fails for
deep nesting and for integers of thousands of digits, and writing the values again would lose the spelling of
numbers (for example 1.10 or 1e400). Here members are found by position, at any depth, and a value that Python
cannot represent stays JSON text.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

MOST_DEPTH: Final = 100
"""Deepest nesting of a value that becomes Python objects.

Code that walks through a value needs frames of the interpreter stack for each level, and a notebook has about
900 frames left.
"""

SHOWN: Final = 60
"""Characters of a response that an error shows."""

_BETWEEN: Final = re.compile(r"[ \t\n\r,:]*+")
_READER: Final = json.JSONDecoder(parse_int=str, parse_float=str)
_TEXT: Final = r'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"'
# A lone quote starts an unterminated string. Searching after it would take quadratic time.
_MARK: Final = re.compile(rf'{_TEXT}|"|[\[{{]+|[\]}}]+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class RawJson:
    """A JSON value that stays text: an integer with too many digits, or a value that is nested too deep.

    Bytes that are not UTF-8 are lone surrogates in the text.
    """

    text: str

    def __repr__(self) -> str:
        return f"JSON of {len(self.text):,} characters"


def read_json(raw: bytes | str) -> Any:
    """Return the value of JSON text. Raise `ValueError` if it is not JSON.

    A value that is nested more than `MOST_DEPTH` levels deep becomes `RawJson`. So does each integer with
    more digits than the interpreter converts (4,300, unless configured otherwise).

    >>> read_json('{"a": [1, NaN]}'), read_json("[" * 1000 + "]" * 1000)
    ({'a': [1, nan]}, JSON of 2,000 characters)
    """
    text = raw
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if is_deep(text):
        return _raw(text)

    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        return json.loads(text, parse_int=integer_or_raw)


def _raw(text: str) -> RawJson:
    """Return JSON text that is not read. Raise `ValueError` if the value does not end with the text."""
    if text[end_of(text, skipped(text, 0)) :].strip():
        raise ValueError("more after the value")
    return RawJson(text.strip())


def integer_or_raw(text: str) -> int | RawJson:
    """Return an integer from digits, or `RawJson` if the interpreter does not convert that many."""
    try:
        return int(text)
    except ValueError:
        return RawJson(text)


def is_deep(text: str) -> bool:
    """Return True if JSON text is nested more than `MOST_DEPTH` levels deep."""
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return False

    # without a function per match, because every row of a lenient page is checked
    depth = 0
    for match in _MARK.finditer(text):
        mark = text[match.start()]
        if mark != '"':
            size = match.end() - match.start()
            if mark in "]}":
                size = -size
            depth += size
            if depth > MOST_DEPTH:
                return True

    return False


def _change_of_depth(mark: re.Match[str]) -> int:
    """Return by how many levels a run of brackets goes down, negative if it closes; 0 for a string."""
    run = mark[0]
    if run[0] in "[{":
        return len(run)
    if run[0] in "]}":
        return -len(run)

    return 0


def pairs(text: str, at: int = 0) -> tuple[list[tuple[str, str]], int]:
    """Return name and JSON text of each member of the object at an index, and the index after it.

    >>> pairs(' {"a": 1.10, "b": {"c": NaN}, "a": 2} ')
    ([('a', '1.10'), ('b', '{"c": NaN}'), ('a', '2')], 37)
    """
    at = _opened(text, skipped(text, at), "{")
    result = []
    while text[at : at + 1] != "}":
        name, at = _READER.raw_decode(text, at)
        start = skipped(text, at)
        at = end_of(text, start)
        if not isinstance(name, str):
            raise ValueError(f"no name before {start}")  # noqa: TRY004 - of JSON, not of a Python value
        result.append((name, text[start:at]))
        at = skipped(text, at)

    return result, at + 1


def members(text: str, at: int = 0) -> tuple[dict[str, str], int]:
    """Return the JSON text of each member of the object at an index, and the index after the object."""
    result, end = pairs(text, at)
    return dict(result), end


def elements(text: str) -> list[str]:
    """Return the JSON text of each element of an array. Raise `ValueError` if the text is not an array."""
    at = _opened(text, skipped(text, 0), "[")
    result = []
    while text[at : at + 1] != "]":
        start = at
        at = end_of(text, start)
        result.append(text[start:at])
        at = skipped(text, at)

    if text[at + 1 :].strip():
        raise ValueError(f"more after the array, at {at}")

    return result


def end_of(text: str, at: int) -> int:
    """Return the index after the value at an index. Raise `ValueError` if the value does not end."""
    try:
        return _READER.raw_decode(text, at)[1]
    except RecursionError:
        pass

    return _end_by_brackets(text, at)


def _end_by_brackets(text: str, at: int) -> int:
    """Return the index after a value that is nested too deep for the reader, so only brackets are counted.

    A run of brackets is one match of `_MARK`. For example, in "[[[[1]]]]", "[[[[" adds 4 to the depth, and
    "]]]]" takes them away again. If the run has more brackets than are open, the value ends within it.
    Strings match whole, so that brackets in them do not count.
    """
    depth = 0
    for mark in _MARK.finditer(text, at):
        if mark[0] == '"':
            # a string that does not end
            break
        change = _change_of_depth(mark)
        if change < 0 and depth + change <= 0:
            return mark.start() + depth
        depth += change

    raise ValueError(f"no end of the value that starts at {at}")


def _opened(text: str, at: int, bracket: str) -> int:
    """Return the index of the first member or element. Raise `ValueError` if the value is truncated."""
    if text[at : at + 1] != bracket:
        raise ValueError(f"no {bracket} at {at}")

    # if the nesting is too deep for the reader, reading the parts shows whether the value is complete
    with suppress(RecursionError):
        _READER.raw_decode(text, at)
    return skipped(text, at + 1)


def skipped(text: str, at: int) -> int:
    """Return the index of the next value, after spaces, commas and colons."""
    return _BETWEEN.match(text, at).end()  # type: ignore[union-attr]


def kind_of(value: Any) -> str:
    """Return the type of a JSON value for an error message, for example "an object"."""
    if isinstance(value, RawJson):
        return "something nested too deep"

    kinds = {
        dict: "an object",
        list: "an array",
        str: "text",
        bool: "a boolean",
        type(None): "null",
    }
    return kinds.get(type(value), "a number")


def shown(value: Any) -> str:
    """Return a JSON value as error messages show it."""
    try:
        return repr(value)[:SHOWN]
    except RecursionError:
        return kind_of(value)


def is_truncated(body: bytes) -> bool:
    """Return True if the end of a body is missing, because the connection ended early.

    Only JSON tells where it ends. Other text counts as complete unless it is empty.
    """
    if not body.lstrip().startswith((b"{", b"[")):
        return not body

    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return not _is_complete(body)

    return False


def _is_complete(body: bytes) -> bool:
    """Return whether a body that the strict reader refuses contains a complete value.

    It is text of an application, for example ``[info] done``, or truncated JSON.
    """
    text = body.decode("utf-8", "surrogateescape").strip()
    try:
        return end_of(text, 0) >= len(text)
    except ValueError:
        return False

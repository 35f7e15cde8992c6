"""JSON that strict readers refuse: its members as the text they came as, and values that Python can hold.

Python's own reader takes NaN, lone surrogates and bytes that are no UTF-8, but neither deep nesting nor
integers of thousands of digits. Reading with it and writing again would also lose the spelling of numbers
(1.10, 1e400). Here members are found by their places, however deep they are nested, and what no Python value
can stand for stays JSON text.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

MOST_DEPTH: Final = 100
"""Levels of nesting up to which a value becomes Python objects: each level takes frames of the interpreter's
stack, of which a notebook has about 900 left, whenever somebody walks through it."""

_BETWEEN: Final = frozenset(" \t\n\r,:")
_READER: Final = json.JSONDecoder(parse_int=str, parse_float=str)
_TEXT: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# a lone quote is a text without its end: going on behind it would take quadratic time
_MARK: Final = re.compile(rf'{_TEXT}|"|[\[{{]+|[\]}}]+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Unread:
    """A JSON value that stays text: an integer of too many digits, or nested too deep.

    Attributes
    ----------
    text : str
        The JSON as it came; bytes that are no UTF-8 are lone surrogates in it.
    """

    text: str

    def __repr__(self) -> str:
        return f"JSON of {len(self.text):,} characters"


def read(raw: bytes | str) -> Any:
    """What a JSON text stands for.

    Parameters
    ----------
    raw : bytes or str

    Returns
    -------
    object
        `Unread` for what is nested more than `MOST_DEPTH` levels deep, and in place of each integer of more
        digits than the interpreter converts (4,300, unless it was told otherwise).

    Raises
    ------
    ValueError
        When it is no JSON.

    Examples
    --------
    >>> read('{"a": [1, NaN]}'), read("[" * 1000 + "]" * 1000)
    ({'a': [1, nan]}, JSON of 2,000 characters)
    """
    text = raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")
    if is_deep(text):
        if text[end_of(text, skipped(text, 0)) :].strip():
            raise ValueError("more behind the value")
        return Unread(text.strip())
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        return json.loads(text, parse_int=unread_integer)


def unread_integer(text: str) -> int | Unread:
    """An integer from its digits, `Unread` where they are too many for the interpreter."""
    try:
        return int(text)
    except ValueError:
        return Unread(text)


def is_deep(text: str) -> bool:
    """Whether a JSON text is nested more than `MOST_DEPTH` levels deep."""
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return False
    depth = 0
    for found in _MARK.finditer(text):
        mark = text[found.start()]
        if mark != '"':
            size = found.end() - found.start()
            depth += size if mark in "[{" else -size
            if depth > MOST_DEPTH:
                return True
    return False


def pairs(text: str, at: int = 0) -> tuple[list[tuple[str, str]], int]:
    """Name and JSON text of each member of the object that starts at a place, and where it ends.

    Raises
    ------
    ValueError
        When there is no JSON object.

    Examples
    --------
    >>> pairs(' {"a": 1.10, "b": {"c": NaN}, "a": 2} ')
    ([('a', '1.10'), ('b', '{"c": NaN}'), ('a', '2')], 37)
    """
    at = _opened(text, skipped(text, at), "{")
    found = []
    while text[at : at + 1] != "}":
        name, at = _READER.raw_decode(text, at)
        start = skipped(text, at)
        at = end_of(text, start)
        if not isinstance(name, str):
            raise ValueError(f"no name before {start}")  # noqa: TRY004 - of JSON, not of a Python value
        found.append((name, text[start:at]))
        at = skipped(text, at)
    return found, at + 1


def members(text: str, at: int = 0) -> tuple[dict[str, str], int]:
    """The JSON text of each member of the object that starts at a place, and where it ends.

    Of a name that comes twice it is the last one, as every reader of JSON has it.

    Raises
    ------
    ValueError
        When there is no JSON object.

    Examples
    --------
    >>> members(' {"a": 1.10, "b": {"c": NaN}} ')
    ({'a': '1.10', 'b': '{"c": NaN}'}, 29)
    """
    found, end = pairs(text, at)
    return dict(found), end


def elements(text: str) -> list[str]:
    """The JSON text of each element of an array.

    Raises
    ------
    ValueError
        When the text is no JSON array.

    Examples
    --------
    >>> elements('[1.10, {"a": NaN}]')
    ['1.10', '{"a": NaN}']
    """
    at = _opened(text, skipped(text, 0), "[")
    found = []
    while text[at : at + 1] != "]":
        start = at
        at = end_of(text, start)
        found.append(text[start:at])
        at = skipped(text, at)
    if text[at + 1 :].strip():
        raise ValueError(f"more behind the array, at {at}")
    return found


def end_of(text: str, at: int) -> int:
    """Where the value ends that starts at a place.

    Of what is nested too deep for Python's reader only the brackets are looked at.

    Raises
    ------
    ValueError
        When no whole value starts there.
    """
    try:
        return _READER.raw_decode(text, at)[1]
    except RecursionError:
        pass
    depth = 0
    for found in _MARK.finditer(text, at):
        mark, size = text[found.start()], found.end() - found.start()
        if mark in "[{":
            depth += size
        elif mark in "]}":
            if size >= depth:
                return found.start() + depth
            depth -= size
        elif size == 1:
            break
    raise ValueError(f"no end of what starts at {at}")


def _opened(text: str, at: int, bracket: str) -> int:
    """Where the first part starts of the value that starts here, which is of this kind and whole."""
    if text[at : at + 1] != bracket:
        raise ValueError(f"no {bracket} at {at}")
    with suppress(RecursionError):  # then its parts show whether it is whole
        _READER.raw_decode(text, at)
    return skipped(text, at + 1)


def skipped(text: str, at: int) -> int:
    """Where the next value starts, behind spaces, commas and colons."""
    while at < len(text) and text[at] in _BETWEEN:
        at += 1
    return at

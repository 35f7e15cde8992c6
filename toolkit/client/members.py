"""Members of a JSON object as the text they came as, for JSON that strict readers refuse.

Python's own reader takes NaN, lone surrogates and numbers of any length. Reading with it and writing again
would keep their values and lose their spelling (1.10, 1e400, twenty digits): here only places are read.
"""

from __future__ import annotations

import json
from typing import Final

_BETWEEN: Final = frozenset(" \t\n\r,:")
_READER: Final = json.JSONDecoder(parse_int=str, parse_float=str)


def members(text: str, at: int = 0) -> tuple[dict[str, str], int]:
    """The JSON text of each member of the object that starts at a place, and where it ends.

    Raises
    ------
    ValueError
        When there is no JSON object.

    Examples
    --------
    >>> members(' {"a": 1.10, "b": {"c": NaN}} ')
    ({'a': '1.10', 'b': '{"c": NaN}'}, 29)
    """
    at = skipped(text, at)
    _check(text, at, "{")
    found = {}
    at = skipped(text, at + 1)
    while text[at] != "}":
        name, at = _READER.raw_decode(text, at)
        start = skipped(text, at)
        _, at = _READER.raw_decode(text, start)
        found[name] = text[start:at]
        at = skipped(text, at)
    return found, at + 1


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
    at = skipped(text, 0)
    _check(text, at, "[")
    found = []
    at = skipped(text, at + 1)
    while text[at] != "]":
        start = at
        _, at = _READER.raw_decode(text, start)
        found.append(text[start:at])
        at = skipped(text, at)
    if text[at + 1 :].strip():
        raise ValueError(f"more behind the array, at {at + 1}")
    return found


def _check(text: str, at: int, bracket: str) -> None:
    """That a whole value of this kind stands here."""
    if text[at : at + 1] != bracket:
        raise ValueError(f"no {bracket} at {at}")
    try:
        _READER.raw_decode(text, at)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def skipped(text: str, at: int) -> int:
    """Where the next value starts, behind spaces, commas and colons."""
    while at < len(text) and text[at] in _BETWEEN:
        at += 1
    return at

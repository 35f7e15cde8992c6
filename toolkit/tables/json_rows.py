"""Read the rows of a page leniently, with values that no strict decoder accepts.

For example, NaN, invalid UTF-8, integers of thousands of digits and deeply nested members are values here.
Each row is a dict of Python values. What fits no column stays JSON text (`RawJson`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from toolkit.base.errors import MalformedResponseError, ProtocolError
from toolkit.base.members import (
    RawJson,
    elements,
    integer_or_raw,
    is_deep,
    kind_of,
    members,
    read_json,
    shown,
)
from toolkit.tables.column_values import clean


def parse_rows(
    rows: bytes, *, what: str, exactly: bool = False
) -> list[dict[str, Any]]:
    """Return the rows of a page, which is a JSON array, as plain objects.

    Integers with too many digits become `RawJson`. If rows are read `exactly`, values that are nested too
    deep also become `RawJson`; this takes several times as long. Raise ProtocolError if it is not an array of
    objects.
    """
    parsed = None
    if not exactly:
        with suppress(ValueError, RecursionError):
            parsed = _rows_quickly(rows)

    if not isinstance(parsed, list):
        parsed = _rows_exactly(rows, what=what)
    if not isinstance(parsed, list):
        raise ProtocolError(
            f"decoding {what}", got=kind_of(parsed), expected="a JSON array"
        )

    for index, row in enumerate(parsed):
        if not isinstance(row, dict):
            got = f"{kind_of(row)} at {index}"
            raise ProtocolError(f"decoding {what}", got=got, expected="objects")

    return parsed


def _rows_quickly(rows: bytes) -> Any:
    """Return the value of a page, read by msgspec or, if that fails, by the standard library."""
    try:
        return msgspec.json.decode(rows)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(
            rows.decode("utf-8", "surrogateescape"), parse_int=integer_or_raw
        )


def _rows_exactly(rows: bytes, *, what: str) -> Any:
    """Return the rows, with each member of a row read separately."""
    text = rows.decode("utf-8", "surrogateescape")
    try:
        if not text.lstrip().startswith("["):
            return read_json(text)
        return list(map(_read_row, elements(text)))
    except ValueError as error:
        raise no_json(rows, error, what) from None


def _read_row(text: str) -> Any:
    """Return a row with each member read separately, so that only a member can be too deep."""
    if text.startswith("{"):
        return read_members(text)
    return read_json(text)


def no_json(raw: bytes, error: Exception, what: str) -> MalformedResponseError:
    """Return the error for bytes that are not JSON."""
    return MalformedResponseError(
        f"decoding {what}",
        got=f"{len(raw):,} bytes that are not JSON ({str(error)[:80]})",
        expected="JSON",
        next_step="Call again. If the error stays, the service or a proxy sends broken pages.",
    )


def read_members(text: str) -> dict[str, Any]:
    """Return the members of a JSON object, each read separately.

    Only a member that is too deep becomes `RawJson`.
    """
    result, _ = members(text)
    return {name: read_json(value) for name, value in result.items()}


def lenient(raw: bytes, *, what: str) -> Any:
    """Return JSON as the standard library accepts it, for example with NaN or invalid UTF-8."""
    try:
        value = read_json(raw)
        if isinstance(value, RawJson) and value.text[0] == "{":
            return read_members(value.text)
    except (ValueError, RecursionError) as error:
        raise no_json(raw, error, what) from None

    return value


def json_value(text: str) -> Any:
    """Return the value of JSON text in a column. Raise ValueError if it is not JSON.

    Integers of more digits than Python reads, and members nested more than 100 levels deep, stay JSON text.

    >>> json_value('{"a": 1, "b": ' + "[" * 200 + "]" * 200 + "}")["b"][:3]
    '[[['
    """
    if not is_deep(text):
        return json.loads(text, parse_int=_integer)

    parsed = read_json(text)
    if not text.lstrip().startswith("{"):
        return parsed.text

    # only the deep members stay text
    member_texts, _ = members(text)
    return {name: _shallow_value(value) for name, value in member_texts.items()}


def _shallow_value(text: str) -> Any:
    """Return the value of JSON text, or the text if it is nested too deep."""
    if is_deep(text):
        return text
    return json_value(text)


def _integer(text: str) -> int | str:
    value = integer_or_raw(text)
    if isinstance(value, int):
        return value

    return text


def required_id(row: Mapping[str, Any], name: str, *, what: str, index: int) -> str:
    """Return the id of a row. Raise ProtocolError if there is no id."""
    identity = row.get(name)
    if not isinstance(identity, str) or not identity:
        raise ProtocolError(
            f"decoding {what}",
            got=f"{name}={shown(identity)} in row {index} of a page",
            expected="a string of at least one character",
            next_step="Call again. No row of this page was kept, and no row is lost.",
        )

    return clean(identity)

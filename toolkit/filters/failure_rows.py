"""Read the values of a filter's fields from failures: entries of the service, and rows of frames.

An entry has the names and types of the service (``workflowUrl``, and ``labels`` as an array). A row of a
frame has the names of the columns (``workflow_url``, and ``labels`` as JSON text). For example, the field
``label`` has the values "eu" and "beta" both in ``{"labels": ["eu", "beta"]}`` and in the row
``{"labels": '["eu","beta"]'}``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from toolkit.base.errors import InputError
from toolkit.base.times import milliseconds
from toolkit.filters.failure_fields import FIELDS, FilterField
from toolkit.signatures.headlines import binary_line, error_text
from toolkit.signatures.readable_bodies import readable_body

_COMPARED_COLUMNS: Final = frozenset().union(
    *(field.columns for field in FIELDS.values())
)
_ONLY_IN_FRAMES: Final = (_COMPARED_COLUMNS | {"dlq_id", "response_body_base64"}) - {
    "label",
    "labels",
    "error",
}
"""Columns of frames that are not members of an entry."""


def row_mapping(row: Any) -> Mapping[str, Any]:
    """Return a row (a named tuple, Series or mapping) as a mapping."""
    values = row
    for method in ("_asdict", "to_dict"):
        if hasattr(row, method):
            values = getattr(row, method)()
            break

    if isinstance(values, Mapping):
        return values

    raise InputError(
        "matching a failure",
        got=type(row).__name__,
        expected="a row of a frame of failures, or an entry of the service",
        next_step="To match each row of a frame, loop over frame.to_dict('records').",
    )


def check_columns(row: Mapping[str, Any], compared: Iterable[FilterField]) -> None:
    """Raise InputError if a row of a frame lacks the columns of a field."""
    if not _is_frame_row(row):
        return

    missing = [field.name for field in compared if row.keys().isdisjoint(field.columns)]
    if missing:
        raise InputError(
            "matching a failure",
            got=f"a row without {', '.join(missing)}",
            expected="the columns that the filter compares",
            next_step="Use rows of a frame made by load_failures.",
        )


def has_value(row: Mapping[str, Any], field: FilterField, wanted: Any) -> bool:
    """Return whether a row has a value of a field that a filter accepts."""
    if field.compare == "contains":
        return names_error(_error_line(row), wanted)

    accepted = wanted
    if field.kind == "time":
        accepted = (milliseconds(wanted),)
    elif not field.many:
        accepted = (wanted,)

    return any(value in accepted for value in _row_values(row, field))


def names_error(line: str, wanted: tuple[str, ...]) -> bool:
    """Return True if an error line contains one of the strings, ignoring case."""
    folded_line = line.casefold()
    return any(part.casefold() in folded_line for part in wanted)


def _is_frame_row(row: Mapping[str, Any]) -> bool:
    """Return True for a row of a frame, False for an entry of the service, where labels are an array."""
    if not _ONLY_IN_FRAMES.isdisjoint(row):
        return True
    return isinstance(row.get("labels"), str)


def _row_values(row: Mapping[str, Any], field: FilterField) -> list[object]:
    """Return the values of a field in a row of a frame or in an entry."""
    values: list[object] = []
    for name in dict.fromkeys((*field.columns, *field.members)):
        cell = _none_if_missing(row.get(name))
        if name == "labels":
            cell = _labels(cell)
        values += comparable_values(cell)

    return values


def _labels(cell: object) -> object:
    """Return the labels of an entry, or of a row of a frame, which has them as a JSON array."""
    if not isinstance(cell, str):
        return cell

    try:
        return json.loads(cell)
    except ValueError:
        raise InputError(
            "cannot compare the column 'labels' of this row: got text that is not JSON;"
            ' expected a JSON list of strings, for example ["eu","beta"]'
        ) from None


def comparable_values(value: Any) -> Iterable[object]:
    """Return the items of an array, or one value; a time in milliseconds."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, datetime):
        return [milliseconds(value)]

    return [value]


def _none_if_missing(value: Any) -> Any:
    """Return a value of a frame, or None if it is NaN, NaT or NA."""
    try:
        # NaN and NaT are not equal to themselves
        is_missing = bool(value != value)  # noqa: PLR0124 - see above
    except TypeError:
        # NA can be neither true nor false
        return None

    if is_missing:
        return None

    return value


def _error_line(row: Mapping[str, Any]) -> str:
    """Return the line of the response that describes the error, as in the column ``error``."""
    if "error" in row and _is_frame_row(row):
        return str(_none_if_missing(row["error"]) or "")

    # an entry of the service, or a row without the column
    body = _text_member(row, "responseBody", "response_body")
    encoded = _text_member(row, "responseBodyBase64", "response_body_base64")
    if encoded is None:
        return error_text(body).text
    if body is None:
        return _encoded_error_line(encoded)

    return error_text(body).text


def _text_member(row: Mapping[str, Any], member: str, column: str) -> str | None:
    """Return the text of an entry or of a row of a frame, or None if it is empty or missing."""
    value = row.get(member, row.get(column))
    # an empty body is no body
    if value == "" or not isinstance(value, str):
        return None

    return value


def _encoded_error_line(encoded: str) -> str:
    """Return the error line of a body in base64."""
    try:
        body = base64.b64decode(encoded).decode()
    except UnicodeDecodeError:
        text = readable_body(None, encoded)
        return error_text(text).text if text else binary_line(encoded)
    except ValueError:  # not base64
        return error_text(None).text

    return error_text(body).text

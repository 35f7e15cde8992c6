"""Callback and failure-callback bodies: from requests as they came to the table ``CALLBACKS``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from toolkit.errors import InputError, ProtocolError
from toolkit.redaction import Redactor
from toolkit.tables.header_maps import header_column, header_map
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.schemas import CALLBACKS
from toolkit.tables.text import (
    base64_text,
    clean,
    is_clean,
    lenient,
    masked_json,
    moment,
    text_and_bytes,
    whole_number,
)

_TEXTS: Final = {
    "source_message_id": "sourceMessageId",
    "dlq_id": "dlqId",
    "topic_name": "topicName",
    "endpoint_name": "endpointName",
    "url": "url",
    "method": "method",
    "schedule_id": "scheduleId",
    "caller_ip": "callerIP",
}
_IDS: Final = {"source_message_id", "dlq_id"}  # of secrets, only our own: other tables are joined by them
_NUMBERS: Final = {"status": "status", "retried": "retried", "max_retries": "maxRetries"}
_MOMENTS: Final = {"not_before": "notBefore", "created_at": "createdAt"}
_BODIES: Final = {"body": "body", "source_body": "sourceBody"}
_HEADERS: Final = {"headers": "header", "source_headers": "sourceHeader"}
_NOT_RETRYABLE: Final = 489
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_KNOWN: Final = frozenset(
    wire for names in (_TEXTS, _NUMBERS, _MOMENTS, _BODIES, _HEADERS) for wire in names.values()
)


@dataclass(frozen=True, kw_only=True)
class ReceivedCallback:
    """The body of a callback request with what only its receiver knows.

    Attributes
    ----------
    body : bytes
        As it came.
    received_at : datetime
        With a time zone.
    verified : bool or None
        Whether its signature verified; None when no keys were known.
    """

    body: bytes = field(repr=False)
    received_at: datetime
    verified: bool | None


Body = bytes | str | Mapping[str, Any] | ReceivedCallback
"""A callback body: JSON as bytes or text, an object read already, or one that a receiver kept."""


def callback_fields(
    body: bytes | str | Mapping[str, Any], *, what: str = "a callback body"
) -> dict[str, Any]:
    """The fields of one callback body, with the service's own names.

    Raises
    ------
    ProtocolError
        When it is no JSON object.
    InputError
        When a mapping holds what JSON cannot.

    Examples
    --------
    >>> callback_fields(b'{"status": 200, "retried": 0}')
    {'status': 200, 'retried': 0}
    """
    raw = _json_of(body, what) if isinstance(body, Mapping) else body
    raw = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    found = lenient(raw, what=what)
    if not isinstance(found, dict):
        raise ProtocolError(f"decoding {what}", got=type(found).__name__, expected="a JSON object")
    return found


def _json_of(body: Mapping[str, Any], what: str) -> str:
    try:
        return json.dumps(dict(body))
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error)
    raise InputError(f"decoding {what}", got=reason[:200], expected="values that JSON can hold")


def decode_callbacks(bodies: Iterable[Body], *, redactor: Redactor | None) -> pa.Table:
    """Callback bodies as a table of the schema ``CALLBACKS``.

    Parameters
    ----------
    bodies : iterable of bytes, str, mapping or ReceivedCallback
        One callback each.
    redactor : Redactor or None
        Masks header values and URLs, and our own tokens in bodies; None keeps everything as it came.

    Returns
    -------
    pyarrow.Table
        One row a body, in order. ``kind`` is "failure" where there is a DLQ id, which only failure callbacks
        carry, else "callback"; ``delivered`` is a 2xx status; ``exhausted`` is ``retried`` equal to
        ``max_retries``; ``in_dlq`` says whether the message is in the DLQ: there is a DLQ id, or delivery
        failed and is not retried. Bodies that are UTF-8 are decoded from base64, others are base64 text in
        the column beside. ``body_truncated`` is true where the base64 ends inside a group of four: it is
        decoded as far as it goes. A body that was truncated between groups cannot be told from a whole one.
        A value that does not fit its column is null there and stands in ``extra``, with every field the
        schema does not know.

    Raises
    ------
    ProtocolError
        When a body is no JSON object; it says which one.
    InputError
        When a mapping holds what JSON cannot.

    Examples
    --------
    >>> body = '{"status": 500, "retried": 3, "maxRetries": 3, "dlqId": "d1"}'
    >>> table = decode_callbacks([body], redactor=None)
    >>> table.select(["kind", "delivered", "exhausted", "in_dlq"]).to_pylist()
    [{'kind': 'failure', 'delivered': False, 'exhausted': True, 'in_dlq': True}]
    """
    rows = []
    for place, item in enumerate(bodies):
        body = item.body if isinstance(item, ReceivedCallback) else item
        row = _row(callback_fields(body, what=f"callback body {place}"), redactor)
        if isinstance(item, ReceivedCallback):
            row |= {"received_at": item.received_at, "verified": item.verified}
        rows.append(row)
    masker = ColumnMasker(redactor)
    maps = {name: masker.headers(header_column([row.pop(name) for row in rows])) for name in _HEADERS}
    table = pa.Table.from_pylist(rows, schema=CALLBACKS)
    for name, column in maps.items():
        table = table.set_column(table.schema.get_field_index(name), CALLBACKS.field(name), column)
    return masker.table(table)


def _row(fields: dict[str, Any], redactor: Redactor | None) -> dict[str, Any]:
    row: dict[str, Any] = {}
    fields = {name: value for name, value in fields.items() if value != "" or name not in _TEXTS.values()}
    extra = {name: value for name, value in fields.items() if name not in _KNOWN}

    def fit(columns: Mapping[str, str], reading: Any) -> None:
        """Fill columns; what was there and cannot be read, or not as it came, goes to `extra` too."""
        for column, wire in columns.items():
            value = fields.get(wire)
            row[column] = None if value is None else reading(value)
            odd = isinstance(value, str) and not is_clean(value)
            if value is not None and (row[column] is None or odd):
                extra[wire] = value

    fit(_TEXTS, lambda value: clean(value) if isinstance(value, str) else None)
    fit(_NUMBERS, whole_number)
    fit(_MOMENTS, _milliseconds)
    fit(_HEADERS, header_map)
    for column, wire in _BODIES.items():
        text, raw, fits, row[f"{column}_truncated"] = _body(fields.get(wire))
        if not fits:
            extra[wire] = fields[wire]
        row[column] = text
        row[f"{column}_base64"] = base64_text(raw, redactor)
    if redactor is not None:
        for column in _TEXTS.keys() - _IDS:
            mask = redactor.url if column == "url" else redactor.text
            row[column] = row[column] and mask(row[column])
    status, retried, most = row["status"], row["retried"], row["max_retries"]
    row["kind"] = "failure" if row["dlq_id"] else "callback"
    row["delivered"] = None if status is None else 200 <= status < 300  # noqa: PLR2004 - the 2xx statuses
    row["exhausted"] = None if retried is None or most is None else retried == most
    row["in_dlq"] = _in_dlq(row, fields)
    return row | {"extra": masked_json(extra, redactor)}


def _in_dlq(row: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
    """Whether the message is in the DLQ: its delivery failed, and there are no more retries; None if unsaid.

    Only failure callbacks name the entry, but a callback of the last attempt says as much.
    """
    if row["dlq_id"]:
        return True
    if row["delivered"] is not False:
        return None if row["delivered"] is None else False
    if row["status"] == _NOT_RETRYABLE and _says_so(fields.get("header")):
        return True
    return row["exhausted"]


def _says_so(headers: Any) -> bool:
    """Whether the destination asked for no retries."""
    return isinstance(headers, dict) and any(
        name.lower().endswith("nonretryable-error") and "true" in str(values).lower()
        for name, values in headers.items()
    )


def _body(encoded: Any) -> tuple[str | None, bytes | None, bool, bool | None]:
    """As `text_and_bytes`, and whether the base64 ends inside a group of four: the service truncates it."""
    if not isinstance(encoded, str) or len(encoded) % 4 == 0:
        text, raw, fits = text_and_bytes(None, encoded)
        return text, raw, fits, False if fits and encoded is not None else None
    kept = encoded.rstrip("=")
    text, raw, fits = text_and_bytes(None, kept[:-1] if len(kept) % 4 == 1 else kept)
    if raw is not None:
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            if error.end == len(raw) and error.reason == "unexpected end of data":
                text, raw = raw[: error.start].decode(), None
    return text, raw, fits, True if fits else None


def _milliseconds(value: Any) -> int | None:
    """Unix milliseconds from the text that callbacks carry, or from a number."""
    if isinstance(value, str):
        return moment(int(value)) if _DIGITS.fullmatch(value) else None
    return moment(value)

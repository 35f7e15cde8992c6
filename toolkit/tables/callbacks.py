"""Callback and failure-callback bodies: from raw requests to the table ``CALLBACKS``."""

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
from toolkit.tables.lenient_rows import LenientRows
from toolkit.tables.schemas import CALLBACK_COLUMNS, CALLBACKS
from toolkit.tables.text import base64_body, is_cut_base64, lenient

_LENGTH: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_NOT_RETRYABLE: Final = 489
_OUTCOME: Final = ("kind", "delivered", "exhausted", "in_dlq")


@dataclass(frozen=True, kw_only=True)
class ReceivedCallback:
    """The body of a callback request with what only its receiver knows."""

    body: bytes = field(repr=False)
    received_at: datetime  # with a time zone
    verified: bool | None  # whether its signature is right; None without keys


Body = bytes | str | Mapping[str, Any] | ReceivedCallback
"""A callback body: JSON as bytes or text, an object read already, or one that a receiver kept."""


def callback_fields(
    body: bytes | str | Mapping[str, Any], *, what: str = "a callback body"
) -> dict[str, Any]:
    """The fields of one callback body, with the service's own names."""
    raw = _json_of(body, what) if isinstance(body, Mapping) else body
    raw = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    fields = lenient(raw, what=what)
    if not isinstance(fields, dict):
        raise ProtocolError(f"decoding {what}", got=type(fields).__name__, expected="a JSON object")
    return fields


def _json_of(body: Mapping[str, Any], what: str) -> str:
    try:
        return json.dumps(dict(body))
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error)
    raise InputError(f"decoding {what}", got=reason[:200], expected="values that JSON can hold")


def decode_callbacks(bodies: Iterable[Body], *, redactor: Redactor | None) -> pa.Table:
    """Callback bodies as a table of the schema ``CALLBACKS``, one row a body, in order.

    A body that is no JSON object is a ProtocolError that says which one it is. Bodies in it that are
    truncated are decoded as far as they go. One that ends between groups of base64 is known as truncated by
    the length that the response stated; without that it looks like a complete one.
    """
    received = list(bodies)
    rows = [
        callback_fields(
            item.body if isinstance(item, ReceivedCallback) else item, what=f"callback body {number}"
        )
        for number, item in enumerate(received)
    ]
    reader = LenientRows(rows, CALLBACK_COLUMNS, redactor, what="callbacks", read_body=base64_body)
    columns = reader.columns()
    for name, encoded in (("body", "body"), ("source_body", "sourceBody")):
        pairs = zip(rows, reader.misfits, strict=True)
        cut = [_is_cut(row, encoded) if encoded not in misfits else None for row, misfits in pairs]
        columns[f"{name}_truncated"] = pa.array(cut, pa.bool_())
    read = (columns[name].to_pylist() for name in ("dlq_id", "status", "retried", "max_retries"))
    outcomes = [*map(_outcome, rows, *read)]
    derived = {name: [outcome[index] for outcome in outcomes] for index, name in enumerate(_OUTCOME)}
    for name in ("received_at", "verified"):  # known of those that a receiver kept
        derived[name] = [getattr(item, name, None) for item in received]
    columns |= {name: pa.array(values, CALLBACKS.field(name).type) for name, values in derived.items()}
    return reader.masked_table(columns, CALLBACKS)


def _is_cut(row: Mapping[str, Any], encoded: str) -> bool | None:
    """Whether a body was truncated: by the length that the response stated, or else by its base64."""
    value = row.get(encoded)
    headers = row.get("header") if encoded == "body" else None
    if not isinstance(value, str) or not isinstance(headers, dict):
        return is_cut_base64(value)
    named = {name.lower(): values for name, values in headers.items()}
    length = named.get("content-length")
    length = length[0] if isinstance(length, list) and len(length) == 1 else length
    if not isinstance(length, str) or not _LENGTH.fullmatch(length) or "content-encoding" in named:
        return is_cut_base64(value)
    return len(value.rstrip("=")) * 3 // 4 < int(length)


def _outcome(
    row: Mapping[str, Any], dlq_id: str | None, status: int | None, retried: int | None, most: int | None
) -> tuple[str, bool | None, bool | None, bool | None]:
    """What a callback says of its message: its kind, whether delivered, out of retries, and in the DLQ.

    Only failure callbacks name the entry of the DLQ, but a callback of the last attempt says as much.
    """
    delivered = None if status is None else 200 <= status < 300  # noqa: PLR2004 - the 2xx statuses
    exhausted = None if retried is None or most is None else retried >= most
    if dlq_id:
        return "failure", delivered, exhausted, True
    if delivered is False and row.get("workflowRunId"):
        return "callback", delivered, exhausted, None  # a call that failed is told to its run, and in no DLQ
    if delivered is False:
        final = status == _NOT_RETRYABLE and _refuses_retries(row.get("header"))
        return "callback", delivered, exhausted, True if final else exhausted
    return "callback", delivered, exhausted, None if delivered is None else False


def _refuses_retries(headers: Any) -> bool:
    """Whether the destination requested no retries."""
    return isinstance(headers, dict) and any(
        name.lower().endswith("nonretryable-error") and "true" in str(values).lower()
        for name, values in headers.items()
    )

"""Decode callback bodies, and derive what became of each message.

For example, the callback of a last attempt with the status 500 means that the message was not delivered, is
exhausted, and is in the DLQ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from toolkit.base.arguments import as_json
from toolkit.base.errors import InputError, ProtocolError
from toolkit.secrets.redaction import Redactor
from toolkit.tables.base64_bodies import (
    base64_body,
    is_cut_base64,
)
from toolkit.tables.json_rows import lenient
from toolkit.tables.lenient_rows import LenientRows, Row
from toolkit.tables.schemas import (
    CALLBACK_COLUMNS,
    CALLBACKS,
)

_LENGTH_DIGITS: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
REFUSING_HEADER: Final = "nonretryable-error"
"""End of a header's name. It begins with `Upstash-`, `Service-`, or nothing, by the service."""
_SUCCESSFUL: Final = range(200, 300)
_NOT_RETRYABLE: Final = 489
"""Status of a destination that asks for no retries."""


@dataclass(frozen=True, kw_only=True)
class ReceivedCallback:
    """The body of a callback request, with facts that only the receiver knows."""

    body: bytes = field(repr=False)
    received_at: datetime
    """Time with a time zone."""
    verified: bool | None
    """True if the signature is valid, None without signing keys."""


Body = bytes | str | Mapping[str, Any] | ReceivedCallback
"""A callback body: JSON as bytes or string, a decoded object, or a body that a receiver stored."""


def decode_callbacks(bodies: Iterable[Body], *, redactor: Redactor | None) -> pa.Table:
    """Return callback bodies as a table of the schema ``CALLBACKS``, one row per body, in order.

    Raise ProtocolError with the number of the body if one is not a JSON object. Truncated bodies in a
    callback are decoded up to the end. A body that ends between two groups of base64 is known to be truncated
    only if the response stated a length.
    """
    received = list(bodies)
    rows = [
        callback_fields(_content(item), what=f"body {at:,} of source")
        for at, item in enumerate(received)
    ]
    callbacks = LenientRows(
        rows, CALLBACK_COLUMNS, redactor, what="callbacks", read_body=base64_body
    )
    columns = callbacks.columns
    # the outcome of the message follows from the decoded columns
    outcome_columns = [
        columns[name].to_pylist()
        for name in ("dlq_id", "status", "retried", "max_retries")
    ]
    outcomes = map(_outcome, rows, *outcome_columns)
    derived = [
        outcome | _reception(item, row, rejected)
        for outcome, item, row, rejected in zip(
            outcomes, received, rows, callbacks.rejected_values, strict=True
        )
    ]
    schema = pa.schema(
        [CALLBACKS.field(name) for name in CALLBACKS.names if name not in columns]
    )
    table = pa.Table.from_pylist(derived, schema=schema)
    columns.update(zip(table.column_names, table.columns, strict=True))

    return callbacks.table()


def _content(item: Body) -> bytes | str | Mapping[str, Any]:
    if isinstance(item, ReceivedCallback):
        return item.body
    return item


def _reception(item: Body, row: Row, rejected: Row) -> dict[str, Any]:
    """Return the columns of a callback about how it arrived."""
    body_truncated = source_body_truncated = None
    if "body" not in rejected:
        body_truncated = _is_truncated(row, "body")
    if "sourceBody" not in rejected:
        source_body_truncated = _is_truncated(row, "sourceBody")
    return {
        "body_truncated": body_truncated,
        "source_body_truncated": source_body_truncated,
        "received_at": getattr(item, "received_at", None),
        "verified": getattr(item, "verified", None),
    }


def callback_fields(
    body: bytes | str | Mapping[str, Any], *, what: str = "a callback body"
) -> dict[str, Any]:
    """Return the fields of one callback body, with the names of the service."""
    encoded = body
    if isinstance(encoded, Mapping):
        try:
            encoded = as_json(dict(encoded))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"decoding {what}",
                got=str(error)[:200],
                expected="values that JSON can represent",
            ) from None

    if isinstance(encoded, str):
        encoded = encoded.encode("utf-8", "surrogatepass")
    fields = lenient(encoded, what=what)
    if not isinstance(fields, dict):
        raise ProtocolError(
            f"decoding {what}", got=type(fields).__name__, expected="a JSON object"
        )

    return fields


def _is_truncated(row: Mapping[str, Any], encoded: str) -> bool | None:
    """Return True if a body was truncated: by the length in the response, else by the form of the base64."""
    value = row.get(encoded)
    length = None
    if encoded == "body":
        length = _stated_length(row.get("header"))
    if length is None or not isinstance(value, str):
        return is_cut_base64(value)

    return len(value.rstrip("=")) * 3 // 4 < length


def _stated_length(headers: Any) -> int | None:
    """Return the Content-Length of a response, or None if it is not the length of the decoded body."""
    if not isinstance(headers, dict):
        return None

    by_name = {name.lower(): values for name, values in headers.items()}
    # the length of a compressed body is not the length of the text
    if "content-encoding" in by_name:
        return None

    length = by_name.get("content-length")
    if isinstance(length, list) and len(length) == 1:
        length = length[0]
    if isinstance(length, str) and _LENGTH_DIGITS.fullmatch(length):
        return int(length)

    return None


def _outcome(
    row: Mapping[str, Any],
    dlq_id: str | None,
    status: int | None,
    retried: int | None,
    most: int | None,
) -> dict[str, Any]:
    """Return the kind of a callback, and if the message was delivered, exhausted and put into the DLQ."""
    is_delivered = None
    if status is not None:
        is_delivered = status in _SUCCESSFUL
    is_exhausted = None
    if retried is not None and most is not None:
        is_exhausted = retried >= most
    kind = "callback"
    if dlq_id:
        kind = "failure"
    return {
        "kind": kind,
        "delivered": is_delivered,
        "exhausted": is_exhausted,
        "in_dlq": _is_in_dlq(
            row, dlq_id, status, delivered=is_delivered, exhausted=is_exhausted
        ),
    }


def _is_in_dlq(
    row: Mapping[str, Any],
    dlq_id: str | None,
    status: int | None,
    *,
    delivered: bool | None,
    exhausted: bool | None,
) -> bool | None:
    """Return True if the message is in the DLQ, None if unknown.

    Only failure callbacks name the DLQ entry, but the callback of the last attempt allows the same
    conclusion.
    """
    if dlq_id:
        return True
    if delivered is None:
        return None
    if delivered:
        return False
    if row.get("workflowRunId"):
        return None  # the run learns about a failed call, which goes into no DLQ
    if status == _NOT_RETRYABLE and refuses_retries(row.get("header")):
        return True

    return exhausted


def refuses_retries(headers: Any) -> bool:
    """Return True if a header of the response, for example Upstash-NonRetryable-Error, forbids retries."""
    if not isinstance(headers, dict):
        return False

    flags = [
        values
        for name, values in headers.items()
        if name.lower().endswith(REFUSING_HEADER)
    ]
    return any("true" in str(values).lower() for values in flags)

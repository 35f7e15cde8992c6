"""Decode rows of any shape: runs, events, steps, callbacks, and DLQ entries that strict decoding refuses.

Rows are Python objects here, and every value is checked by itself. A value that does not fit the column
becomes null and is kept in ``extra``, together with all fields that the table does not know. For example, a
status of ``"abc"`` is null in the column ``status``, and ``extra`` is ``{"status":"abc"}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec
import pyarrow as pa

from toolkit.base.arguments import as_json
from toolkit.base.errors import InputError, ProtocolError
from toolkit.base.own_tokens import is_in
from toolkit.secrets.redaction import Redactor
from toolkit.tables.base64_bodies import (
    base64_body,
    base64_bytes,
    base64_text,
    is_cut_base64,
    text_and_bytes,
)
from toolkit.tables.column_values import clean, is_clean, unix_ms, whole_number
from toolkit.tables.header_maps import HeaderColumn, header_column, header_map
from toolkit.tables.json_cells import masked_json
from toolkit.tables.json_rows import lenient, parse_rows, required_id
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.schemas import (
    CALLBACK_COLUMNS,
    CALLBACKS,
    EVENT_COLUMNS,
    RUN_COLUMNS,
    TIME,
    Column,
    Kind,
)

Row = dict[str, Any]
ReadBody = Callable[[Any, Any], tuple[str | None, bytes | None, bool]]

_TIME_DIGITS: Final = re.compile(r"[0-9]{1,18}")
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


def decode_runs(rows: bytes, *, redactor: Redactor | None) -> pa.Table:
    """Return a JSON array of runs as a table of the schema ``RUNS``."""
    what = "workflow runs"
    return LenientRows(
        parse_rows(rows, what=what, exactly=True), RUN_COLUMNS, redactor, what=what
    ).table()


def decode_events(rows: bytes, *, redactor: Redactor | None) -> pa.Table:
    """Return a JSON array of message events as a table of the schema ``EVENTS``.

    Raise ProtocolError if the bytes are not an array of objects, or if an event has no message id.
    """
    what = "events of messages"
    parsed = parse_rows(rows, what=what, exactly=True)
    for row in parsed:
        # the documentation of the service uses both names
        if "responseHeader" not in row and "responseHeaders" in row:
            row["responseHeader"] = row.pop("responseHeaders")
    return LenientRows(
        parsed, EVENT_COLUMNS, redactor, what=what, read_body=_event_body
    ).table()


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


class LenientRows:
    """Decode rows value by value. Values that do not fit are collected per row.

    `columns` are the columns with a field in the rows, and ``extra``, all unmasked. The caller adds columns
    that are derived from them, then calls `table`.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        columns: Sequence[Column],
        redactor: Redactor | None,
        *,
        what: str,
        read_body: ReadBody = text_and_bytes,
    ) -> None:
        self.rejected_values: list[Row] = [{} for _ in rows]
        self.columns: dict[str, Any] = {}
        self._rows = rows
        self._table = columns
        self._redactor = redactor
        self._what = what
        sources = {column.name: column.field for column in columns}
        for name, kind, source in columns:
            if kind is Kind.BODY:
                # a body fills two columns, so that BASE64 columns are skipped below
                encoded = f"{name}_base64"
                bodies = self._bodies(read_body, source or "", sources[encoded] or "")
                self.columns[name], self.columns[encoded] = bodies
            elif source is not None and kind is not Kind.BASE64:
                self.columns[name] = self._column(kind, source)
        self.columns["extra"] = self._extra(frozenset(filter(None, sources.values())))

    def table(self) -> pa.Table:
        """Return the table of all columns, masked."""
        masker = ColumnMasker(self._redactor)
        return masker.table(masker.masked_table(self._table, self.columns))

    def _column(self, kind: Kind, source: str) -> pa.Array | HeaderColumn:
        """Return the column of a field that is not a body."""
        if kind is Kind.ID:
            return pa.array(self._ids(source), pa.string())
        if kind is Kind.HEADERS:
            return header_column(self._fitting(source, header_map))
        if kind not in _CONVERSIONS:
            return pa.array(self._texts(source), pa.string())
        convert, arrow_type = _CONVERSIONS[kind]
        values = self._fitting(source, convert)
        if kind is Kind.TIME_OR_ZERO:
            # the service sends 0 for a time that is unknown
            values = [value or None for value in values]
        return pa.array(values, arrow_type)

    def _ids(self, source: str) -> list[str]:
        rows = enumerate(self._rows)
        return [
            required_id(row, source, what=self._what, index=index)
            for index, row in rows
        ]

    def _texts(self, source: str) -> list[str | None]:
        """Return the strings of a field. Empty strings are null; invalid UTF-8 is also rejected."""
        texts = []
        for row, rejected in zip(self._rows, self.rejected_values, strict=True):
            value = row.get(source)
            text = None
            if isinstance(value, str):
                text = clean(value)
            if text is not value:
                rejected[source] = value
            texts.append(text or None)
        return texts

    def _fitting(self, source: str, convert: Callable[[Any], Any]) -> list[Any]:
        """Return the values of a field that `convert` accepts. The others are null and rejected."""
        converted_values = []
        for row, rejected in zip(self._rows, self.rejected_values, strict=True):
            value = row.get(source)
            converted = None
            if value is not None:
                converted = convert(value)
            if converted is None and value is not None:
                rejected[source] = value
            converted_values.append(converted)
        return converted_values

    def _bodies(
        self, read_body: ReadBody, plain: str, encoded: str
    ) -> tuple[pa.Array, pa.Array]:
        """Return bodies as strings and as base64, from two fields. `plain` is "" if there is only base64."""
        texts, encoded_bodies = [], []
        for row, rejected in zip(self._rows, self.rejected_values, strict=True):
            text, raw, fits = read_body(row.get(plain), row.get(encoded))
            if not fits:
                if plain:
                    rejected[plain] = row.get(plain)
                rejected[encoded] = self._without_own_tokens(row.get(encoded))
            texts.append(text)
            encoded_bodies.append(base64_text(raw, self._redactor))
        return pa.array(texts, pa.string()), pa.array(encoded_bodies, pa.string())

    def _without_own_tokens(self, encoded: Any) -> Any:
        """Return rejected base64, with live tokens of this process masked in the bytes that it encodes."""
        raw = None
        if isinstance(encoded, str):
            raw = base64_bytes(encoded)
        if raw is None or self._redactor is None:
            return encoded
        if not is_in(raw.decode("latin-1")):
            return encoded
        return base64_text(raw, self._redactor)

    def _extra(self, known: frozenset[str]) -> pa.Array:
        """Return the rejected values and unknown fields of each row as JSON text."""
        extras = []
        for row, rejected in zip(self._rows, self.rejected_values, strict=True):
            unknown = row.keys() - known
            # in the order of the row
            extra = rejected | {name: row[name] for name in row if name in unknown}
            extras.append(masked_json(extra, self._redactor))
        return pa.array(extras, pa.string())


def _event_body(plain: Any, encoded: Any) -> tuple[str | None, bytes | None, bool]:
    """Read the body of an event: a response, which is a string, or the body of the message in base64."""
    if plain is None:
        return base64_body(None, encoded)
    return text_and_bytes(plain, encoded)


def _flag(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return None


def _labels(value: Any) -> bytes | None:
    if not isinstance(value, list):
        return None
    if not all(isinstance(label, str) and is_clean(label) for label in value):
        return None
    return msgspec.json.encode(value)


def _unix_ms_of_text(value: Any) -> int | None:
    """Return Unix milliseconds from digits, as callbacks send them, or from a number."""
    if not isinstance(value, str):
        return unix_ms(value)
    if not _TIME_DIGITS.fullmatch(value):
        return None
    return unix_ms(int(value))


_CONVERSIONS: Final[dict[Kind, tuple[Callable[[Any], Any], pa.DataType]]] = {
    Kind.LABELS: (_labels, pa.binary()),
    Kind.NUMBER: (whole_number, pa.int64()),
    Kind.FLAG: (_flag, pa.bool_()),
    Kind.TIME: (unix_ms, TIME),
    Kind.TIME_OR_ZERO: (unix_ms, TIME),
    Kind.TIME_AS_TEXT: (_unix_ms_of_text, TIME),
}
"""Conversion of a value and type of the column. For the other kinds see `LenientRows`."""


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
    length = by_name.get("content-length")
    if isinstance(length, list) and len(length) == 1:
        length = length[0]
    if not isinstance(length, str) or not _LENGTH_DIGITS.fullmatch(length):
        return None
    # the length of a compressed body is not the length of the text
    if "content-encoding" in by_name:
        return None
    return int(length)


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

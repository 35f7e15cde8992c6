"""Rows of any shape as columns: runs, events, steps, callbacks, and DLQ entries that strict decoding refuses.

Rows are plain objects here, and every value is checked by itself: what does not fit its column is null there
and part of ``extra``, with every field that the table does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec
import pyarrow as pa

from toolkit.arguments import as_json
from toolkit.errors import InputError, ProtocolError
from toolkit.own_tokens import is_in
from toolkit.redaction import Redactor
from toolkit.tables.header_maps import HeaderColumn, header_column, header_map
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.schemas import CALLBACK_COLUMNS, CALLBACKS, EVENT_COLUMNS, RUN_COLUMNS, TIME, Column, Kind
from toolkit.tables.text import (
    base64_body,
    base64_bytes,
    base64_text,
    clean,
    is_clean,
    is_cut_base64,
    lenient,
    masked_json,
    parse_rows,
    required_id,
    text_and_bytes,
    unix_ms,
    whole_number,
)

Row = dict[str, Any]
ReadBody = Callable[[Any, Any], tuple[str | None, bytes | None, bool]]

_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_LENGTH: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_NOT_RETRYABLE: Final = 489


@dataclass(frozen=True, kw_only=True)
class ReceivedCallback:
    """The body of a callback request with what only its receiver knows."""

    body: bytes = field(repr=False)
    received_at: datetime  # with a time zone
    verified: bool | None  # whether its signature is right; None without keys


Body = bytes | str | Mapping[str, Any] | ReceivedCallback
"""A callback body: JSON as bytes or text, an object read already, or one that a receiver kept."""


def decode_runs(rows: bytes, *, redactor: Redactor | None) -> pa.Table:
    """A JSON array of runs as a table of the schema ``RUNS``."""
    what = "workflow runs"
    return LenientRows(parse_rows(rows, what=what, exactly=True), RUN_COLUMNS, redactor, what=what).table()


def decode_events(rows: bytes, *, redactor: Redactor | None) -> pa.Table:
    """A JSON array of events of messages as a table of the schema ``EVENTS``.

    ProtocolError where the bytes are not an array of objects, or an event names no message.
    """
    what = "events of messages"
    parsed = parse_rows(rows, what=what, exactly=True)
    for row in parsed:
        if "responseHeader" not in row and "responseHeaders" in row:  # documents have both
            row["responseHeader"] = row.pop("responseHeaders")
    return LenientRows(parsed, EVENT_COLUMNS, redactor, what=what, read_body=_event_body).table()


def decode_callbacks(bodies: Iterable[Body], *, redactor: Redactor | None) -> pa.Table:
    """Callback bodies as a table of the schema ``CALLBACKS``, one row a body, in order.

    A body that is not a JSON object is a ProtocolError that says which one it is. Bodies in it that are
    truncated are decoded as far as they go. One that ends between groups of base64 is known as truncated by
    the length that the response stated; without that it looks like a complete one.
    """
    received = list(bodies)
    rows = [
        callback_fields(
            item.body if isinstance(item, ReceivedCallback) else item, what=f"body {at:,} of source"
        )
        for at, item in enumerate(received)
    ]
    callbacks = LenientRows(rows, CALLBACK_COLUMNS, redactor, what="callbacks", read_body=base64_body)
    columns = callbacks.columns
    read = (columns[name].to_pylist() for name in ("dlq_id", "status", "retried", "max_retries"))
    derived = [
        _outcome(row, *values)
        | {
            "body_truncated": None if "body" in rejected else _is_cut(row, "body"),
            "source_body_truncated": None if "sourceBody" in rejected else _is_cut(row, "sourceBody"),
            "received_at": getattr(item, "received_at", None),
            "verified": getattr(item, "verified", None),
        }
        for item, row, rejected, *values in zip(received, rows, callbacks.rejected_values, *read, strict=True)
    ]
    schema = pa.schema([CALLBACKS.field(name) for name in CALLBACKS.names if name not in columns])
    table = pa.Table.from_pylist(derived, schema=schema)
    columns.update(zip(table.column_names, table.columns, strict=True))
    return callbacks.table()


def callback_fields(
    body: bytes | str | Mapping[str, Any], *, what: str = "a callback body"
) -> dict[str, Any]:
    """The fields of one callback body, with the service's own names."""
    if isinstance(body, Mapping):
        try:
            body = as_json(dict(body))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"decoding {what}", got=str(error)[:200], expected="values that JSON can hold"
            ) from None
    fields = lenient(body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body, what=what)
    if not isinstance(fields, dict):
        raise ProtocolError(f"decoding {what}", got=type(fields).__name__, expected="a JSON object")
    return fields


class LenientRows:
    """Rows of a table, one value after the other; what does not fit is collected for each row on the way.

    `columns` are those that fields fill, and ``extra``, unmasked; the caller adds those derived from them.
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
                encoded = f"{name}_base64"
                bodies = self._bodies(read_body, source or "", sources[encoded] or "")
                self.columns[name], self.columns[encoded] = bodies
            elif source is not None and kind is not Kind.BASE64:
                self.columns[name] = self._column(kind, source)
        known = set(sources.values())
        extras = [
            rejected if known.issuperset(row) else rejected | {n: v for n, v in row.items() if n not in known}
            for row, rejected in zip(rows, self.rejected_values, strict=True)
        ]
        self.columns["extra"] = pa.array([masked_json(extra, redactor) for extra in extras], pa.string())

    def table(self) -> pa.Table:
        """The table of all columns, our own tokens masked in all of its text."""
        masker = ColumnMasker(self._redactor)
        return masker.table(masker.masked_table(self._table, self.columns))

    def _column(self, kind: Kind, source: str) -> pa.Array | HeaderColumn:
        if kind is Kind.ID:
            rows = enumerate(self._rows)
            ids = [required_id(row, source, what=self._what, index=index) for index, row in rows]
            return pa.array(ids, pa.string())
        if kind is Kind.HEADERS:
            return header_column(self._fitting(source, header_map))
        if kind not in _FITTING:
            return pa.array(self._texts(source), pa.string())
        fit, held = _FITTING[kind]
        values = self._fitting(source, fit)
        return pa.array([value or None for value in values] if kind is Kind.TIME_OR_ZERO else values, held)

    def _texts(self, source: str) -> list[str | None]:
        texts = []
        for row, rejected in zip(self._rows, self.rejected_values, strict=True):
            value = row.get(source)
            text = clean(value) if isinstance(value, str) else None
            if text is not value:
                rejected[source] = value
            texts.append(text or None)
        return texts

    def _fitting(self, source: str, fit: Callable[[Any], Any]) -> list[Any]:
        values = []
        for row, rejected in zip(self._rows, self.rejected_values, strict=True):
            value = row.get(source)
            fitting = None if value is None else fit(value)
            if fitting is None and value is not None:
                rejected[source] = value
            values.append(fitting)
        return values

    def _bodies(self, read_body: ReadBody, plain: str, encoded: str) -> tuple[pa.Array, pa.Array]:
        """Bodies as text and as base64, from their two fields; a name is empty where there is only one."""
        texts, coded = [], []
        for row, rejected in zip(self._rows, self.rejected_values, strict=True):
            text, raw, fits = read_body(row.get(plain), row.get(encoded))
            if not fits:
                rejected.update({plain: row.get(plain)} if plain else {})
                rejected[encoded] = self._own_base64(row.get(encoded))
            texts.append(text)
            coded.append(base64_text(raw, self._redactor))
        return pa.array(texts, pa.string()), pa.array(coded, pa.string())

    def _own_base64(self, encoded: Any) -> Any:
        """Base64 that goes into no column, without a token of ours in the bytes it encodes."""
        raw = base64_bytes(encoded) if isinstance(encoded, str) else None
        if raw is None or self._redactor is None or not is_in(raw.decode("latin-1")):
            return encoded
        return base64_text(raw, self._redactor)


def _event_body(plain: Any, encoded: Any) -> tuple[str | None, bytes | None, bool]:
    """A response, which is text, or the body of the message, which is base64."""
    return base64_body(None, encoded) if plain is None else text_and_bytes(plain, encoded)


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _labels(value: Any) -> bytes | None:
    if isinstance(value, list) and all(isinstance(label, str) and is_clean(label) for label in value):
        return msgspec.json.encode(value)
    return None


def _unix_ms_of_text(value: Any) -> int | None:
    """Unix milliseconds from the text that callbacks carry, or from a number."""
    if isinstance(value, str):
        return unix_ms(int(value)) if _DIGITS.fullmatch(value) else None
    return unix_ms(value)


_FITTING: Final[dict[Kind, tuple[Callable[[Any], Any], pa.DataType]]] = {
    Kind.LABELS: (_labels, pa.binary()),
    Kind.NUMBER: (whole_number, pa.int64()),
    Kind.FLAG: (_flag, pa.bool_()),
    Kind.TIME: (unix_ms, TIME),
    Kind.TIME_OR_ZERO: (unix_ms, TIME),
    Kind.TIME_AS_TEXT: (_unix_ms_of_text, TIME),
}
"""What a value of a column has to be, and its type; for the other kinds see `LenientRows`."""


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
) -> dict[str, Any]:
    """What a callback says of its message: its kind, whether delivered, out of retries, and in the DLQ.

    Only failure callbacks name the entry of the DLQ, but a callback of the last attempt says as much.
    """
    delivered = None if status is None else 200 <= status < 300  # noqa: PLR2004 - the 2xx statuses
    exhausted = None if retried is None or most is None else retried >= most
    if dlq_id:
        in_dlq: bool | None = True
    elif delivered is not False:
        in_dlq = None if delivered is None else False
    elif row.get("workflowRunId"):
        in_dlq = None  # a call that failed is told to its run, and in no DLQ
    else:
        final = status == _NOT_RETRYABLE and _refuses_retries(row.get("header"))
        in_dlq = True if final else exhausted
    kind = "failure" if dlq_id else "callback"
    return {"kind": kind, "delivered": delivered, "exhausted": exhausted, "in_dlq": in_dlq}


def _refuses_retries(headers: Any) -> bool:
    """Whether the destination requested no retries."""
    return isinstance(headers, dict) and any(
        name.lower().endswith("nonretryable-error") and "true" in str(values).lower()
        for name, values in headers.items()
    )

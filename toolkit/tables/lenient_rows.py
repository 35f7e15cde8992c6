"""Decode rows of any shape: runs, events, steps, callbacks, and DLQ entries that strict decoding refuses.

Rows are Python objects here, and every value is checked by itself. A value that does not fit the column
becomes null and is kept in ``extra``, together with all fields that the table does not know. For example, a
status of ``"abc"`` is null in the column ``status``, and ``extra`` is ``{"status":"abc"}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from toolkit.base.own_tokens import is_in
from toolkit.secrets.redaction import Redactor
from toolkit.tables.base64_bodies import (
    base64_body,
    base64_bytes,
    base64_text,
    text_and_bytes,
)
from toolkit.tables.column_values import clean, is_clean, unix_ms, whole_number
from toolkit.tables.header_maps import HeaderColumn, header_column, header_map
from toolkit.tables.json_cells import FieldsMasker
from toolkit.tables.json_rows import parse_rows, required_id
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.schemas import (
    EVENT_COLUMNS,
    RUN_COLUMNS,
    TIME,
    Column,
    Kind,
)

Row = dict[str, Any]
ReadBody = Callable[[Any, Any], tuple[str | None, bytes | None, bool]]

_TIME_DIGITS: Final = re.compile(r"[0-9]{1,18}")


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
        masker = FieldsMasker(self._redactor)
        extras = []
        for row, rejected in zip(self._rows, self.rejected_values, strict=True):
            unknown = row.keys() - known
            # in the order of the row
            extra = rejected | {name: row[name] for name in row if name in unknown}
            extras.append(masker.json(extra))

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

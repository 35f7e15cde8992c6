"""Rows of any shape as columns: runs, events, steps, callbacks, and DLQ entries that strict decoding refuses.

Rows are plain objects here, and every value is checked by itself: what does not fit its column is null there
and part of ``extra``, with every field that the table does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from toolkit.own_tokens import is_in
from toolkit.redaction import Redactor
from toolkit.tables.header_maps import HeaderColumn, header_column, header_map
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.schemas import EVENT_COLUMNS, EVENTS, RUN_COLUMNS, RUNS, TIME, Column, Kind
from toolkit.tables.text import (
    base64_body,
    base64_bytes,
    base64_text,
    clean,
    is_clean,
    masked_json,
    parse_rows,
    required_id,
    text_and_bytes,
    unix_ms,
    whole_number,
)

Row = dict[str, Any]

_DIGITS: Final = re.compile(r"[0-9]{1,18}")


def decode_runs(rows: bytes, *, redactor: Redactor | None) -> pa.Table:
    """A JSON array of runs as a table of the schema ``RUNS``."""
    what = "workflow runs"
    runs = LenientRows(parse_rows(rows, what=what, exactly=True), RUN_COLUMNS, redactor, what=what)
    return runs.masked_table(runs.columns(), RUNS)


def decode_events(rows: bytes, *, redactor: Redactor | None) -> pa.Table:
    """A JSON array of events of messages as a table of the schema ``EVENTS``.

    ProtocolError where the bytes are no array of objects, or an event names no message.
    """
    what = "events of messages"
    parsed = parse_rows(rows, what=what, exactly=True)
    for row in parsed:
        if "responseHeader" not in row and "responseHeaders" in row:  # documents have both
            row["responseHeader"] = row.pop("responseHeaders")
    events = LenientRows(parsed, EVENT_COLUMNS, redactor, what=what, read_body=_event_body)
    return events.masked_table(events.columns(), EVENTS)


class LenientRows:
    """Rows of a table, one value after the other; what does not fit is collected for each row on the way."""

    def __init__(
        self,
        rows: Sequence[Row],
        columns: Sequence[Column],
        redactor: Redactor | None,
        *,
        what: str,
        read_body: Callable[[Any, Any], tuple[str | None, bytes | None, bool]] = text_and_bytes,
    ) -> None:
        self.misfits: list[Row] = [{} for _ in rows]
        self._rows = rows
        self._columns = columns
        self._redactor = redactor
        self._what = what
        self._read_body = read_body

    def columns(self) -> dict[str, Any]:
        """The columns that fields fill, unmasked, and ``extra``."""
        fields = {column.name: column.field for column in self._columns}
        columns: dict[str, Any] = {}
        for name, kind, field in self._columns:
            if kind is Kind.BODY:
                columns[name], columns[f"{name}_base64"] = self._bodies(
                    field or "", fields[f"{name}_base64"] or ""
                )
            elif field is not None and kind is not Kind.BASE64:
                columns[name] = self._column(kind, field)
        known = {field for field in fields.values() if field is not None}
        extras = [
            misfits if known.issuperset(row) else misfits | {n: v for n, v in row.items() if n not in known}
            for row, misfits in zip(self._rows, self.misfits, strict=True)
        ]
        columns["extra"] = pa.array([masked_json(extra, self._redactor) for extra in extras], pa.string())
        return columns

    def masked_table(self, columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
        """The table of these columns, our own tokens masked in all of its text."""
        masker = ColumnMasker(self._redactor)
        return masker.table(masker.masked_table(self._columns, columns, schema))

    def _column(self, kind: Kind, field: str) -> pa.Array | HeaderColumn:
        match kind:
            case Kind.ID:
                ids = [
                    required_id(row, field, what=self._what, index=index)
                    for index, row in enumerate(self._rows)
                ]
                return pa.array(ids, pa.string())
            case Kind.HEADERS:
                return header_column(self._fitting(field, header_map))
            case Kind.LABELS:
                return pa.array(self._fitting(field, _labels), pa.binary())
            case Kind.NUMBER | Kind.FLAG:
                fit, held = (whole_number, pa.int64()) if kind is Kind.NUMBER else (_flag, pa.bool_())
                return pa.array(self._fitting(field, fit), held)
            case Kind.TIME:
                return pa.array(self._fitting(field, unix_ms), TIME)
            case Kind.TIME_AS_TEXT:
                return pa.array(self._fitting(field, _unix_ms_of_text), TIME)
            case Kind.TIME_OR_ZERO:
                return pa.array([value or None for value in self._fitting(field, unix_ms)], TIME)
            case _:
                return pa.array(self._texts(field), pa.string())

    def _texts(self, field: str) -> list[str | None]:
        texts = []
        for row, misfits in zip(self._rows, self.misfits, strict=True):
            value = row.get(field)
            text = clean(value) if isinstance(value, str) else None
            if text is not value:
                misfits[field] = value
            texts.append(text or None)
        return texts

    def _fitting(self, field: str, fit: Callable[[Any], Any]) -> list[Any]:
        values = []
        for row, misfits in zip(self._rows, self.misfits, strict=True):
            value = row.get(field)
            fitting = None if value is None else fit(value)
            if fitting is None and value is not None:
                misfits[field] = value
            values.append(fitting)
        return values

    def _bodies(self, plain: str, encoded: str) -> tuple[pa.Array, pa.Array]:
        """Bodies as text and as base64, from their two fields; a name is empty where there is only one."""
        texts, coded = [], []
        for row, misfits in zip(self._rows, self.misfits, strict=True):
            text, raw, fits = self._read_body(row.get(plain), row.get(encoded))
            if not fits:
                misfits.update({plain: row.get(plain)} if plain else {})
                misfits[encoded] = self._own_base64(row.get(encoded))
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
    """A list of texts as JSON."""
    if isinstance(value, list) and all(isinstance(label, str) and is_clean(label) for label in value):
        return msgspec.json.encode(value)
    return None


def _unix_ms_of_text(value: Any) -> int | None:
    """Unix milliseconds from the text that callbacks carry, or from a number."""
    if isinstance(value, str):
        return unix_ms(int(value)) if _DIGITS.fullmatch(value) else None
    return unix_ms(value)

"""DLQ entries of any shape: the lenient way from a page's bytes to the table ``FAILURES``.

Entries become plain objects first, and every value is looked at by itself: what does not fit its column is
null there and stands in ``extra``. It is slower than the strict way, which hands on every page it refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import Any

import pyarrow as pa

from toolkit.own_tokens import is_in
from toolkit.redaction import Redactor
from toolkit.tables.dates import http_dates
from toolkit.tables.failure_fields import BODIES, HEADERS, KNOWN, MOMENTS, NUMBERS, TEXTS, URLS, WHAT
from toolkit.tables.header_maps import header_column, header_map
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.schemas import FAILURES
from toolkit.tables.text import (
    TooDeepError,
    base64_bytes,
    base64_text,
    clean,
    is_clean,
    labels_json,
    masked_json,
    moment,
    parse_rows,
    required_id,
    text_and_bytes,
    whole_number,
)

Keep = Callable[[dict[str, Any]], bool]


def decode_odd_failures(rows: bytes, *, redactor: Redactor | None, keep: Keep | None = None) -> pa.Table:
    """The entries of a page, whatever their values; see `FailureDecoder.decode`."""
    entries = parse_rows(rows, what=WHAT, under="messages")
    kept = [keep is None or keep(entry) for entry in entries]
    try:
        return _Page(list(compress(entries, kept)), redactor).table()
    except TooDeepError:
        entries = parse_rows(rows, what=WHAT, under="messages", exactly=True)
        return _Page(list(compress(entries, kept)), redactor).table()


class _Page:
    """Builds one page's columns; what does not fit is collected per row on the way."""

    def __init__(self, entries: list[dict[str, Any]], redactor: Redactor | None) -> None:
        self._entries = entries
        self._redactor = redactor
        self._masker = ColumnMasker(redactor)
        self._misfits: dict[int, dict[str, Any]] = {}

    def table(self) -> pa.Table:
        masker = self._masker
        columns: dict[str, Any] = {
            "dlq_id": [
                required_id(entry, "dlqId", what=WHAT, place=place)
                for place, entry in enumerate(self._entries)
            ]
        }
        texts: dict[str, list[str | None]] = {}
        for column, wire in TEXTS.items():
            texts[wire] = self._texts(wire)
            columns[column] = masker.texts(pa.array(texts[wire], pa.string()))
        for column, wire in URLS.items():
            columns[column] = masker.urls(pa.array(self._texts(wire), pa.string()))
        for column, wire in NUMBERS.items():
            columns[column] = self._fitting(wire, whole_number)
        for column, wire in MOMENTS.items():
            columns[column] = self._fitting(wire, moment)
        for column, (plain, encoded) in BODIES.items():
            bodies, raws = self._bodies(plain, encoded)
            columns[column] = bodies
            columns[f"{column}_base64"] = [base64_text(raw, self._redactor) for raw in raws]
        for column, wire in HEADERS.items():
            headers = header_column(self._fitting(wire, header_map))
            columns[column] = masker.headers(headers)
            if column == "response_headers":
                columns["failed_at"] = http_dates(headers.first_values("date"))
        columns["labels"] = [labels_json(found, self._redactor) for found in self._labels(texts["label"])]
        columns["extra"] = self._extra()
        arrays = [
            columns[field.name]
            if isinstance(columns[field.name], pa.Array)
            else pa.array(columns[field.name], field.type)
            for field in FAILURES
        ]
        return masker.table(pa.Table.from_arrays(arrays, schema=FAILURES))

    def _misfit(self, place: int, wire: str, value: Any) -> None:
        self._misfits.setdefault(place, {})[wire] = value

    def _texts(self, wire: str) -> list[str | None]:
        values = [entry.get(wire) for entry in self._entries]
        for place, value in enumerate(values):
            if value is None:
                continue
            if not isinstance(value, str):
                self._misfit(place, wire, value)
                values[place] = None
            elif not is_clean(value):
                self._misfit(place, wire, value)
                values[place] = clean(value)
        return [value or None for value in values]

    def _fitting(self, wire: str, fit: Callable[[Any], Any]) -> list[Any]:
        found = []
        for place, entry in enumerate(self._entries):
            value = entry.get(wire)
            fitting = None if value is None else fit(value)
            if fitting is None and value is not None:
                self._misfit(place, wire, value)
            found.append(fitting)
        return found

    def _bodies(self, plain: str, encoded: str) -> tuple[list[str | None], list[bytes | None]]:
        texts: list[str | None] = []
        raws: list[bytes | None] = []
        for place, entry in enumerate(self._entries):
            text, raw, fits = text_and_bytes(entry.get(plain), entry.get(encoded))
            if not fits:
                self._misfit(place, plain, entry.get(plain))
                self._misfit(place, encoded, self._own_base64(entry.get(encoded)))
            texts.append(text)
            raws.append(raw)
        return texts, raws

    def _own_base64(self, encoded: Any) -> Any:
        """Base64 that goes into no column, without a token of ours in what it stands for."""
        raw = base64_bytes(encoded) if isinstance(encoded, str) else None
        if raw is None or self._redactor is None or not is_in(raw.decode("latin-1")):
            return encoded
        return base64_text(raw, self._redactor)

    def _labels(self, single: list[str | None]) -> list[list[str]]:
        """The labels; the deprecated single one where only it is there."""
        found: list[list[str]] = []
        for place, entry in enumerate(self._entries):
            labels, alone = entry.get("labels"), single[place]
            if isinstance(labels, list) and all(isinstance(item, str) and is_clean(item) for item in labels):
                found.append(labels if labels or not alone else [alone])
                continue
            if labels is not None:
                self._misfit(place, "labels", labels)
            found.append([alone] if alone else [])
        return found

    def _extra(self) -> list[str | None]:
        found: list[str | None] = []
        for place, entry in enumerate(self._entries):
            fields = self._misfits.get(place, {})
            if not KNOWN.issuperset(entry):
                fields = fields | {name: value for name, value in entry.items() if name not in KNOWN}
            found.append(masked_json(fields, self._redactor))
        return found

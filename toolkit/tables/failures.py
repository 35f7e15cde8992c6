"""DLQ entries: from a page's bytes to the table ``FAILURES``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from toolkit.redaction import Redactor
from toolkit.tables.headers import HeaderMap, HeaderMasker, first_value, header_column, header_map
from toolkit.tables.schemas import FAILURES
from toolkit.tables.text import (
    clean,
    http_date,
    is_clean,
    masked_json,
    moment,
    parse_rows,
    required_id,
    text_and_bytes,
    whole_number,
)

_WHAT: Final = "DLQ entries"
_TEXTS: Final = {
    "workflow_run_id": "workflowRunId",
    "method": "method",
    "caller_ip": "callerIP",
    "label": "label",
    "flow_control_key": "flowControlKey",
    "failure_function_state": "failureFunctionState",
}
_URLS: Final = {"workflow_url": "workflowUrl", "url": "url", "failure_callback": "failureCallback"}
_NUMBERS: Final = {"max_retries": "maxRetries", "response_status": "responseStatus"}
_MOMENTS: Final = {"workflow_created_at": "workflowCreatedAt", "created_at": "createdAt"}
_BODIES: Final = {"body": ("body", "bodyBase64"), "response_body": ("responseBody", "responseBodyBase64")}
_HEADERS: Final = {"headers": "header", "response_headers": "responseHeader"}
_KNOWN: Final = frozenset(
    {
        "dlqId",
        "labels",
        *_TEXTS.values(),
        *_URLS.values(),
        *_NUMBERS.values(),
        *_MOMENTS.values(),
        *_HEADERS.values(),
        *(name for pair in _BODIES.values() for name in pair),
    }
)


def decode_failures(
    rows: bytes, *, redactor: Redactor | None, keep: Callable[[dict[str, Any]], bool] | None = None
) -> pa.Table:
    """The entries of a page as a table of the schema ``FAILURES``.

    Parameters
    ----------
    rows : bytes
        A JSON array of DLQ entries.
    redactor : Redactor or None
        Masks header values and URLs; None keeps everything as it came.
    keep : callable, optional
        Given an entry with the service's own names; False leaves it out.

    Returns
    -------
    pyarrow.Table
        One row an entry, in the page's order. A value that does not fit its column is null there and stands
        in ``extra``, with every field the schema does not know.

    Raises
    ------
    ProtocolError
        When the bytes are no array of objects, or an entry has no id.
    """
    entries = parse_rows(rows, what=_WHAT)
    if keep is not None:
        entries = [entry for entry in entries if keep(entry)]
    page = _Page(entries, redactor, redactor is not None and redactor.page_may_hold_own(rows))
    return page.table()


class _Page:
    """Builds one page's columns; what does not fit is collected per row on the way."""

    def __init__(self, entries: list[dict[str, Any]], redactor: Redactor | None, own: bool) -> None:  # noqa: FBT001
        self._entries = entries
        self._redactor = redactor
        self._own = own
        self._masker = HeaderMasker(redactor)
        self._misfits: dict[int, dict[str, Any]] = {}

    def table(self) -> pa.Table:
        columns: dict[str, Any] = {
            "dlq_id": [
                required_id(entry, "dlqId", what=_WHAT, place=place)
                for place, entry in enumerate(self._entries)
            ]
        }
        for column, wire in _TEXTS.items():
            columns[column] = self._masked(self._texts(wire), Redactor.text)
        for column, wire in _URLS.items():
            columns[column] = self._masked(self._texts(wire), Redactor.url)
        for column, wire in _NUMBERS.items():
            columns[column] = self._fitting(wire, whole_number)
        for column, wire in _MOMENTS.items():
            columns[column] = self._fitting(wire, moment)
        for column, (plain, encoded) in _BODIES.items():
            columns[column], columns[f"{column}_bytes"] = self._bodies(plain, encoded)
        maps = {column: self._fitting(wire, header_map) for column, wire in _HEADERS.items()}
        columns["failed_at"] = [self._failed_at(headers) for headers in maps["response_headers"]]
        for column, found in maps.items():
            columns[column] = header_column(
                [None if item is None else self._masker.masked(item) for item in found]
            )
        columns["labels"] = self._labels(columns["label"])
        columns["extra"] = self._extra()
        arrays = [
            columns[field.name]
            if isinstance(columns[field.name], pa.Array)
            else pa.array(columns[field.name], field.type)
            for field in FAILURES
        ]
        return pa.Table.from_arrays(arrays, schema=FAILURES)

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
        return values

    def _masked(self, values: list[str | None], mask: Callable[[Redactor, str], str]) -> list[str | None]:
        """The values masked, each distinct one once: they repeat."""
        redactor = self._redactor
        if redactor is None:
            return values
        masked = {value: mask(redactor, value) for value in set(values) if value}
        return [masked[value] if value else value for value in values]

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
                self._misfit(place, encoded, entry.get(encoded))
            if self._own and self._redactor is not None:
                text = text and self._redactor.own(text)
                raw = raw and self._redactor.own(raw.decode("latin-1")).encode("latin-1")
            texts.append(text)
            raws.append(raw)
        return texts, raws

    def _failed_at(self, headers: HeaderMap | None) -> int | None:
        date = first_value(headers, "date")
        return None if date is None else http_date(date)

    def _labels(self, single: list[str | None]) -> list[list[str] | None]:
        """The labels; the deprecated single one where only it is there."""
        found: list[list[str] | None] = []
        for place, entry in enumerate(self._entries):
            labels, alone = entry.get("labels"), single[place]
            if isinstance(labels, list) and all(isinstance(item, str) and is_clean(item) for item in labels):
                found.append(labels if labels or not alone else [alone])
                continue
            if labels is not None:
                self._misfit(place, "labels", labels)
            found.append([alone] if alone else None)
        return found

    def _extra(self) -> list[str | None]:
        found: list[str | None] = []
        for place, entry in enumerate(self._entries):
            fields = self._misfits.get(place, {})
            if not _KNOWN.issuperset(entry):
                fields = fields | {name: value for name, value in entry.items() if name not in _KNOWN}
            found.append(masked_json(fields, self._redactor))
        return found

"""DLQ entries: from a page's bytes to the table ``FAILURES``, strictly and without objects in between.

A page whose entries are all as specified goes straight into typed records and from there into columns. Fields
that the specification does not know are learnt from the first page that has them. A page with anything else
in it (a value of another kind, bytes that are not UTF-8, a number that no column holds) is decoded by
``odd_failures.py``, with the same result for what both can read.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import pyarrow as pa

from toolkit.redaction import Redactor
from toolkit.tables.failure_fields import BODIES, HEADERS, MOMENTS, NUMBERS, TEXTS, URLS
from toolkit.tables.headers import HeaderMasker, first_value, header_column
from toolkit.tables.odd_failures import Keep, decode_odd_failures
from toolkit.tables.schemas import FAILURES
from toolkit.tables.text import http_date, masked_json, moment, text_and_bytes

_ABSENT: Final = msgspec.Raw(b"")
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(.*)` - at `\$[^`]*`\Z", re.DOTALL)
_MOST_LEARNT: Final = 200
_MOST_REMEMBERED: Final = 50_000  # distinct values whose mask or time is kept at hand


class _Entry(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An entry as specified. The names are the wire's."""

    dlqId: str  # noqa: N815
    workflowUrl: str | None = None  # noqa: N815
    workflowRunId: str | None = None  # noqa: N815
    workflowCreatedAt: int | None = None  # noqa: N815
    url: str | None = None
    method: str | None = None
    header: dict[str, list[str]] | None = None
    body: str | None = None
    bodyBase64: str | None = None  # noqa: N815
    maxRetries: int | None = None  # noqa: N815
    createdAt: int | None = None  # noqa: N815
    failureCallback: str | None = None  # noqa: N815
    callerIP: str | None = None  # noqa: N815
    label: str | None = None
    labels: list[str] | None = None
    flowControlKey: str | None = None  # noqa: N815
    failureFunctionState: str | None = None  # noqa: N815
    responseStatus: int | None = None  # noqa: N815
    responseHeader: dict[str, list[str]] | None = None  # noqa: N815
    responseBody: str | None = None  # noqa: N815
    responseBodyBase64: str | None = None  # noqa: N815


class _Misfit(Exception):  # noqa: N818 - a sign to take the other way, never seen outside
    """A value that no column holds."""


class FailureDecoder:
    """Decodes the pages of one load; what repeats from page to page is worked out once.

    Parameters
    ----------
    redactor : Redactor or None
        Masks header values and URLs; None keeps everything as it came.
    keep : callable, optional
        Given an entry with the service's own names; False leaves it out.

    Examples
    --------
    >>> page = b'[{"dlqId": "a", "responseStatus": 500, "cause": {"code": 7}}]'
    >>> FailureDecoder(None).decode(page).select(["dlq_id", "response_status", "extra"]).to_pylist()
    [{'dlq_id': 'a', 'response_status': 500, 'extra': '{"cause":{"code":7}}'}]
    """

    def __init__(self, redactor: Redactor | None, *, keep: Keep | None = None) -> None:
        self._redactor = redactor
        self._keep = keep
        self._learnt: list[str] = []
        self._decoder = msgspec.json.Decoder(list[_Entry])
        self._masker = HeaderMasker(redactor)
        self._texts: dict[str, str] = {}
        self._urls: dict[str, str] = {}
        self._dates: dict[str, int | None] = {}

    def decode(self, rows: bytes) -> pa.Table:
        """The entries of a page as a table of the schema ``FAILURES``.

        Parameters
        ----------
        rows : bytes
            A JSON array of DLQ entries.

        Returns
        -------
        pyarrow.Table
            One row an entry, in the page's order. A value that does not fit its column is null there and
            stands in ``extra``, with every field the schema does not know.

        Raises
        ------
        ProtocolError
            When the bytes are no array of objects, or an entry has no id.
        """
        entries = None if self._keep is not None else self._strict(rows)
        if entries is not None:
            own = self._redactor is not None and self._redactor.page_may_hold_own(rows)
            try:
                return self._table(entries, own=own)
            except (_Misfit, pa.ArrowInvalid, OverflowError):
                pass
        return decode_odd_failures(rows, redactor=self._redactor, keep=self._keep)

    def _strict(self, rows: bytes) -> list[_Entry] | None:
        """The entries, or None where the page is not as specified. Unknown fields are learnt on the way."""
        while True:
            try:
                return self._decoder.decode(rows)
            except msgspec.ValidationError as error:
                unknown = _UNKNOWN_FIELD.search(str(error))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return None
            if unknown is None or unknown[1] in self._learnt or len(self._learnt) >= _MOST_LEARNT:
                return None
            self._learn(unknown[1])

    def _learn(self, name: str) -> None:
        self._learnt.append(name)
        names = {f"unknown_{place}": wire for place, wire in enumerate(self._learnt)}
        kind = msgspec.defstruct(
            "Entry",
            [(field, msgspec.Raw, _ABSENT) for field in names],
            bases=(_Entry,),
            rename=names,
            gc=False,
        )
        self._decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]

    def _table(self, entries: list[_Entry], *, own: bool) -> pa.Table:
        self._forget()
        columns: dict[str, Any] = {"dlq_id": [entry.dlqId for entry in entries]}
        if not all(columns["dlq_id"]):
            raise _Misfit
        for column, wire in TEXTS.items():
            columns[column] = self._masked(
                [getattr(entry, wire) for entry in entries], self._texts, Redactor.text
            )
        for column, wire in URLS.items():
            columns[column] = self._masked(
                [getattr(entry, wire) for entry in entries], self._urls, Redactor.url
            )
        for column, wire in NUMBERS.items():
            columns[column] = [getattr(entry, wire) for entry in entries]
        for column, wire in MOMENTS.items():
            columns[column] = [getattr(entry, wire) for entry in entries]
            if any(moment(value) is None for value in set(columns[column]) if value is not None):
                raise _Misfit
        for column, (plain, encoded) in BODIES.items():
            columns[column], columns[f"{column}_bytes"] = self._bodies(entries, plain, encoded, own=own)
        for column, wire in HEADERS.items():
            maps = [getattr(entry, wire) for entry in entries]
            if wire == "responseHeader":
                columns["failed_at"] = [None if found is None else self._date(found) for found in maps]
            columns[column] = header_column(maps, self._masker)
        columns["labels"] = [
            entry.labels or ([entry.label] if entry.label else entry.labels) for entry in entries
        ]
        columns["extra"] = (
            [self._extra(entry) for entry in entries] if self._learnt else [None] * len(entries)
        )
        arrays = [
            columns[field.name]
            if isinstance(columns[field.name], pa.Array)
            else pa.array(columns[field.name], field.type)
            for field in FAILURES
        ]
        return pa.Table.from_arrays(arrays, schema=FAILURES)

    def _masked(self, values: list[str | None], known: dict[str, str], mask: Any) -> list[str | None]:
        """The values masked, each distinct one once: they repeat, on a page and from page to page."""
        if self._redactor is None:
            return values
        for value in set(values).difference(known):
            if value is not None:
                known[value] = mask(self._redactor, value)
        return [None if value is None else known[value] for value in values]

    def _bodies(
        self, entries: list[_Entry], plain: str, encoded: str, *, own: bool
    ) -> tuple[list[str | None], list[bytes | None]]:
        texts: list[str | None] = [getattr(entry, plain) for entry in entries]
        raws: list[bytes | None] = [None] * len(entries)
        for place, code in enumerate([getattr(entry, encoded) for entry in entries]):
            if code or texts[place] is None:
                texts[place], raws[place], fits = text_and_bytes(texts[place], code)
                if not fits:
                    raise _Misfit
        if own and self._redactor is not None:
            mask = self._redactor.own
            texts = [text and mask(text) for text in texts]
            raws = [raw and mask(raw.decode("latin-1")).encode("latin-1") for raw in raws]
        return texts, raws

    def _date(self, headers: dict[str, list[str]]) -> int | None:
        text = first_value(headers, "date")
        if text is None:
            return None
        if text not in self._dates:
            self._dates[text] = http_date(text)
        return self._dates[text]

    def _extra(self, entry: _Entry) -> str | None:
        found = {}
        for place, name in enumerate(self._learnt):
            raw = getattr(entry, f"unknown_{place}")
            if raw is not _ABSENT and bytes(raw):
                found[name] = msgspec.json.decode(raw)
        return masked_json(found, self._redactor)

    def _forget(self) -> None:
        """Keep memory bounded, however many pages there are."""
        for known in (self._texts, self._urls, self._dates):
            if len(known) > _MOST_REMEMBERED:
                known.clear()

"""DLQ entries: from a page's bytes to the table ``FAILURES``, strictly and without objects in between.

A page whose entries are all as specified goes straight into typed records and from there into columns. Fields
that the specification does not know are learnt from the first page that has them. A page with anything else
in it (a value of another kind, bytes that are not UTF-8, a number that no column holds) is decoded by
``odd_failures.py``, with the same result for what both can read.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.redaction import Redactor
from toolkit.tables.dates import http_dates
from toolkit.tables.failure_fields import BODIES, HEADERS, KNOWN, MOMENTS, NUMBERS, TEXTS, URLS
from toolkit.tables.headers import first_values, header_column
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.odd_failures import Keep, decode_odd_failures
from toolkit.tables.schemas import FAILURES, TIME
from toolkit.tables.text import LATEST, text_and_bytes
from toolkit.tables.unknown_fields import unknown_json

_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(.*)` - at `\$[^`]*`\Z", re.DOTALL)
_MOST_LEARNT: Final = 200
_PIECE: Final = 6_000_000  # bytes at once: less pays for each Arrow call again, more leaves the caches


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
        self._masker = ColumnMasker(redactor)

    def decode(self, rows: bytes | Sequence[bytes]) -> pa.Table:
        """The entries of a page, or of many, as a table of the schema ``FAILURES``.

        Parameters
        ----------
        rows : bytes, or sequence of bytes
            A JSON array of DLQ entries, or several. Many at once are quicker than one by one.

        Returns
        -------
        pyarrow.Table
            One row an entry, in the pages' order. A value that does not fit its column is null there and
            stands in ``extra``, with every field the schema does not know.

        Raises
        ------
        ProtocolError
            When the bytes are no array of objects, or an entry has no id.
        """
        pages = [rows] if isinstance(rows, bytes) else rows
        tables: list[pa.Table] = []
        for piece in _pieces(pages):
            with _uncollected():
                tables.extend(self._piece(piece) if self._keep is None else map(self._odd, piece))
        return pa.concat_tables(tables) if tables else FAILURES.empty_table()

    def _piece(self, pages: Sequence[bytes]) -> Iterator[pa.Table]:
        """The tables of some pages, in order: one, unless a page is odd or has a field not seen before."""
        held: list[tuple[bytes, list[_Entry]]] = []
        for page in pages:
            decoder = self._decoder
            entries = self._strict(page)
            if entries is None or decoder is not self._decoder:
                yield from self._tables(held)
                held = []
            if entries is None:
                yield self._odd(page)
            else:
                held.append((page, entries))
        yield from self._tables(held)

    def _odd(self, page: bytes) -> pa.Table:
        return decode_odd_failures(page, redactor=self._redactor, keep=self._keep)

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
            [(field, msgspec.Raw, None) for field in names],
            bases=(_Entry,),
            rename=names,
            gc=False,
        )
        self._decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]

    def _tables(self, held: list[tuple[bytes, list[_Entry]]]) -> Iterator[pa.Table]:
        """The pages' entries as one table; a page with a value that does not fit goes the lenient way."""
        try:
            entries = list(chain.from_iterable(entries for _, entries in held))
            if entries:
                yield self._table(entries)
        except (_Misfit, pa.ArrowInvalid, OverflowError, msgspec.DecodeError, UnicodeDecodeError):
            if len(held) == 1:
                yield self._odd(held[0][0])
            else:
                half = len(held) // 2
                yield from self._tables(held[:half])
                yield from self._tables(held[half:])

    def _table(self, entries: list[_Entry]) -> pa.Table:
        kind, masker = type(entries[0]), self._masker
        values = zip(*map(msgspec.structs.astuple, entries), strict=True)
        wires: dict[str, tuple[Any, ...]] = dict(zip(kind.__struct_encode_fields__, values, strict=True))
        if not all(wires["dlqId"]):
            raise _Misfit
        columns = {"dlq_id": pa.array(wires["dlqId"], pa.string())}
        for column, wire in TEXTS.items():
            columns[column] = masker.texts(pa.array(wires[wire], pa.string()))
        for column, wire in URLS.items():
            columns[column] = masker.urls(pa.array(wires[wire], pa.string()))
        for column, wire in NUMBERS.items():
            columns[column] = pa.array(wires[wire], pa.int64())
        for column, wire in MOMENTS.items():
            columns[column] = _moments(wires[wire])
        for column, (plain, encoded) in BODIES.items():
            texts, raws = _bodies(wires[plain], wires[encoded])
            columns[column], columns[f"{column}_bytes"] = masker.own(texts), masker.own(raws)
        maps = {column: header_column(wires[wire]) for column, wire in HEADERS.items()}
        columns["failed_at"] = http_dates(first_values(maps["response_headers"], "date"))
        columns |= {column: masker.headers(found) for column, found in maps.items()}
        labels = zip(wires["labels"], wires["label"], strict=True)
        columns["labels"] = masker.lists(
            pa.array(
                [several or ([single] if single else several) for several, single in labels],
                FAILURES.field("labels").type,
            )
        )
        unknown = {wire: raws for wire, raws in wires.items() if wire not in KNOWN}
        columns["extra"] = unknown_json(unknown, self._redactor, rows=len(entries))
        return pa.Table.from_arrays([columns[name] for name in FAILURES.names], schema=FAILURES)


def _pieces(pages: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The pages in pieces that are quick to decode."""
    piece: list[bytes] = []
    size = 0
    for page in pages:
        piece.append(page)
        size += len(page)
        if size >= _PIECE:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


@contextmanager
def _uncollected() -> Iterator[None]:
    """No collection of reference cycles meanwhile: what is made here has none, and looking for them costs."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _moments(values: Sequence[int | None]) -> pa.Array:
    numbers = pa.array(values, pa.int64())
    ends = pc.min_max(numbers)
    if ends["min"].is_valid and (ends["min"].as_py() < 0 or ends["max"].as_py() > LATEST):
        raise _Misfit
    return numbers.cast(TIME)


def _bodies(plain: Sequence[str | None], encoded: Sequence[str | None]) -> tuple[pa.Array, pa.Array]:
    """Bodies as text and as bytes, from their two fields."""
    texts: list[str | None] = list(plain)
    raws: list[bytes | None] = [None] * len(texts)
    for place, code in enumerate(encoded):
        if code or (code is not None and texts[place] is None):
            texts[place], raws[place], fits = text_and_bytes(texts[place], code)
            if not fits:
                raise _Misfit
    return pa.array(texts, pa.string()), pa.array(raws, pa.binary())

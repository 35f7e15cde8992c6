"""DLQ entries: from a page's bytes to the table ``FAILURES``, strictly and without objects in between.

A page whose entries are all as specified goes straight into typed records and from there into columns. Fields
that the specification does not know are learnt from the first page that has them. A page with anything else
in it (a value of another kind, bytes that are not UTF-8, a number that no column holds) is decoded by
``odd_failures.py``, with the same result for what both can read.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.client.pages import listed
from toolkit.errors import ProtocolError
from toolkit.own_tokens import is_in
from toolkit.redaction import Redactor
from toolkit.tables.dates import http_dates
from toolkit.tables.failure_fields import BODIES, HEADERS, KNOWN, MOMENTS, NUMBERS, TEXTS, URLS
from toolkit.tables.header_maps import header_maps
from toolkit.tables.masking import ColumnMasker, holding_own
from toolkit.tables.odd_failures import Keep, decode_odd_failures
from toolkit.tables.schemas import FAILURES, TIME
from toolkit.tables.text import LATEST, TooDeepError, base64_text, labels_json, text_and_bytes
from toolkit.tables.unknown_fields import ABSENT, unknown_json

_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(.*)` - at `\$[^`]*`\Z", re.DOTALL)
_UNWRITABLE: Final = re.compile(r'["\\\x00-\x1f]')
_MOST_LEARNT: Final = 200
_MOST_HALVINGS: Final = 3
_NULL: Final = msgspec.Raw(b"null")
_PIECE: Final = 24_000_000  # bytes at once: less pays for each Arrow call again


_LABELS: Final = msgspec.json.Decoder(list[str] | None)


class _Entry(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An entry as specified. The names are the wire's."""

    dlqId: str  # noqa: N815
    workflowUrl: str | None = None  # noqa: N815
    workflowRunId: str | None = None  # noqa: N815
    workflowCreatedAt: int | None = None  # noqa: N815
    url: str | None = None
    method: str | None = None
    header: msgspec.Raw = _NULL
    body: str | None = None
    bodyBase64: str | None = None  # noqa: N815
    maxRetries: int | None = None  # noqa: N815
    createdAt: int | None = None  # noqa: N815
    failureCallback: str | None = None  # noqa: N815
    callerIP: str | None = None  # noqa: N815
    label: str | None = None
    labels: msgspec.Raw = _NULL
    flowControlKey: str | None = None  # noqa: N815
    failureFunctionState: str | None = None  # noqa: N815
    responseStatus: int | None = None  # noqa: N815
    responseHeader: msgspec.Raw = _NULL  # noqa: N815
    responseBody: str | None = None  # noqa: N815
    responseBodyBase64: str | None = None  # noqa: N815


class _Misfit(Exception):  # noqa: N818 - a sign to take the other way, never seen outside
    """A value that no column holds."""


_REFUSALS: Final = (
    _Misfit,
    pa.ArrowInvalid,
    OverflowError,
    RecursionError,
    msgspec.DecodeError,
    ValueError,
    TooDeepError,
)


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
        self._decoder = _decoder(_Entry)
        self._masker = ColumnMasker(redactor)

    def decode(self, rows: bytes | Sequence[bytes]) -> pa.Table:
        """The entries of a page, or of many, as a table of the schema ``FAILURES``.

        Parameters
        ----------
        rows : bytes, or sequence of bytes
            A JSON array of DLQ entries, or an object that has it under ``messages``; or several. Many at once
            are quicker than one by one.

        Returns
        -------
        pyarrow.Table
            One row an entry, in the pages' order. A value that does not fit its column is null there and
            stands in ``extra``, with every field the schema does not know.

        Raises
        ------
        ProtocolError
            When the bytes hold no array of objects, or an entry has no id.
        """
        tables = list(self.tables([rows] if isinstance(rows, bytes) else rows))
        return pa.concat_tables(tables) if tables else FAILURES.empty_table()

    def tables(self, pages: Sequence[bytes]) -> Iterator[pa.Table]:
        """A table of each page, as `decode` gives it. Those of many pages share their memory.

        Parameters
        ----------
        pages : sequence of bytes

        Yields
        ------
        pyarrow.Table

        Raises
        ------
        ProtocolError
            As in `decode`.
        """
        for piece in _pieces(pages):
            if self._keep is not None:
                yield from map(self._odd, piece)
                continue
            tables: list[pa.Table] = []
            error = None
            with _uncollected():
                try:
                    tables.extend(self._piece(piece))
                except ProtocolError as found:
                    error = found
            yield from tables
            if error is not None:
                raise error

    def _piece(self, pages: Sequence[bytes]) -> Iterator[pa.Table]:
        """A table of each of some pages, decoded together where they are as specified and of one kind."""
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
                found: list[_Entry] = self._decoder.decode(listed(rows))
            except msgspec.ValidationError as error:
                unknown = _UNKNOWN_FIELD.search(str(error))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return None
            else:
                return found
            if unknown is None or not self._learns(unknown[1]):
                return None
            self._learn(unknown[1])

    def _learns(self, name: str) -> bool:
        """Whether a field of this name can be learnt: not twice, and only what JSON writes as it is."""
        known = name in self._learnt or len(self._learnt) >= _MOST_LEARNT
        return not known and not _UNWRITABLE.search(name) and not is_in(name)

    def _learn(self, name: str) -> None:
        self._learnt.append(name)
        names = {f"unknown_{place}": wire for place, wire in enumerate(self._learnt)}
        kind = msgspec.defstruct(
            "Entry",
            [(field, msgspec.Raw, ABSENT) for field in names],
            bases=(_Entry,),
            rename=names,
            gc=False,
        )
        self._decoder = _decoder(kind)

    def _tables(self, held: list[tuple[bytes, list[_Entry]]], *, halvings: int = 0) -> Iterator[pa.Table]:
        """A table of each page; one with a value that does not fit goes the lenient way."""
        entries = list(chain.from_iterable(entries for _, entries in held))
        try:
            whole, start = self._table(entries) if entries else FAILURES.empty_table(), 0
        except _REFUSALS:
            if len(held) == 1:
                yield self._odd(held[0][0])
                return
            # where odd pages are many, looking for them by halves costs more than the lenient way
            parts = 2 if halvings < _MOST_HALVINGS else len(held)
            ends = [len(held) * number // parts for number in range(parts + 1)]
            for start, end in pairwise(ends):
                yield from self._tables(held[start:end], halvings=halvings + 1)
        else:
            for _, own in held:
                yield whole.slice(start, len(own))
                start += len(own)

    def _table(self, entries: list[_Entry]) -> pa.Table:
        kind = type(entries[0])
        values = zip(*map(msgspec.structs.astuple, entries), strict=True)
        wires: dict[str, tuple[Any, ...]] = dict(zip(kind.__struct_encode_fields__, values, strict=True))
        if not all(wires["dlqId"]):
            raise _Misfit
        columns = self._columns(wires) | self._headers(wires)
        return pa.Table.from_arrays([columns[name] for name in FAILURES.names], schema=FAILURES)

    def _headers(self, wires: Mapping[str, tuple[Any, ...]]) -> dict[str, pa.Array]:
        """The columns of headers, and the time that the response says it was made at."""
        columns = {}
        for column, wire in HEADERS.items():
            headers = header_maps(wires[wire])
            if headers is None:
                raise _Misfit
            self._named(headers.names.dictionary)
            columns[column] = self._masker.headers(headers)
            if column == "response_headers":
                columns["failed_at"] = http_dates(headers.first_values("date"))
        return columns

    def _columns(self, wires: Mapping[str, tuple[Any, ...]]) -> dict[str, pa.Array]:
        """All columns but those of headers."""
        masker = self._masker
        columns = {"dlq_id": self._named(pa.array(wires["dlqId"], pa.string()))}
        for column, wire in TEXTS.items():
            columns[column] = masker.texts(_texts(wires[wire]))
        for column, wire in URLS.items():
            columns[column] = masker.urls(_texts(wires[wire]))
        for column, wire in NUMBERS.items():
            columns[column] = pa.array(wires[wire], pa.int64())
        for column, wire in MOMENTS.items():
            columns[column] = _moments(wires[wire])
        for column, (plain, encoded) in BODIES.items():
            texts, raws = _bodies(wires[plain], wires[encoded])
            coded = [None if raw is None else base64_text(raw, self._redactor) for raw in raws]
            columns[column] = masker.own(texts)
            columns[f"{column}_base64"] = pa.array(coded, pa.string())
        columns["labels"] = _labels(wires["labels"], wires["label"], self._redactor)
        unknown = {wire: raws for wire, raws in wires.items() if wire not in KNOWN}
        # as JSON, too: a token of digits may stand in a number
        columns["extra"] = masker.own_json(unknown_json(unknown, self._redactor, rows=len(wires["dlqId"])))
        return columns

    def _named(self, names: pa.Array) -> pa.Array:
        """Ids or names as they are; those that hold a token of ours are masked the lenient way."""
        if self._redactor is not None and len(holding_own(names)):
            raise _Misfit
        return names


def _decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    """Reads an array of entries; what else there is in a response is the client's."""
    return msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]


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


def _texts(values: Sequence[str | None]) -> pa.Array:
    """A column of text; an empty one is missing, as the service leaves fields out or sends them empty."""
    column = pa.array(values, pa.string())
    ends = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1)
    if np.count_nonzero(np.diff(ends)) == len(column) - column.null_count:
        return column
    return pc.if_else(pc.equal(column, ""), None, column)


def _labels(
    several: Sequence[msgspec.Raw], single: Sequence[str | None], redactor: Redactor | None
) -> pa.Array:
    """The labels; the deprecated single one where only it is there."""
    lists = pa.array(map(bytes, several), pa.binary()).dictionary_encode()  # most are equal to another's
    read = [labels_json(_LABELS.decode(labels) or [], redactor) for labels in lists.dictionary.to_pylist()]
    found = pa.array(read, pa.string()).take(lists.indices)
    if not any(single):
        return found
    alone = pa.array(single, pa.string()).dictionary_encode()
    kept = [labels_json([label] if label else [], redactor) for label in alone.dictionary.to_pylist()]
    return pc.coalesce(found, pa.array(kept, pa.string()).take(alone.indices))


def _moments(values: Sequence[int | None]) -> pa.Array:
    numbers = pa.array(values, pa.int64())
    ends = pc.min_max(numbers)
    if ends["min"].is_valid and (ends["min"].as_py() < 0 or ends["max"].as_py() > LATEST):
        raise _Misfit
    return numbers.cast(TIME)


def _bodies(
    plain: Sequence[str | None], encoded: Sequence[str | None]
) -> tuple[pa.Array, list[bytes | None]]:
    """Bodies as text and as bytes, from their two fields."""
    raws: list[bytes | None] = [None] * len(plain)
    if None not in plain and not any(encoded):
        return pa.array(plain, pa.string()), raws
    texts = list(plain)
    for place, code in enumerate(encoded):
        if code or (code is not None and texts[place] is None):
            texts[place], raws[place], fits = text_and_bytes(texts[place], code)
            if not fits:
                raise _Misfit
    return pa.array(texts, pa.string()), raws

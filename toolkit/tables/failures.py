"""DLQ entries: from a page's bytes to the table ``FAILURES``, strictly and without objects in between.

A page whose entries are all as specified is decoded into typed records and from there into columns. Fields
that the specification does not know are learnt from the first page that has them. A page with anything else
in it (a value of another kind, bytes that are not UTF-8, a number that no column holds) is decoded by
`lenient_rows`, with the same result for what both can read.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, compress, pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.client.pages import listed
from toolkit.errors import ProtocolError
from toolkit.own_tokens import TooDeepError, is_in
from toolkit.redaction import Redactor
from toolkit.tables.header_maps import HeaderColumn, header_maps
from toolkit.tables.lenient_rows import LenientRows
from toolkit.tables.masking import ABSENT, ColumnMasker, holding_own, raw_column
from toolkit.tables.schemas import FAILURE_COLUMNS, FAILURES, TIME, Kind
from toolkit.tables.text import LATEST, base64_text, http_dates, parse_rows, text_and_bytes

Keep = Callable[[dict[str, Any]], bool]
Entries = list[Any]  # of `_SPECIFIED`, or of what was derived from it

_WHAT: Final = "DLQ entries"
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(.*)` - at `\$[^`]*`\Z", re.DOTALL)
_UNWRITABLE: Final = re.compile(r'["\\\x00-\x1f]')
_MOST_LEARNT: Final = 200
_MOST_HALVINGS: Final = 3
_BATCH: Final = 24_000_000  # bytes decoded at once: less pays for each Arrow call again


_FIELDS: Final = {name: field for name, _, field in FAILURE_COLUMNS if field is not None}
_TYPES: Final[dict[Kind, tuple[Any, ...]]] = {
    Kind.ID: (str,),
    Kind.NUMBER: (int | None, None),
    Kind.TIME: (int | None, None),
    Kind.HEADERS: (msgspec.Raw, msgspec.Raw(b"null")),
    Kind.LABELS: (msgspec.Raw, msgspec.Raw(b"null")),
}
_MEMBERS: Final = [
    (_FIELDS[name], *_TYPES.get(kind, (str | None, None))) for name, kind, field in FAILURE_COLUMNS if field
]
_SPECIFIED: Final = msgspec.defstruct(
    "DlqEntry", sorted(_MEMBERS, key=len), forbid_unknown_fields=True, gc=False
)
"""An entry as specified, its members named as in the service's JSON; those that must be there come first."""


class _MisfitError(Exception):
    """A value that no column holds: the page has to be decoded leniently. Never seen outside."""


_REFUSALS: Final = (
    _MisfitError,
    pa.ArrowInvalid,
    OverflowError,
    RecursionError,
    msgspec.DecodeError,
    ValueError,
    TooDeepError,
)


class FailureDecoder:
    """Decodes the pages of one load; what repeats from page to page is worked out once.

    With `keep`, only entries for which it returns true are kept; it is called with the service's own names.

    >>> page = b'[{"dlqId": "a", "responseStatus": 500, "cause": {"code": 7}}]'
    >>> FailureDecoder(None).decode(page).select(["dlq_id", "response_status", "extra"]).to_pylist()
    [{'dlq_id': 'a', 'response_status': 500, 'extra': '{"cause":{"code":7}}'}]
    """

    def __init__(self, redactor: Redactor | None, *, keep: Keep | None = None) -> None:
        self._redactor = redactor
        self._keep = keep
        self._learnt: list[str] = []
        self._decoder = _decoder(_SPECIFIED)
        self._masker = ColumnMasker(redactor)

    def decode(self, rows: bytes | Sequence[bytes]) -> pa.Table:
        """The entries of a page, or of many, which is quicker, as a table of the schema ``FAILURES``.

        A page is a JSON array of entries, or an object that has it under ``messages``. ProtocolError where it
        is neither, or an entry has no id.
        """
        tables = list(self.tables([rows] if isinstance(rows, bytes) else rows))
        return pa.concat_tables(tables) if tables else FAILURES.empty_table()

    def tables(self, pages: Sequence[bytes]) -> Iterator[pa.Table]:
        """A table of each page, as `decode` returns it. Those of many pages share their memory."""
        for batch in _batches(pages):
            if self._keep is not None:
                yield from map(self._leniently, batch)
                continue
            tables: list[pa.Table] = []
            error = None
            with _uncollected():
                try:
                    tables.extend(self._batch(batch))
                except ProtocolError as found:
                    error = found
            yield from tables
            if error is not None:
                raise error

    def _batch(self, pages: Sequence[bytes]) -> Iterator[pa.Table]:
        """A table of each of some pages, decoded together where they are as specified and of one type."""
        held: list[tuple[bytes, Entries]] = []
        for page in pages:
            decoder = self._decoder
            entries = self._strictly(page)
            if entries is None or decoder is not self._decoder:
                yield from self._tables(held)
                held = []
            if entries is None:
                yield self._leniently(page)
            else:
                held.append((page, entries))
        yield from self._tables(held)

    def _leniently(self, page: bytes) -> pa.Table:
        return decode_leniently(page, redactor=self._redactor, keep=self._keep)

    def _strictly(self, rows: bytes) -> Entries | None:
        """The entries, or None where the page is not as specified. Unknown fields are learnt on the way."""
        while True:
            try:
                found: Entries = self._decoder.decode(listed(rows))
            except msgspec.ValidationError as error:
                unknown = _UNKNOWN_FIELD.search(str(error))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return None
            else:
                return found
            if unknown is None or not self._can_learn(unknown[1]):
                return None
            self._learn(unknown[1])

    def _can_learn(self, name: str) -> bool:
        """Whether a field of this name can be learnt: not twice, and only what JSON writes as it is."""
        known = name in self._learnt or len(self._learnt) >= _MOST_LEARNT
        return not known and not _UNWRITABLE.search(name) and not is_in(name)

    def _learn(self, name: str) -> None:
        self._learnt.append(name)
        names = {f"unknown_{number}": field for number, field in enumerate(self._learnt)}
        members = [(member, msgspec.Raw, ABSENT) for member in names]
        kind = msgspec.defstruct("LearntEntry", members, bases=(_SPECIFIED,), rename=names, gc=False)
        self._decoder = _decoder(kind)

    def _tables(self, held: list[tuple[bytes, Entries]], *, halvings: int = 0) -> Iterator[pa.Table]:
        """A table of each page; one with a value that does not fit is decoded leniently."""
        entries = list(chain.from_iterable(entries for _, entries in held))
        try:
            whole, start = self._table(entries) if entries else FAILURES.empty_table(), 0
        except _REFUSALS:
            if len(held) == 1:
                yield self._leniently(held[0][0])
                return
            # where such pages are many, looking for them by halves costs more than decoding leniently
            parts = 2 if halvings < _MOST_HALVINGS else len(held)
            ends = [len(held) * number // parts for number in range(parts + 1)]
            for start, end in pairwise(ends):
                yield from self._tables(held[start:end], halvings=halvings + 1)
        else:
            for _, own in held:
                yield whole.slice(start, len(own))
                start += len(own)

    def _table(self, entries: Entries) -> pa.Table:
        values = zip(*map(msgspec.structs.astuple, entries), strict=True)
        fields: dict[str, tuple[Any, ...]] = dict(
            zip(type(entries[0]).__struct_encode_fields__, values, strict=True)
        )
        columns = self._columns(fields)
        unknown = {name: raws for name, raws in fields.items() if name not in _SPECIFIED.__struct_fields__}
        columns["extra"] = self._masker.own_json(self._masker.objects(unknown, len(entries)))
        columns["failed_at"] = http_dates(columns["response_headers"].first_values("date"))
        return self._masker.masked_table(FAILURE_COLUMNS, columns, FAILURES)

    def _columns(self, fields: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """The columns that fields fill, masked for our own tokens where nothing else is masked."""
        found: dict[str, Any] = {}
        for name, kind, field in FAILURE_COLUMNS:
            match kind:
                case _ if field is None:
                    pass
                case Kind.ID:
                    if not all(fields[field]):
                        raise _MisfitError
                    found[name] = self._names(pa.array(fields[field], pa.string()))
                case Kind.TEXT | Kind.URL:
                    found[name] = _texts(fields[field])
                case Kind.NUMBER:
                    found[name] = pa.array(fields[field], pa.int64())
                case Kind.TIME:
                    found[name] = _times(fields[field])
                case Kind.HEADERS:
                    found[name] = _headers(fields[field])
                    self._names(found[name].names.dictionary)
                case Kind.LABELS:
                    found[name] = raw_column(fields[field])
                case Kind.BODY:
                    texts, raws = _bodies(fields[field], fields[_FIELDS[f"{name}_base64"]])
                    found[name] = self._masker.own(texts)
                    coded = [None if raw is None else base64_text(raw, self._redactor) for raw in raws]
                    found[f"{name}_base64"] = pa.array(coded, pa.string())
        return found

    def _names(self, names: pa.Array) -> pa.Array:
        """Ids or names, none empty; those that hold a token of ours are masked by the lenient decoder."""
        if self._redactor is not None and len(holding_own(names)):
            raise _MisfitError
        return names


def decode_leniently(page: bytes, *, redactor: Redactor | None, keep: Keep | None = None) -> pa.Table:
    """The entries of a page, whatever their values; see `FailureDecoder.decode`."""
    entries = parse_rows(page, what=_WHAT, under="messages")
    kept = [keep is None or keep(entry) for entry in entries]
    try:
        return _lenient_table(list(compress(entries, kept)), redactor)
    except TooDeepError:
        entries = parse_rows(page, what=_WHAT, under="messages", exactly=True)
        return _lenient_table(list(compress(entries, kept)), redactor)


def _lenient_table(entries: list[dict[str, Any]], redactor: Redactor | None) -> pa.Table:
    rows = LenientRows(entries, FAILURE_COLUMNS, redactor, what=_WHAT)
    columns = rows.columns()
    columns["failed_at"] = http_dates(columns["response_headers"].first_values("date"))
    return rows.masked_table(columns, FAILURES)


def _decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    """Reads an array of entries; what else there is in a response is the client's."""
    return msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]


def _batches(pages: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The pages in batches that are quick to decode."""
    batch: list[bytes] = []
    size = 0
    for page in pages:
        batch.append(page)
        size += len(page)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


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


def _times(values: Sequence[int | None]) -> pa.Array:
    numbers = pa.array(values, pa.int64())
    ends = pc.min_max(numbers)
    if ends["min"].is_valid and (ends["min"].as_py() < 0 or ends["max"].as_py() > LATEST):
        raise _MisfitError
    return numbers.cast(TIME)


def _headers(raws: Sequence[msgspec.Raw]) -> HeaderColumn:
    found = header_maps(raws)
    if found is None:
        raise _MisfitError
    return found


def _bodies(
    plain: Sequence[str | None], encoded: Sequence[str | None]
) -> tuple[pa.Array, list[bytes | None]]:
    """Bodies as text and as bytes, from their two fields."""
    raws: list[bytes | None] = [None] * len(plain)
    if None not in plain and not any(encoded):
        return pa.array(plain, pa.string()), raws
    texts = list(plain)
    for index, code in enumerate(encoded):
        if code or (code is not None and texts[index] is None):
            texts[index], raws[index], fits = text_and_bytes(texts[index], code)
            if not fits:
                raise _MisfitError
    return pa.array(texts, pa.string()), raws

"""Decode DLQ entries from pages of JSON to the table ``FAILURES``.

Decoding is strict and makes no Python objects per value. If all entries of a page are as specified, the page
is decoded into typed records and from these into columns. Unknown fields are learned from the first page that
has them. Any other page (for example with a value of another type, bytes that are not UTF-8, or a number that
no column can contain) is decoded by `lenient_rows`. Both decoders return the same table for a page that both
can read.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain, compress, groupby, islice, pairwise
from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.errors import ProtocolError
from toolkit.base.own_tokens import TooDeepError, is_in
from toolkit.base.times import unix_milliseconds
from toolkit.secrets.redaction import Redactor
from toolkit.tables.base64_bodies import base64_column, text_and_bytes
from toolkit.tables.column_values import INT64, LATEST
from toolkit.tables.failure_times import bounded_times
from toolkit.tables.header_maps import HeaderColumn, distinct_header_maps
from toolkit.tables.http_dates import http_dates
from toolkit.tables.json_rows import parse_rows
from toolkit.tables.lenient_rows import LenientRows
from toolkit.tables.masking import ColumnMasker, holding_own
from toolkit.tables.schemas import FAILURE_COLUMNS, FAILURES, TIME, Kind

Keep = Callable[[dict[str, Any]], bool]
Clock = Callable[[], int]
Fields = dict[str, pa.Array]  # by the names of the service; raw JSON if not decoded yet

_WHAT: Final = "DLQ entries"
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(.*)` - at `\$[^`]*`\Z", re.DOTALL)
_UNWRITABLE: Final = re.compile(r'["\\\x00-\x1f]')
# a field that an entry does not have; no JSON is empty
_ABSENT: Final = msgspec.Raw(b"")
# headers of the last request
_RETRIED: Final = (
    "upstash-retried",
    "service-retried",
    "retried",
)


@dataclass(frozen=True)
class DecodingTuning:
    """Constants of decoding, with their reasons."""

    most_learned: int = 200
    """Unknown fields that become members of the type. A page with more is decoded leniently."""
    most_halvings: int = 3
    """Bisections before each page is tried by itself: if many pages fail, bisection takes longer."""
    pages_per_step: int = 8
    """Pages that become columns together, while they are in the processor cache."""
    batch_bytes: int = 32_000_000
    """Bytes decoded at once; smaller batches need more Arrow calls."""


TUNING: Final = DecodingTuning()
_REFUSALS: Final = (
    msgspec.DecodeError,
    ValueError,
    OverflowError,
    RecursionError,
    TooDeepError,
)
"""Errors of values that no column can contain. Their page has to be decoded leniently."""

_FIELDS: Final = {
    name: field for name, _, field in FAILURE_COLUMNS if field is not None
}
_RAW: Final = (msgspec.Raw, msgspec.Raw(b"null"))
_TYPES: Final[dict[Kind, tuple[Any, ...]]] = {
    Kind.ID: (Annotated[str, msgspec.Meta(min_length=1)],),
    Kind.NUMBER: (Annotated[int, msgspec.Meta(ge=-INT64, le=INT64 - 1)] | None, None),
    Kind.TIME: (Annotated[int, msgspec.Meta(ge=0, le=LATEST)] | None, None),
    Kind.HEADERS: _RAW,
    Kind.LABELS: _RAW,
}
_MEMBERS: Final = [
    (field, *_TYPES.get(kind, (str | None, None)))
    for _, kind, field in FAILURE_COLUMNS
    if field
]
_SPECIFIED: Final = msgspec.defstruct(
    "DlqEntry", sorted(_MEMBERS, key=len), forbid_unknown_fields=True, gc=False
)
"""An entry as specified, with the names of the service. Required members come first."""
_DECODED: Final = {
    field: FAILURES.field(name).type
    for name, kind, field in FAILURE_COLUMNS
    if field and _TYPES.get(kind) is not _RAW
}


_BODY_FIELDS: Final = [
    (name, field, _FIELDS[f"{name}_base64"])
    for name, kind, field in FAILURE_COLUMNS
    if kind is Kind.BODY and field
]
"""The columns of bodies, each with the field for text and the field for base64."""
_OTHER_COLUMNS: Final = [
    (name, kind, field)
    for name, kind, field in FAILURE_COLUMNS
    if kind not in (Kind.BODY, Kind.BASE64) and field
]
_KNOWN: Final = frozenset(_FIELDS.values())


class _StrictPage(NamedTuple):
    """A page, and the entries if they are as specified."""

    entry_type: type[msgspec.Struct] | None
    """None if the page has to be decoded leniently."""
    raw: bytes
    entries: list[Any]


@dataclass(frozen=True)
class _PageFields:
    """The fields of all entries of several pages, by the names of the service.

    For example, of two pages with 100 and 7 entries, `starts` is ``[0, 100, 107]``.
    """

    raws: Sequence[bytes]
    starts: Sequence[int]
    """The row at which each page starts, and the number of all rows."""
    fields: Fields

    def split(self, parts: int) -> Iterator[_PageFields]:
        """Yield the fields in parts of almost equally many pages."""
        bounds = [len(self.raws) * number // parts for number in range(parts + 1)]
        for first, end in pairwise(bounds):
            first_row, end_row = self.starts[first], self.starts[end]
            fields = {
                name: column[first_row:end_row] for name, column in self.fields.items()
            }
            starts = [row - first_row for row in self.starts[first : end + 1]]
            yield _PageFields(self.raws[first:end], starts, fields)


class FailureDecoder:
    """Decode the pages of one load. Learned fields and masked values are kept from page to page.

    With `keep`, an entry is only kept if `keep` returns True. It is called with the names of the service.
    `clock` returns the time of loading, in Unix milliseconds: no failure can be later.

    >>> page = b'[{"dlqId": "a", "responseStatus": 500, "cause": {"code": 7}}]'
    >>> FailureDecoder(None).decode(page).select(["dlq_id", "response_status", "extra"]).to_pylist()
    [{'dlq_id': 'a', 'response_status': 500, 'extra': '{"cause":{"code":7}}'}]
    """

    def __init__(
        self,
        redactor: Redactor | None,
        *,
        keep: Keep | None = None,
        clock: Clock = unix_milliseconds,
    ) -> None:
        self._redactor = redactor
        self._clock = clock
        self._keep = keep
        self._learned: list[str] = []
        self._kind: type[msgspec.Struct] = _SPECIFIED
        self._decoder = _decoder(self._kind)
        self._masker = ColumnMasker(redactor)

    def decode(self, rows: bytes | Sequence[bytes]) -> pa.Table:
        """Return the entries of one or several pages as a table of the schema ``FAILURES``.

        Several pages are faster.
        """
        pages = rows
        if isinstance(pages, bytes):
            pages = [pages]
        tables = list(self.tables(pages))
        if tables:
            return pa.concat_tables(tables)

        return FAILURES.empty_table()

    def tables(self, pages: Sequence[bytes]) -> Iterator[pa.Table]:
        """Yield one table per page, as `decode` returns it. The tables of many pages share memory."""
        for batch in _batches(pages):
            if self._keep is not None:
                yield from map(self._leniently, batch)
                continue
            tables: list[pa.Table] = []
            try:
                with _without_garbage_collection():
                    tables.extend(self._batch(batch))
            except ProtocolError:
                # pages before the error are not lost
                yield from tables
                raise

            yield from tables

    def _batch(self, pages: Sequence[bytes]) -> Iterator[pa.Table]:
        """Yield one table per page. Consecutive pages with the same fields are converted together."""
        for kind, group in groupby(
            map(self._strictly, pages), key=attrgetter("entry_type")
        ):
            if kind is None:
                yield from (self._leniently(page.raw) for page in group)
            else:
                yield from self._tables_of(_page_fields(kind, group))

    def _leniently(self, page: bytes) -> pa.Table:
        return decode_leniently(
            page, redactor=self._redactor, keep=self._keep, clock=self._clock
        )

    def _strictly(self, page: bytes) -> _StrictPage:
        """Return a page with typed entries. Unknown fields are learned, and the page is read again."""
        while True:
            try:
                return _StrictPage(self._kind, page, self._decoder.decode(page))
            except msgspec.ValidationError as error:
                unknown = _UNKNOWN_FIELD.search(str(error))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                unknown = None

            if unknown is None or not self._can_learn(unknown[1]):
                return _StrictPage(None, page, [])
            self._learn(unknown[1])

    def _can_learn(self, name: str) -> bool:
        """Return whether a field can become a member of the type."""
        if name in self._learned or len(self._learned) >= TUNING.most_learned:
            return False
        # columns of unknown fields are masked, but their names are written as they are
        if _UNWRITABLE.search(name) or is_in(name):
            return False

        return self._redactor is None or self._redactor.text(name) == name

    def _learn(self, name: str) -> None:
        """Add a field to the type of the entries."""
        self._learned.append(name)
        names = {
            f"unknown_{number}": field for number, field in enumerate(self._learned)
        }
        members = [(member, msgspec.Raw, _ABSENT) for member in names]
        self._kind = msgspec.defstruct(
            "LearnedEntry", members, bases=(_SPECIFIED,), rename=names, gc=False
        )
        self._decoder = _decoder(self._kind)

    def _tables_of(
        self, pages: _PageFields, *, halvings: int = 0
    ) -> Iterator[pa.Table]:
        """Yield one table per page. A page with a value that does not fit is decoded leniently.

        Bisection finds the page: if the table of all pages fails, each half is tried. For example, if the
        third of four pages has such a value, tables are made of the pages 1 to 4, 1 and 2, 3 and 4, 3, and 4.
        """
        try:
            table = self._table(pages)
        except _REFUSALS:
            if len(pages.raws) == 1:
                yield self._leniently(pages.raws[0])
                return
            # If many pages fail, bisection takes longer than decoding each page separately.
            parts = len(pages.raws)
            if halvings < TUNING.most_halvings:
                parts = 2
            for part in pages.split(parts):
                yield from self._tables_of(part, halvings=halvings + 1)
        else:
            for start, end in pairwise(pages.starts):
                yield table.slice(start, end - start)

    def _table(self, pages: _PageFields) -> pa.Table:
        """Return the table of the fields of pages, with derived columns.

        Bodies and unknown fields are only masked for own tokens.
        """
        if not pages.starts[-1]:
            return FAILURES.empty_table()

        fields = pages.fields
        columns: dict[str, Any] = {}
        # Bodies are searched on another thread meanwhile. This takes long and does not need the interpreter
        # lock.
        with ThreadPoolExecutor(1, thread_name_prefix="toolkit-searching") as thread:
            for name, field, base64_field in _BODY_FIELDS:
                texts, raws = _bodies(fields[field], fields[base64_field])
                columns[name] = thread.submit(self._masker.own, texts)
                columns[f"{name}_base64"] = base64_column(raws, self._redactor)

            for name, kind, field in _OTHER_COLUMNS:
                columns[name] = self._column(kind, fields[field])
            self._check_names(columns["dlq_id"])
            unknown = {name: fields[name] for name in fields if name not in _KNOWN}
            objects = self._masker.objects(unknown, len(columns["dlq_id"]))
            columns["extra"] = self._masker.own_json(objects)
            columns |= _failure_times(columns, self._clock)
            return self._masker.masked_table(FAILURE_COLUMNS, columns)

    def _column(self, kind: Kind, values: pa.Array) -> pa.Array | HeaderColumn:
        """Return the column of a field that is not a body."""
        if kind is Kind.HEADERS:
            headers = distinct_header_maps(values)
            self._check_names(headers.names.dictionary)
            return headers

        if kind in (Kind.TEXT, Kind.URL):
            return _texts(values)

        return values

    def _check_names(self, names: pa.Array) -> None:
        """Raise if an id or a header name contains an own token. Only the lenient decoder masks names."""
        if self._redactor is not None and len(holding_own(names)):
            raise ValueError("a name with an own token")


def decode_leniently(
    page: bytes,
    *,
    redactor: Redactor | None,
    keep: Keep | None = None,
    clock: Clock = unix_milliseconds,
) -> pa.Table:
    """Return the entries of a page with values of any type; see `FailureDecoder.decode`."""
    entries = parse_rows(page, what=_WHAT)
    kept = [keep is None or keep(entry) for entry in entries]
    try:
        return _lenient_table(list(compress(entries, kept)), redactor, clock)
    except TooDeepError:
        entries = parse_rows(page, what=_WHAT, exactly=True)
        return _lenient_table(list(compress(entries, kept)), redactor, clock)


def _lenient_table(
    entries: list[dict[str, Any]], redactor: Redactor | None, clock: Clock
) -> pa.Table:
    rows = LenientRows(entries, FAILURE_COLUMNS, redactor, what=_WHAT)
    rows.columns |= _failure_times(rows.columns, clock)
    return rows.table()


def _failure_times(columns: Mapping[str, Any], clock: Clock) -> dict[str, pa.Array]:
    """Return the columns `failed_at` and `stated_failed_at`."""
    stated = http_dates(columns["response_headers"].first_values("date"))
    loaded_at = pa.scalar(clock(), pa.int64()).cast(TIME)

    def retries() -> pa.Array:
        stated_retries = [columns["headers"].first_values(name) for name in _RETRIED]
        made = pc.coalesce(*stated_retries)
        is_number = pc.fill_null(pc.match_substring_regex(made, r"^[0-9]{1,3}$"), False)

        return pc.coalesce(
            pc.if_else(is_number, made, None).cast(pa.int64()), columns["max_retries"]
        )

    return bounded_times(stated, columns["created_at"], loaded_at, retries)._asdict()


def _decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    """Return a decoder of an array of entries."""
    return msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]


def _batches(pages: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the pages in batches that are fast to decode."""
    ends = accumulate(map(len, pages))
    for _, batch in groupby(
        zip(ends, pages, strict=True), key=lambda pair: pair[0] // TUNING.batch_bytes
    ):
        yield [page for _, page in batch]


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector.

    The objects made here have no reference cycles, and a search for cycles costs time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _page_fields(
    kind: type[msgspec.Struct], pages: Iterator[_StrictPage]
) -> _PageFields:
    """Return the fields of pages whose entries have the same type.

    A few pages become columns at a time, while they are in the processor cache.
    """
    raws: list[bytes] = []
    sizes: list[int] = []
    steps: list[Fields] = []
    while step := list(islice(pages, TUNING.pages_per_step)):
        raws += [page.raw for page in step]
        sizes += [len(page.entries) for page in step]
        entries = chain.from_iterable(page.entries for page in step)
        steps.append(_fields(kind, list(entries)))

    fields = {
        name: pa.concat_arrays([columns[name] for columns in steps])
        for name in steps[0]
    }
    return _PageFields(raws, [0, *accumulate(sizes)], fields)


def _fields(kind: type[msgspec.Struct], entries: list[Any]) -> Fields:
    """Return the columns of entries of this type: strings, numbers and times, or raw JSON."""
    names = kind.__struct_encode_fields__
    columns: list[tuple[Any, ...]] = [() for _ in names]
    if entries:
        columns = list(zip(*map(msgspec.structs.astuple, entries), strict=True))

    fields: Fields = {}
    for name, values in zip(names, columns, strict=True):
        if name in _DECODED:
            fields[name] = pa.array(values, _DECODED[name])
        else:
            fields[name] = _raw_column(values)

    return fields


def _raw_column(raws: Sequence[msgspec.Raw]) -> pa.Array:
    """Return raw JSON as a column of bytes, null if empty, without a Python object per value."""
    sizes = np.fromiter(map(len, raws), np.int32, len(raws))
    ends = np.append(np.int32(0), np.cumsum(sizes, dtype=np.int32))
    buffers = [np.packbits(sizes > 0, bitorder="little"), ends, b"".join(raws)]

    return pa.Array.from_buffers(
        pa.binary(), len(raws), list(map(pa.py_buffer, buffers))
    )


def _texts(column: pa.Array) -> pa.Array:
    """Return a column of strings with null for empty ones. The service omits fields or sends them empty."""
    has_empty = pc.min(pc.binary_length(column)).as_py() == 0
    if not has_empty:
        return column

    return pc.if_else(pc.equal(column, ""), None, column)


def _bodies(plain: pa.Array, encoded: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return bodies as strings and as bytes, from two fields."""
    sizes = pc.fill_null(pc.binary_length(encoded), -1)
    is_empty_body = pc.and_(pc.equal(sizes, 0), plain.is_null())
    is_encoded = pc.or_(pc.greater(sizes, 0), is_empty_body)
    no_bytes = pa.nulls(len(plain), pa.binary())
    if not is_encoded.true_count:
        return plain, no_bytes

    pairs = zip(
        plain.filter(is_encoded).to_pylist(),
        encoded.filter(is_encoded).to_pylist(),
        strict=True,
    )
    texts, raws, fit = zip(*(text_and_bytes(*pair) for pair in pairs), strict=True)
    if not all(fit):
        raise ValueError("a body that is not base64")

    return (
        pc.replace_with_mask(plain, is_encoded, pa.array(texts, pa.string())),
        pc.replace_with_mask(no_bytes, is_encoded, pa.array(raws, pa.binary())),
    )

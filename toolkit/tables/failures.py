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
from operator import itemgetter
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.errors import ProtocolError
from toolkit.base.own_tokens import TooDeepError, is_in
from toolkit.base.times import unix_milliseconds
from toolkit.secrets.redaction import Redactor
from toolkit.tables.failure_times import bounded_times
from toolkit.tables.header_maps import distinct_header_maps
from toolkit.tables.lenient_rows import LenientRows
from toolkit.tables.masking import ColumnMasker, holding_own
from toolkit.tables.schemas import FAILURE_COLUMNS, FAILURES, TIME, Kind
from toolkit.tables.text import (
    INT64,
    LATEST,
    base64_column,
    http_dates,
    parse_rows,
    text_and_bytes,
)

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
            error = None
            with _without_garbage_collection():
                try:
                    tables.extend(self._batch(batch))
                except ProtocolError as raised:
                    error = raised
            # pages before the error are not lost
            yield from tables
            if error is not None:
                raise error

    def _batch(self, pages: Sequence[bytes]) -> Iterator[pa.Table]:
        """Yield one table per page. Consecutive pages with the same fields are converted together."""
        for kind, group in groupby(map(self._strictly, pages), key=itemgetter(0)):
            if kind is None:
                yield from (self._leniently(page) for _, page, _ in group)
                continue
            sizes: list[tuple[bytes, int]] = []
            steps: list[Fields] = []
            while step := list(islice(group, TUNING.pages_per_step)):
                sizes += [(page, len(entries)) for _, page, entries in step]
                all_entries = list(
                    chain.from_iterable(entries for _, _, entries in step)
                )
                steps.append(_fields(kind, all_entries))
            fields = {
                name: pa.concat_arrays([step_fields[name] for step_fields in steps])
                for name in steps[0]
            }
            yield from self._halved(sizes, fields)

    def _leniently(self, page: bytes) -> pa.Table:
        return decode_leniently(
            page, redactor=self._redactor, keep=self._keep, clock=self._clock
        )

    def _strictly(
        self, page: bytes
    ) -> tuple[type[msgspec.Struct] | None, bytes, list[Any]]:
        """Return the type of the entries of a page, the page, and the entries.

        The type is None if the page is not as specified. Unknown fields are learned, and the page is decoded
        again.
        """
        while True:
            try:
                return self._kind, page, self._decoder.decode(page)
            except msgspec.ValidationError as error:
                unknown = _UNKNOWN_FIELD.search(str(error))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                unknown = None
            if unknown is None or not self._learn(unknown[1]):
                return None, page, []

    def _learn(self, name: str) -> bool:
        """Add a field to the type. Return False if it is known, or cannot be written unchanged."""
        is_masked = is_in(name) or (
            self._redactor is not None and self._redactor.text(name) != name
        )
        if is_masked or _UNWRITABLE.search(name):
            return False
        if name in self._learned or len(self._learned) >= TUNING.most_learned:
            return False
        self._learned.append(name)
        names = {
            f"unknown_{number}": field for number, field in enumerate(self._learned)
        }
        members = [(member, msgspec.Raw, _ABSENT) for member in names]
        self._kind = msgspec.defstruct(
            "LearnedEntry", members, bases=(_SPECIFIED,), rename=names, gc=False
        )
        self._decoder = _decoder(self._kind)
        return True

    def _halved(
        self, sizes: list[tuple[bytes, int]], fields: Fields, *, halvings: int = 0
    ) -> Iterator[pa.Table]:
        """Yield one table per page. A page with a value that does not fit is decoded leniently.

        `sizes` are the pages with their numbers of rows. Bisection finds the page: if the table of all pages
        fails, each half is tried.
        """
        starts = [0, *accumulate(size for _, size in sizes)]
        table = FAILURES.empty_table()
        try:
            if starts[-1]:
                table = self._table(fields)
        except _REFUSALS:
            if len(sizes) == 1:
                yield self._leniently(sizes[0][0])
                return
            # If many pages fail, bisection takes longer than decoding each page separately.
            parts = len(sizes)
            if halvings < TUNING.most_halvings:
                parts = 2
            bounds = [len(sizes) * number // parts for number in range(parts + 1)]
            for first, end in pairwise(bounds):
                part = {
                    name: column[starts[first] : starts[end]]
                    for name, column in fields.items()
                }
                yield from self._halved(sizes[first:end], part, halvings=halvings + 1)
        else:
            yield from (
                table.slice(start, end - start) for start, end in pairwise(starts)
            )

    def _table(self, fields: Fields) -> pa.Table:
        """Return the table of fields, with derived columns.

        Bodies and unknown fields are only masked for own tokens.
        """
        columns: dict[str, Any] = {}
        # Bodies are searched on another thread meanwhile. This takes long and does not need the interpreter
        # lock.
        with ThreadPoolExecutor(1, thread_name_prefix="toolkit-searching") as thread:
            for name, kind, field in sorted(
                FAILURE_COLUMNS, key=lambda column: column[1] is not Kind.BODY
            ):
                match kind:
                    case _ if field is None:
                        pass
                    case Kind.BODY:
                        texts, raws = _bodies(
                            fields[field], fields[_FIELDS[f"{name}_base64"]]
                        )
                        columns[name] = thread.submit(self._masker.own, texts)
                        columns[f"{name}_base64"] = base64_column(raws, self._redactor)
                    case Kind.TEXT | Kind.URL:
                        columns[name] = _texts(fields[field])
                    case Kind.HEADERS:
                        columns[name] = distinct_header_maps(fields[field])
                        self._check_names(columns[name].names.dictionary)
                    case Kind.ID | Kind.NUMBER | Kind.TIME | Kind.LABELS:
                        columns[name] = fields[field]
            self._check_names(columns["dlq_id"])
            unknown = {
                name: raws
                for name, raws in fields.items()
                if name not in _FIELDS.values()
            }
            columns["extra"] = self._masker.own_json(
                self._masker.objects(unknown, len(columns["dlq_id"]))
            )
            columns |= _failure_times(columns, self._clock)
            return self._masker.masked_table(FAILURE_COLUMNS, columns)

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

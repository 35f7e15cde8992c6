"""DLQ entries: from a page's bytes to the table ``FAILURES``, strictly and without objects in between.

A page whose entries are all as specified is decoded into typed records and from there into columns. Fields
that the specification does not know are learnt from the first page that has them. A page with anything else
in it (a value of another kind, bytes that are not UTF-8, a number that no column holds) is decoded by
`lenient_rows`, with the same result for what both can read.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate, chain, compress, groupby, pairwise
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.client.members import listed
from toolkit.errors import ProtocolError
from toolkit.own_tokens import TooDeepError, is_in
from toolkit.redaction import Redactor
from toolkit.tables.header_maps import HeaderColumn, distinct_header_maps
from toolkit.tables.lenient_rows import LenientRows
from toolkit.tables.masking import ColumnMasker, holding_own
from toolkit.tables.schemas import FAILURE_COLUMNS, FAILURES, TIME, Kind
from toolkit.tables.text import LATEST, base64_column, http_dates, parse_rows, text_and_bytes

Keep = Callable[[dict[str, Any]], bool]
Fields = dict[str, pa.Array]  # by the service's names: text, whole numbers, or raw JSON

_WHAT: Final = "DLQ entries"
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(.*)` - at `\$[^`]*`\Z", re.DOTALL)
_UNWRITABLE: Final = re.compile(r'["\\\x00-\x1f]')
_ABSENT: Final = msgspec.Raw(b"")  # of a field that an entry does not have: no JSON is empty
_MOST_LEARNT: Final = 200
_MOST_HALVINGS: Final = 3
_TOGETHER: Final = 8  # pages whose entries become columns at once
_BATCH: Final = 32_000_000  # bytes decoded at once: less pays for each Arrow call again


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
_TYPE_OF_FIELD: Final = {
    field: None if type_ is msgspec.Raw else pa.int64() if type_ == int | None else pa.string()
    for field, type_, *_ in _MEMBERS
}


class _Part(NamedTuple):
    """Pages, their sizes and the columns of all their entries; or one that is not as specified, and none."""

    pages: list[bytes]
    sizes: list[int]
    fields: Fields


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
        self._kind: type[msgspec.Struct] = _SPECIFIED
        self._decoder = _decoder(self._kind)
        self._masker = ColumnMasker(redactor)

    def decode(self, rows: bytes | Sequence[bytes]) -> pa.Table:
        """The entries of a page, or of many, which is quicker, as a table of the schema ``FAILURES``."""
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
        """A table of each of some pages, made together where they are as specified and of the same fields."""
        for names, parts in groupby(self._parts(pages), key=lambda part: tuple(part.fields)):
            if names:
                yield from self._tables(list(parts))
            else:
                yield from (self._leniently(page) for part in parts for page in part.pages)

    def _parts(self, pages: Sequence[bytes]) -> Iterator[_Part]:
        """A few pages at a time, whose entries become columns while they are in the processor's cache."""
        held: list[tuple[bytes, list[Any]]] = []
        for page in pages:
            kind = self._kind
            entries = self._strictly(page)
            if len(held) == _TOGETHER or entries is None or kind is not self._kind:
                yield from _parts_of(kind, held)
                held = []
            if entries is None:
                yield _Part([page], [0], {})
            else:
                held.append((page, entries))
        yield from _parts_of(self._kind, held)

    def _leniently(self, page: bytes) -> pa.Table:
        return decode_leniently(page, redactor=self._redactor, keep=self._keep)

    def _strictly(self, rows: bytes) -> list[Any] | None:
        """The entries, or None where the page is not as specified. Unknown fields are learnt on the way."""
        while True:
            try:
                decoded: list[Any] = self._decoder.decode(listed(rows))
            except msgspec.ValidationError as error:
                unknown = _UNKNOWN_FIELD.search(str(error))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return None
            else:
                return decoded
            if unknown is None or not self._can_learn(unknown[1]):
                return None
            self._learn(unknown[1])

    def _can_learn(self, name: str) -> bool:
        """Whether a field of this name can be learnt: not twice, and only what is written as it is."""
        known = name in self._learnt or len(self._learnt) >= _MOST_LEARNT
        masked = is_in(name) or (self._redactor is not None and self._redactor.text(name) != name)
        return not known and not masked and not _UNWRITABLE.search(name)

    def _learn(self, name: str) -> None:
        self._learnt.append(name)
        names = {f"unknown_{number}": field for number, field in enumerate(self._learnt)}
        members = [(member, msgspec.Raw, _ABSENT) for member in names]
        self._kind = msgspec.defstruct("LearntEntry", members, bases=(_SPECIFIED,), rename=names, gc=False)
        self._decoder = _decoder(self._kind)

    def _tables(self, parts: list[_Part]) -> Iterator[pa.Table]:
        fields = {name: pa.concat_arrays([part.fields[name] for part in parts]) for name in parts[0].fields}
        pages = [page for part in parts for page in part.pages]
        return self._halved(pages, [size for part in parts for size in part.sizes], fields)

    def _halved(
        self, pages: list[bytes], sizes: list[int], fields: Fields, *, halvings: int = 0
    ) -> Iterator[pa.Table]:
        """A table of each page, of these sizes; one with a value that does not fit is decoded leniently."""
        starts = [0, *accumulate(sizes)]
        try:
            whole = self._table(fields) if starts[-1] else FAILURES.empty_table()
        except _REFUSALS:
            if len(pages) == 1:
                yield self._leniently(pages[0])
                return
            # where such pages are many, looking for them by halves costs more than decoding leniently
            parts = 2 if halvings < _MOST_HALVINGS else len(pages)
            for first, end in pairwise(len(pages) * number // parts for number in range(parts + 1)):
                rows = slice(starts[first], starts[end])
                part = {name: column[rows] for name, column in fields.items()}
                yield from self._halved(pages[first:end], sizes[first:end], part, halvings=halvings + 1)
        else:
            for start, size in zip(starts, sizes, strict=False):
                yield whole.slice(start, size)

    def _table(self, fields: Fields) -> pa.Table:
        # bodies are searched meanwhile, on another core: that takes long, and not the interpreter's lock
        with ThreadPoolExecutor(1, thread_name_prefix="toolkit-searching") as thread:
            columns = self._columns(fields, lambda texts: thread.submit(self._masker.own, texts))
            unknown = {name: raws for name, raws in fields.items() if name not in _TYPE_OF_FIELD}
            columns["extra"] = self._masker.own_json(self._masker.objects(unknown, len(columns["dlq_id"])))
            columns["failed_at"] = http_dates(columns["response_headers"].first_values("date"))
            return self._masker.masked_table(FAILURE_COLUMNS, columns, FAILURES)

    def _columns(self, fields: Fields, own: Callable[[pa.Array], Future[pa.Array]]) -> dict[str, Any]:
        """The columns that fields fill, masked for our own tokens (bodies by `own`) where nothing else is."""
        columns: dict[str, Any] = {}
        for name, kind, field in sorted(FAILURE_COLUMNS, key=lambda column: column[1] is not Kind.BODY):
            match kind:
                case _ if field is None:
                    pass
                case Kind.ID:
                    if _has_empty(fields[field]):
                        raise _MisfitError
                    columns[name] = self._names(fields[field])
                case Kind.TEXT | Kind.URL:
                    columns[name] = _texts(fields[field])
                case Kind.TIME:
                    columns[name] = _times(fields[field])
                case Kind.HEADERS:
                    columns[name] = _headers(fields[field])
                    self._names(columns[name].names.dictionary)
                case Kind.BODY:
                    texts, raws = _bodies(fields[field], fields[_FIELDS[f"{name}_base64"]])
                    columns[name] = own(texts)
                    columns[f"{name}_base64"] = base64_column(raws, self._redactor)
                case Kind.NUMBER | Kind.LABELS:
                    columns[name] = fields[field]
        return columns

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


def _parts_of(kind: type[msgspec.Struct], held: list[tuple[bytes, list[Any]]]) -> Iterator[_Part]:
    """Pages and their entries of this type as one part, or as several where a value fits no column."""
    pages = [page for page, _ in held]
    names, entries = kind.__struct_encode_fields__, [entry for _, entries in held for entry in entries]
    values = list(zip(*map(msgspec.structs.astuple, entries), strict=True)) or [()] * len(names)
    try:
        fields = {name: _column(name, of_name) for name, of_name in zip(names, values, strict=True)}
    except _REFUSALS:
        if len(held) == 1:
            yield _Part(pages, [0], {})
        else:
            yield from chain.from_iterable(_parts_of(kind, [single]) for single in held)
    else:
        yield _Part(pages, [len(own) for _, own in held], fields)


def _column(field: str, values: Sequence[Any]) -> pa.Array:
    """The values of a field: text, whole numbers, or else raw JSON."""
    kind = _TYPE_OF_FIELD.get(field)
    return _raw_column(values) if kind is None else pa.array(values, kind)


def _raw_column(raws: Sequence[msgspec.Raw]) -> pa.Array:
    """Raw JSON as a column of bytes, null where it is empty; made without a Python object for any value."""
    sizes = np.fromiter(map(len, raws), np.int32, len(raws))
    ends = np.append(np.int32(0), np.cumsum(sizes, dtype=np.int32))
    buffers = [np.packbits(sizes > 0, bitorder="little"), ends, b"".join(raws)]
    return pa.Array.from_buffers(pa.binary(), len(raws), list(map(pa.py_buffer, buffers)))


def _has_empty(column: pa.Array) -> bool:
    return bool(pc.min(pc.binary_length(column)).as_py() == 0)


def _texts(column: pa.Array) -> pa.Array:
    """A column of text; an empty one is missing, as the service leaves fields out or sends them empty."""
    return pc.if_else(pc.equal(column, ""), None, column) if _has_empty(column) else column


def _times(numbers: pa.Array) -> pa.Array:
    ends = pc.min_max(numbers)
    if ends["min"].is_valid and (ends["min"].as_py() < 0 or ends["max"].as_py() > LATEST):
        raise _MisfitError
    return numbers.cast(TIME)


def _headers(raws: pa.Array) -> HeaderColumn:
    headers = distinct_header_maps(raws)
    if headers is None:
        raise _MisfitError
    return headers


def _bodies(plain: pa.Array, encoded: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Bodies as text and as bytes, from their two fields."""
    sizes = pc.fill_null(pc.binary_length(encoded), -1)
    coded = pc.or_(pc.greater(sizes, 0), pc.and_(pc.equal(sizes, 0), plain.is_null()))
    if not coded.true_count:
        return plain, pa.nulls(len(plain), pa.binary())
    pairs = zip(plain.filter(coded).to_pylist(), encoded.filter(coded).to_pylist(), strict=True)
    texts, raws, fit = zip(*(text_and_bytes(*pair) for pair in pairs), strict=True)
    if not all(fit):
        raise _MisfitError
    return (
        pc.replace_with_mask(plain, coded, pa.array(texts, pa.string())),
        pc.replace_with_mask(pa.nulls(len(plain), pa.binary()), coded, pa.array(raws, pa.binary())),
    )

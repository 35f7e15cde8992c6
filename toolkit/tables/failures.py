"""DLQ entries: from a page's bytes to the table ``FAILURES``, strictly and without objects in between.

A page whose entries are all as specified is decoded into typed records and from there into columns. Fields
that the specification does not know are learned from the first page that has them. A page with anything else
in it (a value of another kind, bytes that are not UTF-8, a number that no column holds) is decoded by
`lenient_rows`, with the same result for what both can read.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate, compress, groupby, islice, pairwise
from operator import itemgetter
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.errors import ProtocolError
from toolkit.own_tokens import TooDeepError, is_in
from toolkit.redaction import Redactor
from toolkit.tables.header_maps import distinct_header_maps
from toolkit.tables.lenient_rows import LenientRows
from toolkit.tables.masking import ColumnMasker, holding_own
from toolkit.tables.schemas import FAILURE_COLUMNS, FAILURES, Kind
from toolkit.tables.text import INT64, LATEST, base64_column, http_dates, parse_rows, text_and_bytes

Keep = Callable[[dict[str, Any]], bool]
Fields = dict[str, pa.Array]  # by the service's names; raw JSON where it is not decoded yet

_WHAT: Final = "DLQ entries"
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(.*)` - at `\$[^`]*`\Z", re.DOTALL)
_UNWRITABLE: Final = re.compile(r'["\\\x00-\x1f]')
_ABSENT: Final = msgspec.Raw(b"")  # of a field that an entry does not have: no JSON is empty
_MOST_LEARNED: Final = 200
_MOST_HALVINGS: Final = 3
_TOGETHER: Final = 8  # pages whose entries become columns at once, while they are in the processor's cache
_BATCH: Final = 32_000_000  # bytes decoded at once: less pays for each Arrow call again
_REFUSALS: Final = (msgspec.DecodeError, ValueError, OverflowError, RecursionError, TooDeepError)
"""Errors of values that no column holds: their page has to be decoded leniently."""

_FIELDS: Final = {name: field for name, _, field in FAILURE_COLUMNS if field is not None}
_RAW: Final = (msgspec.Raw, msgspec.Raw(b"null"))
_TYPES: Final[dict[Kind, tuple[Any, ...]]] = {
    Kind.ID: (Annotated[str, msgspec.Meta(min_length=1)],),
    Kind.NUMBER: (Annotated[int, msgspec.Meta(ge=-INT64, le=INT64 - 1)] | None, None),
    Kind.TIME: (Annotated[int, msgspec.Meta(ge=0, le=LATEST)] | None, None),
    Kind.HEADERS: _RAW,
    Kind.LABELS: _RAW,
}
_MEMBERS: Final = [
    (field, *_TYPES.get(kind, (str | None, None))) for _, kind, field in FAILURE_COLUMNS if field
]
_SPECIFIED: Final = msgspec.defstruct(
    "DlqEntry", sorted(_MEMBERS, key=len), forbid_unknown_fields=True, gc=False
)
"""An entry as specified, its members named as in the service's JSON; those that must be there come first."""
_DECODED: Final = {
    field: FAILURES.field(name).type
    for name, kind, field in FAILURE_COLUMNS
    if field and _TYPES.get(kind) is not _RAW
}


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
        self._learned: list[str] = []
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
        """A table of each of some pages; neighbours that have the same fields are made together."""
        for kind, found in groupby(map(self._strictly, pages), key=itemgetter(0)):
            if kind is None:
                yield from (self._leniently(page) for _, page, _ in found)
                continue
            read: list[tuple[bytes, int]] = []
            parts: list[Fields] = []
            while some := list(islice(found, _TOGETHER)):
                read += [(page, len(entries)) for _, page, entries in some]
                parts.append(_fields(kind, [entry for _, _, entries in some for entry in entries]))
            fields = {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}
            yield from self._halved(read, fields)

    def _leniently(self, page: bytes) -> pa.Table:
        return decode_leniently(page, redactor=self._redactor, keep=self._keep)

    def _strictly(self, page: bytes) -> tuple[type[msgspec.Struct] | None, bytes, list[Any]]:
        """The type of a page's entries, the page and its entries; None where it is not as specified.

        Unknown fields are learned on the way.
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
        """Add a field to the type; False where it is there already, or is not written as it is."""
        masked = is_in(name) or (self._redactor is not None and self._redactor.text(name) != name)
        if name in self._learned or len(self._learned) >= _MOST_LEARNED or masked or _UNWRITABLE.search(name):
            return False
        self._learned.append(name)
        names = {f"unknown_{number}": field for number, field in enumerate(self._learned)}
        members = [(member, msgspec.Raw, _ABSENT) for member in names]
        self._kind = msgspec.defstruct("LearnedEntry", members, bases=(_SPECIFIED,), rename=names, gc=False)
        self._decoder = _decoder(self._kind)
        return True

    def _halved(
        self, read: list[tuple[bytes, int]], fields: Fields, *, halvings: int = 0
    ) -> Iterator[pa.Table]:
        """A table of each page, of so many rows; one with a value that does not fit is decoded leniently."""
        starts = [0, *accumulate(size for _, size in read)]
        try:
            whole = self._table(fields) if starts[-1] else FAILURES.empty_table()
        except _REFUSALS:
            if len(read) == 1:
                yield self._leniently(read[0][0])
                return
            # where such pages are many, looking for them by halves costs more than decoding leniently
            parts = 2 if halvings < _MOST_HALVINGS else len(read)
            for first, end in pairwise(len(read) * number // parts for number in range(parts + 1)):
                part = {name: column[starts[first] : starts[end]] for name, column in fields.items()}
                yield from self._halved(read[first:end], part, halvings=halvings + 1)
        else:
            yield from (whole.slice(start, end - start) for start, end in pairwise(starts))

    def _table(self, fields: Fields) -> pa.Table:
        """The table of fields: columns masked for our own tokens where nothing else is, and those derived."""
        columns: dict[str, Any] = {}
        # bodies are searched meanwhile, on another core: that takes long, and not the interpreter's lock
        with ThreadPoolExecutor(1, thread_name_prefix="toolkit-searching") as thread:
            for name, kind, field in sorted(FAILURE_COLUMNS, key=lambda column: column[1] is not Kind.BODY):
                match kind:
                    case _ if field is None:
                        pass
                    case Kind.BODY:
                        texts, raws = _bodies(fields[field], fields[_FIELDS[f"{name}_base64"]])
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
            unknown = {name: raws for name, raws in fields.items() if name not in _FIELDS.values()}
            columns["extra"] = self._masker.own_json(self._masker.objects(unknown, len(columns["dlq_id"])))
            columns["failed_at"] = http_dates(columns["response_headers"].first_values("date"))
            return self._masker.masked_table(FAILURE_COLUMNS, columns)

    def _check_names(self, names: pa.Array) -> None:
        """Ids and names of headers that hold a token of ours are masked by the lenient decoder."""
        if self._redactor is not None and len(holding_own(names)):
            raise ValueError("a name with a token of ours")


def decode_leniently(page: bytes, *, redactor: Redactor | None, keep: Keep | None = None) -> pa.Table:
    """The entries of a page, whatever their values; see `FailureDecoder.decode`."""
    entries = parse_rows(page, what=_WHAT)
    kept = [keep is None or keep(entry) for entry in entries]
    try:
        return _lenient_table(list(compress(entries, kept)), redactor)
    except TooDeepError:
        entries = parse_rows(page, what=_WHAT, exactly=True)
        return _lenient_table(list(compress(entries, kept)), redactor)


def _lenient_table(entries: list[dict[str, Any]], redactor: Redactor | None) -> pa.Table:
    rows = LenientRows(entries, FAILURE_COLUMNS, redactor, what=_WHAT)
    rows.columns["failed_at"] = http_dates(rows.columns["response_headers"].first_values("date"))
    return rows.table()


def _decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    """Reads an array of entries."""
    return msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]


def _batches(pages: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The pages in batches that are quick to decode."""
    ends = accumulate(map(len, pages))
    for _, batch in groupby(zip(ends, pages, strict=True), key=lambda pair: pair[0] // _BATCH):
        yield [page for _, page in batch]


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


def _fields(kind: type[msgspec.Struct], entries: list[Any]) -> Fields:
    """The columns of entries of this type: text, numbers and times, or raw JSON."""
    names = kind.__struct_encode_fields__
    columns = list(zip(*map(msgspec.structs.astuple, entries), strict=True)) or [()] * len(names)
    return {
        name: pa.array(values, _DECODED[name]) if name in _DECODED else _raw_column(values)
        for name, values in zip(names, columns, strict=True)
    }


def _raw_column(raws: Sequence[msgspec.Raw]) -> pa.Array:
    """Raw JSON as a column of bytes, null where it is empty; made without a Python object for any value."""
    sizes = np.fromiter(map(len, raws), np.int32, len(raws))
    ends = np.append(np.int32(0), np.cumsum(sizes, dtype=np.int32))
    buffers = [np.packbits(sizes > 0, bitorder="little"), ends, b"".join(raws)]
    return pa.Array.from_buffers(pa.binary(), len(raws), list(map(pa.py_buffer, buffers)))


def _texts(column: pa.Array) -> pa.Array:
    """A column of text; an empty one is missing, as the service leaves fields out or sends them empty."""
    has_empty = pc.min(pc.binary_length(column)).as_py() == 0
    return pc.if_else(pc.equal(column, ""), None, column) if has_empty else column


def _bodies(plain: pa.Array, encoded: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Bodies as text and as bytes, from their two fields."""
    sizes = pc.fill_null(pc.binary_length(encoded), -1)
    coded = pc.or_(pc.greater(sizes, 0), pc.and_(pc.equal(sizes, 0), plain.is_null()))
    if not coded.true_count:
        return plain, pa.nulls(len(plain), pa.binary())
    pairs = zip(plain.filter(coded).to_pylist(), encoded.filter(coded).to_pylist(), strict=True)
    texts, raws, fit = zip(*(text_and_bytes(*pair) for pair in pairs), strict=True)
    if not all(fit):
        raise ValueError("no base64")
    return (
        pc.replace_with_mask(plain, coded, pa.array(texts, pa.string())),
        pc.replace_with_mask(pa.nulls(len(plain), pa.binary()), coded, pa.array(raws, pa.binary())),
    )

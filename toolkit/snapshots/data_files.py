"""The data files of a snapshot: their columns, writing, checking, and reading in bounded memory.

A few megabytes of Parquet can hold 100 million rows, or one long text a million times: the sizes that a file
states are added up before anything is decoded, and rows are decoded in batches of bounded size.
"""

from __future__ import annotations

import base64
import errno
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from toolkit.errors import SnapshotDamagedError, SnapshotError
from toolkit.loading.memory import available_memory, check_memory
from toolkit.signatures.signed_rows import SIGNATURE
from toolkit.snapshots.manifest import SCHEMA_VERSION, Kind, ListedFile, Manifest, PendingFile
from toolkit.snapshots.store import HashingFile, SnapshotStore, digest
from toolkit.tables import schemas
from toolkit.tables.schemas import FIRST_SEEN_AT, GONE_AFTER, GONE_BEFORE, UNFIT
from toolkit.tables.text import labels_json

STORED_FAILURES: Final = pa.schema(
    [
        *schemas.FAILURES,
        pa.field(FIRST_SEEN_AT, schemas.TIME, nullable=False),
        pa.field(GONE_AFTER, schemas.TIME),
        pa.field(GONE_BEFORE, schemas.TIME),
        pa.field(SIGNATURE, pa.string()),
    ]
)
"""Stored failures. `first_seen_at` is when the first load that saw the entry began. `gone_after` and
`gone_before` are null while the entry is in the DLQ; afterwards it left the queue between the two: the
beginning of the last complete load that still saw it, and the end of the first that did not. `signature` is
the id of its kind of failure, which begins with the version of the rules; it is null in snapshots of versions
1 to 5 until they are written again."""

TABLES: Final = (
    schemas.FAILURES, STORED_FAILURES, schemas.HEADERS_EXPLODED, schemas.LABELS_EXPLODED, schemas.RUNS,
    schemas.CALLBACKS, schemas.EVENTS, schemas.STEPS,
)  # fmt: skip

RESTORE: Final = (
    "Restore the file from a backup. Failures: sync_failures(..., repair=True) keeps the rows that can still "
    "be read and adds again what is still in the queue. Other snapshots: write them again."
)
"""What a user does about a file that is lost."""

PART_BYTES: Final = 128 << 20
"""Bytes of a data file, about: what the change of one row makes a sync write again, at most."""

BATCH_BYTES: Final = 256 << 20
"""A row group that may be larger than this when it is decoded is read in batches of about this size."""

_FEW_BATCHES: Final = 64
"""A row group of at most so many batches is read without finding the longest text of each column."""

_WIDTHS: Final = {
    "BOOLEAN": 0.125, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4,
}  # fmt: skip
"""Bytes of a value in memory; of a text, its offset."""
_NESTED_TEXT: Final = 1 << 20
"""Bytes that a text within a list has at most, which cannot be looked at: those of a page."""

_RENAMED: Final = {
    "gone_between": (GONE_AFTER, GONE_BEFORE),
    "body_bytes": ("body_base64",),
    "response_body_bytes": ("response_body_base64",),
    "source_body_bytes": ("source_body_base64",),
}
_BODIES: Final = ("body", "response_body", "source_body")


class Part:
    """A data file being written, as `draft` until the commit names it `path`; rows are written in groups."""

    def __init__(
        self, store: SnapshotStore, path: str, schema: pa.Schema, kind: Kind, *, group_bytes: int
    ) -> None:
        self.path = path
        self.draft = store.draft_of(path)
        self.rows = 0
        self._store, self._kind, self._group_bytes = store, kind, group_bytes
        self._finished: PendingFile | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        plain = [field.name for field in schema if not pa.types.is_nested(field.type)]
        with ExitStack() as opening:
            self._file: HashingFile = opening.enter_context(store.new_file(self.draft))
            self._parquet = pq.ParquetWriter(
                self._file,
                schema,
                compression="zstd",
                use_dictionary=plain,  # floats of vectors do not repeat: trying costs time and gains nothing
                write_page_checksum=True,
            )
            self._open = opening.pop_all()

    @property
    def bytes(self) -> int:
        """Bytes written so far, without rows buffered for their row group."""
        return self._file.bytes

    def write(self, table: pa.Table) -> None:
        """Add rows; the table has the part's columns."""
        self.rows += table.num_rows
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= self._group_bytes:
            self._write_group()

    def finish(self, receipt: dict[str, Any] | None = None) -> PendingFile:
        """Write the buffered rows, and the receipt as metadata; close the file, and verify it by reading."""
        if self._finished is None:
            self._write_group()
            facts = {"kind": self._kind, "schema_version": SCHEMA_VERSION, "receipt": receipt}
            self._parquet.add_key_value_metadata({"toolkit": json.dumps(facts, sort_keys=True)})
            self._parquet.close()
            self._file.sync()
            size, sha256 = self._file.bytes, self._file.sha256
            check_written(self._store, self.draft, rows=self.rows, sha256=sha256)
            self._finished = PendingFile(
                path=self.draft, name=self.path, rows=self.rows, bytes=size, sha256=sha256
            )
            self._open.close()
        return self._finished

    def close(self) -> None:
        """Close the encoder and the file without another byte on the disk."""
        self._file.discard()
        self._parquet.is_open = False  # or it would write its footer when it is collected
        self._open.close()

    def _write_group(self) -> None:
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            self._waiting, self._waiting_bytes = [], 0
            if table.num_rows:
                self._parquet.write_table(table, row_group_size=table.num_rows)


class DataFile(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """An open Parquet file whose pages are checked, and whose rows come in batches of a bounded size."""

    def __init__(self, source: BinaryIO | pa.BufferReader) -> None:
        super().__init__(source, page_checksum_verification=True)
        self._file = source

    @property
    def decoded_bytes(self) -> int:
        """Bytes that all rows take at least when they are decoded, as the file's own numbers say."""
        groups = (self.metadata.row_group(number) for number in range(self.metadata.num_row_groups))
        size = sum(_least(group.column(index)) for group in groups for index in range(group.num_columns))
        # a list of fixed size uses its space also where it is null
        return int(max(size, self.metadata.num_rows * self._fixed))

    def tables(self) -> Iterator[pa.Table]:
        """The rows by row group, large ones in several tables; `NotEnoughMemoryError` if a row cannot fit."""
        for number in range(self.num_row_groups):
            rows, size = self.metadata.row_group(number).num_rows, self._rows_at_once(number)
            if rows <= size:
                yield self.read_row_group(number).replace_schema_metadata(None)
                continue
            for batch in self.iter_batches(size, row_groups=[number]):
                yield pa.Table.from_batches([batch]).replace_schema_metadata(None)

    @property
    def _fixed(self) -> float:
        return float(sum(_fixed(field.type) for field in self.schema_arrow))

    def _rows_at_once(self, number: int) -> int:
        """Rows of a group that are decoded at once: as many as fit, each text as long as it may be."""
        group = self.metadata.row_group(number)
        rows = max(1, group.num_rows)
        columns = [group.column(index) for index in range(group.num_columns)]
        texts = [column for column in columns if column.physical_type == "BYTE_ARRAY"]
        width: float = max(1.0, self._fixed, sum(map(_least, columns)) / rows)  # 1: there may be no columns
        # each text as long as all of its column: enough for small groups, without reading any dictionary
        most: float = width + sum(
            column.total_uncompressed_size * column.num_values / rows for column in texts
        )
        if rows * most <= _FEW_BATCHES * BATCH_BYTES:
            return max(1, math.floor(BATCH_BYTES / most))
        nested = [column for column in texts if "." in column.path_in_schema]
        width += sum(
            min(_NESTED_TEXT, column.total_uncompressed_size) * column.num_values / rows for column in nested
        )
        width += self._longest(number, [column.path_in_schema for column in texts if column not in nested])
        check_memory(
            "reading a row of a data file",
            needed=width,
            limit=available_memory(),
            next_step="Check that the toolkit wrote this file.",
        )
        return max(1, math.floor(BATCH_BYTES / width))

    def _longest(self, number: int, names: list[str]) -> int:
        """Bytes of the longest texts in the dictionaries of some columns, read with a single row."""
        if not names:
            return 0
        again = pq.ParquetFile(self._file, metadata=self.metadata, read_dictionary=names)
        row = next(again.iter_batches(1, row_groups=[number], columns=names), None)
        if row is None:
            return 0
        dictionaries = (column.dictionary for column in row.columns if pa.types.is_dictionary(column.type))
        return sum(pc.max(pc.binary_length(texts)).as_py() or 0 for texts in dictionaries)


class _NoRows(io.BytesIO):
    """In place of a data file: as long as any, and every read of rows is a `_RowsRequestedError`."""

    def tell(self) -> int:
        return 1 << 62

    def read(self, _size: int | None = -1, /) -> bytes:
        raise _RowsRequestedError


class _RowsRequestedError(Exception):
    """Arrow begins to read rows: it has read what the file says of its columns."""


def check_metadata(metadata: pq.FileMetaData) -> None:
    """Raise `OSError` where what a file says of its columns contradicts itself.

    Arrow raises before it reads rows. Asked for the metadata of a column, it would end the process.
    """
    with suppress(_RowsRequestedError):
        parquet = pq.ParquetFile(_NoRows(), metadata=metadata, pre_buffer=True)
        next(parquet.iter_batches(1, row_groups=range(metadata.num_row_groups)), None)


def _least(column: pq.ColumnChunkMetaData) -> float:
    """Bytes that the values of a column take: those it states, and at least a number or an offset each."""
    numbers = column.num_values * _WIDTHS.get(column.physical_type, 1)
    return max(float(numbers), float(column.total_uncompressed_size))


def _fixed(kind: pa.DataType) -> float:
    """Bytes that each row needs, whatever its values."""
    if pa.types.is_fixed_size_list(kind):
        return float(kind.list_size) * _fixed(kind.value_type)
    return float(kind.bit_width) / 8 if pa.types.is_primitive(kind) else 4.0


@contextmanager
def open_checked(store: SnapshotStore, listed: ListedFile) -> Iterator[BinaryIO]:
    """Open a listed file after comparing every byte with its hash; `FileNotFoundError` without one."""
    with store.open(listed.path) as file:
        checksum, size = digest(file)
        if (checksum, size) != (listed.sha256, listed.bytes):
            raise damage_error(
                store,
                listed,
                f"{size:,} bytes with the hash {checksum[:12]}…",
                f"{listed.bytes:,} bytes with the hash {listed.sha256[:12]}…",
            )
        yield file


def read_checked(store: SnapshotStore, listed: ListedFile) -> bytes:
    """The bytes of a listed file, compared with its hash; raises as `open_data_file`."""
    with open_checked(store, listed) as file:
        return file.read()


def problem_of(store: SnapshotStore, listed: ListedFile) -> str:
    """What is wrong with a listed file, of which every byte is read; "" where it is as it was written."""
    try:
        with store.open(listed.path) as file:
            found = digest(file)
    except FileNotFoundError:
        return "missing"
    except SnapshotDamagedError as error:
        return error.got or "no regular file"
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return "unreadable: the disk reports an input/output error"
    return "" if found == (listed.sha256, listed.bytes) else "other bytes than were written"


@contextmanager
def open_data_file(store: SnapshotStore, listed: ListedFile, schema: pa.Schema | None) -> Iterator[DataFile]:
    """Open a data file whose bytes, rows and columns are those listed; else a `SnapshotDamagedError`."""
    with open_checked(store, listed) as file:
        try:
            parquet = DataFile(file)
            check_metadata(parquet.metadata)
            actual = parquet.schema_arrow
        except (*UNFIT, OSError) as error:
            raise damage_error(store, listed, str(error), "a Parquet file") from None
        check_data_file(store, listed, parquet.metadata.num_rows, actual, schema)
        yield parquet


def check_data_file(
    store: SnapshotStore, listed: ListedFile, rows: int, actual: pa.Schema, expected: pa.Schema | None
) -> None:
    """Raise `SnapshotDamagedError` for other rows or columns than listed, and for extension types."""
    if rows != listed.rows:
        raise damage_error(store, listed, f"{rows:,} rows", f"{listed.rows:,} rows")
    if extension := extension_column(actual):
        raise damage_error(store, listed, f"the extension type of {extension!r}", "plain Arrow types")
    if expected is not None and not actual.equals(expected, check_metadata=False):
        raise damage_error(store, listed, "other columns or types", "those of the snapshot's first file")


def stored_failures(store: SnapshotStore, manifest: Manifest, listed: ListedFile) -> Iterator[pa.Table]:
    """The rows of a file of failures, with the columns of today; raises as `open_data_file`."""
    older = manifest.is_older
    with open_data_file(store, listed, None if older else STORED_FAILURES) as parquet:
        for rows in parquet.tables():
            yield current_columns(rows, "failures") if older else rows


def damage_error(store: SnapshotStore, listed: ListedFile, got: str, expected: str) -> SnapshotDamagedError:
    """The error for a listed file that is not what the manifest says."""
    return SnapshotDamagedError(
        f"reading {listed.path!r} of the snapshot {store}", got=got, expected=expected, next_step=RESTORE
    )


def missing_file_error(store: SnapshotStore, error: FileNotFoundError) -> SnapshotDamagedError:
    """The error for a file that the manifest lists and the store does not have."""
    return SnapshotDamagedError(
        f"reading the snapshot {store}",
        got=f"no file {error.filename!r}",
        expected="every file that the manifest lists",
        next_step=RESTORE,
    )


def check_written(store: SnapshotStore, name: str, *, sha256: str, rows: int | None = None) -> None:
    """Read a new file again; `SnapshotError` when the disk returns something else than was written."""
    with store.open(name) as file:
        checksum, _ = digest(file)
        if checksum == sha256 and (rows is None or pq.read_metadata(file).num_rows == rows):
            return
    raise SnapshotError(
        f"writing the snapshot {store}",
        got="a file that reads back different from what was written",
        expected=f"the hash {sha256[:12]}…",
        next_step="Check the disk. The snapshot is as it was.",
    )


def extension_column(parent: pa.Schema | pa.DataType) -> str | None:
    """Name of the first field of an extension type, at any depth: reading it may run code of the file."""
    count = len(parent) if isinstance(parent, pa.Schema) else parent.num_fields
    for field in map(parent.field, range(count)):
        if isinstance(field.type, pa.BaseExtensionType) or b"ARROW:extension:name" in (field.metadata or {}):
            return str(field.name)
        if inner := extension_column(field.type):
            return inner
    return None


def current_names(names: Iterable[str]) -> list[str]:
    """What columns of any version are called today, in today's order where they are a table's.

    >>> current_names(["body", "body_bytes"])
    ['body', 'body_base64']
    """
    current = [new for name in names for new in _RENAMED.get(name, (name,))]
    known = (
        list(table.names)
        for table in TABLES
        if set(table.names) == {*current, *schemas.ADDED & {*table.names}}
    )
    return next(known, current)


def current_scope(manifest: Manifest) -> dict[str, Any]:
    """What a snapshot is bound to, in today's terms."""
    if not manifest.is_older or "columns" not in manifest.scope:
        return manifest.scope
    return manifest.scope | {"columns": current_names(manifest.scope["columns"])}


def current_columns(table: pa.Table, kind: Kind) -> pa.Table:
    r"""Rows of an older schema version with the columns of today; what needs no change is not copied.

    In versions 1 to 4, headers were maps, labels lists, bodies that are not UTF-8 bytes, and the times
    between which an entry left the queue a struct. The index differed, too: a sync makes it again from the
    rows.

    >>> old = pa.table({"labels": [["eu", "beta"], []], "body_bytes": [b"\xff", None]})
    >>> current_columns(old, "frame").to_pylist()
    [{'labels': '["eu","beta"]', 'body_base64': '/w=='}, {'labels': None, 'body_base64': None}]
    """
    columns: dict[str, pa.ChunkedArray] = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        columns |= zip(_RENAMED.get(name, (name,)), _current(name, column), strict=True)
    if kind == "failures":
        columns = {field.name: pa.nulls(table.num_rows, field.type) for field in STORED_FAILURES} | columns
    names = current_names(columns)
    schema = next((known for known in TABLES if known.names == names), None)
    if schema is not None:
        columns = {field.name: pa.nulls(table.num_rows, field.type) for field in schema} | columns
    types = {name: column.type for name, column in columns.items()}
    if schema is None and types == dict(zip(table.schema.names, table.schema.types, strict=True)):
        return table
    if schema is not None and "extra" in names:  # text that is empty is missing today, but for bodies
        texts = [name for name in names if pa.types.is_string(types[name]) and name not in _BODIES]
        columns |= {name: pc.if_else(pc.equal(columns[name], ""), None, columns[name]) for name in texts}
    return pa.table({name: columns[name] for name in names}, schema=schema)


def _current(name: str, column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    kind = column.type
    if name == "gone_between":
        times = [pc.struct_field(column, part) for part in ("last_seen", "first_missed")]
        return [time.cast(schemas.TIME) for time in times]
    if name in _RENAMED:
        return [_texts(column, lambda content: base64.b64encode(content).decode())]
    if pa.types.is_map(kind):
        return [_texts(column, lambda headers: msgspec.json.encode(dict(headers)).decode())]
    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        return [_texts(column, lambda labels: labels_json(labels, None))]
    return [column]


def _texts(column: pa.ChunkedArray, text: Callable[[Any], str | None]) -> pa.ChunkedArray:
    """The column as text, what is null staying so."""
    read = [None if value is None else text(value) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(read, pa.string())])

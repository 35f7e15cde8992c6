"""Write, check and read the data files of a snapshot in bounded memory.

A few megabytes of Parquet can contain 100 million rows, or one long string a million times. The sizes in the
metadata of a file are therefore added up before anything is decoded, and rows are decoded in batches of
bounded size.
"""

from __future__ import annotations

import base64
import errno
import io
import json
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from toolkit.base.errors import SnapshotDamagedError, SnapshotError
from toolkit.loading.memory import available_memory, check_memory
from toolkit.snapshots.manifest import (
    SCHEMA_VERSION,
    Kind,
    ListedFile,
    Manifest,
    PendingFile,
)
from toolkit.snapshots.store import HashingFile, SnapshotStore, digest
from toolkit.tables import schemas
from toolkit.tables.failure_times import bounded_times
from toolkit.tables.json_cells import labels_json
from toolkit.tables.schemas import FIRST_SEEN_AT, GONE_AFTER, GONE_BEFORE, UNFIT
from toolkit.tables.signed_rows import SIGNATURE

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
`gone_before` are null while the entry is in the DLQ. Afterwards, it left the queue between the two: the
beginning of the last complete load that still saw it, and the end of the first load that did not.
`signature` is the id of the kind of failure, which begins with the version of the rules; it is null in
snapshots of versions 1 to 5 until they are written again."""

TABLES: Final = (
    schemas.FAILURES, STORED_FAILURES, schemas.HEADERS_EXPLODED, schemas.LABELS_EXPLODED, schemas.RUNS,
    schemas.CALLBACKS, schemas.EVENTS, schemas.STEPS,
)  # fmt: skip

RESTORE: Final = (
    "Restore the file from a backup. Failures: sync_failures(..., repair=True) keeps the rows that can still "
    "be read and adds the entries that are still in the queue again. Other snapshots: write them again."
)
"""The next step of an error about a lost file."""

PART_BYTES: Final = 128 << 20
"""Approximate size of a data file. If one row changes, a sync writes at most one file of this size again."""

BATCH_BYTES: Final = 256 << 20
"""A row group that may be larger than this when it is decoded is read in batches of about this size."""

_LONGEST_WAIT: Final = 10.0
"""Seconds to wait for threads of Arrow, which need a millisecond on a machine that is not busy."""

_FEW_BATCHES: Final = 64
"""A row group of at most this number of batches is read without finding the longest string of each column."""

_WIDTHS: Final = {
    "BOOLEAN": 0.125, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4,
}  # fmt: skip
"""Bytes of a value in memory; for a string, the bytes of the offset."""
_NESTED_TEXT: Final = 1 << 20
"""Largest size of a string in a list: the size of a page. Dictionaries of lists cannot be read."""

_RENAMED: Final = {
    "gone_between": (GONE_AFTER, GONE_BEFORE),
    "body_bytes": ("body_base64",),
    "response_body_bytes": ("response_body_base64",),
    "source_body_bytes": ("source_body_base64",),
}
_BODIES: Final = ("body", "response_body", "source_body")


class Part:
    """A data file that is written as `draft`; the commit renames it to `path`. Rows are written in groups."""

    def __init__(
        self,
        store: SnapshotStore,
        path: str,
        schema: pa.Schema,
        kind: Kind,
        *,
        group_bytes: int,
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
        """Return the bytes written so far, without rows that wait for their row group."""
        return self._file.bytes

    def write(self, table: pa.Table) -> None:
        """Add rows; the table has the columns of the part."""
        self.rows += table.num_rows
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= self._group_bytes:
            self._write_group()

    def finish(
        self, receipt: dict[str, Any] | None = None, *, content: str = ""
    ) -> PendingFile:
        """Write the waiting rows; close the file, and verify it by reading.

        The receipt, and the hash of the rows if it is given, are written as metadata.
        """
        if self._finished is None:
            self._write_group()
            # The file itself states how complete the load was, for readers that open it without the manifest.
            facts: dict[str, Any] = {
                "kind": self._kind,
                "schema_version": SCHEMA_VERSION,
                "receipt": receipt,
            }
            if content:
                facts["content"] = content
            self._parquet.add_key_value_metadata(
                {"toolkit": json.dumps(facts, sort_keys=True)}
            )
            self._parquet.close()
            self._file.sync()
            size, sha256 = self._file.bytes, self._file.sha256
            check_written(self._store, self.draft, rows=self.rows, sha256=sha256)
            self._finished = PendingFile(
                path=self.draft,
                name=self.path,
                rows=self.rows,
                bytes=size,
                sha256=sha256,
            )
            self._open.close()

        return self._finished

    def close(self) -> None:
        """Close the encoder and the file without writing another byte."""
        self._file.discard()
        # otherwise it would write the footer when it is garbage-collected
        self._parquet.is_open = False
        self._open.close()

    def _write_group(self) -> None:
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            self._waiting, self._waiting_bytes = [], 0
            if table.num_rows:
                self._parquet.write_table(table, row_group_size=table.num_rows)


class DataFile(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """An open Parquet file whose pages are checked, and whose rows are read in batches of bounded size."""

    def __init__(self, source: BinaryIO | pa.BufferReader) -> None:
        super().__init__(source, page_checksum_verification=True)
        self._file = source

    @property
    def decoded_bytes(self) -> int:
        """Return the bytes that all rows take at least when they are decoded, from the metadata."""
        size = 0.0
        for number in range(self.metadata.num_row_groups):
            size += sum(map(_least, self._columns(number)))
        # a list of fixed size takes memory even if it is null
        return int(max(size, self.metadata.num_rows * self._fixed))

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows by row group, large groups in several tables, with all columns or only some.

        Raise NotEnoughMemoryError if a row cannot fit into memory.
        """
        for number in range(self.num_row_groups):
            rows_at_once = self._rows_at_once(number)
            if self.metadata.row_group(number).num_rows <= rows_at_once:
                rows = self.read_row_group(number, columns=columns)
                yield rows.replace_schema_metadata(None)
                continue
            for batch in self.iter_batches(
                rows_at_once, row_groups=[number], columns=columns
            ):
                yield pa.Table.from_batches([batch]).replace_schema_metadata(None)

    @property
    def _fixed(self) -> float:
        return float(sum(_fixed(field.type) for field in self.schema_arrow))

    def _columns(self, row_group: int) -> list[pq.ColumnChunkMetaData]:
        group = self.metadata.row_group(row_group)
        return [group.column(index) for index in range(group.num_columns)]

    def _rows_at_once(self, number: int) -> int:
        """Return how many rows of a group are decoded at once, assuming that every string is the longest one.

        The length of the longest string is known only after reading the dictionaries. It is first assumed
        that a single string takes the whole column, which suffices for small groups.
        """
        rows = max(1, self.metadata.row_group(number).num_rows)
        columns = self._columns(number)
        strings = [column for column in columns if column.physical_type == "BYTE_ARRAY"]
        # 1: a file without columns
        width: float = max(1.0, self._fixed, sum(map(_least, columns)) / rows)
        # For example, 1,000 rows in a column of 1 MB: one of the strings could be the whole megabyte, so a
        # row counts as 1 MB, although the mean is 1 KB.
        largest_width: float = width + sum(
            column.total_uncompressed_size * column.num_values / rows
            for column in strings
        )
        if rows * largest_width <= _FEW_BATCHES * BATCH_BYTES:
            return max(1, math.floor(BATCH_BYTES / largest_width))

        for column in strings:
            # A dot in the path means that the string is in a list; the
            # dictionary of such a column cannot be read.
            if "." in column.path_in_schema:
                largest = min(_NESTED_TEXT, column.total_uncompressed_size)
                width += largest * column.num_values / rows

        plain = [
            column.path_in_schema
            for column in strings
            if "." not in column.path_in_schema
        ]
        width += self._longest(number, plain)
        check_memory(
            "reading a row of a data file",
            needed=width,
            limit=available_memory(),
            next_step="Check that the toolkit wrote this file.",
        )

        return max(1, math.floor(BATCH_BYTES / width))

    def _longest(self, number: int, names: list[str]) -> int:
        """Return the bytes of the longest strings of some columns, from their dictionaries.

        Reading a single row reads the dictionaries.
        """
        if not names:
            return 0

        as_dictionaries = pq.ParquetFile(
            self._file, metadata=self.metadata, read_dictionary=names
        )
        row = next(
            as_dictionaries.iter_batches(1, row_groups=[number], columns=names), None
        )
        if row is None:
            return 0

        longest = 0
        for column in row.columns:
            if pa.types.is_dictionary(column.type):
                longest += pc.max(pc.binary_length(column.dictionary)).as_py() or 0

        return longest


class _NoRows(io.BytesIO):
    """A very long file without content: each attempt to read rows raises `_RowsRequestedError`."""

    def tell(self) -> int:
        return 1 << 62

    def read(self, _size: int | None = -1, /) -> bytes:
        raise _RowsRequestedError(self)


class _RowsRequestedError(Exception):
    """Arrow begins to read rows: it has accepted the metadata of the columns.

    The argument is the file, so that the file lives longer than all its errors.
    """


def check_metadata(metadata: pq.FileMetaData) -> None:
    """Raise OSError if the metadata of columns contradict one another.

    When reading rows, Arrow raises an error before the first row. When it is asked for the metadata of a
    column, it would end the process.

    Arrow reads on threads of its own, and one error ends the reading. A thread that still has another error
    when Python exits would end the process with SIGABRT, so this waits until all threads have freed theirs.
    """
    file = _NoRows()
    is_freed = threading.Event()
    reference = weakref.ref(file, lambda _: is_freed.set())
    parquet = None
    try:
        parquet = pq.ParquetFile(file, metadata=metadata, pre_buffer=True)
        next(parquet.iter_batches(1, row_groups=range(metadata.num_row_groups)), None)
    except _RowsRequestedError as error:
        # The reader of Arrow keeps the exception, and the traceback refers to the reader: a circle that
        # Python cannot see. Without the traceback, both are freed.
        error.__traceback__ = None

    del parquet, file
    if reference() is not None:
        is_freed.wait(_LONGEST_WAIT)


def _least(column: pq.ColumnChunkMetaData) -> float:
    """Return the bytes of the values of a column: the size in the metadata, or a number or offset each."""
    numbers = column.num_values * _WIDTHS.get(column.physical_type, 1)
    return max(float(numbers), float(column.total_uncompressed_size))


def _fixed(kind: pa.DataType) -> float:
    """Return the bytes of memory that each row needs, whatever the values are."""
    if pa.types.is_fixed_size_list(kind):
        return float(kind.list_size) * _fixed(kind.value_type)
    if pa.types.is_primitive(kind):
        return float(kind.bit_width) / 8

    return 4.0


@contextmanager
def open_checked(store: SnapshotStore, listed: ListedFile) -> Iterator[BinaryIO]:
    """Open a listed file after comparing every byte with the hash. Raise FileNotFoundError if missing."""
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
    """Return the bytes of a listed file after comparing the hash; raises as `open_data_file`."""
    with open_checked(store, listed) as file:
        return file.read()


def problem_of(store: SnapshotStore, listed: ListedFile) -> str:
    """Read every byte of a listed file, and return the problem with it; "" if it is unchanged."""
    try:
        with store.open(listed.path) as file:
            is_unchanged = digest(file) == (listed.sha256, listed.bytes)
    except FileNotFoundError:
        return "missing"
    except SnapshotDamagedError as error:
        return error.got or "no regular file"
    except OSError as error:
        # EIO is a defect of the disk below this file, which is damage. Other errors, for example a missing
        # permission, are a problem of the reader.
        if error.errno != errno.EIO:
            raise
        return "unreadable: the disk reports an input/output error"

    if is_unchanged:
        return ""

    return "other bytes than were written"


@contextmanager
def open_data_file(
    store: SnapshotStore, listed: ListedFile, schema: pa.Schema | None
) -> Iterator[DataFile]:
    """Open a data file. Raise SnapshotDamagedError if bytes, rows or columns differ from the manifest."""
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
    store: SnapshotStore,
    listed: ListedFile,
    rows: int,
    actual: pa.Schema,
    expected: pa.Schema | None,
) -> None:
    """Raise SnapshotDamagedError if rows or columns differ from the manifest, and for extension types."""
    if rows != listed.rows:
        raise damage_error(store, listed, f"{rows:,} rows", f"{listed.rows:,} rows")

    if extension := extension_column(actual):
        raise damage_error(
            store, listed, f"the extension type of {extension!r}", "plain Arrow types"
        )

    if expected is not None and not actual.equals(expected, check_metadata=False):
        raise damage_error(
            store, listed, "other columns or types", "the columns of the first file"
        )


def stored_failures(
    store: SnapshotStore,
    manifest: Manifest,
    listed: ListedFile,
    columns: Sequence[str] = tuple(STORED_FAILURES.names),
) -> Iterator[pa.Table]:
    """Yield the rows of a file of failures with some of the current columns; raises as `open_data_file`."""
    if not manifest.is_older:
        with open_data_file(store, listed, STORED_FAILURES) as parquet:
            yield from parquet.tables(columns)
        return

    with open_data_file(store, listed, None) as parquet:
        for rows in parquet.tables():
            yield _current_failures(rows).select(columns)


def _current_failures(rows: pa.Table) -> pa.Table:
    """Return stored failures of an older version with the columns of today.

    Until version 6, `failed_at` was whatever the destination's clock stated. It is bounded by the time of the
    first load now.
    """
    has_bounded_times = schemas.STATED_FAILED_AT in rows.column_names
    rows = current_columns(rows, "failures")
    if has_bounded_times:
        return rows

    stated, created_at, first_seen_at, max_retries = (
        rows[name].combine_chunks()
        for name in (schemas.FAILED_AT, "created_at", FIRST_SEEN_AT, "max_retries")
    )
    times = bounded_times(
        stated, created_at, first_seen_at, lambda: max_retries
    )._asdict()
    for name, values in times.items():
        position = rows.schema.get_field_index(name)
        rows = rows.set_column(position, rows.schema.field(name), values)

    return rows


def damage_error(
    store: SnapshotStore, listed: ListedFile, got: str, expected: str
) -> SnapshotDamagedError:
    """Return the error for a listed file that differs from the manifest."""
    return SnapshotDamagedError(
        f"reading {listed.path!r} of the snapshot {store}",
        got=got,
        expected=expected,
        next_step=RESTORE,
    )


def missing_file_error(
    store: SnapshotStore, error: FileNotFoundError
) -> SnapshotDamagedError:
    """Return the error for a file that the manifest lists and the store does not have."""
    return SnapshotDamagedError(
        f"reading the snapshot {store}",
        got=f"no file {error.filename!r}",
        expected="every file that the manifest lists",
        next_step=RESTORE,
    )


def check_written(
    store: SnapshotStore, name: str, *, sha256: str, rows: int | None = None
) -> None:
    """Read a new file again. Raise SnapshotError if the disk returns other bytes than were written."""
    with store.open(name) as file:
        checksum, _ = digest(file)
        if checksum == sha256 and (
            rows is None or pq.read_metadata(file).num_rows == rows
        ):
            return

    raise SnapshotError(
        f"writing the snapshot {store}",
        got="a new file with other bytes than were written",
        expected=f"the hash {sha256[:12]}…",
        next_step="Check the disk. The snapshot is unchanged.",
    )


def extension_column(parent: pa.Schema | pa.DataType) -> str | None:
    """Return the name of the first field of an extension type, at any depth, or None.

    Reading an extension type may run code that the file names.
    """
    count = len(parent) if isinstance(parent, pa.Schema) else parent.num_fields
    for field in map(parent.field, range(count)):
        if isinstance(field.type, pa.BaseExtensionType) or b"ARROW:extension:name" in (
            field.metadata or {}
        ):
            return str(field.name)

        if inner := extension_column(field.type):
            return inner

    return None


def current_names(names: Iterable[str]) -> list[str]:
    """Return the current names of columns of any version. Columns of a known table have its current order.

    >>> current_names(["body", "body_bytes"])
    ['body', 'body_base64']
    """
    current: list[str] = []
    for name in names:
        current += _RENAMED.get(name, (name,))
    for table in TABLES:
        # columns that later versions have added may be missing
        if set(table.names) == {*current, *schemas.ADDED & {*table.names}}:
            return list(table.names)

    return current


def current_scope(manifest: Manifest) -> dict[str, Any]:
    """Return the scope that a snapshot is bound to, with the current names of columns."""
    if not manifest.is_older or "columns" not in manifest.scope:
        return manifest.scope
    return manifest.scope | {"columns": current_names(manifest.scope["columns"])}


def current_columns(table: pa.Table, kind: Kind) -> pa.Table:
    r"""Return rows of an older schema version with the current columns. Unchanged columns are not copied.

    In versions 1 to 4, headers were maps, labels were lists, bodies that are not UTF-8 were bytes, and the
    times between which an entry left the queue were a struct. The index was different as well: a sync makes
    it again from the rows.

    >>> old = pa.table({"labels": [["eu", "beta"], []], "body_bytes": [b"\xff", None]})
    >>> current_columns(old, "frame").to_pylist()
    [{'labels': '["eu","beta"]', 'body_base64': '/w=='}, {'labels': None, 'body_base64': None}]
    """
    columns: dict[str, pa.ChunkedArray] = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        columns |= zip(_RENAMED.get(name, (name,)), _current(name, column), strict=True)
    if kind == "failures":
        columns = _null_columns(STORED_FAILURES, table.num_rows) | columns
    names = current_names(columns)
    schema = next((known for known in TABLES if known.names == names), None)
    if schema is None:
        types = {name: column.type for name, column in columns.items()}
        if types == dict(zip(table.schema.names, table.schema.types, strict=True)):
            return table
        return pa.table({name: columns[name] for name in names})

    columns = _null_columns(schema, table.num_rows) | columns
    if "extra" in names:
        columns |= {name: _empty_as_null(name, columns[name]) for name in names}
    return pa.table({name: columns[name] for name in names}, schema=schema)


def _null_columns(schema: pa.Schema, rows: int) -> dict[str, pa.Array]:
    return {field.name: pa.nulls(rows, field.type) for field in schema}


def _empty_as_null(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without empty strings, which are missing values today; only bodies can be empty."""
    if not pa.types.is_string(column.type) or name in _BODIES:
        return column
    return pc.if_else(pc.equal(column, ""), None, column)


def _current(name: str, column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """Return the current columns that replace a column; `gone_between` has become two columns."""
    kind = column.type
    if name == "gone_between":
        times = [
            pc.struct_field(column, part) for part in ("last_seen", "first_missed")
        ]
        return [time.cast(schemas.TIME) for time in times]

    if name in _RENAMED:
        return [_as_strings(column, lambda content: base64.b64encode(content).decode())]

    if pa.types.is_map(kind):
        return [
            _as_strings(
                column, lambda headers: msgspec.json.encode(dict(headers)).decode()
            )
        ]

    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        return [_as_strings(column, lambda labels: labels_json(labels, None))]

    return [column]


def _as_strings(
    column: pa.ChunkedArray, convert: Callable[[Any], str | None]
) -> pa.ChunkedArray:
    """Convert the values of a column to strings; null values stay null."""
    strings = [
        None if value is None else convert(value) for value in column.to_pylist()
    ]
    return pa.chunked_array([pa.array(strings, pa.string())])

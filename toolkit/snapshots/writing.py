"""Write snapshots of one frame or of the vectors of an index. A new write replaces all rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow.fs import FileSystem

from toolkit.base.arguments import instance
from toolkit.base.errors import IncompleteLoadWarning, InputError
from toolkit.base.progress import ProgressOption
from toolkit.loading.identities import identities
from toolkit.loading.load import Batch, Load
from toolkit.loading.options import CONNECTIONS, LoadOptions
from toolkit.loading.vector_names import Namespaces, Prefixes
from toolkit.loading.vectors import open_vectors
from toolkit.secrets.redaction import Redactor
from toolkit.service.settings import Service
from toolkit.service.vectors import VectorParts
from toolkit.snapshots.data_files import TABLES, DataFile, Part, extension_column
from toolkit.snapshots.manifest import PendingFile, StoredCheckpoint
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.resumable import ResumableLoad, Spool
from toolkit.snapshots.row_index import Mask, fingerprints
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.transaction import Transaction, WriteOptions, begin
from toolkit.tables import schemas
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.frame_parts import frame_parts
from toolkit.tables.frames import checked_frame, to_table, warn_of_index
from toolkit.tables.receipt import Receipt
from toolkit.tables.signed_rows import (
    SIGNATURE,
    BodyReader,
    can_be_signed,
    with_signatures,
)
from toolkit.tables.text import JsonDict, JsonTuple, is_clean
from toolkit.tables.vector_dtype import VectorDtype, is_vector, missing

_ROWS: Final = 1_000  # so that row groups do not become much larger than they should
_DOING: Final = "choosing the columns of a snapshot"

_Latest = dict[bytes, tuple[int, bytes]]


def write_snapshot(
    frame: FrameLike,
    path: str | os.PathLike[str],
    *,
    schema: pa.Schema | None = None,
    filesystem: FileSystem | None = None,
) -> None:
    """Write a frame as a snapshot: Parquet files that any reader opens, and a manifest with their hashes.

    If you write a frame of the same load to the same folder, it replaces all rows. To follow failures over
    time, use `sync_failures`; for vectors that do not fit into memory, use `export_vectors`.

    Parameters
    ----------
    frame : frame
        A frame made by the toolkit, rows or columns of one, or a frame with your own columns, of pandas or
        another library. Snapshots, DuckDB relations and Dask frames are read in parts, so that they may be
        larger than memory. Text, numbers, booleans, times and vectors keep the types of their columns; lists
        of results (for example the `ids` of a finding) are written as JSON. The index is not written, and
        only the receipt of ``attrs`` is. The ``error`` column of failures is derived again when the snapshot
        is read. The signature of each failure is stored for analyses of the snapshot: `open_snapshot` shows
        it as ``signature``, `read_snapshot` returns only the columns of the frame.
    path : str or path
        A folder, or an address such as ``s3://bucket/prefix``: new or empty, or a snapshot of frames of the
        same service, scope and columns.
    schema : pyarrow.Schema, optional
        Types to write, if they differ from the types of the columns.
    filesystem : pyarrow.fs.FileSystem, optional
        File system of the path, if it is not on the local disk.

    Raises
    ------
    InputError
        If a column cannot be written; the error names the column and the reason.
    SnapshotBindingError
        If the folder contains a snapshot of another service, scope, kind or columns.
    SnapshotLockedError
        If another writer has locked it.
    SnapshotError
        If writing fails, for example because the disk is full. The snapshot is unchanged.

    Warns
    -----
    UnexpectedResultWarning
        If the index has a name, for example after ``set_index("dlq_id")``: it is not written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import read_snapshot
    >>> frame = pd.DataFrame({"dlq_id": ["a"], "label": ["billing"]})
    >>> with TemporaryDirectory() as folder:
    ...     write_snapshot(frame, f"{folder}/labels")
    ...     read_snapshot(f"{folder}/labels")
      dlq_id    label
    0      a  billing
    """
    instance("schema", schema, pa.Schema, "a pyarrow.Schema", optional=True)
    parts_of_frame = frame_parts(frame)
    if parts_of_frame is None:
        frame = checked_frame("frame", frame)
        warn_of_index(frame, stacklevel=2)
    else:
        # the columns are known before the rows are read
        frame = parts_of_frame.empty
    receipt = None
    if isinstance(frame.attrs.get("receipt"), Mapping):
        receipt = Receipt.from_dict(frame.attrs["receipt"])
    if schema is None:
        frame = _with_json(_without_error(frame))
        schema = _schema_of(frame)
    schema = schema.remove_metadata()
    if extension := extension_column(schema):
        raise InputError(
            "writing a snapshot",
            got=f"the extension type of {extension!r}",
            expected="plain Arrow types",
        )
    tables: Iterable[pa.Table] = [to_table(frame, schema)]
    if parts_of_frame is not None:
        rows = parts_of_frame.map(partial(_table_of_part, schema), schema.names)
        tables = chain(tables, rows)
    source = ""
    if receipt:
        source = receipt.source
    # frames of different columns may come from one load: explode_headers makes one
    scope = {"columns": schema.names, "load": receipt.scope if receipt else None}
    with begin(open_store(path, filesystem), "frame", WriteOptions()) as transaction:
        transaction.bind(source, scope)
        transaction.remove_leftovers()
        learned = transaction.learned
        # for analyses of the snapshot; `read_snapshot` omits it
        is_signed = SIGNATURE not in schema.names and can_be_signed(schema)
        reader = BodyReader(Redactor())
        part: Part | None = None
        parts = []
        for unsigned in tables:
            table = unsigned
            if is_signed:
                table, learned = with_signatures(unsigned, learned, reader)
            if part is not None and part.bytes >= transaction.options.part_bytes:
                parts.append(part.finish())
                part = None
            if part is None:
                part = transaction.new_part(table.schema)
            for start in range(0, table.num_rows, _ROWS):
                part.write(table.slice(start, _ROWS))
        receipt_dict = None
        if receipt:
            receipt_dict = receipt.to_dict()
        if part is not None:
            parts.append(part.finish(receipt_dict))
        transaction.commit(
            source=source,
            scope=scope,
            receipt=receipt_dict,
            parts=parts,
            learned=learned,
        )


def export_vectors(
    service: Service,
    path: str | os.PathLike[str],
    *,
    namespace: Namespaces = "all",
    prefix: Prefixes = None,
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
    progress: ProgressOption = None,
    connections: int = CONNECTIONS,
    requests_per_second: float | None = None,
    passes: int = 1,
    filesystem: FileSystem | None = None,
) -> Receipt:
    """Write the vectors of an index to a snapshot. Memory does not depend on the number of vectors.

    Another export of the same index and scope to the same folder replaces all rows. Unlike `sync_failures`,
    it keeps no history.

    Parameters
    ----------
    service : Service
        From `connect`.
    path : str or path
        A folder, or an address such as ``s3://bucket/prefix``: new or empty, or an earlier export of the same
        index and scope. An export of some namespaces may be replaced by an export of all.
    namespace, prefix, include_vectors, include_metadata, include_data
        The vectors to load, and the columns: as in `load_vectors`, all namespaces if you name none.
    progress, connections, requests_per_second, passes
        As in `load_vectors`.
    filesystem : pyarrow.fs.FileSystem, optional
        File system of the path, if it is not on the local disk.

    Returns
    -------
    Receipt
        Counts of the load, and whether it is complete. `read_snapshot` returns the columns of `load_vectors`,
        `open_snapshot` reads them in batches.

    Raises
    ------
    SnapshotBindingError
        If the snapshot belongs to another index or scope.
    SnapshotDamagedError
        If the manifest was changed.
    SnapshotLockedError, SnapshotConflictError, SnapshotError, ServiceError
        As in `sync_failures`.

    Warns
    -----
    IncompleteLoadWarning
        If vectors changed while they were read.

    Notes
    -----
    An interrupted export resumes from a checkpoint, as in `sync_failures`.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> export_vectors(service, mkdtemp() + "/vectors").verdict
    'complete: 2,000 vectors'
    """
    load = open_vectors(
        service,
        LoadOptions(
            progress=progress,
            connections=connections,
            requests_per_second=requests_per_second,
            passes=passes,
        ),
        namespace=namespace,
        prefix=prefix,
        parts=VectorParts(
            vectors=include_vectors, metadata=include_metadata, data=include_data
        ),
    )
    receipt = export_load(
        load,
        open_store(path, filesystem),
        all_namespaces=isinstance(namespace, str) and namespace == "all",
    )
    if not receipt.complete:
        warnings.warn(receipt.verdict, IncompleteLoadWarning, stacklevel=2)
    return receipt


def export_load(
    load: Load, store: SnapshotStore, *, all_namespaces: bool = False, **options: Any
) -> Receipt:
    """Replace the rows of a snapshot by a load of vectors; `options` are passed to `WriteOptions`."""
    plan = load.plan
    scope = plan.scope
    if all_namespaces:
        scope = scope | {"namespaces": "all"}
    with begin(store, "vectors", WriteOptions(batch_bytes=0, **options)) as transaction:
        transaction.bind(plan.source, scope, may_widen=all_namespaces)
        transaction.remove_leftovers()
        resumable = ResumableLoad(transaction, load)
        writer = ExportWriter(transaction, plan.schema, plan.key, resumable.checkpoint)
        return writer.commit(
            source=plan.source, scope=scope, receipt=resumable.read(writer)
        )


class ExportWriter:
    """The destination of the rows of an export: data files of bounded size.

    If a row is read again with other content, the later version is kept until the commit, which writes the
    file of the earlier version again.
    """

    def __init__(
        self,
        transaction: Transaction,
        schema: pa.Schema,
        key: tuple[str, ...],
        checkpoint: StoredCheckpoint | None,
    ) -> None:
        self._transaction = transaction
        self._schema = schema
        self._key = key
        self._files: list[PendingFile] = []
        self._part: Part | None = None
        self._later = Spool(transaction, schema)
        if checkpoint is not None:
            self._files = list(checkpoint.files)
            self._later.files = checkpoint.later
        self.rows = sum(file.rows for file in self._files)

    def add(self, batch: Batch) -> None:
        """Write rows."""
        table = batch.table
        if not table.schema.equals(self._schema):
            raise InputError(
                "writing a snapshot",
                got=f"a table of the schema {table.schema}",
                expected=f"{self._schema}",
            )
        if (
            self._part is None
            or self._part.bytes >= self._transaction.options.part_bytes
        ):
            self._finish()
            self._part = self._transaction.new_part(self._schema)
        self._part.write(table)
        self.rows += table.num_rows

    def add_later(self, table: pa.Table) -> None:
        """Keep later versions of rows that were written before."""
        self._later.add(table)

    def save(self) -> dict[str, Any]:
        """Finish the file that is being written."""
        self._finish()
        return {"files": tuple(self._files), "later": self._later.save()}

    def commit(
        self, *, source: str, scope: dict[str, Any], receipt: Receipt
    ) -> Receipt:
        """Commit the written rows. Return the receipt, with the count of rows read in two versions."""
        if not self._files and self._part is None:
            self._part = self._transaction.new_part(self._schema)
        rewritten: dict[int, Part] = {}
        if self._later.rows:
            self._finish()
            rewritten, changed = self._written_again()
            receipt = replace(
                receipt,
                changed=changed,
                duplicates=max(0, receipt.duplicates - changed),
            )
        receipt_dict = receipt.to_dict()
        self._finish(receipt_dict)
        parts = list(self._files)
        for number, part in rewritten.items():
            parts[number] = part.finish(receipt_dict)
        self._transaction.commit(
            source=source, scope=scope, receipt=receipt_dict, parts=parts
        )
        return receipt

    def _finish(self, receipt: dict[str, Any] | None = None) -> None:
        if self._part is not None:
            self._files.append(self._part.finish(receipt))
            self._part = None

    def _written_again(self) -> tuple[dict[int, Part], int]:
        """Write the files with an earlier version of a row again.

        Return the new parts by the number of the file, and the number of changed rows.
        """
        latest = self._latest()
        rewritten: dict[int, Part] = {}
        changed = 0
        for number, file in enumerate(self._files):
            wanted = np.zeros(self._later.rows, dtype=bool)
            for table in self._tables(file):
                wanted[[later for _, later in self._outdated(table, latest)]] = True
            if wanted.any():
                changed += int(wanted.sum())
                rewritten[number] = self._rewritten_file(file, latest, wanted)
        return rewritten, changed

    def _rewritten_file(self, file: PendingFile, latest: _Latest, wanted: Mask) -> Part:
        """Write a file again with the later versions of rows; `wanted` is a mask of the later rows."""
        tables = self._later.tables(wanted)
        later = pa.concat_tables(
            table.filter(pa.array(wanted[start : start + table.num_rows]))
            for start, table in tables
        )
        positions = np.cumsum(wanted) - 1  # of each wanted row in `later`
        part = self._transaction.new_part(self._schema)
        for table in self._tables(file):
            # rows of the table, or rows of `later` after them
            rows = np.arange(table.num_rows)
            for row, later_row in self._outdated(table, latest):
                rows[row] = table.num_rows + positions[later_row]
            part.write(pa.concat_tables([table, later]).take(pa.array(rows)))
        return part

    def _latest(self) -> _Latest:
        """Return, by id, the number of the latest version among the later rows, and the fingerprint."""
        latest: _Latest = {}
        for start, table in self._later.tables():
            contents = zip(
                identities(table, self._key), fingerprints(table).tolist(), strict=True
            )
            latest.update(
                (key, (start + row, content))
                for row, (key, content) in enumerate(contents)
            )
        return latest

    def _outdated(self, table: pa.Table, latest: _Latest) -> Iterator[tuple[int, int]]:
        """Yield each row that has a different, later version, and the number of the later version."""
        repeated = [
            (row, *latest[key])
            for row, key in enumerate(identities(table, self._key))
            if key in latest
        ]
        if not repeated:
            return
        rows = table.take(pa.array([row for row, _, _ in repeated], pa.int64()))
        for (row, later, content), before in zip(
            repeated, fingerprints(rows).tolist(), strict=True
        ):
            if content != before:
                yield row, later

    def _tables(self, file: PendingFile) -> Iterator[pa.Table]:
        with self._transaction.store.open(file.path) as source:
            yield from DataFile(source).tables()


def _table_of_part(schema: pa.Schema, part: pd.DataFrame) -> pa.Table:
    """Return a part of a frame as a table of the columns that are written."""
    return to_table(_with_json(part), schema)


def _without_error(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of failures without `error`, which is derived again when the snapshot is read.

    If `error` is not next to the status, it is a column of the caller, and stays.
    """
    names = list(frame.columns)
    has_all_columns = {schemas.ERROR, *schemas.FAILURES.names}.issubset(names)
    if has_all_columns and names[names.index(schemas.ERROR) - 1] == "response_status":
        return frame.drop(columns=schemas.ERROR)
    return frame


def _with_json(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with structured values of results as JSON."""
    kinds = (JsonDict, JsonTuple)
    if not frame.columns.is_unique:
        return frame
    columns = {}
    for name, dtype in frame.dtypes.items():
        if not isinstance(name, str) or not pd.api.types.is_object_dtype(dtype):
            continue
        if any(isinstance(value, kinds) for value in frame[name]):
            columns[name] = [
                str(value) if isinstance(value, kinds) else value
                for value in frame[name]
            ]
    return frame.assign(**columns)


def _schema_of(frame: pd.DataFrame) -> pa.Schema:
    """Return the Arrow types of the columns of a frame; for a table of the toolkit, the schema of the table.

    Types are never inferred from values. A column of objects is written if all values are strings or missing.
    """
    _check_names(frame)
    names = list(frame.columns)
    schema = pa.schema([pa.field(name, _type(frame[name])) for name in names])
    dimension = getattr(frame.dtypes.get("vector"), "dimension", None)
    for table in (*TABLES, schemas.vectors(dimension), schemas.hits(dimension)):
        if names == table.names and schema.types == table.types:
            return table
    return schema


def _check_names(frame: pd.DataFrame) -> None:
    """Raise InputError unless a frame has columns, and their names are unique strings."""
    names = list(frame.columns)
    invalid = [
        name for name in names if not isinstance(name, str) or not is_clean(name)
    ]
    repeated = sorted({name for name in names if names.count(name) > 1} - set(invalid))
    if invalid:
        problem = f"names that are not text, such as {invalid[0]!r}"
    elif repeated:
        problem = f"{', '.join(repeated)} more than once"
    elif not names:
        problem = "a frame without columns"
    else:
        return
    raise InputError(
        _DOING,
        got=problem,
        expected="columns whose names are unique strings",
        next_step="Rename them, for example with frame.rename(columns=str).",
    )


def _type(column: pd.Series[Any]) -> pa.DataType:
    """Return the Arrow type of a column. Raise InputError if it cannot be written."""
    kind = column.dtype
    if isinstance(kind, VectorDtype):
        return kind.arrow_type
    if isinstance(kind, pd.CategoricalDtype):
        return _type(column.cat.categories.to_series(name=column.name))
    if isinstance(kind, pd.StringDtype):
        return pa.string()
    if pd.api.types.is_object_dtype(kind):
        _check_strings(column)
        return pa.string()
    try:
        inferred = pa.Array.from_pandas(column.iloc[:0]).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        inferred = pa.null()
    is_plain = not (pa.types.is_nested(inferred) or pa.types.is_null(inferred))
    if not is_plain or isinstance(inferred, pa.BaseExtensionType):
        raise _unwritable(column, f"values of the type {kind}")
    return inferred


def _check_strings(column: pd.Series[Any]) -> None:
    """Raise InputError if a column of objects contains values that are neither strings nor missing."""
    others = [
        value for value in column if not (isinstance(value, str) or missing(value))
    ]
    if not others:
        return
    next_step = _CONVERT
    if all(map(is_vector, others)):
        name = VectorDtype("float32", len(others[0])).name
        next_step = f"Vectors have a type: frame[{column.name!r}].astype({name!r})."
    kinds = ", ".join(sorted({type(value).__name__ for value in others}))
    raise _unwritable(column, f"objects of the type {kinds}", next_step)


_CONVERT: Final = "Convert it, for example with frame[name].astype(str), leave it out, or pass schema=."


def _unwritable(
    column: pd.Series[Any], got: str, next_step: str = _CONVERT
) -> InputError:
    return InputError(
        _DOING,
        got=f"{column.name!r} with {got}",
        expected="text, numbers, booleans, times or vectors",
        next_step=next_step,
    )

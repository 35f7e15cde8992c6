"""Writing snapshots whose rows are replaced as a whole: one frame, or the vectors of an index."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow.fs import FileSystem

from toolkit.arguments import instance
from toolkit.client.vectors import VectorParts
from toolkit.errors import IncompleteLoadWarning, InputError
from toolkit.loading.identities import identities
from toolkit.loading.load import Batch, Load
from toolkit.loading.options import CONNECTIONS, LoadOptions
from toolkit.loading.vectors import Namespaces, Prefixes, open_vectors
from toolkit.progress import ProgressOption
from toolkit.receipt import Receipt
from toolkit.redaction import Redactor
from toolkit.settings.service import Service
from toolkit.signatures.signed_rows import SIGNATURE, BodyReader, can_be_signed, with_signatures
from toolkit.snapshots.data_files import TABLES, DataFile, Part, extension_column
from toolkit.snapshots.manifest import PendingFile, StoredCheckpoint
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.resumable import ResumableLoad, Spool
from toolkit.snapshots.row_index import fingerprints
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.transaction import Transaction, WriteOptions, begin
from toolkit.tables import schemas
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.frames import checked_frame, to_table, warn_of_index
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
    """Keep a frame as a snapshot: Parquet that any reader opens, and a manifest that says when it is whole.

    A frame of the same load written to the same folder replaces what is there, as a whole. For failures that
    are to be followed over time there is `sync_failures`; for vectors beyond memory, `export_vectors`.

    Parameters
    ----------
    frame : pandas.DataFrame, or a frame that hands over Arrow
        A frame made by the toolkit, rows or columns of one, or one with columns of your own: text, numbers,
        booleans, times and vectors are kept as their columns' types say, and lists of results (such as the
        `ids` of a finding) as JSON text. Its index is not kept; of its
        ``attrs``, only the receipt is. The ``error`` column of failures is derived again when it is read.
        With failures, the signature of each is stored once, for analyses of the snapshot; `scan_snapshot`
        shows it as ``signature``, `read_snapshot` returns the columns that were given.
    path : str or path
        A folder, or an address such as ``s3://bucket/prefix``: new or empty, or a snapshot of frames of the
        same service, scope and columns.
    schema : pyarrow.Schema, optional
        Other types than the columns have.
    filesystem : pyarrow.fs.FileSystem, optional
        Where the path is, if not on the local disk.

    Raises
    ------
    InputError
        When a column cannot be kept: it says which and why.
    SnapshotBindingError
        When the folder holds a snapshot of another service, scope, kind or columns.
    SnapshotLockedError
        When another writer holds it.
    SnapshotError
        When the disk refuses. The snapshot is then as it was.

    Warns
    -----
    UnexpectedResultWarning
        When the index has a name, as after ``set_index("dlq_id")``: it is not written.

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
    frame = checked_frame("frame", frame)
    warn_of_index(frame, stacklevel=2)
    instance("schema", schema, pa.Schema, "a pyarrow.Schema", optional=True)
    attached = frame.attrs.get("receipt")
    receipt = Receipt.from_dict(attached) if isinstance(attached, Mapping) else None
    if schema is None:
        frame = _with_json(_without_error(frame))
        schema = _schema_of(frame)
    schema = schema.remove_metadata()
    if extension := extension_column(schema):
        raise InputError(
            "writing a snapshot", got=f"the extension type of {extension!r}", expected="plain Arrow types"
        )
    table = to_table(frame, schema)
    source = receipt.source if receipt else ""
    # frames of different columns may come from one load: explode_headers makes one
    scope = {"columns": schema.names, "load": receipt.scope if receipt else None}
    with begin(open_store(path, filesystem), "frame", WriteOptions()) as transaction:
        transaction.bind(source, scope)
        transaction.remove_leftovers()
        learned = transaction.learned
        if SIGNATURE not in table.column_names and can_be_signed(table.schema):
            # for analyses of the snapshot; `read_snapshot` omits it
            table, learned = with_signatures(table, learned, BodyReader(Redactor()))
        part = transaction.new_part(table.schema)
        for start in range(0, table.num_rows, _ROWS):
            part.write(table.slice(start, _ROWS))
        done = receipt.to_dict() if receipt else None
        parts = [part.finish(done)]
        transaction.commit(source=source, scope=scope, receipt=done, parts=parts, learned=learned)


def export_vectors(
    service: Service,
    path: str | os.PathLike[str],
    *,
    namespace: Namespaces = "",
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
    """Keep the vectors of an index as a snapshot; memory does not depend on how many there are.

    Another export of the same index and scope to the same folder replaces the rows as a whole: there is no
    history, unlike with `sync_failures`.

    Parameters
    ----------
    service : Service
        From `connect`.
    path : str or path
        A folder, or an address such as ``s3://bucket/prefix``: new or empty, or an earlier export of the same
        index and scope.
    namespace, prefix, include_vectors, include_metadata, include_data
        Whose vectors, and what comes with each id: as in `load_vectors`.
    progress, connections, requests_per_second, passes
        As in `load_vectors`.
    filesystem : pyarrow.fs.FileSystem, optional
        Where the path is, if not on the local disk.

    Returns
    -------
    Receipt
        What was read and whether it is complete. `read_snapshot` returns the columns of `load_vectors`,
        `scan_snapshot` reads them in batches.

    Raises
    ------
    SnapshotBindingError
        When the snapshot belongs to another index or scope.
    SnapshotDamagedError
        When its manifest is not as it was written.
    SnapshotLockedError, SnapshotConflictError, SnapshotError, ServiceError
        As in `sync_failures`.

    Warns
    -----
    IncompleteLoadWarning
        When vectors changed while they were read.

    Notes
    -----
    The checkpoint is that of `sync_failures`.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> export_vectors(service, mkdtemp() + "/vectors", namespace="all").verdict
    'complete: 2,000 vectors'
    """
    load = open_vectors(
        service,
        LoadOptions(
            progress=progress, connections=connections, requests_per_second=requests_per_second, passes=passes
        ),
        namespace=namespace,
        prefix=prefix,
        parts=VectorParts(vectors=include_vectors, metadata=include_metadata, data=include_data),
    )
    receipt = export_load(
        load, open_store(path, filesystem), all_namespaces=isinstance(namespace, str) and namespace == "all"
    )
    if not receipt.complete:
        warnings.warn(receipt.verdict, IncompleteLoadWarning, stacklevel=2)
    return receipt


def export_load(load: Load, store: SnapshotStore, *, all_namespaces: bool = False, **options: Any) -> Receipt:
    """Write a load of vectors as the whole of a snapshot; `options` are those of `WriteOptions`."""
    plan = load.plan
    scope = plan.scope | ({"namespaces": "all"} if all_namespaces else {})
    with begin(store, "vectors", WriteOptions(batch_bytes=0, **options)) as transaction:
        transaction.bind(plan.source, scope)
        transaction.remove_leftovers()
        resumable = ResumableLoad(transaction, load)
        writer = ExportWriter(transaction, plan.schema, plan.key, resumable.checkpoint)
        return writer.commit(source=plan.source, scope=scope, receipt=resumable.read(writer))


class ExportWriter:
    """The sink of an export: rows in data files of bounded size; later versions are kept until the commit."""

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
        self._files: list[PendingFile] = list(checkpoint.files if checkpoint else ())
        self._part: Part | None = None
        self._later = Spool(transaction, schema, checkpoint.later if checkpoint else ())
        self.rows = sum(file.rows for file in self._files)

    def add(self, batch: Batch) -> None:
        """Write rows."""
        table = batch.table
        if not table.schema.equals(self._schema):
            raise InputError(
                "writing a snapshot", got=f"a table of the schema {table.schema}", expected=f"{self._schema}"
            )
        if self._part is None or self._part.bytes >= self._transaction.options.part_bytes:
            self._finish()
            self._part = self._transaction.new_part(self._schema)
        self._part.write(table)
        self.rows += table.num_rows

    def add_later(self, table: pa.Table) -> None:
        """Keep the later versions of rows that were written before."""
        self._later.add(table)

    def save(self) -> dict[str, Any]:
        """Finish the file that is being written."""
        self._finish()
        return {"files": tuple(self._files), "later": self._later.save()}

    def commit(self, *, source: str, scope: dict[str, Any], receipt: Receipt) -> Receipt:
        """Commit what was written; the receipt, with the count of rows read in two versions."""
        if not self._files and self._part is None:
            self._part = self._transaction.new_part(self._schema)
        again: dict[int, Part] = {}
        if self._later.rows:
            self._finish()
            again, changed = self._written_again()
            receipt = replace(receipt, changed=changed, duplicates=max(0, receipt.duplicates - changed))
        done = receipt.to_dict()
        self._finish(done)
        parts = [
            again[number].finish(done) if number in again else file for number, file in enumerate(self._files)
        ]
        self._transaction.commit(source=source, scope=scope, receipt=done, parts=parts)
        return receipt

    def _finish(self, receipt: dict[str, Any] | None = None) -> None:
        if self._part is not None:
            self._files.append(self._part.finish(receipt))
            self._part = None

    def _written_again(self) -> tuple[dict[int, Part], int]:
        """New parts by the number of the file with an earlier version of a row; how many rows have one."""
        latest = self._latest()
        again: dict[int, Part] = {}
        changed = 0
        for number, file in enumerate(self._files):
            wanted = np.zeros(self._later.rows, dtype=bool)
            for table in self._tables(file):
                wanted[[later for _, later in self._outdated(table, latest)]] = True
            if not wanted.any():
                continue
            changed += int(wanted.sum())
            tables = self._later.tables(wanted)
            later = pa.concat_tables(
                table.filter(pa.array(wanted[start : start + table.num_rows])) for start, table in tables
            )
            numbers = np.cumsum(wanted) - 1  # of the later rows among those that are wanted
            again[number] = self._transaction.new_part(self._schema)
            for table in self._tables(file):
                rows = np.arange(table.num_rows)
                for row, later_row in self._outdated(table, latest):
                    rows[row] = table.num_rows + numbers[later_row]
                again[number].write(pa.concat_tables([table, later]).take(pa.array(rows)))
        return again, changed

    def _latest(self) -> _Latest:
        """By id, the number of the latest version among the later rows, and its fingerprint."""
        latest: _Latest = {}
        for start, table in self._later.tables():
            contents = zip(identities(table, self._key), fingerprints(table).tolist(), strict=True)
            latest.update((key, (start + row, content)) for row, (key, content) in enumerate(contents))
        return latest

    def _outdated(self, table: pa.Table, latest: _Latest) -> Iterator[tuple[int, int]]:
        """Rows of which there is a different, later version, each with the number of that."""
        outdated = [
            (row, *latest[key]) for row, key in enumerate(identities(table, self._key)) if key in latest
        ]
        if outdated:
            chosen = table.take(pa.array([row for row, _, _ in outdated], pa.int64()))
            for (row, later, content), before in zip(outdated, fingerprints(chosen).tolist(), strict=True):
                if content != before:
                    yield row, later

    def _tables(self, file: PendingFile) -> Iterator[pa.Table]:
        with self._transaction.store.open(file.path) as source:
            yield from DataFile(source).tables()


def _without_error(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame without `error`, where that is derived again: reading inserts it after the status."""
    names = list(frame.columns)
    whole = {schemas.ERROR, *schemas.FAILURES.names}.issubset(names)
    if whole and names[names.index(schemas.ERROR) - 1] == "response_status":
        return frame.drop(columns=schemas.ERROR)
    return frame


def _with_json(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with the JSON text of structured values of results."""
    kinds = (JsonDict, JsonTuple)
    texts = {
        name: [str(value) if isinstance(value, kinds) else value for value in frame[name]]
        for name, dtype in frame.dtypes.items()
        if isinstance(name, str) and pd.api.types.is_object_dtype(dtype) and frame.columns.is_unique
        if any(isinstance(value, kinds) for value in frame[name])
    }
    return frame.assign(**texts)


def _schema_of(frame: pd.DataFrame) -> pa.Schema:
    """The Arrow types of a frame's columns, in their order; of a whole table of the toolkit, its schema.

    Types are never guessed from values; a column of objects is kept where all of them are text or missing.
    """
    names = list(frame.columns)
    invalid = [name for name in names if not isinstance(name, str) or not is_clean(name)]
    repeated = sorted({name for name in names if names.count(name) > 1} - set(invalid))
    problem = "" if names else "a frame without columns"
    if repeated:
        problem = f"{', '.join(repeated)} more than once"
    if invalid:
        problem = f"names that are not text, such as {invalid[0]!r}"
    if problem:
        raise InputError(
            _DOING,
            got=problem,
            expected="columns with names that are text, each once",
            next_step="Rename them, as with frame.rename(columns=str).",
        )
    result = pa.schema([pa.field(name, _type(frame[name])) for name in names])
    dimension = getattr(frame.dtypes.get("vector"), "dimension", None)
    for schema in (*TABLES, schemas.vectors(dimension), schemas.hits(dimension)):
        if names == schema.names and result.types == schema.types:
            return schema
    return result


def _type(column: pd.Series[Any]) -> pa.DataType:
    kind = column.dtype
    if isinstance(kind, VectorDtype):
        return kind.arrow_type
    if isinstance(kind, pd.CategoricalDtype):
        return _type(column.cat.categories.to_series(name=column.name))
    if isinstance(kind, pd.StringDtype):
        return pa.string()
    if pd.api.types.is_object_dtype(kind):
        others = [value for value in column if not (isinstance(value, str) or missing(value))]
        if not others:
            return pa.string()
        next_step = None
        if all(map(is_vector, others)):
            name = VectorDtype("float32", len(others[0])).name
            next_step = f"Vectors have a type: frame[{column.name!r}].astype({name!r})."
        kinds = ", ".join(sorted({type(value).__name__ for value in others}))
        raise _unkept(column, f"objects of the type {kinds}", next_step)
    try:
        inferred = pa.Array.from_pandas(column.iloc[:0]).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        inferred = pa.null()
    kept = not (pa.types.is_nested(inferred) or pa.types.is_null(inferred))
    if not kept or isinstance(inferred, pa.BaseExtensionType):
        raise _unkept(column, f"values of the type {kind}")
    return inferred


def _unkept(column: pd.Series[Any], got: str, next_step: str | None = None) -> InputError:
    return InputError(
        _DOING,
        got=f"{column.name!r} with {got}",
        expected="text, numbers, booleans, times or vectors",
        next_step=next_step or "Convert it, as with frame[name].astype(str), leave it out, or pass schema=.",
    )

"""Export the vectors of an index to a snapshot. Files whose rows have not changed are kept."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from toolkit.base.errors import IncompleteLoadWarning, InputError
from toolkit.base.progress import ProgressOption
from toolkit.loading.identities import identities
from toolkit.loading.load import Batch, Load
from toolkit.loading.options import CONNECTIONS, LoadOptions
from toolkit.loading.vector_names import Namespaces, Prefixes
from toolkit.loading.vectors import open_vectors
from toolkit.service.settings import Service
from toolkit.service.vectors import VectorParts
from toolkit.snapshots.content_chunks import Chunk, ChunkRule, WaitingChunks
from toolkit.snapshots.data_files import DataFile, Part
from toolkit.snapshots.manifest import ListedFile, PendingFile, StoredCheckpoint
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.resumable import ResumableLoad, Spool
from toolkit.snapshots.row_index import Mask, fingerprints
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.transaction import Transaction, WriteOptions, begin, damages
from toolkit.tables.receipt import Receipt
from toolkit.tables.schemas import UNFIT

_OPEN_RANGES: Final = 4
"""Chunks that may wait for their end: this number of namespaces is read in turn."""

_Latest = dict[bytes, tuple[int, bytes]]


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

    Another export of the same index and scope to the same folder replaces all rows, and writes only the files
    whose rows have changed. Unlike `sync_failures`, it keeps no history.

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

    A file contains at most 32 MB of one namespace, or of several small ones. Files whose rows have not
    changed stay as they are. For example, a second export of an unchanged index writes the manifest only, and
    one after a change of one vector writes a file or two.

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
    """The destination of the rows of an export: one data file per chunk, unless an earlier export wrote it.

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
        self._later = Spool(transaction, schema)
        most_bytes = transaction.options.chunk_bytes
        self._most_waiting_bytes = _OPEN_RANGES * most_bytes
        self._waiting = WaitingChunks(ChunkRule.of_schema(schema, most_bytes))
        self._stored = _stored_files(transaction, schema)
        self.rows = 0
        if checkpoint is not None:
            self._resume(checkpoint)

    def add(self, batch: Batch) -> None:
        """Write rows."""
        table = batch.table
        if not table.schema.equals(self._schema):
            raise InputError(
                "writing a snapshot",
                got=f"a table of the schema {table.schema}",
                expected=f"{self._schema}",
            )

        self._add(table)

    def add_later(self, table: pa.Table) -> None:
        """Keep later versions of rows that were written before."""
        self._later.add(table)

    def save(self) -> dict[str, Any]:
        """Write the rows that wait for the end of their chunk to a file of the checkpoint."""
        waiting = Spool(self._transaction, self._schema)
        for table in self._waiting.tables:
            waiting.add(table)
        files = (*self._files, *waiting.save())

        return {"files": files, "later": self._later.save()}

    def commit(
        self, *, source: str, scope: dict[str, Any], receipt: Receipt
    ) -> Receipt:
        """Commit the written rows. Return the receipt, with the count of rows read in two versions."""
        *chunks, last = list(self._waiting.close()) or [Chunk()]
        for chunk in chunks:
            self._write(chunk)
        if last.rows or not self._files:
            self._write(last, receipt.to_dict())
        rewritten: dict[int, Part] = {}
        if self._later.rows:
            rewritten, changed = self._written_again()
            receipt = replace(
                receipt,
                changed=changed,
                duplicates=max(0, receipt.duplicates - changed),
            )

        receipt_dict = receipt.to_dict()
        parts = list(self._files)
        for number, part in rewritten.items():
            parts[number] = part.finish(receipt_dict)
        self._transaction.commit(
            source=source, scope=scope, receipt=receipt_dict, parts=parts
        )

        return receipt

    def _resume(self, checkpoint: StoredCheckpoint) -> None:
        """Continue with the rows of a checkpoint. Files without a name have rows that waited."""
        for file in checkpoint.files:
            if file.name:
                self._files.append(file)
                self.rows += file.rows
                continue

            for _, table in Spool(self._transaction, self._schema, (file,)).tables():
                self._add(table)

        self._later.files = checkpoint.later

    def _add(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        for chunk in self._waiting.add(table):
            self._write(chunk)
        if self._waiting.bytes > self._most_waiting_bytes:
            for chunk in self._waiting.close():
                self._write(chunk)

    def _write(self, chunk: Chunk, receipt: dict[str, Any] | None = None) -> None:
        """Write a chunk to a file, or keep the file that has the same rows."""
        content = chunk.content
        stored = self._stored.pop(content, None)
        if stored is not None:
            self._files.append(stored)
            return

        part = self._transaction.new_part(self._schema)
        for table in chunk.tables:
            part.write(table)
        self._files.append(part.finish(receipt, content=content))

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


def _stored_files(
    transaction: Transaction, schema: pa.Schema
) -> dict[str, PendingFile]:
    """Return the intact files of the previous export by the hash of their rows."""
    manifest = transaction.previous
    if manifest is None or manifest.is_older:
        return {}

    store = transaction.store
    damaged = {damage.listed for damage in damages(store, manifest)}

    stored = {}
    for listed in manifest.files:
        content = ""
        if listed not in damaged:
            content = _content_of(store, listed, schema)
        if content:
            fields = msgspec.structs.asdict(listed)
            stored[content] = PendingFile(name=listed.path, **fields)

    return stored


def _content_of(store: SnapshotStore, listed: ListedFile, schema: pa.Schema) -> str:
    """Return the hash of the rows of a file, which is in the metadata; "" if it is unknown."""
    with suppress(*UNFIT, OSError), store.open_partial(listed.path) as file:
        metadata = pq.read_metadata(file)
        if metadata.schema.to_arrow_schema().equals(schema):
            facts = json.loads((metadata.metadata or {}).get(b"toolkit", b"{}"))
            return str(facts.get("content", ""))

    return ""

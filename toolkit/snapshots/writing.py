"""Keeping one frame as a snapshot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyarrow.fs import FileSystem

from toolkit.arguments import instance
from toolkit.errors import InputError
from toolkit.receipt import Receipt
from toolkit.snapshots.columns import extension_column, schema_of, stored
from toolkit.snapshots.commit import Clock, changing, utc_now
from toolkit.snapshots.datafiles import GROUP_BYTES
from toolkit.snapshots.folder import SnapshotStore
from toolkit.snapshots.manifest import Kind, Manifest
from toolkit.snapshots.object_store import open_store
from toolkit.tables.frames import checked_frame, to_table

_ROWS: Final = 1_000  # so that row groups do not become much larger than they should


def write_snapshot(
    frame: pd.DataFrame,
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
    frame : pandas.DataFrame
        A frame made by the toolkit, rows or columns of one, or one with columns of your own: text, numbers,
        booleans, times and vectors are kept as their columns' types say. Its index is not kept; of its
        ``attrs``, only the receipt is. The ``error`` column of failures is derived again when it is read.
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

    Examples
    --------
    >>> import tempfile
    >>> from toolkit.snapshots.reading import read_snapshot
    >>> from toolkit.tables.frames import frame_from_rows
    >>> from toolkit.tables.schemas import LABELS_EXPLODED
    >>> frame = frame_from_rows([{"dlq_id": "a", "label": "billing"}], LABELS_EXPLODED)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_snapshot(frame, f"{folder}/labels")
    ...     read_snapshot(f"{folder}/labels")
      dlq_id    label
    0      a  billing
    """
    checked_frame("frame", frame)
    if schema is not None:
        instance("schema", schema, pa.Schema, "a pyarrow.Schema")
    found = frame.attrs.get("receipt")
    receipt = Receipt.from_dict(found) if isinstance(found, Mapping) else None
    if schema is None:
        frame = stored(frame)
        schema = schema_of(frame)
    schema = schema.remove_metadata()
    if extension := extension_column(schema):
        raise InputError(
            "writing a snapshot", got=f"the extension type of {extension!r}", expected="plain Arrow types"
        )
    table = to_table(frame, schema)
    slices = (table.slice(start, _ROWS) for start in range(0, table.num_rows, _ROWS))
    write_rows(
        slices,
        open_store(path, filesystem),
        kind="frame",
        schema=schema,
        source=receipt.source if receipt else "",
        # frames of different columns may come from one load: explode_headers makes one
        scope={"columns": schema.names, "load": receipt.scope if receipt else None},
        receipt=lambda: receipt,
    )


def write_rows(
    tables: Iterable[pa.Table],
    folder: SnapshotStore,
    *,
    kind: Kind,
    schema: pa.Schema,
    source: str,
    scope: dict[str, Any],
    receipt: Callable[[], Receipt | None],
    clock: Clock = utc_now,
    group_bytes: int = GROUP_BYTES,
) -> Manifest:
    """Write tables as the whole of a snapshot, replacing the rows that are there.

    Parameters
    ----------
    tables : iterable of pyarrow.Table
        Each exactly of `schema`.
    folder : SnapshotStore
    kind : {"frame", "vectors"}
    schema : pyarrow.Schema
    source, scope
        What the snapshot is bound to.
    receipt : callable
        Gives the receipt, or None; called when the tables are exhausted.
    clock : callable
        Gives the time, with a time zone.
    group_bytes : int
        Bytes of Arrow data in a row group.

    Returns
    -------
    Manifest

    Raises
    ------
    InputError
        When a table does not fit the schema.
    SnapshotError
        See `write_snapshot`.
    """
    with changing(folder, kind, clock=clock, group_bytes=group_bytes) as transaction:
        transaction.bind(source, scope)
        transaction.tidy()
        part = transaction.new_part(schema)
        for table in tables:
            if not table.schema.equals(schema):
                raise InputError(
                    "writing a snapshot", got=f"a table of the schema {table.schema}", expected=f"{schema}"
                )
            part.write(table)
        done = receipt()
        return transaction.commit(source=source, scope=scope, receipt=done.to_dict() if done else None)

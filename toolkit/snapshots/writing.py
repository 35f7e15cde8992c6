"""Keeping one frame as a snapshot."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import pandas as pd
import pyarrow as pa

from toolkit.errors import InputError
from toolkit.receipt import Receipt
from toolkit.snapshots.columns import refuse_extensions, schema_of
from toolkit.snapshots.commit import changing
from toolkit.snapshots.folder import Folder
from toolkit.tables.frames import to_table

_ROWS: int = 50_000


def write_snapshot(frame: pd.DataFrame, path: str | os.PathLike[str], *, schema: pa.Schema | None = None) -> None:
    """Keep a frame as a snapshot: Parquet that any reader opens, and a manifest that says when it is whole.

    A frame of the same load written to the same folder replaces what is there, as a whole. For failures that
    are to be followed over time, see `sync_failures`; for vectors that do not fit in memory, `export_vectors`.

    Parameters
    ----------
    frame : pandas.DataFrame
        A frame made by a loader, or one derived from it. Its index is not kept; of its `attrs`, only the receipt.
    path : str or path
        A local folder: a new or empty one, or a snapshot of frames of the same service, scope and columns.
    schema : pyarrow.Schema, optional
        Columns and types of a frame that is not one of the toolkit's tables.

    Raises
    ------
    InputError
        When the frame has the columns of no known table and no `schema` is given, or a column does not fit.
    SnapshotBindingError
        When the folder holds a snapshot of another service, scope, kind or columns.
    SnapshotLockedError
        When another writer holds it.
    SnapshotError
        When the disk refuses. The snapshot is then as it was.

    Examples
    --------
    >>> import tempfile
    >>> from toolkit.tables.frames import frame_from_rows
    >>> from toolkit.tables.schemas import LABELS_EXPLODED
    >>> frame = frame_from_rows([{"dlq_id": "a", "label": "billing"}], LABELS_EXPLODED)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_snapshot(frame, f"{folder}/labels")
    ...     read_snapshot(f"{folder}/labels")
      dlq_id    label
    0      a  billing
    """
    found = frame.attrs.get("receipt")
    receipt = Receipt.from_dict(found) if isinstance(found, Mapping) else None
    schema = (schema_of(frame) if schema is None else schema).remove_metadata()
    table = to_table(frame, schema)
    slices = (table.slice(start, _ROWS) for start in range(0, table.num_rows, _ROWS))
    write_rows(slices, Folder(path), schema=schema, receipt=receipt)


def write_rows(
    tables: Iterable[pa.Table], folder: Folder, *, schema: pa.Schema, receipt: Receipt | None = None
) -> None:
    """Write tables of one schema as a snapshot, replacing what is there.

    Parameters
    ----------
    tables : iterable of pyarrow.Table
    folder : Folder
    schema : pyarrow.Schema
    receipt : Receipt, optional

    Raises
    ------
    InputError, SnapshotError
        See `write_snapshot`.
    """

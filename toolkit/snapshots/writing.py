"""Write snapshots of one frame or of the vectors of an index. A new write replaces all rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyarrow.fs import FileSystem

from toolkit.base.arguments import instance
from toolkit.base.errors import InputError
from toolkit.secrets.redaction import Redactor
from toolkit.snapshots.data_files import TABLES, Part, extension_column
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.transaction import WriteOptions, begin
from toolkit.tables import schemas
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.column_values import is_clean
from toolkit.tables.frame_parts import frame_parts
from toolkit.tables.frames import checked_frame, to_table, warn_of_index
from toolkit.tables.json_cells import JsonDict, JsonTuple
from toolkit.tables.receipt import Receipt
from toolkit.tables.signed_rows import (
    SIGNATURE,
    BodyReader,
    can_be_signed,
    with_signatures,
)
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

"""Read frames of other libraries: whatever hands over rows as Arrow, for example polars and DuckDB."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from toolkit.tables.schemas import UNFIT


class ArrowStream(Protocol):
    """A frame that hands over its rows as Arrow: an Arrow table, or a frame of polars or DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a stream of Arrow batches."""


FrameLike: TypeAlias = pd.DataFrame | ArrowStream
"""What functions of frames in memory accept."""

_SAME: Final = {
    pa.large_string().id: pa.string(),
    pa.string_view().id: pa.string(),
    pa.large_binary().id: pa.binary(),
    pa.binary_view().id: pa.binary(),
    pa.int8().id: pa.int64(),
    pa.int16().id: pa.int64(),
    pa.int32().id: pa.int64(),
    pa.uint8().id: pa.int64(),
    pa.uint16().id: pa.int64(),
    pa.uint32().id: pa.int64(),
}
"""Types of other libraries, and the types with the same values that the toolkit has."""

_LISTS: Final = frozenset(
    (
        pa.list_(pa.null()).id,
        pa.large_list(pa.null()).id,
        pa.list_view(pa.null()).id,
        pa.large_list_view(pa.null()).id,
    )
)


def arrow_table(value: Any) -> pa.Table | None:
    """Return the rows as an Arrow table with the types that the toolkit has; None if there are no columns.

    Streams that can be read only once are left alone: functions may read their arguments twice.

    >>> arrow_table(pa.record_batch({"id": pa.array(["a"], pa.large_string())})).schema.field("id").type
    DataType(string)
    >>> arrow_table(pa.array([1])) is None
    True
    """
    if isinstance(value, pa.RecordBatch):
        value = pa.table(value)
    library = type(value).__module__.partition(".")[0]
    if library == "polars" and hasattr(value, "collect"):
        value = value.collect()
    is_stream = hasattr(value, "__arrow_c_stream__")
    if isinstance(value, pd.Series | pa.RecordBatchReader) or not is_stream:
        return None

    with suppress(*UNFIT):  # a single column has the same method, but is no table
        return with_plain_types(pa.table(value))
    return None


def conversion(value: object) -> str | None:
    """Return how to convert a value that may be larger than memory, so that the caller has to convert it.

    >>> conversion("snapshots/failures")
    'Pass tk.read_snapshot(path).'
    """
    for kind, advice in _CONVERSIONS_OF_CLASSES:
        if isinstance(value, kind):
            return advice

    for methods, advice in _CONVERSIONS_OF_METHODS:
        if all(hasattr(value, method) for method in methods):
            return advice

    return None


_CONVERSIONS_OF_CLASSES: Final[tuple[tuple[Any, str], ...]] = (
    (str | os.PathLike, "Pass tk.read_snapshot(path)."),
    (
        ds.Dataset,
        "Pass dataset.to_table(), with a filter if it is larger than memory.",
    ),
    (pa.RecordBatchReader, "Pass reader.read_all()."),
)
_CONVERSIONS_OF_METHODS: Final = (
    # an open snapshot
    (("to_arrow", "units"), "Pass tk.read_snapshot(path)."),
    (("to_delayed", "compute"), "Pass frame.compute()."),
    (("to_pandas", "columns"), "Pass frame.to_pandas()."),
)
"""Frames of other libraries, which are not imported, by the methods that they have."""


def with_plain_types(table: pa.Table) -> pa.Table:
    """Return a table with the types that the toolkit has, for example strings in place of large strings."""
    fields = [field.with_type(_plain(field.type)) for field in table.schema]
    schema = pa.schema(fields, metadata=table.schema.metadata)
    with suppress(*UNFIT):  # text of more than 2 GB in one part stays as it is
        return table.cast(schema)
    return table


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if kind.id in _LISTS:
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")  # the same instants

    return _SAME.get(kind.id, kind)

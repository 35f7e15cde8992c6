"""Read frames of other libraries: whatever hands over rows as Arrow, for example polars and DuckDB."""

from __future__ import annotations

import os
from collections.abc import Callable
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

_SAME: Final = (
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_signed_integer, pa.int64()),
    (pa.types.is_uint8, pa.int64()),
    (pa.types.is_uint16, pa.int64()),
    (pa.types.is_uint32, pa.int64()),
)
"""Types of other libraries, and the types with the same values that the toolkit has."""

_LISTS: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_large_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
    pa.types.is_list,
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
    if type(value).__module__.partition(".")[0] == "polars" and hasattr(
        value, "collect"
    ):
        value = value.collect()
    if isinstance(value, pd.Series | pa.RecordBatchReader) or not hasattr(
        value, "__arrow_c_stream__"
    ):
        return None
    with suppress(*UNFIT):  # a single column has the same method, but is no table
        table = value
        if not isinstance(value, pa.Table):
            table = pa.table(value)
        return _with_plain_types(table)
    return None


def conversion(value: object) -> str | None:
    """Return how to convert a value that may be larger than memory, so that the caller has to convert it.

    >>> conversion("snapshots/failures")
    'Pass tk.read_snapshot(path).'
    """
    if isinstance(value, str | os.PathLike):
        return "Pass tk.read_snapshot(path)."
    if isinstance(value, ds.Dataset):
        return "Pass dataset.to_table(), with a filter if it is larger than memory."
    if hasattr(value, "to_arrow") and hasattr(value, "units"):
        return "Pass tk.read_snapshot(path)."
    if isinstance(value, pa.RecordBatchReader):
        return "Pass reader.read_all()."
    if hasattr(value, "to_delayed") and hasattr(value, "compute"):
        return "Pass frame.compute()."
    if hasattr(value, "to_pandas") and hasattr(value, "columns"):
        return "Pass frame.to_pandas()."
    return None


def _with_plain_types(table: pa.Table) -> pa.Table:
    fields = [field.with_type(_plain(field.type)) for field in table.schema]
    schema = pa.schema(fields, metadata=table.schema.metadata)
    with suppress(*UNFIT):  # text of more than 2 GB in one part stays as it is
        return table.cast(schema)
    return table


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if any(is_list(kind) for is_list in _LISTS):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")  # the same instants
    for is_kind, plain in _SAME:
        if is_kind(kind):
            return plain
    return kind

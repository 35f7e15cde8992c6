"""Estimate the memory of columns before they are read, for analyses that need all rows at once.

The number of rows is counted, and the bytes per row are measured on the first rows. For example, 3 million
rows of a snapshot whose first thousand rows take 400 kB need about 1.2 GB, and three times that for the
analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from toolkit.base.errors import NotEnoughMemoryError
from toolkit.loading.memory import available_memory
from toolkit.tables.frame_parts import frame_parts

_FIRST: Final = 1_000
"""Rows that are measured."""

_COPIES: Final = 3
"""Analyses convert columns to pandas and Python values, which take about twice the bytes of Arrow."""


def estimated_bytes(frame: Any, names: Sequence[str]) -> int:
    """Return about the bytes of some columns of a frame that is not in memory.

    >>> estimated_bytes(ds.dataset(pa.table({"n": [1, 2, 3]})), ["n"])
    24
    """
    parts = frame_parts(frame)
    if parts is None:
        return 0

    first = _first_rows(frame, names)
    rows = parts.num_rows
    return int(rows * first.nbytes / max(first.num_rows, 1))


def check_fits(frame: Any, names: Sequence[str], *, doing: str) -> None:
    """Raise NotEnoughMemoryError if some columns of a frame would not fit into memory with their copies."""
    limit = available_memory()
    if limit is None:
        return

    needed = estimated_bytes(frame, names) * _COPIES
    if needed > limit:
        raise NotEnoughMemoryError(
            doing,
            got=f"columns that need about {needed / 1e9:,.1f} GB ({', '.join(names)})",
            expected=f"at most the {limit / 1e9:,.1f} GB that are available, as all rows are needed at once",
            next_step="Pass a part of the rows, for example open_snapshot(path).to_dask(since=…), or the "
            "frame of select_failures.",
        )


def _first_rows(frame: Any, names: Sequence[str]) -> pa.Table:
    """Return the first rows of a dataset, a DuckDB relation or a Dask frame."""
    columns = list(names)
    if isinstance(frame, ds.Dataset):
        return frame.head(_FIRST, columns=columns)
    if hasattr(frame, "to_delayed"):
        return _first_of_partitions(frame[columns])

    parts = frame_parts(frame.limit(_FIRST))
    if parts is None:
        return pa.table({})

    tables = list(parts.tables(columns))
    # a relation without rows has no parts
    return pa.concat_tables(tables) if tables else pa.table({})


def _first_of_partitions(frame: Any) -> pa.Table:
    """Return the first rows of a Dask frame: of the first partition, or of all if that has no rows."""
    first = pa.Table.from_pandas(_head(frame.partitions[0]))
    if first.num_rows:
        return first

    return pa.Table.from_pandas(_head(frame)).slice(0, _FIRST)


def _head(frame: Any) -> pd.DataFrame:
    """Return the first rows of each partition, in one frame."""
    # without `meta`, Dask calls the function with made-up rows to find out the columns
    empty = frame._meta  # noqa: SLF001 - Dask's own libraries read it
    first_rows = frame.map_partitions(pd.DataFrame.head, _FIRST, meta=empty)
    found: pd.DataFrame = first_rows.compute()
    return found

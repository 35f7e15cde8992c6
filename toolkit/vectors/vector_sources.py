"""Read vectors of any engine in small Arrow batches, so that their number does not decide the memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa

from toolkit.failures.selection import scanned
from toolkit.tables.arrow_input import arrow_table
from toolkit.tables.frame_parts import FrameParts, frame_parts

OpenedVectors: TypeAlias = pa.Table | FrameParts
"""Vectors in memory, or in files and other engines."""


def opened_vectors(vectors: Any, *, doing: str, name: str) -> Any:
    """Return the parts of a snapshot or of another engine, or an Arrow table of other frames.

    A pandas frame, a matrix, and values of other types are returned unchanged.
    """
    source = scanned(vectors, doing=doing, name=name)
    parts = frame_parts(source)
    if parts is not None:
        return parts
    if isinstance(source, pd.DataFrame):
        return source

    table = arrow_table(source)
    return source if table is None else table


def batches_of(
    vectors: OpenedVectors, names: Sequence[str], most: int
) -> Iterator[pa.RecordBatch]:
    """Yield some columns of all rows in batches with at most `most` rows."""
    columns = list(names)
    for table in _tables_of(vectors, columns):
        yield from table.select(columns).to_batches(max_chunksize=most)


def _tables_of(vectors: OpenedVectors, columns: list[str]) -> Iterator[pa.Table]:
    if isinstance(vectors, FrameParts):
        return vectors.tables(columns)
    return iter([vectors])

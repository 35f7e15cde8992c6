"""Vectors of whatever kind a user has, in batches: frames, Arrow, snapshots, datasets and matrices."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from toolkit.analysis.selection import scanned
from toolkit.arguments import shown
from toolkit.errors import InputError
from toolkit.tables.frames import UNFIT
from toolkit.tables.vectors import is_numbers

Matrix = npt.NDArray[np.float32]
VectorSource: TypeAlias = pd.DataFrame | pa.Table | ds.Dataset | str | os.PathLike[str] | npt.NDArray[Any]

BATCH: Final = 8_192
_NAMES: Final = ("namespace", "id", "vector", "data", "metadata")


@dataclass(frozen=True, eq=False)
class VectorBatch:
    """Some rows of an index; texts are empty strings where a row has none."""

    namespaces: list[str]
    ids: list[str]
    dense: list[tuple[npt.NDArray[np.intp], Matrix]]
    """For each dimension: the positions of rows of that dimension, and their vectors."""
    has_data: npt.NDArray[np.bool_]
    data: list[str]
    metadata: list[str | None]


class VectorTables:
    """Rows of `vectors`, counted now and read in batches each time they are iterated over."""

    def __init__(self, vectors: VectorSource, *, doing: str, name: str = "vectors") -> None:
        self._doing, self._name = doing, name
        if isinstance(vectors, str | os.PathLike):
            vectors = scanned(vectors, doing=doing, name=name)
        if isinstance(vectors, pa.RecordBatch):
            vectors = pa.table(vectors)
        if isinstance(vectors, np.ndarray):
            vectors = self._table_of_matrix(vectors)
        elif isinstance(vectors, pd.DataFrame):
            vectors = self._table_of_frame(vectors)
        if not isinstance(vectors, pa.Table | ds.Dataset):
            raise self._wrong(shown(vectors), "a frame, an Arrow table, a snapshot or a matrix")
        names = [name for name in vectors.schema.names if name in _NAMES]
        if len(names) > len(set(names)):
            raise self._wrong(f"the columns {', '.join(names)[:200]}", "one of each name")
        if "vector" not in names:
            raise self._wrong(f"the columns {', '.join(vectors.schema.names)[:200]}", "also vector")
        kind = vectors.schema.field("vector").type
        if not (pa.types.is_null(kind) or is_numbers(kind)):
            raise self._wrong(f"a column vector of the type {str(kind)[:80]}", "lists of numbers")
        self._source = vectors
        self.columns = [column for column in _NAMES if column in vectors.schema.names]
        self.rows: int = vectors.count_rows() if isinstance(vectors, ds.Dataset) else vectors.num_rows

    def __iter__(self) -> Iterator[VectorBatch]:
        start = 0
        for batch in self._batches():
            yield _batch(batch, start)
            start += batch.num_rows

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if isinstance(self._source, ds.Dataset):
            yield from self._source.to_batches(columns=self.columns, batch_size=BATCH, batch_readahead=2)
        else:
            yield from self._source.select(self.columns).to_batches(max_chunksize=BATCH)

    def _table_of_matrix(self, matrix: npt.NDArray[Any]) -> pa.Table:
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":  # noqa: PLR2004 - rows and numbers
            raise self._wrong(f"an array of shape {matrix.shape}", "a matrix of numbers, a row a vector")
        with np.errstate(over="ignore"):  # numbers beyond float32 are not finite, as in other containers
            flat = pa.array(np.ascontiguousarray(matrix, dtype=np.float32).reshape(-1))
        if not matrix.shape[1]:
            return pa.table({"vector": pa.nulls(len(matrix))})
        return pa.table({"vector": pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])})

    def _table_of_frame(self, frame: pd.DataFrame) -> pa.Table:
        places = np.flatnonzero(frame.columns.isin(list(_NAMES))).tolist()
        try:
            arrays = [pa.array(frame.iloc[:, place], from_pandas=True) for place in places]
            return pa.Table.from_arrays(arrays, names=frame.columns[places].tolist())
        except UNFIT:
            raise self._wrong("a frame with values of several types in a column", "one type each") from None

    def _wrong(self, got: str, expected: str) -> InputError:
        return InputError(
            self._doing,
            got=f"{got} for {self._name}",
            expected=expected,
            next_step="Use load_vectors, or the path that export_vectors wrote to.",
        )


def _batch(batch: pa.RecordBatch, start: int) -> VectorBatch:
    rows = batch.num_rows
    texts = {name: _texts(batch, name) for name in ("namespace", "data", "metadata")}
    ids = _texts(batch, "id") if "id" in batch.schema.names else [str(start + n) for n in range(rows)]
    return VectorBatch(
        namespaces=[value or "" for value in texts["namespace"]],
        ids=[value or "" for value in ids],
        dense=_dense(batch.column("vector")),
        has_data=np.array([bool(value) for value in texts["data"]], dtype=bool),
        data=[value or "" for value in texts["data"]],
        metadata=texts["metadata"],
    )


def _texts(batch: pa.RecordBatch, name: str) -> list[str | None]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    values: list[Any] = column.to_pylist()
    return values if pa.types.is_string(column.type) else [None if v is None else str(v) for v in values]


def _dense(column: pa.Array) -> list[tuple[npt.NDArray[np.intp], Matrix]]:
    """Positions and vectors of each dimension; rows without a vector are in none."""
    if pa.types.is_null(column.type):
        return []
    present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    kept = column.drop_null()
    flat = kept.flatten().cast(pa.float32()).to_numpy(zero_copy_only=False)  # missing numbers are NaN
    if pa.types.is_fixed_size_list(column.type):
        size = column.type.list_size
        return [(present, flat.reshape(-1, size))] if size and len(present) else []
    lengths = kept.value_lengths().to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    parts = []
    for size in np.unique(lengths[lengths > 0]).tolist():
        chosen = lengths == size
        if chosen.all():
            parts.append((present, flat.reshape(-1, size)))
        else:
            places = (ends[chosen] - size)[:, None] + np.arange(size)
            parts.append((present[chosen], flat[places]))
    return parts

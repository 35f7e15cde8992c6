"""Read a batch of vectors from Arrow: lists of ids, matrices of dense vectors, hashes of sparse ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from toolkit.base.errors import InputError

Matrix = npt.NDArray[np.float32]
Positions = npt.NDArray[np.intp]
Hashes = npt.NDArray[np.uint64]  # equal for equal values, 0 if a row has no value

SPARSE: Final = ("sparse_indices", "sparse_values")


@dataclass(frozen=True, eq=False)
class VectorBatch:
    """Some rows of an index; missing text is an empty string."""

    namespaces: list[str]
    ids: list[str]
    # per dimension: the positions of rows, and their vectors
    dense: list[tuple[Positions, Matrix]]
    sparse: Hashes  # of sparse vectors
    data: list[str]
    metadata: list[str | None]


@dataclass(frozen=True)
class BatchReader:
    """Reads batches with some columns of vectors. Workers of Dask receive it, so it is small."""

    doing: str
    name: str
    columns: tuple[str, ...]
    only_namespace: str | None = None
    """The namespace of all rows, in place of the one in the column."""

    def read(self, batch: pa.RecordBatch, start: int) -> VectorBatch:
        """Return a batch that begins with the row `start`, which is an id if the vectors have no ids."""
        rows = batch.num_rows
        if "id" in batch.schema.names:
            ids = _strings(batch, "id")
        else:
            ids = [str(start + row) for row in range(rows)]

        try:
            sparse = _sparse(batch)
        except ValueError:
            got = "rows with another number of sparse_indices than of sparse_values"
            raise self.wrong(got, "a value for each index") from None

        return VectorBatch(
            namespaces=self._namespaces(batch),
            ids=[vector_id or "" for vector_id in ids],
            dense=_dense(batch.column("vector")),
            sparse=sparse,
            data=[data or "" for data in _strings(batch, "data")],
            metadata=_strings(batch, "metadata"),
        )

    def wrong(self, got: str, expected: str) -> InputError:
        """Return the error for vectors of another form."""
        return InputError(
            self.doing,
            got=f"{got} for {self.name}",
            expected=expected,
            next_step="Use load_vectors, or the path of a snapshot that export_vectors wrote.",
        )

    def _namespaces(self, batch: pa.RecordBatch) -> list[str]:
        if self.only_namespace is not None:
            return [self.only_namespace] * batch.num_rows
        return [namespace or "" for namespace in _strings(batch, "namespace")]


def _strings(batch: pa.RecordBatch, name: str) -> list[str | None]:
    """Return a column as strings; all are None if the batch does not have the column."""
    if name not in batch.schema.names:
        return [None] * batch.num_rows

    column = batch.column(name)
    values: list[Any] = column.to_pylist()
    if pa.types.is_string(column.type):
        return values

    return [None if value is None else str(value) for value in values]


def _dense(column: pa.Array) -> list[tuple[Positions, Matrix]]:
    """Return the positions and vectors of each dimension; rows without a vector are left out."""
    if pa.types.is_null(column.type):
        return []

    present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    kept = column.drop_null()
    # missing numbers are NaN
    flat = kept.flatten().cast(pa.float32()).to_numpy(zero_copy_only=False)

    if pa.types.is_fixed_size_list(column.type):
        size = column.type.list_size
        if not size or not len(present):
            return []
        return [(present, flat.reshape(-1, size))]

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


def _sparse(batch: pa.RecordBatch) -> Hashes:
    """Return a hash per sparse vector, which does not depend on the order of indices.

    Raise ValueError if a row has another number of indices than of values.
    """
    hashes = np.zeros(batch.num_rows, dtype=np.uint64)
    columns = [batch.column(name) for name in SPARSE if name in batch.schema.names]
    if len(columns) < len(SPARSE) or any(
        pa.types.is_null(column.type) for column in columns
    ):
        return hashes

    lengths, values = zip(*(_flat(column) for column in columns), strict=True)
    if (lengths[0] != lengths[1]).any():
        raise ValueError

    # -0.0 becomes 0.0
    bits = (values[1].astype(np.float32) + np.float32(0)).view(np.uint32)
    pairs = pd.util.hash_array(pd.util.hash_array(values[0].astype(np.float64)) + bits)
    np.add.at(hashes, np.repeat(np.arange(batch.num_rows), lengths[0]), pairs)
    hashes[lengths[0] > 0] |= np.uint64(1)  # 0 means no vector

    return hashes


def _flat(column: pa.Array) -> tuple[Positions, npt.NDArray[Any]]:
    """Return how many numbers each row has, and all numbers."""
    lengths = np.zeros(len(column), dtype=np.intp)
    present = column.is_valid().to_numpy(zero_copy_only=False)
    kept = column.drop_null()

    if pa.types.is_fixed_size_list(column.type):
        lengths[present] = column.type.list_size
    else:
        lengths[present] = kept.value_lengths().to_numpy(zero_copy_only=False)

    with np.errstate(over="ignore"):
        return lengths, kept.flatten().to_numpy(zero_copy_only=False)

"""Read frames that may be larger than memory in parts: snapshots, datasets, DuckDB relations, Dask frames.

A function that treats each row alone does not need all rows at once. It calls `frame_parts`, and maps a
function over the parts. Parts of a Dask frame are partitions, and the function runs on the workers:

    snapshot, dataset ── batches ────┐
    DuckDB relation ──── batches ────┼── function of a pandas frame ── results, in the order of the rows
    Dask frame ───────── partitions ─┘

For example, `explode_labels` of a snapshot reads two columns of 50,000 failures at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from itertools import accumulate
from typing import Any, Final, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from toolkit.tables.arrow_input import with_plain_types
from toolkit.tables.dataset_batches import dataset_batches
from toolkit.tables.frames import plain_frame, to_frame
from toolkit.tables.packed_tables import packed, unpacked

Result = TypeVar("Result")

MOST_ROWS: Final = 50_000
"""Rows of a part, except for partitions of Dask. Headers of so many rows are less than 2 GB of text."""

_MOST_BYTES: Final = 1 << 27
"""A part also ends after so many bytes, because bodies can be long."""

_READ_AHEAD: Final = 2
"""Batches that are read ahead."""

_AT_ONCE: Final = 8
"""Partitions that workers compute at once, so that only a few results wait in this process."""

Reader = Callable[[Sequence[str], Callable[[Any], Any]], Iterator[Any]]


@dataclass(frozen=True, eq=False)
class FrameParts:
    """The rows of a frame that is read in parts. Only one part is in memory at a time.

    Attributes
    ----------
    empty : pandas.DataFrame
        All columns without rows. `attrs` has the receipt of a snapshot.
    """

    empty: pd.DataFrame
    _read: Reader
    _count: Callable[[], int] | None = None
    _schema: pa.Schema | None = None
    _on_workers: Callable[..., Iterator[Any]] | None = None
    """Computes a result per partition of Dask, with a function of each partition."""

    def map(
        self, function: Callable[[pd.DataFrame], Result], names: Sequence[str]
    ) -> Iterator[Result]:
        """Yield a result per part, in the order of the rows. Only the named columns are read."""
        return self._read(names, partial(_of_frame, function))

    def tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield each part as an Arrow table."""
        return self._read(names, _as_table)

    def map_numbered(
        self, function: Callable[[pa.Table, int], Result], names: Sequence[str]
    ) -> Iterator[Result]:
        """Yield a result per part, of a function of the table and the number of rows before it.

        For example, the second of two partitions with 100 rows each is passed with the number 100. A function
        that chooses rows by their number then returns the same for every engine.
        """
        if self._on_workers is None:
            return _numbered(function, self.tables(names))

        starts = list(accumulate(self.part_rows, initial=0))[:-1]
        functions = [partial(_of_numbered, function, start) for start in starts]
        return self._on_workers(names, functions)

    @cached_property
    def part_rows(self) -> list[int]:
        """Return the number of rows of each part. One column is read."""
        return list(self.map(len, [self.empty.columns[0]]))

    @property
    def schema(self) -> pa.Schema:
        """Return the columns and types of the tables."""
        if self._schema is not None:
            return self._schema
        return _as_table(self.empty).schema

    @property
    def num_rows(self) -> int:
        """Return the number of rows. Files state it; of other engines, one column is read."""
        if self._count is not None:
            return self._count()
        return sum(self.part_rows)


def _of_frame(function: Callable[[pd.DataFrame], Result], part: Any) -> Result:
    """Return the result of a part, which is a frame on the workers of Dask, and otherwise a table."""
    if isinstance(part, pa.Table):
        part = plain_frame(part)
    return function(part)


def _as_table(part: Any) -> pa.Table:
    if isinstance(part, pa.Table):
        return part

    table = pa.Table.from_pandas(part, preserve_index=False)
    return with_plain_types(table.replace_schema_metadata(None))


def _numbered(
    function: Callable[[pa.Table, int], Result], tables: Iterable[pa.Table]
) -> Iterator[Result]:
    start = 0
    for table in tables:
        yield function(table, start)
        start += table.num_rows


def _of_numbered(
    function: Callable[[pa.Table, int], Result], start: int, part: Any
) -> Result:
    return function(_as_table(part), start)


def frame_parts(value: Any) -> FrameParts | None:
    """Return the parts of a frame that may be larger than memory; None for all other values.

    >>> frame_parts(pd.DataFrame({"dlq_id": ["a"]})) is None
    True
    >>> parts = frame_parts(ds.dataset(pa.table({"dlq_id": ["a", "b"], "url": ["u", "v"]})))
    >>> list(parts.map(len, ["dlq_id"]))
    [2]
    """
    dataset = value
    if _has(value, "to_arrow", "units"):
        dataset = value.to_arrow()  # of a snapshot
    if isinstance(dataset, ds.Dataset):
        return _of_dataset(dataset)

    library = type(value).__module__.partition(".")[0]
    if library == "duckdb" and _has(value, "project"):
        return _of_relation(value)
    if library == "dask" and _has(value, "to_delayed", "columns"):
        return _of_partitions(value)

    return None


def _has(value: object, *methods: str) -> bool:
    return all(hasattr(value, method) for method in methods)


def with_error(part: pd.DataFrame) -> pd.DataFrame:
    """Return a part with the column ``error`` of loaders, if the part has all columns of failures."""
    table = pa.Table.from_pandas(part, preserve_index=False)
    return to_frame(with_plain_types(table))


def _of_dataset(dataset: ds.Dataset) -> FrameParts:
    schema = dataset.schema.remove_metadata()
    empty = plain_frame(schema.empty_table())
    metadata = dataset.schema.metadata or {}
    empty.attrs = json.loads(metadata.get(b"toolkit", b"{}"))
    read = partial(_batches_of_dataset, dataset)

    return FrameParts(empty, read, dataset.count_rows, schema)


def _of_relation(relation: Any) -> FrameParts:
    reader = pa.RecordBatchReader.from_stream(relation.limit(0))
    empty = plain_frame(with_plain_types(reader.schema.empty_table()))
    return FrameParts(empty, partial(_batches_of_relation, relation))


def _of_partitions(frame: Any) -> FrameParts:
    def read(names: Sequence[str], function: Callable[[Any], Any]) -> Iterator[Any]:
        return _partitions(frame, names, [function] * frame.npartitions)

    empty = frame._meta  # noqa: SLF001 - Dask's own libraries read it
    return FrameParts(empty, read, _on_workers=partial(_partitions, frame))


def _batches_of_dataset(
    dataset: ds.Dataset,
    names: Sequence[str],
    function: Callable[[Any], Any],
) -> Iterator[Any]:
    batches = dataset_batches(dataset, names, rows=MOST_ROWS, read_ahead=_READ_AHEAD)
    schema = pa.schema([dataset.schema.field(name) for name in names])
    return _mapped(batches, schema, function)


def _batches_of_relation(
    relation: Any, names: Sequence[str], function: Callable[[Any], Any]
) -> Iterator[Any]:
    quoted = ", ".join('"{}"'.format(name.replace('"', '""')) for name in names)
    reader = pa.RecordBatchReader.from_stream(relation.project(quoted))
    return _mapped(reader, reader.schema, function)


def _mapped(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    function: Callable[[Any], Any],
) -> Iterator[Any]:
    """Yield a result per part of bounded size. Small batches are joined."""
    for waiting in _joined(batches):
        table = pa.Table.from_batches(waiting, schema).replace_schema_metadata(None)
        yield function(with_plain_types(table))


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches that together are a part."""
    part = _JoinedBatches()
    for piece in _pieces(batches):
        if part.would_be_too_large(piece):
            yield part.batches
            part = _JoinedBatches()

        part.add(piece)

    if part.batches:
        yield part.batches


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches with at most `MOST_ROWS` rows."""
    for batch in batches:
        for start in range(0, batch.num_rows, MOST_ROWS):
            yield batch.slice(start, MOST_ROWS)


@dataclass
class _JoinedBatches:
    """Batches that are joined to a part, with the number of rows and bytes."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def would_be_too_large(self, batch: pa.RecordBatch) -> bool:
        """Return whether a further batch belongs to the next part."""
        rows = self.rows + batch.num_rows
        size = self.bytes + batch.nbytes
        return bool(self.batches) and (rows > MOST_ROWS or size > _MOST_BYTES)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch to the part."""
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes


def _partitions(
    frame: Any, names: Sequence[str], functions: Sequence[Callable[[Any], Any]]
) -> Iterator[Any]:
    """Yield a result per partition, which a worker computes. A few partitions are computed at once."""
    dask: Any = import_module("dask")
    tasks = []
    for part, function in zip(frame[list(names)].to_delayed(), functions, strict=True):
        on_worker = partial(_packed_result, function)
        tasks.append(dask.delayed(on_worker, pure=False, traverse=False)(part))

    for start in range(0, len(tasks), _AT_ONCE):
        results = dask.compute(*tasks[start : start + _AT_ONCE])
        yield from map(_unpacked_result, results)


def _packed_result(
    function: Callable[[Any], Any], part: pd.DataFrame
) -> tuple[bool, Any]:
    """Return whether the result of a partition is a table, and the result; tables are packed."""
    result = function(part)
    if isinstance(result, pa.Table):
        return True, packed(result)

    return False, result


def _unpacked_result(sent: tuple[bool, Any]) -> Any:
    is_table, result = sent
    if is_table:
        return unpacked(result)

    return result

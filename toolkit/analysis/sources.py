"""Rows of a frame of any engine: read in Arrow batches, and counted without holding all of them.

An engine only has to yield Arrow batches of some columns. All arithmetic is done here and by the analyses, on
batches and on small tables of counts, so that every engine has the same results.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, Final, Protocol, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from toolkit.errors import InputError, SnapshotError, ToolkitError
from toolkit.loading.memory import memory_errors_named
from toolkit.tables import schemas
from toolkit.tables.arrow_input import ArrowStream
from toolkit.tables.schemas import UNFIT

BATCH_ROWS: Final = 1 << 18
"""Rows that are read, and made smaller, at once."""

_BATCH_BYTES: Final = 1 << 28
"""Rows of so many bytes are a batch, too: long texts would take gigabytes."""

_LONGEST: Final = 300  # characters that an error shows of another
_READ_AHEAD: Final = 4  # batches of a dataset, and files: the defaults hold a gigabyte
_MERGED_ROWS: Final = 1 << 18  # of counts: more are merged when they have doubled
_MERGES: Final = {"count_all": "sum", "sum": "sum", "min": "min", "max": "max"}

_SCHEMAS: Final = (schemas.EVENTS, schemas.RUNS, schemas.CALLBACKS, schemas.FAILURES)
KINDS: Final = dict.fromkeys(("first_seen_at", "gone_after", "gone_before"), "times") | {
    field.name: "times"
    if pa.types.is_timestamp(field.type)
    else "texts"
    if pa.types.is_string(field.type)
    else "numbers"
    for schema in (*_SCHEMAS, schemas.vectors(), schemas.hits())
    for field in schema
    if not (pa.types.is_boolean(field.type) or pa.types.is_list(field.type))
}
"""What the values of a column that loaders write are called."""

Step = Callable[[pa.Table], pa.Table]
_Wanted = dict[str, tuple[Any, str]]


class _Partitions(Protocol):
    """Frames of Dask."""

    def to_delayed(self) -> list[Any]: ...


AnyFrame: TypeAlias = (
    "SelectedRows | str | os.PathLike[str] | pd.DataFrame | ArrowStream | _Partitions | ds.Dataset"
)
"""What analyses accept: a pandas frame, an Arrow table, a snapshot (its path, or what `scan_snapshot`
returned), a DuckDB relation, a Dask frame, or another frame that hands over Arrow."""


@dataclass(frozen=True, eq=False)
class SelectedRows:
    """Some columns of a frame."""

    schema: pa.Schema
    batches: Callable[[Sequence[str], Step], Iterator[pa.Table]]
    steps: tuple[Step, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.schema.names)

    def choose(self, names: Iterable[str]) -> SelectedRows:
        """These columns of the rows; steps before have to do without the others."""
        return replace(self, schema=pa.schema([self.schema.field(name) for name in names]))

    def then(self, step: Step) -> SelectedRows:
        """The same rows with a further step: a function of an Arrow table that adds columns or omits rows."""
        return replace(self, steps=(*self.steps, step))

    def map(self) -> Iterator[pa.Table]:
        """What the steps make of each batch."""
        try:
            with memory_errors_named("reading a frame", next_step="Analyse fewer rows at once."):
                yield from self.batches(self.names, partial(_applied, self.steps))
        except ToolkitError:
            raise
        except OSError as error:
            raise _changed_meanwhile(error) from None
        except UNFIT as error:
            raise InputError(
                "reading a frame", got=str(error)[:120], expected="columns with values of one type each"
            ) from None

    def table(self) -> pa.Table:
        """All rows, as one Arrow table; without rows it has all columns, too."""
        tables = [table.replace_schema_metadata(None) for table in self.map()]
        return pa.concat_tables(tables, promote_options="permissive")

    def count(self, *keys: str, **aggregates: tuple[str, str]) -> pa.Table:
        """How many rows there are of each combination of values: the keys and ``count_`` (int64).

        `aggregates` are further columns: the name of a column, and ``"min"``, ``"max"`` or ``"sum"``. Only
        the result is held, whatever the number of rows. Without keys there is one row.
        """
        wanted: _Wanted = {"count_": ([], "count_all")} | aggregates
        merged = pa.table({})
        waiting: list[pa.Table] = []
        rows = 0
        for table in self.then(partial(_aggregated, keys, wanted)).map():
            waiting.append(table)
            rows += table.num_rows
            if rows > _MERGED_ROWS + 2 * merged.num_rows:
                merged = _merged(keys, wanted, waiting)
                waiting, rows = [merged], 0
        return _merged(keys, wanted, waiting)


def _changed_meanwhile(error: OSError) -> SnapshotError:
    """The error for files that were there when the dataset was opened, and cannot be read now."""
    lost = isinstance(error, FileNotFoundError)
    return SnapshotError(
        "reading a snapshot for an analysis",
        got="a file that was removed meanwhile" if lost else f"{type(error).__name__}: {error}"[:_LONGEST],
        expected="files that stay as they were when it was scanned",
        next_step="A sync may have replaced them: call scan_snapshot again, and repeat the analysis.",
    )


def open_rows(frame: Any) -> SelectedRows | None:
    """All columns of a frame of any engine; None for what is not a frame."""
    if isinstance(frame, SelectedRows):
        return frame
    if isinstance(frame, pd.DataFrame):
        return _pandas(frame)
    if isinstance(frame, ds.Dataset):
        return SelectedRows(frame.schema, partial(_dataset_batches, frame))
    if isinstance(frame, pa.RecordBatch):
        frame = pa.table(frame)
    if isinstance(frame, pa.Table):
        return SelectedRows(frame.schema, partial(_table_batches, frame))
    module = type(frame).__module__.partition(".")[0]
    if module == "dask" and hasattr(frame, "to_delayed") and hasattr(frame, "columns"):
        schema = _pandas_table(frame._meta).schema  # noqa: SLF001 - what Dask's own libraries read
        return SelectedRows(schema, partial(_dask_batches, frame))
    if module == "duckdb" and hasattr(frame, "project"):
        schema = pa.RecordBatchReader.from_stream(frame.limit(0)).schema
        return SelectedRows(schema, partial(_duckdb_batches, frame))
    if module == "polars" and hasattr(frame, "collect"):
        frame = frame.collect()
    if hasattr(frame, "__arrow_c_stream__") and not isinstance(frame, pa.RecordBatchReader):
        with suppress(*UNFIT):  # a single column can also be read as Arrow
            return open_rows(pa.table(frame))
    return None


def _pandas(frame: pd.DataFrame) -> SelectedRows:
    # lone surrogates, which Arrow's names cannot hold, as escapes
    names = [str(name).encode(errors="backslashreplace").decode() for name in frame.columns]
    frame = frame.set_axis(names, axis=1)
    if len(set(names)) < len(names):  # its types are of no use, and nothing is read from it
        schema = pa.schema([(name, pa.null()) for name in names])
    else:
        schema = _pandas_table(frame.iloc[:0]).schema
    return SelectedRows(schema, partial(_frame_batches, frame))


def _frame_batches(frame: pd.DataFrame, names: Sequence[str], step: Step) -> Iterator[pa.Table]:
    return _table_batches(_pandas_table(frame[list(names)]), names, step)


def _pandas_table(frame: pd.DataFrame) -> pa.Table:
    columns = {}
    for name in frame.columns:
        try:
            columns[str(name)] = pa.Array.from_pandas(_plain(frame[name]))
            if pa.types.is_date(columns[str(name)].type) and len(set(map(type, frame[name].dropna()))) > 1:
                raise TypeError("dates and times")  # which Arrow would make dates
        except UNFIT as error:
            raise InputError(
                "reading a frame",
                got=f"column {name} with values of several types ({str(error)[:120]})",
                expected=f"{KINDS.get(name, 'values of one type')} there",
            ) from None
    return pa.table(columns)


def _plain(column: pd.Series[Any]) -> pd.Series[Any]:
    """A column of a type that Arrow has: intervals and periods, as `pandas.cut` makes them, as texts."""
    kind: Any = column.dtype
    if isinstance(kind, pd.SparseDtype):
        return column.astype(kind.subtype)
    values = kind.categories.dtype if isinstance(kind, pd.CategoricalDtype) else kind
    return column.astype("str") if isinstance(values, pd.IntervalDtype | pd.PeriodDtype) else column


def _table_batches(table: pa.Table, names: Sequence[str], step: Step) -> Iterator[pa.Table]:
    table = table.select(list(names))
    for start in range(0, max(table.num_rows, 1), BATCH_ROWS):
        yield step(table.slice(start, BATCH_ROWS))


def _dataset_batches(dataset: ds.Dataset, names: Sequence[str], step: Step) -> Iterator[pa.Table]:
    batches = dataset.to_batches(
        columns=list(names), batch_readahead=_READ_AHEAD, fragment_readahead=_READ_AHEAD
    )
    return _joined(batches, pa.schema([dataset.schema.field(name) for name in names]), step)


def _duckdb_batches(relation: Any, names: Sequence[str], step: Step) -> Iterator[pa.Table]:
    quoted = ", ".join('"{}"'.format(name.replace('"', '""')) for name in names)
    reader = pa.RecordBatchReader.from_stream(relation.project(quoted))
    return _joined(reader, reader.schema, step)


def _dask_batches(frame: Any, names: Sequence[str], step: Step) -> Iterator[pa.Table]:
    dask: Any = import_module("dask")
    read = dask.delayed(partial(_partition, step), pure=False, traverse=False)
    yield from dask.compute(*(read(part) for part in frame[list(names)].to_delayed()))


def _partition(step: Step, frame: pd.DataFrame) -> pa.Table:
    return step(_pandas_table(frame))


def _joined(batches: Iterable[pa.RecordBatch], schema: pa.Schema, step: Step) -> Iterator[pa.Table]:
    """Batches in tables of about `BATCH_ROWS`, or `_BATCH_BYTES`, at least one."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    yielded = False
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= BATCH_ROWS or size >= _BATCH_BYTES:
            yield step(pa.Table.from_batches(waiting, schema))
            waiting, rows, size, yielded = [], 0, 0, True
    if waiting or not yielded:
        yield step(pa.Table.from_batches(waiting, schema))


def _applied(steps: tuple[Step, ...], table: pa.Table) -> pa.Table:
    for step in steps:
        table = step(table)
    return table


def _aggregated(keys: tuple[str, ...], wanted: _Wanted, table: pa.Table) -> pa.Table:
    grouped = table.group_by(list(keys), use_threads=False).aggregate([*wanted.values()])
    names = ["count_all" if not column else f"{column}_{kind}" for column, kind in wanted.values()]
    return pa.table(
        {key: grouped[key] for key in keys}
        | {new: grouped[old] for new, old in zip(wanted, names, strict=True)}
    )


def _merged(keys: tuple[str, ...], wanted: _Wanted, tables: list[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables, promote_options="permissive")
    return _aggregated(keys, {name: (name, _MERGES[kind]) for name, (_, kind) in wanted.items()}, table)

"""Read the rows of a frame of any engine in Arrow batches, and count them batch by batch.

An engine only has to yield Arrow batches of some columns. All arithmetic is done here and by the analyses, on
batches and on small tables of counts, so that every engine has the same results. For example, a Dask frame of
100 million rows is counted by workflow without loading it whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from toolkit import snapshots  # loaded when a cluster may be in use
from toolkit.base.errors import InputError, SnapshotError, ToolkitError
from toolkit.loading.memory import memory_errors_named
from toolkit.tables import schemas
from toolkit.tables.arrow_input import ArrowStream, arrow_table, with_plain_types
from toolkit.tables.schemas import UNFIT

if TYPE_CHECKING:
    from toolkit.snapshots import Snapshot

BATCH_ROWS: Final = 1 << 18
"""Rows that are read, and made smaller, at once."""

_BATCH_BYTES: Final = 1 << 28
"""A batch ends after this number of bytes, because long bodies would take gigabytes."""

_LONGEST: Final = 300  # characters of another error in a message
_READ_AHEAD: Final = 4  # batches of a dataset, and files: the defaults take a gigabyte
_MERGED_ROWS: Final = 1 << 18  # rows of counts that are merged at once
_MERGES: Final = {"count_all": "sum", "sum": "sum", "min": "min", "max": "max"}

_SCHEMAS: Final = (schemas.EVENTS, schemas.RUNS, schemas.CALLBACKS, schemas.FAILURES)


def _kinds() -> dict[str, str]:
    """Return "times", "texts" or "numbers" for each column that loaders write."""
    kinds = dict.fromkeys(("first_seen_at", "gone_after", "gone_before"), "times")
    for field in chain(*_SCHEMAS, schemas.vectors(), schemas.hits()):
        if pa.types.is_timestamp(field.type):
            kinds[field.name] = "times"
        elif pa.types.is_string(field.type):
            kinds[field.name] = "texts"
        elif not (pa.types.is_boolean(field.type) or pa.types.is_list(field.type)):
            kinds[field.name] = "numbers"
    return kinds


KINDS: Final = _kinds()
"""Kinds of values in the columns that loaders write, as errors name them."""

Step = Callable[[pa.Table], pa.Table]
_Wanted = dict[str, tuple[Any, str]]


class _Partitions(Protocol):
    """Frames of Dask."""

    def to_delayed(self) -> list[Any]: ...


AnyFrame: TypeAlias = (
    "SelectedRows | str | os.PathLike[str] | Snapshot | pd.DataFrame | ArrowStream"
    " | _Partitions | ds.Dataset"
)
"""Frames that analyses accept: a pandas frame, an Arrow table, a snapshot (the path, or a value of
`open_snapshot`), a DuckDB relation, a Dask frame, or another frame that exports Arrow."""


@dataclass(frozen=True, eq=False)
class SelectedRows:
    """Some columns of a frame."""

    schema: pa.Schema
    batches: Callable[[Sequence[str], Step], Iterator[pa.Table]]
    steps: tuple[Step, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(self.schema.names)

    def choose(self, names: Iterable[str]) -> SelectedRows:
        """Return some columns of the rows. Earlier steps cannot use the other columns."""
        return replace(
            self, schema=pa.schema([self.schema.field(name) for name in names])
        )

    def then(self, step: Step) -> SelectedRows:
        """Return the rows with a further step: a function of a table that adds columns or omits rows."""
        return replace(self, steps=(*self.steps, step))

    def map(self) -> Iterator[pa.Table]:
        """Yield each batch after all steps."""
        try:
            with memory_errors_named(
                "reading a frame", next_step="Analyse fewer rows at once."
            ):
                yield from self.batches(self.names, partial(_applied, self.steps))
        except ToolkitError:
            raise
        except OSError as error:
            raise _changed_meanwhile(error) from None
        except UNFIT as error:
            raise InputError(
                "reading a frame",
                got=str(error)[:120],
                expected="columns with values of one type each",
            ) from None

    def table(self) -> pa.Table:
        """Return all rows as one Arrow table, which has all columns even if it is empty."""
        tables = [table.replace_schema_metadata(None) for table in self.map()]
        return pa.concat_tables(tables, promote_options="permissive")

    def count(self, *keys: str, **aggregates: tuple[str, str]) -> pa.Table:
        """Count the rows of each combination of values: return the keys and ``count_`` (int64).

        `aggregates` are further columns: the name of a column, and ``"min"``, ``"max"`` or ``"sum"``. Only
        the counts are kept in memory, whatever the number of rows. Without keys, the result has one row.

        For example, ``rows.count("workflow_url", last=("when_", "max"))``.
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
    """Return the error for files that existed when the dataset was opened, and cannot be read now."""
    got = f"{type(error).__name__}: {error}"[:_LONGEST]
    if isinstance(error, FileNotFoundError):
        got = "a file that was removed meanwhile"
    return SnapshotError(
        "reading a snapshot for an analysis",
        got=got,
        expected="unchanged files of the snapshot",
        next_step="A sync may have replaced them: call open_snapshot again, and repeat the analysis.",
    )


def open_rows(frame: Any) -> SelectedRows | None:
    """Return all columns of a frame of any engine; None if the value is not a frame."""
    if isinstance(frame, SelectedRows):
        return frame
    if isinstance(frame, pd.DataFrame):
        return _pandas(frame)
    if isinstance(frame, ds.Dataset):
        return SelectedRows(frame.schema, partial(_dataset_batches, frame))
    if isinstance(frame, pa.Table):
        return SelectedRows(frame.schema, partial(_table_batches, frame))
    if is_partitioned(frame):
        empty = _pandas_table(frame._meta)  # noqa: SLF001 - Dask's own libraries read it
        schema = with_plain_types(empty).schema
        return SelectedRows(schema, partial(_dask_batches, frame))
    if is_relation(frame):
        schema = pa.RecordBatchReader.from_stream(frame.limit(0)).schema
        return SelectedRows(schema, partial(_duckdb_batches, frame))
    return _exported(frame)


def is_partitioned(frame: object) -> bool:
    """Return whether a value is a frame of Dask."""
    is_frame = hasattr(frame, "to_delayed") and hasattr(frame, "columns")
    return _package(frame) == "dask" and is_frame


def is_relation(frame: object) -> bool:
    """Return whether a value is a relation of DuckDB."""
    return _package(frame) == "duckdb" and hasattr(frame, "project")


def is_polars(frame: object) -> bool:
    """Return whether a value is a frame of Polars, lazy or not."""
    return _package(frame) == "polars"


def _package(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _exported(frame: Any) -> SelectedRows | None:
    """Return the rows of another frame that exports Arrow, unless they can be read only once."""
    # For example, strings of Polars are views, with which Arrow cannot compute everything.
    table = arrow_table(frame)
    return None if table is None else open_rows(table)


def _pandas(frame: pd.DataFrame) -> SelectedRows:
    # names in Arrow cannot contain lone surrogates: escape them
    names = [
        str(name).encode(errors="backslashreplace").decode() for name in frame.columns
    ]
    frame = frame.set_axis(names, axis=1)
    if len(set(names)) == len(names):
        schema = _pandas_table(frame.iloc[:0]).schema
    else:  # an error for the caller: nothing is read from it
        schema = pa.schema([(name, pa.null()) for name in names])
    return SelectedRows(schema, partial(_frame_batches, frame))


def _frame_batches(
    frame: pd.DataFrame, names: Sequence[str], step: Step
) -> Iterator[pa.Table]:
    return _table_batches(_pandas_table(frame[list(names)]), names, step)


def _pandas_table(frame: pd.DataFrame) -> pa.Table:
    columns = {}
    for name in frame.columns:
        try:
            columns[str(name)] = _arrow(frame[name])
        except UNFIT as error:
            raise InputError(
                "reading a frame",
                got=f"column {name} with values of several types ({str(error)[:120]})",
                expected=f"{KINDS.get(name, 'values of one type')} there",
            ) from None
    return pa.table(columns)


def _arrow(column: pd.Series[Any]) -> pa.Array:
    """Return a column as Arrow. Raise TypeError for a mixture of dates and times, which Arrow would cut."""
    array = pa.Array.from_pandas(_plain(column))
    if pa.types.is_date(array.type):
        types = set(map(type, column.dropna()))
        if len(types) > 1:
            raise TypeError("dates and times")
    return array


def _plain(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column in a type of Arrow. Intervals and periods become strings, for example "(0, 5]"."""
    dtype: Any = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        return column.astype(dtype.subtype)
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    if isinstance(dtype, pd.IntervalDtype | pd.PeriodDtype):
        return column.astype("str")
    return column


def _table_batches(
    table: pa.Table, names: Sequence[str], step: Step
) -> Iterator[pa.Table]:
    table = table.select(list(names))
    for start in range(0, max(table.num_rows, 1), BATCH_ROWS):
        yield step(table.slice(start, BATCH_ROWS))


def _dataset_batches(
    dataset: ds.Dataset, names: Sequence[str], step: Step
) -> Iterator[pa.Table]:
    batches = dataset.to_batches(
        columns=list(names), batch_readahead=_READ_AHEAD, fragment_readahead=_READ_AHEAD
    )
    return _joined(
        batches, pa.schema([dataset.schema.field(name) for name in names]), step
    )


def _duckdb_batches(
    relation: Any, names: Sequence[str], step: Step
) -> Iterator[pa.Table]:
    quoted = ", ".join('"{}"'.format(name.replace('"', '""')) for name in names)
    reader = pa.RecordBatchReader.from_stream(relation.project(quoted))
    return _joined(reader, reader.schema, step)


def _dask_batches(frame: Any, names: Sequence[str], step: Step) -> Iterator[pa.Table]:
    dask: Any = import_module("dask")
    snapshots.check_versions()
    read = dask.delayed(partial(_partition, step), pure=False, traverse=False)
    parts = (read(part) for part in frame[list(names)].to_delayed())
    yield from map(_aligned, dask.compute(*parts))


def _partition(step: Step, frame: pd.DataFrame) -> pa.Table:
    return step(with_plain_types(_pandas_table(frame)))


def _aligned(table: pa.Table) -> pa.Table:
    """Return a copy of a table in memory that Arrow has allocated.

    The buffers of a table that arrives from another process begin anywhere. Arrow prints a warning for each
    of them when it counts.
    """
    target = pa.BufferOutputStream()
    with pa.ipc.new_stream(target, table.schema) as stream:
        stream.write_table(table)
    return pa.ipc.open_stream(target.getvalue()).read_all()


def _joined(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, step: Step
) -> Iterator[pa.Table]:
    """Yield tables of about `BATCH_ROWS` rows or `_BATCH_BYTES` bytes, at least one table."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    has_yielded = False
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= BATCH_ROWS or size >= _BATCH_BYTES:
            yield step(pa.Table.from_batches(waiting, schema))
            waiting, rows, size, has_yielded = [], 0, 0, True
    if waiting or not has_yielded:
        yield step(pa.Table.from_batches(waiting, schema))


def _applied(steps: tuple[Step, ...], table: pa.Table) -> pa.Table:
    for step in steps:
        table = step(table)
    return table


def _aggregated(keys: tuple[str, ...], wanted: _Wanted, table: pa.Table) -> pa.Table:
    grouped = table.group_by(list(keys), use_threads=False).aggregate(
        [*wanted.values()]
    )
    columns = {key: grouped[key] for key in keys}
    for name, (column, kind) in wanted.items():
        columns[name] = grouped[f"{column}_{kind}" if column else kind]
    return pa.table(columns)


def _merged(keys: tuple[str, ...], wanted: _Wanted, tables: list[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables, promote_options="permissive")
    return _aggregated(
        keys, {name: (name, _MERGES[kind]) for name, (_, kind) in wanted.items()}, table
    )

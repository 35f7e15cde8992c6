"""Read the rows of a frame of any engine in Arrow batches, and reduce them to results batch by batch.

An engine only has to yield Arrow batches of some columns. All arithmetic is done by partial results
(`partial_results.py`) on batches and on small tables, so that every engine has the same results. For example,
a Dask frame of 100 million rows is counted by workflow on the workers, and only the counts arrive here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from toolkit.base.errors import InputError, SnapshotError, ToolkitError
from toolkit.failures import partitions, sql_results
from toolkit.failures.frame_sizes import check_fits
from toolkit.failures.pandas_columns import pandas_schema, pandas_table
from toolkit.failures.partial_results import Counts, PartialResult
from toolkit.failures.partitions import Step, Work, applied
from toolkit.loading.memory import memory_errors_named
from toolkit.tables.arrow_input import ArrowStream, arrow_table, with_plain_types
from toolkit.tables.dataset_batches import dataset_batches
from toolkit.tables.schemas import UNFIT

if TYPE_CHECKING:
    from toolkit.snapshots import Snapshot

BATCH_ROWS: Final = 1 << 18
"""Rows that are read, and made smaller, at once."""

_BATCH_BYTES: Final = 1 << 28
"""A batch ends after this number of bytes, because long bodies would take gigabytes."""

_LONGEST: Final = 300  # characters of another error in a message
_FILE_ROWS: Final = 1 << 17  # rows that are read from a file at once
_READ_AHEAD: Final = 4  # batches of a file that are read while others are made smaller
_MERGED_ROWS: Final = 1 << 18  # rows of counts that are merged at once
_TIMES: Final = tuple(pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns"))


class _Partitions(Protocol):
    """Frames of Dask."""

    def to_delayed(self) -> list[Any]: ...


AnyFrame: TypeAlias = (
    "SelectedRows | str | os.PathLike[str] | Snapshot | pd.DataFrame | ArrowStream"
    " | _Partitions | ds.Dataset"
)
"""Frames that analyses accept: a pandas frame, an Arrow table, a snapshot (the path, or a value of
`open_snapshot`), a DuckDB relation, a Dask frame, or another frame that exports Arrow."""


Batches: TypeAlias = Callable[[Sequence[str], Step], Iterator[pa.Table]]
"""Yields the rows with some columns in parts, each after a step."""


@dataclass(frozen=True, eq=False)
class SelectedRows:
    """Some columns of a frame."""

    schema: pa.Schema
    batches: Batches
    steps: tuple[Step, ...] = ()
    workers: Callable[[Sequence[str], Sequence[Work]], list[pa.Table]] | None = None
    """Reduces rows on workers, and returns the results."""
    computed: Callable[[Work], pa.Table | None] | None = None
    """Computes a result as a query of a database; None if it cannot."""
    skipping: Callable[[str, datetime], Batches] | None = None
    """Returns batches without parts of files before a time; None if the rows are not in files."""
    check: Callable[..., None] | None = None
    """Raises an error if columns do not fit into memory; None if the frame is in memory."""
    in_database: bool = False
    """Whether the rows are in a database, which can find a few of them in one query."""
    has_unique_ids: bool = False
    """Whether no id occurs twice, as in a snapshot."""

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

    def skip_before(self, column: str, start: datetime) -> SelectedRows:
        """Skip rows whose time in a column is before a start, if the files tell where they are.

        This saves time and changes nothing else, so filter the rows nevertheless: other engines, and columns
        of other types, return all rows. Rows without a time are returned. For example, of a month of
        failures in ten row groups, the failures of the last hour are in one.

        Results of these rows are not shared with other analyses, whose readings include all parts of files.
        """
        if self.skipping is None:
            return self
        return replace(self, batches=self.skipping(column, start), computed=None)

    def map(self) -> Iterator[pa.Table]:
        """Yield each batch after all steps."""
        with read_errors_named():
            yield from self.batches(self.names, partial(applied, self.steps))

    def table(self) -> pa.Table:
        """Return all rows as one Arrow table, which has all columns even if it is empty."""
        tables = [table.replace_schema_metadata(None) for table in self.map()]
        return pa.concat_tables(tables, promote_options="permissive")

    def check_memory(self, doing: str) -> None:
        """Raise NotEnoughMemoryError if the rows would not fit into memory. Only the first ones are read."""
        if self.check is not None:
            self.check(self.names, doing=doing)

    def whole_table(self, doing: str) -> pa.Table:
        """Return all rows as `table` does, for an analysis that needs them at once.

        Raise NotEnoughMemoryError before rows are read if they would not fit into memory.
        """
        self.check_memory(doing)
        return self.table()

    def count(self, *keys: str, **aggregates: tuple[str, str]) -> pa.Table:
        """Count the rows of each combination of values: return the keys and ``count_`` (int64).

        `aggregates` are further columns: the name of a column, and ``"min"``, ``"max"`` or ``"sum"``. Only
        the counts are kept in memory, whatever the number of rows. Without keys, the result has one row.

        For example, ``rows.count("workflow_url", last=("when_", "max"))``.
        """
        return self.reduce(Counts(keys, tuple(aggregates.items())))

    def reduce(self, wanted: PartialResult) -> pa.Table:
        """Return a result of all rows, which is computed per batch and merged."""
        return reduce_together([(self, wanted)])[0]

    def computed_elsewhere(self, wanted: PartialResult) -> pa.Table | None:
        """Return a result that a database computes, or None if rows have to be read."""
        if self.computed is None:
            return None
        with read_errors_named():
            return self.computed(Work(self.names, self.steps, wanted))


Request: TypeAlias = tuple[SelectedRows, PartialResult]
"""A result of some columns of a frame."""


def reduce_together(requests: Sequence[Request]) -> list[pa.Table]:
    """Return several results of one frame, which is read once, with the columns of all of them.

    All rows are selected from one value of `opened`. For example,
    ``reduce_together([(rows, Counts(("workflow_url",))), (rows, DistinctValues("workflow_run_id"))])``.
    """
    first = requests[0][0]
    results = [rows.computed_elsewhere(wanted) for rows, wanted in requests]
    remaining = [
        request
        for request, found in zip(requests, results, strict=True)
        if found is None
    ]
    others = iter(_read_together(first, remaining) if remaining else ())

    return [next(others) if found is None else found for found in results]


def _read_together(first: SelectedRows, requests: Sequence[Request]) -> list[pa.Table]:
    """Return results of batches that are read once."""
    # each column once, in the order of the requests
    names = list(dict.fromkeys(chain.from_iterable(rows.names for rows, _ in requests)))
    works = tuple(Work(rows.names, rows.steps, wanted) for rows, wanted in requests)
    with read_errors_named():
        if first.workers is not None:
            return first.workers(names, works)
        merging = [_Merging(work.wanted) for work in works]
        for parts in first.batches(names, partial(_parts, works)):
            for merged, part in zip(merging, parts, strict=True):
                merged.add(part)

        return [merged.result() for merged in merging]


class _Merging:
    """A partial result of all batches so far. It is merged when many rows wait, so that memory is bounded."""

    def __init__(self, wanted: PartialResult) -> None:
        self._wanted = wanted
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._merged_rows = 0

    def add(self, part: pa.Table) -> None:
        self._waiting.append(part)
        self._rows += part.num_rows
        if self._rows > _MERGED_ROWS + 2 * self._merged_rows:
            merged = self._wanted.merge(self._waiting)
            self._waiting, self._rows = [merged], 0
            self._merged_rows = merged.num_rows

    def result(self) -> pa.Table:
        return self._wanted.result(self._wanted.merge(self._waiting))


def _parts(works: tuple[Work, ...], table: pa.Table) -> list[pa.Table]:
    return [work.of_batch(table) for work in works]


@contextmanager
def read_errors_named() -> Iterator[None]:
    """Raise errors of reading as errors of this toolkit."""
    try:
        with memory_errors_named(
            "reading a frame", next_step="Analyse fewer rows at once."
        ):
            yield
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
        return SelectedRows(
            frame.schema,
            partial(_dataset_batches, frame),
            check=partial(check_fits, frame),
            skipping=partial(_recent_batches, frame),
            has_unique_ids=True,
        )

    if isinstance(frame, pa.Table):
        return SelectedRows(frame.schema, partial(_table_batches, frame))

    if is_partitioned(frame):
        empty = pandas_table(frame._meta)  # noqa: SLF001 - Dask's own libraries read it
        schema = with_plain_types(empty).schema
        return SelectedRows(
            schema,
            partial(partitions.batches, frame),
            workers=partial(partitions.reduced, frame),
            check=partial(check_fits, frame),
        )

    if is_relation(frame):
        schema = pa.RecordBatchReader.from_stream(frame.limit(0)).schema
        return SelectedRows(
            schema,
            partial(_duckdb_batches, frame),
            computed=partial(sql_results.result_of, frame),
            check=partial(check_fits, frame),
            in_database=True,
        )

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
    # without `attrs`: pandas would copy the receipt with each selection
    frame = pd.DataFrame(frame, copy=False)
    columns = zip(frame.columns, names, strict=True)
    if any(type(column) is not str or column != name for column, name in columns):
        frame = frame.set_axis(names, axis=1)
    if len(set(names)) == len(names):
        schema = pandas_schema(frame)
    else:  # an error for the caller: nothing is read from it
        schema = pa.schema([(name, pa.null()) for name in names])

    return SelectedRows(schema, partial(_frame_batches, frame))


def _frame_batches(
    frame: pd.DataFrame, names: Sequence[str], step: Step
) -> Iterator[pa.Table]:
    return _table_batches(pandas_table(frame[list(names)]), names, step)


def _table_batches(
    table: pa.Table, names: Sequence[str], step: Step
) -> Iterator[pa.Table]:
    table = table.select(list(names))
    for start in range(0, max(table.num_rows, 1), BATCH_ROWS):
        yield step(table.slice(start, BATCH_ROWS))


def _dataset_batches(
    dataset: ds.Dataset,
    names: Sequence[str],
    step: Step,
    condition: ds.Expression | None = None,
) -> Iterator[pa.Table]:
    batches = dataset_batches(
        dataset, names, rows=_FILE_ROWS, read_ahead=_READ_AHEAD, condition=condition
    )
    schema = pa.schema([dataset.schema.field(name) for name in names])
    return _joined(batches, schema, step)


def _recent_batches(dataset: ds.Dataset, column: str, start: datetime) -> Batches:
    """Return the batches of a dataset without parts whose times are all before a start."""
    condition = None
    if dataset.schema.field(column).type in _TIMES:
        time = ds.field(column)
        condition = (time >= start) | time.is_null()
    return partial(_dataset_batches, dataset, condition=condition)


def _duckdb_batches(
    relation: Any, names: Sequence[str], step: Step
) -> Iterator[pa.Table]:
    quoted = ", ".join('"{}"'.format(name.replace('"', '""')) for name in names)
    reader = pa.RecordBatchReader.from_stream(relation.project(quoted))
    return _joined(reader, reader.schema, step)


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

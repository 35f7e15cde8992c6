"""Results that are computed per batch and merged in any order: the one protocol of all engines.

Each analysis that reads all rows states three functions of small Arrow tables:

    batch ── of_batch ──┐
    batch ── of_batch ──┼── merge ── … ── merge ── result
    batch ── of_batch ──┘

An engine decides where they run. A pandas frame is read batch by batch in this process; the workers of Dask
merge in a tree, so that the client receives the result only; DuckDB computes some of them as SQL.

For example, three partitions with the counts ``{"a": 2}``, ``{"a": 1, "b": 4}`` and ``{"b": 1}`` are merged
to ``{"a": 3, "b": 5}``, in whatever order they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

_MERGES: Final = {"count_all": "sum", "sum": "sum", "min": "min", "max": "max"}
_COUNT: Final = ("count_", ((), "count_all"))

Aggregate: TypeAlias = tuple[Any, str]
"""The name of a column, and ``"min"``, ``"max"`` or ``"sum"``."""


class PartialResult(Protocol):
    """A result that can be merged from partial results of any batches."""

    def of_batch(self, table: pa.Table) -> pa.Table:
        """Return the partial result of some rows."""
        ...

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Return the partial result of all rows of at least one partial result."""
        ...

    def result(self, merged: pa.Table) -> pa.Table:
        """Return the result, when everything is merged."""
        ...


@runtime_checkable
class DividedResult(PartialResult, Protocol):
    """A partial result that can be as large as the rows, and is divided by a hash to be merged in parts."""

    def split(self, state: pa.Table, number: int) -> list[pa.Table]:
        """Divide a partial result by a hash. Equal values are always in the same part."""
        ...

    def total(self, results: Sequence[pa.Table]) -> pa.Table:
        """Return the result of all parts by their results."""
        ...


@runtime_checkable
class QueriedResult(PartialResult, Protocol):
    """A partial result that can also be computed as SQL."""

    def sql(self, rows: str) -> str:
        """Return the query of the result over a query of rows."""
        ...


@dataclass(frozen=True)
class Counts:
    """Counts of each combination of values: the keys, ``count_`` (int64) and further aggregates.

    `keep` may leave out counts that cannot matter to the result, before they are merged and afterwards.
    """

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...] = ()
    keep: Callable[[pa.Table], pa.Table] | None = None

    def of_batch(self, table: pa.Table) -> pa.Table:
        """Count the rows of a batch."""
        return self._kept(_aggregated(self.keys, dict(self._wanted), table))

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Add counts and sums, and choose the smallest and largest values."""
        table = pa.concat_tables(parts, promote_options="permissive")
        wanted = {name: (name, _MERGES[kind]) for name, (_, kind) in self._wanted}
        return self._kept(_aggregated(self.keys, wanted, table))

    def result(self, merged: pa.Table) -> pa.Table:
        """Return the counts."""
        return merged

    @property
    def _wanted(self) -> tuple[tuple[str, Aggregate], ...]:
        return (_COUNT, *self.aggregates)

    def _kept(self, counts: pa.Table) -> pa.Table:
        return counts if self.keep is None else self.keep(counts)


@dataclass(frozen=True)
class FirstRows:
    """The first rows in an order, of each combination of keys or of all: at most `most` of each."""

    order: tuple[tuple[str, str], ...]
    most: int
    keys: tuple[str, ...] = ()

    def of_batch(self, table: pa.Table) -> pa.Table:
        """Return the first rows of a batch."""
        if not self.keys:
            return table.sort_by([*self.order]).slice(0, self.most)

        ordered = table.sort_by(
            [*((key, "ascending") for key in self.keys), *self.order]
        )
        keys = ordered.select(self.keys).to_pandas()
        rank = keys.groupby([*self.keys], dropna=False).cumcount().to_numpy()

        return ordered.filter(pa.array(rank < self.most))

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Return the first rows of several parts."""
        return self.of_batch(pa.concat_tables(parts, promote_options="permissive"))

    def result(self, merged: pa.Table) -> pa.Table:
        """Return the rows."""
        return merged


@dataclass(frozen=True)
class DistinctValues:
    """The number of different values of a column, and of rows that have one; missing values do not count.

    Every value is kept until everything is merged, so that the number is exact. `split` divides the values by
    a hash: workers can count the parts separately, and `total` adds their results.
    """

    column: str

    def of_batch(self, table: pa.Table) -> pa.Table:
        """Count the rows of each value in a batch."""
        rows = table.select([self.column])
        return Counts((self.column,)).of_batch(
            rows.filter(rows[self.column].is_valid())
        )

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Add the rows of each value."""
        return Counts((self.column,)).merge(parts)

    def result(self, merged: pa.Table) -> pa.Table:
        """Return one row with ``distinct`` and ``rows``."""
        rows = pc.sum(merged["count_"]).as_py() or 0
        return pa.table({"distinct": [merged.num_rows], "rows": [rows]})

    def split(self, state: pa.Table, number: int) -> list[pa.Table]:
        """Divide a partial result by a hash of the values. Equal values are always in the same part."""
        return divided_by_hash(state, self.column, number)

    def total(self, results: Sequence[pa.Table]) -> pa.Table:
        """Add the results of the parts of `split`."""
        table = pa.concat_tables(results)
        return pa.table({name: [pc.sum(table[name])] for name in table.column_names})


def divided_by_hash(table: pa.Table, column: str, number: int) -> list[pa.Table]:
    """Divide rows by a hash of a column. Equal values are always in the same part."""
    values = table[column].cast(pa.string()).to_numpy()
    parts = pd.util.hash_array(values, categorize=False) % np.uint64(number)
    return [table.filter(pa.array(parts == part)) for part in range(number)]


def repeated_rows(counted: pa.Table) -> int:
    """Return the number of rows whose value another row has, too, by a result of `DistinctValues`."""
    rows: int = counted["rows"][0].as_py() - counted["distinct"][0].as_py()
    return rows


def _aggregated(
    keys: tuple[str, ...], wanted: Mapping[str, Aggregate], table: pa.Table
) -> pa.Table:
    aggregates = [
        (list(column) if column == () else column, kind)
        for column, kind in wanted.values()
    ]
    grouped = table.group_by(list(keys), use_threads=False).aggregate(aggregates)
    columns = {key: grouped[key] for key in keys}
    for name, (column, kind) in wanted.items():
        columns[name] = grouped[f"{column}_{kind}" if column else kind]
    return pa.table(columns)

"""Compute results of a DuckDB relation as SQL, so that rows do not leave DuckDB.

A result becomes one query if DuckDB computes the same as Arrow: the steps before it have a form in SQL, times
have a zone, and keys are strings, integers, booleans or times. All other results read the rows in batches.
For example, `SelectedRows.count("workflow_url")` becomes

    SELECT "workflow_url", count(*) AS "count_" FROM … GROUP BY "workflow_url"
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from toolkit.failures.partial_results import (
    Counts,
    DistinctValues,
    FirstRows,
    PartialResult,
    QueriedResult,
)
from toolkit.failures.partitions import Step, Work

_ROWS: Final = "{rows}"
_EXACT: Final = (
    "VARCHAR",
    "BOOLEAN",
    "TIMESTAMP WITH TIME ZONE",
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
)
"""Types whose order, equality, minimum and maximum are those of Arrow. Floats differ in NaN and -0.0."""

_TYPES: Final = {
    "VARCHAR": pa.string(),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True)
class SqlStep:
    """A step with a form in SQL: a query in which ``{rows}`` is the query before."""

    function: Step
    sql: str

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return a table after the step."""
        return self.function(table)


def result_of(relation: Any, work: Work) -> pa.Table | None:
    """Return a result that DuckDB computes, or None if only Arrow computes it exactly."""
    rows = _query_of_rows(relation, work)
    if rows is None:
        return None

    types = _types(relation.query("rows_", rows.replace(_ROWS, "rows_")))
    query = _query_of(work.wanted, rows, types)
    if query is None:
        return None

    found = relation.query("rows_", query.replace(_ROWS, "rows_"))
    return _plain(found)


def _query_of_rows(relation: Any, work: Work) -> str | None:
    """Return the query of the rows after all steps; None if a step or a type has no form in SQL."""
    known = _types(relation)
    if any(known[name] not in _EXACT for name in work.names):
        return None

    query = f"(SELECT {_listed(work.names)} FROM {_ROWS})"  # noqa: S608 - names are quoted
    for step in work.steps:
        if not isinstance(step, SqlStep):
            return None
        query = step.sql.replace(_ROWS, query)

    return query if query.startswith("(") else f"({query})"


def _query_of(wanted: PartialResult, rows: str, types: dict[str, str]) -> str | None:
    """Return the query of a result; None if there is none."""
    if isinstance(wanted, QueriedResult):
        return wanted.sql(rows)
    if isinstance(wanted, DistinctValues):
        column = _quoted(wanted.column)
        return f"SELECT count(DISTINCT {column}) AS distinct, count({column}) AS rows FROM {rows}"  # noqa: S608
    if isinstance(wanted, FirstRows):
        return _query_of_first_rows(wanted, rows)
    if isinstance(wanted, Counts) and wanted.keep is None:
        return _query_of_counts(wanted, rows, types)

    return None


def _query_of_first_rows(wanted: FirstRows, rows: str) -> str:
    order = ", ".join(
        f"{_quoted(name)} {_DIRECTIONS[direction]} NULLS LAST"
        for name, direction in wanted.order
    )
    if not wanted.keys:
        return f"SELECT * FROM {rows} ORDER BY {order} LIMIT {wanted.most}"  # noqa: S608 - names are quoted

    keys = _listed(wanted.keys)
    return (
        f"SELECT * FROM {rows} QUALIFY row_number() OVER "  # noqa: S608 - names are quoted
        f"(PARTITION BY {keys} ORDER BY {order}) <= {wanted.most} ORDER BY {keys}, {order}"
    )


_DIRECTIONS: Final = {"ascending": "ASC", "descending": "DESC"}


def _query_of_counts(wanted: Counts, rows: str, types: dict[str, str]) -> str | None:
    columns = [_quoted(key) for key in wanted.keys]
    columns.append("count(*) AS count_")
    for name, (column, kind) in wanted.aggregates:
        if types.get(column) not in _EXACT:
            return None
        value = f"{kind}({_quoted(column)})"
        if kind == "sum":
            value = f"CAST({value} AS BIGINT)"
        columns.append(f"{value} AS {_quoted(name)}")

    query = f"SELECT {', '.join(columns)} FROM {rows}"  # noqa: S608 - names are quoted
    if wanted.keys:
        keys = _listed(wanted.keys)
        # the order of groups is not that of the rows, but it is the same each time
        query += f" GROUP BY {keys} ORDER BY {keys}"

    return query


def _plain(relation: Any) -> pa.Table:
    """Return the rows of a relation, with times in UTC whatever the zone of the connection."""
    table = pa.RecordBatchReader.from_stream(relation).read_all()
    for position, (name, kind) in enumerate(_types(relation).items()):
        wanted = _TYPES.get(kind)
        if wanted is not None:
            table = table.set_column(position, name, table[name].cast(wanted))

    return table


def _types(relation: Any) -> dict[str, str]:
    return dict(zip(relation.columns, map(str, relation.types), strict=True))


def _listed(names: Iterable[str] | Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'

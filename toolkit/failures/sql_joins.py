"""Run one query over a DuckDB relation and further rows: relations of its connection, or Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

import pyarrow as pa

from toolkit.failures.selection import select
from toolkit.failures.sources import AnyFrame, is_relation

ROWS: Final = "rows_"
"""The name of the relation in a query."""

TEXT: Final = "VARCHAR"
TIME: Final = "TIMESTAMP WITH TIME ZONE"


@dataclass(frozen=True)
class JoinQuery:
    """A query over `ROWS` and further rows, by their names in the query: after, runs, callbacks, retried."""

    sql: str
    others: Mapping[str, Any] = field(default_factory=dict)

    def table(self, relation: Any) -> pa.Table | None:
        """Return the result; None if DuckDB cannot read all of these rows with the connection."""
        duckdb: Any = import_module("duckdb")
        # DuckDB finds these rows by the names of the variables
        toolkit_after = self.others.get("after")  # noqa: F841
        toolkit_runs = self.others.get("runs")  # noqa: F841
        toolkit_callbacks = self.others.get("callbacks")  # noqa: F841
        toolkit_retried = self.others.get("retried")  # noqa: F841

        try:
            found = relation.query(ROWS, self.sql)
            return pa.RecordBatchReader.from_stream(found).read_all()
        except (
            # variables are not found if the user has turned that off
            duckdb.CatalogException,
            # relations of two connections
            duckdb.InvalidInputException,
            # times that are infinite
            duckdb.ConversionException,
            duckdb.OutOfRangeException,
        ):
            return None


def has_types(frame: Any, types: Mapping[str, str]) -> bool:
    """Return whether a value is a DuckDB relation with these columns and types."""
    if not is_relation(frame):
        return False

    known = dict(zip(frame.columns, map(str, frame.types), strict=True))
    return all(known.get(name) == kind for name, kind in types.items())


def joined_rows(
    frame: AnyFrame, types: Mapping[str, str], *, doing: str, name: str
) -> Any:
    """Return a relation unchanged if it has these types, and other frames as an Arrow table."""
    selected = select(frame, types, doing=doing, name=name)
    if has_types(frame, types):
        return frame

    return selected.whole_table(doing)


def numbered(rows: str, columns: Iterable[str]) -> str:
    """Return a query of rows with their number in `row_`, because joins do not keep the order."""
    return f"(SELECT {', '.join(columns)}, row_number() OVER () AS row_ FROM {rows})"  # noqa: S608 - names of columns of loaders

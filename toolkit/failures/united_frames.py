"""Unite the rows of two frames of one engine, so that they can be counted together where they are.

The result is a frame with the column `side_`, and is counted as any other frame. For example, of two loads:

    dlq_id  failed_at         side_
    a       2026-01-01 10:00  0       a row of the first frame
    b       2026-01-01 11:00  0
    b       2026-01-01 11:00  1       a row of the second frame
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from toolkit.failures.partitions import Step
from toolkit.failures.selection import opened
from toolkit.failures.sources import (
    AnyFrame,
    Batches,
    SelectedRows,
    is_partitioned,
    is_relation,
)
from toolkit.failures.sql_joins import TIME

SIDE: Final = "side_"
"""The column with the number of the frame, 0 or 1."""

_MISSING_TIME: Final = pa.timestamp("ms", "UTC")
_PANDAS_TIME: Final = "datetime64[ms, UTC]"


def united(
    frames: Sequence[Any], names: Sequence[str], *, doing: str
) -> AnyFrame | None:
    """Return the rows of frames with `side_`; None if they would have to be read into this process.

    A column that a frame lacks is a column of missing times.
    """
    if all(map(is_partitioned, frames)):
        return _united_partitions(frames, names)
    if any(map(is_partitioned, frames)):
        return None

    if all(map(is_relation, frames)):
        relation = _united_relations(frames, names)
        if relation is not None:
            return relation

    parts = tuple(opened(frame, doing=doing) for frame in frames)
    return _Parts(parts).rows(names)


def _known(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    return [name for name in names if name in columns]


def _united_partitions(frames: Sequence[Any], names: Sequence[str]) -> Any:
    """Return a Dask frame with the partitions of all frames."""
    dask: Any = import_module("dask.dataframe")
    parts = []
    for side, frame in enumerate(frames):
        # only these columns are read
        chosen = frame[_known(frame.columns, names)]
        add = partial(_on_side, side=side, names=list(names))
        parts.append(chosen.map_partitions(add, meta=add(chosen._meta)))  # noqa: SLF001 - as in `open_rows`

    return dask.concat(parts)


def _on_side(frame: pd.DataFrame, *, side: int, names: list[str]) -> pd.DataFrame:
    absent = [name for name in names if name not in frame.columns]
    missing = pd.Series(pd.NaT, index=frame.index, dtype=_PANDAS_TIME)
    sides = pd.Series(side, index=frame.index, dtype="int64")
    columns = dict.fromkeys(absent, missing) | {SIDE: sides}

    return frame.assign(**columns)[[*names, SIDE]]


def _united_relations(frames: Sequence[Any], names: Sequence[str]) -> Any:
    """Return a relation with the rows of all relations; None if they are of two connections."""
    duckdb: Any = import_module("duckdb")
    parts = []
    for side, frame in enumerate(frames):
        columns = [_column(frame, name) for name in names]
        parts.append(frame.project(", ".join([*columns, f"{side}::BIGINT AS {SIDE}"])))

    first, *others = parts
    try:
        for other in others:
            first = first.union(other)
    except duckdb.InvalidInputException:
        return None

    return first


def _column(relation: Any, name: str) -> str:
    if name in relation.columns:
        return f'"{name}"'
    return f'NULL::{TIME} AS "{name}"'


@dataclass(frozen=True)
class _Parts:
    """Rows of several frames, whose batches are read one after the other."""

    parts: tuple[SelectedRows, ...]

    def rows(self, names: Sequence[str]) -> SelectedRows:
        """Return some columns of the rows, with `side_`."""
        types = dict.fromkeys(names, _MISSING_TIME)
        for part in self.parts:
            types |= {name: part.schema.field(name).type for name in names if name in part.names}  # fmt: skip
        schema = pa.schema([*types.items(), (SIDE, pa.int64())])

        return SelectedRows(
            schema, self.batches, check=self.check, skipping=self.skipping
        )

    def check(self, names: Sequence[str], *, doing: str) -> None:
        """Raise NotEnoughMemoryError if columns of a frame do not fit into memory."""
        for part in self.parts:
            if part.check is not None:
                part.check(_known(part.names, names), doing=doing)

    def batches(self, names: Sequence[str], step: Step) -> Iterator[pa.Table]:
        """Yield the batches of each frame after a step."""
        for side, part in enumerate(self.parts):
            add = partial(_with_side, side, list(names), step)
            yield from part.batches(_known(part.names, names), add)

    def skipping(self, column: str, start: datetime) -> Batches:
        """Return batches without parts of files before a time."""
        return _Parts(
            tuple(part.skip_before(column, start) for part in self.parts)
        ).batches


def _with_side(side: int, names: list[str], step: Step, table: pa.Table) -> pa.Table:
    rows = table.num_rows
    columns = {name: pa.nulls(rows, _MISSING_TIME) for name in names}
    columns |= {name: table[name] for name in table.column_names}
    columns |= {SIDE: pa.repeat(pa.scalar(side, pa.int64()), rows)}

    return step(pa.table(columns).select(names))

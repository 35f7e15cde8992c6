"""Reduce the partitions of a Dask frame on the workers: the client receives results, not rows.

Partial results of the partitions are merged in a tree, so that no worker merges all of them:

    partition ─┐
    partition ─┼─ merge ─┐
    partition ─┘         ├─ merge ── result ── client
    partition ─┬─ merge ─┘
    partition ─┘

The different values of a column can be as many as the rows. Each partition therefore divides them by a hash,
and each part is merged and counted separately. Only numbers arrive at the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from toolkit import snapshots  # loaded when a cluster may be in use
from toolkit.failures.pandas_columns import pandas_table
from toolkit.failures.partial_results import DividedResult, PartialResult
from toolkit.tables.arrow_input import with_plain_types
from toolkit.tables.packed_tables import packed, unpacked

Step = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True)
class PartitionTuning:
    """Constants of the tree of tasks."""

    fan_in: int = 8
    """Partial results that one task merges: wide trees have few tasks, narrow ones need less memory each."""
    most_buckets: int = 64
    """Parts of different values. There is a task per partition and part, so they are few."""


_TUNING: Final = PartitionTuning()


@dataclass(frozen=True)
class Work:
    """What each batch is reduced to: some columns, the steps before, and a partial result."""

    names: Sequence[str]
    steps: tuple[Step, ...]
    wanted: PartialResult

    def of_batch(self, table: pa.Table) -> pa.Table:
        """Return the partial result of a batch, which may have further columns."""
        return self.wanted.of_batch(applied(self.steps, table.select(self.names)))


def applied(steps: tuple[Step, ...], table: pa.Table) -> pa.Table:
    """Return a table after all steps."""
    for step in steps:
        table = step(table)
    return table


def batches(frame: Any, names: Sequence[str], step: Step) -> Iterator[pa.Table]:
    """Yield each partition of a Dask frame after a step, which runs on the workers."""
    dask: Any = import_module("dask")
    parts = _delayed(frame, names, partial(_partition, step))
    yield from map(unpacked, dask.compute(*parts))


def reduced(frame: Any, names: Sequence[str], works: Sequence[Work]) -> list[pa.Table]:
    """Return the results of all partitions, which are read once and merged on the workers."""
    dask: Any = import_module("dask")
    parts = _delayed(frame, names, partial(_partial_results, works))
    results = [
        _merged(dask, work.wanted, [part[position] for part in parts])
        for position, work in enumerate(works)
    ]

    return [unpacked(result) for result in dask.compute(*results)]


def _delayed(frame: Any, names: Sequence[str], read: Callable[..., Any]) -> list[Any]:
    """Return a task per partition."""
    dask: Any = import_module("dask")
    snapshots.check_versions()
    task = dask.delayed(read, pure=False, traverse=False)

    return [task(part) for part in frame[list(names)].to_delayed()]


def _merged(dask: Any, wanted: PartialResult, parts: list[Any]) -> Any:
    """Return the task of a result, at the root of a tree of tasks."""
    result = dask.delayed(partial(_result, wanted), pure=False)
    if not isinstance(wanted, DividedResult):
        return result(_tree(dask, wanted, parts))

    buckets = min(-(-len(parts) // _TUNING.fan_in), _TUNING.most_buckets)
    split = dask.delayed(partial(_split, wanted, buckets), pure=False, nout=buckets)
    divided = [split(part) for part in parts]
    counts = [
        result(_tree(dask, wanted, [part[bucket] for part in divided]))
        for bucket in range(buckets)
    ]

    return dask.delayed(partial(_total, wanted), pure=False)(counts)


def _tree(dask: Any, wanted: PartialResult, parts: list[Any]) -> Any:
    """Return the task that merges all parts, `_TUNING.fan_in` at once."""
    merge = dask.delayed(partial(_merge, wanted), pure=False)
    while True:
        parts = [
            merge(parts[start : start + _TUNING.fan_in])
            for start in range(0, len(parts), _TUNING.fan_in)
        ]
        if len(parts) == 1:
            return parts[0]


def _merge(wanted: PartialResult, parts: Sequence[bytes]) -> bytes:
    return packed(wanted.merge([unpacked(part) for part in parts]))


def _result(wanted: PartialResult, merged: bytes) -> bytes:
    return packed(wanted.result(unpacked(merged)))


def _split(wanted: DividedResult, number: int, part: bytes) -> list[bytes]:
    return [packed(divided) for divided in wanted.split(unpacked(part), number)]


def _total(wanted: DividedResult, results: Sequence[bytes]) -> bytes:
    return packed(wanted.total([unpacked(result) for result in results]))


def _partial_results(works: Sequence[Work], frame: pd.DataFrame) -> list[bytes]:
    table = _table(frame)
    return [packed(work.of_batch(table)) for work in works]


def _partition(step: Step, frame: pd.DataFrame) -> bytes:
    return packed(step(_table(frame)))


def _table(frame: pd.DataFrame) -> pa.Table:
    return with_plain_types(pandas_table(frame))

"""Partial results of any batches, merged in any order, are the result of all rows."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import dask
import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.failures import partitions
from toolkit.failures.partial_results import (
    Counts,
    DistinctValues,
    FirstRows,
    PartialResult,
)
from toolkit.failures.selection import opened, select
from toolkit.failures.sources import reduce_together
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

NOW = datetime(2026, 3, 9, tzinfo=UTC)
WANTED: dict[str, PartialResult] = {
    "counts": Counts(("kind",), (("largest", ("number", "max")),)),
    "counts of all": Counts((), (("total", ("number", "sum")),)),
    "first rows": FirstRows((("number", "ascending"), ("id", "ascending")), 7),
    "first rows per kind": FirstRows((("id", "descending"),), 2, keys=("kind",)),
    "distinct": DistinctValues("id"),
}


def _rows(count: int, seed: int = 3) -> pa.Table:
    random = np.random.default_rng(seed)
    ids = pd.Series(random.integers(0, count // 2, count)).astype(str)
    return pa.table(
        {
            "id": ids.where(ids != "1", None),
            "kind": random.choice(np.array(["a", "b", None], dtype=object), count),
            "number": random.integers(0, 9, count),
        }
    )


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


@pytest.mark.parametrize("name", WANTED)
def test_merging_in_any_order_gives_the_result_of_all_rows(name: str) -> None:
    """Batches of one row, of none and of many, merged as a tree or in a row, give one result."""
    wanted, table = WANTED[name], _rows(60)
    expected = wanted.result(wanted.merge([wanted.of_batch(table)]))
    cuts = [0, 1, 1, 20, 37, 60]
    parts = [
        wanted.of_batch(table.slice(start, end - start))
        for start, end in pairwise(cuts)
    ]
    in_a_row = parts[0]
    for part in parts[1:]:
        in_a_row = wanted.merge([in_a_row, part])
    tree = wanted.merge([wanted.merge(parts[3:]), wanted.merge(parts[:3])])
    for merged in (in_a_row, tree):
        assert _sorted(wanted.result(merged)) == _sorted(expected)


def test_workers_return_the_results_of_one_reading() -> None:
    """All results of a Dask frame are those of the rows here, and each partition is read once."""
    table = _rows(400)
    readings: list[int] = []

    def read(number: int) -> pd.DataFrame:
        readings.append(number)
        part: pd.DataFrame = table.slice(number * 20, 20).to_pandas()
        return part

    frames: Any = dask.dataframe
    frame = frames.from_map(read, range(20), meta=table.slice(0, 0).to_pandas())
    results = {}
    with dask.config.set(scheduler="synchronous"):
        for engine, given in (("dask", frame), ("arrow", table)):
            rows = opened(given, doing="testing")
            results[engine] = reduce_together(
                [
                    (select(rows, rows.names, doing="testing"), wanted)
                    for wanted in WANTED.values()
                ]
            )
    assert sorted(readings) == [*range(20)]
    for found, expected in zip(results["dask"], results["arrow"], strict=True):
        assert _sorted(found) == _sorted(expected)


def test_the_parts_of_distinct_values_add_up() -> None:
    """Values that are divided by a hash are counted once each, whatever the batch they come from."""
    wanted, table = DistinctValues("id"), _rows(500)
    divided = [
        wanted.split(wanted.of_batch(table.slice(start, 100)), 5)
        for start in range(0, 500, 100)
    ]
    parts = [
        wanted.result(wanted.merge([one[number] for one in divided]))
        for number in range(5)
    ]
    ids = table["id"].drop_null()
    assert wanted.total(parts).to_pylist() == [
        {"distinct": len(ids.unique()), "rows": len(ids)}
    ]


def _failures(count: int) -> pd.DataFrame:
    rows: list[dict[str, Any]] = [
        {
            "dlq_id": f"d{number:05}",
            "workflow_url": f"https://a.example/{number % 7}",
            "workflow_run_id": f"wfr_{number:05}",
            "failed_at": NOW - pd.Timedelta(minutes=number % 500),
            "created_at": NOW - pd.Timedelta(minutes=number % 500 + 1),
            "response_status": 500,
            "response_body": f"no order {number % 9} in stock",
        }
        for number in range(count)
    ]
    return frame_from_rows(rows, FAILURES)


@pytest.mark.slow
def test_a_report_brings_results_to_the_client_and_no_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With eight times the rows, the workers return at most a half more bytes, but for the sample."""
    sizes: list[int] = []
    arrived = []
    for count in (500, 4_000):
        failures = _failures(count)
        groups = tk.group_failures(failures)
        frames: Any = dask.dataframe
        frame = frames.from_pandas(
            groups.assign(failures).drop(columns="error"), npartitions=3, sort=False
        )
        reduced = partitions.reduced

        def measured(*arguments: Any, reduced: Any = reduced) -> list[pa.Table]:
            tables: list[pa.Table] = reduced(*arguments)
            sizes.extend(table.nbytes for table in tables)
            return tables

        sizes.clear()
        with monkeypatch.context() as patch, dask.config.set(scheduler="synchronous"):
            patch.setattr(partitions, "reduced", measured)
            found = tk.report_failures(frame, now=NOW).to_dict()
        arrived.append(sum(sizes))
        assert found["overview"]["runs"] == count
    assert arrived[1] < 1.5 * arrived[0]
    assert arrived[1] < 1 << 20

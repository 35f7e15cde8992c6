"""Comparisons, expiry and explanations of an engine bring results to the client instead of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import dask
import dask.dataframe
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import toolkit as tk
from toolkit.analysis import find_incidents
from toolkit.failures import attribute_values, partitions, sources
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

NOW = datetime(2026, 3, 31, tzinfo=UTC)
ROWS = 6_000
BODIES = ("no order {}", "disk full", "quota of tenant {} is used up", "bad token")


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Failures of thirty days with stored signatures; those with bad tokens rose in the last day."""
    random = np.random.default_rng(3)
    rows: list[dict[str, Any]] = []
    for number, minutes in enumerate(random.integers(0, 30 * 24 * 60, ROWS).tolist()):
        kind, age = number % 3, minutes
        if number % 10 == 0:
            kind, age = 3, minutes // 45
        failed = NOW - pd.Timedelta(minutes=age, seconds=number % 60)
        rows.append(
            {
                "dlq_id": f"{number:06}-{random.integers(1 << 40)}",
                "workflow_url": f"https://a.example/{number % 7}",
                "workflow_run_id": f"wfr_{number}",
                "failed_at": None if number % 500 == 1 else failed,
                "created_at": None if number % 1_000 == 1 else failed,
                "response_status": 500 + kind,
                "response_body": BODIES[kind].format(number % 900),
                "labels": '["eu"]' if number % 4 else None,
                "flow_control_key": f"key{number % 5}",
            }
        )
    path = str(tmp_path_factory.mktemp("rows") / "failures")
    tk.write_snapshot(frame_from_rows(rows, FAILURES), path)
    return path


ENGINES: dict[str, Callable[[str], Any]] = {
    "duckdb": lambda path: tk.open_snapshot(path).to_duckdb(),
    "dask": lambda path: tk.open_snapshot(path).to_dask().repartition(npartitions=4),
}
ANALYSES: dict[str, Callable[[Any], pd.DataFrame]] = {
    "find_expiring": lambda rows: tk.find_expiring(rows, "31d", NOW, within="48h"),
    "compare_failures": lambda rows: (
        tk.compare_failures(rows, since="2d", now=NOW, retention="31d").frame
    ),
}
WINDOW = NOW - pd.Timedelta(hours=12), NOW
ANALYSES |= {
    "explain_spike": lambda rows: explained(rows, WINDOW),
    "explain_spike with a baseline": lambda rows: explained(
        rows, WINDOW, (NOW - pd.Timedelta(days=9), NOW - pd.Timedelta(days=1))
    ),
}


def explained(rows: Any, *spans: Any) -> pd.DataFrame:
    """Return the conditions of a rise, and the numbers of the sentence."""
    found = tk.explain_spike(rows, *spans, now=NOW)
    return found.frame.assign(all=found.observed, usual=found.expected)


MOST_BYTES = 100_000
"""Results that arrive from the workers; the columns of all rows take more than 300 kB."""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_search_of_a_large_frame_reads_no_json(
    engine: str, snapshot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields of JSON are no attributes of large frames, and one body per group shows what errors mention."""
    limits = replace(attribute_values._TUNING, most_rows=ROWS // 2)
    monkeypatch.setattr(attribute_values, "_TUNING", limits)
    failures = _signed(snapshot)
    frame = ENGINES[engine](snapshot)
    with dask.config.set(scheduler="synchronous"):
        with columns_read(monkeypatch) as names:
            found = tk.explain_spike(frame, now=NOW)
        incidents = find_incidents(frame, now=NOW)
    expected = tk.explain_spike(failures, now=NOW)
    assert found.stands_out
    pd.testing.assert_frame_equal(found.frame, expected.frame)
    assert found.window == expected.window
    pd.testing.assert_frame_equal(incidents, find_incidents(failures, now=NOW))
    assert "signature" in names
    assert not names & {"headers", "body", "response_headers", "extra"}


@contextmanager
def columns_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Collect the names of the columns that are read as rows."""
    names: set[str] = set()

    def remembering(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(frame: Any, columns: Any, step: Any) -> Any:
            names.update(columns)
            return read(frame, columns, step)

        return reading

    with monkeypatch.context() as patched:
        patched.setattr(
            sources, "_duckdb_batches", remembering(sources._duckdb_batches)
        )
        patched.setattr(partitions, "batches", remembering(partitions.batches))
        yield names


@contextmanager
def counted_bytes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Collect the sizes of the results that Dask returns, and let no batch of DuckDB be read."""
    sizes: list[int] = []
    compute = dask.compute

    def counting(*parts: Any, **options: Any) -> Any:
        results = compute(*parts, **options)
        sizes.extend(len(part) for part in results if isinstance(part, bytes))
        return results

    def batches(*_: object) -> None:
        raise AssertionError("rows were read")

    with monkeypatch.context() as patched, dask.config.set(scheduler="synchronous"):
        patched.setattr(dask, "compute", counting)
        patched.setattr(sources, "_duckdb_batches", batches)
        yield sizes


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ANALYSES)
def test_results_arrive_instead_of_rows(
    name: str, engine: str, snapshot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is that of pandas, DuckDB reads no batch, and few bytes arrive from Dask."""
    limits = replace(attribute_values._TUNING, most_rows=ROWS // 2)
    monkeypatch.setattr(attribute_values, "_TUNING", limits)
    expected = ANALYSES[name](_signed(snapshot))
    assert 0 < len(expected) < ROWS / 2
    frame = ENGINES[engine](snapshot)
    with counted_bytes(monkeypatch) as sizes:
        found = ANALYSES[name](frame)
    pd.testing.assert_frame_equal(found, expected)
    assert sum(sizes) < MOST_BYTES


def _signed(snapshot: str) -> pd.DataFrame:
    """Return the failures as pandas, with the signatures that `read_snapshot` leaves out."""
    failures = tk.read_snapshot(snapshot).drop(columns="error")
    return tk.group_failures(failures).assign(failures)


def test_failures_that_expired_are_counted_where_the_rows_are(
    snapshot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every engine counts the entries that left as expired, if they were seen until shortly before."""
    failures = _signed(snapshot)
    expires = failures["failed_at"] + pd.Timedelta(days=31)
    left = failures.index % 3
    frame = failures.assign(
        gone_before=(expires + pd.Timedelta(hours=1)).where(left > 0),
        gone_after=(expires - pd.to_timedelta(left * 20, unit="h")).where(left > 0),
    )
    table = pa.Table.from_pandas(frame, preserve_index=False)
    compare = ANALYSES["compare_failures"]
    expected = compare(frame)
    assert 0 < expected["expired"].sum() < expected["left"].sum()

    frames: Any = dask.dataframe
    others = [
        duckdb.connect().from_arrow(table),
        frames.from_pandas(frame, npartitions=3, sort=False),
        ds.dataset(table),
    ]
    for other in others:
        with counted_bytes(monkeypatch):
            found = compare(other)
        pd.testing.assert_frame_equal(found, expected)


def test_ids_that_occur_twice_are_compared_by_rows(snapshot: str) -> None:
    """An entry on both sides neither left nor was added, which counts by side would not show."""
    failures = _signed(snapshot)
    early = failures.sort_values("failed_at").head(9)
    later = early.assign(failed_at=NOW - pd.Timedelta(hours=1))
    frame = pd.concat([failures, later], ignore_index=True)
    compare = ANALYSES["compare_failures"]
    expected = compare(frame)
    assert expected["added"].sum() == expected["after"].sum() - 9
    found = compare(duckdb.connect().from_arrow(pa.Table.from_pandas(frame)))
    pd.testing.assert_frame_equal(found, expected)

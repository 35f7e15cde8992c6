"""A report of failures that are not in memory reads them a few times, and is that of the rows in memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import dask
import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.errors import InputError
from toolkit.failures import partitions
from toolkit.failures.partial_results import Counts
from toolkit.failures.selection import select
from toolkit.failures.shared_reading import SharedReading
from toolkit.reports import evidence, report_reading
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

NOW = datetime(2026, 3, 9, tzinfo=UTC)
ENGINES: dict[str, Callable[[Any], Any]] = {
    "snapshot": lambda snapshot: snapshot,
    "duckdb": lambda snapshot: snapshot.to_duckdb(duckdb.connect()),
    "dask": lambda snapshot: snapshot.to_dask().repartition(npartitions=3),
}
MOST_READINGS = 5
"""Rounds of results that depend on each other, and the sample."""


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A snapshot of 400 failures of six days, in three kinds."""
    rows: list[dict[str, Any]] = [
        {
            "dlq_id": f"d{number:05}",
            "workflow_url": f"https://a.example/{number % 7}",
            "workflow_run_id": f"wfr_{number // 2:05}",
            "url": "https://a.example/step",
            "failed_at": NOW - pd.Timedelta(minutes=number * 20 + 1),
            "created_at": NOW - pd.Timedelta(minutes=number * 20 + 2),
            "response_status": 500 + number % 2,
            "response_body": f"no order {number}" if number % 3 else "disk full",
            "labels": '["eu","beta"]' if number % 4 else None,
        }
        for number in range(400)
    ]
    path = tmp_path_factory.mktemp("report") / "failures"
    tk.write_snapshot(frame_from_rows(rows, FAILURES), path)
    return tk.open_snapshot(path)


def _report(frame: Any) -> dict[str, Any]:
    with dask.config.set(scheduler="synchronous"):
        found: dict[str, Any] = tk.report_failures(frame, now=NOW).to_dict()
    return found


@pytest.fixture(scope="module")
def expected(snapshot: Any) -> dict[str, Any]:
    """The report of the rows in memory."""
    return _report(snapshot.to_arrow().to_table())


@pytest.mark.parametrize("engine", ENGINES)
def test_the_report_is_that_of_the_rows_in_memory(
    engine: str, snapshot: Any, expected: dict[str, Any]
) -> None:
    """Every value is equal, if the sample is everything."""
    assert _report(ENGINES[engine](snapshot)) == expected


def test_a_report_does_not_depend_on_results_in_advance(
    snapshot: Any, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If an analysis is missing from the list, it reads the rows itself."""
    monkeypatch.setattr(report_reading, "_analyses", lambda *_: [])
    assert _report(snapshot) == expected


@pytest.mark.parametrize("most", [100, 20_000])
def test_a_report_reads_the_partitions_a_few_times(
    most: int, snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All results that do not depend on each other are computed in one reading, also with a sample."""
    readings: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        inner = getattr(partitions, name)

        def read(*arguments: Any) -> Any:
            readings.append(name)
            return inner(*arguments)

        return read

    for name in ("reduced", "batches"):
        monkeypatch.setattr(partitions, name, counted(name))
    for module in (evidence, report_reading):
        monkeypatch.setattr(module, "MOST", most)
    found = _report(ENGINES["dask"](snapshot))
    assert found["overview"]["count"] == 400
    assert len(readings) <= MOST_READINGS
    assert readings.count("batches") == 1


def test_known_results_are_not_computed_again() -> None:
    """An analysis in two steps takes two rounds; with another argument, it reads the rows."""
    rows = pa.table({"workflow_url": ["a", "a", "b"]})
    reading = SharedReading(rows, doing="testing")

    def two_steps(failures: Any) -> list[Any]:
        known = select(failures, ["workflow_url"], doing="testing")
        total = known.count()["count_"][0].as_py()
        counts = known.count("workflow_url").to_pylist()
        return [total, *counts]

    expected = two_steps(rows)
    assert two_steps(reading.rows) == expected
    reading.prepare([two_steps])
    without_rows = SharedReading(rows.slice(0, 0), doing="testing")
    without_rows._results = reading._results
    assert two_steps(without_rows.rows) == expected
    other = select(without_rows.rows, ["workflow_url"], doing="testing")
    assert other.reduce(Counts(("workflow_url",), keep=_nothing)).num_rows == 0


def _nothing(counts: pa.Table) -> pa.Table:
    return counts.slice(0, 0)


NEEDED = [
    "dlq_id", "workflow_url", "workflow_run_id", "response_status", "failed_at", "created_at",
]  # fmt: skip


def test_a_report_needs_six_columns(snapshot: Any):
    """A frame whose other columns were dropped has a report without their sections."""
    frame = tk.read_snapshot(snapshot.path)
    whole = tk.report_failures(frame, now=NOW).to_markdown()
    report = tk.report_failures(frame[NEEDED], now=NOW)
    few = report.to_markdown().replace("\\", "")
    assert report.to_html()
    assert report.to_dict()["overview"]["count"] == 400
    for title in ("## Labels", "## Failure functions"):
        assert title in whole
        assert title not in few
    assert "no column response_body, response_body_base64" in few
    assert "are left out" not in whole


@pytest.mark.parametrize("missing", NEEDED)
def test_a_report_names_the_column_that_is_missing(missing: str, snapshot: Any):
    """The error tells which column is expected."""
    frame = tk.read_snapshot(snapshot.path).drop(columns=missing)
    with pytest.raises(InputError, match=f"expected.*{missing}"):
        tk.report_failures(frame, now=NOW)

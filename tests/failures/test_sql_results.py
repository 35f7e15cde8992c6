"""Results that DuckDB computes as SQL are those of the rows, and no row leaves DuckDB for them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.failures import sources
from toolkit.failures.partial_results import Counts, FirstRows
from toolkit.failures.selection import select
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

NOW = datetime(2026, 3, 9, tzinfo=UTC)
IN_SQL: dict[str, Callable[[Any], Any]] = {
    "failure_overview": tk.analysis.failure_overview,
    "count_by": lambda rows: tk.analysis.count_by(
        rows, ["workflow_url", "response_status"]
    ),
    "count_errors": tk.analysis.count_errors,
    "count_states": tk.analysis.count_states,
    "group_failures": lambda rows: tk.group_failures(rows).frame,
}


@pytest.fixture(scope="module")
def failures() -> pd.DataFrame:
    """Failures with stored signatures, some without times, some repeated."""
    rows: list[dict[str, Any]] = [
        {
            "dlq_id": f"d{number % 590:05}",
            "workflow_url": f"https://a.example/{number % 7}",
            "workflow_run_id": f"wfr_{number % 300}" if number % 5 else None,
            "failed_at": NOW - pd.Timedelta(minutes=number) if number % 11 else None,
            "created_at": NOW - pd.Timedelta(minutes=number + 1),
            "response_status": 500 + number % 3,
            "response_body": f"no order {number}" if number % 2 else "disk full",
            "failure_function_state": "CALLBACK_FAIL" if number % 3 else None,
        }
        for number in range(600)
    ]
    frame = frame_from_rows(rows, FAILURES)
    return tk.group_failures(frame).assign(frame).drop(columns="error")


@pytest.mark.parametrize("name", IN_SQL)
def test_counts_groups_and_examples_are_computed_by_duckdb(
    name: str, failures: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch of rows is read, in a connection with another time zone, and the result is that of pandas."""
    analysis = IN_SQL[name]
    expected = analysis(failures)

    def batches(*_: object) -> None:
        raise AssertionError("rows were read")

    monkeypatch.setattr(sources, "_duckdb_batches", batches)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Asia/Tokyo'")
    found = analysis(connection.from_arrow(pa.table(failures)))
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected)
    else:
        assert found == expected


def test_floats_are_counted_by_arrow() -> None:
    """DuckDB and Arrow differ in NaN and -0.0, so that such keys are counted from the rows."""
    table = pa.table({"score": [0.0, -0.0, float("nan"), float("nan"), None]})
    rows = select(duckdb.connect().from_arrow(table), ["score"], doing="counting")
    assert rows.computed_elsewhere(Counts(("score",))) is None
    counted = rows.count("score")["count_"].to_pylist()
    assert (
        counted
        == select(table, ["score"], doing="counting")
        .count("score")["count_"]
        .to_pylist()
    )


def test_names_are_quoted_and_missing_values_come_last() -> None:
    """A column with quotes and keywords in the name is a key, and nulls are ordered as by Arrow."""
    name = 'select "x"; --'
    table = pa.table({name: ["b", None, "a", None], "n": [1, None, 3, 4]})
    wanted = FirstRows((("n", "descending"),), 1, (name,))
    rows = select(duckdb.connect().from_arrow(table), [name, "n"], doing="counting")
    found = rows.computed_elsewhere(wanted)
    assert found is not None
    assert found.to_pylist() == wanted.of_batch(table).to_pylist()

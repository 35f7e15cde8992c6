"""Every analysis returns the same for a pandas frame, Arrow, a snapshot, DuckDB and Dask."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask
import dask.dataframe
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toolkit as tk
from tests.covering import ALL_CASES
from toolkit import explain_spike, find_retry_outcomes
from toolkit.analysis import (
    count_by_hour,
    count_matrix,
    count_over_time,
    explain_change,
    failure_calendar,
    failure_delays,
    failure_functions,
    failure_overview,
    failure_trend,
    find_incidents,
    new_and_gone,
    recent_failures,
    repeat_offenders,
    retries_used,
    sample_failures,
)
from toolkit.errors import InputError, NotEnoughMemoryError
from toolkit.failures.selection import select, select_timed, with_minute
from toolkit.tables.frames import frame_from_rows, to_table
from toolkit.tables.schemas import FAILURES

NOW = datetime(2026, 3, 9, tzinfo=UTC)
TIMES = st.integers(0, 7 * 24 * 60).map(
    lambda minutes: NOW - timedelta(minutes=minutes, milliseconds=minutes)
)
ROWS = st.fixed_dictionaries(
    {
        "workflow_url": st.sampled_from(
            ["https://a.example/pay", "https://a.example/ship", None]
        ),
        "workflow_run_id": st.sampled_from(["r1", "r2", "r3", None]),
        "failed_at": st.none() | TIMES,
        "created_at": st.none() | TIMES,
        "response_status": st.sampled_from([500, 503, None]),
        "response_body": st.sampled_from(
            [
                '{"error": "no order 17"}',
                '{"error": "no order 4711"}',
                "disk full",
                "",
                None,
            ]
        ),
        "response_body_base64": st.sampled_from(["/w==", None]),
        "max_retries": st.sampled_from([0, 3, None]),
        "labels": st.sampled_from(['["eu"]', '["eu","beta"]', None]),
        "failure_function_state": st.sampled_from(["CALLBACK_FAIL", "", None]),
    }
)
NO_FAILURES = frame_from_rows([], FAILURES)
ANOTHER = frame_from_rows(
    [
        {
            "dlq_id": "later",
            "failed_at": NOW,
            "created_at": NOW,
            "response_body": "no order 5 in stock",
        }
    ],
    FAILURES,
)
ANALYSES: dict[str, Callable[[Any], Any]] = {
    "count_by": lambda rows: tk.analysis.count_by(
        rows, ["workflow_url", "response_status"]
    ),
    "count_labels": tk.analysis.count_labels,
    "count_states": tk.analysis.count_states,
    "count_errors": tk.analysis.count_errors,
    "count_matrix": lambda rows: count_matrix(
        rows, "workflow_url", "response_status"
    ).to_frame(),
    "failure_trend": lambda rows: failure_trend(rows, by="workflow_url", now=NOW),
    "failure_calendar": lambda rows: failure_calendar(rows, tz="Europe/Istanbul"),
    "count_workflows": lambda rows: tk.analysis.count_workflows(rows, now=NOW),
    "failure_overview": failure_overview,
    "failure_delays": failure_delays,
    "retries_used": retries_used,
    "find_expiring": lambda rows: tk.find_expiring(rows, "3d", NOW),
    "find_expiring within a time": lambda rows: tk.find_expiring(
        rows, "8d", NOW, within="36h"
    ),
    "count_expiring": lambda rows: tk.analysis.count_expiring(rows, "3d", NOW),
    "new_and_gone": lambda rows: new_and_gone(rows, rows),
    "summarize": lambda rows: tk.summarize(rows).lines[:-1],
    "group_failures": lambda rows: tk.group_failures(rows).frame,
    "classify_failures": lambda rows: tk.classify_failures(rows).frame.reset_index(
        drop=True
    ),
    "compare_failures": lambda rows: tk.compare_failures(rows, rows, now=NOW).frame,
    "compare_failures since a time": lambda rows: (
        tk.compare_failures(rows, since="3d", now=NOW, retention="8d").frame
    ),
    "compare_failures with an empty load": lambda rows: (
        tk.compare_failures(NO_FAILURES, rows, now=NOW).frame
    ),
    "find_similar_failures": lambda rows: tk.find_similar_failures(rows, rows).frame,
    "find_similar_failures of a history": lambda rows: (
        tk.find_similar_failures(ANOTHER, rows).frame
    ),
    "find_retry_outcomes": lambda rows: find_retry_outcomes(
        rows, now=NOW
    ).frame.reset_index(drop=True),
    "repeat_offenders": lambda rows: repeat_offenders(rows, least=1),
    "failure_functions": lambda rows: failure_functions(rows, now=NOW),
    "explain_change": lambda rows: (
        explain_change(rows, rows, attributes=["workflow_url"]).frame
    ),
    "explain_spike": lambda rows: explain_spike(rows, now=NOW).frame,
    "find_incidents": lambda rows: find_incidents(rows, now=NOW).astype(str),
    "count_over_time": lambda rows: count_over_time(rows, freq="6h"),
    "count_by_hour": lambda rows: count_by_hour(rows, tz="Europe/Istanbul"),
    "recent_failures": lambda rows: recent_failures(rows, NOW),
    "sample_failures": lambda rows: sample_failures(rows, most=3)["dlq_id"].tolist(),
    "report_failures": lambda rows: without_completeness(
        tk.report_failures(rows, now=NOW).to_dict()
    ),
}


def without_completeness(findings: dict[str, Any]) -> dict[str, Any]:
    """What a report says, but for what only a receipt knows."""
    sections = [
        section
        for section in findings["sections"]
        if section["name"] not in ("scope", "code")
    ]
    known = {
        name: value
        for name, value in findings.items()
        if name not in ("verdict", "completeness")
    }
    return known | {"sections": sections}


def engines(frame: pd.DataFrame, folder: str) -> dict[str, Any]:
    """The same failures in every form that analyses accept."""
    table = to_table(frame, FAILURES)
    path = str(Path(folder) / "failures")
    tk.write_snapshot(frame, path)
    partitioned = dask.dataframe.from_pandas(
        frame.reset_index(drop=True), npartitions=3, sort=False
    )
    return {
        "arrow": table,
        "path": path,
        "snapshot": tk.open_snapshot(path),
        "duckdb": duckdb.connect().from_arrow(table),
        # Dask converts the text of a pandas frame in each analysis, unless it keeps the partitions
        "dask": partitioned.persist(),
    }


def assert_same(result: Any, expected: Any) -> None:
    """Whether two results of an analysis have the same types and values."""
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(result, expected)
    elif hasattr(expected, "__dataclass_fields__"):
        for name in expected.__dataclass_fields__:
            assert_same(getattr(result, name), getattr(expected, name))
    elif isinstance(expected, np.ndarray | pd.Index | float):
        np.testing.assert_array_equal(result, expected)
    else:
        assert result == expected


EXAMPLES = 30 if ALL_CASES else 4
"""Generated frames for each part of the analyses."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(rows=st.lists(ROWS, max_size=12))
def test_every_engine_has_the_same_results(part, rows):
    """Rows, nulls and no rows at all: each analysis of each engine is that of the pandas frame."""
    frame = frame_from_rows(
        [{"dlq_id": f"d{number}", **row} for number, row in enumerate(rows)], FAILURES
    )
    with TemporaryDirectory() as folder, dask.config.set(scheduler="synchronous"):
        others = engines(frame, folder)
        for name, analysis in list(ANALYSES.items())[part::6]:
            expected = analysis(frame)
            for engine, other in others.items():
                try:
                    assert_same(analysis(other), expected)
                except AssertionError as error:
                    raise AssertionError(f"{name} of {engine}: {error}") from error


RULES = """
name {first} "Empty"
split {first} where workflow_url = "https://a.example/pay"
split {last} where body contains "4711"
merge {first} into {last}
pin {last}
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The rule that splits")
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ROWS, min_size=1, max_size=12))
def test_groups_by_stored_signatures_are_those_of_the_rows(rows):
    """With a column of signatures, counts by it are the groups that reading every row has, by rules, too."""
    frame = frame_from_rows(
        [{"dlq_id": f"d{number}", **row} for number, row in enumerate(rows)], FAILURES
    )
    found = tk.group_failures(frame)
    ids = found.frame["group"]
    ruled = tk.GroupRules(
        RULES.format(first=ids.iloc[0], last=ids.iloc[-1]) if len(ids) > 1 else "",
        found.learned,
    )
    table = pa.table(found.assign(frame).drop(columns="error"))
    for rules in (found.rules, ruled):
        expected = tk.group_failures(frame, rules=rules).frame
        with dask.config.set(scheduler="synchronous"):
            for other in (
                table,
                duckdb.connect().from_arrow(table),
                dask.dataframe.from_pandas(
                    table.to_pandas(), npartitions=2, sort=False
                ).persist(),
            ):
                pd.testing.assert_frame_equal(
                    tk.group_failures(other, rules=rules).frame, expected
                )


def test_counts_are_merged_across_batches(monkeypatch):
    """Batches of three rows, merged whenever there are four counts, give the counts of all rows."""
    monkeypatch.setattr("toolkit.failures.sources.BATCH_ROWS", 3)
    monkeypatch.setattr("toolkit.failures.sources._MERGED_ROWS", 4)
    numbers = pd.Series(np.random.default_rng(5).integers(0, 9, 1000))
    times = pd.to_datetime(numbers, unit="D", origin="2026-01-01", utc=True)
    frame = pd.DataFrame(
        {"url": numbers.astype(str), "failed_at": times, "created_at": times}
    )
    rows = select_timed(frame, ["url"], doing="counting").then(with_minute)
    found = (
        rows.count("url", last=("minute_", "max"))
        .to_pandas()
        .set_index("url")
        .sort_index()
    )
    assert found["count_"].to_dict() == numbers.astype(str).value_counts().to_dict()
    assert found["last"].diff().dropna().eq(24 * 60).all()


def test_a_batch_of_long_texts_has_fewer_rows():
    """Rows of 1 MB each are analysed in batches of about 256 MB, not of 262,144 rows."""
    texts = pa.array(["e" * (1 << 20)] * 8)
    rows = ds.InMemoryDataset(
        pa.Table.from_arrays([pa.chunked_array([texts] * 100)], ["error"])
    )
    sizes = [table.nbytes for table in select(rows, ["error"], doing="counting").map()]
    assert sum(sizes) > 800 << 20
    assert max(sizes) < 300 << 20


def test_no_memory_left_is_said_as_such():
    """Arrow's error of memory is not taken for values of another type."""
    rows = select(pd.DataFrame({"error": ["a"]}), ["error"], doing="counting")
    with pytest.raises(NotEnoughMemoryError, match="no memory left"):
        list(rows.then(lambda _: pa.allocate_buffer(1 << 60)).map())


@pytest.mark.parametrize(
    "value",
    [3, [1], {"a": 1}, object(), pa.RecordBatchReader.from_batches(pa.schema([]), [])],
)
def test_what_is_no_frame_is_refused(value):
    """Neither values nor a reader, which could be read only once."""
    with pytest.raises(InputError, match="expected a frame"):
        select(value, [], doing="counting")

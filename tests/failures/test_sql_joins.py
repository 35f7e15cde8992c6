"""Joins of two loads run in DuckDB: the results are those of pandas, and no rows are read for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolkit as tk
from toolkit.failures import sources
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import CALLBACKS, FAILURES, RUNS

NOW = datetime(2026, 3, 9, tzinfo=UTC)
_TIMES = st.none() | st.integers(0, 200).map(lambda hours: NOW - timedelta(hours=hours))
_IDS = st.sampled_from([f"d{number}" for number in range(8)])
_RUN_IDS = st.none() | st.sampled_from([f"wfr_{number}" for number in range(5)])
_URLS = st.sampled_from(["https://a.example/pay", "https://a.example/ship", None])
_ENTRY = st.fixed_dictionaries(
    {
        "dlq_id": st.none() | _IDS,
        "workflow_url": _URLS,
        "workflow_run_id": _RUN_IDS,
        "failed_at": _TIMES,
        "created_at": _TIMES,
        "gone_after": _TIMES,
        "gone_before": _TIMES,
    }
)
_RUN = st.fixed_dictionaries(
    {
        "workflow_run_id": _RUN_IDS.filter(bool),
        "workflow_url": _URLS,
        "state": st.sampled_from(
            ["RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED", "RUN_STARTED", None]
        ),
        "created_at": _TIMES,
    }
)
_CALLBACK = st.fixed_dictionaries(
    {
        "source_message_id": _RUN_IDS.filter(bool),
        "delivered": st.booleans() | st.none(),
        "exhausted": st.booleans() | st.none(),
    }
)


def _entries(rows: list[dict[str, Any]], *, has_looks: bool) -> pd.DataFrame:
    """Failures; a snapshot also knows when each entry left."""
    frame = frame_from_rows(
        [{name: row[name] for name in row if "gone" not in name} for row in rows],
        FAILURES,
    )
    if has_looks:
        for name in ("gone_after", "gone_before"):
            times = [row[name] for row in rows]
            frame[name] = pd.Series(times, dtype="datetime64[ms, UTC]")
    return frame


@contextmanager
def _without_reading() -> Iterator[None]:
    """Fail if rows of a relation are read."""

    def batches(*_: object) -> None:
        raise AssertionError("rows were read")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "_duckdb_batches", batches)
        yield


def _relation(connection: duckdb.DuckDBPyConnection, frame: pd.DataFrame) -> Any:
    return connection.from_arrow(pa.Table.from_pandas(frame, preserve_index=False))


@settings(deadline=None, max_examples=30)
@given(
    before=st.lists(_ENTRY, max_size=12),
    after=st.none() | st.lists(_ENTRY, max_size=12),
    looks=st.tuples(st.booleans(), st.booleans()),
    runs=st.none() | st.lists(_RUN, max_size=8),
    callbacks=st.none() | st.lists(_CALLBACK, max_size=5),
    retried=st.none() | st.dictionaries(_IDS, _RUN_IDS, max_size=3),
    retention=st.sampled_from([None, "1d", "3d"]),
    all_relations=st.booleans(),
)
def test_outcomes_of_entries_are_those_of_pandas(
    before: list[dict[str, Any]],
    after: list[dict[str, Any]] | None,
    looks: tuple[bool, bool],
    runs: list[dict[str, Any]] | None,
    callbacks: list[dict[str, Any]] | None,
    retried: dict[str, str] | None,
    retention: str | None,
    *,
    all_relations: bool,
) -> None:
    """Whatever left, was retried or is repeated, and whether the other frames are relations or in memory."""
    frames = {
        "after": None if after is None else _entries(after, has_looks=looks[1]),
        "runs": None if runs is None else frame_from_rows(runs, RUNS),
        "callbacks": None if callbacks is None else frame_from_rows(callbacks, CALLBACKS),
    }  # fmt: skip
    entries = _entries(before, has_looks=looks[0])
    options: Any = {"retried": retried, "retention": retention}
    expected = tk.find_retry_outcomes(entries, **frames, **options)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Asia/Tokyo'")
    others: dict[str, Any] = dict(frames)
    if all_relations:
        others = {
            name: None if frame is None else _relation(connection, frame)
            for name, frame in frames.items()
        }
    with _without_reading():
        found = tk.find_retry_outcomes(
            _relation(connection, entries), **others, **options
        )
    pd.testing.assert_frame_equal(found.frame, expected.frame)
    pd.testing.assert_frame_equal(found.counts, expected.counts)

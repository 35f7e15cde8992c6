"""An analysis that needs all rows at once names the limit before it reads them."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.widgets.conftest import ordinary
from toolkit.analysis import new_and_gone
from toolkit.errors import NotEnoughMemoryError
from toolkit.failures import frame_sizes, partitions, sources
from toolkit.failures.frame_sizes import estimated_bytes
from toolkit.failures.lifetimes import failure_delays
from toolkit.failures.sql_joins import TEXT, joined_rows
from toolkit.reports.findings import without_repeated
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES
from toolkit.vectors.scores import score_curves


def _partitions(frame: pd.DataFrame) -> Any:
    frames: Any = dask.dataframe
    return frames.from_pandas(frame, npartitions=3)


ENGINES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "dataset": lambda frame: ds.dataset(pa.Table.from_pandas(frame)),
    "duckdb": lambda frame: duckdb.connect().from_arrow(pa.Table.from_pandas(frame)),
    "dask": _partitions,
}
NEEDING_ALL: dict[str, Callable[[Any], object]] = {
    "find_expiring": tk.find_expiring,
    "find_retry_outcomes": lambda rows: tk.find_retry_outcomes(rows, rows),
    "find_retry_outcomes by a later load": lambda rows: tk.find_retry_outcomes(
        frame_from_rows(ordinary(2), FAILURES), rows
    ),
    "new_and_gone": lambda rows: new_and_gone(rows, rows),
    "plan_redrive": tk.plan_redrive,
    "compare_failures": lambda rows: tk.compare_failures(rows, rows),
    "explain_spike": tk.explain_spike,
    "group_failures": tk.group_failures,
    "count_errors": tk.analysis.count_errors,
    "failure_delays": failure_delays,
    "select_failures": lambda rows: tk.select_failures(rows, {"signature": "s"}),
}
"""Analyses that name the limit before they read the rows."""


@pytest.fixture(scope="module")
def failures() -> pd.DataFrame:
    """A few failures without stored signatures."""
    return frame_from_rows(ordinary(12), FAILURES).drop(columns="error")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_frame_that_does_not_fit_is_not_read(
    engine: str, failures: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the needed and the available memory, and a frame in memory is never refused."""
    monkeypatch.setattr(frame_sizes, "available_memory", lambda: 100)
    frame = ENGINES[engine](failures)
    with dask.config.set(scheduler="synchronous"):
        for name, analysis in NEEDING_ALL.items():
            with pytest.raises(NotEnoughMemoryError) as caught:
                analysis(frame)
            assert "GB" in str(caught.value), name
            assert caught.value.next_step
    assert len(tk.find_expiring(failures)) == 12


def _let_nothing_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow 100 bytes of memory, and no reading of rows or results."""

    def reading(*_: object) -> None:
        raise AssertionError("rows were read")

    monkeypatch.setattr(frame_sizes, "available_memory", lambda: 100)
    for module, name in (
        (partitions, "batches"),
        (partitions, "reduced"),
        (sources, "_duckdb_batches"),
        (sources, "_dataset_batches"),
    ):
        monkeypatch.setattr(module, name, reading)


NEEDING_ALL_FIRST: dict[str, Callable[[Any], object]] = {
    "plan_redrive": tk.plan_redrive,
    "count_errors": tk.analysis.count_errors,
    "select_failures": lambda rows: tk.select_failures(rows, {"signature": "s"}),
    "find_similar_failures": lambda rows: tk.find_similar_failures(
        frame_from_rows(ordinary(2), FAILURES), rows
    ),
    "compare_failures of a frame in memory": lambda rows: tk.compare_failures(
        frame_from_rows(ordinary(2), FAILURES), rows
    ),
    "compare_failures with a history": lambda rows: tk.compare_failures(
        frame_from_rows(ordinary(2), FAILURES),
        frame_from_rows(ordinary(3), FAILURES),
        history=rows,
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NEEDING_ALL_FIRST)
def test_the_limit_is_checked_before_any_work(
    name: str, engine: str, failures: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither counts nor rows are read before the error."""
    frame = ENGINES[engine](failures)
    _let_nothing_be_read(monkeypatch)
    with (
        dask.config.set(scheduler="synchronous"),
        pytest.raises(NotEnoughMemoryError, match="GB"),
    ):
        NEEDING_ALL_FIRST[name](frame)


def test_a_frame_that_fits_is_not_read_if_the_other_one_does_not(
    failures: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Dask frame and a relation of DuckDB are read into memory, so that both have to fit."""
    small = failures.head(1).assign(response_body="")
    large = failures.assign(response_body="no order " * 100)
    before, after = ENGINES["dask"](small), ENGINES["duckdb"](large)
    _let_nothing_be_read(monkeypatch)
    monkeypatch.setattr(frame_sizes, "available_memory", lambda: 10_000)
    with (
        dask.config.set(scheduler="synchronous"),
        pytest.raises(NotEnoughMemoryError, match="comparing failures"),
    ):
        tk.compare_failures(before, after)


@pytest.mark.parametrize("engine", ["duckdb", "dask"])
def test_rows_with_repeated_ids_have_to_fit(
    engine: str, failures: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report reads them into memory, to omit all but the last row of each id."""
    frame = ENGINES[engine](pd.concat([failures, failures], ignore_index=True))
    with dask.config.set(scheduler="synchronous"):
        _, repeated = without_repeated(frame, doing="reporting")
        assert repeated == len(failures)
        monkeypatch.setattr(frame_sizes, "available_memory", lambda: 100)
        with pytest.raises(NotEnoughMemoryError):
            without_repeated(frame, doing="reporting")


def test_other_frames_of_a_query_have_to_fit(
    failures: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB joins a relation with rows of Dask, which are read into memory."""
    later = ENGINES["dask"](failures)
    _let_nothing_be_read(monkeypatch)
    with (
        dask.config.set(scheduler="synchronous"),
        pytest.raises(NotEnoughMemoryError, match="finding outcomes"),
    ):
        joined_rows(later, {"dlq_id": TEXT}, doing="finding outcomes", name="after")


def test_the_estimate_reads_one_partition_of_dask() -> None:
    """Later partitions are not read for it, unless the first one has no rows."""
    frames: Any = dask.dataframe
    frame = frames.from_pandas(pd.DataFrame({"n": range(40)}), npartitions=4)
    seen: list[int] = []

    def remembering(part: pd.DataFrame) -> pd.DataFrame:
        seen.append(len(part))
        return part

    with dask.config.set(scheduler="synchronous"):
        rows = frame_sizes._first_rows(
            frame.map_partitions(remembering, meta=frame._meta), ["n"]
        )
        assert (rows.num_rows, seen) == (10, [10])
        late = frame[frame["n"] > 35]
        assert frame_sizes._first_rows(late, ["n"]).num_rows == 4


OF_HITS: dict[str, Callable[[Any], object]] = {
    "summarize": tk.summarize,
    "score_summary": tk.analysis.score_summary,
    "score_bins": tk.analysis.score_bins,
    "score_curves": score_curves,
    "score_moves": lambda rows: tk.analysis.score_moves(rows, rows),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", OF_HITS)
def test_hits_that_do_not_fit_are_not_read(
    name: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores of all hits are needed at once."""
    number = np.arange(40)
    hits = pd.DataFrame(
        {"query": number // 10, "rank": number % 10 + 1, "id": number.astype("str")}
    )
    frame = ENGINES[engine](hits.assign(score=1 / hits["rank"]))
    _let_nothing_be_read(monkeypatch)
    with (
        dask.config.set(scheduler="synchronous"),
        pytest.raises(NotEnoughMemoryError, match="GB"),
    ):
        OF_HITS[name](frame)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_estimate_is_that_of_the_first_rows(engine: str) -> None:
    """Whole numbers take 8 bytes each, whatever the engine."""
    frame = pd.DataFrame({"n": range(4_000), "text": "unread"})
    with dask.config.set(scheduler="synchronous"):
        size = estimated_bytes(ENGINES[engine](frame), ["n"])
    assert 32_000 <= size <= 65_000
    assert estimated_bytes(frame, ["n"]) == 0

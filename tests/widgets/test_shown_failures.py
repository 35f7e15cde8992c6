"""A panel of a snapshot or of another engine reads the latest failures, and names the limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import duckdb
import pandas as pd
import pytest

import toolkit as tk
from tests.widgets.conftest import ordinary
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES
from toolkit.widgets import failure_browser
from toolkit.widgets.shown_failures import shown_failures

ENGINES: dict[str, Callable[[Any], Any]] = {
    "snapshot": lambda snapshot: snapshot,
    "duckdb": lambda snapshot: snapshot.to_duckdb(duckdb.connect()),
    "dask": lambda snapshot: snapshot.to_dask(),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of failures, of which two have equal times and two have none."""
    failures = frame_from_rows(ordinary(12), FAILURES)
    failures.loc[failures.index[4], "failed_at"] = failures["failed_at"].iloc[5]
    untimed = failures.index[[1, 8]]
    failures.loc[untimed, ["failed_at", "created_at"]] = pd.NaT
    path = tmp_path_factory.mktemp("shown") / "failures"
    tk.write_snapshot(failures, path)
    return path


@pytest.mark.parametrize("engine", ENGINES)
def test_the_latest_failures_are_read(engine: str, stored: Path) -> None:
    """Any number of rows are the latest of all; equal times by id, rows without a time last."""
    expected = tk.read_snapshot(stored)
    when = expected["failed_at"].fillna(expected["created_at"])
    order = expected.assign(when=when).sort_values(
        ["when", "dlq_id"], ascending=[False, True], na_position="last"
    )
    frame = ENGINES[engine](tk.open_snapshot(stored))
    with dask.config.set(scheduler="synchronous"):
        for most in (1, 5, 6, 11, 12, 99):
            found = shown_failures(frame, most=most)
            assert found.total == 12
            ids = set(order["dlq_id"].head(most))
            assert set(found.frame["dlq_id"]) == ids, most
    assert [*found.frame.columns.drop("signature")] == [*expected.columns]


def test_the_panel_names_the_limit(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note has both numbers; a frame in memory is shown as a whole."""
    monkeypatch.setattr(
        failure_browser, "shown_failures", lambda rows: shown_failures(rows, most=5)
    )
    panel = tk.FailurePanel(tk.open_snapshot(stored))
    assert len(panel.found()) == 5
    assert "5 of 12" in panel.message
    assert len(tk.FailurePanel(tk.read_snapshot(stored)).found()) == 12

"""An analysis that needs all rows at once names the limit before it reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.dataframe
import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import toolkit as tk
from tests.widgets.conftest import ordinary
from toolkit.analysis import new_and_gone
from toolkit.errors import NotEnoughMemoryError
from toolkit.failures import frame_sizes
from toolkit.failures.frame_sizes import estimated_bytes
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES


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
}


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


@pytest.mark.parametrize("engine", ENGINES)
def test_the_estimate_is_that_of_the_first_rows(engine: str) -> None:
    """Whole numbers take 8 bytes each, whatever the engine."""
    frame = pd.DataFrame({"n": range(4_000), "text": "unread"})
    with dask.config.set(scheduler="synchronous"):
        size = estimated_bytes(ENGINES[engine](frame), ["n"])
    assert 32_000 <= size <= 65_000
    assert estimated_bytes(frame, ["n"]) == 0

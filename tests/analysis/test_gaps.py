"""Times of which failures expired unread: they lower no rate, and trends show them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

import toolkit as tk
from toolkit.analysis.over_time import failure_trend
from toolkit.plots.failure_trend import GAP
from toolkit.receipt import Gap, Receipt
from toolkit.tables.frames import to_frame
from toolkit.tables.schemas import FAILURES

_NOW = datetime(2026, 3, 21, tzinfo=UTC)
_START = _NOW - timedelta(days=21)
_GAP = Gap(
    start=(_START + timedelta(days=8)).isoformat(),
    end=(_START + timedelta(days=13)).isoformat(),
    is_certain=True,
)


def _failures(*gaps: Gap) -> pd.DataFrame:
    """Three failures an hour for 21 days, but none in the five days of the gap."""
    start, end = _GAP.bounds
    minutes = (5, 25, 45)
    times = [_START + timedelta(hours=hour, minutes=minute) for hour in range(21 * 24) for minute in minutes]
    rows = [
        {
            "dlq_id": f"e{number}",
            "workflow_url": "https://shop.example/order",
            "workflow_run_id": f"wfr_{number}",
            "response_status": 500,
            "response_body": "connection refused",
            "failed_at": time,
            "created_at": time,
        }
        for number, time in enumerate(times)
        if not start <= time < end
    ]
    done = Receipt(
        what="failures", source="http://127.0.0.1:1", scope={"kind": "workflows"}, rows=len(rows),
        started_at=_NOW.isoformat(), ended_at=_NOW.isoformat(), complete=True, gaps=gaps,
    )  # fmt: skip
    return to_frame(pa.Table.from_pylist(rows, schema=FAILURES), done)


def test_a_report_leaves_gaps_out_of_the_usual_rate() -> None:
    """72 failures a day are usual, though a quarter of the time before is missing; the report names it."""
    found = tk.failure_report(_failures(_GAP), now=_NOW).to_dict()
    assert found["change"]["expected"] == pytest.approx(72, abs=1)
    (gap,) = found["completeness"]["gaps"]
    assert gap["is_certain"] is True
    assert "2026-03-08" in found["completeness"]["sentence"]
    without = tk.failure_report(_failures(), now=_NOW).to_dict()
    assert without["change"]["expected"] == pytest.approx(54, abs=1)
    assert without["completeness"]["gaps"] == []


def test_a_gap_next_to_the_last_day_leaves_the_change_unknown() -> None:
    """The day before is compared with the last one only if its failures are there."""
    late = Gap(start=(_NOW - timedelta(hours=40)).isoformat(), end=(_NOW - timedelta(hours=30)).isoformat())
    assert tk.failure_report(_failures(late), now=_NOW).to_dict()["recent"]["failures_before"] is None
    assert tk.failure_report(_failures(), now=_NOW).to_dict()["recent"]["failures_before"] == 72


def test_a_trend_leaves_gaps_out_of_what_is_usual() -> None:
    """Bins of a gap count neither for the baseline, nor for the level, nor as a change of the rate."""
    trend = failure_trend(_failures(_GAP), freq="1d")
    assert int(trend.in_gap.sum()) == 5
    assert trend.changes.empty
    assert trend.baseline[-1] == 72
    assert trend.frame["level"].tolist() == [72.0] * 21
    assert len(failure_trend(_failures(), freq="1d").changes) == 2


@pytest.mark.parametrize("layout", ["stacked", "facets", "ranked"])
def test_a_trend_draws_gaps_hatched(layout: str) -> None:
    """Each gap is one hatched area of the time that it takes; without one there is none."""
    axes = tk.plot_failure_trend(_failures(_GAP), layout=layout, ax=Figure((8, 4)).add_subplot())  # type: ignore[arg-type] - from a parameter
    (area,) = [patch for patch in axes.patches if patch.get_gid() == GAP]
    assert area.get_hatch()
    assert area.get_width() == pytest.approx(5)  # type: ignore[attr-defined] - a rectangle
    plain = tk.plot_failure_trend(_failures(), layout=layout, ax=Figure((8, 4)).add_subplot())  # type: ignore[arg-type] - from a parameter
    assert not [patch for patch in plain.patches if patch.get_gid() == GAP]

"""Times of which failures expired unread: they lower no rate, and trends show them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

import toolkit as tk
from toolkit import explain_spike
from toolkit.analysis import find_incidents
from toolkit.drawing.gap_hatching import GAP, GAP_NOTE
from toolkit.failures.over_time import failure_trend
from toolkit.tables.frames import to_frame
from toolkit.tables.receipt import Gap, Receipt
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
    times = [
        _START + timedelta(hours=hour, minutes=minute)
        for hour in range(21 * 24)
        for minute in minutes
    ]
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
    found = tk.report_failures(_failures(_GAP), now=_NOW).to_dict()
    assert found["change"]["expected"] == pytest.approx(72, abs=1)
    (gap,) = found["completeness"]["gaps"]
    assert gap["is_certain"] is True
    assert "2026-03-08" in found["completeness"]["sentence"]
    without = tk.report_failures(_failures(), now=_NOW).to_dict()
    assert without["change"]["expected"] == pytest.approx(54, abs=1)
    assert without["completeness"]["gaps"] == []


def test_a_gap_next_to_the_last_day_leaves_the_change_unknown() -> None:
    """The day before is compared with the last one only if its failures are there."""
    late = Gap(
        start=(_NOW - timedelta(hours=40)).isoformat(),
        end=(_NOW - timedelta(hours=30)).isoformat(),
    )
    assert (
        tk.report_failures(_failures(late), now=_NOW).to_dict()["recent"][
            "failures_before"
        ]
        is None
    )
    assert (
        tk.report_failures(_failures(), now=_NOW).to_dict()["recent"]["failures_before"]
        == 72
    )


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
    axes = tk.plots.plot_failure_trend(
        _failures(_GAP), layout=layout, ax=Figure((8, 4)).add_subplot()
    )  # type: ignore[arg-type] - from a parameter
    (area,) = [patch for patch in axes.patches if patch.get_gid() == GAP]
    assert area.get_hatch()
    assert area.get_width() == pytest.approx(5)  # type: ignore[attr-defined] - a rectangle
    plain = tk.plots.plot_failure_trend(
        _failures(), layout=layout, ax=Figure((8, 4)).add_subplot()
    )  # type: ignore[arg-type] - from a parameter
    assert not [patch for patch in plain.patches if patch.get_gid() == GAP]


def test_a_calendar_hatches_the_hours_of_gaps() -> None:
    """Of a gap from Monday 6:00 to Tuesday 18:30 local time, these hours alone, in any time zone."""
    zone = "Asia/Kolkata"  # half an hour off
    start, end = (
        pd.Timestamp("2026-03-09 06:00", tz=zone),
        pd.Timestamp("2026-03-10 18:30", tz=zone),
    )
    gap = Gap(start=start.isoformat(), end=end.isoformat())
    hours = tk.analysis.count_by_hour(_failures(gap), tz=zone)
    expected = list(range(6, 24 + 19))  # of Monday and Tuesday
    assert hours.index[hours["in_gap"]].tolist() == expected
    axes = tk.plots.plot_failure_calendar(
        _failures(gap), tz=zone, ax=Figure((8, 4)).add_subplot()
    )
    (area,) = [patch for patch in axes.patches if patch.get_gid() == GAP]
    assert len(area.get_path().to_polygons()) == len(expected)
    assert GAP_NOTE in axes.get_xlabel()
    plain = tk.plots.plot_failure_calendar(
        _failures(), tz=zone, ax=Figure((8, 4)).add_subplot()
    )
    assert GAP_NOTE not in plain.get_xlabel()
    assert not tk.analysis.count_by_hour(_failures())["in_gap"].any()


def test_the_browser_marks_gaps_in_its_trend_and_in_those_of_groups() -> None:
    """The bars of the five days are hatched, and the small lines have no zero there."""
    browser, plain = tk.FailurePanel(_failures(_GAP)), tk.FailurePanel(_failures())
    for each in (browser, plain):  # as when the failures were read in the background
        each.groups()
        each._show_groups()
    marked = pd.DataFrame(
        {"start": browser.trend["starts"], "in_gap": browser.trend["gaps"]}
    )
    days = pd.to_datetime(marked["start"][marked["in_gap"]], unit="ms", utc=True)
    start, end = _GAP.bounds
    assert days.min() + timedelta(milliseconds=browser.trend["width"]) > start
    assert days.max() < end
    assert (
        sum(browser.trend["gaps"]) * timedelta(milliseconds=browser.trend["width"])
        >= end - start
    )
    (row,) = browser.board["groups"]
    is_unknown = [count is None for count in row["bars"]]
    assert is_unknown.count(True) > 0
    assert all(
        in_gap
        for in_gap, unknown in zip(browser.trend["gaps"], is_unknown, strict=True)
        if unknown
    )
    assert not any(plain.trend["gaps"])


def _by_wave(*gaps: Gap, rise: bool = False) -> pd.DataFrame:
    """Three failures an hour by day, one by night, none in the gap; sixty of one workflow after it."""
    frame = _failures(*gaps)
    hours = frame["failed_at"].dt.hour
    frame = frame[(hours >= 8) & (hours < 20) | (frame["failed_at"].dt.minute == 5)]
    if not rise:
        return frame
    start = _GAP.bounds[1] + timedelta(days=3, hours=10)
    added = frame.head(60).assign(
        dlq_id=[f"r{number}" for number in range(60)],
        workflow_url="https://shop.example/pay",
        failed_at=pd.date_range(start, periods=60, freq="min").astype(
            "datetime64[ms, UTC]"
        ),
    )
    added["created_at"] = added["failed_at"]
    return pd.concat([frame, added], ignore_index=True).assign(
        dlq_id=lambda rows: rows["dlq_id"]
    )


@pytest.mark.parametrize("failures", [_failures, _by_wave])
def test_the_end_of_a_gap_is_no_incident(failures: Callable[..., pd.DataFrame]) -> None:
    """The rate after a gap is that before it, so nothing rose; without a gap it looks like a rise of all."""
    long_gap = Gap(start=(_START + timedelta(days=1)).isoformat(), end=_GAP.end)
    start, end = (pd.Timestamp(time) for time in long_gap.bounds)
    frame = failures(long_gap)
    frame = frame[(frame["failed_at"] < start) | (frame["failed_at"] >= end)]
    assert find_incidents(frame).empty
    assert not explain_spike(frame).stands_out
    frame.attrs = _failures().attrs
    assert find_incidents(frame)["kind"].tolist() == ["rise"]
    assert explain_spike(frame).stands_out


def test_an_incident_after_a_gap_is_compared_with_the_times_that_are_known() -> None:
    """Expected is the rate of the days with data: with the gap left in, it would be a quarter less."""
    frame = _by_wave(_GAP, rise=True)
    frame.attrs = _failures(_GAP).attrs
    (found,) = find_incidents(frame).to_dict("records")
    assert found["condition"] == {"workflow_url": "https://shop.example/pay"}
    assert found["observed"] == 60
    day = _GAP.bounds[1] + timedelta(days=3)
    window = day, day + timedelta(days=1)
    usual = 3 * 12 + 12
    assert explain_spike(frame, window).expected == pytest.approx(usual, abs=1)
    frame.attrs = _failures().attrs
    assert explain_spike(frame, window).expected < 0.8 * usual


def test_a_workflow_that_always_fails_is_steady_across_a_gap() -> None:
    """Nobody knows whether it failed in the gap, so that the gap does not count against it."""
    frame = _failures(_GAP).assign(workflow_url="https://shop.example/timer")
    others = (
        _failures(_GAP)
        .iloc[::40]
        .assign(workflow_url=[f"https://shop.example/{n % 9}" for n in range(29)])
    )
    both = pd.concat(
        [frame, others.assign(dlq_id=lambda rows: "o" + rows["dlq_id"])],
        ignore_index=True,
    )
    both.attrs = frame.attrs
    assert find_incidents(both)["kind"].tolist() == ["steady"]
    both.attrs = _failures().attrs
    assert "steady" not in find_incidents(both)["kind"].tolist()

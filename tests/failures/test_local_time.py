"""Times are shown, and days are cut, in the zone that was chosen; frames and JSON stay in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

import toolkit as tk
from tests.reports.conftest import failures, ordinary
from toolkit.analysis import failure_trend
from toolkit.base.time_zones import VARIABLE, time_text, time_zone
from toolkit.errors import InputError
from toolkit.failures.time_bins import bin_numbers, bins_of

HOUR = 3_600_000
CHANGES = [  # zone, a day on which clocks are changed or not, hours of that day
    ("Europe/Berlin", "2026-03-29", 23),
    ("Europe/Berlin", "2026-10-25", 25),
    ("America/New_York", "2026-03-08", 23),
    ("America/New_York", "2026-11-01", 25),
    ("Asia/Kathmandu", "2026-03-29", 24),
]


def steady(day: str, zone: str) -> pd.DataFrame:
    """Failures every 15 minutes of five local days, of which this is the third."""
    middle = pd.Timestamp(day, tz=zone)
    first, last = (middle + pd.DateOffset(days=days) for days in (-2, 3))
    when = pd.date_range(
        first.tz_convert("UTC"), last.tz_convert("UTC"), freq="15min", inclusive="left"
    )
    return pd.DataFrame({"failed_at": when, "created_at": when})


@pytest.mark.parametrize(("zone", "day", "hours"), CHANGES)
def test_days_are_cut_at_local_midnight(zone: str, day: str, hours: int) -> None:
    """Counts per day are those of pandas by local dates; a day has the hours that it has there."""
    frame = steady(day, zone)
    counts = tk.analysis.count_over_time(frame, freq="1d", tz=zone)
    assert str(counts["start"].dtype) == "datetime64[ms, UTC]"
    local = counts["start"].dt.tz_convert(zone)
    assert (local.dt.hour + local.dt.minute).eq(0).all()
    by_date = frame["failed_at"].dt.tz_convert(zone).dt.date.value_counts().sort_index()
    assert local.dt.date.tolist() == by_date.index.tolist()
    assert counts["count"].tolist() == by_date.tolist()
    assert counts["count"].tolist() == [96, 96, 4 * hours, 96, 96]
    trend = failure_trend(frame, freq="1d", tz=zone)
    assert trend.ends[2] - trend.starts[2] == timedelta(hours=hours)
    utc = tk.analysis.count_over_time(frame, freq="1d")
    assert utc["start"].dt.hour.eq(0).all()


@given(
    st.lists(
        st.integers(1_262_304_000_000, 1_893_456_000_000), min_size=1, max_size=20
    ),
    st.sampled_from(
        [
            "UTC",
            "Europe/Berlin",
            "America/New_York",
            "Asia/Kathmandu",
            "Australia/Lord_Howe",
        ]
    ),
    st.sampled_from([1, 6, 24, 7 * 24, None]),
)
def test_each_time_is_in_the_bin_that_begins_before_it(
    times: list[int], zone: str, hours: int | None
) -> None:
    """Whatever the zone and the width: bins ascend, none is missing, and each time lies in one."""
    # not more bins than allowed
    times = [
        times[0],
        *(times[0] + time % (3_000 * HOUR) for time in times),
    ]
    minutes = np.array(times, dtype=np.int64)
    starts, width = bins_of(
        minutes,
        None if hours is None else hours * HOUR,
        None,
        "counting",
        ZoneInfo(zone),
    )
    numbers = bin_numbers(minutes, starts)
    assert (np.diff(starts) > 0).all()
    assert ((numbers >= 0) & (starts[numbers] <= minutes)).all()
    assert (minutes < starts[numbers] + width + HOUR).all()


@pytest.mark.slow
def test_the_report_is_in_the_zone_and_its_json_in_utc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Headline, tables, axes, mail and code name it; the argument wins over the variable."""
    now = datetime(2026, 3, 29, 12, tzinfo=UTC)
    rows = ordinary(40)
    for row in rows:
        row["failed_at"] += timedelta(days=19)
    frame = failures(rows, started_at=now.isoformat(), ended_at=now.isoformat())
    monkeypatch.setenv(VARIABLE, "Europe/Berlin")
    report = tk.report_failures(frame, now=now, retention="90d")
    monkeypatch.delenv(VARIABLE)  # the report keeps its zone
    values = report.to_dict()
    assert values["tz"] == "Europe/Berlin"
    assert values["overview"]["last_at"].endswith("+00:00")
    assert "2026-03-29 13:00 CEST" in report.verdict
    body = report.to_email().get_body(("plain",)).get_content()
    for form in (report.to_html(), report.to_markdown(), body):
        assert "CEST" in form
        assert not re.search(r"\d\d:\d\d UTC", form)
    assert "(Europe/Berlin)" in report.to_html()
    assert "tz='Europe/Berlin'" in values["code"]
    (hours,) = [one for one in values["sections"] if one["name"] == "hours"]
    assert "Europe/Berlin" in str(hours["parts"])
    plain = tk.report_failures(frame, now=now, retention="90d", tz="Asia/Kathmandu")
    assert "2026-03-29 16:45 UTC+05:45" in plain.verdict
    assert (
        "tz="
        not in tk.report_failures(frame, now=now, retention="90d").to_dict()["code"]
    )


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Asia/Kathmandu"]
)
def test_ticks_of_plots_are_at_local_midnight(zone: str) -> None:
    """Also after clocks are changed; the label of the axis names the zone."""
    frame = steady("2026-03-08" if zone.startswith("America") else "2026-03-29", zone)
    ax = tk.plots.plot_failure_trend(
        frame, freq="1d", tz=zone, ax=Figure(figsize=(9, 4)).add_subplot()
    )
    ticks = (
        pd.to_datetime(ax.get_xticks(), unit="D", utc=True).round("s").tz_convert(zone)
    )
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert (ticks.hour + ticks.minute == 0).all()
    assert labels == [f"{tick.day} {tick:%b}" for tick in ticks]
    assert f"({zone})" in ax.get_xlabel()


def test_a_time_is_shown_with_its_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """By abbreviation, or by offset if it has none; an unknown zone is an error that names the variable."""
    when = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert time_text(when) == "2026-07-01 12:00 UTC"
    monkeypatch.setenv(VARIABLE, "America/New_York")
    assert time_text(when) == "2026-07-01 08:00 EDT"
    assert time_text(when, time_zone("Asia/Kathmandu")) == "2026-07-01 17:45 UTC+05:45"
    monkeypatch.setenv(VARIABLE, "Mars/Olympus")
    with pytest.raises(InputError, match=VARIABLE):
        time_text(when)

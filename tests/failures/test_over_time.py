"""Counts over time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.analysis import failure_calendar, failure_trend
from toolkit.errors import InputError
from toolkit.tables.frames import frame_from_rows, to_table
from toolkit.tables.schemas import FAILURES

START = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday


def frame(*rows):
    return frame_from_rows(
        [{"dlq_id": str(number), **row} for number, row in enumerate(rows)], FAILURES
    )


def failed(minutes, **more):
    return {"failed_at": START + timedelta(minutes=minutes), **more}


def created(minutes, **more):
    return {"created_at": START + timedelta(minutes=minutes), **more}


def test_counts_by_hand():
    """Bins are whole multiples of the width, quiet ones are zero, failures count at their failure time."""
    rows = frame(failed(1), failed(59), failed(60), failed(200, created_at=START))
    trend = failure_trend(rows, freq="1h")
    assert trend.counts.tolist() == [[2, 1, 0, 1]]
    assert trend.starts[0] == START
    assert trend.step == timedelta(hours=1)
    assert (trend.total, trend.fell_back, trend.undated) == (4, 0, 0)


def test_rows_without_failure_time_are_counted_at_creation_and_reported():
    """Rows without failed_at are placed at created_at and counted as such; undated ones are left out."""
    trend = failure_trend(frame(failed(0), created(0), created(70), {}), freq="1h")
    assert trend.counts.tolist() == [[2, 1]]
    assert (trend.fell_back, trend.undated) == (2, 1)


def test_implausible_times_are_left_out():
    """A zero or far-future time does not squeeze the axis."""
    rows = frame(
        failed(0),
        {"failed_at": datetime(1970, 1, 1, tzinfo=UTC)},
        {"created_at": datetime(2900, 1, 1, tzinfo=UTC)},
    )
    trend = failure_trend(rows)
    assert (trend.total, trend.undated, len(trend.starts)) == (1, 2, 1)


def test_groups_are_ordered_and_the_remainder_is_merged():
    """The largest groups are first, a missing value is a group, and all others are one last group."""
    urls = ["b", "b", "a", "a", "a", None, "c"]
    trend = failure_trend(
        frame(*(failed(0, workflow_url=url) for url in urls)), by="workflow_url", top=2
    )
    assert trend.groups == ("a", "b", "other (2)")
    assert trend.counts.tolist() == [[3], [2], [2]]
    assert trend.merged == 2
    whole = failure_trend(
        frame(*(failed(0, workflow_url=url) for url in urls)), by="workflow_url"
    )
    assert whole.groups == ("a", "b", "(none)", "c")


def test_a_group_named_like_the_remainder_is_kept_separate():
    """A value that reads like the merged group keeps its own numbers."""
    urls = ["other (1)", "other (1)", "x"]
    trend = failure_trend(
        frame(*(failed(0, workflow_url=url) for url in urls)), by="workflow_url", top=1
    )
    assert trend.counts.tolist() == [[2], [1]]


@pytest.mark.parametrize(
    ("minutes", "step"),
    [
        (0, timedelta(minutes=1)),
        (24 * 60, timedelta(minutes=30)),
        (7 * 24 * 60, timedelta(hours=3)),
        (400 * 24 * 60, timedelta(days=7)),
    ],
)
def test_width_is_chosen_from_the_span(minutes, step):
    """The narrowest width with at most 60 bins is chosen."""
    trend = failure_trend(frame(failed(0), failed(minutes)))
    assert trend.step == step
    assert len(trend.starts) <= 60


def test_weeks_begin_on_mondays():
    """Seven-day bins begin on Mondays."""
    trend = failure_trend(frame(failed(3 * 24 * 60)), freq="7d")
    assert trend.starts[0] == START


def test_now_extends_the_axis():
    """Quiet after the last failure is seen."""
    trend = failure_trend(frame(failed(0)), freq="1h", now=START + timedelta(hours=3))
    assert trend.counts.tolist() == [[1, 0, 0, 0]]


def test_arrow_and_duckdb_return_the_same_as_pandas():
    """The numbers are the same from pandas, from Arrow, and from DuckDB in another time zone."""
    rows = frame(failed(1, workflow_url="a"), created(90, workflow_url="b"), {})
    table = to_table(rows, FAILURES)
    connection = duckdb.connect()
    connection.sql("set timezone = 'Asia/Kolkata'")
    for other in (table, connection.from_arrow(table)):
        expected, got = (
            failure_trend(source, by="workflow_url") for source in (rows, other)
        )
        pd.testing.assert_frame_equal(expected.to_frame(), got.to_frame())
        assert (expected.fell_back, expected.undated) == (got.fell_back, got.undated)


def test_empty_frame_has_no_bins():
    """No rows is a normal result with its columns and types."""
    trend = failure_trend(frame(), by="workflow_url")
    assert trend.total == 0
    assert trend.to_frame().dtypes.astype(str).to_dict() == {
        "group": "str", "start": "datetime64[ms, UTC]", "count": "Int64",
    }  # fmt: skip


def test_the_frame_is_not_changed():
    """The caller's frame and its attributes are not changed."""
    rows = frame(failed(1))
    rows.attrs["receipt"] = {"rows": 1}
    before = rows.copy(deep=True)
    failure_trend(rows, by="workflow_url")
    pd.testing.assert_frame_equal(rows, before)
    assert rows.attrs == {"receipt": {"rows": 1}}


@pytest.mark.parametrize(
    "options",
    [
        {"by": "nothing"},
        {"freq": "soon"},
        {"freq": "90s"},
        {"freq": "1min"},
        {"top": 0},
    ],
)
def test_bad_options_are_refused(options):
    """Unknown columns, unusable widths, too many bins and no groups are errors."""
    rows = frame(failed(0), failed(30 * 24 * 60))
    with pytest.raises(InputError, match="expected"):
        failure_trend(rows, **options)


def test_something_else_than_a_frame_is_refused():
    """A list is not a frame."""
    with pytest.raises(InputError, match="a frame"):
        failure_trend([1, 2])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 60 * 24 * 40),
            st.sampled_from(["a", "b", "c", None]),
            st.booleans(),
        ),
        max_size=30,
    ),
    st.sampled_from([None, "15min", "6h", "1d"]),
    st.integers(1, 4),
)
def test_every_dated_row_is_in_exactly_one_bin(rows, freq, top):
    """For any rows, widths and groups, the counts add up, and each row is in the bin of its time."""
    made = [
        (failed if has else created)(minutes, workflow_url=url)
        for minutes, url, has in rows
    ]
    trend = failure_trend(frame(*made), by="workflow_url", freq=freq, top=top)
    assert trend.total == len(rows)
    assert trend.fell_back == sum(not has for _, _, has in rows)
    assert all(trend.starts[1:] - trend.starts[:-1] == trend.step)
    assert len(trend.groups) == trend.counts.shape[0] <= top + 1
    moments = [START + timedelta(minutes=minutes) for minutes, _, _ in rows]
    assert trend.counts.sum(axis=0).tolist() == [
        sum(start <= moment < start + trend.step for moment in moments)
        for start in trend.starts
    ]


def test_the_baseline_is_the_median_of_the_same_hour_before():
    """Of earlier weeks where there are three, else of earlier days; a burst last week does not move it."""
    hours = np.arange(24 * 22)
    counts = np.where(hours % 24 == 12, 10, 1)
    counts[24 * 15 + 12] = 500
    rows = [
        START + timedelta(hours=int(hour), minutes=5)
        for hour in np.repeat(hours, counts)
    ]
    trend = failure_trend(
        pd.DataFrame({"failed_at": rows, "created_at": rows}), freq="1h"
    )
    assert np.isnan(trend.baseline[:72]).all()
    assert trend.baseline[24 * 16 + 12] == 10
    assert trend.baseline[24 * 21 + 11 : 24 * 21 + 14].tolist() == [1, 10, 1]
    assert np.isnan(
        failure_trend(frame(failed(0), failed(500)), freq="7min").baseline
    ).all()


def test_a_burst_on_every_other_day_is_not_usual():
    """The baseline is a count that was seen, never one between a burst and a quiet day."""
    rows = [
        START + timedelta(days=day, hours=13, minutes=minute)
        for day in range(6)
        for minute in range(50 if day % 2 else 5)
    ]
    trend = failure_trend(
        pd.DataFrame({"failed_at": rows, "created_at": rows}), freq="1D"
    )
    assert trend.counts.sum(axis=0).tolist() == [5, 50, 5, 50, 5, 50]
    assert trend.baseline[3:].tolist() == [5, 5, 5]


def test_changes_of_level_have_times_and_levels():
    """A release that triples failures is found at its hour."""
    rng = np.random.default_rng(1)
    hours = np.repeat(
        np.arange(200), rng.poisson(np.where(np.arange(200) < 120, 20, 60))
    )
    rows = [START + timedelta(hours=int(hour)) for hour in hours]
    markers = {
        "release 2": START + timedelta(hours=120),
        "late": START + timedelta(days=90),
    }
    trend = failure_trend(
        pd.DataFrame({"failed_at": rows, "created_at": rows}),
        freq="1h",
        markers=markers,
    )
    assert trend.changes["start"].tolist() == [START + timedelta(hours=120)]
    found = trend.frame
    assert found["level"].nunique() == 2
    assert found["level"].iloc[119] == pytest.approx(20, rel=0.1)
    assert found["level"].iloc[120] == pytest.approx(60, rel=0.1)
    assert found["marker"].dropna().to_dict() == {120: "release 2"}
    assert found["rate"].isna().all()


def test_rates_where_runs_are_known():
    """Failures a run, by group and in all; missing where no run started."""
    rows = frame(failed(1, label="a"), failed(2, label="b"), failed(130, label="a"))
    started = [START + timedelta(minutes=minute) for minute in (-5, 0, 10, 20, 59, 200)]
    trend = failure_trend(
        rows, by="label", freq="1h", runs=pd.DataFrame({"created_at": started})
    )
    assert trend.runs is not None
    assert trend.rates is not None
    assert trend.runs.tolist() == [4, 0, 0]
    assert trend.rates[:, 0].tolist() == [0.25, 0.25]
    assert np.isnan(trend.rates[:, 1:]).all()
    assert trend.frame["rate"].iloc[0] == 0.5


def test_markers_are_times_with_names():
    """Any time that pandas or people write, in order, names masked; anything else is an error."""
    secret = "Bearer abcdefghijklmnopqrstuvwxyz0123456789"
    pairs = [
        (pd.Timestamp("2026-03-03"), "b"),
        ("2026-03-02T10:00Z", "a"),
        (np.datetime64("2026-03-04"), secret),
    ]
    trend = failure_trend(frame(failed(0)), markers=pairs)
    assert [name for _, name in trend.markers][:2] == ["a", "b"]
    assert "abcdefghij" not in str(trend.markers)
    series = pd.Series(
        {"b": pd.Timestamp("2026-03-03"), "a": pd.Timestamp("2026-03-02T10:00")}
    )
    assert failure_trend(frame(failed(0)), markers=series).markers == trend.markers[:2]
    for wrong in (
        "x",
        5,
        [("2026-03-02",)],
        [("soon", "a")],
        {"a": None},
        [("2026-03-02", "")],
        [5],
        series.reset_index(drop=True),
    ):
        with pytest.raises(InputError, match="markers"):
            failure_trend(frame(failed(0)), markers=wrong)
    nothing = failure_trend(frame(), markers={"a": "2026-03-02"})
    assert (len(nothing.frame), len(nothing.changes), len(nothing.baseline)) == (
        0,
        0,
        0,
    )
    assert str(nothing.frame["count"].dtype) == "Int64"


@pytest.mark.parametrize(
    ("tz", "name"),
    [
        ("utc", "UTC"),
        (UTC, "UTC"),
        (pd.Timestamp("2026-03-02", tz="UTC").tz, "UTC"),
        (ZoneInfo("Europe/Berlin"), "Europe/Berlin"),
    ],
)
def test_time_zones_are_names_or_know_theirs(tz, name):
    """As a column of times has one; a zone without a name, and what is none, is an error."""
    calendar = failure_calendar(frame(failed(0)), tz=tz)
    assert calendar.tz == name
    assert calendar.counts[0, 1 if name == "Europe/Berlin" else 0] == 1
    for wrong in (timezone(timedelta(hours=3)), "nowhere", "", "../UTC", 3):
        with pytest.raises(InputError, match="reading tz"):
            failure_calendar(frame(failed(0)), tz=wrong)


def test_the_groups_of_a_spike_of_today_are_named() -> None:
    """A group with few failures in total, but most of the last bars, is not merged into the others."""
    rows = [(hour, f"old/{hour % 6}") for hour in range(24 * 14) for _ in range(4)]
    rows += [(24 * 14 - 1, "new")] * 60
    start = pd.Timestamp("2026-01-01", tz="UTC")
    times = [start + pd.Timedelta(hours=hour) for hour, _ in rows]
    frame = pd.DataFrame(
        {
            "failed_at": times,
            "created_at": times,
            "workflow_url": [url for _, url in rows],
        }
    )
    trend = failure_trend(frame, by="workflow_url", top=4)
    assert trend.groups[:1] == ("old/0",)
    assert trend.groups[3:] == ("new", "other (3)")
    assert trend.counts.sum() == len(rows)
    marked = failure_trend(
        frame.iloc[:-60], by="workflow_url", top=4, markers={"deploy": start}
    )
    assert marked.merged == 2

"""Plots show the data of the frames."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

import toolkit as tk
from toolkit.drawing.bar_heights import readable_top
from toolkit.errors import InputError

MOMENTS = st.datetimes(
    datetime(2026, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    datetime(2026, 2, 1),  # noqa: DTZ001 - the same
    timezones=st.just(UTC),
)
ROWS = st.lists(
    st.tuples(
        MOMENTS,
        st.sampled_from(["a", "b", "c", "d", "e"]),
        st.sampled_from([404, 500, None]),
    ),
    min_size=2,
)


def axes():
    return Figure(figsize=(8, 4), layout="constrained").add_subplot()


def frame(rows):
    when = pd.Series([row[0] for row in rows], dtype="datetime64[ms, UTC]")
    return pd.DataFrame(
        {
            "dlq_id": [str(number) for number in range(len(rows))],
            "failed_at": when,
            "created_at": when - pd.Timedelta("90s"),
            "workflow_url": pd.Series([row[1] for row in rows], dtype="str"),
            "response_status": pd.Series([row[2] for row in rows], dtype="Int64"),
            "max_retries": pd.Series([3] * len(rows), dtype="Int64"),
        }
    )


def cells(ax):
    return np.ma.filled(ax.collections[0].get_array(), 0)


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(ROWS)
def test_every_failure_is_drawn_once(rows):
    """Bars and cells of every plot add up to the rows of the frame."""
    found, count = frame(rows), len(rows)
    stacked = tk.plots.plot_failure_trend(found, by="workflow_url", ax=axes())
    assert sum(bars.heights.sum() for bars in stacked.patches) == count
    facets = tk.plots.plot_failure_trend(
        found, by="workflow_url", layout="facets", ax=axes()
    )
    heights = sum(bars.heights.sum() for bars in facets.patches)
    ranked = tk.plots.plot_failure_trend(
        found, by="workflow_url", layout="ranked", ax=axes()
    )
    assert cells(ranked).sum() == count
    full = sum(np.minimum(row / readable_top(row), 1).sum() for row in cells(ranked))
    assert heights == pytest.approx(0.85 * full)
    assert cells(tk.plots.plot_failure_calendar(found, ax=axes())).sum() == count
    assert cells(tk.plots.plot_failure_matrix(found, ax=axes())).sum() == count
    assert (
        sum(
            bar.get_height()
            for bar in tk.plots.plot_time_to_failure(found, ax=axes()).patches
        )
        == count
    )
    assert (
        sum(
            bar.get_height()
            for bar in tk.plots.plot_retries_used(found, ax=axes()).patches
        )
        == count
    )
    expiry = tk.plots.plot_expiry(
        found, "40d", now=datetime(2026, 2, 2, tzinfo=UTC), ax=axes()
    )
    assert sum(bar.get_height() for bar in expiry.patches) == count


def test_the_calendar_is_local():
    """An hour of the night in UTC is one of the morning in Istanbul, and of the next day."""
    # a Sunday
    found = frame([(datetime(2026, 3, 1, 22, 30, tzinfo=UTC), "a", 500)] * 2)
    assert np.argwhere(
        cells(tk.plots.plot_failure_calendar(found, ax=axes()))
    ).tolist() == [[6, 22]]
    local = tk.plots.plot_failure_calendar(found, tz="Europe/Istanbul", ax=axes())
    assert np.argwhere(cells(local)).tolist() == [[0, 1]]
    assert "Europe/Istanbul" in local.get_xlabel()
    with pytest.raises(InputError, match="Europe/Istanbul"):
        tk.plots.plot_failure_calendar(found, tz="Nowhere", ax=axes())


def test_rows_that_cannot_be_drawn_are_reported():
    """Rows without times, numbers or vectors are counted in a label."""
    found = frame([(datetime(2026, 1, 1, 5, tzinfo=UTC), "a", 500)] * 3)
    found.loc[0, ["failed_at", "created_at"]] = pd.NaT
    found.loc[1, "max_retries"] = pd.NA
    assert (
        "1 failure without a usable time"
        in tk.plots.plot_failure_calendar(found, ax=axes()).get_xlabel()
    )
    assert (
        "1 failure without both times"
        in tk.plots.plot_time_to_failure(found, ax=axes()).get_xlabel()
    )
    assert (
        "1 row without a number"
        in tk.plots.plot_retries_used(found, ax=axes()).get_xlabel()
    )
    expiry = tk.plots.plot_expiry(
        found, "7d", now=datetime(2026, 1, 8, 4, tzinfo=UTC), ax=axes()
    )
    assert "1 without a usable time" in expiry.get_xlabel()
    assert expiry.get_title("left").startswith("Failures by time of expiry, kept 7 d")
    due = tk.plots.plot_expiry(found, now=datetime(2026, 1, 9, tzinfo=UTC), ax=axes())
    assert (
        due.texts[0].get_text()
        == "Nothing left to expire (2 due already, 1 without a usable time)"
    )


def test_callbacks_tell_used_up_retries_from_others():
    """Of callbacks, those with retries left are drawn on the others, with a legend."""
    callbacks = pd.DataFrame({"retried": [0, 3, 3, 1], "max_retries": [3, 3, 5, 1]})
    ax = tk.plots.plot_retries_used(callbacks, ax=axes())
    heights = [[int(bar.get_height()) for bar in bars] for bars in ax.containers]
    assert heights == [[0, 1, 0, 1], [1, 0, 0, 1]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "retries used up",
        "retries left",
    ]


def test_scores_by_rank_and_as_shares():
    """Lines hold the scores in the order of ranks, and shares of hits that end at all of them."""
    found = pd.DataFrame(
        {
            "query": [0, 0, 1, 1],
            "rank": [2, 1, 1, 2],
            "score": [0.4, 0.9, 0.8, 0.1],
            "id": list("abcd"),
        }
    )
    ax = tk.plots.plot_score_by_rank(found, ax=axes())
    assert [line.get_ydata().tolist() for line in ax.lines[:2]] == [
        [0.9, 0.4],
        [0.8, 0.1],
    ]
    assert [text.get_text() for text in ax.texts] == ["0", "1"]
    ax = tk.plots.plot_score_distribution(found, kind="ecdf", bins=2, ax=axes())
    assert [line.get_ydata().tolist() for line in ax.lines[:2]] == [[0, 0.5, 1, 1]] * 2
    with pytest.raises(InputError, match="histogram"):
        tk.plots.plot_score_distribution(found, kind="pie", ax=axes())
    with pytest.raises(InputError, match="stacked"):
        tk.plots.plot_failure_trend(frame([]), layout="pie", ax=axes())


def test_names_at_line_ends_do_not_overlap():
    """Eight lines that end at one height have eight labels, none over another."""
    found = pd.concat(
        pd.DataFrame(
            {
                "query": q,
                "rank": [1, 2],
                "score": [0.9 - q / 100, 0.5],
                "id": ["a", "b"],
            }
        )
        for q in range(8)
    )
    ax = tk.plots.plot_score_by_rank(found, ax=axes())
    ax.figure.draw_without_rendering()
    boxes = sorted(
        (text.get_window_extent() for text in ax.texts), key=lambda box: box.y0
    )
    assert len(boxes) == 8
    assert all(low.y1 <= high.y0 + 1 for low, high in itertools.pairwise(boxes))


def test_hits_of_one_configuration_alone_stand_on_its_margin():
    """New and missing hits are drawn, and counted in the legend."""
    before = pd.DataFrame(
        {"query": 0, "rank": [1, 2], "id": ["a", "b"], "score": [0.9, 0.8]}
    )
    after = pd.DataFrame(
        {"query": 0, "rank": [1, 2], "id": ["b", "c"], "score": [0.7, 0.6]}
    )
    ax = tk.plots.plot_score_comparison(
        before, after, names=("dense", "hybrid"), ax=axes()
    )
    points = [collection.get_offsets().tolist() for collection in ax.collections]
    assert points[0] == [[0.8, 0.7]]
    assert points[1][0][0] == 0.9
    assert points[2][0][1] == 0.6
    assert points[1][0][1] == points[2][0][0] < 0.6
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["1 in both", "1 only dense", "1 only hybrid", "equal scores"]

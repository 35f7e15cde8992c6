"""Times of expiry, and numbers of retries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

import toolkit as tk
from toolkit import find_expiring
from toolkit.analysis import count_expiring, expiry_bins, retries_used
from toolkit.errors import InputError
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

NOW = datetime(2026, 3, 10, tzinfo=UTC)


def test_expiry_by_hand():
    """Entries expire a retention after failure, else creation, which is reported; unknown ones are last."""
    rows = frame_from_rows(
        [
            {
                "dlq_id": "later",
                "failed_at": NOW - timedelta(days=1),
                "created_at": NOW - timedelta(days=6),
            },
            {"dlq_id": "due", "failed_at": NOW - timedelta(days=8)},
            {
                "dlq_id": "soon",
                "created_at": NOW - timedelta(days=7) + timedelta(hours=6),
            },
            {"dlq_id": "unknown"},
        ],
        FAILURES,
    )
    found = find_expiring(rows, "7d", NOW)
    assert found["dlq_id"].tolist() == ["due", "soon", "later", "unknown"]
    assert found["hours_left"].fillna(-999).tolist() == [-24.0, 6.0, 144.0, -999]
    assert found["basis"].fillna("-").tolist() == [
        "failed_at",
        "created_at",
        "failed_at",
        "-",
    ]
    assert str(found["expires_at"].dtype) == "datetime64[ms, UTC]"
    summary = count_expiring(rows, "7d", NOW)
    assert summary.equals(count_expiring(rows, now=NOW))
    assert dict(zip(summary["when"], summary["count"], strict=True)) == {
        "already due": 1, "within 6 hours": 1, "within 24 hours": 0,
        "within 3 days": 0, "later": 1, "unknown": 1,
    }  # fmt: skip


def test_nothing_expires():
    """An empty frame returns no rows, with types, and a summary of zeros."""
    nothing = frame_from_rows([], FAILURES)
    assert len(find_expiring(nothing, timedelta(days=3), NOW)) == 0
    assert count_expiring(nothing, timedelta(days=3), NOW)["count"].tolist() == [0] * 6


def test_numbers_of_retries_may_be_floats():
    """In a frame of whole numbers with one missing, pandas has floats: they count as the same numbers."""
    found = retries_used(
        pd.DataFrame({"retried": [0, 3, None], "max_retries": [3, 3, 2]})
    )
    assert (found.used_up.tolist(), found.others.tolist(), found.left_out) == (
        [0, 0, 0, 1],
        [1, 0, 0, 0],
        1,
    )


def test_a_history_that_holds_no_times_is_refused():
    """A column of a sync with other values, as when a file was written by hand, is named in the error."""
    times = pd.to_datetime(["2026-01-05 10:00"], utc=True)
    before = pd.DataFrame(
        {
            "dlq_id": "a",
            "workflow_url": "u",
            "workflow_run_id": "r",
            "failed_at": times,
            "created_at": times,
        }
    )
    for column in ("gone_after", "gone_before"):
        with pytest.raises(InputError, match=column):
            tk.find_retry_outcomes(before.assign(**{column: '{"A": ["b"]}'}))


def test_expiries_without_their_column_are_an_error():
    """Failures themselves, say: what is missing is named."""
    with pytest.raises(InputError, match="hours_left"):
        expiry_bins(pd.DataFrame({"dlq_id": ["a"]}), NOW)

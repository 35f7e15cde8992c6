"""Where a history begins and ends, rises of everything, and errors that are worded anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.analysis import find_incidents

_WORKFLOWS = [f"https://shop.example.com/flows/{number}" for number in range(40)]
_ERRORS = ["TypeError: no total", "disk is full", "deadlock was detected", "timed out"]
_START = pd.Timestamp("2026-03-01", tz="UTC")
_END = datetime(2026, 3, 15, tzinfo=UTC)


def failures(seed, *parts):
    """Failures from the hours of a history: from, until, how many, of which workflow, with which error."""
    rng = np.random.default_rng(seed)
    frames = []
    for start, stop, count, workflow, error in parts:
        when = _START + pd.to_timedelta(
            np.sort(rng.uniform(start, stop, count)), unit="h"
        ).floor("s")
        frames.append(
            pd.DataFrame({
                "failed_at": when,
                "created_at": when,
                "workflow_url": rng.choice(_WORKFLOWS, count) if workflow is None else _WORKFLOWS[workflow],
                "response_body": rng.choice(_ERRORS, count) if error is None else error,
                "labels": rng.choice(['["free"]', '["team"]'], count, p=[0.6, 0.4]),
            })
        )  # fmt: skip
    frame = pd.concat(frames).sort_values("failed_at", ignore_index=True)
    frame["dlq_id"] = [f"d{number}" for number in range(len(frame))]
    missing = (
        "response_status response_body_base64 response_headers headers body body_base64"
    )
    run = frame["dlq_id"].str.replace("d", "wfr_")
    frame = frame.assign(
        **dict.fromkeys(missing.split()), workflow_run_id=run, max_retries=3
    )
    return frame.assign(url=frame["workflow_url"], failure_function_state=None)


QUIET = (0, 336, 2000, None, None)
STORY = (226, 228, 120, 3, "no healthy upstream")


@pytest.mark.parametrize("stray", ["2025-11-01", "2026-06-01"])
@pytest.mark.parametrize("parts", [[QUIET], [QUIET, STORY]])
def test_a_clock_that_was_wrong_changes_nothing(parts, stray):
    """One failure months before or after all others: the same incidents as without it."""
    frame = failures(1, *parts)
    expected = find_incidents(frame)
    assert len(expected) == len(parts) - 1
    frame.loc[5, ["failed_at", "created_at"]] = pd.Timestamp(stray, tz="UTC")
    found = find_incidents(frame)
    columns = ["condition", "observed", "from_at", "until_at"]
    pd.testing.assert_frame_equal(found[columns], expected[columns])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("days", [7, 30, 60])
def test_looking_later_finds_no_more(seed, days):
    """Nobody knows that the days since the last failure were quiet."""
    now = _END + timedelta(days=days)
    assert find_incidents(failures(seed, QUIET), now=now).empty
    found = find_incidents(failures(seed, QUIET, STORY), now=now)
    assert found["observed"].tolist() == [120]
    assert not found["goes_on"].any()


def test_failures_after_the_end_are_left_out():
    """As if the frame had been cut there."""
    frame = failures(2, QUIET, STORY)
    now = (_START + pd.Timedelta(hours=227)).to_pydatetime()
    found = find_incidents(frame, now=now)
    cut = find_incidents(frame[frame["failed_at"] <= now], now=now)
    pd.testing.assert_frame_equal(
        found.drop(columns="share"), cut.drop(columns="share")
    )
    assert found["goes_on"].tolist() == [True]
    assert find_incidents(failures(2, QUIET), now=now).empty
    before_all = tk.explain_spike(frame, now=_START - pd.Timedelta(days=1))
    assert not before_all.stands_out
    later = (_END - timedelta(days=2), _END)
    # a window that is given is read
    assert "observed" in repr(tk.explain_spike(frame, later, now=now))


@pytest.mark.parametrize(("start", "stop", "before", "more"), [
    (200, 201, 2000, 60),
    (200, 201, 2000, 300),
    (200, 224, 2000, 280),
    (200, 224, 2000, 1000),
    (168, 336, 1000, 500),
    (168, 336, 1000, 4500),
])  # fmt: skip
def test_a_rise_of_everything_is_named_as_that(start, stop, before, more):
    """All failures, from when until when, and not a part of them that rose no more than the others."""
    frame = failures(
        more, (0, 336, before, None, None), (start, stop, more, None, None)
    )
    found = find_incidents(frame)
    assert found["condition"].tolist() == [{}]
    incident = found.iloc[0]
    selected = tk.select_failures(
        frame, {}, since=incident["from_at"], until=incident["until_at"]
    )
    assert (
        len(selected)
        == incident["observed"]
        == pytest.approx(before * (stop - start) / 336 + more, rel=0.2)
    )
    assert incident["excess"] == pytest.approx(more, rel=0.25)
    begun = _START + pd.Timedelta(hours=start)
    assert abs(incident["from_at"] - begun) <= pd.Timedelta(
        hours=0.2 + (stop - start) / 8
    )
    assert incident["goes_on"] == (stop == 336)
    assert "all failures rose" in repr(tk.explain_spike(frame))
    assert "all failures" in tk.report_failures(frame, now=_END).verdict.lower()


def test_incidents_that_share_failures_count_them_both():
    """Each has as many as a selection of its condition returns."""
    shared = (130, 133, 20, 0, "no route to host")
    frame = failures(
        0,
        (0, 240, 600, None, None),
        shared,
        (130, 133, 60, 0, None),
        (130, 133, 45, None, shared[-1]),
    )
    found = find_incidents(frame)
    assert len(found) > 1
    for row in found.itertuples():
        selected = tk.select_failures(
            frame, row.condition, since=row.from_at, until=row.until_at
        )
        assert len(selected) == row.observed
    both = pd.concat([
        tk.select_failures(frame, row.condition, since=row.from_at, until=row.until_at)
        for row in found.itertuples()
    ])  # fmt: skip
    explained = both["dlq_id"].nunique() / len(frame)
    assert found["share"].sum() > explained
    page = tk.report_failures(
        frame, now=datetime(2026, 3, 11, tzinfo=UTC)
    ).to_markdown()
    assert f"{len(found)} explanations for {explained:.0%}".replace("%", " %") in page


def test_an_error_that_is_worded_anew_is_no_rise():
    """Another text at the same rate: nothing rose, neither before nor after."""
    old, new = (
        (0, 204, 400, 3, "price is missing"),
        (204, 336, 260, 3, "PriceError: no amount given"),
    )
    assert find_incidents(failures(1, QUIET, old, new)).empty
    more = find_incidents(failures(1, QUIET, old, (204, 336, 900, 3, new[-1])))
    assert [row.workflows for row in more.itertuples()] == [(_WORKFLOWS[3],)]


def test_a_new_error_beside_the_old_one_is_a_rise():
    """The old one goes on."""
    frame = failures(
        1,
        QUIET,
        (0, 336, 600, 3, "price is missing"),
        (200, 336, 250, 3, "PriceError: no amount"),
    )
    assert find_incidents(frame)["observed"].tolist() == [250]

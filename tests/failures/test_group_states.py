"""States of groups by their counts alone, as the panel shows them and as a watch reports them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from tests.reports.conftest import failures
from toolkit.failures.group_counts import GroupCount, hour_of
from toolkit.failures.group_states import group_states

END = datetime(2026, 3, 10, 12, tzinfo=UTC)


def times(*parts: tuple[float, float, int]) -> pd.Series:
    """Times of failures: so many evenly between two times, in hours before the end."""
    hours = np.concatenate([np.linspace(*part) for part in parts])
    return pd.Series(END - pd.to_timedelta(hours, unit="h")).dt.as_unit("ms")


@pytest.mark.parametrize(
    ("parts", "state"),
    [
        ([(200, 24, 60), (23, 0.1, 100)], "growing"),
        # a fix ended it five hours ago
        ([(200, 24, 60), (23, 5, 100), (4, 1, 1)], "steady"),
        # a few failures a day come in no order that tells anything
        ([(200, 24, 8), (23, 6, 12)], "growing"),
        ([(200, 24, 60), (23, 0.1, 9)], "steady"),
        ([(200, 30, 60)], "ended"),
        ([(200, 198, 60), (3, 0.1, 5)], "back again"),
        # an error of every other week is not back again each time
        ([(400, 100, 4), (3, 2, 1)], "steady"),
    ],
)
def test_a_group_that_nearly_stopped_is_not_growing(
    parts: list[tuple[float, float, int]], state: str
) -> None:
    """The panel and a watch have the same state."""
    when = times(*parts)
    (found,) = group_states(when, np.zeros(len(when), dtype=np.int64), 1, END)
    assert found.state == state
    count = GroupCount("an error")
    count.add(sorted(hour_of(moment) for moment in when))
    assert count.state(hour_of(END), hour_of(when.min())).state == state


@pytest.mark.parametrize("age", [26, 36, 60])
def test_an_error_with_pauses_is_steady_everywhere(age: int) -> None:
    """A dozen failures every three hours since it began: as many as before, for all that tell."""
    random = np.random.default_rng(age)
    calm = {text: random.uniform(0, 240, 600) for text in ("timed out", "disk full")}
    clumps = [start - random.uniform(0, 0.07, 12) for start in np.arange(age, 0.1, -3)]
    young = np.concatenate(clumps)
    rows = [
        {
            "workflow_url": text, "workflow_run_id": f"{text}{hour}", "response_status": 500,
            "failed_at": END - timedelta(hours=hour), "created_at": END - timedelta(hours=hour),
            "response_body": text,
        }
        for text, hours in (calm | {"no rate for region": young}).items()
        for hour in hours
    ]  # fmt: skip
    frame = failures(rows)
    compared = tk.compare_failures(frame, since="1d", now=END).frame
    assert set(compared["change"]) == {"steady"}
    (problem,) = tk.report_failures(frame, now=END).to_dict()["problems"]
    assert (problem["title"], problem["state"]) == ("no rate for region", "steady")

    times = frame["failed_at"]
    codes = (frame["response_body"] == "no rate for region").to_numpy().astype(np.int64)
    assert {found.state for found in group_states(times, codes, 2, END)} == {"steady"}
    count = GroupCount("no rate for region")
    count.add(sorted(hour_of(when) for when in times[codes == 1]))
    assert count.state(hour_of(END), hour_of(times.min())).state == "steady"


@pytest.mark.parametrize("pause", [0.25, 3])
def test_an_error_that_tripled_is_growing_everywhere(pause: float) -> None:
    """Also if it comes in clumps, of which there are three times as many since yesterday."""
    hours = [*np.arange(100, 24, -pause), *np.arange(23.9, 0, -pause / 3)]
    young = np.concatenate([hour - np.linspace(0, 0.05, 6) for hour in hours])
    times_ = END - pd.to_timedelta([*young, *np.linspace(240, 0.1, 900)], unit="h")
    frame = pd.DataFrame({"when": times_.as_unit("ms")})
    codes = (np.arange(len(frame)) < len(young)).astype(np.int64)
    _, found = group_states(frame["when"], codes, 2, END)
    assert found.state == "growing"
    count = GroupCount("an error")
    count.add(sorted(hour_of(moment) for moment in frame["when"][codes == 1]))
    assert count.state(hour_of(END), hour_of(times_.min())).state == "growing"

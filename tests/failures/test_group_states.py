"""States of groups by their counts alone, as the panel shows them and as a watch reports them."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

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
    assert count.state(hour_of(END)).state == state

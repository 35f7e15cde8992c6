"""Compare how long two frames of failures were observed, so that their counts become rates.

For example, 10 failures in 7 days and 30 in the next day have an exposure of 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import pandas as pd

from toolkit.failures.united_frames import SIDE
from toolkit.tables.freshness import span_text


@dataclass(frozen=True)
class ExposureTuning:
    """Constants of rates, with their reasons."""

    least_span: timedelta = timedelta(hours=1)
    """Failures of a shorter span have no rate: a few minutes of one incident would look like a high one."""
    least_ratio: float = 0.95
    """Two spans count as equally long from this ratio on. Two daily syncs are minutes apart from a day."""
    most_ratio: float = 1.05
    """Two spans count as equally long up to this ratio."""


_TUNING: Final = ExposureTuning()


@dataclass(frozen=True)
class Rates:
    """The relation of the times of two frames, as in `Sides`."""

    exposure: float = 1.0
    growth: float = 0.0
    notes: tuple[str, ...] = ()

    @classmethod
    def of_spans(
        cls, before: pd.Timedelta, after: pd.Timedelta, *, are_apart: bool
    ) -> Rates:
        """Return the relation of two spans; `are_apart` if the frames share no entry."""
        if min(before, after) < _TUNING.least_span:
            return cls()

        notes: tuple[str, ...] = ()
        if not _TUNING.least_ratio < before / after < _TUNING.most_ratio:
            spans = f"before spans {span_text(before)}, after {span_text(after)}"
            notes = (f"by rates: {spans}, by their failures",)
        if are_apart:
            return cls(exposure=float(before / after), notes=notes)

        return cls(growth=max(float(after / before) - 1, 0.0), notes=notes)

    @classmethod
    def of_counts(cls, counts: pd.DataFrame) -> Rates:
        """Return the relation of the times of two frames by the counts of `IdJoin`."""
        spans = []
        for side in (0, 1):
            timed = counts[counts[SIDE] == side].dropna(subset="first_")
            number = int(timed["count_"].sum())
            spans.append(
                observed_span(number, timed["first_"].min(), timed["last_"].max())
            )

        return cls.of_spans(*spans, are_apart=not counts["shared_"].any())


def observed_span(number: int, first: pd.Timestamp, last: pd.Timestamp) -> pd.Timedelta:
    """Estimate the observed time: from the first to the last failure, and the mean step between failures."""
    if number <= 1:
        return pd.Timedelta(0)

    # n failures have n - 1 steps between them, and were observed for about n steps. For example, failures at
    # 0, 1 and 2 hours were observed for about 3 hours.
    return pd.Timedelta((last - first) * (number / (number - 1)))

"""How long it took from a message's creation to its failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from narwhals.typing import IntoFrame
from numpy.typing import NDArray

from toolkit.analysis.columns import collect, select

EDGES: Final = np.array(
    [0, 1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 28800, 57600, 86400, 172800, 604800],
    dtype=np.float64,
)
"""Seconds: steps that people name, of about the same ratio: retries minutes and a day apart both show."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FailureDelays:
    """Counts by the time from creation to failure.

    Attributes
    ----------
    edges : numpy.ndarray
        float64 seconds, ascending, shape (bins + 1,). A bin holds its lower edge; the last one is open.
    counts : numpy.ndarray
        int64, shape (bins,).
    median : float
        Seconds; not a number where nothing was counted.
    left_out : int
        Rows without both times.
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    median: float
    left_out: int

    @property
    def total(self) -> int:
        """Failures counted."""
        return int(self.counts.sum())


def failure_delays(failures: IntoFrame) -> FailureDelays:
    """Count failures by the time from `created_at` to `failed_at`.

    Retries are what takes long: with the default schedule the first comes after 12 seconds, the second after
    2.5 minutes more, the third after half an hour, the fourth after 6 hours, the fifth after a day.
    `failed_at` has whole seconds and `created_at` milliseconds, so that a message that failed at once can
    seem to have failed before it was created: it counts as 0 seconds.

    Parameters
    ----------
    failures : frame
        With the columns `created_at`, `failed_at`.

    Returns
    -------
    FailureDelays
        With the bins between the shortest time and the longest, from 0 s to more than a week.

    Raises
    ------
    InputError
        When a column is missing.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01 10:00:00", "2026-01-01 10:00:20"], utc=True)
    >>> found = failure_delays(pd.DataFrame({"created_at": times[:1], "failed_at": times[1:]}))
    >>> found.edges.tolist(), found.counts.tolist(), found.median
    ([15.0, 60.0], [1], 20.0)
    """
    doing = "counting failures by the time they took"
    table = collect(select(failures, ["created_at", "failed_at"], doing=doing))
    start, end = (
        pd.Series(pd.to_datetime(table[name].to_pandas(), utc=True)) for name in ("created_at", "failed_at")
    )
    took = (end - start).dt.total_seconds().to_numpy(dtype=np.float64, na_value=np.nan)
    known = np.maximum(took[~np.isnan(took)], 0.0)
    counts = np.bincount(np.searchsorted(EDGES, known, side="right") - 1, minlength=len(EDGES))
    used = np.flatnonzero(counts)
    low, high = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
    return FailureDelays(
        edges=np.append(EDGES, np.inf)[low : high + 1],
        counts=counts[low:high].astype(np.int64),
        median=float(np.median(known)) if len(known) else float("nan"),
        left_out=len(took) - len(known),
    )

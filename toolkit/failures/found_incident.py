"""A rise of failures that a search has found: the condition that they share, and the times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from toolkit.failures.explaining import Explanation
from toolkit.failures.incident_times import Span

_Bools = npt.NDArray[np.bool_]

_EDGE: Final = 0.25
"""Length of the time between an incident and an end of it, relative to the length of the incident."""


@dataclass(frozen=True, eq=False)
class Incident:
    """A rise of failures: the condition that they share, and the times."""

    explanation: Explanation
    rows: _Bools
    """Mask of the failures that meet the condition within the episodes."""
    episodes: list[Span]
    """First and last failure of each."""
    expected: float
    goes_on: bool

    @property
    def first(self) -> dict[str, Any]:
        """Return the likeliest condition, as a row of the explanation."""
        return dict(self.explanation.frame.iloc[0])

    @property
    def condition(self) -> dict[str, str]:
        """Return the condition that the failures meet."""
        return dict(self.first["condition"])

    @property
    def excess(self) -> float:
        """Return the number of failures beyond the expected number."""
        return float(self.rows.sum()) - self.expected

    def is_near(self, other: Incident) -> bool:
        """Return whether another incident was shortly before or after this one."""
        start, stop = self.episodes[0][0], self.episodes[-1][1]
        apart = max(other.episodes[0][0] - stop, start - other.episodes[-1][1])
        return apart <= _EDGE * (stop - start)

    def with_edge(self, other: Incident) -> Incident:
        """Return an incident that consists of both."""
        episodes = _united([*self.episodes, *other.episodes])
        if len(self.episodes) == 1:
            start, stop = episodes[0][0], max(stop for _, stop in episodes)
            episodes = [(start, stop)]

        return Incident(
            self.explanation,
            self.rows | other.rows,
            episodes,
            expected=self.expected + other.expected,
            goes_on=self.goes_on or other.goes_on,
        )


def _united(spans: list[Span]) -> list[Span]:
    """Return spans in order, with those that overlap as one.

    >>> _united([(5, 6), (1, 3), (2, 4)])
    [(1, 4), (5, 6)]
    """
    united: list[Span] = []
    for start, stop in sorted(spans):
        if united and start <= united[-1][1]:
            before_start, before_stop = united[-1]
            united[-1] = (before_start, max(before_stop, stop))
        else:
            united.append((start, stop))

    return united

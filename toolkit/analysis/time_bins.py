"""A span of time in bins of equal length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Span = tuple[int, int]
"""From when (included) until when (not included), in ns since 1970."""

_MINUTE: Final = 60_000_000_000  # nanoseconds
_STEPS: Final = tuple(
    minutes * _MINUTE for minutes in (1, 2, 5, 10, 20, 30, 60, 180, 360, 1440, 7 * 1440, 28 * 1440)
)


@dataclass(frozen=True)
class TimeBins:
    """Bins that begin at full steps and cover a span; times are in ns since 1970."""

    start: int
    end: int  # not included
    step: int

    @classmethod
    def covering(cls, start: int, end: int, most: int) -> TimeBins:
        """The shortest usual bins of which a span has no more than this."""
        return cls(start, end, next((step for step in _STEPS if (end - start) // step < most), _STEPS[-1]))

    @property
    def origin(self) -> int:
        """When the first bin begins."""
        return self.start // self.step * self.step

    @property
    def count(self) -> int:
        """How many bins there are."""
        return (self.end - 1 - self.origin) // self.step + 1

    def positions(self, when: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The bin of each time."""
        return (when - self.origin) // self.step

    def counted(self, when: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """How many of some times are in each bin."""
        return np.bincount(self.positions(when), minlength=self.count).astype(np.float64)

    def span(self, bins: tuple[int, int]) -> Span:
        """When a range of bins begins and ends."""
        start, stop = (self.origin + position * self.step for position in bins)
        return max(start, self.start), min(stop, self.end)

    def share(self, span: Span, shares: npt.NDArray[np.float64]) -> float:
        """How much of what is spread over the bins by shares is within a span."""
        cumulated = np.concatenate([[0.0], np.cumsum(shares)])
        edges = [(time - self.origin) / self.step for time in span]
        low, high = np.interp(edges, np.arange(cumulated.size), cumulated)
        return float(high - low)

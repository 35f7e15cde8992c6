"""Find bursts of failures: runs of alike failures with short pauses, which have one cause.

For example, a worker that loses the database fails ten runs within a minute. These are ten failures, but one
event: ten such bursts in an hour are as surprising as ten independent failures, not as a hundred.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.failures.failure_attributes import NAMED, FailureAttributes

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BurstTuning:
    """Constants of bursts, with their reasons."""

    longest_pause: int = 20 * 60 * 1_000_000_000
    """Pause within a burst, in ns: 20 minutes, so that a burst can include delayed retries."""
    quick: float = 0.1
    """Pause within a burst, relative to the mean pause of alike failures: usual failures are no burst."""
    per_extreme: int = 100
    """Bursts per burst that is left out of the sizes, because one extreme burst would hide every rise."""


_TUNING: Final = BurstTuning()


class BurstSizes(NamedTuple):
    """The sizes of bursts. For example, sizes 1, 1 and 4 have the mean 2 and the tail 2."""

    mean: float
    tail: float
    """The mean of a geometric distribution with the same tail."""


@dataclass(frozen=True)
class Bursts:
    """The burst that each failure belongs to."""

    numbers: _Ints
    """The number of the burst, or -1 for failures that are not counted."""

    def count(self, rows: _Bools) -> int:
        """Return the number of different bursts of some failures."""
        return int(np.unique(self.numbers[rows]).size)

    def sizes(self, rows: _Bools) -> BurstSizes:
        """Return how large the bursts of some failures are, without the largest of each hundred."""
        counts = np.bincount(self.numbers[rows], minlength=1)
        counts = np.sort(counts[counts > 0])
        extreme = counts.size // _TUNING.per_extreme
        counts = counts[: counts.size - extreme].astype(np.float64)
        if not counts.size:
            return BurstSizes(1.0, 1.0)

        mean = float(counts.mean())
        tail = (float((counts**2).sum() / counts.sum()) + 1) / 2
        return BurstSizes(mean, max(mean, tail))


def kinds_of(failures: FailureAttributes) -> _Ints:
    """Return the kind of each failure, as a number. Failures with equal attributes have the same kind."""
    codes = pd.DataFrame(
        {
            name: column.codes
            for name, column in failures.columns.items()
            if name in NAMED
        }
    )
    if codes.columns.empty:
        return np.zeros(len(failures), np.int64)

    return codes.groupby(list(codes.columns)).ngroup().to_numpy().astype(np.int64)


def find_bursts(when: _Ints, kinds: _Ints, counted: _Bools, known_time: int) -> Bursts:
    """Return the bursts of the counted failures, which are sorted by time.

    A burst is a run of failures of one kind with pauses of at most 20 minutes, and at most a tenth of the
    usual pause between failures of this kind. `known_time` is the time in which the failures came, without
    gaps, in ns. For example, with pauses of 1, 1, 300 and 1 minutes, the bursts are 0, 0, 0, 1 and 1.
    """
    rows = np.flatnonzero(counted)
    # by kind, then by time, so that each burst is a run of neighbours
    order = rows[np.lexsort((rows, kinds[rows]))]
    kind, time = kinds[order], when[order]
    usual_pauses = known_time / np.bincount(kind, minlength=1)[kind[1:]]
    longest_pauses = np.minimum(_TUNING.longest_pause, usual_pauses * _TUNING.quick)
    continues = (np.diff(kind) == 0) & (np.diff(time) < longest_pauses)
    numbers = np.full(len(counted), -1, dtype=np.int64)
    numbers[order] = np.cumsum(np.append(0, ~continues)[: len(order)])

    return Bursts(numbers)

"""Compute the earlier rates of groups, so that comparisons, reports, panels and watches judge a change alike.

The earlier time of a history is divided from the later one at a cut, for example a day ago. A group has two
earlier rates:

1. of the whole earlier time. If the group clearly began later, its rate since the first occasion replaces it.
   For example, an error with 302 failures in the 26 hours before the cut has 11.6 failures per hour, however
   long the history is.
2. since its first occasion.

A group fails more often than before only if both rates show it, because nobody knows whether a group with few
occasions began then or was rare before. For example, an error that began 26 hours ago has two hours before a
cut a day ago. If it continues alike, its failures are many for a history of ten days, and as many as expected
since it began.

Failures of one hour are one occasion, as they may be one batch. The first occasion only tells when the rate
begins, so its failures are not counted: 3 batches have two pauses between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class EarlierRateTuning:
    """Constants of earlier rates, with their reasons."""

    chance: float = 0.003
    """A group clearly began later if chance explains its first occasion with a lower probability."""
    occasions: int = 3
    """Occasions, at least, to tell when a group began: a batch may be in two neighbouring hours."""
    least_exposure: float = 1e-6
    """The exposure of a group that began right before the cut: its rate is unknown, not infinite."""


_TUNING: Final = EarlierRateTuning()


@dataclass(frozen=True)
class GroupRates:
    """The rate of each group: failures, and the ratio of their time to the later time."""

    failures: Floats
    exposures: Floats

    @property
    def expected(self) -> Floats:
        """Return the number of later failures at these rates."""
        return self.failures / self.exposures

    def deviations(self, after: Floats, bursts: Floats | float = 1.0) -> Floats:
        """Return by how many standard deviations the later failures differ, if these are spans of time.

        The normal test of two Poisson rates; `bursts` widens the deviation (quasi-Poisson), and 0.5 is the
        correction for continuity. For example, 10 before and 30 after, with equal spans and no bursts: the
        deviation is sqrt(20 * 2) = 6.3, so the result is (20 - 0.5) / 6.3 = 3.1.
        """
        return self.deviations_of(after, self.failures, after, bursts)

    def deviations_of(
        self, added: Floats, left: Floats, after: Floats, bursts: Floats | float
    ) -> Floats:
        """Return the same for two loads, of which only the added and the left entries vary."""
        usual = (added + left) / (1 + self.exposures)
        variance = bursts * np.maximum(usual, 1e-9) * (1 + 1 / self.exposures)
        difference = np.maximum(np.abs(after - self.expected) - 0.5, 0)
        return np.asarray(difference / np.sqrt(variance))


@dataclass(frozen=True)
class FirstOccasions:
    """The first occasion of each group before the cut."""

    failures: Floats
    """The failures of the first occasion."""
    exposures: Floats
    """The time from the last failure of the first occasion to the cut, relative to the later time."""
    occasions: NDArray[np.int64]
    """The number of occasions, with the first one."""


@dataclass(frozen=True)
class EarlierRates:
    """The two earlier rates of each group."""

    whole: GroupRates
    since_first: GroupRates

    @classmethod
    def of(
        cls, before: Floats, exposure: float, first: FirstOccasions | None = None
    ) -> EarlierRates:
        """Return the rates of `before` failures in a time that is `exposure` times as long as the later one.

        If a group fails at any time with equal probability, all of its occasions are in the last part of the
        time with a probability of ``part ** occasions``. For example, failures on 3 occasions in the last
        tenth have a probability of 0.001, so this group clearly began later.
        """
        whole = GroupRates(before, np.full(len(before), exposure))
        if first is None:
            return cls(whole, whole)

        exposures = np.clip(first.exposures, _TUNING.least_exposure, exposure)
        since_first = GroupRates(before - first.failures, exposures)
        chance = (exposures / exposure) ** first.occasions
        began_later = (first.occasions >= _TUNING.occasions) & (chance < _TUNING.chance)
        rates = GroupRates(
            np.where(began_later, since_first.failures, whole.failures),
            np.where(began_later, since_first.exposures, whole.exposures),
        )
        return cls(rates, since_first)

    @property
    def least(self) -> Floats:
        """Return the expected number of failures below which a group fails less often than before."""
        return self.whole.expected

    @property
    def most(self) -> Floats:
        """Return the expected number of failures above which a group fails more often than before."""
        return np.maximum(self.whole.expected, self.since_first.expected)

    def expected(self, after: Floats) -> Floats:
        """Return the expected number of later failures that is nearest to the observed one."""
        return np.clip(after, self.least, self.most)

    def rise(self, after: Floats, bursts: Floats | float = 1.0) -> Floats:
        """Return by how many standard deviations a group fails more often than before; 0 if it does not."""
        by_both = np.minimum(
            self.whole.deviations(after, bursts),
            self.since_first.deviations(after, bursts),
        )
        return np.where(after > self.most, by_both, 0.0)

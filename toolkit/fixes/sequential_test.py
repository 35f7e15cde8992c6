"""Decide while failures are counted whether they have stopped: a sequential probability ratio test.

Two hypotheses are compared: the failures continue at the earlier rate, or at 4 % of it or less. At each
time, the logarithm of the ratio of the two likelihoods is known:

    score = k · ln(1 / r) - (n + k) · ln((n + m) / (n + r · m))

`k` episodes were seen, `m` were expected, `n` episodes were known before, and `r` is 0.04. If the score falls
to ln(ε), the failures have stopped; if it rises to -ln(ε), they continue. Each decision is wrong in at most
a share ε of cases, however often you look (A. Wald, Sequential Tests of Statistical Hypotheses, 1945).

The formula is the ratio of two negative binomial distributions: a Poisson process whose rate is only known
from `n` episodes. For example, after 100 episodes and without a failure, 3.6 expected episodes decide. After
3 episodes, 7 decide, because the earlier rate may have been chance.

Failures come in bursts, and the failures of one burst are one piece of evidence. The share of failures that
begin a burst is the extremal index θ, estimated from the gaps between failures (C. Ferro and J. Segers,
Inference for clusters of extreme values, 2003)::

    gaps, in expected failures    0.01  0.01  0.02  3.9  0.01  0.01  0.01  4.0
    θ = 2 · (Σ gap)² / (N · Σ gap²) = 0.51
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class FixTuning:
    """Constants of the test. Set on the simulated histories of tests/accuracy/fixed_histories.py."""

    remaining: float = 0.04
    """Share of the earlier rate at which failures count as stopped: stragglers, for example late retries.
    With a larger share, a quiet period tells less: at 10 %, the median wait is about a tenth longer."""

    error: float = 0.035
    """Share of wrong decisions of each kind if the rate and the bursts were known. Both are estimated, which
    adds errors: 0.035 keeps the promised 5 %."""

    burst_bias: float = 0.2
    """The extremal index of short histories is too high: bursts seem to be shorter than they are."""

    least_known: float = 0.5
    """With fewer episodes before, no number of quiet days decides."""

    precision: int = 60
    """Halvings in the search for the time of a decision."""


TUNING: Final = FixTuning()
LIMIT: Final = float(np.log(1 / TUNING.error))
"""The score that decides."""


@dataclass(frozen=True)
class Decision:
    """A decision of the test.

    `continues` is True if failures continue. `position` is the number of expected failures until then, and
    `failures` the number of failures that had been seen.
    """

    continues: bool
    position: float
    failures: int


@dataclass(frozen=True)
class PriorCounts:
    """The knowledge from before the fix: the number of failures, and the share that begins a burst."""

    known: float
    burst_share: float

    @property
    def can_decide(self) -> bool:
        """Return whether enough episodes are known for any decision."""
        return self.known * self.burst_share >= TUNING.least_known

    def score(self, seen: float, expected: float) -> float:
        """Return the score after `seen` failures if `expected` were expected.

        >>> evidence = PriorCounts(known=100, burst_share=1.0)
        >>> round(evidence.score(0, 3.5), 2), round(evidence.score(2, 0.5), 2)
        (-3.3, 5.95)
        """
        rest, share = TUNING.remaining, self.burst_share
        known = max(self.known, 1e-9)
        ratio = np.log((known + expected) / (known + rest * expected))

        return float(share * (seen * np.log(1 / rest) - (known + seen) * ratio))

    def stopping_point(self, seen: int, prior: float = 0.0) -> float:
        """Return the expected failures after which `seen` failures are few enough; infinity if never.

        `prior` is a score from other evidence, for example a redrive.

        >>> round(PriorCounts(known=100, burst_share=1.0).stopping_point(0), 1)
        3.6
        >>> PriorCounts(known=1, burst_share=1.0).stopping_point(0)
        inf
        """
        low, high = 0.0, 1.0
        # The longest wait: a million times the known failures is as good as for ever.
        while self.score(seen, high) + prior > -LIMIT:
            low, high = high, 2 * high
            if high > 1e6 * (1 + self.known):
                return float("inf")

        for _ in range(TUNING.precision):
            middle = (low + high) / 2
            if self.score(seen, middle) + prior > -LIMIT:
                low = middle
            else:
                high = middle

        return high

    def first_decision(
        self, positions: Numbers, end: float, prior: float = 0.0
    ) -> Decision | None:
        """Return the first decision, or None if more time is necessary.

        Parameters
        ----------
        positions : array
            Position of each failure after the fix: the failures that were expected until then; ascending.
        end : float
            Position of the end of the data.
        prior : float
            Score from other evidence.
        """
        if not self.can_decide:
            return None

        for number, position in enumerate([*positions.tolist(), end]):
            # Between two failures the score only falls.
            if self.score(number, position) + prior <= -LIMIT:
                return Decision(False, self.stopping_point(number, prior), number)
            is_failure = number < len(positions)
            after = self.score(number + 1, position) + prior
            if is_failure and after >= LIMIT:
                return Decision(True, float(position), number + 1)

        return None


def extremal_index(gaps: Numbers) -> float:
    """Return the share of failures that begin a burst, from 0 to 1.

    >>> extremal_index(np.array([1.0, 1.0]))
    1.0
    """
    squares = float(np.square(gaps).sum())
    if squares == 0:
        return 1.0

    estimate = 2 * float(gaps.sum()) ** 2 / (len(gaps) * squares)
    return min(estimate, 1.0)


def evidence_of(gaps: Numbers, count: int) -> PriorCounts:
    """Return the evidence of `count` failures with these gaps between them, in expected failures."""
    share = extremal_index(gaps)
    share *= 1 - TUNING.burst_bias * (1 - share)
    # The first episode begins the measured time, so it tells nothing about the rate.
    episodes = max(share * count, 1.0)
    known = count * (episodes - 1) / episodes

    # The number of failures per burst varies, so that bursts tell less than as many single failures.
    return PriorCounts(known / (2 - share), share)


def redrive_score(earlier: tuple[int, int], later: tuple[int, int]) -> float:
    """Return the score of redriven failures: each pair is the number that failed again and that succeeded.

    The share that fails again if nothing was fixed is known from earlier redrives only. Both likelihoods are
    averaged over it (beta-binomial, Jeffreys prior). Without an earlier redrive, a redrive tells nothing:
    failures that pass by themselves would look fixed.

    >>> round(redrive_score((9, 1), (0, 3)), 1), redrive_score((0, 0), (0, 50))
    (-4.8, 0.0)
    """
    if not sum(earlier) or not sum(later):
        return 0.0

    shares = (np.arange(1000) + 0.5) / 1000
    again, succeeded = earlier
    weights = (again - 0.5) * np.log(shares) + (succeeded - 0.5) * np.log1p(-shares)
    rest = TUNING.remaining * shares
    failed, passed = later
    continuing = failed * np.log(shares) + passed * np.log1p(-shares)
    stopped = failed * np.log(rest) + passed * np.log1p(-rest)
    totals = [np.logaddexp.reduce(weights + part) for part in (continuing, stopped)]

    return float(totals[0] - totals[1])

"""Count events by conditions: tables of the counts of all values of one to three attributes.

For example, the table of `region` and `release` has a row for `region = eu and release = 2.1`. Tables are
small because only the values that rose most get a place. `conditions.py` compares the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

_Floats = npt.NDArray[np.float64]
_Codes = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ScanTuning:
    """Constants of the scan, with the data they were set on.

    RS is a public set of incidents of a streaming service with known roots. Nulls are windows of it in which
    nothing rose. Page views are public counts of page views with rises added to them. Gains, prices and
    evidence are in natural units of log-likelihood.
    """

    max_attributes: int = 3
    """Attributes of a condition. Roots of four are rare, and tables of four attributes are too large."""
    max_values: int = 60
    """Values of an attribute that conditions can state: those that rose most. It bounds the tables."""
    max_paired: int = 16
    """Attributes that are combined in pairs: those whose values rose most. It bounds the time."""
    added_events: float = 1.5
    """Events added to each expectation, as nothing is impossible. RS: 1 to 2 are equal, .5 is worse."""
    min_excess: float = 3.0
    """Fewer events beyond the expectation are no rise. RS: .5 to 3 are equal."""
    cell_events: float = 5.0
    """Most events that a cell counts as: cells of one cause rise unevenly, by 1/sqrt(5). RS: 4 to 7 equal."""
    price: float = 3.0
    """Gain that a stated attribute must add: a value is a choice among about twenty. RS: 2 to 4 are equal."""
    relevant_gain: float = 0.1
    """Share of the best gain that an attribute needs to be kept. RS with columns of noise: .03 is equal."""
    max_relevant: int = 7
    """Attributes that are kept. RS: 5 is equal, 4 is worse."""
    min_varied: float = 0.01
    """Squared variation of a count between windows: 10 %. RS, page views: few histories are steadier."""
    max_varied: float = 0.4
    """Most that this can be, as few events cannot measure it. RS, seeded sets: .3 to .7 are equal."""
    prior_cells: float = 30.0
    """Cells of single events that are added to the rest, which can be small. RS: 100 is equal, 10 worse."""
    clear_evidence: float = 9.0
    """Evidence of a rise that stands out: e**9 is about how many conditions exist. RS, nulls: 8 is equal."""
    risen_score: float = 12.5
    """Score of a condition that is no part of the rest. RS: from 12 to 13, one window differs."""
    ranked: int = 10
    """Conditions that are reported."""
    per_table: int = 20
    """Conditions of one set of attributes that are compared with the others: twice those reported."""


TUNING: Final = ScanTuning()


@dataclass(frozen=True)
class AttributeCodes:
    """An attribute: the code of each row, and the text of each code."""

    codes: _Codes
    texts: Sequence[str]
    unstated: str | None = None
    """A text that no condition may state."""


@dataclass(frozen=True)
class EventCounts:
    """Events after, and events before in as long a time; one of each per row, cell or condition."""

    after: _Floats
    before: _Floats

    def summed(self, groups: npt.NDArray[Any], size: int) -> EventCounts:
        """Return the sums of groups that are numbered from 0 to `size - 1`."""
        after, before = (
            np.bincount(groups, events, size) for events in (self.after, self.before)
        )
        return EventCounts(after.astype(np.float64), before.astype(np.float64))

    def chosen(self, positions: Any) -> EventCounts:
        """Return the counts at some positions."""
        return EventCounts(self.after[positions], self.before[positions])

    def scaled(self, factors: _Floats) -> EventCounts:
        """Return the counts times a factor each."""
        return EventCounts(self.after * factors, self.before * factors)

    @property
    def totals(self) -> tuple[float, float]:
        """Return the numbers of all events after and before."""
        return float(self.after.sum()), float(self.before.sum())


@dataclass(frozen=True)
class Statable:
    """An attribute with new numbers for the values that a condition can state, and one for all others."""

    codes: _Codes
    originals: _Codes

    @classmethod
    def of(
        cls,
        codes: _Codes,
        counts: EventCounts,
        texts: Sequence[str],
        unstated: str | None,
    ) -> Statable:
        """Choose the values that rose most, then the most frequent."""
        values = counts.summed(codes, len(texts))
        # tables grow with the product of the numbers of values, so rare values share one number
        rose = gain(values.after, values.before + TUNING.added_events)
        best = np.lexsort((-values.after, -rose))[: TUNING.max_values]
        kept = np.array(
            sorted(code for code in best.tolist() if texts[code] != unstated), np.int64
        )
        numbers = np.full(len(rose), len(kept), np.int64)
        numbers[kept] = np.arange(len(kept))

        return cls(numbers[codes], kept)

    @property
    def size(self) -> int:
        """Return the number of codes in use."""
        return len(self.originals) + 1

    def of_cells(self, first_rows: _Codes) -> Statable:
        """Return the same attribute per cell, given one row of each cell."""
        return Statable(self.codes[first_rows], self.originals)


@dataclass(frozen=True)
class ConditionTable:
    """All conditions on some attributes that have enough events."""

    names: tuple[str, ...]
    place_of_cell: npt.NDArray[np.int32]
    """The condition of each cell; the number after the last if it has none."""
    stated: _Codes
    """A row of original codes per condition."""
    counts: EventCounts

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        statable: Mapping[str, Statable],
        cells: EventCounts,
    ) -> ConditionTable:
        """Count all combinations of values at once."""
        sizes = [statable[name].size for name in names]
        combination = np.ravel_multi_index(
            [statable[name].codes for name in names], sizes
        )
        total = int(np.prod(sizes))
        sums = cells.summed(combination, total)
        # most combinations do not occur or are too small to have risen, so only the others get a place
        enough = np.flatnonzero(sums.after >= TUNING.min_excess)
        numbers = np.stack(np.unravel_index(enough, sizes), axis=1)
        # the last number of an attribute stands for all rare values, which no condition can state
        is_stated = (numbers < np.array(sizes) - 1).all(axis=1)
        enough, numbers = enough[is_stated], numbers[is_stated]
        places = np.full(total, len(enough), np.int32)
        places[enough] = np.arange(len(enough))
        values = [
            statable[name].originals[numbers[:, at]] for at, name in enumerate(names)
        ]

        return cls(
            names, places[combination], np.stack(values, axis=1), sums.chosen(enough)
        )

    @property
    def size(self) -> int:
        """Return the number of conditions."""
        return len(self.stated)

    def condition_counts(self, cells: EventCounts) -> EventCounts:
        """Return the sums of the cells of each condition."""
        sums = cells.summed(self.place_of_cell, self.size + 1)
        return sums.chosen(slice(self.size))


def gain(observed: _Floats, expected: _Floats) -> _Floats:
    """Return the log-likelihood ratio of a rise of single events; 0 if no more are observed than expected."""
    rose = observed > expected
    ratio = np.divide(observed, expected, out=np.ones_like(observed), where=rose)
    return np.where(rose, observed * np.log(ratio) - observed + expected, 0.0)


def numbered(columns: Sequence[_Codes], length: int) -> tuple[_Codes, _Codes]:
    """Return a number per row, equal for equal rows, and the first row of each number.

    >>> numbered([np.array([0, 1, 0]), np.array([2, 2, 2])], 3)
    (array([0, 1, 0]), array([0, 1]))
    """
    key, size = np.zeros(length, np.int64), 1
    for codes in columns:
        width = int(codes.max(initial=0)) + 1
        if size * width >= 2**62:  # the product would not fit into 64 bits
            key, distinct = pd.factorize(key)
            size = len(distinct)

        # Each row becomes one number with a digit per column (mixed radix). For example, the codes 2 and 1 in
        # columns with 3 and 4 values become 2 * 4 + 1 = 9.
        key, size = key * width + codes, size * width

    key, distinct = pd.factorize(key)
    first_rows = np.empty(len(distinct), np.int64)
    # The assignment goes from the last row to the first, so that the first row of each number stays.
    first_rows[key[::-1]] = np.arange(length - 1, -1, -1)

    return key.astype(np.int64), first_rows

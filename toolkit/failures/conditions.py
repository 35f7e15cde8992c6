"""Find the conditions that a rise of events is concentrated in, by a scan of counts.

A *condition* states one value for each of up to three attributes, for example `region = eu and release =
2.1`. A *cell* is one combination of the values of all attributes that matter. The scan answers two
questions: which condition describes the rise, and is the rise real?

Which condition
---------------
The gain of a condition is the Poisson log-likelihood ratio of a rise: with `o` events observed and `e`
expected, `o * ln(o / e) - (o - e)`, or 0 if `o <= e`. With large counts, a difference of one percent
between a condition and a narrower one would decide. So each cell counts as about five events at most, and a
condition scores by how many of its cells rose, not by how large the largest one is:

                     before           after           score, cells that count in full
    workflow       a    b    c      a    b    c       region = eu                3 cells
    region = eu   10   10   10     40   40   40       workflow = a               1 cell
    region = us   10   10   10     10   10   10       region = eu, workflow = a  1 cell

Here every cell of `region = eu` rose, so the region wins. If only the cell of `eu` and `a` had risen, from
10 to 400, all three conditions contain the same risen cell, and the narrowest has the fewest cells that did
not rise: it wins. No further rule chooses between a condition and its refinements. Each stated attribute
costs a fixed price.

Is it real
----------
The full counts of the first condition are compared with noise that is measured in *the rest*, the cells
outside of everything that rose: counts there vary by `bursts * m + varied * m**2` around their mean `m`.
The evidence is a negative binomial log-likelihood ratio with that noise. A rise of everything is no
evidence for a condition: what is expected inside grows as the rest did.

Attributes that appear in no condition with a tenth of the best gain are summed away first, so a column of
random values changes nothing.

Sources: Kulldorff 1997, A spatial scan statistic; Neill 2009, Expectation-based scan statistics; Sun et al.
2018 (HotSpot) and Li et al. 2019 (Squeeze) for the idea that all cells of one cause rise together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, compress
from typing import Any

import numpy as np
import numpy.typing as npt

from toolkit.failures.condition_tables import (
    TUNING,
    AttributeCodes,
    ConditionTable,
    EventCounts,
    Statable,
    gain,
    numbered,
)

_Floats = npt.NDArray[np.float64]
_Codes = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rise:
    """A condition with its events, and other conditions with the same rows."""

    condition: dict[str, str]
    observed: float
    expected: float
    worth: float
    """The score minus the price: comparable with the other rises of the scan."""
    alternatives: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Findings:
    """The rises of a scan, the likeliest first, and the evidence for the first one."""

    rises: list[Rise] = field(default_factory=list)
    evidence: float = 0.0

    @property
    def stands_out(self) -> bool:
        """Return whether the first rise is real."""
        return self.evidence >= TUNING.clear_evidence


def scan_rises(
    columns: Mapping[str, AttributeCodes],
    after: _Floats,
    before: _Floats,
    exposure: float,
    *,
    by_shares: bool = False,
) -> Findings:
    """Find the conditions that a rise is concentrated in.

    `before` are events of a time that is `exposure` times as long. `by_shares` compares two sets of single
    events of given sizes, for example failed and successful runs, instead of two times.
    """
    if not columns or not before.any():
        return Findings()

    scan = _Scan(columns, after, before, exposure)
    best = scan.ranked()
    if not best:
        return Findings()

    evidence = scan.evidence_of_shares(best[0]) if by_shares else scan.evidence(best)
    rises: list[Rise] = []
    named: list[dict[str, str]] = []
    for scored in best:
        # a condition that an earlier one names as an alternative describes the same rows
        if scan.named(scored) in named:
            continue
        rise = scan.described(scored)
        rises.append(rise)
        named += [rise.condition, *rise.alternatives]
        if len(rises) == TUNING.ranked:
            break

    return Findings(rises, evidence)


@dataclass(frozen=True)
class _Scored:
    """One condition of a table with its score."""

    score: float
    table: ConditionTable
    place: int

    @property
    def worth(self) -> float:
        """Return the score minus the price of stating the condition."""
        return self.score - TUNING.price * len(self.table.names)

    @property
    def cells(self) -> _Bools:
        """Return a mask of the cells of the condition."""
        return np.asarray(self.table.place_of_cell == self.place)

    @property
    def events(self) -> tuple[float, float]:
        """Return the numbers of all events of the condition, after and before."""
        return float(self.table.counts.after[self.place]), float(
            self.table.counts.before[self.place]
        )


@dataclass(frozen=True)
class _Cells:
    """The cells of the relevant attributes, and the tables of all conditions on them."""

    counts: EventCounts
    tables: list[ConditionTable]


class _Scan:
    """The state of a scan: distinct rows with their events, cells, and the growth of the rest."""

    def __init__(
        self,
        columns: Mapping[str, AttributeCodes],
        after: _Floats,
        before: _Floats,
        exposure: float,
    ) -> None:
        self._exposure = exposure
        self._texts = {name: column.texts for name, column in columns.items()}
        codes = [column.codes for column in columns.values()]
        # rows with equal attributes meet the same conditions, so they are summed first
        number_of_row, first_rows = numbered(codes, len(after))
        rows = EventCounts(after, before / exposure)
        self._rows = rows.summed(number_of_row, len(first_rows))
        self._codes = {
            name: column.codes[first_rows] for name, column in columns.items()
        }
        self._statable = {
            name: Statable.of(
                self._codes[name], self._rows, column.texts, column.unstated
            )
            for name, column in columns.items()
        }
        self._small_tables = self._tables_of_one_and_two()
        self._counted: dict[tuple[str, ...], _Cells] = {}
        self._cells = _Cells(self._rows, [])
        self._rest: _Bools = np.zeros(0, bool)
        # events of the rest after, divided by events of the rest before
        self._rest_ratio = 1.0
        self._growth = 1.0

    def ranked(self) -> list[_Scored]:
        """Return the conditions that rose: the one worth most, then the others by their score.

        How much the rest grew is known after the first pass, so a second pass uses it.
        """
        best: list[_Scored] = []
        growth: float | None = None
        for _ in range(2):
            self._cells = self._cells_of(self._relevant(growth))
            best = self._scored_finely(growth)
            if not best:
                return []
            growth = self._measured_growth(best)

        # `evidence` compares the first condition with what the rest became
        self._growth = growth or 1.0
        return best

    def evidence(self, best: Sequence[_Scored]) -> float:
        """Return the log-likelihood ratio of the first condition with noise as in the rest, minus its price.

        Events come in bursts, so bursts are counted. The distribution is negative binomial: rates vary, and
        a few events before leave it open how many were to be expected (a Gamma prior).
        """
        rest = self._cells.counts.chosen(self._rest)
        usual = rest.before * self._rest_ratio
        bursts, varied = _noise(rest.after, usual, self._rest_ratio / self._exposure)
        observed, before = (events / bursts for events in best[0].events)
        expected = (before + TUNING.added_events) * self._growth
        # two sources of uncertainty add up: the variation of rates, and the few events before
        shape = 1 / (varied + 1 / (before * self._exposure + 1))
        if observed <= expected:
            return 0.0

        both = (observed + shape) * np.log((observed + shape) / (expected + shape))
        ratio = observed * np.log(observed / expected) - both
        return float(ratio) - TUNING.price * len(best[0].table.names)

    def evidence_of_shares(self, first: _Scored) -> float:
        """Return the log-likelihood ratio of two shares over one, minus the price.

        For example, if all of 8 failed runs have a label, and none of 16 others, it is 15.3 - 3.
        """
        observed, before = first.events
        total, total_before = self._rows.totals
        sides = (
            (observed, total),
            (before * self._exposure, total_before * self._exposure),
        )
        both = sides[0][0] + sides[1][0], sides[0][1] + sides[1][1]
        ratio = sum(_share_likelihood(*side) for side in sides) - _share_likelihood(
            *both
        )

        return ratio - TUNING.price * len(first.table.names)

    def named(self, scored: _Scored) -> dict[str, str]:
        """Return a condition with values instead of codes."""
        return self._named(scored.table, scored.place)

    def described(self, scored: _Scored) -> Rise:
        """Return a condition with values instead of codes, and all conditions with exactly the same cells."""
        observed, expected = scored.events
        cells = scored.cells

        same: list[dict[str, str]] = []
        for table in self._cells.tables:
            # comparing counts is fast and excludes nearly all conditions before masks are compared
            equal = (table.counts.after == observed) & (table.counts.before == expected)
            for place in np.flatnonzero(equal).tolist():
                is_itself = table is scored.table and place == scored.place
                if not is_itself and np.array_equal(
                    table.place_of_cell == place, cells
                ):
                    same.append(self._named(table, place))

        return Rise(
            self.named(scored),
            observed,
            expected,
            scored.worth,
            same,
        )

    def _named(self, table: ConditionTable, place: int) -> dict[str, str]:
        values = zip(table.names, table.stated[place].tolist(), strict=True)
        return {name: str(self._texts[name][code]) for name, code in values}

    def _tables_of_one_and_two(self) -> list[ConditionTable]:
        """Return the tables of all attributes, and of pairs of those whose values rose most."""
        singles = [
            ConditionTable.of((name,), self._statable, self._rows)
            for name in self._statable
        ]
        gains = {table.names[0]: self._best_gain(table, None) for table in singles}
        # an attribute may only matter together with another one, but all pairs would take too long
        strongest = sorted(gains, key=lambda name: -gains[name])[: TUNING.max_paired]
        pairs = combinations([name for name in gains if name in strongest], 2)

        return singles + [
            ConditionTable.of(pair, self._statable, self._rows) for pair in pairs
        ]

    def _relevant(self, growth: float | None) -> tuple[str, ...]:
        """Return the attributes of small conditions with at least a share of the best gain."""
        best = dict.fromkeys(self._statable, 0.0)
        for table in self._small_tables:
            gained = self._best_gain(table, growth)
            for name in table.names:
                best[name] = max(best[name], gained)

        least = max(TUNING.relevant_gain * max(best.values()), 1e-9)
        strongest = sorted(best, key=lambda name: -best[name])[: TUNING.max_relevant]
        return tuple(name for name in best if name in strongest and best[name] >= least)

    def _best_gain(self, table: ConditionTable, growth: float | None) -> float:
        expected = _expected(table.counts, self._rows.totals, growth)
        return float(gain(table.counts.after, expected).max(initial=0.0))

    def _cells_of(self, relevant: tuple[str, ...]) -> _Cells:
        """Count rows that differ in other attributes only as one cell, and the tables of these cells."""
        # both passes usually find the same attributes, so the tables are kept
        if relevant not in self._counted:
            codes = [self._codes[name] for name in relevant]
            cell_of_row, first_rows = numbered(codes, len(self._rows.after))
            counts = self._rows.summed(cell_of_row, len(first_rows))
            statable = {
                name: self._statable[name].of_cells(first_rows) for name in relevant
            }
            sizes = range(1, TUNING.max_attributes + 1)
            stated = [names for size in sizes for names in combinations(relevant, size)]
            self._counted[relevant] = _Cells(
                counts,
                [ConditionTable.of(names, statable, counts) for names in stated],
            )

        return self._counted[relevant]

    def _scored_finely(self, growth: float | None) -> list[_Scored]:
        """Return the conditions that rose, with cells that saturate as early as the rise allows.

        Large rises are told apart best if no cell counts much. Small ones are visible only if it counts more.
        """
        counts = self._cells.counts
        usual = counts.before * (growth or 1.0)
        # the mean of both times, so that a cell saturates alike whether it rose or fell
        mean = (counts.after + usual * self._exposure) / (1 + self._exposure)
        cell_events = TUNING.cell_events

        while True:
            # A cell of m events counts as m / (1 + m / 5). For example, 1 event counts as 0.8, 5
            # count as 2.5, and 1,000 count as almost 5.
            saturated = counts.scaled(1 / (1 + mean / cell_events))
            best = self._scored(saturated, growth)
            if not best:
                return []
            first = max(best, key=lambda scored: scored.worth)
            if first.worth >= TUNING.price or cell_events > mean.max():
                return [first, *(scored for scored in best if scored is not first)]
            cell_events *= 2

    def _scored(self, saturated: EventCounts, growth: float | None) -> list[_Scored]:
        """Return the conditions that rose, the highest score first; of equal ones, fewer attributes first."""
        best: list[_Scored] = []
        for table in self._cells.tables:
            counts = table.condition_counts(saturated)
            scores = gain(counts.after, _expected(counts, saturated.totals, growth))
            excess = table.counts.after - table.counts.before * (growth or 1.0)
            scores[excess < TUNING.min_excess] = 0
            scores = scores.round(6)  # conditions with the same rows have equal scores
            highest = np.argsort(-scores, kind="stable")[: TUNING.per_table]
            highest = highest[scores[highest] > 0]
            best += [
                _Scored(float(scores[place]), table, place)
                for place in highest.tolist()
            ]

        return sorted(best, key=lambda scored: -scored.score)

    def _measured_growth(self, best: Sequence[_Scored]) -> float:
        """Measure how much the cells outside of everything that rose have grown; at least 1."""
        rose = best[0].cells.copy()
        for scored in best:
            if scored.score >= TUNING.risen_score:
                rose |= scored.cells

        self._rest = ~rose
        after, before = self._cells.counts.chosen(self._rest).totals
        self._rest_ratio = (after + TUNING.added_events) / (
            before + TUNING.added_events
        )

        return max(1.0, self._rest_ratio)


def _share_likelihood(part: float, whole: float) -> float:
    """Return the maximum of the log-likelihood of a share."""
    parts = [count for count in (part, whole - part) if count > 0]
    return float(sum(count * np.log(count / whole) for count in parts))


def _expected(
    counts: EventCounts, totals: tuple[float, float], growth: float | None
) -> _Floats:
    """Return the events before, times the growth of the rest, or of all outside of each condition."""
    after, before = totals
    added = TUNING.added_events
    factor: Any = growth
    if growth is None:
        outside = (after - counts.after + added) / (before - counts.before + added)
        factor = np.maximum(1.0, outside)

    return np.asarray(counts.before * factor + added)


def _noise(after: _Floats, usual: _Floats, times: float) -> tuple[float, float]:
    """Measure how counts of cells that did not rise vary: the size of bursts, and the variation beyond it.

    The variance of a count is `bursts * m + varied * m**2`. Both are fitted to the squared differences of
    the cells by weighted least squares. The mean `m` is of both times together, so that cells with events
    only after count as well.
    """
    mean = (after * times + usual) / (1 + times)
    squares = (after - usual) ** 2 / (1 + times)
    weights = 1 / (mean + 1) ** 2
    # the normal equations: [s2 s3; s3 s4] @ [bursts, varied] = [t1, t2]
    s2, s3, s4 = (float((weights * mean**power).sum()) for power in (2, 3, 4))
    t1, t2 = (float((weights * squares * mean**power).sum()) for power in (1, 2))
    # single events have a variance of 1 and a mean of 1
    s2, t1 = s2 + TUNING.prior_cells, t1 + TUNING.prior_cells
    bursts, varied = t1 / s2, 0.0

    if s4 > 0 and s2 * t2 > s3 * t1:
        # positive: Cauchy and Schwarz, as s2 contains the prior
        determinant = s2 * s4 - s3**2
        bursts, varied = (
            (t1 * s4 - t2 * s3) / determinant,
            (s2 * t2 - s3 * t1) / determinant,
        )

    if bursts < 1:
        bursts = 1.0
        varied = (t2 - s3) / s4 if s4 > 0 else 0.0

    return bursts, float(np.clip(varied, TUNING.min_varied, TUNING.max_varied))


def plainest(conditions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the conditions that need all their attributes: with fewer, no other one is in the list.

    >>> plainest([{"a": 1}, {"a": 1, "b": 2}, {"b": 2, "c": 3}])
    [{'a': 1}, {'b': 2, 'c': 3}]
    """
    named = [frozenset(condition.items()) for condition in conditions]
    plain = [not any(other < items for other in named) for items in named]
    return list(compress(conditions, plain))

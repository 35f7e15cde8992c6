"""Conditions by how well a rise inside of them explains counts; those of the same rows as one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, compress
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

_Floats = npt.NDArray[np.float64]
_Codes = npt.NDArray[np.int64]
_Scored = tuple[float, tuple[str, ...], tuple[int, ...]]

_DEPTH: Final = 3  # attributes of a condition
_VALUES: Final = 400  # values of an attribute that are looked at, the largest in excess first
_KEPT: Final = 300  # conditions that are compared with each other
_CLASSES: Final = 30  # of conditions that describe the same rows, that are compared
_DENSE: Final = 8  # combinations of values for each leaf: up to as many, all are counted
_SAME: Final = 0.95  # overlap of the rows of two conditions from which on they describe the same
_AS_WELL: Final = 0.9  # of the gain of the best of them: conditions that explain the rise as well
_COUNTED: Final = 20  # events of a cell from which on its ratio is taken for the dispersion
_CELLS: Final = 8
_MANY: Final = 60  # cells from which on the mean of the lower ones is taken, too
_PRIOR: Final = 4  # cells of single events, as if they had been counted beside the others
_LOWER: Final = 0.85  # of the cells, those that rose least
_MEDIAN, _LOWER_MEAN = 0.4549, 0.52  # of the chi-squared distribution of one degree of freedom; of that part
_LEAST: Final = 3.0  # events in excess


@dataclass(frozen=True)
class RankedCondition:
    """A condition, and its events."""

    named: dict[str, Any]
    observed: float
    expected: float
    score: float  # by which conditions are compared
    evidence: float  # that it rose at all, where counts may be bursts


class ConditionSearch:
    """Leaves with the events of each, after and before, and attributes as codes of values."""

    def __init__(
        self, leaves: pd.DataFrame, observed: _Floats, usual: _Floats, exposure: float, named: Sequence[str]
    ) -> None:
        self._observed, self._usual, self._exposure = observed, usual, exposure
        self._measured: dict[str, _Codes] = {}  # for the dispersion, also those that no condition names
        self._values: dict[str, npt.NDArray[Any]] = {}
        for name in leaves.columns:
            self._measured[name], self._values[name] = _largest(leaves[name], observed, usual / exposure)
        self._codes = {name: self._measured[name] for name in named}
        self._costs: dict[tuple[str, ...], float] = {}
        self._sums = float(observed.sum()), float(usual.sum())
        self._spread = 1.0
        self._measures: list[tuple[float, float]] = []  # of all events and of those that did not rise

    def classes(self, searched: Sequence[str], spread: float | None) -> list[list[RankedCondition]]:
        """Conditions that describe the same rows together, the likeliest first, and in each the plainest."""
        codes = {name: self._codes[name] for name in searched}
        events = self._observed, self._usual
        measures = [_dispersion(self._measured, *events) if spread is None else (spread, np.inf)]
        self._spread = measures[0][0]
        found = self._best(codes)
        if not found:
            return []
        if spread is None:
            rest = ~_holds(codes, *found[0][1:])
            if self._spread > 1:  # what rose looks like bursts: measured again without it
                calm = {name: code[rest] for name, code in self._measured.items()}
                measures.append(_dispersion(calm, *(part[rest] for part in events)))
                self._spread = min(measures)[0]
                found = self._best(codes)
            bursts = _bursts(*(part[rest] for part in events))
            measures = [(max(known, bursts), freedom) for known, freedom in measures]
        self._measures = measures
        classes: list[list[RankedCondition]] = []
        there = self._observed > 0
        held = np.array([_holds(codes, *condition[1:])[there] for condition in found], dtype=np.float64)
        weights = self._observed[there]
        left = np.arange(len(found))
        while left.size and len(classes) < _CLASSES:
            both = held[left] @ (held[left[0]] * weights)
            either = held[left] @ weights + both[0] - both
            classes.append(self._same(*found[left[0]][1:]))
            different = both < _SAME * either
            different[0] = False
            left = left[different]
        return sorted(_merged(classes), key=likelihood, reverse=True)

    def _best(self, codes: dict[str, _Codes]) -> list[_Scored]:
        """Conditions of one to three attributes with their scores, the best first."""
        found: list[_Scored] = []
        for depth in range(1, min(_DEPTH, len(codes)) + 1):
            for names in combinations(codes, depth):
                least = found[-1][0] if len(found) == _KEPT else -np.inf
                found += self._risen(names, least)
                found = sorted(found, key=lambda item: -item[0])[:_KEPT]
        return found

    def _conditions(self, names: tuple[str, ...]) -> tuple[_Codes, _Floats, _Floats]:
        """All conditions on these attributes with events enough to rise, as numbers, and their events."""
        codes = [self._codes[name] for name in names]
        known = np.logical_and.reduce([code >= 0 for code in codes])
        sizes = [len(self._values[name]) for name in names]
        groups, observed, usual = _counted(
            [code[known] for code in codes], sizes, self._observed[known], self._usual[known]
        )
        enough = observed + usual >= _LEAST
        cost = math.log(math.comb(len(self._codes), len(names))) + math.log(max(2, enough.sum()))
        fewer = [self._cost(some) + math.log(2) for some in combinations(names, len(names) - 1) if some]
        self._costs[names] = max([cost, *fewer])
        return groups[enough], observed[enough], usual[enough]

    def _cost(self, names: tuple[str, ...]) -> float:
        """What it takes to state a condition, in natural units: which attributes, and which of all on these.

        Always more than on fewer of them, also where only few of all have events enough.
        """
        if names not in self._costs:
            self._conditions(names)
        return self._costs[names]

    def _risen(self, names: tuple[str, ...], least: float) -> Iterator[_Scored]:
        """Scores of all conditions on these attributes that rose, and score more than the least."""
        groups, observed, usual = self._conditions(names)
        cost = self._cost(names)
        sizes = [len(self._values[name]) for name in names]
        rose = observed - usual / self._exposure >= _LEAST
        groups, observed, usual = groups[rose], observed[rose], usual[rose]
        scores = self._gain(observed, usual) / self._spread - cost
        order = np.argsort(-scores)[:_KEPT]
        for position in order[scores[order] > max(least, -cost)]:  # at minus the cost, no more than the rest
            key = np.unravel_index(int(groups[position]), sizes)
            yield float(scores[position]), names, tuple(map(int, key))

    def _gain(self, observed: _Floats, usual: _Floats) -> _Floats:
        """Log-likelihood of two rates, inside and outside, over that of one; zero where the inside rose less.

        Of counts after and before, so that few events before are known to be few.
        """
        total, before = self._sums
        other_observed, other_usual = total - observed, before - usual
        gain = _split(observed, usual) + _split(other_observed, other_usual)
        gain -= _split(np.array([total]), np.array([before]))
        return np.where(observed * other_usual > other_observed * usual, gain, 0.0)

    def _same(self, names: tuple[str, ...], key: tuple[int, ...]) -> list[RankedCondition]:
        """All conditions on up to three attributes that describe the rows of one as well, the plainest first.

        Each of their values is that of nearly all of these rows.
        """
        rows = _holds(self._codes, names, key)
        weights = self._observed[rows]
        shared = {}
        for name, codes in self._codes.items():
            counts = np.bincount(codes[rows] + 1, weights, 1)[1:]
            if counts.size and counts.max() >= _SAME * weights.sum():
                shared[name] = int(counts.argmax())
        holds = np.array([self._codes[name] == code for name, code in shared.items()] + [rows])
        # few leaves differ in which of these values they have: those alike are counted as one
        packed = np.ascontiguousarray(np.packbits(holds, axis=0).T)
        kinds = packed.view(f"V{packed.shape[1]}").ravel()
        _, first, kind = np.unique(kinds, return_index=True, return_inverse=True)
        events = np.column_stack([np.bincount(kind, each) for each in (self._observed, self._usual)])
        inside = holds[-1, first]
        chosen = _up_to_depth(len(shared))
        values = np.vstack([holds[:-1, first], np.ones_like([inside])])
        held = np.logical_and.reduce([values[positions] for positions in chosen.T])
        observed, usual = (held @ events).T
        both = held[:, inside] @ events[inside, 0]
        gains = self._gain(observed, usual)
        same = both >= _SAME * (weights.sum() + observed - both)
        # rows that are nearly all there are, as in a large rise, share what was as usual before it, too
        as_well = np.flatnonzero(same & (gains >= _AS_WELL * gains[same].max()))
        found = []
        attributes = list(shared)
        for number in as_well.tolist():
            others = tuple(attributes[index] for index in chosen[number] if index < len(shared))
            cost, gain = self._cost(others), float(gains[number])
            stated = {name: str(self._values[name][shared[name]]) for name in others}
            expected = float(usual[number]) / self._exposure
            evidence = max(_evidence(gain / known, freedom) for known, freedom in self._measures)
            scores = gain / self._spread - cost, evidence - cost
            found.append(RankedCondition(stated, float(observed[number]), expected, *scores))
        return sorted(found, key=lambda condition: -condition.score)


def _merged(classes: list[list[RankedCondition]]) -> list[list[RankedCondition]]:
    """Those that begin with the same condition as one: it is near to rows that differ a little more."""
    merged: dict[frozenset[tuple[str, str]], list[RankedCondition]] = {}
    for conditions in classes:
        known = merged.setdefault(frozenset(conditions[0].named.items()), [])
        known += [condition for condition in conditions if condition not in known]
    return [sorted(known, key=lambda condition: -condition.score) for known in merged.values()]


@lru_cache
def _up_to_depth(count: int) -> _Codes:
    """Combinations of one to three of so many positions, a row each, padded with the one after the last."""
    rows = [
        others + (count,) * (_DEPTH - depth)
        for depth in range(1, _DEPTH + 1)
        for others in combinations(range(count), depth)
    ]
    return np.array(rows, dtype=np.int64).reshape(len(rows), _DEPTH)


def plainest(conditions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of some conditions of the same rows that need all their attributes: with fewer, none is there.

    >>> plainest([{"a": 1}, {"a": 1, "b": 2}, {"b": 2, "c": 3}])
    [{'a': 1}, {'b': 2, 'c': 3}]
    """
    named = [frozenset(condition.items()) for condition in conditions]
    plain = [not any(other < items for other in named) for items in named]
    return list(compress(conditions, plain))


def likelihood(conditions: list[RankedCondition]) -> float:
    """Combined log-likelihood of conditions that describe the same rows."""
    return float(np.logaddexp.reduce([condition.score for condition in conditions]))


def _holds(codes: dict[str, _Codes], names: tuple[str, ...], key: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """The leaves that a condition holds."""
    held: npt.NDArray[np.bool_] = np.logical_and.reduce(
        [codes[name] == code for name, code in zip(names, key, strict=True)]
    )
    return held


def _largest(column: pd.Series, observed: _Floats, expected: _Floats) -> tuple[_Codes, npt.NDArray[Any]]:
    """Codes of an attribute's values; -1 for those beyond the largest in excess."""
    codes, values = pd.factorize(column)
    excess = np.bincount(codes, observed, len(values)) - np.bincount(codes, expected, len(values))
    order = np.argsort(-excess)[:_VALUES]
    renumbered = np.full(len(values), -1, dtype=np.int64)
    renumbered[order] = np.arange(len(order))
    return renumbered[codes], np.asarray(values, dtype=object)[order]


def _counted(
    codes: list[_Codes], sizes: list[int], observed: _Floats, usual: _Floats
) -> tuple[_Codes, _Floats, _Floats]:
    """The combinations of codes that occur, as numbers, with the events of each."""
    number = np.ravel_multi_index(codes, sizes)
    total = math.prod(sizes)
    if total > _DENSE * number.size:
        groups, number = np.unique(number, return_inverse=True)
        total = groups.size
    else:
        groups = np.arange(total)
    one, two = (np.bincount(number, events, total) for events in (observed, usual))
    there = (one > 0) | (two > 0)
    return groups[there], one[there].astype(np.float64), two[there].astype(np.float64)


def _split(one: _Floats, two: _Floats) -> _Floats:
    """Log-likelihood of how events are split in two, at its maximum."""
    both = np.maximum(one + two, 1e-300)
    return sum(  # type: ignore[return-value]
        np.where(part > 0, part * np.log(np.maximum(part, 1e-300) / both), 0.0) for part in (one, two)
    )


def _evidence(gain: float, freedom: float) -> float:
    """What a gain says, in units of a dispersion that is itself estimated: Student's log-likelihood."""
    return gain if np.isinf(freedom) else (freedom + 1) / 2 * math.log1p(2 * gain / freedom)


def _dispersion(codes: dict[str, _Codes], observed: _Floats, usual: _Floats) -> tuple[float, float]:
    """Variance over mean of counts, 1 for single events and more where they come in bursts; its freedom.

    The median over values of attributes and of pairs of them, so that what rose hardly counts. The fewer
    they are, the less is known: the freedom is that of Student's distribution.
    """
    ratios: list[_Floats] = []
    for depth in (1, 2):
        for names in combinations(codes, depth):
            several = [codes[name] + 1 for name in names]
            sizes = [int(code.max(initial=0)) + 1 for code in several]
            _, one, two = _counted(several, sizes, observed, usual)
            known = one + two >= _COUNTED
            share = float(np.median(one[known] / (one + two)[known])) if known.any() else 0.0
            if 0 < share < 1:
                both = (one + two)[known]
                ratios.append((one[known] - share * both) ** 2 / (both * share * (1 - share)))
    ordered = np.sort(np.concatenate([np.empty(0), *ratios]))
    if ordered.size <= 1:
        return _bursts(observed, usual), np.inf
    spread = max(1.0, float(np.median(ordered)) / _MEDIAN)
    if ordered.size >= _MANY:
        spread = max(spread, float(ordered[: int(ordered.size * _LOWER)].mean()) / _LOWER_MEAN)
    freedom = ordered.size - 1
    return (freedom * spread + _PRIOR) / (freedom + _PRIOR), float(freedom + _PRIOR)


def _bursts(observed: _Floats, usual: _Floats) -> float:
    """The size of bursts, from leaves that occur on one side only: most of those hold a single burst."""
    sides = ((observed, usual), (usual, observed))
    sizes = [events[(events > 0) & (other == 0)] for events, other in sides]
    return min((float((size**2).sum() / size.sum()) for size in sizes if size.size >= _CELLS), default=1.0)

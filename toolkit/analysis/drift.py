"""Whether two sets of vectors come from one distribution, and by how much they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from toolkit.arguments import whole, wrong

_Floats = npt.NDArray[np.float64]

_ROWS: Final = 1500  # of each side that are compared
_FOLDS: Final = 5
_DRAWS: Final = 1000
_PERMUTATIONS: Final = 499
_RIDGE: Final = 1.0  # of the classifier, in units of the mean variance of the features
_BLOCK: Final = 500


@dataclass(frozen=True, repr=False)
class Drift:
    """How far two sets of vectors differ.

    Attributes
    ----------
    auc, low, high : float
        AUC on held-out rows of a classifier that separates the sides, with its 95 % interval:
        0.5 for equal distributions, 1 for separate ones.
    energy : float
        The energy distance of the two, 0 for equal distributions; in the units of the vectors.
    p_value : float
        The probability of such an energy distance for equal distributions.
    rows : int
        How many rows of each side were compared, at most.
    """

    auc: float
    low: float
    high: float
    energy: float
    p_value: float
    rows: int

    def __repr__(self) -> str:
        classifier = f"AUC {self.auc:.3f} [{self.low:.3f}, {self.high:.3f}]"
        energy = f"energy distance {self.energy:.4g} (p = {self.p_value:.3g})"
        return f"{classifier}, {energy}, up to {self.rows:,} rows a side"


def drift(before: Any, after: Any, *, groups: Any = None, seed: int = 0) -> Drift:
    """Compare two sets of vectors.

    Parameters
    ----------
    before, after : array-like
        Matrices of finite numbers, a row a vector, of one dimension.
    groups : pair of sequences, optional
        For each row of `before` and of `after`, its document: chunks of one are alike, and are drawn, split
        and permuted together. Default: each row by itself.
    seed : int
        For samples, splits and permutations.

    Returns
    -------
    Drift

    Raises
    ------
    InputError
        When a side is not such a matrix or is empty, or `groups` do not fit.

    Notes
    -----
    The classifier is a ridge-regularised linear discriminant on the coordinates and their squares. The energy
    distance (Székely and Rizzo, 2013) is tested by permuting groups. Sides of over 1,500 rows are sampled.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> same = drift(rng.normal(size=(300, 8)), rng.normal(size=(300, 8)))
    >>> shifted = drift(rng.normal(size=(300, 8)), rng.normal(0.7, 1, size=(300, 8)))
    >>> same.p_value > 0.05, shifted.p_value < 0.01, shifted.auc > 0.8
    (True, True, True)
    """
    rng = np.random.default_rng([whole("seed", seed, least=0), 1])
    sides = [_matrix("before", before), _matrix("after", after)]
    if sides[0].shape[1] != sides[1].shape[1]:
        raise wrong("after", f"vectors of {sides[1].shape[1]} numbers", f"{sides[0].shape[1]}, as before has")
    largest = int(np.frexp(max(np.abs(side).max() for side in sides))[1])
    sides = [np.ldexp(side, -largest) for side in sides]  # exact; squares of huge numbers would overflow
    named = _groups(groups, sides)
    kept = [_sample(group, rng) for group in named]
    rows = np.concatenate([side[rows] for side, rows in zip(sides, kept, strict=True)])
    group = np.concatenate([names[rows] for names, rows in zip(named, kept, strict=True)])
    later = np.repeat([False, True], [kept[0].size, kept[1].size])
    scores = _held_out(rows, later, group, rng)
    auc = _auc(scores[later], scores[~later])
    low, high = _auc_interval(scores, later, group, rng)
    energy, p_value = _energy(rows, later, group, rng)
    with np.errstate(over="ignore"):
        energy = float(np.ldexp(energy, largest))
    return Drift(auc, min(low, auc), max(high, auc), energy, p_value, max(kept[0].size, kept[1].size))


def _matrix(name: str, value: Any) -> _Floats:
    try:
        matrix = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise wrong(name, value, "a matrix of numbers, a row a vector") from None
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():  # noqa: PLR2004
        expected = "a matrix of finite numbers with at least one row"
        raise wrong(name, value, expected, "Take toolkit.as_matrix of a frame.")
    return matrix


def _groups(groups: Any, sides: list[_Floats]) -> list[npt.NDArray[np.int64]]:
    """Numbers of the groups of both sides; a name that is on both sides is one group."""
    if groups is None:
        return [np.arange(len(sides[0])), np.arange(len(sides[0]), len(sides[0]) + len(sides[1]))]
    try:
        first, second = (list(side) for side in groups)
    except (TypeError, ValueError, OverflowError):
        raise wrong("groups", groups, "a pair of sequences, for before and for after") from None
    if (len(first), len(second)) != (len(sides[0]), len(sides[1])):
        raise wrong("groups", groups, f"{len(sides[0])} names for before and {len(sides[1])} for after")
    numbers: dict[Any, int] = {}
    return [
        np.array([numbers.setdefault(name, len(numbers)) for name in side], dtype=np.int64)
        for side in (first, second)
    ]


def _sample(group: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Rows of whole groups, in random order of the groups, until there are enough."""
    if group.size <= _ROWS:
        return np.arange(group.size)
    order = rng.permutation(np.unique(group))
    rank = {int(name): number for number, name in enumerate(order)}
    by_group = np.argsort([rank[int(name)] for name in group], kind="stable")
    return np.sort(by_group[:_ROWS])


def _held_out(
    rows: _Floats, later: npt.NDArray[np.bool_], group: npt.NDArray[np.int64], rng: np.random.Generator
) -> _Floats:
    """Scores of rows by classifiers that saw neither them nor their group."""
    names, inverse = np.unique(group, return_inverse=True)
    fold = rng.permutation(names.size)[inverse] % min(_FOLDS, max(2, names.size))
    features = np.hstack([rows, (rows - rows.mean(axis=0)) ** 2])
    deviation = features.std(axis=0)
    features = (features - features.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    scores = np.zeros(len(rows))
    for number in np.unique(fold):
        train, test = fold != number, fold == number
        if later[train].all() or not later[train].any():
            continue
        first, second = features[train & later], features[train & ~later]
        centred = np.vstack([first - first.mean(axis=0), second - second.mean(axis=0)])
        covariance = centred.T @ centred / max(1, len(centred) - 2)
        shrink = _RIDGE * features.shape[1] / max(1, len(centred)) + 1e-3
        covariance[np.diag_indices_from(covariance)] += shrink
        direction = np.linalg.solve(covariance, first.mean(axis=0) - second.mean(axis=0))
        scores[test] = (features[test] - (first.mean(axis=0) + second.mean(axis=0)) / 2) @ direction
    return scores


def _auc(above: _Floats, below: _Floats) -> float:
    """The chance that a score of the first is above one of the second; half for equal ones."""
    if not above.size or not below.size:
        return 0.5
    ordered = np.sort(below)
    wins = np.searchsorted(ordered, above, side="left") + np.searchsorted(ordered, above, side="right")
    return float(wins.mean() / 2 / below.size)


def _auc_interval(
    scores: _Floats, labels: npt.NDArray[np.bool_], group: npt.NDArray[np.int64], rng: np.random.Generator
) -> tuple[float, float]:
    """Percentiles of the AUC over groups drawn with replacement, within each side."""
    resampled = []
    parts = [_by_group(scores[side], group[side]) for side in (labels, ~labels)]
    for _ in range(_DRAWS):
        drawn = [np.concatenate([part[n] for n in rng.integers(0, len(part), len(part))]) for part in parts]
        resampled.append(_auc(drawn[0], drawn[1]))
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(low), float(high)


def _by_group(scores: _Floats, group: npt.NDArray[np.int64]) -> list[_Floats]:
    order = np.argsort(group, kind="stable")
    return np.split(scores[order], np.flatnonzero(np.diff(group[order])) + 1)


def _energy(
    rows: _Floats, later: npt.NDArray[np.bool_], group: npt.NDArray[np.int64], rng: np.random.Generator
) -> tuple[float, float]:
    """The energy distance, and how often it is as large when groups are dealt to the sides at random."""
    distances = _distances(rows)
    names, inverse = np.unique(group, return_inverse=True)
    first = np.zeros(names.size, dtype=bool)
    first[inverse[later]] = True  # groups of both sides go with the later one

    dealt = np.stack([first, *(rng.permutation(first) for _ in range(_PERMUTATIONS))], axis=1)[inverse]
    side = dealt.astype(np.float64)
    toward = distances @ side
    count, other = side.sum(axis=0), (1 - side).sum(axis=0)
    inside, across = (toward * side).sum(axis=0), (toward * (1 - side)).sum(axis=0)
    outside = float(distances.sum()) - inside - 2 * across
    both = np.maximum(count * other, 1)
    energy = 2 * across / both - inside / np.maximum(count, 1) ** 2 - outside / np.maximum(other, 1) ** 2
    energy = np.where(count * other > 0, energy, 0.0)
    larger = int((energy[1:] >= energy[0] * (1 - 1e-12)).sum())
    return max(float(energy[0]), 0.0), (1 + larger) / (1 + _PERMUTATIONS)


def _distances(rows: _Floats) -> _Floats:
    squares = (rows**2).sum(axis=1)
    distances = np.empty((len(rows), len(rows)))
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        distances[part] = squares[part, None] + squares - 2 * rows[part] @ rows.T
    np.fill_diagonal(distances, 0)
    return np.sqrt(np.maximum(distances, 0))

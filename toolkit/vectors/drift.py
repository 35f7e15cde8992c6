"""Test whether two sets of vectors come from one distribution, and measure by how much they differ.

For example, if the embedding model was replaced between two exports, a classifier separates their vectors
with an AUC near 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from toolkit.base.arguments import whole, wrong

_Floats = npt.NDArray[np.float64]

_ROWS: Final = 1500  # of each side that are compared
_FOLDS: Final = 5
_DRAWS: Final = 1000
PERMUTATIONS: Final = 499
NO_DIFFERENCE: Final = 0.5
"""The AUC of two sets that do not differ."""
UNLIKELY: Final = 0.05
"""A larger p value is no evidence of a difference."""
_RIDGE: Final = 1.0  # of the classifier, in units of the mean variance of the features
_BLOCK: Final = 500


@dataclass(frozen=True, repr=False)
class Drift:
    """The difference between two sets of vectors.

    Attributes
    ----------
    auc, low, high : float
        AUC of a classifier that separates the sides, on rows that it was not trained on, with the 95 %
        interval: 0.5 for equal distributions, 1 for separate ones.
    energy : float
        The energy distance of the two, 0 for equal distributions; in the units of the vectors.
    p_value : float
        The probability of an energy distance this large for equal distributions.
    rows : int
        The number of rows of the larger side that were compared.
    """

    auc: float
    low: float
    high: float
    energy: float
    p_value: float
    rows: int

    @property
    def is_clear(self) -> bool:
        """Return whether the two differ by more than chance explains."""
        return self.low > NO_DIFFERENCE and self.p_value <= UNLIKELY

    def __repr__(self) -> str:
        finding = "no difference was found"
        if self.is_clear:
            finding = "the two differ"
        classifier = f"AUC {self.auc:.3f} [{self.low:.3f}, {self.high:.3f}]"
        energy = f"energy distance {self.energy:.4g} (p = {self.p_value:.3g})"
        return f"{finding}: {classifier}, {energy}, up to {self.rows:,} rows per side"


def drift(before: Any, after: Any, *, groups: Any = None, seed: int = 0) -> Drift:
    """Compare two sets of vectors.

    Parameters
    ----------
    before, after : array-like
        Matrices of finite numbers, one row per vector, of one dimension.
    groups : pair of sequences, optional
        The document of each row of `before` and of `after`. Chunks of one document are alike, so they are
        drawn, split and permuted together. If omitted, each row is a group of its own.
    seed : int
        For samples, splits and permutations.

    Returns
    -------
    Drift

    Raises
    ------
    InputError
        If a side is not a matrix or is empty, or `groups` have other lengths.

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
        raise wrong(
            "after",
            f"vectors of {sides[1].shape[1]} numbers",
            f"{sides[0].shape[1]}, as before has",
        )

    # scaling by a power of two is exact, and squares of huge numbers do not overflow
    exponent = int(np.frexp(max(np.abs(side).max() for side in sides))[1])
    before_groups, after_groups = _groups(groups, sides)
    before_rows, after_rows = _sample(before_groups, rng), _sample(after_groups, rng)
    rows = np.ldexp(
        np.concatenate([sides[0][before_rows], sides[1][after_rows]]), -exponent
    )
    group = np.concatenate([before_groups[before_rows], after_groups[after_rows]])
    later = np.repeat([False, True], [before_rows.size, after_rows.size])
    scores = _held_out(rows, later, _with_equal_rows(rows, group), rng)
    auc = _auc(scores[later], scores[~later])
    low, high = _auc_interval(scores, later, group, rng)
    energy, p_value = _energy(rows, later, group, rng)
    with np.errstate(over="ignore"):
        energy = float(np.ldexp(energy, exponent))
    return Drift(
        auc,
        min(low, auc),
        max(high, auc),
        energy,
        p_value,
        max(before_rows.size, after_rows.size),
    )


def _matrix(name: str, value: Any) -> _Floats:
    try:
        matrix = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise wrong(name, value, "a matrix of numbers, one row per vector") from None

    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():  # noqa: PLR2004
        expected = "a matrix of finite numbers with at least one row"
        raise wrong(name, value, expected, "Take toolkit.as_matrix of a frame.")

    return matrix


def _groups(groups: Any, sides: list[_Floats]) -> list[npt.NDArray[np.int64]]:
    """Return the groups of both sides as numbers. A name that occurs on both sides is one group."""
    if groups is None:
        return [
            np.arange(len(sides[0])),
            np.arange(len(sides[0]), len(sides[0]) + len(sides[1])),
        ]

    try:
        first, second = (list(side) for side in groups)
    except (TypeError, ValueError, OverflowError):
        raise wrong(
            "groups", groups, "a pair of sequences, for before and for after"
        ) from None

    if (len(first), len(second)) != (len(sides[0]), len(sides[1])):
        raise wrong(
            "groups",
            groups,
            f"{len(sides[0])} names for before and {len(sides[1])} for after",
        )

    numbers: dict[Any, int] = {}
    return [
        np.array(
            [numbers.setdefault(name, len(numbers)) for name in side], dtype=np.int64
        )
        for side in (first, second)
    ]


def _sample(
    group: npt.NDArray[np.int64], rng: np.random.Generator
) -> npt.NDArray[np.intp]:
    """Return rows of whole groups, in random order of the groups, until they are enough."""
    if group.size <= _ROWS:
        return np.arange(group.size)

    order = rng.permutation(np.unique(group))
    rank = {int(name): number for number, name in enumerate(order)}
    by_group = np.argsort([rank[int(name)] for name in group], kind="stable")

    return np.sort(by_group[:_ROWS])


def _with_equal_rows(
    rows: _Floats, group: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return groups that also contain the groups of equal rows.

    If a row is on both sides, a classifier that was trained with one of the two would call the other one
    wrong: two identical sets would have an AUC far below 0.5.
    """
    _, copies = np.unique(rows, axis=0, return_inverse=True)
    joined = group.copy()
    while True:
        least_of_copy = np.full(len(rows), np.iinfo(np.int64).max)
        np.minimum.at(least_of_copy, copies.ravel(), joined)
        following = np.minimum(joined, least_of_copy[copies.ravel()])
        least_of_group = np.full(int(group.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(least_of_group, group, following)
        following = least_of_group[group]
        if (following == joined).all():
            return joined
        joined = following


def _held_out(
    rows: _Floats,
    later: npt.NDArray[np.bool_],
    group: npt.NDArray[np.int64],
    rng: np.random.Generator,
) -> _Floats:
    """Return the scores of rows by classifiers that were trained without them and their group.

    This is cross-validation with up to five folds of whole groups. The classifier is a linear discriminant
    with a ridge on the covariance, on the coordinates and their squares (a change of the spread shows there).
    """
    names, inverse = np.unique(group, return_inverse=True)
    # Shuffle the groups and deal them out like cards. For example, seven groups and three folds:
    #     place of the group  0 1 2 3 4 5 6
    #     fold                0 1 2 0 1 2 0
    fold = rng.permutation(names.size)[inverse] % min(_FOLDS, max(2, names.size))
    features = np.hstack([rows, (rows - rows.mean(axis=0)) ** 2])
    deviation = features.std(axis=0)
    features = (features - features.mean(axis=0)) / np.where(
        deviation > 0, deviation, 1.0
    )
    scores = np.zeros(len(rows))

    for number in np.unique(fold):
        train, test = fold != number, fold == number
        first, second = features[train & later], features[train & ~later]
        if not len(first) or not len(second):
            continue
        first_mean, second_mean = first.mean(axis=0), second.mean(axis=0)
        centred = np.vstack([first - first_mean, second - second_mean])
        # This is Fisher's linear discriminant: direction = covariance⁻¹ (mean of one class - mean of the
        # other). Two means were estimated, so there are n - 2 degrees of freedom.
        covariance = centred.T @ centred / max(1, len(centred) - 2)
        # With more features than rows, the covariance cannot be inverted; the ridge grows with their ratio.
        # The features have variance 1, so it is in units of this variance.
        shrink = _RIDGE * features.shape[1] / max(1, len(centred)) + 1e-3
        covariance[np.diag_indices_from(covariance)] += shrink
        direction = np.linalg.solve(covariance, first_mean - second_mean)
        scores[test] = (features[test] - (first_mean + second_mean) / 2) @ direction

    return scores


def _auc(above: _Floats, below: _Floats) -> float:
    """Return the chance that a score of the first is above a score of the second; equal scores count half.

    For example, [3, 1] and [2] give 0.5: one of two comparisons is won.
    """
    if not above.size or not below.size:
        return 0.5

    ordered = np.sort(below)
    # "left" counts the scores that are lower, "right" also the equal ones. The mean of both counts an equal
    # score as half, which is the Mann-Whitney U statistic.
    wins = np.searchsorted(ordered, above, side="left") + np.searchsorted(
        ordered, above, side="right"
    )
    return float(wins.mean() / 2 / below.size)


def _auc_interval(
    scores: _Floats,
    labels: npt.NDArray[np.bool_],
    group: npt.NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Return the 95 % interval of the AUC by a bootstrap of the groups within each side."""
    above = _by_group(scores[labels], group[labels])
    below = _by_group(scores[~labels], group[~labels])
    # Groups are drawn instead of rows, because rows of a group are not independent: drawing
    # rows would make the interval too narrow.
    resampled = []
    for _ in range(_DRAWS):
        drawn_above, drawn_below = _drawn(above, rng), _drawn(below, rng)
        resampled.append(_auc(drawn_above, drawn_below))

    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(low), float(high)


def _drawn(parts: list[_Floats], rng: np.random.Generator) -> _Floats:
    """Return the scores of groups that are drawn with replacement."""
    return np.concatenate(
        [parts[number] for number in rng.integers(0, len(parts), len(parts))]
    )


def _by_group(scores: _Floats, group: npt.NDArray[np.int64]) -> list[_Floats]:
    order = np.argsort(group, kind="stable")
    return np.split(scores[order], np.flatnonzero(np.diff(group[order])) + 1)


def _energy(
    rows: _Floats,
    later: npt.NDArray[np.bool_],
    group: npt.NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Return the energy distance, and the share of random divisions with a distance as large (p value).

    The energy distance is twice the mean distance between rows of both sides, minus the mean distances within
    each side. All divisions are computed at once: each is a column of `side`.
    """
    distances = _distances(rows)
    names, inverse = np.unique(group, return_inverse=True)
    first = np.zeros(names.size, dtype=bool)
    first[inverse[later]] = True  # a group of both sides belongs to the later side
    permuted = [rng.permutation(first) for _ in range(PERMUTATIONS)]
    side = np.stack([first, *permuted], axis=1)[inverse].astype(np.float64)
    # For each division (a column of `side`, 1 for the later rows), with D the matrix of distances:
    #     inside  = sum of D within the later rows
    #     across  = sum of D between the two sides
    #     outside = sum of D within the earlier rows, which is the rest of the total; D is symmetric, so
    #               the total contains `across` twice
    # Energy distance (Székely and Rizzo): 2 * mean across - mean inside - mean outside.
    toward = distances @ side
    count, other = side.sum(axis=0), (1 - side).sum(axis=0)
    inside, across = (toward * side).sum(axis=0), (toward * (1 - side)).sum(axis=0)
    outside = float(distances.sum()) - inside - 2 * across
    both = np.maximum(count * other, 1)
    energy = (
        2 * across / both
        - inside / np.maximum(count, 1) ** 2
        - outside / np.maximum(other, 1) ** 2
    )
    energy = np.where(count * other > 0, energy, 0.0)
    # The actual division is one of the possible ones, so it counts as well, and p is never 0.
    larger = int((energy[1:] >= energy[0] * (1 - 1e-12)).sum())

    return max(float(energy[0]), 0.0), (1 + larger) / (1 + PERMUTATIONS)


def _distances(rows: _Floats) -> _Floats:
    squares = (rows**2).sum(axis=1)
    distances = np.empty((len(rows), len(rows)))
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        # |a - b|² = |a|² + |b|² - 2ab needs one product of matrices instead of a difference per pair of rows.
        distances[part] = squares[part, None] + squares - 2 * rows[part] @ rows.T

    np.fill_diagonal(distances, 0)
    return np.sqrt(np.maximum(distances, 0))

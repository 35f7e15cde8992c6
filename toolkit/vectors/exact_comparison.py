"""Compare vectors exactly, in blocks: nearest neighbours of queries, pairs, and whole namespaces."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.errors import UnexpectedResultWarning
from toolkit.tables.metadata_fields import match_metadata
from toolkit.vectors.vector_batches import Matrix, Positions, VectorBatch

_Floats = npt.NDArray[np.float64]

SIMILARITIES: Final = ("COSINE", "EUCLIDEAN", "DOT_PRODUCT")
_BLOCK: Final = 10_000  # pairs that are compared at once
_COPIED: Final = 1_000  # pairs whose rows are copied at once: few enough for the cache of a processor
NEAR: Final = 0.999
"""Two different vectors with this cosine, or a higher one, count as near duplicates."""

NEIGHBOURS: Final = 10
_CELLS: Final = 8_000_000  # numbers in a block of similarities
_AXES: Final = 32
# a bound of the cosine that is too low by the rounding of float32 still counts
_LEAST_BOUND: Final = NEAR - 1e-4
_MANY: Final = 0.05  # share of pairs from which a product of all is faster
_PAIRS: Final = 100_000  # pairs that are compared before the groups are looked at again
_WAITING: Final = 10_000  # pairs that are joined at once
_QUERIES: Final = 2_000
_REFERENCES: Final = 4_000
_OUTLIER_ROWS: Final = 300  # in smaller indexes, rare topics have only one or two rows
_OUTLIER_RANK: Final = 20  # more than the chunks of a typical document
_OUTLIER_CHANCE: Final = 0.01  # probability of any outlier in an index without outliers
_OUTLIER_RATIO: Final = 0.3  # the least isolation of an outlier, a logarithm
# with few dimensions, distances vary more: the least isolation times dimensions
_OUTLIER_SPREAD: Final = 16
# Limits of strangeness, in standard deviations, and of isolation, as a multiple of the expected excess.
# Healthy rows of real embeddings that are alone on a subject stay below at least one of them.
_OUTLIER_STRANGENESS: Final = 2.75
_OUTLIER_MULTIPLE: Final = 3.0
_LEAST_VARIANCE: Final = 0.05  # share of the mean variance, for directions without any
_SAMPLE: Final = 20_000  # rows used to compute the spread


def scores_of(queries: Matrix, rows: Matrix, similarity: str) -> Matrix:
    """Return the scores of all pairs, scaled to 0..1 as the service does."""
    if similarity == "COSINE":
        queries, rows = _unit(queries), _unit(rows)
    with np.errstate(over="ignore", invalid="ignore"):
        # an overflow is the largest possible distance
        products: Matrix = queries @ rows.T
        if similarity == "EUCLIDEAN":
            squares = (
                (queries**2).sum(axis=1)[:, None] + (rows**2).sum(axis=1) - 2 * products
            )
            squares = np.nan_to_num(squares, copy=False, nan=np.inf, posinf=np.inf)
            return np.asarray(1 / (1 + np.maximum(squares, 0)), dtype=np.float32)

        return np.asarray((1 + products) / 2, dtype=np.float32)


def _unit(rows: Matrix) -> Matrix:
    """Scale rows to length 1; zero vectors stay. Lengths are float64, because huge ones exceed float32."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))[:, None]
    return np.asarray(rows / np.maximum(lengths, 1e-30), dtype=np.float32)


def pair_scores(first: Matrix, second: Matrix, similarity: str) -> _Floats:
    """Return the score of each row of one matrix and the same row of another."""
    scores = np.zeros(len(first))
    for start in range(0, len(first), _BLOCK):
        part = slice(start, start + _BLOCK)
        # squares of huge float32 would overflow
        one, two = first[part].astype(np.float64), second[part].astype(np.float64)
        if similarity == "EUCLIDEAN":
            scores[part] = 1 / (1 + ((one - two) ** 2).sum(axis=1))
            continue
        products = np.einsum("ij,ij->i", one, two)

        if similarity == "COSINE":
            products /= np.maximum(
                np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1), 1e-30
            )

        scores[part] = (1 + products) / 2

    return scores


def scores_at(
    queries: Matrix,
    first: Positions,
    rows: Matrix,
    second: Positions,
    similarity: str,
) -> _Floats:
    """Return the scores of pairs of a query and a row, by their positions in two matrices.

    Copies of all rows at once, for example 200 MB of each matrix, would take twice as long.
    """
    scores = np.zeros(len(first))
    # indexing with positions copies the rows
    for start in range(0, len(first), _COPIED):
        part = slice(start, start + _COPIED)
        scores[part] = pair_scores(queries[first[part]], rows[second[part]], similarity)

    return scores


class ExactSearch:
    """Finds the nearest rows of all added batches, for several queries of one namespace and filter.

    `own` are the ids that the queries leave out, one per query. `returned` are the ids that the service
    returned for each query: their exact scores are kept as well. `unknown` are the returned ids that the
    namespace does not contain.
    """

    def __init__(
        self,
        queries: Matrix,
        *,
        namespace: str,
        similarity: str,
        k: int,
        filter: str = "",  # noqa: A002 - the service's own name
        own: list[str] | None = None,
        returned: Sequence[Iterable[str]] = (),
    ) -> None:
        self.namespace, self.filter = namespace, filter
        self.rows = self.matched = 0
        self._returned: dict[str, list[int]] = {}
        for number, keys in enumerate(returned):
            for key in keys:
                self._returned.setdefault(key, []).append(number)

        self.unknown = set(self._returned)
        self._queries, self._similarity, self._size = queries, similarity, k
        self._own = {key: number for number, key in enumerate(own or ())}
        self._extra: list[dict[str, float]] = [{} for _ in queries]
        self._scores: Matrix = np.full((len(queries), 0), -np.inf, dtype=np.float32)
        self._ids: npt.NDArray[np.object_] = np.empty((len(queries), 0), dtype=object)

    def add(self, batch: VectorBatch, chosen: npt.NDArray[np.bool_]) -> None:
        """Compare the queries with the chosen rows of a batch."""
        inside = chosen & np.array(
            [name == self.namespace for name in batch.namespaces], dtype=bool
        )
        if not inside.any():
            return

        ids = np.array(batch.ids, dtype=object)
        self.rows += int(inside.sum())
        self.unknown.difference_update(ids[inside])

        if self.filter:
            metadata = pd.DataFrame(
                {"metadata": pd.Series(batch.metadata, dtype="str")}
            )
            with warnings.catch_warnings():
                # a batch may have no match
                warnings.simplefilter("ignore", UnexpectedResultWarning)
                inside &= match_metadata(metadata, self.filter).to_numpy()

        self.matched += int(inside.sum())
        for positions, matrix in batch.dense:
            kept = inside[positions] & np.isfinite(matrix).all(axis=1)
            if matrix.shape[1] == self._queries.shape[1] and kept.any():
                self._merge(ids[positions[kept]], matrix[kept])

    def _merge(self, ids: npt.NDArray[np.object_], matrix: Matrix) -> None:
        scores = scores_of(self._queries, matrix, self._similarity)
        for place, key in enumerate(ids):
            if key in self._own:
                scores[self._own[key], place] = -np.inf
            for number in self._returned.get(key, ()):
                self._extra[number][key] = float(scores[number, place])

        # Only the best `k` of a batch can be among the best of all.
        # `argpartition` finds them without sorting the rest.
        if len(ids) > self._size:
            top = np.argpartition(scores, len(ids) - self._size, axis=1)[
                :, len(ids) - self._size :
            ]
            scores, nearest = np.take_along_axis(scores, top, axis=1), ids[top]
        else:
            nearest = np.broadcast_to(ids, scores.shape)

        scores = np.hstack([self._scores, scores])
        nearest = np.hstack([self._ids, nearest])
        # Earlier hits come first and the sort is stable, so they win over equal ones of a later batch.
        order = np.argsort(-scores, axis=1, kind="stable")[:, : self._size]
        self._scores = np.take_along_axis(scores, order, axis=1)
        self._ids = np.take_along_axis(nearest, order, axis=1)

    @property
    def most(self) -> int:
        """Return the largest number of neighbours of any query."""
        return int(np.isfinite(self._scores).sum(axis=1).max(initial=0))

    def score_of(self, number: int, vector: npt.NDArray[np.float32]) -> float:
        """Return the exact score of a vector for a query."""
        query = self._queries[number : number + 1]
        if vector.shape != query[0].shape:
            return -np.inf
        return float(scores_of(query, vector[None, :], self._similarity)[0, 0])

    def returned_scores(self) -> list[dict[str, float]]:
        """Return, per query, the exact scores of the returned ids that were compared."""
        return self._extra

    def nearest(self) -> list[list[tuple[str, float]]]:
        """Return ids and exact scores per query, best first: the nearest rows, and the returned ones."""
        rankings = []
        for ids, scores, extra in zip(
            self._ids, self._scores, self._extra, strict=True
        ):
            all_scores = dict(zip(ids, scores.tolist(), strict=True)) | extra
            kept = [
                (key, score) for key, score in all_scores.items() if np.isfinite(score)
            ]
            rankings.append(sorted(kept, key=lambda pair: -pair[1]))

        return rankings


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """A comparison of the vectors of a namespace with each other, by cosine and, for hubs, by dot product."""

    pairs: _Floats  # similarities of random pairs
    nearest: _Floats  # similarities of rows and their nearest neighbours
    near_duplicates: Positions  # rows with a near duplicate
    near_groups: Positions  # per near duplicate: a number, equal for rows that are near each other
    outliers: Positions
    hubs: Positions  # rows that are among the neighbours of far too many others
    hub_share: float  # share of queries with the largest hub among their neighbours
    dot_hubs: Positions  # hubs by dot product that are none by cosine
    dot_hub_share: float
    effective_rank: float


def unit_rows(matrix: Matrix) -> Matrix:
    """Return rows, each finite and not zero, scaled to length 1."""
    # lengths of huge numbers would overflow
    scaled = matrix / np.abs(matrix).max(axis=1, keepdims=True)
    return np.asarray(scaled / np.linalg.norm(scaled, axis=1, keepdims=True))


def neighbourhoods(
    matrix: Matrix, distinct: Positions, *, by_dot: bool = False, seed: int = 0
) -> Neighbourhoods:
    """Compare the rows of a matrix, each finite and not zero, with each other.

    With `by_dot`, hubs are searched by dot product as well.
    """
    rng = np.random.default_rng([seed, 2])
    unit = unit_rows(matrix)
    rows = len(unit)
    first, second = rng.integers(0, rows, (2, min(100_000, rows * rows)))
    different = first != second
    pairs = _dots(unit, first[different], second[different])

    if rows < 3:  # noqa: PLR2004 - no neighbourhood to speak of
        none = np.zeros(0, dtype=np.intp)
        return Neighbourhoods(
            pairs, pairs, none, none, none, none, 0.0, none, 0.0, _effective_rank(unit, rng)
        )  # fmt: skip

    queries = np.sort(rng.choice(rows, min(_QUERIES, rows), replace=False))
    everything, neighbours = np.arange(rows), min(NEIGHBOURS, rows - 1)
    similarities, nearest = _nearest(unit, queries, everything, neighbours)
    hubs, hub_share = _hubs(nearest, rows)
    near_duplicates, near_groups = _near_duplicates(unit, distinct, rng)
    dot_hubs, dot_hub_share = np.zeros(0, dtype=np.intp), 0.0
    if by_dot:
        # the length of a query does not count, but that of the rows does
        scaled = matrix / np.abs(matrix).max()
        _, nearest = _nearest(scaled, queries, everything, neighbours)
        dot_hubs, dot_hub_share = _hubs(nearest, rows)

    return Neighbourhoods(
        pairs=pairs,
        nearest=similarities[:, -1].astype(np.float64),
        near_duplicates=near_duplicates,
        near_groups=near_groups,
        outliers=_outliers(unit, distinct, rng),
        hubs=hubs,
        hub_share=hub_share,
        dot_hubs=np.setdiff1d(dot_hubs, hubs),
        dot_hub_share=dot_hub_share,
        effective_rank=_effective_rank(unit, rng),
    )


def _hubs(nearest: Positions, rows: int) -> tuple[Positions, float]:
    """Return the rows that are in far too many lists of neighbours, and the share of lists with the largest.

    They are in at least 5 % of the lists, and in 20 times as many as expected by chance.
    """
    counts = np.bincount(nearest.ravel(), minlength=rows)
    by_chance = nearest.size / rows
    hubs = np.flatnonzero(counts >= max(0.05 * len(nearest), 20 * by_chance, 20))

    return hubs, float(counts.max()) / len(nearest)


def _dots(unit: Matrix, first: Positions, second: Positions) -> _Floats:
    dots = np.zeros(len(first))
    for start in range(0, len(first), _BLOCK):
        part = slice(start, start + _BLOCK)
        dots[part] = np.einsum("ij,ij->i", unit[first[part]], unit[second[part]])

    return dots


def _some(unit: Matrix, rng: np.random.Generator) -> Matrix:
    """Return at most 20,000 rows, drawn at random, so that sums of their products are cheap."""
    if len(unit) <= _SAMPLE:
        return unit
    return unit[rng.choice(len(unit), _SAMPLE, replace=False)]


def _near_duplicates(
    unit: Matrix, kept: Positions, rng: np.random.Generator
) -> tuple[Positions, Positions]:
    """Return the kept rows that have another kept row at a cosine of at least `NEAR`, and their groups.

    Most pairs are excluded by an upper bound of the cosine (Cauchy-Schwarz): the product of the projections
    on 32 axes, plus the product of the lengths of the remainders. Only pairs whose bound reaches `NEAR` are
    compared in all dimensions. Rows of one group are not compared again: another pair would change nothing.
    For example, after the pairs (0, 1) and (0, 2), the pair (1, 2) is left out.
    """
    distinct = unit[kept]
    axes = _axes(distinct, rng, min(_AXES, distinct.shape[1]))
    # For unit vectors a and b, with p and q their projections and r and s their remainders:
    #     cosine = p·q + r·s <= p·q + |r| |s|
    # The lengths of the remainders are appended to the projections as one more number, so that a single
    # product of short vectors gives the bound of each pair.
    projected = distinct @ axes
    rest = np.sqrt(np.clip(1 - (projected**2).sum(axis=1, keepdims=True), 0, None))
    short = np.hstack([projected, rest]).astype(np.float32)

    rows = len(short)
    groups = _Groups(rows)
    block = max(1, _CELLS // max(1, rows))
    for start in range(0, rows, block):
        # A block is compared with itself and with the rows after it: earlier blocks did the other pairs.
        end = start + block
        may_be_near = short[start:end] @ short[start:].T >= _LEAST_BOUND
        np.fill_diagonal(may_be_near, val=False)

        if np.count_nonzero(may_be_near) > _MANY * may_be_near.size:
            # `_join_near` leaves out pairs of one group as well; here it saves the product of most vectors
            may_be_near &= groups.of[start:end, None] != groups.of[start:]
        if np.count_nonzero(may_be_near) > _MANY * may_be_near.size:
            # one product of whole vectors is faster than many single pairs
            may_be_near &= distinct[start:end] @ distinct[start:].T >= _LEAST_BOUND

        rows_with_pairs = np.flatnonzero(may_be_near.any(axis=1))
        first, second = np.nonzero(may_be_near[rows_with_pairs])
        _join_near(distinct, rows_with_pairs[first] + start, second + start, groups)

    groups.flush()
    has_near = np.bincount(groups.of, minlength=rows)[groups.of] > 1
    return kept[has_near], groups.of[has_near]


def _join_near(
    unit: Matrix, first: Positions, second: Positions, groups: _Groups
) -> None:
    """Join the groups of the pairs of rows whose cosine is at least `NEAR`."""
    for start in range(0, len(first), _PAIRS):
        one, two = first[start : start + _PAIRS], second[start : start + _PAIRS]

        is_open = groups.of[one] != groups.of[two]
        one, two = one[is_open], two[is_open]

        is_near = _dots(unit, one, two) >= NEAR
        groups.join(one[is_near], two[is_near])


class _Groups:
    """Groups of rows that pairs connect. The number of a group is the smallest position of its rows.

    Pairs wait until there are enough of them, because each join reads all rows. For example, the pairs (0, 3)
    and (2, 3) give the groups 0, 1, 0, 0.
    """

    def __init__(self, rows: int) -> None:
        self.of: Positions = np.arange(rows)
        self._waiting: list[tuple[Positions, Positions]] = []

    def join(self, first: Positions, second: Positions) -> None:
        """Connect each row of the first positions with the same row of the second ones."""
        self._waiting.append((first, second))
        if sum(len(pairs) for pairs, _ in self._waiting) >= _WAITING:
            self.flush()

    def flush(self) -> None:
        """Join the groups of the pairs that wait.

        The larger number of each pair of groups points to the smaller one, and then all rows follow these
        pointers to the end (hooking and pointer jumping, Shiloach and Vishkin 1982).
        """
        if not self._waiting:
            return

        first, second = (
            np.concatenate(side) for side in zip(*self._waiting, strict=True)
        )
        self._waiting = []
        while (is_apart := self.of[first] != self.of[second]).any():
            first, second = first[is_apart], second[is_apart]
            one, two = self.of[first], self.of[second]
            np.minimum.at(self.of, np.maximum(one, two), np.minimum(one, two))
            self._follow()

    def _follow(self) -> None:
        """Replace each number by the number that it points to, until nothing changes."""
        while ((following := self.of[self.of]) != self.of).any():
            self.of = following


def _axes(unit: Matrix, rng: np.random.Generator, count: int) -> Matrix:
    """Return the directions in which the rows are longest: eigenvectors of their second moments."""
    rows = _some(unit, rng)
    _, vectors = np.linalg.eigh((rows.T @ rows).astype(np.float64))
    return np.ascontiguousarray(vectors[:, ::-1][:, :count], dtype=np.float32)


def _outliers(unit: Matrix, distinct: Positions, rng: np.random.Generator) -> Positions:
    """Return rows that are far even from the nearest other row, compared with rows around them and others.

    The isolation of a row is the logarithm of a ratio: the distance to the nearest row, divided by the mean
    distance of the 10 rows around it to their 20th nearest rows. The only chunk of a document is therefore
    not isolated. A row is an outlier if it is isolated and the direction is unusual, or if it is far more
    isolated than expected.
    """
    rows = len(distinct)
    if rows < _OUTLIER_ROWS:
        return np.zeros(0, dtype=np.intp)

    unit = unit[distinct]
    references = np.arange(rows)
    if rows > _REFERENCES:
        references = np.sort(rng.choice(rows, _REFERENCES, replace=False))
    similarities, nearby = _nearest(unit, np.arange(rows), references, _OUTLIER_RANK)
    # Similarities are ascending: the first of 20 is that of the 20th
    # nearest row, the last that of the nearest.
    wide = np.log(_distances(similarities[references, 0]))
    around = np.log(np.exp(wide)[nearby[:, -NEIGHBOURS:]].mean(axis=1))
    alone = np.log(_distances(similarities[:, -1]))
    isolation = alone - around
    usual, expected = _isolation(isolation)
    least = max(usual + expected, _OUTLIER_RATIO, _OUTLIER_SPREAD / unit.shape[1])
    far = np.flatnonzero((isolation > least) & (alone > np.quantile(wide, 0.75)))
    # A row on a separate subject is isolated as well, but in directions in which other rows vary.
    strange = strangeness(unit, references, far) > _OUTLIER_STRANGENESS

    far = far[strange | (isolation[far] > usual + _OUTLIER_MULTIPLE * expected)]
    if len(far) and len(references) < rows:
        # a small group may have no reference nearby
        far = far[np.argsort(-isolation[far], kind="stable")[:_QUERIES]]
        nearest = np.log(_distances(_nearest(unit, far, np.arange(rows), 1)[0][:, 0]))
        far = far[nearest - around[far] > least]

    return np.sort(distinct[far])


def _distances(similarities: Matrix) -> _Floats:
    return np.maximum(1 - similarities.astype(np.float64), 1e-6)


def strangeness(unit: Matrix, references: Positions, rows: Positions) -> _Floats:
    """Return how unusual the directions of rows are, in standard deviations of the references.

    This is the logarithm of the squared Mahalanobis distance. Vectors of one model differ in few directions,
    and noise differs in all of them.
    """
    known = unit[references].astype(np.float64)
    centre = known.mean(axis=0)
    centred = known - centre
    variances, axes = np.linalg.eigh(centred.T @ centred / len(known))
    scaled = axes / np.sqrt(np.maximum(variances, variances.mean() * _LEAST_VARIANCE))

    def distances(vectors: _Floats) -> _Floats:
        squares = ((vectors @ scaled) ** 2).sum(axis=1)
        return np.asarray(np.log(np.maximum(squares, 1e-12)), dtype=np.float64)

    middle, high = np.quantile(distances(centred), [0.5, 0.95])
    deviation = max((high - middle) / NormalDist().inv_cdf(0.95), 1e-9)

    return np.asarray((distances(unit[rows] - centre) - middle) / deviation)


def _isolation(values: _Floats) -> tuple[float, float]:
    """Return the 95th percentile, and the excess over it that no row of a healthy index is expected to have.

    The excess comes from the tail of the values, continued as a normal distribution.

    The slope of the tail is measured from the upper quartile and from the 90th percentile to the 95th, and
    the smaller slope is used: near duplicates lower the quartile without making the index more spread out.
    """
    quantile = NormalDist().inv_cdf
    high, furthest = (
        np.quantile(values, 0.95),
        quantile(1 - _OUTLIER_CHANCE / len(values)),
    )
    # A slope is the growth of the values per standard deviation of a normal distribution (a Q-Q plot).
    slopes = [
        (high - np.quantile(values, lower)) / (quantile(0.95) - quantile(lower))
        for lower in (0.75, 0.9)
    ]

    return float(high), float(min(slopes) * (furthest - quantile(0.95)))


def _nearest(
    unit: Matrix, rows: Positions, references: Positions, count: int
) -> tuple[Matrix, Positions]:
    """Return the similarities of rows and their nearest references, ascending, and their positions."""
    columns = unit[references].T
    place = np.full(len(unit), -1)
    place[references] = np.arange(len(references))
    similarities = np.empty((len(rows), count), dtype=np.float32)
    nearest = np.empty((len(rows), count), dtype=np.intp)

    block = max(1, _CELLS // len(references))
    for start in range(0, len(rows), block):
        part = slice(start, start + block)
        scores = unit[rows[part]] @ columns
        own = place[rows[part]]
        # A row is not its own neighbour.
        scores[np.flatnonzero(own >= 0), own[own >= 0]] = -np.inf
        top = np.argpartition(scores, len(references) - count, axis=1)[
            :, len(references) - count :
        ]
        values = np.take_along_axis(scores, top, axis=1)
        order = np.argsort(values, axis=1, kind="stable")
        similarities[part] = np.take_along_axis(values, order, axis=1)
        nearest[part] = np.take_along_axis(top, order, axis=1)

    return similarities, nearest


def _effective_rank(unit: Matrix, rng: np.random.Generator) -> float:
    """Return how many directions the rows use: the exponential of the entropy of the spectrum."""
    rows = _some(unit, rng)
    centred = rows - rows.mean(axis=0)
    # For example, if all variance is in one direction, the shares are (1, 0, 0, …) and the effective rank is
    # exp(0) = 1. If four directions have a quarter each, it is exp(log 4) = 4.
    values = np.clip(
        np.linalg.eigvalsh((centred.T @ centred).astype(np.float64)), 0, None
    )
    if values.sum() <= 1e-9 * len(rows):
        return 1.0

    share = values[values > 0] / values.sum()
    return float(np.exp(-(share * np.log(share)).sum()))

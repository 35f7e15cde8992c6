"""Near duplicates, outliers, hubs and the spread of vectors, by exact comparison in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from toolkit.audits.vector_rows import Matrix

_Positions = npt.NDArray[np.intp]
_Floats = npt.NDArray[np.float64]

NEAR: Final = 0.999
"""The cosine from which on two different vectors count as near duplicates."""

NEIGHBOURS: Final = 10
_CELLS: Final = 8_000_000  # numbers of a block of similarities
_AXES: Final = 32
_MOST_PAIRS: Final = 1_000_000
_QUERIES: Final = 2_000
_REFERENCES: Final = 4_000
_OUTLIER_ROWS: Final = 300  # below, rare topics have a row or two
_OUTLIER_RANK: Final = 20  # more than one document has chunks
_OUTLIER_CHANCE: Final = 0.01  # of any outlier in an index without one
_OUTLIER_RATIO: Final = 0.3  # the least isolation, a logarithm, and times dimensions where those are few:
_OUTLIER_SPREAD: Final = 16  # distances vary more there
_SAMPLE: Final = 20_000  # rows that the spread is computed from


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """How the vectors of a namespace lie, by cosine."""

    pairs: _Floats  # similarities of random pairs
    nearest: _Floats  # of rows to their nearest neighbour
    near_duplicates: _Positions  # rows with a near duplicate
    outliers: _Positions
    hubs: _Positions  # rows that are among the neighbours of far too many others
    hub_share: float  # of the queries that have the largest hub among their neighbours
    effective_rank: float


def neighbourhoods(matrix: Matrix, distinct: _Positions, *, seed: int = 0) -> Neighbourhoods:
    """Compare the rows of a matrix, each finite and not zero, with each other."""
    rng = np.random.default_rng([seed, 2])
    scaled = matrix / np.abs(matrix).max(axis=1, keepdims=True)  # lengths of huge numbers would overflow
    unit = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    rows = len(unit)
    first, second = rng.integers(0, rows, (2, min(100_000, rows * rows)))
    different = first != second
    pairs = _dots(unit, first[different], second[different])
    if rows < 3:  # noqa: PLR2004 - no neighbourhood to speak of
        none = np.zeros(0, dtype=np.intp)
        return Neighbourhoods(pairs, pairs, none, none, none, 0.0, _effective_rank(unit, rng))
    queries = np.sort(rng.choice(rows, min(_QUERIES, rows), replace=False))
    similarities, nearest = _nearest(unit, queries, np.arange(rows), min(NEIGHBOURS, rows - 1))
    counts = np.bincount(nearest.ravel(), minlength=rows)
    hubs = _hubs(counts, len(queries), rows)
    share = float(counts.max()) / len(queries)
    return Neighbourhoods(
        pairs=pairs,
        nearest=similarities[:, -1].astype(np.float64),
        near_duplicates=_near_duplicates(unit, distinct, rng),
        outliers=_outliers(unit, distinct, rng),
        hubs=hubs,
        hub_share=share,
        effective_rank=_effective_rank(unit, rng),
    )


def _dots(unit: Matrix, first: _Positions, second: _Positions) -> _Floats:
    parts = [
        np.einsum("ij,ij->i", unit[first[n : n + 10_000]], unit[second[n : n + 10_000]])
        for n in range(0, len(first), 10_000)
    ]
    return np.concatenate(parts).astype(np.float64) if parts else np.zeros(0)


def _hubs(counts: npt.NDArray[np.intp], queries: int, rows: int) -> _Positions:
    """Rows in at least 5 % of the lists of neighbours, and 20 times as many as chance would have."""
    expected = queries * min(NEIGHBOURS, rows - 1) / rows
    return np.flatnonzero(counts >= max(0.05 * queries, 20 * expected, 20))


def _near_duplicates(unit: Matrix, kept: _Positions, rng: np.random.Generator) -> _Positions:
    """Rows of those kept with another one at a cosine of at least `NEAR`.

    The cosine is at most that of the projections on some axes plus the product of what they leave: rows
    that cannot be that close are excluded by 33 numbers each.
    """
    distinct = unit[kept]
    axes = _axes(distinct, rng, min(_AXES, distinct.shape[1]))
    projected = distinct @ axes
    rest = np.sqrt(np.clip(1 - (projected**2).sum(axis=1, keepdims=True), 0, None))
    short = np.hstack([projected, rest]).astype(np.float32)
    has_near, pairs = np.zeros(len(distinct), dtype=bool), 0
    for start in range(0, len(short), block := max(1, _CELLS // max(1, len(short)))):
        close = short[start : start + block] @ short[start:].T >= NEAR - 1e-4
        np.fill_diagonal(close, val=False)
        some = np.flatnonzero(close.any(axis=1))
        first, second = np.nonzero(close[some])
        first, second = some[first] + start, second + start
        near = _dots(distinct, first, second) >= NEAR
        has_near[first[near]] = has_near[second[near]] = True
        pairs += len(first)
        if pairs > _MOST_PAIRS:
            break
    return kept[has_near]


def _axes(unit: Matrix, rng: np.random.Generator, count: int) -> Matrix:
    """The directions in which the rows are longest."""
    rows = unit if len(unit) <= _SAMPLE else unit[rng.choice(len(unit), _SAMPLE, replace=False)]
    _, vectors = np.linalg.eigh((rows.T @ rows).astype(np.float64))
    return np.ascontiguousarray(vectors[:, ::-1][:, :count], dtype=np.float32)


def _outliers(unit: Matrix, distinct: _Positions, rng: np.random.Generator) -> _Positions:
    """Rows without company: far even from the nearest other, for where they are and for the index.

    The isolation of a row is the logarithm of its distance to its nearest row, over the mean distance of the
    10 rows around it to the 20th nearest of theirs, so that the only chunk of a document is not isolated.
    """
    rows = len(distinct)
    if rows < _OUTLIER_ROWS:
        return np.zeros(0, dtype=np.intp)
    unit = unit[distinct]
    references = np.arange(rows)
    if rows > _REFERENCES:
        references = np.sort(rng.choice(rows, _REFERENCES, replace=False))
    similarities, nearby = _nearest(unit, np.arange(rows), references, _OUTLIER_RANK)
    wide = np.log(_distances(similarities[references, 0]))
    around = np.log(np.exp(wide)[nearby[:, -NEIGHBOURS:]].mean(axis=1))
    alone = np.log(_distances(similarities[:, -1]))
    least = max(_isolation(alone - around), _OUTLIER_RATIO, _OUTLIER_SPREAD / unit.shape[1])
    far = np.flatnonzero((alone - around > least) & (alone > np.quantile(wide, 0.75)))
    if len(far) and len(references) < rows:  # a small group may have no reference near it
        far = far[np.argsort(-(alone - around)[far], kind="stable")[:_QUERIES]]
        nearest = np.log(_distances(_nearest(unit, far, np.arange(rows), 1)[0][:, 0]))
        far = far[nearest - around[far] > least]
    return np.sort(distinct[far])


def _distances(similarities: Matrix) -> _Floats:
    return np.maximum(1 - similarities.astype(np.float64), 1e-6)


def _isolation(values: _Floats) -> float:
    """What no row of a healthy index exceeds: its tail, continued as a normal one.

    The tail is that above the upper quartile, or above 90 % where that is lighter: near duplicates make the
    quartile low, and the index no more spread out.
    """
    quantile = NormalDist().inv_cdf
    high, furthest = np.quantile(values, 0.95), quantile(1 - _OUTLIER_CHANCE / len(values))
    slopes = [
        (high - np.quantile(values, lower)) / (quantile(0.95) - quantile(lower)) for lower in (0.75, 0.9)
    ]
    return float(high + min(slopes) * (furthest - quantile(0.95)))


def _nearest(
    unit: Matrix, rows: _Positions, references: _Positions, count: int
) -> tuple[Matrix, npt.NDArray[np.intp]]:
    """The similarities of rows to their nearest references, in ascending order, and which these are."""
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
        scores[np.flatnonzero(own >= 0), own[own >= 0]] = -np.inf
        top = np.argpartition(scores, len(references) - count, axis=1)[:, len(references) - count :]
        values = np.take_along_axis(scores, top, axis=1)
        order = np.argsort(values, axis=1, kind="stable")
        similarities[part] = np.take_along_axis(values, order, axis=1)
        nearest[part] = np.take_along_axis(top, order, axis=1)
    return similarities, nearest


def _effective_rank(unit: Matrix, rng: np.random.Generator) -> float:
    """The exponential of the entropy of the spectrum: how many directions the rows really use."""
    rows = unit if len(unit) <= _SAMPLE else unit[rng.choice(len(unit), _SAMPLE, replace=False)]
    centred = rows - rows.mean(axis=0)
    values = np.clip(np.linalg.eigvalsh((centred.T @ centred).astype(np.float64)), 0, None)
    if values.sum() <= 1e-9 * len(rows):
        return 1.0
    share = values[values > 0] / values.sum()
    return float(np.exp(-(share * np.log(share)).sum()))

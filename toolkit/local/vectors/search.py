"""Exact nearest neighbours: one matrix product in single precision, then the few that can matter in double.

The product gives each row's closeness up to a rounding error with a known bound. Every row that could still
be among the best, given that bound, is computed again in double precision, so the result is that of a plain
double-precision search, at the price of the product. Where a filter leaves few rows, they are computed in
double precision at once.

Scores as publicly documented: COSINE (1 + cos) / 2, EUCLIDEAN 1 / (1 + squared distance), DOT_PRODUCT
(1 + dot) / 2. The cosine of a vector of length 0 is taken as 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolkit.local.vectors.float32 import Floats, rounded
from toolkit.local.vectors.rows import NamespaceRows
from toolkit.local.vectors.specs import Similarity

Positions = NDArray[np.intp]
Search = Callable[[NamespaceRows, Floats, int, Similarity, Positions | None], list[tuple[int, float]]]
"""The signature of `nearest`."""

_UNIT: Final = 2.0**-24  # relative rounding error of single precision
_TINY: Final = 2.0**-125  # what a product can lose to underflow, with some to spare
_EQUAL: Final = 2.0**-22  # closeness within this, relative to 1 + |closeness|, may be the same float32 score
_CHUNK: Final = 4096
_BLOCK: Final = 128
_FEW: Final = 6  # a row in double precision costs about this many times its part of the product


def nearest(
    rows: NamespaceRows, query: Floats, top_k: int, similarity: Similarity, passing: Positions | None = None
) -> list[tuple[int, float]]:
    """Positions and scores of the `top_k` best rows, best first; equal float32 scores in order of insertion.

    The query is float64 and finite; `passing` are the positions of the rows that may be returned (None: all).
    """
    total = len(rows)
    if passing is None and total <= top_k:
        chosen = np.arange(total)
    elif passing is None:
        chosen = _candidates(rows, query, top_k, similarity, slice(None))
    elif len(passing) > max(top_k, total // _FEW):
        chosen = _candidates(rows, query, top_k, similarity, passing)
    else:
        chosen = passing
    closeness = np.concatenate(
        [
            _closeness(rows, query, similarity, chosen[start : start + _CHUNK])
            for start in range(0, max(1, len(chosen)), _CHUNK)
        ]
    )
    scores = rounded(1 / (1 - closeness) if similarity == "EUCLIDEAN" else (1 + closeness) / 2)
    order = np.lexsort((rows.sequence[chosen], -scores))[:top_k]
    return [*zip(chosen[order].tolist(), scores[order].tolist(), strict=True)]


def _candidates(
    rows: NamespaceRows, query: Floats, top_k: int, similarity: Similarity, positions: Positions | slice
) -> Positions:
    """The rows that can be among the best, given the bound on the product's rounding error."""
    dimension = len(query)
    length = float(np.linalg.norm(query))
    direction = query / length if length else query
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        product = (rows.matrix @ direction.astype(np.float32))[positions].astype(np.float64)
        norms = rows.norms[positions]
        # the sum's error (dimension), and that of casting the direction, with some to spare
        error = (1.02 * (dimension + 4) * _UNIT) * norms + dimension * _TINY
        if similarity == "COSINE":
            inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
            value, error = product * inverse, error * inverse
        elif similarity == "DOT_PRODUCT":
            value, error = product * length, error * length
        else:
            squares = norms**2 + length**2
            value, error = 2 * length * product - squares, 2 * length * error + 1e-14 * squares
        lower, upper = value - error, value + error
        # where the product overflowed nothing is known
        unknown = ~np.isfinite(lower) | ~np.isfinite(upper)
        lower[unknown], upper[unknown] = -np.inf, np.inf
    # twice, as partitioning 100,000 numbers takes longer than all of the above
    possible = np.flatnonzero(upper >= _reached(_block_maxima(lower, top_k), top_k))
    possible = possible[upper[possible] >= _reached(lower[possible], top_k)]
    return possible if isinstance(positions, slice) else positions[possible]


def _block_maxima(values: Floats, top_k: int) -> Floats:
    """The largest of each block of values; all of them if that would be too few."""
    blocks = len(values) // _BLOCK
    if blocks <= top_k:
        return values
    maxima: Floats = values[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
    return maxima


def _reached(values: Floats, top_k: int) -> float:
    """The number that the `top_k` largest reach, less what equal float32 scores can hide."""
    reached = float(np.partition(values, len(values) - top_k)[len(values) - top_k])
    return reached - _EQUAL * (1 + abs(reached))


def _closeness(rows: NamespaceRows, query: Floats, similarity: Similarity, positions: Positions) -> Floats:
    """Cosine, dot product or negative squared distance, in double precision."""
    vectors = rows.matrix[positions].astype(np.float64)
    if similarity == "EUCLIDEAN":
        difference = vectors - query
        distances: Floats = np.einsum("ij,ij->i", difference, difference)
        return -distances
    # row by row the same sum, so that equal vectors are equally close at every position
    products: Floats = np.einsum("ij,j->i", vectors, query)
    if similarity == "DOT_PRODUCT":
        return products
    lengths = rows.norms[positions] * np.linalg.norm(query)
    cosines: Floats = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return cosines.clip(-1.0, 1.0)

"""Exact nearest neighbours: one matrix product in single precision, then the few that can matter in double.

The product tells each row's closeness up to a rounding error with a known bound. Every row that could
still be among the best, given that bound, is computed again in double precision, so the answer is that of
a plain double-precision search, at the price of the product. Where only a few rows may be in the answer, they
are computed in double precision at once, without the product.

Scores as publicly documented: COSINE (1 + cos) / 2, EUCLIDEAN 1 / (1 + squared distance), DOT_PRODUCT
(1 + dot) / 2. A vector of length 0 has no direction; its cosine is taken as 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolkit.local.vectors.float32 import Floats, rounded
from toolkit.local.vectors.rows import NamespaceRows
from toolkit.local.vectors.specs import Similarity

Places = NDArray[np.intp]
Search = Callable[[NamespaceRows, Floats, int, Similarity, Places | None], list[tuple[int, float]]]
"""What `nearest` is: rows, query, how many, similarity, and which rows may be in the answer."""

_UNIT: Final = 2.0**-24  # relative rounding error of single precision
_TINY: Final = 2.0**-125  # what a product can lose to underflow, with some to spare
_EQUAL: Final = 2.0**-22  # closeness within this, relative to 1 + |closeness|, may be the same float32 score
_CHUNK: Final = 4096
_BLOCK: Final = 128
_FEW: Final = 6  # a row in double precision costs about this many times its part of the product


def nearest(
    rows: NamespaceRows, query: Floats, top_k: int, similarity: Similarity, passing: Places | None = None
) -> list[tuple[int, float]]:
    """The best rows and their scores, best first; equal scores, as float32, in the order of insertion.

    Parameters
    ----------
    rows : NamespaceRows
    query : numpy.ndarray
        Shape (dimension,), float64, finite.
    top_k : int
        At most this many, at least 1.
    similarity : {"COSINE", "EUCLIDEAN", "DOT_PRODUCT"}
    passing : numpy.ndarray, optional
        Slots of the rows that may be in the answer. Default: all.

    Returns
    -------
    list of (slot, score)
    """
    chosen = rows.occupied() if passing is None else passing
    total = len(rows.sequence)
    if chosen is None:
        chosen = _possible(rows, query, top_k, similarity, slice(None)) if total > top_k else np.arange(total)
    elif len(chosen) > max(top_k, total // _FEW):
        chosen = _possible(rows, query, top_k, similarity, chosen)
    slots: Places = chosen
    closeness = np.concatenate(
        [
            _closeness(rows, query, similarity, slots[start : start + _CHUNK])
            for start in range(0, max(1, len(slots)), _CHUNK)
        ]
    )
    scores = rounded(_scores(closeness, similarity))
    order = np.lexsort((rows.sequence[slots], -scores))[:top_k]
    return [(int(slot), float(score)) for slot, score in zip(slots[order], scores[order], strict=True)]


def _possible(
    rows: NamespaceRows, query: Floats, top_k: int, similarity: Similarity, slots: Places | slice
) -> Places:
    """The slots whose rows can be among the best, given the bound on the product's rounding error."""
    dimension = len(query)
    length = float(np.linalg.norm(query))
    direction = query / length if length else query
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        product = (rows.matrix @ direction.astype(np.float32))[slots].astype(np.float64)
        norms = rows.norms[slots]
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
    # twice, as putting 100,000 numbers in order by halves takes longer than all of the above
    possible = np.flatnonzero(upper >= _reached(_block_maxima(lower, top_k), top_k))
    possible = possible[upper[possible] >= _reached(lower[possible], top_k)]
    return possible if isinstance(slots, slice) else slots[possible]


def _block_maxima(values: Floats, top_k: int) -> Floats:
    """Some of the values, the largest of each block; all of them where blocks would be too few."""
    blocks = len(values) // _BLOCK
    if blocks <= top_k:
        return values
    maxima: Floats = values[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
    return maxima


def _reached(values: Floats, top_k: int) -> float:
    """The number that the `top_k` largest reach, less what float32 scores that are equal can hide."""
    reached = float(np.partition(values, len(values) - top_k)[len(values) - top_k])
    return reached - _EQUAL * (1 + abs(reached))


def _closeness(rows: NamespaceRows, query: Floats, similarity: Similarity, slots: Places) -> Floats:
    """Cosine, dot product or negative squared distance, in double precision."""
    vectors = rows.matrix[slots].astype(np.float64)
    if similarity == "EUCLIDEAN":
        apart = vectors - query
        distances: Floats = np.einsum("ij,ij->i", apart, apart)
        return -distances
    # row by row the same sum, so that equal vectors are equally close wherever they lie
    products: Floats = np.einsum("ij,j->i", vectors, query)
    if similarity == "DOT_PRODUCT":
        return products
    lengths = rows.norms[slots] * np.linalg.norm(query)
    cosines: Floats = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return cosines.clip(-1.0, 1.0)


def _scores(closeness: Floats, similarity: Similarity) -> Floats:
    return 1 / (1 - closeness) if similarity == "EUCLIDEAN" else (1 + closeness) / 2

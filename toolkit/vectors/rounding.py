"""Tell vectors that differ by rounding from vectors of another text or model.

The same model gives slightly different numbers with another batch size, another processor or another storage
format. Compared bit by bit, all of these vectors have changed. Rounding moves a vector by a cosine distance
of about 1e-8 (float16) to 1e-5 (8-bit integers); another version of a model by 1e-3 or more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]
_Floats = npt.NDArray[np.float64]

SKETCH: Final = 16
"""Numbers per sketch."""


@dataclass(frozen=True)
class RoundingTuning:
    """Limits between rounding and change."""

    # rows whose numbers show the precision
    rows: int = 200
    # fewer different numbers show no precision, for example zeros and ones
    distinct: int = 50
    # the least tolerance: models that compute with half precision differ by up to 1e-7 between batches
    least: float = 1e-6
    # the largest tolerance, well below the distance between versions of a model
    most: float = 5e-3
    # a rounding error can be this many times as large as expected; the sketch is off by up to half
    margin: float = 6.0


_TUNING: Final = RoundingTuning()
_BFLOAT16: Final = 2.0**-8  # the largest relative rounding error
_FLOAT16: Final = 2.0**-11
_FLOAT32: Final = 2.0**-24


@dataclass(frozen=True)
class Precision:
    """The precision of stored numbers, and the cosine distance that rounding to it is expected to cause."""

    name: str
    distance: float

    @property
    def tolerance(self) -> float:
        """Return the largest cosine distance that counts as rounding."""
        wanted = _TUNING.margin * self.distance
        return min(max(wanted, _TUNING.least), _TUNING.most)


@dataclass(frozen=True)
class Rounding:
    """Vectors of two states that differ by rounding alone.

    Attributes
    ----------
    rows : int
        Number of vectors that differ by rounding alone.
    largest : float
        The largest cosine distance among them, estimated from a projection; 0 without any.
    tolerance : float
        The largest cosine distance that counts as rounding, in the namespace with the coarsest numbers.
    precision : str
        The coarsest precision of the numbers, for example ``float16`` or ``4 decimals``.

    Examples
    --------
    >>> from toolkit import compare_vectors
    >>> before = pd.DataFrame({"id": ["a"], "vector": [[1.0, 0.0]], "data": ["x"]})
    >>> compare_vectors(before, before).rounding.rows
    0
    """

    rows: int
    largest: float
    tolerance: float
    precision: str


def sketches(matrix: Matrix) -> Matrix:
    """Return 16 numbers per row that keep the distances of directions; NaN for a vector of zeros.

    This is a random projection (Johnson and Lindenstrauss, 1984): for a matrix with independent normal
    entries of variance 1/16, the expected squared distance of two sketches is that of the unit vectors.
    """
    size = matrix.shape[1]
    axes = np.random.default_rng([size, 6]).normal(0, SKETCH**-0.5, (size, SKETCH))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        projected = matrix @ axes.astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))
        return np.asarray(projected / lengths[:, None], dtype=np.float32)


def sketch_distances(first: Matrix, second: Matrix) -> _Floats:
    """Return the estimated cosine distance of each row of one matrix and the same row of another."""
    # |u - v|² = 2 (1 - cos) for unit vectors
    differences = first.astype(np.float64) - second
    return np.asarray((differences**2).sum(axis=1) / 2, dtype=np.float64)


def precision_of(matrix: Matrix) -> Precision:
    """Return the coarsest precision that all numbers of a matrix have.

    >>> precision_of(np.linspace(-1, 1, 201, dtype=np.float32).reshape(3, 67)).name
    '2 decimals'
    """
    step = max(1, len(matrix) // _TUNING.rows)
    rows = np.ascontiguousarray(matrix[::step][: _TUNING.rows], dtype=np.float32)
    rows = rows[np.isfinite(rows).all(axis=1) & (rows != 0).any(axis=1)]
    exact = Precision("float32", _FLOAT32**2 / 6)
    if not len(rows) or len(np.unique(np.abs(rows))) < _TUNING.distinct:
        return exact

    found = max(_precisions(rows), key=lambda one: one.distance, default=exact)
    return max(found, exact, key=lambda one: one.distance)


def _precisions(rows: Matrix) -> Iterator[Precision]:
    """Yield each precision that all numbers have."""
    # A relative error that is uniform up to u has the mean square u²/3, and moves a vector by half of that.
    if not (rows.view(np.uint32) & np.uint32(0xFFFF)).any():
        yield Precision("bfloat16", _BFLOAT16**2 / 6)
    with np.errstate(over="ignore"):
        if (rows.astype(np.float16).astype(np.float32) == rows).all():
            yield Precision("float16", _FLOAT16**2 / 6)

    largest = np.abs(rows).max(axis=1, keepdims=True).astype(np.float64)
    if _are_whole(rows / (largest / 127)):
        yield Precision("8-bit integers", _grid_distance(rows, largest / 127))
    for decimals in range(7):
        # float32 has about seven digits, so more decimals of numbers near 1 cannot be seen
        if _are_whole(rows.astype(np.float64) * 10.0**decimals):
            name = f"{decimals} decimals"
            yield Precision(name, _grid_distance(rows, np.array(10.0**-decimals)))
            return


def _are_whole(values: npt.NDArray[np.floating]) -> bool:
    """Return whether all numbers are whole, up to the precision of float32."""
    return bool(
        (np.abs(values - np.round(values)) <= 1e-3 + 2e-7 * np.abs(values)).all()
    )


def _grid_distance(rows: Matrix, step: _Floats) -> float:
    """Return the cosine distance that rounding to multiples of a step causes."""
    # a uniform error of one step has the variance step² / 12
    squares = (rows.astype(np.float64) ** 2).mean(axis=1, keepdims=True)
    return float(np.median(step**2 / 12 / squares) / 2)

"""The lengths of vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from narwhals.typing import IntoFrame
from numpy.typing import NDArray

from toolkit.analysis.columns import collect, select
from toolkit.arguments import whole
from toolkit.errors import InputError
from toolkit.tables.vectors import is_numbers

_MOST_BINS = 1_000
_ROWS = 8_192  # at a time, so that the squares of a large index need no memory to speak of


@dataclass(frozen=True, eq=False, kw_only=True)
class NormBins:
    """Counts of vectors by their Euclidean length.

    Attributes
    ----------
    edges : numpy.ndarray
        float64, shape (bins + 1,), ascending.
    counts : numpy.ndarray
        int64, shape (bins,).
    zero : int
        Vectors of length 0, which have no direction: no cosine can be computed with them. They are counted.
    left_out : int
        Rows without a usable dense vector.
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    zero: int
    left_out: int

    @property
    def total(self) -> int:
        """Vectors counted."""
        return int(self.counts.sum())


def norm_bins(vectors: IntoFrame, *, bins: int = 40) -> NormBins:
    """Count vectors by their Euclidean length (the root of the sum of squares).

    Parameters
    ----------
    vectors : frame
        With the column `vector`, as `load_vectors` gives.
    bins : int
        How many bins of equal width between the shortest and the longest, 1 to 1,000.

    Returns
    -------
    NormBins
        Lengths that differ by less than a millionth share one bin: they are equal but for rounding.

    Raises
    ------
    InputError
        When the column is missing, or `bins` is out of bounds.

    Examples
    --------
    >>> from toolkit.tables.frames import frame_from_rows
    >>> from toolkit.tables import schemas
    >>> rows = [{"namespace": "", "id": str(v), "vector": v} for v in ([3, 4], [0, 0])]
    >>> found = norm_bins(frame_from_rows(rows, schemas.vectors(2)), bins=1)
    >>> found.edges.tolist(), found.counts.tolist(), found.zero
    ([0.0, 5.0], [2], 1)
    """
    doing = "measuring the lengths of vectors"
    bins = whole("bins", bins, most=_MOST_BINS)
    column = collect(select(vectors, ["vector"], doing=doing, name="vectors"))["vector"].combine_chunks()
    if not (pa.types.is_null(column.type) or is_numbers(column.type)):
        raise InputError(
            doing,
            got=f"a column vector of the type {str(column.type)[:80]}",
            expected="lists of numbers",
            next_step="Use a frame made by load_vectors or query.",
        )
    there = column.drop_null()
    lengths = np.sqrt(
        np.concatenate(
            [np.zeros(0), *(_squares(there.slice(start, _ROWS)) for start in range(0, len(there), _ROWS))]
        )
    )
    lengths = lengths[np.isfinite(lengths)]
    if not len(lengths):
        edges, counts = np.zeros(0), np.zeros(0, dtype=np.int64)
    else:
        low, high = float(lengths.min()), float(lengths.max())
        if high - low <= 1e-6 * max(high, 1e-30):
            low, high, bins = low - 0.5, high + 0.5, 1
        counts, edges = np.histogram(lengths, bins=bins, range=(low, high))
    return NormBins(
        edges=edges,
        counts=counts.astype(np.int64),
        zero=int((lengths == 0).sum()),
        left_out=len(column) - len(lengths),
    )


def _squares(some: pa.Array) -> NDArray[np.float64]:
    """The sum of squares of each vector."""
    values = some.flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)
    rows = pc.list_parent_indices(some).to_numpy()
    return np.bincount(rows, weights=values * values, minlength=len(some)).astype(np.float64)

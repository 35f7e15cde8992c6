"""The lengths of vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.analysis.selection import collect, select
from toolkit.analysis.sources import AnyFrame
from toolkit.arguments import whole
from toolkit.errors import InputError
from toolkit.tables.vectors import is_numbers

_MOST_BINS = 1_000
_BATCH = 8_192  # rows a batch: squaring a large index as a whole would double the memory


@dataclass(frozen=True, eq=False, kw_only=True)
class NormBins:
    """Counts of vectors by their Euclidean length."""

    edges: NDArray[np.float64]  # shape (bins + 1,)
    counts: NDArray[np.int64]  # shape (bins,)
    zero: int  # vectors of length 0, which have no direction and no cosine; they are counted
    left_out: int  # rows without a usable dense vector

    @property
    def total(self) -> int:
        """Vectors counted."""
        return int(self.counts.sum())


def norm_bins(vectors: AnyFrame, *, bins: int = 40) -> NormBins:
    """Count vectors by their Euclidean length, in at most 1,000 bins between the shortest and the longest.

    Lengths that differ by less than a millionth share one bin: they are equal but for rounding.
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
    present = column.drop_null()
    lengths = np.sqrt(
        np.concatenate(
            [
                np.zeros(0),
                *(_squares(present.slice(start, _BATCH)) for start in range(0, len(present), _BATCH)),
            ]
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


def _squares(vectors: pa.Array) -> NDArray[np.float64]:
    """The sum of squares of each vector."""
    values = vectors.flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)
    rows = pc.list_parent_indices(vectors).to_numpy()
    return np.bincount(rows, weights=values * values, minlength=len(vectors)).astype(np.float64)

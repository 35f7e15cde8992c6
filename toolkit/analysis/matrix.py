"""How many rows by two columns at once: workflows and statuses, above all."""

from __future__ import annotations

from dataclasses import dataclass

import narwhals as nw
import numpy as np
import pandas as pd
from narwhals.typing import IntoFrame
from numpy.typing import NDArray

from toolkit.analysis.columns import check_scalar, collect, named, select
from toolkit.arguments import whole


@dataclass(frozen=True, eq=False, kw_only=True)
class CountMatrix:
    """Counts by the values of two columns.

    Attributes
    ----------
    rows, columns : tuple of str
        Names of the values, most counts first; where values were merged, the last is ``other (n)``.
    counts : numpy.ndarray
        int64, shape (rows, columns).
    merged_rows, merged_columns : int
        How many values the last row and the last column hold; 0 when none were merged.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: NDArray[np.int64]
    merged_rows: int
    merged_columns: int

    @property
    def total(self) -> int:
        """Rows counted."""
        return int(self.counts.sum())

    def to_frame(self) -> pd.DataFrame:
        """The counts as a frame (Int64), named rows and columns."""
        return pd.DataFrame(self.counts, index=list(self.rows), columns=list(self.columns), dtype="Int64")


def count_matrix(
    frame: IntoFrame, rows: str, columns: str, *, top_rows: int = 12, top_columns: int = 8
) -> CountMatrix:
    """Count rows by the values of two columns; the rarest values are merged.

    Parameters
    ----------
    frame : frame
        Failures, callbacks, or any other.
    rows, columns : str
        Columns of single values. A missing value counts as a value.
    top_rows, top_columns : int
        How many values of each to tell apart, at least 1.

    Returns
    -------
    CountMatrix

    Raises
    ------
    InputError
        When a column is missing or holds lists, maps or bytes, or a number is out of bounds.

    Examples
    --------
    >>> frame = pd.DataFrame({"workflow_url": ["a", "a", "b"], "response_status": [500, 404, 500]})
    >>> count_matrix(frame, "workflow_url", "response_status").to_frame()
       500  404
    a    1    1
    b    1    0
    """
    doing = "counting by two columns"
    whole("top_rows", top_rows)
    whole("top_columns", top_columns)
    lazy = select(frame, [], doing=doing, chosen={"rows": rows, "columns": columns})
    keys = list(dict.fromkeys([rows, columns]))
    check_scalar(lazy, keys, doing=doing)
    counted = collect(lazy.group_by(*keys).agg(nw.len().alias("count_")))
    numbers = np.array(counted["count_"].to_pylist(), dtype=np.int64)
    row_names, row_places, merged_rows = _largest(counted[rows].to_pylist(), numbers, top_rows)
    column_names, column_places, merged_columns = _largest(counted[columns].to_pylist(), numbers, top_columns)
    counts = np.zeros((len(row_names), len(column_names)), dtype=np.int64)
    np.add.at(counts, (row_places, column_places), numbers)
    return CountMatrix(
        rows=row_names, columns=column_names, counts=counts, merged_rows=merged_rows,
        merged_columns=merged_columns,
    )  # fmt: skip


def _largest(
    values: list[object], numbers: NDArray[np.int64], top: int
) -> tuple[tuple[str, ...], NDArray[np.int64], int]:
    """Names of the most frequent values, the place of each row among them, and how many were merged."""
    totals: dict[object, int] = {}
    for value, number in zip(values, numbers.tolist(), strict=True):
        totals[value] = totals.get(value, 0) + number
    ordered = sorted(totals, key=lambda value: (-totals[value], named(value)))
    merged = max(len(ordered) - top, 0)
    places = {value: min(place, top) for place, value in enumerate(ordered)}
    names = [named(value) for value in ordered[:top]] + ([f"other ({merged})"] if merged else [])
    return tuple(names), np.array([places[value] for value in values], dtype=np.int64), merged

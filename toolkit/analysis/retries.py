"""How many retries there were."""

from __future__ import annotations

from dataclasses import dataclass

import narwhals as nw
import numpy as np
from narwhals.typing import IntoFrame
from numpy.typing import NDArray

from toolkit.analysis.columns import collect, select


@dataclass(frozen=True, eq=False, kw_only=True)
class RetriesUsed:
    """Counts by number of retries.

    Attributes
    ----------
    retries : numpy.ndarray
        int64, ascending, without holes from 0 to the most.
    used_up, others : numpy.ndarray
        int64, the same shape: rows whose retries were used up, and the others.
    allowed_only : bool
        Whether the frame knows only how many were allowed (failures), not how many were made (callbacks).
    left_out : int
        Rows whose number is missing, negative or above 1,000.
    """

    retries: NDArray[np.int64]
    used_up: NDArray[np.int64]
    others: NDArray[np.int64]
    allowed_only: bool
    left_out: int

    @property
    def total(self) -> int:
        """Rows counted."""
        return int(self.used_up.sum() + self.others.sum())


_MOST = 1_000


def retries_used(frame: IntoFrame) -> RetriesUsed:
    """Count rows by how many retries there were.

    A frame of callbacks knows how many were made (`retried`) and how many were allowed (`max_retries`). An
    entry of the DLQ knows only the latter: it is there because they were used up, or because its endpoint
    said that trying again is no use.

    Parameters
    ----------
    frame : frame
        Callbacks (`retried`, `max_retries`) or failures (`max_retries`).

    Returns
    -------
    RetriesUsed

    Raises
    ------
    InputError
        When the frame has no `max_retries`.

    Examples
    --------
    >>> import pandas as pd
    >>> found = retries_used(pd.DataFrame({"retried": [0, 3], "max_retries": [3, 3]}))
    >>> found.used_up.tolist(), found.others.tolist()
    ([0, 0, 0, 1], [1, 0, 0, 0])
    """
    doing = "counting retries"
    select(frame, ["max_retries"], doing=doing, name="frame")  # what is no frame is said here
    allowed_only = "retried" not in nw.from_native(frame).lazy().collect_schema().names()
    columns = ["max_retries"] if allowed_only else ["retried", "max_retries"]
    table = collect(select(frame, columns, doing=doing, name="frame"))
    numbers = table[columns[0]].to_pylist()
    most = table["max_retries"].to_pylist()
    known = [
        (number, allowed_only or number == allowed)
        for number, allowed in zip(numbers, most, strict=True)
        if number is not None and 0 <= number <= _MOST
    ]
    length = max((number for number, _ in known), default=-1) + 1
    counts = np.zeros((2, length), dtype=np.int64)
    for number, is_used_up in known:
        counts[0 if is_used_up else 1, number] += 1
    return RetriesUsed(
        retries=np.arange(length, dtype=np.int64),
        used_up=counts[0],
        others=counts[1],
        allowed_only=allowed_only,
        left_out=len(numbers) - len(known),
    )

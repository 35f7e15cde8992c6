"""Some of many failures, the same ones whatever engine holds them."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis.selection import opened, select_timed
from toolkit.analysis.sources import KINDS, AnyFrame
from toolkit.arguments import whole
from toolkit.signatures.signed_rows import SIGNATURE
from toolkit.tables.frames import to_frame
from toolkit.tables.schemas import GONE_AFTER

_DOING: Final = "sampling failures"
_LAST: Final = 8  # bytes of an id
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)


def sample_failures(
    failures: AnyFrame, *, most: int = 20_000, columns: Collection[str] | None = None
) -> pd.DataFrame:
    """Choose about so many failures by their ids, all of them where there are no more; the oldest first.

    For analyses that look at every row of many: the ids alone decide, so that the same failures are chosen of
    a snapshot, a frame and a later load. Not for counting: failures that are rare may be left out.

    Parameters
    ----------
    failures : frame
        With the columns `dlq_id`, `failed_at`, `created_at`. Columns that loaders and snapshots do not write
        are left out.
    most : int
        How many, at least 1.
    columns : collection of str, optional
        Which of them to read, as far as they are there. Default: all.

    Returns
    -------
    pandas.DataFrame
        The failures, sorted by `failed_at` (else `created_at`) and `dlq_id`.

    Raises
    ------
    InputError
        When a column is missing, or `most` is below 1.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01"] * 1000, utc=True)
    >>> frame = pd.DataFrame({"dlq_id": [f"{n:08}" for n in range(1000)], "failed_at": times,
    ...     "created_at": times})
    >>> len(sample_failures(frame)), len(sample_failures(frame, most=100))
    (1000, 98)
    """
    most = whole("most", most)
    names = opened(failures, doing=_DOING).names
    known = {*KINDS, SIGNATURE, GONE_AFTER} if columns is None else {*columns}
    kept = [name for name in names if name in known]
    rows = select_timed(failures, dict.fromkeys(["dlq_id", *kept]), doing=_DOING)
    total = int(select_timed(failures, ["dlq_id"], doing=_DOING).count()["count_"][0].as_py())
    if total > most:
        rows = rows.then(partial(_chosen, np.uint64(int((1 << 64) * (most / total)) - 1)))
    table = rows.table().sort_by([("when_", "ascending"), ("dlq_id", "ascending")])
    return to_frame(table.drop_columns(["when_", "fell_back_"]))


def _chosen(below: np.uint64, table: pa.Table) -> pa.Table:
    """The rows whose id, as a well-mixed number, is small."""
    ids = pc.fill_null(table["dlq_id"], "").cast(pa.binary()).combine_chunks()
    last = pc.binary_slice(pc.binary_join_element_wise(b"\0" * _LAST, ids, b""), -_LAST)
    numbers = np.frombuffer(b"".join(last.to_pylist()), dtype="<u8")
    for _ in range(2):
        numbers = numbers * _MIX
        numbers = numbers ^ (numbers >> _HALF)
    return table.filter(pa.array(numbers <= below))

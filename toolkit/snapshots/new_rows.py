"""The rows of a load that a sync writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from toolkit.base.size_lists import lists_by_size
from toolkit.snapshots.resumable import Spool
from toolkit.snapshots.row_index import Entries, Mask, Positions

READ_BYTES: Final = 16 << 20
"""Bytes of new rows whose bodies are masked and read at once. Each window of a load is a small table."""


class NewRows(NamedTuple):
    """Rows in spools, their entries, whether each is written, and whether it is of a new entry."""

    entries: Entries
    chosen: Mask
    added: Mask
    spools: tuple[Spool, ...]

    def tables(self, chosen: Mask) -> Iterator[tuple[pa.Table, Positions | slice]]:
        """Yield the chosen rows in tables, and what selects them among all entries."""
        start = 0
        for spool in self.spools:
            count = spool.rows
            for first, table in spool.tables(chosen[start : start + count]):
                rows = slice(start + first, start + first + table.num_rows)
                picked = chosen[rows]
                if picked.all():  # a slice: a first load has millions of rows
                    yield table, rows
                elif picked.any():
                    positions = np.flatnonzero(picked) + start + first
                    yield table.filter(pa.array(picked)), positions

            start += count

    def groups(
        self, chosen: Mask
    ) -> Iterator[list[tuple[pa.Table, Positions | slice]]]:
        """Yield the same in lists of tables whose bodies are masked and read at once."""
        yield from lists_by_size(
            self.tables(chosen), lambda each: each[0].nbytes, READ_BYTES
        )

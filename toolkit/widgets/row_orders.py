"""Remember the last orders of a table, because clicks on an earlier order can arrive late.

For example, a person clicks the second row while the kernel sorts the table. The message names the order that
the page showed, so that the row that the person saw is selected.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from toolkit.widgets.failure_rows import Indices
from toolkit.widgets.page_parts import is_count

_ORDERS: Final = 16  # kept, for clicks on an earlier order that arrive late


class RowOrders:
    """The order of the rows that are shown, with a number, and the orders before."""

    def __init__(self) -> None:
        self.rows: Indices = np.arange(0, dtype=np.int64)
        self.number = 0
        self._orders: dict[int, Indices] = {}

    def renew(self, rows: Indices) -> None:
        """Make these rows the present order, under the next number."""
        self.rows = rows
        self.number += 1
        self._orders[self.number] = rows
        self._orders.pop(self.number - _ORDERS, None)

    def of(self, number: object) -> Indices | None:
        """Return the order of a number from the page, or None if it is too old or no number."""
        if not is_count(number):
            return None
        return self._orders.get(int(str(number)))

    def position_of(self, row: int | None) -> int:
        """Return the position of a row in the present order, or -1 if it is not shown."""
        if row is None:
            return -1

        positions: list[int] = np.flatnonzero(self.rows == row).tolist()
        return next(iter(positions), -1)

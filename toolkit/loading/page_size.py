"""How many rows to ask for in a page, so that a page has about the same size whatever the rows are."""

from __future__ import annotations

import math
from typing import Final

PAGE_BYTES: Final = 8 << 20
"""Bytes of an answer to aim at: much beside the latency of a request, little beside memory."""

MOST_ROWS: Final = 1000
_TEXT_BYTES: Final = 4 << 10  # metadata and data of a row, before any has been seen
_NUMBER_BYTES: Final = 22  # a double in JSON with all its digits, and a comma
_FAR_TOO_LARGE: Final = 4


class TooLargeError(Exception):
    """A page whose rows are unknown is growing far beyond the aim; it is asked for again with fewer rows."""


class PageSize:
    """Rows a page, learnt from the pages seen. How many are asked for never decides what is in a listing.

    Parameters
    ----------
    numbers : int
        Numbers that each row has, as far as is known.
    most : int, optional
        Rows a page, at most.

    Examples
    --------
    >>> size = PageSize(768)
    >>> size.rows
    399
    >>> size.learn(rows=399, size=2_000_000)
    >>> size.rows
    1000
    """

    def __init__(self, numbers: int, *, most: int | None = None, page_bytes: int = PAGE_BYTES) -> None:
        self._most = min(MOST_ROWS, most or MOST_ROWS)
        self._page_bytes = page_bytes
        self._row_bytes = float(numbers * _NUMBER_BYTES + _TEXT_BYTES)
        self._learnt = False

    @property
    def rows(self) -> int:
        """Rows to ask for in the next page."""
        return max(1, min(self._most, math.floor(self._page_bytes / self._row_bytes)))

    def learn(self, *, rows: int, size: int) -> None:
        """A page of so many rows and bytes was read."""
        if rows:
            self._row_bytes = max(1.0, size / rows)
            self._learnt = True

    def watch(self, asked: int, arrived: int) -> bool:
        """Look at a page of `asked` rows of which so many bytes have arrived.

        Returns
        -------
        bool
            Whether the rest need not be looked at: rows of this listing have been seen before.

        Raises
        ------
        TooLargeError
            When the page is far larger than was aimed at, and fewer rows can be asked for.
        """
        if self._learnt:
            return True
        if asked > 1 and arrived > _FAR_TOO_LARGE * self._page_bytes:
            self._row_bytes = self._page_bytes / max(1, asked // (4 * _FAR_TOO_LARGE))
            raise TooLargeError
        return False

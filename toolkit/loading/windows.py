"""Windows of time, which of them to read next, and when to split one: pure, so that it can be tried by hand.

A window is a span of milliseconds, both ends included, the outermost open. One whose page has a cursor is
long, and is split while somebody is free to read the parts. What was read of it by then is read again in its
parts; an allowance keeps such waste to a share of what is read. Whatever is split where, the windows make up
the whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from toolkit.client.pages import Page
from toolkit.loading.paging import CursorHistory
from toolkit.loading.suggestions import FAR, PART, moments, suggest

Span = tuple[int | None, int | None]
"""First and last millisecond; None where it is open."""

Outcome = Literal["more", "end", "split"]

_PATIENCE: Final = 6  # pages of the whole before it is split: a short listing costs a request a page
_EARLY: Final = (
    4  # first pages at which a long window is split at once: a burst is dense behind its newest page
)
_WORTH: Final = 4  # pages left that make a later split worth while
_LONG: Final = 1.5  # times a part's pages, from which on a window is split at once
_FREE: Final = 96  # pages that may be read in vain whatever the listing's length
_SHARE: Final = 0.15  # of the pages read, which may be read in vain beyond that
_PARTS_EACH: Final = 3  # parts for each connection, so that they end at about the same time


@dataclass(eq=False, slots=True)
class Window:
    """A span of time, and how far it has been read.

    Attributes
    ----------
    first, last : int or None
        Unix milliseconds, both included; None where it is open.
    whole : bool
        Whether it is all that was asked for, not a part of it.
    splits : bool
        Whether it may be split.
    probe : bool
        Whether it lies where nothing can be.
    again : bool
        Whether its rows may be known already, so that meeting them is no sign of movement.
    compares : bool
        Whether it is read again to see that nothing moved, so that new rows are such a sign.
    reading : int
        Which reading of it this is, from 1.
    cursor : str or None
        Of the next page.
    pages : int
        Read of it so far.
    holds_rows : bool
        Whether one of them was not empty.
    rest : float or None
        Pages thought to be left.
    expected : float or None
        Pages it was thought to have.
    dropped : bool
        Whether nobody wants it any more.
    """

    first: int | None
    last: int | None
    whole: bool = False
    splits: bool = True
    probe: bool = False
    again: bool = False
    compares: bool = False
    reading: int = 1
    cursor: str | None = None
    pages: int = 0
    holds_rows: bool = False
    rest: float | None = None
    expected: float | None = None
    dropped: bool = False
    _cursors: CursorHistory = field(default_factory=CursorHistory, repr=False)

    @property
    def span(self) -> Span:
        """First and last millisecond."""
        return self.first, self.last

    def once_more(self, *, compares: bool) -> Window:
        """The same window, to be read from its start."""
        return Window(
            self.first,
            self.last,
            whole=self.whole,
            splits=self.splits,
            again=True,
            compares=compares,
            reading=self.reading + 1,
        )

    def advance(self, page: Page) -> None:
        """A page of it was read.

        Raises
        ------
        CursorLoopError
            When its cursor was there before.
        """
        self.pages += 1
        self.holds_rows |= not page.is_empty
        self._cursors.follow(self.cursor, page.cursor, what="a listing", page=self.pages)
        self.cursor = page.cursor


class Windows:
    """The windows of one load: which to read next, and into what they are split.

    Parameters
    ----------
    windows : iterable of Window
    connections : int
        How many are read at once at most.
    now : int
        Unix milliseconds, by any clock; see `suggest`.
    """

    def __init__(self, windows: Iterable[Window], *, connections: int, now: int) -> None:
        self._connections = connections
        self._now = now
        self._waiting = deque(windows)
        self._open: list[Window] = []
        self._busy: set[Window] = set()
        self._probed = False
        self._useful = 0
        self._vain = 0

    @property
    def available(self) -> int:
        """Windows of which a page can be asked for now."""
        return len(self._waiting) + len(self._open)

    @property
    def busy(self) -> int:
        """Windows of which a page is being asked for."""
        return len(self._busy)

    def next(self) -> Window | None:
        """The window of which a page should be asked for next; it is busy until `arrived` or `release`."""
        if self._waiting:
            window = self._waiting.popleft()
        elif self._open:
            # the longest first, so that all end at about the same time
            window = max(self._open, key=lambda one: one.rest or 0)
            self._open.remove(window)
        else:
            return None
        self._busy.add(window)
        return window

    def add(self, windows: Iterable[Window]) -> None:
        """Read these, too."""
        self._waiting.extend(windows)

    def release(self, window: Window) -> None:
        """The page asked for did not come."""
        self._busy.discard(window)

    def drop_all(self) -> None:
        """Read none of the windows there are; what is still on its way counts for nothing."""
        for window in (*self._waiting, *self._open, *self._busy):
            window.dropped = True
        self._waiting.clear()
        self._open.clear()

    def arrived(self, window: Window, page: Page, *, free: int | None = None) -> Outcome:
        """A page of a window has come.

        Parameters
        ----------
        window : Window
        page : Page
        free : int or None
            How many more requests could be made now, if there were windows to ask for. None when that would
            gain nothing.

        Returns
        -------
        str
            Whether there is "more" of it, this was its "end", or it was "split", so that all of it will come
            in its parts.

        Raises
        ------
        CursorLoopError
            When its cursor was there before.
        """
        self._busy.discard(window)
        window.advance(page)
        if window.cursor is None:
            if window.holds_rows:
                self._useful += window.pages
            else:
                self._vain += window.pages
            return "end"
        parts = self._parts(window, page, free) if window.splits and free is not None else []
        if parts:
            self._vain += window.pages
            if not self._probed:
                self._probed = True
                parts.append(Window(FAR, FAR, splits=False, probe=True))
            self._waiting.extend(parts)
            return "split"
        self._open.append(window)
        return "more"

    def _parts(self, window: Window, page: Page, free: int) -> list[Window]:
        """The parts into which to split a window now; none where that would not help."""
        early = window.pages - (_PATIENCE if window.whole else 1)
        idle = free - self.available
        if early < 0 or (early >= _EARLY and idle < 1):
            return []
        part = self._part()
        first, last = window.span
        seen = moments(page.rows, first, last)
        found = suggest(
            first, last, seen, now=self._now, part=part, expected=window.expected, ends=window.whole
        )
        window.rest = found.rest
        if not found.cuts or not self._worth(window, idle, part, early=early < _EARLY):
            return []
        if self._vain + window.pages + len(found.cuts) // 2 > _FREE + _SHARE * self._read():
            return []
        bounds = [first, *(cut + 1 for cut in found.cuts)], [*found.cuts, last]
        parts = [
            Window(low, high, expected=expected, again=window.again, compares=window.compares)
            for low, high, expected in zip(*bounds, found.expected, strict=True)
        ]
        return parts[::-1]

    def _worth(self, window: Window, idle: int, part: float, *, early: bool) -> bool:
        if early:
            return idle > 0 if window.rest is None else window.rest > _LONG * part
        rest = window.pages if window.rest is None else window.rest
        return rest >= max(_WORTH, window.pages)

    def _part(self) -> float:
        """Pages a part should have: few, but in a long listing not too few."""
        left = sum(one.rest or 0 for one in (*self._open, *self._busy) if not one.whole)
        return max(PART, left / (_PARTS_EACH * self._connections))

    def _read(self) -> int:
        return self._useful + sum(one.pages for one in (*self._open, *self._busy))


def uncovered(whole: Span, covered: Sequence[Span]) -> list[Span]:
    """What is left of a span without some others, newest first.

    >>> uncovered((None, 100), [(90, 95), (20, None)])
    [(None, 19)]
    >>> uncovered((None, None), [(5, 7)])
    [(8, None), (None, 4)]
    """
    infinite = float("inf")
    begin = -infinite if whole[0] is None else whole[0]
    end = infinite if whole[1] is None else whole[1]
    left: list[Span] = []
    ordered = sorted(
        (-infinite if first is None else first, infinite if last is None else last) for first, last in covered
    )
    for first, last in [*ordered, (end + 1, end + 1)]:
        if begin <= end and begin < first:
            high = min(first - 1, end)
            left.append(tuple(None if abs(at) == infinite else int(at) for at in (begin, high)))  # type: ignore[arg-type]
        begin = max(begin, last + 1)
    return left[::-1]


def joined(spans: Iterable[Span]) -> list[Span]:
    """The spans with neighbours put together, oldest first.

    >>> joined([(5, 9), (None, 4), (20, None)])
    [(None, 9), (20, None)]
    """
    left = uncovered((None, None), list(spans))
    return uncovered((None, None), left)[::-1]

"""Windows of time: which to read next, and where to split one. Free of I/O, so that it can be tested by hand.

A window is a span of milliseconds, both ends included, the outermost open. One whose page has a cursor is
long, and is split by the density of timestamps seen on the page while a connection is free to read the parts.
Wherever it is split, the parts make up the window: a cut decides how fast a load is, never what is in it.
What was read of it by then is read again in its parts; an allowance keeps such waste to a share.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise, takewhile
from typing import Final, Literal, NamedTuple

from toolkit.client.failures import Span
from toolkit.client.pages import Page
from toolkit.errors import ResponseError
from toolkit.loading.paging import CursorHistory
from toolkit.times import http_date_ms

Outcome = Literal["more", "end", "split", "lost", "refused"]
"""There is more of the window; it has ended; it will be read in parts; the service has lost its cursor; the
service refuses its dates."""

YEAR_2100: Final = 4_102_444_800_000
"""Its start, in Unix milliseconds: a bound to calculate with, where a window has none."""

PART: Final = 8
"""Pages that a part of a split window is meant to have, at least."""

_MIN_PAGES_BEFORE_SPLIT: Final = 6  # of the whole: a short listing costs a request a page
_MIN_PAGES_LEFT: Final = 4  # that make a split worth while
_LONG: Final = 1.2  # times a part's pages, from which on a window is split although no connection is free
_WASTE_ALLOWANCE: Final = 96  # pages that may be wasted whatever the listing's length
_MAX_WASTE_SHARE: Final = 0.15  # of the pages read, which may be wasted beyond that
_PARTS_EACH: Final = 3  # parts for each connection, so that they end at about the same time
_MOST_PARTS: Final = 8
_GROWING_PARTS: Final = 5  # parts that grow with the distance
_HOUR: Final = 3_600_000
_AGREEING: Final = 0.9  # share of the timestamps that have to agree
_TIMESTAMPS: Final[tuple[tuple[re.Pattern[bytes], Callable[[bytes], int | None]], ...]] = (
    (re.compile(rb'"createdAt": ?(\d{13})\b'), int),
    (re.compile(rb'"workflowCreatedAt": ?(\d{13})\b'), int),
    (re.compile(rb'"[Dd]ate": ?\["([^"\\]{20,40})"'), lambda text: http_date_ms(text.decode("latin-1"))),
)


@dataclass(eq=False, slots=True)
class Window:
    """A span of time, and how far it has been read."""

    first: int | None  # Unix milliseconds, both included; None where it is open
    last: int | None
    whole: bool = False  # it is all that was requested, not a part of it
    splits: bool = True  # it may be split
    probe: bool = False  # it must be empty, because nothing has such dates
    again: bool = False  # rows may be known already: not a sign of a concurrent modification
    compares: bool = False  # it is read again to see that nothing changed: new rows are such a sign
    reading: int = 1  # which reading of it this is
    cursor: str | None = None  # of the next page
    pages: int = 0  # read of it so far
    has_rows: bool = False  # one of them was not empty
    pages_left: float | None = None  # as estimated
    dropped: bool = False  # it is not wanted any more
    repeated: int = 0  # rows that came a second time
    new: int = 0  # rows that no other window and no earlier reading had
    _cursors: CursorHistory = field(default_factory=CursorHistory, repr=False)
    _rows: dict[bytes, str] = field(default_factory=dict, repr=False)
    _added: list[tuple[Sequence[bytes], Sequence[str]]] = field(default_factory=list, repr=False)

    @property
    def span(self) -> Span:
        """First and last millisecond."""
        return self.first, self.last

    def add(self, identities: Sequence[bytes], ids: Sequence[str]) -> None:
        """Remember a page's rows."""
        self._added.append((identities, ids))

    @property
    def rows(self) -> dict[bytes, str]:
        """The rows remembered: identities and ids. Made on demand, as it is seldom needed."""
        for identities, ids in self._added:
            self._rows.update(zip(identities, ids, strict=True))
        self._added.clear()
        return self._rows

    def advance(self, page: Page) -> None:
        """A page of it was read. Raises `CursorLoopError` when its cursor was there before."""
        self.pages += 1
        self.has_rows |= not page.is_empty
        self._cursors.follow(self.cursor, page.cursor, what="a listing", page=self.pages)
        self.cursor = page.cursor


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The result of a request for a page of a window.

    `cursor` is that of the next page, and `number` counts the pages of the window from 1. A window that was
    lost or refused has an error and no page.
    """

    window: Window
    outcome: Outcome
    page: Page | None = None
    cursor: str | None = None
    number: int = 0
    error: ResponseError | None = None


class WindowPlanner:
    """The windows of one load: which to read next, and into what they are split."""

    def __init__(self, windows: Iterable[Window], *, connections: int, now: int) -> None:
        self._connections = connections
        self._now = now
        self._waiting = deque(windows)
        self._open: list[Window] = []
        self._busy: set[Window] = set()
        self._probed = False
        self._useful = 0
        self._wasted = 0

    @property
    def available(self) -> int:
        """Windows of which a page can be requested now."""
        return len(self._waiting) + len(self._open)

    @property
    def busy(self) -> int:
        """Windows of which a page is being requested."""
        return len(self._busy)

    def next(self) -> Window:
        """An available window, of which to request a page; it is busy until `arrived` or `release`."""
        if self._waiting:
            window = self._waiting.popleft()
        else:
            # the longest first, so that all end at about the same time
            window = max(self._open, key=lambda item: item.pages_left or 0)
            self._open.remove(window)
        self._busy.add(window)
        return window

    def add(self, windows: Iterable[Window]) -> None:
        """Read these, too."""
        self._waiting.extend(windows)

    def release(self, window: Window) -> None:
        """The page requested did not come."""
        self._busy.discard(window)

    def drop_all(self) -> None:
        """Read none of the windows there are, and ignore the pages that are still to arrive."""
        for window in (*self._waiting, *self._open, *self._busy):
            window.dropped = True
        self._waiting.clear()
        self._open.clear()

    def arrived(self, window: Window, page: Page, *, free: int | None = None) -> Outcome:
        """A page of a window has come; what that means for the window.

        `free` is how many more requests could be made now, if there were windows to read; None when more
        requests would gain nothing. Raises `CursorLoopError` when the page's cursor was there before.
        """
        self._busy.discard(window)
        window.advance(page)
        if window.cursor is None:
            if window.has_rows:
                self._useful += window.pages
            else:
                self._wasted += window.pages
            return "end"
        parts = self._parts(window, page, free) if window.splits and free is not None else []
        if parts:
            self._wasted += window.pages
            if not self._probed:
                self._probed = True
                parts.append(Window(YEAR_2100, YEAR_2100, splits=False, probe=True))
            self._waiting.extend(parts)
            return "split"
        self._open.append(window)
        return "more"

    def _parts(self, window: Window, page: Page, free: int) -> list[Window]:
        """The parts into which to split a window now, newest first; none where that would not help."""
        if window.whole and window.pages < _MIN_PAGES_BEFORE_SPLIT:
            return []
        # few pages a part, but in a long listing not too few
        left = sum(item.pages_left or 0 for item in (*self._open, *self._busy) if not item.whole)
        part = max(PART, left / (_PARTS_EACH * self._connections))
        seen = timestamps(page.rows, *window.span)
        split = plan_split(*window.span, seen, now=self._now, part=part, ends=window.whole)
        window.pages_left = split.pages_left
        if not split.cuts or not self._is_worth(window, part, connection_free=free > self.available):
            return []
        read = self._useful + sum(item.pages for item in (*self._open, *self._busy))
        if self._wasted + window.pages + len(split.cuts) // 2 > _WASTE_ALLOWANCE + _MAX_WASTE_SHARE * read:
            return []
        bounds = [window.first, *(cut + 1 for cut in split.cuts)], [*split.cuts, window.last]
        return [
            Window(low, high, again=window.again, compares=window.compares)
            for low, high in zip(*bounds, strict=True)
        ][::-1]

    def _is_worth(self, window: Window, part: float, *, connection_free: bool) -> bool:
        """Whether to read a window in parts; at its first pages, even if no connection is free."""
        if window.pages_left is None:
            return connection_free
        long = _LONG * part * max(1, window.pages / _MIN_PAGES_LEFT)
        return window.pages_left > long or (
            connection_free and window.pages_left >= max(_MIN_PAGES_LEFT, window.pages)
        )


def timestamps(rows: bytes, first: int | None, last: int | None) -> list[int] | None:
    """Timestamps of a page's entries, in the page's order, of a kind that agrees with the window.

    The service does not say which of an entry's times the dates are compared with. Whichever lies in the
    window will do; None where none does.

    >>> timestamps(b'[{"createdAt": 1767225600000}, {"createdAt": 1767225500000}]', None, None)
    [1767225600000, 1767225500000]
    >>> timestamps(b'[{"createdAt": 1767225600000}]', 5, 7)
    """
    low, high = first or 0, YEAR_2100 if last is None else last
    for pattern, read in _TIMESTAMPS:
        times = [at for text in pattern.findall(rows) if (at := read(text)) is not None]
        inside = [at for at in times if low <= at <= high]
        if times and len(inside) >= _AGREEING * len(times):
            return inside
    return None


class Split(NamedTuple):
    """How a window may be split.

    `cuts` ascend; each is the last millisecond of a part, and the next part begins one later. `pages_left`
    is an estimate of how many follow the one looked at, by its density; None when that is unknown.
    """

    cuts: tuple[int, ...] = ()
    pages_left: float | None = None


def plan_split(
    first: int | None,
    last: int | None,
    seen: Sequence[int] | None,
    *,
    now: int,
    part: float = PART,
    ends: bool = False,
) -> Split:
    """Where to split a window into parts of `part` pages or more, by the timestamps of one page of it.

    With `ends`, it is also cut right after one of the timestamps and right before another: a service that
    does not include both ends of a window would then lose an entry that is known to be there.

    >>> plan_split(0, 99_999, range(99_999, 90_000, -100), now=0, part=4)
    Split(cuts=(49999,), pages_left=9.1...)
    """
    low, high = first or 0, YEAR_2100 if last is None else last
    if high <= low:
        return Split()
    steps = list(pairwise(seen or ()))
    pages_left: float | None = None
    if seen and sum(before >= after for before, after in steps) >= _AGREEING * len(steps):
        cuts, pages_left = _by_density(low, seen, part=part, ends=ends)
    elif seen and sum(before <= after for before, after in steps) >= _AGREEING * len(steps):
        # oldest first: the same with time running backwards
        cuts, pages_left = _by_density(-high, [-at for at in seen], part=part, ends=ends)
        cuts = {-cut - 1 for cut in cuts}
    elif None not in (first, last):
        cuts = {low + (high - low) * number // _MOST_PARTS for number in range(1, _MOST_PARTS)}
    else:
        newest = now if low < now < high else high
        cuts = {newest, *(newest - _HOUR * 4**number for number in range(_MOST_PARTS))}
    inside = sorted(cut for cut in cuts if low <= cut < high)
    return Split(tuple(inside) or ((low + high) // 2,), pages_left)


def _by_density(low: int, seen: Sequence[int], *, part: float, ends: bool) -> tuple[set[int], float]:
    """Cuts of what is left before the oldest timestamp seen, where it is as dense as the page; its pages."""
    oldest, newest = min(seen), max(seen)
    span = max(1, newest - oldest)
    pages_left = (oldest - low) / span
    if pages_left < _MOST_PARTS * part:
        parts = max(2, round(pages_left / part))
        cuts = {int(newest - (newest - low) * number / parts) for number in range(1, parts)}
    else:
        # nothing is known of how far the entries reach: parts that grow with their distance, few as they are
        growth = max(4.0, (pages_left / part) ** (1 / _GROWING_PARTS))
        distances = takewhile(
            lambda distance: distance < newest - low, (span * part * growth**number for number in count())
        )
        cuts = {int(newest - distance) for distance in distances}
    if ends or newest == oldest:
        lowest, second = (*sorted(set(seen))[:2], oldest)[:2]
        cuts |= {lowest, second - 1}
    return cuts, pages_left


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


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans with neighbours put together, oldest first.

    >>> merge_spans([(5, 9), (None, 4), (20, None)])
    [(None, 9), (20, None)]
    """
    left = uncovered((None, None), list(spans))
    return uncovered((None, None), left)[::-1]

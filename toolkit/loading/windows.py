"""Plan time windows: which to read next, and how to split one. This module does no I/O.

A window is a span of milliseconds, both ends included. The outermost windows are open. If a page of a window
has a cursor, the window is long. It is split by the density of the timestamps on the page while a connection
is free to read the parts. For example, 100 entries per hour and 10 days left make parts of about 8 pages
each.

The parts always make up the window, so a cut decides how fast a load is, never which rows it has. The rows
that were read before a split are read again in the parts. An allowance limits this waste to a share of all
pages.
"""

from __future__ import annotations

import math
import operator
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from itertools import count, takewhile
from typing import Final, Literal, NamedTuple

from toolkit.base.errors import ResponseError
from toolkit.base.times import http_date_ms
from toolkit.loading.paging import CursorHistory
from toolkit.loading.window_states import WindowState
from toolkit.service.failures import Span
from toolkit.service.pages import Page

Outcome = Literal["more", "end", "split", "lost", "refused"]
"""Result of a request for a page of a window.

``more``: the window continues; ``end``: it has ended; ``split``: it will be read in parts; ``lost``: the
service does not know the cursor any more; ``refused``: the service refuses the dates.
"""

YEAR_2100: Final = 4_102_444_800_000
"""Start of the year 2100 in Unix milliseconds: a bound to calculate with if a window has none."""

PART: Final = 8
"""Minimum number of pages that a part of a split window should have."""


@dataclass(frozen=True)
class PlannerTuning:
    """Constants of the planner, with the reasons."""

    pages_before_split: int = 6
    """Pages of the requested span that are read first, so that a short listing costs one request per page."""
    least_pages_left: int = 4
    """Unread pages that make a split worthwhile."""
    long: float = 1.2
    """A window of more parts than this is split even if no connection is free."""
    waste_allowance: int = 96
    """Pages that may be wasted in a listing of any length."""
    waste_share: float = 0.15
    """Share of the pages that may be wasted in addition."""
    parts_per_connection: int = 3
    """Parts per connection, so that all connections end at about the same time."""
    most_parts: int = 8
    """Parts of a window of unknown density."""
    growing_parts: int = 5
    """Parts that grow with the distance from the last page, because the density may change."""
    agreeing: float = 0.9
    """Share of the timestamps of a page that have to be inside the window, or in order."""


TUNING: Final = PlannerTuning()

_HOUR: Final = 3_600_000
# Members of an entry with a time, in order of preference: creation, creation of the run, Date of the
# response.
_TIMESTAMPS: Final[
    tuple[tuple[re.Pattern[bytes], Callable[[bytes], int | None]], ...]
] = (
    (re.compile(rb'"createdAt": ?(\d{13})\b'), int),
    (re.compile(rb'"workflowCreatedAt": ?(\d{13})\b'), int),
    (
        re.compile(rb'"[Dd]ate": ?\["([^"\\]{20,40})"'),
        lambda text: http_date_ms(text.decode("latin-1")),
    ),
)


@dataclass(eq=False, slots=True)
class Window:
    """A span of time and the progress of reading it."""

    first: int | None  # Unix milliseconds, both included; None if open
    last: int | None
    state: WindowState = WindowState.FIRST_READING
    whole: bool = False  # the window is the requested span, not a part of it
    splits: bool = True  # the window may be split
    reading: int = 1  # number of this reading, from 1
    cursor: str | None = None  # cursor of the next page
    pages: int = 0  # pages read so far
    has_rows: bool = False  # at least one page was not empty
    pages_left: float | None = None  # estimate
    repeated_rows: int = 0  # rows that came a second time
    new_rows: int = 0  # rows that no other window and no earlier reading had
    _cursors: CursorHistory = field(default_factory=CursorHistory, repr=False)
    _rows: dict[bytes, str] = field(default_factory=dict, repr=False)
    _added: list[tuple[Sequence[bytes], Sequence[str]]] = field(
        default_factory=list, repr=False
    )

    @property
    def has_changed(self) -> bool:
        """Return True if entries changed while the window was read.

        A row that came twice in one reading shows that entries moved. When comparing, a new row shows that
        the reading before has missed it.
        """
        return self.repeated_rows > 0 or (self.state.compares and self.new_rows > 0)

    @property
    def span(self) -> Span:
        """Return the first and the last millisecond."""
        return self.first, self.last

    def add(self, identities: Sequence[bytes], ids: Sequence[str]) -> None:
        """Remember the rows of a page."""
        self._added.append((identities, ids))

    @property
    def rows(self) -> dict[bytes, str]:
        """Return the identities and ids of the rows. The dict is made on demand."""
        for identities, ids in self._added:
            self._rows.update(zip(identities, ids, strict=True))
        self._added.clear()
        return self._rows

    def advance(self, page: Page) -> None:
        """Record a page. Raise `CursorLoopError` if the cursor of the page was there before."""
        self.pages += 1
        self.has_rows |= not page.is_empty
        self._cursors.follow(
            self.cursor, page.cursor, what="a listing", page=self.pages
        )
        self.cursor = page.cursor


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The result of a request for a page of a window.

    `cursor` is the cursor of the next page, and `number` counts the pages of the window from 1. If the
    outcome is ``lost`` or ``refused``, there is an error and no page.
    """

    window: Window
    outcome: Outcome
    page: Page | None = None
    cursor: str | None = None
    number: int = 0
    error: ResponseError | None = None


class WindowPlanner:
    """The windows of one load: which to read next, and how to split them."""

    def __init__(
        self, windows: Iterable[Window], *, connections: int, now: int
    ) -> None:
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
        """Return the number of windows with a page that can be requested now."""
        return len(self._waiting) + len(self._open)

    @property
    def busy(self) -> int:
        """Return the number of windows with a page that is being requested."""
        return len(self._busy)

    def next(self) -> Window:
        """Return the window to request a page of. It is busy until `arrived` or `release`."""
        if self._waiting:
            window = self._waiting.popleft()
        else:
            # the longest first, so that all end at about the same time
            window = max(self._open, key=lambda item: item.pages_left or 0)
            self._open.remove(window)

        self._busy.add(window)
        return window

    def add(self, windows: Iterable[Window]) -> None:
        """Add windows to read."""
        self._waiting.extend(windows)

    def release(self, window: Window) -> None:
        """Record that the requested page of a window did not arrive."""
        self._busy.discard(window)

    def drop_all(self) -> None:
        """Drop all windows, and ignore their pages that are still to arrive."""
        for window in (*self._waiting, *self._open, *self._busy):
            window.state = WindowState.DROPPED
        self._waiting.clear()
        self._open.clear()

    def arrived(
        self, window: Window, page: Page, *, free: int | None = None
    ) -> Outcome:
        """Record a page of a window. Return the outcome for the window.

        `free` is the number of requests that could be sent now if there were more windows, or None if more
        requests would not be faster. Raise `CursorLoopError` if the cursor of the page was there before.
        """
        self._busy.discard(window)
        window.advance(page)
        if window.cursor is None:
            # An empty window is a page that only the split made necessary.
            if window.has_rows:
                self._useful += window.pages
            else:
                self._wasted += window.pages

            return "end"

        parts: list[Window] = []
        if window.splits and free is not None:
            parts = self._parts(window, page, free)
        if parts:
            self._wasted += window.pages
            # A service that ignores the dates also returns entries for the year 2100. One probe per load
            # shows it.
            if not self._probed:
                self._probed = True
                parts.append(
                    Window(YEAR_2100, YEAR_2100, WindowState.PROBE, splits=False)
                )

            self._waiting.extend(parts)
            return "split"

        self._open.append(window)
        return "more"

    def _parts(self, window: Window, page: Page, free: int) -> list[Window]:
        """Return the parts of a window, newest first, or no parts if a split would not help now."""
        if window.whole and window.pages < TUNING.pages_before_split:
            return []

        part = self._pages_per_part()
        seen = timestamps(page.rows, *window.span)
        split = plan_split(
            *window.span, seen, now=self._now, part=part, ends=window.whole
        )
        window.pages_left = split.pages_left
        connection_free = free > self.available
        helps = self._is_worth(window, part, connection_free=connection_free)
        if not split.cuts or not helps or self._wastes_too_much(window, split):
            return []

        return _parts_between(window, split.cuts)

    def _pages_per_part(self) -> float:
        """Return how many pages a part should have.

        Parts of few pages use all connections, but a long listing should not have too many parts.
        """
        pages_left = sum(
            window.pages_left or 0
            for window in (*self._open, *self._busy)
            if not window.whole
        )
        most_parts = TUNING.parts_per_connection * self._connections
        return max(PART, pages_left / most_parts)

    def _wastes_too_much(self, window: Window, split: Split) -> bool:
        """Return True if too many pages would be read twice or be short after a split."""
        read = self._useful + sum(item.pages for item in (*self._open, *self._busy))
        # the pages of the window are read again, and the last page of a part is half full on average
        wasted = self._wasted + window.pages + len(split.cuts) // 2
        return wasted > TUNING.waste_allowance + TUNING.waste_share * read

    def _is_worth(self, window: Window, part: float, *, connection_free: bool) -> bool:
        """Return True if reading a window in parts is faster. Long windows are split early in any case."""
        pages_left = window.pages_left
        if pages_left is None:
            return connection_free

        # The more pages have been read, the more a split would waste.
        long = TUNING.long * part * max(1, window.pages / TUNING.least_pages_left)
        if pages_left > long:
            return True

        enough_for_two = max(TUNING.least_pages_left, window.pages)
        return connection_free and pages_left >= enough_for_two


def _parts_between(window: Window, cuts: Sequence[int]) -> list[Window]:
    """Return the parts of a window between cuts, newest first.

    For example, the cuts 10 and 20 split 0 to 30 into 0 to 10, 11 to 20 and 21 to 30: without gap or overlap.
    """
    starts = [window.first, *(cut + 1 for cut in cuts)]
    ends = [*cuts, window.last]
    parts = [
        Window(first, last, window.state)
        for first, last in zip(starts, ends, strict=True)
    ]
    parts.reverse()

    return parts


def timestamps(rows: bytes, first: int | None, last: int | None) -> list[int] | None:
    """Return the timestamps of the entries of a page, in order, of a kind that lies in the window.

    The service does not document which time of an entry it compares with the dates. The first kind of
    timestamp that lies in the window is used. If no kind does, None is returned.

    >>> timestamps(b'[{"createdAt": 1767225600000}, {"createdAt": 1767225500000}]', None, None)
    [1767225600000, 1767225500000]
    >>> timestamps(b'[{"createdAt": 1767225600000}]', 5, 7)
    """
    low, high = _bounds(first, last)
    for pattern, read in _TIMESTAMPS:
        texts = pattern.findall(rows)
        times = [time for time in map(read, texts) if time is not None]
        inside = [time for time in times if low <= time <= high]
        if times and len(inside) >= TUNING.agreeing * len(times):
            return inside

    return None


class Split(NamedTuple):
    """A plan to split a window.

    `cuts` ascend. Each cut is the last millisecond of a part, and the next part begins one millisecond later.
    `pages_left` is the estimated number of pages after the current one, or None if unknown.
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
    """Split a window into parts of at least `part` pages, using the timestamps of one page of it.

    With `ends`, the window is also cut directly after one of the timestamps and directly before another. If
    the service does not include both ends of a window, an entry that is known to exist is then missing.

    >>> plan_split(0, 99_999, range(99_999, 90_000, -100), now=0, part=4)
    Split(cuts=(49999,), pages_left=9.1...)
    """
    low, high = _bounds(first, last)
    if high <= low:
        return Split()

    pages_left: float | None = None
    order = _order(seen)
    if seen and order is Order.NEWEST_FIRST:
        cuts, pages_left = _by_density(low, seen, part=part, ends=ends)
    elif seen and order is Order.OLDEST_FIRST:
        # the same with time running backwards
        backwards = list(map(operator.neg, seen))
        cuts, pages_left = _by_density(-high, backwards, part=part, ends=ends)
        cuts = {-cut - 1 for cut in cuts}
    elif None not in (first, last):
        cuts = _equal_parts(low, high)
    else:
        cuts = _growing_parts(low, high, now)

    inside = sorted(cut for cut in cuts if low <= cut < high)
    # if no guess lies inside the window, halve it
    halves = [(low + high) // 2]
    return Split(tuple(inside or halves), pages_left)


class Order(Enum):
    """Order of the entries of a page by their times."""

    NEWEST_FIRST = auto()
    OLDEST_FIRST = auto()
    UNKNOWN = auto()


def _order(seen: Sequence[int] | None) -> Order:
    """Return the order of most timestamps of a page."""
    if not seen:
        return Order.UNKNOWN
    if _are_in_order(seen, operator.ge):
        return Order.NEWEST_FIRST
    if _are_in_order(seen, operator.le):
        return Order.OLDEST_FIRST

    return Order.UNKNOWN


def _bounds(first: int | None, last: int | None) -> tuple[int, int]:
    """Return the bounds of a window to calculate with."""
    if last is None:
        last = YEAR_2100
    return first or 0, last


def _are_in_order(times: Sequence[int], in_order: Callable[[int, int], bool]) -> bool:
    """Return True if most neighbours are in order.

    The order of a listing is not promised. Nine of ten neighbours are enough to extrapolate, because a wrong
    guess only costs time.
    """
    neighbours = list(map(in_order, times, times[1:]))
    return sum(neighbours) >= TUNING.agreeing * len(neighbours)


def _equal_parts(low: int, high: int) -> set[int]:
    """Return the cuts of a window of unknown density with two ends."""
    span, most = high - low, TUNING.most_parts
    return {low + span * number // most for number in range(1, most)}


def _growing_parts(low: int, high: int, now: int) -> set[int]:
    """Return the cuts of an open window of unknown density: parts that grow with the distance from now.

    The cuts are 1, 4, 16, … hours before now; the last of them, 4**7 hours, are almost two years.
    """
    newest = high
    if low < now < high:
        newest = now
    distances = [_HOUR * 4**number for number in range(TUNING.most_parts)]

    return {newest, *(newest - distance for distance in distances)}


def _by_density(
    low: int, seen: Sequence[int], *, part: float, ends: bool
) -> tuple[set[int], float]:
    """Split the unread range, assuming the density of the last page.

    Return the cut points and the estimated number of pages. For example, if a page covers one hour and 32
    hours are left, there are 32 pages, and with `part=8`, three cuts make four parts.
    """
    oldest, newest = min(seen), max(seen)
    page_span = max(1, newest - oldest)
    pages_left = (oldest - low) / page_span
    length = newest - low
    distances: Iterable[float]

    if pages_left < TUNING.most_parts * part:
        parts = max(2, round(pages_left / part))
        distances = (length * number / parts for number in range(1, parts))
    else:
        # It is unknown how old the oldest entry is. A few parts that grow with the distance reach far back.
        # With growth = (pages_left / part) ** (1 / 5), five steps reach about the low end: part * growth**5 =
        # pages_left.
        growth = max(4.0, (pages_left / part) ** (1 / TUNING.growing_parts))
        growing = (page_span * part * growth**number for number in count())
        distances = takewhile(partial(operator.gt, length), growing)

    cuts = {int(newest - distance) for distance in distances}
    if ends or newest == oldest:
        # For example, with entries at 5, 8 and 9, the cuts are 5 and 7. The entry at 5 is then the last of a
        # part, and the entry at 8 the first of another. A page of one time t is cut at t - 1 and t, so that
        # this millisecond becomes a part of its own.
        lowest, second = (*sorted(set(seen))[:2], oldest)[:2]
        cuts |= {lowest, second - 1}

    return cuts, pages_left


def uncovered(whole: Span, covered: Sequence[Span]) -> list[Span]:
    """Return the parts of a span that other spans do not cover, newest first.

    >>> uncovered((None, 100), [(90, 95), (20, None)])
    [(None, 19)]
    >>> uncovered((None, None), [(5, 7)])
    [(8, None), (None, 4)]
    """
    start, end = _with_infinity(whole)
    gaps: list[Span] = []
    # the last, empty span closes the gap after all others
    for first, last in [*sorted(map(_with_infinity, covered)), (end + 1, end + 1)]:
        if start <= end and start < first:
            gaps.append((_finite(start), _finite(min(first - 1, end))))
        start = max(start, last + 1)

    gaps.reverse()
    return gaps


def _with_infinity(span: Span) -> tuple[float, float]:
    """Return a span with infinite numbers instead of None, so that it can be compared."""
    first, last = span
    start, end = -math.inf, math.inf
    if first is not None:
        start = first
    if last is not None:
        end = last
    return start, end


def _finite(bound: float) -> int | None:
    if math.isinf(bound):
        return None
    return int(bound)


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Join spans that are next to each other or overlap. Return the oldest first.

    >>> merge_spans([(5, 9), (None, 4), (20, None)])
    [(None, 9), (20, None)]
    """
    # The gaps between the gaps are the joined spans. `uncovered` returns the newest first.
    left = uncovered((None, None), list(spans))
    return uncovered((None, None), left)[::-1]

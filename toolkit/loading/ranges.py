"""Reading ranges over vectors: several in turn, pages requested ahead, and again what changed meanwhile.

A range is all vectors of a namespace whose ids begin with a prefix. The next cursor is at the head of a page,
so that the next request starts while the body still arrives. A range is read again where vectors changed
while it was read: an id was repeated, a cursor expired, or there were fewer vectors than the index counts.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from toolkit.client.pages import Page, head_cursor
from toolkit.client.transport import Transport
from toolkit.client.vectors import IndexInfo, VectorParts, list_page, namespace_title, read_info
from toolkit.errors import ResponseError
from toolkit.loading.identities import identities
from toolkit.loading.load import Batch, LoadState
from toolkit.loading.memory import check_page, keep_freed_buffers
from toolkit.loading.options import LoadOptions
from toolkit.loading.paging import MOST_READINGS, is_refusal, walk
from toolkit.loading.rate_limiter import SharedRateLimiter
from toolkit.redaction import Redactor
from toolkit.tables.floats import read_numbers
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.vectors import decode_vectors

T = TypeVar("T")
P = TypeVar("P")
Watch = Callable[[bytearray], bool]
"""Looks at a body as it arrives; True when it has seen enough."""

KEY: Final = ("namespace", "id")
"""Columns that identify a vector."""

FIRST: Final = "0"
"""The cursor of a range's first page."""

PAGE_BYTES: Final = 8 << 20
"""Target size of a page: large compared to the latency of a request, small compared to memory."""

DEPTH: Final = 3
"""Pages of one range that are being requested or wait for their reader, at most."""

_AT_ONCE: Final = 4  # ranges read in turn
_READINGS_FOR_COUNTS: Final = 2  # counts may lag: they are no reason to try for long
_MOST_ROWS: Final = 1000
_TEXT_BYTES: Final = 4 << 10  # metadata and data of a row, before any has been seen
_NUMBER_BYTES: Final = 22  # a double in JSON with all its digits, and a comma
_FAR_TOO_LARGE: Final = 4


class VectorRange(NamedTuple):
    """All vectors of a namespace whose ids begin with a prefix."""

    namespace: str
    prefix: str | None = None

    @property
    def title(self) -> str:
        """What it is, for messages."""
        beginning = f" with prefix {self.prefix!r}" if self.prefix else ""
        return f"the vectors of {namespace_title(self.namespace)}{beginning}"


@dataclass
class _RangeReading:
    """One reading of a range, and the signs of a concurrent modification in it."""

    range: VectorRange
    index: int  # of the range among all
    number: int = 1  # which reading of the range it is
    cursor: str | None = FIRST  # of the next page; None at the end
    rows: int = 0  # each id once
    repeated: int = 0  # rows whose id was read before in this reading
    more: int = 0  # rows that no earlier reading had
    _seen: set[bytes] = field(default_factory=set)

    def add(self, row_ids: Sequence[bytes], is_new: Sequence[bool] | None, page: Page) -> None:
        """A page was read, with rows of these identities; `is_new` says which are new, None that all are."""
        new = len(row_ids) if is_new is None else is_new.count(True)
        if self.number > 1:
            self.more += new
            before = len(self._seen)
            self._seen.update(row_ids)
            new = len(self._seen) - before
        self.rows += new
        self.repeated += len(row_ids) - new
        self.cursor = page.cursor

    def again(self) -> _RangeReading:
        """The next reading of the range, from its start."""
        return _RangeReading(self.range, self.index, number=self.number + 1)

    @property
    def position(self) -> list[Any]:
        """What a later load needs to resume it; JSON-able."""
        return [self.range.namespace, self.range.prefix, self.number, self.cursor, self.rows, self.repeated]

    @classmethod
    def resumed(cls, read: VectorRange, index: int, position: Sequence[Any]) -> _RangeReading:
        """The reading at a position. One that compares with an earlier one begins anew."""
        if not position:
            return cls(read, index)
        number, cursor, rows, repeated = position[2:]
        if number > 1 and cursor is not None:
            return cls(read, index, number)
        return cls(read, index, number, cursor, rows, repeated)


class RangeReader:
    """Reads ranges into tables of vectors; `info` is the index's own count and dimension.

    `memory_limit` is how many bytes the rows of a page may take. Default: what there is.
    """

    def __init__(
        self,
        sender: Transport,
        limiter: SharedRateLimiter,
        state: LoadState,
        info: IndexInfo,
        options: LoadOptions,
        *,
        parts: VectorParts,
        redactor: Redactor,
        memory_limit: float | None = None,
    ) -> None:
        self._sender = sender
        self._limiter = limiter
        self._state = state
        self._info = info
        self._parts = parts
        self._masker = ColumnMasker(redactor)
        self._options = options
        self._memory_limit = memory_limit
        self._dimension = info.dimension or None
        self._pool = ThreadPoolExecutor(options.connections, thread_name_prefix="vectors")
        self._ahead: list[ReadAhead] = []
        self._positions: dict[VectorRange, list[Any]] = {}
        self._page_bytes = PAGE_BYTES
        keep_freed_buffers()

    def batches(self, ranges: Sequence[VectorRange]) -> Iterator[Batch]:
        """All rows of these ranges, a page at a time, resumed at the position of the state."""
        self._positions = {VectorRange(*entry[:2]): entry for entry in self._state.position.get("ranges", ())}
        readings = [
            _RangeReading.resumed(item, index, self._positions.get(item, ()))
            for index, item in enumerate(ranges)
        ]
        unread = [reading for reading in readings if reading.cursor is not None]
        # the more ranges are read at once, the smaller their pages: all buffers need the memory of one
        self._page_bytes = PAGE_BYTES // max(1, min(_AT_ONCE, len(unread)))
        yield from in_turn(unread, self._opened, most=_AT_ONCE)

    def stop(self) -> None:
        """End all requests, and wait until no thread is left."""
        self._limiter.stop()
        for ahead in self._ahead:
            ahead.stop()
        self._sender.close()
        self._pool.shutdown(cancel_futures=True)

    def _opened(self, reading: _RangeReading) -> Iterator[Batch]:
        """Start to read a range; its batches."""
        numbers = (self._dimension or 0) if self._parts.vectors else 0
        limit = self._options.limit
        size = PageSize(numbers, most=limit, page_bytes=self._page_bytes)
        depth = DEPTH if limit is None else min(DEPTH, math.ceil(limit / size.rows))
        ahead = ReadAhead(partial(self._request, reading.range, size), self._pool.submit, depth=depth)
        self._ahead.append(ahead)
        ahead.start(reading.cursor or FIRST)
        return self._consistent(reading, ahead, size)

    def _consistent(self, reading: _RangeReading, ahead: ReadAhead, size: PageSize) -> Iterator[Batch]:
        """The batches of a range, read again until nothing changed while it was read."""
        while True:
            following = None
            try:
                for page in walk(ahead, what=reading.range.title, first=reading.cursor):
                    batch = self._batch(reading, page, size)
                    if page.cursor is None:
                        following = self._following(reading)
                    self._positions[reading.range] = (following or reading).position
                    self._state.position = {"ranges": list(self._positions.values())}
                    yield batch
            except ResponseError as error:
                lost = is_refusal(error) and reading.cursor != FIRST
                if not lost or reading.number >= MOST_READINGS:
                    raise
                following = reading.again()
            if following is None:
                break
            self._state.reread += 1
            self._state.readings += 1
            reading = following
        self._ahead.remove(ahead)

    def _batch(self, reading: _RangeReading, page: Page, size: PageSize) -> Batch:
        self._state.count(page)
        table = decode_vectors(
            page.rows,
            page.cut,
            namespace=reading.range.namespace,
            dimension=self._dimension,
            want_vectors=self._parts.vectors,
            numbers=page.numbers,
        )
        size.learn(rows=table.num_rows, size=page.size)
        row_ids = identities(table, KEY)
        is_new = self._state.rows.add(row_ids)
        reading.add(row_ids, is_new, page)
        table = self._masker.table(table)
        return self._state.batch(table, row_ids, is_new, order=(reading.index,), reread=reading.number > 1)

    def _following(self, reading: _RangeReading) -> _RangeReading | None:
        """The next reading of the range; None when this one is the last."""
        if self._options.limit is not None:
            return None
        reason, most = "", MOST_READINGS  # what shows that vectors changed, and how many readings to try
        if reading.repeated:
            reason = f"{reading.repeated:,} were read twice"
        elif reading.more and self._options.passes > 1:
            reason = f"{reading.more:,} more were found by the last reading"
        elif missing := self._missing(reading):
            reason, most = f"{missing:,} fewer were read than the index counts", _READINGS_FOR_COUNTS
        if reading.number < (most if reason else self._options.passes):
            return reading.again()
        if reason:
            self._state.unsettled.append(f"{reason} in {reading.range.title}")
        return None

    def _missing(self, reading: _RangeReading) -> int:
        """Vectors that the index counted before and counts now, and that were not read."""
        name = reading.range.namespace
        before = self._info.namespaces.get(name, 0)
        if reading.range.prefix or self._info.pending_count or reading.rows >= before:
            return 0
        now = read_info(self._sender)
        return 0 if now.pending_count else max(0, min(before, now.namespaces.get(name, 0)) - reading.rows)

    def _request(
        self, wanted: VectorRange, size: PageSize, cursor: str, watch: Watch, refused: int = 0
    ) -> Page:
        """The page of a range at a cursor, with as many rows as make a page of the size aimed at."""
        rows = size.rows
        try:
            page = list_page(
                self._sender,
                namespace=wanted.namespace,
                cursor=cursor,
                limit=rows,
                prefix=wanted.prefix,
                parts=self._parts,
                watch=lambda body: all((watch(body), size.watch(rows, len(body)))),
            )
        except TooLargeError:
            return self._request(wanted, size, cursor, watch, refused + 1)
        check_page(page.rows, self._dimension, self._memory_limit)
        numbers = read_numbers(page.cut, self._dimension) if page.cut and self._dimension else None
        return replace(page, tries=page.tries + refused, numbers=numbers)


class TooLargeError(Exception):
    """A page whose rows are unknown is growing far beyond the aim; it is requested again with fewer rows."""


class PageSize:
    """Rows to request, learned from the pages seen. It never decides what is in a listing.

    `numbers` is how many numbers each row has, as far as is known, and `most` how many rows a page may have.
    """

    def __init__(self, numbers: int, *, most: int | None = None, page_bytes: int = PAGE_BYTES) -> None:
        self._most = min(_MOST_ROWS, most or _MOST_ROWS)
        self._page_bytes = page_bytes
        self._row_bytes = float(numbers * _NUMBER_BYTES + _TEXT_BYTES)
        self._learned = False

    @property
    def rows(self) -> int:
        """Rows to request in the next page."""
        return max(1, min(self._most, math.floor(self._page_bytes / self._row_bytes)))

    def learn(self, *, rows: int, size: int) -> None:
        """A page of so many rows and bytes was read."""
        if rows:
            self._row_bytes = max(1.0, size / rows)
            self._learned = True

    def watch(self, requested: int, arrived: int) -> bool:
        """Look at a page of `requested` rows of which so many bytes have arrived.

        True when the rest need not be checked, because rows of this listing have been seen before. Raises
        `TooLargeError` when the page is far larger than was aimed at, and fewer rows can be requested.
        """
        if self._learned:
            return True
        if requested > 1 and arrived > _FAR_TOO_LARGE * self._page_bytes:
            self._row_bytes = self._page_bytes / max(1, requested // (4 * _FAR_TOO_LARGE))
            raise TooLargeError
        return False


@dataclass(eq=False)
class _Requested:
    """A page that is being requested, and the cursor of the next one as soon as it is known."""

    cursor: str
    after: str | None = None
    page: Future[Page] = field(init=False)


class ReadAhead:
    """Returns the page at a cursor, as `walk` calls for it, while the next ones are already being requested.

    A cursor read at the head of a body decides only when a request starts: its page is used where the whole
    body names the same cursor, and thrown away where it does not. `submit` runs a request on another thread,
    as `Executor.submit` does. At most `depth` pages are being requested or buffered; with 1, none is
    requested ahead.
    """

    def __init__(
        self,
        request: Callable[[str, Watch], Page],
        submit: Callable[..., Future[Page]],
        *,
        depth: int = DEPTH,
    ) -> None:
        self._request = request
        self._submit = submit
        self._depth = depth
        self._lock = threading.Lock()
        self._requested: deque[_Requested] = deque()

    def start(self, cursor: str) -> None:
        """Request the page at this cursor and the next ones, unless that has started."""
        with self._lock:
            if not self._requested or self._requested[0].cursor != cursor:
                self._drop()
                self._begin(cursor)

    def __call__(self, cursor: str | None) -> Page:
        """The page at a cursor. The next ones are being requested when it is returned."""
        cursor = cursor or ""
        self.start(cursor)
        first = self._requested[0].page
        if first.exception() is not None:  # the next call for this page requests it again
            with self._lock:
                self._drop()
        page = first.result()
        with self._lock:
            self._requested.popleft()
            if self._requested and self._requested[0].cursor != page.cursor:
                self._drop()
            if self._requested:
                self._go_on()
            elif page.cursor is not None and self._depth > 1:
                self._begin(page.cursor)
        return page

    def stop(self) -> None:
        """Request nothing more, and drop what has been requested."""
        with self._lock:
            self._depth = 0
            self._drop()

    def _run(self, requested: _Requested) -> Page:
        def watch(body: bytearray) -> bool:
            if requested.after is None and (cursor := head_cursor(body)) is not None:
                with self._lock:
                    requested.after = cursor
                    self._go_on()
            return requested.after is not None

        return self._request(requested.cursor, watch)

    def _go_on(self) -> None:
        last = self._requested[-1] if self._requested else None
        if last is not None and last.after is not None and len(self._requested) < self._depth:
            self._begin(last.after)

    def _begin(self, cursor: str) -> None:
        requested = _Requested(cursor)
        self._requested.append(requested)
        requested.page = self._submit(self._run, requested)

    def _drop(self) -> None:
        for requested in self._requested:
            requested.page.cancel()
        self._requested.clear()


def in_turn(listings: Iterable[T], opened: Callable[[T], Iterator[P]], *, most: int) -> Iterator[P]:
    """Pages of several listings in turn, one of each, so that the order does not depend on who is quicker.

    `opened` starts to read a listing, and returns its pages; it is called for up to `most` listings ahead.

    >>> list(in_turn(["abc", "d", "ef"], iter, most=2))
    ['a', 'd', 'b', 'c', 'e', 'f']
    """
    waiting = iter(listings)
    open_: deque[Iterator[P]] = deque()
    while True:
        open_.extend(map(opened, islice(waiting, most - len(open_))))
        if not open_:
            return
        pages = open_.popleft()
        for page in pages:
            open_.append(pages)
            yield page
            break

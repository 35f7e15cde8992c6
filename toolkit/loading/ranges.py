"""Read ranges of vectors: several in turn, with pages requested ahead.

A range contains all vectors of a namespace with ids that begin with a prefix. The next cursor is at the start
of a page, so that the next request starts while the body still arrives. A range is read again if vectors
changed while it was read: an id was repeated, a cursor expired, or there were fewer vectors than the index
counts.
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

from toolkit.base.errors import ResponseError
from toolkit.loading.identities import identities
from toolkit.loading.load import Batch, LoadState
from toolkit.loading.memory import check_page, keep_freed_buffers
from toolkit.loading.options import LoadOptions
from toolkit.loading.paging import MOST_READINGS, is_refusal, walk
from toolkit.loading.rate_limiter import SharedRateLimiter
from toolkit.secrets.redaction import Redactor
from toolkit.service.pages import Page, head_cursor
from toolkit.service.transport import Transport
from toolkit.service.vectors import (
    IndexInfo,
    VectorParts,
    list_page,
    namespace_title,
    read_info,
)
from toolkit.tables.floats import read_numbers
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.vectors import decode_vectors

T = TypeVar("T")
P = TypeVar("P")
Watch = Callable[[bytearray], bool]
"""Called with a body as it arrives. Returns True if it does not need more of it."""

KEY: Final = ("namespace", "id")
"""Columns that identify a vector."""

FIRST: Final = "0"
"""Cursor of the first page of a range."""

PAGE_BYTES: Final = 8 << 20
"""Target size of a page. It is large compared to the latency of a request, and small compared to memory."""

DEPTH: Final = 3
"""Maximum number of pages of a range that are being requested or wait for the reader."""

_AT_ONCE: Final = 4  # ranges read in turn
# counts can be late, so a difference is no reason to read many times
_READINGS_FOR_COUNTS: Final = 2
_MOST_ROWS: Final = 1000
_TEXT_BYTES: Final = 4 << 10  # metadata and data of a row, before any has been seen
_NUMBER_BYTES: Final = 22  # a double in JSON with all its digits, and a comma
_FAR_TOO_LARGE: Final = 4


class VectorRange(NamedTuple):
    """All vectors of a namespace with ids that begin with a prefix."""

    namespace: str
    prefix: str | None = None

    @property
    def title(self) -> str:
        """Return a name for messages."""
        beginning = ""
        if self.prefix:
            beginning = f" with prefix {self.prefix!r}"
        return f"the vectors of {namespace_title(self.namespace)}{beginning}"


@dataclass
class _RangeReading:
    """One reading of a range, with the signs that vectors changed during it."""

    range: VectorRange
    index: int  # position of the range
    number: int = 1  # number of this reading, from 1
    cursor: str | None = FIRST  # cursor of the next page; None at the end
    rows: int = 0  # different ids
    repeated: int = 0  # rows with an id that was read before in this reading
    more: int = 0  # rows that no earlier reading had
    _seen: set[bytes] = field(default_factory=set)

    def add(
        self, row_ids: Sequence[bytes], is_new: Sequence[bool] | None, page: Page
    ) -> None:
        """Count the rows of a page. `is_new` contains which rows are new, or is None if all are."""
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
        """Return the next reading of the range, from the start."""
        return _RangeReading(self.range, self.index, number=self.number + 1)

    @property
    def position(self) -> list[Any]:
        """Return the progress as JSON values, for checkpoints."""
        return [
            self.range.namespace,
            self.range.prefix,
            self.number,
            self.cursor,
            self.rows,
            self.repeated,
        ]

    @classmethod
    def resumed(
        cls, read: VectorRange, index: int, position: Sequence[Any]
    ) -> _RangeReading:
        """Return the reading at a position.

        A second reading starts again, because it compares with the first.
        """
        if not position:
            return cls(read, index)

        number, cursor, rows, repeated = position[2:]
        if number > 1 and cursor is not None:
            return cls(read, index, number)

        return cls(read, index, number, cursor, rows, repeated)


class RangeReader:
    """Read ranges into tables of vectors. `info` contains the counts and the dimension of the index.

    `memory_limit` is the number of bytes that the rows of a page may take. Default: the available memory.
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
        self._pool = ThreadPoolExecutor(
            options.connections, thread_name_prefix="vectors"
        )
        self._ahead: list[ReadAhead] = []
        self._positions: dict[VectorRange, list[Any]] = {}
        self._page_bytes = PAGE_BYTES
        keep_freed_buffers()

    def batches(self, ranges: Sequence[VectorRange]) -> Iterator[Batch]:
        """Yield all rows of these ranges, page by page, starting at the position of the state."""
        self._positions = {
            VectorRange(*entry[:2]): entry
            for entry in self._state.position.get("ranges", ())
        }
        readings = [
            _RangeReading.resumed(item, index, self._positions.get(item, ()))
            for index, item in enumerate(ranges)
        ]
        unread = [reading for reading in readings if reading.cursor is not None]
        # Several ranges share the memory of one: the more are read at once, the smaller the pages.
        self._page_bytes = PAGE_BYTES // max(1, min(_AT_ONCE, len(unread)))
        yield from in_turn(unread, self._opened, most=_AT_ONCE)

    def stop(self) -> None:
        """End all requests, and join all threads."""
        self._limiter.stop()
        for ahead in self._ahead:
            ahead.stop()
        self._sender.close()
        self._pool.shutdown(cancel_futures=True)

    def _opened(self, reading: _RangeReading) -> Iterator[Batch]:
        """Start to read a range. Return the batches."""
        numbers = 0
        if self._parts.vectors:
            numbers = self._dimension or 0
        limit = self._options.limit
        size = PageSize(numbers, most=limit, page_bytes=self._page_bytes)
        depth = DEPTH
        if limit is not None:
            depth = min(DEPTH, math.ceil(limit / size.rows))
        ahead = ReadAhead(
            partial(self._request, reading.range, size), self._pool.submit, depth=depth
        )
        self._ahead.append(ahead)
        ahead.start(reading.cursor or FIRST)

        return self._consistent(reading, ahead, size)

    def _consistent(
        self, reading: _RangeReading, ahead: ReadAhead, size: PageSize
    ) -> Iterator[Batch]:
        """Yield the batches of a range. Read it again until no vectors change while it is read."""
        while True:
            following = None
            try:
                for page in walk(ahead, what=reading.range.title, first=reading.cursor):
                    batch = self._batch(reading, page, size)
                    # Before the batch is yielded: a checkpoint of the last page already has the position of
                    # the next reading.
                    if page.cursor is None:
                        following = self._following(reading)
                    self._positions[reading.range] = (following or reading).position
                    self._state.position = {"ranges": list(self._positions.values())}
                    yield batch
            except ResponseError as error:
                # if the first page is refused, the cursor is not the reason
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

        return self._state.batch(
            table, row_ids, is_new, order=(reading.index,), reread=reading.number > 1
        )

    def _following(self, reading: _RangeReading) -> _RangeReading | None:
        """Return the next reading of the range, or None if this reading is the last."""
        if self._options.limit is not None:
            return None

        problem = ""
        readings = self._options.passes

        missing = 0
        if reading.repeated:
            problem, readings = f"{reading.repeated:,} were read twice", MOST_READINGS
        elif reading.more and self._options.passes > 1:
            problem, readings = (
                f"{reading.more:,} more were found by the last reading",
                MOST_READINGS,
            )
        else:
            missing = self._missing(reading)

        if missing:
            problem, readings = (
                f"{missing:,} fewer were read than the index counts",
                _READINGS_FOR_COUNTS,
            )

        if reading.number < readings:
            return reading.again()

        if problem:
            self._state.unsettled.append(f"{problem} in {reading.range.title}")
        return None

    def _missing(self, reading: _RangeReading) -> int:
        """Return the number of vectors that the index counted before and after and that were not read."""
        name = reading.range.namespace
        before = self._info.namespaces.get(name, 0)
        if reading.range.prefix or self._info.pending_count or reading.rows >= before:
            return 0

        now = read_info(self._sender)
        if now.pending_count:
            return 0

        # Vectors that come or go during the reading change the count. Only the smaller count must be reached.
        counted = min(before, now.namespaces.get(name, 0))
        return max(0, counted - reading.rows)

    def _request(
        self,
        wanted: VectorRange,
        size: PageSize,
        cursor: str,
        watch: Watch,
        refused: int = 0,
    ) -> Page:
        """Return the page of a range at a cursor, with rows for a page of the target size."""
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
        numbers = None
        if page.cut and self._dimension:
            numbers = read_numbers(page.cut, self._dimension)
        return replace(page, tries=page.tries + refused, numbers=numbers)


class TooLargeError(Exception):
    """A page with rows of unknown size grows far beyond the target size.

    It is requested again with fewer rows.
    """


class PageSize:
    """Number of rows to request, learned from the pages read. It never decides which rows are in a listing.

    `numbers` is the number of numbers per row, if known, and `most` is the maximum number of rows of a page.
    """

    def __init__(
        self, numbers: int, *, most: int | None = None, page_bytes: int = PAGE_BYTES
    ) -> None:
        self._most = min(_MOST_ROWS, most or _MOST_ROWS)
        self._page_bytes = page_bytes
        self._row_bytes = float(numbers * _NUMBER_BYTES + _TEXT_BYTES)
        self._learned = False

    @property
    def rows(self) -> int:
        """Return the number of rows to request in the next page."""
        return max(1, min(self._most, math.floor(self._page_bytes / self._row_bytes)))

    def learn(self, *, rows: int, size: int) -> None:
        """Record the number of rows and bytes of a page."""
        if rows:
            self._row_bytes = max(1.0, size / rows)
            self._learned = True

    def watch(self, requested: int, arrived: int) -> bool:
        """Check the bytes of a page that have arrived, for a page of `requested` rows.

        Return True if the rest need not be checked, because the size of the rows is known. Raise
        `TooLargeError` if the page is far larger than the target, and fewer rows can be requested.
        """
        if self._learned:
            return True

        if requested > 1 and arrived > _FAR_TOO_LARGE * self._page_bytes:
            # Ask for a sixteenth of the rows: the page was more than four times too large, and is not
            # complete yet.
            self._row_bytes = self._page_bytes / max(
                1, requested // (4 * _FAR_TOO_LARGE)
            )
            raise TooLargeError

        return False


@dataclass(eq=False)
class _Requested:
    """A page that is being requested, and the cursor of the next page as soon as it is known."""

    cursor: str
    after: str | None = None
    page: Future[Page] = field(init=False)


class ReadAhead:
    """Return the page at a cursor, as `walk` calls for it, while the next pages are being requested.

    The cursor at the start of a body only decides when the next request starts. The page is used if the
    complete body names the same cursor, and dropped if it does not. `submit` runs a request on another
    thread, as `Executor.submit` does. At most `depth` pages are being requested or buffered; with 1, no page
    is requested ahead.
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
        """Request the page at this cursor and the next pages, unless this has started already."""
        with self._lock:
            if not self._requested or self._requested[0].cursor != cursor:
                self._drop()
                self._begin(cursor)

    def __call__(self, cursor: str | None) -> Page:
        """Return the page at a cursor. The next pages are being requested when this returns."""
        cursor = cursor or ""
        self.start(cursor)

        first = self._requested[0].page
        # This waits for the page, and must not have the lock: `watch` needs it to request the next page.
        if first.exception() is not None:
            # the next call for this page requests it again
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
        """Request no more pages, and drop the requested ones."""
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
        last = None
        if self._requested:
            last = self._requested[-1]
        if (
            last is not None
            and last.after is not None
            and len(self._requested) < self._depth
        ):
            self._begin(last.after)

    def _begin(self, cursor: str) -> None:
        requested = _Requested(cursor)
        self._requested.append(requested)
        requested.page = self._submit(self._run, requested)

    def _drop(self) -> None:
        for requested in self._requested:
            requested.page.cancel()
        self._requested.clear()


def in_turn(
    listings: Iterable[T], opened: Callable[[T], Iterator[P]], *, most: int
) -> Iterator[P]:
    """Yield one page of each listing in turn, so that the order does not depend on the speed.

    `opened` starts to read a listing and returns the pages. It is called for up to `most` listings ahead.

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
        # only one page; an iterator at its end is not appended again
        for page in pages:
            open_.append(pages)
            yield page
            break

"""A listing with dates, read in windows: threads that fetch pages, and the batches made of what they fetch.

The threads send requests, and look at a page's envelope; all else is done by the consumer's thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from toolkit.client.pages import Page
from toolkit.client.transport import Transport
from toolkit.errors import MalformedResponseError, ResponseError
from toolkit.loading.consistency import Partition
from toolkit.loading.identities import EntryRecognizer, PartlyStored, identities_of
from toolkit.loading.load import Batch, Work
from toolkit.loading.memory import keep_freed_buffers
from toolkit.loading.options import LoadOptions
from toolkit.loading.paging import is_refusal
from toolkit.loading.rate_limiter import LoadStopped, SharedRateLimiter
from toolkit.loading.windows import FetchResult, Outcome, Span, Window, WindowPlanner

_MOST_PAGES: Final = 96  # buffered or being requested, while as many may be decoded
_MOST_BYTES: Final = 32 << 20  # of buffered pages
_HANDFUL: Final = 16  # pages that are worth a decoder's while, where the others may take long
_FIRST_PAGES: Final = 2  # passed on one by one, so that a short listing or its first rows show early
_PATIENCE: Final = 0.05  # seconds to wait for more than a few pages
_MALFORMED_RETRIES: Final = 2
_MOST_SOUGHT: Final = 20  # rows that are requested one by one, when they did not come again after a split
_OVERLAP = "entries were in two windows of time"
_NO_DATES = "the service did not take the dates of a window of time"
_NOT_SEEN = "existing entries were in no window of time"
_MANY_NOT_SEEN = f"more than {_MOST_SOUGHT} existing entries were in no window of time"


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A listing with dates.

    `tables` makes a table of the rows of each of several pages. At the first page that turns out to be
    malformed it raises `MalformedResponseError`, after the tables of those before it.
    """

    span: Span  # its first and last millisecond, where it is bounded
    page: Callable[[Transport, Window], Page]  # a window's next page
    tables: Callable[[Sequence[bytes]], Iterator[pa.Table]]
    exists: Callable[[Transport, str], bool]  # whether there is an entry with this id
    key: str  # the column of the id
    recognizer: EntryRecognizer | None = None


class WindowReader:
    """Reads a listing in windows, with a load's options; under a limit, nothing is split or read ahead."""

    def __init__(
        self,
        listing: Listing,
        work: Work,
        transport: Transport,
        limiter: SharedRateLimiter | None,
        options: LoadOptions,
    ) -> None:
        self._listing = listing
        self._work = work
        self._transport = transport
        self._limiter = limiter
        ahead = options.limit is None
        self._partition = Partition(listing.span, work, passes=options.passes if ahead else 1, splits=ahead)
        self._fetcher = WindowFetcher(
            WindowPlanner(
                self._partition.windows, connections=options.connections, now=int(time.time() * 1000)
            ),
            lambda window: listing.page(transport, window),
            connections=options.connections,
            limiter=limiter,
            ahead=ahead,
        )
        keep_freed_buffers()

    def batches(self) -> Generator[Batch]:
        """The rows, as they arrive. However this ends, no thread of it is left."""
        try:
            while results := self._next():
                decoded = self._decoded([result for result in results if result.page])
                for result in results:
                    consistent = True
                    if result.page is None:
                        consistent = self._read_again(result)
                    else:
                        batch, consistent = self._batch(result, result.page, *next(decoded))
                        yield batch
                    if not consistent:
                        break  # all else that has arrived will come again
        finally:
            self._fetcher.stop()
            if self._limiter is not None:
                self._limiter.stop()
            self._transport.close()
            self._fetcher.join()

    def _next(self) -> list[FetchResult]:
        """What has arrived, or what arrives when reading once more; nothing when all is done."""
        while True:
            if results := self._fetcher.take():
                return results
            if reason := self._missing():
                self._fall_back(reason)
            elif following := self._partition.next_pass():
                self._fetcher.add(following)
            else:
                return []

    def _missing(self) -> str | None:
        """What is wrong with the windows, if rows that were read before a split were not read again."""
        awaited = self._partition.awaited
        if len(awaited) > _MOST_SOUGHT:
            return _MANY_NOT_SEEN
        for dlq_id in awaited.values():
            self._work.requests += 1
            if self._listing.exists(self._transport, dlq_id):
                return _NOT_SEEN
        awaited.clear()
        return None

    def _batch(
        self, result: FetchResult, page: Page, partly: PartlyStored | None, table: pa.Table
    ) -> tuple[Batch, bool]:
        """The batch of a page, and whether the page is consistent with the windows."""
        window, rows = result.window, self._work.rows
        self._work.count(page)
        if partly and partly.stored and not rows.are_new(partly.identities):
            # some were on a page in between: compare with the later version
            partly, (table,) = None, self._listing.tables([page.rows])
        ids = partly.ids if partly else table[self._listing.key].to_pylist()
        row_ids = partly.identities if partly else identities_of(ids)
        fresh = rows.add(row_ids)
        repeated = self._partition.repeated(window)
        consistent = self._partition.take(result, row_ids, ids, fresh)
        reread = self._partition.repeated(window) == repeated or window.again
        if not consistent:
            self._fall_back(_NO_DATES if window.probe else _OVERLAP)
        elif result.outcome == "end" and (again := self._partition.ended(window)):
            self._fetcher.add([again])
        self._work.position = self._partition.position
        order = (float("-inf") if window.last is None else -window.last,)
        if partly is None:
            return self._work.batch(table, row_ids, fresh, order=order, reread=reread), consistent
        if partly.stored:
            row_ids, fresh = partly.fresh, None
        batch = self._work.batch(
            table, row_ids, fresh, order=order, digests=partly.digests, stored=partly.stored, reread=reread
        )
        return batch, consistent

    def _decoded(self, results: Sequence[FetchResult]) -> Iterator[tuple[PartlyStored | None, pa.Table]]:
        """What is stored of each page, where that is known, and a table of all else."""
        pages = [result.page.rows for result in results if result.page]
        partly: list[PartlyStored | None] = [None] * len(pages)
        if self._work.is_stored is not None and self._listing.recognizer is not None:
            are_new, is_stored = self._work.rows.are_new, self._work.is_stored
            partly = list(self._listing.recognizer.recognise(pages, are_new=are_new, is_stored=is_stored))
        rows = [item.rows if item else page for page, item in zip(pages, partly, strict=True)]
        done = retries = 0
        while done < len(rows):
            try:
                for table in self._listing.tables(rows[done:]):
                    yield partly[done], table
                    done, retries = done + 1, 0
            except MalformedResponseError as error:
                retries += 1
                if retries > _MALFORMED_RETRIES:
                    raise
                partly[done], rows[done] = None, self._requested_again(results[done], error)

    def _requested_again(self, result: FetchResult, error: MalformedResponseError) -> bytes:
        page = self._listing.page(self._transport, Window(*result.window.span, cursor=result.requested))
        self._work.requests += page.tries
        if page.cursor != result.cursor:
            raise error  # the cursor of the malformed page cannot be trusted, nor what was read from there
        return page.rows

    def _read_again(self, result: FetchResult) -> bool:
        """Handle a request that the service refused; whether the other windows are still of use."""
        self._work.requests += 1
        if result.outcome == "lost" and result.error is not None:
            self._fetcher.add([self._partition.lost(result.window, result.error)])
            return True
        self._fall_back(_NO_DATES)
        return False

    def _fall_back(self, reason: str) -> None:
        self._fetcher.only(self._partition.fall_back(reason))


class WindowFetcher:
    """Fetches all pages of windows into a bounded queue, on threads of its own.

    `connections` is the most requests at a time. A limiter says how many may run concurrently, and
    whether more would gain anything. With `ahead`, pages are fetched before the consumer requests them.

    Where responses come at once, pages are fetched only while the consumer waits for many of them: the
    threads would take the interpreter's lock from it, and what that costs is more than is waited.
    """

    def __init__(
        self,
        planner: WindowPlanner,
        fetch: Callable[[Window], Page],
        *,
        connections: int,
        limiter: SharedRateLimiter | None = None,
        ahead: bool = True,
    ) -> None:
        self._planner = planner
        self._fetch = fetch
        self._connections = connections
        self._limiter = limiter
        self._taken = 0
        self._ahead = ahead
        self._arrival = threading.Condition()  # there is something to take; its lock guards all that follows
        self._ready: deque[FetchResult] = deque()
        self._ready_bytes = 0
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="toolkit-reading")
        self._consumer_waits = False
        self._error: BaseException | None = None
        self._stopped = False

    def take(self) -> list[FetchResult]:
        """The results that have arrived, in order; waits for one, and returns none at the end."""
        with self._arrival:
            self._consumer_waits = True
            self._request_pages()
            waited = False
            while not self._enough(waited=waited):
                ready = len(self._ready)
                notified = self._arrival.wait(_PATIENCE if ready else None)
                waited = not notified and len(self._ready) == ready
            self._consumer_waits = False
            self._taken += len(self._ready)
            taken = list(self._ready)
            self._ready.clear()
            self._ready_bytes = 0
            if not taken and self._error is not None:
                raise self._error
            self._request_pages()
            return taken

    def add(self, windows: Iterable[Window]) -> None:
        """Read these, too."""
        with self._arrival:
            self._planner.add(windows)
            self._request_pages()

    def only(self, window: Window) -> None:
        """Read this one, and none of the others."""
        with self._arrival:
            self._planner.drop_all()
            self._ready.clear()
            self._ready_bytes = 0
            self._planner.add([window])
            self._request_pages()

    def stop(self) -> None:
        """Send no more requests."""
        with self._arrival:
            self._stopped = True

    def join(self) -> None:
        """Wait for the threads to end; after `stop`, and after their connections were closed."""
        self._threads.shutdown(cancel_futures=True)

    def _enough(self, *, waited: bool) -> bool:
        busy = self._planner.busy and self._error is None
        if not busy and (self._error is not None or not self._planner.available):
            return True
        at_once = not self._ahead or self._taken < _FIRST_PAGES
        if at_once or waited or not self._ready:
            return bool(self._ready)
        enough = 2 * _MOST_PAGES if self._alternates else _HANDFUL
        return len(self._ready) >= enough or self._ready_bytes > _MOST_BYTES

    @property
    def _alternates(self) -> bool:
        """Whether pages are fetched only while the consumer waits: twice as many, as none is decoded then."""
        return self._limiter is not None and self._limiter.is_immediate

    def _free(self) -> int:
        """How many more requests may be sent now; the lock is held, here and below."""
        if self._stopped or self._error is not None or self._ready_bytes > _MOST_BYTES:
            return 0
        if not self._ahead:
            return int(self._consumer_waits and not self._ready and not self._planner.busy)
        most = _MOST_PAGES
        if self._alternates:
            most = 2 * _MOST_PAGES if self._consumer_waits else 0
        width = self._limiter.width if self._limiter else self._connections
        return max(0, min(width, most - len(self._ready)) - self._planner.busy)

    def _request_pages(self) -> None:
        """Request as many pages as may be requested now."""
        for _ in range(min(self._free(), self._planner.available)):
            self._threads.submit(self._run, self._planner.next())

    def _run(self, window: Window | None) -> None:
        """Fetch a page, and the next ones, as long as there are some to request."""
        while window is not None:
            page, error = None, None
            try:
                page = self._fetch(window)
            except LoadStopped:
                return
            except BaseException as raised:  # noqa: BLE001 - raised again by `take`, on the consumer's thread
                error = raised
            with self._arrival:
                if window.dropped or page is None:
                    self._planner.release(window)
                if not window.dropped and page is not None:
                    self._arrived(window, page)
                elif not window.dropped and error is not None:
                    self._failed(window, error)
                window = self._planner.next() if self._free() and self._planner.available else None
                self._request_pages()
                if len(self._ready) == 1 or self._enough(waited=False):
                    self._arrival.notify()

    def _arrived(self, window: Window, page: Page) -> None:
        requested = window.cursor
        try:
            free = self._free() + 1 if self._limiter is None or self._limiter.is_delaying else None
            outcome = self._planner.arrived(window, page, free=free)
        except Exception as error:  # noqa: BLE001 - raised by `take`; the page itself is good
            self._error, outcome = error, "more"
        self._ready.append(
            FetchResult(window, outcome, page, window.cursor, window.pages, requested=requested)
        )
        self._ready_bytes += page.size

    def _failed(self, window: Window, error: BaseException) -> None:
        at_start = window.cursor is None
        if isinstance(error, ResponseError) and is_refusal(error) and not (at_start and window.whole):
            outcome: Outcome = "refused" if at_start else "lost"
            self._ready.append(FetchResult(window, outcome, error=error))
        else:
            self._error = self._error or error

"""The DLQ, read in windows: threads that fetch pages, and the batches made of what they fetch.

The threads send requests, and look at a page's envelope; all else is done by the consumer's thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa

from toolkit.client.failures import PAGE_LIMIT, Kind, get_entry, list_page
from toolkit.client.pages import Page
from toolkit.client.transport import Transport
from toolkit.errors import NotFoundError, ResponseError
from toolkit.filters.failure import FailureFilter
from toolkit.loading.consistency import Partition
from toolkit.loading.identities import EntryRecognizer, PartlyStored, identities_of
from toolkit.loading.load import Batch, LoadState
from toolkit.loading.memory import keep_freed_buffers
from toolkit.loading.options import LoadOptions
from toolkit.loading.paging import is_refusal
from toolkit.loading.rate_limiter import LoadStopped, SharedRateLimiter
from toolkit.loading.windows import FetchResult, Window, WindowPlanner
from toolkit.own_tokens import MASK
from toolkit.redaction import Redactor
from toolkit.tables.failures import FailureDecoder, Keep
from toolkit.times import milliseconds

_MOST_PAGES: Final = 96  # buffered or being requested, while as many may be decoded
_MOST_BYTES: Final = 32 << 20  # of buffered pages
_MIN_BATCH_PAGES: Final = 16  # pages that are worth a decoder's while, where the others may take long
_FIRST_PAGES: Final = 2  # passed on one by one, so that a short listing or its first rows show early
_BATCH_TIMEOUT: Final = 0.05  # seconds to wait for more than a few pages
_MOST_SOUGHT: Final = 20  # rows that are requested one by one, when they did not come again after a split
_OVERLAP = "entries were in two time windows"
_NO_DATES = "the service ignored the dates of a time window"
_NOT_SEEN = "existing entries were in no time window"
_MANY_NOT_SEEN = f"more than {_MOST_SOUGHT} existing entries were in no time window"


class WindowReader:
    """Reads the DLQ in windows, with a load's options; under a limit, nothing is split or read ahead.

    With `keep`, only entries for which it returns true are kept.
    """

    def __init__(
        self,
        state: LoadState,
        wanted: FailureFilter,
        transport: Transport,
        limiter: SharedRateLimiter,
        options: LoadOptions,
        *,
        kind: Kind,
        redactor: Redactor | None,
        keep: Keep | None = None,
    ) -> None:
        self._state = state
        self._transport = transport
        self._limiter = limiter
        self._kind = kind
        self._keep = keep
        self._decoder = FailureDecoder(redactor, keep=self._kept if keep else None)
        # where entries are left out, a page has more of them than its table has rows
        self._recognizer = EntryRecognizer(redactor) if redactor and keep is None else None
        ahead = options.limit is None
        since, until = (None if at is None else milliseconds(at) for at in (wanted.since, wanted.until))
        self._partition = Partition(
            (since, until), state, passes=options.passes if ahead else 1, splits=ahead
        )
        count = PAGE_LIMIT if options.limit is None else min(options.limit, PAGE_LIMIT)

        def fetch_page(window: Window) -> Page:
            span, cursor = window.span, window.cursor
            return list_page(transport, wanted, cursor=cursor, span=span, kind=kind, count=count)

        now = int(time.time() * 1000)
        self._fetcher = WindowFetcher(
            WindowPlanner(self._partition.windows, connections=options.connections, now=now),
            fetch_page,
            connections=options.connections,
            limiter=limiter,
            ahead=ahead,
        )
        keep_freed_buffers()

    def batches(self) -> Generator[Batch]:
        """The rows, as they arrive. However this ends, no thread of it is left."""
        try:
            while results := self._fetcher.take() or self._further():
                decoded = self._decoded([result.page.rows for result in results if result.page])
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
            self._limiter.stop()
            self._transport.close()
            self._fetcher.join()

    def _further(self) -> list[FetchResult]:
        """What arrives of a further reading, when all windows were read; nothing when there is none.

        Everything is read again where rows that were read before a window was split did not come again.
        """
        not_seen = self._partition.not_seen_again
        if len(not_seen) > _MOST_SOUGHT:
            self._fall_back(_MANY_NOT_SEEN)
        elif any(map(self._exists, not_seen.values())):
            self._fall_back(_NOT_SEEN)
        else:
            not_seen.clear()
            self._fetcher.add(self._partition.next_pass())
        return self._fetcher.take()

    def _exists(self, dlq_id: str) -> bool:
        """Whether there is an entry with this id; of a masked one, which cannot be requested, always."""
        self._state.requests += 1
        if MASK.search(dlq_id):
            return True
        try:
            get_entry(self._transport, dlq_id, kind=self._kind)
        except NotFoundError:
            return False
        return True

    def _kept(self, entry: dict[str, Any]) -> bool:
        kept = self._keep is None or self._keep(entry)
        if not kept:
            self._state.filtered_here += 1
            self._state.filtered_identities += identities_of([repr(entry.get("dlqId"))])
        return kept

    def _batch(
        self, result: FetchResult, page: Page, recognized: PartlyStored | None, table: pa.Table
    ) -> tuple[Batch, bool]:
        """The batch of a page, and whether the page is consistent with the windows."""
        window, rows = result.window, self._state.rows
        self._state.count(page)
        if recognized and recognized.stored and not rows.are_new(recognized.identities):
            # some were on a page in between: compare with the later version
            recognized, (table,) = None, self._decoder.tables([page.rows])
        ids = recognized.ids if recognized else table["dlq_id"].to_pylist()
        row_ids = recognized.identities if recognized else identities_of(ids)
        is_new = rows.add(row_ids)
        repeated = window.repeated
        consistent = self._partition.take(result, row_ids, ids, is_new)
        reread = window.repeated == repeated or window.again
        if not consistent:
            self._fall_back(_NO_DATES if window.probe else _OVERLAP)
        elif result.outcome == "end" and (again := self._partition.ended(window)):
            self._fetcher.add([again])
        self._state.position = self._partition.position
        known: dict[str, Any] = {}
        if recognized is not None:
            known = {"digests": recognized.digests, "stored": recognized.stored}
            if recognized.stored:
                row_ids, is_new = recognized.new, None
        order = (float("-inf") if window.last is None else -window.last,)
        return self._state.batch(table, row_ids, is_new, order=order, reread=reread, **known), consistent

    def _decoded(self, pages: Sequence[bytes]) -> Iterator[tuple[PartlyStored | None, pa.Table]]:
        """What is stored of each page, where that is known, and a table of all else."""
        recognized: list[PartlyStored | None] = [None] * len(pages)
        if self._state.is_stored is not None and self._recognizer is not None:
            are_new, is_stored = self._state.rows.are_new, self._state.is_stored
            recognized = list(self._recognizer.recognize(pages, are_new=are_new, is_stored=is_stored))
        rows = [item.rows if item else page for page, item in zip(pages, recognized, strict=True)]
        return zip(recognized, self._decoder.tables(rows), strict=True)

    def _read_again(self, result: FetchResult) -> bool:
        """Handle a request that the service refused; whether the other windows are still of use."""
        self._state.requests += 1
        if result.outcome == "lost" and result.error is not None:
            self._fetcher.add([self._partition.lost(result.window, result.error)])
            return True
        self._fall_back(_NO_DATES)
        return False

    def _fall_back(self, reason: str) -> None:
        self._fetcher.replace_all(self._partition.fall_back(reason))


class WindowFetcher:
    """Fetches all pages of windows into a bounded queue, on threads of its own.

    `connections` is the most requests at a time. A limiter says how many may run concurrently, and
    whether more would gain anything. With `ahead`, pages are fetched before the consumer requests them.

    Where responses come at once, pages are fetched only while the consumer waits for many of them: the
    threads would compete with it for the GIL, which costs more than the wait they save.
    """

    def __init__(
        self,
        planner: WindowPlanner,
        fetch: Callable[[Window], Page],
        *,
        connections: int,
        limiter: SharedRateLimiter,
        ahead: bool = True,
    ) -> None:
        self._planner = planner
        self._fetch = fetch
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
                notified = self._arrival.wait(_BATCH_TIMEOUT if ready else None)
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

    def replace_all(self, window: Window) -> None:
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
        enough = 2 * _MOST_PAGES if self._alternates else _MIN_BATCH_PAGES
        return len(self._ready) >= enough or self._ready_bytes > _MOST_BYTES

    @property
    def _alternates(self) -> bool:
        """Whether pages are fetched only while the consumer waits: twice as many, as none is decoded then."""
        return self._limiter.is_immediate

    def _free(self) -> int:
        """How many more requests may be sent now; the lock is held, here and below."""
        if self._stopped or self._error is not None or self._ready_bytes > _MOST_BYTES:
            return 0
        if not self._ahead:
            return int(self._consumer_waits and not self._ready and not self._planner.busy)
        most = _MOST_PAGES
        if self._alternates:
            most = 2 * _MOST_PAGES if self._consumer_waits else 0
        return max(0, min(self._limiter.width, most - len(self._ready)) - self._planner.busy)

    def _request_pages(self) -> None:
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
                if not window.dropped:
                    self._record(window, page, error)
                window = self._planner.next() if self._free() and self._planner.available else None
                self._request_pages()
                if len(self._ready) == 1 or self._enough(waited=False):
                    self._arrival.notify()

    def _record(self, window: Window, page: Page | None, error: BaseException | None) -> None:
        """Add a page, or why there is none, to what is ready."""
        requested = window.cursor
        if page is not None:
            try:
                free = self._free() + 1 if self._limiter.is_delaying else None
                outcome = self._planner.arrived(window, page, free=free)
            except Exception as raised:  # noqa: BLE001 - raised by `take`; the page itself is good
                self._error, outcome = raised, "more"
            self._ready.append(FetchResult(window, outcome, page, window.cursor, window.pages))
            self._ready_bytes += page.size
        elif isinstance(error, ResponseError) and is_refusal(error) and (requested or not window.whole):
            outcome = "lost" if requested else "refused"
            self._ready.append(FetchResult(window, outcome, error=error))
        else:
            self._error = self._error or error

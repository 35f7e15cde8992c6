"""Read the DLQ in windows: threads fetch pages, and the consumer makes batches of them.

The threads send requests and read the envelope of each page. Everything else runs on the thread of the
consumer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa

from toolkit.base.errors import NotFoundError, ResponseError
from toolkit.base.own_tokens import MASK
from toolkit.base.times import unix_milliseconds
from toolkit.filters.failure import FailureFilter
from toolkit.loading.consistency import Partition
from toolkit.loading.identities import EntryRecognizer, PartlyStored, identities_of
from toolkit.loading.load import Batch, LoadState
from toolkit.loading.memory import keep_freed_buffers
from toolkit.loading.options import LoadOptions
from toolkit.loading.paging import is_refusal
from toolkit.loading.rate_limiter import LoadStopped, SharedRateLimiter
from toolkit.loading.window_states import WindowState
from toolkit.loading.windows import FetchResult, Outcome, Window, WindowPlanner
from toolkit.secrets.redaction import Redactor
from toolkit.service.failures import PAGE_LIMIT, Kind, get_entry, list_page
from toolkit.service.pages import Page
from toolkit.service.transport import Transport
from toolkit.tables.failures import FailureDecoder, Keep


@dataclass(frozen=True)
class ReaderTuning:
    """Constants of the reader, with the reasons."""

    most_pages: int = 96
    """Pages that are buffered or requested while as many are decoded."""
    most_bytes: int = 32 << 20
    """Bytes of buffered pages, so that large pages do not fill the memory."""
    batch_pages: int = 16
    """Fewer pages are not decoded while more are expected, because each call costs."""
    first_pages: int = 2
    """Pages that are passed on one by one, so that the first rows show early."""
    batch_timeout: float = 0.05
    """Seconds to wait for more than a few pages."""
    most_sought: int = 20
    """Rows that are requested by id if they did not come again after a split."""


TUNING: Final = ReaderTuning()


_OVERLAP: Final = "entries were in two time windows"
_NO_DATES: Final = "the service ignored the dates of a time window"
_NOT_SEEN: Final = "existing entries were in no time window"
_MANY_NOT_SEEN: Final = (
    f"more than {TUNING.most_sought} existing entries were in no time window"
)


class WindowReader:
    """Read the DLQ in windows, with the options of a load. With a limit, nothing is split or read ahead.

    With `keep`, only entries for which it returns True are kept.
    """

    def __init__(
        self,
        state: LoadState,
        filter: FailureFilter,  # noqa: A002 - as in `load_failures`
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
        self._service_time: int | None = None
        self._decoder = FailureDecoder(
            redactor, keep=self._kept if keep else None, clock=self._time_of_loading
        )
        self._recognizer: EntryRecognizer | None = None
        # With `keep`, a page has more entries than the table has rows, so rows cannot be recognized by
        # position.
        if redactor and keep is None:
            self._recognizer = EntryRecognizer(redactor)
        ahead = options.limit is None
        passes, count = options.passes, PAGE_LIMIT
        if options.limit is not None:
            passes, count = 1, min(options.limit, PAGE_LIMIT)
        self._partition = Partition(filter.span, state, passes=passes, splits=ahead)

        def fetch_page(window: Window) -> Page:
            span, cursor = window.span, window.cursor
            return list_page(
                transport, filter, cursor=cursor, span=span, kind=kind, count=count
            )

        planner = WindowPlanner(
            self._partition.windows,
            connections=options.connections,
            now=unix_milliseconds(),
        )
        self._fetcher = WindowFetcher(
            planner,
            fetch_page,
            connections=options.connections,
            limiter=limiter,
            ahead=ahead,
        )
        keep_freed_buffers()

    def batches(self) -> Generator[Batch]:
        """Yield the rows as they arrive. All worker threads are joined before this returns or raises."""
        try:
            while results := self._fetcher.take() or self._further():
                yield from self._batches_of(results)
        finally:
            self._fetcher.stop()
            self._limiter.stop()
            self._transport.close()
            self._fetcher.join()

    def _batches_of(self, results: list[FetchResult]) -> Iterator[Batch]:
        """Yield the batches of pages that arrived together."""
        pages = [result.page for result in results if result.page]
        self._learn_service_time(pages)
        decoded = self._decoded([page.rows for page in pages])

        for result in results:
            if result.page is None:
                is_consistent = self._read_again(result)
            else:
                batch, is_consistent = self._batch(result, result.page, *next(decoded))
                yield batch

            if not is_consistent:
                return  # the other pages will come again

    def _learn_service_time(self, pages: Iterable[Page]) -> None:
        """Note the latest time that the service has stated in a response."""
        times = [page.sent_at for page in pages if page.sent_at is not None]
        if self._service_time is not None:
            times.append(self._service_time)
        self._service_time = max(times, default=None)

    def _time_of_loading(self) -> int:
        """Return the time by the clock of the service, which also wrote the creation times.

        The clock of this machine may be wrong, and is used only if the responses have no date.
        """
        if self._service_time is None:
            return unix_milliseconds()
        return self._service_time

    def _further(self) -> list[FetchResult]:
        """Return the first pages of another reading after all windows were read, or no pages.

        If rows that were read before a split did not come again and still exist, everything is read again.
        """
        not_seen = self._partition.not_seen_again
        if len(not_seen) > TUNING.most_sought:
            self._fall_back(_MANY_NOT_SEEN)
        elif any(map(self._exists, not_seen.values())):
            self._fall_back(_NOT_SEEN)
        else:
            not_seen.clear()
            self._fetcher.add(self._partition.next_pass())

        return self._fetcher.take()

    def _exists(self, dlq_id: str) -> bool:
        """Return True if the entry exists. A masked id cannot be requested and counts as existing."""
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
        self,
        result: FetchResult,
        page: Page,
        recognized: PartlyStored | None,
        table: pa.Table,
    ) -> tuple[Batch, bool]:
        """Return the batch of a page, and True if the page is consistent with the windows."""
        window, rows = result.window, self._state.rows
        self._state.count(page)
        if recognized and recognized.stored and not rows.are_new(recognized.identities):
            # Some rows also came on a page in between: decode all, to compare with the later version.
            recognized, (table,) = None, self._decoder.tables([page.rows])

        ids, row_ids = _ids_of(recognized, table)
        is_new = rows.add(row_ids)
        state, repeated_before = window.state, window.repeated_rows
        is_consistent = self._partition.take(result, row_ids, ids, is_new)
        # Known rows of an earlier load or of a split are expected. Rows that come twice in one window are
        # not.
        reread = window.repeated_rows == repeated_before or state.expects_known_rows
        self._go_on(result, state, is_consistent=is_consistent)
        self._state.position = self._partition.position

        known: dict[str, Any] = {}
        if recognized is not None:
            known = {"digests": recognized.digests, "stored": recognized.stored}
            if recognized.stored:
                row_ids, is_new = recognized.new, None

        batch = self._state.batch(
            table, row_ids, is_new, order=_order(window), reread=reread, **known
        )
        return batch, is_consistent

    def _go_on(
        self, result: FetchResult, state: WindowState, *, is_consistent: bool
    ) -> None:
        """Fall back to a single cursor if windows are inconsistent; read a window again if it has to be."""
        if not is_consistent:
            reason = _OVERLAP
            if state is WindowState.PROBE:
                reason = _NO_DATES
            self._fall_back(reason)
        elif result.outcome == "end":
            window_to_reread = self._partition.ended(result.window)
            if window_to_reread is not None:
                self._fetcher.add([window_to_reread])

    def _decoded(
        self, pages: Sequence[bytes]
    ) -> Iterator[tuple[PartlyStored | None, pa.Table]]:
        """Yield the stored rows of each page, if known, and a table of all other rows."""
        is_stored = self._state.is_stored
        if is_stored is None or self._recognizer is None:
            return ((None, table) for table in self._decoder.tables(pages))

        are_new = self._state.rows.are_new
        recognized = list(
            self._recognizer.recognize(pages, are_new=are_new, is_stored=is_stored)
        )
        rows_to_decode = [
            partly_stored.rows if partly_stored else page
            for page, partly_stored in zip(pages, recognized, strict=True)
        ]

        return zip(recognized, self._decoder.tables(rows_to_decode), strict=True)

    def _read_again(self, result: FetchResult) -> bool:
        """Handle a request that the service refused. Return True if the other windows can still be read."""
        self._state.requests += 1
        if result.outcome == "lost" and result.error is not None:
            self._fetcher.add([self._partition.lost(result.window, result.error)])
            return True

        self._fall_back(_NO_DATES)
        return False

    def _fall_back(self, reason: str) -> None:
        self._fetcher.replace_all(self._partition.fall_back(reason))


def _ids_of(
    recognized: PartlyStored | None, table: pa.Table
) -> tuple[list[str], list[bytes]]:
    """Return the ids and the identities of all entries of a page, stored ones included."""
    if recognized:
        return recognized.ids, recognized.identities

    ids = table["dlq_id"].to_pylist()
    return ids, identities_of(ids)


def _order(window: Window) -> tuple[float]:
    """Return the place of a window's rows in the frame: the newest window first."""
    if window.last is None:
        # a window without an end is the newest
        return (float("-inf"),)
    return (-window.last,)


class WindowFetcher:
    """Fetch all pages of windows into a bounded queue, on worker threads.

    `connections` is the maximum number of requests at a time. The limiter decides how many of them may run
    now, and if more requests would be faster. With `ahead`, pages are fetched before the consumer asks for
    them.

    If responses arrive immediately, pages are fetched only while the consumer waits, and then many at once.
    Otherwise the threads would compete with the consumer for the GIL, which costs more time than it saves.
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
        # notified if there is a result; guards the attributes below
        self._arrival = threading.Condition()
        self._ready: deque[FetchResult] = deque()
        self._ready_bytes = 0
        self._threads = ThreadPoolExecutor(
            connections, thread_name_prefix="toolkit-reading"
        )
        self._consumer_waits = False
        self._error: BaseException | None = None
        self._stopped = False

    def take(self) -> list[FetchResult]:
        """Return the results that have arrived, in order. Wait for one; return no results at the end."""
        with self._arrival:
            self._consumer_waits = True
            self._request_pages()
            self._wait()
            self._consumer_waits = False
            self._taken += len(self._ready)
            taken = list(self._ready)
            self._ready.clear()
            self._ready_bytes = 0
            if not taken and self._error is not None:
                raise self._error
            self._request_pages()
            return taken

    def _wait(self) -> None:
        """Wait until there are enough results, or until no further result arrives in time."""
        waited = False
        while not self._enough(waited=waited):
            ready = len(self._ready)
            timeout = None
            if ready:
                timeout = TUNING.batch_timeout
            notified = self._arrival.wait(timeout)
            waited = not notified and len(self._ready) == ready

    def add(self, windows: Iterable[Window]) -> None:
        """Add windows to read."""
        with self._arrival:
            self._planner.add(windows)
            self._request_pages()

    def replace_all(self, window: Window) -> None:
        """Read this window, and drop all others."""
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
        """Wait for the threads to end. Call it after `stop`, and after closing the connections."""
        self._threads.shutdown(cancel_futures=True)

    def _enough(self, *, waited: bool) -> bool:
        """Return True if the consumer should take the results now, or if no more will come."""
        if self._is_over:
            return True
        if not self._ready:
            return False

        is_beginning = self._taken < TUNING.first_pages
        if waited or is_beginning or not self._ahead:
            return True

        return self._has_full_batch

    @property
    def _is_over(self) -> bool:
        """Return True if no further result will come."""
        is_idle = not self._planner.busy and not self._planner.available
        return is_idle or self._error is not None

    @property
    def _has_full_batch(self) -> bool:
        """Return True if the results are enough to decode them together."""
        enough_pages = TUNING.batch_pages
        if self._alternates:
            enough_pages = 2 * TUNING.most_pages
        return len(self._ready) >= enough_pages or self._ready_bytes > TUNING.most_bytes

    @property
    def _alternates(self) -> bool:
        """Return True if pages are fetched only while the consumer waits.

        Twice as many pages are fetched at once then, because no pages are decoded meanwhile.
        """
        return self._limiter.is_immediate

    def _free(self) -> int:
        """Return the number of requests that may be sent now. The lock is held, here and below."""
        is_over = self._stopped or self._error is not None
        if is_over or self._ready_bytes > TUNING.most_bytes:
            return 0

        ready, busy = len(self._ready), self._planner.busy
        if not self._ahead:
            return int(self._consumer_waits and not ready and not busy)

        most_busy = min(self._limiter.width, self._most_ready - ready)
        return max(0, most_busy - busy)

    @property
    def _most_ready(self) -> int:
        """Return how many pages are fetched before the consumer takes them."""
        if not self._alternates:
            return TUNING.most_pages
        if self._consumer_waits:
            return 2 * TUNING.most_pages

        return 0

    def _request_pages(self) -> None:
        for _ in range(min(self._free(), self._planner.available)):
            self._threads.submit(self._run, self._planner.next())

    def _run(self, window: Window | None) -> None:
        """Fetch a page, and then the next pages, as long as there are pages to request."""
        while window is not None:
            page, error = None, None
            try:
                page = self._fetch(window)
            except LoadStopped:
                return
            except BaseException as raised:  # noqa: BLE001 - raised again by `take`, on the consumer's thread
                error = raised

            with self._arrival:
                self._put(window, page, error)
                window = self._next_window()
                self._request_pages()
                # Each wake-up of the consumer costs a switch of threads: the first result starts the wait for
                # more, and enough results end it.
                if len(self._ready) == 1 or self._enough(waited=False):
                    self._arrival.notify()

    def _next_window(self) -> Window | None:
        """Return a window to read on this thread, or None if no request may be sent now."""
        if self._free() and self._planner.available:
            return self._planner.next()
        return None

    def _put(
        self, window: Window, page: Page | None, error: BaseException | None
    ) -> None:
        """Add the result of a request, unless the window is not wanted any more."""
        is_dropped = window.state is WindowState.DROPPED
        if is_dropped or page is None:
            self._planner.release(window)
        if is_dropped:
            return

        if page is not None:
            self._record_page(window, page)
        else:
            self._record_error(window, error)

    def _record_page(self, window: Window, page: Page) -> None:
        """Add a page to the results, and plan the requests that follow from it."""
        free = None
        if self._limiter.is_delaying:
            # the request of this window has ended, but still counts as running
            free = self._free() + 1

        try:
            outcome = self._planner.arrived(window, page, free=free)
        except Exception as raised:  # noqa: BLE001 - raised by `take`; the page itself is good
            self._error, outcome = raised, "more"

        self._ready.append(
            FetchResult(window, outcome, page, window.cursor, window.pages)
        )
        self._ready_bytes += page.size

    def _record_error(self, window: Window, error: BaseException | None) -> None:
        """Add a refusal of the service to the results. Any other error ends the load."""
        was_continued = bool(window.cursor)
        # A refusal of the first page of the whole span is no sign about cursors or dates of windows: the
        # request itself is wrong, for example the filter.
        is_of_a_window = was_continued or not window.whole
        is_refused = isinstance(error, ResponseError) and is_refusal(error)
        if not is_refused or not is_of_a_window:
            self._error = self._error or error
            return

        outcome: Outcome = "refused"
        if was_continued:
            outcome = "lost"
        refusal = cast("ResponseError", error)
        self._ready.append(FetchResult(window, outcome, error=refusal))

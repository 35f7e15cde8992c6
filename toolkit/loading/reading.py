"""Reading windows side by side: a few threads that wait for the network, and a bounded queue of pages.

The threads ask, and look at a page's envelope; all else is done by whoever takes the pages.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from toolkit.client.pages import Page
from toolkit.errors import AuthenticationError, RateLimitError, ResponseError
from toolkit.loading.pacing import LoadStopped
from toolkit.loading.windows import Window, Windows

_MOST_PAGES: Final = 96  # that wait, or are on their way
_MOST_BYTES: Final = 32 << 20  # of pages that wait
_HANDFUL: Final = 16  # pages that are worth a decoder's while
_FIRST_PAGES: Final = 2  # that are handed on one by one: a short listing, or a first glimpse
_PATIENCE: Final = 0.05  # seconds that fewer are waited upon
_JOIN: Final = 10.0  # seconds that a thread gets to notice that its connection was closed


@dataclass(frozen=True, slots=True)
class FetchResult:
    """What became of asking for a page of a window.

    Attributes
    ----------
    window : Window
    outcome : str
        As in `Windows.arrived`; "lost" when the service does not know the window's cursor any more; "refused"
        when it does not take the window's dates.
    page : Page or None
    cursor : str or None
        Of the window's next page.
    number : int
        Of the page in its window, from 1.
    error : ResponseError or None
        For a window that was lost or refused.
    asked : str or None
        The cursor that the page was asked for with.
    """

    window: Window
    outcome: Literal["more", "end", "split", "lost", "refused"]
    page: Page | None = None
    cursor: str | None = None
    number: int = 0
    error: ResponseError | None = None
    asked: str | None = None


class Reading:
    """Threads that read windows until nothing is left of them.

    Parameters
    ----------
    windows : Windows
    fetch : callable
        Gives a window's next page. Called from several threads.
    connections : int
        Threads at most.
    width : callable
        How many may ask at once, at the moment.
    waits : callable
        Whether the time goes into waiting for answers, so that windows are worth splitting.
    ahead : bool
        Whether pages are read before anybody waits for them.
    """

    def __init__(
        self,
        windows: Windows,
        fetch: Callable[[Window], Page],
        *,
        connections: int,
        width: Callable[[], int],
        waits: Callable[[], bool],
        ahead: bool = True,
    ) -> None:
        self._windows = windows
        self._fetch = fetch
        self._connections = connections
        self._width = width
        self._waits = waits
        self._taken = 0
        self._ahead = ahead
        lock = threading.Lock()
        self._wanted = threading.Condition(lock)  # there is something to ask for
        self._came = threading.Condition(lock)  # there is something to take
        self._ready: deque[FetchResult] = deque()
        self._ready_bytes = 0
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._taker_waits = False
        self._error: BaseException | None = None
        self._stopped = False

    def take(self) -> list[FetchResult]:
        """What has come, in its order; waits for something, and gives nothing once all is read.

        Raises
        ------
        Exception
            What a request raised, once everything that came before it has been taken.
        """
        with self._came:
            self._taker_waits = True
            self._wake()
            waited = False
            while not self._enough(waited=waited):
                waited = not self._came.wait(_PATIENCE if self._ready else None)
            self._taker_waits = False
            self._taken += len(self._ready)
            taken = list(self._ready)
            self._ready.clear()
            self._ready_bytes = 0
            if not taken and self._error is not None:
                raise self._error
            self._wake()
            return taken

    def add(self, windows: Iterable[Window]) -> None:
        """Read these, too."""
        with self._wanted:
            self._windows.add(windows)
            self._wake()

    def only(self, window: Window) -> None:
        """Read this one, and none of the others."""
        with self._wanted:
            self._windows.drop_all()
            self._ready.clear()
            self._ready_bytes = 0
            self._windows.add([window])
            self._wake()

    def stop(self) -> None:
        """Ask for nothing more."""
        with self._wanted:
            self._stopped = True
            self._wanted.notify_all()

    def join(self) -> None:
        """Wait for the threads to end; after `stop`, and after their connections were closed."""
        for thread in self._threads:
            thread.join(_JOIN)

    def _enough(self, *, waited: bool) -> bool:
        under_way = self._windows.busy and self._error is None
        if not under_way and (self._error is not None or not self._windows.available):
            return True
        at_once = not self._ahead or self._taken < _FIRST_PAGES
        return bool(self._ready) and (at_once or waited or len(self._ready) >= _HANDFUL)

    def _room(self) -> int:
        if not self._ahead:
            return int(self._taker_waits and not self._ready and not self._windows.busy)
        if self._ready_bytes > _MOST_BYTES:
            return 0
        return _MOST_PAGES - len(self._ready) - self._windows.busy

    def _free(self) -> int:
        """How many more may ask now; the lock is held, here and below."""
        if self._stopped or self._error is not None:
            return 0
        return max(0, min(self._width() - self._windows.busy, self._room()))

    def _wake(self, mine: int = 0) -> None:
        """See to it that as many threads ask as may, and as there are pages to ask for.

        `mine` of them are asked for by the thread that calls.
        """
        wanted = max(0, min(self._free(), self._windows.available) - mine)
        self._wanted.notify(wanted)
        for _ in range(min(wanted - self._idle, self._connections - len(self._threads))):
            thread = threading.Thread(target=self._run, name="toolkit-reading", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        while (window := self._assigned()) is not None:
            try:
                page = self._fetch(window)
            except LoadStopped:
                return
            except BaseException as error:  # noqa: BLE001 - raised by `take`, on the thread of whoever reads
                self._failed(window, error)
            else:
                self._arrived(window, page)

    def _assigned(self) -> Window | None:
        with self._wanted:
            while not self._stopped:
                window = self._windows.next() if self._free() else None
                if window is not None:
                    return window
                self._idle += 1
                self._wanted.wait()
                self._idle -= 1
            return None

    def _arrived(self, window: Window, page: Page) -> None:
        with self._wanted:
            if window.dropped:
                self._windows.release(window)
            else:
                asked = window.cursor
                try:
                    free = self._free() + 1 if self._waits() else None
                    outcome = self._windows.arrived(window, page, free=free)
                except Exception as error:  # noqa: BLE001 - as above; the page itself is good
                    self._error = error
                    outcome = "more"
                self._deliver(FetchResult(window, outcome, page, window.cursor, window.pages, asked=asked))
                self._ready_bytes += page.size
            self._wake(1)
            self._came.notify()

    def _failed(self, window: Window, error: BaseException) -> None:
        with self._wanted:
            self._windows.release(window)
            if not window.dropped:
                if isinstance(error, ResponseError) and _is_about_the_request(error):
                    if window.cursor is not None:
                        self._deliver(FetchResult(window, "lost", error=error))
                    elif not window.whole:
                        self._deliver(FetchResult(window, "refused", error=error))
                    else:
                        self._error = error
                else:
                    self._error = self._error or error
            self._wake(1)
            self._came.notify()

    def _deliver(self, delivery: FetchResult) -> None:
        self._ready.append(delivery)


def _is_about_the_request(error: ResponseError) -> bool:
    """Whether the service refuses what was asked for, not who asks or how often."""
    return 400 <= error.status < 500 and not isinstance(error, AuthenticationError | RateLimitError)  # noqa: PLR2004

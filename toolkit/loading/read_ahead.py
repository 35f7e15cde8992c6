"""Pages of a listing whose next cursor stands at the head of an answer: asked for before they are wanted.

A request starts as soon as its cursor is known, while the body before it still arrives and the page before
that is being decoded. A cursor read early decides only when a request starts: what comes of it is used where
the whole answer names the same cursor, and thrown away where it does not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol, TypeVar

from toolkit.client.pages import Page, head_cursor

T = TypeVar("T")
P = TypeVar("P")
Watch = Callable[[bytearray], bool]
"""Looks at a body as it arrives; True when it has seen enough."""

DEPTH: Final = 3
"""Pages of one listing that are under way or wait for their reader, at most."""


class Submit(Protocol):
    """Runs a function on another thread, as `Executor.submit` does."""

    def __call__(self, function: Callable[[_Asked], Page], asked: _Asked, /) -> Future[Page]:
        """Start it."""


@dataclass(eq=False)
class _Asked:
    """A request under way."""

    cursor: str
    after: str | None = None
    page: Future[Page] = field(init=False)


class ReadAhead:
    """Gives the page at a cursor, as `walk` wants it, and sees to it that the next ones are on their way.

    Parameters
    ----------
    ask : callable
        Asks for the page at a cursor, on whatever thread, and gives the watch the body as it arrives.
    submit : callable
        Runs a request on another thread.
    depth : int
        Pages under way or waiting, at most. With 1, none is asked for before it is wanted.
    """

    def __init__(self, ask: Callable[[str, Watch], Page], submit: Submit, *, depth: int = DEPTH) -> None:
        self._ask = ask
        self._submit = submit
        self._depth = depth
        self._lock = threading.Lock()
        self._under_way: deque[_Asked] = deque()

    def start(self, cursor: str) -> None:
        """Ask for the page at this cursor and those behind it, unless that is being done."""
        with self._lock:
            if not self._under_way or self._under_way[0].cursor != cursor:
                self._drop()
                self._begin(cursor)

    def __call__(self, cursor: str | None) -> Page:
        """The page at a cursor. Those behind it are on their way when it is given."""
        cursor = cursor or ""
        self.start(cursor)
        try:
            page = self._under_way[0].page.result()
        except BaseException:
            # whoever asks again for this page wants it asked for again
            with self._lock:
                self._drop()
            raise
        with self._lock:
            self._under_way.popleft()
            if self._under_way and self._under_way[0].cursor != page.cursor:
                self._drop()
            if self._under_way:
                self._go_on()
            elif page.cursor is not None and self._depth > 1:
                self._begin(page.cursor)
        return page

    def stop(self) -> None:
        """Ask for nothing more; what is under way is for nobody."""
        with self._lock:
            self._depth = 0
            self._drop()

    def _run(self, asked: _Asked) -> Page:
        def watch(body: bytearray) -> bool:
            if asked.after is None and (cursor := head_cursor(body)) is not None:
                self._learn(asked, cursor)
            return asked.after is not None

        return self._ask(asked.cursor, watch)

    def _learn(self, asked: _Asked, cursor: str) -> None:
        with self._lock:
            asked.after = cursor
            self._go_on()

    def _go_on(self) -> None:
        last = self._under_way[-1] if self._under_way else None
        if last is not None and last.after is not None and len(self._under_way) < self._depth:
            self._begin(last.after)

    def _begin(self, cursor: str) -> None:
        asked = _Asked(cursor)
        self._under_way.append(asked)
        asked.page = self._submit(self._run, asked)

    def _drop(self) -> None:
        for asked in self._under_way:
            asked.page.cancel()
        self._under_way.clear()


def side_by_side(listings: Iterable[T], opened: Callable[[T], Iterator[P]], *, most: int) -> Iterator[P]:
    """Pages of several listings in turn, one of each, so that the order does not depend on who is quicker.

    Parameters
    ----------
    listings : iterable
    opened : callable
        Starts to read a listing, and gives its pages; called for some listings before their turn comes.
    most : int
        Listings that are read at once, at most.

    Yields
    ------
    object
        The next page of the listing whose turn it is.

    Examples
    --------
    >>> list(side_by_side(["abc", "d", "ef"], iter, most=2))
    ['a', 'd', 'b', 'c', 'e', 'f']
    """
    waiting = iter(listings)
    under_way: deque[Iterator[P]] = deque()
    while True:
        under_way.extend(map(opened, islice(waiting, most - len(under_way))))
        if not under_way:
            return
        pages = under_way.popleft()
        for page in pages:
            under_way.append(pages)
            yield page
            break

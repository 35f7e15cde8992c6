"""Follow cursors. This module does no I/O, so that it can be tested with hand-made pages.

The end is a cursor that is absent, null or empty. An empty page with a cursor is not the end. Two things
would make a listing endless and are errors: a cursor that was used before, and ever new cursors of pages that
contain nothing new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Final

from toolkit.base.errors import (
    AuthenticationError,
    CursorLoopError,
    RateLimitError,
    ResponseError,
)
from toolkit.loading.identities import Identities
from toolkit.service.pages import Page

MOST_EMPTY: Final = 1_000
"""Most consecutive empty pages: this number, plus one per page that had rows.

A service that searches its entries for matches can return empty pages. If it searches 100 entries per page,
which is the least that makes sense, it has searched 100,000 entries by then, and more if some pages had rows.
"""

MOST_REPEATED: Final = 1_000
"""Most consecutive pages with only rows that came before in the same reading.

If entries are added while a listing is read, a cursor that counts entries comes to rows that were read
before. A service may also go back by more rows than a page has. Neither happens a thousand times in a row.
"""

MOST_READINGS: Final = 3
"""Number of readings after which a window or range counts as unstable."""

_CLIENT_ERRORS: Final = range(400, 500)


class CursorHistory:
    """The cursors of one listing. Each cursor may come only once.

    >>> cursors = CursorHistory()
    >>> cursors.follow(None, "a", what="things", page=1)
    >>> cursors.follow("a", "a", what="things", page=2)
    Traceback (most recent call last):
    ...
    toolkit.errors.CursorLoopError: reading things, page 2: got the cursor 'a' again; expected a new ...
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def follow(
        self, before: str | None, after: str | None, *, what: str, page: int
    ) -> None:
        """Record that the page at `before` names `after` as the next.

        Raise CursorLoopError if `after` was read before.
        """
        if before is not None:
            self._seen.add(_digest(before))
        if after is not None and _digest(after) in self._seen:
            raise CursorLoopError(
                f"reading {what}, page {page:,}",
                got=f"the cursor {after[:60]!r} again",
                expected="a new cursor, or none at the end",
                next_step="The service repeats itself; load again, and report it if it happens again.",
            )


class ProgressGuard:
    """Count consecutive pages with nothing new. Their number is bounded by the number of pages with new rows.

    A row is new if it comes for the first time, and once more in each reading that reads it again.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._useful = self._empty = self._repeated = self._reading = 0
        self._again = Identities()

    def page(self, *, new: bool, known: Sequence[bytes] = (), reading: int = 0) -> None:
        """Record a page with or without new rows. Raise CursorLoopError if no end can be expected any more.

        `known` are the identities of other rows of the page, and `reading` is the number of the reading.
        """
        if reading != self._reading:
            self._reading = reading
            self._again = Identities()

        is_new = self._again.add(known)
        if new or (known and (is_new is None or True in is_new)):
            self._useful += 1
            self._empty = self._repeated = 0
            return

        self._empty += not known
        self._repeated += bool(known)
        if self._empty > MOST_EMPTY + self._useful or self._repeated > MOST_REPEATED:
            pages = self._empty + self._repeated
            raise CursorLoopError(
                f"reading {self._what}",
                got=f"{pages:,} pages in a row with nothing new, after {self._useful:,} with something new",
                expected="an end of the listing",
                next_step="The service returns cursors without end; load again, and report it if it "
                "happens again.",
            )


def walk(
    fetch: Callable[[str | None], Page], *, what: str, first: str | None = None
) -> Iterator[Page]:
    """Yield the pages of a listing, from the page at the cursor `first` to the last. `what` is for errors."""
    cursors = CursorHistory()
    cursor = first

    number = 0
    while True:
        page = fetch(cursor)
        number += 1
        yield page
        # after the yield, as the rows of a page count even if the cursor after it is wrong
        cursors.follow(cursor, page.cursor, what=what, page=number)
        cursor = page.cursor
        if cursor is None:
            return


def is_refusal(error: ResponseError) -> bool:
    """Return True if the service refuses the request itself.

    For example, a cursor was lost; the sender or the rate are not the reason.
    """
    return error.status in _CLIENT_ERRORS and not isinstance(
        error, AuthenticationError | RateLimitError
    )


def _digest(cursor: str) -> bytes:
    # cursors may be long, and all of them are remembered
    return blake2b(cursor.encode("utf-8", "surrogatepass"), digest_size=16).digest()

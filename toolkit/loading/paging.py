"""Following cursors. Free of I/O, so that it can be tested with hand-made pages.

The end is a cursor that is absent, null or empty. An empty page with a cursor is not the end. Two things
would make a walk endless, and are errors: a cursor that was used before, and ever new cursors whose pages
bring nothing new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from toolkit.client.pages import Page
from toolkit.errors import AuthenticationError, CursorLoopError, RateLimitError, ResponseError

MOST_IDLE: Final = 20_000
"""Pages in a row that may bring nothing new, whatever was seen.

A service that searches its entries for those that match returns such pages. If it searches at most 100 a
page, the least that makes sense, it has searched two million by then, which is more than a queue of failures
or a day's run log holds; the range over vectors, which knows no filter but a prefix, has no such pages."""

IDLE_EACH: Final = 20
"""Pages in a row that may bring nothing new, for each row that was seen.

What was seen is read again, three times in each pass over it at most, and at worst with one row a page: 20 is
enough for six passes over such pages, and for hundreds over pages that hold a hundred."""

MOST_READINGS: Final = 3
"""Readings of a window or range until it counts as one that keeps changing."""

_CLIENT_ERRORS: Final = range(400, 500)


class CursorHistory:
    """The cursors of one walk: none may come twice.

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

    def follow(self, before: str | None, after: str | None, *, what: str, page: int) -> None:
        """A page at `before` names `after` as the next: CursorLoopError where that was read."""
        if before is not None:
            self._seen.add(_digest(before))
        if after is not None and _digest(after) in self._seen:
            raise CursorLoopError(
                f"reading {what}, page {page:,}",
                got=f"the cursor {after[:60]!r} again",
                expected="a new cursor, or none at the end",
                next_step="The service repeats itself; load again, and report it if it stays.",
            )


@dataclass
class Idleness:
    """How many pages in a row brought nothing new, which is bounded by what was seen."""

    what: str
    pages: int = field(default=0, init=False)

    def page(self, *, new: bool, seen: int) -> None:
        """Record a page after so many rows: CursorLoopError when no end can be expected any more."""
        self.pages = 0 if new else self.pages + 1
        if self.pages > MOST_IDLE + IDLE_EACH * seen:
            raise CursorLoopError(
                f"reading {self.what}",
                got=f"{self.pages:,} pages in a row with nothing new, after {seen:,} rows",
                expected="an end",
                next_step="The service returns cursors without end; load again, and report it if it stays.",
            )


def walk(fetch: Callable[[str | None], Page], *, what: str, first: str | None = None) -> Iterator[Page]:
    """The pages of a listing, from the one at the cursor `first` to the last; `what` is it, for errors."""
    cursors, cursor, number = CursorHistory(), first, 0
    while True:
        page = fetch(cursor)
        number += 1
        yield page
        cursors.follow(cursor, page.cursor, what=what, page=number)
        cursor = page.cursor
        if cursor is None:
            return


def is_refusal(error: ResponseError) -> bool:
    """Whether the service refuses what was requested, such as a lost cursor, not the sender or the rate."""
    return error.status in _CLIENT_ERRORS and not isinstance(error, AuthenticationError | RateLimitError)


def _digest(cursor: str) -> bytes:
    # cursors may be long, and all of them are remembered
    return blake2b(cursor.encode("utf-8", "surrogatepass"), digest_size=16).digest()

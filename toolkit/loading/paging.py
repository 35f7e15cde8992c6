"""Walking a cursor: pure, so that it can be tried on hand-made pages.

The end is a cursor that is absent, null or empty. An empty page with a cursor is not the end. A cursor that
was used before would make the walk endless, and is an error, whatever lies in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from toolkit.client.pages import Page
from toolkit.errors import CursorLoopError

MOST_PAGES: Final = 10_000_000
"""Pages after which a walk is taken for endless even when no cursor repeats."""


def walk(
    fetch: Callable[[str | None], Page], *, what: str, first: str | None = None, most_pages: int = MOST_PAGES
) -> Iterator[Page]:
    """The pages of a listing, from the first to the last.

    Parameters
    ----------
    fetch : callable
        Gives the page at a cursor.
    what : str
        What is listed, for errors.
    first : str, optional
        The first cursor, where the service wants one.
    most_pages : int

    Yields
    ------
    Page

    Raises
    ------
    CursorLoopError
        When a cursor comes back, or there is no end after `most_pages`.
    """
    seen = {first}
    cursor = first
    for number in range(1, most_pages + 1):
        page = fetch(cursor)
        yield page
        cursor = page.cursor
        if cursor is None:
            return
        if cursor in seen:
            raise CursorLoopError(
                f"reading {what}, page {number:,}",
                got=f"the cursor {cursor[:60]!r} again",
                expected="a new cursor, or none at the end",
                next_step="The service repeats itself; load again, and report it if it stays.",
            )
        seen.add(cursor)
    raise CursorLoopError(f"reading {what}", got=f"more than {most_pages:,} pages", expected="an end")

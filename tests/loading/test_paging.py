"""The cursor walk on hand-made pages: it ends, it never loops, and it skips nothing."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.client.pages import Page
from toolkit.errors import CursorLoopError
from toolkit.loading.paging import walk


def pages_of(cursors: dict[str | None, str | None]):
    """A fetch over a map from each cursor to the next."""
    return lambda cursor: Page(rows=repr(cursor).encode(), cursor=cursors[cursor], size=1, tries=1)


@given(st.lists(st.text(min_size=1), unique=True, max_size=20))
def test_every_page_comes_once_and_in_order(cursors):
    """However many pages and whatever their cursors look like, each is fetched once."""
    chain = dict(zip([None, *cursors], [*cursors, None], strict=True))
    rows = [page.rows for page in walk(pages_of(chain), what="things")]
    assert rows == [repr(cursor).encode() for cursor in [None, *cursors]]


@pytest.mark.parametrize(
    "cursors",
    [{None: "a", "a": "a"}, {None: "a", "a": "b", "b": "a"}, {None: "a", "a": "b", "b": "c", "c": "a"}],
)
def test_a_cursor_that_comes_back_is_an_error(cursors):
    """A repeats, A-B-A and longer cycles are found, after each page was given once."""
    pages = walk(pages_of(cursors), what="things")
    assert len(list(islice(pages, len(cursors)))) == len(cursors)
    with pytest.raises(CursorLoopError, match="'a' again"):
        next(pages)


def test_the_first_cursor_counts_as_seen():
    """A range that starts at "0" and comes back to "0" is a loop."""
    with pytest.raises(CursorLoopError):
        list(walk(pages_of({"0": "5", "5": "0"}), what="things", first="0"))


def test_an_endless_walk_meets_the_page_cap():
    """Ever new cursors without an end are stopped too."""
    with pytest.raises(CursorLoopError, match="more than 7 pages"):
        list(
            walk(
                lambda cursor: Page(rows=b"[]", cursor=f"{cursor}x", size=1, tries=1),
                what="things",
                most_pages=7,
            )
        )

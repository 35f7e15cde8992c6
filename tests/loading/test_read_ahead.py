"""Requests ahead of their reader: no page of a wrong cursor, no more than a few, no error too early."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import CursorLoopError, ServerError
from toolkit.loading.paging import walk
from toolkit.loading.ranges import ReadAhead, Watch, in_turn
from toolkit.service.pages import Page


def page(name: str, after: str | None) -> Page:
    """A page that says which it is."""
    return Page(rows=name.encode(), cursor=after, size=len(name), tries=1)


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads."""
    with ThreadPoolExecutor(4) as running:
        yield running


class Listing:
    """Pages 0, 1, 2, … whose heads say what a test wants them to."""

    def __init__(self, length: int, heads: dict[int, str] | None = None) -> None:
        self.length = length
        self.heads = heads or {}
        self.requests: list[str] = []
        self.failing: dict[str, Exception] = {}

    def ask(self, cursor: str, watch: Watch) -> Page:
        """Respond like a service: the head first, then the whole."""
        self.requests.append(cursor)
        if cursor in self.failing:
            raise self.failing.pop(cursor)
        number = int(cursor) if cursor.isdigit() else -1
        after = str(number + 1) if number + 1 < self.length else ""
        head = self.heads.get(
            number, f'{{"result": {{"nextCursor": "{after}", "vectors": ['
        )
        for end in (0, len(head) // 2, len(head)):
            if watch(bytearray(head[:end].encode())):
                break
        return page(f"page {number}", after or None)


def names(ahead: ReadAhead) -> list[str]:
    """The pages of a walk, by name."""
    return [item.rows.decode() for item in walk(ahead, what="a listing", first="0")]


heads = st.sampled_from(
    [
        "",
        "{",
        '{"result": {"nextCursor": "0", ',
        '{"result": {"nextCursor": "7", ',
        '{"result": {"nextCursor": "x",',
    ],
)


@given(st.integers(1, 9), st.dictionaries(st.integers(0, 8), heads), st.integers(1, 4))
def test_a_cursor_read_ahead_never_changes_the_rows(length, wrong, depth):
    """Heads that are missing, truncated or wrong: the pages are those of the whole responses, in order."""
    listing = Listing(length, wrong)
    with ThreadPoolExecutor(3) as threads:
        ahead = ReadAhead(listing.ask, threads.submit, depth=depth)
        assert names(ahead) == [f"page {number}" for number in range(length)]
        ahead.stop()


def test_each_page_is_requested_once(pool):
    """Where the heads tell the truth, reading ahead costs no request more."""
    listing = Listing(20)
    assert len(names(ReadAhead(listing.ask, pool.submit))) == 20
    assert sorted(listing.requests, key=int) == [str(number) for number in range(20)]


def test_the_next_request_starts_while_the_body_still_arrives(pool):
    """Page 1 is requested before page 0 has ended: page 0 ends only once that has happened."""
    requested = threading.Event()

    def ask(cursor: str, watch: Watch) -> Page:
        if cursor == "1":
            requested.set()
            return page("page 1", None)
        watch(bytearray(b'{"result": {"nextCursor": "1", '))
        assert requested.wait(30)
        return page("page 0", "1")

    assert names(ReadAhead(ask, pool.submit)) == ["page 0", "page 1"]


def test_no_more_pages_are_buffered_than_allowed():
    """An idle reader makes no more requests than the depth; each page it reads allows one more."""
    listing = Listing(50)
    begun: list[Callable[[], object]] = []

    def submit(function: Callable[[Any], Page], asked: Any) -> Future[Page]:
        response: Future[Page] = Future()
        begun.append(
            lambda: response.cancelled() or response.set_result(function(asked))
        )
        return response

    def everything_arrives() -> None:
        while begun:
            begun.pop()()

    ahead = ReadAhead(listing.ask, submit, depth=3)
    ahead.start("0")
    for taken in range(5):
        everything_arrives()
        assert len(listing.requests) == taken + 3
        assert ahead(str(taken)).rows == f"page {taken}".encode()
    ahead.stop()
    everything_arrives()
    assert len(listing.requests) == 4 + 3


def test_a_failed_request_raises_at_its_page_and_can_be_retried(pool):
    """Pages read before the error are returned first; requesting the page again sends a new request."""
    listing = Listing(4)
    listing.failing["2"] = ServerError(
        "reading", status=500, message="no", request="GET /"
    )
    ahead = ReadAhead(listing.ask, pool.submit)
    assert [ahead("0").rows, ahead("1").rows] == [b"page 0", b"page 1"]
    with pytest.raises(ServerError):
        ahead("2")
    assert [ahead("2").rows, ahead("3").rows] == [b"page 2", b"page 3"]


def test_a_repeated_cursor_is_an_error_and_ends_the_requests(pool):
    """Reading ahead follows a loop no further than it may run ahead."""
    listing = Listing(10)

    def looping(cursor: str, watch: Watch) -> Page:
        result = listing.ask(cursor, watch)
        return page("again", "0") if cursor == "3" else result

    ahead = ReadAhead(looping, pool.submit)
    with pytest.raises(CursorLoopError):
        names(ahead)
    ahead.stop()
    assert len(listing.requests) < 12


@given(st.lists(st.integers(0, 5), max_size=7), st.integers(1, 4))
def test_in_turn_yields_every_page_in_a_fixed_order(lengths, most):
    """Nothing is left out, each listing keeps its order, and no more are open than allowed."""
    opened: list[int] = []
    ended: list[int] = []

    def pages(number: int) -> Iterator[tuple[int, int]]:
        yield from ((number, index) for index in range(lengths[number]))
        ended.append(number)

    def opening(number: int) -> Iterator[tuple[int, int]]:
        opened.append(number)
        assert len(opened) - len(ended) <= most
        return pages(number)

    result = list(in_turn(range(len(lengths)), opening, most=most))
    assert sorted(result) == [
        (number, index)
        for number, length in enumerate(lengths)
        for index in range(length)
    ]
    for number in range(len(lengths)):
        assert [index for name, index in result if name == number] == list(
            range(lengths[number])
        )

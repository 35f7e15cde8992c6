"""The cursor walk: it ends, it never loops, and it skips nothing."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import count, islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import CursorLoopError, IncompleteLoadError, ToolkitError
from toolkit.loading import paging
from toolkit.loading.identities import identities_of
from toolkit.loading.paging import (
    MOST_EMPTY,
    MOST_REPEATED,
    CursorHistory,
    ProgressGuard,
    walk,
)
from toolkit.service.pages import Page


def pages_of(cursors: dict[str | None, str | None]):
    """A fetch over a map from each cursor to the next."""
    return lambda cursor: Page(
        rows=repr(cursor).encode(), cursor=cursors[cursor], size=1, tries=1
    )


@given(st.lists(st.text(min_size=1), unique=True, max_size=20))
def test_every_page_is_yielded_once_and_in_order(cursors):
    """However many pages and whatever their cursors look like, each is fetched once."""
    chain = dict(zip([None, *cursors], [*cursors, None], strict=True))
    rows = [page.rows for page in walk(pages_of(chain), what="things")]
    assert rows == [repr(cursor).encode() for cursor in [None, *cursors]]


@pytest.mark.parametrize(
    "cursors",
    [
        {None: "a", "a": "a"},
        {None: "a", "a": "b", "b": "a"},
        {None: "a", "a": "b", "b": "c", "c": "a"},
    ],
)
def test_a_repeated_cursor_is_an_error(cursors):
    """A repeats, A-B-A and longer cycles are detected, after each page was yielded once."""
    pages = walk(pages_of(cursors), what="things")
    assert len(list(islice(pages, len(cursors)))) == len(cursors)
    with pytest.raises(CursorLoopError, match="'a' again"):
        next(pages)


def test_the_first_cursor_counts_as_seen():
    """A range that starts at "0" and returns to "0" is a loop."""
    with pytest.raises(CursorLoopError):
        list(walk(pages_of({"0": "5", "5": "0"}), what="things", first="0"))


def test_cursors_are_remembered_by_digests():
    """However long they are: 20,000 of 4,096 characters need less than 4 MB, and none is forgotten."""
    cursors = CursorHistory()
    tracemalloc.start()
    before = None
    for number in range(20_000):
        after = f"{number:04096}"
        cursors.follow(before, after, what="things", page=number)
        before = after
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 4_000_000
    with pytest.raises(CursorLoopError):
        cursors.follow(before, f"{7:04096}", what="things", page=20_001)


@given(
    st.integers(1, 6),
    st.lists(
        st.tuples(st.integers(0, MOST_EMPTY), st.integers(1, 200)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([1, 7, 100]),
)
@settings(max_examples=25, deadline=None)
def test_no_load_that_can_end_is_taken_for_endless(readings, stretches, page_rows):
    """Stretches of empty pages between pages of any size, all of it read again and again: no error."""
    guard = ProgressGuard("things")
    for reading in range(readings):
        rows = count()
        for empty, pages in stretches:
            for _ in range(empty):
                guard.page(new=False, reading=reading)
            for _ in range(pages):
                known = identities_of(map(str, islice(rows, page_rows)))
                guard.page(
                    new=reading == 0, known=known if reading else (), reading=reading
                )


@pytest.mark.parametrize("useful", [0, 1, 1000])
def test_empty_pages_are_bounded_by_the_pages_that_were_not(useful):
    """The bound grows with them, and one more page is an error that says both."""
    guard = ProgressGuard("things")
    for _ in range(useful):
        guard.page(new=True)
    for _ in range(MOST_EMPTY + useful):
        guard.page(new=False)
    with pytest.raises(
        CursorLoopError, match=rf"nothing new, after {useful:,} with something new"
    ):
        guard.page(new=False)


def test_repeated_rows_are_progress_once_in_each_reading():
    """As often as a reading begins, each known row may come once; then a thousand pages more are too many."""
    guard = ProgressGuard("things")
    for reading in range(50):
        for number in range(10):
            guard.page(new=False, known=identities_of([str(number)]), reading=reading)
        for number in range(MOST_REPEATED):
            guard.page(
                new=False, known=identities_of([str(number % 10)]), reading=reading
            )
    with pytest.raises(
        CursorLoopError,
        match=f"got {MOST_REPEATED + 1:,} pages in a row with nothing new",
    ):
        guard.page(new=False, known=identities_of(["7"]), reading=49)


def endless(rows: str) -> Callable[[Any], bytes]:
    """A service whose every page names a new cursor."""
    numbers = count(1)

    def page(request: Any) -> bytes:
        number = next(numbers)
        if request.path == "/info":
            return (
                b'{"result": {"dimension": 2, "namespaces": {"": {"vectorCount": 9}}}}'
            )
        if request.path == "/range":
            return f'{{"result": {{"nextCursor": "c{number}", "vectors": [{rows}]}}}}'.encode()
        name = "runs" if request.path.endswith("logs") else "messages"
        return f'{{"{name}": [{rows}], "cursor": "c{number}"}}'.encode()

    return page


ENTRY = '{"dlqId": "a", "id": "a", "workflowRunId": "a", "vector": [1, 2]}'
LOADS = {
    "failures": lambda service, _: tk.load_failures(service, progress=False),
    "failures twice": lambda service, _: tk.load_failures(
        service, passes=2, progress=False
    ),
    "filtered failures": lambda service, _: tk.load_failures(
        service, filter=tk.FailureFilter(label="eu"), progress=False
    ),
    "failures filtered on our side": lambda service, _: tk.load_failures(
        service, filter=tk.FailureFilter(response_status=404), progress=False
    ),
    "failures in batches": lambda service, _: list(
        tk.iter_failures(service, progress=False)
    ),
    "runs": lambda service, _: tk.load_runs(service, progress=False),
    "vectors": lambda service, _: tk.load_vectors(service, progress=False),
    "a sync": lambda service, folder: tk.sync_failures(service, folder, progress=False),
    "an export": lambda service, folder: tk.export_vectors(
        service, folder, progress=False
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "most"), [("", MOST_EMPTY), (ENTRY, MOST_REPEATED)])
@pytest.mark.parametrize("name", LOADS)
def test_endless_pages_with_nothing_new_end_every_load(
    server, tmp_path, monkeypatch, name, rows, most
):
    """Empty pages, or the same row again and again, with fresh cursors.

    One load meets the real limits, the others a tenth of them.
    """
    if name != "failures":
        most //= 10
        monkeypatch.setattr(paging, "MOST_EMPTY", MOST_EMPTY // 10)
        monkeypatch.setattr(paging, "MOST_REPEATED", MOST_REPEATED // 10)
    server.responding(endless(rows))
    with pytest.raises(ToolkitError) as caught:
        LOADS[name](server.service(), tmp_path / "out")
    error = (
        caught.value.__cause__
        if isinstance(caught.value, IncompleteLoadError)
        else caught.value
    )
    assert isinstance(error, CursorLoopError)
    assert "pages in a row with nothing new" in str(error)
    # some are on their way, or read ahead, when the reader stops
    assert len(server.requests) < most + 250


@pytest.mark.slow
def test_endless_pages_after_many_end_soon(server):
    """A long listing earns no long patience: a thousand pages of new rows, and the last one for ever."""
    numbers = count(1)

    def page(_: Any) -> bytes:
        number = next(numbers)
        return f'{{"runs": [{{"workflowRunId": "r{min(number, 1000)}"}}], "cursor": "c{number}"}}'.encode()

    server.responding(page)
    with pytest.raises(
        IncompleteLoadError, match="pages in a row with nothing new"
    ) as caught:
        tk.load_runs(server.service(), progress=False)
    assert len(caught.value.partial) == 1000
    assert len(server.requests) == 1000 + MOST_REPEATED + 2


@pytest.mark.slow
def test_empty_pages_within_the_bound_are_survived(server, monkeypatch):
    """Nearly as many in a row before, between and behind pages with rows: all rows, and complete."""
    monkeypatch.setattr(paging, "MOST_EMPTY", 200)

    def page(request: Any) -> bytes:
        number = int(dict(request.query).get("cursor", "0"))
        rows = f'{{"workflowRunId": "r{number}"}}' if number % 200 == 150 else ""
        cursor = "" if number == 940 else str(number + 1)
        return f'{{"runs": [{rows}], "cursor": "{cursor}"}}'.encode()

    server.responding(page)
    frame = tk.load_runs(server.service(), progress=False)
    assert sorted(frame["workflow_run_id"]) == ["r150", "r350", "r550", "r750"]
    assert tk.get_receipt(frame).complete
    assert tk.get_receipt(frame).pages == 941


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [None, tk.FailureFilter(response_status=404)])
def test_rows_of_many_pages_may_be_read_again(server, wanted):
    """A second pass over 300 pages, each of known rows only, also of rows that the filter leaves out."""

    def page(request: Any) -> bytes:
        number = int(dict(request.query).get("cursor", "0"))
        entry = f'{{"dlqId": "d{number}", "responseStatus": {404 if number == 299 else 500}}}'
        return f'{{"messages": [{entry}], "cursor": "{"" if number == 299 else number + 1}"}}'.encode()

    server.responding(page)
    frame = tk.load_failures(
        server.service(), wanted, passes=2, connections=1, progress=False
    )
    assert len(frame) == (300 if wanted is None else 1)
    assert tk.get_receipt(frame).complete


@pytest.mark.slow
def test_a_long_filtered_load_is_no_endless_one(server, monkeypatch):
    """Pages of which this side keeps nothing bring entries: three times as many as may be empty."""
    monkeypatch.setattr(paging, "MOST_EMPTY", 50)

    def page(request: Any) -> bytes:
        number = int(dict(request.query).get("cursor", "0"))
        entry = f'{{"dlqId": "d{number}", "responseStatus": {404 if number == 159 else 500}}}'
        return f'{{"messages": [{entry}], "cursor": "{"" if number == 159 else number + 1}"}}'.encode()

    server.responding(page)
    wanted = tk.FailureFilter(response_status=404)
    frame = tk.load_failures(
        server.service(), filter=wanted, progress=False, connections=1
    )
    assert frame["dlq_id"].tolist() == ["d159"]

"""Loading the DLQ in windows from a real server: whole whatever the service does, or known to be short."""

from __future__ import annotations

import json
import threading
import time
import warnings

import pytest

import toolkit as tk
from toolkit.errors import (
    AuthenticationError,
    BadRequestError,
    DailyLimitError,
    IncompleteLoadError,
    IncompleteLoadWarning,
    InputError,
)
from toolkit.loading.failures import open_failures
from toolkit.loading.load import Checkpoint
from toolkit.loading.options import LoadOptions
from toolkit.loading.rate_limiter import SharedRateLimiter
from toolkit.loading.window_reader import WindowFetcher
from toolkit.loading.windows import Window, WindowPlanner
from toolkit.service.pages import Page
from toolkit.service.responses import RetryPolicy
from toolkit.service.transport import Transport

NOW = 1_767_225_600_000
SIZE = 10


class Listing:
    """A DLQ with dates, of pages of ten, that a test can spoil or change while it is read."""

    def __init__(self, count=400, *, apart=1_700):
        self.entries = {f"id-{index}": NOW - index * apart for index in range(count)}
        self.content = dict.fromkeys(self.entries, 500)
        self.requests = []
        self.before = lambda asked: None
        self.dates = ("fromDate", "toDate")
        self.exclusive = False
        self.by_place = False
        self._lock = threading.Lock()

    def page(self, asked):
        """A response to a request for a page, or for one entry."""
        with self._lock:
            query = dict(asked.query)
            self.requests.append((asked.path, query))
            spoilt = self.before(query)
            if spoilt is not None:
                return spoilt
            name = asked.path.removeprefix("/v2/workflows/dlq").strip("/")
            if name:
                result = {"dlqId": name} if name in self.entries else {"error": "gone"}
                return 200 if name in self.entries else 404, result
            low = int(query.get("fromDate", 0)) if "fromDate" in self.dates else 0
            high = (
                int(query.get("toDate", 1 << 60)) if "toDate" in self.dates else 1 << 60
            )
            some = [
                (at, dlq_id)
                for dlq_id, at in self.entries.items()
                if (low < at < high if self.exclusive else low <= at <= high)
            ]
            some.sort(key=lambda item: (-item[0], item[1]))
            if self.by_place:
                start = int(query.get("cursor", 0))
            else:
                mark = json.loads(query["cursor"]) if "cursor" in query else None
                start = (
                    sum((-at, dlq_id) <= (-mark[0], mark[1]) for at, dlq_id in some)
                    if mark
                    else 0
                )
            rows = some[start : start + SIZE]
            cursor = ""
            if start + SIZE < len(some):
                cursor = str(start + SIZE) if self.by_place else json.dumps(rows[-1])
            messages = [
                {
                    "dlqId": dlq_id,
                    "createdAt": at,
                    "responseStatus": self.content[dlq_id],
                }
                for at, dlq_id in rows
            ]
            return 200, {"messages": messages, "cursor": cursor}

    def windows(self):
        """How many different dates were requested."""
        return len(
            {(query.get("fromDate"), query.get("toDate")) for _, query in self.requests}
        )


def reply_with(server, reply):
    """A reply of the scripted server."""
    status, body = reply
    kind = type(type(server)().respond(None))
    return kind(status, {"Content-Type": "application/json"}, json.dumps(body).encode())


@pytest.fixture
def listing(server):
    """A listing, served."""
    result = Listing()
    server.respond = lambda asked: reply_with(server, result.page(asked))
    return result


def transport_to(service, policy=None):
    """A transport without backoff; as it has no rate limiter, windows are always split."""
    return lambda: Transport.to(
        service, "queue", policy=policy or RetryPolicy(), sleep=lambda _: None
    )


def loaded(server, wanted=None, **options):
    """Everything as a frame."""
    service = server.service()
    options = LoadOptions(progress=False, **options)
    return open_failures(
        service, wanted, options, transport=transport_to(service)
    ).frame()


def ids(load, resume=None):
    """The ids of all rows that a load yields."""
    return [
        dlq_id
        for batch in load.batches(resume=resume)
        for dlq_id in batch.table["dlq_id"].to_pylist()
    ]


def test_a_long_listing_is_read_in_windows_and_keeps_its_order(server, listing):
    """Every entry once, newest first as the service lists them, whichever thread was quicker."""
    frame = loaded(server)
    assert frame["dlq_id"].tolist() == list(listing.entries)
    receipt = tk.get_receipt(frame)
    assert (receipt.complete, receipt.duplicates, receipt.changed, receipt.notes) == (
        True,
        0,
        0,
        (),
    )
    assert receipt.windows > 3
    assert receipt.pages == receipt.requests == len(listing.requests)
    assert receipt.pages < 400 / SIZE * 2.5


def test_a_filter_bounds_the_windows(server, listing):
    """since= and until= stay the outermost ends, and nothing outside is requested."""
    wanted = tk.FailureFilter(
        since="2025-12-31T23:50:00Z", until="2025-12-31T23:59:00Z"
    )
    frame = loaded(server, wanted=wanted)
    first, last = NOW - 600_000, NOW - 60_000
    assert frame["dlq_id"].tolist() == [
        dlq_id for dlq_id, at in listing.entries.items() if first <= at <= last
    ]
    dates = [
        query
        for _, query in listing.requests
        if int(query["fromDate"]) < 4_000_000_000_000
    ]
    assert all(
        first <= int(query["fromDate"]) <= int(query["toDate"]) <= last
        for query in dates
    )
    assert listing.windows() > 3


@pytest.mark.parametrize("dates", [(), ("fromDate",), ("toDate",)])
def test_a_service_that_ignores_dates_is_read_with_a_single_cursor(
    server, listing, dates
):
    """Windows that are not a partition are noticed; all is read, once, and the receipt says how."""
    listing.dates = dates
    frame = loaded(server)
    assert sorted(frame["dlq_id"]) == sorted(listing.entries)
    receipt = tk.get_receipt(frame)
    assert (receipt.complete, receipt.windows) == (True, 1)
    assert receipt.notes[0].startswith("read with a single cursor")


def test_a_service_that_refuses_dates_is_read_with_a_single_cursor(server, listing):
    """400 for a window is no reason to fail: the listing as a whole can be read."""
    listing.before = lambda query: (
        (400, {"error": "no dates here"}) if "fromDate" in query else None
    )
    frame = loaded(server)
    assert sorted(frame["dlq_id"]) == sorted(listing.entries)
    assert "ignored the dates" in tk.get_receipt(frame).notes[0]


def test_a_service_that_leaves_out_the_ends_is_noticed(server, listing):
    """Entries missing at the end of their window show that the service excludes its ends."""
    listing.exclusive = True
    frame = loaded(server)
    assert sorted(frame["dlq_id"]) == sorted(listing.entries)
    receipt = tk.get_receipt(frame)
    assert receipt.complete
    assert "in no time window" in receipt.notes[0]


def test_an_entry_deleted_after_a_split_is_no_reason_to_doubt(server, listing):
    """A request by its id shows that it no longer exists: the windows are right."""

    def delete(query):
        if "fromDate" in query:
            listing.entries.pop("id-3", None)

    listing.before = delete
    frame = loaded(server)
    assert set(frame["dlq_id"]) >= set(listing.entries)
    assert tk.get_receipt(frame).complete
    assert tk.get_receipt(frame).notes == ()
    assert "/v2/workflows/dlq/id-3" in [path for path, _ in listing.requests]


def test_the_last_version_of_a_changed_entry_is_kept(server, listing):
    """Read before a split and again in a part of it: the later version, and the receipt counts it."""

    def change(query):
        if "fromDate" in query:
            listing.content["id-3"] = 503

    listing.before = change
    frame = loaded(server)
    assert frame.set_index("dlq_id")["response_status"]["id-3"] == 503
    assert (tk.get_receipt(frame).changed, tk.get_receipt(frame).complete) == (1, True)


def test_a_lost_cursor_means_that_window_again(server, listing):
    """The cursors of three windows fail once: these are read again, and nothing is missing or doubtful."""
    failed = set()

    def expire(query):
        window = query.get("fromDate"), query.get("toDate")
        if "cursor" in query and len(failed) < 3 and window not in failed:
            failed.add(window)
            return 400, {"error": "cursor expired"}
        return None

    listing.before = expire
    frame = loaded(server)
    assert sorted(frame["dlq_id"]) == sorted(listing.entries)
    receipt = tk.get_receipt(frame)
    assert (receipt.complete, receipt.reread) == (True, 3)


def test_cursors_that_never_work_are_an_error(server, listing):
    """What cannot be read is not left out: an error with what was read."""
    listing.before = lambda query: (
        (404, {"error": "no such cursor"}) if "cursor" in query else None
    )
    with pytest.raises(IncompleteLoadError, match="no such cursor") as raised:
        loaded(server)
    assert len(raised.value.partial) == SIZE
    assert not tk.get_receipt(raised.value.partial).complete


def test_a_second_pass_finds_entries_that_changed_position(server):
    """Cursors that count skip entries when others are deleted; passes=2 reads again until nothing is new."""
    for passes, complete in ((1, False), (2, True)):
        found = Listing(55)
        found.by_place = True

        def delete(query, found=found):
            if query.get("cursor") == "20":
                found.entries.pop("id-1", None)

        found.before = delete
        server.respond = lambda asked, found=found: reply_with(
            server, found.page(asked)
        )
        frame = loaded(server, passes=passes)
        assert (set(frame["dlq_id"]) >= set(found.entries)) == complete
        receipt = tk.get_receipt(frame)
        assert receipt.reread == {1: 0, 2: 2}[passes]
        assert receipt.complete


def test_a_listing_that_keeps_changing_is_not_called_complete(server, listing):
    """A new entry with every page: three readings, then the receipt says why it may not be whole."""
    new = iter(range(100_000))

    def add(_):
        number = next(new)
        listing.entries[f"new-{number}"] = NOW + number
        listing.content[f"new-{number}"] = 500

    listing.before = add
    with pytest.warns(
        IncompleteLoadWarning, match="more were found when it was read again"
    ):
        frame = loaded(server, passes=2)
    assert {f"id-{index}" for index in range(400)} <= set(frame["dlq_id"])


FATAL = {
    401: (AuthenticationError, {}),
    429: (
        DailyLimitError,
        {
            "RateLimit-Limit": "9",
            "RateLimit-Remaining": "0",
            "RateLimit-Reset": "1767225600",
        },
    ),
}


@pytest.mark.parametrize("status", FATAL)
def test_a_load_stopped_for_good_can_be_resumed_later(server, listing, status):
    """A token that ran out, a used-up day: typed, not retried, and another load resumes from there."""
    kind, headers = FATAL[status]
    whole = server.respond
    server.respond = lambda asked: (
        type(whole(asked))(status, headers, b'{"error": "no more"}')
        if len(listing.requests) > 25
        else whole(asked)
    )
    service = server.service()
    load = open_failures(
        service, transport=transport_to(service), options=LoadOptions(progress=False)
    )
    rows = []
    with pytest.raises(kind, match="no more"):
        rows.extend(dlq_id for table in load for dlq_id in table["dlq_id"].to_pylist())
    assert threads() == []
    assert not load.receipt.complete
    server.respond = whole
    rest = open_failures(
        service, transport=transport_to(service), options=LoadOptions(progress=False)
    )
    rows += ids(rest, resume=through_json(load.checkpoint()))
    assert sorted(rows) == sorted(listing.entries)
    assert (rest.receipt.complete, rest.receipt.resumed, rest.receipt.rows) == (
        True,
        1,
        400,
    )
    assert rest.receipt.started_at == load.receipt.started_at


def through_json(checkpoint):
    """The checkpoint as it is returned from a file."""
    return Checkpoint(
        position=json.loads(json.dumps(checkpoint.position)),
        identities=checkpoint.identities,
        receipt=json.loads(json.dumps(checkpoint.receipt)),
    )


@pytest.mark.parametrize("passes", [1, 2])
def test_a_load_can_be_stopped_and_resumed_after_any_table(server, listing, passes):
    """Stopped again and again: every entry once, and nothing is requested beyond the end."""
    service = server.service()
    rows, checkpoint = [], None
    for stop_after in (1, 2, 5, 9, 14, 3, None):
        load = open_failures(
            service,
            transport=transport_to(service),
            options=LoadOptions(progress=False, passes=passes),
        )
        for number, batch in enumerate(load.batches(resume=checkpoint), 1):
            rows += batch.table["dlq_id"].to_pylist()
            if number == stop_after:
                checkpoint = through_json(load.checkpoint())
                break
        else:
            checkpoint = through_json(load.checkpoint())
    assert sorted(rows) == sorted(listing.entries)
    receipt = load.receipt
    assert (receipt.complete, receipt.rows, receipt.notes) == (True, 400, ())
    assert receipt.resumed >= 1
    load = open_failures(
        service,
        transport=transport_to(service),
        options=LoadOptions(progress=False, passes=passes),
    )
    requested = len(listing.requests)
    assert ids(load, resume=checkpoint) == []
    assert len(listing.requests) == requested


@pytest.mark.parametrize("stop_at", range(1, 6))
def test_rows_read_but_not_yielded_count_once(server, stop_at):
    """Stopped between reading and yielding a page: the page comes again, and so do its counts."""
    listing = Listing(45)
    server.respond = lambda asked: reply_with(server, listing.page(asked))
    service = server.service()
    calls = []

    def interrupt(*_):
        calls.append(None)
        if len(calls) == stop_at:
            raise KeyboardInterrupt

    def load():
        return open_failures(
            service,
            transport=transport_to(service),
            options=LoadOptions(progress=interrupt, connections=1),
        )

    first = load()
    rows = []
    with pytest.raises(KeyboardInterrupt):
        rows.extend(dlq_id for table in first for dlq_id in table["dlq_id"].to_pylist())
    rest = load()
    rows += ids(rest, resume=through_json(first.checkpoint()))
    assert sorted(rows) == sorted(listing.entries)
    receipt = rest.receipt
    assert (receipt.windows, receipt.pages, receipt.duplicates, receipt.rows) == (
        1,
        5,
        0,
        45,
    )


@pytest.mark.parametrize("stop_at", range(1, 14))
def test_a_stop_at_a_split_is_no_sign_of_a_change(server, listing, stop_at):
    """The parts have them again, or the whole where no part had begun: not a concurrent modification."""
    service = server.service()
    load = open_failures(
        service, transport=transport_to(service), options=LoadOptions(progress=False)
    )
    rows = []
    for number, batch in enumerate(load.batches(), 1):
        rows += batch.table["dlq_id"].to_pylist()
        if number == stop_at:
            break
    rest = open_failures(
        service, transport=transport_to(service), options=LoadOptions(progress=False)
    )
    rows += ids(rest, resume=through_json(load.checkpoint()))
    assert sorted(rows) == sorted(listing.entries)
    receipt = rest.receipt
    assert (receipt.complete, receipt.duplicates, receipt.reread) == (True, 0, 0)


def test_a_listing_that_changed_between_a_load_and_its_resumption_is_read_again(server):
    """Where the cursor of a stop leads back to what was read before it, more may have been missed."""
    listing = Listing(40)
    listing.by_place = True
    server.respond = lambda asked: reply_with(server, listing.page(asked))
    service = server.service()
    load = open_failures(
        service,
        transport=transport_to(service),
        options=LoadOptions(progress=False, connections=1),
    )
    rows = next(iter(load))["dlq_id"].to_pylist()
    listing.entries |= {f"new-{index}": NOW + 1 + index for index in range(3)}
    listing.content |= dict.fromkeys(listing.entries, 500)
    rest = open_failures(
        service,
        transport=transport_to(service),
        options=LoadOptions(progress=False, connections=1),
    )
    rows += ids(rest, resume=through_json(load.checkpoint()))
    assert sorted(rows) == sorted(listing.entries)
    assert (rest.receipt.complete, rest.receipt.reread, rest.receipt.duplicates) == (
        True,
        2,
        3,
    )


def test_a_resumed_load_whose_cursors_expired_reads_those_windows_again(
    server, listing
):
    """Yesterday's cursors are gone: the windows they were of come again, unique by id."""
    service = server.service()
    load = open_failures(
        service, transport=transport_to(service), options=LoadOptions(progress=False)
    )
    rows, old = [], set()
    for number, table in enumerate(load):
        rows += table["dlq_id"].to_pylist()
        old = {entry[2] for entry in load.checkpoint().position["open"]} - {None}
        if number > 8 and old:
            break
    assert old
    begun_anew = set()

    def expired(query):
        """An old cursor is refused until its window was requested from the start, a late request's too."""
        span = (query.get("fromDate"), query.get("toDate"))
        if "cursor" not in query:
            begun_anew.add(span)
        elif query["cursor"] in old and span not in begun_anew:
            return 400, {"error": "expired"}
        return None

    listing.before = expired
    rest = open_failures(
        service, transport=transport_to(service), options=LoadOptions(progress=False)
    )
    rows += ids(rest, resume=through_json(load.checkpoint()))
    assert sorted(rows) == sorted(listing.entries)
    assert rest.receipt.complete
    assert rest.receipt.reread == len(old)


def threads():
    """Threads of loads that are still there."""
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("toolkit-reading")
    ]


def test_an_interrupt_stops_every_thread(server, listing):
    """Ctrl-C in the middle: what was read is there, and no thread is left."""

    def interrupt(done, _):
        if done > 150:
            raise KeyboardInterrupt

    service = server.service()
    with pytest.raises(IncompleteLoadError, match="interrupt") as raised:
        open_failures(
            service,
            transport=transport_to(service),
            options=LoadOptions(progress=interrupt),
        ).frame()
    assert threads() == []
    assert 0 < len(raised.value.partial) < 400
    assert raised.value.partial["dlq_id"].is_unique


def test_an_iterator_that_is_left_stops_every_thread(server, listing):
    """A loop over batches that breaks leaves no thread behind, also while others wait for a response."""
    for _ in tk.iter_failures(server.service(), progress=False):
        break
    assert threads() == []


def test_leaving_does_not_wait_for_missing_responses(server, listing):
    """Open connections are closed: the threads end although the service stays silent."""
    silence = threading.Event()

    def keep_silent(query):
        if "fromDate" in query:
            silence.wait(60)

    listing.before = keep_silent
    service = server.service()
    begun = time.monotonic()
    try:
        for number, _ in enumerate(
            open_failures(
                service,
                transport=transport_to(service),
                options=LoadOptions(progress=False),
            )
        ):
            if number == 5:
                break
        assert threads() == []
        assert time.monotonic() - begun < 30
    finally:
        silence.set()


def test_buffered_pages_are_bounded():
    """Threads stop requesting when enough pages are buffered, and continue when those were consumed."""
    fetched = []

    def fetch(window):
        fetched.append(window)
        return Page(rows=b"[]", cursor=None, size=1, tries=1)

    windows = WindowPlanner(
        [Window(at, at) for at in range(1000)], connections=4, now=NOW
    )
    fetcher = WindowFetcher(
        windows, fetch, connections=4, limiter=SharedRateLimiter(connections=4)
    )
    first = fetcher.take()
    deadline = time.monotonic() + 60
    while windows.busy:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert len(fetched) <= len(first) + 96
    count = len(first)
    while some := fetcher.take():
        count += len(some)
    assert count == 1000
    fetcher.stop()
    fetcher.join()


def test_pages_that_come_at_once_are_fetched_while_the_consumer_waits_for_them():
    """Nothing is fetched while pages are decoded; in exchange, twice as many come together, and all come."""
    fetched = []

    def fetch(window):
        limiter.start()
        fetched.append(window)
        limiter.end(None, 0.0002)
        return Page(rows=b"[]", cursor=None, size=1, tries=1)

    limiter = SharedRateLimiter(connections=4)
    windows = WindowPlanner(
        [Window(at, at) for at in range(1000)], connections=4, now=NOW
    )
    fetcher = WindowFetcher(windows, fetch, connections=4, limiter=limiter)
    count, most = 0, 0
    while some := fetcher.take():
        count, most = count + len(some), max(most, len(some))
        deadline = time.monotonic() + 60
        while windows.busy and count > 192:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert count <= 192 or len(fetched) == count
    assert (count, most) == (1000, 192)
    fetcher.stop()
    fetcher.join()


def test_a_first_look_asks_for_no_more_than_it_needs(server, listing):
    """With a limit nothing is read ahead or in windows."""
    frame = loaded(server, limit=95)
    assert len(frame) == 95
    assert len(listing.requests) == 10
    assert listing.windows() == 1


@pytest.mark.parametrize(
    "options",
    [
        {"connections": 0},
        {"connections": True},
        {"requests_per_second": 0},
        {"passes": 3},
        {"requests_per_second": float("nan")},
    ],
)
def test_caps_that_mean_nothing_are_refused(server, options):
    """Before any request."""
    with pytest.raises(InputError):
        tk.load_failures(server.service(), **options)
    assert server.requests == []


def test_requests_a_second_are_capped(server, listing):
    """The user's cap is kept by the clock of the loader, over all threads."""
    listing.entries = dict(list(listing.entries.items())[:90])
    begun = time.monotonic()
    frame = tk.load_failures(server.service(), progress=False, requests_per_second=20)
    assert len(frame) == 90
    assert time.monotonic() - begun >= (len(listing.requests) - 1) / 20 * 0.99


def test_a_frame_that_is_not_complete_warns_once(server, listing):
    """The warning is the receipt's verdict."""
    entry = {"dlqId": "a", "createdAt": NOW}
    server.responding(lambda _: json.dumps({"messages": [entry, entry]}).encode())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame = loaded(server)
    assert [str(item.message) for item in caught] == [tk.get_receipt(frame).verdict]


def test_an_error_of_the_first_page_is_itself(server, listing):
    """400 for the whole is what the user has to know."""
    listing.before = lambda _: (400, {"error": "no such label"})
    with pytest.raises(BadRequestError, match="no such label"):
        loaded(server)
    assert threads() == []

"""Windows on hand-made services: whatever a listing does, they make up the whole, and cost little."""

from __future__ import annotations

import bisect
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import CursorLoopError, ResponseError
from toolkit.loading.consistency import Partition
from toolkit.loading.load import Checkpoint, LoadState
from toolkit.loading.window_states import Event, WindowState
from toolkit.loading.windows import (
    YEAR_2100,
    FetchResult,
    Window,
    WindowPlanner,
    merge_spans,
    plan_split,
    timestamps,
    uncovered,
)
from toolkit.service.pages import Page

NOW = 1_767_225_600_000
DAY = 86_400_000
ends = st.integers(0, 60)


class Service:
    """A DLQ of entries with two times: the one that dates are compared with, and the one that is shown."""

    def __init__(
        self, times, *, order="newest", shown="createdAt", apart=0, size=10, seed=0
    ):
        self.size = size
        self.name, self.apart = shown, apart
        self.entries = sorted(enumerate(times), key=lambda entry: (-entry[1], entry[0]))
        if order == "oldest":
            self.entries.reverse()
        elif order == "random":
            random.Random(seed).shuffle(self.entries)
        self.sorted = None if order != "newest" else [-at for _, at in self.entries]

    def page(self, window):
        """The next page of a window, and the numbers of its entries."""
        low = 0 if window.first is None else window.first
        high = 1 << 62 if window.last is None else window.last
        if self.sorted is not None:
            inside = self.entries[
                bisect.bisect_left(self.sorted, -high) : bisect.bisect_right(
                    self.sorted, -low
                )
            ]
        else:
            inside = [entry for entry in self.entries if low <= entry[1] <= high]
        start = int(window.cursor or 0)
        some = inside[start : start + self.size]
        after = start + self.size
        rows = b"[%b]" % b",".join(
            b'{"%b":%d}' % (self.name.encode(), at - self.apart) for _, at in some
        )
        cursor = str(after) if after < len(inside) else None
        return Page(rows=rows, cursor=cursor, size=1, tries=1), [
            number for number, _ in some
        ]


def read(service, *, connections=8, seed=0, windows=None):
    """Read everything, responses coming in any order; returns each ended window's entries, and the pages."""
    chance = random.Random(seed)
    plan = WindowPlanner(
        windows or [Window(None, None, whole=True)], connections=connections, now=NOW
    )
    under_way, ended, held, pages = [], [], {}, 0
    while plan.available or under_way:
        while plan.available and len(under_way) < connections:
            under_way.append(plan.next())
        window = under_way.pop(chance.randrange(len(under_way)))
        page, numbers = service.page(window)
        pages += 1
        held.setdefault(window, []).extend(numbers)
        outcome = plan.arrived(window, page, free=connections - plan.busy)
        if outcome == "end":
            ended.append((window, held.pop(window)))
        elif outcome == "split":
            held.pop(window)
    assert not held
    assert plan.busy == 0
    return ended, pages


times = st.one_of(
    st.lists(st.integers(NOW - 30 * DAY, NOW), max_size=400),
    st.lists(st.integers(NOW - 60_000, NOW), max_size=400),
    st.integers(0, 400).map(lambda count: [NOW] * count),
    st.lists(
        st.sampled_from([NOW, NOW - 1, NOW - 5 * DAY, NOW - 5 * DAY + 1]), max_size=400
    ),
    st.lists(st.integers(0, YEAR_2100 - 1), max_size=200),
)


@given(
    times,
    st.sampled_from(["newest", "oldest", "random"]),
    st.sampled_from(["createdAt", "workflowCreatedAt", "nothing"]),
    st.sampled_from([0, 0, 1_800_000, 40 * DAY]),
    st.integers(1, 16),
    st.integers(0, 10_000),
)
def test_every_entry_comes_from_exactly_one_window(
    found, order, shown, apart, connections, seed
):
    """In any order, by a time that is not in the entry, all in one millisecond: none lost, none twice."""
    service = Service(found, order=order, shown=shown, apart=apart, seed=seed)
    ended, _ = read(service, connections=connections, seed=seed)
    numbers = [number for _, some in ended for number in some]
    assert sorted(numbers) == list(range(len(found)))
    spans = [
        window.span for window, _ in ended if window.state is not WindowState.PROBE
    ]
    assert merge_spans(spans) == [(None, None)]
    assert sum(window.state is WindowState.PROBE for window, _ in ended) <= 1


@given(times, ends, ends)
def test_paging_never_leaves_a_bounded_range(found, before, after):
    """With since= and until=, windows lie between them."""
    first, last = NOW - before * DAY, NOW - before * DAY + after * DAY
    ended, _ = read(Service(found), windows=[Window(first, last, whole=True)])
    numbers = [number for _, some in ended for number in some]
    assert sorted(numbers) == [
        number for number, at in enumerate(found) if first <= at <= last
    ]
    assert merge_spans(
        window.span for window, _ in ended if window.state is not WindowState.PROBE
    ) == [(first, last)]


def uniform(count, days=7, seed=1):
    """Times spread over some days."""
    chance = random.Random(seed)
    return [NOW - int(chance.random() * days * DAY) for _ in range(count)]


def bursts(count, bursts=6, seed=1):
    """Times in some minutes of a week."""
    chance = random.Random(seed)
    starts = [
        NOW - int((index + chance.random()) * 7 * DAY / bursts)
        for index in range(bursts)
    ]
    return [chance.choice(starts) - int(chance.random() * 60_000) for _ in range(count)]


@pytest.mark.parametrize(
    ("found", "waste", "chain"),
    [
        (uniform(50_000), 0.2, 25),
        (bursts(50_000), 0.33, 25),
        (bursts(50_000, bursts=1), 0.2, 25),
        (uniform(200_000), 0.15, 80),
    ],
    ids=["uniform", "six bursts", "one burst", "many"],
)
def test_long_listings_are_split_into_many_short_windows_with_little_waste(
    found, waste, chain
):
    """Wasted pages stay a small share, and no window is much longer than the others at the end."""
    ended, pages = read(Service(found, size=100), connections=16)
    assert pages <= len(found) / 100 * (1 + waste)
    assert max(window.pages for window, _ in ended) <= chain


def normal_bursts(count, bursts=6, seed=1):
    """Times of normal distributions, standard deviation 50 minutes, around some times of two weeks."""
    chance = random.Random(seed)
    middles = [NOW - int(chance.random() * 14 * DAY) for _ in range(bursts)]
    return [
        int(chance.gauss(chance.choice(middles), 50 * 60_000)) for _ in range(count)
    ]


def steps(service, connections=16):
    """The duration of a load as a multiple of the latency, when all requests take equally long."""
    plan = WindowPlanner(
        [Window(None, None, whole=True)], connections=connections, now=NOW
    )
    taken = 0
    while plan.available:
        requested = [plan.next() for _ in range(min(plan.available, connections))]
        for window in requested:
            plan.arrived(
                window, service.page(window)[0], free=connections - plan.busy + 1
            )
        taken += 1
    return taken


@pytest.mark.parametrize("seed", range(6))
def test_bursts_that_swell_and_fade_leave_no_connection_idle_for_long(seed):
    """A burst's newest page is sparse; its window is split while it is still cheap: 500 pages in 60 steps."""
    assert steps(Service(normal_bursts(50_000, seed=seed), size=100)) <= 60


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 600])
def test_a_short_listing_costs_a_request_a_page(count):
    """One page, one request; a few pages, a few requests."""
    ended, pages = read(Service(uniform(count), size=100))
    assert pages == max(1, -(-count // 100))
    assert len(ended) == 1


def test_a_single_millisecond_is_read_by_its_cursor():
    """Nothing can be split below a millisecond; what lies around it costs a few requests."""
    ended, pages = read(Service([NOW] * 3000, size=100))
    assert max(window.pages for window, _ in ended) == 30
    assert pages < 30 + 40


def test_nothing_is_split_where_that_gains_nothing():
    """Where responses come at once, the cursor is as quick."""
    plan = WindowPlanner([Window(None, None, whole=True)], connections=8, now=NOW)
    service = Service(uniform(3000), size=100)
    for _ in range(30):
        window = plan.next()
        page, _ = service.page(window)
        outcome = plan.arrived(window, page, free=None)
    assert (outcome, window.pages) == ("end", 30)


def test_a_service_whose_pages_never_end_is_not_split_for_ever():
    """Empty pages with ever new cursors: the allowance ends, and the windows are read on."""
    plan = WindowPlanner([Window(None, None, whole=True)], connections=8, now=NOW)
    for number in range(3000):
        window = plan.next()
        page = Page(rows=b"[]", cursor=f"c{number}", size=1, tries=1)
        plan.arrived(window, page, free=8 - plan.busy)
    assert plan.available < 400


def test_a_repeated_cursor_is_an_error():
    """In each window by itself: A, B, A."""
    plan = WindowPlanner(
        [Window(None, None, whole=True, splits=False)], connections=8, now=NOW
    )
    for cursor in ("a", "b"):
        plan.arrived(plan.next(), Page(rows=b"[]", cursor=cursor, size=1, tries=1))
    with pytest.raises(CursorLoopError, match="'a' again"):
        plan.arrived(plan.next(), Page(rows=b"[]", cursor="a", size=1, tries=1))


def test_dropped_windows_are_not_requested_again():
    """After `drop_all` only what is added comes."""
    plan = WindowPlanner([Window(0, 5), Window(6, 9)], connections=8, now=NOW)
    busy = plan.next()
    plan.drop_all()
    plan.add([whole := Window(None, None)])
    assert busy is not None
    assert busy.state is WindowState.DROPPED
    assert plan.next() is whole
    assert plan.available == 0


spans = st.tuples(st.none() | ends, st.none() | ends).filter(
    lambda span: None in span or span[0] <= span[1]
)


def points(some):
    """Which of the milliseconds from -1 to 61 the spans hold."""
    return {
        at
        for first, last in some
        for at in range(-1, 62)
        if (first is None or first <= at) and (last is None or at <= last)
    }


@given(spans, st.lists(spans, max_size=6))
def test_uncovered_and_covered_spans_make_up_the_whole(whole, covered):
    """No millisecond is forgotten, none is repeated, and neighbours are put together."""
    left = uncovered(whole, covered)
    assert points(left) == points([whole]) - points(covered)
    assert sum(len(points([span])) for span in left) == len(points(left))
    together = merge_spans(covered)
    assert points(together) == points(covered)
    assert len(together) <= len(covered) + 1
    assert merge_spans(together) == together


@given(
    spans,
    st.none() | st.lists(st.integers(0, 60), min_size=1, max_size=30),
    st.floats(1, 1e6),
    st.booleans(),
)
def test_suggested_cuts_lie_inside_the_window(span, seen, part, ends_too):
    """Whatever was seen: ascending, within, at least one where there are two milliseconds."""
    first, last = span
    result = plan_split(first, last, seen, now=30, part=part, ends=ends_too)
    assert list(result.cuts) == sorted(set(result.cuts))
    low, high = first or 0, YEAR_2100 if last is None else last
    assert all(low <= cut < high for cut in result.cuts)
    assert bool(result.cuts) == (low < high)


def test_timestamps_are_those_that_agree_with_the_window():
    """createdAt, else workflowCreatedAt, else the Date of the response that failed."""
    row = (
        b'[{"createdAt": 1767225600000, "workflowCreatedAt": 1767225700000, '
        b'"responseHeader": {"Date": ["Thu, 01 Jan 2026 00:05:00 GMT"]}}]'
    )
    for at in (1_767_225_600_000, 1_767_225_700_000, 1_767_225_900_000):
        assert timestamps(row, at - 5, at + 5) == [at]
    assert timestamps(row, 0, 5) is None
    assert (
        timestamps(
            b'[{"responseHeader": {"Date": ["some day in spring, I think"]}}]', 0, 5
        )
        is None
    )


def resumed(service, state, *, passes, chance, stop_after):
    """Read on from the state's position, and stop after so many pages; whether the end was reached."""
    partition = Partition((None, None), state, passes=passes)
    plan = WindowPlanner(partition.windows, connections=8, now=NOW)
    under_way, came = [], []
    while stop_after:
        while plan.available and len(under_way) < 8:
            under_way.append(plan.next())
        if came and (not under_way or chance.random() < 0.5):
            result, numbers = came.pop(0)
            stop_after -= 1
            values = [b"%016d" % number for number in numbers]
            is_new = state.rows.add(values)
            assert partition.take(
                result, values, [str(number) for number in numbers], is_new
            )
            if result.outcome == "end":
                assert partition.ended(result.window) is None
            state.position = partition.position
        elif under_way:
            window = under_way.pop(chance.randrange(len(under_way)))
            page, numbers = service.page(window)
            outcome = plan.arrived(window, page, free=8 - plan.busy)
            came.append(
                (
                    FetchResult(window, outcome, page, window.cursor, window.pages),
                    numbers,
                )
            )
        else:
            assert not partition.not_seen_again
            following = partition.next_pass()
            if not following:
                return True
            plan.add(following)
    return False


@given(
    times,
    st.sampled_from(["newest", "oldest", "random"]),
    st.sampled_from([0, 1_800_000]),
    st.lists(st.integers(1, 30), max_size=5),
    st.sampled_from([1, 2]),
    st.integers(0, 10_000),
)
def test_a_load_stopped_anywhere_is_resumed_to_the_same_end(
    found, order, apart, stops, passes, seed
):
    """What was being requested is lost at each stop; in the end every entry is known once, and no doubt."""
    service = Service(found, order=order, apart=apart, seed=seed)
    chance = random.Random(seed)
    state = LoadState()
    for stop_after in [*stops, 10_000]:
        ended = resumed(
            service, state, passes=passes, chance=chance, stop_after=stop_after
        )
        checkpoint = Checkpoint(
            position=json.loads(json.dumps(state.position)),
            identities=state.rows.first(len(state.rows)),
            receipt=json.loads(json.dumps(state.counts())),
        )
        state = LoadState()
        state.resume(checkpoint)
    assert ended
    assert len(state.rows) == len(found)
    assert state.unsettled == []
    assert state.position["open"] == []
    assert merge_spans((first, last) for first, last in state.position["done"]) == [
        (None, None)
    ]


def test_rows_from_an_empty_window_show_that_dates_are_ignored():
    """The window in the year 2100 must be empty; any other may hold rows."""
    partition = Partition((None, None), LoadState())
    page = Page(rows=b"[]", cursor=None, size=1, tries=1)
    probe = FetchResult(
        Window(YEAR_2100, YEAR_2100, WindowState.PROBE, splits=False), "end", page
    )
    assert partition.take(probe, [], [], None)
    assert not partition.take(probe, [b"0" * 16], ["a"], None)
    assert partition.take(
        FetchResult(partition.windows[0], "end", page), [b"0" * 16], ["a"], None
    )


def test_each_reading_of_a_window_has_a_state():
    """A lost cursor, a change and a second pass each lead to the next state."""
    state = LoadState()
    partition = Partition((None, None), state, passes=2)
    (window,) = partition.windows
    assert window.state is WindowState.FIRST_READING
    window = partition.lost(
        window, ResponseError("reading", status=410, message="gone")
    )
    assert (window.state, window.reading) == (WindowState.REREADING, 2)
    window.repeated_rows = 1
    window = partition.ended(window)
    assert (window.state, window.reading) == (WindowState.COMPARING, 3)
    assert partition.ended(window) is None
    assert [item.state for item in partition.next_pass()] == [WindowState.COMPARING]
    assert partition.fall_back("a test").state is WindowState.REREADING
    known = [
        state
        for state in WindowState
        if state not in (WindowState.PROBE, WindowState.DROPPED)
    ]
    assert {state.after(event) for state in known for event in Event} <= set(known)


def test_a_checkpoint_stores_the_state_of_a_window():
    """A window that is read again is in the same state after the load is resumed."""
    for state in (
        WindowState.FIRST_READING,
        WindowState.REREADING,
        WindowState.COMPARING,
    ):
        flags = {
            "expects_known_rows": state.expects_known_rows,
            "compares": state.compares,
        }
        assert WindowState.from_flags(**flags) is state

"""The rate limiter with a clock that the test advances: it speeds up, slows down, and respects limits."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import DailyLimitError, RateLimitError, ServerError
from toolkit.loading.rate_limiter import (
    AdaptiveRateLimiter,
    LoadStopped,
    SharedRateLimiter,
)


class Service:
    """A service with a latency and a limit by the second, and as many requests as the limiter allows."""

    def __init__(self, limiter, *, latency=0.05, limit=None, named=True):
        self.limiter, self.latency, self.limit, self.named = (
            limiter,
            latency,
            limit,
            named,
        )
        self.now = 1000.0
        self.starts, self.widths, self.seconds = [], [], Counter()
        self.refused = 0

    def respond(self, requests):
        """Make so many requests, and wait for the response to each; returns the seconds it took."""
        begun, number = self.now, itertools.count()
        waiting = [self.now] * requests  # when each may be tried
        under_way = []
        while waiting or under_way:
            if waiting and waiting[0] <= self.now and self.limiter.delay(self.now) <= 0:
                heapq.heappop(waiting)
                self.limiter.started(self.now)
                self.starts.append(self.now)
                self.seconds[int(self.now)] += 1
                refused = (
                    self.limit is not None and self.seconds[int(self.now)] > self.limit
                )
                heapq.heappush(
                    under_way,
                    (self.now + self.latency, next(number), self.now, refused),
                )
                continue
            moments = [under_way[0][0]] if under_way else []
            if waiting:
                moments.append(max(waiting[0], self.now + self.limiter.delay(self.now)))
            self.now = max(self.now + 1e-9, min(moments))
            while under_way and under_way[0][0] <= self.now:
                _, _, start, refused = heapq.heappop(under_way)
                error = self._refusal() if refused else None
                self.limiter.ended(self.now, error, self.now - start)
                self.widths.append(self.limiter.width)
                if error is not None:
                    heapq.heappush(waiting, self.now + error.wait)
        return self.now - begun

    def _refusal(self):
        self.refused += 1
        return RateLimitError(
            "x",
            status=429,
            message="",
            wait=1.0,
            limit=self.limit if self.named else None,
        )


def test_it_begins_modestly_and_grows_while_latency_stays_flat():
    """Four at once at first, never more than allowed, and all of them after some seconds."""
    service = Service(AdaptiveRateLimiter(connections=16))
    took = service.respond(900)
    assert service.widths[0] == 4
    assert max(service.widths) == 16
    assert took < 900 * service.latency / 8


def test_it_never_exceeds_the_connections():
    """One connection means one request at a time."""
    service = Service(AdaptiveRateLimiter(connections=1))
    assert service.respond(20) == pytest.approx(20 * service.latency)
    assert set(service.widths) == {1}


def test_more_at_once_are_not_tried_where_latency_grows_with_them():
    """A service that works on one request at a time gets few."""
    limiter = AdaptiveRateLimiter(connections=16)
    now, width = 0.0, []
    for _ in range(300):
        busy = 0
        while limiter.delay(now) <= 0:
            limiter.started(now)
            busy += 1
        for index in range(busy):
            limiter.ended(now + 0.05 * (index + 1), None, 0.05 * (index + 1))
        now += 0.05 * busy
        width.append(busy)
    assert max(width[100:]) <= 10


@pytest.mark.parametrize("named", [True, False])
def test_a_limit_is_learned_once_and_then_respected(named):
    """A hundred a second: few refusals, most of the rate used, whether the service names the limit or not."""
    service = Service(AdaptiveRateLimiter(connections=16), limit=100, named=named)
    took = service.respond(570)
    assert service.refused < 0.02 * len(service.starts)
    assert took < 570 / 100 * 1.5


def test_a_refusal_halves_and_holds_everyone():
    """No request starts before the time that the service named; running ones count as one rejection."""
    limiter = AdaptiveRateLimiter(connections=16)
    for _ in range(4):
        limiter.started(10.0)
    for _ in range(4):
        limiter.ended(
            10.1, RateLimitError("x", status=429, message="", wait=2.0, limit=50), 0.1
        )
    assert limiter.width == 2
    assert limiter.delay(10.1) == pytest.approx(2.0)
    assert limiter.rate == pytest.approx(47.5)


def test_one_early_refusal_does_not_make_it_crawl():
    """A refusal after two requests says little about the rate."""
    limiter = AdaptiveRateLimiter(connections=16)
    limiter.started(1.0)
    limiter.ended(1.1, RateLimitError("x", status=429, message="", wait=0.0), 0.1)
    assert limiter.rate is not None
    assert limiter.rate >= 10


def test_a_rate_that_was_not_named_grows_again():
    """After some calm seconds the next rate is tried."""
    service = Service(AdaptiveRateLimiter(connections=16), limit=40, named=False)
    service.respond(200)
    before = service.limiter.rate
    service.limit = None
    service.respond(600)
    assert service.limiter.rate > before


def test_other_errors_do_not_change_the_pace():
    """A daily limit ends the load anyway, and a 500 is a matter of retries."""
    limiter = AdaptiveRateLimiter(connections=16)
    for error in (
        DailyLimitError("x", status=429, message=""),
        ServerError("x", status=500, message=""),
    ):
        limiter.started(1.0)
        limiter.ended(1.1, error, 0.1)
    assert (limiter.width, limiter.rate, limiter.delay(1.1)) == (4, None, 0.0)


@given(st.floats(0.5, 200), st.integers(1, 32), st.floats(0.001, 0.5))
def test_a_cap_by_the_user_holds_in_every_second(cap, connections, latency):
    """No span of a second sees more starts than requested, and one at its edge."""
    service = Service(
        AdaptiveRateLimiter(connections=connections, requests_per_second=cap),
        latency=latency,
    )
    service.respond(60)
    for index, start in enumerate(service.starts):
        within = [other for other in service.starts[index:] if other < start + 0.999]
        assert len(within) <= cap + 1


def until_stopped(wait, ended):
    """Wait, and note that it ended."""
    try:
        wait()
    except LoadStopped:
        ended.append(wait)


def test_waiting_threads_are_released_when_a_load_ends():
    """Those that wait for their turn end with `LoadStopped`."""
    limiter = SharedRateLimiter(connections=1)
    limiter.start()
    ended = []
    threads = [
        threading.Thread(target=until_stopped, args=(limiter.start, ended))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    limiter.stop()
    for thread in threads:
        thread.join(30)
    assert len(ended) == 2


def test_the_next_may_start_when_one_has_ended():
    """With one connection, a second request waits for the first."""
    limiter = SharedRateLimiter(connections=1)
    limiter.start()
    begun = threading.Event()

    def second():
        limiter.start()
        begun.set()

    waiting = threading.Thread(target=second)
    waiting.start()
    limiter.end(None, 0.1)
    assert begun.wait(30)
    limiter.stop()
    waiting.join(30)


def test_a_busy_process_does_not_look_like_a_slow_service():
    """Latency is the least that was seen: other latencies hold what this process did."""
    limiter = SharedRateLimiter(connections=16)
    assert limiter.is_delaying
    for seconds in [0.02] * 8:
        limiter.end(None, seconds)
    assert limiter.is_delaying
    limiter.end(None, 0.001)
    assert not limiter.is_delaying
    assert not limiter.is_immediate
    limiter.end(None, 0.0004)
    assert limiter.is_immediate
    for seconds in [0.02] * 9:
        limiter.end(None, seconds)
    assert limiter.is_delaying
    assert not limiter.is_immediate

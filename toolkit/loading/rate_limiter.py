"""An adaptive rate limiter: how many requests run concurrently, and how many start each second.

A load begins with a few concurrent requests, adds more while latency stays flat, halves them when the service
rejects one with 429, and then keeps to the rate that the service named or accepted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from toolkit.base.errors import DailyLimitError, RateLimitError, ServiceError
from toolkit.loading.options import LoadOptions
from toolkit.service.settings import Service
from toolkit.service.transport import Transport


@dataclass(frozen=True)
class RateTuning:
    """Constants of the rate limiter, with the reasons."""

    first_width: int = 4
    """Concurrent requests that a load begins with."""
    modest_width: int = 9
    """Concurrent requests to try in `first_seconds`. Limits count by the second: until then nothing shows
    whether more would be accepted, and all concurrent requests can be rejected together."""
    first_seconds: float = 1.2
    """Seconds until a limit by the second has shown itself."""
    added_per_second: float = 4.0
    """Concurrent requests added each second, beyond the modest number."""
    default_backoff: float = 1.0
    """Seconds of delay, if the service does not name a delay."""
    share_of_named: float = 0.95
    """Share of a rate that the service named, so that the jitter of the network does not exceed it."""
    share_of_accepted: float = 0.75
    """Share of the rate at which the service rejected a request without naming one."""
    least_accepted: float = 10.0
    """Lower bound of the next rate to try, however few requests were sent before."""
    least_rate: float = 0.5
    """Requests per second that are always sent, so that a load ends."""
    growth: float = 1.05
    """Factor of a rate that was not named, per second without a rejection."""
    calm_seconds: float = 3.0
    """Seconds without a rejection until such a rate grows again."""
    slower: float = 2.0
    """More concurrency does not help if the latency is this many times the best one."""
    latencies: int = 9
    """Latest latencies of which the median is taken, so that one slow response changes nothing."""
    slack: float = 0.002
    """Seconds of difference between latencies that mean nothing."""
    longest_delay: float = 3600.0
    """Seconds; a service may request more than the clocks of the system can represent."""
    worth_waiting: float = 0.005
    """Seconds of latency below which concurrency gains nothing."""
    immediate: float = 0.001
    """Seconds of latency that are mostly the work of this process."""


TUNING: Final = RateTuning()


class AdaptiveRateLimiter:
    """When the next request may start: pure, the time is an argument.

    >>> limiter = AdaptiveRateLimiter(connections=16, requests_per_second=10)
    >>> limiter.delay(100.0)
    0.0
    >>> limiter.started(100.0)
    >>> round(limiter.delay(100.0), 3)
    0.1
    """

    def __init__(
        self, *, connections: int, requests_per_second: float | None = None
    ) -> None:
        self._most = connections
        self._width = float(min(TUNING.first_width, connections))
        self._requested_rate = requests_per_second
        self._rate: float | None = None
        self._named = False
        self._running = 0
        self._free_from = float("-inf")  # nothing starts before
        # earliest start of the next request at this rate
        self._spaced_from = float("-inf")
        self._calm_from: float | None = None
        self._cut_at = float("-inf")
        self._starts: deque[float] = deque()
        self._latencies: deque[float] = deque(maxlen=TUNING.latencies)
        self._best: float | None = None

    @property
    def width(self) -> int:
        """Requests that may run concurrently."""
        return int(self._width)

    @property
    def rate(self) -> float | None:
        """Starts each second, at most; None while nothing limits them."""
        rates = [
            rate for rate in (self._rate, self._requested_rate) if rate is not None
        ]
        return min(rates, default=None)

    @property
    def latency(self) -> float | None:
        """Return the lowest of the latest latencies in seconds, or None before the first.

        Higher latencies may include time in which this process was busy when a response arrived.
        """
        return min(self._latencies, default=None)

    def delay(self, now: float) -> float:
        """Seconds until the next request may start; infinite while too many are running."""
        if self._running >= self.width:
            return float("inf")
        return max(0.0, self._free_from - now, self._spaced_from - now)

    def started(self, now: float) -> None:
        """Record the start of a request."""
        self._running += 1
        if self._calm_from is None:
            self._calm_from = now
        self._starts.append(now)
        while self._starts[0] <= now - 1:
            self._starts.popleft()
        if (rate := self.rate) is not None:
            self._spaced_from = max(self._spaced_from, now) + 1 / rate

    def ended(self, now: float, error: ServiceError | None, seconds: float) -> None:
        """Record the end of a request, with a response or an error, and the duration."""
        self._running -= 1
        # sending more slowly does not help against a daily limit, which ends the load
        if isinstance(error, RateLimitError) and not isinstance(error, DailyLimitError):
            backoff = TUNING.default_backoff
            if error.wait is not None:
                backoff = error.wait
            self._free_from = max(self._free_from, now + backoff)
            if now - seconds >= self._cut_at:
                # requests that were running at the last cut are no new information
                self._cut(now, error.limit)
        elif error is None:
            self._succeeded(now, seconds)

    def _cut(self, now: float, named: int | None) -> None:
        # AIMD, as in TCP: halve after a rejection here, add slowly after each success in `_succeeded`.
        self._width = max(1.0, self._width / 2)
        if named is not None:
            self._rate, self._named = named * TUNING.share_of_named, True
        elif self._rate is not None:
            self._rate, self._named = (
                max(TUNING.least_rate, self._rate * TUNING.share_of_accepted),
                False,
            )
        else:
            accepted = sum(start > now - 1 for start in self._starts)
            self._rate, self._named = (
                max(TUNING.least_accepted, accepted * TUNING.share_of_accepted),
                False,
            )

        self._cut_at = now
        self._calm_from = max(now, self._free_from)

    def _succeeded(self, now: float, seconds: float) -> None:
        calm = 0.0
        if self._calm_from is not None:
            calm = now - self._calm_from
        self._latencies.append(seconds)
        # the median, as a single slow response means nothing
        recent = median(self._latencies)
        if len(self._latencies) == TUNING.latencies:
            self._best = recent if self._best is None else min(self._best, recent)
        if (
            self._best is not None
            and recent > self._best * TUNING.slower + TUNING.slack
        ):
            self._width = max(2.0, self._width - 1 / self._width)
        else:
            # 1 / width per response: about one more connection per round of concurrent requests
            bound = TUNING.modest_width + TUNING.added_per_second * max(
                0.0, calm - TUNING.first_seconds
            )
            if self._width < min(bound, self._most):
                self._width = min(self._width + 1 / self._width, bound, self._most)

        if self._rate is not None and not self._named and calm > TUNING.calm_seconds:
            # each response has its share
            self._rate *= TUNING.growth ** min(1.0, 1 / self._rate)


class LoadStopped(Exception):  # noqa: N818 - a sign to a thread, not an error
    """The load has ended, and the response to this request is no longer needed."""


class SharedRateLimiter(AdaptiveRateLimiter):
    """A rate limiter shared by threads: a `Transport` waits for it before each try."""

    def __init__(
        self,
        *,
        connections: int,
        requests_per_second: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            connections=connections, requests_per_second=requests_per_second
        )
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._stopped = False

    @property
    def is_delaying(self) -> bool:
        """Return True if most time is spent waiting for responses, so that more concurrency is faster."""
        return self.latency is None or self.latency > TUNING.worth_waiting

    @property
    def is_immediate(self) -> bool:
        """Return True if responses arrive so fast that no time can be used while waiting for them."""
        return self.latency is not None and self.latency < TUNING.immediate

    def start(self) -> None:
        """Block until a request may start; raises `LoadStopped` when the load has ended."""
        with self._changed:
            while not self._stopped:
                delay = self.delay(self._monotonic())
                if delay <= 0:
                    self.started(self._monotonic())
                    return
                self._changed.wait(
                    None if delay == float("inf") else min(delay, TUNING.longest_delay)
                )

        raise LoadStopped

    def end(self, error: ServiceError | None, seconds: float) -> None:
        """Record the end of a request after a number of seconds."""
        with self._changed:
            self.ended(self._monotonic(), error, seconds)
            self._changed.notify()

    def stop(self) -> None:
        """Wake all waiting threads: the load has ended."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def open_transport(
    service: Service,
    endpoint: Literal["queue", "vector"],
    options: LoadOptions,
    make: Callable[[], Transport] | None = None,
) -> tuple[Transport, SharedRateLimiter]:
    """Return a transport for one load and the rate limiter. A transport from `make` has no limiter."""
    limiter = SharedRateLimiter(
        connections=options.connections, requests_per_second=options.requests_per_second
    )
    if make is not None:
        return make(), limiter

    return Transport.to(
        service,
        endpoint,
        limiter=limiter,
        connections=options.connections,
        progress=options.progress,
    ), limiter

"""How many requests are under way, and how many start a second: learnt from how the service answers.

A load begins with a few requests at once, adds while latency stays flat, halves when the service turns one
away, and then keeps to the rate that the service named or bore. Nothing here knows what is asked for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Final

from toolkit.errors import DailyLimitError, RateLimitError, ServiceError

_FIRST: Final = 4
_MODEST: Final = 9
"""Requests at once that are tried before a second has passed. Limits count by the second: until then nothing
shows whether more would be borne, and all that are under way can be turned away at once."""

_TRIED: Final = 1.2  # seconds until a limit by the second has shown itself
_MORE_A_SECOND: Final = 4.0  # requests at once added a second, beyond the modest number
_UNSAID_WAIT: Final = 1.0  # seconds to hold when the service does not say
_SHARE_OF_NAMED: Final = 0.95  # of a rate the service named, so that the network's jitter does not exceed it
_SHARE_OF_BORNE: Final = 0.75  # of the rate at which it turned a request away without naming one
_LEAST_BORNE: Final = 10.0  # what is tried next at least, however few requests the first refusal came after
_LEAST_RATE: Final = 0.5
_GROWTH: Final = 1.05  # of a rate that was not named, a second
_CALM: Final = 3.0  # seconds without being turned away until such a rate grows again
_SLOWER: Final = 2.0  # times the best latency, from which on more at once do not help
_LATENCIES: Final = 9
_SLACK: Final = 0.002  # seconds of difference that mean nothing


class AdaptiveRateLimiter:
    """When the next request may start: pure, told the time.

    Parameters
    ----------
    connections : int
        Requests at once, at most.
    requests_per_second : float, optional
        Starts a second, at most.

    Examples
    --------
    >>> rhythm = AdaptiveRateLimiter(connections=16, requests_per_second=10)
    >>> rhythm.delay(100.0)
    0.0
    >>> rhythm.started(100.0)
    >>> round(rhythm.delay(100.0), 3)
    0.1
    """

    def __init__(self, *, connections: int, requests_per_second: float | None = None) -> None:
        self._most = connections
        self._width = float(min(_FIRST, connections))
        self._asked_rate = requests_per_second
        self._rate: float | None = None
        self._named = False
        self._under_way = 0
        self._free_from = float("-inf")  # nobody starts before
        self._spaced_from = float("-inf")  # what the rate allows next
        self._calm_from: float | None = None
        self._cut_at = float("-inf")
        self._starts: deque[float] = deque()
        self._latencies: deque[float] = deque(maxlen=_LATENCIES)
        self._best: float | None = None

    @property
    def width(self) -> int:
        """Requests that may be under way at once."""
        return int(self._width)

    @property
    def rate(self) -> float | None:
        """Starts a second, at most; None while nothing limits them."""
        rates = [rate for rate in (self._rate, self._asked_rate) if rate is not None]
        return min(rates, default=None)

    @property
    def latency(self) -> float | None:
        """Seconds of a usual answer of late; None before the first."""
        return median(self._latencies) if self._latencies else None

    def delay(self, now: float) -> float:
        """Seconds until the next request may start; infinite while too many are under way."""
        if self._under_way >= self.width:
            return float("inf")
        return max(0.0, self._free_from - now, self._spaced_from - now)

    def started(self, now: float) -> None:
        """A request starts."""
        self._under_way += 1
        if self._calm_from is None:
            self._calm_from = now
        self._starts.append(now)
        while self._starts[0] <= now - 1:
            self._starts.popleft()
        if (rate := self.rate) is not None:
            self._spaced_from = max(self._spaced_from, now) + 1 / rate

    def ended(self, now: float, error: ServiceError | None, seconds: float) -> None:
        """A request that took so long has ended, with an answer or with an error."""
        self._under_way -= 1
        if isinstance(error, RateLimitError) and not isinstance(error, DailyLimitError):
            wait = _UNSAID_WAIT if error.wait is None else error.wait
            self._free_from = max(self._free_from, now + wait)
            if now - seconds >= self._cut_at:  # those that were under way at the last cut say nothing new
                self._cut(now, error.limit)
        elif error is None:
            self._answered(now, seconds)

    def _cut(self, now: float, named: int | None) -> None:
        self._width = max(1.0, self._width / 2)
        if named is not None:
            self._rate, self._named = named * _SHARE_OF_NAMED, True
        elif self._rate is not None:
            self._rate, self._named = max(_LEAST_RATE, self._rate * _SHARE_OF_BORNE), False
        else:
            borne = sum(start > now - 1 for start in self._starts)
            self._rate, self._named = max(_LEAST_BORNE, borne * _SHARE_OF_BORNE), False
        self._cut_at = now
        self._calm_from = max(now, self._free_from)

    def _answered(self, now: float, seconds: float) -> None:
        calm = now - self._calm_from if self._calm_from is not None else 0.0
        self._latencies.append(seconds)
        recent = median(self._latencies)
        if len(self._latencies) == _LATENCIES:
            self._best = recent if self._best is None else min(self._best, recent)
        if self._best is not None and recent > self._best * _SLOWER + _SLACK:
            self._width = max(2.0, self._width - 1 / self._width)
        else:
            bound = _MODEST + _MORE_A_SECOND * max(0.0, calm - _TRIED)
            if self._width < min(bound, self._most):
                self._width = min(self._width + 1 / self._width, bound, self._most)
        if self._rate is not None and not self._named and calm > _CALM:
            self._rate *= _GROWTH ** min(1.0, 1 / self._rate)  # each answer stands for its share of a second


_LONGEST_WAIT: Final = 3600.0  # seconds; a service may ask for more than the system's clocks can wait at once
_WORTH_WAITING: Final = 0.005  # seconds of latency below which reading side by side gains nothing


class LoadStopped(Exception):  # noqa: N818 - a sign to a thread that nobody waits for it any more
    """The load has ended; this request is not wanted any more."""


class Pacing:
    """A `AdaptiveRateLimiter` kept by many threads: what a `Transport` asks before each try.

    Parameters
    ----------
    connections : int
    requests_per_second : float, optional
    monotonic : callable
        The clock, in seconds.
    """

    def __init__(
        self,
        *,
        connections: int,
        requests_per_second: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rhythm = AdaptiveRateLimiter(connections=connections, requests_per_second=requests_per_second)
        self._monotonic = monotonic
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        self._woken = threading.Condition(lock)  # those who sleep must not take a signal meant for a start
        self._stopped = False

    @property
    def width(self) -> int:
        """Requests that may be under way at once."""
        return self._rhythm.width

    @property
    def waits(self) -> bool:
        """Whether the time goes into waiting, so that asking for several things at once gains some."""
        return self._rhythm.latency is None or self._rhythm.latency > _WORTH_WAITING

    def start(self) -> None:
        """Block until a request may start.

        Raises
        ------
        LoadStopped
            When it never may, because the load has ended.
        """
        with self._changed:
            while not self._stopped:
                delay = self._rhythm.delay(self._monotonic())
                if delay <= 0:
                    self._rhythm.started(self._monotonic())
                    return
                self._changed.wait(None if delay == float("inf") else min(delay, _LONGEST_WAIT))
        raise LoadStopped

    def end(self, error: ServiceError | None, seconds: float) -> None:
        """A request has ended after so many seconds."""
        with self._changed:
            self._rhythm.ended(self._monotonic(), error, seconds)
            self._changed.notify()

    def sleep(self, seconds: float) -> None:
        """Wait before a request is tried again.

        Raises
        ------
        LoadStopped
            When the load has ended meanwhile.
        """
        until = self._monotonic() + seconds
        with self._woken:
            while not self._stopped and (left := until - self._monotonic()) > 0:
                self._woken.wait(min(left, _LONGEST_WAIT))
            if self._stopped:
                raise LoadStopped

    def stop(self) -> None:
        """Let nobody wait any longer."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            self._woken.notify_all()

"""Time that passes only when somebody sleeps or a server dawdles."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Clock:
    """Seconds since the run began. Threads that sleep at once wait side by side, not one after another.

    Attributes
    ----------
    slept : list of float
        Every sleep that was requested.
    """

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._woken: list[Callable[[], None]] = []
        self._now = 1000.0
        self._lock = threading.Lock()
        self._ending = threading.Lock()

    def monotonic(self) -> float:
        """The time."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Advance the time for the caller, without sleeping."""
        with self._lock:
            self.slept.append(seconds)
        until = self._now + seconds
        time.sleep(0)  # the others' turn, as in a real sleep
        with self._ending:
            # no thread wakes up before requests that end earlier have ended
            with self._lock:
                waiting, self._woken = self._woken, []
            for end in waiting:
                end()
        with self._lock:
            self._now = max(self._now, until)

    def at_next_sleep(self, end: Callable[[], None]) -> None:
        """Call this once when somebody sleeps: it ends a fault of the outside world."""
        with self._lock:
            self._woken.append(end)

    def pass_by(self, seconds: float) -> None:
        """Let time pass for everybody."""
        with self._lock:
            self._now += seconds

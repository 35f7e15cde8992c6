"""Slow calls on a separate thread, with progress and a cancel that keeps the rows read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, TypeVar

import pandas as pd

from toolkit.analysis.wording import short_number, span
from toolkit.loading.load import Load
from toolkit.loading.options import LoadOptions

_INTERVAL: Final = 0.15  # seconds between two reports of progress
_SETTLED: Final = 0.5  # seconds before a rate means something
_POLL: Final = 0.05  # seconds between two checks of whether to stop

T = TypeVar("T")


class Cancelled(KeyboardInterrupt):
    """A person pressed Cancel: an interrupt of one call. Loads keep the rows read, as for Ctrl-C."""


@dataclass
class JobProgress:
    """How far a call is; `total` is None where it is not known, `seconds` are since its start."""

    done: int = 0
    total: int | None = None
    seconds: float = 0.0
    retries: int = 0

    def words(self) -> str:
        """The progress as people read it: items done, speed, time left, retries."""
        parts = [f"{self.done:,}" + (f" of {self.total:,}" if self.total is not None else "")]
        rate = self.done / self.seconds if self.seconds >= _SETTLED else 0.0
        if rate:
            parts.append(f"{short_number(round(rate))} a second")
        if rate and self.total is not None and self.total > self.done:
            parts.append(f"about {span(timedelta(seconds=(self.total - self.done) / rate))} left")
        if self.retries:
            parts.append("1 retry" if self.retries == 1 else f"{self.retries:,} retries")
        return " · ".join(parts)


@dataclass
class Job:
    """One call that may take long: `report` receives its progress, `stopping` makes it stop."""

    report: Callable[[JobProgress], object]
    clock: Callable[[], float] = time.monotonic
    stopping: threading.Event = field(default_factory=threading.Event)
    progress: JobProgress = field(default_factory=JobProgress)
    _started: float = 0.0
    _last: float = float("-inf")

    def __post_init__(self) -> None:
        self._started = self.clock()

    def step(self, done: int | None = None, total: int | None = None) -> None:
        """Report how far the call is, between two steps of it; `Cancelled` is raised when it should stop."""
        if done is not None:
            self.progress.done, self.progress.total = done, total
        now = self.clock()
        if now - self._last >= _INTERVAL:
            self._last = now
            self.progress.seconds = now - self._started
            self.report(replace(self.progress))
        if self.stopping.is_set():
            raise Cancelled

    def read(self, opened: Callable[[LoadOptions], Load], *, limit: int | None = None) -> pd.DataFrame:
        """Read the load that `opened` returns, given its options, into its frame."""
        counts: list[tuple[int, int | None]] = [(0, None)]
        options = LoadOptions(limit=limit, progress=lambda done, total: counts.__setitem__(0, (done, total)))
        load = opened(options)

        def step() -> None:
            self.progress.retries = load.work.requests - load.work.pages
            self.step(*counts[0])

        return load.frame(after_batch=step)

    def wait(self, call: Callable[[], T]) -> T:
        """The result of a call that cannot be interrupted; when the job is stopped, it is dropped."""
        self.step()
        future = in_thread(call)
        while not wait([future], _POLL).done:
            self.step()
        return future.result()


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Run a call on a daemon thread."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is used
            future.set_exception(error)

    threading.Thread(target=work, name="toolkit widget", daemon=True).start()
    return future


def on_loop() -> Callable[[Callable[[], None]], Any]:
    """A function that calls on the running event loop; directly, where none is running."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        return lambda call: call()

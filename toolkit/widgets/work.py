"""Slow calls: off the kernel's main thread, with progress and a way to stop that keeps what was read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pandas as pd

from toolkit.analysis.wording import short_number, span
from toolkit.loading.load import Load

_EVERY: Final = 0.15  # seconds between two sights of the progress
_SETTLED: Final = 0.5  # seconds before a rate means something


class Stopped(KeyboardInterrupt):
    """Somebody pressed Cancel: an interrupt for one call. Loads keep what they have read, as for Ctrl-C."""


@dataclass
class Progress:
    """How far a call has come.

    Attributes
    ----------
    done : int
    total : int or None
        None where nobody knows.
    seconds : float
        Since the start.
    retries : int
    """

    done: int = 0
    total: int | None = None
    seconds: float = 0.0
    retries: int = 0

    def share(self) -> float | None:
        """The share that is done, where the total is known."""
        return min(1.0, self.done / self.total) if self.total else None

    def words(self) -> str:
        """The progress as people read it.

        >>> Progress(done=1200, total=4800, seconds=3.0, retries=2).words()
        '1,200 of 4,800 · 400 a second · about 9 s left · 2 retries'
        """
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
    """One call that may take long: what it is given to tell how far it is, and to learn that it should stop.

    Parameters
    ----------
    told : callable
        Gets the progress, at most every 0.15 seconds.
    clock : callable, optional
    """

    told: Callable[[Progress], None]
    clock: Callable[[], float] = time.monotonic
    stopping: threading.Event = field(default_factory=threading.Event)
    progress: Progress = field(default_factory=Progress)
    _started: float = 0.0
    _last: float = float("-inf")

    def __post_init__(self) -> None:
        self._started = self.clock()

    def stop(self) -> None:
        """Ask the call to stop; it does so at its next step."""
        self.stopping.set()

    def step(self, done: int | None = None, total: int | None = None) -> None:
        """Say how far the call is; to be called between steps.

        Raises
        ------
        Stopped
            When somebody asked it to stop.
        """
        if done is not None:
            self.progress.done, self.progress.total = done, total
        now = self.clock()
        if now - self._last >= _EVERY:
            self._last = now
            self.progress.seconds = now - self._started
            self.told(replace(self.progress))
        if self.stopping.is_set():
            raise Stopped

    def read(self, opened: Callable[[Callable[[int, int | None], None]], Load]) -> pd.DataFrame:
        """Read a load into its frame, telling how far it is.

        Parameters
        ----------
        opened : callable
            Gives the load, its ``progress`` being what this is given.

        Raises
        ------
        IncompleteLoadError
            When the load ends short or is stopped; ``.partial`` holds what was read.
        Stopped
            When it is stopped before anything was read.
        """
        counted: list[tuple[int, int | None]] = [(0, None)]
        load = opened(lambda done, total: counted.__setitem__(0, (done, total)))

        def step() -> None:
            self.progress.retries = load.work.requests - load.work.pages
            self.step(*counted[0])

        return load.frame(after_batch=step)


def start(
    call: Callable[[], Any], then: Callable[[Any], None], failed: Callable[[BaseException], None]
) -> None:
    """Run a call on a thread of its own, and what follows on the kernel's loop.

    Parameters
    ----------
    call : callable
    then, failed : callable
        Given the result, or the exception. On the thread of the running event loop, so that nobody's
        observers run beside a cell; without a loop, on the call's thread.
    """
    after = on_loop()

    def work() -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - shown by whoever started it; a thread must not print it
            after(partial(failed, error))
        else:
            after(partial(then, result))

    threading.Thread(target=work, name="toolkit widget", daemon=True).start()


def on_loop() -> Callable[[Callable[[], None]], Any]:
    """How to call something on the event loop that runs here now; at once, where none does."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        return lambda call: call()

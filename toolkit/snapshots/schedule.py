"""Doing something on a schedule, until told to stop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


def repeat(
    run: Callable[[], None],
    *,
    every: float,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> NoReturn:
    """Call now, and whenever so many seconds more have passed since now, until something is raised.

    Times that pass while a call is still running are left out: calls never overlap, and the next one comes
    when it would have come anyway.

    Parameters
    ----------
    run : callable
    every : float
        Seconds from the beginning of a call to the beginning of the next one.
    sleep, monotonic : callable
        Sleep and clock, in seconds.
    """
    began = monotonic()
    while True:
        run()
        sleep(every - (monotonic() - began) % every)


@contextmanager
def stopped_politely() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C, so that what is under way is left in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_: int, __: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt

"""Signals that wait: a piece of work that must not stop halfway is done first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until the block is done, then let whoever handles them have them.

    Python gives signals to the main thread alone; elsewhere there is nothing to hold back. A handler that is
    not Python's (none, or the default of SIGTERM, which ends the process) stays.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = {number: handler for number, handler in handlers.items() if callable(handler)}
    if threading.current_thread() is not threading.main_thread() or not ours:
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    for number in ours:
        signal.signal(number, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        if held:
            ours[signal.Signals(held[0][0])](*held[0])

"""Signals that wait: a piece of work that must not stop halfway is done first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType


@contextmanager
def holding() -> Iterator[Hold]:
    """Take Ctrl-C and SIGTERM in hand for a while; ``with hold:`` then keeps them back until a block is done.

    Python gives signals to the main thread alone; elsewhere there is nothing to hold back. A handler that is
    not Python's (none, or the default of SIGTERM, which ends the process) stays.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = {int(number): handler for number, handler in handlers.items() if callable(handler)}
    hold = Hold(ours)
    if threading.current_thread() is not threading.main_thread():
        yield hold
        return
    for number in ours:
        signal.signal(number, hold.came)
    try:
        yield hold
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)


class Hold:
    """Keeps signals back inside of its blocks, then lets whoever handles them have the first one.

    Parameters
    ----------
    handlers : mapping
        By signal.
    """

    def __init__(self, handlers: Mapping[int, Callable[[int, FrameType | None], object]]) -> None:
        self._handlers = handlers
        self._inside = False
        self._held: list[tuple[int, FrameType | None]] = []

    def came(self, number: int, frame: FrameType | None) -> None:
        """A signal came: it waits for the end of the block, or is handled at once outside of one."""
        if self._inside:
            self._held.append((number, frame))
        else:
            self._handlers[number](number, frame)

    def __enter__(self) -> None:
        self._inside = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside = False
        if self._held:
            (number, frame), self._held = self._held[0], []
            self._handlers[number](number, frame)

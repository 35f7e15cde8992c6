"""How long the metadata filters of one request may be evaluated: a time, and only while somebody wants it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final, TypeVar

from toolkit.local.answers import ApiError

T = TypeVar("T")

FILTER_SECONDS: Final = 3.0
"""Seconds of processor time that the filters of one request may take."""

_LOOK: Final = 0.01  # seconds between looks at the clock of the processor, which costs a system call
_PIECE: Final = 16  # values between looks at any clock; the worst of conditions takes milliseconds for one


class Budget:
    """What one request may spend on metadata filters.

    Parameters
    ----------
    seconds : float
        Of processor time, so that a busy machine refuses nothing that an idle one does not.
    wanted : callable
        Whether the caller is still there. Asked from the thread that evaluates.

    Examples
    --------
    >>> budget = Budget(seconds=0.0)
    >>> with budget.spending():
    ...     sum(budget.each(range(10_000_000)))
    Traceback (most recent call last):
    toolkit.local.answers.ApiError: filter takes too long; got more than 0 s of processor ...
    """

    def __init__(self, seconds: float = FILTER_SECONDS, *, wanted: Callable[[], bool] = lambda: True) -> None:
        self._seconds = seconds
        self._wanted = wanted
        self._ended = False
        self._spent = 0.0
        self._since = 0.0
        self._due = 0.0

    def end(self) -> None:
        """Nobody wants the rest any more. May be called from another thread."""
        self._ended = True

    @contextmanager
    def spending(self) -> Iterator[None]:
        """What this thread does inside counts.

        Raises
        ------
        ApiError
            422 when the time is used up; 503 when nobody wants the rest.
        """
        self._since = time.thread_time()
        try:
            self._decide()
            yield
        finally:
            self._spent += time.thread_time() - self._since

    def check(self) -> None:
        """Go on only while there is time left and somebody wants it; see `spending`."""
        if time.monotonic() > self._due:
            self._decide()

    def each(self, values: Sequence[T]) -> Iterator[T]:
        """The values, looking in between whether to go on; see `spending`."""
        return chain.from_iterable(self._pieces(values))

    def _pieces(self, values: Sequence[T]) -> Iterator[Sequence[T]]:
        for start in range(0, len(values), _PIECE):
            yield values[start : start + _PIECE]
            self.check()

    def _decide(self) -> None:
        if self._ended or not self._wanted():
            raise ApiError(503, "the request has ended; got its caller's leave or the service's end")
        if self._spent + time.thread_time() - self._since > self._seconds:
            got = f"more than {self._seconds:g} s of processor time"
            raise ApiError(
                422,
                f"filter takes too long; got {got}, which is the limit; expected fewer or simpler conditions",
            )
        self._due = time.monotonic() + _LOOK

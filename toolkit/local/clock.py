"""Time as the embedded service sees it: one protocol, so that tests can let a day pass in a second."""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

_LONGEST_NAP: Final = 60.0  # seconds; looking again now and then survives a laptop's sleep and clock changes


class Clock(Protocol):
    """What the service asks of a clock."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        ...

    async def sleep_until(self, moment_ms: int) -> None:
        """Return once `now_ms` is at least this moment."""
        ...


class SystemClock:
    """The machine's own clock.

    Examples
    --------
    >>> SystemClock().now_ms() > 1_700_000_000_000
    True
    """

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return time.time_ns() // 1_000_000

    async def sleep_until(self, moment_ms: int) -> None:
        """Return once `now_ms` is at least this moment."""
        while (left := (moment_ms - self.now_ms()) / 1000) > 0:  # noqa: ASYNC110 - time sets no event
            await asyncio.sleep(min(left, _LONGEST_NAP))

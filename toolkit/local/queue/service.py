"""`Queue`: the parts of the queue half, put together for one running service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from toolkit.local.queue.destinations import Destinations
from toolkit.local.queue.publishing import PREFIXES
from toolkit.local.queue.scheduler import CONCURRENCY, Scheduler
from toolkit.local.queue.sender import Sender
from toolkit.local.queue.store import MAX_MESSAGE, Store


class Queue:
    """The queue half of a running service.

    Parameters
    ----------
    store : Store
    time_factor : float
        Divides waits (retries, delays, sleeps, rate periods); timestamps and time-outs stay real.
    allowed : iterable of str
        Hosts beyond loopback to which messages may go.
    concurrency : int
        Most deliveries at once.
    max_message : int
        Largest body, in bytes; longer answers are cut off there, in callbacks, too.
    prefix : str
        The prefix of the headers of those messages whose publish used none: ``Service-`` or ``Upstash-``.
    """

    def __init__(
        self,
        store: Store,
        *,
        time_factor: float = 1.0,
        allowed: Iterable[str] = (),
        concurrency: int = CONCURRENCY,
        max_message: int = MAX_MESSAGE,
        prefix: str = PREFIXES[0],
    ) -> None:
        self.store = store
        self.prefix = prefix
        self.max_message = max_message
        self.destinations = Destinations(allowed)
        self._sender = Sender(
            self.destinations,
            signing_key=lambda: store.signing_keys[0],
            max_answer=max_message,
            connections=concurrency,
        )
        self.scheduler = Scheduler(store, self._sender, factor=time_factor, concurrency=concurrency)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver while inside."""
        delivering = asyncio.create_task(self.scheduler.run(), name="queue-scheduler")
        try:
            yield
        finally:
            delivering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await delivering
            self._sender.close()

"""The running queue: one loop that delivers due messages and records the outcomes.

Messages of named queues are delivered in order, so many at a time as the queue's parallelism says.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Concatenate, Final, ParamSpec, TypeVar

from msgspec.structs import replace

from toolkit.local.api import MAX_MESSAGE
from toolkit.local.queue import runs, schedules, steps
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.flow_control import FlowControl, counting, stored_settings
from toolkit.local.queue.messages import Attempt, Message, Sent, decode_message
from toolkit.local.queue.outcomes import record_outcome, record_start
from toolkit.local.queue.publishing import PREFIXES
from toolkit.local.queue.sender import Destinations, Sender, gateway_response, outgoing
from toolkit.local.queue.state import Store
from toolkit.local.storage_errors import QUEUE_FILE, logged_problem

P = ParamSpec("P")
T = TypeVar("T")
CONCURRENCY: Final = 32
_EXPIRY_EVERY_MS: Final = 60_000

_log = logging.getLogger(__name__)


class Queue:
    """The queue of a running service. It delivers each message at least once, under the same id.

    `time_factor` divides delays; timestamps and timeouts stay real. `allowed` are hosts beyond loopback to
    which messages may go, `concurrency` the most deliveries at once, `max_message` the largest body in bytes,
    and `prefix` (``Service-`` or ``Upstash-``) that of messages whose publish used none. `on_this_machine`
    are ports of loopback by the host that they stand for. `flow` decides which flow-control keys may deliver.
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
        on_this_machine: Mapping[str, int] | None = None,
    ) -> None:
        self.store = store
        self.prefix = prefix
        self.max_message = max_message
        self.concurrency = concurrency
        self.destinations = Destinations(allowed, on_this_machine)
        self._sender = Sender(
            self.destinations,
            signing_key=lambda: store.signing_keys[0],
            max_body=max_message,
            connections=concurrency,
        )
        store.factor = time_factor
        self.flow = FlowControl(time_factor)
        self._claimed: dict[int, asyncio.Task[None]] = {}  # in memory only
        self._queue_of: dict[int, str] = {}  # of the claimed messages; "" for those in no named queue
        self._changed = asyncio.Event()
        self._starting = asyncio.Lock()
        self._restored = False

    @property
    def in_progress(self) -> int:
        """How many deliveries are in progress."""
        return len(self._claimed)

    def wake(self) -> None:
        """Check again for due messages."""
        self._changed.set()

    async def write(
        self, work: Callable[Concatenate[QueueWrite, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function in a transaction, and deliver what it enqueued."""
        result = await self.store.write(work, *args, **kwargs)
        self.wake()
        return result

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver messages within the block."""
        delivering = asyncio.create_task(self._run(), name="queue-scheduler")
        try:
            yield
        finally:
            delivering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await delivering
            self._sender.close()

    async def _run(self) -> None:
        """Deliver until cancelled."""
        expired_at = 0
        try:
            while True:
                self._changed.clear()
                now = self.store.clock.now_ms()
                try:
                    if now - expired_at >= _EXPIRY_EVERY_MS:
                        await self.store.expire()
                        expired_at = now
                    next_due = await self.start_due()
                except Exception as error:  # noqa: BLE001 - such as a full disk: retry after a second
                    _log.error("looking for due messages failed: %s", logged_problem(error, QUEUE_FILE))
                    next_due = now + 1000
                await self._pause(min(next_due, now + _EXPIRY_EVERY_MS))
        finally:
            for task in self._claimed.values():
                task.cancel()
            await asyncio.gather(*self._claimed.values(), return_exceptions=True)

    async def start_due(self) -> int:
        """Start due deliveries, within the limits; returns when to check again at the latest."""
        async with self._starting:
            if not self._restored:
                settings = await self.store.read(stored_settings)
                self.flow.restore(await self.store.read(counting), settings)
                self._restored = True
            return await self._start_due(self.store.clock.now_ms())

    async def _start_due(self, now: int) -> int:
        # also those that end during the read: their rows may be out of date
        claimed, blocked = dict(self._queue_of), self.flow.blocked(now)
        capacity = self.concurrency - len(claimed)
        if capacity <= 0:
            return now + _EXPIRY_EVERY_MS  # a delivery that ends wakes the loop

        scheduled = await self.store.read(schedules.next_due)
        if scheduled is not None and scheduled <= now:
            await self.store.write(schedules.fire)
            scheduled = now  # others may be due: check again right after these deliveries

        def read(tx: QueueWrite) -> tuple[list[sqlite3.Row], list[int]]:
            other = f"seq NOT IN ({','.join('?' * len(claimed))})"
            free = f"(flow_key IS NULL OR flow_key NOT IN ({','.join('?' * len(blocked))}))"
            rows = tx.rows(
                "SELECT seq, retried, due_at, flow_key, spec FROM messages "  # noqa: S608 - marks only
                f"WHERE queue IS NULL AND due_at <= ? AND {other} AND {free} ORDER BY due_at, seq LIMIT ?",
                *(now, *claimed, *blocked, capacity),
            )
            due_at = tx.value("SELECT min(due_at) FROM messages WHERE queue IS NULL AND due_at > ?", now)
            queued, later = _next_in_queues(tx, claimed)
            rows += [row for row in queued if row["flow_key"] not in blocked]
            rows.sort(key=lambda row: (row["due_at"], row["seq"]))
            return rows[:capacity], later if due_at is None else [*later, due_at]

        rows, later = await self.store.read(read)
        for row in rows:
            message = decode_message(row["spec"])
            if not self.flow.admit(message, now):
                self.wake()  # check again without this key
                continue
            delivery = self._deliver(row["seq"], message, row["retried"], resets=self.flow.resets(message))
            task = asyncio.create_task(delivery)
            self._claimed[row["seq"]] = task
            self._queue_of[row["seq"]] = message.origin.queue
        times = [time for time in (*later, scheduled, self.flow.next_release(now)) if time is not None]
        return min(times, default=now + _EXPIRY_EVERY_MS)

    async def _pause(self, until_ms: int) -> None:
        if self._changed.is_set():
            return
        tasks = [
            asyncio.ensure_future(self._changed.wait()),
            asyncio.ensure_future(self.store.clock.sleep_until(until_ms)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _deliver(self, seq: int, message: Message, retried: int, *, resets: int) -> None:
        store, sent = self.store, Sent((), b"")
        try:
            if message.kind == "wait":
                await store.write(runs.time_out, message)
                return
            until = self.flow.counts_until(message, store.clock.now_ms())

            def start(tx: QueueWrite) -> bool:
                counts = self.flow.resets(message) == resets
                return record_start(tx, message, retried, counts_until=until if counts else None)

            # stored before it is sent, so that a restart does not forget it
            if not await store.write(start):
                return
            stepped = message.step is not None
            history = await store.read(steps.steps, message.run_id, until=message.step) if stepped else []
            sent = outgoing(message, retried, history)
            response = await self._sender.deliver(message, sent, now_ms=store.clock.now_ms())
            await store.write(record_outcome, Attempt(message, sent, response, retried))
        except Exception as error:  # noqa: BLE001 - any error; other deliveries continue
            _log.error("delivering %s failed here: %s", message.id, logged_problem(error, QUEUE_FILE))
            await self._count_as_failed(message, sent, retried, type(error).__name__)
        finally:
            self.flow.release(message)
            del self._claimed[seq], self._queue_of[seq]
            self.wake()

    async def _count_as_failed(self, message: Message, sent: Sent, retried: int, problem: str) -> None:
        """Record an attempt that failed here: nothing that a destination sends makes its retries endless."""
        sentence = f"the outcome of the delivery could not be recorded ({problem})"
        response = gateway_response(502, sentence, self.store.clock.now_ms())
        settings = replace(message.settings, retry_delay=None)
        plain = replace(message, settings=settings, callback=None, failure_callback=None)
        # without its reports, in case these are the cause
        for reported, shown in ((message, sent), (plain, Sent((), b""))):
            try:
                await self.store.write(record_outcome, Attempt(reported, shown, response, retried))
            except Exception as error:  # noqa: BLE001 - the second time reports less
                _log.error("recording the outcome of %s failed: %s", message.id, type(error).__name__)
            else:
                return
        # then it is the database, a full disk above all: the message stays due, as nothing can be stored
        await asyncio.sleep(1)


def _next_in_queues(tx: QueueWrite, claimed: Mapping[int, str]) -> tuple[list[sqlite3.Row], list[int]]:
    """The due messages at the heads of the queues, and when others will be due.

    A message keeps its place until it is delivered or has failed: those behind it wait for its retries.
    `claimed` are the deliveries in progress, by the numbers of their messages: the names of their queues.
    """
    rows, later = list[sqlite3.Row](), list[int]()
    running = Counter(claimed.values())
    for name, parallelism in tx.rows(
        "SELECT name, parallelism FROM queues WHERE NOT paused "
        "AND EXISTS (SELECT 1 FROM messages WHERE queue = queues.name)"
    ):
        first = tx.rows(
            "SELECT seq, retried, due_at, flow_key, spec FROM messages WHERE queue = ? AND joins_at <= ? "
            "ORDER BY joins_at, seq LIMIT ?",
            *(name, tx.now_ms, parallelism),
        )
        due = [row for row in first if row["due_at"] <= tx.now_ms and row["seq"] not in claimed]
        rows += due[: max(0, parallelism - running[name])]
        later += [row["due_at"] for row in first if row["due_at"] > tx.now_ms]
        sql = "SELECT min(joins_at) FROM messages WHERE queue = ? AND joins_at > ?"
        joins_at = tx.value(sql, name, tx.now_ms)
        later += [] if joins_at is None else [joins_at]
    return rows, later

"""The running queue: one loop that delivers due messages and records the outcomes.

Messages of named queues are delivered in order. For example, if the parallelism of a queue is 2, the first
two messages are delivered at once, and the third waits for one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Concatenate, Final, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from toolkit_service.api import MAX_MESSAGE
from toolkit_service.damaged_values import DamagedValue
from toolkit_service.queue import runs, schedules, steps
from toolkit_service.queue.database import QueueWrite, marks
from toolkit_service.queue.destinations import Destinations
from toolkit_service.queue.flow_control import FlowControl, counting, stored_settings
from toolkit_service.queue.messages import Attempt, Message, Sent, decode_message
from toolkit_service.queue.outcomes import record_outcome, record_start
from toolkit_service.queue.publishing import PREFIXES
from toolkit_service.queue.sender import Sender, gateway_response, outgoing
from toolkit_service.queue.state import Store
from toolkit_service.storage_errors import INTERNAL_ERROR, QUEUE_FILE, damage_problem

P = ParamSpec("P")
T = TypeVar("T")
CONCURRENCY: Final = 32
_EXPIRY_EVERY_MS: Final = 60_000

_log = logging.getLogger(__name__)


class Queue:
    """The queue of a running service. It delivers each message at least once, under the same id.

    Parameters
    ----------
    store
        The stored messages, runs and entries.
    time_factor
        Divides delays. Timestamps and timeouts stay real.
    allowed
        Hosts beyond loopback that may receive messages.
    concurrency
        Most deliveries at once.
    max_message
        Largest body in bytes.
    prefix
        Prefix of headers (``Service-`` or ``Upstash-``) of messages whose publish used no prefix.
    on_this_machine
        Ports of loopback that stand for hosts.
    drop_unknown_steps
        Accept and drop steps of runs that were not started here.
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
        drop_unknown_steps: bool = False,
    ) -> None:
        self.store = store
        store.drops_unknown_steps = drop_unknown_steps
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
        self._queue_of: dict[
            int, str
        ] = {}  # names per claimed message; empty without a named queue
        # numbers of damaged messages, each logged once
        self._unreadable: set[int] = set()
        self._changed = asyncio.Event()
        self._starting = asyncio.Lock()
        self._restored = False

    @property
    def in_progress(self) -> int:
        """Return the number of deliveries in progress."""
        return len(self._claimed)

    def wake(self) -> None:
        """Check again for due messages."""
        self._changed.set()

    async def write(
        self,
        work: Callable[Concatenate[QueueWrite, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a function in a transaction, and deliver the messages that it enqueued."""
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
                # cleared before the search, so that a message which arrives during it starts another one
                self._changed.clear()
                now = self.store.clock.now_ms()
                try:
                    if now - expired_at >= _EXPIRY_EVERY_MS:
                        await self.store.expire()
                        expired_at = now

                    next_due = await self.start_due()
                except Exception as error:  # noqa: BLE001 - for example a full disk: retry after a second
                    _log.error(
                        "looking for due messages failed: %s", await self._cause(error)
                    )
                    next_due = now + 1000

                await self._pause(min(next_due, now + _EXPIRY_EVERY_MS))
        finally:
            # The outcome of a cancelled delivery is not recorded: the message stays due and is sent again
            # after a restart (at least once).
            for task in self._claimed.values():
                task.cancel()
            await asyncio.gather(*self._claimed.values(), return_exceptions=True)

    async def start_due(self) -> int:
        """Start due deliveries within the limits. Return the time of the next check at the latest."""
        async with self._starting:
            if not self._restored:
                settings = await self.store.read(stored_settings)
                self.flow.restore(await self.store.read(counting), settings)
                self._restored = True

            return await self._start_due(self.store.clock.now_ms())

    async def _start_due(self, now: int) -> int:
        # a copy: a delivery that ends during the read counts as in progress, as the row may be out of date
        claimed = dict(self._queue_of)
        blocked = self.flow.blocked(now)
        capacity = self.concurrency - len(claimed)
        if capacity <= 0:
            return now + _EXPIRY_EVERY_MS  # a delivery that ends wakes the loop

        next_schedule = await self.store.read(schedules.next_due)
        if next_schedule is not None and next_schedule <= now:
            await self.store.write(schedules.fire)
            # more schedules may be due: check again right after these deliveries
            next_schedule = now

        rows, due_later = await self.store.read(
            _due_messages, now, claimed, self._unreadable, blocked, capacity
        )
        for row in rows:
            self._start(row, now)
        times = [*due_later, next_schedule, self.flow.next_release(now)]

        return min(
            (time for time in times if time is not None), default=now + _EXPIRY_EVERY_MS
        )

    def _start(self, row: sqlite3.Row, now: int) -> None:
        """Start the delivery of a message, if flow control admits it."""
        message = self._readable(row)
        if message is None:
            self.wake()  # check again without this message
            return

        if not self.flow.admit(message, now):
            # the message before used up the limit of the key: check again without this key
            self.wake()
            return

        delivery = self._deliver(
            row["seq"], message, row["retried"], resets=self.flow.resets(message)
        )
        self._claimed[row["seq"]] = asyncio.create_task(delivery)
        self._queue_of[row["seq"]] = message.origin.queue

    def _readable(self, row: sqlite3.Row) -> Message | None:
        """Return the message of a row, or None if it is damaged: such a row must not stop the others."""
        try:
            return decode_message(row["spec"])
        except (msgspec.MsgspecError, TypeError, ValueError):
            self._unreadable.add(row["seq"])
            damage = DamagedValue(
                "messages",
                f"seq = {row['seq']}",
                "spec",
                "a value that cannot be read",
                "a message",
            )
            _log.error(
                "a message is not delivered: %s", damage_problem(damage, QUEUE_FILE)
            )
            return None

    async def _cause(self, error: Exception) -> str:
        """Return the cause of an error for the log; the type alone if nothing explains it."""
        problem = await self.store.problem(error)
        return type(error).__name__ if problem == INTERNAL_ERROR else problem

    async def _pause(self, until_ms: int) -> None:
        """Wait until a time, or until `wake` is called."""
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

    async def _deliver(
        self, seq: int, message: Message, retried: int, *, resets: int
    ) -> None:
        """Deliver a claimed message, and record the outcome. `resets` was counted at the claim."""
        store, sent = self.store, Sent((), b"")
        try:
            if message.kind == "wait":
                await store.write(runs.time_out, message)
                return
            until = self.flow.counts_until(message, store.clock.now_ms())

            def start(tx: QueueWrite) -> bool:
                # a reset of the rate since the claim: the delivery no longer counts
                was_reset = self.flow.resets(message) != resets
                return record_start(
                    tx, message, retried, counts_until=None if was_reset else until
                )

            # stored before the message is sent, so that a restart remembers the start
            if not await store.write(start):
                return

            history: list[tuple[str, bytes]] = []
            if message.step is not None:
                history = await store.read(
                    steps.steps, message.run_id, until=message.step
                )

            sent = outgoing(message, retried, history)
            response = await self._sender.deliver(
                message, sent, now_ms=store.clock.now_ms()
            )
            await store.write(record_outcome, Attempt(message, sent, response, retried))
        except Exception as error:  # noqa: BLE001 - any error; other deliveries continue
            _log.error(
                "delivering %s failed here: %s", message.id, await self._cause(error)
            )
            await self._count_as_failed(message, sent, retried, type(error).__name__)
        finally:
            self.flow.release(message)
            del self._claimed[seq], self._queue_of[seq]
            self.wake()

    async def _count_as_failed(
        self, message: Message, sent: Sent, retried: int, problem: str
    ) -> None:
        """Record an attempt that failed in this service, so that a bad response is not retried forever."""
        sentence = f"the outcome of the delivery could not be recorded ({problem})"
        response = gateway_response(502, sentence, self.store.clock.now_ms())
        settings = replace(message.settings, retry_delay=None)

        plain = replace(
            message, settings=settings, callback=None, failure_callback=None
        )
        # the second time without callbacks and details, in case one of these is the cause
        for reported, shown in ((message, sent), (plain, Sent((), b""))):
            try:
                await self.store.write(
                    record_outcome, Attempt(reported, shown, response, retried)
                )
            except Exception as error:  # noqa: BLE001 - the second time reports less
                _log.error(
                    "recording the outcome of %s failed: %s",
                    message.id,
                    type(error).__name__,
                )
            else:
                return

        # the database is the cause, for example a full disk: nothing can be stored, and the message stays due
        await asyncio.sleep(1)


def _due_messages(
    tx: QueueWrite,
    now: int,
    claimed: Mapping[int, str],
    unreadable: Collection[int],
    blocked: list[str],
    capacity: int,
) -> tuple[list[sqlite3.Row], list[int]]:
    """Return the messages to deliver now, the earliest first, and times when others will be due."""
    passed_over = [*claimed, *unreadable]
    not_passed_over = f"seq NOT IN ({marks(passed_over)})"
    not_blocked = f"(flow_key IS NULL OR flow_key NOT IN ({marks(blocked)}))"
    rows = tx.rows(
        "SELECT seq, retried, due_at, flow_key, spec FROM messages "  # noqa: S608 - marks only
        f"WHERE queue IS NULL AND due_at <= ? AND {not_passed_over} AND {not_blocked} "
        "ORDER BY due_at, seq LIMIT ?",
        *(now, *passed_over, *blocked, capacity),
    )
    next_due = tx.value(
        "SELECT min(due_at) FROM messages WHERE queue IS NULL AND due_at > ?", now
    )

    queued_rows, due_later = _next_in_queues(tx, claimed, unreadable)
    rows += [row for row in queued_rows if row["flow_key"] not in blocked]
    rows.sort(key=lambda row: (row["due_at"], row["seq"]))
    if next_due is not None:
        due_later.append(next_due)
    return rows[:capacity], due_later


def _next_in_queues(
    tx: QueueWrite, claimed: Mapping[int, str], unreadable: Collection[int]
) -> tuple[list[sqlite3.Row], list[int]]:
    """Return the due messages at the heads of the named queues, and times when others will be due.

    A message keeps the place until it is delivered or has failed: the messages after it wait for the retries.
    `claimed` are the deliveries in progress: message number and name of the queue. Messages that are
    `unreadable`, by their numbers, are passed over.
    """
    rows, due_later = list[sqlite3.Row](), list[int]()
    running = Counter(claimed.values())
    for name, parallelism in tx.rows(
        "SELECT name, parallelism FROM queues WHERE NOT paused "
        "AND EXISTS (SELECT 1 FROM messages WHERE queue = queues.name)"
    ):
        heads = tx.rows(
            "SELECT seq, retried, due_at, flow_key, spec FROM messages WHERE queue = ? AND joins_at <= ? "  # noqa: S608 - marks only
            f"AND seq NOT IN ({marks(unreadable)}) ORDER BY joins_at, seq LIMIT ?",
            *(name, tx.now_ms, *unreadable, parallelism),
        )
        # heads that wait for a retry, or are being delivered, occupy a place: the order is kept
        due = [
            row
            for row in heads
            if row["due_at"] <= tx.now_ms and row["seq"] not in claimed
        ]
        free_places = max(0, parallelism - running[name])
        rows += due[:free_places]
        due_later += [row["due_at"] for row in heads if row["due_at"] > tx.now_ms]

        sql = "SELECT min(joins_at) FROM messages WHERE queue = ? AND joins_at > ?"
        next_joins_at = tx.value(sql, name, tx.now_ms)
        if next_joins_at is not None:
            due_later.append(next_joins_at)

    return rows, due_later

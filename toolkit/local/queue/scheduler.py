"""The one loop that finds what is due, sends it, and has the outcome recorded."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from typing import Final

import msgspec

from toolkit.local.queue import flow, steps, waiting
from toolkit.local.queue.flow import FlowControl
from toolkit.local.queue.message import Message, decode_message
from toolkit.local.queue.payloads import Answer, Sent
from toolkit.local.queue.sender import Sender, no_answer, outgoing
from toolkit.local.queue.settle import settle
from toolkit.local.queue.store import Store

CONCURRENCY: Final = 32
_EXPIRY_EVERY_MS: Final = 60_000

_log = logging.getLogger(__name__)


class Scheduler:
    """Delivers messages.

    A message is claimed in memory only: after a crash all that was not recorded as done is due again. So
    each is delivered at least once, under the same id.

    Parameters
    ----------
    store : Store
    sender : Sender
    factor : float
        Divides all waits; timestamps stay as they are.
    concurrency : int
        Most deliveries at once.
    """

    def __init__(
        self, store: Store, sender: Sender, *, factor: float = 1.0, concurrency: int = CONCURRENCY
    ) -> None:
        self._store = store
        self._sender = sender
        self.factor = factor
        self._concurrency = concurrency
        self._claimed: dict[int, asyncio.Task[None]] = {}
        self._flow = FlowControl(factor)
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Look again: something may have become due."""
        self._changed.set()

    async def run(self) -> None:
        """Deliver until canceled."""
        expired_at, restored = 0, False
        try:
            while True:
                self._changed.clear()
                now = self._store.clock.now_ms()
                try:
                    if not restored:
                        self._flow.restore(await self._store.database.read(flow.counting))
                        restored = True
                    if now - expired_at >= _EXPIRY_EVERY_MS:
                        await self._store.expire()
                        expired_at = now
                    next_due = await self._start_due(now)
                except Exception as error:  # noqa: BLE001 - a full disk, say: try again in a moment
                    _log.error("looking for due messages failed: %s", type(error).__name__)
                    next_due = now + 1000
                await self._pause(min(next_due, now + _EXPIRY_EVERY_MS))
        finally:
            for task in self._claimed.values():
                task.cancel()
            await asyncio.gather(*self._claimed.values(), return_exceptions=True)

    async def _start_due(self, now: int) -> int:
        """Start what is due, as far as there is room; gives when to look again at the latest."""
        # also those that end while the read is under way: what it finds of them may be out of date
        claimed, blocked = list(self._claimed), self._flow.blocked(now)
        room = self._concurrency - len(claimed)
        if room <= 0:
            return now + _EXPIRY_EVERY_MS  # a delivery that ends wakes the loop

        def read(connection: sqlite3.Connection) -> tuple[list[sqlite3.Row], int | None]:
            other = f"seq NOT IN ({','.join('?' * len(claimed))})"
            free = f"(flow_key IS NULL OR flow_key NOT IN ({','.join('?' * len(blocked))}))"
            rows = connection.execute(
                f"SELECT seq, retried, spec FROM messages WHERE due_at <= ? AND {other} AND {free} "  # noqa: S608 - marks only
                "ORDER BY due_at, seq LIMIT ?",
                (now, *claimed, *blocked, room),
            ).fetchall()
            (later,) = connection.execute(
                "SELECT min(due_at) FROM messages WHERE due_at > ?", (now,)
            ).fetchone()
            return rows, later

        rows, later = await self._store.database.read(read)
        for row in rows:
            message = decode_message(row["spec"])
            if not self._flow.admit(message, now):
                self.wake()  # look again without this key
                continue
            task = asyncio.create_task(self._deliver(row["seq"], message, row["retried"]))
            self._claimed[row["seq"]] = task
        times = [moment for moment in (later, self._flow.next_release(now)) if moment is not None]
        return min(times, default=now + _EXPIRY_EVERY_MS)

    async def _pause(self, until_ms: int) -> None:
        if self._changed.is_set():
            return
        waits = [
            asyncio.ensure_future(self._changed.wait()),
            asyncio.ensure_future(self._store.clock.sleep_until(until_ms)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _deliver(self, seq: int, message: Message, retried: int) -> None:
        database, clock, sent = self._store.database, self._store.clock, Sent((), b"")
        try:
            if message.kind == "wait":
                due = clock.now_ms()
                await database.write(lambda connection: waiting.time_out(connection, message, now_ms=due))
                return
            limit = flow.limits_of(message)
            if limit and limit.rate:  # known before it is sent, so that a restart does not forget it
                until = self._flow.counts_until(limit, clock.now_ms())
                await database.write(lambda connection: flow.write_down(connection, message, until))
            history = (
                []
                if message.step is None
                else await database.read(lambda connection: steps.history(connection, message))
            )
            sent = outgoing(message, retried, history)
            answer = await self._sender.deliver(message, sent, now_ms=clock.now_ms())
            await self._settle(message, sent, answer, retried)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
            _log.error("delivering %s failed here: %s", message.id, type(error).__name__)
            await self._count_as_failed(message, sent, retried, type(error).__name__)
        finally:
            self._flow.release(message)
            del self._claimed[seq]
            self.wake()

    async def _settle(self, message: Message, sent: Sent, answer: Answer, retried: int) -> None:
        now = self._store.clock.now_ms()
        await self._store.database.write(
            lambda connection: settle(
                connection, message, sent, answer, retried=retried, now_ms=now, factor=self.factor
            )
        )

    async def _count_as_failed(self, message: Message, sent: Sent, retried: int, problem: str) -> None:
        """Settle a try that failed here: nothing that a destination sends makes its retries endless."""
        sentence = f"the delivery could not be settled ({problem})"
        answer = no_answer(502, sentence, self._store.clock.now_ms())
        settings = msgspec.structs.replace(message.settings, retry_delay=None)
        plain = msgspec.structs.replace(message, settings=settings, callback=None, failure_callback=None)
        # if its own reports are what fails, without them
        for told, seen in ((message, sent), (plain, Sent((), b""))):
            try:
                await self._settle(told, seen, answer, retried)
            except Exception as error:  # noqa: BLE001 - the next attempt leaves more out
                _log.error("settling %s failed: %s", message.id, type(error).__name__)
            else:
                return
        # then it is the database, a full disk above all: the message stays due, as nothing can be counted
        await asyncio.sleep(1)

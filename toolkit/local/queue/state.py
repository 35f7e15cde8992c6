"""The queue's state as one value: its clock, its database, its signing keys and its cursors."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from toolkit.local.api import RETENTION_MS
from toolkit.local.queue import dlq, runs, steps
from toolkit.local.queue.database import Database, QueueWrite
from toolkit.local.queue.listing import CursorSigner

P = ParamSpec("P")
T = TypeVar("T")

_LONGEST_SLEEP: Final = 60.0  # seconds; waking now and then survives a laptop's sleep and clock changes


class Clock(Protocol):
    """The clock of the service; tests replace it to advance time."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        ...

    async def sleep_until(self, until_ms: int) -> None:
        """Return once `now_ms` is at least this."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return time.time_ns() // 1_000_000

    async def sleep_until(self, until_ms: int) -> None:
        """Return once `now_ms` is at least this."""
        while (left := (until_ms - self.now_ms()) / 1000) > 0:  # noqa: ASYNC110 - time sets no event
            await asyncio.sleep(min(left, _LONGEST_SLEEP))


class Store:
    """The queue's state in a folder, of one process at a time.

    DLQ entries, ended runs and events are kept for `retention_ms`. Without `signing_keys`, those stored are
    used, or new ones; rotated keys stay rotated when the same keys are given again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock | None = None,
        retention_ms: int = RETENTION_MS,
        signing_keys: tuple[str, str] | None = None,
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.clock = clock or SystemClock()
        self.factor = 1.0
        self.retention_ms = retention_ms
        self.database = Database(folder / "queue.sqlite")
        self.cursors = CursorSigner(self.database.submit(_cursor_key).result())
        self._keys = self.database.submit(lambda connection: _keys(connection, signing_keys)).result()

    @property
    def signing_keys(self) -> tuple[str, str]:
        """The current and the next signing key."""
        return self._keys

    @property
    def expired_before(self) -> int:
        """Entries that entered the DLQ before this time (Unix ms) have expired."""
        return self.clock.now_ms() - self.retention_ms

    async def write(
        self, work: Callable[Concatenate[QueueWrite, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function in a transaction, and return once what it changed is on disk."""
        tx = partial(QueueWrite, now_ms=self.clock.now_ms(), factor=self.factor)
        return await self.database.write(lambda connection: work(tx(connection), *args, **kwargs))

    async def read(
        self, work: Callable[Concatenate[QueueWrite, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function that only reads what has been committed."""
        tx = partial(QueueWrite, now_ms=self.clock.now_ms(), factor=self.factor)
        return await self.database.read(lambda connection: work(tx(connection), *args, **kwargs))

    async def rotate_keys(self) -> tuple[str, str]:
        """Make the next key the current one, and a new one the next."""
        rotated = (self._keys[1], _new_key())
        await self.database.write(lambda connection: _store(connection, "keys", "\n".join(rotated).encode()))
        self._keys = rotated
        return rotated

    def insert_failures(self, entries: Iterable[Mapping[str, Any]], *, workflow: bool = True) -> int:
        """Fill in DLQ entries, listed as given, except known ones; returns how many are new."""
        now, given = self.clock.now_ms(), list(entries)
        return self.database.submit(
            lambda connection: dlq.insert(QueueWrite(connection, now), given, workflow=workflow)
        ).result()

    def insert_runs(self, entries: Iterable[Mapping[str, Any]]) -> int:
        """Fill in workflow runs, listed exactly as given; returns how many are new."""
        given = list(entries)
        return self.database.submit(lambda connection: runs.insert(connection, given)).result()

    def insert_events(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Fill in events of messages, listed exactly as given."""
        given = list(entries)
        self.database.submit(lambda connection: steps.insert_events(connection, given)).result()

    async def expire(self) -> None:
        """Remove expired rows."""
        await self.write(_expire, self.expired_before)

    def close(self) -> None:
        """Close the files."""
        self.database.close()


def _expire(tx: QueueWrite, before: int) -> None:
    tx.execute("DELETE FROM dlq WHERE entered_at < ?", before)
    tx.execute("DELETE FROM events WHERE time < ?", before)
    tx.execute("DELETE FROM deduplication WHERE expires_at <= ?", tx.now_ms)
    tx.execute("DELETE FROM rates WHERE until <= ?", tx.now_ms)
    ended = "state != 'RUN_STARTED' AND coalesce(completed_at, created_at) < ?"
    for table in ("steps", "parked", "notifications"):
        tx.execute(f"DELETE FROM {table} WHERE run_id IN (SELECT id FROM runs WHERE {ended})", before)  # noqa: S608 - names from above
    tx.execute(f"DELETE FROM runs WHERE {ended}", before)  # noqa: S608 - from above


def _new_key() -> str:
    return f"sig_{secrets.token_urlsafe(32)}"


def _stored(connection: sqlite3.Connection, name: str) -> bytes | None:
    row = connection.execute("SELECT value FROM kept WHERE name = ?", (name,)).fetchone()
    return row["value"] if row else None


def _store(connection: sqlite3.Connection, name: str, value: bytes) -> None:
    connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, value))


def _cursor_key(connection: sqlite3.Connection) -> bytes:
    key = _stored(connection, "cursor_key")
    if key is None:
        key = secrets.token_bytes(32)
        _store(connection, "cursor_key", key)
    return key


def _keys(connection: sqlite3.Connection, given: tuple[str, str] | None) -> tuple[str, str]:
    stored, configured = _stored(connection, "keys"), _stored(connection, "configured_keys")
    wanted = "\n".join(given).encode() if given else configured
    if stored is None or wanted != configured:
        stored = wanted if wanted is not None else f"{_new_key()}\n{_new_key()}".encode()
        _store(connection, "keys", stored)
        _store(connection, "configured_keys", stored)
    current, following = stored.decode().split("\n")
    return current, following

"""The state of the queue: clock, database, signing keys and cursors."""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from toolkit.base.private_files import make_folder
from toolkit.base.times import http_date_ms
from toolkit_service.api import RETENTION_MS
from toolkit_service.damaged_values import damaged_value
from toolkit_service.queue.database import Database, QueueWrite
from toolkit_service.queue.listing import CursorSigner
from toolkit_service.queue.outcomes import column_value, store_entry
from toolkit_service.queue.stored_forms import STORED_FORMS
from toolkit_service.storage_errors import (
    INTERNAL_ERROR,
    QUEUE_FILE,
    damage_problem,
    damaged_file,
    may_be_a_damaged_value,
    storage_problem,
)

P = ParamSpec("P")
T = TypeVar("T")

# fields of imported runs and events that are columns, in the order of the insertions; missing ones are NULL
_RUN_FIELDS: Final = (
    "workflowRunId", "workflowUrl", "workflowState", "workflowRunCreatedAt", "workflowRunCompletedAt",
    "dlqId", "callerIP", "flowControlKey",
)  # fmt: skip
_EVENT_FIELDS: Final = ("time", "messageId", "workflowRunId", "state", "url")

# seconds: a laptop may sleep, and the clock may be set, in the meantime
_LONGEST_SLEEP: Final = 60.0


class SystemClock:
    """The clock of the machine. Tests replace it to advance time."""

    def now_ms(self) -> int:
        """Return the Unix time in milliseconds."""
        return time.time_ns() // 1_000_000

    async def sleep_until(self, until_ms: int) -> None:
        """Return when `now_ms` has reached this time."""
        while (left := (until_ms - self.now_ms()) / 1000) > 0:  # noqa: ASYNC110 - time sets no event
            await asyncio.sleep(min(left, _LONGEST_SLEEP))


class Store:
    """The state of the queue in a folder, used by one process at a time.

    DLQ entries, ended runs and events are kept for `retention_ms`. `signing_keys` are the current and the
    next key. If omitted, the stored keys are used, or new keys are made. Rotated keys stay rotated if the
    same `signing_keys` are given again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: SystemClock | None = None,
        retention_ms: int = RETENTION_MS,
        signing_keys: tuple[str, str] | None = None,
    ) -> None:
        make_folder(folder)
        self.clock = clock or SystemClock()
        self.factor = 1.0
        self.drops_unknown_steps = False
        self.retention_ms = retention_ms
        self.database = Database(folder / "queue.sqlite")

        try:
            self.cursors = CursorSigner(
                self.database.submit(self._in_transaction(_cursor_key)).result()
            )
            self.signing_keys = self.database.submit(
                self._in_transaction(_keys, signing_keys)
            ).result()
        except (sqlite3.Error, ValueError, TypeError, AttributeError) as error:
            self.database.close()
            got = (
                error
                if isinstance(error, sqlite3.Error)
                else "keys that cannot be read"
            )
            raise damaged_file(folder / "queue.sqlite", got) from None

    @property
    def expired_before(self) -> int:
        """Return the time (Unix ms) before which entries of the DLQ have expired."""
        return self.clock.now_ms() - self.retention_ms

    def _in_transaction(
        self,
        work: Callable[Concatenate[QueueWrite, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Callable[[sqlite3.Connection], T]:
        now_ms, factor = self.clock.now_ms(), self.factor
        return lambda connection: work(
            QueueWrite(connection, now_ms, factor, self.drops_unknown_steps),
            *args,
            **kwargs,
        )

    async def write(
        self,
        work: Callable[Concatenate[QueueWrite, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a function in a transaction, and return when the changes are on disk."""
        return await self.database.write(self._in_transaction(work, *args, **kwargs))

    async def read(
        self,
        work: Callable[Concatenate[QueueWrite, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a function that only reads committed data."""
        return await self.database.read(self._in_transaction(work, *args, **kwargs))

    async def rotate_keys(self) -> tuple[str, str]:
        """Make the next key the current key, and make a new next key."""
        rotated = (self.signing_keys[1], _new_key())
        await self.write(_keep, "keys", "\n".join(rotated).encode())
        self.signing_keys = rotated

        return rotated

    def insert_failures(
        self, entries: Iterable[Mapping[str, Any]], *, workflow: bool = True
    ) -> int:
        """Import DLQ entries, listed exactly as given, and return how many are new.

        An entry enters the DLQ at the date of the response. Without a date, the time of creation is used.
        """
        imported = list(entries)

        def work(tx: QueueWrite) -> int:
            new_entries = 0
            for entry in imported:
                if tx.first("SELECT 1 FROM dlq WHERE id = ?", entry["dlqId"]) is None:
                    store_entry(
                        tx,
                        entry,
                        workflow=workflow,
                        entered_at=_entered_at(entry, tx.now_ms),
                    )
                    new_entries += 1

            return new_entries

        return self.database.submit(self._in_transaction(work)).result()

    def insert_runs(self, entries: Iterable[Mapping[str, Any]]) -> int:
        """Import workflow runs, listed exactly as given, and return how many are new."""
        rows = [
            (
                *map(entry.get, _RUN_FIELDS),
                json.dumps(entry.get("labels") or []),
                json.dumps(entry),
            )
            for entry in entries
        ]
        return self._insert_rows(
            "INSERT OR IGNORE INTO runs (id, url, state, created_at, completed_at, dlq_id, caller_ip, "
            "flow_key, labels, entry) VALUES (?, ?, ?, coalesce(?, 0), ?, ?, ?, ?, ?, ?)",
            rows,
        )

    def insert_events(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Import events of messages, listed exactly as given."""
        rows = [
            (*map(entry.get, _EVENT_FIELDS), json.dumps(entry)) for entry in entries
        ]
        self._insert_rows(
            "INSERT INTO events (time, message_id, run_id, state, url, entry) VALUES (?, ?, ?, ?, ?, ?)",
            rows,
        )

    def _insert_rows(self, sql: str, rows: list[tuple[Any, ...]]) -> int:
        """Insert rows in one transaction, and return how many are new."""
        return self.database.submit(
            lambda connection: connection.executemany(sql, rows).rowcount
        ).result()

    async def problem(self, error: Exception) -> str:
        """Return what failed: the disk, the file or a value in it; else that the error is unexplained."""
        if may_be_a_damaged_value(error):
            damage = await self.database.read(
                lambda connection: damaged_value(connection, STORED_FORMS)
            )
            if damage is not None:
                return damage_problem(damage, QUEUE_FILE)

        if isinstance(error, sqlite3.Error):
            return storage_problem(error, QUEUE_FILE, self.database.path)

        return INTERNAL_ERROR

    async def expire(self) -> None:
        """Remove expired rows."""
        await self.write(_expire, self.expired_before)

    def close(self) -> None:
        """Close the files."""
        self.database.close()


def _entered_at(entry: Mapping[str, Any], now_ms: int) -> int:
    """Return the time when an imported entry failed: the Date header of the response, or the creation."""
    dated = http_date_ms(_date_header(entry.get("responseHeader")))
    if dated is not None:
        return dated

    created = column_value(entry.get("createdAt"))
    return min(created, now_ms) if isinstance(created, int) else now_ms


def _date_header(headers: Any) -> str:
    """Return the Date header of an imported entry. The map can have any shape: it is not checked before."""
    if not isinstance(headers, dict):
        return ""

    dates = [values for name, values in headers.items() if name.lower() == "date"]
    for values in dates:
        is_list = isinstance(values, list)
        if is_list and values and isinstance(values[0], str):
            date: str = values[0]
            return date

    return ""


def _expire(tx: QueueWrite, before: int) -> None:
    tx.execute("DELETE FROM dlq WHERE entered_at < ?", before)
    tx.execute("DELETE FROM events WHERE time < ?", before)
    tx.execute("DELETE FROM deduplication WHERE expires_at <= ?", tx.now_ms)
    tx.execute("DELETE FROM rates WHERE until <= ?", tx.now_ms)

    ended = "state != 'RUN_STARTED' AND coalesce(completed_at, created_at) < ?"
    for table in ("steps", "parked", "notifications"):
        tx.execute(
            f"DELETE FROM {table} WHERE run_id IN (SELECT id FROM runs WHERE {ended})",  # noqa: S608 - SQL of this function
            before,
        )

    tx.execute(f"DELETE FROM runs WHERE {ended}", before)  # noqa: S608 - SQL of this function


def _new_key() -> str:
    return f"sig_{secrets.token_urlsafe(32)}"


def _kept(tx: QueueWrite, name: str) -> bytes | None:
    stored: bytes | None = tx.value("SELECT value FROM kept WHERE name = ?", name)
    return stored


def _keep(tx: QueueWrite, name: str, content: bytes) -> bytes:
    tx.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", name, content)
    return content


def _cursor_key(tx: QueueWrite) -> bytes:
    return _kept(tx, "cursor_key") or _keep(tx, "cursor_key", secrets.token_bytes(32))


def _keys(tx: QueueWrite, configured: tuple[str, str] | None) -> tuple[str, str]:
    """Return the current and the next signing key, and store them.

    Two values are stored: the keys in use, and the keys of the configuration at the time. If the configured
    keys are the same as before, the keys in use stay: they may have been rotated.
    """
    keys_in_use = _kept(tx, "keys")
    configured_before = _kept(tx, "configured_keys")
    wanted = configured_before
    if configured:
        wanted = "\n".join(configured).encode()
    if keys_in_use is None or wanted != configured_before:
        keys_in_use = wanted or f"{_new_key()}\n{_new_key()}".encode()
        _keep(tx, "keys", keys_in_use)
        _keep(tx, "configured_keys", keys_in_use)

    current, following = keys_in_use.decode().split("\n")
    return current, following

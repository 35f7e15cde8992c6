"""`Store`: the queue's state on disk, its keys, and what may be filled in from outside."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from toolkit.local.clock import Clock, SystemClock
from toolkit.local.queue import dlq, flow, runs
from toolkit.local.queue.cursors import Cursors
from toolkit.local.queue.database import Database
from toolkit.times import DAY_MS

MAX_MESSAGE: Final = 10 * 1024 * 1024
"""Largest message body taken in, and most of an answer's body that is kept, in bytes."""

RETENTION_MS: Final = 90 * DAY_MS
"""How long DLQ entries, ended runs and events are kept by default: the longest of the public plans."""


class Store:
    """The queue's state.

    Parameters
    ----------
    folder : Path
        Where its files are; made with mode 0700 when missing. One process at a time.
    clock : Clock, optional
        Default: the machine's.
    retention_ms : int
        How long DLQ entries, ended runs and events are kept, in milliseconds.
    signing_keys : tuple of str, optional
        Current and next signing key. Default: those kept, or new ones. Rotated keys stay rotated when the
        same keys are given again.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(Path(folder))
    ...     taken = store.insert_failures([{"dlqId": "a", "workflowRunId": "wfr_1"}])
    ...     store.close()
    >>> taken
    1
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
        self.retention_ms = retention_ms
        self.database = Database(folder / "queue.sqlite")
        self.cursors = Cursors(self.database.submit(_cursor_key).result())
        self._keys = self.database.submit(lambda connection: _keys(connection, signing_keys)).result()

    @property
    def signing_keys(self) -> tuple[str, str]:
        """The current and the next signing key."""
        return self._keys

    @property
    def expired_before(self) -> int:
        """What entered the DLQ before this moment (Unix ms) has expired."""
        return self.clock.now_ms() - self.retention_ms

    async def rotate_keys(self) -> tuple[str, str]:
        """The next key becomes the current one, and a new one takes its place."""
        rotated = (self._keys[1], _new_key())
        await self.database.write(lambda connection: _keep(connection, "keys", "\n".join(rotated).encode()))
        self._keys = rotated
        return rotated

    def insert_failures(self, entries: Iterable[Mapping[str, Any]], *, workflow: bool = True) -> int:
        """Fill in DLQ entries, which lists then show exactly as given.

        Parameters
        ----------
        entries : iterable of dict
            In the form of the wire; ``dlqId`` is required, other fields may be missing or unknown.
        workflow : bool
            Whether they are of workflow runs, or of plain messages.

        Returns
        -------
        int
            How many were new; those with a known ``dlqId`` are left as they are.
        """
        now, taken = self.clock.now_ms(), list(entries)
        return self.database.submit(
            lambda connection: dlq.insert(connection, taken, workflow=workflow, now_ms=now)
        ).result()

    def insert_runs(self, entries: Iterable[Mapping[str, Any]]) -> int:
        """Fill in workflow runs, which the run log then shows exactly as given.

        Parameters
        ----------
        entries : iterable of dict
            In the form of the wire; ``workflowRunId`` is required.

        Returns
        -------
        int
            How many were new.
        """
        taken = list(entries)
        return self.database.submit(lambda connection: runs.insert(connection, taken)).result()

    async def expire(self) -> None:
        """Remove what has been kept long enough."""
        before, now = self.expired_before, self.clock.now_ms()

        def work(connection: sqlite3.Connection) -> None:
            dlq.expire(connection, before)
            runs.expire(connection, before)
            connection.execute("DELETE FROM events WHERE time < ?", (before,))
            connection.execute("DELETE FROM deduplication WHERE expires_at <= ?", (now,))
            flow.expire(connection, now)

        await self.database.write(work)

    def close(self) -> None:
        """Close the files."""
        self.database.close()


def _new_key() -> str:
    return f"sig_{secrets.token_urlsafe(32)}"


def _kept(connection: sqlite3.Connection, name: str) -> bytes | None:
    row = connection.execute("SELECT value FROM kept WHERE name = ?", (name,)).fetchone()
    return row["value"] if row else None


def _keep(connection: sqlite3.Connection, name: str, value: bytes) -> None:
    connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, value))


def _cursor_key(connection: sqlite3.Connection) -> bytes:
    key = _kept(connection, "cursor_key")
    if key is None:
        key = secrets.token_bytes(32)
        _keep(connection, "cursor_key", key)
    return key


def _keys(connection: sqlite3.Connection, given: tuple[str, str] | None) -> tuple[str, str]:
    kept, configured = _kept(connection, "keys"), _kept(connection, "configured_keys")
    wanted = "\n".join(given).encode() if given else configured
    if kept is None or wanted != configured:
        kept = wanted if wanted is not None else f"{_new_key()}\n{_new_key()}".encode()
        _keep(connection, "keys", kept)
        _keep(connection, "configured_keys", kept)
    current, following = kept.decode().split("\n")
    return current, following

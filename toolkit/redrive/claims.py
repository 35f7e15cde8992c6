"""Claim entries for one redrive, in a file of this user that all runs on this machine see.

The service refuses a second resume, restart or delete of an entry. It calls a failure function as often as
it is asked to, so a run claims the entry first: one plan that is run with two ledgers calls it once. The run
that has seen the outcome ends the claim, and another plan may call the function again after that. A claim of
a run that was killed and never continued expires after `EXPIRES_AFTER`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from toolkit.errors import ToolkitError
from toolkit.private_files import open_private, user_folder

EXPIRES_AFTER: Final = 24 * 3600  # seconds: a run that was killed is continued by then
_TIMEOUT: Final = 30  # seconds, for another run that claims an entry
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS claims (
  entry TEXT PRIMARY KEY, plan TEXT NOT NULL, ledger TEXT NOT NULL, claimed_at INTEGER NOT NULL,
  ended INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID
"""
_TAKE: Final = """
INSERT INTO claims (entry, plan, ledger, claimed_at) VALUES (:entry, :plan, :ledger, :now)
ON CONFLICT (entry) DO UPDATE SET
  plan = excluded.plan, ledger = excluded.ledger, claimed_at = excluded.claimed_at, ended = 0
WHERE claims.claimed_at < :expired OR (claims.ended AND claims.plan <> excluded.plan)
"""


class Claim(NamedTuple):
    """The run that has an entry: the hash of its plan and the path of its ledger."""

    plan: str
    ledger: str


class Claims:
    """The claims of this user, for a run with a plan and a ledger; the file is opened when first used."""

    def __init__(self, plan: str, ledger: Path) -> None:
        self._own = Claim(plan, str(ledger.absolute()))
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self.path: Path | None = None

    def take(self, dlq_id: str, run_id: str) -> Claim | None:
        """Claim an entry, by its id and that of its run; return the claim of another run if there is one."""
        now = int(time.time())
        values = {"entry": _key(dlq_id, run_id), "now": now, "expired": now - EXPIRES_AFTER}
        values |= self._own._asdict()
        with self._opened() as database:
            if database.execute(_TAKE, values).rowcount == 1:
                return None
            found = database.execute(
                "SELECT plan, ledger FROM claims WHERE entry = :entry", values
            ).fetchone()
        return Claim(*map(str, found)) if found else None

    def release(self, dlq_id: str, run_id: str) -> None:
        """Remove a claim of this run: the failure function was not called."""
        sql = "DELETE FROM claims WHERE entry = ? AND plan = ? AND ledger = ?"
        with self._opened() as database:
            database.execute(sql, (_key(dlq_id, run_id), *self._own))

    def end(self, dlq_id: str, run_id: str) -> None:
        """Store that the outcome of a call is known to this plan's ledger."""
        sql = "UPDATE claims SET ended = 1 WHERE entry = ? AND plan = ?"
        with self._opened() as database:
            database.execute(sql, (_key(dlq_id, run_id), self._own.plan))

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()
            self._database = None

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock:
                if self._database is None:
                    self._database = self._open()
                yield self._database
        except (OSError, sqlite3.Error) as error:
            raise ToolkitError(
                f"claiming an entry in {self.path or 'the data folder of this user'}",
                got=(isinstance(error, OSError) and error.strerror) or str(error),
                expected="a file that this user can write",
                next_step="Set XDG_DATA_HOME to a folder this user may write. Remove a damaged file while no "
                "redrive runs.",
            ) from None

    def _open(self) -> sqlite3.Connection:
        self.path = user_folder("data") / "redrives" / "claims.sqlite"
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(open_private(self.path, os.O_RDWR | os.O_CREAT))
        database = sqlite3.connect(self.path, timeout=_TIMEOUT, check_same_thread=False, isolation_level=None)
        try:
            # a claim must outlive the process, not the machine: both runs end with it
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(_TABLE)
            database.execute("DELETE FROM claims WHERE claimed_at < ?", (int(time.time()) - EXPIRES_AFTER,))
        except BaseException:
            database.close()
            raise
        return database


def _key(dlq_id: str, run_id: str) -> str:
    """Return the identity of an entry: its id alone may be that of another queue's entry."""
    return sha256(f"{dlq_id} {run_id}".encode(errors="surrogatepass")).hexdigest()

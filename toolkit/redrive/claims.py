"""Claim entries for one redrive, in a file of this user that all runs on this machine see.

The service refuses a second resume, restart or delete of an entry. It calls a failure function on every
request, so a run claims the entry first. For example, if a plan is run with two ledgers, the second run finds
the claim of the first and skips the entry. The run that has seen the outcome ends the claim, and another plan
may call the function again after that. If a run was killed and never continued, the claim expires after
`EXPIRES_AFTER`.
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

from toolkit.base.errors import ToolkitError
from toolkit.base.private_files import open_private, user_folder

EXPIRES_AFTER: Final = 24 * 3600
"""Seconds. If a run was killed, it is continued earlier or not at all."""

_TIMEOUT: Final = 30  # seconds, for another run that claims an entry
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS claims (
  entry TEXT PRIMARY KEY, plan TEXT NOT NULL, ledger TEXT NOT NULL, claimed_at INTEGER NOT NULL,
  ended INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID
"""
# One statement, so that two processes cannot both claim an entry. A claim that has expired, or whose plan has
# ended and differs, is replaced.
_TAKE: Final = """
INSERT INTO claims (entry, plan, ledger, claimed_at) VALUES (:entry, :plan, :ledger, :now)
ON CONFLICT (entry) DO UPDATE SET
  plan = excluded.plan, ledger = excluded.ledger, claimed_at = excluded.claimed_at, ended = 0
WHERE claims.claimed_at < :expired OR (claims.ended AND claims.plan <> excluded.plan)
"""


class Claim(NamedTuple):
    """The run that claimed an entry: the hash of the plan, and the path of the ledger."""

    plan: str
    ledger: str


def claim_key(dlq_id: str, run_id: object, queue_url: str) -> tuple[str, str]:
    """Return the identity of an entry; the entry of a message has no run, but is one of this queue."""
    if isinstance(run_id, str):
        return dlq_id, run_id
    return dlq_id, queue_url


class Claims:
    """The claims of this user, for a run with a plan and a ledger; the file is opened when first used."""

    def __init__(self, plan: str, ledger: Path) -> None:
        self._own = Claim(plan, str(ledger.absolute()))
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self.path: Path | None = None

    def take(self, dlq_id: str, run_id: str) -> Claim | None:
        """Claim an entry. Return the claim of another run if it was first."""
        now = int(time.time())
        values = {
            "entry": _key(dlq_id, run_id),
            "now": now,
            "expired": now - EXPIRES_AFTER,
        }
        values |= self._own._asdict()

        with self._opened() as database:
            if database.execute(_TAKE, values).rowcount == 1:
                return None
            other = database.execute(
                "SELECT plan, ledger FROM claims WHERE entry = :entry", values
            ).fetchone()

        if other is None:  # released between the two statements
            return None

        return Claim(*map(str, other))

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
                got=getattr(error, "strerror", None) or str(error),
                expected="a file that this user can write",
                next_step="Set XDG_DATA_HOME to a folder this user may write. Remove a damaged file while no "
                "redrive runs.",
            ) from None

    def _open(self) -> sqlite3.Connection:
        self.path = user_folder("data") / "redrives" / "claims.sqlite"
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(open_private(self.path, os.O_RDWR | os.O_CREAT))
        database = sqlite3.connect(
            self.path, timeout=_TIMEOUT, check_same_thread=False, isolation_level=None
        )

        try:
            # a claim must outlive the process, not the machine: both runs end with it
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(_TABLE)
            database.execute(
                "DELETE FROM claims WHERE claimed_at < ?",
                (int(time.time()) - EXPIRES_AFTER,),
            )
        except BaseException:
            database.close()
            raise

        return database


def _key(dlq_id: str, run_id: str) -> str:
    """Return the identity of an entry. An id alone is not enough: an entry of another queue may have it."""
    return sha256(f"{dlq_id} {run_id}".encode(errors="surrogatepass")).hexdigest()

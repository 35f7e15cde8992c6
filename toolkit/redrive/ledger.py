"""The ledger of redrives: an SQLite file in which every step is stored before it is taken.

The states of an entry::

    intended ──> started ──> succeeded | failed again | failed otherwise | running (at the deadline)
        │   └──> deleted, called (a failure function that has responded)
        └──────> refused | unknown (sent, and nobody knows)
    skipped (before anything was sent)
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from toolkit.analysis.selection import typed_frame
from toolkit.arguments import file_path
from toolkit.errors import InputError, LedgerLockedError, ToolkitError
from toolkit.private_files import hold, open_private

if TYPE_CHECKING:
    from toolkit.redrive.plan import RedrivePlan

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS plans (hash TEXT PRIMARY KEY, plan BLOB NOT NULL, began_at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS entries (
  plan TEXT NOT NULL, dlq_id TEXT NOT NULL, grouped TEXT NOT NULL, action TEXT NOT NULL, run_id TEXT,
  origin_run TEXT, state TEXT NOT NULL, intended_at INTEGER, ended_at INTEGER, new_dlq_id TEXT,
  new_group TEXT, reason TEXT,
  PRIMARY KEY (plan, dlq_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_new ON entries (new_dlq_id) WHERE new_dlq_id IS NOT NULL;
CREATE TABLE IF NOT EXISTS stopped (
  plan TEXT NOT NULL, grouped TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (plan, grouped)
) WITHOUT ROWID;
"""
_VERSION: Final = 1
_HISTORY: Final = {
    "dlq_id": "str", "origin": "str", "times": "Int64", "plan": "str", "action": "str", "state": "str",
    "run_id": "str", "new_dlq_id": "str", "intended_at": "datetime64[ms, UTC]",
    "ended_at": "datetime64[ms, UTC]", "reason": "str",
}  # fmt: skip


class Ledger:
    """The file of one or several plans; used from several threads, and by one process at a time."""

    def __init__(self, path: str | os.PathLike[str], *, make: bool, name: str = "ledger") -> None:
        self.path = file_path(name, path)
        self._doing = f"opening the {name} {self.path}"
        try:
            os.close(open_private(self.path, os.O_RDWR | (os.O_CREAT if make else 0)))
        except (OSError, ValueError) as error:
            got = (isinstance(error, OSError) and error.strerror) or str(error)
            raise InputError(self._doing, got=got, expected="the ledger of a redrive") from None
        self._writing = threading.Lock()
        self._database = sqlite3.connect(self.path, check_same_thread=False, timeout=30)
        self._database.row_factory = sqlite3.Row
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        with self._readable():
            version = self._database.execute("PRAGMA user_version").fetchone()[0]
            if version > _VERSION:
                raise InputError(
                    self._doing, got=f"version {version}", expected=f"version {_VERSION}",
                    next_step="Open it with a newer toolkit.",
                )  # fmt: skip
            self._database.execute("PRAGMA journal_mode = WAL")
            # a step that was stored must still be stored after a power failure
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.executescript(f"{_TABLES} PRAGMA user_version = {_VERSION};")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise InputError(self._doing, got=str(error), expected="the ledger of a redrive") from None

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the ledger for a run, until the block or the process ends; else a `LedgerLockedError`."""
        lock = self.path.with_name(f"{self.path.name}.lock")
        with os.fdopen(open_private(lock, os.O_RDWR | os.O_CREAT), "r+b") as file:
            if not hold(file):
                raise LedgerLockedError(
                    f"running a plan with the ledger {self.path}",
                    got="a ledger that another process runs a plan with",
                    expected="one run at a time",
                    next_step="Wait until it has ended, or stop it; redrive_status() shows how far it is.",
                )
            yield

    def add(self, plan: RedrivePlan) -> None:
        """Store a plan, once."""
        self._write("INSERT OR IGNORE INTO plans VALUES (?, ?, ?)", plan.hash, plan.to_json(), _now())

    def plans(self) -> dict[str, bytes]:
        """The plans as JSON by their hashes, the latest last."""
        rows = self._rows("SELECT hash, plan FROM plans ORDER BY began_at, hash")
        return {row["hash"]: row["plan"] for row in rows}

    def intend(self, plan: str, entry: dict[str, Any], run_id: str | None) -> None:
        """Store that a request is about to be sent."""
        origin = entry["workflow_run_id"]
        self._insert(plan, entry, state="intended", origin_run=origin, run_id=run_id, intended_at=_now())

    def skip(self, plan: str, entry: dict[str, Any], reason: str) -> None:
        """Store that an entry was left, before anything was sent."""
        self._insert(plan, entry, state="skipped", reason=reason, ended_at=_now())

    def _insert(self, plan: str, entry: dict[str, Any], **columns: object) -> None:
        row = {"plan": plan, "dlq_id": entry["dlq_id"], "grouped": entry["group"], "action": entry["action"]}
        row |= columns
        sql = f"INSERT INTO entries ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"  # noqa: S608 - names of this class
        self._write(sql, *row.values())

    def set(self, plan: str, dlq_id: str, state: str, *, ended: bool = True, **columns: str | None) -> None:
        """Store the next state of an entry."""
        names = "".join(f", {name} = ?" for name in columns)
        sql = f"UPDATE entries SET state = ?, ended_at = ?{names} WHERE plan = ? AND dlq_id = ?"  # noqa: S608 - names of this class
        self._write(sql, state, _now() if ended else None, *columns.values(), plan, dlq_id)

    def withdraw(self, plan: str, dlq_id: str) -> None:
        """Remove an intent that is known not to have arrived."""
        self._write("DELETE FROM entries WHERE plan = ? AND dlq_id = ? AND state = 'intended'", plan, dlq_id)

    def stop(self, plan: str, group: str, reason: str) -> None:
        """Store that nothing more is done with a group."""
        self._write("INSERT OR IGNORE INTO stopped VALUES (?, ?, ?)", plan, group, reason)

    def stopped(self, plan: str) -> dict[str, str]:
        """The groups that were stopped, and why."""
        rows = self._rows("SELECT grouped, reason FROM stopped WHERE plan = ?", plan)
        return {row["grouped"]: row["reason"] for row in rows}

    def entries(self, plan: str | None = None, *states: str) -> list[sqlite3.Row]:
        """The entries that something was done or decided with, in order: all, or of a plan and states."""
        of_plan = " AND plan = ?" if plan else ""
        only = f" AND state IN ({', '.join('?' * len(states))})" if states else ""
        order = "coalesce(intended_at, ended_at), dlq_id"
        sql = f"SELECT * FROM entries WHERE TRUE{of_plan}{only} ORDER BY {order}"  # noqa: S608 - question marks
        return self._rows(sql, *filter(None, (plan, *states)))

    def states(self, plan: str) -> dict[str, dict[str, str]]:
        """The states of entries, by group and id."""
        found: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for group, dlq_id, state in self._rows(
            "SELECT grouped, dlq_id, state FROM entries WHERE plan = ?", plan
        ):
            found[group][dlq_id] = state
        return found

    def _rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        with self._writing, self._readable():
            return self._database.execute(sql, values).fetchall()

    def _write(self, sql: str, *values: object) -> None:
        with self._writing:
            try:
                with self._database:
                    self._database.execute(sql, values)
            except sqlite3.Error as error:
                raise ToolkitError(
                    f"writing the ledger {self.path}",
                    got=str(error),
                    expected="every step stored before it is taken",
                    next_step="Nothing more was sent. Make room or free the file, then run the plan again.",
                ) from None


def redrive_history(ledger: str | os.PathLike[str]) -> pd.DataFrame:
    """Load what all redrives of a ledger did, each entry linked to the one that it comes from.

    Parameters
    ----------
    ledger : str or path
        The file that `run_redrive` wrote.

    Returns
    -------
    pandas.DataFrame
        One row an entry and plan, in the order in which they were acted on: `dlq_id`, `origin` (str: the
        entry that it came from at first, over all plans), `times` (Int64: how often that was redriven by
        then), `plan` (str, its hash), `action`, `state`, `run_id`, `new_dlq_id` (str: where it came back),
        `intended_at`, `ended_at` (datetime64[ms, UTC]), `reason` (str).

    Raises
    ------
    InputError
        When there is no such ledger.

    Examples
    --------
    >>> redrive_history("no-such.sqlite")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: opening the ledger no-such.sqlite: got No such file or directory; expected ...
    """
    return _history(ledger, "ledger")


def _history(ledger: str | os.PathLike[str], name: str) -> pd.DataFrame:
    with closing(Ledger(ledger, make=False, name=name)) as opened:
        rows = [dict(row) for row in opened.entries()]
    came_from: dict[str, tuple[str, int]] = {}
    for row in rows:
        origin, times = came_from.get(row["dlq_id"], (row["dlq_id"], 0))
        row["origin"], row["times"] = origin, times + (row["state"] != "skipped")
        if row["new_dlq_id"]:
            came_from[row["new_dlq_id"]] = origin, row["times"]
    return entry_frame(rows, _HISTORY)


def entry_frame(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> pd.DataFrame:
    """A frame of the columns of entries, by their dtypes; what a row does not have is missing."""
    values = {name: [row.get(name) for row in rows] for name in columns}
    return typed_frame(**{
        name: (kind, pd.to_datetime(pd.Series(values[name], dtype="Int64"), unit="ms", utc=True))
        if kind.startswith("datetime")
        else (kind, values[name])
        for name, kind in columns.items()
    })  # fmt: skip


def returned_entries(ledger: str | os.PathLike[str]) -> frozenset[str]:
    """Ids of entries and of runs that redrives of a ledger have made."""
    history = _history(ledger, "history")
    return frozenset(history["new_dlq_id"].dropna()) | frozenset(history["run_id"].dropna())


def _now() -> int:
    return time.time_ns() // 1_000_000

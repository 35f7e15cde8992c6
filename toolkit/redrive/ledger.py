"""Store every step of a redrive before it is taken, in an SQLite file (the ledger).

If a run is interrupted, the next run of the same plan reads the ledger and continues. For example, an entry
with the state "intended" may have been sent: the run looks at the service before it sends the request again.

The states of an entry::

    intended ──> started ──> succeeded | failed again | failed otherwise | running (at the deadline)
        │   └──> deleted, called (a failure function that has responded)
        └──────> refused | unknown (sent, outcome unknown)
    skipped (before anything was sent)
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import msgspec
import pandas as pd

from toolkit.base.arguments import file_path
from toolkit.base.errors import InputError, LedgerLockedError, ToolkitError
from toolkit.base.private_files import hold, open_private
from toolkit.failures.selection import typed_frame
from toolkit.redrive import ledger_file
from toolkit.redrive.ledger_file import (
    STATES,
    Content,
    Entry,
    NotALedgerError,
    State,
    Step,
)

if TYPE_CHECKING:
    from toolkit.redrive.plan import RedrivePlan

_HISTORY: Final = {
    "dlq_id": "str", "origin": "str", "times": "Int64", "plan": "str", "action": "str", "state": "str",
    "run_id": "str", "new_dlq_id": "str", "intended_at": "datetime64[ms, UTC]",
    "ended_at": "datetime64[ms, UTC]", "reason": "str",
}  # fmt: skip


_UPDATE: Final = {
    "steps": "UPDATE steps SET step = ? WHERE id = ?",
    "stops": "UPDATE stops SET reason = ? WHERE id = ?",
}


@dataclass(eq=False)
class _Change:
    """A value that a thread waits for to be stored."""

    table: Literal["steps", "stops"]
    number: int
    value: str
    stored: bool = False


class Ledger:
    """The steps of one or several plans, in a file; used from several threads.

    With ``make=False``, the file is read once and not changed. With ``make=True``, each step is stored in the
    file before a method returns; `running` makes sure that one process at a time does that.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, make: bool, name: str = "ledger"
    ) -> None:
        self.path = file_path(name, path)
        self._doing = f"opening the {name} {self.path}"
        self._database: sqlite3.Connection | None = None
        self._storing = threading.Lock()
        self._queueing = threading.Lock()

        self._queued: list[_Change] = []
        self._numbers: dict[str, dict[tuple[str, str], int]] = {}
        with self._readable():
            if make:
                self._content = self._opened_for_writing()
            else:
                self._content = ledger_file.read(self.path)

    def _opened_for_writing(self) -> Content:
        """Open the file, or make or convert it; return the content."""
        kind = ledger_file.look(self.path)
        content = Content()
        if kind != "missing":
            os.close(open_private(self.path, os.O_RDWR))
        if kind == "first version":
            content = ledger_file.convert_first(self.path)
        if kind != "ledger":
            ledger_file.replace_file(self.path, content)
        return self._open()

    def _open(self) -> Content:
        self._database = ledger_file.open_file(self.path)
        try:
            content = ledger_file.content_of(self._database)
        except BaseException:
            self.close()
            raise

        self._numbers = {
            "steps": {key: number for number, key in enumerate(content.entries)},
            "stops": {key: number for number, key in enumerate(content.stopped)},
        }
        return content

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, NotALedgerError, sqlite3.Error) as error:
            raise InputError(
                self._doing, got=_found(error), expected="the ledger of a redrive",
                next_step="Name the file that run_redrive wrote, or another one for a new ledger.",
            ) from None  # fmt: skip

    def close(self) -> None:
        """Close the file."""
        if self._database is None:
            return

        with suppress(sqlite3.Error):
            # which removes the journal
            self._database.execute("PRAGMA journal_mode = DELETE")

        self._database.close()
        self._database = None

    @classmethod
    @contextmanager
    def running(cls, path: str | os.PathLike[str]) -> Iterator[Self]:
        """Open the ledger of a run; raise `LedgerLockedError` if another process has it open."""
        file = file_path("ledger", path)
        cls._check_before_locking(file)
        with _lock_of(file):
            opened = cls(file, make=True)
            try:
                yield opened
            finally:
                opened.close()

    @classmethod
    def _check_before_locking(cls, file: Path) -> None:
        """Raise if the file is damaged or of another program, before a lock is made next to it."""
        with suppress(OSError, ValueError, NotALedgerError):
            if ledger_file.look(file) in ("missing", "empty"):
                return
        cls(file, make=False)  # which raises the error with all parts of the message

    def add(self, plan: RedrivePlan) -> None:
        """Store a plan, once, with a row for each entry that something is done with."""
        content, missing = self._content, self._missing_entries(plan)
        if plan.hash in content.plans and not missing:
            return

        content.plans.setdefault(plan.hash, plan.to_json())
        content.began_at.setdefault(plan.hash, _now())
        for entry in missing:
            content.entries[entry.plan, entry.dlq_id] = entry
        for group in plan.acted["group"].unique():
            content.stopped.setdefault((plan.hash, group), None)
        with self._written():
            self.close()
            ledger_file.replace_file(self.path, content)
            self._content = self._open()

    def _missing_entries(self, plan: RedrivePlan) -> list[Entry]:
        """Return the entries of a plan without a row, for example in a ledger of the first version."""
        columns = ["dlq_id", "group", "action", "workflow_run_id"]
        rows = plan.acted[columns].itertuples(index=False, name=None)

        return [
            Entry(
                plan=plan.hash,
                dlq_id=dlq_id,
                grouped=group,
                action=action,
                origin_run=_known(run_id),
            )
            for dlq_id, group, action, run_id in rows
            if (plan.hash, dlq_id) not in self._content.entries
        ]

    def plans(self) -> dict[str, bytes]:
        """Return the plans as JSON by hash, the latest last."""
        return dict(self._content.plans)

    def intend(self, plan: str, entry: dict[str, Any], run_id: str | None) -> None:
        """Store that a request is about to be sent."""
        self._store(
            plan,
            entry["dlq_id"],
            Step(state="intended", run_id=run_id, intended_at=_now()),
        )

    def skip(self, plan: str, entry: dict[str, Any], reason: str) -> None:
        """Store that an entry was left, before anything was sent."""
        self._store(
            plan, entry["dlq_id"], Step(state="skipped", reason=reason, ended_at=_now())
        )

    def set(
        self,
        plan: str,
        dlq_id: str,
        state: State,
        *,
        ended: bool = True,
        **columns: str | None,
    ) -> None:
        """Store the next state of an entry; a reason belongs to one state, other columns are kept."""
        step = self._content.entries[plan, dlq_id].step or Step(state=state)
        ended_at = _now() if ended else None
        changes: dict[str, Any] = {
            "state": state,
            "ended_at": ended_at,
            "reason": None,
            **columns,
        }
        self._store(plan, dlq_id, msgspec.structs.replace(step, **changes))

    def withdraw(self, plan: str, dlq_id: str) -> None:
        """Remove an intent that is known not to have arrived."""
        step = self._content.entries[plan, dlq_id].step
        if step is not None and step.state == "intended":
            self._store(plan, dlq_id, None)

    def stop(self, plan: str, group: str, reason: str) -> None:
        """Store that nothing more is done with a group."""
        if self._content.stopped[plan, group] is None:
            self._change("stops", (plan, group), ledger_file.padded_reason(reason))
            self._content.stopped[plan, group] = reason

    def stopped(self, plan: str) -> dict[str, str]:
        """Return the groups that were stopped, and why."""
        groups = self._content.stopped.items()
        return {
            group: reason
            for (of, group), reason in groups
            if of == plan and reason is not None
        }

    def entries(self, plan: str | None = None, *states: str) -> list[dict[str, Any]]:
        """Return the entries with a step, in order, if wanted only with some states."""
        wanted_states = states or STATES
        rows = [
            entry.row
            for entry, step in self._begun(plan)
            if step.state in wanted_states
        ]
        return sorted(rows, key=_when)

    def states(self, plan: str) -> dict[str, dict[str, str]]:
        """Return the states of entries, by group and id."""
        states_by_group: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for entry, step in self._begun(plan):
            states_by_group[entry.grouped][entry.dlq_id] = step.state
        return states_by_group

    def _begun(self, plan: str | None) -> Iterator[tuple[Entry, Step]]:
        """Yield the entries with a step, and the step; if no plan is given, from all plans."""
        for entry in self._content.entries.values():
            if plan in (None, entry.plan) and entry.step is not None:
                yield entry, entry.step

    def _store(self, plan: str, dlq_id: str, step: Step | None) -> None:
        """Store a step in the file, then in memory."""
        key = (plan, dlq_id)
        self._change("steps", key, ledger_file.padded_step(step))
        self._content.entries[key] = msgspec.structs.replace(
            self._content.entries[key], step=step
        )

    def _change(
        self, table: Literal["steps", "stops"], key: tuple[str, str], value: str
    ) -> None:
        """Overwrite a value; changes that several threads wait for are stored together (group commit)."""
        # While one thread stores, others add their changes to the queue. The next thread that may store takes
        # all of them in one transaction, so that one sync of the disk serves many threads:
        #
        #     A    stores a
        #     B    queues b, waits, stores b and c
        #     C    queues c, waits, finds c stored
        change = _Change(table, self._numbers[table][key], value)
        with self._queueing:
            self._queued.append(change)
        with self._storing:
            if change.stored:  # by the thread that stored before this one
                return
            with self._queueing:
                changes, self._queued = self._queued, []
            if change not in changes:  # it was among changes that could not be stored
                changes.append(change)
            with self._written():
                self._commit(changes)

    def _commit(self, changes: Sequence[_Change]) -> None:
        if self._database is None:
            raise sqlite3.ProgrammingError(
                "the ledger was opened for reading, or is closed"
            )

        self._database.execute("BEGIN IMMEDIATE")
        try:
            for change in changes:
                cursor = self._database.execute(
                    _UPDATE[change.table], (change.value, change.number)
                )
                _check_updated(cursor.rowcount)

            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

        for change in changes:
            change.stored = True

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise ToolkitError(
                f"writing the ledger {self.path}",
                got=str(error),
                expected="every step stored before it is taken",
                next_step="Nothing more was sent. Make room or free the file, then run the plan again.",
            ) from None


@contextmanager
def _lock_of(file: Path) -> Iterator[None]:
    """Lock a ledger until the block or the process ends, with a file next to it."""
    lock = file.with_name(f"{file.name}.lock")
    try:
        handle = open_private(lock, os.O_RDWR | os.O_CREAT)
    except (OSError, ValueError) as error:
        raise InputError(
            f"opening the ledger {file}", got=f"{_found(error)} (the lock {lock.name})",
            expected="a folder that this user can write to",
            next_step="Remove the file or folder of that name, or name a ledger in another folder.",
        ) from None  # fmt: skip

    with os.fdopen(handle, "r+b") as opened:
        if not hold(opened):
            raise LedgerLockedError(
                f"running a plan with the ledger {file}",
                got="a ledger that another process runs a plan with",
                expected="one run at a time",
                next_step="Wait until it has ended, or stop it; read_redrive_status() shows the progress.",
            )

        yield


def _found(error: Exception) -> str:
    """Return an error in words; errors of the operating system have some of their own."""
    return getattr(error, "strerror", None) or str(error)


def _check_updated(rows: int) -> None:
    if rows != 1:
        raise sqlite3.DatabaseError(
            f"{rows} rows instead of 1: another program has changed the ledger"
        )


def _known(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _when(row: Mapping[str, Any]) -> tuple[int, str]:
    begun_at = row["intended_at"]
    if begun_at is None:  # skipped: nothing was sent
        begun_at = row["ended_at"] or 0
    return begun_at, row["dlq_id"]


def read_redrive_history(ledger: str | os.PathLike[str]) -> pd.DataFrame:
    """Load the steps of all redrives of a ledger, each entry linked to the entry that it comes from.

    Parameters
    ----------
    ledger : str or path
        The file that `run_redrive` wrote.

    Returns
    -------
    pandas.DataFrame
        One row per entry and plan, ordered by time: `dlq_id`, `origin` (str: the first entry that it came
        from, over all plans), `times` (Int64: how often `origin` was redriven by then), `plan` (str, the
        hash), `action`, `state`, `run_id`, `new_dlq_id` (str: the entry that came back, if it failed again),
        `intended_at`, `ended_at` (datetime64[ms, UTC]), `reason` (str).

    Raises
    ------
    InputError
        If the ledger does not exist, is damaged, or is a file of another program. The file is not changed.

    Examples
    --------
    >>> read_redrive_history("no-such.sqlite")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: opening the ledger no-such.sqlite: got No such file or directory; expected ...
    """
    return _history(ledger, "ledger")


def _history(ledger: str | os.PathLike[str], name: str) -> pd.DataFrame:
    with closing(Ledger(ledger, make=False, name=name)) as opened:
        rows = opened.entries()
    came_from: dict[str, tuple[str, int]] = {}
    for row in rows:
        origin, times = came_from.get(row["dlq_id"], (row["dlq_id"], 0))
        if row["state"] != "skipped":
            times += 1
        row["origin"], row["times"] = origin, times
        # of None for a row that did not come back
        came_from[row["new_dlq_id"]] = (
            origin,
            times,
        )

    return entry_frame(rows, _HISTORY)


def entry_frame(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]
) -> pd.DataFrame:
    """Return a frame with columns of these dtypes; keys that a row does not have are missing values."""
    typed: dict[str, tuple[str, Any]] = {}
    for name, dtype in columns.items():
        values: Any = [row.get(name) for row in rows]
        if dtype.startswith("datetime"):
            values = pd.to_datetime(
                pd.Series(values, dtype="Int64"), unit="ms", utc=True
            )

        typed[name] = (dtype, values)

    return typed_frame(**typed)


def returned_entries(ledger: str | os.PathLike[str]) -> frozenset[str]:
    """Return the ids of entries and of runs that redrives of a ledger have made."""
    history = _history(ledger, "history")
    return frozenset(history["new_dlq_id"].dropna()) | frozenset(
        history["run_id"].dropna()
    )


def _now() -> int:
    return time.time_ns() // 1_000_000

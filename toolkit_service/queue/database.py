"""The SQLite file of the queue: the tables, a thread that writes, and a thread that reads."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from toolkit.base.errors import LocalServiceError
from toolkit_service.api import ApiError
from toolkit_service.queue.messages import message_json, url_hosts, url_path
from toolkit_service.storage_errors import damaged_file

VERSION: Final = 4
"""Version of these tables, stored in the database; a file of another version is an error."""

_MIGRATIONS: Final = {
    2: "ALTER TABLE messages ADD COLUMN queue TEXT; ALTER TABLE messages ADD COLUMN joins_at INTEGER; "
    "DROP INDEX messages_due;",
    # SQLite cannot drop a constraint: UNIQUE (topic, url) ends with the table that had it
    3: "CREATE TABLE endpoints_of_version_4 (seq INTEGER PRIMARY KEY AUTOINCREMENT, "
    "topic TEXT NOT NULL REFERENCES url_groups (name) ON DELETE CASCADE, url TEXT NOT NULL, name TEXT, "
    "UNIQUE (topic, name)); "
    "INSERT INTO endpoints_of_version_4 SELECT seq, topic, url, name FROM endpoints; "
    "DROP TABLE endpoints; ALTER TABLE endpoints_of_version_4 RENAME TO endpoints;",
}
"""SQL per earlier version that turns the tables into tables of the next version."""

TABLES: Final = Path(__file__).with_name("tables.sql").read_text(encoding="utf-8")

T = TypeVar("T")
_BATCH: Final = 256  # most writes in one transaction


class QueueWrite(NamedTuple):
    """A transaction, the time when it takes place (Unix ms), and settings of the queue.

    `factor` divides delays. If `drops_unknown_steps` is set, steps of runs that were not started here are
    accepted and dropped.
    """

    connection: sqlite3.Connection
    now_ms: int = 0
    factor: float = 1.0
    drops_unknown_steps: bool = False

    def execute(self, sql: str, *bound: Any) -> sqlite3.Cursor:
        """Execute one statement."""
        return self.connection.execute(sql, bound)

    def insert(self, table: str, **row: Any) -> int | None:
        """Insert a row from values by column name, and return the row number."""
        return self.connection.execute(
            _insertion(table, *row), (*row.values(),)
        ).lastrowid

    def rows(self, sql: str, *bound: Any) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        return self.connection.execute(sql, bound).fetchall()

    def first(self, sql: str, *bound: Any) -> sqlite3.Row | None:
        """Return the first row of a query, or None if no rows match."""
        row: sqlite3.Row | None = self.connection.execute(sql, bound).fetchone()
        return row

    def value(self, sql: str, *bound: Any) -> Any:
        """Return the first column of the first row of a query, or None if no rows match."""
        row = self.first(sql, *bound)
        return None if row is None else row[0]

    def check_count(self, table: str, most: int, plural: str) -> None:
        """Raise an `ApiError` with 412 if a table has more than `most` rows, which `plural` names."""
        count = self.value(f"SELECT count(*) FROM {table}")  # noqa: S608 - a name of this package
        if count > most:
            raise ApiError(
                412, f"too many {plural}; got {count}; expected at most {most}"
            )


@cache
def _insertion(table: str, *columns: str) -> str:
    names = ",".join(columns)
    return f"INSERT INTO {table} ({names}) VALUES ({marks(columns)})"  # noqa: S608 - names of this package


def marks(bound: Sized) -> str:
    """Return a question mark per value to bind, for SQL.

    >>> marks(["a", "b"])
    '?,?'
    """
    return ",".join(repeat("?", len(bound)))


_Work: TypeAlias = Callable[[sqlite3.Connection], Any]
_Done: TypeAlias = "Future[Any] | asyncio.Future[Any]"
_Outcome: TypeAlias = tuple[_Done, Any, Exception | None]
"""A future, and the result or the error to set."""


class Database:
    """The database of the queue in WAL mode; the file is created with mode 0600.

    Writes that wait at the same time share one transaction and one flush to disk (group commit). For example,
    100 publishes that arrive during one flush are written with the next. Each write has a separate savepoint:
    if it fails, the others are not affected. A write returns when the data are on disk, so that an
    acknowledged message survives a crash.
    """

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600)
        self.path = path
        self._jobs: queue.SimpleQueue[tuple[_Work, _Done] | None] = queue.SimpleQueue()

        with contextlib.ExitStack() as opened:
            try:
                self._writing = opened.enter_context(contextlib.closing(_open(path)))
                self._reading = opened.enter_context(contextlib.closing(_open(path)))
                self._prepare()
            except sqlite3.Error as error:
                raise damaged_file(path, error) from None

            opened.pop_all()  # keep both connections open until `close`

        self._reader = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="queue-reader"
        )
        self._writer = threading.Thread(
            target=self._write_all, name="queue-writer", daemon=True
        )
        self._writer.start()

    def _prepare(self) -> None:
        """Create the tables, or migrate tables of an earlier version."""
        version = self._stored_version()
        if version != VERSION and version not in _MIGRATIONS:
            raise LocalServiceError(
                f"opening the service's file {str(self.path)!r}",
                got=f"tables of version {version}",
                expected=f"tables of version {VERSION}",
                next_step="Start with an empty data folder.",
            )

        migrations = " ".join(
            _MIGRATIONS[earlier] for earlier in range(version, VERSION)
        )
        current = f"INSERT OR REPLACE INTO kept VALUES ('version', {VERSION});"  # noqa: S608 - a constant
        # one transaction: one flush for all tables
        self._writing.executescript(f"BEGIN; {migrations} {TABLES} {current} COMMIT;")

    def _stored_version(self) -> int:
        """Return the version of the tables; an empty file counts as the current version."""
        rows = self._writing.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        )
        tables = {name for (name,) in rows}
        if not tables:
            return VERSION
        if "kept" not in tables:
            raise damaged_file(self.path, "a database of another program")

        stored = self._writing.execute(
            "SELECT value FROM kept WHERE name = 'version'"
        ).fetchone()
        if stored is None:
            raise damaged_file(self.path, "tables without a version")

        version: int = stored[0]
        return version

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Start a write. The future is done when the data are on disk."""
        done: Future[T] = Future()
        self._jobs.put((work, done))
        return done

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Write, and return when the data are on disk. A write that fails changes nothing and raises here."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((work, done))
        return await done

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read committed data."""
        return await asyncio.wrap_future(self._reader.submit(work, self._reading))

    def close(self) -> None:
        """Finish the pending writes and close the file."""
        self._jobs.put(None)
        self._writer.join()
        self._reader.shutdown()
        self._writing.close()
        self._reading.close()

    def _write_all(self) -> None:
        """Commit batches of jobs until `close` puts None into the queue (in the thread that writes)."""
        ended = False
        while not ended:
            job = self._jobs.get()
            batch = []
            while job is not None:
                batch.append(job)
                if len(batch) == _BATCH or self._jobs.empty():
                    break
                job = self._jobs.get()

            ended = job is None
            if batch:
                self._commit(batch)

    def _commit(self, batch: list[tuple[_Work, _Done]]) -> None:
        outcomes: list[_Outcome]
        try:
            # the write lock at once: a transaction that begins as a reader can fail when it starts to write
            self._writing.execute("BEGIN IMMEDIATE")
            outcomes = [(done, *self._try(work)) for work, done in batch]
            self._writing.execute("COMMIT")
        except sqlite3.Error as error:
            # for example a full disk: nothing of this batch is stored
            if self._writing.in_transaction:
                self._writing.execute("ROLLBACK")
            outcomes = [(done, None, error) for _, done in batch]

        _report(outcomes)

    def _try(self, work: _Work) -> tuple[Any, Exception | None]:
        self._writing.execute("SAVEPOINT one")
        try:
            result = work(self._writing)
        except Exception as error:  # noqa: BLE001 - raised where this write is awaited
            self._writing.execute("ROLLBACK TO one")
            return None, error
        else:
            return result, None
        finally:
            self._writing.execute("RELEASE one")


def _report(outcomes: list[_Outcome]) -> None:
    """Set the results of a batch, each in the event loop that waits for it."""
    # one call per event loop for the whole batch: each call wakes the loop, and costs as much as a write
    by_loop: defaultdict[asyncio.AbstractEventLoop | None, list[_Outcome]] = (
        defaultdict(list)
    )
    for outcome in outcomes:
        done = outcome[0]
        loop = done.get_loop() if isinstance(done, asyncio.Future) else None
        by_loop[loop].append(outcome)

    for loop, ended in by_loop.items():
        if loop is None:
            _finish(ended)
            continue
        # RuntimeError: the loop has ended, and all tasks with it
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_finish, ended)


def _finish(outcomes: list[_Outcome]) -> None:
    for done, result, problem in outcomes:
        if done.done():
            continue  # cancelled meanwhile
        if problem is None:
            done.set_result(result)
        else:
            done.set_exception(problem)


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # in WAL mode, NORMAL does not flush at each commit, and a power failure could lose acknowledged
        # messages
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        connection.close()
        raise

    connection.row_factory = sqlite3.Row
    for function in (message_json, url_hosts, url_path):
        connection.create_function(function.__name__, 1, function, deterministic=True)
    return connection

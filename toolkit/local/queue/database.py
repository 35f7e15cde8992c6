"""The queue's SQLite file: its tables, and one thread each for writing and reading."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from toolkit.errors import LocalServiceError
from toolkit.local.api import ApiError
from toolkit.local.queue.messages import message_json, url_hosts, url_path
from toolkit.local.storage_errors import damaged_file

VERSION: Final = 3
"""Version of these tables, stored in the database; a file of another version is an error."""

_MIGRATIONS: Final = {
    2: "ALTER TABLE messages ADD COLUMN queue TEXT; ALTER TABLE messages ADD COLUMN joins_at INTEGER; "
    "DROP INDEX messages_due; UPDATE kept SET value = 3 WHERE name = 'version';"
}
"""What makes tables of an earlier version those of the next one."""

TABLES: Final = Path(__file__).with_name("tables.sql").read_text(encoding="utf-8")

T = TypeVar("T")
_BATCH: Final = 256  # most writes in one transaction


class QueueWrite(NamedTuple):
    """A transaction, when it takes place (Unix ms), and the factor that divides delays."""

    connection: sqlite3.Connection
    now_ms: int = 0
    factor: float = 1.0

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """Execute one statement."""
        return self.connection.execute(sql, values)

    def insert(self, table: str, **values: Any) -> int | None:
        """Insert a row, its values by the names of columns; returns its number."""
        return self.connection.execute(_insertion(table, *values), (*values.values(),)).lastrowid

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """All rows of a query."""
        return self.connection.execute(sql, values).fetchall()

    def first(self, sql: str, *values: Any) -> sqlite3.Row | None:
        """The first row of a query, if there is one."""
        row: sqlite3.Row | None = self.connection.execute(sql, values).fetchone()
        return row

    def value(self, sql: str, *values: Any) -> Any:
        """The first column of the first row of a query; None without rows."""
        row = self.first(sql, *values)
        return None if row is None else row[0]

    def check_count(self, table: str, most: int, what: str) -> None:
        """Raise an `ApiError` with 412 where a table has more rows than it may."""
        count = self.value(f"SELECT count(*) FROM {table}")  # noqa: S608 - a name of this package
        if count > most:
            raise ApiError(412, f"too many {what}; got {count}; expected at most {most}")


@cache
def _insertion(table: str, *columns: str) -> str:
    marks = ",".join("?" * len(columns))
    return f"INSERT INTO {table} ({','.join(columns)}) VALUES ({marks})"  # noqa: S608 - names of this package


_Work: TypeAlias = Callable[[sqlite3.Connection], Any]
_Done: TypeAlias = "Future[Any] | asyncio.Future[Any]"


class Database:
    """The queue's database in WAL mode; the file is created with mode 0600.

    Writes that wait at the same time share one transaction and one flush to disk, each in its own savepoint,
    so that one failing leaves the others. They return once it is on disk: what was acknowledged survives a
    crash.
    """

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600)
        self._path = path
        self._jobs: queue.SimpleQueue[tuple[_Work, _Done] | None] = queue.SimpleQueue()
        with contextlib.ExitStack() as opened:
            try:
                self._writing = opened.enter_context(contextlib.closing(_open(path)))
                self._reading = opened.enter_context(contextlib.closing(_open(path)))
                self._prepare()
            except sqlite3.Error as error:
                raise damaged_file(path, error) from None
            opened.pop_all()  # they stay open until `close`
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="queue-reader")
        self._writer = threading.Thread(target=self._write_all, name="queue-writer", daemon=True)
        self._writer.start()

    def _prepare(self) -> None:
        tables = {
            name for (name,) in self._writing.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        version = VERSION
        if "kept" in tables:
            stored = self._writing.execute("SELECT value FROM kept WHERE name = 'version'").fetchone()
            if stored is None:
                raise damaged_file(self._path, "tables without a version")
            (version,) = stored
        elif tables:
            raise damaged_file(self._path, "a database of another program")
        if version != VERSION and version not in _MIGRATIONS:
            raise LocalServiceError(
                f"opening the service's file {str(self._path)!r}",
                got=f"tables of version {version}",
                expected=f"version {VERSION}",
                next_step="Start with an empty data folder.",
            )
        first = f"INSERT OR IGNORE INTO kept VALUES ('version', {VERSION});"  # noqa: S608 - a constant
        # one flush instead of one a table
        self._writing.executescript(f"BEGIN; {_MIGRATIONS.get(version, '')} {TABLES} {first} COMMIT;")

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Start a write. Its future is done once the write is on disk."""
        done: Future[T] = Future()
        self._jobs.put((work, done))
        return done

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Write, and return once it is on disk. A failing write leaves nothing behind and raises here."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((work, done))
        return await done

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read what has been committed."""
        return await asyncio.wrap_future(self._reader.submit(work, self._reading))

    def close(self) -> None:
        """Finish the pending writes and close the file."""
        self._jobs.put(None)
        self._writer.join()
        self._reader.shutdown()
        self._writing.close()
        self._reading.close()

    def _write_all(self) -> None:
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
        try:
            self._writing.execute("BEGIN IMMEDIATE")
            outcomes = [(done, *self._try(work)) for work, done in batch]
            self._writing.execute("COMMIT")
        except sqlite3.Error as error:  # a full disk, above all: nothing of this batch is kept
            if self._writing.in_transaction:
                self._writing.execute("ROLLBACK")
            outcomes = [(done, None, error) for _, done in batch]
        # one call into the event loop for all of a batch: each wakes it, and costs as much as a write
        by_loop = defaultdict(list)
        for outcome in outcomes:
            done = outcome[0]
            by_loop[done.get_loop() if isinstance(done, asyncio.Future) else None].append(outcome)
        for loop, ended in by_loop.items():
            if loop is None:
                _finish(ended)
            else:
                with contextlib.suppress(RuntimeError):  # the loop has ended, and its tasks with it
                    loop.call_soon_threadsafe(_finish, ended)

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


def _finish(outcomes: list[tuple[_Done, Any, Exception | None]]) -> None:
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
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        connection.close()
        raise
    connection.row_factory = sqlite3.Row
    for function in (message_json, url_hosts, url_path):
        connection.create_function(function.__name__, 1, function, deterministic=True)
    return connection

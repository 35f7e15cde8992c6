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
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from toolkit.errors import LocalServiceError

VERSION: Final = 2
"""Version of these tables, stored in the database; a file of another version is an error."""

TABLES: Final = """
-- Messages that still have to be delivered. A row is deleted in the transaction that records its outcome.
CREATE TABLE IF NOT EXISTS messages (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  due_at INTEGER NOT NULL,
  retried INTEGER NOT NULL DEFAULT 0,
  run_id TEXT,
  flow_key TEXT,
  about TEXT,
  event_id TEXT,
  spec BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS messages_due ON messages (due_at, seq);
CREATE INDEX IF NOT EXISTS messages_run ON messages (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS messages_about ON messages (about) WHERE about IS NOT NULL;
CREATE INDEX IF NOT EXISTS messages_event ON messages (event_id) WHERE event_id IS NOT NULL;

-- Further pending messages of a run that failed, until it is resumed.
CREATE TABLE IF NOT EXISTS parked (
  run_id TEXT NOT NULL,
  due_at INTEGER NOT NULL,
  spec BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS parked_run ON parked (run_id);

-- Until when deliveries count against the rate of their key.
CREATE TABLE IF NOT EXISTS rates (flow_key TEXT NOT NULL, until INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS rates_until ON rates (until);

-- Events that arrived for a run before it waited for them.
CREATE TABLE IF NOT EXISTS notifications (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id TEXT NOT NULL,
  event_id TEXT NOT NULL,
  body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS notifications_run ON notifications (run_id, event_id);

CREATE TABLE IF NOT EXISTS deduplication (
  name TEXT PRIMARY KEY,
  message_id TEXT NOT NULL,
  expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS deduplication_expiry ON deduplication (expires_at);

-- Events of messages, in order.
CREATE TABLE IF NOT EXISTS events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  time INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  run_id TEXT,
  state TEXT NOT NULL,
  url TEXT NOT NULL,
  entry TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS events_message ON events (message_id);
CREATE INDEX IF NOT EXISTS events_time ON events (time);

-- The DLQ. `entry` is the JSON of listings, without the state; `message` is null when filled in.
CREATE TABLE IF NOT EXISTS dlq (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  workflow INTEGER NOT NULL,
  entered_at INTEGER NOT NULL,
  created_at INTEGER,
  workflow_url TEXT,
  run_id TEXT,
  workflow_created_at INTEGER,
  state TEXT,
  caller_ip TEXT,
  flow_key TEXT,
  entry TEXT NOT NULL,
  message BLOB
);
CREATE INDEX IF NOT EXISTS dlq_order ON dlq (workflow, entered_at, seq, created_at);
CREATE INDEX IF NOT EXISTS dlq_run ON dlq (run_id) WHERE run_id IS NOT NULL;
CREATE TABLE IF NOT EXISTS dlq_labels (
  dlq_seq INTEGER NOT NULL REFERENCES dlq (seq) ON DELETE CASCADE,
  label TEXT NOT NULL,
  PRIMARY KEY (dlq_seq, label)
) WITHOUT ROWID;

-- Workflow runs. `first` is the message that started it; null for those filled in, shown as `entry` is.
-- `invoker` is the step that is added to the run that invoked it when it ends.
CREATE TABLE IF NOT EXISTS runs (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  url TEXT,
  state TEXT,
  created_at INTEGER NOT NULL,
  completed_at INTEGER,
  dlq_id TEXT,
  labels TEXT NOT NULL DEFAULT '[]',
  caller_ip TEXT,
  flow_key TEXT,
  first BLOB,
  invoker BLOB,
  entry TEXT
);
CREATE INDEX IF NOT EXISTS runs_order ON runs (created_at, seq);
CREATE TABLE IF NOT EXISTS steps (
  run_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  name TEXT,
  body BLOB NOT NULL,
  PRIMARY KEY (run_id, position)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS steps_name ON steps (run_id, name) WHERE name IS NOT NULL;
CREATE INDEX IF NOT EXISTS steps_message ON steps (message_id);

-- Small values that must survive a restart: signing keys, the key of cursors, the version of these tables.
CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""

T = TypeVar("T")
_BATCH: Final = 256  # most writes in one transaction


class _Job(NamedTuple):
    """A write, and the future that waits for it: of an event loop, or without a loop of a thread."""

    work: Callable[[sqlite3.Connection], Any]
    done: Future[Any] | asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop | None = None


class _Outcome(NamedTuple):
    job: _Job
    result: Any
    problem: Exception | None


class Database:
    """The queue's database in WAL mode; the file is created with mode 0600.

    Writes are functions of a connection. Those that wait at the same time share one transaction and one
    flush to disk (each in its own savepoint, so that one failing leaves the others), and return once it is on
    disk: whatever was acknowledged survives ``kill -9`` and a power cut. A file of another version is a
    `LocalServiceError`.
    """

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600)
        self._path = path
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        with contextlib.ExitStack() as opened:
            try:
                self._writing = opened.enter_context(contextlib.closing(_open(path)))
                self._reading = opened.enter_context(contextlib.closing(_open(path)))
                self._prepare()
            except sqlite3.Error as error:
                raise LocalServiceError(
                    f"opening {path.name!r}", got=str(error), expected="a database of this service"
                ) from None
            opened.pop_all()  # they stay open until `close`
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="queue-reader")
        self._writer = threading.Thread(target=self._write_all, name="queue-writer", daemon=True)
        self._writer.start()

    def _prepare(self) -> None:
        self._writing.executescript(f"BEGIN; {TABLES} COMMIT;")  # one flush instead of one a table
        self._writing.execute("INSERT OR IGNORE INTO kept VALUES ('version', ?)", (VERSION,))
        (found,) = self._writing.execute("SELECT value FROM kept WHERE name = 'version'").fetchone()
        if found != VERSION:
            raise LocalServiceError(
                f"opening {self._path.name!r}",
                got=f"tables of version {found}",
                expected=f"version {VERSION}",
                next_step="Start with an empty data folder.",
            )

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Start a write. Its future is done once the write is on disk."""
        done: Future[T] = Future()
        self._jobs.put(_Job(work, done))
        return done

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Write, and return once it is on disk. A failing write leaves nothing behind and raises here."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._jobs.put(_Job(work, done, loop))
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
            batch: list[_Job] = []
            while job is not None:
                batch.append(job)
                if len(batch) == _BATCH or self._jobs.empty():
                    break
                job = self._jobs.get()
            ended = job is None
            if batch:
                self._commit(batch)

    def _commit(self, batch: list[_Job]) -> None:
        try:
            self._writing.execute("BEGIN IMMEDIATE")
            outcomes = [_Outcome(job, *self._try(job.work)) for job in batch]
            self._writing.execute("COMMIT")
        except sqlite3.Error as error:  # a full disk, above all: nothing of this batch is kept
            if self._writing.in_transaction:
                self._writing.execute("ROLLBACK")
            outcomes = [_Outcome(job, None, error) for job in batch]
        # one call into the event loop for all of a batch: each wakes it, and costs as much as a write
        by_loop: defaultdict[asyncio.AbstractEventLoop | None, list[_Outcome]] = defaultdict(list)
        for outcome in outcomes:
            by_loop[outcome.job.loop].append(outcome)
        for loop, ended in by_loop.items():
            if loop is None:
                _finish(ended)
            else:
                with contextlib.suppress(RuntimeError):  # the loop has ended, and its tasks with it
                    loop.call_soon_threadsafe(_finish, ended)

    def _try(self, work: Callable[[sqlite3.Connection], T]) -> tuple[T | None, Exception | None]:
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


def _finish(outcomes: list[_Outcome]) -> None:
    for job, result, problem in outcomes:
        if job.done.done():
            continue  # canceled meanwhile
        if problem is None:
            job.done.set_result(result)
        else:
            job.done.set_exception(problem)


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
    return connection

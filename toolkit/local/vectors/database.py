"""One index at rest: a SQLite file in WAL mode. What a call has written is durable when it returns."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import LocalServiceError
from toolkit.local.vectors.specs import IndexSpec

# The sequence number never comes back, so that a range over it is stable while rows come and go.
_TABLES: Final = (
    "CREATE TABLE spec (text TEXT NOT NULL)",
    "CREATE TABLE namespaces (key INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE)",
    """CREATE TABLE vectors (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace INTEGER NOT NULL,
        id TEXT NOT NULL,
        vector BLOB NOT NULL,
        metadata TEXT,
        data TEXT,
        UNIQUE (namespace, id)
    )""",
    "CREATE INDEX by_sequence ON vectors (namespace, sequence)",
)
_PUT: Final = """
INSERT INTO vectors (namespace, id, vector, metadata, data) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (namespace, id) DO UPDATE
SET vector = excluded.vector, metadata = excluded.metadata, data = excluded.data
RETURNING sequence
"""
_ALL: Final = """
SELECT sequence, id, vector, metadata, data FROM vectors WHERE namespace = ? ORDER BY sequence
"""
_PAGE: Final = """
SELECT sequence, id, vector, metadata, data FROM vectors INDEXED BY by_sequence
WHERE namespace = ? AND sequence >= ? AND substr(id, 1, ?) = ? ORDER BY sequence LIMIT ?
"""
_FIND: Final = "SELECT sequence, id, vector, metadata, data FROM vectors WHERE namespace = ? AND id = ?"


class NewRow(NamedTuple):
    """A row to write. `metadata` is JSON text."""

    id: str
    vector: NDArray[np.float32]
    metadata: str | None
    data: str | None


class StoredRow(NamedTuple):
    """A row as it lies in the index. `metadata` is JSON text."""

    sequence: int
    id: str
    vector: NDArray[np.float32]
    metadata: str | None
    data: str | None


class IndexDatabase:
    """The file of one index. Not for several threads at once: its index holds a lock.

    Parameters
    ----------
    path : Path
        A file made by `make`.

    Raises
    ------
    LocalServiceError
        When the file cannot be used, or another process has it open.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._connection = _connect(path)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(path, error) from None
        try:
            (text,) = self._connection.execute("SELECT text FROM spec").fetchone()
        except (sqlite3.Error, TypeError) as error:
            self._connection.close()
            raise _unusable(path, error) from None
        self.spec = IndexSpec.from_dict(json.loads(text))

    @staticmethod
    def make(path: Path, spec: IndexSpec) -> None:
        """Make the file of an empty index, readable for this user only. It is there whole, or not at all."""
        draft = path.with_name(f"{path.name}.new")
        try:
            draft.unlink(missing_ok=True)
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            with closing(_connect(draft)) as connection:
                connection.execute("BEGIN")
                for statement in _TABLES:
                    connection.execute(statement)
                connection.execute("INSERT INTO spec VALUES (?)", (json.dumps(spec.to_dict()),))
                connection.execute("INSERT INTO namespaces (name) VALUES ('')")
                connection.execute("COMMIT")
            draft.replace(path)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(path, error) from None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Everything changed within is written together, or not at all."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def namespaces(self) -> dict[str, int]:
        """Names and keys of the namespaces, in the order in which they were made."""
        return dict(self._connection.execute("SELECT name, key FROM namespaces ORDER BY key"))

    def add_namespace(self, name: str) -> int:
        """Make a namespace; gives its key."""
        cursor = self._connection.execute("INSERT INTO namespaces (name) VALUES (?)", (name,))
        return int(cursor.lastrowid or 0)

    def rename_namespace(self, key: int, name: str) -> None:
        """Give a namespace another name."""
        self._connection.execute("UPDATE namespaces SET name = ? WHERE key = ?", (name, key))

    def drop_namespace(self, key: int) -> None:
        """Take a namespace out, with its rows."""
        self.clear(key)
        self._connection.execute("DELETE FROM namespaces WHERE key = ?", (key,))

    def clear(self, key: int) -> None:
        """Take out all rows of a namespace."""
        self._connection.execute("DELETE FROM vectors WHERE namespace = ?", (key,))

    def put(self, key: int, rows: Iterable[NewRow]) -> list[int]:
        """Write rows, replacing those with the same ids; gives their sequence numbers."""
        return [
            self._connection.execute(
                _PUT, (key, row.id, row.vector.astype("<f4").tobytes(), row.metadata, row.data)
            ).fetchone()[0]
            for row in rows
        ]

    def remove(self, key: int, ids: Iterable[str]) -> None:
        """Take rows out; ids that are not there are passed over."""
        self._connection.executemany(
            "DELETE FROM vectors WHERE namespace = ? AND id = ?", ((key, one) for one in ids)
        )

    def rows(self, key: int) -> Iterator[StoredRow]:
        """All rows of a namespace, in the order of their sequence numbers."""
        return map(_stored, self._connection.execute(_ALL, (key,)))

    def page(self, key: int, start: int, limit: int, prefix: str) -> list[StoredRow]:
        """At most `limit` rows from the sequence number `start` on, with ids that begin with `prefix`."""
        found = self._connection.execute(_PAGE, (key, start, len(prefix), prefix, limit))
        return [_stored(row) for row in found]

    def find(self, key: int, row_id: str) -> StoredRow | None:
        """The row with this id, where there is one."""
        found = self._connection.execute(_FIND, (key, row_id)).fetchone()
        return _stored(found) if found else None

    def last_sequence(self) -> int:
        """The largest sequence number ever given; 0 when none was."""
        found = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors'").fetchone()
        return found[0] if found else 0

    def size(self) -> int:
        """Bytes of the index, its write-ahead log left out."""
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        (page_size,) = self._connection.execute("PRAGMA page_size").fetchone()
        return int(pages * page_size)


def _stored(row: tuple[int, str, bytes, str | None, str | None]) -> StoredRow:
    sequence, row_id, vector, metadata, data = row
    return StoredRow(sequence, row_id, np.frombuffer(vector, dtype="<f4"), metadata, data)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1)
    try:
        # one process at a time: the rows are held in memory too
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _unusable(path: Path, error: Exception) -> LocalServiceError:
    return LocalServiceError(
        f"opening the index file {path.name!r}",
        got=f"{type(error).__name__}: {error}",
        expected="a file of this service that no other process has open",
        next_step="End the other service, or use another data folder.",
    )

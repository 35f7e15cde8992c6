"""The SQLite file of one index, in WAL mode. What a transaction has written is durable when it returns."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from toolkit.errors import LocalServiceError
from toolkit.local.damaged_values import DamagedValue, Reader, damaged_value
from toolkit.local.vectors.sparse import SparseArray
from toolkit.local.vectors.specs import IndexSpec

_LAYOUT: Final = 3  # incremented when the tables change
_LAYOUT_WITH_FILES: Final = 2
_INDEX: Final = "CREATE INDEX by_sequence ON vectors (namespace, sequence, id)"
# A sequence number is never used again, so that a range over them is stable while rows are added and removed.
_TABLES: Final = (
    "CREATE TABLE spec (text TEXT NOT NULL)",
    "CREATE TABLE namespaces (key INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE)",
    """CREATE TABLE vectors (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace INTEGER NOT NULL,
        id TEXT NOT NULL,
        vector BLOB,
        metadata TEXT,
        data TEXT,
        sparse BLOB,
        UNIQUE (namespace, id)
    )""",
    _INDEX,
    f"PRAGMA user_version = {_LAYOUT}",
)
_INSERT: Final = (
    "INSERT INTO vectors (vector, metadata, data, sparse, namespace, id) VALUES (?, ?, ?, ?, ?, ?)"
)
_UPDATE: Final = "UPDATE vectors SET vector = ?, metadata = ?, data = ?, sparse = ? WHERE sequence = ?"
_ROW: Final = "SELECT sequence, id, vector, metadata, data, sparse FROM vectors"
_FLOAT: Final = np.dtype("<f4")
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any]).decode
_BATCH: Final = 128  # rows at a time that fit the cache of a processor


class IndexRow(NamedTuple):
    """A row of an index. `metadata` is JSON text; `vector` has length 0 on a sparse index."""

    id: str
    vector: NDArray[np.float32]
    metadata: str | None
    data: str | None
    sparse: SparseArray | None = None
    sequence: int = 0
    """The number of its first insertion; 0 before it is written."""


class IndexDatabase:
    """The file of one index, made by `make`. Not thread-safe: its index holds a lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with opening(path), ExitStack() as opened:
            self._connection = opened.enter_context(closing(_connect(path)))
            self._execute = self._connection.execute
            (layout,) = self._execute("PRAGMA user_version").fetchone()
            (text,) = self._execute("SELECT text FROM spec").fetchone()
            self.spec = IndexSpec.from_dict(json.loads(text))
            if layout not in {_LAYOUT, _LAYOUT_WITH_FILES}:
                got = f"layout {layout}, from another version of this package"
                raise _unusable(path, got, f"layout {_LAYOUT}", "Use another data folder, or that version.")
            if layout == _LAYOUT_WITH_FILES:
                self._import_vector_files(path)
            opened.pop_all()

    @staticmethod
    def make(path: Path, spec: IndexSpec) -> None:
        """Make the file of an empty index, readable for this user only. It is there whole, or not at all."""
        draft = path.with_name(f"{path.name}.new")
        with opening(path):
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

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything changed within is written together, or not at all."""
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
            self._execute("COMMIT")
        finally:
            if self._connection.in_transaction:  # it failed, and SQLite did not end it itself (a full disk)
                self._execute("ROLLBACK")

    def namespaces(self) -> dict[str, int]:
        """Names and keys of the namespaces, in the order in which they were made."""
        return dict(self._execute("SELECT name, key FROM namespaces ORDER BY key"))

    def add_namespace(self, name: str) -> int:
        """Make a namespace; returns its key."""
        cursor = self._execute("INSERT INTO namespaces (name) VALUES (?)", (name,))
        return int(cursor.lastrowid or 0)

    def rename_namespace(self, key: int, name: str) -> None:
        """Give a namespace another name."""
        self._execute("UPDATE namespaces SET name = ? WHERE key = ?", (name, key))

    def drop_namespace(self, key: int) -> None:
        """Delete a namespace with its rows."""
        self.clear(key)
        self._execute("DELETE FROM namespaces WHERE key = ?", (key,))

    def clear(self, key: int) -> None:
        """Delete all rows of a namespace."""
        self._execute("DELETE FROM vectors WHERE namespace = ?", (key,))

    def put(self, key: int, rows: Iterable[IndexRow]) -> list[int]:
        """Write rows, replacing those with the same ids; returns their sequence numbers."""
        sequences = []
        for row in rows:
            vector = row.vector.astype(_FLOAT, copy=False).tobytes() or None
            values = (vector, row.metadata, row.data, row.sparse and row.sparse.to_bytes())
            before = self._execute(
                "SELECT sequence FROM vectors WHERE namespace = ? AND id = ?", (key, row.id)
            )
            stored = before.fetchone()
            # no UPSERT: it would use up a sequence number for each row that it replaces
            if stored is None:
                stored = (self._execute(_INSERT, (*values, key, row.id)).lastrowid or 0,)
            else:
                self._execute(_UPDATE, (*values, *stored))
            sequences.append(int(stored[0]))
        return sequences

    def remove(self, key: int, ids: Iterable[str]) -> None:
        """Delete rows; ids that are not there are passed over."""
        self._connection.executemany(
            "DELETE FROM vectors WHERE namespace = ? AND id = ?", ((key, row_id) for row_id in ids)
        )

    def count(self, key: int) -> int:
        """How many rows a namespace has."""
        return int(self._execute("SELECT COUNT(*) FROM vectors WHERE namespace = ?", (key,)).fetchone()[0])

    def vectors(self, key: int) -> Iterator[tuple[list[str], list[int], NDArray[np.float32]]]:
        """Ids, sequence numbers and vectors of a namespace, in batches, in the order of insertion."""
        cursor = self._in_order(key, "sequence, id, vector")
        while rows := cursor.fetchmany(_BATCH):
            sequences, ids, vectors = zip(*rows, strict=True)
            matrix = np.frombuffer(b"".join(vector or b"" for vector in vectors), dtype=_FLOAT)
            yield list(ids), list(sequences), matrix.reshape(len(rows), self.spec.dimension)

    def metadata(self, key: int) -> Iterator[tuple[str, str]]:
        """The id and the metadata of each row of a namespace that has some."""
        return self._in_order(key, "id, metadata", "metadata IS NOT NULL")

    def sparse_rows(self, key: int) -> Iterator[tuple[int, str, SparseArray]]:
        """Sequence number, id and sparse vector of each row of a namespace that has one."""
        for sequence, row_id, sparse in self._in_order(key, "sequence, id, sparse", "sparse IS NOT NULL"):
            yield sequence, row_id, SparseArray.from_bytes(sparse)

    def page(self, key: int, start: int, limit: int, prefix: str) -> list[IndexRow]:
        """At most `limit` rows from the sequence number `start` on, with ids that begin with `prefix`."""
        after = "namespace = ? AND sequence >= ? AND substr(id, 1, ?) = ? ORDER BY sequence LIMIT ?"
        values = (key, start, len(prefix), prefix, limit)
        return [*map(_row, self._execute(f"{_ROW} INDEXED BY by_sequence WHERE {after}", values))]

    def find(self, key: int, row_id: str) -> IndexRow | None:
        """The row with this id, if there is one."""
        row = self._execute(f"{_ROW} WHERE namespace = ? AND id = ?", (key, row_id)).fetchone()
        return row and _row(row)

    def last_sequence(self) -> int:
        """The largest sequence number ever used; 0 if none was."""
        row = self._execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors'").fetchone()
        return row[0] if row else 0

    def damaged_value(self) -> DamagedValue | None:
        """The first value in the file that this class cannot have stored there, if there is one."""
        bytes_of_vector = self.spec.dimension * _FLOAT.itemsize
        forms: dict[tuple[str, str], tuple[Reader, str]] = {
            ("vectors", "metadata"): (_OBJECT, "a JSON object"),
            ("vectors", "vector"): (partial(_check_length, bytes_of_vector), f"{bytes_of_vector:,} bytes"),
            ("vectors", "sparse"): (SparseArray.from_bytes, "a sparse vector as the service stores it"),
        }
        return damaged_value(self._connection, forms)

    def size(self) -> int:
        """Bytes of the file, without its write-ahead log."""
        sql = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        return int(self._execute(sql).fetchone()[0])

    def _in_order(self, key: int, columns: str, condition: str = "TRUE") -> sqlite3.Cursor:
        """Columns of a namespace's rows in the order of insertion, which is that of the pages of the file."""
        return self._execute(
            f"SELECT {columns} FROM vectors INDEXED BY by_sequence "  # noqa: S608 - no text of requests
            f"WHERE namespace = ? AND {condition} ORDER BY sequence",
            (key,),
        )

    def _import_vector_files(self, path: Path) -> None:
        """Upgrade from layout 2: vectors in ``<name>.<namespace key>.f32``, each row naming its place."""
        with self.transaction():
            self._execute("DROP INDEX by_sequence")
            self._execute("ALTER TABLE vectors ADD COLUMN vector BLOB")
            for key in self.namespaces().values() if self.spec.dimension else ():
                positions = self._execute("SELECT place, sequence FROM vectors WHERE namespace = ?", (key,))
                wanted = positions.fetchall()
                file = path.with_name(f"{path.stem}.{key}.f32")
                numbers = np.fromfile(file, dtype=_FLOAT) if file.exists() else np.empty(0, dtype=_FLOAT)
                rows = len(numbers) // self.spec.dimension
                if any(position >= rows for position, _ in wanted):
                    got = f"{rows} vectors in {file.name!r}, too few for its {len(wanted)} rows"
                    expected = "the files of its vectors beside it, as they were written"
                    next_step = "Put the missing file back from a copy, or use another data folder."
                    raise _unusable(path, got, expected, next_step)
                matrix = numbers[: rows * self.spec.dimension].reshape(rows, self.spec.dimension)
                self._connection.executemany(
                    "UPDATE vectors SET vector = ? WHERE sequence = ?",
                    ((matrix[position].tobytes(), sequence) for position, sequence in wanted),
                )
            self._execute("ALTER TABLE vectors DROP COLUMN place")
            self._execute(_INDEX)
            self._execute(f"PRAGMA user_version = {_LAYOUT}")
        for file in path.parent.glob(f"{path.stem}.*.f32"):
            file.unlink()


def _check_length(expected: int, vector: bytes) -> None:
    if len(vector) != expected:
        raise ValueError(f"got {len(vector)} bytes; expected {expected}")


def _row(stored: tuple[int, str, bytes | None, str | None, str | None, bytes | None]) -> IndexRow:
    sequence, row_id, vector, metadata, data, sparse = stored
    if metadata is not None:
        _OBJECT(metadata)  # it is sent as it is stored: a damaged value would break the JSON of the response
    if not isinstance(data, str | None):
        raise TypeError(f"got data of the type {type(data).__name__}; expected text")
    dense = np.frombuffer(vector or b"", dtype=_FLOAT)
    return IndexRow(
        row_id, dense, metadata, data, SparseArray.from_bytes(sparse) if sparse else None, sequence
    )


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1)
    try:
        # of a new file; in pages of 4 KB, the default, vectors of 384 numbers leave a quarter unused
        connection.execute("PRAGMA page_size = 8192")
        # one process at a time: the rows are held in memory too
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turn the errors of a file that cannot be used into a LocalServiceError with its name."""
    try:
        yield
    except LocalServiceError:
        raise  # which names the file already
    except (OSError, sqlite3.Error, TypeError, ValueError, KeyError) as error:
        got, expected = (
            f"{type(error).__name__}: {error}",
            "a file of this service that no other process has open",
        )
        next_step = (
            "End the other service, put a copy of the file back, or use another data folder (--data-dir)."
        )
        raise _unusable(path, got, expected, next_step) from None


def _unusable(path: Path, got: str, expected: str, next_step: str) -> LocalServiceError:
    doing = f"opening the index file {str(path)!r}"
    return LocalServiceError(doing, got=got, expected=expected, next_step=next_step)

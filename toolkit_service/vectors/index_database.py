"""The SQLite file of one index, in WAL mode. A transaction that has returned is durable."""

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

from toolkit.base.errors import LocalServiceError
from toolkit_service.damaged_values import DamagedValue, Reader, damaged_value
from toolkit_service.vectors.sparse import SparseArray
from toolkit_service.vectors.specs import IndexSpec

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
    "INSERT INTO vectors (vector, metadata, data, sparse, namespace, id)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)
_UPDATE: Final = "UPDATE vectors SET vector = ?, metadata = ?, data = ?, sparse = ? WHERE sequence = ?"
_ROW: Final = "SELECT sequence, id, vector, metadata, data, sparse FROM vectors"
_FLOAT: Final = np.dtype("<f4")
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any]).decode
_BATCH: Final = 128  # rows that fit the cache of a processor


class IndexRow(NamedTuple):
    """A row of an index. `metadata` is JSON text; `vector` has length 0 on a sparse index."""

    id: str
    vector: NDArray[np.float32]
    metadata: str | None
    data: str | None
    sparse: SparseArray | None = None
    sequence: int = 0
    """The number of the first insertion; 0 before the row is written."""


class IndexDatabase:
    """The file of one index, made by `make`. It is not thread-safe: the index has a lock."""

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
                raise _unusable(
                    path,
                    got,
                    f"layout {_LAYOUT}",
                    "Use another data folder, or that version.",
                )

            if layout == _LAYOUT_WITH_FILES:
                self._import_vector_files(path)
            opened.pop_all()

    @staticmethod
    def make(path: Path, spec: IndexSpec) -> None:
        """Make the file of an empty index, readable for this user only, completely or not at all."""
        draft = path.with_name(f"{path.name}.new")
        with opening(path):
            draft.unlink(missing_ok=True)
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            with closing(_connect(draft)) as connection:
                connection.execute("BEGIN")
                for statement in _TABLES:
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO spec VALUES (?)", (json.dumps(spec.to_dict()),)
                )
                connection.execute("INSERT INTO namespaces (name) VALUES ('')")
                connection.execute("COMMIT")

            draft.replace(path)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all changes in the block together, or none if it raises."""
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
            self._execute("COMMIT")
        finally:
            # after a full disk, for example, SQLite itself has ended the transaction
            if self._connection.in_transaction:
                self._execute("ROLLBACK")

    def namespaces(self) -> dict[str, int]:
        """Return names and keys of the namespaces, in the order of creation."""
        return dict(self._execute("SELECT name, key FROM namespaces ORDER BY key"))

    def add_namespace(self, name: str) -> int:
        """Make a namespace, and return the key."""
        cursor = self._execute("INSERT INTO namespaces (name) VALUES (?)", (name,))
        return int(cursor.lastrowid or 0)

    def rename_namespace(self, key: int, name: str) -> None:
        """Give a namespace another name."""
        self._execute("UPDATE namespaces SET name = ? WHERE key = ?", (name, key))

    def drop_namespace(self, key: int) -> None:
        """Delete a namespace with all rows."""
        self.clear(key)
        self._execute("DELETE FROM namespaces WHERE key = ?", (key,))

    def clear(self, key: int) -> None:
        """Delete all rows of a namespace."""
        self._execute("DELETE FROM vectors WHERE namespace = ?", (key,))

    def put(self, key: int, rows: Iterable[IndexRow]) -> list[int]:
        """Write rows, replacing rows with the same ids, and return the sequence numbers."""
        sequences = []
        for row in rows:
            vector = row.vector.astype(_FLOAT, copy=False).tobytes() or None
            columns = (
                vector,
                row.metadata,
                row.data,
                row.sparse and row.sparse.to_bytes(),
            )
            known = self._execute(
                "SELECT sequence FROM vectors WHERE namespace = ? AND id = ?",
                (key, row.id),
            )

            stored = known.fetchone()
            # not UPSERT: it would use up a sequence number for each row that it replaces
            if stored is None:
                sequence = (
                    self._execute(_INSERT, (*columns, key, row.id)).lastrowid or 0
                )
            else:
                (sequence,) = stored
                self._execute(_UPDATE, (*columns, sequence))

            sequences.append(int(sequence))

        return sequences

    def remove(self, key: int, ids: Iterable[str]) -> None:
        """Delete rows; unknown ids are ignored."""
        self._connection.executemany(
            "DELETE FROM vectors WHERE namespace = ? AND id = ?",
            ((key, row_id) for row_id in ids),
        )

    def count(self, key: int) -> int:
        """Return the number of rows of a namespace."""
        return int(
            self._execute(
                "SELECT COUNT(*) FROM vectors WHERE namespace = ?", (key,)
            ).fetchone()[0]
        )

    def vectors(
        self, key: int
    ) -> Iterator[tuple[list[str], list[int], NDArray[np.float32]]]:
        """Yield ids, sequence numbers and vectors of a namespace, in batches, in the order of insertion."""
        cursor = self._in_order(key, "sequence, id, vector")
        while rows := cursor.fetchmany(_BATCH):
            sequences, ids, vectors = zip(*rows, strict=True)
            matrix = np.frombuffer(
                b"".join(vector or b"" for vector in vectors), dtype=_FLOAT
            )
            yield (
                list(ids),
                list(sequences),
                matrix.reshape(len(rows), self.spec.dimension),
            )

    def metadata(self, key: int) -> Iterator[tuple[str, str]]:
        """Yield id and metadata of each row of a namespace that has metadata."""
        return self._in_order(key, "id, metadata", "metadata IS NOT NULL")

    def sparse_rows(self, key: int) -> Iterator[tuple[int, str, SparseArray]]:
        """Yield sequence number, id and sparse vector of each row of a namespace that has one."""
        for sequence, row_id, sparse in self._in_order(
            key, "sequence, id, sparse", "sparse IS NOT NULL"
        ):
            yield sequence, row_id, SparseArray.from_bytes(sparse)

    def page(self, key: int, start: int, limit: int, prefix: str) -> list[IndexRow]:
        """Return at most `limit` rows whose ids begin with `prefix`; `start` is the first sequence number."""
        after = "namespace = ? AND sequence >= ? AND substr(id, 1, ?) = ? ORDER BY sequence LIMIT ?"
        values = (key, start, len(prefix), prefix, limit)

        return [
            *map(
                _row,
                self._execute(f"{_ROW} INDEXED BY by_sequence WHERE {after}", values),
            )
        ]

    def find(self, key: int, row_id: str) -> IndexRow | None:
        """Return the row with this id, or None."""
        row = self._execute(
            f"{_ROW} WHERE namespace = ? AND id = ?", (key, row_id)
        ).fetchone()
        return row and _row(row)

    def last_sequence(self) -> int:
        """Return the largest sequence number ever used, or 0."""
        # SQLite's own table for AUTOINCREMENT, which keeps a number after the row is deleted
        row = self._execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'vectors'"
        ).fetchone()
        return row[0] if row else 0

    def damaged_value(self) -> DamagedValue | None:
        """Return the first value in the file that this class cannot have stored there, or None."""
        bytes_of_vector = self.spec.dimension * _FLOAT.itemsize
        forms: dict[tuple[str, str], tuple[Reader, str]] = {
            ("vectors", "metadata"): (_OBJECT, "a JSON object"),
            ("vectors", "vector"): (
                partial(_check_length, bytes_of_vector),
                f"{bytes_of_vector:,} bytes",
            ),
            ("vectors", "sparse"): (
                SparseArray.from_bytes,
                "a sparse vector as the service stores it",
            ),
        }
        return damaged_value(self._connection, forms)

    def size(self) -> int:
        """Return the bytes of the file, without the write-ahead log."""
        sql = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        return int(self._execute(sql).fetchone()[0])

    def _in_order(
        self, key: int, columns: str, condition: str = "TRUE"
    ) -> sqlite3.Cursor:
        """Return columns of all rows of a namespace in the order of insertion, as they are in the file."""
        return self._execute(
            f"SELECT {columns} FROM vectors INDEXED BY by_sequence "  # noqa: S608 - no text of requests
            f"WHERE namespace = ? AND {condition} ORDER BY sequence",
            (key,),
        )

    def _import_vector_files(self, path: Path) -> None:
        """Upgrade from layout 2, which stored vectors in ``<name>.<namespace key>.f32``.

        The column `place` of a row was the position of the vector in that file.
        """
        with self.transaction():
            self._execute("DROP INDEX by_sequence")
            self._execute("ALTER TABLE vectors ADD COLUMN vector BLOB")
            if self.spec.dimension:
                for key in self.namespaces().values():
                    self._import_vector_file(path, key)

            self._execute("ALTER TABLE vectors DROP COLUMN place")
            self._execute(_INDEX)
            self._execute(f"PRAGMA user_version = {_LAYOUT}")

        for file in path.parent.glob(f"{path.stem}.*.f32"):
            file.unlink()

    def _import_vector_file(self, path: Path, key: int) -> None:
        places = self._execute(
            "SELECT place, sequence FROM vectors WHERE namespace = ?", (key,)
        ).fetchall()
        file = path.with_name(f"{path.stem}.{key}.f32")
        numbers = (
            np.fromfile(file, dtype=_FLOAT)
            if file.exists()
            else np.empty(0, dtype=_FLOAT)
        )

        rows = len(numbers) // self.spec.dimension
        if any(place >= rows for place, _ in places):
            raise _unusable(
                path,
                f"{rows} vectors in {file.name!r}, too few for its {len(places)} rows",
                "the files with the vectors next to it, as they were written",
                "Put the missing file back from a copy, or use another data folder.",
            )

        matrix = numbers[: rows * self.spec.dimension].reshape(
            rows, self.spec.dimension
        )
        self._connection.executemany(
            "UPDATE vectors SET vector = ? WHERE sequence = ?",
            ((matrix[place].tobytes(), sequence) for place, sequence in places),
        )


def _check_length(expected: int, vector: bytes) -> None:
    if len(vector) != expected:
        raise ValueError(f"got {len(vector)} bytes; expected {expected}")


def _row(
    stored: tuple[int, str, bytes | None, str | None, str | None, bytes | None],
) -> IndexRow:
    sequence, row_id, vector, metadata, data, sparse_bytes = stored
    if metadata is not None:
        # it is sent as it is stored: a damaged value would break the JSON of the response
        _OBJECT(metadata)

    if not isinstance(data, str | None):
        raise TypeError(f"got data of the type {type(data).__name__}; expected text")

    dense = np.frombuffer(vector or b"", dtype=_FLOAT)
    sparse = SparseArray.from_bytes(sparse_bytes) if sparse_bytes else None
    return IndexRow(row_id, dense, metadata, data, sparse, sequence)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=1
    )
    try:
        # only for a new file: in pages of 4 KB, the default, vectors of 384 numbers leave a quarter unused
        connection.execute("PRAGMA page_size = 8192")
        # one process at a time: the rows are also in memory
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        connection.close()
        raise

    return connection


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turn errors of a file that cannot be used into a LocalServiceError with the name of the file."""
    try:
        yield
    except LocalServiceError:
        raise  # the error names the file already
    except (OSError, sqlite3.Error, TypeError, ValueError, KeyError) as error:
        raise _unusable(
            path,
            f"{type(error).__name__}: {error}",
            "a file of this service that no other process has open",
            "End the other service, put a copy of the file back, or use another data folder (--data-dir).",
        ) from None


def _unusable(path: Path, got: str, expected: str, next_step: str) -> LocalServiceError:
    attempt = f"opening the index file {str(path)!r}"
    return LocalServiceError(attempt, got=got, expected=expected, next_step=next_step)

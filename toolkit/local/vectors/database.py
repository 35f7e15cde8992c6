"""One index at rest: a SQLite file in WAL mode, and beside it the files of its dense vectors.

What a call has written is durable when it returns. The database is the only truth about what is there: each
of its rows names the place in a matrix file where its vector lies. Writing again gives a vector another
place, so that the one before is whole until the new one is committed (see `toolkit.local.vectors.matrix`).
"""

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
from toolkit.local.vectors.matrix import MatrixFiles, Places
from toolkit.local.vectors.sparse import SparseVector
from toolkit.local.vectors.specs import IndexSpec

_LAYOUT: Final = 2  # goes up when the tables change
# The sequence number never comes back, so that a range over it is stable while rows come and go.
_TABLES: Final = (
    "CREATE TABLE spec (text TEXT NOT NULL)",
    "CREATE TABLE namespaces (key INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE)",
    """CREATE TABLE vectors (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace INTEGER NOT NULL,
        place INTEGER NOT NULL,
        id TEXT NOT NULL,
        metadata TEXT,
        data TEXT,
        sparse BLOB,
        UNIQUE (namespace, id)
    )""",
    # all that opening needs, so that it need not read metadata and data
    "CREATE INDEX by_sequence ON vectors (namespace, sequence, place, id)",
    f"PRAGMA user_version = {_LAYOUT}",
)
_INSERT: Final = (
    "INSERT INTO vectors (namespace, id, place, metadata, data, sparse) VALUES (?, ?, ?, ?, ?, ?)"
)
_REPLACE: Final = "UPDATE vectors SET place = ?, metadata = ?, data = ?, sparse = ? WHERE sequence = ?"
_HELD: Final = """
SELECT sequence, place, id FROM vectors INDEXED BY by_sequence WHERE namespace = ? ORDER BY sequence
"""
_PLACES: Final = "SELECT place FROM vectors INDEXED BY by_sequence WHERE namespace = ?"
_PAGE: Final = """
SELECT sequence, place, id, metadata, data, sparse FROM vectors INDEXED BY by_sequence
WHERE namespace = ? AND sequence >= ? AND substr(id, 1, ?) = ? ORDER BY sequence LIMIT ?
"""
_FIND: Final = """
SELECT sequence, place, id, metadata, data, sparse FROM vectors WHERE namespace = ? AND id = ?
"""
_METADATA: Final = "SELECT place, metadata FROM vectors WHERE namespace = ? AND metadata IS NOT NULL"
_SPARSE: Final = "SELECT sequence, id, sparse FROM vectors WHERE namespace = ? AND sparse IS NOT NULL"

_COMPACT_FROM: Final = 1024  # fewer places are not worth moving


class NewRow(NamedTuple):
    """A row to write. `metadata` is JSON text; `vector` has length 0 on a sparse index."""

    id: str
    vector: NDArray[np.float32]
    metadata: str | None
    data: str | None
    sparse: SparseVector | None = None


class StoredRow(NamedTuple):
    """A row as it lies in the index. `metadata` is JSON text."""

    sequence: int
    id: str
    vector: NDArray[np.float32]
    metadata: str | None
    data: str | None
    sparse: SparseVector | None


class Kept(NamedTuple):
    """Where a written row is: its number in the order of first writing, and the place of its vector."""

    sequence: int
    place: int


class Held(NamedTuple):
    """What a namespace holds, row by row, in the order of the sequence numbers."""

    ids: list[str]
    sequences: NDArray[np.int64]
    places: NDArray[np.int64]


class IndexDatabase:
    """The files of one index. Not for several threads at once: its index holds a lock.

    Parameters
    ----------
    path : Path
        A file made by `make`.

    Raises
    ------
    LocalServiceError
        When a file cannot be used, is missing or cut, or another process has it open.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._connection = _connect(path)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(path, error) from None
        try:
            (layout,) = self._connection.execute("PRAGMA user_version").fetchone()
            (text,) = self._connection.execute("SELECT text FROM spec").fetchone()
            _check_layout(path, layout)
            self.spec = IndexSpec.from_dict(json.loads(text))
            self._files = MatrixFiles(path, self.spec.dimension)
            self._places: dict[int, Places] = {}
            self._taken: list[tuple[int, list[int]]] = []
            self._left: list[tuple[int, int]] = []
            self._emptied: set[int] = set()
            self._open_places()
        except (OSError, sqlite3.Error, TypeError) as error:
            self._connection.close()
            raise _unusable(path, error) from None
        except BaseException:
            self._connection.close()
            raise

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
        """Close the files."""
        self._files.close()
        self._connection.close()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Everything changed within is written together, or not at all."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # where SQLite has ended the transaction itself, the places stay out of use until the next opening
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
                for key, places in self._taken:
                    if key in self._places:
                        self._places[key].give_back(places)
            self._forget_changes()
            raise
        for key, place in self._left:
            self._places[key].give_back([place])
        if self._emptied:
            self._give_room_back()
        self._forget_changes()

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
        self._emptied.add(key)

    def put(self, key: int, rows: Iterable[NewRow]) -> list[Kept]:
        """Write rows, replacing those with the same ids; says where they are."""
        new = list(rows)
        if not new:
            return []
        if key not in self._places:
            self._places[key] = Places(np.empty(0, dtype=np.int64))
        places = self._places[key].take(len(new))
        self._taken.append((key, places))
        self._files.write(key, places, np.stack([row.vector for row in new]))
        return [Kept(self._record(key, row, place), place) for row, place in zip(new, places, strict=True)]

    def remove(self, key: int, ids: Iterable[str]) -> None:
        """Take rows out; ids that are not there are passed over."""
        for row_id in ids:
            found = self._connection.execute(
                "DELETE FROM vectors WHERE namespace = ? AND id = ? RETURNING place", (key, row_id)
            ).fetchone()
            if found:
                self._left.append((key, found[0]))

    def held(self, key: int) -> Held:
        """What a namespace holds, without vectors, metadata and text."""
        found = self._connection.execute(_HELD, (key,)).fetchall()
        sequences, places, ids = zip(*found, strict=True) if found else ((), (), ())
        return Held(list(ids), np.array(sequences, dtype=np.int64), np.array(places, dtype=np.int64))

    def matrix(self, key: int, rows: int) -> NDArray[np.float32]:
        """The vectors of a namespace by place, shape (rows, dimension); not to be kept, see `MatrixFiles`."""
        return self._files.matrix(key, rows)

    def metadata(self, key: int) -> Iterator[tuple[int, str]]:
        """The place and the metadata of each row of a namespace that has some."""
        return self._connection.execute(_METADATA, (key,))

    def sparse_rows(self, key: int) -> Iterator[tuple[int, str, SparseVector]]:
        """Sequence number, id and sparse vector of each row of a namespace that has one."""
        for sequence, row_id, sparse in self._connection.execute(_SPARSE, (key,)):
            yield sequence, row_id, SparseVector.from_bytes(sparse)

    def page(self, key: int, start: int, limit: int, prefix: str) -> list[StoredRow]:
        """At most `limit` rows from the sequence number `start` on, with ids that begin with `prefix`."""
        found = self._connection.execute(_PAGE, (key, start, len(prefix), prefix, limit)).fetchall()
        return self._stored(key, found)

    def find(self, key: int, row_id: str) -> StoredRow | None:
        """The row with this id, where there is one."""
        found = self._connection.execute(_FIND, (key, row_id)).fetchall()
        return self._stored(key, found)[0] if found else None

    def last_sequence(self) -> int:
        """The largest sequence number ever given; 0 when none was."""
        found = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'vectors'").fetchone()
        return found[0] if found else 0

    def size(self) -> int:
        """Bytes of the index, its write-ahead log left out."""
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        (page_size,) = self._connection.execute("PRAGMA page_size").fetchone()
        vectors = sum(places.end for places in self._places.values())
        return int(pages * page_size) + vectors * self._files.row_bytes

    def _record(self, key: int, row: NewRow, place: int) -> int:
        sparse = row.sparse and row.sparse.to_bytes()
        found = self._connection.execute(
            "SELECT sequence, place FROM vectors WHERE namespace = ? AND id = ?", (key, row.id)
        ).fetchone()
        if found is None:
            new = (key, row.id, place, row.metadata, row.data, sparse)
            return int(self._connection.execute(_INSERT, new).lastrowid or 0)
        sequence, before = found
        self._connection.execute(_REPLACE, (place, row.metadata, row.data, sparse, sequence))
        self._left.append((key, before))
        return int(sequence)

    def _stored(
        self, key: int, rows: list[tuple[int, int, str, str | None, str | None, bytes | None]]
    ) -> list[StoredRow]:
        if not rows:
            return []
        places = [row[1] for row in rows]
        vectors = self._files.matrix(key, max(places) + 1)[places]  # a copy: a place may go to another vector
        return [
            StoredRow(
                sequence,
                row_id,
                vector,
                metadata,
                data,
                None if sparse is None else SparseVector.from_bytes(sparse),
            )
            for (sequence, _, row_id, metadata, data, sparse), vector in zip(rows, vectors, strict=True)
        ]

    def _taken_places(self, key: int) -> NDArray[np.int64]:
        return np.fromiter((place for (place,) in self._connection.execute(_PLACES, (key,))), dtype=np.int64)

    def _open_places(self) -> None:
        keys = self.namespaces().values()
        for key in keys:
            places = self._places[key] = Places(self._taken_places(key))
            if places.end > self._files.rows(key) and self._files.row_bytes:
                raise LocalServiceError(
                    f"opening the index file {self._path.name!r}",
                    got=f"{self._files.rows(key)} of {places.end} vectors in {self._files.name(key)!r}",
                    expected="the files of its vectors beside it, as they were written",
                    next_step="Put the missing file back from a copy, or use another data folder.",
                )
            if places.end >= _COMPACT_FROM and 2 * places.holes > places.end:
                self._compact(key)
        self._files.keep(keys)

    def _compact(self, key: int) -> None:
        """Move the last vectors into the holes, and give the room behind back."""
        held = self.held(key)
        count = len(held.ids)
        moving = np.flatnonzero(held.places >= count)
        holes = np.setdiff1d(np.arange(count), held.places)
        vectors = self._files.matrix(key, int(held.places.max(initial=-1)) + 1)[held.places[moving]]
        self._files.write(key, holes.tolist(), vectors)
        with self.changing():
            self._connection.executemany(
                "UPDATE vectors SET place = ? WHERE sequence = ?",
                zip(holes.tolist(), held.sequences[moving].tolist(), strict=True),
            )
            self._emptied.add(key)

    def _give_room_back(self) -> None:
        """After a commit: the files of emptied namespaces end behind their last vector."""
        keys = set(self.namespaces().values())
        for key in self._emptied & keys:
            self._places[key] = Places(self._taken_places(key))
            self._files.cut(key, self._places[key].end)
        for key in self._emptied - keys:
            self._places.pop(key, None)
        if self._emptied - keys:
            self._files.keep(keys)

    def _forget_changes(self) -> None:
        self._taken.clear()
        self._left.clear()
        self._emptied.clear()


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


def _check_layout(path: Path, layout: int) -> None:
    if layout != _LAYOUT:
        raise LocalServiceError(
            f"opening the index file {path.name!r}",
            got=f"layout {layout}, from another version of this package",
            expected=f"layout {_LAYOUT}",
            next_step="Use another data folder, or that version.",
        )


def _unusable(path: Path, error: Exception) -> LocalServiceError:
    return LocalServiceError(
        f"opening the index file {path.name!r}",
        got=f"{type(error).__name__}: {error}",
        expected="a file of this service that no other process has open",
        next_step="End the other service, or use another data folder.",
    )

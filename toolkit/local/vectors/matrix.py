"""Dense vectors at rest: a file of float32 rows for each namespace, mapped into memory for reading.

The files know nothing of what is committed: the index's database says which row of a file holds whose vector,
and the order of writing makes them safe together. A vector goes into a row that no committed vector has, the
file is brought to the disk, and only then is the row's number committed. Until that, what is written belongs
to nobody; so whatever moment a process is killed at, no committed vector is half written or another's.
"""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolkit.private_files import open_private

FIRST_ROWS: Final = 64
"""Rows of a new file. Room is made by doubling; what is not written takes no disk."""

_FLOAT: Final = np.dtype("<f4")
_MOST_OPEN: Final = 128  # each mapped file costs a file descriptor, and there may be many namespaces
_bring_to_disk = getattr(os, "fdatasync", os.fsync)


class MatrixFiles:
    """The files of one index's vectors, ``<name>.<namespace key>.f32`` beside its database.

    Not for several threads at once: its index holds a lock.

    Parameters
    ----------
    database : Path
        The index's database, ``<name>.sqlite``.
    dimension : int
        Numbers in a vector. With 0, an index without dense vectors, there are no files.
    """

    def __init__(self, database: Path, dimension: int) -> None:
        self._database = database
        self._dimension = dimension
        self.row_bytes = dimension * _FLOAT.itemsize
        """Bytes of a vector."""
        self._mapped: OrderedDict[int, NDArray[np.float32]] = OrderedDict()

    def matrix(self, key: int, rows: int) -> NDArray[np.float32]:
        """The first rows of a namespace's file, shape (rows, dimension): read-only, and what lies there now.

        Not to be kept: a row changes when it goes to another vector.
        """
        if not rows or not self._dimension:
            return np.empty((rows, self._dimension), dtype=_FLOAT)
        mapped = self._mapped.pop(key, None)
        if mapped is None or len(mapped) < rows:
            mapped = self._map(key)
        self._mapped[key] = mapped
        while len(self._mapped) > _MOST_OPEN:
            self._mapped.popitem(last=False)
        return mapped[:rows]

    def write(self, key: int, places: Sequence[int], vectors: NDArray[np.float32]) -> None:
        """Put vectors into rows of a namespace's file; they are on the disk when this returns.

        Parameters
        ----------
        key : int
            The namespace.
        places : sequence of int
            Rows of the file, ascending, that no committed vector has.
        vectors : numpy.ndarray
            Shape (places, dimension).
        """
        if not len(places) or not self._dimension:
            return
        path = self._path(key)
        new = not path.exists()
        descriptor = open_private(path, os.O_CREAT | os.O_RDWR)
        try:
            rows = os.fstat(descriptor).st_size // self.row_bytes
            if places[-1] >= rows:
                os.ftruncate(descriptor, self.row_bytes * _room(places[-1] + 1, rows))
            stored = np.ascontiguousarray(vectors, dtype=_FLOAT)
            numbers = np.asarray(places)
            starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 2) != 1)
            for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
                offset = int(numbers[start]) * self.row_bytes
                _write_all(descriptor, stored[start:end].tobytes(), offset)
            _bring_to_disk(descriptor)
        finally:
            os.close(descriptor)
        if new:
            _sync_folder(path.parent)

    def rows(self, key: int) -> int:
        """How many rows a namespace's file has room for."""
        if not self._dimension:
            return 0
        try:
            return self._path(key).stat().st_size // self.row_bytes
        except FileNotFoundError:
            return 0

    def cut(self, key: int, rows: int) -> None:
        """Give the room behind the first rows of a namespace's file back."""
        self._mapped.pop(key, None)
        if rows < self.rows(key):
            os.truncate(self._path(key), rows * self.row_bytes)

    def keep(self, keys: Collection[int]) -> None:
        """Remove the files of all other namespaces."""
        stem = self._database.stem
        wanted = {self._path(key) for key in keys}
        for path in self._database.parent.glob(f"{stem}.*.f32"):
            if path not in wanted:
                path.unlink(missing_ok=True)
        for key in set(self._mapped) - set(keys):
            del self._mapped[key]

    def name(self, key: int) -> str:
        """The name of a namespace's file."""
        return self._path(key).name

    def close(self) -> None:
        """Let go of all files."""
        self._mapped.clear()

    def _path(self, key: int) -> Path:
        return self._database.with_name(f"{self._database.stem}.{key}.f32")

    def _map(self, key: int) -> NDArray[np.float32]:
        with self._path(key).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        whole: NDArray[np.float32] = np.frombuffer(mapped, dtype=_FLOAT)
        return whole[: len(whole) // self._dimension * self._dimension].reshape(-1, self._dimension)


class Places:
    """Which rows of a namespace's file are taken: a place for each of its vectors.

    Parameters
    ----------
    taken : numpy.ndarray
        The places that are taken, each once.

    Examples
    --------
    >>> places = Places(np.array([0, 3]))
    >>> places.take(3), places.end
    ([1, 2, 4], 5)
    """

    def __init__(self, taken: NDArray[np.int64]) -> None:
        self.end = int(taken.max()) + 1 if len(taken) else 0
        holes = np.ones(self.end, dtype=np.bool_)
        holes[taken] = False
        self._free: list[int] = np.flatnonzero(holes)[::-1].tolist()

    @property
    def holes(self) -> int:
        """How many places before the end are free."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Free places, ascending: holes first."""
        reused = min(count, len(self._free))
        taken = sorted(self._free[len(self._free) - reused :])
        del self._free[len(self._free) - reused :]
        added = count - reused
        taken += range(self.end, self.end + added)
        self.end += added
        return taken

    def give_back(self, places: Sequence[int]) -> None:
        """Make places free again."""
        self._free += places


def _room(needed: int, rows: int) -> int:
    room = max(rows, FIRST_ROWS)
    while room < needed:
        room *= 2
    return room


def _write_all(descriptor: int, whole: bytes, offset: int) -> None:
    content = memoryview(whole)
    while content:
        written = os.pwrite(descriptor, content, offset)
        content, offset = content[written:], offset + written


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Files in the making: data files, and files of a checkpoint. Each is proven before anything lists it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa

from toolkit.snapshots.checkpoint import RestingFile
from toolkit.snapshots.datafiles import RowWriter, prove
from toolkit.snapshots.folder import SnapshotStore
from toolkit.snapshots.hashing import HashingFile

PART_BYTES: Final = 128 << 20
"""Bytes of a data file, about: what the change of one row makes a sync write again, at most."""


class Part:
    """A data file in the making.

    Parameters
    ----------
    folder : SnapshotStore
    path : str
        The name it will have.
    schema : pyarrow.Schema
    group_bytes : int
        Bytes of Arrow data in a row group.

    Attributes
    ----------
    path, draft : str
        The name it will have, and the one it has until the commit.
    rows : int
        Written so far.
    finished : RestingFile or None
        What it is, once its last row is written.
    """

    def __init__(self, folder: SnapshotStore, path: str, schema: pa.Schema, group_bytes: int) -> None:
        self.path = path
        self.draft = folder.draft_of(path)
        self.finished: RestingFile | None = None
        self._folder = folder
        with ExitStack() as opening:
            self._file: HashingFile = opening.enter_context(folder.new_file(self.draft))
            self._writer = RowWriter(self._file, schema, group_bytes=group_bytes)
            self._open = opening.pop_all()

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return self._writer.rows

    @property
    def bytes(self) -> int:
        """Bytes written so far; rows that wait for their group are not among them."""
        return self._file.bytes

    def write(self, table: pa.Table) -> None:
        """Add rows; the table has the part's columns."""
        self._writer.write(table)

    def finish(self, facts: dict[str, Any]) -> RestingFile:
        """Write what waits and the facts, close the file, and see that the disk gives it back."""
        if self.finished is None:
            self._writer.finish(facts)
            self._file.sync()
            prove(self._folder, self.draft, rows=self.rows, sha256=self._file.sha256)
            self.finished = RestingFile(
                path=self.draft, name=self.path, rows=self.rows, bytes=self.bytes, sha256=self._file.sha256
            )
            self._open.close()
        return self.finished

    def close(self) -> None:
        """Let the encoder go without another byte on the disk."""
        self._file.discard()
        self._writer.give_up()
        self._open.close()


class CheckpointFile:
    """A file of a checkpoint in the making.

    Attributes
    ----------
    file : HashingFile
        What to write to.
    """

    def __init__(self, folder: SnapshotStore, path: str, file: HashingFile) -> None:
        self.file = file
        self._folder = folder
        self._path = path

    def finish(self, *, rows: int) -> RestingFile:
        """Bring it to the disk, and see that the disk gives it back."""
        self.file.sync()
        prove(self._folder, self._path, sha256=self.file.sha256)
        return RestingFile(path=self._path, rows=rows, bytes=self.file.bytes, sha256=self.file.sha256)

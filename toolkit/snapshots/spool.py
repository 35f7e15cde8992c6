"""Rows that wait for the end of a load: in memory while they are few, then in files beside the snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.snapshots.checkpoint import RestingFile
from toolkit.snapshots.commit import Transaction
from toolkit.snapshots.datafiles import damaged

WAITING_BYTES: Final = 64 << 20
"""Bytes of Arrow data that wait in memory at most."""


class Spool:
    """Tables in the order they came, numbered by their rows.

    Parameters
    ----------
    transaction : Transaction
        Whose folder the files go to.
    schema : pyarrow.Schema
    waiting_bytes : int
        Bytes of Arrow data that wait in memory at most.
    files : tuple of RestingFile
        Of an earlier run: the rows that came first.
    """

    def __init__(
        self,
        transaction: Transaction,
        schema: pa.Schema,
        *,
        waiting_bytes: int = WAITING_BYTES,
        files: tuple[RestingFile, ...] = (),
    ) -> None:
        self.files = files
        self._transaction = transaction
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._most = waiting_bytes

    @property
    def rows(self) -> int:
        """Rows so far."""
        waiting: int = sum(table.num_rows for table in self._waiting)
        return sum(file.rows for file in self.files) + waiting

    def add(self, table: pa.Table) -> None:
        """Keep the rows of a table."""
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= self._most:
            self.rest()

    def rest(self) -> tuple[RestingFile, ...]:
        """Bring what waits in memory to the disk. All files, in order."""
        if self._waiting:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            with self._transaction.new_resting("arrow") as file:
                with pa.ipc.new_stream(file.file, self._schema, options=options) as stream:
                    for table in self._waiting:
                        # one batch a table: they are read again one by one
                        stream.write_batch(table.combine_chunks().to_batches()[0])
                rested = file.finish(rows=sum(table.num_rows for table in self._waiting))
            self.files, self._waiting, self._waiting_bytes = (*self.files, rested), [], 0
        return self.files

    def tables(self, chosen: npt.NDArray[np.bool_] | None = None) -> Iterator[tuple[int, pa.Table]]:
        """The tables, each with the number of its first row.

        Parameters
        ----------
        chosen : numpy.ndarray of bool, optional
            One item a row. Files of which nothing is chosen are not opened.
        """
        start = 0
        for listed in self.files:
            if chosen is not None and not chosen[start : start + listed.rows].any():
                start += listed.rows
                continue
            with self._transaction.folder.open(listed.path) as file:
                for batch in self._batches(listed, file):
                    yield start, pa.Table.from_batches([batch])
                    start += len(batch)
        for table in self._waiting:
            yield start, table
            start += table.num_rows

    def _batches(self, listed: RestingFile, file: BinaryIO) -> Iterator[pa.RecordBatch]:
        try:
            with closing(pa.ipc.open_stream(file)) as stream:
                if not stream.schema.equals(self._schema):
                    raise damaged(
                        self._transaction.folder, listed, "other columns or types", "those of the load"
                    )
                yield from stream
        except (pa.ArrowException, OSError) as error:
            raise damaged(self._transaction.folder, listed, str(error), "an Arrow stream") from None

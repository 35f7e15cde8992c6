"""A load written as it comes, in data files of bounded size: each rests as soon as it is finished."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.errors import InputError
from toolkit.loading.identities import identities
from toolkit.loading.load import Batch
from toolkit.receipt import Receipt
from toolkit.snapshots.checkpoint import Resting, RestingFile
from toolkit.snapshots.commit import Transaction
from toolkit.snapshots.decoding import DataFile
from toolkit.snapshots.fingerprints import fingerprints
from toolkit.snapshots.parts import PART_BYTES, Part
from toolkit.snapshots.spool import Spool

_Latest = dict[bytes, tuple[int, bytes]]


class Stream:
    """Rows on their way into data files, in the order they come.

    Parameters
    ----------
    transaction : Transaction
        The hold on the snapshot.
    schema : pyarrow.Schema
    key : tuple of str
        Columns whose values tell rows apart.
    resting : Resting, optional
        The checkpoint to go on from.
    part_bytes : int
        Bytes of a data file, about.
    """

    def __init__(
        self,
        transaction: Transaction,
        schema: pa.Schema,
        key: tuple[str, ...],
        *,
        resting: Resting | None = None,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._transaction = transaction
        self._schema = schema
        self._key = key
        self._part_bytes = part_bytes
        self._parts: list[Part | RestingFile] = list(resting.files if resting else ())
        self._later = Spool(transaction, schema, files=resting.later if resting else ())
        for file in resting.files if resting else ():
            transaction.adopt(file)
        self.rows = sum(part.rows for part in self._parts)

    def take(self, batch: Batch) -> None:
        """Write rows."""
        table = batch.table
        if not table.schema.equals(self._schema):
            raise InputError(
                "writing a snapshot", got=f"a table of the schema {table.schema}", expected=f"{self._schema}"
            )
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, Part) or last.finished or last.bytes >= self._part_bytes:
            if last is not None:
                self._transaction.finish(last, None)
            last = self._transaction.new_part(self._schema)
            self._parts.append(last)
        last.write(table)
        self.rows += table.num_rows

    def take_later(self, table: pa.Table) -> None:
        """Keep the later versions of rows that were written before."""
        self._later.add(table)

    def rest(self) -> dict[str, Any]:
        """Finish the file that is being written."""
        files = tuple(self._transaction.finish(part, None) for part in self._parts)
        return {"files": files, "later": self._later.rest()}

    def commit(self, *, source: str, scope: dict[str, Any], receipt: Receipt) -> Receipt:
        """Make what was written the snapshot; the receipt, with those counted that came in two versions."""
        if not self._parts:
            self._parts.append(self._transaction.new_part(self._schema))
        if self._later.rows:
            changed = self._replace_rows()
            receipt = replace(receipt, changed=changed, duplicates=max(0, receipt.duplicates - changed))
        self._transaction.commit(source=source, scope=scope, receipt=receipt.to_dict())
        return receipt

    def _replace_rows(self) -> int:
        """Write the files again that hold an earlier version of a row; how many such rows there are."""
        latest = self._latest()
        wanted = np.zeros(self._later.rows, dtype=bool)
        outdated: list[int] = []
        for number, part in enumerate(self._parts):
            with self._opened(part) as parquet:
                places = [place for table in parquet.tables() for _, place in self._outdated(table, latest)]
            if places:
                wanted[places] = True
                outdated.append(number)
        if outdated:
            rows = [
                table.filter(pa.array(wanted[start : start + table.num_rows]))
                for start, table in self._later.tables(wanted)
            ]
            self._write_again(outdated, pa.concat_tables(rows), np.cumsum(wanted) - 1, latest)
        return int(wanted.sum())

    def _write_again(
        self, outdated: list[int], later: pa.Table, numbers: npt.NDArray[np.int64], latest: _Latest
    ) -> None:
        for number in outdated:
            before = self._parts[number]
            self._parts[number] = anew = self._transaction.new_part(self._schema)
            with self._opened(before) as parquet:
                for table in parquet.tables():
                    rows = np.arange(table.num_rows)
                    for row, place in self._outdated(table, latest):
                        rows[row] = table.num_rows + numbers[place]
                    anew.write(pa.concat_tables([table, later]).take(pa.array(rows)))
            self._transaction.substitute(before, anew)

    def _latest(self) -> _Latest:
        """By id, where the latest version is among those that came again, and what it is."""
        latest: _Latest = {}
        for start, table in self._later.tables():
            contents = zip(identities(table, self._key), fingerprints(table).tolist(), strict=True)
            latest.update((key, (start + row, content)) for row, (key, content) in enumerate(contents))
        return latest

    def _outdated(self, table: pa.Table, latest: _Latest) -> Iterator[tuple[int, int]]:
        """Rows of which there is another, later version, each with its place among those that came again."""
        found = [(row, *latest[key]) for row, key in enumerate(identities(table, self._key)) if key in latest]
        if found:
            chosen = table.take(pa.array([row for row, _, _ in found], pa.int64()))
            for (row, place, content), before in zip(found, fingerprints(chosen).tolist(), strict=True):
                if content != before:
                    yield row, place

    @contextmanager
    def _opened(self, part: Part | RestingFile) -> Iterator[DataFile]:
        finished = self._transaction.finish(part, None)
        with self._transaction.folder.open(finished.path) as file:
            yield DataFile(file)

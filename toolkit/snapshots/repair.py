"""Restoring what a failure snapshot has lost: readable rows stay, the rest is loaded from the queue.

Where the index is whole, a row is accepted when its id and its content are those that were stored. What is
not found is removed from the index, so that the load adds it again, with the time it was first seen. Nothing
changes before the commit of the sync, and lost files are kept under another name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.errors import SnapshotDamagedError
from toolkit.snapshots.data_files import (
    PART_BYTES,
    STORED_FAILURES,
    DataFile,
    Part,
    are_intact,
    current_columns,
    extension_column,
    stored_failures,
)
from toolkit.snapshots.manifest import REPAIRED, ListedFile, Manifest, StoredCheckpoint
from toolkit.snapshots.row_index import (
    ENTRY,
    Entries,
    RowIndex,
    day_of,
    entries_of,
    first_of_each,
    joined,
    read_index,
)
from toolkit.snapshots.transaction import Damage, Transaction, damages, raise_for_damage

_ROWS: Final = 1_000
"""Rows read at once: those before a damaged page are kept."""

_MOST_BYTES: Final = 4 * PART_BYTES
"""Of a longer file, the end as it was written is not looked for."""


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What a repair found before the load: the lost files, and how many of their rows were found."""

    lost: tuple[Damage, ...]
    files: int
    recovered: int
    index: RowIndex
    missing: RowIndex
    kept_as: tuple[str, ...]
    checkpoint: StoredCheckpoint | None

    def note(self, ids: npt.NDArray[np.bytes_]) -> str:
        """What the receipt says of it, when the load returned rows with these ids."""
        data = [damage.listed for damage in self.lost if not damage.is_index]
        rows = sum(listed.rows for listed in data)
        parts: list[str] = []
        if data:
            parts.append(f"{len(data):,} of {self.files:,} data files were lost, with {rows:,} rows")
            parts.append(f"{self.recovered:,} rows were recovered from what is left of them")
        if data and len(self.missing) == rows - self.recovered:
            back = np.isin(self.missing.entries["id"], ids)
            parts.append(f"{int(back.sum()):,} were added again from the queue")
            parts.append(f"{int((~back).sum()):,} stayed lost{_times(self.missing.entries[~back])}")
        elif data:
            parts.append(f"{rows - self.recovered:,} are lost unless the queue still had them")
        if any(damage.is_index for damage in self.lost):
            parts.append("the index was lost and made again from the rows")
        kept = ", ".join(self.kept_as)
        parts.append(
            f"the lost files are kept as {kept}" if kept else "nothing of the lost files is left to keep"
        )
        return REPAIRED + "; ".join(parts)


def check_or_repair(transaction: Transaction, *, repair: bool) -> Repair | None:
    """Check that all listed files are there, before a sync trusts them; or restore what can be restored."""
    before = transaction.previous
    lost = damages(transaction.store, before, every_byte=repair) if before else ()
    if before is None or not lost:
        transaction.remove_leftovers()
        return None
    if not repair:
        raise_for_damage(transaction.store, before, lost)
    return _Salvage(transaction, before, lost).repair()


class _Salvage:
    """What is left of the lost files, and the new files that its rows are written to."""

    def __init__(self, transaction: Transaction, before: Manifest, lost: tuple[Damage, ...]) -> None:
        self._transaction = transaction
        self._store = transaction.store
        self._before = before
        self._lost = lost
        self._paths = {damage.listed.path for damage in lost}
        self._left = [damage.listed.path for damage in lost if damage.present and not damage.is_index]
        self._leftovers = transaction.leftovers()

    def repair(self) -> Repair:
        before = self._before
        kept_as = tuple(self._keep(damage.listed.path) for damage in self._lost if damage.present)
        indexed = before.index is not None and before.index.path not in self._paths and not before.is_older
        stored = read_index(self._store, before).entries if indexed else None
        present = self._present(stored)
        known = joined(present.values())["id"]
        files: list[ListedFile] = []
        entries: list[Entries] = []
        missing: list[Entries] = []
        recovered, start = 0, 0
        for listed in before.files:
            rows = slice(start, start := start + listed.rows)
            if listed.path in present:
                files.append(listed)
                entries.append(present[listed.path])
                continue
            number, written = self._recover(listed, None if stored is None else stored[rows], known)
            if written is not None:
                files.append(written)
                entries.append(number)
                recovered += len(number)
                known = np.concatenate([known, number["id"]])
            if stored is not None:
                missing.append(stored[rows][~np.isin(stored[rows]["id"], number["id"])])
        index = RowIndex(joined(entries).copy())
        index.has_learnt = True  # so that it is written
        self._transaction.previous = msgspec.structs.replace(before, files=tuple(files), index=None)
        return Repair(
            lost=self._lost,
            files=len(before.files),
            recovered=recovered,
            index=index,
            missing=RowIndex(joined(missing)),
            kept_as=kept_as,
            checkpoint=self._checkpoint(),
        )

    def _present(self, stored: Entries | None) -> dict[str, Entries]:
        """The entries of each data file that is not lost."""
        present: dict[str, Entries] = {}
        start = 0
        for listed in self._before.files:
            rows = slice(start, start := start + listed.rows)
            if listed.path not in self._paths:
                present[listed.path] = (
                    joined(map(entries_of, stored_failures(self._store, self._before, listed)))
                    if stored is None
                    else stored[rows]
                )
        return present

    def _keep(self, path: str) -> str:
        """Copy a lost file to a name that no reader treats as data and no writer removes."""
        folder, slash, last = path.rpartition("/")
        name = f"{folder}{slash}_{last.lstrip('_')}.lost"
        self._store.copy(path, name)
        return name

    def _recover(
        self, listed: ListedFile, stored: Entries | None, known: npt.NDArray[np.bytes_]
    ) -> tuple[Entries, ListedFile | None]:
        """Write the rows of a lost file that can be found into a new one, in the folder of the same day."""
        day = listed.day
        wanted = None if stored is None else RowIndex(stored)
        own = [path for path in self._left if path == listed.path]
        rounds = [(False, [*own, *self._leftovers])]
        if wanted is not None:
            # a row as it was stored; or else, of what a stopped writer left, an earlier version of it
            others = [path for path in self._left if path != listed.path]
            rounds = [(True, [*own, *others, *self._leftovers]), (False, self._leftovers)]
        part: Part | None = None
        recovered = np.zeros(0, dtype=ENTRY)
        for exact, sources in rounds:
            for rows in (rows for name in sources for rows in self._readable(name)):
                entries = entries_of(rows)
                picked = first_of_each(entries["id"])
                picked &= ~np.isin(entries["id"], known) & ~np.isin(entries["id"], recovered["id"])
                if wanted is None:
                    picked &= np.array([day_of(time) == day for time in entries["first_seen"].tolist()], bool)
                else:
                    positions = wanted.find(entries["id"])
                    picked &= positions >= 0
                    if exact:
                        picked &= wanted.entries["content"][positions] == entries["content"]
                        entries["wire"] = wanted.entries["wire"][positions]
                if picked.any():
                    part = part or self._transaction.new_part(STORED_FAILURES, day=day)
                    part.write(rows.filter(pa.array(picked)))
                    recovered = np.concatenate([recovered, entries[picked]])
        return recovered, None if part is None else self._transaction.publish(part)

    def _readable(self, name: str) -> Iterator[pa.Table]:
        """The rows of a file that can still be read, with the columns of today."""
        # a damaged file may fail in any of these ways, anywhere
        broken = (pa.ArrowException, OSError, SnapshotDamagedError, ValueError, KeyError)
        with suppress(*broken), self._store.open(name) as file:
            parquet = DataFile(self._as_listed(name, file))
            if extension_column(parquet.schema_arrow):
                return
            for number in range(parquet.num_row_groups):
                with suppress(*broken):
                    for batch in parquet.iter_batches(batch_size=_ROWS, row_groups=[number]):
                        rows = pa.Table.from_batches([batch]).replace_schema_metadata(None)
                        if self._before.is_older and not rows.schema.equals(STORED_FAILURES):
                            rows = current_columns(rows, "failures")
                        if rows.schema.equals(STORED_FAILURES):
                            yield rows

    def _as_listed(self, name: str, file: BinaryIO) -> BinaryIO | pa.BufferReader:
        """The file without bytes after its end: some file systems add zeros in a crash."""
        for damage in self._lost:
            size = damage.listed.bytes
            if damage.listed.path == name and size <= _MOST_BYTES and file.seek(0, os.SEEK_END) > size:
                file.seek(0)
                return pa.BufferReader(file.read(size))
        file.seek(0)
        return file

    def _checkpoint(self) -> StoredCheckpoint | None:
        """The checkpoint of a stopped load of the same scope, however old."""
        checkpoint = self._transaction.checkpoint
        if not isinstance(checkpoint, StoredCheckpoint):
            return None
        expected: dict[str, Any] = {
            "kind": "failures", "source": self._before.source, "scope": self._before.scope
        }  # fmt: skip
        if checkpoint.misfit(expected=expected, now=datetime.fromisoformat(checkpoint.written_at)):
            return None
        checkpoint = self._transaction.located(checkpoint)
        return checkpoint if are_intact(self._store, (*checkpoint.files, *checkpoint.later)) else None


def _times(entries: Entries) -> str:
    """When lost rows were first seen."""
    if not len(entries):
        return ""
    times = [
        datetime.fromtimestamp(int(time) / 1000, UTC)
        for time in (entries["first_seen"].min(), entries["first_seen"].max())
    ]
    first, last = (time.isoformat(timespec="seconds") for time in times)
    return f" (first seen {first}{f' to {last}' if last != first else ''})"

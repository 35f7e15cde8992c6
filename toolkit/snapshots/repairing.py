"""Bringing back what a failure snapshot has lost: what can still be read stays, the queue gives the rest.

Rows of lost files are looked for in what is left of these files and in files that a stopped writer left.
Where the index is whole, a row counts as found when its id and its content are those that were stored, so
that nothing that was put there instead is taken for it. What is not found is forgotten by the index, so that
the load adds it again, with the time it was first seen. Nothing changes before the commit of the sync, and
the lost files themselves are kept under another name.
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
from toolkit.snapshots.checkpoint import Resting, misfit, whole
from toolkit.snapshots.columns import FAILURES_AT_REST, extension_column
from toolkit.snapshots.commit import Transaction
from toolkit.snapshots.damage import Damage, damages, refuse
from toolkit.snapshots.decoding import DataFile
from toolkit.snapshots.index import ENTRY, Entries, Index, entries_of, joined, read_index, stored_entries
from toolkit.snapshots.manifest import REPAIRED, ListedFile
from toolkit.snapshots.parts import PART_BYTES, Part
from toolkit.snapshots.versions import current_columns, is_older

_ROWS: Final = 1_000
"""Rows read at once: those before a damaged page are kept."""

_MOST_BYTES: Final = 4 * PART_BYTES
"""Of a longer file, what was added is not looked behind."""


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What a repair found before the load.

    Attributes
    ----------
    lost : tuple of Damage
    files : int
        Data files of the snapshot before.
    recovered : int
        Rows of lost files that were found.
    index : Index
        Of the rows that are left.
    missing : Index
        Rows that were not found. Empty where the index was lost too.
    kept_as : tuple of str
        New names of the lost files.
    resting : Resting or None
        What a stopped load had read: rows that may no longer be in the queue.
    """

    lost: tuple[Damage, ...]
    files: int
    recovered: int
    index: Index
    missing: Index
    kept_as: tuple[str, ...]
    resting: Resting | None

    def note(self, ids: npt.NDArray[np.bytes_]) -> str:
        """What the receipt says of it, when rows of these ids came from the load."""
        data = [damage.listed for damage in self.lost if not damage.is_index]
        rows = sum(listed.rows for listed in data)
        said: list[str] = []
        if data:
            said.append(f"{len(data):,} of {self.files:,} data files were lost, with {rows:,} rows")
            said.append(f"{self.recovered:,} rows were recovered from what is left of them")
        if data and len(self.missing) == rows - self.recovered:
            back = np.isin(self.missing.entries["id"], ids)
            said.append(f"{int(back.sum()):,} were added again from the queue")
            said.append(f"{int((~back).sum()):,} stayed lost{_times(self.missing.entries[~back])}")
        elif data:
            said.append(f"{rows - self.recovered:,} are lost unless the queue still had them")
        if any(damage.is_index for damage in self.lost):
            said.append("the index was lost and made again from the rows")
        kept = ", ".join(self.kept_as)
        said.append(
            f"the lost files are kept as {kept}" if kept else "nothing of the lost files is left to keep"
        )
        return REPAIRED + "; ".join(said)


def sound(transaction: Transaction, *, repair: bool) -> Repair | None:
    """See that all listed files are there, before a sync trusts them; or bring back what can be.

    Parameters
    ----------
    transaction : Transaction
        The hold on a failure snapshot.
    repair : bool
        Compare every byte, and repair.

    Returns
    -------
    Repair or None
        None where nothing is lost. The transaction then goes on from what is left.

    Raises
    ------
    SnapshotDamagedError
        When files are lost and are not to be repaired.
    """
    before = transaction.previous
    lost = damages(transaction.folder, before, every_byte=repair) if before else ()
    if before and lost:
        if not repair:
            refuse(transaction.folder, before, lost)
        return _Repairing(transaction, lost).repair()
    transaction.tidy()
    return None


class _Repairing:
    def __init__(self, transaction: Transaction, lost: tuple[Damage, ...]) -> None:
        if transaction.previous is None:
            raise ValueError("there is nothing to repair")
        self._transaction = transaction
        self._before = transaction.previous
        self._lost = lost
        self._paths = {damage.listed.path for damage in lost}
        self._left = [damage.listed.path for damage in lost if damage.present and not damage.is_index]
        self._leftovers = transaction.leftovers()

    def repair(self) -> Repair:
        before, folder = self._before, self._transaction.folder
        kept_as = tuple(self._keep(damage.listed.path) for damage in self._lost if damage.present)
        indexed = before.index is not None and before.index.path not in self._paths and not is_older(before)
        stored = read_index(folder, before).entries if indexed else None
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
            found, anew = self._recover(listed, None if stored is None else stored[rows], known)
            if anew is not None:
                files.append(anew)
                entries.append(found)
                recovered += len(found)
                known = np.concatenate([known, found["id"]])
            if stored is not None:
                missing.append(stored[rows][~np.isin(stored[rows]["id"], found["id"])])
        index = Index(joined(entries))
        index.has_learnt = True  # so that it is written
        self._transaction.previous = msgspec.structs.replace(before, files=tuple(files), index=None)
        return Repair(
            lost=self._lost,
            files=len(before.files),
            recovered=recovered,
            index=index,
            missing=Index(joined(missing)),
            kept_as=kept_as,
            resting=self._resting(),
        )

    def _present(self, stored: Entries | None) -> dict[str, Entries]:
        """The entries of each data file that is not lost."""
        found: dict[str, Entries] = {}
        start = 0
        for listed in self._before.files:
            rows = slice(start, start := start + listed.rows)
            if listed.path not in self._paths:
                found[listed.path] = (
                    stored_entries(self._transaction.folder, self._before, listed)
                    if stored is None
                    else stored[rows]
                )
        return found

    def _keep(self, path: str) -> str:
        """Give a lost file a name under which nothing takes it for data, and nothing removes it."""
        folder, slash, last = path.rpartition("/")
        name = f"{folder}{slash}_{last.lstrip('_')}.lost"
        self._transaction.folder.copy(path, name)
        return name

    def _recover(
        self, listed: ListedFile, stored: Entries | None, known: npt.NDArray[np.bytes_]
    ) -> tuple[Entries, ListedFile | None]:
        """Write the rows of a lost file that can be found into a new one, in the folder of the same day."""
        day = listed.path.split("/")[1]
        wanted = None if stored is None else Index(stored)
        own = [path for path in self._left if path == listed.path]
        rounds = [(False, [*own, *self._leftovers])]
        if wanted is not None:
            # a row as it was stored; or else, of what a stopped writer left, an earlier version of it
            others = [path for path in self._left if path != listed.path]
            rounds = [(True, [*own, *others, *self._leftovers]), (False, self._leftovers)]
        part: Part | None = None
        found = np.zeros(0, dtype=ENTRY)
        for exact, sources in rounds:
            for rows in (rows for name in sources for rows in self._readable(name)):
                entries = entries_of(rows)
                picked = _first_of_each(entries["id"])
                picked &= ~np.isin(entries["id"], known) & ~np.isin(entries["id"], found["id"])
                if wanted is None:
                    picked &= np.array(
                        [_day(time) == day for time in entries["first_seen"].tolist()], dtype=bool
                    )
                else:
                    places = wanted.find(entries["id"])
                    picked &= places >= 0
                    if exact:
                        picked &= wanted.entries["content"][places] == entries["content"]
                        entries["wire"] = wanted.entries["wire"][places]
                if picked.any():
                    part = part or self._transaction.new_part(FAILURES_AT_REST, day=day)
                    part.write(rows.filter(pa.array(picked)))
                    found = np.concatenate([found, entries[picked]])
        return found, None if part is None else self._transaction.settle(part)

    def _readable(self, name: str) -> Iterator[pa.Table]:
        """The rows of a file that can still be read, as those of today."""
        # a damaged file may fail in any of these ways, at any place
        broken = (pa.ArrowException, OSError, SnapshotDamagedError, ValueError, KeyError)
        with suppress(*broken), self._transaction.folder.open(name) as file:
            source = self._as_listed(name, file)
            parquet = DataFile(source)
            if extension_column(parquet.schema_arrow):
                return
            for number in range(parquet.num_row_groups):
                with suppress(*broken):
                    for batch in parquet.iter_batches(batch_size=_ROWS, row_groups=[number]):
                        rows = pa.Table.from_batches([batch]).replace_schema_metadata(None)
                        if is_older(self._before) and not rows.schema.equals(FAILURES_AT_REST):
                            rows = current_columns(rows, "failures")
                        if rows.schema.equals(FAILURES_AT_REST):
                            yield rows

    def _as_listed(self, name: str, file: BinaryIO) -> BinaryIO | pa.BufferReader:
        """The file without what was added behind it, as some file systems do with zeros after a crash."""
        for damage in self._lost:
            size = damage.listed.bytes
            if damage.listed.path == name and size <= _MOST_BYTES and file.seek(0, os.SEEK_END) > size:
                file.seek(0)
                return pa.BufferReader(file.read(size))
        file.seek(0)
        return file

    def _resting(self) -> Resting | None:
        """The checkpoint of a stopped load of the same scope, however old."""
        found = self._transaction.resting
        if not isinstance(found, Resting):
            return None
        expected: dict[str, Any] = {
            "kind": "failures",
            "source": self._before.source,
            "scope": self._before.scope,
        }
        if misfit(found, expected=expected, now=datetime.fromisoformat(found.written_at)):
            return None
        found = self._transaction.located(found)
        return found if whole(self._transaction.folder, (*found.files, *found.later)) else None


def _first_of_each(ids: npt.NDArray[np.bytes_]) -> npt.NDArray[np.bool_]:
    first = np.zeros(len(ids), dtype=bool)
    first[np.unique(ids, return_index=True)[1]] = True
    return first


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


def _day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).date().isoformat()

"""Recover the rows of lost files when a failure snapshot is repaired.

A file is lost if it is missing or damaged. A repair searches the rows of a lost file in three places: in the
rest of the file, in other damaged files, and in files that an interrupted sync left. There are two cases:

1. The index is intact. It lists the id and the content of every row, so a row is accepted only if it is a row
   that was stored. Rows that are not found are `missing`: the load adds them again, with the time they were
   first seen, if they are still in the queue.
2. The index is lost. A row is accepted if it was first seen on the day of the lost file. How many rows are
   missing is known from the manifest, but not which.

For example, ``failures/2026-11-27/0001.parquet`` is cut in half. The 500 rows that can still be read are
written to a new file, and the other 500 are removed from the index. The load finds 480 of them in the queue,
and the receipt reports that 20 stayed lost.

Nothing changes before the commit of the sync. Lost files are kept under another name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import BinaryIO, Final

import msgspec
import numpy as np
import pyarrow as pa

from toolkit.base.errors import SnapshotDamagedError
from toolkit.base.times import from_milliseconds
from toolkit.secrets.redaction import Redactor
from toolkit.snapshots import data_files
from toolkit.snapshots.data_files import PART_BYTES, STORED_FAILURES, DataFile, Part
from toolkit.snapshots.manifest import REPAIRED, ListedFile, Manifest, StoredCheckpoint
from toolkit.snapshots.row_index import (
    ENTRY,
    Entries,
    Ids,
    Mask,
    RowIndex,
    concat_entries,
    day_of,
    entries_of,
    first_of_each,
    read_entries,
    read_index,
)
from toolkit.snapshots.transaction import Damage, Transaction
from toolkit.tables.signed_rows import BodyReader, with_renamed, with_signatures

_BATCH_ROWS: Final = 1_000
"""Rows that are read at once. If a page is damaged, the batches before it are recovered."""

_MOST_BYTES: Final = 4 * PART_BYTES
"""Size of a file up to which bytes after the end are removed in memory. Longer files are read as they are."""

_READ_ERRORS: Final = (
    pa.ArrowException,
    OSError,
    SnapshotDamagedError,
    ValueError,
    KeyError,
)
"""A damaged file can raise any of these, at any point."""


class Repair:
    """The rows of a damaged snapshot that can be recovered, in new files.

    Attributes
    ----------
    index : RowIndex
        The rows of intact files and the recovered rows.
    missing : RowIndex
        The rows that were not recovered; empty if the index is lost.
    checkpoint : StoredCheckpoint or None
        The checkpoint of an interrupted load of the same scope, however old.
    """

    def __init__(
        self, transaction: Transaction, before: Manifest, lost: tuple[Damage, ...]
    ) -> None:
        self._transaction = transaction
        self._store = transaction.store
        self._before = before
        self._lost = lost
        self._lost_paths = {damage.listed.path for damage in lost}
        self._lost_rows = sum(
            damage.listed.rows for damage in lost if not damage.is_index
        )
        self._damaged = [
            damage.listed.path
            for damage in lost
            if damage.present and not damage.is_index
        ]
        self._leftovers = transaction.leftovers()
        self._reader = BodyReader(Redactor())
        self._kept_as = [
            self._keep(damage.listed.path) for damage in lost if damage.present
        ]
        self._recovered_rows = 0
        self.index, self.missing = self._recover_all()
        self.checkpoint = self._fitting_checkpoint()

    def note(self, ids: Ids) -> str:
        """Return the note of the receipt on the repair, for a load that returned rows with these ids."""
        parts = self._row_counts(ids)
        if any(damage.is_index for damage in self._lost):
            parts.append("the index was lost and made again from the rows")
        if self._kept_as:
            parts.append(f"the lost files are kept as {', '.join(self._kept_as)}")
        else:
            parts.append("nothing of the lost files is left to keep")

        return REPAIRED + "; ".join(parts)

    def _row_counts(self, ids: Ids) -> list[str]:
        """Return the parts of the note that count rows; no parts if only the index is lost."""
        files = sum(not damage.is_index for damage in self._lost)
        if not files:
            return []

        parts = [
            f"{files:,} of {len(self._before.files):,} data files were lost, with {self._lost_rows:,} rows",
            f"{self._recovered_rows:,} rows were recovered from what is left of them",
        ]
        if not self._knows_missing():
            parts.append(
                f"{self._lost_rows - self._recovered_rows:,} are lost unless the queue still had them"
            )
            return parts

        is_back = np.isin(self.missing.entries["id"], ids)
        parts.append(f"{int(is_back.sum()):,} were added again from the queue")
        parts.append(
            f"{int((~is_back).sum()):,} stayed lost{_times(self.missing.entries[~is_back])}"
        )

        return parts

    def rows_lost(self, ids: Ids) -> int:
        """Return the number of rows that stayed lost, for a load that returned rows with these ids.

        If the index is lost as well, it is the largest possible number.
        """
        if self._knows_missing():
            return int((~np.isin(self.missing.entries["id"], ids)).sum())
        return self._lost_rows - self._recovered_rows

    def _knows_missing(self) -> bool:
        """Return whether `missing` lists every row that was not recovered."""
        return len(self.missing) == self._lost_rows - self._recovered_rows

    def _keep(self, path: str) -> str:
        """Copy a lost file to a name that no reader treats as data and no writer removes."""
        folder, slash, file_name = path.rpartition("/")
        kept_as = f"{folder}{slash}_{file_name.lstrip('_')}.lost"
        self._store.copy(path, kept_as)

        return kept_as

    def _recover_all(self) -> tuple[RowIndex, RowIndex]:
        """Recover the rows of each lost file. Return the index of all rows, and that of the missing ones."""
        stored = self._stored_entries()
        intact = self._intact_entries(stored)
        known_ids = concat_entries(intact.values())["id"]

        files: list[ListedFile] = []
        entries: list[Entries] = []
        missing: list[Entries] = []
        for listed in self._before.files:
            if listed.path in intact:
                files.append(listed)
                entries.append(intact[listed.path])
                continue

            search = _LostFile(
                listed, stored.get(listed.path), known_ids, self._transaction
            )
            self._search(search)
            if search.part is not None:
                files.append(self._transaction.publish(search.part))
                entries.append(search.recovered)
                self._recovered_rows += len(search.recovered)
                known_ids = np.concatenate([known_ids, search.recovered["id"]])

            missing.append(search.missing())

        # without a stored index, the sync writes all entries
        self._transaction.previous = msgspec.structs.replace(
            self._before, files=tuple(files), index=None, indexes=()
        )
        return RowIndex(concat_entries(entries).copy()), RowIndex(
            concat_entries(missing)
        )

    def _stored_entries(self) -> dict[str, Entries]:
        """Return the entries of files by path, as the intact files of the index list them."""
        before = self._before
        if before.is_older or not before.index_files:
            return {}

        lost = [file for file in before.index_files if file.path in self._lost_paths]
        if not lost:
            entries = read_index(self._store, before).entries
            return {listed.path: entries[rows] for listed, rows in before.slices}

        return {
            path: read_entries(self._store, listed)
            for path, listed in before.index_of_each.items()
            if listed not in lost
        }

    def _intact_entries(self, stored: dict[str, Entries]) -> dict[str, Entries]:
        """Return the entries of the files that are not lost; they are made from the rows without an index."""
        intact = {}
        for listed in self._before.files:
            if listed.path in self._lost_paths:
                continue
            if listed.path in stored:
                intact[listed.path] = stored[listed.path]
            else:
                tables = data_files.stored_failures(self._store, self._before, listed)
                intact[listed.path] = concat_entries(map(entries_of, tables))

        return intact

    def _search(self, search: _LostFile) -> None:
        """Search the rows of a lost file in the rest of it, in other damaged files, and in leftovers."""
        own_path = search.listed.path
        own = [path for path in self._damaged if path == own_path]
        others = [path for path in self._damaged if path != own_path]
        if search.wanted is None:
            self._search_in([*own, *self._leftovers], search, exact=False)
            return

        self._search_in([*own, *others, *self._leftovers], search, exact=True)
        # rows that are not found as they were stored may be there in an earlier version
        self._search_in(self._leftovers, search, exact=False)

    def _search_in(self, paths: list[str], search: _LostFile, *, exact: bool) -> None:
        """Recover the rows of a lost file that these files contain."""
        for path in paths:
            for rows in self._readable(path):
                search.recover(rows, exact=exact)

    def _readable(self, path: str) -> Iterator[pa.Table]:
        """Yield the rows of a file that can still be read, with the current columns."""
        with suppress(*_READ_ERRORS), self._store.open(path) as file:
            parquet = DataFile(self._without_bytes_after_end(path, file))
            if data_files.extension_column(parquet.schema_arrow):
                return
            for row_group in range(parquet.num_row_groups):
                # the groups after a damaged one can be intact
                with suppress(*_READ_ERRORS):
                    for batch in parquet.iter_batches(
                        batch_size=_BATCH_ROWS, row_groups=[row_group]
                    ):
                        rows = self._with_current_columns(
                            pa.Table.from_batches([batch])
                        )
                        if rows.schema.equals(STORED_FAILURES):
                            yield self._with_present_ids(rows)

    def _with_current_columns(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the columns of today, if the snapshot was written by an older version."""
        rows = rows.replace_schema_metadata(None)
        if self._before.is_older and not rows.schema.equals(STORED_FAILURES):
            return data_files.current_columns(rows, "failures")

        return rows

    def _with_present_ids(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the ids of today: a leftover can be from before a sync joined groups."""
        if self._before.is_older:
            return rows  # the sync signs all rows

        learned = self._transaction.learned
        signed, _ = with_signatures(rows, learned, self._reader)
        return with_renamed(signed, learned.renamed)

    def _without_bytes_after_end(
        self, path: str, file: BinaryIO
    ) -> BinaryIO | pa.BufferReader:
        """Return a file without bytes after the listed size: some file systems add zeros in a crash."""
        actual_size = file.seek(0, os.SEEK_END)
        file.seek(0)
        for damage in self._lost:
            listed_size = damage.listed.bytes
            if (
                damage.listed.path == path
                and listed_size <= _MOST_BYTES
                and actual_size > listed_size
            ):
                return pa.BufferReader(file.read(listed_size))

        return file

    def _fitting_checkpoint(self) -> StoredCheckpoint | None:
        """Return the checkpoint of an interrupted load, if it has the same scope and its files are intact."""
        checkpoint = self._transaction.checkpoint
        if checkpoint is None:
            return None

        expected = {
            "kind": "failures",
            "source": self._before.source,
            "scope": self._before.scope,
        }
        # compared with its own time, so that the age does not matter
        written_at = datetime.fromisoformat(checkpoint.written_at)
        if checkpoint.mismatch_reason(expected=expected, now=written_at):
            return None

        checkpoint = self._transaction.located(checkpoint)
        files = (*checkpoint.files, *checkpoint.later)
        if any(data_files.problem_of(self._store, file) for file in files):
            return None

        return checkpoint


class _LostFile:
    """The search for the rows of one lost file.

    `wanted` is the index of the rows that it contained, or None if the index of the snapshot is lost.
    `recovered` are the entries of the rows that were found, which are written to `part`.
    """

    def __init__(
        self,
        listed: ListedFile,
        stored: Entries | None,
        known_ids: Ids,
        transaction: Transaction,
    ) -> None:
        self.listed = listed
        self.wanted = None if stored is None else RowIndex(stored)
        self.recovered: Entries = np.zeros(0, dtype=ENTRY)
        self.part: Part | None = None
        self._known_ids = known_ids
        self._transaction = transaction

    def recover(self, rows: pa.Table, *, exact: bool) -> None:
        """Write the rows that belong to the file; if `exact`, only with the content that was stored."""
        entries = entries_of(rows)
        is_accepted = first_of_each(entries["id"])
        is_accepted &= ~np.isin(entries["id"], self._known_ids)
        is_accepted &= ~np.isin(entries["id"], self.recovered["id"])

        if self.wanted is None:
            is_accepted &= self._is_of_day(entries)
        else:
            is_accepted &= _is_stored(entries, self.wanted, exact=exact)

        if not is_accepted.any():
            return

        if self.part is None:
            self.part = self._transaction.new_part(STORED_FAILURES, day=self.listed.day)
        self.part.write(rows.filter(pa.array(is_accepted)))
        self.recovered = np.concatenate([self.recovered, entries[is_accepted]])

    def missing(self) -> Entries:
        """Return the wanted entries that were not recovered."""
        if self.wanted is None:
            return np.zeros(0, dtype=ENTRY)

        entries = self.wanted.entries
        return entries[~np.isin(entries["id"], self.recovered["id"])]

    def _is_of_day(self, entries: Entries) -> Mask:
        """Return whether each entry was first seen on the day of the file."""
        days = [day_of(first_seen) for first_seen in entries["first_seen"].tolist()]
        return np.array([day == self.listed.day for day in days], dtype=bool)


def _is_stored(entries: Entries, wanted: RowIndex, *, exact: bool) -> Mask:
    """Return whether each entry is wanted. If `exact`, the contents are compared and the digests copied."""
    positions = wanted.find(entries["id"])
    is_stored = positions >= 0
    if exact:
        is_stored &= wanted.entries["content"][positions] == entries["content"]
        entries["wire"] = wanted.entries["wire"][positions]

    return is_stored


def _times(entries: Entries) -> str:
    """Return when the entries were first seen, in parentheses, or nothing if there are no entries.

    For example, `` (first seen 2026-11-01T00:00:00+00:00 to 2026-11-02T00:00:00+00:00)``.
    """
    if not len(entries):
        return ""

    first = from_milliseconds(int(entries["first_seen"].min())).isoformat(
        timespec="seconds"
    )
    last = from_milliseconds(int(entries["first_seen"].max())).isoformat(
        timespec="seconds"
    )
    if first == last:
        return f" (first seen {first})"

    return f" (first seen {first} to {last})"

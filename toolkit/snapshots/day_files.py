"""Write the data files of a sync, one or several per day, with new, changed and gone rows.

Data files are immutable. A file is written again if a row in it was replaced, is gone, or gets another
signature. Small files of a day are merged on that occasion, when the day is over, or if there are too many.

All new rows are read before the first is written, because their signatures depend on one another: a word that
varies between many messages is a value, whichever windows of the load the messages were in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.times import DAY_MS, milliseconds
from toolkit.snapshots.binding import AccountTag
from toolkit.snapshots.coverage import (
    Coverage,
)
from toolkit.snapshots.data_files import (
    PART_BYTES,
    STORED_FAILURES,
    Part,
    stored_failures,
)
from toolkit.snapshots.manifest import (
    ListedFile,
)
from toolkit.snapshots.new_rows import NewRows
from toolkit.snapshots.row_index import (
    Entries,
    Mask,
    Positions,
    RowIndex,
    concat_entries,
    day_of,
)
from toolkit.snapshots.synced_signatures import SyncedSignatures
from toolkit.snapshots.transaction import IndexPart, Transaction
from toolkit.tables.receipt import Receipt
from toolkit.tables.schemas import (
    FAILED_AT,
    FIRST_SEEN_AT,
    GONE_AFTER,
    GONE_BEFORE,
    TIME,
)

SMALL_BYTES: Final = PART_BYTES // 4  # files below this are merged
SORTED_BYTES: Final = 64 << 20
"""Bytes of Arrow data that are sorted by the time of failure at once. They are in memory twice meanwhile."""
MOST_FILES: Final = 8  # small files of the current day; days that are over have one


_STAYS, _ADDED, _CHANGED, _GONE = range(4)


class FileRows(NamedTuple):
    """Rows of one data file: the number of rows, and their positions (None for all)."""

    path: str
    rows: int
    positions: Positions | None


class _StoredFile(NamedTuple):
    """A file of the previous generation, and the positions of the rows in the index."""

    listed: ListedFile
    rows: slice


class _NewFile(NamedTuple):
    """A new file with the entries of the rows, and whether each was added, changed, gone or only stays."""

    part: Part
    entries: list[Entries]
    kinds: list[npt.NDArray[np.uint8]]

    def rows_of(self, kind: int) -> FileRows:
        """Return the rows of one kind, for example those that were added."""
        rows = np.flatnonzero(
            np.concatenate([np.zeros(0, np.uint8), *self.kinds]) == kind
        )
        if len(rows) == self.part.rows:
            return FileRows(self.part.path, len(rows), None)

        return FileRows(self.part.path, len(rows), rows)


class _RowsOfGroup(NamedTuple):
    """Rows of one row group, with their index entries and kinds in the same order."""

    rows: pa.Table
    entries: Entries
    kinds: npt.NDArray[np.uint8]


class _WaitingRows:
    """Rows that are sorted by the time of failure before they are written.

    The statistics of a row group then cover a short time, so that a question about one day reads few of
    them. Rows arrive in windows of time, so sorting some at once is nearly as good as sorting all.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._parts: list[_RowsOfGroup] = []

    def add(
        self, rows: pa.Table, entries: Entries, kinds: npt.NDArray[np.uint8]
    ) -> None:
        """Add rows."""
        self.bytes += rows.nbytes
        self._parts.append(_RowsOfGroup(rows, entries, kinds))

    def sorted_groups(self, group_bytes: int) -> Iterator[_RowsOfGroup]:
        """Yield all rows in the order of their failures, in groups of about `group_bytes` bytes.

        Rows without a time are the last ones. Rows of the same time stay in order.
        """
        if not self._parts:
            return

        rows = pa.concat_tables([part.rows for part in self._parts])
        order = pc.sort_indices(rows, sort_keys=[(FAILED_AT, "ascending")]).to_numpy()
        entries = concat_entries([part.entries for part in self._parts])[order]
        kinds = np.concatenate([part.kinds for part in self._parts])[order]
        groups = max(1, self.bytes // group_bytes)

        group_rows = max(1, -(-rows.num_rows // groups))
        for start in range(0, rows.num_rows, group_rows):
            group = slice(start, start + group_rows)
            taken = rows.take(pa.array(order[group]))
            yield _RowsOfGroup(taken, entries[group], kinds[group])


@dataclass
class DayWriter:
    """Writes a sync, day by day; `replaced` and `gone` are masks of the stored rows."""

    transaction: Transaction
    index: RowIndex
    replaced: Mask
    gone: Mask
    new: NewRows
    receipt: Receipt
    accounts: tuple[AccountTag, ...]
    coverage: Coverage | None

    def __post_init__(self) -> None:
        self.before = self.transaction.previous
        # all files of an older version are written again, because a snapshot has one set of columns
        self.older = self.before is not None and self.before.is_older
        self.signatures = SyncedSignatures(self.transaction, self.new)
        self.kept: list[_StoredFile] = []
        self.written: list[_NewFile] = []
        self.waiting = _WaitingRows()

    def commit(self, now: int) -> dict[str, Any]:
        """Write all files that changed, and commit. `now` is in milliseconds since 1970."""
        stored = None
        if self.older:
            stored = ~self.replaced
        self.signatures.learn(stored)
        today = day_of(now)
        files = self._files()
        days = (self.new.entries["first_seen"] // DAY_MS).astype(np.int32)
        # Rows are in the folder of the day when they were first seen. A changed row stays in its day.
        new_days = {
            day_of(int(day) * DAY_MS): int(day)
            for day in np.unique(days[self.new.chosen])
        }

        for day in sorted({*files, *new_days}):
            chosen = None
            if day in new_days:
                chosen = self.new.chosen & (days == new_days[day])
            most_files = 1
            if day == today:
                most_files = MOST_FILES
            self._write_day(day, files.get(day, []), chosen, most=most_files)

        if not self.written and not self.kept:
            self._add_empty_file(today)
        result: dict[str, Any] = {
            "receipt": self.receipt,
            "rows": self._commit(),
            "joined": self.signatures.renamed,
        }
        for name, kind in (
            ("added_rows", _ADDED),
            ("changed_rows", _CHANGED),
            ("gone_rows", _GONE),
        ):
            rows = (file.rows_of(kind) for file in self.written)
            result[name] = tuple(file_rows for file_rows in rows if file_rows.rows)

        return result

    def _add_empty_file(self, today: str) -> None:
        """Keep or begin a file without rows, so that any reader can open the folder."""
        if self.before and not self.older:
            self.kept += [
                _StoredFile(listed, slice(0, 0))
                for listed in self.before.files[:1]
                if not listed.rows
            ]

        if not self.kept:
            self._new_part(today)

    def _commit(self) -> int:
        """Commit, and return the number of rows in the snapshot."""
        receipt = self.receipt
        receipt_dict = receipt.to_dict()
        kept_indexes = self._unchanged_indexes()
        index: list[IndexPart] = []
        if not kept_indexes:
            index = self._index_parts()
        manifest = self.transaction.commit(
            source=receipt.source,
            scope=receipt.scope,
            receipt=receipt_dict,
            parts=[file.part.finish(receipt_dict) for file in self.written],
            kept=tuple(file.listed for file in self.kept),
            index=index,
            kept_indexes=kept_indexes,
            complete_at=self._complete_at(),
            learned=self.signatures.learned,
            accounts=self.accounts,
            coverage=self.coverage,
        )

        return manifest.rows

    def _index_parts(self) -> list[IndexPart]:
        """Return the index by file. A file that was kept also keeps its stored index, if it has one."""
        stored: dict[str, ListedFile] = {}
        if self.before is not None and not self.older:
            stored = self.before.index_of_each

        parts = []
        for kept in self.kept:
            part = IndexPart(self.index.entries[kept.rows])
            if not self.index.has_learned(kept.rows):
                part = part._replace(stored=stored.get(kept.listed.path))
            parts.append(part)

        written = (concat_entries(file.entries) for file in self.written)
        return [*parts, *map(IndexPart, written)]

    def _unchanged_indexes(self) -> tuple[ListedFile, ...]:
        """Return the stored index if no row has changed; an empty tuple otherwise, and after a repair."""
        if self.before is None or self.written:
            return ()

        self.kept.sort(key=lambda file: file.rows.start)  # as the manifest lists them
        if tuple(file.listed for file in self.kept) != self.before.files:
            return ()
        if self.index.has_learned(slice(0, len(self.index))):
            return ()

        return self.before.index_files

    def _complete_at(self) -> str | None:
        """Return when the latest complete load began."""
        if self.receipt.complete:
            return self.receipt.started_at
        if self.before is None:
            return None

        return self.before.complete_at

    def _files(self) -> dict[str, list[_StoredFile]]:
        """Return the stored files by day, without empty files."""
        files: dict[str, list[_StoredFile]] = {}
        if self.before is None:
            return files

        for listed, rows in self.before.slices:
            if listed.rows:
                files.setdefault(listed.day, []).append(_StoredFile(listed, rows))

        return files

    def _write_day(
        self, day: str, files: list[_StoredFile], chosen: Mask | None, *, most: int
    ) -> None:
        """Write the files of a day that changed, merge small ones, and add the chosen new rows."""
        changed = self.replaced | self.gone
        touched = [
            self.older
            or bool(changed[file.rows].any())
            or file.listed.path in self.signatures.renamed_files
            for file in files
        ]
        small = [file.listed.bytes < SMALL_BYTES for file in files]
        # new rows make a file as well
        small_files = sum(small) + (chosen is not None)
        merges = any(touched) or small_files > most
        first = len(self.written)

        for file, is_touched, is_small in zip(files, touched, small, strict=True):
            if is_touched or (is_small and merges):
                self._write_again(day, first, file)
            else:
                self.kept.append(file)

        if chosen is not None:
            self._write_new(day, first, chosen)
        self._write_waiting(day, first)
        for written in self.written[first:]:
            written.part.finish(self.receipt.to_dict())

    def _write_new(self, day: str, first: int, chosen: Mask) -> None:
        """Write new and changed rows, which are in the queue now."""
        for table, rows in self.new.tables(chosen):
            entries = self.new.entries[rows]
            stored = _stored_rows(table, entries, self.signatures.of_new(rows))
            kinds = np.where(self.new.added[rows], _ADDED, _CHANGED)
            self._write(day, first, stored, entries, kinds)

    def _write_again(self, day: str, first: int, file: _StoredFile) -> None:
        """Write a stored file again, without replaced rows, and with gone rows marked."""
        if self.before is None:
            return

        start = file.rows.start
        for table in stored_failures(self.transaction.store, self.before, file.listed):
            rows = slice(start, start := start + table.num_rows)
            stays, gone = ~self.replaced[rows], self.gone[rows]
            if stays.any():
                signed = self.signatures.with_signatures(table, rows)
                marked = _mark(
                    signed, gone, self.before.complete_at, self.receipt.ended_at
                )
                entries = self.index.entries[rows][stays].copy()
                entries["gone"] |= gone[stays]
                kinds = np.where(gone[stays], _GONE, _STAYS)
                self._write(day, first, marked.filter(pa.array(stays)), entries, kinds)

    def _write(
        self,
        day: str,
        first: int,
        rows: pa.Table,
        entries: Entries,
        kinds: npt.NDArray[Any],
    ) -> None:
        """Add rows to a file of this day. The number of the first new file of the day is `first`."""
        self.waiting.add(rows, entries, kinds.astype(np.uint8))
        if self.waiting.bytes >= SORTED_BYTES:
            self._write_waiting(day, first)

    def _write_waiting(self, day: str, first: int) -> None:
        """Write the waiting rows in the order of their failures, one row group at a time."""
        for some in self.waiting.sorted_groups(self.transaction.options.group_bytes):
            if len(self.written) == first or self.written[-1].part.bytes >= PART_BYTES:
                self._new_part(day)
            file = self.written[-1]
            file.part.write(some.rows)
            file.entries.append(some.entries)
            file.kinds.append(some.kinds)

        self.waiting = _WaitingRows()

    def _new_part(self, day: str) -> None:
        self.written.append(
            _NewFile(self.transaction.new_part(STORED_FAILURES, day=day), [], [])
        )


def _stored_rows(table: pa.Table, entries: Entries, signatures: pa.Array) -> pa.Table:
    """Return new rows with the columns of stored failures, which are in the queue now."""
    first_seen = pa.array(entries["first_seen"], pa.int64()).cast(TIME)
    gone_times = [pa.nulls(len(entries), TIME)] * 2
    columns = [*table.columns, first_seen, *gone_times, signatures]
    return pa.Table.from_arrays(columns, schema=STORED_FAILURES)


def _mark(
    table: pa.Table, gone: Mask, complete_at: str | None, missed_at: str
) -> pa.Table:
    """Set the times between which gone rows left the queue."""
    # The entry was there at the last complete load, or, if it is newer than that, when it was first seen.
    last_seen = table.column(FIRST_SEEN_AT).combine_chunks().cast(pa.int64())
    if complete_at:
        last_seen = pc.max_element_wise(
            last_seen, milliseconds(datetime.fromisoformat(complete_at))
        )

    missed = milliseconds(datetime.fromisoformat(missed_at))
    first_missed = pa.repeat(pa.scalar(missed, pa.int64()), len(table))
    for name, times in ((GONE_AFTER, last_seen), (GONE_BEFORE, first_missed)):
        column = table.schema.get_field_index(name)
        marked = pc.if_else(pa.array(gone), times.cast(TIME), table.column(name))
        table = table.set_column(column, table.schema.field(column), marked)

    return table

"""Merging a load into the stored failures: which rows are new, changed and gone, and writing them.

Data files are immutable. One is written again when a row in it was replaced or went; small files of a day are
merged on that occasion, when the day is over, and when there are too many of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.errors import SnapshotBindingError, SnapshotError
from toolkit.freshness import stated_retention
from toolkit.loading.accounts import Account
from toolkit.loading.identities import identities
from toolkit.loading.load import Batch
from toolkit.receipt import Receipt
from toolkit.redaction import Redactor
from toolkit.signatures.signed_rows import BodyReader, with_signatures
from toolkit.snapshots.binding import AccountTag, SeenEntries, bound_accounts
from toolkit.snapshots.coverage import Coverage, SyncTimes, extended, overdue_note
from toolkit.snapshots.data_files import PART_BYTES, STORED_FAILURES, Part, read_checked, stored_failures
from toolkit.snapshots.manifest import ListedFile, StoredCheckpoint, stored_retention
from toolkit.snapshots.resumable import Spool
from toolkit.snapshots.row_index import (
    ENTRY,
    KEY,
    Entries,
    GrowingArray,
    Ids,
    Mask,
    Positions,
    RowIndex,
    as_ids,
    day_of,
    fingerprints,
    first_of_each,
    new_entries,
    repeated,
)
from toolkit.snapshots.transaction import Transaction
from toolkit.tables.schemas import FAILURES, FIRST_SEEN_AT, GONE_AFTER, GONE_BEFORE, TIME
from toolkit.times import DAY_MS, from_milliseconds, milliseconds

SMALL_BYTES: Final = PART_BYTES // 4  # files below this are merged

MOST_FILES: Final = 8  # small files of the current day; days that are over have one

_EARLIEST: Final = 946_684_800_000  # the year 2000: earlier times are not those of a failure

_STAYS, _ADDED, _CHANGED, _GONE = range(4)


class Binding(NamedTuple):
    """Whose load it is, and how long the queue keeps entries, if the caller states it."""

    account: Account | None = None
    rebind: bool = False
    retention: timedelta | None = None


class FileRows(NamedTuple):
    """Rows of one data file: how many, and at which positions (None for all)."""

    path: str
    rows: int
    positions: Positions | None


class RowComparison:
    """The sink of a sync: which stored rows were seen, and which rows are to be written, first seen `now`.

    Rows that are `missing` are added with the time at which they were first seen.
    """

    def __init__(
        self,
        transaction: Transaction,
        index: RowIndex,
        now: datetime,
        *,
        checkpoint: StoredCheckpoint | None = None,
        missing: RowIndex | None = None,
    ) -> None:
        self._transaction = transaction
        self._missing = missing
        self._index = index
        self._now = milliseconds(now)
        self._seen: Mask = np.zeros(len(index), dtype=bool)
        files = (checkpoint.files, checkpoint.later) if checkpoint else ((), ())
        self._first, self._later = (_SpooledRows(Spool(transaction, FAILURES, some)) for some in files)
        self._versions: dict[bytes, bytes] | None = None
        self._oldest = self._now
        self.rows = 0
        if checkpoint is not None:
            for rows in (self._first, self._later):
                for _, table in rows.spool.tables():
                    self._learn_oldest(table)
                    rows.remember(*self._compared(table))
            if checkpoint.seen:
                bits = np.frombuffer(read_checked(transaction.store, checkpoint.seen), dtype=np.uint8)
                self._seen = np.unpackbits(bits, count=len(index)).astype(bool)
            self.rows = sum(file.rows for file in checkpoint.identities)

    def is_stored(self, identities: bytes, digests: bytes) -> Mask:
        """Which entries are stored with the same bytes, and not marked gone."""
        positions = self._index.find(as_ids(identities))
        stored: Mask = positions >= 0
        before = self._index.entries[positions[stored]]
        stored[stored] = (before["wire"] == as_ids(digests)[stored]) & ~before["gone"]
        return stored

    def add(self, batch: Batch) -> None:
        """Compare rows with the stored ones; keep the new and the changed ones."""
        table = batch.table
        entries, positions = self._compared(table, batch)
        known = positions >= 0
        seen = np.concatenate([positions[known], self._index.find(as_ids(b"".join(batch.stored)))])
        if (seen < 0).any() or self._seen[seen].any() or repeated(seen):
            raise self._twice()
        different = ~known
        different[known] = self._differs(entries["content"][known], positions[known])
        if different.any():
            self._keep(self._first, table, entries, positions, different)
        self._index.learn(positions[~different], entries["wire"][~different])
        self._seen[seen] = True
        self.rows += batch.rows

    def add_later(self, table: pa.Table) -> None:
        """Keep the later versions of rows that were added before, if they are different."""
        entries, positions = self._compared(table)
        if self._versions is None:  # not before it is needed: a first load has millions of rows
            self._versions = {}
            for rows in (self._first, self._later):
                self._versions |= _contents(rows.entries.whole())
        different = np.zeros(len(entries), dtype=bool)
        values = zip(entries["id"].tolist(), entries["content"].tolist(), positions.tolist(), strict=True)
        for row, (known, content, position) in enumerate(values):
            before = self._versions.get(known)
            if before is None and position >= 0:
                before = self._index.entries["content"][position].item()
            if before != content:
                different[row], self._versions[known] = True, content
        if different.any():
            self._keep(self._later, table, entries, positions, different)

    def _keep(
        self, rows: _SpooledRows, table: pa.Table, entries: Entries, positions: Positions, chosen: Mask
    ) -> None:
        kept = table.filter(pa.array(chosen))
        self._learn_oldest(kept)
        rows.spool.add(kept)
        rows.remember(entries[chosen], positions[chosen])
        if self._versions is not None:
            self._versions |= _contents(entries[chosen])

    def _learn_oldest(self, table: pa.Table) -> None:
        """Note the earliest failure; the destination's clock is not believed if it is before the message."""
        times = (table[name].cast(pa.int64()) for name in ("created_at", "failed_at"))
        failed = pc.max_element_wise(*times, skip_nulls=False)
        oldest = pc.min(failed.filter(pc.greater(failed, _EARLIEST))).as_py()
        if oldest is not None and oldest < self._oldest:
            self._oldest = oldest

    def save(self) -> dict[str, Any]:
        """Write the rows kept, and which stored rows were seen, to disk."""
        bits = np.packbits(self._seen).tobytes()
        seen = self._transaction.pending_file("bin", len(self._index), lambda file: file.write(bits))
        return {"files": self._first.spool.save(), "later": self._later.spool.save(), "seen": seen}

    def commit(self, receipt: Receipt, binding: Binding) -> dict[str, Any]:
        """Mark missing entries as gone, if the load was complete, write everything, and commit.

        Returns the attributes of `Changes`, but for the store. `SnapshotBindingError` when the load is of
        another account: nothing is written then, and its checkpoint is removed.
        """
        first = len(self._first.entries)
        before = self._transaction.previous
        try:
            accounts, note = bound_accounts(
                before.accounts if before else (),
                binding.account,
                self._seen_entries(first),
                first=before is None,
                rebind=binding.rebind,
                snapshot=str(self._transaction.store),
            )
        except SnapshotBindingError:
            self._transaction.remove_checkpoint()
            raise
        receipt = replace(receipt, notes=(*receipt.notes, note)) if note else receipt
        stored = stored_retention(before.receipts if before else ())
        stated = stated_retention(binding.retention, stored)
        if stated is not None:
            receipt = replace(receipt, retention_seconds=stated.total_seconds())
        receipt, coverage = self._covered(receipt, stated)
        self._first.remember(self._later.entries.whole(), self._later.positions.whole())
        entries, positions = self._first.entries.whole(), self._first.positions.whole()
        if repeated(entries["id"][:first]):
            raise self._twice()
        chosen = _last_of_each(entries["id"]) if len(entries) > first else np.ones(len(entries), bool)
        known = positions >= 0
        chosen[known] &= self._differs(entries["content"][known], positions[known])
        if changed := len(np.unique(entries["id"][first:])):
            duplicates = max(0, receipt.duplicates - changed)
            receipt = replace(receipt, changed=receipt.changed + changed, duplicates=duplicates)
        replaced = np.zeros(len(self._index), dtype=bool)
        replaced[positions[chosen & known]] = True
        gone = ~self._seen & ~self._index.entries["gone"] & receipt.complete
        new = _NewRows(entries, chosen, ~known, (self._first.spool, self._later.spool))
        writer = _DayWriter(self._transaction, self._index, replaced, gone, new, receipt, accounts, coverage)
        return writer.commit(self._now)

    def _seen_entries(self, first: int) -> SeenEntries:
        """How the load compares with what is stored; the first rows kept are those of different entries."""
        stored = self._index.entries
        new = self._first.entries.whole()["id"][:first][self._first.positions.whole()[:first] < 0]
        retained, again = int((~stored["gone"]).sum()), int((self._seen & ~stored["gone"]).sum())
        loaded = int(self._seen.sum()) + len(new)
        if self._missing is not None:  # rows that a repair did not find are stored entries, too
            lost = self._missing.entries
            retained += int((~lost["gone"]).sum())
            again += int(np.isin(new, lost["id"]).sum())
        return SeenEntries(loaded=loaded, retained=retained, again=again)

    def _covered(self, receipt: Receipt, retention: timedelta | None) -> tuple[Receipt, Coverage | None]:
        """The receipt with the gaps of the snapshot, and the coverage after this load."""
        before = self._transaction.previous
        coverage = before.coverage if before else None
        if receipt.complete:
            there = self._seen & ~self._index.entries["gone"]
            known = self._index.entries["first_seen"][there]
            sync = SyncTimes(
                began=datetime.fromisoformat(receipt.started_at),
                last=datetime.fromisoformat(before.complete_at) if before and before.complete_at else None,
                oldest=from_milliseconds(self._oldest),
                kept=timedelta(milliseconds=self._now - int(known.min()) if len(known) else 0),
                overlaps=bool(len(known)),
            )
            coverage, gap = extended(coverage, sync, retention)
            if gap:
                receipt = replace(receipt, notes=(*receipt.notes, overdue_note(gap, sync.began)))
        return replace(receipt, gaps=coverage.gaps if coverage else ()), coverage

    def _compared(self, table: pa.Table, batch: Batch | None = None) -> tuple[Entries, Positions]:
        """The index entry of each row, and the position where it is stored; -1 for new ones."""
        ids = as_ids(b"".join(batch.identities if batch else identities(table, KEY)))
        wire = as_ids(b"".join(batch.digests)) if batch else np.zeros_like(ids)
        positions = self._index.find(ids)
        entries = new_entries(ids, fingerprints(table), wire, self._now)
        known = positions >= 0
        entries["first_seen"][known] = self._index.entries["first_seen"][positions[known]]
        if self._missing is not None:
            lost = self._missing.find(ids)
            entries["first_seen"][lost >= 0] = self._missing.entries["first_seen"][lost[lost >= 0]]
        return entries, positions

    def add_unread(self, checkpoint: StoredCheckpoint) -> None:
        """Keep the rows of a stopped load that this load did not yield: they may be nowhere else any more."""
        there = self.ids
        for file in reversed((*checkpoint.files, *checkpoint.later)):  # the latest version of a row first
            for _, table in reversed(list(Spool(self._transaction, FAILURES, (file,)).tables())):
                entries, positions = self._compared(table)
                wanted = _last_of_each(entries["id"]) & ~np.isin(entries["id"], there)
                wanted[positions >= 0] &= ~self._seen[positions[positions >= 0]]
                if wanted.any():
                    self._keep(self._first, table, entries, positions, wanted)
                    self._seen[positions[wanted & (positions >= 0)]] = True
                    there = np.concatenate([there, entries["id"][wanted]])

    @property
    def ids(self) -> Ids:
        """The ids of the rows kept."""
        return np.concatenate([self._first.entries.whole()["id"], self._later.entries.whole()["id"]])

    def _differs(self, content: Ids, positions: Positions) -> Mask:
        """Whether rows have another content than is stored, or exist again after being marked gone."""
        before = self._index.entries
        different: Mask = (before["content"][positions] != content) | before["gone"][positions]
        return different

    def _twice(self) -> SnapshotError:
        return SnapshotError(
            f"syncing the snapshot {self._transaction.store}",
            got="an entry twice in one load",
            expected="each dlq_id once",
            next_step="Sync again. The snapshot is as it was.",
        )


class _SpooledRows:
    """Rows that are to be written, with the index entry of each and the position of the one it replaces."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.entries = GrowingArray(ENTRY)
        self.positions = GrowingArray(np.int64)

    def remember(self, entries: Entries, positions: Positions) -> None:
        """Add what is known of rows that are in the spool."""
        self.entries.add(entries)
        self.positions.add(positions)


def _contents(entries: Entries) -> dict[bytes, bytes]:
    return dict(zip(entries["id"].tolist(), entries["content"].tolist(), strict=True))


def _last_of_each(ids: npt.NDArray[np.bytes_]) -> Mask:
    """Whether an id does not come again further on."""
    return first_of_each(ids[::-1])[::-1].copy()


class _NewRows(NamedTuple):
    """Rows in spools, their entries, whether each is to be written, and whether it is of a new entry."""

    entries: Entries
    chosen: Mask
    added: Mask
    spools: tuple[Spool, ...]

    def tables(self, chosen: Mask) -> Iterator[tuple[pa.Table, Entries, Mask]]:
        """These rows in tables, with their entries and whether they are added."""
        start = 0
        for spool in self.spools:
            count = spool.rows
            for first, table in spool.tables(chosen[start : start + count]):
                rows = slice(start + first, start + first + table.num_rows)
                picked, entries, added = chosen[rows], self.entries[rows], self.added[rows]
                if picked.all():  # views: a first load has millions of rows
                    yield table, entries, added
                elif picked.any():
                    yield table.filter(pa.array(picked)), entries[picked], added[picked]
            start += count


class _StoredFile(NamedTuple):
    """A file of the snapshot as it was, and where its rows are in the index."""

    listed: ListedFile
    rows: slice


class _NewFile(NamedTuple):
    """A new file with the entries of its rows, and what became of each."""

    part: Part
    entries: list[Entries]
    kinds: list[npt.NDArray[np.uint8]]

    def rows_of(self, kind: int) -> FileRows:
        rows = np.flatnonzero(np.concatenate([np.zeros(0, np.uint8), *self.kinds]) == kind)
        return FileRows(self.part.path, len(rows), None if len(rows) == self.part.rows else rows)


@dataclass
class _DayWriter:
    """Writes a sync, day by day: `replaced` and `gone` are masks of the stored rows."""

    transaction: Transaction
    index: RowIndex
    replaced: Mask
    gone: Mask
    new: _NewRows
    receipt: Receipt
    accounts: tuple[AccountTag, ...]
    coverage: Coverage | None

    def __post_init__(self) -> None:
        self.before = self.transaction.previous
        # files of an older version are all written again: a snapshot has one set of columns
        self.older = self.before is not None and self.before.is_older
        self.learned = self.transaction.learned
        self.reader = BodyReader(Redactor())
        self.kept: list[_StoredFile] = []
        self.written: list[_NewFile] = []

    def commit(self, now: int) -> dict[str, Any]:
        """Write what is to be written, and commit. `now` is in milliseconds since 1970."""
        today = day_of(now)
        files = self._files()
        days = (self.new.entries["first_seen"] // DAY_MS).astype(np.int32)
        new = {day_of(int(day) * DAY_MS): int(day) for day in np.unique(days[self.new.chosen])}
        for day in sorted({*files, *new}):
            chosen = self.new.chosen & (days == new[day]) if day in new else None
            self._write_day(day, files.get(day, []), chosen, most=MOST_FILES if day == today else 1)
        if not self.written and not self.kept:  # a file without rows, so that any reader can open the folder
            if self.before and not self.older:
                self.kept += [_StoredFile(listed, slice(0, 0)) for listed in self.before.files[:1]]
            if not self.kept:
                self._new_part(today)
        result: dict[str, Any] = {"receipt": self.receipt, "rows": self._commit()}
        for name, kind in (("added_rows", _ADDED), ("changed_rows", _CHANGED), ("gone_rows", _GONE)):
            rows = (file.rows_of(kind) for file in self.written)
            result[name] = tuple(some for some in rows if some.rows)
        return result

    def _commit(self) -> int:
        before, receipt = self.before, self.receipt
        done = receipt.to_dict()
        files = tuple(file.listed for file in self.kept)
        same = before is not None and files == before.files and not (self.written or self.index.has_learned)
        kept = [self.index.entries[file.rows] for file in self.kept]
        written = [entries for file in self.written for entries in file.entries]
        manifest = self.transaction.commit(
            source=receipt.source,
            scope=receipt.scope,
            receipt=done,
            parts=[file.part.finish(done) for file in self.written],
            kept=files,
            index=before.index if before is not None and same else [*kept, *written],
            complete_at=receipt.started_at if receipt.complete else before.complete_at if before else None,
            learned=self.learned,
            accounts=self.accounts,
            coverage=self.coverage,
        )
        return manifest.rows

    def _files(self) -> dict[str, list[_StoredFile]]:
        """The stored files by day, without those that hold no rows."""
        files: dict[str, list[_StoredFile]] = {}
        for listed, rows in self.before.slices if self.before else ():
            if listed.rows:
                files.setdefault(listed.day, []).append(_StoredFile(listed, rows))
        return files

    def _write_day(self, day: str, files: list[_StoredFile], chosen: Mask | None, *, most: int) -> None:
        changed = self.replaced | self.gone
        touched = [self.older or bool(changed[file.rows].any()) for file in files]
        small = [file.listed.bytes < SMALL_BYTES for file in files]
        # new rows make a file, too
        several = any(touched) or sum(small) + (chosen is not None) > most
        first = len(self.written)
        for file, is_touched, is_small in zip(files, touched, small, strict=True):
            if is_touched or (is_small and several):
                self._write_again(day, first, file)
            else:
                self.kept.append(file)
        for table, entries, added in self.new.tables(chosen) if chosen is not None else ():
            first_seen = pa.array(entries["first_seen"], pa.int64()).cast(TIME)
            unknown = [pa.nulls(len(entries), TIME)] * 2
            columns = [*table.columns, first_seen, *unknown, pa.nulls(len(entries), pa.string())]
            rows = pa.Table.from_arrays(columns, schema=STORED_FAILURES)
            self._write(day, first, rows, entries, np.where(added, _ADDED, _CHANGED))
        for written in self.written[first:]:
            written.part.finish(self.receipt.to_dict())

    def _write_again(self, day: str, first: int, file: _StoredFile) -> None:
        if self.before is None:
            return
        start = file.rows.start
        for table in stored_failures(self.transaction.store, self.before, file.listed):
            rows = slice(start, start := start + table.num_rows)
            stays, gone = ~self.replaced[rows], self.gone[rows]
            if stays.any():
                marked = _mark(table, gone, self.before.complete_at, self.receipt.ended_at)
                entries = self.index.entries[rows][stays].copy()
                entries["gone"] |= gone[stays]
                kinds = np.where(gone[stays], _GONE, _STAYS)
                self._write(day, first, marked.filter(pa.array(stays)), entries, kinds)

    def _write(self, day: str, first: int, rows: pa.Table, entries: Entries, kinds: npt.NDArray[Any]) -> None:
        """Add rows to the last file of this day: one of those from the number `first` on."""
        if len(self.written) == first or self.written[-1].part.bytes >= PART_BYTES:
            self._new_part(day)
        rows, self.learned = with_signatures(rows, self.learned, self.reader)
        self.written[-1].part.write(rows)
        self.written[-1].entries.append(entries)
        self.written[-1].kinds.append(kinds.astype(np.uint8))

    def _new_part(self, day: str) -> None:
        self.written.append(_NewFile(self.transaction.new_part(STORED_FAILURES, day=day), [], []))


def _mark(table: pa.Table, gone: Mask, complete_at: str | None, missed_at: str) -> pa.Table:
    """The rows; those gone with the times between which they disappeared."""
    last_seen = table.column(FIRST_SEEN_AT).combine_chunks().cast(pa.int64())
    if complete_at:
        last_seen = pc.max_element_wise(last_seen, milliseconds(datetime.fromisoformat(complete_at)))
    missed = milliseconds(datetime.fromisoformat(missed_at))
    first_missed = pa.repeat(pa.scalar(missed, pa.int64()), len(table))
    for name, times in ((GONE_AFTER, last_seen), (GONE_BEFORE, first_missed)):
        column = table.schema.get_field_index(name)
        marked = pc.if_else(pa.array(gone), times.cast(TIME), table.column(name))
        table = table.set_column(column, table.schema.field(column), marked)
    return table

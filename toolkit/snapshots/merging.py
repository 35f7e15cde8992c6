"""Merge a load into the stored failures: find new, changed and gone rows, and write them.

Data files are immutable. A file is written again if a row in it was replaced or is gone. Small files of a day
are merged on that occasion, when the day is over, or if there are too many of them.

For example, a snapshot has the rows a, b, c, and a load returns b (changed), c and d. Then d is added, b is
changed and a is gone. The file with a and b is written again, with b in the new version and a marked gone.
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

from toolkit.base.errors import SnapshotBindingError, SnapshotError
from toolkit.base.times import DAY_MS, from_milliseconds, milliseconds
from toolkit.loading.accounts import Account
from toolkit.loading.identities import identities
from toolkit.loading.load import Batch
from toolkit.secrets.redaction import Redactor
from toolkit.snapshots.binding import AccountTag, SeenEntries, bound_accounts
from toolkit.snapshots.coverage import (
    Coverage,
    SyncTimes,
    extended,
    overdue_note,
    with_pause,
)
from toolkit.snapshots.data_files import (
    PART_BYTES,
    STORED_FAILURES,
    Part,
    read_checked,
    stored_failures,
)
from toolkit.snapshots.manifest import (
    ListedFile,
    StoredCheckpoint,
    stored_pauses,
    stored_retention,
)
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
    concat_entries,
    day_of,
    failure_fingerprints,
    first_of_each,
    new_entries,
    repeated,
)
from toolkit.snapshots.transaction import IndexPart, Transaction
from toolkit.tables.freshness import stated_retention
from toolkit.tables.receipt import Receipt
from toolkit.tables.schemas import (
    FAILED_AT,
    FAILURES,
    FIRST_SEEN_AT,
    GONE_AFTER,
    GONE_BEFORE,
    TIME,
)
from toolkit.tables.signed_rows import BodyReader, with_signatures

SMALL_BYTES: Final = PART_BYTES // 4  # files below this are merged

SORTED_BYTES: Final = 64 << 20
"""Bytes of Arrow data that are sorted by the time of failure at once. They are in memory twice meanwhile."""

MOST_FILES: Final = 8  # small files of the current day; days that are over have one

_EARLIEST: Final = 946_684_800_000  # the year 2000: no failure is earlier

_STAYS, _ADDED, _CHANGED, _GONE = range(4)


class Binding(NamedTuple):
    """The account of a load, and how long the queue keeps entries, if the caller tells it."""

    account: Account | None = None
    rebind: bool = False
    retention: timedelta | None = None


class FileRows(NamedTuple):
    """Rows of one data file: the number of rows, and their positions (None for all)."""

    path: str
    rows: int
    positions: Positions | None


class RowComparison:
    """The destination of the rows of a sync. It compares them with the stored rows.

    Stored rows that the load returned are marked as seen; new and changed rows are kept until the commit. New
    rows are first seen `now`. Rows that are `missing` after a repair keep the time when they were first seen.
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
        self._versions: dict[bytes, bytes] | None = None
        self._oldest = self._now
        self.rows = 0
        # rows read first, and later versions of them
        self._first = _SpooledRows(Spool(transaction, FAILURES))
        self._later = _SpooledRows(Spool(transaction, FAILURES))
        if checkpoint is not None:
            self._resume(checkpoint)

    def _resume(self, checkpoint: StoredCheckpoint) -> None:
        """Continue after the rows of a checkpoint."""
        self._first.spool.files = checkpoint.files
        self._later.spool.files = checkpoint.later
        for rows in (self._first, self._later):
            for _, table in rows.spool.tables():
                self._learn_oldest(table)
                rows.remember(*self._compared(table))
        if checkpoint.seen:
            # One bit per stored row. The bits fit the index because a checkpoint
            # belongs to one generation of the snapshot.
            bits = np.frombuffer(
                read_checked(self._transaction.store, checkpoint.seen), dtype=np.uint8
            )
            self._seen = np.unpackbits(bits, count=len(self._index)).astype(bool)
        self.rows = sum(file.rows for file in checkpoint.identities)

    def is_stored(self, identities: bytes, digests: bytes) -> Mask:
        """Return which entries are stored with the same bytes, and not marked gone."""
        positions = self._index.find(as_ids(identities))
        stored: Mask = positions >= 0
        before = self._index.entries[positions[stored]]
        stored[stored] = (before["wire"] == as_ids(digests)[stored]) & ~before["gone"]
        return stored

    def add(self, batch: Batch) -> None:
        """Compare rows with the stored rows, and keep new and changed ones."""
        table = batch.table
        entries, positions = self._compared(table, batch)
        known = positions >= 0
        # `batch.stored` are entries whose bytes were equal to the stored
        # ones, so that they were not decoded at all.
        seen = np.concatenate(
            [positions[known], self._index.find(as_ids(b"".join(batch.stored)))]
        )
        if (seen < 0).any() or self._seen[seen].any() or repeated(seen):
            raise self._repeated_error()
        different = ~known
        different[known] = self._differs(entries["content"][known], positions[known])
        if different.any():
            self._keep(self._first, table, entries, positions, different)
        # Other bytes with the same content, for example with the fields in another order: remember the bytes,
        # so that the next sync need not decode them.
        self._index.learn(positions[~different], entries["wire"][~different])
        self._seen[seen] = True
        self.rows += batch.rows

    def add_later(self, table: pa.Table) -> None:
        """Keep later versions of rows that were added before, if they are different."""
        entries, positions = self._compared(table)
        versions = self._latest_versions()
        different = np.zeros(len(entries), dtype=bool)
        rows = zip(
            entries["id"].tolist(),
            entries["content"].tolist(),
            positions.tolist(),
            strict=True,
        )
        for row, (entry_id, content, position) in enumerate(rows):
            before = versions.get(entry_id)
            if before is None and position >= 0:
                before = self._index.entries["content"][position].item()
            if before != content:
                different[row] = True
                versions[entry_id] = content
        if different.any():
            self._keep(self._later, table, entries, positions, different)

    def _latest_versions(self) -> dict[bytes, bytes]:
        """Return the fingerprint of the latest version of each kept row.

        It is made when it is first needed, because a first load has millions of rows.
        """
        if self._versions is None:
            self._versions = _contents(self._first.entries.whole())
            self._versions |= _contents(self._later.entries.whole())
        return self._versions

    def _keep(
        self,
        rows: _SpooledRows,
        table: pa.Table,
        entries: Entries,
        positions: Positions,
        chosen: Mask,
    ) -> None:
        kept = table.filter(pa.array(chosen))
        self._learn_oldest(kept)
        rows.spool.add(kept)
        rows.remember(entries[chosen], positions[chosen])
        if self._versions is not None:
            self._versions |= _contents(entries[chosen])

    def _learn_oldest(self, table: pa.Table) -> None:
        """Note the earliest failure. A failure before the creation is a wrong clock: the creation counts."""
        times = (table[name].cast(pa.int64()) for name in ("created_at", "failed_at"))
        failed = pc.max_element_wise(*times, skip_nulls=False)
        oldest = pc.min(failed.filter(pc.greater(failed, _EARLIEST))).as_py()
        if oldest is not None and oldest < self._oldest:
            self._oldest = oldest

    def save(self) -> dict[str, Any]:
        """Write the kept rows, and the marks of seen rows, to disk."""
        bits = np.packbits(self._seen).tobytes()
        seen = self._transaction.pending_file(
            "bin", len(self._index), lambda file: file.write(bits)
        )
        return {
            "files": self._first.spool.save(),
            "later": self._later.spool.save(),
            "seen": seen,
        }

    def commit(self, receipt: Receipt, binding: Binding) -> dict[str, Any]:
        """Mark missing entries as gone, if the load was complete, write everything, and commit.

        Return the attributes of `Changes`, except for the store. Raise SnapshotBindingError if the load is of
        another account: nothing is written then, and the checkpoint is removed.
        """
        first = len(self._first.entries)
        accounts, note = self._bound_accounts(binding, first)
        if note:
            receipt = replace(receipt, notes=(*receipt.notes, note))
        before = self._transaction.previous
        stored = stored_retention(before.receipts if before else ())
        retention = stated_retention(binding.retention, stored)
        if retention is not None:
            receipt = replace(receipt, retention_seconds=retention.total_seconds())
        receipt, coverage = self._covered(receipt, retention)
        # The entries now become one list: first versions, then later versions of some of them. The
        # last version of an entry wins, unless it equals the stored row.
        self._first.remember(self._later.entries.whole(), self._later.positions.whole())
        entries, positions = self._first.entries.whole(), self._first.positions.whole()
        if repeated(entries["id"][:first]):
            raise self._repeated_error()
        chosen = np.ones(len(entries), bool)
        if len(entries) > first:
            chosen = _last_of_each(entries["id"])
        known = positions >= 0
        chosen[known] &= self._differs(entries["content"][known], positions[known])
        if changed := len(np.unique(entries["id"][first:])):
            duplicates = max(0, receipt.duplicates - changed)
            receipt = replace(
                receipt, changed=receipt.changed + changed, duplicates=duplicates
            )
        replaced = np.zeros(len(self._index), dtype=bool)
        replaced[positions[chosen & known]] = True
        # An interrupted load has not listed everything, so nothing can be
        # concluded from entries that it did not see.
        gone = ~self._seen & ~self._index.entries["gone"] & receipt.complete
        new = _NewRows(entries, chosen, ~known, (self._first.spool, self._later.spool))
        writer = _DayWriter(
            self._transaction,
            self._index,
            replaced,
            gone,
            new,
            receipt,
            accounts,
            coverage,
        )
        return writer.commit(self._now)

    def _bound_accounts(
        self, binding: Binding, first: int
    ) -> tuple[tuple[AccountTag, ...], str]:
        """Return the accounts to store and a note. If the account is refused, remove the checkpoint."""
        before = self._transaction.previous
        try:
            return bound_accounts(
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

    def _seen_entries(self, first: int) -> SeenEntries:
        """Compare the load with the stored entries. The first rows kept are of different entries."""
        stored = self._index.entries
        new = self._first.entries.whole()["id"][:first][
            self._first.positions.whole()[:first] < 0
        ]
        retained = int((~stored["gone"]).sum())
        again = int((self._seen & ~stored["gone"]).sum())
        loaded = int(self._seen.sum()) + len(new)
        if self._missing is not None:
            # rows that a repair did not find are also stored entries
            lost = self._missing.entries
            retained += int((~lost["gone"]).sum())
            again += int(np.isin(new, lost["id"]).sum())
        return SeenEntries(loaded=loaded, retained=retained, again=again)

    def _covered(
        self, receipt: Receipt, retention: timedelta | None
    ) -> tuple[Receipt, Coverage | None]:
        """Return the receipt with the gaps and pauses of the snapshot, and the coverage after this load."""
        before = self._transaction.previous
        coverage = before.coverage if before else None
        pauses = stored_pauses(before.receipts if before else ())
        if receipt.complete:
            sync = self._sync_times(receipt)
            coverage, gap = extended(coverage, sync, retention)
            pauses = with_pause(pauses, sync)
            if gap:
                receipt = replace(
                    receipt, notes=(*receipt.notes, overdue_note(gap, sync.began))
                )
        gaps = coverage.gaps if coverage else ()
        return replace(receipt, gaps=gaps, pauses=pauses), coverage

    def _sync_times(self, receipt: Receipt) -> SyncTimes:
        """Return the times of this load, which is complete."""
        before = self._transaction.previous
        last = None
        if before and before.complete_at:
            last = datetime.fromisoformat(before.complete_at)
        still_there = self._seen & ~self._index.entries["gone"]
        first_seen = self._index.entries["first_seen"][still_there]
        kept = timedelta()
        if len(first_seen):
            kept = timedelta(milliseconds=self._now - int(first_seen.min()))
        return SyncTimes(
            began=datetime.fromisoformat(receipt.started_at),
            last=last,
            oldest=from_milliseconds(self._oldest),
            kept=kept,
            overlaps=bool(len(first_seen)),
        )

    def _compared(
        self, table: pa.Table, batch: Batch | None = None
    ) -> tuple[Entries, Positions]:
        """Return the index entry of each row, and the position of the stored row; -1 for new rows."""
        if batch is None:
            ids = as_ids(b"".join(identities(table, KEY)))
            wire = np.zeros_like(ids)
        else:
            ids = as_ids(b"".join(batch.identities))
            wire = as_ids(b"".join(batch.digests))
        positions = self._index.find(ids)
        entries = new_entries(ids, failure_fingerprints(table), wire, self._now)
        known = positions >= 0
        entries["first_seen"][known] = self._index.entries["first_seen"][
            positions[known]
        ]
        if self._missing is not None:
            lost = self._missing.find(ids)
            entries["first_seen"][lost >= 0] = self._missing.entries["first_seen"][
                lost[lost >= 0]
            ]
        return entries, positions

    def add_unread(self, checkpoint: StoredCheckpoint) -> None:
        """Keep the rows of an interrupted load that this load did not yield: they may exist nowhere else."""
        kept_ids = self.ids
        for file in reversed((*checkpoint.files, *checkpoint.later)):
            # the latest version of a row first
            for _, table in reversed(
                list(Spool(self._transaction, FAILURES, (file,)).tables())
            ):
                entries, positions = self._compared(table)
                wanted = _last_of_each(entries["id"]) & ~np.isin(
                    entries["id"], kept_ids
                )
                wanted[positions >= 0] &= ~self._seen[positions[positions >= 0]]
                if wanted.any():
                    self._keep(self._first, table, entries, positions, wanted)
                    self._seen[positions[wanted & (positions >= 0)]] = True
                    kept_ids = np.concatenate([kept_ids, entries["id"][wanted]])

    @property
    def ids(self) -> Ids:
        """Return the ids of the kept rows."""
        return np.concatenate(
            [self._first.entries.whole()["id"], self._later.entries.whole()["id"]]
        )

    def _differs(self, content: Ids, positions: Positions) -> Mask:
        """Return whether rows differ from the stored ones, or exist again after being marked gone."""
        before = self._index.entries
        different: Mask = (before["content"][positions] != content) | before["gone"][
            positions
        ]
        return different

    def _repeated_error(self) -> SnapshotError:
        return SnapshotError(
            f"syncing the snapshot {self._transaction.store}",
            got="an entry twice in one load",
            expected="unique dlq_ids",
            next_step="Sync again. The snapshot is unchanged.",
        )


class _SpooledRows:
    """Rows to write, with the index entry of each and the position of the row that it replaces."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.entries = GrowingArray(ENTRY)
        self.positions = GrowingArray(np.int64)

    def remember(self, entries: Entries, positions: Positions) -> None:
        """Add the entries and positions of rows that are in the spool."""
        self.entries.add(entries)
        self.positions.add(positions)


def _contents(entries: Entries) -> dict[bytes, bytes]:
    return dict(zip(entries["id"].tolist(), entries["content"].tolist(), strict=True))


def _last_of_each(ids: npt.NDArray[np.bytes_]) -> Mask:
    """Return a mask of the last occurrence of each id."""
    return first_of_each(ids[::-1])[::-1].copy()


class _NewRows(NamedTuple):
    """Rows in spools, their entries, whether each is written, and whether it is of a new entry."""

    entries: Entries
    chosen: Mask
    added: Mask
    spools: tuple[Spool, ...]

    def tables(self, chosen: Mask) -> Iterator[tuple[pa.Table, Entries, Mask]]:
        """Yield the chosen rows in tables, with their entries and whether they are added."""
        start = 0
        for spool in self.spools:
            count = spool.rows
            for first, table in spool.tables(chosen[start : start + count]):
                rows = slice(start + first, start + first + table.num_rows)
                picked, entries, added = (
                    chosen[rows],
                    self.entries[rows],
                    self.added[rows],
                )
                if picked.all():  # views: a first load has millions of rows
                    yield table, entries, added
                elif picked.any():
                    yield table.filter(pa.array(picked)), entries[picked], added[picked]
            start += count


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
class _DayWriter:
    """Writes a sync, day by day; `replaced` and `gone` are masks of the stored rows."""

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
        # all files of an older version are written again, because a snapshot has one set of columns
        self.older = self.before is not None and self.before.is_older
        self.learned = self.transaction.learned
        self.reader = BodyReader(Redactor())
        self.kept: list[_StoredFile] = []
        self.written: list[_NewFile] = []
        self.waiting = _WaitingRows()

    def commit(self, now: int) -> dict[str, Any]:
        """Write all files that changed, and commit. `now` is in milliseconds since 1970."""
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
            most_files = MOST_FILES if day == today else 1
            self._write_day(day, files.get(day, []), chosen, most=most_files)
        if not self.written and not self.kept:
            self._add_empty_file(today)
        result: dict[str, Any] = {"receipt": self.receipt, "rows": self._commit()}
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
                _StoredFile(listed, slice(0, 0)) for listed in self.before.files[:1]
            ]
        if not self.kept:
            self._new_part(today)

    def _commit(self) -> int:
        """Commit, and return the number of rows in the snapshot."""
        receipt = self.receipt
        receipt_dict = receipt.to_dict()
        kept_indexes = self._unchanged_indexes()
        index = [] if kept_indexes else self._index_parts()
        manifest = self.transaction.commit(
            source=receipt.source,
            scope=receipt.scope,
            receipt=receipt_dict,
            parts=[file.part.finish(receipt_dict) for file in self.written],
            kept=tuple(file.listed for file in self.kept),
            index=index,
            kept_indexes=kept_indexes,
            complete_at=self._complete_at(),
            learned=self.learned,
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
        touched = [self.older or bool(changed[file.rows].any()) for file in files]
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
        for table, entries, added in self.new.tables(chosen):
            first_seen = pa.array(entries["first_seen"], pa.int64()).cast(TIME)
            gone_times = [pa.nulls(len(entries), TIME)] * 2
            columns = [
                *table.columns,
                first_seen,
                *gone_times,
                pa.nulls(len(entries), pa.string()),
            ]
            rows = pa.Table.from_arrays(columns, schema=STORED_FAILURES)
            self._write(day, first, rows, entries, np.where(added, _ADDED, _CHANGED))

    def _write_again(self, day: str, first: int, file: _StoredFile) -> None:
        """Write a stored file again, without replaced rows, and with gone rows marked."""
        if self.before is None:
            return
        start = file.rows.start
        for table in stored_failures(self.transaction.store, self.before, file.listed):
            rows = slice(start, start := start + table.num_rows)
            stays, gone = ~self.replaced[rows], self.gone[rows]
            if stays.any():
                marked = _mark(
                    table, gone, self.before.complete_at, self.receipt.ended_at
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
        rows, self.learned = with_signatures(rows, self.learned, self.reader)
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

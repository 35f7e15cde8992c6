"""Merge a load into the stored failures: find new, changed and gone rows.

``day_files.py`` writes them.

For example, a snapshot has the rows a, b, c, and a load returns b (changed), c and d. Then d is added, b is
changed and a is gone. The file with a and b is written again, with b in the new version and a marked gone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.errors import SnapshotBindingError, SnapshotError
from toolkit.base.times import from_milliseconds, milliseconds
from toolkit.loading.accounts import Account
from toolkit.loading.identities import identities
from toolkit.loading.load import Batch
from toolkit.snapshots.binding import AccountTag, SeenEntries, bound_accounts
from toolkit.snapshots.coverage import (
    Coverage,
    SyncTimes,
    extended,
    overdue_note,
    with_pause,
)
from toolkit.snapshots.data_files import (
    read_checked,
)
from toolkit.snapshots.day_files import DayWriter
from toolkit.snapshots.manifest import (
    StoredCheckpoint,
    stored_pauses,
    stored_retention,
)
from toolkit.snapshots.new_rows import NewRows
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
    failure_fingerprints,
    first_of_each,
    new_entries,
    repeated,
)
from toolkit.snapshots.sync_times import last_complete
from toolkit.snapshots.transaction import Transaction
from toolkit.tables.freshness import stated_retention
from toolkit.tables.receipt import Gap, Receipt
from toolkit.tables.schemas import (
    FAILURES,
)

_EARLIEST: Final = 946_684_800_000  # the year 2000: no failure is earlier


class Binding(NamedTuple):
    """The account of a load, and how long the queue keeps entries, if the caller tells it."""

    account: Account | None = None
    rebind: bool = False
    retention: timedelta | None = None


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
        new = NewRows(entries, chosen, ~known, (self._first.spool, self._later.spool))
        writer = DayWriter(
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
        coverage = None
        if before:
            coverage = before.coverage
        pauses = stored_pauses(before.receipts if before else ())

        if receipt.complete:
            sync = self._sync_times(receipt)
            coverage, gap = extended(coverage, sync, retention)
            pauses = with_pause(pauses, sync)

            if gap:
                receipt = replace(
                    receipt, notes=(*receipt.notes, overdue_note(gap, sync.began))
                )

        gaps: tuple[Gap, ...] = ()
        if coverage:
            gaps = coverage.gaps
        return replace(receipt, gaps=gaps, pauses=pauses), coverage

    def _sync_times(self, receipt: Receipt) -> SyncTimes:
        """Return the times of this load, which is complete."""
        before = self._transaction.previous
        began = datetime.fromisoformat(receipt.started_at)
        last = None
        is_set_back = False
        if before and before.complete_at:
            last = last_complete(before, began)
            is_set_back = began < datetime.fromisoformat(before.complete_at)

        still_there = self._seen & ~self._index.entries["gone"]
        first_seen = self._index.entries["first_seen"][still_there]
        overlaps = bool(len(first_seen))
        if before and before.coverage:
            # an earlier time is of a clock that was wrong
            first_seen = first_seen[first_seen >= before.coverage.earliest_ms]
        kept = timedelta()
        if len(first_seen):
            kept = timedelta(milliseconds=self._now - int(first_seen.min()))
        return SyncTimes(
            began=began,
            last=last,
            oldest=from_milliseconds(self._oldest),
            kept=kept,
            overlaps=overlaps,
            is_set_back=is_set_back,
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

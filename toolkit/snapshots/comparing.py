"""Comparing a load with the failures at rest: what is new, what changed, what is gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.errors import SnapshotError
from toolkit.loading.identities import identities
from toolkit.loading.load import Batch
from toolkit.receipt import Receipt
from toolkit.snapshots.changes import Changes
from toolkit.snapshots.checkpoint import Resting, read_whole
from toolkit.snapshots.commit import Transaction
from toolkit.snapshots.fingerprints import fingerprints
from toolkit.snapshots.index import ENTRY, KEY, Entries, Ids, Index, new_entries
from toolkit.snapshots.merging import Fresh, Merge, milliseconds
from toolkit.snapshots.repairing import Repair
from toolkit.snapshots.spool import WAITING_BYTES, Spool
from toolkit.tables.schemas import FAILURES

_Mask = npt.NDArray[np.bool_]
_Places = npt.NDArray[np.int64]


class Comparison:
    """One sync under way: which rows at rest were seen, and which rows are to be written.

    Parameters
    ----------
    transaction : Transaction
        The hold on the snapshot.
    index : Index
        What is at rest.
    now : datetime
        When rows seen for the first time are said to be seen.
    resting : Resting, optional
        The checkpoint to go on from.
    waiting_bytes : int
        Bytes of Arrow data that wait in memory at most.
    repair : Repair, optional
        What was lost: rows that come again keep when they were first seen.
    """

    def __init__(
        self,
        transaction: Transaction,
        index: Index,
        now: datetime,
        *,
        resting: Resting | None = None,
        waiting_bytes: int = WAITING_BYTES,
        repair: Repair | None = None,
    ) -> None:
        self._transaction = transaction
        self._repair = repair
        self._index = index
        self._now = milliseconds(now)
        self._seen: _Mask = np.zeros(len(index), dtype=bool)
        rested = (resting.files, resting.later) if resting else ((), ())
        self._first, self._later = (
            _Kept(Spool(transaction, FAILURES, files=files, waiting_bytes=waiting_bytes)) for files in rested
        )
        self._known: dict[bytes, bytes] = {}
        self.rows = 0
        if resting is not None:
            for kept in (self._first, self._later):
                for _, table in kept.spool.tables():
                    kept.know(*self._compared(table))
            if resting.seen:
                bits = np.frombuffer(read_whole(transaction.folder, resting.seen), dtype=np.uint8)
                self._seen = np.unpackbits(bits, count=len(index)).astype(bool)
            self.rows = sum(file.rows for file in resting.identities)

    def is_stored(self, identities: bytes, digests: bytes) -> _Mask:
        """Which entries are stored, and not gone, in the same bytes."""
        places = self._index.find(_items(identities))
        found: _Mask = places >= 0
        before = self._index.entries[places[found]]
        found[found] = (before["wire"] == _items(digests)[found]) & ~before["gone"]
        return found

    def take(self, batch: Batch) -> None:
        """Compare rows with those at rest; keep the new and the changed ones."""
        table = batch.table
        entries, places = self._compared(table, batch)
        known = places >= 0
        seen = np.concatenate([places[known], self._index.find(_items(b"".join(batch.stored)))])
        if (seen < 0).any() or self._seen[seen].any() or _repeated(seen):
            raise self._twice()
        different = ~known
        different[known] = self._differs(entries[known], places[known])
        if different.any():
            mask = pa.array(different)
            self._first.add(table.filter(mask), entries[different], places[different])
        self._index.learn(places[~different], entries["wire"][~different])
        self._seen[seen] = True
        self.rows += table.num_rows + len(batch.stored)

    def take_later(self, table: pa.Table) -> None:
        """Keep the later versions of rows that were taken before, if they are other ones."""
        entries, places = self._compared(table)
        known = self._versions()
        different = np.zeros(len(entries), dtype=bool)
        rows = zip(entries["id"].tolist(), entries["content"].tolist(), places.tolist(), strict=True)
        for row, (found, content, place) in enumerate(rows):
            before = known.get(found)
            if before is None and place >= 0:
                before = self._index.entries["content"][place].item()
            if before != content:
                different[row], known[found] = True, content
        if different.any():
            self._later.add(table.filter(pa.array(different)), entries[different], places[different])

    def rest(self) -> dict[str, Any]:
        """Bring the rows kept, and which rows at rest were seen, to the disk."""
        with self._transaction.new_resting("bin") as file:
            file.file.write(np.packbits(self._seen).tobytes())
            seen = file.finish(rows=len(self._index))
        return {"files": self._first.spool.rest(), "later": self._later.spool.rest(), "seen": seen}

    def finish(self, receipt: Receipt) -> Changes:
        """Mark what is gone, if the load can tell, and commit."""
        if self._repair is not None:
            if self._repair.resting is not None:
                self._take_waiting(self._repair.resting)
            ids = np.concatenate([self._first.entries["id"], self._later.entries["id"]])
            receipt = replace(receipt, notes=(*receipt.notes, self._repair.note(ids)))
        entries = np.concatenate([self._first.entries, self._later.entries])
        places = np.concatenate([self._first.places, self._later.places])
        if _repeated(self._first.entries["id"]):
            raise self._twice()
        chosen = _last_of_each(entries["id"])
        chosen[places >= 0] &= self._differs(entries[places >= 0], places[places >= 0])
        if len(self._later.entries):
            receipt = self._settled(receipt)
        replaced = np.zeros(len(self._index), dtype=bool)
        replaced[places[chosen & (places >= 0)]] = True
        gone = ~self._seen & ~self._index.entries["gone"] & receipt.complete
        fresh = Fresh(entries, chosen, places < 0, (self._first.spool, self._later.spool))
        return Merge(self._transaction, self._index, replaced, gone, fresh, receipt).commit(self._now)

    def _versions(self) -> dict[bytes, bytes]:
        """Fingerprints of the latest version of each row kept, by those of the ids."""
        for kept in (self._first, self._later):
            for entries in kept.news():
                self._known.update(zip(entries["id"].tolist(), entries["content"].tolist(), strict=True))
        return self._known

    def _compared(self, table: pa.Table, batch: Batch | None = None) -> tuple[Entries, _Places]:
        """What is remembered of each row, and its place at rest; -1 for new ones."""
        found = batch.identities if batch else identities(table, KEY)
        ids = _items(b"".join(found))
        wire = _items(b"".join(batch.digests)) if batch else np.zeros_like(ids)
        places = self._index.find(ids)
        entries = new_entries(ids, fingerprints(table), wire, self._now)
        known = places >= 0
        entries["first_seen"][known] = self._index.entries["first_seen"][places[known]]
        if self._repair is not None:
            lost = self._repair.missing.find(ids)
            entries["first_seen"][lost >= 0] = self._repair.missing.entries["first_seen"][lost[lost >= 0]]
        return entries, places

    def _take_waiting(self, resting: Resting) -> None:
        """Keep the rows of a stopped load that this load did not give: they may be nowhere else any more."""
        given = np.concatenate([self._first.entries["id"], self._later.entries["id"]])
        for file in reversed((*resting.files, *resting.later)):  # the latest version of a row first
            for _, table in reversed(list(Spool(self._transaction, FAILURES, files=(file,)).tables())):
                entries, places = self._compared(table)
                wanted = _last_of_each(entries["id"]) & ~np.isin(entries["id"], given)
                wanted[places >= 0] &= ~self._seen[places[places >= 0]]
                if wanted.any():
                    self._first.add(table.filter(pa.array(wanted)), entries[wanted], places[wanted])
                    self._seen[places[wanted & (places >= 0)]] = True
                    given = np.concatenate([given, entries["id"][wanted]])

    def _differs(self, entries: Entries, places: _Places) -> _Mask:
        """Whether rows have another content than at rest, or are back after having been gone."""
        before = self._index.entries[places]
        different: _Mask = (before["content"] != entries["content"]) | before["gone"]
        return different

    def _settled(self, receipt: Receipt) -> Receipt:
        """The receipt, with what came again counted as changed where its content did."""
        changed = len(np.unique(self._later.entries["id"]))
        return replace(
            receipt, changed=receipt.changed + changed, duplicates=max(0, receipt.duplicates - changed)
        )

    def _twice(self) -> SnapshotError:
        return SnapshotError(
            f"syncing the snapshot {self._transaction.folder}",
            got="an entry twice in one load",
            expected="each dlq_id once",
            next_step="Sync again. The snapshot is as it was.",
        )


class _Kept:
    """Rows that are to be written, and what is remembered of each."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self._entries: list[Entries] = []
        self._told = 0
        self._places: list[_Places] = []

    def add(self, table: pa.Table, entries: Entries, places: _Places) -> None:
        """Keep rows."""
        self.spool.add(table)
        self.know(entries, places)

    def know(self, entries: Entries, places: _Places) -> None:
        """Remember rows that the spool has already."""
        self._entries.append(entries)
        self._places.append(places)

    def news(self) -> list[Entries]:
        """What was remembered since this was asked last."""
        since, self._told = self._told, len(self._entries)
        return self._entries[since:]

    @property
    def entries(self) -> Entries:
        """One a row, in order."""
        return np.concatenate([np.zeros(0, dtype=ENTRY), *self._entries])

    @property
    def places(self) -> _Places:
        """Places of the rows at rest that they replace; -1 for new ones."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self._places])


def _last_of_each(ids: npt.NDArray[np.bytes_]) -> _Mask:
    """Whether an id does not come again further on."""
    last = np.zeros(len(ids), dtype=bool)
    last[len(ids) - 1 - np.unique(ids[::-1], return_index=True)[1]] = True
    return last


def _items(joined: bytes) -> Ids:
    return np.frombuffer(joined, dtype=ENTRY["id"])


def _repeated(values: npt.NDArray[Any]) -> bool:
    return len(np.unique(values)) != len(values)

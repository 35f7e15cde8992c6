"""Bringing a failure snapshot up to date with the service, and restoring what it has lost.

A repair keeps readable rows and loads the rest from the queue. Where the index is whole, a row is accepted
when its id and content are those that were stored. What is not found is removed from the index, so that the
load adds it again, with the time it was first seen. Nothing changes before the commit of the sync, and lost
files are kept under another name.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from toolkit import arguments
from toolkit.client.failures import Kind
from toolkit.errors import IncompleteLoadWarning, SnapshotDamagedError, SnapshotError
from toolkit.filters.failure import FailureFilter
from toolkit.loading.failures import open_failures, warn_of_mistaken_values
from toolkit.loading.load import Load
from toolkit.loading.options import CONNECTIONS, LoadOptions, ProgressOption
from toolkit.receipt import Receipt, facts_html
from toolkit.settings.service import Service
from toolkit.snapshots import data_files
from toolkit.snapshots.data_files import PART_BYTES, STORED_FAILURES, DataFile, Part
from toolkit.snapshots.manifest import REPAIRED, ListedFile, Manifest, StoredCheckpoint, repairs
from toolkit.snapshots.merging import Binding, FileRows, RowComparison
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.resumable import ResumableLoad
from toolkit.snapshots.row_index import (
    ENTRY,
    Entries,
    Ids,
    RowIndex,
    concat_entries,
    day_of,
    entries_of,
    first_of_each,
    read_index,
)
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.transaction import (
    Damage,
    Transaction,
    WriteOptions,
    begin,
    damages,
    raise_for_damage,
)
from toolkit.tables.frames import to_frame
from toolkit.times import from_milliseconds, parse_duration
from toolkit.visible_text import visible

_ROWS: Final = 1_000  # rows read at once by a repair: those before a damaged page are kept

_MOST_BYTES: Final = 4 * PART_BYTES  # of a longer file, the end as it was written is not looked for


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Changes:
    """What a sync found. The frames are read from the snapshot when they are first used.

    Attributes
    ----------
    receipt : Receipt
        Of the load. Nothing is marked gone unless it is complete.
    rows : int
        Rows in the snapshot now, including those marked gone.
    lost : int
        Rows that a repair did not bring back; at most, if the index was lost, too.
    store : SnapshotStore
        Where the snapshot is stored.
    added_rows, changed_rows, gone_rows : tuple of FileRows
        Where in its files the rows of the frames are.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import sync_failures
    >>> with TemporaryDirectory() as folder:
    ...     changes = sync_failures(service, f"{folder}/failures", progress=False)
    ...     len(changes.added), len(changes.changed), len(changes.gone)
    (5000, 0, 0)
    """

    receipt: Receipt
    rows: int
    lost: int = 0
    store: SnapshotStore = field(repr=False)
    added_rows: tuple[FileRows, ...]
    changed_rows: tuple[FileRows, ...]
    gone_rows: tuple[FileRows, ...]

    @cached_property
    def added(self) -> pd.DataFrame:
        """Entries never seen before: as in a failures frame, `first_seen_at`, `gone_after`, `gone_before`."""
        return self._frame(self.added_rows)

    @cached_property
    def changed(self) -> pd.DataFrame:
        """Entries with new content, as they are now, and those that exist again after being marked gone."""
        return self._frame(self.changed_rows)

    @cached_property
    def gone(self) -> pd.DataFrame:
        """Entries no longer there, as last seen; they left between `gone_after` and `gone_before`."""
        return self._frame(self.gone_rows)

    @property
    def counts(self) -> dict[str, int]:
        """How many were added, changed and gone, without reading them."""
        counts = {"added": self.added_rows, "changed": self.changed_rows, "gone": self.gone_rows}
        return {name: sum(some.rows for some in files) for name, files in counts.items()}

    @property
    def verdict(self) -> str:
        """One sentence: counts, what a repair did, what expired, and why nothing was marked gone, if so."""
        counted = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        repaired = (REPAIRED + repair for repair in repairs((self.receipt.to_dict(),)))
        counted = "; ".join((counted, *repaired, *self.receipt.overdue))
        if self.receipt.complete:
            return counted
        return f"{counted} (the load is not complete, so nothing was marked gone)"

    def __repr__(self) -> str:
        return visible(f"Changes({self.verdict}; {self.rows:,} rows in {self.store}; {self.receipt.verdict})")

    def _repr_html_(self) -> str:
        facts = {
            **{name: f"{count:,}" for name, count in self.counts.items()},
            "rows in the snapshot": f"{self.rows:,}",
            "snapshot": str(self.store),
            "load": self.receipt.verdict,
        }
        return facts_html(self.verdict, facts.items())

    def _frame(self, files: tuple[FileRows, ...]) -> pd.DataFrame:
        tables = [self._table(rows) for rows in files if rows.rows]
        return to_frame(pa.concat_tables(tables) if tables else STORED_FAILURES.empty_table(), self.receipt)

    def _table(self, rows: FileRows) -> pa.Table:
        try:
            with self.store.open(rows.path) as file:
                table = pq.read_table(file).replace_schema_metadata(None)
        except FileNotFoundError:
            raise SnapshotError(
                f"reading the changes of the snapshot {self.store}",
                got="files that a later sync has replaced",
                expected="the files this sync wrote",
                next_step="Read .added, .changed and .gone before the next sync, or read the snapshot.",
            ) from None
        return table if rows.positions is None else table.take(pa.array(rows.positions))


def sync_failures(
    service: Service,
    path: str | os.PathLike[str],
    *,
    filter: FailureFilter | None = None,  # noqa: A002 - the name users expect
    kind: Kind = "workflows",
    progress: ProgressOption = None,
    connections: int = CONNECTIONS,
    requests_per_second: float | None = None,
    passes: int = 1,
    filesystem: FileSystem | None = None,
    repair: bool = False,
    rebind: bool = False,
    retention: str | timedelta | None = None,
) -> Changes:
    """Bring a snapshot of the dead letter queue up to date, and say what is new, changed and gone.

    Everything the service retains is listed each time and compared with what is stored: an entry older than
    any seen before can appear later, so there is no timestamp to start from. Entries in the same bytes as
    before are not decoded again. New and changed rows are written; an entry that is no longer there keeps its
    row, with the times between which it went, and is unmarked when it comes back. Nothing expires here.

    Parameters
    ----------
    service : Service
        From `connect`.
    path : str or path
        A folder, or an address such as ``s3://bucket/prefix``: new or empty, or the snapshot of an earlier
        sync of the same service, kind and filter.
    filter : FailureFilter, optional
        Which entries. Default: all. A filter with an age (``since="7d"``) means other times at each call, so
        a second sync with it needs another folder.
    kind : {"workflows", "messages"}
        Failed workflow runs, or failed plain messages.
    progress, connections, requests_per_second, passes
        As in `load_failures`.
    filesystem : pyarrow.fs.FileSystem, optional
        Where the path is, if not on the local disk.
    repair : bool
        Restore what a damaged snapshot has lost. Rows that can still be read are kept, entries that are
        still in the queue are added again, with the time they were first seen, and the receipt's notes and
        `verify_snapshot` say what stayed lost. Lost files are kept next to the snapshot, as ``_….lost``.
        Every byte is compared, which takes as long as `verify_snapshot`.
    rebind : bool
        Accept the token for this snapshot, whatever the entries show: once, after the token was rotated and
        all entries of the last sync have left the queue.
    retention : str or timedelta, optional
        How long the service keeps failures by your plan, such as ``"3d"``. It bounds the gap that remains if
        the last complete sync is longer ago. Default: not known; three days are then taken for granted, and
        longer times as far as earlier syncs show them.

    Returns
    -------
    Changes
        ``.added``, ``.changed`` and ``.gone`` are frames with the columns of `load_failures`,
        `first_seen_at`, `gone_after` and `gone_before` (datetime64[ms, UTC]). An entry left the queue between
        the latter two, which are null while it is there. ``.receipt`` is the load's.

    Raises
    ------
    SnapshotBindingError
        When the snapshot belongs to another service, account, kind or filter: such a load would mark
        everything else gone. See the notes. Nothing is written.
    SnapshotLockedError, SnapshotConflictError
        When another writer holds the snapshot; when it changed it meanwhile, where no lock keeps it out.
    SnapshotDamagedError
        When a file is missing, has another size, or was changed since it was written. It says which rows are
        lost. See `repair`.
    SnapshotError
        When the disk refuses.
    ServiceError
        When the load fails. After any error the snapshot is as it was, and the next call resumes the load.

    Warns
    -----
    IncompleteLoadWarning
        When entries changed while they were read. What is new is then written, but nothing is marked gone.

    Notes
    -----
    What is read is stored in a checkpoint next to the snapshot, every half minute and when an error or Ctrl-C
    stops the load. The same call within a day resumes from there; the receipt counts that as `resumed`.

    A snapshot is bound to the account by a keyed hash of the token, as all accounts of a region share one
    address. Another token is accepted, with a note in the receipt, when at least a tenth of the entries show
    that it reads the same queue; otherwise it is refused, and the error says what to do. With another masking
    key (another user, a new home folder) tokens cannot be compared: then a sync is refused when all entries
    of the last one are gone and others are there.

    If the last complete sync is longer ago than the queue keeps failures, those that expired in between were
    never read. The receipt's `gaps` names such spans and its verdict the latest, `read_snapshot` returns them
    with the frame, and they are left out of usual rates. There is no gap as long as an entry of the last sync
    is still in the queue.

    Of an entry that changes while it is read, the version read last is written. Header values and URLs are
    masked with the key of this user: another user's sync of the same folder sees them all as changed.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> changes = sync_failures(service, mkdtemp() + "/failures")
    >>> len(changes.added), len(changes.changed), len(changes.gone)
    (5000, 0, 0)
    """
    load = open_failures(
        service,
        filter,
        LoadOptions(
            progress=progress, connections=connections, requests_per_second=requests_per_second, passes=passes
        ),
        kind=kind,
    )
    repair = arguments.flag("repair", repair)
    changes = sync_load(
        load,
        open_store(path, filesystem),
        repair=repair,
        rebind=arguments.flag("rebind", rebind),
        retention=None if retention is None else parse_duration(retention, name="retention"),
    )
    if filter is not None and not changes.rows:  # rows of an earlier sync show that the filter is right
        warn_of_mistaken_values(service, filter, kind, stacklevel=3)
    if not changes.receipt.complete:
        warnings.warn(changes.verdict, IncompleteLoadWarning, stacklevel=2)
    return changes


def sync_load(
    load: Load,
    store: SnapshotStore,
    *,
    repair: bool = False,
    rebind: bool = False,
    retention: timedelta | None = None,
    **options: Any,
) -> Changes:
    """Bring a failure snapshot up to date with a load of everything retained; `options` of `WriteOptions`."""
    binding = Binding(load.plan.account, rebind, retention)
    with begin(store, "failures", WriteOptions(**options)) as transaction:
        transaction.bind(load.plan.source, load.plan.scope)
        before = transaction.previous
        lost = damages(store, before, every_byte=repair) if before else ()
        repaired: _Repair | None = None
        if before is None or not lost:
            transaction.remove_leftovers()
        elif repair:
            repaired = _Repair(transaction, before, lost)
        else:
            raise_for_damage(store, before, lost)
        resumable = ResumableLoad(transaction, load, checkpoints=repaired is None)
        comparison = RowComparison(
            transaction,
            repaired.index if repaired else read_index(store, transaction.previous),
            resumable.began,
            checkpoint=resumable.checkpoint,
            missing=repaired.missing if repaired else None,
        )
        receipt = resumable.read(comparison, is_stored=comparison.is_stored)
        if repaired:
            if repaired.checkpoint:
                comparison.add_unread(repaired.checkpoint)
            receipt = replace(receipt, notes=(*receipt.notes, repaired.note(comparison.ids)))
        rows_lost = repaired.rows_lost(comparison.ids) if repaired else 0
        return Changes(store=store, lost=rows_lost, **comparison.commit(receipt, binding))


class _Repair:
    """What is left of the lost files, in new files: `index` is of these and of those that are not lost.

    Where the index is whole, `missing` are the entries of rows that were not found. `checkpoint` is that of a
    stopped load of the same scope, however old.
    """

    def __init__(self, transaction: Transaction, before: Manifest, lost: tuple[Damage, ...]) -> None:
        self._transaction = transaction
        self._store = transaction.store
        self._before = before
        self._lost = lost
        self._left = [damage.listed.path for damage in lost if damage.present and not damage.is_index]
        self._leftovers = transaction.leftovers()
        self._kept_as = [self._keep(damage.listed.path) for damage in lost if damage.present]
        self._recovered = 0
        self.index, self.missing = self._indexes({damage.listed.path for damage in lost})
        self.checkpoint = self._fitting_checkpoint()

    def note(self, ids: Ids) -> str:
        """What the receipt says of it, when the load returned rows with these ids."""
        data = [damage.listed for damage in self._lost if not damage.is_index]
        rows = sum(listed.rows for listed in data)
        parts: list[str] = []
        if data:
            parts.append(
                f"{len(data):,} of {len(self._before.files):,} data files were lost, with {rows:,} rows"
            )
            parts.append(f"{self._recovered:,} rows were recovered from what is left of them")
        if data and len(self.missing) == rows - self._recovered:
            back = np.isin(self.missing.entries["id"], ids)
            parts.append(f"{int(back.sum()):,} were added again from the queue")
            parts.append(f"{int((~back).sum()):,} stayed lost{_times(self.missing.entries[~back])}")
        elif data:
            parts.append(f"{rows - self._recovered:,} are lost unless the queue still had them")
        if any(damage.is_index for damage in self._lost):
            parts.append("the index was lost and made again from the rows")
        kept = f"the lost files are kept as {', '.join(self._kept_as)}"
        parts.append(kept if self._kept_as else "nothing of the lost files is left to keep")
        return REPAIRED + "; ".join(parts)

    def rows_lost(self, ids: Ids) -> int:
        """Return how many rows stayed lost, when the load returned rows with these ids."""
        rows = sum(damage.listed.rows for damage in self._lost if not damage.is_index)
        if len(self.missing) == rows - self._recovered:
            return int((~np.isin(self.missing.entries["id"], ids)).sum())
        return rows - self._recovered

    def _indexes(self, lost: set[str]) -> tuple[RowIndex, RowIndex]:
        """The index of the rows that are there again, and of those that are missing."""
        before = self._before
        stored: dict[str, Entries] = {}  # by file, where the index is whole
        if before.index is not None and before.index.path not in lost and not before.is_older:
            everything = read_index(self._store, before).entries
            stored = {listed.path: everything[rows] for listed, rows in before.slices}
        present = {
            listed.path: stored[listed.path]
            if stored
            else concat_entries(map(entries_of, self._rows_of(listed)))
            for listed in before.files
            if listed.path not in lost
        }
        known = concat_entries(present.values())["id"]
        files: list[ListedFile] = []
        entries: list[Entries] = []
        missing: list[Entries] = []
        for listed in before.files:
            if listed.path in present:
                files.append(listed)
                entries.append(present[listed.path])
                continue
            wanted = stored.get(listed.path)
            found, written = self._recover(listed, wanted, known)
            if written is not None:
                files.append(written)
                entries.append(found)
                self._recovered += len(found)
                known = np.concatenate([known, found["id"]])
            if wanted is not None:
                missing.append(wanted[~np.isin(wanted["id"], found["id"])])
        index = RowIndex(concat_entries(entries).copy())
        index.has_learned = True  # so that it is written
        self._transaction.previous = msgspec.structs.replace(before, files=tuple(files), index=None)
        return index, RowIndex(concat_entries(missing))

    def _rows_of(self, listed: ListedFile) -> Iterator[pa.Table]:
        return data_files.stored_failures(self._store, self._before, listed)

    def _keep(self, path: str) -> str:
        """Copy a lost file to a name that no reader treats as data and no writer removes."""
        folder, slash, last = path.rpartition("/")
        name = f"{folder}{slash}_{last.lstrip('_')}.lost"
        self._store.copy(path, name)
        return name

    def _recover(
        self, listed: ListedFile, stored: Entries | None, known: Ids
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
            if data_files.extension_column(parquet.schema_arrow):
                return
            for number in range(parquet.num_row_groups):
                with suppress(*broken):
                    for batch in parquet.iter_batches(batch_size=_ROWS, row_groups=[number]):
                        rows = pa.Table.from_batches([batch]).replace_schema_metadata(None)
                        if self._before.is_older and not rows.schema.equals(STORED_FAILURES):
                            rows = data_files.current_columns(rows, "failures")
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

    def _fitting_checkpoint(self) -> StoredCheckpoint | None:
        checkpoint = self._transaction.checkpoint
        if checkpoint is None:
            return None
        expected = {"kind": "failures", "source": self._before.source, "scope": self._before.scope}
        if checkpoint.mismatch_reason(expected=expected, now=datetime.fromisoformat(checkpoint.written_at)):
            return None
        checkpoint = self._transaction.located(checkpoint)
        files = (*checkpoint.files, *checkpoint.later)
        return None if any(data_files.problem_of(self._store, file) for file in files) else checkpoint


def _times(entries: Entries) -> str:
    if not len(entries):
        return ""
    ends = (entries["first_seen"].min(), entries["first_seen"].max())
    times = (from_milliseconds(int(time)) for time in ends)
    first, last = (time.isoformat(timespec="seconds") for time in times)
    return f" (first seen {first}{f' to {last}' if last != first else ''})"

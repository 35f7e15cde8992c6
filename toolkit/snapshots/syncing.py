"""Bring a failure snapshot up to date with the service.

`sync_failures` lists everything that the service retains and compares it with the stored rows. If files of
the snapshot are damaged, it raises, or repairs the snapshot if you ask for it (`snapshots.repairing`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from toolkit.base import arguments
from toolkit.base.errors import IncompleteLoadWarning, SnapshotError
from toolkit.base.progress import ProgressOption
from toolkit.base.times import parse_duration
from toolkit.base.visible_text import visible
from toolkit.filters.failure import FailureFilter
from toolkit.loading.failures import open_failures, warn_of_mistaken_values
from toolkit.loading.load import Load
from toolkit.loading.options import CONNECTIONS, LoadOptions
from toolkit.service.failures import Kind
from toolkit.service.settings import Service
from toolkit.snapshots.data_files import STORED_FAILURES
from toolkit.snapshots.day_files import FileRows
from toolkit.snapshots.manifest import REPAIRED, repairs
from toolkit.snapshots.merging import Binding, RowComparison
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.repairing import Repair
from toolkit.snapshots.resumable import ResumableLoad
from toolkit.snapshots.row_index import read_index
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
from toolkit.tables.receipt import Receipt, facts_html


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Changes:
    """The result of a sync. The frames are read from the snapshot when you first use them.

    Attributes
    ----------
    receipt : Receipt
        Receipt of the load. Nothing is marked gone unless it is complete.
    rows : int
        Rows in the snapshot now, including rows marked gone.
    lost : int
        Rows that a repair did not bring back. It is an upper limit if the index was lost as well.
    store : SnapshotStore
        Store of the snapshot.
    added_rows, changed_rows, gone_rows : tuple of FileRows
        Positions of the rows of the frames in the files of the snapshot.
    joined : mapping
        Ids of groups that became part of another group, and the id of the other one. Rules for these ids
        still apply.

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
    joined: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def added(self) -> pd.DataFrame:
        """Read entries never seen before: a failures frame, `first_seen_at`, `gone_after`, `gone_before`."""
        return self._frame(self.added_rows)

    @cached_property
    def changed(self) -> pd.DataFrame:
        """Read entries with new content, in the new version, and gone entries that exist again."""
        return self._frame(self.changed_rows)

    @cached_property
    def gone(self) -> pd.DataFrame:
        """Read entries that left the queue between `gone_after` and `gone_before`, as last seen."""
        return self._frame(self.gone_rows)

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of added, changed and gone entries, without reading them."""
        return {
            "added": sum(rows.rows for rows in self.added_rows),
            "changed": sum(rows.rows for rows in self.changed_rows),
            "gone": sum(rows.rows for rows in self.gone_rows),
        }

    @property
    def verdict(self) -> str:
        """Return one sentence with the counts, repairs and expired entries.

        If the load is incomplete, it explains that nothing was marked gone.
        """
        counted = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        repaired = (REPAIRED + repair for repair in repairs((self.receipt.to_dict(),)))
        joined = []
        if self.joined:
            joined.append(f"groups joined with others: {len(self.joined):,}")
        counted = "; ".join((counted, *joined, *repaired, *self.receipt.overdue))
        if self.receipt.complete:
            return counted

        return f"{counted} (the load is not complete, so nothing was marked gone)"

    def __repr__(self) -> str:
        return visible(
            f"Changes({self.verdict}; {self.rows:,} rows in {self.store}; {self.receipt.verdict})"
        )

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
        if not tables:
            tables = [STORED_FAILURES.empty_table()]
        return to_frame(pa.concat_tables(tables), self.receipt)

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

        if rows.positions is None:
            return table

        return table.take(pa.array(rows.positions))


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
    """Bring a snapshot of the dead letter queue up to date, and return new, changed and gone entries.

    Each sync lists everything that the service retains and compares it with the stored rows: an old entry can
    appear late, so a sync cannot start from a timestamp. Entries with the same bytes as before are not
    decoded again. New and changed rows are written. If an entry has left the queue, the row stays and is
    marked gone, with the times between which it left; the mark is removed if it comes back. Rows in a
    snapshot never expire.

    Parameters
    ----------
    service : Service
        From `connect`.
    path : str or path
        A folder, or an address such as ``s3://bucket/prefix``: new or empty, or the snapshot of an earlier
        sync of the same service, kind and filter.
    filter : FailureFilter, optional
        Filter. If omitted, all retained entries are loaded. A filter with an age (``since="7d"``) means other
        times at each call, so a second sync with it needs another folder.
    kind : {"workflows", "messages"}
        Failed workflow runs, or failed plain messages.
    progress, connections, requests_per_second, passes
        As in `load_failures`.
    filesystem : pyarrow.fs.FileSystem, optional
        File system of the path, if it is not on the local disk.
    repair : bool
        Restore a damaged snapshot. Rows that can still be read are kept. Lost entries that are still in the
        queue are added again, with the time when they were first seen. The notes of the receipt and
        `verify_snapshot` report the rows that stayed lost. Lost files are kept next to the snapshot, as
        ``_….lost``. Every byte is compared, which takes as long as `verify_snapshot`.
    rebind : bool
        Accept the token for this snapshot in any case. Use it once, after the token was rotated and all
        entries of the last sync have left the queue.
    retention : str or timedelta, optional
        How long the service keeps failures by your plan, for example ``"3d"``. It limits the gap that remains
        if the last complete sync is longer ago. It is stored: reports, plans and expiries of the snapshot use
        it. If omitted, the value of an earlier sync is used, then ``TOOLKIT_RETENTION``. Without any of them,
        three days are assumed, or a longer time if earlier syncs show that the queue keeps entries longer.

    Returns
    -------
    Changes
        ``.added``, ``.changed`` and ``.gone`` are frames with the columns of `load_failures`,
        `first_seen_at`, `gone_after` and `gone_before` (datetime64[ms, UTC]). An entry left the queue between
        the latter two, which are null while it is in the queue. ``.receipt`` is the receipt of the load.

    Raises
    ------
    SnapshotBindingError
        If the snapshot belongs to another service, account, kind or filter: the load would mark all other
        entries as gone. See the notes. Nothing is written.
    SnapshotLockedError, SnapshotConflictError
        If another writer has locked the snapshot; in an object store, which has no locks, if another writer
        changed it meanwhile.
    SnapshotDamagedError
        If a file is missing, has another size, or was changed since it was written. The error names the lost
        rows. See `repair`.
    SnapshotError
        If writing fails, for example because the disk is full.
    ServiceError
        When the load fails. After any error the snapshot is unchanged, and the next call resumes the load.

    Warns
    -----
    IncompleteLoadWarning
        If entries changed while they were read. New rows are then written, but nothing is marked gone.

    Notes
    -----
    The rows read so far are stored in a checkpoint next to the snapshot, every half minute and if an error or
    Ctrl-C stops the load. If you make the same call within a day, it resumes from there; the receipt counts
    these rows as `resumed`.

    A snapshot is bound to the account by a keyed hash of the token, because all accounts of a region share
    one address. Another token is accepted, with a note in the receipt, if at least a tenth of the entries
    show that it reads the same queue; otherwise it is refused, and the error tells what to do. With another
    masking key (another user, a new home folder) tokens cannot be compared: a sync is then refused if all
    entries of the last sync are gone and others are in the queue.

    If the last complete sync is longer ago than the queue keeps failures, entries that expired in between
    were never read. These gaps are in `gaps` of the receipt, and the verdict names the latest one.
    `read_snapshot` returns them with the frame, and they are left out of usual rates. As long as an entry of
    the last sync is still in the queue, the snapshot has no gap.

    If an entry changes while it is read, the latest version is written. Header values and URLs are masked
    with the key of this user: if another user syncs the same folder, all rows are changed.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> changes = sync_failures(service, mkdtemp() + "/failures")
    >>> len(changes.added), len(changes.changed), len(changes.gone)
    (5000, 0, 0)
    """
    if filter is not None:
        expected = "a FailureFilter, for example FailureFilter(label='billing')"
        arguments.instance("filter", filter, FailureFilter, expected)

    load = open_failures(
        service,
        filter,
        LoadOptions(
            progress=progress,
            connections=connections,
            requests_per_second=requests_per_second,
            passes=passes,
        ),
        kind=kind,
    )
    repair = arguments.flag("repair", repair)
    if retention is not None:
        retention = parse_duration(retention, name="retention")
    changes = sync_load(
        load,
        open_store(path, filesystem),
        repair=repair,
        rebind=arguments.flag("rebind", rebind),
        retention=retention,
    )
    if filter is not None and not changes.rows:
        # rows of an earlier sync show that the filter is right
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
    """Bring a snapshot of failures up to date with a load; `options` are passed to `WriteOptions`."""
    binding = Binding(load.plan.account, rebind, retention)
    with begin(store, "failures", WriteOptions(**options)) as transaction:
        transaction.bind(load.plan.source, load.plan.scope)
        before = transaction.previous
        lost: tuple[Damage, ...] = ()
        if before:
            lost = damages(store, before, every_byte=repair)
        if before is not None and lost:
            if not repair:
                raise_for_damage(store, before, lost)
            return _repaired(
                load, transaction, Repair(transaction, before, lost), binding
            )

        transaction.remove_leftovers()
        resumable = ResumableLoad(transaction, load, checkpoints=True)
        comparison = RowComparison(
            transaction,
            read_index(store, transaction.previous),
            resumable.began,
            checkpoint=resumable.checkpoint,
        )
        receipt = resumable.read(comparison, is_stored=comparison.is_stored)
        return Changes(store=store, **comparison.commit(receipt, binding))


def _repaired(
    load: Load, transaction: Transaction, repair: Repair, binding: Binding
) -> Changes:
    """Bring a repaired snapshot up to date; rows that were not recovered are added again from the load."""
    resumable = ResumableLoad(transaction, load, checkpoints=False)
    comparison = RowComparison(
        transaction,
        repair.index,
        resumable.began,
        checkpoint=resumable.checkpoint,
        missing=repair.missing,
    )
    receipt = resumable.read(comparison, is_stored=comparison.is_stored)
    if repair.checkpoint:
        comparison.add_unread(repair.checkpoint)
    receipt = replace(receipt, notes=(*receipt.notes, repair.note(comparison.ids)))
    rows_lost = repair.rows_lost(comparison.ids)

    return Changes(
        store=transaction.store, lost=rows_lost, **comparison.commit(receipt, binding)
    )

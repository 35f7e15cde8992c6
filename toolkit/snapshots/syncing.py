"""Bring a failure snapshot up to date with the service.

`sync_failures` lists everything that the service retains and compares it with the stored rows. If files of
the snapshot are damaged, it raises, or repairs the snapshot if you ask for it (`snapshots.repairing`).
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from toolkit import arguments
from toolkit.client.failures import Kind
from toolkit.errors import IncompleteLoadWarning, SnapshotError
from toolkit.filters.failure import FailureFilter
from toolkit.loading.failures import open_failures, warn_of_mistaken_values
from toolkit.loading.load import Load
from toolkit.loading.options import CONNECTIONS, LoadOptions
from toolkit.progress import ProgressOption
from toolkit.receipt import Receipt, facts_html
from toolkit.settings.service import Service
from toolkit.snapshots.data_files import STORED_FAILURES
from toolkit.snapshots.manifest import REPAIRED, repairs
from toolkit.snapshots.merging import Binding, FileRows, RowComparison
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.repairing import Repair
from toolkit.snapshots.resumable import ResumableLoad
from toolkit.snapshots.row_index import read_index
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.transaction import Transaction, WriteOptions, begin, damages, raise_for_damage
from toolkit.tables.frames import to_frame
from toolkit.times import parse_duration
from toolkit.visible_text import visible


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
        the last complete sync is longer ago, and is stored: reports, plans and expiries of the snapshot use
        it. Default: what an earlier sync was told, else ``TOOLKIT_RETENTION``. If nobody told, three days are
        taken for granted, and longer times as far as earlier syncs show them.

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
        if before is not None and lost:
            if not repair:
                raise_for_damage(store, before, lost)
            return _repaired(load, transaction, Repair(transaction, before, lost), binding)
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


def _repaired(load: Load, transaction: Transaction, repair: Repair, binding: Binding) -> Changes:
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
    return Changes(store=transaction.store, lost=rows_lost, **comparison.commit(receipt, binding))

"""Bringing a failure snapshot up to date with everything the service retains, and what that found."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
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
from toolkit.loading.failures import open_failures, warn_of_nothing
from toolkit.loading.load import Load
from toolkit.loading.options import CONNECTIONS, LoadOptions, ProgressOption
from toolkit.receipt import Receipt, facts_html
from toolkit.settings.service import Service
from toolkit.snapshots.data_files import STORED_FAILURES
from toolkit.snapshots.manifest import REPAIRED, repairs
from toolkit.snapshots.merging import FileRows, RowComparison
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.repair import check_or_repair
from toolkit.snapshots.resumable import ResumableLoad
from toolkit.snapshots.row_index import read_index
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.transaction import WriteOptions, begin
from toolkit.tables.frames import to_frame


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Changes:
    """What a sync found. The frames are read from the snapshot when they are first used.

    Attributes
    ----------
    receipt : Receipt
        Of the load. Nothing is marked gone unless it is complete.
    rows : int
        Rows in the snapshot now, including those marked gone.
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
        """One sentence: the counts, what a repair did, and why nothing was marked gone, if so."""
        counted = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        counted = "; ".join((counted, *(REPAIRED + repair for repair in repairs((self.receipt.to_dict(),)))))
        if self.receipt.complete:
            return counted
        return f"{counted} (the load is not complete, so nothing was marked gone)"

    def __repr__(self) -> str:
        return f"Changes({self.verdict}; {self.rows:,} rows in {self.store}; {self.receipt.verdict})"

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
) -> Changes:
    """Bring a snapshot of the dead letter queue up to date, and say what is new, changed and gone.

    Everything the service retains is listed each time and compared with what is stored: an entry older than
    any seen before can appear later, so there is no timestamp to start from. Entries that come in the same
    bytes as before are not decoded again. New and changed rows are written; an entry that is no longer there
    keeps its row, with the times between which it went, and is unmarked when it comes back. Entries expire in
    the service, not here.

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

    Returns
    -------
    Changes
        ``.added``, ``.changed`` and ``.gone`` are frames with the columns of `load_failures`,
        `first_seen_at`, `gone_after` and `gone_before` (datetime64[ms, UTC]). An entry left the queue between
        the latter two, which are null while it is there. ``.receipt`` is the load's.

    Raises
    ------
    SnapshotBindingError
        When the snapshot belongs to another service, kind or filter: a narrower load would mark everything
        else gone.
    SnapshotLockedError
        When another writer holds the snapshot.
    SnapshotConflictError
        When another writer changed it meanwhile, where no lock keeps it out.
    SnapshotDamagedError
        When it is not as it was written: a file is missing, has another size, or was changed since. It says
        which rows are lost. See `repair`.
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
    What is read is stored in a checkpoint next to the snapshot, every half minute and when an error
    or Ctrl-C stops the load. The same call within a day resumes from there; the receipt counts that as
    `resumed`.

    Of an entry that changes while it is read, the version read last is written. Header values and URLs
    are masked with the key of this user, so that another user's sync of the same folder sees them all as
    changed.

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
    arguments.flag("repair", repair)
    changes = sync_load(load, open_store(path, filesystem), repair=repair)
    if filter is not None and not changes.receipt.rows:
        warn_of_nothing(service, filter, kind, stacklevel=3)
    if not changes.receipt.complete:
        warnings.warn(changes.verdict, IncompleteLoadWarning, stacklevel=2)
    return changes


def sync_load(load: Load, store: SnapshotStore, *, repair: bool = False, **options: Any) -> Changes:
    """Bring a failure snapshot up to date with a load of everything retained; `options` of `WriteOptions`."""
    with begin(store, "failures", WriteOptions(**options)) as transaction:
        transaction.bind(load.plan.source, load.plan.scope)
        repaired = check_or_repair(transaction, repair=repair)
        resumable = ResumableLoad(transaction, load, checkpoints=repaired is None)
        comparison = RowComparison(
            transaction,
            read_index(store, transaction.previous) if repaired is None else repaired.index,
            resumable.began,
            checkpoint=resumable.checkpoint,
            repair=repaired,
        )
        receipt = resumable.read(comparison, is_stored=comparison.is_stored)
        return Changes(store=store, **comparison.commit(receipt)._asdict())

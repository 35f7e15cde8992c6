"""Bringing a failure snapshot up to date with everything the service retains."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable

from pyarrow.fs import FileSystem

from toolkit import arguments
from toolkit.client.failures import Kind
from toolkit.errors import IncompleteLoadWarning
from toolkit.filters.failure import FailureFilter
from toolkit.loading.failures import open_failures, warn_of_nothing
from toolkit.loading.load import Load
from toolkit.loading.options import CONNECTIONS, ProgressOption
from toolkit.settings.service import Service
from toolkit.snapshots.changes import Changes
from toolkit.snapshots.commit import Clock, changing, utc_now
from toolkit.snapshots.comparing import Comparison
from toolkit.snapshots.datafiles import GROUP_BYTES
from toolkit.snapshots.folder import SnapshotStore
from toolkit.snapshots.index import read_index
from toolkit.snapshots.intake import BATCH_BYTES, EVERY, Intake
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.repairing import sound
from toolkit.snapshots.spool import WAITING_BYTES


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

    Everything the service retains is listed each time and compared with what is at rest: an entry older than
    any seen before can appear later, so there is no mark to start from. Entries that come in the bytes they
    came in before are not decoded again. New and changed rows are written; an entry that is no longer there
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
    progress : bool or callable, optional
        As in `load_failures`.
    connections : int
        At most this many requests are under way at once.
    requests_per_second : float, optional
        At most this many requests start in a second. Default: as many as the service allows.
    passes : {1, 2}
        2 reads everything a second time and compares.
    filesystem : pyarrow.fs.FileSystem, optional
        Where the path is, if not on the local disk.
    repair : bool
        Bring back what a damaged snapshot has lost. Rows that can still be read are kept, entries that are
        still in the queue are added again, with the time they were first seen, and the receipt's notes and
        `verify_snapshot` say what stayed lost. Lost files are kept beside the snapshot, as ``_….lost``. Every
        byte is compared, which takes as long as `verify_snapshot`.

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
        When the load fails. After any error the snapshot is as it was, and the next call goes on from there.

    Warns
    -----
    IncompleteLoadWarning
        When entries moved while they were read. What is new is then written, but nothing is marked gone.

    Notes
    -----
    What is read rests beside the snapshot, every half minute and when the load is stopped, by an error or by
    Ctrl-C. The same call within a day goes on from there; the receipt counts that as `resumed`.

    Of an entry that changes while it is read, the version that came last is written. Header values and URLs
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
        kind=kind,
        progress=progress,
        connections=connections,
        requests_per_second=requests_per_second,
        passes=passes,
    )
    arguments.flag("repair", repair)
    changes = sync_load(load, open_store(path, filesystem), repair=repair)
    if filter is not None and not changes.receipt.rows:
        warn_of_nothing(service, filter, kind, stacklevel=3)
    if not changes.receipt.complete:
        warnings.warn(changes.verdict, IncompleteLoadWarning, stacklevel=2)
    return changes


def sync_load(
    load: Load,
    folder: SnapshotStore,
    *,
    clock: Clock = utc_now,
    group_bytes: int = GROUP_BYTES,
    batch_bytes: int = BATCH_BYTES,
    waiting_bytes: int = WAITING_BYTES,
    every: float = EVERY,
    monotonic: Callable[[], float] = time.monotonic,
    repair: bool = False,
) -> Changes:
    """Bring a failure snapshot up to date with a load of everything retained.

    Parameters
    ----------
    load : Load
        Of the schema ``FAILURES``.
    folder : SnapshotStore
    clock : callable
        Gives the time, with a time zone.
    group_bytes, batch_bytes, waiting_bytes : int
        Bytes of Arrow data in a row group, compared at a time, and waiting in memory until the load ends.
    every : float
        Seconds between checkpoints.
    monotonic : callable
        Gives seconds.
    repair : bool
        See `sync_failures`.

    Returns
    -------
    Changes

    Raises
    ------
    SnapshotError
        See `sync_failures`.
    """
    with changing(folder, "failures", clock=clock, group_bytes=group_bytes) as transaction:
        transaction.bind(load.plan.source, load.plan.scope)
        found = sound(transaction, repair=repair)
        intake = Intake(
            transaction, load, clock=clock, every=every, batch_bytes=batch_bytes, monotonic=monotonic,
            checkpoints=found is None,
        )  # fmt: skip
        comparison = Comparison(
            transaction,
            read_index(folder, transaction.previous) if found is None else found.index,
            intake.began,
            resting=intake.resting,
            waiting_bytes=waiting_bytes,
            repair=found,
        )
        return comparison.finish(intake.read(comparison, is_stored=comparison.is_stored))

"""Bringing a failure snapshot up to date with everything the service retains."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from toolkit.client.failures import Kind
from toolkit.errors import IncompleteLoadWarning
from toolkit.filters.failure import FailureFilter
from toolkit.loading.failures import open_failures
from toolkit.loading.load import Load
from toolkit.loading.progress import ProgressOption
from toolkit.settings.service import Service
from toolkit.snapshots.changes import Changes
from toolkit.snapshots.commit import Clock, changing, utc_now
from toolkit.snapshots.comparing import Comparison
from toolkit.snapshots.datafiles import GROUP_BYTES
from toolkit.snapshots.folder import Folder
from toolkit.snapshots.index import read_index

_BATCH_BYTES: Final = 4 << 20


def sync_failures(
    service: Service,
    path: str | os.PathLike[str],
    *,
    filter: FailureFilter | None = None,  # noqa: A002 - the name users expect
    kind: Kind = "workflows",
    progress: ProgressOption = None,
) -> Changes:
    """Bring a snapshot of the dead letter queue up to date, and say what is new, changed and gone.

    Everything the service retains is listed each time and compared with what is at rest: an entry older than
    any seen before can appear later, so there is no mark to start from. New and changed rows are written; an
    entry that is no longer there keeps its row, with the times between which it went, and is unmarked when it
    comes back. Entries expire in the service, not here.

    Parameters
    ----------
    service : Service
        From `connect`.
    path : str or path
        A local folder: a new or empty one, or the snapshot of an earlier sync of the same service, kind and
        filter.
    filter : FailureFilter, optional
        Which entries. Default: all. A filter with an age (``since="7d"``) means other times at each call, so
        a second sync with it needs another folder.
    kind : {"workflows", "messages"}
        Failed workflow runs, or failed plain messages.
    progress : bool or callable, optional
        As in `load_failures`.

    Returns
    -------
    Changes
        ``.added``, ``.changed`` and ``.gone`` are frames with the columns of `load_failures`, `first_seen_at`
        (datetime64[ms, UTC]) and `gone_between` (struct of `last_seen` and `first_missed`, null for entries
        that are there). ``.receipt`` is the load's.

    Raises
    ------
    SnapshotBindingError
        When the snapshot belongs to another service, kind or filter: a narrower load would mark everything
        else gone.
    SnapshotLockedError
        When another writer holds the snapshot.
    SnapshotDamagedError
        When it is not as it was written.
    SnapshotError
        When the disk refuses.
    ServiceError
        When the load fails. After any error the snapshot is as it was.

    Warns
    -----
    IncompleteLoadWarning
        When entries moved while they were read. What is new is then written, but nothing is marked gone.

    Notes
    -----
    Of an entry that changes while it is read, the version that came first is written; the next sync sees the
    later one. Header values and URLs are masked with the key of this user, so that another user's sync of the
    same folder sees them all as changed.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> changes = sync_failures(service, mkdtemp() + "/failures")
    >>> len(changes.added), len(changes.changed), len(changes.gone)
    (5000, 0, 0)
    """
    changes = sync_load(open_failures(service, filter, kind=kind, progress=progress), Folder(path))
    if not changes.receipt.complete:
        warnings.warn(changes.verdict, IncompleteLoadWarning, stacklevel=2)
    return changes


def sync_load(
    load: Load,
    folder: Folder,
    *,
    clock: Clock = utc_now,
    group_bytes: int = GROUP_BYTES,
    batch_bytes: int = _BATCH_BYTES,
) -> Changes:
    """Bring a failure snapshot up to date with a load of everything retained.

    Parameters
    ----------
    load : Load
        Of the schema ``FAILURES``.
    folder : Folder
    clock : callable
        Gives the time, with a time zone.
    group_bytes, batch_bytes : int
        Bytes of Arrow data in a row group, and compared at a time.

    Returns
    -------
    Changes

    Raises
    ------
    SnapshotError
        See `sync_failures`.
    """
    with changing(folder, "failures", clock=clock, group_bytes=group_bytes) as change:
        change.bind(load.plan.source, load.plan.scope)
        comparison = Comparison(change, read_index(folder, change.previous), clock())
        for table in _larger(load, nbytes=batch_bytes):
            comparison.take(table)
        return comparison.finish(load.receipt)


def _larger(load: Load, *, nbytes: int) -> Iterator[pa.Table]:
    """The rows in tables of at least so many bytes, but for the last: each table has a cost of its own."""
    waiting: list[pa.Table] = []
    size = 0
    for table in load:
        waiting.append(table)
        size += table.nbytes
        if size >= nbytes:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)

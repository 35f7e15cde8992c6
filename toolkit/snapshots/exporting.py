"""Keeping a whole vector index, or some of its namespaces, as a snapshot, in bounded memory."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable

from pyarrow.fs import FileSystem

from toolkit.errors import IncompleteLoadWarning
from toolkit.loading.load import Load
from toolkit.loading.options import CONNECTIONS, ProgressOption
from toolkit.loading.vectors import Namespaces, Prefixes, open_vectors
from toolkit.receipt import Receipt
from toolkit.settings.service import Service
from toolkit.snapshots.commit import Clock, changing, utc_now
from toolkit.snapshots.datafiles import GROUP_BYTES
from toolkit.snapshots.folder import SnapshotStore
from toolkit.snapshots.intake import EVERY, Intake
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.parts import PART_BYTES
from toolkit.snapshots.streaming import Stream


def export_vectors(
    service: Service,
    path: str | os.PathLike[str],
    *,
    namespace: Namespaces = "",
    prefix: Prefixes = None,
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
    progress: ProgressOption = None,
    connections: int = CONNECTIONS,
    requests_per_second: float | None = None,
    passes: int = 1,
    filesystem: FileSystem | None = None,
) -> Receipt:
    """Keep the vectors of an index as a snapshot; memory does not depend on how many there are.

    Another export of the same index and scope to the same folder replaces the rows as a whole: there is no
    history, unlike with `sync_failures`.

    Parameters
    ----------
    service : Service
        From `connect`.
    path : str or path
        A folder, or an address such as ``s3://bucket/prefix``: new or empty, or an earlier export of the same
        index and scope.
    namespace : str or sequence of str
        Default: the default namespace, ``""``. Several names, or ``"all"`` for every namespace there is.
    prefix : str or sequence of str, optional
        Only ids that start with it, or with one of them.
    include_vectors, include_metadata, include_data : bool
        What comes with each id.
    progress : bool or callable, optional
        As in `load_vectors`.
    connections : int
        At most this many requests are under way at once.
    requests_per_second : float, optional
        At most this many requests start in a second. Default: as many as the service allows.
    passes : {1, 2}
        2 reads everything a second time and compares.
    filesystem : pyarrow.fs.FileSystem, optional
        Where the path is, if not on the local disk.

    Returns
    -------
    Receipt
        What was read and whether it is complete. `read_snapshot` gives the columns of `load_vectors`,
        `scan_snapshot` gives them piece by piece.

    Raises
    ------
    SnapshotBindingError
        When the snapshot belongs to another index or scope.
    SnapshotLockedError
        When another writer holds the snapshot.
    SnapshotConflictError
        When another writer changed it meanwhile, where no lock keeps it out.
    SnapshotDamagedError
        When its manifest is not as it was written.
    SnapshotError
        When the disk refuses.
    ServiceError
        When the load fails. After any error the snapshot is as it was, and the next call goes on from there.

    Warns
    -----
    IncompleteLoadWarning
        When vectors moved while they were read.

    Notes
    -----
    What is read rests beside the snapshot, every half minute and when the load is stopped, by an error or by
    Ctrl-C. The same call within a day goes on from there; the receipt counts that as `resumed`.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> export_vectors(service, mkdtemp() + "/vectors", namespace="all").verdict
    'complete: 2,000 vectors'
    """
    load = open_vectors(
        service,
        namespace=namespace,
        prefix=prefix,
        include_vectors=include_vectors,
        include_metadata=include_metadata,
        include_data=include_data,
        progress=progress,
        connections=connections,
        requests_per_second=requests_per_second,
        passes=passes,
    )
    receipt = export_load(
        load, open_store(path, filesystem), all_namespaces=isinstance(namespace, str) and namespace == "all"
    )
    if not receipt.complete:
        warnings.warn(receipt.verdict, IncompleteLoadWarning, stacklevel=2)
    return receipt


def export_load(
    load: Load,
    folder: SnapshotStore,
    *,
    all_namespaces: bool = False,
    clock: Clock = utc_now,
    group_bytes: int = GROUP_BYTES,
    part_bytes: int = PART_BYTES,
    every: float = EVERY,
    monotonic: Callable[[], float] = time.monotonic,
) -> Receipt:
    """Write a load of vectors as the whole of a snapshot, a row group at a time.

    Parameters
    ----------
    load : Load
    folder : SnapshotStore
    all_namespaces : bool
        Whether the snapshot is bound to every namespace there is, not to those there are now.
    clock : callable
        Gives the time, with a time zone.
    group_bytes : int
        Bytes of Arrow data in a row group.
    part_bytes : int
        Bytes of a data file, about.
    every : float
        Seconds between checkpoints.
    monotonic : callable
        Gives seconds.

    Returns
    -------
    Receipt

    Raises
    ------
    SnapshotError
        See `export_vectors`.
    """
    plan = load.plan
    scope = plan.scope | ({"namespaces": "all"} if all_namespaces else {})
    with changing(folder, "vectors", clock=clock, group_bytes=group_bytes) as transaction:
        transaction.bind(plan.source, scope)
        transaction.tidy()
        intake = Intake(transaction, load, clock=clock, every=every, batch_bytes=0, monotonic=monotonic)
        stream = Stream(transaction, plan.schema, plan.key, resting=intake.resting, part_bytes=part_bytes)
        return stream.commit(source=plan.source, scope=scope, receipt=intake.read(stream))

"""Keeping a whole vector index, or some of its namespaces, as a snapshot, in bounded memory."""

from __future__ import annotations

import os
import warnings

from toolkit.errors import IncompleteLoadWarning
from toolkit.loading.load import Load
from toolkit.loading.progress import ProgressOption
from toolkit.loading.vectors import Namespaces, open_vectors
from toolkit.receipt import Receipt
from toolkit.settings.service import Service
from toolkit.snapshots.commit import Clock, utc_now
from toolkit.snapshots.datafiles import GROUP_BYTES
from toolkit.snapshots.folder import Folder
from toolkit.snapshots.writing import write_rows


def export_vectors(
    service: Service,
    path: str | os.PathLike[str],
    *,
    namespace: Namespaces = "",
    prefix: str | None = None,
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
    progress: ProgressOption = None,
) -> Receipt:
    """Keep the vectors of an index as a snapshot; memory does not depend on how many there are.

    Another export of the same index and scope to the same folder replaces the rows as a whole: there is no
    history, unlike with `sync_failures`.

    Parameters
    ----------
    service : Service
        From `connect`.
    path : str or path
        A local folder: a new or empty one, or an earlier export of the same index and scope.
    namespace : str or sequence of str
        Default: the default namespace, ``""``. Several names, or ``"all"`` for every namespace there is.
    prefix : str, optional
        Only ids that start with it.
    include_vectors, include_metadata, include_data : bool
        What comes with each id.
    progress : bool or callable, optional
        As in `load_vectors`.

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
    SnapshotDamagedError
        When its manifest is not as it was written.
    SnapshotError
        When the disk refuses.
    ServiceError
        When the load fails. After any error the snapshot is as it was.

    Warns
    -----
    IncompleteLoadWarning
        When vectors moved while they were read.

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
    )
    receipt = export_load(load, Folder(path), all_namespaces=namespace == "all")
    if not receipt.complete:
        warnings.warn(receipt.verdict, IncompleteLoadWarning, stacklevel=2)
    return receipt


def export_load(
    load: Load,
    folder: Folder,
    *,
    all_namespaces: bool = False,
    clock: Clock = utc_now,
    group_bytes: int = GROUP_BYTES,
) -> Receipt:
    """Write a load of vectors as the whole of a snapshot, a row group at a time.

    Parameters
    ----------
    load : Load
    folder : Folder
    all_namespaces : bool
        Whether the snapshot is bound to every namespace there is, not to those there are now.
    clock : callable
        Gives the time, with a time zone.
    group_bytes : int
        Bytes of Arrow data in a row group.

    Returns
    -------
    Receipt

    Raises
    ------
    SnapshotError
        See `export_vectors`.
    """
    plan = load.plan
    write_rows(
        load,
        folder,
        kind="vectors",
        schema=plan.schema,
        source=plan.source,
        scope=plan.scope | ({"namespaces": "all"} if all_namespaces else {}),
        receipt=lambda: load.receipt,
        clock=clock,
        group_bytes=group_bytes,
    )
    return load.receipt

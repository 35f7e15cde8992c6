"""Remove rows from a failure snapshot for good, for example those with the data of a person."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow.fs import FileSystem

from toolkit.base.errors import SnapshotError
from toolkit.base.times import milliseconds
from toolkit.loading.identities import identities_of
from toolkit.secrets.redaction import Redactor
from toolkit.service.failures import Ids, confirmed_ids
from toolkit.signatures.signing import RULES_VERSION, Learned, Signature
from toolkit.snapshots.data_files import stored_failures
from toolkit.snapshots.day_files import DayWriter
from toolkit.snapshots.manifest import Manifest, manifest_bytes
from toolkit.snapshots.new_rows import NewRows
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.row_index import ENTRY, Mask, as_ids, read_index
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.transaction import (
    Transaction,
    WriteOptions,
    begin,
    damages,
    raise_for_damage,
)
from toolkit.tables.receipt import Receipt
from toolkit.tables.signed_rows import BodyReader, sign_rows

_ENTRIES: Final = ("row of the snapshot", "rows of the snapshot")
_LOST: Final = ".lost"
"""Ending of the files that a repair keeps."""


def erase_failures(
    path: str | os.PathLike[str],
    dlq_ids: Ids,
    *,
    confirm: bool = False,
    filesystem: FileSystem | None = None,
) -> int:
    """Remove rows from a snapshot of failures for good, and rewrite each file that contains one.

    Use it to erase the data of a person. The next sync stores an entry again if it is still in the queue, so
    delete it there first (`delete_failures`). Reports, exports and backups of the snapshot do not change.

    Parameters
    ----------
    path : str or path
        A snapshot of `sync_failures`: a folder, or an address such as ``s3://bucket/prefix``.
    dlq_ids : DataFrame, str or iterable of str
        Exact ids, or a frame of failures with a ``dlq_id`` column.
    confirm : bool
        Must be True. You cannot restore the rows.
    filesystem : pyarrow.fs.FileSystem, optional
        File system of the path, if it is not on the local disk.

    Returns
    -------
    int
        Number of erased rows. It is lower than the number of ids if the snapshot does not contain some.

    Raises
    ------
    InputError
        Without ``confirm=True``, without ids, for a frame without ``dlq_id``, or for invalid ids.
    SnapshotError
        If the path has no snapshot, or if a repair has kept damaged files (``_….lost``), which may contain
        the rows: remove them first. Nothing changes then.
    SnapshotDamagedError
        If a file of the snapshot is damaged: repair it first.
    SnapshotBindingError
        If the snapshot is not of `sync_failures`. For other frames, filter the frame and write it again.

    Notes
    -----
    A stored checkpoint of an interrupted load is removed, because it may contain the rows; the next sync
    begins its load again. The manifest has the messages that grouping has learned. If no remaining row has
    a message, it is removed from there; all rows are read for this. Ledgers, and notebooks with outputs, also
    contain messages: delete them yourself.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from toolkit import read_snapshot, sync_failures
    >>> with TemporaryDirectory() as folder:
    ...     added = sync_failures(service, folder, progress=False).added
    ...     erase_failures(folder, added.head(2), confirm=True)
    ...     len(added) - len(read_snapshot(folder))
    2
    2
    """
    _, ids = confirmed_ids(dlq_ids, "erasing", _ENTRIES, confirm=confirm)
    store = open_store(path, filesystem)
    if manifest_bytes(store) is None:
        raise _no_snapshot(store)

    with begin(store, "failures", WriteOptions()) as transaction:
        before = transaction.previous
        if before is None:
            raise _no_snapshot(store)
        _refuse_kept_files(store)
        raise_for_damage(store, before, damages(store, before))
        return _erase(transaction, before, ids)


def _erase(transaction: Transaction, before: Manifest, ids: list[str]) -> int:
    """Write the files again that contain one of these rows. Return the number of rows that are erased."""
    index = read_index(transaction.store, before)
    positions = index.find(as_ids(b"".join(identities_of(ids))))
    erased: Mask = np.zeros(len(index), dtype=bool)
    erased[positions[positions >= 0]] = True
    count = int(erased.sum())
    transaction.remove_leftovers()
    transaction.remove_checkpoint()
    if not count:
        return 0

    # the receipt of the last sync is replaced: the erased rows are no news of the service
    receipt = Receipt.from_dict(before.receipts[-1])
    note = f"erased by request: {count:,} of {len(index):,} rows"
    transaction.previous = msgspec.structs.replace(
        before,
        receipts=before.receipts[:-1],
        learned=_learned_from_others(transaction, before, erased),
    )
    nothing = np.zeros(0, dtype=bool)
    writer = DayWriter(
        transaction,
        index,
        replaced=erased,
        gone=np.zeros(len(index), dtype=bool),
        new=NewRows(np.zeros(0, dtype=ENTRY), nothing, nothing, ()),
        receipt=replace(receipt, notes=(*receipt.notes, note)),
        accounts=before.accounts,
        coverage=before.coverage,
    )
    writer.commit(milliseconds(transaction.options.clock()))

    return count


def _learned_from_others(
    transaction: Transaction, before: Manifest, erased: Mask
) -> Learned:
    """Return the messages that grouping has learned from rows that stay."""
    if before.learned.rules_version != RULES_VERSION:
        # all rows are written again, and their messages are learned again
        return before.learned

    reader = BodyReader(Redactor())
    learned = transaction.learned

    def signatures() -> Iterator[Signature]:
        for file, rows in before.slices:
            start = rows.start
            for table in stored_failures(transaction.store, before, file):
                stays = ~erased[start : start + table.num_rows]
                start += table.num_rows
                others = table.filter(pa.array(stays))
                # not `.signatures`: ids of pages and empty bodies have the status
                yield from sign_rows(others, learned, reader).documents

    return learned.only(signatures())


def _refuse_kept_files(store: SnapshotStore) -> None:
    """Raise an error if a repair has kept damaged files, which may contain the rows."""
    kept = sorted(name for name in store.names() if name.endswith(_LOST))
    if kept:
        raise SnapshotError(
            f"erasing rows of the snapshot {store}",
            got=f"{len(kept):,} damaged files that a repair has kept, for example {kept[0]!r}",
            expected="no other file that may contain the rows",
            next_step="Remove these files, then call again.",
        )


def _no_snapshot(store: SnapshotStore) -> SnapshotError:
    return SnapshotError(
        f"erasing rows of the snapshot {store}",
        got="no snapshot at this path",
        expected="a snapshot of sync_failures",
    )

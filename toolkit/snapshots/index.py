"""What a sync remembers of every row at rest: its id, its content, how it came, when, whether it is gone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.errors import SnapshotDamagedError
from toolkit.loading.identities import identities
from toolkit.loading.memory import available_memory, check_memory
from toolkit.snapshots.columns import FAILURES_AT_REST, FIRST_SEEN_AT, GONE_BEFORE
from toolkit.snapshots.datafiles import RESTORE, damaged, opened, opened_parquet
from toolkit.snapshots.fingerprints import WIDTH, Fingerprints, fingerprints
from toolkit.snapshots.folder import SnapshotStore
from toolkit.snapshots.manifest import ListedFile, Manifest
from toolkit.snapshots.versions import current_columns, is_older
from toolkit.tables.schemas import FAILURES

KEY: Final = ("dlq_id",)
"""The columns that tell failures apart."""

ENTRY = np.dtype(
    [
        ("id", f"S{WIDTH}"),
        ("content", f"S{WIDTH}"),
        ("wire", f"S{WIDTH}"),
        ("first_seen", "<i8"),
        ("gone", "?"),
    ]
)
"""One row: its id as a load knows it, the fingerprint of its content, the digest of the bytes it came in or
zeros, when it was first seen (milliseconds since 1970), and whether it is marked gone."""

_INDEX_MEMORY: Final = 2
"""Bytes of memory for a byte of the index: the entries, and the order in which they are found."""

_LATEST: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, which is as far as dates go."""

Entries = npt.NDArray[np.void]
Ids = npt.NDArray[np.bytes_]


class Index:
    """Entries in the order of the rows at rest, and a way to find them by id.

    Parameters
    ----------
    entries : numpy.ndarray
        dtype `ENTRY`, in the order of the manifest's files and of their rows.

    Attributes
    ----------
    has_learnt : bool
        Whether entries are other ones than at rest.
    """

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.has_learnt = False
        beginnings = _beginnings(entries["id"])
        self._order = np.argsort(beginnings, kind="stable")
        self._sorted = beginnings[self._order]
        self._runs = int(np.max(np.unique(self._sorted, return_counts=True)[1], initial=0))

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def repeats(self) -> bool:
        """Whether an id is there twice."""
        return self._runs > 1 and len(np.unique(self.entries["id"])) < len(self)

    def learn(self, places: npt.NDArray[np.int64], wire: Ids) -> None:
        """Remember the bytes that rows came in now: other ones than before, with the same content."""
        news = (wire != b"") & (wire != self.entries["wire"][places])
        if not news.any():
            return
        if not self.has_learnt:
            self.entries = self.entries.copy()  # those at rest cannot be written to
            self.has_learnt = True
        self.entries["wire"][places[news]] = wire[news]

    def find(self, ids: Ids) -> npt.NDArray[np.int64]:
        """Positions of these ids, -1 for those that are not there."""
        found = np.full(len(ids), -1, dtype=np.int64)
        if not len(self):
            return found
        begins = np.searchsorted(self._sorted, _beginnings(ids))
        for further in range(self._runs):  # more than one where ids begin alike
            places = self._order[np.minimum(begins + further, len(self) - 1)]
            here = self.entries["id"][places] == ids
            found[here] = places[here]
        return found


def _beginnings(ids: Ids) -> npt.NDArray[np.uint64]:
    """The first eight bytes as a number: finding numbers is much quicker than finding bytes."""
    return np.ascontiguousarray(ids).view(np.uint64)[::2]


def new_entries(ids: Ids, content: Fingerprints, wire: Ids, first_seen: Any) -> Entries:
    """Entries of rows that are there.

    Parameters
    ----------
    ids : numpy.ndarray
        As a load knows them.
    content : numpy.ndarray
        Fingerprints.
    wire : numpy.ndarray
        Digests of the bytes they came in.
    first_seen : int or numpy.ndarray
        Milliseconds since 1970.
    """
    entries = np.zeros(len(ids), dtype=ENTRY)
    entries["id"], entries["content"], entries["wire"] = ids, content, wire
    entries["first_seen"] = first_seen
    return entries


def read_index(folder: SnapshotStore, manifest: Manifest | None) -> Index:
    """The index of a snapshot: empty for a new one, made from the rows for one of an older version.

    Raises
    ------
    SnapshotDamagedError
        When it is missing, was truncated or edited, or does not fit the data files.
    """
    if manifest is None:
        return Index(np.zeros(0, dtype=ENTRY))
    if is_older(manifest):
        if manifest.index is not None:
            with opened(folder, manifest.index):
                pass  # it was checked by its hash, and is not used
        return Index(joined(stored_entries(folder, manifest, listed) for listed in manifest.files))
    listed = manifest.index
    if listed is None or listed.rows != manifest.rows or listed.bytes != listed.rows * ENTRY.itemsize:
        raise SnapshotDamagedError(
            f"reading the index of the snapshot {folder}",
            got="none" if listed is None else f"{listed.bytes:,} bytes for {manifest.rows:,} rows",
            expected=f"{ENTRY.itemsize} bytes a row",
            next_step=RESTORE,
        )
    check_memory(
        f"reading the index of the snapshot {folder}",
        needed=_INDEX_MEMORY * listed.bytes,
        limit=available_memory(),
        next_step=f"Its manifest speaks of {listed.rows:,} rows. See that this is so, or use a larger "
        "machine.",
    )
    with opened(folder, listed) as file:
        index = Index(np.frombuffer(file.read(), dtype=ENTRY))
    if index.repeats:
        raise damaged(folder, listed, "an id twice", "each id once")
    if ((index.entries["first_seen"] < 0) | (index.entries["first_seen"] > _LATEST)).any():
        raise damaged(
            folder, listed, "times outside of the years 1970 to 9999", "the times that were written"
        )
    return index


def stored_entries(folder: SnapshotStore, manifest: Manifest, listed: ListedFile) -> Entries:
    """The entries of a data file, from its rows; raises as `opened_parquet`."""
    older = is_older(manifest)
    with opened_parquet(folder, listed, None if older else FAILURES_AT_REST) as parquet:
        stored = parquet.tables()
        return joined(entries_of(current_columns(rows, "failures") if older else rows) for rows in stored)


def entries_of(rows: pa.Table) -> Entries:
    """The entries of stored rows, without the digests of the bytes that they came in."""
    ids = np.frombuffer(b"".join(identities(rows, KEY)), dtype=ENTRY["id"])
    first_seen = rows[FIRST_SEEN_AT].cast(pa.int64()).to_numpy()
    entries = new_entries(ids, fingerprints(rows.select(FAILURES.names)), np.zeros_like(ids), first_seen)
    entries["gone"] = rows[GONE_BEFORE].is_valid().to_numpy()
    return entries


def joined(several: Iterable[Entries]) -> Entries:
    """Entries one after another, none of none."""
    return np.concatenate([np.zeros(0, dtype=ENTRY), *several])

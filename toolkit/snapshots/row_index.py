"""The index of a snapshot of failures: for every row, hashes of the id, the content and the raw bytes.

A sync compares these hashes to find new and changed rows, without reading the stored rows. The fingerprint of
the content is a SHA-256 of two parts, cut to 16 bytes:

1. The values of fixed size: for each column, whether the value is null, and the number, or the length of a
   string.
2. The strings, one column after another.

Arrow's buffers contain both parts row after row already, so that they only have to be joined. For example,
the row ``("ab", 7, null)`` is hashed as ``1 2`` (not null, length 2), ``1 7`` (not null, 7), ``0 0`` (null,
0) and then ``ab``.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.errors import SnapshotDamagedError
from toolkit.base.times import from_milliseconds
from toolkit.loading.identities import identities
from toolkit.loading.memory import available_memory, check_memory
from toolkit.snapshots.data_files import (
    RESTORE,
    damage_error,
    open_checked,
    read_checked,
    stored_failures,
)
from toolkit.snapshots.manifest import INDEX_VERSION, ListedFile, Manifest
from toolkit.snapshots.store import SnapshotStore
from toolkit.tables.schemas import (
    FAILED_AT,
    FAILURES,
    FIRST_SEEN_AT,
    GONE_BEFORE,
    STATED_FAILED_AT,
)

KEY: Final = ("dlq_id",)  # the columns that identify failures

_SENT: Final = [
    name for name in FAILURES.names if name not in (FAILED_AT, STATED_FAILED_AT)
]
WIDTH: Final = 16
"""Bytes of a fingerprint: among 10⁹ rows, the probability of any two equal ones is under 10⁻²⁰."""

ENTRY = np.dtype(
    [
        ("id", f"S{WIDTH}"),
        ("content", f"S{WIDTH}"),
        ("wire", f"S{WIDTH}"),
        ("first_seen", "<i8"),
        ("gone", "?"),
    ]
)
"""One row: the hashed id, the fingerprint of the content, the digest of the raw bytes (or zeros), the time
when it was first seen (milliseconds since 1970), and whether it is marked gone."""

_INDEX_MEMORY: Final = 2
"""Bytes of memory per byte of the index: the entries, and the sorted beginnings of the ids."""

_LATEST: Final = 253_402_300_799_999  # the last millisecond of the year 9999, the last that dates can have

Entries = npt.NDArray[np.void]
Ids = npt.NDArray[np.bytes_]
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


class RowIndex:
    """Entries (dtype `ENTRY`) in the order of the stored rows, which can be found by id."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self._has_learned: Mask | None = None  # per row, from the first change
        # Ids are hashes, so that the first eight bytes are nearly always different. `_runs` is how many ids
        # share them at most, which is how many candidates `find` has to compare: 1 in practice.
        beginnings = _beginnings(entries["id"])
        self._order = np.argsort(beginnings, kind="stable")
        self._sorted = beginnings[self._order]
        self._runs = _longest_run(self._sorted)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def repeats(self) -> bool:
        """Return whether an id occurs twice."""
        return self._runs > 1 and repeated(self.entries["id"])

    def learn(self, positions: Positions, wire: Ids) -> None:
        """Record new raw bytes of rows whose content is the same."""
        is_new = (wire != b"") & (wire != self.entries["wire"][positions])
        if not is_new.any():
            return

        if self._has_learned is None:
            self.entries = self.entries.copy()  # the array that was read is read-only
            self._has_learned = np.zeros(len(self), dtype=bool)

        self.entries["wire"][positions[is_new]] = wire[is_new]
        self._has_learned[positions[is_new]] = True

    def has_learned(self, rows: slice) -> bool:
        """Return whether an entry of these rows has changed since it was read."""
        return self._has_learned is not None and bool(self._has_learned[rows].any())

    def find(self, ids: Ids) -> Positions:
        """Return the positions of these ids; -1 for unknown ids."""
        rows = np.full(len(ids), -1, dtype=np.int64)
        if not len(self):
            return rows

        begins = np.searchsorted(self._sorted, _beginnings(ids))
        for further in range(self._runs):
            # more than one if ids have the same beginning
            # `searchsorted` returns the length of the array for an id after the last one.
            positions = self._order[np.minimum(begins + further, len(self) - 1)]
            here = self.entries["id"][positions] == ids
            rows[here] = positions[here]

        return rows


class GrowingArray:
    """An array that grows in place, so that the millions of rows of a first load are in memory once."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._bytes = bytearray()

    def __len__(self) -> int:
        return len(self._bytes) // self._dtype.itemsize

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add values at the end. Raise BufferError while an array returned by `whole` is in use."""
        self._bytes += values.tobytes()

    def whole(self) -> npt.NDArray[Any]:
        """Return all values, in order, without a copy."""
        return np.frombuffer(self._bytes, dtype=self._dtype)


def _beginnings(ids: Ids) -> npt.NDArray[np.uint64]:
    """Return the first eight bytes as a number: finding numbers is much faster than finding bytes."""
    # An id of 16 bytes is two numbers; the first of both is taken.
    return np.ascontiguousarray(ids).view(np.uint64)[::2]


def repeated(values: npt.NDArray[Any]) -> bool:
    """Return whether a value occurs twice."""
    if values.dtype.kind == "S" and _longest_run(np.sort(_beginnings(values))) <= 1:
        return False
    return _longest_run(np.sort(values)) > 1


def _longest_run(ordered: npt.NDArray[Any]) -> int:
    """Return how often the most frequent value occurs in a sorted array."""
    if len(ordered) and not (ordered[1:] == ordered[:-1]).any():
        return 1
    return int(np.max(np.unique(ordered, return_counts=True)[1], initial=0))


def first_of_each(ids: Ids) -> Mask:
    """Return a mask of the first occurrence of each id."""
    first = np.zeros(len(ids), dtype=bool)
    first[np.unique(ids, return_index=True)[1]] = True
    return first


def day_of(milliseconds: int) -> str:
    """Return the day (ISO 8601, UTC) of a time since 1970."""
    return from_milliseconds(milliseconds).date().isoformat()


def as_ids(joined: bytes) -> Ids:
    """Return an array of joined ids (or digests), 16 bytes each."""
    return np.frombuffer(joined, dtype=ENTRY["id"])


def new_entries(ids: Ids, content: Ids, wire: Ids, first_seen: Any) -> Entries:
    """Return entries of rows that are not gone: ids, fingerprints, digests, milliseconds since 1970."""
    entries = np.zeros(len(ids), dtype=ENTRY)
    entries["id"] = ids
    entries["content"] = content
    entries["wire"] = wire
    entries["first_seen"] = first_seen

    return entries


def read_index(store: SnapshotStore, manifest: Manifest | None) -> RowIndex:
    """Return the index of a snapshot.

    It is empty for a new snapshot. If an older version wrote the snapshot, it is made from the rows.
    """
    if manifest is None:
        return RowIndex(np.zeros(0, dtype=ENTRY))
    if manifest.schema_version < INDEX_VERSION:
        return _index_of_rows(store, manifest)

    _check_sizes(store, manifest)
    files = manifest.index_files
    check_memory(
        f"reading the index of the snapshot {store}",
        needed=_INDEX_MEMORY * sum(listed.bytes for listed in files),
        limit=available_memory(),
        next_step=f"The manifest lists {manifest.rows:,} rows. Check that this is right, or use a larger "
        "machine.",
    )
    entries = np.empty(manifest.rows, dtype=ENTRY)
    start = 0
    for listed in files:
        rows = slice(start, start := start + listed.rows)
        entries[rows] = read_entries(store, listed)

    index = RowIndex(entries)
    if index.repeats:
        raise damage_error(store, files[0], "an id twice", "unique ids")

    return index


def read_entries(store: SnapshotStore, listed: ListedFile) -> Entries:
    """Return the entries of one file of the index. Raise SnapshotDamagedError for impossible times."""
    entries = np.frombuffer(read_checked(store, listed), dtype=ENTRY)
    times = entries["first_seen"]
    if ((times < 0) | (times > _LATEST)).any():
        raise damage_error(
            store,
            listed,
            "times outside of the years 1970 to 9999",
            "the times that were written",
        )

    return entries


def _check_sizes(store: SnapshotStore, manifest: Manifest) -> None:
    """Raise SnapshotDamagedError if the index does not have one entry per row of each data file."""
    files = manifest.index_files
    if not files:
        raise _wrong_size(store, "no index")

    wanted = [manifest.rows]
    if len(files) > 1:
        wanted = [file.rows for file in manifest.files]
    if [listed.rows for listed in files] != wanted:
        rows = sum(listed.rows for listed in files)
        raise _wrong_size(store, f"{rows:,} entries for {manifest.rows:,} rows")

    for listed in files:
        if listed.bytes != listed.rows * ENTRY.itemsize:
            got = f"{listed.bytes:,} bytes for {listed.rows:,} rows"
            raise _wrong_size(store, got)


def _index_of_rows(store: SnapshotStore, manifest: Manifest) -> RowIndex:
    """Make the index of an older version from the rows. The stored index is checked, and not used."""
    for listed in manifest.index_files:
        with open_checked(store, listed):
            pass

    entries = []
    for listed in manifest.files:
        entries += [
            entries_of(rows) for rows in stored_failures(store, manifest, listed)
        ]

    return RowIndex(concat_entries(entries))


def _wrong_size(store: SnapshotStore, got: str) -> SnapshotDamagedError:
    return SnapshotDamagedError(
        f"reading the index of the snapshot {store}",
        got=got,
        expected=f"{ENTRY.itemsize} bytes per row",
        next_step=RESTORE,
    )


def entries_of(rows: pa.Table) -> Entries:
    """Return the entries of stored rows, without the digests of their raw bytes."""
    ids = as_ids(b"".join(identities(rows, KEY)))
    first_seen = rows[FIRST_SEEN_AT].cast(pa.int64()).to_numpy()
    entries = new_entries(
        ids, failure_fingerprints(rows), np.zeros_like(ids), first_seen
    )
    entries["gone"] = rows[GONE_BEFORE].is_valid().to_numpy()

    return entries


def concat_entries(several: Iterable[Entries]) -> Entries:
    """Concatenate entries. Return an empty array if there are none."""
    filled = [entries for entries in several if len(entries)]
    if len(filled) == 1:
        return filled[0]

    return np.concatenate([np.zeros(0, dtype=ENTRY), *filled])


class _Encoded(NamedTuple):
    """Rows of a column: a matrix with the bytes of fixed size, and strings with the offsets of the rows."""

    fixed: npt.NDArray[np.uint8]
    texts: list[tuple[Positions, pa.Buffer]]


def failure_fingerprints(failures: pa.Table) -> Ids:
    """One fingerprint a failure, over all columns that the service sent.

    The failure times are left out. They follow from other columns and from the time of loading, so that an
    entry that has not changed may have another time when it is read again.
    """
    return fingerprints(failures.select(_SENT))


def fingerprints(table: pa.Table) -> Ids:
    """Return one fingerprint per row, over all columns in order; the names of columns do not count."""
    digests: list[bytes] = []
    for batch in table.combine_chunks().to_batches():
        if len(batch):
            digests += _digests(batch)

    # the first half of each digest
    halves = np.frombuffer(b"".join(digests), dtype=f"S{WIDTH}")
    return np.ascontiguousarray(halves[:: sha256().digest_size // WIDTH])


def _digests(batch: pa.RecordBatch) -> list[bytes]:
    """Return the SHA-256 of each row; see the beginning of the module."""
    columns = [_encoded(column) for column in batch.columns]
    fixed = _flat(np.hstack([column.fixed for column in columns]))
    texts = list(chain.from_iterable(column.texts for column in columns))
    parts = [
        pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(batch), [None, pa.py_buffer(offsets), data]
        )
        for offsets, data in (fixed, *texts)
    ]
    rows = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
    data = memoryview(rows.buffers()[2])

    return [
        sha256(data[start:end]).digest()
        for start, end in pairwise(_offsets(rows, np.int64).tolist())
    ]


def _encoded(array: pa.Array) -> _Encoded:
    """Return the bytes of a column; null values are encoded as 0 or as an empty string."""
    kind = array.type
    present = np.asarray(array.is_valid().cast(pa.uint8())).reshape(-1, 1)
    # Lists of fixed size have no offsets; as plain lists, they are encoded in the same way as all others.
    if pa.types.is_fixed_size_list(kind):
        array = array.cast(pa.list_(kind.value_type))
    if pa.types.is_nested(kind):
        return _lists(present, array)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return _strings(present, array)

    if pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())

    if array.null_count:
        array = pc.fill_null(array, 0)
    return _Encoded(np.hstack([present, _bytes(np.asarray(array))]), [])


def _strings(present: npt.NDArray[np.uint8], array: pa.Array) -> _Encoded:
    """Encode strings: lengths as bytes of fixed size, and the strings as they are in Arrow's buffer."""
    if array.null_count:
        array = pc.fill_null(array, "" if pa.types.is_string(array.type) else b"")
    offsets = _offsets(array, np.int32)
    data = array.buffers()[2] or pa.py_buffer(b"")

    return _Encoded(
        np.hstack([present, _bytes(np.diff(offsets))]),
        [(offsets.astype(np.int64), data)],
    )


def _lists(present: npt.NDArray[np.uint8], array: pa.ListArray) -> _Encoded:
    """Encode lists: the number of items as bytes of fixed size, then the items as strings of bytes."""
    offsets = np.asarray(array.offsets, dtype=np.int64)
    # In Arrow, a null list may still have items in the buffer. They must not
    # count, as they are not part of the value.
    if np.diff(offsets)[present[:, 0] == 0].any():
        # removes items of rows that are null
        array = array.take(pa.array(np.arange(len(array))))
        offsets = np.asarray(array.offsets, dtype=np.int64)

    items = _encoded(array.values.slice(offsets[0], offsets[-1] - offsets[0]))
    offsets -= offsets[0]
    # The items of a row follow each other in the buffer, so the bytes of a
    # row begin where its first item begins.
    texts = [
        (begins[offsets], data) for begins, data in (_flat(items.fixed), *items.texts)
    ]

    return _Encoded(np.hstack([present, _bytes(np.diff(offsets))]), texts)


def _flat(fixed: npt.NDArray[np.uint8]) -> tuple[Positions, pa.Buffer]:
    """Return a matrix of bytes as strings, one per row: the offsets and the buffer."""
    count, width = fixed.shape
    return np.arange(count + 1, dtype=np.int64) * width, pa.py_buffer(
        np.ascontiguousarray(fixed)
    )


def _bytes(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the bytes of values in memory, one row per value."""
    return (
        np.ascontiguousarray(values)
        .view(np.uint8)
        .reshape(len(values), values.dtype.itemsize)
    )


def _offsets(array: pa.Array, kind: type[np.signedinteger[Any]]) -> npt.NDArray[Any]:
    """Return the offsets of strings in their buffer: the beginning of each, and the end of the last."""
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(1, dtype=kind)

    return np.frombuffer(buffer, dtype=kind)[
        array.offset : array.offset + len(array) + 1
    ]

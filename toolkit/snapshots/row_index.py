"""What a sync stores about every row: hashes of its id, its content and its raw bytes.

A row's fingerprint is a hash of what has the same size in every row (for each value whether it is there, and
its number or its length), then of its texts, one column after another. Arrow's buffers already hold all of
this row after row and only have to be joined.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.errors import SnapshotDamagedError
from toolkit.loading.identities import identities
from toolkit.loading.memory import available_memory, check_memory
from toolkit.snapshots.data_files import RESTORE, damage_error, open_checked, read_checked, stored_failures
from toolkit.snapshots.manifest import INDEX_VERSION, Manifest
from toolkit.snapshots.store import SnapshotStore
from toolkit.tables.schemas import FAILURES, FIRST_SEEN_AT, GONE_BEFORE
from toolkit.times import from_milliseconds

KEY: Final = ("dlq_id",)  # the columns that identify failures

WIDTH: Final = 16
"""Bytes of a fingerprint: among 10⁹ rows, two different ones share one with a probability under 10⁻²⁰."""

ENTRY = np.dtype(
    [
        ("id", f"S{WIDTH}"),
        ("content", f"S{WIDTH}"),
        ("wire", f"S{WIDTH}"),
        ("first_seen", "<i8"),
        ("gone", "?"),
    ]
)
"""One row: its id as a load knows it, the fingerprint of its content, the digest of its raw bytes or
zeros, when it was first seen (milliseconds since 1970), and whether it is marked gone."""

_INDEX_MEMORY: Final = 2
"""Bytes of memory for a byte of the index: the entries, and the order in which they are found."""

_LATEST: Final = 253_402_300_799_999  # the last millisecond of the year 9999, which is as far as dates go

Entries = npt.NDArray[np.void]
Ids = npt.NDArray[np.bytes_]
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


class RowIndex:
    """Entries (dtype `ENTRY`) in the order of the stored rows, found by id; `has_learned`: they changed."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.has_learned = False
        beginnings = _beginnings(entries["id"])
        self._order = np.argsort(beginnings, kind="stable")
        self._sorted = beginnings[self._order]
        self._runs = _longest_run(self._sorted)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def repeats(self) -> bool:
        """Whether an id is there twice."""
        return self._runs > 1 and repeated(self.entries["id"])

    def learn(self, positions: Positions, wire: Ids) -> None:
        """Record new raw bytes of rows whose content is the same."""
        news = (wire != b"") & (wire != self.entries["wire"][positions])
        if not news.any():
            return
        if not self.has_learned:
            self.entries = self.entries.copy()  # those that were read cannot be written to
            self.has_learned = True
        self.entries["wire"][positions[news]] = wire[news]

    def find(self, ids: Ids) -> Positions:
        """Positions of these ids, -1 for those that are not there."""
        rows = np.full(len(ids), -1, dtype=np.int64)
        if not len(self):
            return rows
        begins = np.searchsorted(self._sorted, _beginnings(ids))
        for further in range(self._runs):  # more than one where ids begin alike
            positions = self._order[np.minimum(begins + further, len(self) - 1)]
            here = self.entries["id"][positions] == ids
            rows[here] = positions[here]
        return rows


class GrowingArray:
    """An array that grows in place: a first load has millions of rows, which are in memory once."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._bytes = bytearray()

    def __len__(self) -> int:
        return len(self._bytes) // self._dtype.itemsize

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add values at the end; `BufferError` while what `whole` returned is in use."""
        self._bytes += values.tobytes()

    def whole(self) -> npt.NDArray[Any]:
        """All values, in order, without a copy."""
        return np.frombuffer(self._bytes, dtype=self._dtype)


def _beginnings(ids: Ids) -> npt.NDArray[np.uint64]:
    """The first eight bytes as a number: finding numbers is much faster than finding bytes."""
    return np.ascontiguousarray(ids).view(np.uint64)[::2]


def repeated(values: npt.NDArray[Any]) -> bool:
    """Whether a value is there twice."""
    if values.dtype.kind == "S" and _longest_run(np.sort(_beginnings(values))) <= 1:
        return False
    return _longest_run(np.sort(values)) > 1


def _longest_run(ordered: npt.NDArray[Any]) -> int:
    if len(ordered) and not (ordered[1:] == ordered[:-1]).any():
        return 1
    return int(np.max(np.unique(ordered, return_counts=True)[1], initial=0))


def first_of_each(ids: Ids) -> Mask:
    """Whether an id did not come before."""
    first = np.zeros(len(ids), dtype=bool)
    first[np.unique(ids, return_index=True)[1]] = True
    return first


def day_of(milliseconds: int) -> str:
    """The day (ISO 8601, UTC) of a time since 1970."""
    return from_milliseconds(milliseconds).date().isoformat()


def as_ids(joined: bytes) -> Ids:
    """Ids (or digests) that are joined, 16 bytes each."""
    return np.frombuffer(joined, dtype=ENTRY["id"])


def new_entries(ids: Ids, content: Ids, wire: Ids, first_seen: Any) -> Entries:
    """Entries of rows that are there: ids, fingerprints, digests, milliseconds since 1970."""
    entries = np.zeros(len(ids), dtype=ENTRY)
    entries["id"], entries["content"], entries["wire"] = ids, content, wire
    entries["first_seen"] = first_seen
    return entries


def read_index(store: SnapshotStore, manifest: Manifest | None) -> RowIndex:
    """The index of a snapshot: empty for a new one, made from the rows for one of an older version."""
    if manifest is None:
        return RowIndex(np.zeros(0, dtype=ENTRY))
    if manifest.schema_version < INDEX_VERSION:
        if manifest.index is not None:
            with open_checked(store, manifest.index):
                pass  # its hash is checked, and it is not used
        stored = (rows for listed in manifest.files for rows in stored_failures(store, manifest, listed))
        return RowIndex(concat_entries(map(entries_of, stored)))
    listed = manifest.index
    if listed is None or listed.rows != manifest.rows or listed.bytes != listed.rows * ENTRY.itemsize:
        raise SnapshotDamagedError(
            f"reading the index of the snapshot {store}",
            got="none" if listed is None else f"{listed.bytes:,} bytes for {manifest.rows:,} rows",
            expected=f"{ENTRY.itemsize} bytes a row",
            next_step=RESTORE,
        )
    check_memory(
        f"reading the index of the snapshot {store}",
        needed=_INDEX_MEMORY * listed.bytes,
        limit=available_memory(),
        next_step=f"Its manifest lists {listed.rows:,} rows. Check that this is right, or use a larger "
        "machine.",
    )
    index = RowIndex(np.frombuffer(read_checked(store, listed), dtype=ENTRY))
    if index.repeats:
        raise damage_error(store, listed, "an id twice", "each id once")
    times = index.entries["first_seen"]
    if ((times < 0) | (times > _LATEST)).any():
        raise damage_error(
            store, listed, "times outside of the years 1970 to 9999", "the times that were written"
        )
    return index


def entries_of(rows: pa.Table) -> Entries:
    """The entries of stored rows, without the digests of their raw bytes."""
    ids = as_ids(b"".join(identities(rows, KEY)))
    first_seen = rows[FIRST_SEEN_AT].cast(pa.int64()).to_numpy()
    entries = new_entries(ids, fingerprints(rows.select(FAILURES.names)), np.zeros_like(ids), first_seen)
    entries["gone"] = rows[GONE_BEFORE].is_valid().to_numpy()
    return entries


def concat_entries(several: Iterable[Entries]) -> Entries:
    """Entries one after another, none of none."""
    filled = [entries for entries in several if len(entries)]
    return filled[0] if len(filled) == 1 else np.concatenate([np.zeros(0, dtype=ENTRY), *filled])


class _Encoded(NamedTuple):
    """Rows of a column: a matrix of bytes, one line a row, and texts with the offsets where rows begin."""

    fixed: npt.NDArray[np.uint8]
    texts: list[tuple[Positions, pa.Buffer]]


def fingerprints(table: pa.Table) -> Ids:
    """One fingerprint a row, over all columns in their order; their names do not count."""
    batches = table.combine_chunks().to_batches()
    digests = [digest for batch in batches if len(batch) for digest in _digests(batch)]
    whole = np.frombuffer(b"".join(digests), dtype=f"S{WIDTH}")
    return np.ascontiguousarray(whole[:: sha256().digest_size // WIDTH])


def _digests(batch: pa.RecordBatch) -> list[bytes]:
    columns = [_encoded(column) for column in batch.columns]
    fixed = _flat(np.hstack([column.fixed for column in columns]))
    texts = [text for column in columns for text in column.texts]
    parts = [
        pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(batch), [None, pa.py_buffer(offsets), data])
        for offsets, data in (fixed, *texts)
    ]
    rows = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
    data = memoryview(rows.buffers()[2])
    return [sha256(data[start:end]).digest() for start, end in pairwise(_offsets(rows, np.int64).tolist())]


def _encoded(array: pa.Array) -> _Encoded:
    kind = array.type
    present = np.asarray(array.is_valid().cast(pa.uint8())).reshape(-1, 1)
    if pa.types.is_fixed_size_list(kind):
        array = array.cast(pa.list_(kind.value_type))
    if pa.types.is_nested(kind):
        return _lists(present, array)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        if array.null_count:
            array = pc.fill_null(array, "" if pa.types.is_string(kind) else b"")
        offsets = _offsets(array, np.int32)
        data = array.buffers()[2] or pa.py_buffer(b"")
        return _Encoded(np.hstack([present, _bytes(np.diff(offsets))]), [(offsets.astype(np.int64), data)])
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    if array.null_count:
        array = pc.fill_null(array, 0)
    return _Encoded(np.hstack([present, _bytes(np.asarray(array))]), [])


def _lists(present: npt.NDArray[np.uint8], array: pa.ListArray) -> _Encoded:
    """Each row's items: how many they are, then their fixed parts, then their texts."""
    offsets = np.asarray(array.offsets, dtype=np.int64)
    if np.diff(offsets)[present[:, 0] == 0].any():
        array = array.take(pa.array(np.arange(len(array))))  # without the items of rows that are null
        offsets = np.asarray(array.offsets, dtype=np.int64)
    items = _encoded(array.values.slice(offsets[0], offsets[-1] - offsets[0]))
    offsets -= offsets[0]
    texts = [(begins[offsets], data) for begins, data in (_flat(items.fixed), *items.texts)]
    return _Encoded(np.hstack([present, _bytes(np.diff(offsets))]), texts)


def _flat(fixed: npt.NDArray[np.uint8]) -> tuple[Positions, pa.Buffer]:
    count, width = fixed.shape
    return np.arange(count + 1, dtype=np.int64) * width, pa.py_buffer(np.ascontiguousarray(fixed))


def _bytes(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The values as they are stored, a line each."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.dtype.itemsize)


def _offsets(array: pa.Array, kind: type[np.signedinteger[Any]]) -> npt.NDArray[Any]:
    """Where each text begins in the buffer of all of them, and where the last one ends."""
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(1, dtype=kind)
    return np.frombuffer(buffer, dtype=kind)[array.offset : array.offset + len(array) + 1]

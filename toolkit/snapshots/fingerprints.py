"""Sixteen bytes for an id and sixteen for a row's content: all a sync has to remember of a row.

A row becomes bytes in a way that keeps different rows different. First comes what is of the same size in
every row: for each value whether it is there, and its number, or how long it is. Then come the texts and the
items of lists, one column after another; the lengths before them say where each ends. The buffers of a column
hold all of this already, row after row, so that Arrow only has to put the pieces together; the last step
alone, the hash, runs row by row.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

WIDTH: Final = 16
"""Bytes of a fingerprint: among 10⁹ rows, two different ones share one with a probability under 10⁻²⁰."""

Fingerprints = npt.NDArray[np.bytes_]

_Offsets = npt.NDArray[np.int64]


class _Encoded(NamedTuple):
    """Rows of a column: a matrix of bytes, one line a row, and texts with the places where rows begin."""

    fixed: npt.NDArray[np.uint8]
    texts: list[tuple[_Offsets, pa.Buffer]]


def fingerprints(table: pa.Table) -> Fingerprints:
    """One fingerprint a row, over all columns.

    Parameters
    ----------
    table : pyarrow.Table
        Columns of text, bytes, numbers, booleans, times, and lists, maps and structs of these. The order of
        the columns counts, their names do not.

    Returns
    -------
    numpy.ndarray
        dtype ``S16``, one item a row.

    Examples
    --------
    >>> rows = pa.table({"id": ["a", "b", "a"], "labels": [["x"], None, ["x"]]})
    >>> found = fingerprints(rows)
    >>> bool(found[0] == found[2]), bool(found[0] == found[1])
    (True, False)
    """
    batches = table.combine_chunks().to_batches()
    digests = [digest for batch in batches if len(batch) for digest in _digests(batch)]
    whole = np.frombuffer(b"".join(digests), dtype=f"S{WIDTH}")
    return np.ascontiguousarray(whole[:: sha256().digest_size // WIDTH])


def _digests(batch: pa.RecordBatch) -> list[bytes]:
    fixed, texts = _beside([_encoded(column) for column in batch.columns])
    pieces = [
        pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(batch), [None, pa.py_buffer(offsets), data])
        for offsets, data in (_flat(fixed), *texts)
    ]
    rows = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))
    data = memoryview(rows.buffers()[2])
    return [sha256(data[start:end]).digest() for start, end in pairwise(_places(rows, np.int64).tolist())]


def _encoded(array: pa.Array) -> _Encoded:
    kind = array.type
    present = np.asarray(array.is_valid().cast(pa.uint8())).reshape(-1, 1)
    if pa.types.is_struct(kind):
        inner = _beside([_encoded(column) for column in array.flatten()])
        return _Encoded(np.hstack([present, inner.fixed]), inner.texts)
    if pa.types.is_fixed_size_list(kind):
        array = array.cast(pa.list_(kind.value_type))
    if pa.types.is_nested(kind):
        return _lists(present, array)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        if array.null_count:
            array = pc.fill_null(array, "" if pa.types.is_string(kind) else b"")
        places = _places(array, np.int32)
        data = array.buffers()[2] or pa.py_buffer(b"")
        return _Encoded(np.hstack([present, _bytes(np.diff(places))]), [(places.astype(np.int64), data)])
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    if array.null_count:
        array = pc.fill_null(array, 0)
    return _Encoded(np.hstack([present, _bytes(np.asarray(array))]), [])


def _lists(present: npt.NDArray[np.uint8], array: pa.ListArray | pa.MapArray) -> _Encoded:
    """Each row's items: how many they are, then their fixed parts, then their texts."""
    places = np.asarray(array.offsets, dtype=np.int64)
    lengths = np.diff(places)
    if lengths[present[:, 0] == 0].any():
        # items of a row that is null count for nothing
        array = array.take(pa.array(np.arange(len(array))))
        places = np.asarray(array.offsets, dtype=np.int64)
        lengths = np.diff(places)
    parts = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    parts = [part.slice(places[0], places[-1] - places[0]) for part in parts]
    if len(parts) > 1:
        parts = [pa.StructArray.from_arrays(parts, ["key", "value"])]
    items = _encoded(parts[0])
    places -= places[0]
    texts = [_flat(items.fixed), *items.texts]
    return _Encoded(np.hstack([present, _bytes(lengths)]), [(begins[places], data) for begins, data in texts])


def _beside(columns: list[_Encoded]) -> _Encoded:
    fixed = np.hstack([column.fixed for column in columns])
    return _Encoded(fixed, [text for column in columns for text in column.texts])


def _flat(fixed: npt.NDArray[np.uint8]) -> tuple[_Offsets, pa.Buffer]:
    count, width = fixed.shape
    return np.arange(count + 1, dtype=np.int64) * width, pa.py_buffer(np.ascontiguousarray(fixed))


def _bytes(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The values as they are stored, a line each."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.dtype.itemsize)


def _places(array: pa.Array, kind: type[np.signedinteger[Any]]) -> npt.NDArray[Any]:
    """Where each text begins in the buffer of all of them, and where the last one ends."""
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(1, dtype=kind)
    return np.frombuffer(buffer, dtype=kind)[array.offset : array.offset + len(array) + 1]

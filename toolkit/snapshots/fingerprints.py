"""Sixteen bytes for an id and sixteen for a row's content: all a sync has to remember of a row.

A row becomes bytes in a way that keeps different rows different: each value is written with its length before
it, null has a mark of its own, and lists and maps count their items. Arrow does this for a whole column at
once; only the last step, the hash, runs row by row.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

WIDTH: Final = 16
"""Bytes of a fingerprint: among 10⁹ rows, two different ones share one with a probability under 10⁻²⁰."""

Fingerprints = npt.NDArray[np.bytes_]


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
    digests = [digest for batch in batches for digest in _digests(batch)]
    return np.frombuffer(b"".join(digests), dtype=f"S{WIDTH}")


def _digests(batch: pa.RecordBatch) -> list[bytes]:
    rows = _joined([_encoded(column) for column in batch.columns])
    offsets = np.frombuffer(rows.buffers()[1], dtype=np.int64)[
        rows.offset : rows.offset + len(rows) + 1
    ].tolist()
    data = memoryview(rows.buffers()[2] or b"")
    return [blake2b(data[start:end], digest_size=WIDTH).digest() for start, end in pairwise(offsets)]


def _encoded(array: pa.Array) -> pa.Array:
    """The values as bytes that say where they end: ``-`` for null, else ``length:bytes``."""
    kind = array.type
    if pa.types.is_map(kind):
        array = array.cast(pa.large_list(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        plain = _concatenated(array)
    elif pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        plain = _concatenated(array.cast(pa.large_list(kind.value_type)))
    elif pa.types.is_struct(kind):
        joined = _joined([_encoded(column) for column in array.flatten()])
        plain = pc.if_else(array.is_valid(), joined, pa.scalar(None, pa.large_binary()))
    elif pa.types.is_binary(kind) or pa.types.is_string(kind):
        plain = array.cast(pa.large_binary())
    elif pa.types.is_timestamp(kind):
        plain = _plain(array.cast(pa.int64()))
    else:
        plain = _plain(array)
    marked = pc.binary_join_element_wise(
        _plain(pc.binary_length(plain)), plain, pa.scalar(b":", pa.large_binary())
    )
    return pc.fill_null(marked, pa.scalar(b"-", pa.large_binary()))


def _plain(array: pa.Array) -> pa.Array:
    return array.cast(pa.large_string()).cast(pa.large_binary())


def _joined(columns: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))


def _concatenated(array: pa.Array) -> pa.Array:
    """The items of each list, encoded and put one after another; null stays null."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    offsets = np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))])
    items = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), _encoded(array.flatten()))
    joined = pc.binary_join(items, pa.scalar(b"", pa.large_binary()))
    return pc.if_else(array.is_valid(), joined, pa.scalar(None, pa.large_binary()))

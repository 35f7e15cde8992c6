"""The index of stored rows: ids are found at their positions, and equal rows have equal fingerprints."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.snapshots.row_index import (
    ENTRY,
    GrowingArray,
    RowIndex,
    fingerprints,
    new_entries,
    repeated,
)

_SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("number", pa.int64()),
        ("flag", pa.bool_()),
        ("time", pa.timestamp("ms", tz="UTC")),
        ("labels", pa.list_(pa.string())),
        ("vector", pa.list_(pa.float32(), 2)),
    ]
)
# few characters, those that the encoding itself uses among them, so that near misses are many
_TEXT = st.none() | st.text("-:01", max_size=3)
_LABELS = st.none() | st.lists(_TEXT, max_size=2)
_ROW = st.tuples(
    _TEXT,
    st.none() | st.binary(max_size=2),
    st.none() | st.integers(-2, 2),
    st.none() | st.booleans(),
    st.none() | st.integers(0, 2),
    _LABELS,
    st.none()
    | st.lists(st.none() | st.sampled_from([0.5, 1.0]), min_size=2, max_size=2),
)


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], schema=_SCHEMA
    )


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(_ROW, min_size=1, max_size=6), data=st.data())
def test_fingerprints_are_equal_exactly_when_rows_are(
    rows: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    """Rows that differ in a value, however little, have different fingerprints; equal rows do not."""
    position = data.draw(st.integers(0, len(_SCHEMA) - 1))
    changed = list(data.draw(st.sampled_from(rows)))
    changed[position] = data.draw(_ROW)[position]
    rows = [*rows, tuple(changed)]
    table = _table(rows)
    found = fingerprints(table).tolist()
    values = [repr(row) for row in table.to_pylist()]
    for here, value in enumerate(values):
        for there, other in enumerate(values):
            assert (found[here] == found[there]) == (value == other)


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(_ROW, min_size=2, max_size=6), cut=st.integers(0, 6))
def test_slices_and_chunks_change_nothing(
    rows: list[tuple[Any, ...]], cut: int
) -> None:
    """A row has the same fingerprint in a slice, in a table of several chunks and alone."""
    table = _table(rows)
    whole = fingerprints(table).tolist()
    start = cut % len(rows)
    assert fingerprints(table.slice(start)).tolist() == whole[start:]
    assert (
        fingerprints(
            pa.concat_tables([table.slice(0, start), table.slice(start)])
        ).tolist()
        == whole
    )
    assert [fingerprints(_table([row])).tolist()[0] for row in rows] == whole


def test_no_rows_have_no_fingerprints(made: SimpleNamespace) -> None:
    """An empty table returns an empty array of the right width."""
    found = fingerprints(made.failures([]))
    assert (len(found), found.dtype.itemsize) == (0, 16)


def test_the_fingerprint_of_a_row_is_pinned(made: SimpleNamespace) -> None:
    """The encoding may not change unnoticed: every stored row would seem changed."""
    table = made.failures([made.entry("a")])
    assert fingerprints(table)[0].hex() == "561152e76d80c511edf2f828c28c5b05"


_BEGINNINGS = st.sampled_from([bytes(8), b"\xff" * 8, b"in front"])
_IDS = st.builds(
    lambda start, end: start + end, _BEGINNINGS, st.binary(min_size=8, max_size=8)
)


def _array(ids: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(ids), dtype=ENTRY["id"])


@given(st.lists(_IDS, unique=True, max_size=12), st.lists(_IDS, max_size=6))
def test_ids_are_found_at_their_positions(
    rest: list[bytes], others: list[bytes]
) -> None:
    """Whether their first eight bytes are their own or many ids': the position, or -1."""
    index = RowIndex(new_entries(_array(rest), _array(rest), _array(rest), 0))
    assert not index.repeats
    expected = [rest.index(entry) if entry in rest else -1 for entry in rest + others]
    assert index.find(_array(rest + others)).tolist() == expected


@given(st.lists(_IDS, min_size=1, max_size=6))
def test_an_id_that_is_there_twice_is_noticed(ids: list[bytes]) -> None:
    """Not one that only begins like another."""
    twice, once = _array([*ids, ids[0]]), _array(ids)
    assert RowIndex(new_entries(twice, twice, twice, 0)).repeats
    assert RowIndex(new_entries(once, once, once, 0)).repeats is (
        len(set(ids)) < len(ids)
    )


@given(st.lists(st.one_of(st.integers(0, 9), st.none()), max_size=20))
def test_a_growing_array_holds_what_was_added_in_order(steps: list[int | None]) -> None:
    """Whatever is added before and after it is read as a whole, and however that fits into its blocks."""
    array, expected = GrowingArray(np.int64), list[int]()
    for step in steps:
        if step is not None:
            added = list(range(len(expected), len(expected) + step))
            array.add(np.array(added, dtype=np.int64))
            expected += added
        assert array.whole().tolist() == expected
        assert len(array) == len(expected)


@pytest.mark.parametrize("same", [0, 8])
def test_ids_that_begin_alike_are_not_the_same(same: int) -> None:
    """An id is there twice only where all of its bytes are."""
    ids = [
        bytes(same) + bytes([1, number]) * 4 + bytes(8 - same) for number in range(5)
    ]
    array = np.array(ids, dtype=ENTRY["id"])
    assert not repeated(array)
    assert repeated(np.concatenate([array, array[2:3]]))
    assert not repeated(array[:0])

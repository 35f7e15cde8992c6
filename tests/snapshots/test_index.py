"""The index of what is at rest: every id is found at its place, however alike ids begin."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from toolkit.snapshots.row_index import ENTRY, RowIndex, new_entries

_BEGINNINGS = st.sampled_from([bytes(8), b"\xff" * 8, b"in front"])
_IDS = st.builds(lambda start, end: start + end, _BEGINNINGS, st.binary(min_size=8, max_size=8))


def _array(ids: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(ids), dtype=ENTRY["id"])


@given(st.lists(_IDS, unique=True, max_size=12), st.lists(_IDS, max_size=6))
def test_ids_are_found_at_their_places(rest: list[bytes], others: list[bytes]) -> None:
    """Whether their first eight bytes are their own or many ids': the place, or -1."""
    index = RowIndex(new_entries(_array(rest), _array(rest), _array(rest), 0))
    assert not index.repeats
    expected = [rest.index(one) if one in rest else -1 for one in rest + others]
    assert index.find(_array(rest + others)).tolist() == expected


@given(st.lists(_IDS, min_size=1, max_size=6))
def test_an_id_that_is_there_twice_is_noticed(ids: list[bytes]) -> None:
    """Not one that only begins like another."""
    twice, once = _array([*ids, ids[0]]), _array(ids)
    assert RowIndex(new_entries(twice, twice, twice, 0)).repeats
    assert RowIndex(new_entries(once, once, once, 0)).repeats is (len(set(ids)) < len(ids))

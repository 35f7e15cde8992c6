"""The compact set of identities is a set, through every run and merge."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.loading import identities
from toolkit.loading.identities import Identities


def identity(number: int) -> bytes:
    """16 bytes; every seventh ends with zeros, which the array's type does not show."""
    made = hashlib.blake2b(str(number).encode(), digest_size=16).digest()
    return made[:13] + bytes(3) if number % 7 == 0 else made


@given(st.lists(st.lists(st.integers(0, 60), max_size=8), max_size=30))
def test_it_holds_the_same_ids_as_a_set(batches):
    """With tiny runs, after any batches: what is known, what is new, and the order, as a plain set has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identities, "_MOST_RECENT", 3)
        patch.setattr(identities, "_LONGEST_MERGE", 10)
        rows, plain, order = Identities(), set[bytes](), list[bytes]()
        for batch in batches:
            result = [identity(number) for number in batch]
            is_new = [
                item not in plain and item not in result[:index]
                for index, item in enumerate(result)
            ]
            assert rows.known(result) == [item in plain for item in result]
            assert rows.are_new(result) == all(is_new)
            assert (rows.add(result) or [True] * len(result)) == is_new
            order += [item for item, new in zip(result, is_new, strict=True) if new]
            plain.update(result)
            assert rows.first(len(rows)) == b"".join(order)
            assert len(rows) == len(plain)
        again = Identities(rows.first(len(rows)))
        assert all(item in again for item in plain)
        assert identity(1000) not in again


def test_many_stay_exact(monkeypatch):
    """More than several runs of them: all are known, and no other."""
    monkeypatch.setattr(identities, "_MOST_RECENT", 4096)
    rows = Identities()
    made = [identity(number) for number in range(50_000)]
    for start in range(0, len(made), 500):
        batch = made[start : start + 500]
        assert rows.are_new(batch)
        assert rows.add(batch) is None
    assert all(rows.known(made))
    assert not any(rows.known([identity(number) for number in range(50_000, 51_000)]))

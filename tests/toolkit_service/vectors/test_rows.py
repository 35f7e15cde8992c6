"""The rows of a namespace in memory, and filters over them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.filters.metadata import parse
from toolkit_service.vectors.rows import NamespaceRows


@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.integers(0, 9), min_size=1, max_size=4)),
        max_size=60,
    )
)
def test_rows_are_those_of_a_dictionary(steps: list[tuple[bool, list[int]]]) -> None:
    """Putting, replacing and removing in any order leaves what a dictionary holds, filtered early or late."""
    plain: dict[str, tuple[int, int, int]] = {}

    def stored() -> Iterator[tuple[str, str]]:
        return (
            (name, json.dumps({"turn": turn})) for name, (_, turn, _) in plain.items()
        )

    def check(rows: NamespaceRows) -> None:
        assert len(rows) == len(plain) == len(rows.matrix)
        sequence, actual = rows.sequence.tolist(), rows.matrix.tolist()
        assert {
            name: (sequence[position], *map(int, actual[position]))
            for position, name in enumerate(rows.ids)
        } == plain
        assert rows.norms.tolist() == pytest.approx(
            [math.hypot(*vector) for vector in actual]
        )
        assert rows.inserted(plain).tolist() == [
            sequence for sequence, _, _ in plain.values()
        ]
        assert {
            rows.ids[position]
            for position in rows.passing(parse("turn >= 20 OR HAS NOT FIELD turn"))
        } == {name for name, (_, turn, _) in plain.items() if turn >= 20}

    rows = NamespaceRows(2, stored)
    for turn, (putting, numbers) in enumerate(steps):
        before = dict(zip(rows.ids, rows.versions.tolist(), strict=True))
        names = [f"r{number}" for number in numbers]
        if putting:
            for name, number in zip(names, numbers, strict=True):
                plain[name] = (plain.get(name, (turn * 10 + number,))[0], turn, number)
            vectors = np.array([[turn, number] for number in numbers], dtype=np.float32)
            sequences = [plain[name][0] for name in names]
            rows.put(names, sequences, vectors)
            assert all(
                version > max(before.values(), default=0)
                for name, version in zip(rows.ids, rows.versions.tolist(), strict=True)
                if name in names
            )
        elif names[0] in rows:
            rows.remove(names[0])
            del plain[names[0]]
        if turn % 20 == 0:
            check(rows)
    check(rows)

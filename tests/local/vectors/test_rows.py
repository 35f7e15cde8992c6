"""The rows of a namespace in memory, and filters over them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.filters.metadata import (
    And,
    Comparison,
    Contains,
    Glob,
    HasField,
    Membership,
    MetadataFilter,
    Or,
    parse,
)
from toolkit.local.vectors.rows import MAX_COLUMNS, FieldColumns, FilterBudget, NamespaceRows

FIELDS = ("a", "b", "a.b", "a[0]", "a[#-1]")
NUMBERS = (
    st.integers(-3, 3)
    | st.sampled_from(
        [2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**70, 0.1, 0.5, -0.0, 1e300, 9007199254740993]
    )
    | st.booleans()
)
LITERALS = NUMBERS | st.sampled_from(["", "1", "a", "ab", "b", "é"])
VALUES = st.recursive(
    st.none() | LITERALS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
METADATA = st.none() | st.dictionaries(st.sampled_from(["a", "b"]), VALUES, max_size=2)
FIELD = st.sampled_from(FIELDS)
CONDITIONS: st.SearchStrategy[MetadataFilter] = st.one_of(
    st.builds(Comparison, FIELD, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), LITERALS),
    st.builds(Membership, FIELD, st.lists(LITERALS, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(Contains, FIELD, LITERALS, st.booleans()),
    st.builds(Glob, FIELD, st.sampled_from(["*", "a*", "?", "[ab]", "1"]), st.booleans()),
    st.builds(HasField, FIELD, st.booleans()),
)
FILTERS = st.recursive(
    CONDITIONS,
    lambda inner: st.lists(inner, min_size=2, max_size=3).flatmap(
        lambda parts: st.sampled_from([And(tuple(parts)), Or(tuple(parts))])
    ),
    max_leaves=5,
)


def passing(columns: FieldColumns, chosen: MetadataFilter, held: list[Any]) -> list[bool]:
    return columns.passes(chosen, lambda: held, FilterBudget()).tolist()


@settings(max_examples=700, deadline=None)
@given(st.lists(METADATA, max_size=8), st.lists(FILTERS, min_size=1, max_size=3), st.data())
def test_columns_decide_as_the_filter_does(
    rows: list[Any], chosen: list[MetadataFilter], data: st.DataObject
) -> None:
    """For any metadata and filters, before and after changes, a row passes exactly when `matches` says so."""
    columns = FieldColumns()
    held = list(rows)
    for item in [*chosen, *chosen]:
        assert passing(columns, item, held) == [item.matches(value) for value in held]
        for position in data.draw(st.lists(st.integers(-1, len(held)), max_size=3)):
            if position == -1 and held:  # the last row replaces another
                position = data.draw(st.integers(0, len(held) - 1))  # noqa: PLW2901
                held[position] = held[-1]
                held.pop()
                columns.move(len(held), position)
                continue
            value = data.draw(METADATA)
            if not 0 <= position < len(held):
                position = len(held)  # noqa: PLW2901 - a new row comes at the end
                held.append(value)
            else:
                held[position] = value
            columns.put(position, value)


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
def test_columns_compare_numbers_exactly(op: str) -> None:
    """Whole numbers that are equal in double precision are distinguished, in values and in filters."""
    numbers = [
        number for near in (2**53, -(2**53), 2**70) for number in (near - 1, near, near + 1, float(near))
    ]
    numbers += [0, -0.0, False, True, 1.0, 0.1, 1e300]
    held = [{"n": number} for number in numbers]
    columns = FieldColumns()
    for number in numbers:
        chosen = Comparison("n", op, number)  # type: ignore[arg-type]
        assert passing(columns, chosen, held) == [chosen.matches(value) for value in held]


def test_columns_forget_values_that_occur_no_more() -> None:
    """A field whose value changes over and over does not fill the memory."""
    columns, held, chosen = FieldColumns(), [{"n": 0}], parse("n >= 5000")
    for number in range(6000):
        held[0] = {"n": number}
        columns.put(0, held[0])
        assert passing(columns, chosen, held) == [number >= 5000]
    (column,) = columns._columns.values()
    assert len(column._values) < 2000


def test_filters_on_many_fields() -> None:
    """More fields than columns that are kept: the same result, and no more columns."""
    held = [{f"f{number}": number} for number in range(100)]
    columns = FieldColumns()
    wide = Or(tuple(Comparison(f"f{number}", "=", number) for number in range(0, 100, 2)))
    assert passing(columns, wide, held) == [number % 2 == 0 for number in range(100)]
    for number in range(100):
        assert sum(passing(columns, Comparison(f"f{number}", "<", 1000), held)) == 1
    assert len(columns) == MAX_COLUMNS


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 9), min_size=1, max_size=4)), max_size=60))
def test_rows_are_those_of_a_dictionary(steps: list[tuple[bool, list[int]]]) -> None:
    """Putting, replacing and removing in any order leaves what a dictionary holds, filtered early or late."""
    plain: dict[str, tuple[int, int, int]] = {}

    def stored() -> Iterator[tuple[str, str]]:
        return ((name, json.dumps({"turn": turn})) for name, (_, turn, _) in plain.items())

    def check(rows: NamespaceRows) -> None:
        assert len(rows) == len(plain) == len(rows.matrix)
        sequence, actual = rows.sequence.tolist(), rows.matrix.tolist()
        assert {
            name: (sequence[position], *map(int, actual[position])) for position, name in enumerate(rows.ids)
        } == plain
        assert rows.norms.tolist() == pytest.approx([math.hypot(*vector) for vector in actual])
        assert rows.inserted(plain).tolist() == [sequence for sequence, _, _ in plain.values()]
        assert {
            rows.ids[position] for position in rows.passing(parse("turn >= 20 OR HAS NOT FIELD turn"))
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
            rows.put(names, sequences, vectors, [json.dumps({"turn": turn})] * len(names))
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

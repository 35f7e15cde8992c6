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
from toolkit.local.vectors.columns import MAX_COLUMNS, FieldColumns
from toolkit.local.vectors.database import Held
from toolkit.local.vectors.rows import NamespaceRows

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


@settings(max_examples=700, deadline=None)
@given(st.lists(METADATA, max_size=8), st.lists(FILTERS, min_size=1, max_size=3), st.data())
def test_columns_say_what_the_filter_says(
    rows: list[Any], chosen: list[MetadataFilter], data: st.DataObject
) -> None:
    """For any metadata and filters, before and after changes, a row passes exactly when `matches` says so."""
    columns = FieldColumns()
    held = list(rows)
    for one in [*chosen, *chosen]:
        assert columns.passes(one, held).tolist() == [one.matches(value) for value in held]
        for slot in data.draw(st.lists(st.integers(0, len(held)), max_size=3)):
            value = data.draw(METADATA)
            if slot >= len(held):
                slot = len(held)  # noqa: PLW2901 - a new row comes at the end
                held.append(value)
            else:
                held[slot] = value
            columns.put(slot, value)


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
def test_columns_compare_numbers_exactly(op: str) -> None:
    """Whole numbers that double precision cannot tell apart are told apart, in values and in filters."""
    numbers = [
        number for near in (2**53, -(2**53), 2**70) for number in (near - 1, near, near + 1, float(near))
    ]
    numbers += [0, -0.0, False, True, 1.0, 0.1, 1e300]
    held = [{"n": number} for number in numbers]
    columns = FieldColumns()
    for number in numbers:
        chosen = Comparison("n", op, number)  # type: ignore[arg-type]
        assert columns.passes(chosen, held).tolist() == [chosen.matches(value) for value in held]


def test_columns_forget_values_that_occur_no_more() -> None:
    """A field whose value changes over and over does not fill the memory."""
    columns, held, chosen = FieldColumns(), [{"n": 0}], parse("n >= 5000")
    for number in range(6000):
        held[0] = {"n": number}
        columns.put(0, held[0])
        assert columns.passes(chosen, held).tolist() == [number >= 5000]
    (column,) = columns._columns.values()
    assert len(column._values) < 2000


def test_filters_on_many_fields_are_answered() -> None:
    """More fields than there are columns for: the same answer, and no more columns."""
    held = [{f"f{number}": number} for number in range(100)]
    columns = FieldColumns()
    wide = Or(tuple(Comparison(f"f{number}", "=", number) for number in range(0, 100, 2)))
    assert columns.passes(wide, held).tolist() == [number % 2 == 0 for number in range(100)]
    for number in range(100):
        assert columns.passes(Comparison(f"f{number}", "<", 1000), held).sum() == 1
    assert len(columns._columns) == MAX_COLUMNS


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=120))
def test_rows_are_those_of_a_dictionary(steps: list[tuple[bool, int]]) -> None:
    """Putting, writing again and removing in any order leaves what a dictionary holds, reopened or not."""
    vectors = np.zeros((len(steps), 2), dtype=np.float32)
    plain: dict[str, tuple[int, int, dict[str, int]]] = {}

    def stored() -> Iterator[tuple[int, str]]:
        return ((slot, json.dumps(metadata)) for _, slot, metadata in plain.values())

    def check(rows: NamespaceRows) -> None:
        assert len(rows) == len(plain)
        found = {
            name: (int(rows.sequence[slot]), slot, rows.metadata[slot])
            for slot, name in enumerate(rows.ids)
            if name
        }
        assert found == plain
        slots = [slot for _, slot, _ in plain.values()]
        assert rows.norms[slots].tolist() == pytest.approx([math.hypot(*vectors[slot]) for slot in slots])
        occupied = rows.occupied()
        assert (list(range(len(rows))) if occupied is None else occupied.tolist()) == sorted(slots)
        assert rows.passing(parse("turn >= 20 OR HAS NOT FIELD turn")).tolist() == sorted(
            slot for _, slot, metadata in plain.values() if metadata["turn"] >= 20
        )

    rows = NamespaceRows(lambda slots: vectors[:slots], stored)
    for turn, (putting, number) in enumerate(steps):
        name = f"r{number}"
        if putting:
            taken = {slot for _, slot, _ in plain.values()}
            slot = next(slot for slot in range(len(steps)) if slot not in taken)
            vectors[slot] = turn, number
            rows.put(name, turn + 1, slot, json.dumps({"turn": turn}))
            plain[name] = (turn + 1, slot, {"turn": turn})
        elif name in rows:
            rows.remove(name)
            del plain[name]
        if turn % 40 == 0:
            check(rows)
    check(rows)
    held = Held(
        list(plain),
        np.array([sequence for sequence, _, _ in plain.values()], dtype=np.int64),
        np.array([slot for _, slot, _ in plain.values()], dtype=np.int64),
    )
    check(NamespaceRows(lambda slots: vectors[:slots], stored, held))

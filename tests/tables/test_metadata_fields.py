"""Fields learnt from metadata: each can be asked for in the filter language, and finds what was seen."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import InputError
from toolkit.filters.metadata import Comparison, HasField
from toolkit.tables.matching import match_metadata
from toolkit.tables.metadata_fields import metadata_fields

documents = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", "", "it's"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "b.c", "a[0]", "ü", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(rows=st.lists(st.none() | st.dictionaries(st.sampled_from(["a", "b"]), documents), max_size=4))
def test_every_field_and_value_is_found_by_its_filter(rows):
    """As many rows have a field as was counted, and a value that was seen in it is found there."""
    texts = [None if row is None else json.dumps(row) for row in rows]
    frame = pd.DataFrame({"metadata": pd.Series(texts, dtype="object")})
    for field in metadata_fields(frame):
        assert match_metadata(frame, HasField(field.name)).sum() == field.rows
        if set(field.kinds) <= {"text", "number", "boolean"}:
            for value, count in field.frequent:
                assert match_metadata(frame, Comparison(field.name, "=", value)).sum() >= count


def test_kinds_and_values_are_told_apart():
    """True is no 1, a null is counted, and of an array its elements are the values."""
    rows = [{"a": 1, "t": ["x", "y"]}, {"a": True, "t": ["x"]}, {"a": None, "t": []}]
    found = {
        field.name: field for field in metadata_fields(pd.DataFrame({"metadata": map(json.dumps, rows)}))
    }
    assert set(found["a"].kinds) == {"number", "boolean", "null"}
    assert [(type(value), count) for value, count in found["a"].frequent] == [(bool, 1), (int, 1)]
    assert found["t"].frequent == (("x", 2), ("y", 1))
    assert found["t[#-1]"].frequent == (("x", 1), ("y", 1))


def test_there_are_bounds():
    """Only so many rows are read and so many fields given, those of the most rows."""
    rows = [json.dumps({"often": 1, f"f{number}": 1}) for number in range(10)]
    frame = pd.DataFrame({"metadata": rows})
    assert [field.name for field in metadata_fields(frame, most=1)] == ["often"]
    assert len(metadata_fields(frame, rows=2)) == 3
    with pytest.raises(InputError, match="include_metadata=True"):
        metadata_fields(pd.DataFrame({"id": []}))

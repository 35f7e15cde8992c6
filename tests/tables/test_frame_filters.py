"""Metadata of frames: a filter matches rows as the service does, and each field is found by its filter."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import FilterSyntaxError, InputError
from toolkit.filters.metadata import Comparison, HasField
from toolkit.tables.metadata_fields import match_metadata, metadata_fields

documents = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", "", "it's"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "b", "b.c", "a[0]", "ü", ""]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


def test_a_filter_makes_the_same_mask_as_text_and_as_tree():
    """Text and tree make the same mask, on the frame's own index; rows without metadata have no field."""
    texts = ['{"city": "Izmir", "n": 3}', '{"city": "Oslo"}', None, '{"n": 5}']
    frame = pd.DataFrame({"id": list("abcd"), "metadata": texts}, index=[7, 5, 3, 1])
    mask = tk.match_metadata(frame, "n >= 3")
    assert mask.to_dict() == {7: True, 5: False, 3: False, 1: True}
    assert tk.match_metadata(frame, tk.parse_filter("n >= 3")).equals(mask)
    assert frame[tk.match_metadata(frame, "HAS NOT FIELD city")]["id"].tolist() == [
        "c",
        "d",
    ]
    assert tk.match_metadata(frame.iloc[:0], "n = 1").dtype == bool


def test_unmatchable_frames_are_refused():
    """A filter that does not parse says where; a frame without metadata says how to load it."""
    with pytest.raises(FilterSyntaxError, match="position 4"):
        tk.match_metadata(pd.DataFrame({"metadata": []}), "n = ")
    with pytest.raises(InputError, match="include_metadata"):
        tk.match_metadata(pd.DataFrame({"id": ["a"]}), "n = 1")


def test_it_agrees_with_the_service(sample_service):
    """What matches here is what a filtered query finds there."""
    whole = tk.load_vectors(sample_service, namespace="", progress=False)
    text = "city = 'Quito' AND tags CONTAINS 'eu'"
    hits = tk.query(
        sample_service, vector=tk.as_matrix(whole)[0], top_k=1000, filter=text
    )
    assert set(hits["id"]) == set(whole[tk.match_metadata(whole, text)]["id"])
    assert len(hits) > 0


@given(
    rows=st.lists(
        st.none() | st.dictionaries(st.sampled_from(["a", "b"]), documents), max_size=4
    )
)
def test_every_field_and_value_is_found_by_its_filter(rows):
    """As many rows have a field as was counted, and a value that was seen in it is found there."""
    texts = [None if row is None else json.dumps(row) for row in rows]
    frame = pd.DataFrame({"metadata": pd.Series(texts, dtype="object")})
    for field in metadata_fields(frame):
        assert match_metadata(frame, HasField(field.name)).sum() == field.rows
        if set(field.kinds) <= {"text", "number", "boolean"}:
            for value, count in field.frequent:
                assert (
                    match_metadata(frame, Comparison(field.name, "=", value)).sum()
                    >= count
                )


def test_kinds_and_values_are_counted_by_type():
    """True is no 1, a null is counted, and of an array its elements are the values."""
    rows = [{"a": 1, "t": ["x", "y"]}, {"a": True, "t": ["x"]}, {"a": None, "t": []}]
    found = {
        field.name: field
        for field in metadata_fields(pd.DataFrame({"metadata": map(json.dumps, rows)}))
    }
    assert set(found["a"].kinds) == {"number", "boolean", "null"}
    assert [(type(value), count) for value, count in found["a"].frequent] == [
        (bool, 1),
        (int, 1),
    ]
    assert found["t"].frequent == (("x", 2), ("y", 1))
    assert found["t[#-1]"].frequent == (("x", 1), ("y", 1))


def test_there_are_bounds():
    """Only so many rows are read and so many fields returned, those of the most rows."""
    rows = [json.dumps({"often": 1, f"f{number}": 1}) for number in range(10)]
    frame = pd.DataFrame({"metadata": rows})
    assert [field.name for field in metadata_fields(frame, most=1)] == ["often"]
    assert len(metadata_fields(frame, rows=2)) == 3
    with pytest.raises(InputError, match="include_metadata=True"):
        metadata_fields(pd.DataFrame({"id": []}))

"""A metadata filter asked of a frame."""

from __future__ import annotations

import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import FilterSyntaxError, InputError


def test_rows_that_match_are_told_apart():
    """Text and tree give the same mask, on the frame's own index; rows without metadata have no field."""
    texts = ['{"city": "Izmir", "n": 3}', '{"city": "Oslo"}', None, '{"n": 5}']
    frame = pd.DataFrame({"id": list("abcd"), "metadata": texts}, index=[7, 5, 3, 1])
    mask = tk.match_metadata(frame, "n >= 3")
    assert mask.to_dict() == {7: True, 5: False, 3: False, 1: True}
    assert tk.match_metadata(frame, tk.parse_filter("n >= 3")).equals(mask)
    assert frame[tk.match_metadata(frame, "HAS NOT FIELD city")]["id"].tolist() == ["c", "d"]
    assert tk.match_metadata(frame.iloc[:0], "n = 1").dtype == bool


def test_what_cannot_be_matched_is_refused():
    """A filter that does not parse says where; a frame without metadata says how to load it."""
    with pytest.raises(FilterSyntaxError, match="position 4"):
        tk.match_metadata(pd.DataFrame({"metadata": []}), "n = ")
    with pytest.raises(InputError, match="include_metadata"):
        tk.match_metadata(pd.DataFrame({"id": ["a"]}), "n = 1")


def test_it_agrees_with_the_service(sample_service):
    """What matches here is what a filtered query finds there."""
    whole = tk.load_vectors(sample_service, progress=False)
    text = "city = 'Quito' AND tags CONTAINS 'eu'"
    hits = tk.query(sample_service, vector=tk.as_matrix(whole)[0], top_k=1000, filter=text)
    assert set(hits["id"]) == set(whole[tk.match_metadata(whole, text)]["id"])
    assert len(hits) > 0

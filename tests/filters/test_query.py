"""Vector queries: what is a question, and the code that makes it again."""

from __future__ import annotations

import dataclasses
import json
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import InputError
from toolkit.filters.metadata import parse
from toolkit.filters.query import SparsePair, VectorQuery

tk = types.SimpleNamespace(VectorQuery=VectorQuery)
numbers = st.lists(
    st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5
)
sparse = st.dictionaries(
    st.integers(0, 2**31), st.floats(-9, 9), min_size=1, max_size=5
).map(lambda values: {"indices": list(values), "values": list(values.values())})
text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
questions = st.one_of(
    st.fixed_dictionaries({"vector": numbers}),
    st.fixed_dictionaries({"sparse": sparse}),
    st.fixed_dictionaries({"vector": numbers, "sparse": sparse}),
    st.fixed_dictionaries(
        {"data": text},
        optional={"query_mode": st.sampled_from(["HYBRID", "DENSE", "SPARSE"])},
    ),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "top_k": st.integers(1, 1000),
        "include_metadata": st.booleans(),
        "include_vectors": st.booleans(),
        "include_data": st.booleans(),
        "filter": text,
        "namespace": text,
        "weighting_strategy": st.sampled_from([None, "IDF"]),
        "fusion_algorithm": st.sampled_from([None, "RRF", "DBSF"]),
    },
)


@given(questions, options)
def test_code_makes_an_equal_query(
    question: dict[str, Any], given_options: dict[str, Any]
) -> None:
    """The code of any query, run, makes an equal one; its scope is JSON; its repr is short."""
    query = VectorQuery(**question, **given_options)
    assert eval(query.to_code(), {"tk": tk}) == query  # noqa: S307 - the code is ours
    assert json.loads(json.dumps(query.scope())) == query.scope()
    assert dataclasses.replace(query) == query
    assert "vector=[" not in repr(query)


def test_arrays_and_filters_are_taken() -> None:
    """A numpy vector keeps its exact numbers; a filter tree becomes its text; a sparse pair is fine."""
    query = VectorQuery(
        vector=np.array([0.1, 2], dtype=np.float32),
        sparse=([3, 1], np.array([0.5, 2])),
        filter=parse("a=1"),
    )
    assert query.vector == (float(np.float32(0.1)), 2.0)
    assert query.sparse == SparsePair((3, 1), (0.5, 2.0))
    assert query.filter == "a = 1"
    assert (
        repr(query)
        == "VectorQuery(vector=<2 numbers>, sparse=<2 terms>, filter='a = 1')"
    )
    assert VectorQuery(vector=[1], top_k=np.int64(3)).top_k == 3  # type: ignore[arg-type]


def test_scope_distinguishes_vectors_without_containing_them() -> None:
    """Two vectors have two scopes, the same vector the same; the numbers themselves are not in it."""
    first, same, other = (
        VectorQuery(vector=[0.123, value]).scope() for value in (1, 1, 2)
    )
    assert first == same != other
    assert "0.123" not in json.dumps(first)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "no question"),
        ({"vector": [1], "data": "x"}, "vector and data"),
        ({"data": "x", "sparse": ([1], [1])}, "data and sparse"),
        ({"vector": []}, "reading vector: got no numbers"),
        ({"vector": "12"}, "reading vector: got '12'"),
        ({"vector": 5}, "reading vector: got 5"),
        ({"vector": [1, True]}, "reading vector: got True at position 1"),
        ({"vector": [1, "2"]}, "'2' at position 1"),
        ({"vector": [1, None]}, "None at position 1"),
        ({"vector": [float("nan")]}, "nan at position 0"),
        ({"vector": [10**400]}, "inf at position 0"),
        ({"vector": np.ones((2, 2))}, "with one axis"),
        ({"data": ""}, "reading data: got ''"),
        ({"data": 5}, "reading data: got 5"),
        ({"data": "\ud800"}, "surrogate"),
        ({"sparse": {"indices": [1]}}, "the names 'indices'"),
        ({"sparse": {"indices": [1], "value": [1]}}, "Did you mean 'values'"),
        (
            {"sparse": {"indices": [1], "values": [float("nan")]}},
            "sparse values: got nan at position 0",
        ),
        ({"sparse": ([1], [1, 2])}, "sparse: got 1 indices and 2 values"),
        ({"vector": [1], "id": "a"}, "vector and id"),
        ({"id": ""}, "reading id"),
        ({"vector": [1], "exclude_self": True}, "exclude_self=True without id"),
        ({"sparse": ([-1], [1])}, "negative"),
        ({"sparse": ([0.5], [1])}, "fractional"),
        ({"sparse": 5}, "reading sparse: got 5"),
        *(
            ({"vector": [1], "top_k": top_k}, "top_k")
            for top_k in (0, -1, 1.5, "5", True, None)
        ),
        ({"vector": [1], "include_data": 1}, "include_data"),
        ({"vector": [1], "filter": 5}, "filter"),
        ({"vector": [1], "namespace": None}, "namespace"),
        ({"vector": [1], "weighting_strategy": "TFIDF"}, "IDF"),
        ({"vector": [1], "fusion_algorithm": "rrf"}, "DBSF"),
        ({"vector": [1], "query_mode": "DENSE"}, "without data"),
        ({"data": "x", "query_mode": "BOTH"}, "HYBRID"),
    ],
)
def test_an_invalid_query_is_refused(arguments: dict[str, Any], says: str) -> None:
    """Anything that is not exactly one question, or an option out of bounds, is an InputError naming it."""
    with pytest.raises(InputError, match=says):
        VectorQuery(**arguments)

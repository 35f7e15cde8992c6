"""Queries by vector, by text, by id and by ready-made values: one set of options, which always counts."""

from __future__ import annotations

import json
import re
from inspect import signature

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import InputError


@pytest.fixture(scope="module")
def runbooks(sample_service):
    """A few stored vectors with their metadata."""
    return tk.load_vectors(
        sample_service, namespace="runbooks", limit=20, progress=False
    )


def by_all(runbooks, **options):
    """One question in the three ways of asking it: value, keywords, id."""
    vector = tk.as_matrix(runbooks)[0]
    return [
        ((tk.VectorQuery(vector=vector),), options),
        ((), {"vector": vector} | options),
        ((), {"id": runbooks["id"][0]} | options),
        (([tk.VectorQuery(id=runbooks["id"][0])],), options),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 1},
        {"include_metadata": True, "include_data": True, "include_vectors": True},
        {"filter": "topic = 'connections'", "top_k": 3},
        {"filter": tk.parse_filter("topic = 'connections'"), "include_metadata": True},
    ],
    ids=str,
)
def test_every_query_function_accepts_the_same_options(
    sample_service, runbooks, options
):
    """A ready-made query, keywords, an id, and a ready-made query of an id make the same frame."""
    frames = [
        tk.query(sample_service, *args, namespace="runbooks", **kwargs)
        for args, kwargs in by_all(runbooks, **options)
    ]
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(frame, frames[0], check_exact=False, rtol=1e-6)
    assert len(frames[0]) == options.get("top_k", 10)
    if "topic" in str(options.get("filter")) and "metadata" in frames[0]:
        assert {json.loads(text)["topic"] for text in frames[0]["metadata"]} == {
            "connections"
        }


def test_options_override_a_ready_made_query(sample_service, runbooks):
    """Arguments that are passed override the query, also to undo an option; others are the query's own."""
    ready = tk.VectorQuery(
        vector=tk.as_matrix(runbooks)[0],
        top_k=7,
        namespace="runbooks",
        include_metadata=True,
    )
    assert len(tk.query(sample_service, ready)) == 7
    changed = tk.query(sample_service, [ready, ready], top_k=2, include_metadata=False)
    assert changed["query"].tolist() == [0, 0, 1, 1]
    assert "metadata" not in changed
    elsewhere = tk.query(sample_service, ready, namespace="")
    assert set(elsewhere["id"]).isdisjoint(set(tk.query(sample_service, ready)["id"]))
    assert changed.attrs["queries"][0]["top_k"] == 2


def test_a_stored_vector_is_its_own_first_hit_unless_left_out(sample_service, runbooks):
    """With exclude_self the other hits are the same, ranked from 1, and as many as requested."""
    ids = runbooks["id"].tolist()[:3]
    with_self = tk.query(sample_service, id=ids, namespace="runbooks", top_k=6)
    assert with_self[with_self["rank"] == 1]["id"].tolist() == ids
    without = tk.query(
        sample_service,
        id=pd.Series(ids),
        namespace="runbooks",
        top_k=5,
        exclude_self=True,
    )
    assert without["rank"].tolist() == [1, 2, 3, 4, 5] * 3
    assert without["id"].tolist() == with_self[with_self["rank"] > 1]["id"].tolist()
    assert (
        without["score"].to_numpy()
        == with_self[with_self["rank"] > 1]["score"].to_numpy()
    ).all()


def test_a_frame_asks_for_all_its_ids(sample_service, runbooks):
    """The ids of a frame of vectors are queries, in its order."""
    hits = tk.query(sample_service, id=runbooks, namespace="runbooks", top_k=1)
    assert hits["id"].tolist() == runbooks["id"].tolist()


def test_an_id_that_is_not_there_is_an_error(sample_service):
    """It names the id and the namespace."""
    with pytest.raises(InputError, match=r"namespace 'runbooks'.*'nope'"):
        tk.query(sample_service, id=["nope"], namespace="runbooks")
    with pytest.raises(InputError, match=r"default namespace.*'nope'"):
        tk.query(sample_service, tk.VectorQuery(id="nope"))


@pytest.mark.parametrize(
    ("args", "options", "says"),
    [
        ((), {}, "none of queries"),
        ((None,), {}, "none of queries"),
        (("connection refused",), {}, "queries: got 'connection refused'.*query_text"),
        (([0.1, 0.2],), {}, "queries at position 0: got 0.1"),
        ((np.ones(3),), {}, "queries: got ndarray.*vector="),
        ((pd.DataFrame({"a": [1]}),), {}, "queries: got DataFrame"),
        ((5,), {}, "queries: got 5"),
        (([],), {}, "queries: got list of 0"),
        ((), {"vector": [1.0], "id": "a"}, "vector and id"),
        ((), {"vector": ["a"]}, "vector: got 'a' at position 0"),
        ((), {"vector": [[1.0], [1.0, 2.0]]}, "vector: got rows of different lengths"),
        ((), {"vector": [1.0], "top_k": 0}, "top_k"),
        ((), {"vector": [1.0], "filter": 5}, "filter"),
        (
            (),
            {"vector": [1.0], "hybrid": tk.HybridOptions(query_mode="DENSE")},
            "query_mode",
        ),
        ((), {"vector": [1.0], "hybrid": "RRF"}, "hybrid: got 'RRF'"),
        ((), {"vector": [1.0], "exclude_self": True}, "exclude_self"),
        ((), {"id": 5}, "reading id: got 5"),
        (
            (),
            {"id": pd.DataFrame({"a": [1]})},
            "id: got a frame without the column 'id'",
        ),
    ],
)
def test_an_ambiguous_query_is_refused(server, args, options, says):
    """Nothing is sent; the error names the argument."""
    with pytest.raises(InputError, match=says):
        tk.query(server.service(), *args, **options)
    assert server.requests == []


def test_queries_by_id_of_sparse_and_hybrid_indexes(local_indexes):
    """The stored vectors are the query: sparse alone, or dense and sparse together."""
    for kind, vector, sparse in (
        ("sparse", None, {"indices": [1, 5], "values": [0.5, 0.25]}),
        ("hybrid", [1.0, 0.0], {"indices": [1], "values": [1.0]}),
    ):
        service = local_indexes[kind]
        rows = [{"id": name, "sparse": sparse} for name in ("a", "b")]
        if vector is not None:
            rows = [row | {"vector": vector} for row in rows]
        own = {"namespace": "queries by id"}  # other tests write to the same index
        assert tk.upsert_vectors(service, rows, **own) == 2
        assert set(tk.query(service, id="a", **own)["id"]) == {"a", "b"}
        assert tk.query(service, id="a", exclude_self=True, **own)["id"].tolist() == [
            "b"
        ]


def test_the_code_of_a_query_by_id_makes_it_again():
    """Its repr and code name id and exclude_self."""
    requested = tk.VectorQuery(id="runbook-0001", exclude_self=True, top_k=3)
    assert re.fullmatch(
        r"tk\.VectorQuery\(id='runbook-0001', exclude_self=True, top_k=3\)",
        requested.to_code(),
    )
    assert eval(requested.to_code(), {"tk": tk}) == requested  # noqa: S307 - the code is ours


def test_former_arguments_of_hybrid_queries_still_work(server):
    """Former arguments are read as `HybridOptions`, with a warning that names it."""
    with (
        pytest.warns(DeprecationWarning, match="hybrid=HybridOptions"),
        pytest.raises(InputError, match=r"fusion_algorithm.*Did you mean 'RRF'"),
    ):
        tk.query(server.service(), vector=[1.0], fusion_algorithm="rrf")
    assert server.requests == []


def test_query_has_few_arguments():
    """Options that belong together are one value."""
    assert len(signature(tk.query).parameters) <= 14
    assert len(signature(tk.query_text).parameters) <= 9

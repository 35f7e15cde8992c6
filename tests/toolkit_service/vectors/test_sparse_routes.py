"""Sparse and hybrid indexes over real HTTP: shapes, scores, text, and errors."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
import numpy as np
import pytest

from toolkit_service.vectors.bodies import Included, IndexQuery
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.sparse import SparseArray
from toolkit_service.vectors.specs import IndexSpec


def result(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["result"]


def error_of(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error", "status"}
    assert response.json()["status"] == status
    return response.json()["error"]


def sparse(*pairs: tuple[int, float]) -> dict[str, Any]:
    return {
        "indices": [index for index, _ in pairs],
        "values": [value for _, value in pairs],
    }


@pytest.fixture
def filled(http: httpx.Client) -> httpx.Client:
    """The indexes "words" and "mixed" with three vectors each."""
    rows = [
        {
            "id": "a",
            "sparseVector": sparse((1, 1), (7, 0.5)),
            "metadata": {"n": 1},
            "data": "first",
        },
        {"id": "b", "sparseVector": sparse((7, 2), (9, 1)), "metadata": {"n": 2}},
        {"id": "c", "sparseVector": sparse((2**31 - 1, 4), (0, -1))},
    ]
    assert result(http.post("/words/upsert", json=rows)) == "Success"
    dense = ([1, 0], [0, 1], [1, 1])
    both = [{**row, "vector": vector} for row, vector in zip(rows, dense, strict=True)]
    assert result(http.post("/mixed/upsert", json=both)) == "Success"
    return http


def scores(response: httpx.Response) -> dict[str, float]:
    return {hit["id"]: hit["score"] for hit in result(response)}


def test_sparse_scores_are_inner_products_of_what_is_shared(
    filled: httpx.Client,
) -> None:
    """Only rows that share a dimension are found, scores may be any number, the highest first."""
    request = sparse((7, 2), (0, 3), (5, 100))
    hits = result(filled.post("/words/query", json={"sparseVector": request}))
    assert [(hit["id"], hit["score"]) for hit in hits] == [
        ("b", 4),
        ("a", 1),
        ("c", -3),
    ]
    assert (
        scores(filled.post("/words/query", json={"sparseVector": sparse((5, 1))})) == {}
    )
    both = [
        {"sparseVector": request, "topK": 1},
        {"sparseVector": sparse((9, 1)), "topK": 5},
    ]
    assert [
        [hit["id"] for hit in hits]
        for hits in result(filled.post("/words/query", json=both))
    ] == [
        ["b"],
        ["b"],
    ]


def test_idf_weighs_rare_dimensions_more(filled: httpx.Client) -> None:
    """Each dimension counts log((N - n + 0.5) / (n + 0.5) + 1), filtered or not."""
    body = {"sparseVector": sparse((7, 1), (1, 1)), "weightingStrategy": "IDF"}
    common, rare = math.log(1.5 / 2.5 + 1), math.log(2.5 / 1.5 + 1)
    expected = {"a": 0.5 * common + rare, "b": 2 * common}
    assert scores(filled.post("/words/query", json=body)) == pytest.approx(expected)
    assert scores(
        filled.post("/words/query", json={**body, "filter": "n = 2"})
    ) == pytest.approx({"b": 2 * common})
    result(filled.post("/words/delete", json={"ids": ["a", "c"]}))
    everywhere = math.log(0.5 / 1.5 + 1)
    assert scores(filled.post("/words/query", json=body)) == pytest.approx(
        {"b": 2 * everywhere}
    )


def test_sparse_vectors_are_returned_on_request(filled: httpx.Client) -> None:
    """Query, range, fetch and random return `sparseVector` with, or instead of, `vector`."""
    stored = sparse((7, 2), (9, 1))
    hit = result(
        filled.post(
            "/words/query",
            json={
                "sparseVector": sparse((9, 1)),
                "includeVectors": True,
                "includeMetadata": True,
            },
        )
    )[0]
    assert hit == {"id": "b", "score": 1, "sparseVector": stored, "metadata": {"n": 2}}
    fetched = result(
        filled.post("/mixed/fetch", json={"ids": ["b"], "includeVectors": True})
    )
    assert fetched == [{"id": "b", "vector": [0, 1], "sparseVector": stored}]
    page = result(
        filled.post(
            "/words/range", json={"cursor": "0", "limit": 9, "includeVectors": True}
        )
    )
    assert [row["sparseVector"]["indices"] for row in page["vectors"]] == [
        [1, 7],
        [7, 9],
        [2**31 - 1, 0],
    ]
    assert "sparseVector" in result(filled.get("/words/random"))
    assert "vector" not in result(filled.get("/words/random"))


def test_replacing_and_updating_moves_a_row(filled: httpx.Client) -> None:
    """Upserted and updated sparse vectors are found only at their new dimensions; other parts stay."""
    # what is held in memory moves too
    result(filled.post("/words/query", json={"sparseVector": sparse((1, 1))}))
    result(
        filled.post("/words/upsert", json={"id": "a", "sparseVector": sparse((50, 1))})
    )
    assert result(
        filled.post("/words/update", json={"id": "b", "sparseVector": sparse((51, 2))})
    ) == {"updated": 1}
    assert (
        scores(
            filled.post(
                "/words/query", json={"sparseVector": sparse((1, 1), (7, 1), (9, 1))}
            )
        )
        == {}
    )
    request = {"sparseVector": sparse((50, 1), (51, 1)), "includeMetadata": True}
    assert result(filled.post("/words/query", json=request)) == [
        {"id": "b", "score": 2, "metadata": {"n": 2}},
        {"id": "a", "score": 1},
    ]
    assert result(
        filled.post("/mixed/update", json={"id": "a", "sparseVector": sparse((60, 1))})
    ) == {"updated": 1}
    result(filled.post("/mixed/update", json={"id": "a", "metadata": {"n": 9}}))
    both = result(
        filled.post("/mixed/fetch", json={"ids": ["a"], "includeVectors": True})
    )[0]
    assert both == {"id": "a", "vector": [1, 0], "sparseVector": sparse((60, 1))}


def test_hybrid_takes_either_vector_or_both(filled: httpx.Client) -> None:
    """With one vector the scores are that side's own; with both, ranks are fused, or scores with DBSF."""
    dense, other = {"vector": [1, 0]}, {"sparseVector": sparse((7, 1))}
    assert scores(filled.post("/mixed/query", json=dense)) == pytest.approx(
        {"a": 1, "c": (1 + 0.5**0.5) / 2, "b": 0.5}
    )
    assert scores(filled.post("/mixed/query", json=other)) == {"b": 2, "a": 0.5}
    both = {**dense, **other}
    fused = {"a": 1 / 61 + 1 / 62, "b": 1 / 63 + 1 / 61, "c": 1 / 62}
    assert scores(filled.post("/mixed/query", json=both)) == pytest.approx(fused)
    assert list(scores(filled.post("/mixed/query", json={**both, "topK": 2}))) == [
        "a",
        "b",
    ]
    by_scores = scores(
        filled.post("/mixed/query", json={**both, "fusionAlgorithm": "DBSF"})
    )
    # of two scores the higher is one deviation above the mean: (3 + 1) / 6
    deviation = np.std([1, (1 + 0.5**0.5) / 2, 0.5])
    mean = np.mean([1, (1 + 0.5**0.5) / 2, 0.5])
    assert by_scores["a"] == pytest.approx((1 - mean) / (6 * deviation) + 0.5 + 2 / 6)
    assert by_scores["b"] == pytest.approx((0.5 - mean) / (6 * deviation) + 0.5 + 4 / 6)
    assert scores(
        filled.post("/mixed/query", json={**both, "filter": "n = 2"})
    ) == pytest.approx({"b": 2 / 61})


def test_the_first_rank_is_a_setting(http: httpx.Client) -> None:
    """An index made with rank_start 0 scores its best 1/60 a side instead of 1/61."""
    fields = {"kind": "hybrid", "dimension": 2, "similarity": "COSINE", "rank_start": 0}
    assert result(http.put("/zero", json=fields)) == fields | {
        "name": "zero",
        "model": None,
    }
    row = {"id": "a", "vector": [1, 0], "sparseVector": sparse((1, 1))}
    result(http.post("/zero/upsert", json=row))
    request = {"vector": [1, 0], "sparseVector": sparse((1, 1))}
    assert scores(http.post("/zero/query", json=request)) == pytest.approx(
        {"a": 2 / 60}
    )
    error_of(http.put("/two", json=fields | {"rank_start": 2}), 400)


def test_indexes_of_all_kinds_are_made_and_described(http: httpx.Client) -> None:
    """PUT accepts the fields of each kind; info has the parts that the kind has."""
    made = result(http.put("/made-sparse", json={"kind": "sparse", "model": "bm25"}))
    assert made == {
        "name": "made-sparse",
        "kind": "sparse",
        "dimension": 0,
        "similarity": None,
        "model": "bm25",
        "rank_start": 1,
    }
    assert result(http.put("/made-sparse", json=made)) == made
    info = result(http.get("/made-sparse/info"))
    assert (info["indexType"], info["dimension"], info["similarityFunction"]) == (
        "SPARSE",
        0,
        "",
    )
    assert info["sparseIndex"] == {"embeddingModel": "bm25"}
    assert "denseIndex" not in info
    hybrid = result(http.get("/notes/info"))
    assert hybrid["indexType"] == "HYBRID"
    assert (
        hybrid["denseIndex"]["embeddingModel"],
        hybrid["denseIndex"]["dimension"],
    ) == ("hashing", 64)
    assert hybrid["sparseIndex"] == {"embeddingModel": "bm25"}
    assert "sparseIndex" not in result(http.get("/plain/info"))
    fields = {"kind": "hybrid", "dimension": 8, "similarity": "COSINE"}
    for wrong in (
        {"kind": "sparse", "dimension": 8},
        {"kind": "sparse", "similarity": "COSINE"},
        {"kind": "sparse", "model": "hashing"},
        {"kind": "sparse", "model": "hashing+bm25"},
        fields | {"model": "hashing"},
        fields | {"model": "bm25+hashing"},
        fields | {"model": "hashing+bm25+bm25"},
        fields | {"dimension": 0},
        fields | {"kind": ["hybrid"]},
        fields | {"model": 7},
    ):
        error_of(http.put("/wrong", json=wrong), 400)


def test_text_is_embedded_by_both_models(http: httpx.Client) -> None:
    """On a hybrid index text is stored and queried on both sides, or on the one of queryMode."""
    rows = [
        {"id": "net", "data": "connection refused by the host"},
        {"id": "disk", "data": "no space left on device"},
    ]
    result(http.post("/notes/upsert-data", json=rows))
    fused = scores(http.post("/notes/query-data", json={"data": "connection refused"}))
    assert fused["net"] == pytest.approx(2 / 61)
    dense = scores(
        http.post("/notes/query-data", json={"data": "refusing", "queryMode": "DENSE"})
    )
    assert set(dense) == {"net", "disk"}
    assert dense["net"] > 0.5
    only = scores(
        http.post(
            "/notes/query-data", json={"data": "the device", "queryMode": "SPARSE"}
        )
    )
    assert set(only) == {"net", "disk"}
    shown = result(
        http.post(
            "/notes/fetch",
            json={"ids": ["net"], "includeVectors": True, "includeData": True},
        )
    )
    assert (len(shown[0]["vector"]), len(shown[0]["sparseVector"]["indices"])) == (
        64,
        5,
    )
    result(
        http.post("/notes/update", json={"id": "disk", "data": "certificate expired"})
    )
    for mode in ("DENSE", "SPARSE", "HYBRID"):
        hits = result(
            http.post(
                "/notes/query-data",
                json={"data": "expired certificate", "queryMode": mode},
            )
        )
        assert hits[0]["id"] == "disk"
    result(
        http.post(
            "/notes/update",
            json={"id": "net", "data": "x", "sparseVector": sparse((3, 1))},
        )
    )
    moved = result(
        http.post("/notes/fetch", json={"ids": ["net"], "includeVectors": True})
    )[0]
    assert moved["sparseVector"] == sparse((3, 1))
    assert moved["vector"] != shown[0]["vector"]


def test_bm25_text_with_idf_prefers_the_rare_word(http: httpx.Client) -> None:
    """A word in every text does not count; with IDF, the rare one decides."""
    rows = [
        {"id": str(number), "data": f"error error error in part {number}"}
        for number in range(9)
    ]
    result(http.post("/terms/upsert-data", json=rows))
    request = {"data": "error 7", "weightingStrategy": "IDF", "topK": 1}
    assert result(http.post("/terms/query-data", json=request))[0]["id"] == "7"
    assert error_of(http.post("/words/query-data", json=request), 422).startswith(
        "text for the index words"
    )


GOOD = {"sparseVector": sparse((1, 1))}
BAD = [
    (
        "words",
        {"sparseVector": {"indices": [1, 2], "values": [1]}},
        422,
        "2 indices and 1 values",
    ),
    (
        "words",
        {"sparseVector": {"indices": [1, -1], "values": [1, 1]}},
        422,
        "indices[1]; got -1",
    ),
    ("words", {"sparseVector": {"indices": [2**31], "values": [1]}}, 422, "2147483647"),
    (
        "words",
        {"sparseVector": {"indices": [10**300], "values": [1]}},
        422,
        "2147483647",
    ),
    ("words", {"sparseVector": {"indices": [], "values": []}}, 422, "at least one"),
    (
        "words",
        {"sparseVector": {"indices": [1.5], "values": [1]}},
        400,
        "a whole number",
    ),
    (
        "words",
        {"sparseVector": {"indices": [True], "values": [1]}},
        400,
        "a whole number",
    ),
    ("words", {"sparseVector": {"indices": ["1"], "values": [1]}}, 400, "indices[0]"),
    ("words", {"sparseVector": {"indices": [1], "values": [None]}}, 400, "values[0]"),
    (
        "words",
        {"sparseVector": {"indices": [1], "values": [1e39]}},
        400,
        "single precision",
    ),
    (
        "words",
        {"sparseVector": {"indices": [1], "values": [10**390]}},
        400,
        "single precision",
    ),
    (
        "words",
        {"sparseVector": {"indices": 1, "values": [1]}},
        400,
        "sparseVector.indices",
    ),
    ("words", {"sparseVector": {"indices": [1]}}, 400, "sparseVector.values"),
    ("words", {"sparseVector": [[1], [1]]}, 400, "a JSON object"),
    ("words", {"sparseVector": "1:1"}, 400, "a JSON object"),
    ("words", {}, 400, "sparseVector"),
    ("words", {"vector": [1, 0]}, 422, "one for a sparse index"),
    ("words", {**GOOD, "vector": [1, 0]}, 422, "one for a sparse index"),
    ("mixed", {**GOOD, "vector": [1, 0, 0]}, 422, "expected: 2"),
]


@pytest.mark.parametrize("operation", ["upsert", "query", "update", "resumable-query"])
@pytest.mark.parametrize(("index", "body", "status", "says"), BAD)
def test_bad_sparse_vectors_are_rejected(
    http: httpx.Client,
    index: str,
    operation: str,
    body: dict[str, Any],
    status: int,
    says: str,
) -> None:
    """Each bad sparse vector gets its status and words wherever one can be given, and nothing is written."""
    if not body and operation == "update":
        says = "nothing to change"
    message = error_of(
        http.post(f"/{index}/{operation}", content=json.dumps({"id": "a", **body})),
        status,
    )
    assert says in message
    assert len(message) < 1000
    assert result(http.get(f"/{index}/info"))["vectorCount"] == 0


def test_a_hybrid_upsert_needs_both_vectors(http: httpx.Client) -> None:
    """One vector is 422 in an upsert, with its row; no vector is 400 in a query."""
    for row in ({"id": "a", **GOOD}, {"id": "a", "vector": [1, 0]}, {"id": "a"}):
        assert "row 1: " in error_of(
            http.post(
                "/mixed/upsert", json=[{"id": "b", "vector": [1, 0], **GOOD}, row]
            ),
            422,
        )
    assert "or both" in error_of(http.post("/mixed/query", json={"topK": 3}), 400)
    assert result(http.get("/mixed/info"))["vectorCount"] == 0


def test_sparse_vectors_survive_reopening(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """After reopening, sparse and hybrid indexes return the same as before, to the bit."""
    folder = tmp_path_factory.mktemp("reopened")
    numbers = np.random.default_rng(4)
    include = Included(include_vectors=True)
    request = SparseArray(np.arange(0, 50, 7), numbers.standard_normal(8))
    query = IndexQuery(np.ones(3), 20, include, sparse=request, fusion="DBSF", idf=True)
    registry = IndexRegistry(folder)
    index = registry.create(IndexSpec.parse("mixed:hybrid:3:EUCLIDEAN"))
    index.upsert(
        {
            "id": str(number),
            "vector": numbers.standard_normal(3),
            "sparseVector": {
                "indices": numbers.choice(50, 6, replace=False),
                "values": numbers.standard_normal(6),
            },
        }
        for number in range(60)
    )
    before = [
        (hit.row.id, hit.score, hit.row.sparse) for hit in index.query([query])[0]
    ]
    registry.close()
    registry = IndexRegistry(folder)
    after = [
        (hit.row.id, hit.score, hit.row.sparse)
        for hit in registry.get("mixed").query([query])[0]
    ]
    registry.close()
    assert len(before) == 20
    assert str(after) == str(before)

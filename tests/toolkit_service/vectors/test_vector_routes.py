"""The vector operations over real HTTP: their shapes, and their errors."""

from __future__ import annotations

import functools
import json
import re
import threading
from typing import Any

import httpx
import pytest

from toolkit_service.vectors.vector_routes import vector_operations


def result(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    assert set(response.json()) == {"result"}
    return response.json()["result"]


def error_of(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error", "status"}
    assert body["status"] == status
    return body["error"]


@pytest.fixture
def filled(http: httpx.Client) -> httpx.Client:
    """The index "plain" with three vectors, and one in the namespace "other"."""
    rows = [
        {
            "id": "a",
            "vector": [1, 0],
            "metadata": {"city": "Izmir", "n": 1},
            "data": "first",
        },
        {"id": "b", "vector": [0, 1], "metadata": {"city": "Bergen", "n": 2}},
        {"id": "ab", "vector": [1, 1]},
    ]
    assert result(http.post("/plain/upsert", json=rows)) == "Success"
    assert (
        result(http.post("/plain/upsert/other", json={"id": "z", "vector": [1, 2]}))
        == "Success"
    )
    return http


def test_query_scores_by_the_documented_formula_best_first(
    filled: httpx.Client,
) -> None:
    """A COSINE query scores (1 + cos) / 2, sorted, with id and score only unless requested."""
    hits = result(filled.post("/plain/query", json={"vector": [2, 0], "topK": 3}))
    assert [hit["id"] for hit in hits] == ["a", "ab", "b"]
    assert [hit["score"] for hit in hits] == pytest.approx(
        [1.0, (1 + 0.5**0.5) / 2, 0.5]
    )
    assert all(set(hit) == {"id", "score"} for hit in hits)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("near", {"p": 1 / (1 + 9), "q": 1 / (1 + 14)}),
        ("dots", {"p": (1 + 5) / 2, "q": (1 + 0) / 2}),
    ],
)
def test_other_similarities_score_as_documented(
    http: httpx.Client, index: str, expected: dict[str, float]
) -> None:
    """EUCLIDEAN is 1 / (1 + squared distance), DOT_PRODUCT (1 + dot) / 2."""
    rows = [{"id": "p", "vector": [1, 2, 0]}, {"id": "q", "vector": [0, 0, 0]}]
    result(http.post(f"/{index}/upsert", json=rows))
    hits = result(http.post(f"/{index}/query", json={"vector": [1, 2, 3]}))
    assert {hit["id"]: hit["score"] for hit in hits} == pytest.approx(expected)
    assert [hit["id"] for hit in hits] == ["p", "q"]


def test_include_flags_decide_what_comes(filled: httpx.Client) -> None:
    """Vector, metadata and data are returned only on request, and only where present."""
    body = {
        "vector": [1, 0],
        "includeMetadata": True,
        "includeVectors": True,
        "includeData": True,
    }
    first, second, _ = result(filled.post("/plain/query", json=body))
    assert first["vector"] == [1, 0]
    assert first["metadata"] == {"city": "Izmir", "n": 1}
    assert first["data"] == "first"
    assert set(second) == {"id", "score", "vector"}


def test_batch_shapes(filled: httpx.Client) -> None:
    """One object or an array of one returns a flat list; an array of several one list each, in order."""
    item = {"vector": [1, 0], "topK": 1}
    assert result(filled.post("/plain/query", json=item))[0]["id"] == "a"
    assert result(filled.post("/plain/query", json=[item]))[0]["id"] == "a"
    both = result(
        filled.post("/plain/query", json=[item, {"vector": [0, 1], "topK": 2}])
    )
    assert [[hit["id"] for hit in hits] for hits in both] == [["a"], ["b", "ab"]]


def test_filter_is_exact(filled: httpx.Client) -> None:
    """Only matching rows are returned, up to topK."""
    body = {"vector": [1, 0], "topK": 1, "filter": "n >= 2 OR city = 'Bergen'"}
    assert [hit["id"] for hit in result(filled.post("/plain/query", json=body))] == [
        "b"
    ]
    assert result(filled.post("/plain/query", json=body | {"filter": "n > 99"})) == []
    assert (
        len(
            result(filled.post("/plain/query", json={"vector": [1, 0], "filter": "  "}))
        )
        == 3
    )


def test_namespaces_are_apart(filled: httpx.Client) -> None:
    """A namespace appears with its first vector; another one, or one that is not there, does not see it."""
    assert (
        result(filled.post("/plain/query/other", json={"vector": [1, 0]}))[0]["id"]
        == "z"
    )
    assert result(filled.post("/plain/query/nowhere", json={"vector": [1, 0]})) == []
    assert result(
        filled.post("/plain/range/nowhere", json={"cursor": "0", "limit": 5})
    ) == {
        "nextCursor": "",
        "vectors": [],
    }
    assert result(filled.post("/plain/fetch/nowhere", json={"ids": ["a"]})) == [None]
    assert result(filled.get("/plain/list-namespaces")) == ["", "other"]


def test_query_data_embeds_text_with_the_model(http: httpx.Client) -> None:
    """Stored texts and queries use the same model, in both batch shapes."""
    rows = [
        {
            "id": "net",
            "data": "connection refused by the upstream host",
            "metadata": {"kind": "network"},
        },
        {"id": "disk", "data": "no space left on device"},
    ]
    assert result(http.post("/docs/upsert-data", json=rows)) == "Success"
    assert (
        result(
            http.post(
                "/docs/upsert-data",
                json={"id": "tls", "data": "certificate has expired"},
            )
        )
        == "Success"
    )
    body = {
        "data": "refused connections",
        "topK": 2,
        "includeData": True,
        "includeMetadata": True,
    }
    first, _ = result(http.post("/docs/query-data", json=body))
    assert first["id"] == "net"
    assert first["data"] == rows[0]["data"]
    assert first["metadata"] == {"kind": "network"}
    both = result(
        http.post(
            "/docs/query-data", json=[body, {"data": "expired certificates", "topK": 1}]
        )
    )
    assert [hits[0]["id"] for hits in both] == ["net", "tls"]
    assert result(
        http.post("/docs/query-data", json={"data": rows[1]["data"], "topK": 1})
    )[0]["score"] == (pytest.approx(1, abs=1e-6))


@pytest.mark.parametrize("path", ["query-data", "upsert-data"])
def test_text_without_a_model_is_422(http: httpx.Client, path: str) -> None:
    """An index without an embedding model responds 422 to text."""
    assert "model" in error_of(
        http.post(f"/plain/{path}", json={"id": "a", "data": "text"}), 422
    )


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_range_pages_through_everything(filled: httpx.Client, method: str) -> None:
    """Range returns each vector once, by GET and by POST, starting at "0" or "", with "" at the end."""
    for start in ("0", ""):
        seen, cursor = [], start
        while True:
            page = result(
                filled.request(
                    method, "/plain/range", json={"cursor": cursor, "limit": 1}
                )
            )
            seen += [row["id"] for row in page["vectors"]]
            cursor = page["nextCursor"]
            if cursor == "":
                break
        assert seen == ["a", "b", "ab"]


def test_range_by_prefix(filled: httpx.Client) -> None:
    """With a prefix, only its ids are returned, and the cursor is empty after the last match."""
    first = result(
        filled.post("/plain/range", json={"cursor": "0", "limit": 1, "prefix": "a"})
    )
    assert [row["id"] for row in first["vectors"]] == ["a"]
    last = result(
        filled.post(
            "/plain/range",
            json={"cursor": first["nextCursor"], "limit": 1, "prefix": "a"},
        )
    )
    assert [row["id"] for row in last["vectors"]] == ["ab"]
    assert last["nextCursor"] == ""


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_fetch_by_ids_follows_their_order(filled: httpx.Client, method: str) -> None:
    """Fetch follows the ids' order, null where there is none, and repeats repeated ids."""
    body = {"ids": ["b", "gone", "a", "b"], "includeVectors": True}
    rows = result(filled.request(method, "/plain/fetch", json=body))
    assert [row and row["id"] for row in rows] == ["b", None, "a", "b"]
    assert rows[0] == {"id": "b", "vector": [0, 1]}


def test_fetch_by_prefix_stops_at_a_thousand(http: httpx.Client) -> None:
    """A fetch by prefix returns at most 1000 vectors."""
    rows = [{"id": f"p{number}", "vector": [1, number]} for number in range(1005)] + [
        {"id": "q", "vector": [0, 1]}
    ]
    result(http.post("/plain/upsert", json=rows))
    assert len(result(http.post("/plain/fetch", json={"prefix": "p"}))) == 1000
    assert [
        row["id"] for row in result(http.post("/plain/fetch", json={"prefix": "p1004"}))
    ] == ["p1004"]


def test_update_changes_only_the_named_fields(filled: httpx.Client) -> None:
    """Update changes only its fields; OVERWRITE replaces metadata, PATCH merges it and null removes."""
    body = {
        "ids": ["a"],
        "includeMetadata": True,
        "includeVectors": True,
        "includeData": True,
    }
    patch = {
        "id": "a",
        "metadata": {"n": None, "deep": {"x": 1}},
        "metadataUpdateMode": "PATCH",
    }
    assert result(filled.post("/plain/update", json=patch)) == {"updated": 1}
    assert result(filled.post("/plain/fetch", json=body)) == [
        {
            "id": "a",
            "vector": [1, 0],
            "metadata": {"city": "Izmir", "deep": {"x": 1}},
            "data": "first",
        }
    ]
    assert result(
        filled.post(
            "/plain/update", json={"id": "a", "vector": [0, 2], "metadata": {"n": 9}}
        )
    ) == {"updated": 1}
    assert result(filled.post("/plain/fetch", json=body)) == [
        {"id": "a", "vector": [0, 2], "metadata": {"n": 9}, "data": "first"}
    ]
    assert (
        result(filled.post("/plain/query", json={"vector": [1, 0], "filter": "n = 9"}))[
            0
        ]["score"]
        == 0.5
    )
    assert result(filled.post("/plain/update", json={"id": "gone", "data": "x"})) == {
        "updated": 0
    }


def test_update_of_text_embeds_it_anew(http: httpx.Client) -> None:
    """On an index with a model, new text changes the vector."""
    result(
        http.post(
            "/docs/upsert-data",
            json=[{"id": "x", "data": "alpha"}, {"id": "y", "data": "beta"}],
        )
    )
    assert result(
        http.post("/docs/update", json={"id": "x", "data": "gamma rays"})
    ) == {"updated": 1}
    hit = result(
        http.post(
            "/docs/query-data",
            json={"data": "gamma rays", "topK": 1, "includeData": True},
        )
    )[0]
    assert (hit["id"], hit["data"]) == ("x", "gamma rays")
    assert hit["score"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("method", ["DELETE", "POST"])
@pytest.mark.parametrize(
    ("body", "left"),
    [
        ({"ids": ["a", "gone", "a"]}, ["b", "ab"]),
        (["a"], ["b", "ab"]),
        ({"ids": "a"}, ["b", "ab"]),
        ({"prefix": "a"}, ["b"]),
        ({"filter": "city GLOB 'I*'"}, ["b", "ab"]),
    ],
)
def test_delete_by_ids_prefix_or_filter(
    filled: httpx.Client, method: str, body: Any, left: list[str]
) -> None:
    """Delete removes and counts the selected rows, for range and query."""
    response = filled.request(method, "/plain/delete", content=json.dumps(body))
    assert result(response) == {"deleted": 3 - len(left)}
    page = result(filled.post("/plain/range", json={"cursor": "0", "limit": 10}))
    assert [row["id"] for row in page["vectors"]] == left
    assert {
        hit["id"]
        for hit in result(filled.post("/plain/query", json={"vector": [1, 1]}))
    } == set(left)
    nearest_to_gone = result(
        filled.post("/plain/query", json={"vector": [1, 0], "topK": 1})
    )
    assert [hit["id"] for hit in nearest_to_gone] == ["ab" if "ab" in left else "b"]
    assert result(filled.get("/plain/info"))["namespaces"][""]["vectorCount"] == len(
        left
    )


def test_reset_of_one_namespace_and_of_all(filled: httpx.Client) -> None:
    """Reset empties one namespace; with ?all every one."""
    assert result(filled.delete("/plain/reset")) == "Success"
    counts = result(filled.get("/plain/info"))["namespaces"]
    assert {name: value["vectorCount"] for name, value in counts.items()} == {
        "": 0,
        "other": 1,
    }
    assert result(filled.delete("/plain/reset?all")) == "Success"
    assert result(filled.get("/plain/info"))["vectorCount"] == 0
    result(filled.post("/plain/upsert/other", json={"id": "z", "vector": [1, 2]}))
    assert result(filled.post("/plain/reset/other")) == "Success"
    assert result(filled.get("/plain/random/other")) is None


def test_info_and_random(filled: httpx.Client) -> None:
    """Info counts and describes; random returns a whole vector of the namespace."""
    info = result(filled.get("/plain/info"))
    assert info["vectorCount"] == 4
    assert (info["dimension"], info["similarityFunction"], info["indexType"]) == (
        2,
        "COSINE",
        "DENSE",
    )
    assert info["namespaces"]["other"] == {"vectorCount": 1, "pendingVectorCount": 0}
    assert info["indexSize"] > 0
    assert result(filled.get("/docs/info"))["denseIndex"]["embeddingModel"] == "hashing"
    assert result(filled.get("/plain/random/other")) == {"id": "z", "vector": [1, 2]}


def test_namespaces_are_renamed_and_deleted(filled: httpx.Client) -> None:
    """Rename keeps the vectors; delete removes them; a missing namespace is 404 with the documented words."""
    renaming = {"namespace": "other", "newNamespace": "new"}
    assert result(filled.post("/plain/rename-namespace", json=renaming)) == {
        "renamed": True
    }
    assert result(filled.post("/plain/fetch/new", json={"ids": ["z"]})) == [{"id": "z"}]
    message = error_of(filled.post("/plain/rename-namespace", json=renaming), 404)
    assert message == "Namespace other for the index plain does not exist"
    result(filled.post("/plain/upsert/third", json={"id": "y", "vector": [1, 2]}))
    error_of(
        filled.post(
            "/plain/rename-namespace",
            json={"namespace": "new", "newNamespace": "third"},
        ),
        400,
    )
    assert result(filled.delete("/plain/delete-namespace/new")) == "Success"
    assert result(filled.get("/plain/list-namespaces")) == ["", "third"]
    error_of(filled.delete("/plain/delete-namespace/new"), 404)


def test_a_namespace_takes_the_name_of_another(filled: httpx.Client) -> None:
    """With `deleteExisting`, the namespace of the new name is deleted; the same name again is an error."""
    result(filled.post("/plain/upsert/taken", json={"id": "gone", "vector": [1, 2]}))
    body = {"namespace": "other", "newNamespace": "taken", "deleteExisting": True}
    assert "true or false" in error_of(
        filled.post("/plain/rename-namespace", json={**body, "deleteExisting": 1}), 400
    )
    assert result(filled.post("/plain/rename-namespace", json=body)) == {
        "renamed": True
    }
    assert result(filled.post("/plain/fetch/taken", json={"ids": ["z", "gone"]})) == [
        {"id": "z"},
        None,
    ]
    assert result(filled.get("/plain/list-namespaces")) == ["", "taken"]
    error_of(
        filled.post("/plain/rename-namespace", json={**body, "namespace": "taken"}), 400
    )
    assert result(filled.post("/plain/fetch/taken", json={"ids": ["z"]})) == [
        {"id": "z"}
    ]


def test_indexes_are_listed_and_made(http: httpx.Client) -> None:
    """PUT makes an index once: the same again is fine, another under its name 409. GET shows them."""
    fields = {"kind": "dense", "dimension": 3, "similarity": "DOT_PRODUCT"}
    made = result(http.put("/fresh", json=fields))
    assert made == fields | {"name": "fresh", "model": None, "rank_start": 1}
    assert result(http.put("/fresh", json=fields)) == made
    assert result(http.get("/fresh")) == made
    assert made in result(http.get(str(http.base_url).rstrip("/")))
    error_of(http.put("/fresh", json=fields | {"dimension": 4}), 409)
    assert (
        result(http.post("/fresh/upsert", json={"id": "a", "vector": [1, 2, 3]}))
        == "Success"
    )
    for wrong in (
        {},
        [],
        fields | {"dimension": 0},
        fields | {"model": "none-such"},
        fields | {"colour": 1},
    ):
        error_of(http.put("/another", json=wrong), 400)
    error_of(http.put("/-bad-", json=fields), 400)


def test_metadata_keeps_its_numbers(http: httpx.Client) -> None:
    """Whole numbers beyond 2**53 and beyond 64 bits come back digit by digit, and text in any script."""
    metadata = {
        "big": 2**53 + 1,
        "bigger": 10**30,
        "half": 0.1,
        "text": "Ærøskøbing 東京",
    }
    result(
        http.post(
            "/plain/upsert",
            json={"id": "ø", "vector": [1, 1], "metadata": metadata, "data": "œuvre"},
        )
    )
    row = result(
        http.post(
            "/plain/fetch",
            json={"ids": ["ø"], "includeMetadata": True, "includeData": True},
        )
    )[0]
    assert row == {"id": "ø", "metadata": metadata, "data": "œuvre"}


def test_wrong_dimension_has_the_documented_words(http: httpx.Client) -> None:
    """A vector of the wrong dimension is 422, in a query and in an upsert."""
    message = "Invalid vector dimension: 2, expected: 256"
    assert error_of(http.post("/docs/query", json={"vector": [1, 2]}), 422) == message
    assert (
        error_of(http.post("/docs/upsert", json={"id": "a", "vector": [1, 2]}), 422)
        == message
    )


GOOD = {"vector": [1, 0]}
ROW = {"id": "a", "vector": [1, 0]}
DEEP = functools.reduce(lambda inner, _: {"a": inner}, range(150), {})
BAD = [
    *(
        ("query", {**GOOD, "topK": top_k}, 400, "topK")
        for top_k in (0, -1, 1.5, "5", True, 10**9)
    ),
    ("query", {}, 400, "vector"),
    ("query", [], 400, "0 queries"),
    ("query", [GOOD, {"vector": [1, "2"]}], 400, "query 1: vector[1]"),
    ("query", "text", 400, "a JSON object"),
    ("query", {**GOOD, "includeData": "yes"}, 400, "includeData"),
    ("query", {**GOOD, "filter": "a = "}, 400, "position 4"),
    ("query", {**GOOD, "filter": "(" * 1000 + "a = 1" + ")" * 1000}, 400, "100 deep"),
    ("query", {**GOOD, "filter": 5}, 400, "filter"),
    ("query", {**GOOD, "fusionAlgorithm": "SUM"}, 400, "RRF"),
    (
        "query",
        {**GOOD, "sparseVector": {"indices": [1], "values": [1]}},
        422,
        "sparseVector",
    ),
    ("query-data", {}, 422, "model"),
    ("upsert", {"id": "a", "vector": [True, 0]}, 400, "vector[0]"),
    ("upsert", {"id": "a", "vector": [0, None]}, 400, "vector[1]"),
    ("upsert", {"id": "a", "vector": [0, 1e39]}, 400, "vector[1]"),
    ("upsert", {"id": "a", "vector": [10**390, 0]}, 400, "vector[0]"),
    ("upsert", {"id": "a", "vector": "1,0"}, 400, "array"),
    ("upsert", {"id": "", "vector": [1, 0]}, 400, "id"),
    ("upsert", {"id": "x" * 10**6, "vector": [1, 0]}, 400, "1000000 characters"),
    ("upsert", {"id": "a\0b", "vector": [1, 0]}, 400, "NUL"),
    ("upsert", {"id": 7.5, "vector": [1, 0]}, 400, "id"),
    ("upsert", {"vector": [1, 0]}, 400, "id"),
    ("upsert", [ROW, {**ROW, "metadata": []}], 400, "row 1: metadata"),
    ("upsert", {**ROW, "metadata": {"a": "x" * 50_000}}, 400, "49152"),
    ("upsert", {**ROW, "data": "x" * (1024 * 1024 + 1)}, 400, "1048576"),
    (
        "upsert",
        {**ROW, "sparseVector": {"indices": [1], "values": [1]}},
        422,
        "sparseVector",
    ),
    ("upsert", {**ROW, "metadata": DEEP}, 400, "100 levels"),
    ("upsert", {"id": DEEP, "vector": [1, 0]}, 400, "id"),
    ("upsert", {"id": "a", "vector": DEEP}, 400, "vector"),
    (
        "update",
        {"id": "a", "metadata": DEEP, "metadataUpdateMode": "PATCH"},
        400,
        "100 levels",
    ),
    ("query", {**GOOD, "filter": DEEP}, 400, "filter"),
    ("upsert", [], 400, "0 rows"),
    ("upsert", None, 400, "JSON object"),
    *(
        ("range", {"cursor": "0", "limit": limit}, 400, "limit")
        for limit in (None, 0, -1, 1.5, "5", True, 10**9)
    ),
    *(
        ("range", {"cursor": cursor, "limit": 5}, 400, "cursor")
        for cursor in (None, 0.5, -1, "x", "-1", "9" * 19, "9" * 18)
    ),
    ("fetch", {}, 400, "neither"),
    (
        "fetch",
        {"ids": ["a"], "prefix": "a"},
        400,
        "Only one of ids or prefix must be provided.",
    ),
    ("fetch", {"ids": "a"}, 400, "array"),
    ("fetch", {"ids": ["a", True]}, 400, "ids[1]"),
    ("fetch", {"ids": ["a"] * 10_001}, 400, "10001"),
    (
        "delete",
        {},
        400,
        "Only and only one of the ids, prefix, or filter must be provided.",
    ),
    ("delete", {"prefix": ""}, 400, "prefix"),
    ("delete", {"filter": ""}, 400, "condition"),
    ("delete", {"ids": [], "filter": "a = 1"}, 400, "Only and only one"),
    ("delete", 1.5, 400, "ids"),
    ("delete", [True], 400, "ids[0]"),
    ("update", {"id": "a"}, 400, "nothing to change"),
    ("update", {"id": "a", "data": "x", "metadataUpdateMode": "MERGE"}, 400, "PATCH"),
    ("rename-namespace", {"namespace": "a"}, 400, "newNamespace"),
]


@pytest.mark.parametrize(("operation", "body", "status", "says"), BAD)
def test_bad_bodies_are_rejected(
    http: httpx.Client, operation: str, body: Any, status: int, says: str
) -> None:
    """Each bad body gets its status and words, nothing is written, and the next request is served."""
    message = error_of(
        http.post(f"/plain/{operation}", content=json.dumps(body)), status
    )
    assert says in message
    assert len(message) < 1000
    assert result(http.get("/plain/info"))["vectorCount"] == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"vector": [NaN, 1]}',
        b"\xff",
        b"[" * 100_000,
        b'{"vector": [1, 0], "vector": [0, 1]}',
    ],
)
def test_what_is_no_json_is_rejected(http: httpx.Client, content: bytes) -> None:
    """Bodies that are not strict JSON are 400, with the service's own error form."""
    error_of(http.post("/plain/query", content=content), 400)


@pytest.mark.parametrize("path", ["plain/upsert/%00", "plain/upsert/" + "n" * 10_000])
def test_bad_namespaces_are_rejected(http: httpx.Client, path: str) -> None:
    """Namespaces with NUL or of 10 KB are 400, and are not created."""
    error_of(http.post(f"/{path}", json=ROW), 400)
    assert result(http.get("/plain/list-namespaces")) == [""]


@pytest.mark.parametrize("path", ["..%2f..%2fx", "%2e%2e%2fx"])
def test_namespaces_never_leave_their_index(http: httpx.Client, path: str) -> None:
    """A namespace with a part that URLs resolve away is an error, and is not made."""
    assert "'..'" in error_of(http.post(f"/plain/upsert/{path}", json=ROW), 400)


@pytest.mark.parametrize("path", ["team%2fa", "team/a"])
def test_a_namespace_may_have_slashes(http: httpx.Client, path: str) -> None:
    """Percent-encoded or plain, it is the same namespace for every operation, and not two parts of a path."""
    assert result(http.post("/plain/upsert/team/a", json=ROW)) == "Success"
    assert result(http.get("/plain/list-namespaces")) == ["", "team/a"]
    actual = result(http.post(f"/plain/query/{path}", json={"vector": ROW["vector"]}))
    assert [hit["id"] for hit in actual] == [ROW["id"]]
    assert result(http.get(f"/plain/random/{path}"))["id"] == ROW["id"]
    assert result(http.delete(f"/plain/reset/{path}")) == "Success"
    renamed = {"namespace": "team/a", "newNamespace": "team/b/c"}
    assert result(http.post("/plain/rename-namespace", json=renamed)) == {
        "renamed": True
    }
    error_of(http.delete(f"/plain/delete-namespace/{path}"), 404)
    assert result(http.delete("/plain/delete-namespace/team/b%2Fc")) == "Success"


NAMESPACED = [
    (operation.path.split("/")[3], operation.method)
    for operation in vector_operations(None)  # type: ignore[arg-type] - they are not called
    if operation.path.endswith("/{namespace:path}")
]


@pytest.mark.parametrize(("operation", "method"), NAMESPACED)
def test_an_empty_namespace_is_the_default_one(
    http: httpx.Client, operation: str, method: str
) -> None:
    """A trailing slash is ignored, as by the public service."""
    bodies = {
        "upsert": ROW, "upsert-data": {"id": "t", "data": "x"}, "query": {"vector": [1, 0]},
        "query-data": {"data": "x"}, "resumable-query": {"vector": [1, 0]},
        "resumable-query-data": {"data": "x"}, "range": {"cursor": "", "limit": 5}, "fetch": {"ids": ["a"]},
        "update": {"id": "a", "metadata": {}}, "delete": {"ids": ["a"]},
    }  # fmt: skip
    index = "docs" if operation.endswith("-data") else "plain"
    body = {"json": bodies[operation]} if operation in bodies else {}
    response = http.request(method, f"/{index}/{operation}/", **body)
    if operation == "delete-namespace":
        error_of(response, 404)  # the default namespace cannot be deleted
    else:
        assert response.status_code == 200, response.text
        assert result(http.get(f"/{index}/list-namespaces")) == [""]


@pytest.mark.parametrize("number", [2.0, 2])
def test_a_whole_number_may_be_written_with_a_fraction_of_zero(
    filled: httpx.Client, number: float
) -> None:
    """topK, limit, additionalK, maxIdle, sparse indices and an index's dimension take 2.0 for 2."""
    body = {"vector": [1, 0], "topK": number, "maxIdle": number}
    assert len(result(filled.post("/plain/query", json=body))) == 2
    opened = result(filled.post("/plain/resumable-query", json=body))
    more = {"uuid": opened["uuid"], "additionalK": number}
    assert len(result(filled.post("/plain/resumable-query-next", json=more))) == 1
    page = result(filled.post("/plain/range", json={"cursor": "0", "limit": number}))
    assert len(page["vectors"]) == 2
    row = {"id": "a", "sparseVector": {"indices": [number, 7.0], "values": [1, 2]}}
    assert result(filled.post("/words/upsert", json=row)) == "Success"
    (actual,) = result(
        filled.post("/words/fetch", json={"ids": ["a"], "includeVectors": True})
    )
    assert actual["sparseVector"] == {"indices": [2, 7], "values": [1, 2]}
    spec = {"dimension": number, "similarity": "COSINE"}
    assert result(filled.put("/twofold", json=spec))["dimension"] == 2


@pytest.mark.parametrize("number", [1.5, 2.000001, 1e300, -2.0, 0.0])
def test_a_number_with_a_fraction_or_out_of_range_is_rejected(
    filled: httpx.Client, number: float
) -> None:
    """For an integer parameter, other values are named with the parameter."""
    assert "topK" in error_of(
        filled.post("/plain/query", json={"vector": [1, 0], "topK": number}), 400
    )
    assert "limit" in error_of(
        filled.post("/plain/range", json={"cursor": "0", "limit": number}), 400
    )


def digits(response: httpx.Response, name: str) -> list[str]:
    """The numbers of an array as they are written."""
    actual = re.search(rf'"{name}":\[([^\]]*)\]', response.text)
    assert actual, response.text
    return actual[1].split(",")


def test_vectors_are_written_with_the_shortest_digits(http: httpx.Client) -> None:
    """Numbers that float32 holds only nearly are written as they were sent; none with float64's digits."""
    written = {
        "id": "a",
        "vector": [0.1, 16777217.0],
        "sparseVector": {"indices": [1], "values": [0.7]},
    }
    assert result(http.post("/mixed/upsert", json=written)) == "Success"
    response = http.post("/mixed/fetch", json={"ids": ["a"], "includeVectors": True})
    assert digits(response, "vector") == ["0.1", "16777216.0"]
    assert digits(response, "values") == ["0.7"]
    hits = http.post(
        "/mixed/query", json={"vector": [0.1, 16777217.0], "includeVectors": True}
    )
    assert digits(hits, "vector") == ["0.1", "16777216.0"]
    assert '"score":1.0' in hits.text
    third = http.post("/near/upsert", json={"id": "a", "vector": [1, 1, 0]})
    assert third.status_code == 200
    assert (
        '"score":0.33333334'
        in http.post("/near/query", json={"vector": [0, 0, 0]}).text
    )


def test_scores_beyond_float32_stay_numbers(http: httpx.Client) -> None:
    """Products that float32 cannot hold are its largest number, in the right order, and never null."""
    rows = [{"id": "a", "vector": [1e38, 0, 0]}, {"id": "b", "vector": [3e38, 0, 0]}]
    assert result(http.post("/dots/upsert", json=rows)) == "Success"
    hits = result(http.post("/dots/query", json={"vector": [3e38, 0, 0]}))
    assert [(hit["id"], hit["score"]) for hit in hits] == [
        ("b", 3.4028235e38),
        ("a", 3.4028235e38),
    ]


def test_lone_surrogates_are_rejected(http: httpx.Client) -> None:
    """Text that no UTF-8 file can hold is 400 in ids, text and metadata."""
    for row in (
        {"id": "\ud800"},
        {"id": "a", "data": "\ud800"},
        {"id": "a", "metadata": {"x": "\ud800"}},
    ):
        error_of(
            http.post("/plain/upsert", content=json.dumps({"vector": [1, 0], **row})),
            400,
        )


def test_unknown_index_and_wrong_method(http: httpx.Client) -> None:
    """An index that is not there is 404 and names those that are; a wrong method is 405."""
    assert "docs, dots" in error_of(http.post("/nope/query", json=GOOD), 404)
    wrong = http.get("/plain/query")
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "OPTIONS, POST"


def test_many_callers_at_once(http: httpx.Client) -> None:
    """Writers, readers and deleters side by side are all served, and rows that were not deleted remain."""
    statuses: list[int] = []

    def work(writer: int) -> None:
        with httpx.Client(base_url=http.base_url, timeout=30) as client:
            for turn in range(15):
                rows = [
                    {"id": f"{writer}-{turn}-{n}", "vector": [writer, n + 1]}
                    for n in range(4)
                ]
                responses = [
                    client.post("/plain/upsert", json=rows),
                    client.post(
                        "/plain/query",
                        json={"vector": [1, 1], "filter": "HAS NOT FIELD n"},
                    ),
                    client.post("/plain/range", json={"cursor": "0", "limit": 7}),
                    client.post("/plain/delete", json={"ids": [f"{writer}-{turn}-0"]}),
                ]
                statuses.extend(response.status_code for response in responses)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) == {200}
    page = result(http.post("/plain/range", json={"cursor": "0", "limit": 1000}))
    assert {row["id"] for row in page["vectors"]} == {
        f"{writer}-{turn}-{n}"
        for writer in range(6)
        for turn in range(15)
        for n in (1, 2, 3)
    }

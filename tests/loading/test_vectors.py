"""Loading vectors and querying, request by request, from a scripted server."""

from __future__ import annotations

import json

import numpy as np
import pytest

import toolkit as tk
from toolkit.errors import InputError, MalformedResponseError, UnprocessableError
from toolkit.service.responses import RetryPolicy
from toolkit.service.transport import Transport
from toolkit.service.vectors import query_bytes

INFO = {
    "result": {
        "vectorCount": 5,
        "pendingVectorCount": 1,
        "dimension": 2,
        "similarityFunction": "COSINE",
        "namespaces": {"": {"vectorCount": 3}, "b c": {"vectorCount": 2}},
    }
}


def result(value) -> bytes:
    """A value as the service returns it."""
    return json.dumps({"result": value}).encode()


def index(server, ranges=None) -> tk.Service:
    """A server of info, and of ranges by path and cursor."""

    def give(asked):
        if asked.path == "/info":
            return json.dumps(INFO).encode()
        rows, after = ranges[asked.path, json.loads(asked.body)["cursor"]]
        return result({"nextCursor": after, "vectors": rows})

    server.responding(give)
    return server.service()


def row(name: str, *numbers: float) -> dict:
    """A vector as the service returns it."""
    return {
        "id": name,
        "vector": list(numbers),
        "metadata": {"n": name},
        "data": f"text {name}",
    }


def test_a_namespace_is_read_page_by_page(server):
    """The default namespace only, every page, with everything included."""
    ranges = {
        ("/range", "0"): ([row("a", 1, 2), row("b", 3, 4)], "2"),
        ("/range", "2"): ([], "3"),
        ("/range", "3"): ([row("c", 5, 6)], ""),
    }
    frame = tk.load_vectors(index(server, ranges), namespace="", progress=False)
    assert frame["id"].tolist() == ["a", "b", "c"]
    assert set(frame["namespace"]) == {""}
    assert tk.as_matrix(frame).tolist() == [[1, 2], [3, 4], [5, 6]]
    body = json.loads(server.requests[1].body)
    assert body == {
        "cursor": "0", "limit": 1000, "includeVectors": True, "includeMetadata": True, "includeData": True,
    }  # fmt: skip
    receipt = tk.get_receipt(frame)
    assert (receipt.complete, receipt.pages, receipt.rows) == (True, 3, 3)
    assert (
        server.requests[1].headers["Authorization"] == "Bearer vector-token-of-the-test"
    )


def test_several_namespaces_and_all(server):
    """The same id in two namespaces is two rows; names are quoted into the path."""
    ranges = {
        ("/range", "0"): ([row("a", 1, 2)], ""),
        ("/range/b%20c", "0"): ([row("a", 3, 4)], ""),
    }
    service = index(server, ranges)
    for names in ("all", ["", "b c"]):
        frame = tk.load_vectors(service, namespace=names, prefix="a", progress=False)
        assert list(zip(frame["namespace"], frame["id"], strict=True)) == [
            ("", "a"),
            ("b c", "a"),
        ]
    assert json.loads(server.requests[-1].body)["prefix"] == "a"


def test_a_problem_vector_keeps_its_row(server):
    """A vector of another dimension is a row with a reason, and counts add up."""
    ranges = {("/range", "0"): ([row("a", 1, 2), row("b", 1, 2, 3)], "")}
    frame = tk.load_vectors(index(server, ranges), namespace="", progress=False)
    assert frame["vector_problem"].tolist()[1] == "dimension 3, expected 2"
    assert tk.get_receipt(frame).rows == 2


def test_batches_and_limits(server):
    """iter_vectors yields a frame for each page; a limit requests no more than it needs."""
    ranges = {
        ("/range", "0"): ([row("a", 1, 2), row("b", 3, 4)], "2"),
        ("/range", "2"): ([row("c", 5, 6)], ""),
    }
    service = index(server, ranges)
    assert [
        len(piece) for piece in tk.iter_vectors(service, namespace="", progress=False)
    ] == [2, 1]
    assert len(tk.load_vectors(service, namespace="", limit=1, progress=False)) == 1
    assert json.loads(server.requests[-1].body)["limit"] == 1


def test_fetch_has_a_row_for_each_id_in_the_requested_order(server):
    """Missing and repeated ids are seen in rows and receipt; a prefix that hits the limit is refused."""
    service = index(server)
    server.json(json.dumps(INFO).encode())
    server.json(result([row("z", 1, 2), None, row("a", 3, 4)]))
    frame = tk.fetch_vectors(service, ["z", "nope", "a", "z"])
    assert frame["id"].tolist() == ["z", "nope", "a", "z"]
    assert json.loads(server.requests[-1].body)["ids"] == ["z", "nope", "a"]
    assert frame["vector_problem"].dropna().to_dict() == {1: "no such id"}
    assert frame["vector"].isna().tolist() == [False, True, False, False]
    assert tk.get_receipt(frame).notes == (
        "1 of 3 ids is not there",
        "1 id was requested more than once",
    )
    usable = tk.as_matrix(frame[frame["vector_problem"].isna()])
    assert usable.tolist() == [[1, 2], [3, 4], [1, 2]]
    server.json(json.dumps(INFO).encode())
    server.json(result([row(str(i), 1, 2) for i in range(1000)]))
    with pytest.raises(InputError, match="load_vectors"):
        tk.fetch_vectors(service, prefix="x")
    assert json.loads(server.requests[-1].body)["prefix"] == "x"
    with pytest.raises(InputError):
        tk.fetch_vectors(service)
    with pytest.raises(InputError):
        tk.fetch_vectors(service, ["a"], prefix="b")


def test_one_query_is_one_object_and_several_are_an_array(server):
    """The response-shape rule: one query has a flat list, several a list of lists; both become one frame."""
    service = server.service()
    server.json(result([{"id": "a", "score": 1.0}]))
    item = tk.query(service, vector=[1, 2])
    assert isinstance(json.loads(server.requests[0].body), dict)
    assert item[["query", "rank", "id"]].values.tolist() == [[0, 1, "a"]]
    server.json(result([[{"id": "a", "score": 1.0}], [], [{"id": "c", "score": 0.5}]]))
    three = tk.query(service, vector=np.eye(3, 2, dtype=np.float32), top_k=4)
    assert [body["topK"] for body in json.loads(server.requests[1].body)] == [4, 4, 4]
    assert three["query"].tolist() == [0, 2]
    assert list(three.columns) == ["query", "rank", "id", "score"]
    assert len(three.attrs["queries"]) == 3


def test_every_option_of_a_query_goes_over_the_wire(server):
    """All fields of the specification, by vector and by text, with the namespace in the path."""
    service = server.service()
    server.json(result([]))
    tk.query(
        service,
        vector=[0.5],
        sparse={"indices": [3], "values": [1.5]},
        top_k=3,
        filter="a = 1",
        namespace="n/s",
        include_metadata=True,
        include_vectors=True,
        include_data=True,
        hybrid=tk.HybridOptions(weighting_strategy="IDF", fusion_algorithm="DBSF"),
    )
    assert server.requests[0].path == "/query/n/s"
    common = {
        "topK": 3,
        "includeMetadata": True,
        "includeVectors": True,
        "includeData": True,
        "filter": "a = 1",
        "weightingStrategy": "IDF",
        "fusionAlgorithm": "DBSF",
    }
    sparse = {"indices": [3], "values": [1.5]}
    assert json.loads(server.requests[0].body) == {
        "vector": [0.5],
        "sparseVector": sparse,
        **common,
    }
    server.json(result([]))
    sparse_only = tk.HybridOptions(query_mode="SPARSE")
    tk.query_text(service, "lost", hybrid=sparse_only, top_k=3)
    (asked,) = (request for request in server.requests if request.path == "/query-data")
    assert json.loads(asked.body) == {
        "data": "lost", "topK": 3, "queryMode": "SPARSE",
        "includeMetadata": False, "includeVectors": False, "includeData": False,
    }  # fmt: skip


def test_ready_made_queries_of_both_kinds_keep_their_order(server):
    """Queries by vector and by text, in two namespaces, are batched separately and put back in order."""
    service = server.service()

    def give(asked):
        bodies = json.loads(asked.body)
        bodies = bodies if isinstance(bodies, list) else [bodies]
        hits = [
            [
                {
                    "id": f"{asked.path}:{body.get('data') or body['vector'][0]}",
                    "score": 1,
                }
            ]
            for body in bodies
        ]
        return result(hits if len(hits) > 1 else hits[0])

    server.responding(give)
    queries = [
        tk.VectorQuery(vector=[1.0]),
        tk.VectorQuery(data="x"),
        tk.VectorQuery(vector=[2.0]),
        tk.VectorQuery(vector=[3.0], namespace="n"),
    ]
    values = tk.query(service, queries)
    assert values["id"].tolist() == [
        "/query:1.0",
        "/query-data:x",
        "/query:2.0",
        "/query/n:3.0",
    ]
    assert values["query"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "body",
    [b"{}", result("x"), result([{"id": "a", "score": 1}]), result([[], [], []])],
)
def test_a_batch_of_another_shape_is_a_protocol_error(server, body):
    """Two queries and anything but two lists is an error, never hits of the wrong query."""
    server.always(body)
    queries = [tk.VectorQuery(vector=[number]) for number in (1.0, 2.0)]
    policy = RetryPolicy(tries=3, first_delay=0.0)
    with (
        Transport.to(server.service(), "vector", policy=policy) as transport,
        pytest.raises(MalformedResponseError),
    ):
        query_bytes(transport, queries)
    assert len(server.requests) == 3


def test_unclear_queries_are_refused_before_anything_is_sent(server):
    """No query, a three-dimensional array, and queries beside a vector are input errors."""
    service = server.service()
    for arguments in (
        {},
        {"vector": np.ones((1, 1, 1))},
        {"queries": []},
        {"vector": []},
    ):
        with pytest.raises(InputError):
            tk.query(service, **arguments)
    with pytest.raises(InputError):
        tk.query(service, tk.VectorQuery(data="x"), vector=[1.0])
    with pytest.raises(InputError):
        tk.query_text(service, [])
    assert server.requests == []


def test_an_index_without_a_model_says_so(server):
    """422 to a text query is its own error with the service's message."""
    server.always(b'{"error": "index has no embedding model", "status": 422}', 422)
    with pytest.raises(UnprocessableError, match="no embedding model"):
        tk.query_text(server.service(), "x")


def test_info_and_namespaces(server):
    """What the index is, from flat and from nested responses; namespaces as a list of names."""
    server.json(json.dumps(INFO).encode())
    info = tk.describe_index(server.service())
    assert (info.kind, info.dimension, info.similarity, info.pending_count) == (
        "DENSE",
        2,
        "COSINE",
        1,
    )
    assert info.namespaces == {"": 3, "b c": 2}
    nested = {
        "indexType": "HYBRID",
        "denseIndex": {"dimension": 3, "similarityFunction": "EUCLIDEAN"},
    }
    server.json(result(nested))
    info = tk.describe_index(server.service())
    assert (info.kind, info.dimension, info.similarity) == ("HYBRID", 3, "EUCLIDEAN")
    sparse = {
        "dimension": 0,
        "similarityFunction": "",
        "sparseIndex": {"embeddingModel": "bm25"},
    }
    server.json(result(sparse))
    info = tk.describe_index(server.service())
    assert (info.kind, info.dimension, info.model) == ("SPARSE", 0, "bm25")
    server.json(
        result(
            sparse | {"denseIndex": {"dimension": 3, "embeddingModel": "dense-model"}}
        )
    )
    info = tk.describe_index(server.service())
    assert (info.kind, info.dimension, info.model) == ("HYBRID", 3, "dense-model")
    server.json(result(["", "b"]))
    assert tk.list_namespaces(server.service()) == ["", "b"]
    server.json(result({"a": 1}))
    server.json(result(["", "c"]))
    assert tk.list_namespaces(server.service()) == ["", "c"]


def test_upserts_go_in_batches_by_kind(server):
    """Vectors to upsert, texts to upsert-data, a thousand at most at once, in order."""
    server.always(b'{"result": "Success"}')
    rows = [
        {"id": str(i), "vector": np.array([i, 1], dtype=np.float32)}
        for i in range(1001)
    ]
    rows.append({"id": "t", "data": "text", "metadata": {"a": 1}})
    rows.append({"id": "s", "sparse": ([1], [0.5])})
    assert tk.upsert_vectors(server.service(), rows, namespace="n") == 1003
    assert [
        (requested.path, len(json.loads(requested.body)))
        for requested in server.requests
    ] == [
        ("/upsert/n", 1000),
        ("/upsert/n", 1),
        ("/upsert-data/n", 1),
        ("/upsert/n", 1),
    ]
    assert json.loads(server.requests[0].body)[7] == {"id": "7", "vector": [7, 1]}
    for bad in ({"id": ""}, {"id": "a"}, {"vector": [1]}):
        with pytest.raises(InputError):
            tk.upsert_vectors(server.service(), [bad])


def test_a_failed_upsert_says_how_many_rows_were_stored(server):
    """The error carries a note with the rows stored before the failing batch."""
    server.json(b'{"result": "Success"}')
    server.always(
        b'{"error": "Invalid vector dimension: 1, expected: 2", "status": 422}', 422
    )
    rows = [{"id": str(i), "vector": [1.0]} for i in range(1500)]
    with pytest.raises(UnprocessableError) as raised:
        tk.upsert_vectors(server.service(), rows)
    assert "positions 1,000 to 1,499" in raised.value.__notes__[0]
    assert "1,000" in raised.value.__notes__[1]

"""The running service, driven by the public package `upstash-vector` as its users do, sync and async."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from upstash_vector import AsyncIndex, Index, Vector
from upstash_vector.errors import UpstashError
from upstash_vector.types import (
    Data,
    FusionAlgorithm,
    MetadataUpdateMode,
    QueryMode,
    SparseVector,
    WeightingStrategy,
)

from toolkit_service.demo.local_service import LocalService

SPECS = (
    "plain:dense:2:COSINE",
    "near:dense:2:EUCLIDEAN",
    "dots:dense:2:DOT_PRODUCT",
    "words:sparse",
    "both:hybrid:2:COSINE",
    "texts:dense:256:COSINE:hashing",
    "terms:sparse:bm25",
    "docs:hybrid:256:COSINE:hashing+bm25",
)


class Waited:
    """An `AsyncIndex` with blocking methods, so that one test serves both kinds of client."""

    def __init__(self, made: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._made = made
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._made, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            given = found(*args, **options)
            given = (
                self._loop.run_until_complete(given)
                if inspect.isawaitable(given)
                else given
            )
            if isinstance(given, tuple):
                # results and a handle that is asynchronous too
                return given[0], Waited(given[1], self._loop)
            return given

        return call


@pytest.fixture(scope="module")
def serving() -> Iterator[LocalService]:
    """The service with an index of each kind."""
    with LocalService(indexes=SPECS) as service:
        yield service


@pytest.fixture(scope="module", params=["sync", "async"])
def opened(
    serving: LocalService, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], Any]]:
    """Returns the client of an index by its name."""
    options = {"token": serving.token, "retries": 0, "allow_telemetry": False}
    if request.param == "sync":
        made: dict[str, Any] = {
            name: Index(url=url, **options) for name, url in serving.vector_urls.items()
        }
        yield made.__getitem__
        for index in made.values():
            index._client.close()
        return
    loop = asyncio.new_event_loop()
    made = {
        name: AsyncIndex(url=url, **options)
        for name, url in serving.vector_urls.items()
    }
    yield lambda name: Waited(made[name], loop)
    for index in made.values():
        loop.run_until_complete(index._client.aclose())
    loop.close()


@pytest.fixture
def client(opened: Callable[[str], Any]) -> Callable[[str], Any]:
    """Returns the client of an empty index."""

    def give(name: str) -> Any:
        index = opened(name)
        for namespace in index.list_namespaces():
            if namespace:
                index.delete_namespace(namespace)
        assert index.reset() == "Success"
        return index

    return give


ROWS = [
    ("a", [1.0, 0.0], {"city": "Izmir", "n": 1}, "first"),
    {"id": "b", "vector": [0.0, 1.0], "metadata": {"city": "Bergen", "n": 2}},
    Vector(id="ab", vector=[1.0, 1.0]),
]


def ids(results: Any) -> list[str]:
    return [one.id for one in results]


@pytest.mark.parametrize(
    ("name", "scores"),
    [
        ("plain", {"a": 1.0, "ab": (1 + math.sqrt(0.5)) / 2, "b": 0.5}),
        ("near", {"a": 1.0, "ab": 0.5, "b": 1 / 3}),
        ("dots", {"a": 1.0, "ab": 1.0, "b": 0.5}),
    ],
)
def test_dense_query(
    client: Callable[[str], Any], name: str, scores: dict[str, float]
) -> None:
    """Upsert in all three forms, then query: scores by the documented formula of each similarity."""
    index = client(name)
    assert index.upsert(vectors=ROWS) == "Success"
    hits = index.query(
        [1.0, 0.0],
        top_k=3,
        include_vectors=True,
        include_metadata=True,
        include_data=True,
    )
    assert {hit.id: hit.score for hit in hits} == pytest.approx(scores)
    shortest = [float(str(np.float32(score))) for score in scores.values()]
    assert [hit.score for hit in hits] == sorted(shortest, reverse=True)
    first = next(hit for hit in hits if hit.id == "a")
    assert (first.vector, first.metadata, first.data) == (
        [1.0, 0.0],
        {"city": "Izmir", "n": 1},
        "first",
    )
    assert first.sparse_vector is None
    assert index.query([1.0, 0.0], top_k=1)[0].vector is None


def test_filters_and_batches(client: Callable[[str], Any]) -> None:
    """A filter keeps matching rows; a batch of one or several returns one list a query."""
    index = client("plain")
    index.upsert(vectors=ROWS)
    assert ids(index.query([1.0, 0.0], filter="city GLOB 'B*' AND n >= 2")) == ["b"]
    queries = [
        {"vector": [1.0, 0.0], "top_k": 1},
        {"vector": [0.0, 1.0], "top_k": 2, "filter": "HAS FIELD n"},
    ]
    assert list(map(ids, index.query_many(queries=queries))) == [["a"], ["b", "a"]]
    assert index.query([1.0, 0.0], namespace="nowhere") == []


def test_range_and_fetch(client: Callable[[str], Any]) -> None:
    """Range returns every row once, by cursors; fetch follows the ids, or a prefix."""
    index = client("plain")
    index.upsert(vectors=ROWS)
    seen, cursor = [], ""
    while True:
        page = index.range(
            cursor=cursor, limit=2, include_vectors=True, include_data=True
        )
        seen += page.vectors
        cursor = page.next_cursor
        if cursor == "":
            break
    assert ids(seen) == ["a", "b", "ab"]
    assert (seen[0].vector, seen[0].data) == ([1.0, 0.0], "first")
    assert ids(index.range(limit=5, prefix="a").vectors) == ["a", "ab"]
    found = index.fetch(["b", "gone"], include_metadata=True)
    assert found[1] is None
    assert found[0].metadata == {"city": "Bergen", "n": 2}
    assert ids(index.fetch(prefix="a")) == ["a", "ab"]
    assert ids(index.fetch("a")) == ["a"]


def test_update_and_delete(client: Callable[[str], Any]) -> None:
    """Update overwrites or patches; delete accepts ids, a prefix or a filter, and counts."""
    index = client("plain")
    index.upsert(vectors=ROWS)
    patch = {"n": None, "seen": True}
    assert (
        index.update("a", metadata=patch, metadata_update_mode=MetadataUpdateMode.PATCH)
        is True
    )
    assert index.fetch("a", include_metadata=True)[0].metadata == {
        "city": "Izmir",
        "seen": True,
    }
    assert index.update("b", vector=[3.0, 4.0], metadata={"n": 9}) is True
    changed = index.fetch("b", include_metadata=True, include_vectors=True)[0]
    assert (changed.vector, changed.metadata) == ([3.0, 4.0], {"n": 9})
    assert index.update("gone", metadata={}) is False
    assert index.delete(filter="n = 9").deleted == 1
    assert index.delete(["a", "gone"]).deleted == 1
    assert index.delete(prefix="a").deleted == 1
    assert index.info().vector_count == 0


AWKWARD = [0.1, 0.2, 0.7, 1e-7, 123456.7, 3.4e38, 5e-324, -0.3]
"""Numbers that float32 holds only nearly, or not at all."""


def test_numbers_come_back_with_the_digits_they_were_sent_with(
    client: Callable[[str], Any],
) -> None:
    """Values sent with few digits compare equal in every operation, dense and sparse."""
    index = client("plain")
    pairs = [AWKWARD[start : start + 2] for start in range(0, len(AWKWARD), 2)]
    sent = {f"v{number}": pair for number, pair in enumerate(pairs)}
    index.upsert(list(sent.items()))
    expected = {
        name: [0.0 if number == 5e-324 else number for number in pair]
        for name, pair in sent.items()
    }
    fetched = index.fetch([*sent], include_vectors=True)
    assert {one.id: one.vector for one in fetched} == expected
    ranged = index.range(limit=10, include_vectors=True).vectors
    assert {one.id: one.vector for one in ranged} == expected
    hits = index.query([0.1, 0.2], top_k=10, include_vectors=True)
    assert {one.id: one.vector for one in hits} == expected
    words = client("words")
    values = [number for number in AWKWARD if number != 5e-324]
    words.upsert([("a", SparseVector(list(range(len(values))), values))])
    assert words.fetch("a", include_vectors=True)[0].sparse_vector.values == values


def test_a_vector_scores_exactly_one_against_itself(
    client: Callable[[str], Any],
) -> None:
    """Cosine and distance of equal vectors are 1, not nearly 1; so is that of a text with itself."""
    for name in ("plain", "near"):
        index = client(name)
        index.upsert(
            [(f"v{a}{b}", [a / 10, b / 10]) for a in range(1, 10) for b in range(1, 10)]
        )
        for a, b in ((1, 2), (3, 4), (7, 8), (9, 1)):
            hits = index.query([a / 10, b / 10], top_k=1)
            assert [hit.score for hit in hits] == [1]
    texts = client("texts")
    texts.upsert([("hello", "Hello-world", {"n": 1})])
    assert texts.query(data="Hello-world", top_k=1)[0].score == 1


def test_equal_scores_keep_the_order_of_insertion(client: Callable[[str], Any]) -> None:
    """Rows that point the same way score the same in float32, so the first inserted comes first."""
    index = client("plain")
    names = [f"v{number}" for number in (5, 3, 8, 1, 9, 2)]
    index.upsert(
        [
            (name, [0.1 * place, 0.3 * place])
            for place, name in enumerate(names, start=1)
        ]
    )
    index.upsert([("v8", [0.7, 2.1])])  # writing it again keeps its position
    hits = index.query([0.2, 0.6], top_k=6)
    assert {hit.score for hit in hits} == {1.0}
    assert ids(hits) == names
    assert ids(index.query([0.2, 0.6], top_k=2)) == names[:2]


def test_fused_scores_that_are_equal_keep_the_order_of_insertion(
    client: Callable[[str], Any],
) -> None:
    """One row is best by its dense vector, the other by its sparse one: the first inserted comes first."""
    index = client("both")
    rows = [
        Vector(id="b", vector=[0.0, 1.0], sparse_vector=SparseVector([1], [2.0])),
        Vector(id="a", vector=[1.0, 0.0], sparse_vector=SparseVector([1], [1.0])),
    ]
    index.upsert(rows)
    hits = index.query(
        vector=[1.0, 0.0], sparse_vector=SparseVector([1], [1.0]), top_k=2
    )
    assert ids(hits) == ["b", "a"]
    assert hits[0].score == hits[1].score


def test_a_dimension_named_twice_counts_with_the_sum(
    client: Callable[[str], Any],
) -> None:
    """Duplicate indices are stored as sent, and inner products sum them, in rows, queries and updates."""
    index = client("words")
    index.upsert(
        [
            ("a", SparseVector([3, 3, 5], [1.0, 2.0, 0.5])),
            ("b", SparseVector([3], [1.0])),
        ]
    )
    assert index.fetch("a", include_vectors=True)[0].sparse_vector == SparseVector(
        [3, 3, 5], [1.0, 2.0, 0.5]
    )
    scores = {
        hit.id: hit.score
        for hit in index.query(sparse_vector=SparseVector([3, 3], [1.0, 10.0]))
    }
    assert scores == {"a": 33.0, "b": 11.0}
    assert index.update("b", sparse_vector=SparseVector([7, 7], [1.5, 2.5])) is True
    assert [
        hit.score for hit in index.query(sparse_vector=SparseVector([7], [1.0]))
    ] == [4.0]
    weighed = index.query(
        sparse_vector=SparseVector([5], [1.0]), weighting_strategy=WeightingStrategy.IDF
    )
    rare = math.log((2 - 1 + 0.5) / (1 + 0.5) + 1)  # one row of two holds the dimension
    assert [hit.score for hit in weighed] == pytest.approx([0.5 * rare])
    again = index.query(
        sparse_vector=SparseVector([3], [1.0]), weighting_strategy=WeightingStrategy.IDF
    )
    assert [hit.score for hit in again] == pytest.approx([3 * rare])


@pytest.mark.parametrize(
    "name", ["team/a", "a/b/c", "a//b", "/first", "last/", "a%2Fb", "Izmir/\u00fc 1"]
)
def test_namespaces_with_slashes(client: Callable[[str], Any], name: str) -> None:
    """The SDK puts a namespace into the path unescaped: all operations accept one with slashes."""
    index = client("plain")
    # the SDK leaves escaping to its caller
    namespace = name.replace("%", "%25").replace("\u00fc 1", "%C3%BC%201")
    index.upsert(ROWS, namespace=namespace)
    index.upsert([("z", [0.5, 0.5])])
    assert index.list_namespaces() == ["", name]
    assert sorted(ids(index.query([1.0, 0.0], top_k=9, namespace=namespace))) == [
        "a",
        "ab",
        "b",
    ]
    assert ids(index.range(limit=9, namespace=namespace).vectors) == ["a", "b", "ab"]
    assert ids(index.fetch("a", namespace=namespace)) == ["a"]
    assert index.update("a", metadata={"n": 5}, namespace=namespace) is True
    assert index.delete("b", namespace=namespace).deleted == 1
    assert index.info().namespaces[name].vector_count == 2
    index.reset(namespace=namespace)
    assert index.info().vector_count == 1
    index.delete_namespace(namespace)
    assert index.list_namespaces() == [""]


def test_namespaces(client: Callable[[str], Any]) -> None:
    """Namespaces appear with their first vector, are apart, counted, emptied and deleted."""
    index = client("plain")
    index.upsert(vectors=ROWS)
    index.upsert(vectors=[("z", [1.0, 2.0])], namespace="other")
    assert index.list_namespaces() == ["", "other"]
    assert ids(index.query([1.0, 0.0], namespace="other")) == ["z"]
    counts = {name: info.vector_count for name, info in index.info().namespaces.items()}
    assert counts == {"": 3, "other": 1}
    assert index.reset(all=True) == "Success"
    assert index.info().vector_count == 0
    index.delete_namespace("other")
    assert index.list_namespaces() == [""]
    with pytest.raises(
        UpstashError, match="Namespace other for the index plain does not exist"
    ):
        index.delete_namespace("other")


def test_info_of_each_kind(client: Callable[[str], Any]) -> None:
    """Info describes each kind by its parts, with similarity, dimension and models."""
    dense = client("near").info()
    assert (dense.dimension, dense.similarity_function, dense.sparse_index) == (
        2,
        "EUCLIDEAN",
        None,
    )
    assert (dense.dense_index.dimension, dense.dense_index.embedding_model) == (2, "")
    assert dense.index_size > 0
    sparse = client("terms").info()
    assert (sparse.dimension, sparse.dense_index) == (0, None)
    assert sparse.sparse_index.embedding_model == "bm25"
    hybrid = client("docs").info()
    assert (hybrid.dimension, hybrid.dense_index.similarity_function) == (256, "COSINE")
    assert hybrid.dense_index.embedding_model == "hashing"
    assert hybrid.sparse_index.embedding_model == "bm25"


def test_errors_are_reported(client: Callable[[str], Any]) -> None:
    """The service's words reach the caller."""
    with pytest.raises(UpstashError, match="Invalid vector dimension: 3, expected: 2"):
        client("plain").query([1.0, 2.0, 3.0])
    with pytest.raises(UpstashError, match="got no embedding model"):
        client("plain").query(data="text")
    with pytest.raises(UpstashError, match="both vectors"):
        client("both").upsert(vectors=[("a", [1.0, 0.0])])


SPARSE = [
    ("cat", ([1, 7], [1.0, 0.5])),
    Vector(
        id="dog",
        sparse_vector=SparseVector([7, 9], [2.0, 1.0]),
        metadata={"n": 1},
        data="woof",
    ),
    {"id": "fish", "sparse_vector": ([20], [4.0])},
]


def test_sparse_index(client: Callable[[str], Any]) -> None:
    """Inner products over shared dimensions, nothing that shares none, IDF as documented."""
    index = client("words")
    index.upsert(vectors=SPARSE)
    hits = index.query(
        sparse_vector=([7, 1, 40], [1.0, 10.0, 5.0]), include_vectors=True
    )
    assert [(hit.id, hit.score) for hit in hits] == [("cat", 10.5), ("dog", 2.0)]
    assert hits[1].sparse_vector == SparseVector([7, 9], [2.0, 1.0])
    assert hits[1].vector is None
    weighted = index.query(
        sparse_vector=SparseVector([20], [1.0]),
        weighting_strategy=WeightingStrategy.IDF,
    )
    assert [(hit.id, hit.score) for hit in weighted] == [
        ("fish", pytest.approx(4 * math.log(2.5 / 1.5 + 1)))
    ]
    assert ids(index.query(sparse_vector=([7], [1.0]), filter="n = 1")) == ["dog"]
    many = [
        {"sparse_vector": ([7], [1.0]), "top_k": 1},
        {"sparse_vector": ([20], [1.0])},
    ]
    assert list(map(ids, index.query_many(queries=many))) == [["dog"], ["fish"]]
    assert index.update("cat", sparse_vector=([20], [9.0])) is True
    assert ids(index.query(sparse_vector=([20], [1.0]))) == ["cat", "fish"]
    assert ids(index.query(sparse_vector=([1], [1.0]))) == []
    fetched = index.fetch(["dog"], include_vectors=True, include_data=True)[0]
    assert (fetched.sparse_vector, fetched.data) == (
        SparseVector([7, 9], [2.0, 1.0]),
        "woof",
    )
    assert index.range(limit=1, include_vectors=True).vectors[
        0
    ].sparse_vector == SparseVector([20], [9.0])
    index.delete("cat")
    assert ids(index.query(sparse_vector=([20], [1.0]))) == ["fish"]


HYBRID = [
    ("near", [1.0, 0.0], ([3], [1.0])),
    ("rare", [0.0, 1.0], ([5], [2.0]), {"n": 1}),
    Vector(id="both", vector=[1.0, 1.0], sparse_vector=([3, 5], [1.0, 1.0])),
]


def test_hybrid_index(client: Callable[[str], Any]) -> None:
    """A query accepts either vector or both; both are fused by rank, or by the distribution of scores."""
    index = client("both")
    index.upsert(vectors=HYBRID)
    assert ids(index.query([1.0, 0.0])) == ["near", "both", "rare"]
    assert index.query([1.0, 0.0])[0].score == pytest.approx(1)
    assert [(hit.id, hit.score) for hit in index.query(sparse_vector=([5], [1.0]))] == [
        ("rare", 2.0),
        ("both", 1.0),
    ]
    asked = {"vector": [1.0, 0.0], "sparse_vector": ([5], [1.0])}
    fused = {hit.id: hit.score for hit in index.query(**asked)}
    assert fused == pytest.approx(
        {"rare": 1 / 63 + 1 / 61, "both": 1 / 62 + 1 / 62, "near": 1 / 61}
    )
    by_scores = index.query(
        **asked, fusion_algorithm=FusionAlgorithm.DBSF, include_vectors=True
    )
    assert {hit.id for hit in by_scores} == {"near", "both", "rare"}
    assert by_scores[0].vector is not None
    assert by_scores[0].sparse_vector is not None
    assert ids(index.query(**asked, filter="n = 1")) == ["rare"]
    assert ids(index.query(**asked, top_k=1)) == ids(index.query(**asked))[:1]


@pytest.mark.parametrize("fusion", list(FusionAlgorithm))
def test_idf_of_a_dimension_that_every_row_holds(
    client: Callable[[str], Any], fusion: FusionAlgorithm
) -> None:
    """A dimension that all rows hold still counts for the rows that hold most of it, first and resumed."""
    index = client("both")
    index.upsert(
        [
            (
                f"row {n}",
                [1.0, 1.0 - n / 10],
                SparseVector([4, 10 + n], [1.0 - n / 10, 1.0]),
            )
            for n in range(4)
        ]
    )
    first, handle = index.resumable_query(
        vector=[1.0, 1.0],
        sparse_vector=SparseVector([4], [1.0]),
        top_k=3,
        weighting_strategy=WeightingStrategy.IDF,
        fusion_algorithm=fusion,
    )
    assert ids(first) == ["row 0", "row 1", "row 2"]
    assert ids(handle.fetch_next(1)) == ["row 3"]
    handle.stop()


TEXTS = [
    Data(
        id="net",
        data="connection refused by the upstream host",
        metadata={"kind": "network"},
    ),
    {"id": "disk", "data": "no space left on device"},
    ("tls", "certificate has expired"),
]


@pytest.mark.parametrize("name", ["texts", "terms", "docs"])
def test_text(client: Callable[[str], Any], name: str) -> None:
    """Text is embedded by an index's models when stored, queried and updated, on all three kinds."""
    index = client(name)
    index.upsert(vectors=TEXTS)
    first = index.query(
        data="certificate expired", top_k=1, include_data=True, include_metadata=True
    )[0]
    assert (first.id, first.data) == ("tls", "certificate has expired")
    many = [
        {"data": "connection refused", "top_k": 1},
        {"data": "space left", "top_k": 1},
    ]
    assert [hits[0].id for hits in index.query_many(queries=many)] == ["net", "disk"]
    assert (
        index.query(data="refused", top_k=1, filter="kind = 'network'")[0].id == "net"
    )
    assert index.update("disk", data="certificate renewal failed") is True
    assert index.query(data="renewal failed", top_k=1)[0].id == "disk"


def test_query_modes_of_text(client: Callable[[str], Any]) -> None:
    """A hybrid index searches text by its dense side, its sparse side, or both fused."""
    index = client("docs")
    index.upsert(vectors=TEXTS)
    dense = index.query(data="certificates", query_mode=QueryMode.DENSE)
    assert dense[0].id == "tls"  # its spelling is near
    assert all(0 <= hit.score <= 1 for hit in dense)
    # and yet it is another word
    assert index.query(data="certificates", query_mode=QueryMode.SPARSE) == []
    sparse = index.query(
        data="the certificate",
        query_mode=QueryMode.SPARSE,
        weighting_strategy=WeightingStrategy.IDF,
    )
    assert {hit.id for hit in sparse} == {"tls", "net"}
    fused = index.query(data="certificate", query_mode=QueryMode.HYBRID)
    assert fused[0].id == "tls"
    assert fused[0].score == pytest.approx(2 / 61)


@pytest.mark.parametrize(
    ("name", "rows", "asked"),
    [
        ("plain", ROWS, {"vector": [1.0, 0.0]}),
        ("words", SPARSE, {"sparse_vector": ([7, 20], [1.0, 1.0])}),
        ("both", HYBRID, {"vector": [1.0, 0.0], "sparse_vector": ([5], [1.0])}),
        ("docs", TEXTS, {"data": "the connection has no certificate"}),
    ],
)
def test_resumable_query(
    client: Callable[[str], Any], name: str, rows: list[Any], asked: dict[str, Any]
) -> None:
    """A resumable query returns in batches the result of a plain query, until it is stopped."""
    index = client(name)
    index.upsert(vectors=rows)
    whole = [(hit.id, hit.score) for hit in index.query(**asked, top_k=10)]
    assert len(whole) == 3
    hits, handle = index.resumable_query(**asked, top_k=1, include_metadata=True)
    pieces = [*hits, *handle.fetch_next(1), *handle.fetch_next(5)]
    assert [(hit.id, hit.score) for hit in pieces] == whole
    assert handle.fetch_next(5) == []
    handle.stop()
    with pytest.raises(UpstashError, match="uuid"):
        handle.fetch_next(1)

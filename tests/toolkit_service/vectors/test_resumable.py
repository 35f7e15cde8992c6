"""Resumable queries: their batches, concurrent changes, and how they end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolkit_service.api import ApiError
from toolkit_service.vectors.bodies import DeleteVectors, Included, IndexQuery
from toolkit_service.vectors.index_database import IndexDatabase
from toolkit_service.vectors.sparse import SparseArray
from toolkit_service.vectors.specs import IndexSpec
from toolkit_service.vectors.vector_index import MAX_OPEN, VectorIndex

NOTHING = Included()


def result(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["result"]


def error_of(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    return response.json()["error"]


@dataclass
class Clock:
    """A clock that a test advances."""

    now: float = 0.0


@pytest.fixture(scope="module")
def clock() -> Clock:
    """The clock of the index."""
    return Clock()


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, clock: Clock
) -> Iterator[VectorIndex]:
    """A hybrid index with a clock of the test's own."""
    path: Path = tmp_path_factory.mktemp("resumable") / "mixed.sqlite"
    IndexDatabase.make(path, IndexSpec.parse("mixed:hybrid:2:EUCLIDEAN"))
    index = VectorIndex(IndexDatabase(path), clock=lambda: clock.now)
    yield index
    index.close()


@pytest.fixture
def index(made: VectorIndex) -> VectorIndex:
    """The index with thirty rows."""
    made.reset()
    made.upsert(
        {
            "id": str(number),
            "vector": [number, 0],
            "sparseVector": {"indices": [number % 5], "values": [number + 1]},
            "metadata": {"even": number % 2 == 0},
        }
        for number in range(30)
    )
    return made


DENSE = IndexQuery(np.zeros(2), 4, NOTHING)
ONLY_SPARSE = IndexQuery(
    None, 4, NOTHING, sparse=SparseArray(np.array([1, 3]), np.ones(2))
)
BOTH = IndexQuery(
    np.zeros(2),
    4,
    NOTHING,
    sparse=SparseArray(np.array([1, 3]), np.ones(2)),
    fusion="DBSF",
)


def whole(index: VectorIndex, query: IndexQuery) -> list[tuple[str, float]]:
    (hits,) = index.query([IndexQuery(**{**vars(query), "top_k": 1000})])
    return [(hit.row.id, hit.score) for hit in hits]


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.sampled_from([DENSE, ONLY_SPARSE, BOTH]),
    st.lists(st.integers(1, 9), min_size=8, max_size=8),
)
def test_batches_make_the_whole_result(
    index: VectorIndex, query: IndexQuery, sizes: list[int]
) -> None:
    """In batches of any size, a resumable query returns what a query returns, in its order, nothing twice."""
    opened, hits = index.begin_query(query, max_idle=60)
    assert len(hits) == 4
    batches = [(hit.row.id, hit.score) for hit in hits]
    for size in sizes:
        more, _ = index.next_results(opened, size)
        assert len(more) <= size
        batches += [(hit.row.id, hit.score) for hit in more]
    assert batches == whole(index, query)[: 4 + sum(sizes)]
    index.end_query(opened)


def test_rows_that_come_and_go_meanwhile(index: VectorIndex) -> None:
    """Rows from the start that still exist are returned once; deleted ones are skipped, not counted."""
    opened, hits = index.begin_query(DENSE, max_idle=60)
    index.delete(DeleteVectors(ids=["4", "5", "7"]))
    index.upsert(
        [
            {
                "id": "new",
                "vector": [4, 0],
                "sparseVector": {"indices": [1], "values": [1]},
            }
        ]
    )
    index.upsert(
        [
            {
                "id": "8",
                "vector": [900, 0],
                "sparseVector": {"indices": [1], "values": [1]},
            }
        ]
    )
    following, _ = index.next_results(opened, 3)
    assert [hit.row.id for hit in [*hits, *following]] == [
        "0",
        "1",
        "2",
        "3",
        "6",
        "8",
        "9",
    ]
    assert following[1].row.vector.tolist() == [900, 0]
    assert following[1].score == pytest.approx(1 / 65)
    index.reset()
    assert index.next_results(opened, 3)[0] == []
    index.end_query(opened)


def test_a_resumable_query_expires_when_idle(index: VectorIndex, clock: Clock) -> None:
    """Requests within its timeout keep it; a second later it has expired, with 404."""
    opened, _ = index.begin_query(DENSE, max_idle=10)
    for _ in range(3):
        clock.now += 10
        assert len(index.next_results(opened, 1)[0]) == 1
    clock.now += 10.5
    with pytest.raises(ApiError) as caught:
        index.next_results(opened, 1)
    assert caught.value.status == 404


def test_open_queries_are_bounded(index: VectorIndex, clock: Clock) -> None:
    """The number of open queries is limited; ending or expiring frees a slot."""
    opened = [index.begin_query(DENSE, max_idle=10)[0] for _ in range(MAX_OPEN)]
    assert len(set(opened)) == MAX_OPEN
    with pytest.raises(ApiError, match="expire"):
        index.begin_query(DENSE, max_idle=10)
    index.end_query(opened[0])
    index.begin_query(DENSE, max_idle=10)
    clock.now += 11
    last, _ = index.begin_query(DENSE, max_idle=10)
    index.end_query(last)


def test_over_http_with_everything(http: httpx.Client) -> None:
    """The four operations over HTTP, in a namespace, with a filter, and with included fields."""
    rows = [
        {"id": str(n), "vector": [1, n], "metadata": {"n": n}, "data": f"row {n}"}
        for n in range(1, 8)
    ]
    result(http.post("/plain/upsert/some", json=rows))
    body = {
        "vector": [1, 0],
        "topK": 2,
        "includeMetadata": True,
        "filter": "n != 3",
        "maxIdle": 60,
    }
    begun = result(http.post("/plain/resumable-query/some", json=body))
    assert set(begun) == {"uuid", "scores"}
    assert [hit["metadata"] for hit in begun["scores"]] == [{"n": 1}, {"n": 2}]
    more = {"uuid": begun["uuid"], "additionalK": 3}
    following = result(http.post("/plain/resumable-query-next", json=more))
    assert [(hit["id"], hit["metadata"]["n"]) for hit in following] == [
        ("4", 4),
        ("5", 5),
        ("6", 6),
    ]
    assert all(set(hit) == {"id", "score", "metadata"} for hit in following)
    assert [
        hit["id"] for hit in result(http.post("/plain/resumable-query-next", json=more))
    ] == ["7"]
    assert result(http.post("/plain/resumable-query-next", json=more)) == []
    assert (
        result(http.post("/plain/resumable-query-end", json={"uuid": begun["uuid"]}))
        == "Success"
    )
    assert "uuid" in error_of(http.post("/plain/resumable-query-next", json=more), 404)
    error_of(http.post("/plain/resumable-query-end", json={"uuid": begun["uuid"]}), 404)
    assert (
        result(http.post("/plain/resumable-query/nowhere", json=body))["scores"] == []
    )


def test_text_over_http(http: httpx.Client) -> None:
    """Text is embedded when the query begins; an index without models responds 422."""
    rows = [{"id": str(n), "data": f"connection {n} refused"} for n in range(5)]
    result(http.post("/notes/upsert-data", json=rows))
    begun = result(
        http.post(
            "/notes/resumable-query-data", json={"data": "connection 3", "topK": 1}
        )
    )
    assert [hit["id"] for hit in begun["scores"]] == ["3"]
    more = {"uuid": begun["uuid"], "additionalK": 10}
    rest = result(http.post("/notes/resumable-query-next", json=more))
    assert sorted(hit["id"] for hit in rest) == ["0", "1", "2", "4"]
    assert "model" in error_of(
        http.post("/plain/resumable-query-data", json={"data": "x"}), 422
    )


@pytest.mark.parametrize(
    ("operation", "body", "status", "says"),
    [
        ("resumable-query", [], 400, "a JSON object"),
        ("resumable-query", {"vector": [1, 0], "maxIdle": 0}, 400, "maxIdle"),
        ("resumable-query", {"vector": [1, 0], "maxIdle": 10**9}, 400, "maxIdle"),
        ("resumable-query", {"vector": [1, 0], "maxIdle": "5"}, 400, "maxIdle"),
        ("resumable-query", {"vector": [1, 0], "topK": 0}, 400, "topK"),
        ("resumable-query", {"vector": [1, 0, 0]}, 422, "expected: 2"),
        ("resumable-query-next", {"uuid": "x"}, 400, "additionalK"),
        ("resumable-query-next", {"uuid": "x", "additionalK": 0}, 400, "additionalK"),
        (
            "resumable-query-next",
            {"uuid": "x", "additionalK": True},
            400,
            "additionalK",
        ),
        ("resumable-query-next", {"additionalK": 1}, 400, "uuid"),
        ("resumable-query-next", {"uuid": 7, "additionalK": 1}, 400, "uuid"),
        ("resumable-query-next", {"uuid": "x", "additionalK": 1}, 404, "uuid"),
        ("resumable-query-end", {}, 400, "uuid"),
        ("resumable-query-end", "x", 400, "a JSON object"),
        ("resumable-query-end", {"uuid": "x"}, 404, "uuid"),
    ],
)
def test_bad_resumable_queries_are_rejected(
    http: httpx.Client, operation: str, body: Any, status: int, says: str
) -> None:
    """Each bad body gets its status and words."""
    assert says in error_of(http.post(f"/plain/{operation}", json=body), status)

"""Queries of several namespaces, and hits beyond the first page."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import (
    InputError,
    ProtocolError,
    ToolkitError,
    UnexpectedResultWarning,
)

ROWS = 250


@pytest.fixture(scope="module")
def service(local_indexes) -> tk.Service:
    """250 vectors in each of two namespaces, interleaved by distance from the origin."""
    service = local_indexes["dense"]
    for number, space in enumerate(("left", "right / side")):
        rows = [
            {
                "id": f"{space[0]}{n}",
                "vector": [(2 * n + number) / 10, 0],
                "metadata": {"even": n % 2 == 0},
            }
            for n in range(ROWS)
        ]
        tk.upsert_vectors(service, rows, namespace=space)
    tk.upsert_vectors(
        service, {"id": "l3", "vector": [100, 100]}, namespace="right / side"
    )
    return service


SPACES = ["left", "right / side"]


def test_pages_are_the_hits_of_one_large_query(service):
    """All pages together: every vector once, in the order and with the scores of a query for all."""
    wanted = tk.VectorQuery(
        vector=[0, 0], namespace="left", top_k=70, include_metadata=True
    )
    pages = list(tk.iter_query(service, wanted))
    assert [len(page) for page in pages] == [70, 70, 70, 40]
    together = pd.concat(pages, ignore_index=True)
    whole = tk.query(
        service, vector=[0, 0], namespace="left", top_k=ROWS, include_metadata=True
    )
    pd.testing.assert_frame_equal(together, whole)


def test_a_filter_a_stored_id_and_a_text_can_be_read_on(service, sample_service):
    """By id without itself, with a filter, and by text."""
    wanted = tk.VectorQuery(
        id="l0", exclude_self=True, namespace="left", filter="even = true", top_k=50
    )
    together = pd.concat(tk.iter_query(service, wanted), ignore_index=True)
    assert together["id"].tolist() == [f"l{n}" for n in range(2, ROWS, 2)]
    assert together["rank"].tolist() == list(range(1, 125))
    pages = tk.iter_query(
        sample_service,
        tk.VectorQuery(data="disk full", namespace="runbooks", top_k=300),
    )
    assert pd.concat(pages)["id"].nunique() == 1000


def test_no_hit_is_one_empty_page(service):
    """With all its columns."""
    (page,) = tk.iter_query(
        service, tk.VectorQuery(vector=[0, 0], namespace="left", filter="nope = 1")
    )
    assert page.empty
    assert list(page.columns) == ["query", "rank", "id", "score"]


@pytest.mark.slow
def test_closing_ends_the_query_at_the_service(service, server):
    """The service is told, whether pages are left or not."""
    server.json(b'{"result": {"uuid": "u-1", "scores": [{"id": "a", "score": 1.0}]}}')
    server.always(b'{"result": "Success"}')
    pages = tk.iter_query(
        server.service(), tk.VectorQuery(vector=[1.0], top_k=1), max_idle=60
    )
    assert next(pages)["id"].tolist() == ["a"]
    pages.close()
    assert [request.path for request in server.requests] == [
        "/resumable-query",
        "/resumable-query-end",
    ]
    assert b'"maxIdle":60' in server.requests[0].body
    assert server.requests[1].body == b'{"uuid":"u-1"}'
    for _ in range(150):  # more than the service keeps open
        next(  # noqa: B018
            tk.iter_query(
                service, tk.VectorQuery(vector=[0, 0], namespace="left", top_k=1)
            )
        ).empty


def test_a_lost_page_is_an_error_and_never_a_gap(server):
    """The service counts a page as read once it has sent it: no second try, which would skip it."""
    server.json(b'{"result": {"uuid": "u-1", "scores": [{"id": "a", "score": 1.0}]}}')
    server.raw(b"")
    server.always(b'{"result": [{"id": "c", "score": 0.5}]}')
    pages = tk.iter_query(server.service(), tk.VectorQuery(vector=[1.0], top_k=1))
    next(pages)
    with pytest.raises(ToolkitError):
        next(pages)
    assert [request.path for request in server.requests].count(
        "/resumable-query-next"
    ) == 1


@pytest.mark.parametrize(
    "first",
    [
        b'{"uuid": "u", "scores": 5}',
        b'{"uuid": 5, "scores": []}',
        b"[]",
        b'{"scores": []}',
    ],
)
@pytest.mark.usefixtures("no_backoff")
def test_what_is_not_as_specified_is_an_error(server, first):
    """Also a service that repeats hits for ever."""
    server.always(b'{"result": %b}' % first)
    with pytest.raises(ProtocolError):
        next(tk.iter_query(server.service(), tk.VectorQuery(vector=[1.0])))
    server.json(b'{"result": {"uuid": "u-1", "scores": [{"id": "a", "score": 1.0}]}}')
    server.always(b'{"result": [{"id": "a", "score": 1.0}]}')
    with pytest.raises(ProtocolError, match="1 hits, all of which came before"):
        list(tk.iter_query(server.service(), tk.VectorQuery(vector=[1.0], top_k=1)))


def test_several_namespaces_are_one_ranking(service):
    """The best of both, with the namespace of each; the first of equal scores is of the first namespace."""
    hits = tk.query(service, vector=[[0, 0], [40, 0]], namespace=SPACES, top_k=6)
    assert list(hits.columns) == ["query", "rank", "namespace", "id", "score"]
    first = hits[hits["query"] == 0]
    assert first["id"].tolist() == ["l0", "r0", "l1", "r1", "l2", "r2"]
    assert first["rank"].tolist() == [1, 2, 3, 4, 5, 6]
    assert first["namespace"].tolist() == SPACES * 3
    assert hits.groupby("query").size().tolist() == [6, 6]
    single = tk.query(service, vector=[0, 0], namespace="left", top_k=3)
    assert (
        first.loc[first["namespace"] == "left", "score"].tolist()
        == single["score"].tolist()
    )
    assert hits.attrs["queries"][0]["namespace"] == SPACES
    same = tk.query(service, vector=[0, 0], namespace=["left"], top_k=3)
    assert same["id"].tolist() == single["id"].tolist()


def test_a_stored_id_is_asked_in_all_of_them(service):
    """Its vector is of the first namespace that has it; only there it is itself."""
    hits = tk.query(
        service, id=["l3", "r9"], namespace=SPACES, top_k=3, exclude_self=True
    )
    # at 0.6 in the first, at (100, 100) in the second: its neighbours are at 0.5 and 0.7
    assert set(hits["id"][:2]) == {"r2", "r3"}
    assert hits.groupby("query").size().tolist() == [3, 3]
    assert "r9" not in set(hits["id"][hits["query"] == 1])
    with pytest.raises(InputError, match="'nope', which is not there"):
        tk.query(service, id="nope", namespace=SPACES)


def test_an_unknown_namespace_among_several_is_said_when_nothing_is_found(service):
    """And none at all is an error."""
    with pytest.warns(UnexpectedResultWarning, match="no namespace 'lefts'"):
        assert tk.query(service, vector=[0, 0], namespace=["lefts"]).empty
    with pytest.raises(InputError, match="namespace"):
        tk.query(service, vector=[0, 0], namespace=[])
    assert not np.isnan(
        tk.query(service, vector=[0, 0], namespace=["lefts", "left"])["score"]
    ).any()

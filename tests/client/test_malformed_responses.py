"""Success statuses whose bodies cannot be read: every read asks again, and then says what was wrong."""

from __future__ import annotations

import json
from functools import partial

import pytest

import toolkit as tk
from toolkit.client import failures, messages, vectors
from toolkit.client.retry import RetryPolicy
from toolkit.client.transport import Transport
from toolkit.errors import MalformedResponseError

HIT = b'{"id": "a", "score": 0.5}'
INFO = {
    "dimension": 2,
    "vectorCount": 1,
    "similarityFunction": "COSINE",
    "namespaces": {"": {"vectorCount": 1}},
}
READS = {
    "a page of the DLQ": (
        "queue",
        partial(failures.list_page, wanted=tk.FailureFilter(), cursor=None),
        b'{"messages": [{"dlqId": "a"}], "cursor": ""}',
    ),
    "an entry": ("queue", partial(failures.get_entry, dlq_id="a"), b'{"dlqId": "a"}'),
    "a page of runs": (
        "queue",
        partial(failures.list_runs_page, cursor=None),
        b'{"runs": [{"workflowRunId": "a"}], "cursor": ""}',
    ),
    "a page of vectors": (
        "vector",
        partial(vectors.list_page, namespace="", cursor="0", limit=9),
        b'{"result": {"nextCursor": "", "vectors": [{"id": "a", "vector": [1, 2]}]}}',
    ),
    "vectors by ids": (
        "vector",
        partial(vectors.fetch_bytes, namespace="", ids=["a"]),
        b'{"result": [{"id": "a", "vector": [1, 2]}]}',
    ),
    "a query": (
        "vector",
        partial(vectors.query_bytes, queries=[tk.VectorQuery(vector=[1.0])]),
        b'{"result": [' + HIT + b"]}",
    ),
    "a batch of queries": (
        "vector",
        partial(vectors.query_bytes, queries=[tk.VectorQuery(vector=[1.0])] * 2),
        b'{"result": [[' + HIT + b"], []]}",
    ),
    "what the index is": ("vector", vectors.read_info, json.dumps({"result": INFO}).encode()),
}
UNREADABLE = {
    "HTML": b"<html><body>busy</body></html>",
    "nothing": b"",
    "an empty object": b"{}",
    "null": b"null",
    "another field": b'{"cursor": "", "hits": []}',
    "null fields": b'{"messages": null, "runs": null, "result": null}',
    "text for fields": b'{"messages": "a", "runs": "a", "result": "a"}',
}


def opened(service: tk.Service, half: str, tries: int) -> Transport:
    """A transport that waits for nothing before the next try."""
    return Transport.to(service, half, policy=RetryPolicy(tries=tries, first_wait=0.0))


@pytest.mark.parametrize("name", READS)
def test_a_read_that_cannot_be_read_is_retried(server, name):
    """HTML, nothing, no fields, JSON truncated at any byte: the next response counts, as if it came first."""
    half, read, body = READS[name]
    bodies = [*UNREADABLE.values(), *(body[:size] for size in range(len(body)))]
    if name == "an entry":
        bodies = [bad for bad in bodies if b'": ' not in bad or bad.startswith(body[:9])]
    with opened(server.service(), half, len(bodies) + 1) as transport:
        server.json(body)
        whole = read(transport)
        for bad in bodies:
            server.json(bad)
        server.json(body)
        given = read(transport)
    assert len(server.asked) == len(bodies) + 2
    if name.startswith("a page"):
        assert (given.rows, given.cursor, given.tries) == (whole.rows, whole.cursor, len(bodies) + 1)
    else:
        assert given == whole


@pytest.mark.parametrize("name", READS)
def test_what_stays_unreadable_is_an_error_after_bounded_tries(server, name):
    """A web page at this address: as many tries as the policy has, then an error that says what came."""
    half, read, _ = READS[name]
    server.always(UNREADABLE["HTML"])
    with (
        opened(server.service(), half, 3) as transport,
        pytest.raises(MalformedResponseError, match="30 bytes that are not JSON, starting '<html>"),
    ):
        read(transport)
    assert len(server.asked) == 3


def test_a_write_that_is_idempotent_is_retried_and_one_that_is_not_is_not(server):
    """A stored vector and a published message need their response; a resumed run is never resumed twice."""
    service = server.service()
    server.json(UNREADABLE["HTML"])
    server.json(b'{"result": "Success"}')
    assert tk.upsert_vectors(service, [{"id": "a", "vector": [1.0]}]) == 1
    server.json(b"")
    server.json(b'{"messageId": "msg_1"}')
    assert messages.publish(service, "https://app.example/orders").message_id == "msg_1"
    first, second = server.asked[-2:]
    assert first.headers["Service-Deduplication-Id"] == second.headers["Service-Deduplication-Id"]
    before = len(server.asked)
    server.json(b"{}")
    with pytest.raises(MalformedResponseError, match="no 'workflowRunId'"):
        tk.resume_failures(service, "dlq_1", confirm=True)
    assert len(server.asked) == before + 1


ODD_INFO = {
    "a list for the index": [],
    "a list for an object": {"denseIndex": [1]},
    "an empty list for an object": {"sparseIndex": []},
    "text for an object": {"namespaces": "many"},
    "a number for a namespace": {"namespaces": {"a": 5}},
    "text for a dimension": {"dimension": "abc"},
    "digits in text": {"dimension": "256"},
    "a list for a dimension": {"dimension": []},
    "true for a dimension": {"dimension": True},
    "a dimension of 1e12": {"dimension": 1e12},
    "a dimension of 2**31": {"dimension": 2**31},
    "half a dimension": {"dimension": 2.5},
    "a negative dimension": {"denseIndex": {"dimension": -1}},
    "a count beyond 64 bits": {"vectorCount": 2**63},
    "text for a count": {"pendingVectorCount": "1"},
    "a list for a count": {"namespaces": {"a": {"vectorCount": [1]}}},
    "an object for a name": {"similarityFunction": {"name": "COSINE"}},
    "a number for a model": {"denseIndex": {"embeddingModel": 5}},
}


@pytest.mark.parametrize("name", ODD_INFO)
def test_a_malformed_info_is_a_typed_error(server, name):
    """Whatever has the wrong type or cannot be, the error says which field, and what was expected."""
    server.always(json.dumps({"result": ODD_INFO[name]}).encode())
    with (
        opened(server.service(), "vector", 2) as transport,
        pytest.raises(MalformedResponseError, match=r"asking what the vector index is .*got .*expected"),
    ):
        vectors.read_info(transport)


def test_a_whole_number_may_be_written_with_a_point(server):
    """256.0 is a dimension, and null or absent fields are none."""
    server.json(b'{"result": {"dimension": 256.0, "denseIndex": null, "namespaces": null}}')
    info = tk.index_info(server.service())
    assert (info.dimension, info.kind, info.vector_count, info.namespaces) == (256, "DENSE", 0, {})


@pytest.mark.parametrize("count", [1, 2, 3])
def test_hits_with_odd_values_come_through_alone_and_in_batches(server, count):
    """NaN, a lone surrogate and bytes that are not UTF-8 in a hit: each query keeps its own hits."""
    odd = [b'"\\ud800"', b"NaN", b'"\xff"']
    lists = [
        b'[{"id": "h%d", "score": 0.5, "metadata": {"a": %s, "n": 1.10}}]' % (n, odd[n]) for n in range(count)
    ]
    server.json(b'{"result": ' + (lists[0] if count == 1 else b"[" + b", ".join(lists) + b"]") + b"}")
    frame = tk.query(server.service(), vector=[[float(n)] for n in range(count)], include_metadata=True)
    assert frame["id"].tolist() == [f"h{n}" for n in range(count)]
    assert frame["query"].tolist() == list(range(count))
    assert all("1.10" in text for text in frame["metadata"])
    server.json(b'{"result": [[{"id": "a", "score": NaN, "vector": [NaN, 1]}], []]}')
    frame = tk.query(server.service(), vector=[[1.0], [2.0]], include_vectors=True)
    assert frame["id"].tolist() == ["a"]
    assert frame["score"].isna().all()

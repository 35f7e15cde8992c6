"""Success statuses whose bodies cannot be read: every read asks again, and then says what was wrong."""

from __future__ import annotations

import json
from functools import partial

import pytest

import toolkit as tk
from toolkit.errors import BadRequestError, MalformedResponseError, ProtocolError
from toolkit.service import failures, messages, vectors
from toolkit.service.responses import RetryPolicy
from toolkit.service.transport import Transport

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
        partial(failures.list_page, filter=tk.FailureFilter(), cursor=None),
        b'{"messages": [{"dlqId": "a"}], "cursor": ""}',
    ),
    "an entry": ("queue", partial(failures.get_entry, dlq_id="a"), b'{"dlqId": "a"}'),
    "a page of runs": (
        "queue",
        partial(failures.list_log_page, cursor=None),
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
    "what the index is": (
        "vector",
        vectors.read_info,
        json.dumps({"result": INFO}).encode(),
    ),
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


def opened(service: tk.Service, endpoint: str, tries: int) -> Transport:
    """A transport that does not wait before the next try."""
    return Transport.to(
        service, endpoint, policy=RetryPolicy(tries=tries, first_delay=0.0)
    )


@pytest.mark.parametrize("name", READS)
def test_a_read_that_cannot_be_read_is_retried(server, name):
    """HTML, nothing, no fields, JSON truncated at any byte: the next response counts, as if it came first."""
    endpoint, read, body = READS[name]
    bodies = [*UNREADABLE.values(), *(body[:size] for size in range(len(body)))]
    if name == "an entry":
        bodies = [
            bad for bad in bodies if b'": ' not in bad or bad.startswith(body[:9])
        ]
    with opened(server.service(), endpoint, len(bodies) + 1) as transport:
        server.json(body)
        whole = read(transport)
        for bad in bodies:
            server.json(bad)
        server.json(body)
        given = read(transport)
    assert len(server.requests) == len(bodies) + 2
    if name.startswith("a page"):
        assert (given.rows, given.cursor, given.tries) == (
            whole.rows,
            whole.cursor,
            len(bodies) + 1,
        )
    else:
        assert given == whole


@pytest.mark.parametrize("name", READS)
def test_a_permanently_unreadable_response_is_an_error_after_bounded_tries(
    server, name
):
    """A web page at this address: as many tries as the policy has, then an error that says what came."""
    endpoint, read, _ = READS[name]
    server.always(UNREADABLE["HTML"])
    with (
        opened(server.service(), endpoint, 3) as transport,
        pytest.raises(
            MalformedResponseError, match="30 bytes that are not JSON, starting '<html>"
        ),
    ):
        read(transport)
    assert len(server.requests) == 3


TWICE = {
    "a page of the DLQ": (
        b'{"messages": [{"dlqId": "a"}], "cursor": "x", "cursor": ""}',
        b'{"cursor": "x", "messages": [{"dlqId": "a"}], "cursor": ""}',
        b'{"messages": [], "n": 1, "messages": [{"dlqId": "a"}]}',
        b'{"messages": [{"dlqId": "a", "odd": NaN}], "messages": []}',
        b'{"messages": [{"dlqId": "\xff"}], "\\u006dessages": [], "n": 1}',
    ),
    "a page of runs": (
        b'{"runs":[{"workflowRunId":"a"}],"runs":[],"cursor":""}',
        b'{"runs":[],"cursor":"x","cursor":""}',
        b'{"runs":[],"cursor":"x","c\\u0075rsor":""}',
    ),
    "a page of vectors": (
        b'{"result": {"nextCursor": "", "vectors": [{"id": "a", "vector": [1, 2]}], "vectors": []}}',
        b'{"result": {"nextCursor": "7", "vectors": [], "nextCursor": ""}}',
        b'{"result":{"vectors":[],"vectors":[{"id":"a"}]}}',
        b'{"result":{"vectors":[],"vectors":[{"id":"a"}],"nextCursor":"7"}}',
        b'{"result":{"vectors":[],"nextCursor":"7","nextCursor":""}}',
        b'{"result":{"nextCursor":"7","vectors":[]},"result":{"nextCursor":"8","vectors":[]}}',
        b'{"result":{"nextCursor":"","vectors":[{"id":"a"}]},"result":{"nextCursor":"","vectors":[]}}',
    ),
    "vectors by ids": (
        b'{"result": [{"id": "a"}], "result": []}',
        b'{"result":[],"result":[{"id":"a"}]}',
    ),
    "a query": (b'{"result": [], "result": []}',),
    "a batch of queries": (b'{"result": [[], []], "result": [[], []]}',),
    "what the index is": (
        b'{"result": {"dimension": 2, "dimension": 3}}',
        b'{"result": {"namespaces": {"a": {}, "a": {}}}}',
        b'{"result": {}, "result": {}}',
    ),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_repeated_name_in_an_envelope_is_malformed(server, name):
    """In any spelling and at any position: retried, and then an error that names it."""
    endpoint, read, body = READS[name]
    for bad in TWICE[name]:
        server.json(bad)
        server.json(body)
        with opened(server.service(), endpoint, 2) as transport:
            read(transport)
        assert server.queue == []
        server.always(bad)
        with (
            opened(server.service(), endpoint, 2) as transport,
            pytest.raises(
                MalformedResponseError,
                match=r"got '\w+' twice in one object; expected each name once",
            ),
        ):
            read(transport)


def test_a_repeated_name_in_a_small_response_is_malformed(server):
    """Two ids in one response are ambiguous."""
    server.always(b'{"workflowRunId": "a", "workflowRunId": "b"}')
    with pytest.raises(
        MalformedResponseError, match="'workflowRunId' twice in one object"
    ):
        tk.resume_failures(server.service(), "a", confirm=True)


def test_a_name_twice_in_an_error_leaves_its_status(server):
    """The status says what happened, whatever the message is."""
    server.json(b'{"error": "one", "error": "two"}', status=400)
    with pytest.raises(BadRequestError) as caught:
        tk.list_namespaces(server.service())
    assert caught.value.status == 400


@pytest.mark.parametrize("cursor", ["x" * 5_000, "x" * 1_000_000])
def test_a_cursor_has_a_bounded_length(server, cursor):
    """It becomes part of a URL: one of a megabyte is malformed."""
    for name, body in (
        ("a page of the DLQ", {"messages": [], "cursor": cursor}),
        ("a page of runs", {"runs": [], "cursor": cursor}),
        ("a page of vectors", {"result": {"nextCursor": cursor, "vectors": []}}),
    ):
        endpoint, read, _ = READS[name]
        server.always(json.dumps(body).encode())
        with (
            opened(server.service(), endpoint, 2) as transport,
            pytest.raises(
                MalformedResponseError,
                match=r"a cursor of \d+,\d+.* characters; expected a cursor of at most 4,096",
            ),
        ):
            read(transport)


def test_a_cursor_that_cannot_be_sent_is_malformed(server):
    """Bytes that are not UTF-8 can be put into no address."""
    server.always(b'{"messages": [], "cursor": "\xff"}')
    with (
        opened(server.service(), "queue", 2) as transport,
        pytest.raises(MalformedResponseError, match="not UTF-8"),
    ):
        failures.list_page(transport, tk.FailureFilter(), cursor=None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "got"), [([5], "a number among"), ({"a": 1}, "an object under")]
)
@pytest.mark.usefixtures("no_backoff")
def test_namespaces_that_are_no_text_are_a_typed_error(server, names, got):
    """The error shows the value found where a name is expected."""
    server.always(json.dumps({"result": names}).encode())
    with pytest.raises(
        MalformedResponseError,
        match=rf"listing namespaces .*got {got}.*expected an array of names",
    ):
        tk.list_namespaces(server.service())


ODD_VALUES = [
    "[]",
    "[1]",
    '{"a": 1}',
    "null",
    "true",
    '"5"',
    "1.5",
    "-1",
    "7" * 5_000,
    "[" * 2_000 + "]" * 2_000,
]


@pytest.mark.parametrize("value", ODD_VALUES)
def test_invalid_values_in_small_responses_are_typed_errors(server, value):
    """Lists, objects, null, text, fractions, endless digits, deep nesting for an id or object."""
    service = server.service()
    whole = f'{{"workflowRunId": {value}, "result": {value}}}'
    for body in (whole, value):
        server.always(body.encode())
        if body == whole and value == '"5"':
            assert tk.resume_failures(service, "a", confirm=True) == {"a": "5"}
        else:
            with pytest.raises(MalformedResponseError, match="expected"):
                tk.resume_failures(service, "a", confirm=True)
        if body == whole and value == '{"a": 1}':
            continue
        with (
            opened(service, "vector", 1) as transport,
            pytest.raises(MalformedResponseError, match="expected"),
        ):
            vectors.read_info(transport)


def test_a_write_that_is_idempotent_is_retried_and_one_that_is_not_is_not(server):
    """A stored vector and a published message need their response; a resumed run is never resumed twice."""
    service = server.service()
    server.json(UNREADABLE["HTML"])
    server.json(b'{"result": "Success"}')
    assert tk.upsert_vectors(service, [{"id": "a", "vector": [1.0]}]) == 1
    server.json(b"")
    server.json(b'{"messageId": "msg_1"}')
    assert messages.publish(service, "https://app.example/orders").message_id == "msg_1"
    first, second = server.requests[-2:]
    assert (
        first.headers["Service-Deduplication-Id"]
        == second.headers["Service-Deduplication-Id"]
    )
    before = len(server.requests)
    server.json(b"{}")
    with pytest.raises(MalformedResponseError, match="no 'workflowRunId'"):
        tk.resume_failures(service, "dlq_1", confirm=True)
    assert len(server.requests) == before + 1


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
        pytest.raises(
            MalformedResponseError,
            match=r"reading the index information .*got .*expected",
        ),
    ):
        vectors.read_info(transport)


def test_an_integer_may_be_written_with_a_decimal_point(server):
    """256.0 is a dimension, and null or absent fields are none."""
    server.json(
        b'{"result": {"dimension": 256.0, "denseIndex": null, "namespaces": null}}'
    )
    info = tk.describe_index(server.service())
    assert (info.dimension, info.kind, info.vector_count, info.namespaces) == (
        256,
        "DENSE",
        0,
        {},
    )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_hits_with_invalid_values_are_kept_alone_and_in_batches(server, count):
    """NaN, a lone surrogate and bytes that are not UTF-8 in a hit: each query keeps its own hits."""
    odd = [b'"\\ud800"', b"NaN", b'"\xff"']
    lists = [
        b'[{"id": "h%d", "score": 0.5, "metadata": {"a": %s, "n": 1.10}}]' % (n, odd[n])
        for n in range(count)
    ]
    server.json(
        b'{"result": '
        + (lists[0] if count == 1 else b"[" + b", ".join(lists) + b"]")
        + b"}"
    )
    frame = tk.query(
        server.service(),
        vector=[[float(n)] for n in range(count)],
        include_metadata=True,
    )
    assert frame["id"].tolist() == [f"h{n}" for n in range(count)]
    assert frame["query"].tolist() == list(range(count))
    assert all("1.10" in text for text in frame["metadata"])
    server.json(b'{"result": [[{"id": "a", "score": NaN, "vector": [NaN, 1]}], []]}')
    frame = tk.query(server.service(), vector=[[1.0], [2.0]], include_vectors=True)
    assert frame["id"].tolist() == ["a"]
    assert frame["score"].isna().all()


@pytest.mark.parametrize("name", [b"\xff", rb"\ud800"])
def test_a_namespace_that_no_address_can_name_is_a_typed_error(server, name):
    """The index lists it, but no request can be made for it; the error says what can be read."""
    info = json.dumps(
        {"result": INFO | {"namespaces": {"ns": {"vectorCount": 1}}}}
    ).encode()
    server.always(info.replace(b'"ns"', b'"' + name + b'"'))
    with pytest.raises(
        ProtocolError, match=r"lone surrogate.*Name the other namespaces"
    ):
        tk.load_vectors(server.service(), namespace="all", progress=False)

"""Publishing many messages: all or an error that says how far it came, and none twice."""

from __future__ import annotations

import json
import time

import pytest

import toolkit as tk
from tests.conftest import Reply
from toolkit.errors import InputError, ServiceError, UnexpectedResultWarning

LATER = "http://127.0.0.1:9/later"


@pytest.fixture
def service(local_indexes) -> tk.Service:
    """A real service to write to."""
    return local_indexes["dense"]


def orders(count: int, label: str) -> list[dict[str, object]]:
    """Messages that are not delivered while a test runs."""
    return [
        {"url": LATER, "body": {"order": n}, "delay": "1h", "labels": [label]}
        for n in range(count)
    ]


def test_messages_of_several_requests_are_published_in_order(service):
    """Each with its own body and settings; the same call again accepts none a second time."""
    messages = [
        *orders(230, "batch"),
        {"url": LATER, "body": "plain", "delay": 60, "labels": "batch"},
    ]
    sent = tk.publish_batch(service, messages, batch_id="one", confirm=True)
    assert len({published.message_id for published in sent}) == len(sent) == 231
    events = tk.load_events(
        service, filter=tk.EventFilter(label="batch", state="CREATED"), progress=False
    )
    assert set(events["message_id"]) == {published.message_id for published in sent}
    with pytest.warns(UnexpectedResultWarning, match="batch_id='one'"):
        again = tk.publish_batch(service, messages, batch_id="one", confirm=True)
    assert [published.message_id for published in again] == [
        published.message_id for published in sent
    ]
    assert len(
        tk.load_events(service, filter=tk.EventFilter(label="batch"), progress=False)
    ) == len(events)
    other = tk.publish_batch(service, messages[:1], confirm=True)
    assert not other[0].deduplicated


def test_bodies_and_headers_arrive_as_of_publish(service, server):
    """JSON, text and own headers, at the destination."""
    server.respond = lambda _: Reply(200)
    item = {"url": f"{server.url}/x", "retries": 0}
    tk.publish_batch(
        service,
        [
            item | {"body": {"n": "ü"}, "headers": {"X-A": "1"}},
            item | {"body": b"text", "method": "PUT"},
        ],
        confirm=True,
    )
    while len(server.requests) < 2:
        time.sleep(0.05)
    first, second = sorted(server.requests, key=lambda asked: asked.method)
    assert (json.loads(first.body), first.headers["X-A"]) == ({"n": "ü"}, "1")
    assert first.headers["Content-Type"] == "application/json"
    assert (second.method, second.body) == ("PUT", b"text")


def test_what_cannot_be_sent_is_refused_before_anything_is(server):
    """Also the last of many; the error says which one it is, and nothing was sent."""
    service, good = server.service(), orders(150, "x")
    for wrong, match in (
        ({"url": "ftp://a.example"}, "ftp"),
        ({"url": LATER, "retires": 1}, "retries"),
        ({"body": 1}, "no url"),
        ({"url": LATER, "body": b"\xff"}, "UTF-8"),
        ("text", "position 150"),
    ):
        with pytest.raises(InputError, match=match) as caught:
            tk.publish_batch(service, [*good, wrong], confirm=True)
        assert "position 150" in str(caught.value) + " ".join(
            getattr(caught.value, "__notes__", ())
        )
    for messages, confirm in (
        (good, False),
        ([], True),
        ({"url": LATER}, True),
        ("text", True),
    ):
        with pytest.raises(InputError):
            tk.publish_batch(service, messages, confirm=confirm)
    assert server.requests == []


def test_an_error_says_how_far_it_came_and_the_same_call_goes_on(server):
    """100 were accepted, of 100 it is unknown, 30 were not sent; a second call has the same ids."""
    refused = []

    def respond(asked):
        items = json.loads(asked.body)
        if len(server.requests) > 1 and not refused:
            return Reply(401, {}, b'{"error": "no"}')
        ids = [
            {"messageId": item["headers"]["Service-Deduplication-Id"]} for item in items
        ]
        return Reply(200, {}, json.dumps(ids).encode())

    server.respond = respond
    service = server.service()
    with pytest.raises(ServiceError) as caught:
        tk.publish_batch(service, orders(230, "x"), batch_id="b", confirm=True)
    assert caught.value.__notes__[-1].startswith(
        "Before this, 100 of 230 messages were accepted. The 100 of this request were not. Not sent: 30. "
    )
    refused.append(True)
    sent = tk.publish_batch(service, orders(230, "x"), batch_id="b", confirm=True)
    assert [published.message_id for published in sent] == [
        f"b-{n}" for n in range(230)
    ]
    assert json.loads(server.requests[0].body) == json.loads(server.requests[2].body)


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b"no", b"[1, 2]", b'[{"messageId": "a"}, {}]']
)
def test_a_response_of_another_shape_is_no_success(server, body):
    """Fewer results than messages, or others, are an error after retries; it is unknown what was accepted."""
    server.always(body)
    with pytest.raises(ServiceError) as caught:
        tk.publish_batch(server.service(), orders(2, "x"), confirm=True)
    assert "Whether the 2 of this request were is unknown" in caught.value.__notes__[-1]

"""Settings of the service: the prefix, the largest message, and restarts."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from toolkit_service.demo.local_service import LocalService

Service = Any
Server = Any


@pytest.mark.parametrize("prefix", ["Service-", "Upstash-"])
def test_the_last_page_has_no_cursor_in_the_public_dialect(
    start: Callable[..., Service], server: Server, prefix: str
) -> None:
    """Of each listing and bulk action; the other dialect has an empty one there."""
    service = start(prefix=prefix)
    server.always(b"{}", status=500)
    for _ in range(3):
        service.publish(f"{server.url}/", Retries="0")
    service.wait(lambda: len(service.http.get("/v2/dlq").json()["messages"]) == 3)
    first = service.http.get("/v2/dlq", params={"count": 1}).json()
    deleted = service.http.delete("/v2/dlq", params={"count": 1}).json()
    assert (deleted["deleted"], bool(first["cursor"]), bool(deleted["cursor"])) == (
        1,
        True,
        True,
    )
    last = [
        service.http.get(f"/v2/{listing}").json()
        for listing in (
            "dlq",
            "workflows/dlq",
            "logs",
            "events",
            "workflows/logs",
            "workflows/events",
        )
    ]
    last.append(
        service.http.post("/v2/dlq/retry", params={"count": 1, "url": "none"}).json()
    )
    last.append(service.http.delete("/v2/dlq", params={"count": 2}).json())
    last += [
        service.http.post(f"/v2/workflows/dlq/{action}?count=1").json()
        for action in ("resume", "restart")
    ]
    expected = None if prefix == "Upstash-" else ""
    assert {page.get("cursor") for page in last} == {expected}
    assert {"cursor" in page for page in last} == {expected is not None}


@pytest.mark.parametrize("prefix", ["Service-", "Upstash-"])
def test_a_publish_without_a_prefix_gets_the_one_that_is_set(
    start: Callable[..., Service], server: Server, prefix: str
) -> None:
    """Plain publishes, batches and triggers speak it; a publish that uses the other gets that in return."""
    service = start(prefix=prefix)
    server.always(b"{}")
    other = "Upstash-" if prefix == "Service-" else "Service-"
    service.http.post(f"/v2/publish/{server.url}/plain")
    service.http.post("/v2/batch", json=[{"destination": f"{server.url}/batch"}])
    service.http.post(f"/v2/trigger/{server.url}/trigger")
    service.http.post(
        f"/v2/publish/{server.url}/other", headers={f"{other}Retries": "1"}
    )
    service.wait(lambda: len(server.requests) == 4)
    for request in server.requests:
        spoken = other if request.path == "/other" else prefix
        assert f"{spoken}Signature" in request.headers
        assert f"{spoken}Message-Id" in request.headers
        assert (f"{spoken}Workflow-RunId" in request.headers) is (
            request.path == "/trigger"
        )
        assert not any(name.startswith({"Service-": "Upstash-", "Upstash-": "Service-"}[spoken])
                       and "Sdk-Version" not in name for name in request.headers)  # fmt: skip


def test_callbacks_hold_as_much_of_a_response_as_configured(
    start: Callable[..., Service], server: Server
) -> None:
    """Successes and failures are truncated at the largest message; bodies of that size are whole."""
    service = start(max_message=1000)
    reply = type(server.respond(None))
    bodies = {
        "/long": (200, b"y" * 1001),
        "/just": (200, b"z" * 1000),
        "/bad": (500, b"x" * 50_000),
    }
    server.respond = lambda request: reply(
        *_three(bodies.get(request.path, (200, b"")))
    )
    for path in bodies:
        service.publish(
            f"{server.url}{path}",
            Retries="0",
            Callback=f"{server.url}/callback",
            Failure_Callback=f"{server.url}/failed",
        )
    service.wait(lambda: len(server.requests) == 7)
    payload = {(a.path, body["url"].rpartition("/")[2]): base64.b64decode(body["body"])
            for a in server.requests if a.path in ("/callback", "/failed")
            for body in [json.loads(a.body)]}  # fmt: skip
    assert payload == {
        ("/callback", "long"): b"y" * 1000,
        ("/callback", "just"): b"z" * 1000,
        ("/callback", "bad"): b"x" * 1000,
        ("/failed", "bad"): b"x" * 1000,
    }


def _three(response: tuple[int, bytes]) -> tuple[int, dict[str, str], bytes]:
    status, body = response
    return status, {}, body


def test_messages_beyond_the_largest_are_refused(
    start: Callable[..., Service], server: Server
) -> None:
    """In a publish, a batch and an event, with 413; the largest one is accepted."""
    service = start(max_message=1000)
    server.always(b"{}")
    assert (
        service.http.post(f"/v2/publish/{server.url}/", content=b"x" * 1001).status_code
        == 413
    )
    item = {"destination": f"{server.url}/", "body": "x" * 1001}
    assert service.http.post("/v2/batch", json=[item]).status_code == 413
    assert service.http.post("/v2/notify/paid", content=b"x" * 1001).status_code == 413
    assert (
        service.http.post(f"/v2/publish/{server.url}/", content=b"x" * 1000).status_code
        == 200
    )


def test_deduplication_outlives_a_restart(
    served: Callable[..., Any], server: Server
) -> None:
    """Within ten minutes a repeat is recognised by the service that was started again, and not after them."""
    server.always(b"{}")
    with served() as service:
        clock = service.clock
        first = service.publish(f"{server.url}/", Deduplication_Id="one")
        service.wait(lambda: server.requests)
    clock.advance(seconds=599)
    with served(clock=clock) as service:
        again = service.publish(f"{server.url}/", Deduplication_Id="one")
        assert again == {"messageId": first["messageId"], "deduplicated": True}
        clock.advance(seconds=1)
        assert "deduplicated" not in service.publish(
            f"{server.url}/", Deduplication_Id="one"
        )


@pytest.mark.parametrize("field", ["header", "headers"])
def test_all_headers_can_be_redacted(
    service: Service, server: Server, field: str
) -> None:
    """Under either name, in pending messages and in the DLQ; delivered unchanged."""
    server.always(b"oops", 500)
    message = service.publish(
        f"{server.url}/",
        b"seen",
        Redact_Fields=field,
        Forward_X_Key="secret",
        Delay="1m",
        Retries="0",
    )["messageId"]
    waiting = service.http.get(f"/v2/messages/{message}").json()
    digest = f"REDACTED:{hashlib.sha256(b'secret').hexdigest()}"
    assert (waiting["header"]["x-key"], waiting["body"]) == ([digest], "seen")
    service.clock.advance(seconds=60)
    (entry,) = service.wait(service.dlq)
    assert server.requests[0].headers["x-key"] == "secret"
    assert entry["header"]["x-key"] == [digest]


def test_the_command_takes_both_settings(server: Server) -> None:
    """``--dialect`` and ``--max-message`` reach the running service."""
    server.always(b"{}")
    with LocalService(
        indexes=["plain:dense:2:COSINE"], dialect="upstash", max_message=100
    ) as running:
        bearer = {"Authorization": f"Bearer {running.token}"}
        with httpx.Client(base_url=running.url, headers=bearer) as client:
            assert (
                client.post(
                    f"/v2/publish/{server.url}/", content=b"x" * 101
                ).status_code
                == 413
            )
            sent = client.post(f"/v2/publish/{server.url}/", content=b"x" * 100).json()[
                "messageId"
            ]
            for _ in range(500):
                if server.requests:
                    break
                client.get("/v2/keys")
    assert server.requests[0].headers["Upstash-Message-Id"] == sent

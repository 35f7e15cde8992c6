"""Callbacks and failure callbacks: when they are sent, and every field of their bodies."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import jwt
import pytest

Service = Any
Server = Any
KEY = "sig_current_" + "c" * 32

FIELDS = {
    "status", "header", "body", "retried", "maxRetries", "sourceMessageId", "topicName", "endpointName",
    "url", "method", "sourceHeader", "sourceBody", "notBefore", "createdAt", "scheduleId", "callerIP",
}  # fmt: skip


def by_path(server: Server, **responses: tuple[int, bytes]) -> None:
    """Let the destination respond by path, with a status and a body; anything else is a 200."""
    reply = type(server.respond(None))

    def response(request: Any) -> Any:
        status, body = responses.get(request.path.strip("/"), (200, b""))
        return reply(status, {"X-Answer": "yes"}, body)

    server.respond = response


def received(server: Server, path: str) -> list[Any]:
    """The requests to a path."""
    return [request for request in server.requests if request.path == path]


def test_a_callback_says_everything_about_a_success(
    service: Service, server: Server
) -> None:
    """All fields of the table with their types, the response's body in base64, signed like any delivery."""
    by_path(server, work=(201, b"\xff\x00result"))
    created = service.clock.now_ms()
    message = service.publish(
        f"{server.url}/work?a=1",
        b"the source",
        Callback=f"{server.url}/callback",
        Callback_Forward_X_For="the callback",
        Callback_Method="PUT",
        Forward_X_One="1",
    )["messageId"]
    (request,) = service.wait(lambda: received(server, "/callback"))
    body = json.loads(request.body)
    assert set(body) == FIELDS
    assert body["status"] == 201
    assert body["header"]["X-Answer"] == ["yes"]
    assert base64.b64decode(body["body"]) == b"\xff\x00result"
    assert (body["retried"], body["maxRetries"]) == (0, 3)
    assert body["sourceMessageId"] == message
    assert (body["url"], body["method"]) == (f"{server.url}/work?a=1", "POST")
    assert body["sourceHeader"]["x-one"] == "1"
    assert base64.b64decode(body["sourceBody"]) == b"the source"
    assert body["createdAt"] == body["notBefore"] == str(created)
    assert body["callerIP"] == "127.0.0.1"
    assert request.method == "PUT"
    assert request.headers["x-for"] == "the callback"
    assert request.headers["Content-Type"] == "application/json"
    claims = jwt.decode(
        request.headers["Service-Signature"], KEY, algorithms=["HS256"], leeway=5
    )
    assert claims["sub"] == f"{server.url}/callback"
    assert (
        claims["body"]
        == base64.urlsafe_b64encode(hashlib.sha256(request.body).digest()).decode()
    )


def test_callbacks_go_out_on_every_attempt_and_the_failure_callback_once(
    service: Service, server: Server
) -> None:
    """Retried counts up to maxRetries; the failure callback has the same fields and the id of the entry."""
    by_path(server, work=(500, b"oops"))
    service.publish(
        f"{server.url}/work",
        Retries="2",
        Callback=f"{server.url}/callback",
        Failure_Callback=f"{server.url}/failed",
    )
    (failed,) = service.run_out(lambda: received(server, "/failed"), step=60)
    callbacks = service.wait(
        lambda: len(actual := received(server, "/callback")) == 3 and actual
    )
    bodies = [json.loads(request.body) for request in callbacks]
    assert sorted(body["retried"] for body in bodies) == [0, 1, 2]
    assert {body["maxRetries"] for body in bodies} == {2}
    assert all(set(body) == FIELDS for body in bodies)
    payload = json.loads(failed.body)
    assert set(payload) == FIELDS | {"dlqId"}
    assert payload["retried"] == payload["maxRetries"] == 2
    entry = service.http.get(f"/v2/dlq/{payload['dlqId']}").json()
    assert entry["messageId"] == payload["sourceMessageId"]
    assert entry["failureCallback"] == f"{server.url}/failed"
    assert len(received(server, "/failed")) == 1


def test_callbacks_use_the_retries_of_the_original_unless_set(
    service: Service, server: Server
) -> None:
    """A failing callback is retried as its source is, or as its own header says, and then in the DLQ."""
    by_path(server, callback=(500, b""), own=(500, b""))
    service.publish(
        f"{server.url}/work", Retries="1", Callback=f"{server.url}/callback"
    )
    service.publish(
        f"{server.url}/work",
        Retries="1",
        Callback=f"{server.url}/own",
        Callback_Retries="0",
    )
    entries = service.run_out(
        lambda: len(actual := service.dlq()) == 2 and actual, step=60
    )
    assert {entry["url"]: entry["maxRetries"] for entry in entries} == {
        f"{server.url}/callback": 1,
        f"{server.url}/own": 0,
    }
    assert (len(received(server, "/callback")), len(received(server, "/own"))) == (2, 1)


def test_a_callback_can_be_delayed(service: Service, server: Server) -> None:
    """Callback-Delay holds the callback back, not the message."""
    by_path(server)
    service.publish(
        f"{server.url}/work", Callback=f"{server.url}/callback", Callback_Delay="1h"
    )
    service.wait(lambda: received(server, "/work"))
    assert received(server, "/callback") == []
    service.run_out(lambda: received(server, "/callback"), step=600)


@pytest.mark.parametrize(
    ("status", "state"), [(200, "CALLBACK_SUCCESS"), (500, "CALLBACK_FAIL")]
)
def test_the_state_follows_the_failure_function(
    service: Service, server: Server, status: int, state: str
) -> None:
    """In progress until the failure callback is delivered or has failed, then its outcome."""
    by_path(server, work=(500, b""), failed=(status, b""))
    service.publish(
        f"{server.url}/work",
        Retries="0",
        Failure_Callback=f"{server.url}/failed",
        Failure_Callback_Retries="1",
        Failure_Callback_Delay="1m",
    )
    (entry,) = service.wait(service.dlq)
    assert entry["failureFunctionState"] == "CALLBACK_INPROGRESS"
    service.run_out(
        lambda: service.dlq(failureFunctionState=state, url=f"{server.url}/work"),
        step=60,
    )


def test_a_failure_function_can_be_canceled(service: Service, server: Server) -> None:
    """Deleting the failure callback's message while it waits leaves the entry as cancelled."""
    by_path(server, work=(500, b""))
    service.publish(
        f"{server.url}/work",
        Retries="0",
        Failure_Callback=f"{server.url}/failed",
        Failure_Callback_Delay="1d",
    )
    service.wait(service.dlq)
    events = service.http.get(
        "/v2/logs", params={"url": f"{server.url}/failed"}
    ).json()["events"]
    service.http.delete(f"/v2/messages/{events[0]['messageId']}")
    (entry,) = service.dlq()
    assert entry["failureFunctionState"] == "CALLBACK_CANCELED"
    service.clock.advance(seconds=2 * 86_400)
    assert received(server, "/failed") == []


def test_redacted_fields_are_delivered_but_not_shown(
    service: Service, server: Server
) -> None:
    """The destination gets the original; the DLQ and the failure callback show its SHA-256."""
    by_path(server, work=(500, b""))
    service.publish(
        f"{server.url}/work",
        b"the secret",
        Retries="0",
        Redact_Fields="body, header[X-Key]",
        Forward_X_Key="of the house",
        Forward_X_Plain="seen",
        Failure_Callback=f"{server.url}/failed",
    )
    (failed,) = service.wait(lambda: received(server, "/failed"))
    (work,) = received(server, "/work")
    (entry,) = service.dlq()
    assert (work.body, work.headers["x-key"]) == (b"the secret", "of the house")
    assert entry["body"] == f"REDACTED:{hashlib.sha256(b'the secret').hexdigest()}"
    assert entry["header"]["x-key"] == [
        f"REDACTED:{hashlib.sha256(b'of the house').hexdigest()}"
    ]
    assert entry["header"]["x-plain"] == ["seen"]
    assert (
        base64.b64decode(json.loads(failed.body)["sourceBody"]).decode()
        == entry["body"]
    )

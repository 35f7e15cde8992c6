"""Deliveries over real HTTP: content, time, and forbidden destinations."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable
from typing import Any

import httpx
import jwt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# the fixtures' classes live in conftest; only their shapes matter here
Service = Any
Server = Any

KEYS = ("sig_current_" + "c" * 32, "sig_next_" + "n" * 32)


def answering(
    server: Server, status: int = 200, body: bytes = b"fine", **headers: str
) -> None:
    """Let the destination respond to everything like this."""
    server.always(body, status, **headers)


def test_a_message_arrives_with_its_method_headers_query_and_body(
    service: Service, server: Server
) -> None:
    """Body byte for byte, forwarded headers without their prefix, the query kept, our token not in it."""
    answering(server)
    body = bytes(range(256))
    response = httpx.post(
        f"{service.url}/v2/publish/{server.url}/a%20b/c?x=1&queue_token=token-of-the-queue-tests&y=%2F",
        content=body,
        headers={
            "Content-Type": "application/x-thing",
            "Service-Method": "PUT",
            "Service-Forward-X-Colour": "blue",
            "Not-Forwarded": "no",
        },
    )
    assert response.status_code == 200
    (request,) = service.wait(lambda: server.requests)
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert (request.method, request.path, request.query) == (
        "PUT",
        "/a%20b/c",
        [("x", "1"), ("y", "/")],
    )
    assert request.body == body
    assert headers["x-colour"] == "blue"
    assert headers["content-type"] == "application/x-thing"
    assert headers["retried"] == headers["service-retried"] == "0"
    assert headers["service-message-id"] == response.json()["messageId"]
    assert headers["host"] == server.url.removeprefix("http://")
    assert "not-forwarded" not in headers
    assert "authorization" not in headers


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    body=st.binary(max_size=2000),
    value=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
)
def test_any_body_and_any_header_value_arrive_as_they_were(
    service: Service, server: Server, body: bytes, value: str
) -> None:
    """The published bytes are delivered unchanged, and the signature holds their hash."""
    answering(server)
    server.requests.clear()
    service.publish(f"{server.url}/any", body, Forward_X_Value=value)
    (request,) = service.wait(lambda: server.requests)
    claims = jwt.decode(
        request.headers["Service-Signature"], KEYS[0], algorithms=["HS256"]
    )
    assert request.body == body
    assert request.headers["x-value"].strip() == value
    assert (
        claims["body"]
        == base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
    )


@pytest.mark.parametrize("prefix", ["Service", "Upstash"])
def test_deliveries_speak_the_prefix_of_their_publish(
    service: Service, server: Server, prefix: str
) -> None:
    """Both dialects are understood, and each is used in its responses."""
    answering(server)
    service.http.post(f"/v2/publish/{server.url}/", headers={f"{prefix}-Retries": "0"})
    (request,) = service.wait(lambda: server.requests)
    ours = [
        name for name in request.headers if name.startswith(("Service-", "Upstash-"))
    ]
    assert {"Message-Id", "Retried", "Signature"} == {
        name.partition("-")[2] for name in ours
    }
    assert all(name.startswith(prefix) for name in ours)


def test_signatures_verify_with_an_independent_library(
    service: Service, server: Server
) -> None:
    """PyJWT verifies issuer, subject, times and key; the next key and another body do not fit."""
    answering(server)
    service.publish(f"{server.url}/signed?a=1", b"{}")
    (request,) = service.wait(lambda: server.requests)
    token = request.headers["Service-Signature"]
    claims = jwt.decode(
        token, KEYS[0], algorithms=["HS256"], issuer="Upstash", leeway=5
    )
    assert claims["sub"] == f"{server.url}/signed?a=1"
    assert claims["exp"] - claims["iat"] == 300
    assert claims["nbf"] == claims["iat"]
    assert claims["jti"]
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(token, KEYS[1], algorithms=["HS256"])


def test_rotated_keys_sign_and_survive(service: Service, server: Server) -> None:
    """After a rotation the next key signs, and the listing shows it as the current one."""
    answering(server)
    assert service.http.get("/v2/keys").json() == {"current": KEYS[0], "next": KEYS[1]}
    rotated = service.http.post("/v2/keys/rotate").json()
    assert rotated["current"] == KEYS[1]
    assert rotated["next"] not in KEYS
    service.publish(f"{server.url}/")
    (request,) = service.wait(lambda: server.requests)
    jwt.decode(
        request.headers["Service-Signature"], KEYS[1], algorithms=["HS256"], leeway=5
    )


def test_delay_and_not_before_hold_a_message_back(
    service: Service, server: Server
) -> None:
    """A delayed message is delivered when it is due; Not-Before wins over Delay."""
    answering(server)
    service.publish(f"{server.url}/delayed", Delay="1d10h30m")
    not_before = service.clock.now_ms() // 1000 + 60
    service.publish(f"{server.url}/not-before", Delay="10d", Not_Before=str(not_before))
    service.clock.advance(seconds=59)
    time.sleep(0.05)
    assert server.requests == []
    service.clock.advance(seconds=2)
    service.wait(
        lambda: [request.path for request in server.requests] == ["/not-before"]
    )
    service.clock.advance(seconds=124_200 - 62)
    time.sleep(0.05)
    assert len(server.requests) == 1
    service.clock.advance(seconds=2)
    service.wait(
        lambda: [request.path for request in server.requests][1:] == ["/delayed"]
    )


def test_the_time_factor_divides_delays_and_keeps_timestamps(
    start: Callable[..., Service], server: Server
) -> None:
    """With a factor of 60 a delay of a minute lasts a second; createdAt is the time of publishing."""
    service = start(time_factor=60)
    answering(server, 500)
    before = service.clock.now_ms()
    message = service.publish(f"{server.url}/", Delay="60s", Retries="0")
    shown = service.http.get(f"/v2/messages/{message['messageId']}").json()
    assert shown["createdAt"] == before
    assert shown["nextDeliveryTime"] == before + 1000
    service.clock.advance(seconds=1)
    (entry,) = service.wait(service.dlq)
    assert entry["createdAt"] == before


def test_repeats_are_recognised_by_id_and_by_content_for_ten_minutes(
    service: Service, server: Server
) -> None:
    """The second publish names the first message; after ten minutes it is a new message."""
    answering(server)
    first = service.publish(f"{server.url}/", b"a", Deduplication_Id="one")
    again = service.publish(f"{server.url}/", b"b", Deduplication_Id="one")
    assert again == {"messageId": first["messageId"], "deduplicated": True}
    by_content = service.publish(
        f"{server.url}/", b"a", Content_Based_Deduplication="true"
    )
    assert service.publish(f"{server.url}/", b"a", Content_Based_Deduplication="true")[
        "deduplicated"
    ]
    other = service.publish(f"{server.url}/", b"b", Content_Based_Deduplication="true")
    assert other["messageId"] != by_content["messageId"]
    service.clock.advance(seconds=601)
    later = service.publish(f"{server.url}/", b"a", Deduplication_Id="one")
    assert "deduplicated" not in later
    assert later["messageId"] != first["messageId"]


def test_a_batch_is_taken_whole_or_not_at_all(service: Service, server: Server) -> None:
    """Responses are in the order of the messages; one bad message refuses all and is named."""
    answering(server)
    good = {
        "destination": f"{server.url}/b",
        "body": "1",
        "headers": {"Upstash-Forward-X-N": "1"},
    }
    bad = {"destination": f"{server.url}/b", "headers": {"Upstash-Delay": "5x"}}
    refused = service.http.post("/v2/batch", json=[good, bad])
    assert refused.status_code == 400
    assert "message 1" in refused.json()["error"]
    assert "Upstash-Delay" in refused.json()["error"]
    responses = service.http.post(
        "/v2/batch", json=[good, {**good, "body": "2"}]
    ).json()
    service.wait(lambda: len(server.requests) == 2)
    by_id = {
        request.headers["Upstash-Message-Id"]: request.body
        for request in server.requests
    }
    assert [by_id[response["messageId"]] for response in responses] == [b"1", b"2"]


def test_a_message_can_be_canceled(service: Service, server: Server) -> None:
    """A cancelled message is never delivered, and is then not known."""
    answering(server)
    message = service.publish(f"{server.url}/", Delay="1h")["messageId"]
    assert service.http.delete(f"/v2/messages/{message}").status_code == 202
    assert service.http.get(f"/v2/messages/{message}").status_code == 404
    service.clock.advance(seconds=7200)
    time.sleep(0.05)
    assert server.requests == []
    assert service.events(message) == ["CREATED", "CANCEL_REQUESTED", "CANCELED"]


def test_redirects_are_not_followed(service: Service, server: Server) -> None:
    """A redirect is a response that is not 2xx, and nothing is sent where it points."""
    answering(server, 307, Location=f"{server.url}/elsewhere")
    service.publish(f"{server.url}/here", Retries="0")
    (entry,) = service.wait(service.dlq)
    assert entry["responseStatus"] == 307
    assert [request.path for request in server.requests] == ["/here"]


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest",
        "http://0.0.0.0/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://10.0.0.1/",
        "http://no-such-host.invalid/",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http:///nowhere",
        "http://user:pw@127.0.0.1/",
        "http://127.0.0.1:99999/",
        "127.0.0.1/",
        "",
    ],
)
def test_addresses_that_may_not_be_called_are_refused(
    shared: Service, url: str
) -> None:
    """As a destination and as a callback, with 400 and a reason."""
    response = shared.http.post(f"/v2/publish/{url}")
    assert response.status_code == 400, response.text
    assert "expected" in response.json()["error"]
    beside = shared.http.post(
        "/v2/publish/http://127.0.0.1:9/", headers={"Service-Callback": url}
    )
    assert beside.status_code == 400


def test_an_allowed_host_may_be_called(start: Callable[..., Service]) -> None:
    """A host of the allow-list is accepted where it is refused otherwise."""
    service = start(allowed=["10.0.0.1"])
    assert (
        service.http.post(
            "/v2/publish/http://10.0.0.1/", headers={"Service-Delay": "1d"}
        ).status_code
        == 200
    )
    assert service.http.post("/v2/publish/http://10.0.0.2/").status_code == 400


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Retries", "-1"),
        ("Retries", "1000000000"),
        ("Retries", "1.5"),
        ("Delay", "5x"),
        ("Delay", "-1s"),
        ("Not-Before", "soon"),
        ("Timeout", "0"),
        ("Method", "BREW"),
        ("Retry-Delay", "__import__('os')"),
        ("Retry-Delay", "pow(9,pow(9,9))"),
        ("Retry-Delay", "1/0"),
        ("Retry-Delay", "NaN"),
        ("Content-Based-Deduplication", "perhaps"),
        ("Flow-Control-Value", "parallelism=1"),
        ("Redact-Fields", "everything"),
        ("Callback", "not a url"),
        ("Failure-Callback", "ftp://127.0.0.1/"),
    ],
)
def test_headers_that_are_not_understood_are_refused_by_name(
    shared: Service, name: str, value: str
) -> None:
    """400, with the header's name, and nothing is stored."""
    response = shared.http.post(
        "/v2/publish/http://127.0.0.1:9/", headers={f"Service-{name}": value}
    )
    assert response.status_code == 400
    assert f"service-{name}".lower() in response.json()["error"].lower()
    assert shared.http.get("/v2/logs").json()["events"] == []


@pytest.mark.parametrize(
    "value", ["a\r\nEvil: 1", "a\nb", "nul\x00", "snowman \u2603", 5, None]
)
def test_header_values_that_http_cannot_carry_are_refused(
    shared: Service, value: Any
) -> None:
    """A batch can hold line breaks, other characters and other types in headers; none is let through."""
    item = {
        "destination": "http://127.0.0.1:9/",
        "headers": {"Service-Forward-X": value},
    }
    response = shared.http.post("/v2/batch", json=[item])
    assert response.status_code == 400
    assert "Service-Forward-X" in response.json()["error"]

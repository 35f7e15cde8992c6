"""Publishing and starting runs over real HTTP: what is on the wire, what is refused, what is returned."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import (
    AuthenticationError,
    BadRequestError,
    InputError,
    ProtocolError,
    SettingsError,
    TransportError,
)
from toolkit.service.callback_settings import CallbackSettings
from toolkit.service.messages import Published, publish
from toolkit.service.publish_headers import content_of, duration, web_address
from toolkit.service.responses import RetryPolicy
from toolkit.service.run_starts import start_run

DESTINATION = "https://app.example/orders"
CANARY = "canary-6f1e5d"


def published(server, **options):
    """Publish to the scripted server and return the request as it arrived, with headers in lower case."""
    server.json(b'{"messageId": "msg_1"}')
    with server.service() as service:
        publish(service, DESTINATION, **options)
    request = server.requests[-1]
    return request, {name.lower(): value for name, value in request.headers.items()}


def test_a_plain_publish_posts_the_body_to_the_destination_after_the_path(server):
    """The destination follows /v2/publish/, the token goes into the header, the response becomes a value."""
    server.json(b'{"messageId": "msg_1", "later": "fields are fine"}')
    result = publish(server.service(), DESTINATION, {"order": 1})
    assert result == Published(message_id="msg_1", deduplicated=False)
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", f"/v2/publish/{DESTINATION}")
    assert request.body == b'{"order": 1}'
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Authorization"] == "Bearer queue-token-of-the-test"


def test_every_option_becomes_its_header(server):
    """Each publish option is under the specification's header name."""
    _, headers = published(
        server,
        method="PUT",
        headers={"X-Trace": "t1"},
        retries=tk.Retries(5, delay="1000 * pow(2, retried)"),
        timeout="30s",
        delay=timedelta(minutes=2),
        labels=["nightly", "billing"],
        flow_control=tk.FlowControl("tenant-7", parallelism=2, rate=10, period="1m"),
        deduplication_id="order-1",
        redact=["body", "header[Authorization]"],
    )
    expected = {
        "method": "PUT",
        "forward-x-trace": "t1",
        "retries": "5",
        "retry-delay": "1000 * pow(2, retried)",
        "timeout": "30s",
        "delay": "120s",
        "label": "nightly,billing",
        "flow-control-key": "tenant-7",
        "flow-control-value": "parallelism=2, rate=10, period=60s",
        "deduplication-id": "order-1",
        "redact-fields": "body,header[Authorization]",
    }
    assert {name: headers[f"service-{name}"] for name in expected} == expected


@pytest.mark.parametrize("name", ["Callback", "Failure-Callback"])
def test_callback_settings_become_the_headers_of_the_specification(server, name):
    """URL, timeout, retries, delay, method and forwarded headers of both callbacks, by their own names."""
    settings = CallbackSettings(
        "https://app.example/done?key=1",
        timeout=10,
        retries=0,
        delay="5s",
        method="PUT",
        headers={"Authorization": "Bearer x1"},
    )
    _, headers = published(server, **{name.lower().replace("-", "_"): settings})
    start = f"service-{name.lower()}"
    assert {key: value for key, value in headers.items() if key.startswith(start)} == {
        start: "https://app.example/done?key=1",
        f"{start}-timeout": "10s",
        f"{start}-retries": "0",
        f"{start}-delay": "5s",
        f"{start}-method": "PUT",
        f"{start}-forward-authorization": "Bearer x1",
    }


def test_both_callbacks_can_be_set_as_plain_urls(server):
    """A callback and a failure callback on the same message, without further settings."""
    _, headers = published(
        server,
        callback="https://a.example/",
        failure_callback="http://b.example:8080/x",
    )
    assert headers["service-callback"] == "https://a.example/"
    assert headers["service-failure-callback"] == "http://b.example:8080/x"


def test_the_dialect_decides_the_prefix(server):
    """The public service's dialect says Upstash-, and nothing says Service- then."""
    server.json(b'{"messageId": "msg_1"}')
    service = server.service(dialect="upstash")
    publish(service, DESTINATION, callback="https://a.example/", headers={"X-A": "1"})
    names = {name.lower() for name in server.requests[0].headers}
    assert {
        "upstash-callback",
        "upstash-deduplication-id",
        "upstash-forward-x-a",
    } <= names
    assert not [name for name in names if name.startswith("service-")]


def test_a_random_deduplication_id_is_always_sent_and_a_lost_publish_is_sent_again_with_it(
    server,
):
    """A 500 is tried again with the same id; another publish has another id."""
    server.json(b'{"error": "busy"}', status=500)
    server.json(b'{"messageId": "msg_1", "deduplicated": true}')
    server.json(b'{"messageId": "msg_2"}')
    service = server.service()
    assert publish(service, DESTINATION).deduplicated
    publish(service, DESTINATION)
    first, again, other = (
        request.headers["Service-Deduplication-Id"] for request in server.requests
    )
    assert first == again != other
    assert len(first) >= 32


def test_content_based_deduplication_goes_without_an_id(server):
    """A random id beside it would defeat it."""
    _, headers = published(server, content_based_deduplication=True)
    assert headers["service-content-based-deduplication"] == "true"
    assert "service-deduplication-id" not in headers


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [
        (b"\xff\x00", b"\xff\x00", "application/octet-stream"),
        ("Grüße", "Grüße".encode(), "text/plain; charset=utf-8"),
        ([1, None, "ü"], b'[1, null, "\\u00fc"]', "application/json"),
        (
            {"n": np.int64(3), "ok": np.bool_(True)},
            b'{"n": 3, "ok": true}',
            "application/json",
        ),
        ("", b"", "text/plain; charset=utf-8"),
    ],
)
def test_bodies_are_sent_by_their_kind(server, body, sent, kind):
    """Bytes and text go as they are, everything else as JSON."""
    request, headers = published(server, body=body)
    assert (request.body, headers["content-type"]) == (sent, kind)


def test_no_body_has_no_content_type_and_an_explicit_one_wins(server):
    """Without a body nothing is said about one; content_type= says what text is."""
    request, headers = published(server)
    assert request.body == b""
    assert "content-type" not in headers
    _, headers = published(server, body="<a/>", content_type="application/xml")
    assert headers["content-type"] == "application/xml"


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "1767225600"),
        (datetime(2026, 1, 1), "1767225600"),  # noqa: DTZ001 - read as UTC
        (pd.Timestamp("2026-01-01T00:00:00.500"), "1767225601"),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "1767225600"),
        (datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "1767225601"),
    ],
)
def test_a_delay_until_a_time_is_unix_seconds_rounded_up(server, value, sent):
    """Datetimes of any zone; a part of a second counts as a whole one, as delivery must not come before."""
    _, headers = published(server, delay=value)
    assert headers["service-not-before"] == sent


@pytest.mark.parametrize(
    ("options", "header"),
    [
        ({"headers": {"X-A": "a\r\nX-B: 1"}}, "Forward-X-A"),
        ({"headers": {"X-A": "a\0"}}, "Forward-X-A"),
        ({"headers": {"X-A": "ü"}}, "Forward-X-A"),
        ({"headers": {"X-A": 1}}, "Forward-X-A"),
        ({"headers": {"X A\n": "1"}}, "X A"),
        ({"labels": "a,b"}, "Label"),
        ({"labels": [""]}, "Label"),
        ({"labels": "a\nb"}, "Label"),
        ({"method": "post"}, "Method"),
        ({"method": "GET\r\n"}, "Method"),
        ({"retries": -1}, "Retries"),
        ({"retries": True}, "Retries"),
        ({"timeout": "50"}, "Timeout"),
        ({"timeout": ""}, "Timeout"),
        ({"timeout": -1}, "Timeout"),
        ({"timeout": 1.5}, "Timeout"),
        ({"delay": "5x"}, "Delay"),
        ({"delay": timedelta(seconds=-1)}, "Delay"),
        ({"delay": timedelta(milliseconds=1)}, "Delay"),
        ({"delay": datetime(1969, 1, 1, tzinfo=UTC)}, "Not-Before"),
        ({"flow_control": "k"}, "flow_control"),
        ({"deduplication_id": "a\r"}, "Deduplication-Id"),
        (
            {"deduplication_id": "a", "content_based_deduplication": True},
            "Deduplication-Id",
        ),
        ({"content_type": "a\nb"}, "Content-Type"),
        ({"redact": "body,headers"}, "Redact-Fields"),
        ({"callback": "ftp://a.example/"}, "Callback"),
        ({"failure_callback": "javascript:alert(1)"}, "Failure-Callback"),
        ({"failure_callback": "https://"}, "Failure-Callback"),
    ],
)
def test_invalid_header_values_are_refused_with_the_headers_name(
    server, options, header
):
    """Nothing is sent, and the error says which header it is about."""
    with pytest.raises(InputError, match=header):
        publish(server.service(), DESTINATION, "x", **options)
    assert server.requests == []


@pytest.mark.parametrize(
    ("make", "options", "header"),
    [
        (tk.Retries, {"delay": "1\n2"}, "Retry-Delay"),
        (tk.Retries, {"delay": -1}, "Retry-Delay"),
        (tk.Retries, {"count": -1}, "Retries"),
        (tk.FlowControl, {"key": "k", "rate": 0}, "Flow-Control-Value"),
        (tk.FlowControl, {"key": "k\n"}, "Flow-Control-Key"),
    ],
)
def test_a_group_of_options_is_checked_when_it_is_made(make, options, header):
    """The error names the header, before anything is sent."""
    with pytest.raises(InputError, match=header):
        make(**options)


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("retry_delay", "Retries"),
        ("not_before", "delay"),
        ("flow_control_key", "FlowControl"),
        ("parallelism", "FlowControl"),
        ("rate", "FlowControl"),
        ("period", "FlowControl"),
    ],
)
def test_a_former_argument_is_refused_with_the_new_one(server, former, now):
    """Alone and in a batch, the error tells how to write it now, and nothing is sent."""
    with pytest.raises(TypeError, match=now):
        publish(server.service(), DESTINATION, **{former: 1})
    with pytest.raises(InputError, match=now):
        tk.publish_batch(server.service(), [{"url": DESTINATION, former: 1}])
    assert server.requests == []


@pytest.mark.parametrize("body", [float("nan"), {"a": object()}, "\ud800", {1, 2}])
def test_a_body_that_cannot_be_sent_is_refused(server, body):
    """NaN is not JSON, objects are none, lone surrogates are not UTF-8."""
    with pytest.raises(InputError, match="body of a message"):
        publish(server.service(), DESTINATION, body)
    assert server.requests == []


@pytest.mark.parametrize(
    "url",
    [
        "ftp://app.example/",
        "file:///etc/passwd",
        "app.example/orders",
        "https://",
        "https://:80/",
        "https://app.example:99999/",
        "https://[::1]:8080/",
        "https://app.example:x/",
        "https://[::1/",
        f"https://ann:{CANARY}@app.example/",
        f"https://app.example/a#{CANARY}",
        f"https://app.example/a\r\n{CANARY}",
        "https://app.example/a b",
        "https://äpp.example/",
        "https://app.example/100%",
        "https://app.example/\\a",
        "https://app.example/../../keys/rotate",
        "https://app.example/%2e%2E/a",
        "https://app.example/./a",
        " https://app.example/",
        "",
        None,
        7,
    ],
)
def test_a_destination_that_is_no_plain_http_url_is_refused(server, url):
    """Neither other schemes nor user info nor what a library would rewrite; the error does not repeat it."""
    with pytest.raises(InputError) as caught:
        publish(server.service(), url)
    assert server.requests == []
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://app.example",
        "http://127.0.0.1:8080/a?x=1&y=%2F..%2F",
        "https://a.example/a;b=(1)/~c%20d",
    ],
)
def test_a_destination_arrives_unchanged(server, url):
    """Query and percent-encoding of the destination are not rewritten on the way."""
    server.json(b'{"messageId": "msg_1"}')
    publish(server.service(), url)
    (asked,) = server.requests
    assert asked.path == f"/v2/publish/{url.partition('?')[0]}"
    assert asked.query == parse_qsl(urlsplit(url).query)


def test_errors_of_the_service_carry_its_message_and_none_of_the_secrets(server):
    """A 400 is a typed error; token, forwarded secrets and the destination's query are not in it."""
    server.json(b'{"error": "Retries: got 99, expected at most 10"}', status=400)
    with pytest.raises(BadRequestError, match="expected at most 10") as caught:
        publish(
            server.service(),
            f"https://app.example/?key={CANARY}",
            "x",
            headers={"Authorization": f"Bearer {CANARY}"},
        )
    shown = f"{caught.value} {caught.value!r} {caught.value.request}"
    assert CANARY not in shown
    assert "queue-token-of-the-test" not in shown
    assert len(server.requests) == 1


def test_a_wrong_token_is_an_authentication_error(server):
    """401 is not tried again."""
    server.json(b'{"error": "unauthorized"}', status=401)
    with pytest.raises(AuthenticationError):
        publish(server.service(), DESTINATION)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"{}",
        b"[]",
        b'{"messageId": 5}',
        b'{"messageId": ""}',
        b"<html>",
        b"[" * 9_999,
    ],
)
def test_a_response_without_a_message_id_is_retried(server, response):
    """Success without the id is not treated as success, but retried under the same id."""
    server.json(response)
    server.json(b'{"messageId": "msg_1", "deduplicated": true}')
    assert publish(server.service(), DESTINATION) == Published(
        message_id="msg_1", deduplicated=True
    )
    first, second = (
        requested.headers["Service-Deduplication-Id"] for requested in server.requests
    )
    assert first == second


@pytest.mark.slow
@pytest.mark.usefixtures("no_backoff")
def test_publishing_to_another_server_is_a_protocol_error(server):
    """A web page under this address is an error in the end, never a message."""
    server.always(b"<html>")
    with pytest.raises(
        ProtocolError, match=r"publishing .* not JSON, starting '<html>'"
    ):
        publish(server.service(), DESTINATION)
    assert len(server.requests) == RetryPolicy().tries


def test_publishing_needs_the_queue_half():
    """A service that knows the vector endpoint only says what to set."""
    service = tk.connect(
        vector_url="http://127.0.0.1:1", vector_token="vector-token", environ={}
    )
    with pytest.raises(SettingsError, match="TOOLKIT_QUEUE_URL"):
        publish(service, DESTINATION)


def test_callback_settings_are_checked_when_made_and_show_no_secrets():
    """A wrong URL does not wait for the publish; the repr hides header values and the URL's query."""
    with pytest.raises(InputError):
        CallbackSettings("https://")
    headers = {"Authorization": CANARY}
    settings = CallbackSettings(
        f"https://a.example/x?key={CANARY}", retries=1, headers=headers
    )
    assert (
        repr(settings)
        == "CallbackSettings('https://a.example/x', retries=1, headers=['Authorization'])"
    )
    headers["Authorization"] = "changed later"
    assert settings.headers == {"Authorization": CANARY}
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own value


def test_a_run_is_started_at_the_applications_own_endpoint_without_our_token(server):
    """The body goes to exactly that address; nothing of ours goes with it."""
    server.json(b'{"workflowRunId": "wfr_1"}')
    result = start_run(
        server.service(),
        f"{server.url}/flows/a?x=1",
        {"n": 1},
        headers={"X-App": "1", "content-type": "application/ld+json"},
    )
    assert result == "wfr_1"
    (request,) = server.requests
    assert (request.method, request.path, request.query) == (
        "POST",
        "/flows/a",
        [("x", "1")],
    )
    assert request.body == b'{"n": 1}'
    assert {name.lower(): value for name, value in request.headers.items()}.get(
        "authorization"
    ) is None
    assert [
        value
        for name, value in request.headers.items()
        if name.lower() == "content-type"
    ] == ["application/ld+json"]


def test_starting_a_run_is_not_repeated_once_it_may_have_arrived(server):
    """A 500 or a truncated response may mean a started run: asking again could start a second one."""
    server.json(b'{"error": "x"}', status=500)
    with pytest.raises(tk.errors.ServerError):
        start_run(server.service(), server.url)
    server.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    with pytest.raises(TransportError):
        start_run(server.service(), server.url)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "response", [b"", b"{}", b'{"workflowRunId": null}', b"<html>"]
)
def test_a_response_without_a_run_id_is_a_protocol_error(server, response):
    """Another server's page is not treated as a workflow endpoint."""
    server.json(response)
    with pytest.raises(ProtocolError, match=r"workflowRunId|not JSON"):
        start_run(server.service(), server.url)


def test_a_run_needs_a_service_and_a_valid_address(server):
    """User info and line ends are refused before anything is sent, and not repeated."""
    for url in (f"http://ann:{CANARY}@127.0.0.1:1/", f"http://127.0.0.1:1/\n{CANARY}"):
        with pytest.raises(InputError) as caught:
            start_run(server.service(), url)
        assert CANARY not in str(caught.value)
    with pytest.raises(InputError, match="X-A"):
        start_run(server.service(), "http://127.0.0.1:1/", headers={"X-A": "a\nb"})
    with pytest.raises(InputError, match="connect"):
        start_run(server.url, {"order": 1})


@given(st.integers(min_value=0, max_value=10**9))
def test_whole_seconds_are_the_same_as_number_and_as_timedelta(seconds):
    """Both forms of a duration make the same header."""
    assert (
        duration("Delay", seconds)
        == duration("Delay", timedelta(seconds=seconds))
        == f"{seconds}s"
    )


@pytest.mark.parametrize(
    ("text", "sent"),
    [("50s", "50s"), ("1d10h30m", "124200s"), ("2 minutes", "120s"), ("0s", "0s")],
)
def test_duration_text_is_sent_as_whole_seconds(text, sent):
    """The service reads seconds, whatever units the duration was written in."""
    assert duration("Delay", text) == sent


@given(st.text(max_size=40))
def test_an_accepted_url_has_nothing_that_could_change_the_request(tail):
    """Whatever follows the host: accepted URLs are ASCII, without spaces, fragments and dot segments."""
    try:
        url = web_address("destination", f"https://app.example/{tail}")
    except InputError:
        return
    assert url == f"https://app.example/{tail}"
    assert url.isascii()
    assert url.isprintable()
    assert not set(' #\\"<>') & set(url)
    assert not {".", ".."} & set(urlsplit(url).path.split("/"))


@given(st.one_of(st.binary(), st.text(alphabet=st.characters(codec="utf-8"))))
def test_bytes_and_text_are_never_changed(body):
    """The body is sent unchanged."""
    content, _ = content_of(body)
    assert content == (body if isinstance(body, bytes) else body.encode())


@pytest.mark.parametrize("before", ["", "Bearer ", "https://a.example/?queue_token="])
def test_an_id_that_holds_our_token_is_masked(server, before):
    """Ids come from the service too: what echoes a token does not show it in a value."""
    token = "queue-token-of-the-test"
    server.always(
        json.dumps(
            {"messageId": before + token, "workflowRunId": before + token}
        ).encode()
    )
    service = server.service()
    text = [
        publish(service, "https://a.example/").message_id,
        start_run(service, f"{server.url}/app"),
        tk.restart_failures(service, "a", confirm=True)["a"],
    ]
    assert [token in item for item in text] == [False] * 3
    assert all(item.startswith(before) for item in text)

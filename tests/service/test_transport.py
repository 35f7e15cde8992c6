"""The transport: complete responses, typed errors, retries, and nothing of ours sent elsewhere."""

from __future__ import annotations

import gzip
import logging
import pickle
import re
import socket
import threading
import time
import traceback

import pytest

import toolkit as tk
from toolkit import errors
from toolkit.secrets.redaction import Redactor
from toolkit.service.responses import Response, RetryPolicy, status_error
from toolkit.service.transport import Request, Transport

GET = Request(doing="reading a thing", method="GET", path="/thing")
TOKEN = "queue-token-of-the-test"


def door_to(server, *, token_in="header", waits=None, **policy) -> Transport:
    """A transport whose delays are recorded instead of slept."""
    service = server.service(token_in=token_in)
    endpoint = service.need("queue")
    return Transport(
        endpoint.url,
        redactor=service.redactor,
        endpoint=endpoint,
        policy=RetryPolicy(
            **{"tries": 4, "first_delay": 0.01, "deadline": 5.0, **policy}
        ),
        sleep=([] if waits is None else waits).append,
        seed=1,
    )


def test_a_complete_response_is_returned(server):
    """Body, status and headers of a success are returned unchanged, with the token in the header."""
    server.json(b'{"a": 1}', X_Kept="yes")
    with door_to(server) as door:
        response = door.send(GET)
    assert (
        response.status,
        response.body,
        response.headers["x-kept"],
        response.tries,
    ) == (
        200,
        b'{"a": 1}',
        "yes",
        1,
    )
    assert server.requests[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert server.requests[0].query == []


def test_the_token_can_travel_in_the_query(server):
    """With token_in="query" the parameter carries the token and the header is not sent."""
    server.json(b"{}")
    with door_to(server, token_in="query") as door:
        door.send(
            Request(doing="x", method="GET", path="/thing", query=(("a", "b c"),))
        )
    assert dict(server.requests[0].query) == {"a": "b c", "queue_token": TOKEN}
    assert "Authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.BadRequestError),
        (401, errors.AuthenticationError),
        (403, errors.AuthenticationError),
        (404, errors.NotFoundError),
        (409, errors.ResponseError),
        (422, errors.UnprocessableError),
        (429, errors.RateLimitError),
        (500, errors.ServerError),
        (503, errors.ServerError),
    ],
)
def test_error_statuses_become_typed_errors(server, status, kind):
    """Each status has its class and the service's own message; only retriable ones are sent again."""
    server.always(b'{"error": "its own words"}', status)
    with door_to(server) as door, pytest.raises(kind) as raised:
        door.send(GET)
    assert type(raised.value) is kind
    assert (raised.value.status, raised.value.message) == (status, "its own words")
    assert "reading a thing" in str(raised.value)
    assert len(server.requests) == (4 if kind.retriable else 1)


def test_a_refused_token_of_the_public_service_names_its_region_and_the_other():
    """Each region has its own tokens: a 401 says which one was used, and how to use the other."""
    for region, other in (("us-east-1", "eu-central-1"), ("eu-central-1", "us-east-1")):
        endpoint = tk.connect(region=region, environ={"QSTASH_TOKEN": TOKEN}).queue
        error = status_error(
            Response(
                status=401, headers={}, body=b'{"error": "invalid token"}', tries=1
            ),
            doing="reading a thing",
            request=f"GET {endpoint.url}/thing",
            redactor=Redactor(key=b"test"),
            endpoint=endpoint,
        )
        text = f"{endpoint.url}/thing.*'invalid token'.*address of {region}.*connect\\(region='{other}'\\)"
        assert re.search(text, str(error))
        assert TOKEN not in str(error)


def test_a_refused_token_of_another_service_names_no_region(server):
    """An address that is not the public service's has no region that is known; the address is named."""
    server.json(b'{"error": "invalid token"}', 401)
    with (
        door_to(server) as door,
        pytest.raises(errors.AuthenticationError, match="connect") as raised,
    ):
        door.send(GET)
    assert server.url in str(raised.value)
    assert "region" not in str(raised.value)


def test_a_transient_failure_is_retried_with_growing_delays(server):
    """After 503, 500 and 502 the fourth try succeeds, and the delays double within their jitter."""
    for status in (503, 500, 502):
        server.json(b"{}", status)
    server.json(b'"fine"')
    waits = []
    with door_to(server, waits=waits, first_delay=1.0) as door:
        assert door.send(GET).tries == 4
    assert [0.5 * 2**n <= wait <= 2**n for n, wait in enumerate(waits)] == [True] * 3


@pytest.mark.parametrize(
    "head",
    [
        "429 Wait\r\nRetry-After: Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
        "429 Wait\r\nRetry-After: " + "9" * 5000,
        "429 Wait\r\nRetry-After: " + "9" * 400 + "d",
        "429 Wait\r\nRetry-After: 999999999999",
        "429 Wait\r\nBurst-RateLimit-Reset: " + "9" * 5000,
        "429 Wait\r\nRetry-After: 5\r\nDate: Mon, 01 Jan 0001 00:00:00 +9999",
        "429 Wait\r\nRateLimit-Limit: 1\r\nRateLimit-Remaining: 0\r\nRateLimit-Reset: "
        + "9" * 11,
        "429 Wait\r\nBurst-RateLimit-Limit: " + "9" * 5000,
        "503 Later\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 -9999",
        "200 OK\r\nContent-Length: " + "9" * 5000,
        "200 OK\r\nContent-Length: -1",
        "200 OK\r\nContent-Length: 1, 2",
        "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + "f" * 5000,
        "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1",
        "101 Switching Protocols",
        "999 Much",
        "99999999 More",
        "301 Moved\r\nLocation: http://[::1",
        "301 Moved\r\nLocation: " + "x" * 60_000,
        "200 OK\r\nContent-Encoding: " + "gzip, " * 5000,
    ],
)
def test_any_head_is_a_typed_error(server, head):
    """Whatever a service says about time, length and encoding, the client tries again or says what it got."""
    for _ in range(2):
        framed = head if head.startswith("200") else f"{head}\r\nContent-Length: 0"
        server.raw(f"HTTP/1.1 {framed}\r\n\r\n".encode("latin-1"))
    waits = []
    with (
        door_to(server, waits=waits, tries=2, deadline=1.0) as door,
        pytest.raises(errors.ServiceError) as raised,
    ):
        door.send(GET)
    assert all(0 <= wait <= door.policy.total for wait in waits)
    wait = getattr(raised.value, "wait", None)
    assert wait is None or 0 <= wait <= 36_500 * 86_400


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "0"}, 0),
        ({"Retry-After": "2"}, 2),
        ({"Retry-After": "6m5s"}, 365),
        (
            {
                "Retry-After": "Thu, 01 Jan 2026 00:00:07 GMT",
                "Date": "Thu, 01 Jan 2026 00:00:00 GMT",
            },
            7,
        ),
        (
            {
                "Retry-After": "Thu, 01 Jan 2020 00:00:00 GMT",
                "Date": "Thu, 01 Jan 2026 00:00:00 GMT",
            },
            0,
        ),
        (
            {
                "Retry-After": "3",
                "Date": "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
            },
            3,
        ),
        (
            {
                "Burst-RateLimit-Reset": "1767225603",
                "Date": "Thu, 01 Jan 2026 00:00:00 GMT",
            },
            3,
        ),
        (
            {
                "Burst-RateLimit-Reset": "1767229999",
                "Date": "Thu, 01 Jan 2026 00:00:00 GMT",
            },
            60,
        ),
        ({"Burst-RateLimit-Reset": "1", "Date": "Thu, 01 Jan 2026 00:00:00 GMT"}, 0),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_the_delay_that_the_service_requests_is_kept_exactly(
    server, headers, wait, status
):
    """Seconds, durations, dates and resets are followed, measured by the server's clock and not by ours."""
    server.respond = None
    server.json(
        b"{}",
        status,
        **{name.replace("-", "_"): value for name, value in headers.items()},
    )
    server.json(b"{}")
    waits = []
    with door_to(server, waits=waits, total=1000.0) as door:
        door.send(GET)
    assert waits == [wait]


@pytest.mark.parametrize(
    ("status", "kind"), [(429, errors.RateLimitError), (503, errors.ServerError)]
)
def test_a_delay_beyond_the_total_timeout_is_an_error_without_sleeping(
    server, status, kind
):
    """A delay of thirty years is an error at once."""
    server.always(b'{"error": "slow down"}', status, Retry_After="1000000000")
    waits = []
    with door_to(server, waits=waits) as door, pytest.raises(kind) as raised:
        door.send(GET)
    assert waits == []
    assert raised.value.wait == 1e9
    assert "exceed" in raised.value.__notes__[0]


def test_a_used_up_day_stops_and_names_the_reset(server):
    """A daily limit is not retried; the error says when it is renewed."""
    server.always(
        b"{}",
        429,
        RateLimit_Limit="500",
        RateLimit_Remaining="0",
        RateLimit_Reset="1767225600",
    )
    with (
        door_to(server) as door,
        pytest.raises(errors.DailyLimitError, match="2026-01-01T00:00:00"),
    ):
        door.send(GET)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "cut",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n123",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b00",
    ],
)
def test_a_truncated_or_corrupt_response_is_retried(server, cut):
    """The same request is sent again, and a truncated response is never returned."""
    server.raw(cut)
    server.json(b'"whole"')
    with door_to(server) as door:
        assert door.send(GET).body == b'"whole"'
    assert len(server.requests) == 2


def test_a_request_that_may_have_arrived_is_not_sent_twice(server):
    """A request that must not be repeated fails after a lost response, though it would be retriable."""
    server.raw(b"")
    server.json(b"{}")
    once = Request(doing="resuming", method="POST", path="/x", repeatable=False)
    with door_to(server) as door, pytest.raises(errors.TransportError):
        door.send(once)
    assert len(server.requests) == 1


def test_compressed_responses_are_decompressed_and_bounded(server):
    """Gzip is read; a bomb ends in an error before it fills the memory."""
    server.json(gzip.compress(b'{"a": 1}'), Content_Encoding="gzip")
    with door_to(server, most_bytes=1_000_000) as door:
        assert door.send(GET).body == b'{"a": 1}'
        server.json(gzip.compress(b"0" * 50_000_000), Content_Encoding="gzip")
        with pytest.raises(errors.ProtocolError, match="more than 1,000,000 bytes"):
            door.send(GET)


def test_one_byte_at_a_time_meets_the_deadline():
    """A deadline holds for the complete response, however often single bytes arrive."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def drip() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while not stop.wait(0.05):
                    peer.sendall(b".")

        thread = threading.Thread(target=drip)
        thread.start()
        door = Transport(
            f"http://127.0.0.1:{listener.getsockname()[1]}",
            redactor=_redactor(),
            policy=RetryPolicy(tries=1, deadline=0.4),
        )
        start = time.monotonic()
        with door, pytest.raises(errors.DeadlineError):
            door.send(GET)
        assert time.monotonic() - start < 4
        stop.set()
        thread.join()


def test_redirects_are_refused_and_nothing_is_forwarded(server):
    """A redirect is an error that names the target without its secrets; no request is sent to the target."""
    server.json(b"", 302, Location=f"{server.url}/elsewhere?session=canary-1234")
    with door_to(server) as door, pytest.raises(errors.RedirectError) as raised:
        door.send(GET)
    assert [requested.path for requested in server.requests] == ["/thing"]
    assert "elsewhere" in str(raised.value)
    assert "canary" not in str(raised.value)


def test_netrc_does_not_override_the_token(server, tmp_path, monkeypatch):
    """What ``~/.netrc`` says about the host is ignored, with our token and without one."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    server.always(b"{}")
    with door_to(server) as door:
        door.send(GET)
    with Transport(server.url, redactor=_redactor()) as door:
        door.send(GET)
    assert [
        requested.headers.get("Authorization") for requested in server.requests
    ] == [
        f"Bearer {TOKEN}",
        None,
    ]


def test_this_machine_is_not_reached_through_a_proxy(server, monkeypatch):
    """A proxy in the environment is left out for loopback addresses, and used for others."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server.always(b"{}")
    with door_to(server) as door:
        assert door.send(GET).body == b"{}"
    policy = RetryPolicy(tries=1)
    away = Transport(
        "http://elsewhere.invalid", redactor=Redactor(key=b"test"), policy=policy
    )
    with away, pytest.raises(errors.TransportError, match="refused"):
        away.send(GET)


@pytest.mark.parametrize("token_in", ["header", "query"])
def test_the_token_reaches_no_log_error_cause_or_traceback(server, caplog, token_in):
    """Neither our errors, their causes and contexts, nor the HTTP library's debug log hold the token."""
    caplog.set_level(logging.DEBUG)

    server.always(f'{{"error": "bad token {TOKEN}"}}'.encode(), 401)
    seen = []
    with door_to(server, token_in=token_in, tries=1) as door:
        server.raw(b"")
        for _ in range(2):
            with pytest.raises(errors.ServiceError) as raised:
                door.send(GET)
            seen.append(raised.value)
        seen.append(door)
    chain = [
        text
        for error in seen[:2]
        for link in (error, error.__cause__, error.__context__)
        if link is not None
        for text in (
            str(link),
            repr(link),
            repr(vars(link)),
            "".join(traceback.format_exception(link)),
        )
    ]
    pickled = [pickle.dumps(error).decode("latin-1") for error in seen[:2]]
    assert seen[0].__cause__ is None
    assert seen[0].__context__ is None
    assert all(
        TOKEN not in text for text in [*chain, *pickled, repr(seen[2]), caplog.text]
    )
    assert any("/thing" in record.getMessage() for record in caplog.records)


def test_locals_of_the_traceback_do_not_show_the_token(server):
    """A traceback printed with its frames' local variables is still without the token."""
    server.raw(b"")
    with door_to(server, tries=1) as door, pytest.raises(errors.ServiceError) as raised:
        door.send(GET)
    stack = traceback.TracebackException.from_exception(
        raised.value, capture_locals=True
    ).stack
    ours = [
        repr(frame.locals)
        for frame in stack
        if "toolkit" in frame.filename and frame.locals
    ]
    assert any("reading a thing" in shown for shown in ours)
    assert all(TOKEN not in shown for shown in ours)


def _redactor():

    return Redactor(key=b"test")

"""Retries: times, numbers and ends, on a clock that the test advances."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest

Service = Any
Server = Any


def failing(server: Server, status: int = 500, **headers: str) -> None:
    """Let the destination fail everything."""
    server.always(b"oops", status, **headers)


def due_in(service: Service, message: str, retried: int) -> float:
    """Seconds until the next attempt, once this many retries are scheduled."""
    shown = service.wait(
        lambda: (
            (actual := service.http.get(f"/v2/messages/{message}").json()).get(
                "retried"
            )
            == retried
            and actual
        )
    )
    return (shown["nextDeliveryTime"] - service.clock.now_ms()) / 1000


def test_the_default_schedule_is_the_documented_one(
    service: Service, server: Server
) -> None:
    """12 s, 2 min 28 s, 30 min 8 s, 6 h 7 min, a day; `Retried` counts; then the DLQ: 31 hours simulated."""
    failing(server)
    message = service.publish(f"{server.url}/", Retries="5")["messageId"]
    waits = []
    for retried in range(1, 6):
        waits.append(due_in(service, message, retried))
        service.clock.advance(seconds=waits[-1])
    assert waits == pytest.approx(
        [12.182, 148.413, 1808.042, 22026.466, 86400], abs=0.002
    )
    (entry,) = service.wait(service.dlq)
    assert [request.headers["Retried"] for request in server.requests] == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
    ]
    assert (
        len({request.headers["Service-Message-Id"] for request in server.requests}) == 1
    )
    assert entry["maxRetries"] == 5
    assert service.events(message) == [
        "CREATED",
        *["ACTIVE", "ERROR", "RETRY"] * 5,
        "ACTIVE",
        "ERROR",
        "FAILED",
    ]


def test_three_retries_by_default(service: Service, server: Server) -> None:
    """A message without Retries is tried four times."""
    failing(server)
    service.publish(f"{server.url}/")
    service.run_out(service.dlq, step=60)
    assert len(server.requests) == 4


def test_a_success_on_a_retry_ends_it(service: Service, server: Server) -> None:
    """One that fails twice and then succeeds is delivered and not in the DLQ."""
    server.json(b"{}", 503)
    server.json(b"{}", 429)
    server.always(b"{}", 204)
    message = service.publish(f"{server.url}/")["messageId"]
    service.run_out(lambda: "DELIVERED" in service.events(message), step=60)
    assert service.events(message) == [
        "CREATED",
        *["ACTIVE", "ERROR", "RETRY"] * 2,
        "ACTIVE",
        "DELIVERED",
    ]
    assert service.dlq() == []


def test_retry_delay_expressions_set_the_wait(service: Service, server: Server) -> None:
    """Milliseconds over `retried`, 0 for the first retry."""
    failing(server)
    message = service.publish(
        f"{server.url}/", Retry_Delay="1000 * (1 + retried)", Retries="2"
    )["messageId"]
    assert due_in(service, message, 1) == 1
    service.clock.advance(seconds=1)
    assert due_in(service, message, 2) == 2


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry_After": "7"}, 7),
        ({"Retry_After": "6m5s"}, 365),
        ({"Retry_After": "0"}, 0),
        ({"X_RateLimit_Reset": "90"}, 90),
        ({"X_RateLimit_Reset_Requests": "1m"}, 60),
        ({"X_RateLimit_Reset_Tokens": "120ms"}, 0.12),
        ({"Retry_After": "86401"}, 12.182),
        ({"Retry_After": "-1"}, 12.182),
        ({"Retry_After": "1e9"}, 12.182),
        ({"Retry_After": "soon"}, 12.182),
        ({"Retry_After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
    ],
)
def test_the_destination_can_ask_for_a_wait(
    shared: Service, server: Server, headers: dict[str, str], seconds: float
) -> None:
    """Seconds, durations and dates in any of four headers; nonsense and more than a day mean the formula."""
    server.json(b"{}", 429, **headers)
    server.always(b"{}")
    message = shared.publish(f"{server.url}/")["messageId"]
    if seconds:
        assert due_in(shared, message, 1) == pytest.approx(seconds, abs=0.001)
    else:
        shared.wait(lambda: shared.events(message)[-1] == "DELIVERED")


def test_a_date_in_the_future_delays_the_retry(
    service: Service, server: Server
) -> None:
    """Retry-After as an HTTP date, measured against the service's clock."""
    timestamp = service.clock.now_ms() // 1000 + 100
    failing(server, Retry_After=formatdate(timestamp, usegmt=True))
    message = service.publish(f"{server.url}/")["messageId"]
    assert 98 < due_in(service, message, 1) <= 100


def test_489_with_the_header_is_not_retried(service: Service, server: Server) -> None:
    """Without the header 489 is retried like any other response."""
    failing(server, 489, Upstash_NonRetryable_Error="true")
    message = service.publish(f"{server.url}/")["messageId"]
    (entry,) = service.wait(service.dlq)
    assert entry["responseStatus"] == 489
    assert len(server.requests) == 1
    assert service.events(message) == ["CREATED", "ACTIVE", "ERROR", "FAILED"]
    failing(server, 489)
    other = service.publish(f"{server.url}/")["messageId"]
    service.wait(lambda: "RETRY" in service.events(other))


def test_a_destination_that_is_not_there_is_503(service: Service) -> None:
    """Refused connections are retried, and end as 503 with a date and a sentence of the service's own."""
    service.publish("http://127.0.0.1:9/", Retries="1")
    (entry,) = service.run_out(service.dlq, step=60)
    assert entry["responseStatus"] == 503
    assert "reached" in entry["responseBody"]
    assert list(entry["responseHeader"]) == ["Content-Type", "Date"]


def test_a_response_timeout_is_504(service: Service, server: Server) -> None:
    """Timeout limits the whole exchange, in real time."""
    server.responding(lambda _: time.sleep(0.5) or b"late")
    service.publish(f"{server.url}/", Retries="0", Timeout="50ms")
    (entry,) = service.wait(service.dlq)
    assert entry["responseStatus"] == 504
    assert "0.05 s" in entry["responseBody"]


@pytest.mark.parametrize(
    "raw",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", b"no http\r\n\r\n"],
)
def test_a_malformed_response_is_502(
    service: Service, server: Server, raw: bytes
) -> None:
    """A connection closed early, a truncated body and a response that is not HTTP are failures."""
    server.raw(raw)
    service.publish(f"{server.url}/", Retries="0")
    (entry,) = service.wait(service.dlq)
    assert entry["responseStatus"] == 502


def test_long_responses_are_truncated_at_the_limit(
    start: Callable[..., Service], server: Server
) -> None:
    """The body kept of a response is the first part, of the configured size."""
    service = start(max_message=1000)
    server.always(b"x" * 5000, 500)
    service.publish(f"{server.url}/", Retries="0")
    (entry,) = service.wait(service.dlq)
    assert entry["responseBody"] == "x" * 1000


def test_flow_control_bounds_what_runs_at_once(
    service: Service, server: Server
) -> None:
    """With parallelism 2 at most two of a key are in progress; other keys are not delayed."""
    running, most, lock = 0, 0, threading.Lock()

    def slow(request: Any) -> bytes:
        nonlocal running, most
        if request.path == "/other":
            return b"{}"
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1
        return b"{}"

    server.responding(slow)
    for _ in range(8):
        service.publish(
            f"{server.url}/slow",
            Flow_Control_Key="k",
            Flow_Control_Value="parallelism=2",
        )
    other = service.publish(f"{server.url}/other")["messageId"]
    service.wait(lambda: "DELIVERED" in service.events(other))
    assert len(server.requests) < 9
    service.wait(lambda: len(server.requests) == 9)
    service.wait(lambda: running == 0)
    assert most == 2


def test_flow_control_bounds_the_rate(service: Service, server: Server) -> None:
    """With rate 3 a minute, three of ten go out, and three more after a minute."""
    server.always(b"{}")
    for _ in range(10):
        service.publish(
            f"{server.url}/",
            Flow_Control_Key="k",
            Flow_Control_Value="rate=3, period=1m",
        )
    for expected in (3, 6, 9, 10):
        service.wait(lambda expected=expected: len(server.requests) == expected)
        service.clock.advance(seconds=59)
        service.http.get("/v2/keys")
        assert len(server.requests) == expected
        service.clock.advance(seconds=1)


def test_a_day_of_retries_of_many_messages(
    start: Callable[..., Service], server: Server
) -> None:
    """Fifty messages that always fail are all in the DLQ after a turned day, each tried four times."""
    # the small destination resets connections when many are opened at once
    service = start(concurrency=4)
    failing(server)
    for number in range(50):
        service.publish(f"{server.url}/{number}")
    entries = service.run_out(
        lambda: len(actual := service.dlq()) == 50 and actual, step=600
    )
    assert len({entry["dlqId"] for entry in entries}) == 50
    assert len(server.requests) == 200

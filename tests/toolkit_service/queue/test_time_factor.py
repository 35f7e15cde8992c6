"""The time factor: delays become shorter, and values on the wire do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jwt
import pytest

Service = Any
Server = Any

KEY = "sig_current_" + "c" * 32
FACTOR = 1000


def test_a_day_of_retries_takes_its_part_of_a_day(
    start: Callable[..., Service], server: Server
) -> None:
    """Each wait of the documented schedule is divided: 111 s of a thousandth instead of 31 hours."""
    service = start(time_factor=FACTOR)
    server.always(b"no", 500)
    message = service.publish(f"{server.url}/", Retries="5")["messageId"]
    waits = []
    for retried in range(1, 6):
        shown = service.wait(
            lambda retried=retried: (
                (actual := service.http.get(f"/v2/messages/{message}").json()).get(
                    "retried"
                )
                == retried
                and actual
            )
        )
        waits.append(shown["nextDeliveryTime"] - service.clock.now_ms())
        service.clock.advance(seconds=waits[-1] / 1000)
    assert waits == pytest.approx(
        [12.182, 148.413, 1808.042, 22026.466, 86400], abs=0.6
    )
    service.wait(service.dlq)
    assert len(server.requests) == 6


def test_signatures_and_timestamps_are_real(
    start: Callable[..., Service], server: Server
) -> None:
    """A signature is of now and valid for 300 s; createdAt and event times are the clock's own."""
    service = start(time_factor=FACTOR)
    server.json(b"no", 500)
    server.always(b"yes")
    begun = service.clock.now_ms()
    message = service.publish(f"{server.url}/", Delay="1000s", Label="a")["messageId"]
    shown = service.http.get(f"/v2/messages/{message}").json()
    assert (shown["createdAt"], shown["notBefore"]) == (begun, begun + 1000)
    service.clock.advance(seconds=1)
    service.wait(lambda: "RETRY" in service.events(message))
    service.clock.advance(seconds=13)
    service.wait(lambda: "DELIVERED" in service.events(message))
    for request, timestamp in zip(
        server.requests, (begun + 1000, begun + 14_000), strict=True
    ):
        claims = jwt.decode(
            request.headers["Service-Signature"],
            KEY,
            algorithms=["HS256"],
            options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
        assert (claims["iat"], claims["nbf"], claims["exp"]) == (
            timestamp // 1000,
            timestamp // 1000,
            timestamp // 1000 + 300,
        )
    events = service.http.get("/v2/logs", params={"messageId": message}).json()[
        "events"
    ]
    times = {
        event["state"]: event["time"] for event in events if event["state"] != "ACTIVE"
    }
    failed = dict.fromkeys(("ERROR", "RETRY"), begun + 1000)
    assert times == {"CREATED": begun, **failed, "DELIVERED": begun + 14_000}


def test_not_before_and_retry_after_are_divided_as_delays(
    start: Callable[..., Service], server: Server
) -> None:
    """A timestamp in 1,000 s is reached after one second; Retry-After: 600 after 0.6 s."""
    service = start(time_factor=FACTOR)
    server.always(b"later", 503, Retry_After="600")
    timestamp = service.clock.now_ms() // 1000 + 1000
    message = service.publish(f"{server.url}/", Not_Before=str(timestamp))["messageId"]
    shown = service.http.get(f"/v2/messages/{message}").json()
    assert 0 <= shown["nextDeliveryTime"] - service.clock.now_ms() <= 1000
    service.clock.advance(seconds=1)
    service.wait(lambda: "RETRY" in service.events(message))
    again = service.http.get(f"/v2/messages/{message}").json()["nextDeliveryTime"]
    assert again - service.clock.now_ms() == 600


def test_deduplication_stays_real(
    start: Callable[..., Service], server: Server
) -> None:
    """The ten minutes of a deduplication id are ten minutes, whatever the factor."""
    service = start(time_factor=FACTOR)
    server.always(b"yes")
    first = service.publish(f"{server.url}/", Deduplication_Id="one", Timeout="60s")[
        "messageId"
    ]
    service.wait(lambda: "DELIVERED" in service.events(first))
    service.clock.advance(seconds=599)
    assert (
        service.publish(f"{server.url}/", Deduplication_Id="one")["messageId"] == first
    )
    service.clock.advance(seconds=2)
    assert (
        service.publish(f"{server.url}/", Deduplication_Id="one")["messageId"] != first
    )

"""FlowLimits control by key: it holds, it releases, and it remembers a rate across restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit_service.queue.flow_control import FlowControl
from toolkit_service.queue.messages import FlowLimits, Message, Settings

Service = Any
Server = Any


def message(limit: FlowLimits, key: str = "k") -> Message:
    """A message under flow control."""
    settings = Settings(url="http://127.0.0.1:9/", flow_key=key, flow=limit)
    return Message(
        id="m",
        kind="message",
        prefix="Service-",
        settings=settings,
        created_at=0,
        not_before=0,
    )


@given(
    parallelism=st.none() | st.integers(1, 4),
    rate=st.none() | st.integers(1, 4),
    period=st.integers(1, 50),
    steps=st.lists(
        st.tuples(st.sampled_from(["start", "end", "wait"]), st.integers(1, 40)),
        max_size=80,
    ),
)
def test_neither_limit_is_ever_exceeded(
    parallelism: int | None, rate: int | None, period: int, steps: list[tuple[str, int]]
) -> None:
    """For any order of starts and ends, both limits are kept, and used in full."""
    flow, limit = (
        FlowControl(1.0),
        FlowLimits(parallelism=parallelism, rate=rate, period_ms=period),
    )
    now, running, starts = 0, 0, list[int]()
    for step, amount in steps:
        if step == "wait":
            now += amount
        elif step == "end" and running:
            flow.release(message(limit))
            running -= 1
        elif step == "start":
            recent = [start for start in starts if start > now - period]
            room = (parallelism is None or running < parallelism) and (
                rate is None or len(recent) < rate
            )
            assert flow.admit(message(limit), now) is room
            if room:
                running += 1
                starts.append(now)
            else:
                assert "k" in flow.blocked(now)
                timestamp = flow.next_release(now)
                if rate is not None and len(recent) >= rate:
                    assert timestamp == recent[-rate] + period


def test_a_rate_holds_across_a_restart(
    served: Callable[..., Any], server: Server
) -> None:
    """Deliveries before the restart count after it until their period is over."""
    server.always(b"{}")
    limits = {"Flow_Control_Key": "k", "Flow_Control_Value": "rate=2, period=1h"}
    with served() as service:
        clock = service.clock
        for number in range(5):
            service.publish(f"{server.url}/{number}", **limits)
        service.wait(lambda: len(server.requests) == 2)
    clock.advance(seconds=3599)
    with served(clock=clock) as service:
        other = service.publish(f"{server.url}/other")["messageId"]
        service.wait(lambda: "DELIVERED" in service.events(other))
        assert len(server.requests) == 3
        clock.advance(seconds=1)
        service.wait(lambda: len(server.requests) == 5)
        clock.advance(seconds=3600)
        service.wait(lambda: len(server.requests) == 6)


def test_messages_queued_for_their_key_survive_a_restart(
    served: Callable[..., Any], server: Server
) -> None:
    """Parallelism starts at zero again, and held messages are delivered one after the other."""
    gate, running, most = threading.Event(), 0, 0
    lock = threading.Lock()

    def slow(_: Any) -> bytes:
        nonlocal running, most
        with lock:
            running, most = running + 1, max(most, running + 1)
        gate.wait(5)
        with lock:
            running -= 1
        return b"{}"

    server.responding(slow)
    with served() as service:
        for number in range(4):
            service.publish(
                f"{server.url}/{number}",
                Flow_Control_Key="k",
                Flow_Control_Value="parallelism=1",
            )
        service.wait(lambda: server.requests)
        time.sleep(0.05)
        assert len(server.requests) == 1
    gate.set()
    service.wait(lambda: running == 0)
    with served() as service:
        service.wait(lambda: len({request.path for request in server.requests}) == 4)
        service.wait(lambda: running == 0)
    assert most == 1


@pytest.mark.parametrize(
    "raw", [b"", b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"]
)
def test_a_failed_delivery_frees_its_slot(
    service: Service, server: Server, raw: bytes
) -> None:
    """A broken and a failed attempt free their slots; the next message of the key is delivered."""
    server.raw(raw)
    server.always(b"{}")
    limits = {"Flow_Control_Key": "k", "Flow_Control_Value": "parallelism=1"}
    service.publish(f"{server.url}/first", Retries="0", **limits)
    second = service.publish(f"{server.url}/second", **limits)["messageId"]
    service.wait(lambda: "DELIVERED" in service.events(second))


def test_retries_count_against_the_rate(service: Service, server: Server) -> None:
    """Every attempt is a delivery: with one a minute, the second message waits for the retry of the first."""
    server.json(b"{}", 500, Retry_After="1")
    server.always(b"{}")
    limits = {"Flow_Control_Key": "k", "Flow_Control_Value": "rate=1, period=1m"}
    service.publish(f"{server.url}/first", **limits)
    service.wait(lambda: len(server.requests) == 1)
    service.publish(f"{server.url}/second", **limits)
    for expected in (2, 3):
        service.http.get("/v2/keys")
        assert len(server.requests) == expected - 1
        service.clock.advance(seconds=60)
        service.wait(lambda expected=expected: len(server.requests) == expected)


def test_the_time_factor_divides_the_period(
    start: Callable[..., Service], server: Server
) -> None:
    """An hour's period is over after a minute with a factor of 60."""
    service = start(time_factor=60)
    server.always(b"{}")
    for _ in range(2):
        service.publish(
            f"{server.url}/",
            Flow_Control_Key="k",
            Flow_Control_Value="rate=1, period=1h",
        )
    service.wait(lambda: len(server.requests) == 1)
    service.clock.advance(seconds=59)
    service.http.get("/v2/keys")
    assert len(server.requests) == 1
    service.clock.advance(seconds=1)
    service.wait(lambda: len(server.requests) == 2)


LIMITS = {
    "Flow_Control_Key": "k",
    "Flow_Control_Value": "parallelism=5, rate=10, period=1m",
}


def key(service: Service, name: str = "k") -> dict[str, Any]:
    """A key as it is shown."""
    response = service.http.get(f"/v2/flowControl/{name}")
    assert response.status_code == 200, response.text
    return response.json()


def listed(service: Service) -> list[dict[str, Any]]:
    """All keys as they are shown."""
    return service.http.get("/v2/flowControl").json()


def change(service: Service, action: str, **parameters: Any) -> int:
    """Change the key; returns the status."""
    return service.http.post(
        f"/v2/flowControl/k/{action}", params=parameters
    ).status_code


def settled(service: Service, server: Server) -> int:
    """How many requests there are once a message without a key has been delivered."""
    probe = service.publish(f"{server.url}/probe")["messageId"]
    service.wait(lambda: "DELIVERED" in service.events(probe))
    return sum(request.path != "/probe" for request in server.requests)


def test_a_key_shows_its_limits_and_their_use(service: Service, server: Server) -> None:
    """Counted while deliveries are held, and again when they have ended."""
    gate = threading.Event()
    server.responding(lambda _: b"{}" if gate.wait(20) else b"")
    for number in range(7):
        service.publish(f"{server.url}/{number}", **LIMITS)
    service.wait(lambda: len(server.requests) == 5)
    held = key(service)
    assert (held["parallelismMax"], held["rateMax"], held["ratePeriod"]) == (5, 10, 60)
    assert (held["parallelismCount"], held["rateCount"], held["waitListSize"]) == (
        5,
        5,
        2,
    )
    assert held["ratePeriodStart"] == service.clock.now_ms()
    total = service.http.get("/v2/globalParallelism").json()
    assert total == {"parallelismMax": 32, "parallelismCount": 5}
    gate.set()
    service.wait(
        lambda: key(service)["parallelismCount"] == 0 and len(server.requests) == 7
    )
    assert (key(service)["rateCount"], key(service)["waitListSize"]) == (7, 0)
    assert [
        listed["flowControlKey"]
        for listed in service.http.get("/v2/flowControl").json()
    ] == ["k"]
    service.clock.advance(seconds=60)
    assert service.http.get("/v2/flowControl").json() == []
    assert service.http.get("/v2/flowControl/k").status_code == 404


def test_a_paused_key_delivers_nothing_also_after_a_restart(
    served: Callable[..., Any], server: Server
) -> None:
    """With limits or without; resumed, everything is delivered."""
    server.always(b"{}")
    with served() as service:
        assert change(service, "pause") == 200
        service.publish(f"{server.url}/a", **LIMITS)
        service.publish(f"{server.url}/b", Flow_Control_Key="k")
        assert settled(service, server) == 0
    with served() as service:
        assert settled(service, server) == 0
        assert (key(service)["isPaused"], key(service)["waitListSize"]) == (True, 2)
        assert change(service, "resume") == 200
        service.wait(lambda: settled(service, server) == 2)
        assert not key(service)["isPaused"]


def test_pinned_limits_replace_those_of_messages(
    service: Service, server: Server
) -> None:
    """Measured at the destination: at most as many at once as are pinned, until they are unpinned."""
    gate, lock, running, most = threading.Semaphore(0), threading.Lock(), 0, 0

    def hold(_: Any) -> bytes:
        nonlocal running, most
        with lock:
            running, most = running + 1, max(most, running + 1)
        gate.acquire(timeout=20)
        with lock:
            running -= 1
        return b"{}"

    server.responding(hold)
    assert change(service, "pin", parallelism=2, rate=100, period=120) == 200
    for number in range(9):
        service.publish(f"{server.url}/{number}", **LIMITS)
    service.wait(lambda: len(server.requests) == 2)
    pinned = key(service)
    assert (pinned["isPinnedParallelism"], pinned["isPinnedRate"]) == (True, True)
    assert (pinned["parallelismMax"], pinned["rateMax"], pinned["ratePeriod"]) == (
        2,
        100,
        120,
    )
    gate.release(2)
    service.wait(lambda: len(server.requests) == 4)
    assert most == 2
    assert change(service, "unpin", parallelism="true", rate="true") == 200
    service.wait(lambda: running == 5)
    unpinned = key(service)
    assert (unpinned["isPinnedParallelism"], unpinned["isPinnedRate"]) == (False, False)
    assert (unpinned["parallelismMax"], unpinned["rateMax"]) == (5, 10)
    gate.release(20)
    service.wait(lambda: len(server.requests) == 9)
    assert most == 5


def test_a_rate_that_is_reset_begins_again(service: Service, server: Server) -> None:
    """The message that waits for the period to end is delivered at once."""
    server.always(b"{}")
    for number in range(3):
        service.publish(
            f"{server.url}/{number}",
            Flow_Control_Key="k",
            Flow_Control_Value="rate=2, period=1h",
        )
    service.wait(lambda: settled(service, server) == 2)
    assert key(service)["rateCount"] == 2
    assert change(service, "resetRate") == 200
    service.wait(lambda: settled(service, server) == 3)
    assert key(service)["rateCount"] == 1


def test_a_reset_forgets_deliveries_that_have_begun(
    served: Callable[..., Any], server: Server
) -> None:
    """However close they are, before a restart and after it: what was due counts for the period that ends."""
    server.always(b"{}")
    keys = [f"k{number}" for number in range(40)]
    with served() as service:
        for name in keys:
            service.publish(
                f"{server.url}/{name}",
                Flow_Control_Key=name,
                Flow_Control_Value="rate=9, period=1h",
            )
            assert (
                service.http.post(f"/v2/flowControl/{name}/resetRate").status_code
                == 200
            )
            assert {one["rateCount"] for one in listed(service)} <= {0}
        service.wait(lambda: len(server.requests) == len(keys) and not listed(service))
    with served() as service:
        assert listed(service) == []


@pytest.mark.parametrize(
    ("action", "parameters"),
    [
        ("pin", {}),
        ("pin", {"period": 5}),
        ("pin", {"parallelism": 0}),
        ("pin", {"rate": -1}),
        ("pin", {"rate": "1.5"}),
        ("pin", {"parallelism": 10**9}),
        ("pin", {"rate": 1, "period": 604_801}),
        ("pin", {"speed": 1}),
        ("unpin", {}),
        ("unpin", {"rate": "yes"}),
        ("pause", {"now": 1}),
    ],
)
def test_unusable_changes_of_a_key_are_refused(
    shared: Service, action: str, parameters: dict[str, Any]
) -> None:
    """With what was got and expected; nothing is stored."""
    assert change(shared, action, **parameters) == 400
    assert shared.http.get("/v2/flowControl").json() == []

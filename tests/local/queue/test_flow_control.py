"""FlowLimits control by key: it holds, it releases, and it remembers a rate across restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.local.queue.messages import FlowLimits, Message, Settings
from toolkit.local.queue.scheduler import FlowControl

Service = Any
Server = Any


def message(limit: FlowLimits, key: str = "k") -> Message:
    """A message under flow control."""
    settings = Settings(url="http://127.0.0.1:9/", flow_key=key, flow=limit)
    return Message(id="m", kind="message", prefix="Service-", settings=settings, created_at=0, not_before=0)


@given(
    parallelism=st.none() | st.integers(1, 4),
    rate=st.none() | st.integers(1, 4),
    period=st.integers(1, 50),
    steps=st.lists(st.tuples(st.sampled_from(["start", "end", "wait"]), st.integers(1, 40)), max_size=80),
)
def test_neither_limit_is_ever_exceeded(
    parallelism: int | None, rate: int | None, period: int, steps: list[tuple[str, int]]
) -> None:
    """For any order of starts and ends, both limits are kept, and used in full."""
    flow, limit = FlowControl(1.0), FlowLimits(parallelism=parallelism, rate=rate, period_ms=period)
    now, running, starts = 0, 0, list[int]()
    for step, amount in steps:
        if step == "wait":
            now += amount
        elif step == "end" and running:
            flow.release(message(limit))
            running -= 1
        elif step == "start":
            recent = [start for start in starts if start > now - period]
            room = (parallelism is None or running < parallelism) and (rate is None or len(recent) < rate)
            assert flow.admit(message(limit), now) is room
            if room:
                running += 1
                starts.append(now)
            else:
                assert "k" in flow.blocked(now)
                timestamp = flow.next_release(now)
                if rate is not None and len(recent) >= rate:
                    assert timestamp == recent[-rate] + period


def test_a_rate_holds_across_a_restart(served: Callable[..., Any], server: Server) -> None:
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


def test_messages_queued_for_their_key_survive_a_restart(served: Callable[..., Any], server: Server) -> None:
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
                f"{server.url}/{number}", Flow_Control_Key="k", Flow_Control_Value="parallelism=1"
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


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"])
def test_a_failed_delivery_frees_its_slot(service: Service, server: Server, raw: bytes) -> None:
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


def test_the_time_factor_divides_the_period(start: Callable[..., Service], server: Server) -> None:
    """An hour's period is over after a minute with a factor of 60."""
    service = start(time_factor=60)
    server.always(b"{}")
    for _ in range(2):
        service.publish(f"{server.url}/", Flow_Control_Key="k", Flow_Control_Value="rate=1, period=1h")
    service.wait(lambda: len(server.requests) == 1)
    service.clock.advance(seconds=59)
    service.http.get("/v2/keys")
    assert len(server.requests) == 1
    service.clock.advance(seconds=1)
    service.wait(lambda: len(server.requests) == 2)

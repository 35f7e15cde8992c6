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
    """However deliveries start and end: never too many at once, never too many in any period, never fewer."""
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
                moment = flow.next_release(now)
                if rate is not None and len(recent) >= rate:
                    assert moment == recent[-rate] + period


def test_a_rate_holds_across_a_restart(served: Callable[..., Any], server: Server) -> None:
    """What was sent before the restart counts after it until its period is over, and no longer."""
    server.always(b"{}")
    limits = {"Flow_Control_Key": "k", "Flow_Control_Value": "rate=2, period=1h"}
    with served() as service:
        clock = service.clock
        for number in range(5):
            service.publish(f"{server.url}/{number}", **limits)
        service.wait(lambda: len(server.asked) == 2)
    clock.advance(seconds=3599)
    with served(clock=clock) as service:
        other = service.publish(f"{server.url}/other")["messageId"]
        service.wait(lambda: "DELIVERED" in service.events(other))
        assert len(server.asked) == 3
        clock.advance(seconds=1)
        service.wait(lambda: len(server.asked) == 5)
        clock.advance(seconds=3600)
        service.wait(lambda: len(server.asked) == 6)


def test_what_has_waited_for_its_key_outlives_a_restart(served: Callable[..., Any], server: Server) -> None:
    """Parallelism begins at nothing again, and what was held back comes one after the other."""
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

    server.answering(slow)
    with served() as service:
        for number in range(4):
            service.publish(
                f"{server.url}/{number}", Flow_Control_Key="k", Flow_Control_Value="parallelism=1"
            )
        service.wait(lambda: server.asked)
        time.sleep(0.05)
        assert len(server.asked) == 1
    gate.set()
    service.wait(lambda: running == 0)
    with served() as service:
        service.wait(lambda: len({asked.path for asked in server.asked}) == 4)
        service.wait(lambda: running == 0)
    assert most == 1


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"])
def test_a_failed_delivery_makes_room(service: Service, server: Server, raw: bytes) -> None:
    """A broken and a failed attempt give their place back; the next of the key goes out."""
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
    service.wait(lambda: len(server.asked) == 1)
    service.publish(f"{server.url}/second", **limits)
    for expected in (2, 3):
        service.http.get("/v2/keys")
        assert len(server.asked) == expected - 1
        service.clock.advance(seconds=60)
        service.wait(lambda expected=expected: len(server.asked) == expected)


def test_the_time_factor_divides_the_period(start: Callable[..., Service], server: Server) -> None:
    """An hour's period is over after a minute with a factor of 60."""
    service = start(time_factor=60)
    server.always(b"{}")
    for _ in range(2):
        service.publish(f"{server.url}/", Flow_Control_Key="k", Flow_Control_Value="rate=1, period=1h")
    service.wait(lambda: len(server.asked) == 1)
    service.clock.advance(seconds=59)
    service.http.get("/v2/keys")
    assert len(server.asked) == 1
    service.clock.advance(seconds=1)
    service.wait(lambda: len(server.asked) == 2)

"""Every method of the public queue package's two clients, those that call language models left out."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from qstash import AsyncQStash, QStash

from toolkit_service.demo.local_service import LocalService

Server = Any
Call = tuple[str, dict[str, Any]]
APIS = (
    "message",
    "url_group",
    "queue",
    "schedule",
    "flow_control",
    "log",
    "dlq",
    "signing_key",
)


def methods(client: Any) -> set[str]:
    """All public methods of a client, such as ``queue.pause``."""
    named = {
        api: inspect.getmembers(getattr(client, api), inspect.ismethod) for api in APIS
    }
    return {
        f"{api}.{name}"
        for api, found in named.items()
        for name, _ in found
        if not name.startswith("_")
    }


def calls(url: str) -> Iterator[Any]:
    """Calls, each with what its arguments need from earlier results: sent back for each is its result."""
    wait = {"delay": "1d"}
    yield (
        "url_group.upsert_endpoints",
        {"url_group": "g", "endpoints": [{"url": f"{url}/a", "name": "a"}]},
    )
    assert len((yield "url_group.get", {"url_group": "g"}).endpoints) == 1
    assert len((yield "url_group.list", {})) == 1
    yield "queue.upsert", {"queue": "q", "parallelism": 2, "paused": True}
    yield "queue.pause", {"queue": "q"}
    assert (yield "queue.get", {"queue": "q"}).paused
    sent = yield "message.publish", {"url": f"{url}/m", "body": "x", **wait}
    assert (yield "message.get", {"message_id": sent.message_id}).url == f"{url}/m"
    yield "message.cancel", {"message_id": sent.message_id}
    (grouped,) = yield (
        "message.publish_json",
        {"url_group": "g", "body": {"a": 1}, **wait},
    )
    queued = yield "message.enqueue", {"queue": "q", "url": f"{url}/q", "body": "x"}
    yield "message.enqueue_json", {"queue": "q", "url_group": "g", "body": [1]}
    assert (yield "queue.list", {})[0].lag == 2
    assert (
        yield (
            "message.cancel_many",
            {"message_ids": [grouped.message_id, queued.message_id]},
        )
    ) == 2
    yield (
        "message.batch",
        {
            "messages": [
                {"url": f"{url}/b", "body": "x", **wait},
                {"url_group": "g", **wait},
            ]
        },
    )
    yield (
        "message.batch_json",
        {"messages": [{"queue": "q", "url": f"{url}/b", "body": {}}]},
    )
    assert (yield "message.cancel_all", {}) == 4
    yield "queue.resume", {"queue": "q"}
    yield "queue.delete", {"queue": "q"}
    made = yield "schedule.create", {"destination": f"{url}/s", "cron": "0 0 1 1 *"}
    yield (
        "schedule.create_json",
        {"destination": "g", "cron": "0 0 1 1 *", "body": {}, "schedule_id": made},
    )
    yield "schedule.pause", {"schedule_id": made}
    assert (yield "schedule.get", {"schedule_id": made}).paused
    yield "schedule.resume", {"schedule_id": made}
    assert [one.destination for one in (yield "schedule.list", {})] == ["g"]
    yield "schedule.delete", {"schedule_id": made}
    yield "url_group.remove_endpoints", {"url_group": "g", "endpoints": [{"name": "a"}]}
    yield "url_group.delete", {"url_group": "g"}
    yield (
        "flow_control.pin",
        {
            "flow_control_key": "a/k",
            "options": {"parallelism": 2, "rate": 3, "period": 4},
        },
    )
    yield "flow_control.pause", {"flow_control_key": "a/k"}
    shown = yield "flow_control.get", {"flow_control_key": "a/k"}
    assert (
        shown.is_paused,
        shown.parallelism_max,
        shown.rate_max,
        shown.rate_period,
    ) == (True, 2, 3, 4)
    yield "flow_control.resume", {"flow_control_key": "a/k"}
    yield "flow_control.reset_rate", {"flow_control_key": "a/k"}
    yield (
        "flow_control.unpin",
        {"flow_control_key": "a/k", "options": {"parallelism": True, "rate": True}},
    )
    assert (yield "flow_control.get_global_parallelism", {}).parallelism_max == 32
    for _ in range(3):
        yield "message.publish", {"url": f"{url}/fails", "retries": 0}
    entries: list[Any] = []
    while len(entries) < 3:
        entries = (yield "dlq.list", {"count": 10}).messages
    states = {
        log.state.value
        for log in (yield "log.list", {"filter": {"url": f"{url}/fails"}}).logs
    }
    assert states == {"CREATED", "ACTIVE", "ERROR", "FAILED"}
    assert (yield "dlq.get", {"dlq_id": entries[0].dlq_id}).response_status == 404
    yield "dlq.delete", {"dlq_id": entries[0].dlq_id}
    assert (
        yield "dlq.delete_many", {"dlq_ids": [entry.dlq_id for entry in entries]}
    ) == 2
    keys = yield "signing_key.get", {}
    assert (yield "signing_key.rotate", {}).current == keys.next


def called(client: Any, call: Call) -> Any:
    """What a method returns."""
    api, _, name = call[0].partition(".")
    return getattr(getattr(client, api), name)(**call[1])


@pytest.fixture(autouse=True)
def _quiet(http: httpx.Client) -> None:
    """No dead letters or events of earlier tests: each test has URLs of its own."""
    entries = [entry["dlqId"] for entry in http.get("/v2/dlq").json()["messages"]]
    if entries:
        http.request("DELETE", "/v2/dlq", json={"dlqIds": entries})


def drive(url: str, call: Callable[[Call], Any]) -> set[str]:
    """Make all calls; returns the methods that were called."""
    steps, used = calls(url), set()
    following = next(steps)
    while following is not None:
        used.add(following[0])
        try:
            following = steps.send(call(following))
        except StopIteration:
            break
    return used


def test_every_method_of_the_client_works(
    running: LocalService, server: Server
) -> None:
    """None raises, and none is left out."""
    client = QStash(running.token, base_url=running.url, retry=False)
    assert drive(server.url, lambda call: called(client, call)) == methods(client)
    client.http._client.close()


def test_every_method_of_the_asynchronous_client_works(
    running: LocalService, server: Server
) -> None:
    """The same calls."""
    with asyncio.Runner() as runner:

        async def made() -> AsyncQStash:
            return AsyncQStash(running.token, base_url=running.url, retry=False)

        async def awaited(call: Call) -> Any:
            return await called(client, call)

        client = runner.run(made())
        used = drive(server.url, lambda call: runner.run(awaited(call)))
        assert used == methods(client)
        runner.run(client.http._client.aclose())

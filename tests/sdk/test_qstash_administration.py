"""The public queue package against the running service: groups, queues, schedules and flow control."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from qstash import AsyncQStash, QStash
from qstash.errors import QStashError
from qstash.log import LogState

from toolkit_service.demo.local_service import LocalService

Server = Any
Wait = Callable[..., Any]


@pytest.fixture(scope="module")
def qstash(running: LocalService) -> Iterator[QStash]:
    """The package's client, with only an address and a token."""
    client = QStash(running.token, base_url=running.url, retry=False)
    yield client
    client.http._client.close()


@pytest.fixture(autouse=True)
def emptied(http: httpx.Client, qstash: QStash) -> Iterator[None]:
    """The service without what a test made."""
    yield
    http.delete("/v2/messages")
    for schedule in qstash.schedule.list():
        qstash.schedule.delete(schedule.schedule_id)
    for queue in qstash.queue.list():
        qstash.queue.delete(queue.name)
    for group in qstash.url_group.list():
        qstash.url_group.delete(group.name)


def test_url_groups(qstash: QStash, server: Server, wait_for: Wait) -> None:
    """Made, changed, listed, published to, and deleted with the last endpoint."""
    server.always(b"{}")
    first, second = (
        {"url": f"{server.url}/a", "name": "first"},
        {"url": f"{server.url}/b"},
    )
    qstash.url_group.delete("both")
    qstash.url_group.upsert_endpoints("both", [first, second])
    group = qstash.url_group.get("both")
    assert [(endpoint.url, endpoint.name) for endpoint in group.endpoints] == [
        (first["url"], "first"),
        (second["url"], None),
    ]
    assert qstash.url_group.list() == [group]
    sent = qstash.message.publish_json(url_group="both", body={"n": 1}, label="grouped")
    wait_for(lambda: len(server.requests) == 2)
    assert {message.url for message in sent} == {first["url"], second["url"]}
    batched = qstash.message.batch_json(
        [{"url_group": "both", "body": 1}, {"url": f"{server.url}/c"}]
    )
    assert (len(batched[0]), bool(batched[1].message_id)) == (2, True)
    wait_for(lambda: len(server.requests) == 5)
    logs = qstash.log.list(
        filter={"url_group": "both", "label": "grouped", "state": LogState.CREATED}
    ).logs
    assert {(log.url, log.endpoint) for log in logs} == {
        (first["url"], "first"),
        (second["url"], None),
    }
    qstash.url_group.remove_endpoints("both", [{"name": "first"}, second])
    with pytest.raises(QStashError, match="404"):
        qstash.url_group.get("both")


def test_queues(qstash: QStash, server: Server, wait_for: Wait) -> None:
    """Made, paused, enqueued to, resumed, in order, deleted."""
    server.always(b"{}")
    qstash.queue.upsert("line", parallelism=1, paused=True)
    sent = [
        qstash.message.enqueue(queue="line", url=f"{server.url}/{number}", body="x")
        for number in range(3)
    ]
    sent += [
        qstash.message.enqueue_json(
            queue="line", url=f"{server.url}/3", body={"n": 3}, label="last"
        )
    ]
    sent += qstash.message.batch([{"queue": "line", "url": f"{server.url}/4"}])
    queue = qstash.queue.get("line")
    assert (queue.lag, queue.parallelism, queue.paused) == (5, 1, True)
    waiting = qstash.message.get(sent[3].message_id)
    assert (waiting.queue, waiting.label) == ("line", "last")
    qstash.queue.resume("line")
    wait_for(lambda: len(server.requests) == 5)
    assert [request.path for request in server.requests] == [
        f"/{number}" for number in range(5)
    ]
    wait_for(lambda: qstash.queue.get("line").lag == 0)
    qstash.queue.pause("line")
    assert qstash.queue.list()[0].paused
    qstash.queue.delete("line")
    assert qstash.queue.list() == []


def test_schedules(qstash: QStash, server: Server) -> None:
    """Every option of the package is stored and shown; upsert, pause and resume."""
    made = qstash.schedule.create_json(
        destination=f"{server.url}/a",
        cron="1 1 1 1 1",
        body={"n": 1},
        method="PUT",
        headers={"X-A": "1"},
        callback=f"{server.url}/callback",
        callback_headers={"Forward-X-C": "c"},
        failure_callback=f"{server.url}/failed",
        failure_callback_headers={"Forward-X-F": "f"},
        retries=2,
        retry_delay="1000",
        delay="5m",
        timeout=30,
        schedule_id="mine",
        queue="line",
        flow_control={"key": "k", "parallelism": 2, "rate": 3, "period": "1m"},
        label="red",
    )
    schedule = qstash.schedule.get(made)
    assert (made, schedule.cron, schedule.destination) == (
        "mine",
        "1 1 1 1 1",
        f"{server.url}/a",
    )
    assert (schedule.method, schedule.retries, schedule.delay, schedule.timeout) == (
        "PUT",
        2,
        300,
        30,
    )
    assert json.loads(schedule.body) == {"n": 1}
    assert schedule.headers["x-a"] == ["1"]
    assert (schedule.callback_headers, schedule.failure_callback_headers) == (
        {"x-c": ["c"]},
        {"x-f": ["f"]},
    )
    assert (schedule.queue, schedule.label, schedule.retry_delay_expression) == (
        "line",
        "red",
        "1000",
    )
    flow = schedule.flow_control
    assert (flow.key, flow.parallelism, flow.rate, flow.period) == ("k", 2, 3, 60)
    assert (schedule.last_schedule_time, schedule.last_schedule_states) == (None, None)
    assert schedule.next_schedule_time > time.time() * 1000
    qstash.schedule.pause("mine")
    assert qstash.schedule.get("mine").paused
    qstash.schedule.resume("mine")
    qstash.schedule.create(
        destination=f"{server.url}/b",
        cron="CRON_TZ=Asia/Tokyo 0 9 * * *",
        schedule_id="mine",
    )
    (changed,) = qstash.schedule.list()
    assert (changed.destination, changed.paused) == (f"{server.url}/b", False)
    with pytest.raises(QStashError, match="Cron"):
        qstash.schedule.create(destination=f"{server.url}/b", cron="every day")


def test_flow_control(qstash: QStash, server: Server, wait_for: Wait) -> None:
    """Paused, pinned, unpinned, reset."""
    server.always(b"{}")
    qstash.flow_control.pause("k")
    limits = {"key": "k", "parallelism": 5, "rate": 10, "period": "1h"}
    qstash.message.publish(url=f"{server.url}/a", flow_control=limits)
    held = qstash.flow_control.get("k")
    assert (
        held.is_paused,
        held.wait_list_size,
        held.parallelism_max,
        held.rate_max,
    ) == (True, 1, 5, 10)
    qstash.flow_control.pin("k", {"parallelism": 3, "rate": 20, "period": 7200})
    pinned = qstash.flow_control.get("k")
    assert (pinned.is_pinned_parallelism, pinned.is_pinned_rate) == (True, True)
    assert (pinned.parallelism_max, pinned.rate_max, pinned.rate_period) == (
        3,
        20,
        7200,
    )
    qstash.flow_control.resume("k")
    wait_for(
        lambda: server.requests and qstash.flow_control.get("k").parallelism_count == 0
    )
    assert qstash.flow_control.get("k").rate_count == 1
    qstash.flow_control.reset_rate("k")
    assert qstash.flow_control.get("k").rate_count == 0
    qstash.flow_control.unpin("k", {"parallelism": True, "rate": True})
    with pytest.raises(QStashError, match="404"):
        qstash.flow_control.get("k")
    total = qstash.flow_control.get_global_parallelism()
    assert (total.parallelism_max, total.parallelism_count) == (32, 0)


def test_the_asynchronous_client_works_alike(
    running: LocalService, server: Server
) -> None:
    """Groups, queues, schedules and flow control through the package's asynchronous client."""
    server.always(b"{}")

    async def use() -> None:
        package = AsyncQStash(running.token, base_url=running.url, retry=False)
        await package.url_group.upsert_endpoints(
            "both", [{"url": f"{server.url}/a"}, {"url": f"{server.url}/b"}]
        )
        assert len((await package.url_group.get("both")).endpoints) == 2
        await package.queue.upsert("line", parallelism=2, paused=True)
        sent = await package.message.enqueue(queue="line", url_group="both")
        assert ((await package.queue.get("line")).lag, len(sent)) == (2, 2)
        await package.queue.resume("line")
        made = await package.schedule.create(
            destination="both", cron="0 0 1 1 *", queue="line"
        )
        assert (await package.schedule.get(made)).queue == "line"
        await package.flow_control.pin("k", {"parallelism": 1})
        assert (await package.flow_control.get("k")).is_pinned_parallelism
        await package.flow_control.unpin("k", {"parallelism": True})
        await package.http._client.aclose()

    asyncio.run(use())

"""Named queues: order, parallelism, retries that hold their place, pauses, and what a kill leaves."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from toolkit_service.demo.local_service import LocalService
from toolkit_service.queue.database import Database
from toolkit_service.queue.state import Store

Service = Any
Server = Any


def enqueue(service: Service, queue: str, url: str, **headers: str) -> str:
    """Enqueue one message; returns its id."""
    named = {
        f"Service-{name.replace('_', '-')}": value for name, value in headers.items()
    }
    response = service.http.post(f"/v2/enqueue/{queue}/{url}", headers=named)
    assert response.status_code == 200, response.text
    return response.json()["messageId"]


def paths(server: Server) -> list[str]:
    """The paths of all requests, in the order in which they arrived."""
    return [request.path for request in server.requests]


class Gate:
    """A destination that holds its responses, and counts how many it holds at once."""

    def __init__(self, server: Server) -> None:
        self._open, self._lock, self._running, self.most = (
            threading.Semaphore(0),
            threading.Lock(),
            0,
            0,
        )
        server.responding(self._hold)

    def _hold(self, _: Any) -> bytes:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        self._open.acquire(timeout=20)
        with self._lock:
            self._running -= 1
        return b"{}"

    def let(self, count: int) -> None:
        """Give so many responses."""
        self._open.release(count)


def test_messages_are_delivered_in_order_one_at_a_time(
    service: Service, server: Server
) -> None:
    """Thirty messages arrive as they were enqueued, each after the response to the one before."""
    gate = Gate(server)
    for number in range(30):
        enqueue(service, "line", f"{server.url}/{number}")
    assert service.http.get("/v2/queues/line").json()["lag"] == 30
    gate.let(30)
    service.wait(lambda: service.http.get("/v2/queues/line").json()["lag"] == 0)
    assert paths(server) == [f"/{number}" for number in range(30)]
    assert gate.most == 1


def test_a_message_that_is_retried_keeps_its_place(
    service: Service, server: Server
) -> None:
    """Those behind it wait for its retries and its callback, and go on when it has failed."""
    server.json(b"no", 500)
    server.always(b"{}")
    first = enqueue(
        service,
        "line",
        f"{server.url}/a",
        Retries="1",
        Failure_Callback=f"{server.url}/failed",
    )
    enqueue(service, "line", f"{server.url}/b")
    service.wait(lambda: "RETRY" in service.events(first))
    service.clock.advance(seconds=5)
    other = service.publish(f"{server.url}/other")["messageId"]
    service.wait(lambda: "DELIVERED" in service.events(other))
    assert paths(server) == ["/a", "/other"]
    server.json(b"no", 500)
    service.clock.advance(seconds=60)
    service.wait(lambda: len(server.requests) == 5)
    assert paths(server) == ["/a", "/other", "/a", "/failed", "/b"]
    (entry,) = service.dlq(queueName="line")
    assert entry["messageId"] == first


@pytest.mark.parametrize("parallelism", [2, 5])
def test_parallelism_is_used_and_never_exceeded(
    service: Service, server: Server, parallelism: int
) -> None:
    """Counted at the destination, also while messages in progress are cancelled."""
    gate = Gate(server)
    service.http.post(
        "/v2/queues", json={"queueName": "wide", "parallelism": parallelism}
    )
    messages = [
        enqueue(service, "wide", f"{server.url}/{number}") for number in range(20)
    ]
    service.wait(lambda: len(server.requests) == parallelism)
    service.http.delete(f"/v2/messages/{messages[0]}")
    time.sleep(0.1)
    assert len(server.requests) == parallelism
    gate.let(40)
    service.wait(lambda: service.http.get("/v2/queues/wide").json()["lag"] == 0)
    assert gate.most == parallelism
    assert sorted(paths(server), key=lambda path: int(path[1:])) == [
        f"/{n}" for n in range(20)
    ]


def test_a_paused_queue_holds_its_messages(service: Service, server: Server) -> None:
    """Paused, nothing starts, and other messages are delivered; resumed, all is delivered in order."""
    server.always(b"{}")
    service.http.post("/v2/queues", json={"queueName": "held", "paused": True})
    for number in range(3):
        enqueue(service, "held", f"{server.url}/{number}")
    other = service.publish(f"{server.url}/other")["messageId"]
    service.wait(lambda: "DELIVERED" in service.events(other))
    listed = service.http.get("/v2/queues").json()
    assert [(queue["name"], queue["paused"], queue["lag"]) for queue in listed] == [
        ("held", True, 3)
    ]
    service.http.post("/v2/queues/held/resume")
    service.wait(lambda: len(server.requests) == 4)
    assert paths(server) == ["/other", "/0", "/1", "/2"]
    service.http.post("/v2/queues/held/pause")
    assert service.http.get("/v2/queues/held").json()["paused"]


def test_a_change_leaves_what_it_does_not_name(service: Service) -> None:
    """Parallelism alone does not resume, and a pause does not change the parallelism."""

    def change(**fields: Any) -> tuple[int, bool]:
        queue = service.http.post(
            "/v2/queues", json={"queueName": "q", **fields}
        ).json()
        return queue["parallelism"], queue["paused"]

    assert change() == (1, False)
    assert change(parallelism=3, paused=True) == (3, True)
    assert change(parallelism=2) == (2, True)
    assert change(paused=False) == (2, False)


def test_a_delayed_message_takes_its_place_when_it_is_due(
    service: Service, server: Server
) -> None:
    """Until then the others pass it."""
    server.always(b"{}")
    enqueue(service, "line", f"{server.url}/late", Delay="1h")
    enqueue(service, "line", f"{server.url}/now")
    service.wait(lambda: paths(server) == ["/now"])
    service.clock.advance(seconds=3600)
    service.wait(lambda: paths(server) == ["/now", "/late"])


def test_a_deleted_queue_takes_its_messages_along(
    service: Service, server: Server
) -> None:
    """They are cancelled, as the log says; the name can be used again."""
    server.always(b"{}")
    service.http.post("/v2/queues", json={"queueName": "gone", "paused": True})
    message = enqueue(service, "gone", f"{server.url}/a")
    assert service.http.delete("/v2/queues/gone").status_code == 200
    assert service.events(message) == ["CREATED", "CANCEL_REQUESTED", "CANCELED"]
    assert service.http.get("/v2/queues/gone").status_code == 404
    assert service.http.delete("/v2/queues/gone").status_code == 404
    enqueue(service, "gone", f"{server.url}/b")
    service.wait(lambda: paths(server) == ["/b"])


def test_batches_and_groups_can_be_enqueued(service: Service, server: Server) -> None:
    """An item of a batch names its queue; a group's messages go to the queue one after the other."""
    server.always(b"{}")
    endpoints = [{"url": f"{server.url}/{name}"} for name in "ab"]
    service.http.post("/v2/topics/both/endpoints", json={"endpoints": endpoints})
    items = [
        {"destination": "both", "queue": "q"},
        {"destination": f"{server.url}/c", "queue": "q"},
    ]
    service.http.post("/v2/batch", json=items)
    service.wait(lambda: len(server.requests) == 3)
    assert paths(server) == ["/a", "/b", "/c"]
    logged = service.http.get(
        "/v2/logs", params={"queueName": "q", "state": "CREATED"}
    ).json()["logs"]
    assert [event.get("topicName") for event in logged] == [None, "both", "both"]


@pytest.mark.slow
def test_nothing_is_lost_or_overtaken_when_the_service_is_killed(
    tmp_path: Path, server: Server
) -> None:
    """Killed in the middle five times, a queue goes on where it was: at least once, and in order."""
    server.responding(lambda _: time.sleep(0.005) or b"{}")
    wanted = [f"/{number}" for number in range(120)]
    for life in range(6):
        with LocalService(data_dir=tmp_path / "data") as service:
            if life == 0:
                items = [
                    {"destination": f"{server.url}{path}", "queue": "line"}
                    for path in wanted
                ]
                headers = {"Authorization": f"Bearer {service.token}"}
                httpx.post(
                    f"{service.url}/v2/batch", json=items, headers=headers, timeout=60
                )
            deadline, enough = (
                time.monotonic() + 60,
                120 if life == 5 else (life + 1) * 15,
            )
            while len(set(paths(server))) < enough:
                assert time.monotonic() < deadline, "waited in vain"
                time.sleep(0.002)
            if life < 5:
                service.kill()
    first_seen = list(dict.fromkeys(paths(server)))
    assert first_seen == wanted
    # a delivery whose response was not recorded is sent again, and nothing else
    assert len(server.requests) <= 120 + 5


def test_tables_of_the_version_before_are_used(tmp_path: Path) -> None:
    """A data folder from before named queues keeps its messages."""
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / "queue.sqlite") as connection:
        for index in ("messages_due", "messages_queue"):
            connection.execute(f"DROP INDEX {index}")
        for column in ("queue", "joins_at"):
            connection.execute(f"ALTER TABLE messages DROP COLUMN {column}")
        connection.execute("CREATE INDEX messages_due ON messages (due_at, seq)")
        connection.execute(
            "INSERT INTO messages (id, due_at, spec) VALUES ('msg_old', 1, x'80')"
        )
        connection.execute("UPDATE kept SET value = 2 WHERE name = 'version'")
    connection.close()
    database = Database(tmp_path / "queue.sqlite")
    sql = "SELECT id, queue FROM messages WHERE queue IS NULL AND due_at <= 1"
    assert [
        tuple(row)
        for row in database.submit(lambda c: c.execute(sql).fetchall()).result()
    ] == [("msg_old", None)]
    database.close()


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"queueName": "a b"}, 400, "queueName"),
        ({"queueName": ""}, 400, "queueName"),
        ({}, 400, "queueName"),
        ({"queueName": "q", "parallelism": 0}, 400, "parallelism"),
        ({"queueName": "q", "parallelism": 1.5}, 400, "parallelism"),
        ({"queueName": "q", "parallelism": 1001}, 412, "parallelism"),
        ({"queueName": "q", "paused": "yes"}, 400, "paused"),
    ],
)
def test_unusable_queues_are_refused(
    shared: Service, body: Any, status: int, says: str
) -> None:
    """With what was got and expected; nothing is stored."""
    response = shared.http.post("/v2/queues", json=body)
    assert (response.status_code, says in response.json()["error"]) == (status, True), (
        response.text
    )
    assert shared.http.get("/v2/queues").json() == []


def test_unusable_names_are_refused_when_enqueueing(shared: Service) -> None:
    """Before anything is stored."""
    for name in ("a%20b", "q" * 257, "%00"):
        response = shared.http.post(f"/v2/enqueue/{name}/http://127.0.0.1:9/")
        assert response.status_code == 400, response.text
    item = {"destination": "http://127.0.0.1:9/", "queue": "a b"}
    assert shared.http.post("/v2/batch", json=[item]).status_code == 400
    assert shared.http.get("/v2/queues").json() == []

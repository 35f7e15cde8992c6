"""URL groups: a publish to their name makes one message an endpoint, wherever a message can be sent."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toolkit_service.queue import url_group_routes
from toolkit_service.queue.state import Store
from toolkit_service.queue.url_group_routes import AddedEndpoint

Service = Any
Server = Any


def add(service: Service, group: str, *endpoints: dict[str, str]) -> Any:
    """Add endpoints to a group."""
    return service.http.post(
        f"/v2/topics/{group}/endpoints", json={"endpoints": endpoints}
    )


@pytest.fixture
def group(service: Service, server: Server) -> str:
    """A group of two endpoints, one of which has a name."""
    add(
        service,
        "both",
        {"url": f"{server.url}/a", "name": "first"},
        {"url": f"{server.url}/b"},
    )
    return "both"


def test_each_endpoint_gets_the_message_once(
    service: Service, server: Server, group: str
) -> None:
    """One publish, two deliveries under ids of their own, which the response lists with their URLs."""
    server.always(b"{}")
    published = service.http.post(
        f"/v2/publish/{group}", content=b"x", headers={"Service-Label": "l"}
    ).json()
    assert [message["url"] for message in published] == [
        f"{server.url}/a",
        f"{server.url}/b",
    ]
    service.wait(
        lambda: all("DELIVERED" in service.events(m["messageId"]) for m in published)
    )
    by_path = {request.path: request for request in server.requests}
    assert {path: request.body for path, request in by_path.items()} == {
        "/a": b"x",
        "/b": b"x",
    }
    assert len(server.requests) == 2
    sent = {
        path: request.headers["Service-Message-Id"] for path, request in by_path.items()
    }
    assert sent == {"/a": published[0]["messageId"], "/b": published[1]["messageId"]}


def test_names_are_in_callbacks_dead_letters_and_logs(
    service: Service, server: Server, group: str
) -> None:
    """What fails says through which group and endpoint it was sent, and filters find it by the group."""
    server.always(b"no", 500)
    headers = {
        "Service-Retries": "0",
        "Service-Failure-Callback": f"{server.url}/failed",
    }
    messages = service.http.post(f"/v2/publish/{group}", headers=headers).json()
    service.publish(f"{server.url}/alone", Retries="0")
    reports = service.wait(
        lambda: (
            [r for r in server.requests if r.path == "/failed"][1:] and server.requests
        )
    )
    reports = [
        json.loads(request.body) for request in reports if request.path == "/failed"
    ]
    named = {
        report["url"]: (report["topicName"], report["endpointName"])
        for report in reports
    }
    assert named == {
        f"{server.url}/a": ("both", "first"),
        f"{server.url}/b": ("both", ""),
    }
    entries = service.wait(
        lambda: service.dlq(topicName="both")[1:] and service.dlq(topicName="both")
    )
    assert {entry["url"]: entry.get("endpointName") for entry in entries} == {
        f"{server.url}/a": "first",
        f"{server.url}/b": None,
    }
    logged = service.http.get(
        "/v2/logs", params={"topicName": "both", "state": "FAILED"}
    ).json()["logs"]
    assert {event["messageId"] for event in logged} == {
        message["messageId"] for message in messages
    }
    assert {event.get("endpointName") for event in logged} == {"first", None}
    retried = service.http.post(f"/v2/dlq/retry/{entries[0]['dlqId']}").json()[
        "messageId"
    ]
    event = service.http.get("/v2/logs", params={"messageId": retried}).json()["logs"][
        0
    ]
    assert event["topicName"] == "both"


def test_batches_mix_groups_and_urls(
    service: Service, server: Server, group: str
) -> None:
    """Each item has a result of its own: a message, or a list of them; an unknown group refuses all."""
    server.always(b"{}")
    items = [
        {"destination": group, "body": "1"},
        {"destination": f"{server.url}/c", "body": "2"},
    ]
    of_group, alone = service.http.post("/v2/batch", json=items).json()
    assert [message["url"] for message in of_group] == [
        f"{server.url}/a",
        f"{server.url}/b",
    ]
    assert set(alone) == {"messageId"}
    service.wait(lambda: len(server.requests) == 3)
    refused = service.http.post("/v2/batch", json=[*items, {"destination": "nobody"}])
    assert refused.status_code == 400
    assert (
        "message 2: destination is neither a URL nor a URL group"
        in refused.json()["error"]
    )
    assert service.http.delete("/v2/messages").json() == {"cancelled": 0}


def test_a_deduplication_id_counts_once_an_endpoint(
    service: Service, server: Server, group: str
) -> None:
    """The second publish makes no message, and names those of the first."""
    headers = {"Service-Deduplication-Id": "once", "Service-Delay": "1d"}
    first = service.http.post(f"/v2/publish/{group}", headers=headers).json()
    again = service.http.post(f"/v2/publish/{group}", headers=headers).json()
    assert [message | {"deduplicated": True} for message in first] == again
    assert first[0]["messageId"] != first[1]["messageId"]
    assert service.http.delete("/v2/messages", params={"topicName": group}).json() == {
        "cancelled": 2
    }


def test_endpoints_are_changed_and_removed(
    service: Service, server: Server, group: str
) -> None:
    """By name a new URL, by URL a new name; removed by either; without endpoints there is no group."""
    add(
        service,
        group,
        {"url": f"{server.url}/new", "name": "first"},
        {"url": f"{server.url}/b", "name": "b"},
    )
    listed = service.http.get(f"/v2/topics/{group}").json()
    assert listed["endpoints"] == [
        {"url": f"{server.url}/new", "name": "first"},
        {"url": f"{server.url}/b", "name": "b"},
    ]
    assert service.http.get("/v2/topics").json() == [listed]

    def remove(**endpoint: str) -> int:
        body = {"endpoints": [endpoint]}
        return service.http.request(
            "DELETE", f"/v2/topics/{group}/endpoints", json=body
        ).status_code

    assert remove(name="b") == 200
    assert [
        e["name"] for e in service.http.get(f"/v2/topics/{group}").json()["endpoints"]
    ] == ["first"]
    assert remove() == 400
    assert remove(url=f"{server.url}/new") == 200
    assert (
        service.http.get(f"/v2/topics/{group}").status_code == remove(name="b") == 404
    )
    assert service.http.delete(f"/v2/topics/{group}").status_code == 200


def test_names_of_one_url_are_endpoints_of_their_own(
    service: Service, server: Server
) -> None:
    """Each name of a URL gets the message, under a deduplication id of its own, and is removed alone."""
    url = f"{server.url}/one"
    add(
        service,
        "named",
        {"url": url},
        {"url": url, "name": "first"},
        {"url": url, "name": "second"},
    )
    add(service, "named", {"url": url}, {"url": url, "name": "second"})
    endpoints = [{"url": url, "name": "first"}, {"url": url, "name": "second"}]
    assert service.http.get("/v2/topics/named").json()["endpoints"] == endpoints

    headers = {"Service-Deduplication-Id": "once", "Service-Delay": "1d"}
    published = service.http.post("/v2/publish/named", headers=headers).json()
    shown = [
        service.http.get(f"/v2/messages/{sent['messageId']}").json()
        for sent in published
    ]
    assert [message["endpointName"] for message in shown] == ["first", "second"]
    again = service.http.post("/v2/publish/named", headers=headers).json()
    assert again == [message | {"deduplicated": True} for message in published]

    service.http.request(
        "DELETE", "/v2/topics/named/endpoints", json={"endpoints": [{"name": "first"}]}
    )
    assert service.http.get("/v2/topics/named").json()["endpoints"] == endpoints[1:]


def test_a_name_takes_over_the_url_of_an_endpoint_without_one(
    service: Service, server: Server
) -> None:
    """A named endpoint that moves to the URL of a nameless one replaces it, and no other."""
    old, new = f"{server.url}/old", f"{server.url}/new"
    add(
        service,
        "moved",
        {"url": old, "name": "mover"},
        {"url": new, "name": "other"},
        {"url": old},
    )
    add(service, "moved", {"url": f"{new}er"}, {"url": f"{new}er", "name": "mover"})
    assert service.http.get("/v2/topics/moved").json()["endpoints"] == [
        {"url": f"{new}er", "name": "mover"},
        {"url": new, "name": "other"},
    ]


def test_groups_of_the_version_before_are_used(tmp_path: Path) -> None:
    """Endpoints of tables that had one name per URL keep their order, and the URL gets a second name."""
    Store(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "queue.sqlite")) as connection:
        connection.executescript(
            "DROP TABLE endpoints; CREATE TABLE endpoints (seq INTEGER PRIMARY KEY AUTOINCREMENT, "
            "topic TEXT NOT NULL REFERENCES url_groups (name) ON DELETE CASCADE, url TEXT NOT NULL, "
            "name TEXT, UNIQUE (topic, url)); INSERT INTO url_groups VALUES ('old', 1, 1); "
            "INSERT INTO endpoints VALUES (7, 'old', 'http://127.0.0.1/a', 'first'); "
            "INSERT INTO endpoints VALUES (3, 'old', 'http://127.0.0.1/b', NULL); "
            "UPDATE kept SET value = 3 WHERE name = 'version';"
        )
    store = Store(tmp_path)
    added = [AddedEndpoint("http://127.0.0.1/a", "second")]
    group = asyncio.run(store.write(url_group_routes._added, "old", added))
    store.close()
    assert [
        (endpoint["url"][-1], endpoint.get("name")) for endpoint in group["endpoints"]
    ] == [
        ("b", None),
        ("a", "first"),
        ("a", "second"),
    ]
    Store(tmp_path).close()  # opened as the current version


def test_groups_survive_a_restart(served: Callable[..., Any], server: Server) -> None:
    """They are on disk before the response."""
    server.always(b"{}")
    with served() as service:
        add(service, "stays", {"url": f"{server.url}/a"})
    with served() as service:
        assert len(service.http.post("/v2/publish/stays").json()) == 1
        service.wait(lambda: len(server.requests) == 1)


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        (
            "a%20b",
            {"endpoints": [{"url": "http://127.0.0.1/"}]},
            "name of the URL group",
        ),
        (
            "g" * 257,
            {"endpoints": [{"url": "http://127.0.0.1/"}]},
            "name of the URL group",
        ),
        ("g", {"endpoints": []}, "endpoints"),
        ("g", {"endpoints": [{"name": "n"}]}, "url"),
        ("g", {"endpoints": [{"url": "ftp://127.0.0.1/"}]}, "URL of an endpoint"),
        ("g", {"endpoints": [{"url": "http://169.254.169.254/"}]}, "169.254.169.254"),
        (
            "g",
            {"endpoints": [{"url": "http://127.0.0.1/", "name": "a b"}]},
            "name of an endpoint",
        ),
        ("g", {"endpoints": [{"url": "http://127.0.0.1/"}] * 101}, "100"),
        ("g", [], "object"),
    ],
)
def test_unusable_groups_are_refused(
    shared: Service, path: str, body: Any, says: str
) -> None:
    """With what was got and expected; nothing is stored."""
    response = shared.http.post(f"/v2/topics/{path}/endpoints", json=body)
    assert (response.status_code, says in response.json()["error"]) == (400, True), (
        response.text
    )
    assert shared.http.get("/v2/topics").json() == []


def test_a_run_has_one_endpoint(service: Service, group: str) -> None:
    """A step of a run is not sent to several endpoints."""
    headers = {"Service-Workflow-RunId": "wfr_1", "Service-Workflow-Init": "true"}
    assert service.http.post(f"/v2/publish/{group}", headers=headers).status_code == 400
    assert service.http.get("/v2/workflows/logs").json()["runs"] == []

"""The two logs: which events and runs a filter finds, how they page, and when they are forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Service = Any
Server = Any
DAY = 86_400


def test_events_are_found_by_every_filter(service: Service, server: Server) -> None:
    """By message, state, URL, label, key, caller and date, and by unsupported filters: nothing."""
    server.always(b"{}")
    first = service.publish(f"{server.url}/a", Label="red, blue", Flow_Control_Key="k")[
        "messageId"
    ]
    service.wait(lambda: "DELIVERED" in service.events(first))
    service.clock.advance(seconds=10)
    second = service.publish(f"{server.url}/b", Label="red")["messageId"]
    service.wait(lambda: "DELIVERED" in service.events(second))
    now = service.clock.now_ms()

    def listed(path: str = "logs", **wanted: Any) -> set[tuple[str, str]]:
        events = service.http.get(f"/v2/{path}", params=wanted).json()["events"]
        return {
            ("first" if e["messageId"] == first else "second", e["state"])
            for e in events
        }

    both = {
        (name, state)
        for name in ("first", "second")
        for state in ("CREATED", "ACTIVE", "DELIVERED")
    }
    blue, red_only = (
        {event for event in both if event[0] == "first"},
        {e for e in both if e[0] == "second"},
    )
    assert (
        listed()
        == listed("events")
        == listed(callerIp="127.0.0.1")
        == listed(label="red")
        == both
    )
    assert (
        listed(messageId=first)
        == listed(label="blue")
        == listed(flowControlKey="k")
        == blue
    )
    assert (
        listed(messageIds=f"{second},unknown")
        == listed(url=f"{server.url}/b")
        == red_only
    )
    assert listed(state="CREATED", url=f"{server.url}/b") == {("second", "CREATED")}
    assert listed(fromDate=now, toDate=now) == red_only
    assert listed(toDate=now - 10_000) == blue
    assert (
        listed(topicName="t")
        == listed(queueName="q")
        == listed(scheduleId="s")
        == set()
    )


def test_both_logs_are_filtered_by_hosts_and_paths(
    service: Service, server: Server
) -> None:
    """Of the URL, the host with its port or without; each filter has several values."""
    waiting = {"Service-Delay": "1d"}
    for path in "abc":
        service.publish(f"{server.url}/{path}", Delay="1d")
        service.http.post(f"/v2/trigger/{server.url}/{path}", headers=waiting)
    host = server.url.removeprefix("http://")

    def counts(**wanted: Any) -> list[int]:
        pages = [
            service.http.get(f"/v2/{log}", params=wanted).json()
            for log in ("logs", "workflows/logs")
        ]
        return [len(pages[0]["logs"]), len(pages[1]["runs"])]

    assert counts(path="/a") == [2, 1]
    assert (
        counts(path=["/a", "/b", "/none"]) == counts(path="/a,/b", host=host) == [4, 2]
    )
    assert counts(host=[host, "elsewhere"]) == counts(host="127.0.0.1") == [6, 3]
    assert counts(host="elsewhere") == counts(host=host, path="/none") == [0, 0]
    cancelled = [
        service.http.delete(
            f"/v2/{what}", params={"host": host, "path": ["/a", "/c"]}
        ).json()
        for what in ("workflows/runs", "messages")
    ]
    assert cancelled == [{"cancelled": 2}, {"cancelled": 2}]


def test_events_page_up_to_a_thousand(service: Service, server: Server) -> None:
    """A page holds `count` rows; cursors lead through all of them, each once."""
    messages = [
        {"destination": f"{server.url}/", "headers": {"Service-Delay": "1d"}}
    ] * 150
    assert service.http.post("/v2/batch", json=messages).status_code == 200
    assert len(service.http.get("/v2/logs").json()["events"]) == 150
    assert service.http.get("/v2/logs", params={"count": 1001}).status_code == 400
    ids, cursor = [], ""
    while True:
        page = service.http.get(
            "/v2/logs", params={"count": 40, "cursor": cursor}
        ).json()
        ids += [event["messageId"] for event in page["events"]]
        if not (cursor := page["cursor"]):
            break
    assert len(ids) == len(set(ids)) == 150


def test_runs_are_found_by_every_filter(service: Service, server: Server) -> None:
    """By id, URL, state, label, caller, key, message and date of creation."""
    for number in range(3):
        service.clock.advance(seconds=1)
        headers = {
            "Upstash-Workflow-Init": "true",
            "Upstash-Workflow-RunId": f"wfr_{number}",
            "Upstash-Delay": "1d",
            "Upstash-Label": f"l{number}, all",
            "Upstash-Flow-Control-Key": f"k{number}",
        }
        response = service.http.post(
            f"/v2/publish/{server.url}/{number}", headers=headers
        ).json()
    service.http.delete("/v2/workflows/runs/wfr_0")

    def listed(path: str = "logs", **wanted: Any) -> list[str]:
        page = service.http.get(f"/v2/workflows/{path}", params=wanted)
        assert page.status_code == 200, page.text
        return [run["workflowRunId"] for run in page.json()["runs"]]

    now = service.clock.now_ms()
    assert (
        listed()
        == listed("events", groupBy="workflowRunId")
        == ["wfr_2", "wfr_1", "wfr_0"]
    )
    assert listed(label="all", callerIp="127.0.0.1") == listed()
    assert (
        listed(workflowRunId="wfr_1")
        == listed(label="l1")
        == listed(flowControlKey="k1")
        == ["wfr_1"]
    )
    assert listed(workflowUrl=f"{server.url}/1") == ["wfr_1"]
    assert listed(messageId=response["messageId"]) == ["wfr_2"]
    assert listed(state="RUN_CANCELED") == ["wfr_0"]
    assert (
        listed(workflowCreatedAt=now) == listed(fromDate=now, toDate=now) == ["wfr_2"]
    )
    assert listed(callerIp="10.0.0.1") == []
    (run,) = service.http.get(
        "/v2/workflows/logs", params={"workflowRunId": "wfr_1"}
    ).json()["runs"]
    assert run["flowControlKey"] == "k1"


@pytest.mark.parametrize("path", ["logs", "workflows/logs", "workflows/dlq", "dlq"])
def test_expired_logs_are_removed(
    start: Callable[..., Service], server: Server, path: str
) -> None:
    """After the retention, not before: events, ended runs, dead letters; pending messages stay."""
    service = start(retention_ms=7 * DAY * 1000)
    server.always(b"{}", 500)
    service.publish(f"{server.url}/", Retries="0")
    headers = {"Upstash-Workflow-Init": "true", "Upstash-Retries": "0"}
    for run_id, more in (("wfr_failed", {}), ("wfr_waits", {"Upstash-Delay": "30d"})):
        service.http.post(
            f"/v2/publish/{server.url}/",
            headers={**headers, "Upstash-Workflow-RunId": run_id, **more},
        )
    service.wait(lambda: service.dlq() and service.dlq("workflows/dlq"))

    def listed() -> list[dict[str, Any]]:
        page = service.http.get(f"/v2/{path}").json()
        actual: list[dict[str, Any]] = next(
            page[name] for name in ("runs", "events", "messages") if name in page
        )
        return actual

    before = len(listed())
    service.clock.advance(seconds=7 * DAY - 60)
    service.http.get("/v2/keys")
    assert len(listed()) == before
    service.clock.advance(seconds=120)
    left = 1 if path == "workflows/logs" else 0
    service.wait(lambda: len(listed()) == left)
    if left:
        assert listed()[0]["workflowRunId"] == "wfr_waits"

"""Canceling messages and runs, one, some or all of them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

Service = Any
Server = Any


def wait_long(service: Service, server: Server, number: int, **headers: str) -> str:
    """A message that is due tomorrow."""
    service.clock.advance(seconds=1)
    message: str = service.publish(f"{server.url}/{number}", Delay="1d", **headers)[
        "messageId"
    ]
    return message


def test_messages_are_canceled_by_what_they_are(
    service: Service, server: Server
) -> None:
    """By ids, URL, its host or path, label, key, caller and date; at most `count`; without anything, all."""
    began = service.clock.now_ms()
    sent = [
        wait_long(service, server, n, Label=f"l{n % 2}", Flow_Control_Key=f"k{n % 3}")
        for n in range(12)
    ]

    def cancel(body: Any = None, **wanted: Any) -> int:
        response = service.http.request(
            "DELETE", "/v2/messages", params=wanted, json=body
        )
        assert response.status_code == 200, response.text
        canceled: int = response.json()["cancelled"]
        return canceled

    assert cancel(messageIds=f"{sent[0]},{sent[1]}") == 2
    assert cancel({"messageIds": [sent[2], "msg_unknown"]}) == 1
    assert cancel(url=f"{server.url}/3") == 1
    assert cancel(callerIp="10.0.0.1") == 0
    assert cancel(label="l0", flowControlKey="k1") == 2
    assert cancel(fromDate=began + 12_000, callerIp="127.0.0.1") == 1
    assert cancel(toDate=began + 6_000) == 1
    assert service.http.get(f"/v2/messages/{sent[7]}").status_code == 200
    assert cancel(path="/5,/7", host="LOCALHOST") == cancel(host="127.0.0.2") == 0
    assert cancel(path="/9", host="127.0.0.1") == 1
    assert cancel(host=urlsplit(server.url).netloc, count=2) == 2
    assert service.events(sent[7]) == ["CREATED", "CANCEL_REQUESTED", "CANCELED"]
    assert service.events(sent[8]) == ["CREATED"]  # the oldest are cancelled first
    assert cancel(count=5) == 1
    one = service.publish(server.url, Delay="1d")["messageId"]
    assert service.http.delete(f"/v2/messages/{one}").json() == {"cancelled": 1}
    assert cancel() == 0
    service.clock.advance(seconds=2 * 86_400)
    service.http.get("/v2/keys")
    assert server.requests == []


def begin(service: Service, run_id: str, url: str, **more: str) -> None:
    """A run whose first delivery is due tomorrow."""
    headers = {
        "Upstash-Workflow-Init": "true",
        "Upstash-Workflow-RunId": run_id,
        "Upstash-Workflow-Url": url,
        "Upstash-Delay": "1d",
        **{f"Upstash-{name.replace('_', '-')}": value for name, value in more.items()},
    }
    service.clock.advance(seconds=1)
    assert service.http.post(f"/v2/publish/{url}", headers=headers).status_code == 200


def test_runs_are_canceled_by_what_they_are(service: Service, server: Server) -> None:
    """By ids, by URL as a prefix or exactly, by label, key and date; without anything, all of them."""
    for number in range(10):
        begin(
            service,
            f"wfr_{number}",
            f"{server.url}/flow/{number}",
            Label=f"l{number}",
            Flow_Control_Key="k",
        )

    def cancel(body: Any = None, **wanted: Any) -> int:
        response = service.http.request(
            "DELETE", "/v2/workflows/runs", params=wanted, json=body
        )
        assert response.status_code == 200, response.text
        canceled: int = response.json()["cancelled"]
        return canceled

    def state(run_id: str) -> str:
        (run,) = service.http.get(
            "/v2/workflows/logs", params={"workflowRunId": run_id}
        ).json()["runs"]
        actual: str = run["workflowState"]
        return actual

    created = service.http.get(
        "/v2/workflows/logs", params={"workflowRunId": "wfr_9"}
    ).json()["runs"][0]
    assert cancel(workflowRunIds="wfr_0,wfr_1") == 2
    assert cancel({"workflowRunIds": ["wfr_1", "wfr_2"]}) == 1
    assert (state("wfr_2"), state("wfr_3")) == ("RUN_CANCELED", "RUN_STARTED")
    assert cancel(workflowUrl=f"{server.url}/flow", workflowUrlExactMatch="true") == 0
    assert cancel(workflowUrl=f"{server.url}/flow/3", workflowUrlExactMatch="true") == 1
    assert cancel({"workflowUrl": f"{server.url}/flow/4"}) == 1
    assert cancel(label="l5", flowControlKey="k", callerIp="127.0.0.1") == 1
    assert cancel(fromDate=created["workflowRunCreatedAt"]) == 1
    assert cancel(workflowUrl=f"{server.url}/flow/", count=2) == 2
    assert (state("wfr_7"), state("wfr_8")) == ("RUN_CANCELED", "RUN_STARTED")
    assert cancel(workflowUrl=f"{server.url}/flow/") == 1
    assert cancel() == 0
    assert service.http.delete("/v2/workflows/runs/wfr_4").status_code == 404
    service.clock.advance(seconds=2 * 86_400)
    service.http.get("/v2/keys")
    assert server.requests == []


@pytest.mark.parametrize("path", ["messages", "workflows/runs"])
@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"nonsense",
        b'{"messageIds": 5, "workflowRunIds": 5}',
        b'{"messageIds": [5], "workflowRunIds": [5]}',
        b'{"messageIds": ["\\ud800"], "workflowRunIds": ["\\ud800"]}',
    ],
)
def test_bodies_that_are_not_understood_cancel_nothing(
    shared: Service, path: str, body: bytes
) -> None:
    """They are refused, because a malformed filter must not select all."""
    begin(shared, f"wfr_{abs(hash((path, body)))}", "http://127.0.0.1:9/")
    response = shared.http.request("DELETE", f"/v2/{path}", content=body)
    assert response.status_code == 400, response.text
    running = shared.http.get(
        "/v2/workflows/logs", params={"state": "RUN_STARTED"}
    ).json()["runs"]
    assert running

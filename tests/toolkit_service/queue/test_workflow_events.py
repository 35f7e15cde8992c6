"""Runs that wait for events, on the wire as the TypeScript package speaks it: wait, notify, time-outs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

Service = Any
Server = Any


class Endpoint:
    """A workflow endpoint of two steps: wait for an event, then end with its data."""

    def __init__(
        self, service: Service, server: Server, *, timeout: Any = "1h"
    ) -> None:
        self.service = service
        self.url = f"{server.url}/workflow"
        self.timeout = timeout
        self.ended: dict[str, dict[str, Any]] = {}
        self.reply = type(server.respond(None))
        server.respond = self.respond

    def headers(self, run_id: str, *, init: bool = False) -> dict[str, str]:
        """The headers of every request of a run."""
        return {
            "Upstash-Workflow-Init": str(init).lower(),
            "Upstash-Workflow-RunId": run_id,
            "Upstash-Workflow-Url": self.url,
            "Upstash-Workflow-CallType": "step",
            "Upstash-Feature-Set": "LazyFetch,InitialBody",
            "Upstash-Forward-Upstash-Workflow-Sdk-Version": "1",
            "Upstash-Retries": "0",
        }

    def begin(self, run_id: str, event_id: str = "paid") -> str:
        """Start a run that waits for an event."""
        message = {
            "destination": self.url,
            "body": event_id,
            "headers": self.headers(run_id, init=True),
        }
        assert self.service.http.post("/v2/batch", json=[message]).status_code == 200
        return run_id

    def respond(self, request: Any) -> Any:
        """Wait, or end."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert headers["upstash-workflow-sdk-version"] == "1"
        run_id = headers["upstash-workflow-runid"]
        first, *done = [
            base64.b64decode(item["body"]).decode() for item in json.loads(request.body)
        ]
        if done:
            self.ended[run_id] = json.loads(done[0])
            self.service.http.delete(
                f"/v2/workflows/runs/{run_id}", params={"cancel": "false"}
            )
            return self.reply(200, {}, b"{}")
        return self.reply(self.wait(run_id, first).status_code, {}, b"{}")

    def wait(self, run_id: str, event_id: str) -> Any:
        """Post a wait."""
        body = {
            "url": self.url,
            "timeout": self.timeout,
            "timeoutUrl": self.url,
            "timeoutHeaders": {"Upstash-Workflow-Runid": [run_id]},
            "step": {
                "stepId": 1,
                "stepType": "Wait",
                "stepName": "payment",
                "concurrent": 1,
            },
        }
        return self.service.http.post(
            f"/v2/wait/{event_id}", json=body, headers=self.headers(run_id)
        )

    def waiters(self, event_id: str = "paid") -> list[dict[str, Any]]:
        """The waiters."""
        actual: list[dict[str, Any]] = self.service.http.get(
            f"/v2/waiters/{event_id}"
        ).json()
        return actual


def test_an_event_is_delivered_to_every_waiter(
    service: Service, server: Server
) -> None:
    """Both runs continue with its data byte for byte; a run that waits for another event does not."""
    endpoint = Endpoint(service, server)
    for run_id, event_id in (("wfr_a", "paid"), ("wfr_b", "paid"), ("wfr_c", "sent")):
        endpoint.begin(run_id, event_id)
    (first, _) = service.wait(lambda: len(actual := endpoint.waiters()) == 2 and actual)
    assert set(first) == {
        "url",
        "headers",
        "deadline",
        "timeoutUrl",
        "timeoutBody",
        "timeoutHeaders",
    }
    assert (first["url"], first["timeoutUrl"]) == (endpoint.url, endpoint.url)
    assert first["deadline"] == service.clock.now_ms() + 3_600_000
    assert first["timeoutHeaders"]["Upstash-Workflow-Runid"][0] in ("wfr_a", "wfr_b")
    payload = service.http.post(
        "/v2/notify/paid", content=b'{"sum": "\xe2\x82\xac 5"}\x00'
    ).json()
    assert {element["workflowRunId"] for element in payload} == {"wfr_a", "wfr_b"}
    assert all(
        element["messageId"].startswith("msg_") and element["waiter"]["url"]
        for element in payload
    )
    service.wait(lambda: len(endpoint.ended) == 2)
    for step in endpoint.ended.values():
        assert base64.b64decode(step["out"]) == b'{"sum": "\xe2\x82\xac 5"}\x00'
        assert step == {
            "stepId": 1, "stepType": "Wait", "stepName": "payment", "concurrent": 1, "waitEventId": "paid",
            "waitTimeout": False, "out": step["out"],
        }  # fmt: skip
    assert endpoint.waiters() == []
    assert len(service.wait(lambda: endpoint.waiters("sent"))) == 1
    assert service.http.post("/v2/notify/paid").json() == []


@pytest.mark.parametrize(
    ("timeout", "seconds"), [("2m", 120), (90, 90), ("90", 90), (None, 7 * 86_400)]
)
def test_a_wait_ends_when_it_has_lasted_too_long(
    service: Service, server: Server, timeout: Any, seconds: int
) -> None:
    """As a duration or in seconds, seven days by default; the step then says so and has no data."""
    endpoint = Endpoint(service, server, timeout=timeout)
    endpoint.begin("wfr_a")
    service.wait(endpoint.waiters)
    service.clock.advance(seconds=seconds - 1)
    service.http.get("/v2/keys")
    assert endpoint.ended == {}
    service.clock.advance(seconds=1)
    step = service.wait(lambda: endpoint.ended.get("wfr_a"))
    assert step["waitTimeout"] is True
    assert "out" not in step
    assert service.http.post("/v2/notify/paid").json() == []


def test_an_event_for_one_run_is_stored_until_the_run_waits(
    service: Service, server: Server
) -> None:
    """It is stored until the run waits, sent to that run alone, and only once."""
    endpoint = Endpoint(service, server)
    endpoint.begin("wfr_c")
    service.wait(endpoint.waiters)
    early = service.http.post("/v2/notify/wfr_c/later", content=b"kept").json()
    assert early["workflowRunId"] == "wfr_c"
    assert endpoint.wait("wfr_c", "later").status_code == 200
    step = service.wait(lambda: endpoint.ended.get("wfr_c"))
    assert base64.b64decode(step["out"]) == b"kept"
    endpoint.begin("wfr_d")
    endpoint.begin("wfr_e")
    service.wait(lambda: len(endpoint.waiters()) == 2)
    payload = service.http.post("/v2/notify/wfr_d/paid", content=b"mine").json()
    assert payload["workflowRunId"] == "wfr_d"
    service.wait(lambda: "wfr_d" in endpoint.ended)
    assert len(endpoint.waiters()) == 1
    assert service.http.post("/v2/notify/wfr_d/paid").status_code == 404


def test_a_repeated_wait_is_registered_once(service: Service, server: Server) -> None:
    """An endpoint that is called again while its run waits does not wait twice."""
    endpoint = Endpoint(service, server)
    endpoint.begin("wfr_a")
    service.wait(endpoint.waiters)
    again = endpoint.wait("wfr_a", "paid").json()
    assert again["deduplicated"] is True
    assert len(endpoint.waiters()) == 1
    service.http.post("/v2/notify/paid", content=b"1")
    service.wait(lambda: endpoint.ended)
    # once the run has ended, too
    service.wait(lambda: endpoint.wait("wfr_a", "paid").status_code == 404)


def test_waits_and_events_survive_a_restart(
    served: Callable[..., Any], server: Server
) -> None:
    """Waits and stored events are restored when the service starts again."""
    with served() as service:
        clock = service.clock
        endpoint = Endpoint(service, server)
        endpoint.begin("wfr_a")
        endpoint.begin("wfr_b")
        service.wait(lambda: len(endpoint.waiters()) == 2)
        service.http.post("/v2/notify/wfr_b/later", content=b"kept")
    clock.advance(seconds=60)
    with served(clock=clock) as service:
        endpoint.service = service
        assert len(endpoint.waiters()) == 2
        assert endpoint.wait("wfr_b", "later").status_code == 200
        assert (
            base64.b64decode(service.wait(lambda: endpoint.ended.get("wfr_b"))["out"])
            == b"kept"
        )
        service.clock.advance(seconds=3540)
        assert service.wait(lambda: endpoint.ended.get("wfr_a"))["waitTimeout"] is True


def test_canceled_runs_wait_no_more(service: Service, server: Server) -> None:
    """The waiter is removed with its run."""
    endpoint = Endpoint(service, server)
    endpoint.begin("wfr_a")
    service.wait(endpoint.waiters)
    assert service.http.delete("/v2/workflows/runs/wfr_a").status_code == 200
    assert endpoint.waiters() == []
    assert service.http.post("/v2/notify/paid").json() == []


def test_waiting_uses_no_slot_of_its_flow_control_key(
    service: Service, server: Server
) -> None:
    """A time-out is not a delivery: an exhausted key does not delay the step."""
    endpoint = Endpoint(service, server, timeout="1m")
    named = {
        "Upstash-Flow-Control-Key": "k",
        "Upstash-Flow-Control-Value": "parallelism=1",
    }
    plain = endpoint.headers
    endpoint.headers = lambda run_id, *, init=False: plain(run_id, init=init) | named  # type: ignore[method-assign]
    for number in range(3):
        endpoint.begin(f"wfr_{number}")
    service.wait(lambda: len(endpoint.waiters()) == 3)
    service.clock.advance(seconds=60)
    service.wait(lambda: len(endpoint.ended) == 3)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("wait/paid", b"{}", 400),
        ("wait/paid", b"[]", 400),
        ("wait/paid", b'{"url": 5, "step": {}}', 400),
        (
            "wait/paid",
            b'{"url": "http://127.0.0.1:9/", "step": {}, "timeout": "5x"}',
            400,
        ),
        (
            "wait/paid",
            b'{"url": "http://127.0.0.1:9/", "step": {}, "timeout": true}',
            400,
        ),
        ("wait/paid", b'{"url": "http://127.0.0.1:9/", "step": {}}', 400),
        ("wait/paid", b'{"url": "http://10.0.0.1/", "step": {}}', 400),
        (
            "wait/paid",
            b'{"url": "http://127.0.0.1:9/", "step": {"stepName": "\\ud800"}}',
            400,
        ),
        (
            "wait/paid",
            b'{"url": "http://127.0.0.1:9/", "step": {}, "timeoutUrl": "\\ud800"}',
            400,
        ),
        ("wait/pa:id", b'{"url": "http://127.0.0.1:9/", "step": {}}', 400),
        ("notify/pa:id", b"", 400),
        ("notify/wfr_unknown/paid", b"", 404),
    ],
)
def test_malformed_waits_are_refused(
    shared: Service, path: str, body: bytes, status: int
) -> None:
    """With a message that says what was expected."""
    response = shared.http.post(f"/v2/{path}", content=body)
    assert response.status_code == status, response.text
    assert "expected" in response.json()["error"]

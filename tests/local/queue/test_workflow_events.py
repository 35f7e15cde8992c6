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
    """A workflow endpoint of two steps: wait for an event, then end with what it brought."""

    def __init__(self, service: Service, server: Server, *, timeout: Any = "1h") -> None:
        self.service = service
        self.url = f"{server.url}/workflow"
        self.timeout = timeout
        self.ended: dict[str, dict[str, Any]] = {}
        self.reply = type(server.answer(None))
        server.answer = self.answer

    def headers(self, run_id: str, *, init: bool = False) -> dict[str, str]:
        """What every request of a run carries."""
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
        message = {"destination": self.url, "body": event_id, "headers": self.headers(run_id, init=True)}
        assert self.service.http.post("/v2/batch", json=[message]).status_code == 200
        return run_id

    def answer(self, asked: Any) -> Any:
        """Wait, or end."""
        headers = {name.lower(): value for name, value in asked.headers.items()}
        assert headers["upstash-workflow-sdk-version"] == "1"
        run_id = headers["upstash-workflow-runid"]
        first, *done = [base64.b64decode(item["body"]).decode() for item in json.loads(asked.body)]
        if done:
            self.ended[run_id] = json.loads(done[0])
            self.service.http.delete(f"/v2/workflows/runs/{run_id}", params={"cancel": "false"})
            return self.reply(200, {}, b"{}")
        return self.reply(self.wait(run_id, first).status_code, {}, b"{}")

    def wait(self, run_id: str, event_id: str) -> Any:
        """Ask the service to wait."""
        body = {
            "url": self.url,
            "timeout": self.timeout,
            "timeoutUrl": self.url,
            "timeoutHeaders": {"Upstash-Workflow-Runid": [run_id]},
            "step": {"stepId": 1, "stepType": "Wait", "stepName": "payment", "concurrent": 1},
        }
        return self.service.http.post(f"/v2/wait/{event_id}", json=body, headers=self.headers(run_id))

    def waiters(self, event_id: str = "paid") -> list[dict[str, Any]]:
        """Who waits."""
        found: list[dict[str, Any]] = self.service.http.get(f"/v2/waiters/{event_id}").json()
        return found


def test_an_event_goes_to_all_who_wait_for_it(service: Service, server: Server) -> None:
    """Both runs go on with its data byte for byte; a run that waits for another event does not."""
    endpoint = Endpoint(service, server)
    for run_id, event_id in (("wfr_a", "paid"), ("wfr_b", "paid"), ("wfr_c", "sent")):
        endpoint.begin(run_id, event_id)
    (first, _) = service.wait(lambda: len(found := endpoint.waiters()) == 2 and found)
    assert set(first) == {"url", "headers", "deadline", "timeoutUrl", "timeoutBody", "timeoutHeaders"}
    assert (first["url"], first["timeoutUrl"]) == (endpoint.url, endpoint.url)
    assert first["deadline"] == service.clock.now_ms() + 3_600_000
    assert first["timeoutHeaders"]["Upstash-Workflow-Runid"][0] in ("wfr_a", "wfr_b")
    told = service.http.post("/v2/notify/paid", content=b'{"sum": "\xe2\x82\xac 5"}\x00').json()
    assert {one["workflowRunId"] for one in told} == {"wfr_a", "wfr_b"}
    assert all(one["messageId"].startswith("msg_") and one["waiter"]["url"] for one in told)
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


@pytest.mark.parametrize(("timeout", "seconds"), [("2m", 120), (90, 90), ("90", 90), (None, 7 * 86_400)])
def test_a_wait_ends_when_it_has_lasted_too_long(
    service: Service, server: Server, timeout: Any, seconds: int
) -> None:
    """As a duration or in seconds, seven days unless said; the step then says so and has no data."""
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


def test_an_event_for_one_run_is_kept_until_it_waits(service: Service, server: Server) -> None:
    """Told before the run waits it is not lost, told to one it is not told to the other, and once is once."""
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
    told = service.http.post("/v2/notify/wfr_d/paid", content=b"mine").json()
    assert told["workflowRunId"] == "wfr_d"
    service.wait(lambda: "wfr_d" in endpoint.ended)
    assert len(endpoint.waiters()) == 1
    assert service.http.post("/v2/notify/wfr_d/paid").status_code == 404


def test_a_wait_that_is_asked_for_twice_is_one_wait(service: Service, server: Server) -> None:
    """An endpoint that is asked again while its run waits does not wait twice."""
    endpoint = Endpoint(service, server)
    endpoint.begin("wfr_a")
    service.wait(endpoint.waiters)
    again = endpoint.wait("wfr_a", "paid").json()
    assert again["deduplicated"] is True
    assert len(endpoint.waiters()) == 1
    service.http.post("/v2/notify/paid", content=b"1")
    service.wait(lambda: endpoint.ended)
    assert endpoint.wait("wfr_a", "paid").status_code == 404


def test_waits_and_events_outlive_a_restart(served: Callable[..., Any], server: Server) -> None:
    """A wait goes on after the service was started again, and so does an event that was kept for a run."""
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
        assert base64.b64decode(service.wait(lambda: endpoint.ended.get("wfr_b"))["out"]) == b"kept"
        service.clock.advance(seconds=3540)
        assert service.wait(lambda: endpoint.ended.get("wfr_a"))["waitTimeout"] is True


def test_canceled_runs_wait_no_more(service: Service, server: Server) -> None:
    """The waiter goes with its run."""
    endpoint = Endpoint(service, server)
    endpoint.begin("wfr_a")
    service.wait(endpoint.waiters)
    assert service.http.delete("/v2/workflows/runs/wfr_a").status_code == 200
    assert endpoint.waiters() == []
    assert service.http.post("/v2/notify/paid").json() == []


def test_waiting_takes_no_place_of_its_flow_control_key(service: Service, server: Server) -> None:
    """A time-out is no delivery: a key without room does not hold it back from becoming a step."""
    endpoint = Endpoint(service, server, timeout="1m")
    named = {"Upstash-Flow-Control-Key": "k", "Upstash-Flow-Control-Value": "parallelism=1"}
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
        ("wait/paid", b'{"url": "http://127.0.0.1:9/", "step": {}, "timeout": "5x"}', 400),
        ("wait/paid", b'{"url": "http://127.0.0.1:9/", "step": {}, "timeout": true}', 400),
        ("wait/paid", b'{"url": "http://127.0.0.1:9/", "step": {}}', 400),
        ("wait/paid", b'{"url": "http://10.0.0.1/", "step": {}}', 400),
        ("wait/paid", b'{"url": "http://127.0.0.1:9/", "step": {"stepName": "\\ud800"}}', 400),
        ("wait/paid", b'{"url": "http://127.0.0.1:9/", "step": {}, "timeoutUrl": "\\ud800"}', 400),
        ("wait/pa:id", b'{"url": "http://127.0.0.1:9/", "step": {}}', 400),
        ("notify/pa:id", b"", 400),
        ("notify/wfr_unknown/paid", b"", 404),
    ],
)
def test_waits_that_are_not_understood_are_refused(
    shared: Service, path: str, body: bytes, status: int
) -> None:
    """With a sentence that says what was expected."""
    response = shared.http.post(f"/v2/{path}", content=body)
    assert response.status_code == status, response.text
    assert "expected" in response.json()["error"]

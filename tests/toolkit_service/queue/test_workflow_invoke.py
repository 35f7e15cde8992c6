"""A run that invokes another one, on the wire as the TypeScript package speaks it, and gets its result."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

Service = Any
Server = Any


class Endpoints:
    """Two workflows: ``/outer`` invokes ``/inner`` in its one step; ``/inner`` responds as `inner` says."""

    def __init__(self, service: Service, server: Server, inner: str) -> None:
        self.service, self.inner = service, inner
        self.url = server.url
        self.result: dict[str, Any] = {}
        self.payload = b""
        self.reply = type(server.respond(None))
        server.respond = self.respond

    def headers(self, path: str, run_id: str, *, init: bool) -> dict[str, str]:
        """The headers of every publish of a run."""
        return {
            "Upstash-Workflow-Init": str(init).lower(),
            "Upstash-Workflow-RunId": run_id,
            "Upstash-Workflow-Url": f"{self.url}{path}",
            "Upstash-Forward-Upstash-Workflow-Sdk-Version": "1",
            "Upstash-Retries": "0",
        }

    def begin(self) -> None:
        """Start the outer run."""
        headers = self.headers("/outer", "wfr_outer", init=True)
        assert (
            self.service.http.post(
                f"/v2/publish/{self.url}/outer", headers=headers
            ).status_code
            == 200
        )

    def respond(self, request: Any) -> Any:
        """The responses of both applications."""
        run_id = request.headers["Upstash-Workflow-RunId"]
        first, *done = [
            base64.b64decode(item["body"]) for item in json.loads(request.body)
        ]
        if request.path == "/inner":
            self.payload = first
            if self.inner == "fails":
                return self.reply(500)
            if self.inner == "ends":
                parameters = {"cancel": "false"}
                self.service.http.request(
                    "DELETE",
                    f"/v2/workflows/runs/{run_id}",
                    params=parameters,
                    content=b'{"is": "\xc3\xbc"}',
                )
        elif done:
            self.result = json.loads(done[0])
            self.service.http.delete(
                f"/v2/workflows/runs/{run_id}", params={"cancel": "false"}
            )
        else:
            body = {
                "body": "the payload",
                "headers": {
                    k: [v]
                    for k, v in self.headers("/outer", run_id, init=False).items()
                },
                "workflowRunId": run_id,
                "workflowUrl": f"{self.url}/outer",
                "workflowRunCreatedAt": 0,
                "step": {
                    "stepId": 1,
                    "stepName": "ask",
                    "stepType": "Invoke",
                    "concurrent": 1,
                },
            }
            headers = {
                **self.headers("/inner", "wfr_inner", init=True),
                "Upstash-Workflow-Invoke": "true",
            }
            self.service.http.post(
                f"/v2/publish/{self.url}/inner", json=body, headers=headers
            )
        return self.reply(200, {}, b"{}")


@pytest.mark.parametrize(
    ("inner", "out"),
    [
        ("ends", {"body": '{"is": "ü"}', "isFailed": False, "isCanceled": False}),
        ("fails", {"body": "", "isFailed": True, "isCanceled": False}),
        ("sleeps", {"body": "", "isFailed": False, "isCanceled": True}),
    ],
)
def test_the_invoking_run_is_notified_of_the_outcome(
    service: Service, server: Server, inner: str, out: dict[str, Any]
) -> None:
    """Result, failure or cancellation becomes the step; both runs end, and the log names the invoker."""
    endpoints = Endpoints(service, server, inner)
    endpoints.begin()
    service.wait(lambda: endpoints.payload)
    if inner == "sleeps":
        assert endpoints.result == {}
        assert service.http.delete("/v2/workflows/runs/wfr_inner").status_code == 200
    service.wait(lambda: endpoints.result)
    assert endpoints.payload == b"the payload"
    assert json.loads(endpoints.result["out"]) == out
    assert (endpoints.result["stepName"], endpoints.result["stepType"]) == (
        "ask",
        "Invoke",
    )

    def states() -> dict[str, str]:
        runs = service.http.get("/v2/workflows/logs").json()["runs"]
        return {run["workflowRunId"]: run["workflowState"] for run in runs}

    ended = {"ends": "RUN_SUCCESS", "fails": "RUN_FAILED", "sleeps": "RUN_CANCELED"}[
        inner
    ]
    service.wait(lambda: states() == {"wfr_outer": "RUN_SUCCESS", "wfr_inner": ended})
    (run,) = service.http.get(
        "/v2/workflows/logs", params={"workflowRunId": "wfr_inner"}
    ).json()["runs"]
    assert run["invoker"] == {
        "workflowRunId": "wfr_outer",
        "workflowUrl": f"{server.url}/outer",
    }


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"workflowUrl": "http://127.0.0.1:9/", "step": {}, "headers": {}}'],
)
def test_invocations_that_are_not_understood_are_refused(
    shared: Service, body: bytes
) -> None:
    """With 400 and what was expected; no run is started."""
    headers = {
        "Upstash-Workflow-Init": "true",
        "Upstash-Workflow-Invoke": "true",
        "Upstash-Workflow-RunId": "wfr_odd",
    }
    response = shared.http.post(
        "/v2/publish/http://127.0.0.1:9/", content=body, headers=headers
    )
    assert response.status_code == 400
    assert "expected" in response.json()["error"]
    assert shared.http.get("/v2/workflows/logs").json()["runs"] == []

"""Workflow runs on the wire, with an endpoint written by hand: steps, sleeps, calls, failures, restarts."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

Service = Any
Server = Any


@dataclass
class Application:
    """A workflow endpoint: runs one new step a delivery, as `steps` say, and posts its result to the queue.

    A step is a function of the initial payload and the results so far; "sleep" and a call are tuples.
    """

    service: Any
    server: Any
    steps: list[Callable[[Any, list[Any]], Any]]
    retries: str = "0"
    prefix: str = "Upstash"
    broken: set[int] = field(default_factory=set)
    ran: list[tuple[str, int]] = field(default_factory=list)
    failures: list[Any] = field(default_factory=list)
    takes_calls: bool = True
    failure_status: int = 200
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.reply = type(self.server.respond(None))
        self.server.respond = self.respond
        self.url = f"{self.server.url}/workflow"

    def headers(self, run_id: str, *, init: bool, **more: str) -> dict[str, str]:
        """The headers of every publish of a run."""
        return {
            f"{self.prefix}-Workflow-Init": str(init).lower(),
            f"{self.prefix}-Workflow-RunId": run_id,
            f"{self.prefix}-Workflow-Url": self.url,
            f"{self.prefix}-Feature-Set": "LazyFetch,InitialBody",
            f"{self.prefix}-Forward-Upstash-Workflow-Sdk-Version": "1",
            f"{self.prefix}-Forward-X-User": "ann",
            f"{self.prefix}-Retries": self.retries,
            f"{self.prefix}-Failure-Callback": self.url,
            f"{self.prefix}-Failure-Callback-Forward-Upstash-Workflow-Is-Failure": "true",
            **{
                f"{self.prefix}-{name.replace('_', '-')}": value
                for name, value in more.items()
            },
        }

    def post(
        self, body: str, headers: dict[str, str], destination: str | None = None
    ) -> None:
        """Publish one message of the run."""
        message = {
            "destination": destination or self.url,
            "body": body,
            "headers": headers,
        }
        response = self.service.http.post("/v2/batch", json=[message])
        assert response.status_code == 200, response.text

    def begin(self, payload: str, run_id: str = "wfr_one", **more: str) -> str:
        """Start a run, as the endpoint does when it is called from outside."""
        self.post(payload, self.headers(run_id, init=True, **more))
        return run_id

    def respond(self, request: Any) -> Any:
        """The application's response to a delivery, a callback, or a failure callback."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        if request.path == "/third-party":
            return self.reply(201, {}, b"called")
        if headers.get("upstash-workflow-is-failure"):
            self.failures.append((headers, json.loads(request.body)))
            return self.reply(self.failure_status)
        if headers.get("upstash-workflow-callback"):
            return self.take_call(headers, json.loads(request.body))
        assert headers["upstash-workflow-sdk-version"] == "1"
        assert headers["x-user"] == "ann"
        return self.step(
            headers[f"{self.prefix.lower()}-workflow-runid"], json.loads(request.body)
        )

    def take_call(self, headers: dict[str, str], told: dict[str, Any]) -> Any:
        """Post the response of a call as the step's result."""
        if not self.takes_calls:
            return self.reply(500, {}, b'{"message": "not now"}')
        out = {
            "status": told["status"],
            "body": base64.b64decode(told["body"]).decode(),
        }
        run_id = headers["upstash-workflow-runid"]
        step = {
            "stepId": int(headers["upstash-workflow-stepid"]),
            "stepType": "Call",
            "out": json.dumps(out),
        }
        response = self.service.http.post(
            f"/v2/publish/{self.url}",
            content=json.dumps(step),
            headers=self.headers(run_id, init=False),
        )
        return self.reply(response.status_code)

    def step(self, run_id: str, history: list[dict[str, Any]]) -> Any:
        """Run the first step that the history does not hold, or end the run."""
        assert all(item["callType"] == "step" for item in history)
        first, *done = [base64.b64decode(item["body"]).decode() for item in history]
        results = [json.loads(json.loads(step)["out"]) for step in done]
        number = len(results)
        if number == len(self.steps):
            self.service.http.delete(
                f"/v2/workflows/runs/{run_id}", params={"cancel": "false"}
            )
            return self.reply(200, {}, b"{}")
        with self.lock:
            self.ran.append((run_id, number))
        if number in self.broken:
            return self.reply(
                500,
                {},
                json.dumps({"error": "ValueError", "message": "no luck"}).encode(),
            )
        out = self.steps[number](json.loads(first), results)
        step = {
            "stepId": number + 1,
            "stepName": f"s{number}",
            "stepType": "Run",
            "out": json.dumps(out),
            "concurrent": 1,
        }
        more = {}
        if isinstance(out, tuple) and out[0] == "sleep":
            step |= {"stepType": "SleepFor", "out": json.dumps(None)}
            more = {"Delay": out[1]}
        if isinstance(out, tuple) and out[0] == "call":
            self.call(run_id, number + 1)
        else:
            self.post(json.dumps(step), self.headers(run_id, init=False, **more))
        return self.reply(200, {}, b"{}")

    def call(self, run_id: str, step_id: int) -> None:
        """Make the queue call a third party and return its response."""
        back = {
            "Callback": self.url,
            "Callback-Workflow-RunId": run_id,
            "Callback-Workflow-CallType": "fromCallback",
            "Callback-Workflow-Init": "false",
            "Callback-Workflow-Url": self.url,
            "Callback-Forward-Upstash-Workflow-Callback": "true",
            "Callback-Forward-Upstash-Workflow-StepId": str(step_id),
            "Workflow-CallType": "toCallback",
            "Workflow-RunId": run_id,
            "Workflow-Init": "false",
            "Workflow-Url": self.url,
        }
        headers = {f"{self.prefix}-{name}": value for name, value in back.items()}
        self.post("to them", headers, f"{self.server.url}/third-party")


def run_of(service: Service, run_id: str) -> dict[str, Any]:
    actual = service.http.get(
        "/v2/workflows/logs", params={"workflowRunId": run_id}
    ).json()["runs"]
    return actual[0] if actual else {}


def steps_of(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for group in run.get("steps", ()) for step in group["steps"]]


def ended(service: Service, run_id: str) -> Callable[[], Any]:
    return lambda: (
        (run := run_of(service, run_id)).get("workflowState", "RUN_STARTED")
        != "RUN_STARTED"
        and run
    )


@pytest.mark.parametrize("prefix", ["Upstash", "Service"])
def test_a_run_of_steps_with_a_sleep_comes_to_its_end(
    service: Service, server: Server, prefix: str
) -> None:
    """Each step runs once, with the payload and all results before it; the sleep waits for the clock."""
    app = Application(
        service,
        server,
        [
            lambda payload, _: payload["n"] + 1,
            lambda *_: ("sleep", "1h"),
            lambda payload, results: [payload["n"], results],
        ],
        prefix=prefix,
    )
    run_id = app.begin('{"n": 1}', Label="red, green")
    service.wait(lambda: (run_id, 1) in app.ran)
    service.wait(
        lambda: len(service.http.get(f"/v2/workflows/runs/{run_id}").json()) == 3
    )
    assert (run_id, 2) not in app.ran
    service.clock.advance(seconds=3600)
    run = service.wait(ended(service, run_id))
    assert app.ran == [(run_id, 0), (run_id, 1), (run_id, 2)]
    assert run["workflowState"] == "RUN_SUCCESS"
    assert run["workflowUrl"] == app.url
    assert run["labels"] == ["red", "green"]
    assert run["workflowRunCompletedAt"] - run["workflowRunCreatedAt"] == 3_600_000
    assert "dlqId" not in run
    steps = [
        json.loads(base64.b64decode(item["body"]))
        for item in service.http.get(f"/v2/workflows/runs/{run_id}").json()
    ]
    assert steps[0] == {"n": 1}
    assert json.loads(steps[3]["out"]) == [1, [2, None]]
    assert service.dlq("workflows/dlq") == []
    canceled = {"workflowRunId": run_id, "state": "CANCELED"}
    assert service.http.get("/v2/logs", params=canceled).json()["events"] == []


def test_a_call_to_a_third_party_comes_back_as_a_step(
    service: Service, server: Server
) -> None:
    """The third party's response reaches the endpoint by callback and becomes the step's result."""
    app = Application(
        service, server, [lambda *_: ("call",), lambda _, results: results]
    )
    run_id = app.begin("{}")
    assert service.wait(ended(service, run_id))["workflowState"] == "RUN_SUCCESS"
    steps = service.http.get(f"/v2/workflows/runs/{run_id}").json()
    assert json.loads(json.loads(base64.b64decode(steps[2]["body"]))["out"]) == [
        {"status": 201, "body": "called"}
    ]
    (called,) = [
        request for request in server.requests if request.path == "/third-party"
    ]
    assert called.body == b"to them"


def test_a_call_whose_response_is_not_accepted_fails_the_run(
    service: Service, server: Server
) -> None:
    """The failure function is called; resumed, the run uses the stored response, without a second call."""
    app = Application(
        service,
        server,
        [lambda *_: ("call",), lambda _, results: results],
        takes_calls=False,
    )
    run_id = app.begin("{}")
    service.run_out(lambda: app.failures, step=60)
    (entry,) = service.dlq("workflows/dlq", workflowRunId=run_id)
    assert json.loads(entry["responseBody"]) == {"message": "not now"}
    assert run_of(service, run_id)["workflowState"] == "RUN_FAILED"
    app.takes_calls = True
    resumed = service.http.post(f"/v2/workflows/dlq/resume/{entry['dlqId']}").json()[
        "workflowRunId"
    ]
    assert service.wait(ended(service, resumed))["workflowState"] == "RUN_SUCCESS"
    assert (
        len([request for request in server.requests if request.path == "/third-party"])
        == 1
    )


def failing_run(
    service: Service, server: Server, **options: Any
) -> tuple[Application, dict[str, Any]]:
    """A run of three steps whose second always fails, and its DLQ entry once the failure function has run."""
    app = Application(
        service,
        server,
        [lambda *_: "one", lambda *_: "two", lambda *_: "three"],
        **options,
    )
    app.broken = {1}
    run_id = app.begin(
        '{"n": 1}',
        Label="red",
        Flow_Control_Key="k",
        Flow_Control_Value="parallelism=9",
    )
    service.run_out(lambda: app.failures, step=60)
    (entry,) = service.run_out(
        lambda: [
            e
            for e in service.dlq("workflows/dlq", workflowRunId=run_id)
            if "PROGRESS" not in e["failureFunctionState"]
        ],
        step=60,
    )
    return app, entry


def test_a_step_that_keeps_failing_puts_the_run_into_the_dlq(
    service: Service, server: Server
) -> None:
    """Every field of the entry is there, the run has failed, and the failure function was called."""
    app, entry = failing_run(service, server, retries="2")
    assert app.ran == [("wfr_one", 0), ("wfr_one", 1), ("wfr_one", 1), ("wfr_one", 1)]
    assert set(entry) == {
        "dlqId", "messageId", "workflowUrl", "workflowRunId", "workflowCreatedAt", "url", "method", "header",
        "body", "bodyBase64", "maxRetries", "createdAt", "failureCallback", "callerIP", "label", "labels",
        "flowControlKey", "failureFunctionState", "responseStatus", "responseHeader", "responseBody",
        "responseBodyBase64",
    }  # fmt: skip
    assert entry["workflowRunId"] == "wfr_one"
    assert entry["workflowUrl"] == entry["url"] == entry["failureCallback"] == app.url
    assert (entry["label"], entry["labels"], entry["flowControlKey"]) == (
        "red",
        ["red"],
        "k",
    )
    assert (entry["maxRetries"], entry["responseStatus"]) == (2, 500)
    assert json.loads(entry["responseBody"])["message"] == "no luck"
    assert len(json.loads(entry["body"])) == 2
    assert entry["header"]["Upstash-Retried"] == ["2"]
    assert not any("signature" in name.lower() for name in entry["header"])
    assert entry["failureFunctionState"] == "CALLBACK_SUCCESS"
    run = run_of(service, "wfr_one")
    assert (run["workflowState"], run["dlqId"]) == ("RUN_FAILED", entry["dlqId"])
    assert run["workflowRunCreatedAt"] == entry["workflowCreatedAt"]
    ((headers, told),) = app.failures
    assert "upstash-workflow-sdk-version" not in headers
    assert headers["upstash-workflow-runid"] == told["workflowRunId"] == "wfr_one"
    assert told["status"] == 500
    assert json.loads(base64.b64decode(told["body"]))["message"] == "no luck"
    assert json.loads(base64.b64decode(told["sourceBody"])) == {"n": 1}
    assert told["dlqId"] == entry["dlqId"]


def test_resume_continues_at_the_failed_step(service: Service, server: Server) -> None:
    """Under a new run id, without running finished steps again; the entry leaves the DLQ."""
    app, entry = failing_run(service, server)
    app.broken = set()
    app.ran.clear()
    response = service.http.post(f"/v2/workflows/dlq/resume/{entry['dlqId']}").json()
    run_id = response["workflowRunId"]
    assert run_id != "wfr_one"
    assert service.wait(ended(service, run_id))["workflowState"] == "RUN_SUCCESS"
    assert app.ran == [(run_id, 1), (run_id, 2)]
    assert service.dlq("workflows/dlq") == []
    assert (
        run_of(service, run_id)["workflowRunCreatedAt"] == response["workflowCreatedAt"]
    )
    assert (
        service.http.post(f"/v2/workflows/dlq/resume/{entry['dlqId']}").status_code
        == 404
    )


def test_restart_begins_anew(service: Service, server: Server) -> None:
    """Under a new run id, with the payload of the old one and all steps again."""
    app, entry = failing_run(service, server)
    app.broken = set()
    app.ran.clear()
    run_id = service.http.post(f"/v2/workflows/dlq/restart/{entry['dlqId']}").json()[
        "workflowRunId"
    ]
    service.wait(ended(service, run_id))
    assert app.ran == [(run_id, 0), (run_id, 1), (run_id, 2)]
    assert service.dlq("workflows/dlq") == []


@pytest.mark.parametrize("action", ["resume", "restart"])
def test_a_run_is_started_again_as_requested(
    service: Service, server: Server, action: str
) -> None:
    """Under the id, with the retries, labels and flow control of the request; that id once only."""
    _, entry = failing_run(service, server)
    headers = {
        "Service-Workflow-RunId": "wfr_again",
        "Service-Retries": "0",
        "Service-Label": "second",
        "Service-Flow-Control-Key": "few",
        "Service-Flow-Control-Value": "parallelism=1",
    }
    path = f"/v2/workflows/dlq/{action}"
    assert (
        service.http.post(f"{path}/{entry['dlqId']}", headers=headers).json()[
            "workflowRunId"
        ]
        == "wfr_again"
    )
    (again,) = service.wait(
        lambda: [
            entry
            for entry in service.dlq("workflows/dlq", workflowRunId="wfr_again")
            if "PROGRESS" not in entry["failureFunctionState"]
        ]
    )
    assert (again["maxRetries"], again["labels"], again["flowControlKey"]) == (
        0,
        ["second"],
        "few",
    )
    assert run_of(service, "wfr_again")["labels"] == ["second"]
    refused = service.http.post(f"{path}/{again['dlqId']}", headers=headers)
    assert (refused.status_code, "wfr_again" in refused.text) == (409, True)
    assert service.dlq("workflows/dlq") == [again]


def test_settings_of_a_restart_are_checked(service: Service, server: Server) -> None:
    """A header that is not understood is an error, and the entry stays."""
    _, entry = failing_run(service, server)
    path = f"/v2/workflows/dlq/restart/{entry['dlqId']}"
    response = service.http.post(path, headers={"Service-Retries": "many"})
    assert (response.status_code, "service-retries" in response.text.lower()) == (
        400,
        True,
    )
    assert service.dlq("workflows/dlq") == [entry]


def test_resumed_runs_can_fail_again(service: Service, server: Server) -> None:
    """A resumed run that fails has its own DLQ entry, under its own id."""
    app, entry = failing_run(service, server)
    run_id = service.http.post(f"/v2/workflows/dlq/resume/{entry['dlqId']}").json()[
        "workflowRunId"
    ]
    service.run_out(lambda: service.dlq("workflows/dlq", workflowRunId=run_id), step=60)
    assert len(service.dlq("workflows/dlq")) == 1
    assert [run for run, _ in app.ran][-1] == run_id


@pytest.mark.parametrize("action", ["resume", "restart"])
def test_runs_are_started_again_in_bulk(
    service: Service, server: Server, action: str
) -> None:
    """By ids, in the query or the body, and by filters; without either, the response is 400."""
    app = Application(service, server, [lambda *_: 1])
    app.broken = {0}
    for number in range(5):
        app.begin("{}", f"wfr_{number}", Label=f"l{number % 2}")
    entries = service.wait(
        lambda: len(actual := service.dlq("workflows/dlq")) == 5 and actual
    )
    app.broken = set()
    path = f"/v2/workflows/dlq/{action}"
    assert service.http.post(path).status_code == 400
    ids = {entry["workflowRunId"]: entry["dlqId"] for entry in entries}
    by_query = service.http.post(
        path, params={"dlqIds": f"{ids['wfr_0']},{ids['wfr_1']}"}
    ).json()
    by_body = service.http.post(path, json={"dlqIds": [ids["wfr_2"]]}).json()
    by_filter = service.http.post(path, params={"label": "l1"}).json()
    runs = [
        run["workflowRunId"]
        for response in (by_query, by_body, by_filter)
        for run in response["workflowRuns"]
    ]
    assert [
        len(response["workflowRuns"]) for response in (by_query, by_body, by_filter)
    ] == [2, 1, 1]
    assert {response["cursor"] for response in (by_query, by_body, by_filter)} == {""}
    for run_id in runs:
        service.wait(ended(service, run_id))
    assert [entry["workflowRunId"] for entry in service.dlq("workflows/dlq")] == [
        "wfr_4"
    ]


def test_the_failure_function_can_be_run_again(
    service: Service, server: Server
) -> None:
    """A failed one runs again on request, with the same report, and the state follows it."""
    app, entry = failing_run(service, server, failure_status=500)
    assert entry["failureFunctionState"] == "CALLBACK_FAIL"
    told = app.failures[-1][1]
    app.failures.clear()
    app.failure_status = 200
    response = service.http.post(f"/v2/workflows/dlq/callback/{entry['dlqId']}")
    assert response.json()["workflowRunId"] == "wfr_one"
    service.wait(
        lambda: service.dlq("workflows/dlq", failureFunctionState="CALLBACK_SUCCESS")
    )
    again = app.failures[-1][1]
    assert {k: v for k, v in again.items() if k != "sourceHeader"} == {
        k: v for k, v in told.items() if k != "sourceHeader"
    }
    assert (
        service.http.post(f"/v2/workflows/dlq/callback/{entry['dlqId']}").status_code
        == 200
    )


def test_a_run_can_be_canceled(service: Service, server: Server) -> None:
    """Nothing more is delivered, the run is cancelled, and it cannot be cancelled twice."""
    app = Application(service, server, [lambda *_: ("sleep", "1h"), lambda *_: 1])
    run_id = app.begin("{}")
    service.wait(
        lambda: len(service.http.get(f"/v2/workflows/runs/{run_id}").json()) == 2
    )
    assert service.http.delete(f"/v2/workflows/runs/{run_id}").status_code == 200
    assert run_of(service, run_id)["workflowState"] == "RUN_CANCELED"
    service.clock.advance(seconds=7200)
    assert service.http.delete(f"/v2/workflows/runs/{run_id}").status_code == 404
    assert service.http.delete("/v2/workflows/runs/wfr_unknown").status_code == 404
    assert app.ran == [(run_id, 0)]


def test_canceling_a_failed_run_cancels_its_failure_function(
    service: Service, server: Server
) -> None:
    """While the failure function waits, canceling the run leaves CALLBACK_CANCELED and nothing is sent."""
    app = Application(service, server, [lambda *_: 1])
    app.broken = {0}
    run_id = app.begin("{}", Failure_Callback_Delay="1h")
    service.wait(
        lambda: service.dlq("workflows/dlq", failureFunctionState="CALLBACK_INPROGRESS")
    )
    assert service.http.delete(f"/v2/workflows/runs/{run_id}").status_code == 200
    (entry,) = service.dlq("workflows/dlq")
    assert entry["failureFunctionState"] == "CALLBACK_CANCELED"
    service.clock.advance(seconds=7200)
    assert app.failures == []


def test_the_failure_function_of_an_entry_is_canceled(
    service: Service, server: Server
) -> None:
    """Only while it is in progress; the entry stays, and it can be called again."""
    app = Application(service, server, [lambda *_: 1])
    app.broken = {0}
    app.begin("{}", Failure_Callback_Delay="1h")
    service.wait(
        lambda: service.dlq("workflows/dlq", failureFunctionState="CALLBACK_INPROGRESS")
    )
    path = f"/v2/workflows/dlq/callback/{service.dlq('workflows/dlq')[0]['dlqId']}"
    assert service.http.delete(path).status_code == 200
    assert (
        service.dlq("workflows/dlq")[0]["failureFunctionState"] == "CALLBACK_CANCELED"
    )
    assert "got CALLBACK_CANCELED" in service.http.delete(path).json()["error"]
    service.clock.advance(seconds=7200)
    assert app.failures == []
    assert service.http.post(path).status_code == 200
    service.clock.advance(seconds=7200)
    service.wait(lambda: app.failures)
    assert service.http.delete("/v2/workflows/dlq/callback/unknown").status_code == 404


def test_the_log_leaves_outputs_out_on_request(
    service: Service, server: Server
) -> None:
    """With trimBody, everything else of the steps is as without."""
    app = Application(service, server, [lambda *_: 1, lambda *_: "done"])
    run_id = app.begin("{}")
    service.wait(lambda: run_of(service, run_id)["workflowState"] == "RUN_SUCCESS")

    def steps(trim: str) -> list[dict[str, Any]]:
        (run,) = service.http.get(
            "/v2/workflows/logs", params={"trimBody": trim}
        ).json()["runs"]
        return [step for group in run["steps"] for step in group["steps"]]

    whole = steps("false")
    assert len([step.pop("out") for step in whole[1:]]) == 2
    assert steps("true") == whole


def test_trigger_starts_a_run(service: Service, server: Server) -> None:
    """The endpoint gets the payload as if it had started the run itself."""
    app = Application(service, server, [lambda payload, _: payload], prefix="Service")
    response = service.http.post(
        f"/v2/trigger/{app.url}",
        content=b'{"n": 5}',
        headers={
            "Service-Forward-X-User": "ann",
            "Service-Forward-Upstash-Workflow-Sdk-Version": "1",
        },
    ).json()
    assert response["workflowRunId"].startswith("wfr_")
    assert (
        service.wait(ended(service, response["workflowRunId"]))["workflowState"]
        == "RUN_SUCCESS"
    )


def test_a_batch_starts_runs(service: Service, server: Server) -> None:
    """Each item is a run with its own headers; a known run id starts none, and a bad item prevents all."""
    app = Application(service, server, [lambda payload, _: payload], prefix="Service")
    version = {
        "Service-Forward-Upstash-Workflow-Sdk-Version": "1",
        "Service-Forward-X-User": "ann",
    }
    named = version | {"Service-Label": "first", "Service-Workflow-RunId": "wfr_first"}
    items = [
        {"destination": app.url, "body": '{"n": 1}', "headers": named},
        {"destination": app.url, "body": "{}", "headers": version},
    ]
    bad = service.http.post(
        "/v2/batch/trigger", json=[*items, {"destination": "nowhere"}]
    )
    assert (bad.status_code, "message 2" in bad.json()["error"]) == (400, True)
    not_initial = {
        "destination": app.url,
        "headers": {"Service-Workflow-CallType": "toCallback"},
    }
    assert (
        service.http.post("/v2/batch/trigger", json=[*items, not_initial]).status_code
        == 400
    )
    assert service.http.get("/v2/workflows/logs").json()["runs"] == []
    first, second = service.http.post("/v2/batch/trigger", json=items).json()
    assert (first["workflowRunId"], second["workflowRunId"][:4]) == (
        "wfr_first",
        "wfr_",
    )
    assert first["workflowCreatedAt"] == service.clock.now_ms()
    again = service.http.post("/v2/batch/trigger", json=items[:1]).json()
    assert again == [first | {"deduplicated": True}]
    run = service.wait(ended(service, "wfr_first"))
    assert (run["workflowState"], run["labels"]) == ("RUN_SUCCESS", ["first"])


def test_a_first_message_that_comes_twice_starts_one_run(
    service: Service, server: Server
) -> None:
    """The second is recognised by its run id, and the response names the first one's message."""
    app = Application(service, server, [lambda *_: ("sleep", "1h")])
    headers = app.headers("wfr_one", init=True)
    first = service.http.post(
        f"/v2/publish/{app.url}", content=b"{}", headers=headers
    ).json()
    again = service.http.post(
        f"/v2/publish/{app.url}", content=b"{}", headers=headers
    ).json()
    assert again == {"messageId": first["messageId"], "deduplicated": True}


def test_a_step_whose_delivery_was_cut_off_runs_again_and_counts_once(
    served: Callable[..., Any], server: Server
) -> None:
    """Its result was stored, not the response to its delivery: it is delivered again, and stored once."""
    released = threading.Event()
    with served() as service:
        app = Application(
            service, server, [lambda *_: "first", lambda *_: ("sleep", "1h")]
        )

        def respond(request: Any) -> Any:
            reply = app.respond(request)
            if len(json.loads(request.body)) == 1:
                # the delivery that made the first step run
                released.wait(20)
            return reply

        server.respond = respond
        run_id = app.begin("{}")
        service.wait(lambda: len(steps_of(run_of(service, run_id))) == 3)
        # the delivery of the second step is over, that of the first is not
        second = steps_of(run_of(service, run_id))[1]["messageId"]
        service.wait(lambda: "DELIVERED" in service.events(second))
    released.set()
    with served() as service:
        app.service = service
        service.wait(lambda: app.ran.count((run_id, 0)) == 2)
        run = service.run_out(ended(service, run_id))
    assert run["workflowState"] == "RUN_SUCCESS"
    assert [step["stepName"] for step in steps_of(run)] == ["init", "s0", "s1"]


def test_steps_of_runs_that_are_not_running_are_refused(
    service: Service, server: Server
) -> None:
    """404 for an unknown run and for one that has ended."""
    app = Application(service, server, [])
    step = {
        "destination": app.url,
        "body": "{}",
        "headers": app.headers("wfr_none", init=False),
    }
    assert service.http.post("/v2/batch", json=[step]).status_code == 404
    run_id = app.begin("{}")
    service.wait(ended(service, run_id))
    step["headers"] = app.headers(run_id, init=False)
    assert service.http.post("/v2/batch", json=[step]).status_code == 404


def test_the_run_log_lists_filters_and_pages(service: Service, server: Server) -> None:
    """Newest first, by state, label and date, filled-in runs exactly as given."""
    filled = [
        {
            "workflowRunId": f"wfr_old_{number}",
            "workflowUrl": "https://shop.example/a",
            "workflowState": "RUN_SUCCESS" if number % 2 else "RUN_CANCELED",
            "workflowRunCreatedAt": 1_790_000_000_000 + number,
            "workflowRunCompletedAt": 1_790_000_100_000,
            "labels": ["old"],
            "unheardOf": number,
        }
        for number in range(30)
    ]
    assert service.store.insert_runs(filled) == 30
    app = Application(service, server, [])
    service.wait(ended(service, app.begin("{}")))

    def pages(**parameters: Any) -> list[dict[str, Any]]:
        actual, cursor = [], ""
        while True:
            page = service.http.get(
                "/v2/workflows/logs",
                params={**parameters, "count": 7, "cursor": cursor},
            ).json()
            actual += page["runs"]
            if not (cursor := page["cursor"]):
                return actual

    assert pages()[0]["workflowRunId"] == "wfr_one"
    assert pages()[1:] == filled[::-1]
    assert pages(state="RUN_CANCELED") == filled[::-1][1::2]
    assert pages(label="old", fromDate=1_790_000_000_029) == filled[29:]
    assert pages(workflowUrl="https://shop.example/a") == filled[::-1]


def test_filled_in_failures_can_be_restarted(service: Service, server: Server) -> None:
    """An entry without its run starts one with its own body, headers and URL."""
    app = Application(service, server, [lambda payload, _: payload], prefix="Service")
    entry = {
        "dlqId": "sample",
        "url": app.url,
        "workflowUrl": app.url,
        "header": {
            "Upstash-Workflow-Sdk-Version": ["1"],
            "X-User": ["ann"],
            "Häder": ["\u2603"],
        },
        "body": '{"n": 7}',
    }
    service.store.insert_failures([entry])
    run_id = service.http.post("/v2/workflows/dlq/restart/sample").json()[
        "workflowRunId"
    ]
    service.run_out(
        lambda: run_of(service, run_id).get("workflowState") != "RUN_STARTED", step=60
    )
    assert service.http.get("/v2/workflows/dlq/sample").status_code == 404


@pytest.mark.parametrize("path", ["dlq", "workflows/dlq"])
def test_entries_are_deleted_singly_and_in_bulk(service: Service, path: str) -> None:
    """By id, by ids, and by filters up to count with a cursor; nothing without either."""
    made = [
        {
            "dlqId": f"d{n}",
            "labels": ["a" if n < 6 else "b"],
            "createdAt": service.clock.now_ms(),
        }
        for n in range(10)
    ]
    service.store.insert_failures(made, workflow=path != "dlq")
    assert service.http.delete(f"/v2/{path}/d0").status_code == 200
    assert service.http.delete(f"/v2/{path}/d0").status_code == 404
    assert service.http.delete(f"/v2/{path}").status_code == 400
    assert service.http.delete(
        f"/v2/{path}", params={"dlqIds": ["d1", "d2", "unknown"]}
    ).json() == {
        "deleted": 2,
        "cursor": "",
    }
    first = service.http.delete(f"/v2/{path}", params={"label": "a", "count": 2}).json()
    assert first["deleted"] == 2
    rest = service.http.delete(
        f"/v2/{path}", params={"label": "a", "cursor": first["cursor"]}
    ).json()
    assert rest == {"deleted": 1, "cursor": ""}
    assert sorted(entry["dlqId"] for entry in service.dlq(path)) == [
        "d6",
        "d7",
        "d8",
        "d9",
    ]


def test_plain_messages_are_retried_from_the_dlq(
    service: Service, server: Server
) -> None:
    """The message goes out again under a new id, and the entry is gone."""
    server.json(b"oops", 500)
    server.always(b"{}")
    service.publish(f"{server.url}/", b"again", Retries="0")
    (entry,) = service.wait(service.dlq)
    message = service.http.post(f"/v2/dlq/retry/{entry['dlqId']}").json()["messageId"]
    service.wait(lambda: "DELIVERED" in service.events(message))
    assert [request.body for request in server.requests] == [b"again", b"again"]
    assert service.dlq() == []

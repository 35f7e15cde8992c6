"""Parallel steps on the wire: plans, results in any order, failures in between, and the steps after them.

The endpoint is written by hand after the way of the TypeScript package: it posts a plan for each parallel
step, runs the one whose plan stands last in a delivery, and goes on with the delivery that holds all results.
"""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

import pytest

Service = Any
Server = Any
PARALLEL = (2, 3, 4)


class Endpoint:
    """One step, three in parallel (run, sleep for an hour, wait for an event), and a last one."""

    def __init__(self, service: Service, server: Server) -> None:
        self.service = service
        self.url = f"{server.url}/workflow"
        self.ran: list[tuple[str, int]] = []
        self.results: dict[str, list[Any]] = {}
        self.broken: set[int] = set()
        self.post_twice = False
        self.lock = threading.Lock()
        self.reply = type(server.respond(None))
        server.respond = self.respond

    def headers(
        self, run_id: str, *, init: bool = False, **more: str
    ) -> dict[str, str]:
        """The headers of every publish of a run."""
        return {
            "Upstash-Workflow-Init": str(init).lower(),
            "Upstash-Workflow-RunId": run_id,
            "Upstash-Workflow-Url": self.url,
            "Upstash-Forward-Upstash-Workflow-Sdk-Version": "1",
            "Upstash-Retries": "0",
            **{f"Upstash-{name}": value for name, value in more.items()},
        }

    def post(self, run_id: str, *steps: dict[str, Any]) -> list[dict[str, Any]]:
        """Publish steps in one batch; a planned sleep is delayed."""
        batch = [
            {
                "destination": self.url,
                "body": json.dumps(step),
                "headers": self.headers(
                    run_id,
                    **({"Delay": step["sleepFor"]} if "sleepFor" in step else {}),
                ),
            }
            for step in steps
        ]
        response = self.service.http.post("/v2/batch", json=batch)
        assert response.status_code == 200, response.text
        taken: list[dict[str, Any]] = response.json()
        return taken

    def begin(self, run_id: str = "wfr_one") -> str:
        """Start a run."""
        message = {
            "destination": self.url,
            "body": "{}",
            "headers": self.headers(run_id, init=True),
        }
        assert self.service.http.post("/v2/batch", json=[message]).status_code == 200
        return run_id

    def respond(self, request: Any) -> Any:
        """The application's response to a delivery."""
        run_id = request.headers["Upstash-Workflow-RunId"]
        try:
            self.step(
                run_id,
                [
                    json.loads(base64.b64decode(i["body"]))
                    for i in json.loads(request.body)
                ][1:],
            )
        except RuntimeError as error:
            return self.reply(
                500,
                {},
                json.dumps({"error": "RuntimeError", "message": str(error)}).encode(),
            )
        return self.reply(200, {}, b"{}")

    def step(self, run_id: str, history: list[dict[str, Any]]) -> None:
        """Run the step that the history requests."""
        results = {step["stepId"]: step for step in history if step["stepId"]}
        parallel = [
            s
            for s in history
            if s["stepId"] in PARALLEL or s.get("targetStep") in PARALLEL
        ]
        if 1 not in results:
            self.run(run_id, 1, 1)
        elif not parallel:
            plans = [
                {"stepId": 0, "stepName": f"s{n}", "concurrent": 3, "targetStep": n}
                for n in PARALLEL
            ]
            plans[1]["sleepFor"] = "1h"
            self.post(run_id, *plans)
        elif len(parallel) < 2 * len(PARALLEL):
            if not history[-1]["stepId"]:
                self.run(run_id, history[-1]["targetStep"], 3)
        elif 5 not in results:
            self.run(run_id, 5, 1)
        else:
            self.results[run_id] = [results[n].get("out") for n in range(1, 6)]
            self.service.http.delete(
                f"/v2/workflows/runs/{run_id}", params={"cancel": "false"}
            )

    def run(self, run_id: str, number: int, concurrent: int) -> None:
        """Run one step and post its result; the fourth waits for an event."""
        with self.lock:
            self.ran.append((run_id, number))
        if number in self.broken:
            raise RuntimeError("no luck")
        step = {
            "stepId": number,
            "stepName": f"s{number}",
            "stepType": "Run",
            "concurrent": concurrent,
        }
        if number == 4:
            body = {
                "url": self.url,
                "timeout": "1d",
                "step": {**step, "stepType": "Wait"},
            }
            self.service.http.post(
                "/v2/wait/go", json=body, headers=self.headers(run_id)
            )
            return
        self.post(run_id, {**step, "out": json.dumps(number)})
        if self.post_twice:
            (again,) = self.post(run_id, {**step, "out": json.dumps("again")})
            assert again["deduplicated"] is True

    def numbers(self, run_id: str) -> list[int]:
        """The steps of a run that ran, in order of their numbers."""
        return sorted(number for run, number in self.ran if run == run_id)

    def event(self) -> None:
        """Send the event that the fourth step waits for."""
        self.service.wait(lambda: self.service.http.get("/v2/waiters/go").json())
        self.service.http.post("/v2/notify/go", content=b"now")


def state(service: Service, run_id: str) -> str:
    (run,) = service.http.get(
        "/v2/workflows/logs", params={"workflowRunId": run_id}
    ).json()["runs"]
    actual: str = run["workflowState"]
    return actual


@pytest.mark.parametrize("posted", ["once", "twice"])
def test_parallel_steps_run_once_each_and_then_the_next(
    service: Service, server: Server, posted: str
) -> None:
    """In any order, each runs once, and the step after them once; also when results are repeated."""
    endpoint = Endpoint(service, server)
    endpoint.post_twice = posted == "twice"
    run_id = endpoint.begin()
    endpoint.event()
    service.wait(lambda: endpoint.numbers(run_id) == [1, 2, 4])
    service.http.get("/v2/keys")
    assert state(service, run_id) == "RUN_STARTED"
    service.clock.advance(seconds=3600)
    service.wait(lambda: state(service, run_id) == "RUN_SUCCESS")
    assert endpoint.numbers(run_id) == [1, 2, 3, 4, 5]
    assert endpoint.results[run_id] == [
        "1",
        "2",
        "3",
        base64.b64encode(b"now").decode(),
        "5",
    ]


def test_the_run_log_groups_parallel_steps(service: Service, server: Server) -> None:
    """Single steps in groups of one, the parallel ones together, plans not at all."""
    endpoint = Endpoint(service, server)
    run_id = endpoint.begin()
    endpoint.event()
    service.wait(lambda: endpoint.numbers(run_id) == [1, 2, 4])
    service.clock.advance(seconds=3600)
    service.wait(lambda: state(service, run_id) == "RUN_SUCCESS")
    (run,) = service.http.get(
        "/v2/workflows/logs", params={"workflowRunId": run_id}
    ).json()["runs"]
    shape = [
        (group["type"], sorted(step["stepName"] for step in group["steps"]))
        for group in run["steps"]
    ]
    assert shape == [
        ("sequential", ["init"]),
        ("sequential", ["s1"]),
        ("parallel", ["s2", "s3", "s4"]),
        ("sequential", ["s5"]),
    ]
    by_name = {
        step["stepName"]: step for group in run["steps"] for step in group["steps"]
    }
    assert by_name["s2"]["out"] == "2"
    assert by_name["s4"]["waitEventId"] == "go"
    message = by_name["s2"]["messageId"]
    assert service.http.get("/v2/workflows/logs", params={"messageId": message}).json()[
        "runs"
    ] == [run]


def test_a_run_resumes_with_all_that_it_had_under_way(
    service: Service, server: Server
) -> None:
    """The failed step runs again, the others keep sleeping and waiting, finished steps are not repeated."""
    endpoint = Endpoint(service, server)
    run_id = endpoint.begin()
    service.wait(lambda: service.http.get("/v2/waiters/go").json())
    service.wait(lambda: endpoint.numbers(run_id) == [1, 2, 4])
    endpoint.broken = {3}
    service.clock.advance(seconds=3600)
    (entry,) = service.wait(lambda: service.dlq("workflows/dlq"))
    assert state(service, run_id) == "RUN_FAILED"
    assert service.http.get("/v2/waiters/go").json() == []
    endpoint.broken = set()
    resumed = service.http.post(f"/v2/workflows/dlq/resume/{entry['dlqId']}").json()[
        "workflowRunId"
    ]
    service.wait(lambda: endpoint.numbers(resumed) == [3])
    endpoint.event()
    service.wait(lambda: state(service, resumed) == "RUN_SUCCESS")
    assert endpoint.numbers(resumed) == [3, 5]
    assert endpoint.results[resumed] == [
        "1",
        "2",
        "3",
        base64.b64encode(b"now").decode(),
        "5",
    ]


def test_a_sleep_continues_in_the_resumed_run(service: Service, server: Server) -> None:
    """Until its original time, not for its whole length again."""
    endpoint = Endpoint(service, server)
    endpoint.broken = {2}
    run_id = endpoint.begin()
    (entry,) = service.wait(lambda: service.dlq("workflows/dlq"))
    endpoint.broken = set()
    service.clock.advance(seconds=1800)
    resumed = service.http.post(f"/v2/workflows/dlq/resume/{entry['dlqId']}").json()[
        "workflowRunId"
    ]
    endpoint.event()
    service.wait(
        lambda: {2, 4} <= {*endpoint.numbers(run_id), *endpoint.numbers(resumed)}
    )
    assert 3 not in endpoint.numbers(resumed)
    service.clock.advance(seconds=1800)
    service.wait(lambda: state(service, resumed) == "RUN_SUCCESS")
    assert endpoint.numbers(resumed).count(3) == 1


def test_a_restart_forgets_what_was_under_way(service: Service, server: Server) -> None:
    """All steps run again, and the old waits are dropped."""
    endpoint = Endpoint(service, server)
    endpoint.broken = {2}
    endpoint.begin()
    (entry,) = service.wait(lambda: service.dlq("workflows/dlq"))
    endpoint.broken = set()
    restarted = service.http.post(f"/v2/workflows/dlq/restart/{entry['dlqId']}").json()[
        "workflowRunId"
    ]
    endpoint.event()
    service.wait(lambda: endpoint.numbers(restarted) == [1, 2, 4])
    service.clock.advance(seconds=3600)
    service.wait(lambda: state(service, restarted) == "RUN_SUCCESS")
    assert endpoint.numbers(restarted) == [1, 2, 3, 4, 5]

"""A FastAPI application written with the public workflow package, unchanged but for its base address."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

import toolkit as tk
from toolkit_service.demo.local_service import LocalService

pytestmark = pytest.mark.slow

Wait = Callable[..., Any]
STEPS = ["total", "book"]


@dataclass
class Application:
    """The application, running as a process of its own."""

    url: str

    def account(self) -> dict[str, Any]:
        """Its progress."""
        found: dict[str, Any] = httpx.get(f"{self.url}/account", timeout=10).json()
        return found

    def ran(self, run_id: str) -> list[str]:
        """The steps of a run that were executed, in order."""
        return [step for run, step in self.account()["done"] if run == run_id]

    def desk(self, state: str) -> None:
        """Open or close the payment desk."""
        httpx.post(f"{self.url}/desk/{state}", timeout=10)

    def payload(self, price: int = 3) -> dict[str, Any]:
        """The payload of a run."""
        return {"price": price, "pieces": 4, "desk": f"{self.url}/desk"}


@contextmanager
def application(
    service: LocalService, log: Path, **variables: str
) -> Iterator[Application]:
    """Run the application against a service."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = (
        os.environ
        | {"QSTASH_URL": service.url, "QSTASH_TOKEN": service.token}
        | variables
    )
    folder = Path(__file__).parent / "applications"
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "orders:app",
        "--app-dir",
        str(folder),
        "--port",
        str(port),
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        try:
            for _ in range(400):
                assert process.poll() is None, log.read_text()
                try:
                    httpx.get(f"http://127.0.0.1:{port}/account", timeout=5)
                    break
                except httpx.ConnectError:
                    process_wait(process)
            yield Application(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(10)


def process_wait(process: subprocess.Popen[bytes]) -> None:
    """Wait shortly for the process."""
    try:
        process.wait(0.05)
    except subprocess.TimeoutExpired:
        return


@pytest.fixture(scope="module")
def app(
    running: LocalService, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Application]:
    """The application without signing keys."""
    with application(running, tmp_path_factory.mktemp("application") / "log") as found:
        yield found


def begin(app: Application, payload: Any) -> str:
    """Start a run as a caller of the application does."""
    response = httpx.post(
        f"{app.url}/order", json=payload, headers={"X-Customer": "ann"}, timeout=10
    )
    assert response.status_code == 200, response.text
    run_id: str = response.json()["workflowRunId"]
    return run_id


def run_of(http: httpx.Client, run_id: str) -> dict[str, Any]:
    """The run as the run log shows it."""
    (found,) = http.get("/v2/workflows/logs", params={"workflowRunId": run_id}).json()[
        "runs"
    ]
    run: dict[str, Any] = found
    return run


def ended(http: httpx.Client, run_id: str) -> Callable[[], Any]:
    return lambda: (
        (run := run_of(http, run_id))["workflowState"] != "RUN_STARTED" and run
    )


def test_a_workflow_of_five_steps_succeeds(
    app: Application, http: httpx.Client, wait_for: Wait
) -> None:
    """Run, sleep, sleep until, call and run: each once, results handed on, and the run is a success."""
    run_id = begin(app, app.payload())
    run = wait_for(ended(http, run_id))
    assert run["workflowState"] == "RUN_SUCCESS"
    assert run["workflowUrl"] == f"{app.url}/order"
    account = app.account()
    assert account["finished"][run_id] == {
        "sum": 12, "desk": {"asked": {"sum": 12}, "by": "orders"}, "said": 200,
    }  # fmt: skip
    assert app.ran(run_id) == STEPS
    assert (
        http.get("/v2/workflows/dlq", params={"workflowRunId": run_id}).json()[
            "messages"
        ]
        == []
    )


def test_a_run_continues_after_the_service_was_killed(
    app: Application, running: LocalService, http: httpx.Client, wait_for: Wait
) -> None:
    """Killed and started again while runs sleep, call and book, it brings every one of them to its end.

    A delivery whose response was not stored before a kill is repeated, and runs its step again; the run
    counts the step once.
    """
    kills = 2
    begun = [begin(app, app.payload(price)) for price in range(1, 6)]
    wait_for(lambda: all(app.ran(run_id) for run_id in begun))
    for _ in range(kills):
        running.kill()
        running.start()
        time.sleep(0.15)  # a part of the runs, which last about a second
    for price, run_id in enumerate(begun, start=1):
        run = wait_for(ended(http, run_id))
        assert run["workflowState"] == "RUN_SUCCESS"
        assert app.account()["finished"][run_id]["sum"] == 4 * price
        counted = [
            step["stepName"] for group in run["steps"] for step in group["steps"]
        ]
        assert (counted.count("total"), counted.count("book")) == (1, 1)
        assert app.ran(run_id).count("total") <= 1 + kills


def fail(
    app: Application, http: httpx.Client, wait_for: Wait
) -> tuple[str, dict[str, Any]]:
    """A run whose last step fails for good, and its DLQ entry once the failure function is through."""
    app.desk("closed")
    run_id = begin(app, app.payload(price=5))
    parameters = {"workflowRunId": run_id, "failureFunctionState": "CALLBACK_SUCCESS"}
    (entry,) = wait_for(
        lambda: http.get("/v2/workflows/dlq", params=parameters).json()["messages"]
    )
    app.desk("open")
    return run_id, entry


def test_a_failing_step_is_retried_and_resumed(
    app: Application, http: httpx.Client, wait_for: Wait
) -> None:
    """Then the run is in the DLQ, the failure function was called, and resuming continues there."""
    run_id, entry = fail(app, http, wait_for)
    assert app.ran(run_id) == ["total", "book", "book"]
    assert (entry["maxRetries"], entry["responseStatus"]) == (1, 500)
    assert "the payment desk is closed" in entry["responseBody"]
    assert run_of(http, run_id)["workflowState"] == "RUN_FAILED"
    (told,) = [
        failure for failure in app.account()["failures"] if failure["run"] == run_id
    ]
    assert (told["status"], told["reason"]) == (500, "the payment desk is closed")
    assert told["payload"] == app.payload(price=5)

    resumed = http.post(f"/v2/workflows/dlq/resume/{entry['dlqId']}").json()[
        "workflowRunId"
    ]
    assert wait_for(ended(http, resumed))["workflowState"] == "RUN_SUCCESS"
    assert app.ran(resumed) == ["book"]
    assert app.account()["finished"][resumed]["sum"] == 20


def test_restart_begins_anew(
    app: Application, http: httpx.Client, wait_for: Wait
) -> None:
    """All steps again, with the payload of the failed run."""
    _, entry = fail(app, http, wait_for)
    restarted = http.post(f"/v2/workflows/dlq/restart/{entry['dlqId']}").json()[
        "workflowRunId"
    ]
    assert wait_for(ended(http, restarted))["workflowState"] == "RUN_SUCCESS"
    assert app.ran(restarted) == STEPS
    assert app.account()["finished"][restarted]["sum"] == 20


def test_a_sleeping_run_is_canceled(
    app: Application, http: httpx.Client, wait_for: Wait
) -> None:
    """Nothing runs after the cancellation, and the run is listed as cancelled."""
    run_id = begin(app, app.payload())
    wait_for(lambda: app.ran(run_id))
    assert http.delete(f"/v2/workflows/runs/{run_id}").status_code == 200
    assert run_of(http, run_id)["workflowState"] == "RUN_CANCELED"
    other = begin(app, app.payload())
    wait_for(ended(http, other))  # by then the cancelled one would have ended, too
    assert app.ran(run_id) == ["total"]


def test_the_toolkit_loads_and_resumes_what_the_application_left(
    app: Application, running: LocalService, http: httpx.Client, wait_for: Wait
) -> None:
    """The frame holds the failure as the service has it, and `resume_failures` brings the run to its end."""
    run_id, entry = fail(app, http, wait_for)
    before = set(app.account()["finished"])
    service = tk.connect(queue_url=running.url, queue_token=running.token)
    failures = tk.load_failures(service)
    (row,) = failures[failures["workflow_run_id"] == run_id].to_dict("records")
    assert row["dlq_id"] == entry["dlqId"]
    assert row["failure_function_state"] == "CALLBACK_SUCCESS"
    assert "the payment desk is closed" in row["response_body"]
    tk.resume_failures(service, [row["dlq_id"]], confirm=True)
    runs = tk.load_runs(service)
    assert run_id in set(runs["workflow_run_id"])
    wait_for(lambda: tk.load_runs(service)["state"].ne("RUN_STARTED").all())
    (resumed,) = set(app.account()["finished"]) - before
    assert app.ran(resumed) == ["book"]


def test_with_signing_keys_unsigned_requests_are_refused(
    running: LocalService, http: httpx.Client, tmp_path: Path, wait_for: Wait
) -> None:
    """Started by a signed delivery, the run ends; started from outside, it is refused."""
    keys = dict(
        zip(
            ("QSTASH_CURRENT_SIGNING_KEY", "QSTASH_NEXT_SIGNING_KEY"),
            running.signing_keys,
            strict=True,
        )
    )
    with application(running, tmp_path / "log", **keys) as signed:
        refused = httpx.post(f"{signed.url}/order", json=signed.payload(), timeout=10)
        assert refused.status_code == 500
        assert "signature" in refused.text.lower()
        assert (
            http.post(
                f"/v2/publish/{signed.url}/order", json=signed.payload()
            ).status_code
            == 200
        )
        (result,) = wait_for(lambda: [*signed.account()["finished"].values()])
        assert result["sum"] == 12
        triggered = http.post(
            f"/v2/trigger/{signed.url}/order", json=signed.payload(price=7)
        ).json()
        assert (
            wait_for(ended(http, triggered["workflowRunId"]))["workflowState"]
            == "RUN_SUCCESS"
        )
        assert signed.account()["finished"][triggered["workflowRunId"]]["sum"] == 28


def test_a_replayed_step_runs_alone(
    app: Application,
    running: LocalService,
    http: httpx.Client,
    tmp_path: Path,
    wait_for: Wait,
) -> None:
    """The application of another queue accepts the signed request as the step that failed.

    While the desk is closed it fails in the same way; then the step succeeds. The queue of the failure does
    not change.
    """
    run_id, entry = fail(app, http, wait_for)
    service = tk.connect(queue_url=running.url, queue_token=running.token)
    failures = tk.load_failures(service, progress=False)
    failure = failures[failures["workflow_run_id"] == run_id]
    names = ("QSTASH_CURRENT_SIGNING_KEY", "QSTASH_NEXT_SIGNING_KEY")
    with LocalService(dialect="upstash", drop_unknown_steps=True) as bench:
        keys = dict(zip(names, bench.signing_keys, strict=True))
        with application(bench, tmp_path / "log", **keys) as local:
            replay = {"keys": list(bench.signing_keys), "progress": False}
            unsigned = tk.replay_failure(failure, local.url, progress=False)
            assert unsigned.frame["outcome"].tolist() == ["another failure"]
            local.desk("closed")
            closed = tk.replay_failure(failure, local.url, **replay)
            assert closed.frame["outcome"].tolist() == ["same failure"]
            local.desk("open")
            opened = tk.replay_failure(failure, local.url, **replay)
            assert opened.frame["outcome"].tolist() == ["succeeded"]
            assert local.ran(run_id) == ["book", "book"]
    (unchanged,) = http.get(
        "/v2/workflows/dlq", params={"workflowRunId": run_id}
    ).json()["messages"]
    assert unchanged == entry

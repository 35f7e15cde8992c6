"""Real runs of a real service: what is inside those that failed, and their events."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator

import httpx
import pandas as pd
import pytest

import toolkit as tk
from tests.conftest import Asked, Reply, ScriptedServer
from toolkit_service.demo.local_service import LocalService

pytestmark = pytest.mark.slow

STEPS = ("charge", "pack", "ship")
NOT_RETRIED = {"Service-NonRetryable-Error": "true"}


def until(holds: Callable[[], object]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


@pytest.fixture
def local() -> Iterator[LocalService]:
    """An embedded service with a quick clock."""
    with LocalService(time_factor=1_000, indexes=[]) as running:
        yield running


def serve(server: ScriptedServer, local: LocalService) -> None:
    """An application of three steps: "/breaks" fails at the third once it was retried, "/works" ends."""

    def respond(asked: Asked) -> Reply:
        history = json.loads(asked.body)
        done = len(history) - 1
        run = next(
            value
            for name, value in asked.headers.items()
            if name.lower() == "service-workflow-runid"
        )
        bearer = {"Authorization": f"Bearer {local.token}"}
        if done < 2 or (done == 2 and asked.path == "/works"):
            order = json.loads(base64.b64decode(history[0]["body"]))
            step = {
                "stepId": done + 1,
                "stepName": STEPS[done],
                "stepType": "Run",
                "concurrent": 1,
            }
            step["out"] = json.dumps({"order": order["order"], "ü": "done"})
            headers = {"Service-Workflow-RunId": run, "Service-Workflow-Init": "false"}
            headers["Service-Workflow-Url"] = f"{server.url}{asked.path}"
            item = {
                "destination": f"{server.url}{asked.path}",
                "headers": headers,
                "body": json.dumps(step),
            }
            httpx.post(
                f"{local.url}/v2/batch", json=[item], headers=bearer
            ).raise_for_status()
        elif done == 3:
            address = f"{local.url}/v2/workflows/runs/{run}"
            httpx.delete(
                address, params={"cancel": "false"}, headers=bearer
            ).raise_for_status()
        else:
            return Reply(500, {}, b'{"error": "no carrier"}')
        return Reply(200, {}, b"{}")

    server.respond = respond


def start(local: LocalService, url: str, number: int) -> str:
    """Start a run that is retried once."""
    headers = {
        "Authorization": f"Bearer {local.token}",
        "Service-Retries": "1",
        "Service-Label": "eu",
    }
    response = httpx.post(
        f"{local.url}/v2/trigger/{url}", json={"order": number}, headers=headers
    )
    return str(response.raise_for_status().json()["workflowRunId"])


def test_the_payload_the_run_log_and_the_events_of_real_runs_agree(
    server: ScriptedServer, local: LocalService
) -> None:
    """Each failed run's finished steps with their outputs; the same steps and messages in both logs."""
    serve(server, local)
    service = tk.connect(queue_url=local.url, queue_token=local.token)
    broken = {
        start(local, f"{server.url}/breaks", number): number for number in range(3)
    }
    works = start(local, f"{server.url}/works", 9)
    until(
        lambda: (
            set(tk.load_runs(service, progress=False)["state"])
            == {"RUN_FAILED", "RUN_SUCCESS"}
        )
    )
    failures = tk.load_failures(service, progress=False)
    steps = tk.explode_steps(failures)
    assert len(failures) == 3
    for run, number in broken.items():
        mine = steps[steps["workflow_run_id"] == run]
        assert mine["step_name"].tolist() == ["init", "charge", "pack"]
        assert mine["step_type"].tolist() == ["Initial", "Run", "Run"]
        assert json.loads(mine["output"].iloc[0]) == {"order": number}
        assert [json.loads(text) for text in mine["output"].iloc[1:]] == [
            {"order": number, "ü": "done"}
        ] * 2
    assert not steps["truncated"].any()
    runs = tk.load_runs(service, progress=False)
    logged = tk.explode_steps(runs)
    both = logged.merge(
        steps, on=["workflow_run_id", "message_id"], suffixes=("", "_payload")
    )
    assert len(both) == len(steps)
    assert (both["step_name"] == both["step_name_payload"]).all()
    assert logged[logged["workflow_run_id"] == works]["step_name"].tolist() == [
        "init",
        *STEPS,
    ]
    assert tk.load_runs(
        service, filter=tk.RunFilter(label="eu", state="RUN_SUCCESS"), progress=False
    )["workflow_run_id"].tolist() == [works]
    for run in (*broken, works):
        events = tk.load_events(
            service, filter=tk.EventFilter(workflow_run_id=run), progress=False
        )
        assert set(events["message_id"]) == set(
            logged.loc[logged["workflow_run_id"] == run, "message_id"]
        )
        assert (events["state"] == "RETRY").sum() == (run in broken)
    pd.testing.assert_frame_equal(
        tk.explode_steps(failures.iloc[[1]]).astype("object"),
        steps[3:6].reset_index(drop=True).astype("object"),
    )

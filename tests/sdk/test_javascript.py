"""The public JavaScript packages against the running service, driven by Node.

Each script in `tests/sdk/javascript` runs once. It prints the results and errors of all steps as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Asked, Reply, listening
from toolkit_service.demo.local_service import LocalService

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]  # `make test` needs no Node.js

SCRIPTS = Path(__file__).with_name("javascript")
Results = dict[str, Any]


@pytest.fixture(scope="module")
def destination() -> Iterator[str]:
    """A server that responds with 500 below ``/fails`` and with 200 to everything else."""

    def respond(request: Asked) -> Reply:
        return Reply(500 if request.path.startswith("/fails") else 200, body=b"{}")

    with listening() as script:
        script.respond = respond
        yield script.url


def run_script(name: str, running: LocalService, **variables: str) -> Results:
    """Run a script with Node; returns the results of all steps."""
    node = shutil.which("node")
    assert node, (
        "Node.js is missing. On Debian and Ubuntu, install it with: apt-get install nodejs npm"
    )
    assert (SCRIPTS / "node_modules").is_dir(), (
        "The packages are missing. Install them with: make node_modules"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "QSTASH_URL": running.url,
        "QSTASH_TOKEN": running.token,
        "UPSTASH_VECTOR_REST_URL": running.vector_urls["plain"],
        "UPSTASH_VECTOR_REST_TOKEN": running.token,
        "UPSTASH_DISABLE_TELEMETRY": "1",
    }
    done = subprocess.run(
        [node, str(SCRIPTS / name)],
        env=environment | variables,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    results: Results = json.loads(done.stdout)
    return results


@pytest.fixture(scope="module")
def vectors(running: LocalService) -> Results:
    """Run the steps of the package for vectors."""
    return run_script("vectors.mjs", running)


@pytest.fixture(scope="module")
def queue(running: LocalService, destination: str) -> Results:
    """Run the steps of the package for the queue."""
    return run_script("queue.mjs", running, DESTINATION=destination)


@pytest.fixture(scope="module")
def workflow(running: LocalService) -> Results:
    """Run the steps of the package for workflows."""
    return run_script("workflow.mjs", running)


def test_ids_and_cursors_may_be_numbers(vectors: Results) -> None:
    """They are stored as text: 1 and "1" are the same vector."""
    assert (vectors["upsertOne"], vectors["upsertMany"]) == ("Success", "Success")
    assert vectors["range"] == ["1", "2", "three"]
    assert vectors["fetch"] == [{"id": "1"}, {"id": "2"}, None]
    assert vectors["update"] == {"updated": 1}
    assert vectors["fetchInNamespace"] == [{"id": "1"}]
    deletions = (
        "deleteOne",
        "deleteMany",
        "deleteByIds",
        "deleteByPrefix",
        "deleteByFilter",
    )
    assert [vectors[name] for name in deletions] == [{"deleted": 1}] * 5


def test_vectors_are_queried(vectors: Results) -> None:
    """One query, several, one with a filter, and one that is resumed."""
    assert vectors["query"] == [{"id": "1", "score": 1, "metadata": {"kind": "number"}}]
    assert [[row["id"] for row in rows] for rows in vectors["queryMany"]] == [
        ["1"],
        ["2"],
    ]
    assert [row["id"] for row in vectors["filtered"]] == ["1"]
    assert vectors["resumable"] == {"first": 1, "more": 2, "stopped": "Success"}
    assert (vectors["namespaces"], vectors["info"]["vectorCount"]) == (
        ["", "numbers"],
        0,
    )


def test_errors_are_in_the_words_of_the_public_service(vectors: Results) -> None:
    """Clients look for these sentences."""
    both = "Only and only one of the ids, prefix, or filter must be provided."
    raised = {
        name: result["raised"]
        for name, result in vectors.items()
        if "raised" in (result or ())
    }
    assert raised == {
        "fetchByBoth": "UpstashError: Only one of ids or prefix must be provided.",
        "deleteByBoth": f"UpstashError: {both}",
        "deleteByNothing": f"UpstashError: {both}",
        "wrongDimension": "UpstashError: Invalid vector dimension: 1, expected: 2",
    }


def test_messages_are_cancelled(queue: Results) -> None:
    """One, several by ids, and some by hosts and paths: each response counts them."""
    assert (queue["cancelOne"], queue["cancelMany"]) == (
        {"cancelled": 1},
        {"cancelled": 2},
    )
    assert queue["cancelByHostAndPath"] == [0, 2, 1, 1]


def test_fields_without_a_value_are_left_out(queue: Results) -> None:
    """A message and a schedule without a body have neither body nor bodyBase64."""
    empty = {"body", "bodyBase64", "label", "labels"}
    assert empty.isdisjoint(queue["messageWithoutBody"])
    before, (after,) = queue["editSchedule"]["before"], queue["editSchedule"]["after"]
    assert empty & before.keys() == {"body", "label", "labels"}
    assert empty.isdisjoint(after)


def test_a_schedule_is_edited(queue: Results) -> None:
    """The same id is the same schedule, and nothing of the first request is left."""
    before, (after,) = queue["editSchedule"]["before"], queue["editSchedule"]["after"]
    assert (before["body"], before["label"]) == ("payload", "old")
    assert before["destination"].endswith("/first")
    assert after["destination"].endswith("/second")
    assert (after["cron"], after["createdAt"]) == ("0 1 1 1 *", before["createdAt"])


def test_a_group_has_a_second_endpoint(queue: Results) -> None:
    """A request that adds an endpoint keeps the ones before it, also the other name of a URL."""
    assert queue["groups"] == {
        "endpoints": [["one", "/one"], ["two", "/two"], ["again", "/one"]],
        "sent": 3,
        "after": ["one", "two"],
    }


def test_logs_are_filtered_and_paged(queue: Results) -> None:
    """By several hosts, paths and labels; the cursor is undefined on the last page."""
    found, none = ["/logged"], list[str]()
    assert queue["logsByHostAndPath"] == {
        "path": found, "host": found, "hostname": found, "elsewhere": none, "label": found,
    }  # fmt: skip
    assert queue["lastPageOfLogs"]["last"] is True
    assert queue["logPages"] == [1, 1, 1]


def test_dead_letters_are_filtered(queue: Results) -> None:
    """By flow-control key, several labels, several URLs and several statuses."""
    assert queue["dlqByFlowControl"] == ["/fails/1"]
    assert queue["dlqByLabels"] == ["/fails/1", "/fails/2"]
    assert queue["dlqByUrls"] == ["/fails/1", "/fails/3"]
    assert queue["dlqByStatus"] == ["/fails/1", "/fails/2", "/fails/3", "/fails/4"]
    assert queue["dlqLastPage"] is True


def test_dead_letters_are_retried_and_deleted_in_bulk(queue: Results) -> None:
    """By each filter, at most `count` with a cursor for the others, or all of them."""
    assert len(queue["retryByFlowControl"]["responses"]) == 1
    assert "cursor" not in queue["retryByFlowControl"]
    assert queue["retryByLabels"] == {"responses": 3, "more": True}
    assert queue["deleteByFlowControl"] == {"deleted": 2}
    assert queue["deleteByUrls"] == {
        "first": 1,
        "more": "string",
        "second": {"deleted": 1},
    }
    assert queue["retryAndDeleteAll"] == {
        "retried": 2,
        "deleted": {"deleted": 2},
        "left": 0,
    }


def test_an_application_runs_to_its_end(workflow: Results) -> None:
    """Started alone or with others by the package's client, served by Node."""
    assert workflow["trigger"] == "RUN_SUCCESS"
    assert workflow["triggerMany"] == ["RUN_SUCCESS", "RUN_SUCCESS"]


def test_several_runs_are_started_by_one_request(workflow: Results) -> None:
    """Each item is a run; a run id that was started before is deduplicated; a wrong item starts none."""
    batch = workflow["batchTrigger"]
    first, named = batch["first"]["json"]
    assert (first["workflowRunId"][:4], named["workflowRunId"]) == (
        "wfr_",
        "wfr_named_by_js",
    )
    assert batch["again"]["json"] == [named | {"deduplicated": True}]
    assert (batch["states"], batch["label"]) == (
        ["RUN_SUCCESS", "RUN_SUCCESS"],
        "batch",
    )
    atomic = workflow["batchTriggerIsAtomic"]
    assert (atomic["status"], atomic["runs"]) == (400, 0)
    assert "message 1" in atomic["error"]


def test_runs_are_filtered_and_cancelled(workflow: Results) -> None:
    """By hosts and paths; the cursor is undefined on the last page."""
    assert workflow["logsByHostAndPath"] == [2, 0]
    assert workflow["lastPageOfLogs"] is True
    assert workflow["cancelByPath"] == [2, 1]


def test_failed_runs_are_listed_resumed_and_deleted(workflow: Results) -> None:
    """The client lists them at the path of plain messages, and deletes all by a count alone."""
    assert workflow["deadLetters"] == {
        "listed": 2, "last": True, "one": [True], "resumed": 1, "deleted": {"deleted": 1},
    }  # fmt: skip

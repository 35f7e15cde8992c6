"""The sample inside a running service: listed exactly as generated, and embedded so that topics cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import httpx
import pandas as pd
import pytest

import toolkit as tk
from toolkit.service.connecting import start_local
from toolkit.service.settings import Service
from toolkit_service.demo.documents import NAMESPACES, documents
from toolkit_service.demo.history import LOGGED, wire_entries, wire_runs


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with start_local() as found:
        yield found


def listed(service: Service, path: str, name: str) -> list[dict]:
    """Every page of a listing, without the toolkit's own client."""
    queue = service.need("queue")
    cursor, found = "", []
    with httpx.Client(
        base_url=queue.url, headers={"Authorization": f"Bearer {queue.token.reveal()}"}
    ) as http:
        while True:
            page = (
                http.get(path, params={"cursor": cursor} if cursor else {})
                .raise_for_status()
                .json()
            )
            found += page[name]
            cursor = page.get("cursor")
            if not cursor:
                return found


def test_failures_are_listed_exactly_as_generated(service: Service) -> None:
    """Field by field, unknown and missing ones included; all times are shifted by the same amount."""
    entries = {
        entry["dlqId"]: entry
        for entry in listed(service, "/v2/workflows/dlq", "messages")
    }
    expected = wire_entries(0)
    now = {
        entries[entry["dlqId"]]["createdAt"] - entry["createdAt"] for entry in expected
    }
    assert len(now) == 1
    assert len(entries) == 5000
    assert entries == {entry["dlqId"]: entry for entry in wire_entries(now.pop())}


def test_runs_are_listed_as_generated(service: Service) -> None:
    """The run log has every failed run, and successful runs as well."""
    runs = listed(service, "/v2/workflows/logs", "runs")
    assert {run["workflowRunId"] for run in runs} == {
        run["workflowRunId"] for run in wire_runs(0)
    }
    states = Counter(run["workflowState"] for run in runs)
    assert states == {"RUN_FAILED": 5000, "RUN_SUCCESS": 4000}


@pytest.mark.slow
def test_events_and_steps_tell_of_the_last_days(service: Service) -> None:
    """Each attempt of the messages that failed lately; the steps of their runs end in the failure."""
    events = tk.load_events(service, progress=False)
    assert set(events["state"]) == {"CREATED", "ACTIVE", "ERROR", "RETRY", "FAILED"}
    age = pd.Timestamp.now("UTC") - events["time"]
    assert age.max() < pd.Timedelta(milliseconds=LOGGED, minutes=10)
    failed = events[events["state"] == "FAILED"]
    assert failed["message_id"].is_unique
    tries = events[events["state"] == "ERROR"].groupby("message_id").size()
    whole = events[events["state"] == "CREATED"].set_index("message_id")["max_retries"]
    assert (tries[whole.index] == whole + 1).all()
    steps = tk.explode_steps(tk.load_runs(service, "1d", progress=False))
    ended = steps[steps["status"] == "STEP_FAILED"]
    assert set(ended["message_id"]) <= set(failed["message_id"])
    assert ended["workflow_run_id"].is_unique


def test_documents_are_in_their_namespaces_with_vectors(service: Service) -> None:
    """Every document is there with its text and metadata, and a vector that the index made."""
    vectors = tk.load_vectors(service, namespace="all", progress=False)
    assert dict(vectors["namespace"].value_counts()) == NAMESPACES
    texts = {
        (document.namespace, document.id): document.data for document in documents()
    }
    assert {(row.namespace, row.id): row.data for row in vectors.itertuples()} == texts
    assert vectors["vector_problem"].isna().all()
    assert vectors["vector"].notna().all()


@pytest.mark.slow
def test_texts_on_one_topic_lie_together(service: Service) -> None:
    """The nearest other runbook is, most of the time, about the same topic."""
    topics = {
        document.id: document.metadata["topic"]
        for document in documents()
        if document.namespace == "runbooks"
    }
    sampled = [
        document for document in documents() if document.namespace == "runbooks"
    ][:60]
    hits = tk.query_text(
        service, [document.data for document in sampled], namespace="runbooks", top_k=2
    )
    same = [
        topics[hit.id] == topics[sampled[hit.query].id]
        for hit in hits.itertuples()
        if hit.id != sampled[hit.query].id
    ]
    assert len(same) == 60
    assert sum(same) > 50

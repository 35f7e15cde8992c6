"""The run log from a scripted server: states, times, and whatever does not fit."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import InputError, ProtocolError


def log(*runs, cursor="") -> bytes:
    """A page of the run log."""
    return json.dumps({"runs": runs, "cursor": cursor}).encode()


def test_runs_become_rows(server):
    """Every documented field has its column; a running one has no end; unknown fields are kept."""
    server.json(
        log(
            {
                "workflowRunId": "wfr_1",
                "workflowUrl": "https://a.example/w?code=canary",
                "workflowState": "RUN_FAILED",
                "workflowRunCreatedAt": 1_767_225_600_000,
                "workflowRunCompletedAt": 1_767_225_660_000,
                "dlqId": "dlq_1",
                "labels": ["eu"],
                "steps": [1, 2],
            },
            cursor="next",
        )
    )
    server.json(
        log(
            {
                "workflowRunId": "wfr_2",
                "workflowState": "RUN_STARTED",
                "workflowRunCompletedAt": 0,
            }
        )
    )
    runs = tk.load_runs(server.service(), progress=False)
    assert runs["workflow_run_id"].tolist() == ["wfr_1", "wfr_2"]
    assert runs["state"].tolist() == ["RUN_FAILED", "RUN_STARTED"]
    assert (runs["completed_at"] - runs["created_at"])[0] == pd.Timedelta("1min")
    assert runs["completed_at"].isna()[1]
    assert json.loads(runs["extra"][0]) == {"steps": [1, 2]}
    assert "canary" not in runs["workflow_url"][0]
    assert [requested.path for requested in server.requests] == [
        "/v2/workflows/logs"
    ] * 2
    assert tk.get_receipt(runs).complete


def test_filters_are_sent_on_every_page_and_are_in_the_receipt(server):
    """Times as milliseconds, everything else as given; a masked value and an unknown state are errors."""
    server.json(log({"workflowRunId": "wfr_1"}, cursor="next"))
    server.json(log())
    wanted = {
        "state": "RUN_FAILED",
        "workflow_url": ["https://a.example/w"],
        "label": ["eu", "us"],
    }
    runs = tk.load_runs(
        server.service(),
        "2026-01-01",
        filter=tk.RunFilter(workflow_run_id="wfr_1", **wanted),
        progress=False,
    )
    for request in server.requests:
        assert [
            pair for pair in request.query if pair[0] not in ("count", "cursor")
        ] == [
            ("fromDate", "1767225600000"),
            ("state", "RUN_FAILED"),
            ("workflowUrl", "https://a.example/w"),
            ("workflowRunId", "wfr_1"),
            ("label", "eu"),
            ("label", "us"),
        ]
    assert tk.get_receipt(runs).scope["label"] == ["eu", "us"]
    with pytest.raises(InputError, match="RUN_FAILED"):
        tk.load_runs(server.service(), filter=tk.RunFilter(state="failed"))


@pytest.mark.slow
def test_runs_are_filtered_by_a_real_service(sample_service):
    """Only what was asked for comes back, in the same order."""
    runs = tk.load_runs(sample_service, progress=False)
    for state in ("RUN_FAILED", "RUN_SUCCESS"):
        found = tk.load_runs(
            sample_service, filter=tk.RunFilter(state=state), progress=False
        )
        assert 0 < len(found) < len(runs)
        assert found["workflow_run_id"].equals(
            runs.loc[runs["state"] == state, "workflow_run_id"].reset_index(drop=True)
        )
    url, middle = (
        runs["workflow_url"].iloc[0],
        runs["created_at"].iloc[len(runs) // 2],
    )
    found = tk.load_runs(
        sample_service,
        filter=tk.RunFilter(workflow_url=url),
        since=middle,
        progress=False,
    )
    expected = runs[(runs["workflow_url"] == url) & (runs["created_at"] >= middle)]
    assert 0 < len(found) < len(runs)
    assert set(found["workflow_run_id"]) == set(expected["workflow_run_id"])


def test_invalid_runs_keep_their_row(server):
    """Values of the wrong kind are in extra; a run without an id is an error."""
    server.json(
        log(
            {
                "workflowRunId": "a",
                "workflowState": 5,
                "workflowRunCreatedAt": "soon",
                "labels": "x",
            }
        )
    )
    runs = tk.load_runs(server.service(), progress=False)
    assert runs["state"].isna()[0]
    assert json.loads(runs["extra"][0]) == {
        "workflowState": 5,
        "workflowRunCreatedAt": "soon",
        "labels": "x",
    }
    server.json(log({"workflowState": "RUN_FAILED"}))
    with pytest.raises(ProtocolError, match="workflowRunId"):
        tk.load_runs(server.service())


def test_an_empty_log_has_all_columns(server):
    """No runs: no rows, every column with its type."""
    server.json(log())
    runs = tk.load_runs(server.service(), progress=False)
    assert runs.empty
    assert str(runs.dtypes["created_at"]) == "datetime64[ms, UTC]"

"""A failure whose application asked not to retry is refused, whatever else its response contains."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from tests.failures.test_classes import failures, one
from toolkit import classify_failures, plan_redrive
from toolkit.failures.classes import REFUSED

REFUSING_BODIES = {
    "temporal": '{"message": "account is frozen", "applicationFailureInfo": {"nonRetryable": true}}',
    "snake case": '{"error": {"code": "FROZEN", "non_retryable": true}}',
    "false flag": '{"error": {"message": "the card was closed", "retryable": false}}',
    "other spelling": '{"isRetriable": false, "message": "gone"}',
    "sdk type": '{"error": "WorkflowNonRetryableError", "message": "the card was closed"}',
    "type at the start": "NonRetriableError: the order was cancelled",
    "queue of jobs": "UnrecoverableError: the document is encrypted\n    at run (/srv/app/src/jobs.js:4:9)",
    "inside a list": '{"errors": [{"message": "no", "retryable": false}]}',
    "against its words": '{"message": "timeout, please try again later", "retryable": false}',
}

OTHER_BODIES = {
    "retry offered": '{"message": "connection reset", "retryable": true, "cause": {"retryable": false}}',
    "flag off": '{"message": "connection reset", "nonRetryable": false}',
    "text of a flag": '{"message": "connection reset", "retryable": "false"}',
    "only a word": "connection reset: see the notes on NonRetryableError",
    "nothing": "connection reset",
}


@pytest.mark.parametrize("status", [489, 500, 503, 429])
@pytest.mark.parametrize("body", REFUSING_BODIES.values(), ids=REFUSING_BODIES.keys())
def test_markers_in_bodies_outrank_status_and_words(status: int, body: str) -> None:
    """A field or type of error that asks for no retry decides the class, with the marker as evidence."""
    found_class, evidence, confidence = one(status, body)
    assert (found_class, confidence) == (REFUSED, 0.99)
    assert evidence


@pytest.mark.parametrize("body", OTHER_BODIES.values(), ids=OTHER_BODIES.keys())
def test_what_only_looks_like_a_marker_is_not_one(body: str) -> None:
    """The outermost flag decides, a flag is true or false, and a type stands at the start."""
    assert one(500, body)[0] == "transient"


def with_headers(headers: Any, status: int = 489) -> pd.DataFrame:
    """One failure with the headers of its response."""
    frame = failures((status, "connection reset"))
    return frame.assign(response_headers=pd.Series([headers], dtype="str"))


@pytest.mark.parametrize("prefix", ["Upstash-", "Service-", "", "upstash-"])
def test_header_of_the_sdks_refuses(prefix: str) -> None:
    """The header decides with any prefix of a service, and names itself as evidence."""
    row = classify_failures(
        with_headers(json.dumps({f"{prefix}NonRetryable-Error": ["true"]}))
    ).frame.iloc[0]
    assert row["class"] == REFUSED
    assert "NonRetryable-Error" in row["evidence"]


@pytest.mark.parametrize(
    "headers",
    [
        None,
        "{}",
        "not JSON nonretryable-error",
        '{"Upstash-NonRetryable-Error": ["false"]}',
        '["nonretryable-error"]',
    ],
)
def test_status_489_without_the_header_is_no_marker(headers: str | None) -> None:
    """The service retries such a response, so that it is classified as any other."""
    assert classify_failures(with_headers(headers)).frame["class"].item() == "transient"


@pytest.mark.parametrize("actions", [None, "resume", "restart"])
def test_plans_leave_refused_failures_unless_they_are_included(
    actions: str | None,
) -> None:
    """No plan sends a refused failure again, not even one for all failures, without include=."""
    moment = pd.Timestamp("2026-11-20", tz="UTC")
    row = {
        "dlq_id": "d1",
        "workflow_run_id": "wfr_1",
        "workflow_url": "https://shop.example.com/pay",
        "created_at": moment,
        "failed_at": moment,
        "response_status": 500,
        "response_body": REFUSING_BODIES["false flag"],
        "response_body_base64": None,
        "failure_function_state": None,
    }
    texts = ["response_body", "response_body_base64", "failure_function_state"]
    frame = pd.DataFrame([row]).astype(
        dict.fromkeys(texts, "str") | {"response_status": "Int64"}
    )
    options: dict[str, Any] = {"actions": actions, "idempotent": [row["workflow_url"]]}
    left = plan_redrive(frame, **options).frame.iloc[0]
    assert left["action"] == "leave"
    assert left["reason"].startswith(REFUSED)
    included = plan_redrive(frame, **options, include="refused").frame.iloc[0]
    assert included["action"] == (actions or "resume")


@pytest.mark.parametrize(
    ("body", "wrong_class"),
    [
        ("the operation is not retryable because the order was cancelled", "transient"),
        ("The request failed because the HTTP response was malformed.", "poison input"),
        ("this is not a timeout", "transient"),
        ("the request was not throttled", "throttled"),
        (
            '<Envelope xmlns="http://schemas.example.com/soap"><Fault>no stock</Fault></Envelope>',
            "contract drift",
        ),
        ("no stock, see https://docs.example.com/errors/rate-limit", "throttled"),
        ('{"schema": 3, "deprecated": 0, "hint": "no stock"}', "contract drift"),
    ],
)
def test_words_do_not_decide_against_their_meaning(body: str, wrong_class: str) -> None:
    """Negated words, addresses, markup and names of keys are no evidence."""
    assert one(500, body)[0] != wrong_class

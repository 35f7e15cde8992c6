"""Callbacks of a real service about a message that failed for good: whether it is in the DLQ."""

from __future__ import annotations

import httpx
import pytest

import toolkit as tk
from toolkit_service.demo.local_service import LocalService


@pytest.mark.slow
def test_callbacks_say_when_their_message_is_in_the_dlq():
    """One callback an attempt and a failure callback: the last two say what the DLQ shows."""
    with LocalService(time_factor=100_000, indexes=[]) as local:
        current, following = local.signing_keys
        service = tk.connect(
            queue_url=local.url,
            queue_token=local.token,
            current_signing_key=current,
            next_signing_key=following,
        )
        with tk.CallbackReceiver(service) as receiver:
            sent = tk.publish(
                service,
                "http://127.0.0.1:9/closed",
                {"order": 1},
                retries=1,
                callback=receiver.url,
                failure_callback=receiver.url,
            )
            assert receiver.wait(3, timeout=60), repr(receiver)
            frame = tk.load_callbacks(receiver).sort_values(["retried", "kind"])
        failures = tk.load_failures(service, kind="messages", progress=False)
    assert frame["kind"].tolist() == ["callback", "callback", "failure"]
    assert frame["exhausted"].tolist() == [False, True, True]
    assert frame["in_dlq"].tolist() == [False, True, True]
    assert set(frame["source_message_id"]) == {sent.message_id}
    assert failures["dlq_id"].tolist() == [frame["dlq_id"].iloc[-1]]
    assert frame["body_truncated"].tolist() == [False] * 3


@pytest.mark.slow
def test_a_call_that_failed_is_in_no_dlq(server):
    """Its run is told, and interprets it: the callback names no entry of the DLQ, and there is none."""
    server.always(b"{}")
    with LocalService(time_factor=100_000, indexes=[]) as local:
        service = tk.connect(queue_url=local.url, queue_token=local.token)
        bearer = {"Authorization": f"Bearer {local.token}", "Service-Retries": "0"}
        started = httpx.post(
            f"{local.url}/v2/trigger/{server.url}/flow", headers=bearer, content=b"{}"
        )
        headers = {"Service-Workflow-RunId": started.json()["workflowRunId"], **bearer}
        headers |= {
            "Service-Workflow-CallType": "toCallback",
            "Service-Workflow-Url": f"{server.url}/flow",
        }
        with tk.CallbackReceiver(service) as receiver:
            url = f"{local.url}/v2/publish/http://127.0.0.1:9/closed"
            sent = httpx.post(
                url,
                headers={**headers, "Service-Callback": receiver.url},
                content=b"{}",
            )
            assert receiver.wait(1, timeout=60), repr(receiver)
            frame = tk.load_callbacks(receiver)
        assert frame["source_message_id"].tolist() == [sent.json()["messageId"]]
        assert (frame["delivered"].tolist(), frame["exhausted"].tolist()) == (
            [False],
            [True],
        )
        assert frame["in_dlq"].isna().all()
        for kind in ("messages", "workflows"):
            assert tk.load_failures(service, kind=kind, progress=False).empty

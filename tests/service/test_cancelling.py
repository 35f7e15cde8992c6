"""Cancelling exact messages and runs: on a real service, and with responses that are lost."""

from __future__ import annotations

import json
import time

import httpx
import pandas as pd
import pytest

import toolkit as tk
from tests.conftest import Asked, Reply
from toolkit.errors import InputError, ServiceError, UnexpectedResultWarning

LATER = "http://127.0.0.1:9/later"


@pytest.fixture
def service(local_indexes) -> tk.Service:
    """A real service to write to."""
    return local_indexes["dense"]


def test_only_the_messages_that_are_named_are_cancelled(service):
    """By ids or a frame; the others are delivered as before; again, the log says what became of them."""
    first, second, third = (
        tk.publish(service, LATER, delay="1h").message_id for _ in range(3)
    )
    assert tk.cancel_messages(service, [first, first], confirm=True) == {
        first: "cancelled"
    }
    frame = tk.load_events(
        service, filter=tk.EventFilter(message_id=[first, second]), progress=False
    )
    assert tk.cancel_messages(service, frame, confirm=True) == {
        first: "cancelled",
        second: "cancelled",
    }
    events = tk.load_events(
        service, filter=tk.EventFilter(message_id=third), progress=False
    )
    assert events["state"].tolist() == ["CREATED"]
    with pytest.warns(
        UnexpectedResultWarning, match="none was cancelled; they are not known"
    ):
        assert tk.cancel_messages(service, "msg_nobody", confirm=True) == {
            "msg_nobody": "not known"
        }
    failed = tk.publish(service, "http://127.0.0.1:9/now", retries=0).message_id
    while "FAILED" not in set(
        tk.load_events(
            service, filter=tk.EventFilter(message_id=failed), progress=False
        )["state"]
    ):
        time.sleep(0.05)
    assert tk.cancel_messages(service, [failed, third], confirm=True) == {
        failed: "failed",
        third: "cancelled",
    }


def test_only_runs_that_run_are_cancelled(service):
    """One that has failed stays as it is, with its failure function; one that waits is cancelled."""
    queue = service.queue
    bearer = {"Authorization": f"Bearer {queue.token.reveal()}", "Service-Retries": "0"}

    def start(url: str, **headers: str) -> str:
        response = httpx.post(
            f"{queue.url}/v2/trigger/{url}",
            headers={**bearer, **headers},
            content=b"{}",
        )
        return str(response.raise_for_status().json()["workflowRunId"])

    waiting = [start(LATER, **{"Service-Delay": "1h"}) for _ in range(2)]
    broken = start(
        "http://127.0.0.1:9/now",
        **{"Service-Failure-Callback": LATER, "Service-Failure-Callback-Delay": "1h"},
    )
    while tk.load_runs(
        service, filter=tk.RunFilter(workflow_run_id=broken), progress=False
    )["state"].tolist() != ["RUN_FAILED"]:
        time.sleep(0.05)
    runs = tk.load_runs(
        service,
        filter=tk.RunFilter(workflow_run_id=[waiting[0], broken]),
        progress=False,
    )
    outcomes = tk.cancel_runs(service, runs, confirm=True)
    assert outcomes == {waiting[0]: "cancelled", broken: "failed"}
    states = tk.load_runs(
        service, filter=tk.RunFilter(workflow_run_id=waiting), progress=False
    ).set_index("workflow_run_id")["state"]
    assert states.to_dict() == {waiting[0]: "RUN_CANCELED", waiting[1]: "RUN_STARTED"}
    (entry,) = tk.load_failures(
        service, tk.FailureFilter(workflow_run_id=broken), progress=False
    )["failure_function_state"]
    assert entry == "CALLBACK_INPROGRESS"
    with pytest.warns(UnexpectedResultWarning, match="none was cancelled"):
        assert tk.cancel_runs(service, ["wfr_nobody", broken], confirm=True) == {
            "wfr_nobody": "not known",
            broken: "failed",
        }
    assert tk.cancel_runs(service, waiting, confirm=True) == dict.fromkeys(
        waiting, "cancelled"
    )


@pytest.mark.parametrize("cancel", [tk.cancel_messages, tk.cancel_runs])
def test_nothing_is_sent_without_confirmation_or_exact_ids(server, cancel):
    """Least of all a request without ids, which would cancel everything."""
    service = server.service()
    for ids, confirm in (
        (["a"], False),
        ([], True),
        (["a", ""], True),
        ("..", True),
        (pd.DataFrame(), True),
    ):
        with pytest.raises(InputError):
            cancel(service, ids, confirm=confirm)
    masked = "msg_[masked len=3 tag=cef30295]"
    with pytest.raises(InputError):
        cancel(service, masked, confirm=True)
    assert server.requests == []


def test_a_lost_response_is_looked_up_and_an_error_says_what_was_done(server):
    """The message was cancelled though its response was lost; of the third, it is said that it is unknown."""
    server.raw(b"")  # the connection ends without a response
    server.json(b'{"error": "message is not here"}', status=404)
    server.json(
        json.dumps(
            {"events": [{"messageId": "a", "time": 5, "state": "CANCELED"}]}
        ).encode()
    )
    server.respond = lambda asked: (
        Reply(202) if asked.path.endswith("/b") else Reply(401, {}, b"{}")
    )
    service = server.service()
    with pytest.raises(ServiceError) as caught:
        tk.cancel_messages(service, ["a", "b", "c", "d"], confirm=True)
    assert (
        caught.value.__notes__[-1]
        == "Done before this (2 of 4): a → cancelled, b → cancelled. Not requested: 1."
    )
    sent: list[Asked] = [asked for asked in server.requests if asked.method == "DELETE"]
    assert [asked.path[-1] for asked in sent] == ["a", "a", "b", "c"]
    assert all(
        asked.path.startswith("/v2/messages/") and not asked.query for asked in sent
    )

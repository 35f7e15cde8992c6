"""The queue half in the document: messages on their way, runs, events they wait for, logs, keys."""

from __future__ import annotations

from functools import partial
from typing import Final

from toolkit.local.openapi.parts import (
    ANY_BODY,
    MOMENT,
    SPAN,
    TEXT,
    WHOLE,
    Node,
    array,
    choice,
    either,
    in_header,
    in_path,
    in_query,
    json_body,
    maybe,
    operation,
    paging,
    record,
    ref,
    several,
)

_op = partial(operation, error="Error", tag="queue")

_RUN_STATE: Final = choice("RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED")
_TEXTS: Final = either(TEXT, array(TEXT, maxItems=1000))

RUN_SCHEMAS: Final[dict[str, Node]] = {
    "Message": record(
        {
            "messageId": TEXT,
            "url": TEXT,
            "method": TEXT,
            "maxRetries": WHOLE,
            "retried": WHOLE,
            "createdAt": WHOLE,
            "notBefore": WHOLE,
            "nextDeliveryTime": WHOLE,
            "callerIP": TEXT,
            "labels": array(TEXT),
        },
        required=["messageId", "url", "method", "maxRetries", "retried", "createdAt"],
    ),
    "Run": record(
        {"workflowRunId": TEXT, "workflowUrl": TEXT, "workflowState": _RUN_STATE}, required=["workflowRunId"]
    ),
    "Event": record(
        {"time": WHOLE, "messageId": TEXT, "state": TEXT, "url": TEXT},
        required=["time", "messageId", "state"],
    ),
    "Waiter": record({"url": TEXT, "deadline": WHOLE}, required=["url", "deadline"]),
    "Notified": record({"messageId": TEXT, "workflowRunId": TEXT, "waiter": ref("Waiter")}),
    "Canceled": record({"cancelled": WHOLE}, required=["cancelled"]),
    "Keys": record({"current": TEXT, "next": TEXT}, required=["current", "next"]),
}
"""Schemas of messages, runs, logs and keys, by name."""

_FLAG_TEXT: Final = choice("true", "false")
_EVENT_ID: Final = in_path("event_id", "Name of an event: letters, digits, '-', '_' and '.'.")


def run_paths() -> dict[str, Node]:
    """Paths of messages, runs, logs and keys."""
    return {**_messages(), **_runs(), **_events(), **_logs(), **_keys()}


def _messages() -> dict[str, Node]:
    return {
        "/v2/messages": {
            "delete": _op(
                "Cancel the messages that are named or meet the filters, or all of them.",
                ref("Canceled"),
                name="cancelMessages",
                parameters=[*SPAN, *several("messageIds", "flowControlKey", "url", "label", "callerIp")],
                body=json_body(record({"messageIds": _TEXTS}), required=False),
            )
        },
        "/v2/messages/{message_id}": {
            "parameters": [in_path("message_id", "Of a message that still has to be delivered.")],
            "get": _op("What is known about a message.", ref("Message"), name="message", refusals=(404,)),
            "delete": _op("Cancel a message.", None, name="cancelMessage", refusals=(404,), status=202),
        },
    }


def _runs() -> dict[str, Node]:
    step = record(
        {"messageId": TEXT, "body": TEXT, "callType": TEXT}, required=["messageId", "body", "callType"]
    )
    return {
        "/v2/workflows/runs": {
            "delete": _op(
                "Cancel the runs that are named or meet the filters, or all of them.",
                ref("Canceled"),
                name="cancelRuns",
                parameters=[
                    *SPAN,
                    *several("workflowRunIds", "workflowUrl", "callerIp", "flowControlKey", "label"),
                    in_query("workflowUrlExactMatch", _FLAG_TEXT, "Whether it is no prefix (false)."),
                ],
                body=json_body(record({"workflowRunIds": _TEXTS, "workflowUrl": _TEXTS}), required=False),
            )
        },
        "/v2/workflows/runs/{run_id}": {
            "parameters": [in_path("run_id", "Of a workflow run.")],
            "get": _op("The steps of a run, in order.", array(step), name="run", refusals=(404,)),
            "delete": _op(
                "End a run: canceled, or with cancel=false as one that is through.",
                record({"workflowRunId": TEXT}, required=["workflowRunId"]),
                name="endRun",
                parameters=[in_query("cancel", _FLAG_TEXT, "Whether it is canceled (true).")],
                body=ANY_BODY,
                refusals=(400, 404),
            ),
        },
    }


def _events() -> dict[str, Node]:
    wanted = record(
        {
            "url": TEXT,
            "step": {"type": "object"},
            "timeout": maybe(either(TEXT, {"type": "number"})),
            "timeoutUrl": TEXT,
            "timeoutHeaders": {"type": "object", "additionalProperties": array(TEXT)},
        },
        required=["url", "step"],
    )
    return {
        "/v2/wait/{event_id}": {
            "post": _op(
                "Let a run wait for an event.",
                ref("Published"),
                name="wait",
                parameters=[_EVENT_ID, in_header("Service-Workflow-RunId", "The run that waits.")],
                body=json_body(wanted),
                refusals=(400, 404),
            )
        },
        "/v2/waiters/{event_id}": {
            "get": _op(
                "Who waits for an event.", array(ref("Waiter")), name="waiters", parameters=[_EVENT_ID]
            )
        },
        "/v2/notify/{event_id}": {
            "post": _op(
                "Tell all that wait for an event that it came.",
                array(ref("Notified")),
                name="notify",
                parameters=[_EVENT_ID],
                body=ANY_BODY,
            )
        },
        "/v2/notify/{run_id}/{event_id}": {
            "post": _op(
                "Tell one run that an event came, now or when it waits for it.",
                ref("Notified"),
                name="notifyRun",
                parameters=[in_path("run_id", "Of a workflow run."), _EVENT_ID],
                body=ANY_BODY,
                refusals=(400, 404),
            )
        },
    }


def _logs() -> dict[str, Node]:
    runs = record({"cursor": TEXT, "runs": array(ref("Run"), maxItems=100)}, required=["cursor", "runs"])
    events = record(
        {"cursor": TEXT, "events": array(ref("Event"), maxItems=1000)}, required=["cursor", "events"]
    )
    of_runs = [
        *paging(100),
        *SPAN,
        in_query("workflowCreatedAt", MOMENT, "Unix milliseconds."),
        *several(
            "workflowRunId", "workflowUrl", "state", "workflowState", "label", "callerIp", "flowControlKey",
            "messageId",
        ),
    ]  # fmt: skip
    of_events = [
        *paging(1000),
        *SPAN,
        *several(
            "messageId", "messageIds", "workflowRunId", "state", "url", "label", "callerIp", "flowControlKey",
            "topicName", "queueName", "scheduleId",
        ),
    ]  # fmt: skip
    # runs are what is listed in any case: the public workflow client says so
    grouped = in_query(
        "groupBy", choice("workflowRunId"), "What entries are grouped by: accepted, as they are."
    )
    found: dict[str, Node] = {}
    for name in ("logs", "events"):
        found[f"/v2/workflows/{name}"] = {
            "get": _op(
                "A page of runs, newest first.", runs, name=f"run-{name}", parameters=[*of_runs, grouped]
            )
        }
        found[f"/v2/{name}"] = {
            "get": _op(
                "A page of what happened to messages, newest first.",
                events,
                name=f"message-{name}",
                parameters=of_events,
            )
        }
    return found


def _keys() -> dict[str, Node]:
    return {
        "/v2/keys": {"get": _op("The signing keys.", ref("Keys"), name="keys", refusals=())},
        "/v2/keys/rotate": {
            "post": _op("The next key becomes the current one.", ref("Keys"), name="rotateKeys", refusals=())
        },
    }

"""The queue half in the document: publishing and dead letters."""

from __future__ import annotations

from functools import partial
from typing import Final

from toolkit.local.openapi.parts import (
    ANY_BODY,
    FLAG,
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
    operation,
    paging,
    record,
    ref,
    several,
)

_op = partial(operation, error="Error", tag="queue")

_HEADER_LISTS: Final[Node] = {"type": "object", "additionalProperties": array(TEXT)}
# filled-in entries are shown as they came: where there is no failure function, some have empty text
_FUNCTION_STATE: Final = choice(
    "", "CALLBACK_INPROGRESS", "CALLBACK_SUCCESS", "CALLBACK_FAIL", "CALLBACK_CANCELED"
)

QUEUE_SCHEMAS: Final[dict[str, Node]] = {
    "Error": record({"error": TEXT}, required=["error"]),
    "DlqEntry": record(
        {
            "dlqId": TEXT,
            "messageId": TEXT,
            "workflowUrl": TEXT,
            "workflowRunId": TEXT,
            "workflowCreatedAt": WHOLE,
            "url": TEXT,
            "method": TEXT,
            "header": _HEADER_LISTS,
            "body": TEXT,
            "bodyBase64": TEXT,
            "maxRetries": WHOLE,
            "createdAt": WHOLE,
            "failureCallback": TEXT,
            "callerIP": TEXT,
            "label": TEXT,
            "labels": array(TEXT),
            "flowControlKey": TEXT,
            "failureFunctionState": _FUNCTION_STATE,
            "responseStatus": WHOLE,
            "responseHeader": _HEADER_LISTS,
            "responseBody": TEXT,
            "responseBodyBase64": TEXT,
        },
        required=["dlqId"],
    ),
    "DlqPage": record(
        {"cursor": TEXT, "messages": array(ref("DlqEntry"), maxItems=100)}, required=["cursor", "messages"]
    ),
    "Published": record(
        {"messageId": TEXT, "deduplicated": FLAG, "workflowRunId": TEXT}, required=["messageId"]
    ),
    "StartedAgain": record({"workflowRunId": TEXT}, required=["workflowRunId"]),
    "Selection": record({"dlqIds": either(TEXT, array(TEXT, maxItems=1000))}),
}
"""Schemas of the queue half, by name."""

_DESTINATION: Final = in_path("destination", "The URL to deliver to, as it is or percent-encoded.")
_PAGING: Final = paging(100)
_FILTERS: Final = (
    *SPAN,
    in_query("workflowUrl", array(TEXT), "Any of these."),
    in_query("workflowRunId", TEXT, "This one."),
    in_query("workflowCreatedAt", MOMENT, "Unix milliseconds."),
    in_query("label", array(TEXT), "Any of these."),
    in_query("failureFunctionState", array(TEXT), "Any of these."),
    in_query("failureCallbackState", array(TEXT), "Another name of failureFunctionState."),
    in_query("callerIp", array(TEXT), "Any of these."),
    in_query("flowControlKey", array(TEXT), "Any of these."),
    *several("messageId", "responseStatus", "topicName", "queueName", "scheduleId"),
)
(_URL_FILTER,) = several("url")
_IDS: Final = in_query("dlqIds", array(TEXT), "These entries.")

_PUBLISH_HEADERS: Final = tuple(
    in_header(f"Service-{name}", words)
    for name, words in (
        ("Method", "Method of the delivery (POST)."),
        ("Timeout", "Longest delivery, such as 30s."),
        ("Retries", "How often delivery is tried again (3)."),
        ("Retry-Delay", "Milliseconds before a retry, as an expression over `retried`."),
        ("Delay", "Wait before the first delivery, such as 1d10h30m."),
        ("Not-Before", "Unix seconds before which nothing is delivered."),
        ("Label", "Labels, with commas between them."),
        ("Flow-Control-Key", "Messages of one key are limited together."),
        ("Flow-Control-Value", "parallelism=, rate= and period=."),
        ("Deduplication-Id", "The same within ten minutes is one message."),
        ("Content-Based-Deduplication", "true or false."),
        ("Callback", "URL that is told of every answer; Service-Callback-* are its settings."),
        ("Failure-Callback", "URL that is told of the end; Service-Failure-Callback-* are its settings."),
        ("Redact-Fields", "body, headers or header[Name], with commas between them."),
    )
)


def queue_paths() -> dict[str, Node]:
    """Paths of publishing and of dead letters."""
    return {
        "/v2/publish/{destination}": {
            "post": _op(
                "Publish a message. Headers may have the prefix Upstash- instead of Service-.",
                ref("Published"),
                name="publish",
                parameters=[_DESTINATION, *_PUBLISH_HEADERS],
                body=ANY_BODY,
                refusals=(400, 404),
            )
        },
        "/v2/batch": {
            "post": _op(
                "Publish all messages of an array, or none.",
                array(ref("Published")),
                name="batch",
                body=json_body(
                    array(
                        record(
                            {
                                "destination": TEXT,
                                "headers": {
                                    "type": "object",
                                    "additionalProperties": either(TEXT, array(TEXT)),
                                },
                                "body": TEXT,
                            },
                            required=["destination"],
                        )
                    )
                ),
                refusals=(400, 404),
            )
        },
        "/v2/trigger/{destination}": {
            "post": _op(
                "Start a workflow run.",
                either(ref("StartedAgain"), ref("Published")),
                name="trigger",
                parameters=[_DESTINATION, *_PUBLISH_HEADERS],
                body=ANY_BODY,
                refusals=(400, 404),
            )
        },
        **_dlq("/v2/workflows/dlq", "workflow", filters=_FILTERS),
        **_dlq("/v2/dlq", "message", filters=(*_FILTERS, _URL_FILTER)),
        **_again("/v2/workflows/dlq/resume", "resume", "Continue runs from their failed steps."),
        **_again("/v2/workflows/dlq/restart", "restart", "Start runs from the beginning."),
        **_again("/v2/workflows/dlq/callback", "callFailureFunction", "Call failure functions again."),
        **_again(
            "/v2/dlq/retry", "retry", "Deliver messages again.", answers="responses", more=(_URL_FILTER,)
        ),
    }


def _dlq(path: str, kind: str, *, filters: tuple[Node, ...]) -> dict[str, Node]:
    removed = record({"deleted": WHOLE, "cursor": TEXT}, required=["deleted", "cursor"])
    return {
        path: {
            "get": _op(
                "A page of entries, newest first.",
                ref("DlqPage"),
                name=f"{kind}Dlq",
                parameters=[*_PAGING, *filters, _IDS],
            ),
            "delete": _op(
                "Remove entries by ids or filters, at most `count` of them.",
                removed,
                name=f"{kind}DlqDelete",
                parameters=[*_PAGING, *filters, _IDS],
                body=json_body(ref("Selection"), required=False),
            ),
        },
        f"{path}/{{dlq_id}}": {
            "parameters": [in_path("dlq_id", "Of an entry.")],
            "get": _op("One entry.", ref("DlqEntry"), name=f"{kind}DlqEntry", refusals=(404,)),
            "delete": _op("Remove one entry.", None, name=f"{kind}DlqEntryDelete", refusals=(404,)),
        },
    }


def _again(
    path: str, name: str, summary: str, *, answers: str = "workflowRuns", more: tuple[Node, ...] = ()
) -> dict[str, Node]:
    return {
        path: {
            "post": _op(
                f"{summary} By ids or filters, at most `count` of them.",
                record({"cursor": TEXT, answers: array({"type": "object"})}, required=["cursor", answers]),
                name=f"{name}Many",
                parameters=[*_PAGING, *_FILTERS, *more, _IDS],
                body=json_body(ref("Selection"), required=False),
                refusals=(400, 404),
            )
        },
        f"{path}/{{dlq_id}}": {
            "post": _op(
                f"{summary} This one alone.",
                {"type": "object"},
                name=name,
                parameters=[in_path("dlq_id", "Of an entry.")],
                refusals=(400, 404),
            )
        },
    }

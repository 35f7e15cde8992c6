"""Which field of a DLQ entry on the wire fills which column."""

from __future__ import annotations

from typing import Final

WHAT: Final = "DLQ entries"
TEXTS: Final = {
    "workflow_run_id": "workflowRunId",
    "method": "method",
    "caller_ip": "callerIP",
    "label": "label",
    "flow_control_key": "flowControlKey",
    "failure_function_state": "failureFunctionState",
}
URLS: Final = {"workflow_url": "workflowUrl", "url": "url", "failure_callback": "failureCallback"}
NUMBERS: Final = {"max_retries": "maxRetries", "response_status": "responseStatus"}
MOMENTS: Final = {"workflow_created_at": "workflowCreatedAt", "created_at": "createdAt"}
BODIES: Final = {"body": ("body", "bodyBase64"), "response_body": ("responseBody", "responseBodyBase64")}
HEADERS: Final = {"headers": "header", "response_headers": "responseHeader"}
KNOWN: Final = frozenset(
    {
        "dlqId",
        "labels",
        *TEXTS.values(),
        *URLS.values(),
        *NUMBERS.values(),
        *MOMENTS.values(),
        *HEADERS.values(),
        *(name for pair in BODIES.values() for name in pair),
    }
)

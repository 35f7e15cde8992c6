"""Define the columns of each frame: content, field of the service, and Arrow schema.

Decoding, masking, storing and showing follow these tables. To add a column, add a line here.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

import pyarrow as pa

TIME: Final = pa.timestamp("ms", tz="UTC")
UNFIT: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow and pandas raise of values that do not fit a type."""

FAILED_AT: Final = "failed_at"
STATED_FAILED_AT: Final = "stated_failed_at"
FIRST_SEEN_AT: Final = "first_seen_at"
GONE_AFTER: Final = "gone_after"
GONE_BEFORE: Final = "gone_before"


class Kind(Enum):
    """Content of a column, which decides how it is decoded and masked."""

    ID = "text that every row has; of secrets, only our own tokens are masked"
    REFERENCE = "the id of another row, or nothing"
    TEXT = "text in which everything is masked that looks like a secret"
    URL = "a URL"
    HEADERS = "a map of names to lists of text, as JSON"
    LABELS = "a list of text, as JSON"
    BODY = "what an application sent, exact; base64 is in a column of its own, where it is not UTF-8"
    BASE64 = "such a body"
    JSON = "fields that the table does not know, or whose values do not fit"
    NUMBER = "a whole number"
    TIME = "a time in milliseconds"
    TIME_OR_ZERO = "such a time, or 0 for none"
    TIME_AS_TEXT = "such a time, perhaps written as text"
    FLAG = "true or false"


_ARROW: Final = {Kind.NUMBER: pa.int64(), Kind.FLAG: pa.bool_()} | dict.fromkeys(
    (Kind.TIME, Kind.TIME_OR_ZERO, Kind.TIME_AS_TEXT), TIME
)


class Column(NamedTuple):
    """A column, and the JSON field of the service that fills it, or None if it is derived."""

    name: str
    kind: Kind
    field: str | None = None


def schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of a table of these columns."""
    return pa.schema(
        [
            pa.field(name, _ARROW.get(kind, pa.string()), nullable=kind is not Kind.ID)
            for name, kind, _ in columns
        ]
    )


FAILURE_COLUMNS: Final = (
    Column(FAILED_AT, Kind.TIME),
    Column("workflow_url", Kind.URL, "workflowUrl"),
    Column("response_status", Kind.NUMBER, "responseStatus"),
    Column("workflow_run_id", Kind.TEXT, "workflowRunId"),
    Column("dlq_id", Kind.ID, "dlqId"),
    Column("created_at", Kind.TIME, "createdAt"),
    Column("labels", Kind.LABELS, "labels"),
    Column("failure_function_state", Kind.TEXT, "failureFunctionState"),
    Column("max_retries", Kind.NUMBER, "maxRetries"),
    Column("headers", Kind.HEADERS, "header"),
    Column("body", Kind.BODY, "body"),
    Column("response_headers", Kind.HEADERS, "responseHeader"),
    Column("response_body", Kind.BODY, "responseBody"),
    Column("body_base64", Kind.BASE64, "bodyBase64"),
    Column("response_body_base64", Kind.BASE64, "responseBodyBase64"),
    Column("extra", Kind.JSON),
    Column("url", Kind.URL, "url"),
    Column("method", Kind.TEXT, "method"),
    Column("workflow_created_at", Kind.TIME, "workflowCreatedAt"),
    Column("failure_callback", Kind.URL, "failureCallback"),
    Column("caller_ip", Kind.TEXT, "callerIP"),
    Column("label", Kind.TEXT, "label"),
    Column("flow_control_key", Kind.TEXT, "flowControlKey"),
    Column(STATED_FAILED_AT, Kind.TIME),
)
FAILURES: Final = schema(FAILURE_COLUMNS)
"""One row per DLQ entry.

`failed_at` comes from the Date header of the response, if it is possible. Otherwise it is estimated, and
`stated_failed_at` is the time of the header (see `failure_times`); it is null in all other rows. Headers are
JSON text with names and values as they were sent, and `labels` is a JSON list. A body that is not UTF-8 is
base64 text in a separate column. `extra` is the JSON of all fields that the schema does not know, and of
known fields with a value that does not fit.

The most important columns come first. Long strings are in the middle, because pandas leaves out the middle if
a frame has more than 20 columns. `error` (see `error_column`) is part of frames, after `response_status`, and
is not stored.
"""

ERROR: Final = "error"

HEADERS_EXPLODED: Final = pa.schema(
    [
        pa.field("dlq_id", pa.string(), nullable=False),
        ("name", pa.string()),
        ("value", pa.string()),
        ("position", pa.int64()),
    ]
)
"""One row per header value. `position` counts the values of one name from 0."""

LABELS_EXPLODED: Final = pa.schema(
    [pa.field("dlq_id", pa.string(), nullable=False), ("label", pa.string())]
)
"""One row per label of an entry."""

RUN_COLUMNS: Final = (
    Column("workflow_run_id", Kind.ID, "workflowRunId"),
    Column("workflow_url", Kind.URL, "workflowUrl"),
    Column("state", Kind.TEXT, "workflowState"),
    Column("created_at", Kind.TIME_OR_ZERO, "workflowRunCreatedAt"),
    Column("completed_at", Kind.TIME_OR_ZERO, "workflowRunCompletedAt"),
    Column("dlq_id", Kind.REFERENCE, "dlqId"),
    Column("labels", Kind.LABELS, "labels"),
    Column("extra", Kind.JSON),
)
RUNS: Final = schema(RUN_COLUMNS)
"""One row per workflow run of the run log."""

EVENT_COLUMNS: Final = (
    Column("time", Kind.TIME, "time"),
    Column("message_id", Kind.ID, "messageId"),
    Column("state", Kind.TEXT, "state"),
    Column("url", Kind.URL, "url"),
    Column("response_status", Kind.NUMBER, "responseStatus"),
    Column("error", Kind.TEXT, "error"),
    Column("retried", Kind.NUMBER, "retried"),
    Column("max_retries", Kind.NUMBER, "maxRetries"),
    Column("next_delivery_time", Kind.TIME_OR_ZERO, "nextDeliveryTime"),
    Column("workflow_run_id", Kind.TEXT, "workflowRunId"),
    Column("labels", Kind.LABELS, "labels"),
    Column("headers", Kind.HEADERS, "header"),
    Column("body", Kind.BODY),
    Column("body_base64", Kind.BASE64, "body"),
    Column("response_headers", Kind.HEADERS, "responseHeader"),
    Column("response_body", Kind.BODY, "responseBody"),
    Column("response_body_base64", Kind.BASE64, "responseBodyBase64"),
    Column("extra", Kind.JSON),
    Column("method", Kind.TEXT, "method"),
    Column("created_at", Kind.TIME_OR_ZERO, "createdAt"),
    Column("topic_name", Kind.TEXT, "topicName"),
    Column("endpoint_name", Kind.TEXT, "endpointName"),
    Column("queue_name", Kind.TEXT, "queueName"),
    Column("schedule_id", Kind.TEXT, "scheduleId"),
    Column("flow_control_key", Kind.TEXT, "flowControlKey"),
    Column("callback", Kind.URL, "callback"),
    Column("failure_callback", Kind.URL, "failureCallback"),
    Column("caller_ip", Kind.TEXT, "callerIP"),
    Column("label", Kind.TEXT, "label"),
)
EVENTS: Final = schema(EVENT_COLUMNS)
"""One row per event of a message: accepted, tried, delivered, failed or cancelled. An event has no id."""

STEP_COLUMNS: Final = (
    Column("dlq_id", Kind.REFERENCE, "dlqId"),
    Column("workflow_run_id", Kind.TEXT, "workflowRunId"),
    Column("position", Kind.NUMBER, "position"),
    Column("step_id", Kind.NUMBER, "stepId"),
    Column("step_name", Kind.TEXT, "stepName"),
    Column("step_type", Kind.TEXT, "stepType"),
    Column("status", Kind.TEXT, "state"),
    Column("output", Kind.BODY, "out"),
    Column("output_base64", Kind.BASE64, "outBase64"),
    Column("truncated", Kind.FLAG, "truncated"),
    Column("concurrent", Kind.NUMBER, "concurrent"),
    Column("target_step", Kind.NUMBER, "targetStep"),
    Column("message_id", Kind.TEXT, "messageId"),
    Column("call_type", Kind.TEXT, "callType"),
    Column("created_at", Kind.TIME_OR_ZERO, "createdAt"),
    Column("retries", Kind.NUMBER, "retries"),
    Column("next_delivery_time", Kind.TIME_OR_ZERO, "nextDeliveryTime"),
    Column("call_url", Kind.URL, "callUrl"),
    Column("call_method", Kind.TEXT, "callMethod"),
    Column("call_status", Kind.NUMBER, "callResponseStatus"),
    Column("extra", Kind.JSON),
)
STEPS: Final = schema(STEP_COLUMNS)
"""One row per step of a workflow run. The first row of a run is the initial payload."""

CALLBACK_COLUMNS: Final = (
    Column("source_message_id", Kind.REFERENCE, "sourceMessageId"),
    Column("kind", Kind.REFERENCE),
    Column("status", Kind.NUMBER, "status"),
    Column("headers", Kind.HEADERS, "header"),
    Column("body", Kind.BODY),
    Column("body_base64", Kind.BASE64, "body"),
    Column("body_truncated", Kind.FLAG),
    Column("retried", Kind.NUMBER, "retried"),
    Column("max_retries", Kind.NUMBER, "maxRetries"),
    Column("delivered", Kind.FLAG),
    Column("exhausted", Kind.FLAG),
    Column("dlq_id", Kind.REFERENCE, "dlqId"),
    Column("in_dlq", Kind.FLAG),
    Column("topic_name", Kind.TEXT, "topicName"),
    Column("endpoint_name", Kind.TEXT, "endpointName"),
    Column("url", Kind.URL, "url"),
    Column("method", Kind.TEXT, "method"),
    Column("source_headers", Kind.HEADERS, "sourceHeader"),
    Column("source_body", Kind.BODY),
    Column("source_body_base64", Kind.BASE64, "sourceBody"),
    Column("source_body_truncated", Kind.FLAG),
    Column("not_before", Kind.TIME_AS_TEXT, "notBefore"),
    Column("created_at", Kind.TIME_AS_TEXT, "createdAt"),
    Column("schedule_id", Kind.TEXT, "scheduleId"),
    Column("caller_ip", Kind.TEXT, "callerIP"),
    Column("received_at", Kind.TIME),
    Column("verified", Kind.FLAG),
    Column("extra", Kind.JSON),
)
CALLBACKS: Final = schema(CALLBACK_COLUMNS)
"""One row per callback request. `kind` is "callback" or "failure"; `received_at` and `verified` are null
for bodies that were not received by a `CallbackReceiver`."""

ADDED: Final = frozenset(
    {"body_truncated", "source_body_truncated", "signature", STATED_FAILED_AT}
)
"""Columns that snapshots of older versions do not have. They are null there. Add every new column here."""

_ALL: Final = (
    *FAILURE_COLUMNS,
    *RUN_COLUMNS,
    *EVENT_COLUMNS,
    *STEP_COLUMNS,
    *CALLBACK_COLUMNS,
)
JSON_COLUMNS: Final = frozenset(
    {
        "metadata",
        *(c.name for c in _ALL if c.kind in (Kind.HEADERS, Kind.LABELS, Kind.JSON)),
    }
)
"""Columns of JSON text."""

EXACT_COLUMNS: Final = frozenset(
    {"metadata", "data", *(c.name for c in _ALL if c.kind is Kind.BODY)}
)
"""Columns that contain exactly the text that applications sent."""


def vectors(dimension: int | None = None) -> pa.Schema:
    """Return the schema of a table of vectors.

    The vector column has a fixed size if the dimension is known.
    """
    return pa.schema(_vector_columns(dimension))


def _vector_columns(dimension: int | None) -> list[pa.Field]:
    dense = pa.list_(pa.float32(), dimension) if dimension else pa.list_(pa.float32())
    return [
        pa.field("namespace", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("vector", dense),
        pa.field("sparse_indices", pa.list_(pa.int64())),
        pa.field("sparse_values", pa.list_(pa.float32())),
        pa.field("metadata", pa.string()),
        pa.field("data", pa.string()),
        pa.field("vector_problem", pa.string()),
    ]


def hits(
    dimension: int | None = None,
    *,
    vectors: bool = True,
    metadata: bool = True,
    data: bool = True,
) -> pa.Schema:
    """Return the schema of query results with the included parts."""
    included = {"metadata": metadata, "data": data}
    included |= dict.fromkeys(("vector", "sparse_indices", "sparse_values"), vectors)

    return pa.schema(
        [
            pa.field("query", pa.int64(), nullable=False),
            pa.field("rank", pa.int64(), nullable=False),
            pa.field("id", pa.string(), nullable=False),
            pa.field("score", pa.float64(), nullable=False),
            *(
                column
                for column in _vector_columns(dimension)
                if included.get(column.name)
            ),
        ]
    )

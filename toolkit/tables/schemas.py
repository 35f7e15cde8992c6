"""One Arrow schema a table: the columns, their types, and their order, whether there are rows or not."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

ERROR: Final = "error"
TIME: Final = pa.timestamp("ms", tz="UTC")

FAILURES: Final = pa.schema(
    [
        pa.field("failed_at", TIME),
        pa.field("workflow_url", pa.string()),
        pa.field("response_status", pa.int64()),
        pa.field("workflow_run_id", pa.string()),
        pa.field("dlq_id", pa.string(), nullable=False),
        pa.field("created_at", TIME),
        pa.field("labels", pa.string()),
        pa.field("failure_function_state", pa.string()),
        pa.field("max_retries", pa.int64()),
        pa.field("headers", pa.string()),
        pa.field("body", pa.string()),
        pa.field("response_headers", pa.string()),
        pa.field("response_body", pa.string()),
        pa.field("body_base64", pa.string()),
        pa.field("response_body_base64", pa.string()),
        pa.field("extra", pa.string()),
        pa.field("url", pa.string()),
        pa.field("method", pa.string()),
        pa.field("workflow_created_at", TIME),
        pa.field("failure_callback", pa.string()),
        pa.field("caller_ip", pa.string()),
        pa.field("label", pa.string()),
        pa.field("flow_control_key", pa.string()),
    ]
)
"""One row a DLQ entry. `failed_at` comes from the response's Date header. Headers are JSON text, names and
values as they were sent, and `labels` is a JSON list. A body that is not UTF-8 is base64 text beside. `extra`
is the JSON of every field that the schema does not know, and of known fields whose value does not fit.

What is looked at first comes first, and long texts stand in the middle, where pandas leaves columns out when
it shows more than 20. `error` (see `error_column`) is part of frames, behind `response_status`, and not
stored."""

HEADERS_EXPLODED: Final = pa.schema(
    [
        pa.field("dlq_id", pa.string(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("value", pa.string()),
        pa.field("position", pa.int64()),
    ]
)
"""One row a header value. `position` counts the values of one name from 0."""

LABELS_EXPLODED: Final = pa.schema(
    [pa.field("dlq_id", pa.string(), nullable=False), pa.field("label", pa.string())]
)
"""One row a label of an entry."""

RUNS: Final = pa.schema(
    [
        pa.field("workflow_run_id", pa.string(), nullable=False),
        pa.field("workflow_url", pa.string()),
        pa.field("state", pa.string()),
        pa.field("created_at", TIME),
        pa.field("completed_at", TIME),
        pa.field("dlq_id", pa.string()),
        pa.field("labels", pa.string()),
        pa.field("extra", pa.string()),
    ]
)
"""One row a workflow run of the run log."""

CALLBACKS: Final = pa.schema(
    [
        pa.field("source_message_id", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("status", pa.int64()),
        pa.field("headers", pa.string()),
        pa.field("body", pa.string()),
        pa.field("body_base64", pa.string()),
        pa.field("body_truncated", pa.bool_()),
        pa.field("retried", pa.int64()),
        pa.field("max_retries", pa.int64()),
        pa.field("delivered", pa.bool_()),
        pa.field("exhausted", pa.bool_()),
        pa.field("dlq_id", pa.string()),
        pa.field("in_dlq", pa.bool_()),
        pa.field("topic_name", pa.string()),
        pa.field("endpoint_name", pa.string()),
        pa.field("url", pa.string()),
        pa.field("method", pa.string()),
        pa.field("source_headers", pa.string()),
        pa.field("source_body", pa.string()),
        pa.field("source_body_base64", pa.string()),
        pa.field("source_body_truncated", pa.bool_()),
        pa.field("not_before", TIME),
        pa.field("created_at", TIME),
        pa.field("schedule_id", pa.string()),
        pa.field("caller_ip", pa.string()),
        pa.field("received_at", TIME),
        pa.field("verified", pa.bool_()),
        pa.field("extra", pa.string()),
    ]
)
"""One row a callback request. `kind` is "callback" or "failure"; `received_at` and `verified` are null
for bodies that did not come through a receiver."""


def vectors(dimension: int | None = None) -> pa.Schema:
    """Schema of a table of vectors; the vector column has a fixed size where the dimension is known."""
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
    dimension: int | None = None, *, vectors: bool = True, metadata: bool = True, data: bool = True
) -> pa.Schema:
    """Schema of query results, with what was included.

    `query` counts the batch's queries from 0, `rank` a query's hits from 1.
    """
    wanted = {
        "vector": vectors,
        "sparse_indices": vectors,
        "sparse_values": vectors,
        "metadata": metadata,
        "data": data,
    }
    columns = [column for column in _vector_columns(dimension) if wanted.get(column.name)]
    return pa.schema(
        [
            pa.field("query", pa.int64(), nullable=False),
            pa.field("rank", pa.int64(), nullable=False),
            pa.field("id", pa.string(), nullable=False),
            pa.field("score", pa.float64(), nullable=False),
            *columns,
        ]
    )

"""Workflow runs: from a page of the run log to the table ``RUNS``."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from toolkit.redaction import Redactor
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.schemas import RUNS
from toolkit.tables.text import clean, is_clean, labels_json, masked_json, moment, parse_rows, required_id

_WHAT: Final = "workflow runs"
_TEXTS: Final = {"workflow_url": "workflowUrl", "state": "workflowState", "dlq_id": "dlqId"}
_MOMENTS: Final = {"created_at": "workflowRunCreatedAt", "completed_at": "workflowRunCompletedAt"}
_KNOWN: Final = frozenset({"workflowRunId", "labels", *_TEXTS.values(), *_MOMENTS.values()})


def decode_runs(rows: bytes, *, redactor: Redactor | None) -> pa.Table:
    """The runs of a page as a table of the schema ``RUNS``.

    Parameters
    ----------
    rows : bytes
        A JSON array of runs.
    redactor : Redactor or None
        Masks URLs and what looks like a secret in ``extra``; None keeps everything as it came.

    Returns
    -------
    pyarrow.Table
        One row a run. What does not fit its column is null there and stands in ``extra``, with every field
        the schema does not know.

    Raises
    ------
    ProtocolError
        When the bytes are no array of objects, or a run has no id.
    """
    runs = parse_rows(rows, what=_WHAT, exactly=True)
    found = [_row(run, place, redactor) for place, run in enumerate(runs)]
    return ColumnMasker(redactor).table(pa.Table.from_pylist(found, schema=RUNS))


def _row(run: dict[str, Any], place: int, redactor: Redactor | None) -> dict[str, Any]:
    extra = {name: value for name, value in run.items() if name not in _KNOWN}
    row: dict[str, Any] = {"workflow_run_id": required_id(run, "workflowRunId", what=_WHAT, place=place)}
    for column, wire in _TEXTS.items():
        value = run.get(wire)
        row[column] = (clean(value) or None) if isinstance(value, str) else None
        if value not in (None, "") and (row[column] is None or not is_clean(value)):
            extra[wire] = value
    for column, wire in _MOMENTS.items():
        row[column] = moment(run.get(wire)) or None  # 0 stands for "not yet"
        if run.get(wire) and row[column] is None:
            extra[wire] = run[wire]
    labels = run.get("labels")
    if isinstance(labels, list) and all(isinstance(label, str) and is_clean(label) for label in labels):
        row["labels"] = labels_json(labels, redactor)
    elif labels is not None:
        extra["labels"] = labels
    if redactor is not None:
        row["workflow_url"] = row["workflow_url"] and redactor.url(row["workflow_url"])
        row["state"] = row["state"] and redactor.text(row["state"])
    return row | {"extra": masked_json(extra, redactor)}

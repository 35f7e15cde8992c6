"""Read the steps of workflow runs from the body of a failed run, or from the run log."""

from __future__ import annotations

import json
import re
import warnings
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pandas as pd

from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.base.members import RawJson
from toolkit.secrets.redaction import Redactor
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.base64_bodies import base64_body, base64_bytes, is_cut_base64
from toolkit.tables.frames import checked_frame, texts_of, to_frame
from toolkit.tables.json_rows import json_value
from toolkit.tables.lenient_rows import LenientRows
from toolkit.tables.schemas import STEP_COLUMNS
from toolkit.tables.truncated_json import parse_truncated

_COLUMNS: Final = ("dlq_id", "workflow_run_id", "body", "body_base64", "extra")
_INITIAL: Final = {"stepId": 0, "stepName": "init", "stepType": "Initial"}
_NO_BASE64: Final = re.compile(r"[^A-Za-z0-9+/=]")


def explode_steps(failures: FrameLike) -> pd.DataFrame:
    """Read the payloads of workflow runs, and return one row per step.

    The ``body`` of a failed run is the request to the endpoint: the initial payload, and each finished step
    with the result. The run log lists the steps of every run, with other details.

    Parameters
    ----------
    failures : pandas.DataFrame
        A frame from `load_failures` or `read_snapshot`, or some rows of it, with ``dlq_id`` and ``body`` (and
        ``body_base64``, ``workflow_run_id`` if present); or a frame from `load_runs`.

    Returns
    -------
    pandas.DataFrame
        One row per step, in the order of the frame and of the history of each run: ``dlq_id``,
        ``workflow_run_id`` (str), ``position`` (Int64, from 0 in each run), ``step_id`` (Int64),
        ``step_name``, ``step_type`` (str: "Initial", "Run", "SleepFor", "Call" and others as sent),
        ``status`` (str, from the run log), ``output`` (str: the result of the step, JSON as text; exact, and
        masked when it is shown), ``output_base64`` (only if the result is not UTF-8), ``truncated`` (boolean:
        the body ends within or after this step, and was read up to the end), ``concurrent`` (Int64: number of
        parallel steps), ``target_step`` (Int64: from the plan of a parallel step), ``message_id`` (str: of
        the delivery), ``call_type`` (str), ``created_at`` and ``next_delivery_time`` (datetime64[ms, UTC])
        and ``retries`` (Int64) if present, ``call_url``, ``call_method`` (str), ``call_status`` (Int64: of
        the response of a call), ``extra`` (JSON text of everything else). The first row of a run has the
        initial payload as ``output``. Runs without steps have no rows.

    Raises
    ------
    InputError
        If the frame has neither bodies nor the columns of the run log.

    Warns
    -----
    UnexpectedResultWarning
        If bodies contain no steps. The warning contains their number and their content, for example "empty".

    Examples
    --------
    >>> from base64 import b64encode
    >>> step = b64encode(b'{"stepId": 1, "stepName": "charge", "stepType": "Run", "out": "17"}').decode()
    >>> body = '[{"messageId": "m0", "body": "e30="}, {"messageId": "m1", "body": "%s"}]' % step
    >>> steps = explode_steps(pd.DataFrame({"dlq_id": ["a"], "body": [body]}))
    >>> steps[["dlq_id", "step_name", "step_type", "output"]]
      dlq_id step_name step_type output
    0      a      init   Initial     {}
    1      a    charge       Run     17
    """
    frame = checked_frame("failures", failures, "dlq_id")
    known = _known_columns(frame)

    rows: list[dict[str, Any]] = []
    others: Counter[str] = Counter()
    for values in zip(*known.values(), strict=True):
        row = dict(zip(known, values, strict=True))
        steps, other = _steps_of(row)
        others[other] += 1
        rows += _with_ids(steps, row)

    del others[""]
    if others:
        counts = sorted(others.items())
        reasons = ", ".join(f"{count:,} {other}" for other, count in counts)
        warnings.warn(
            f"{others.total():,} of {len(frame):,} bodies contain no steps and have no rows: {reasons}.",
            UnexpectedResultWarning,
            stacklevel=2,
        )

    return to_frame(LenientRows(rows, STEP_COLUMNS, Redactor(), what="steps").table())


def _known_columns(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """Return the columns that steps are read from. Raise InputError if there are neither bodies nor logs."""
    columns: dict[str, list[Any]] = {}
    for name in frame.columns.intersection(list(_COLUMNS)):
        column = checked_frame("failures", frame, name)[name]
        columns[name] = texts_of(column).to_pylist()

    if columns.keys().isdisjoint({"body", "extra"}):
        raise InputError(
            "reading failures",
            got="a frame without the column 'body'",
            expected="a frame from load_failures with this column, or a frame from load_runs",
        )

    return columns


def _with_ids(
    steps: list[dict[str, Any]], row: Mapping[str, str | None]
) -> Iterator[dict[str, Any]]:
    """Yield the steps of a row with the ids of the row and the position in the run."""
    ids = {"dlqId": row["dlq_id"], "workflowRunId": row.get("workflow_run_id")}
    for position, step in enumerate(steps):
        yield step | ids | {"position": position}


def _steps_of(row: Mapping[str, str | None]) -> tuple[list[dict[str, Any]], str]:
    """Return the steps of a row, or no steps and a description of the body."""
    if "body" not in row:
        return list(_logged(row["extra"])), ""
    return _delivered(row["body"], row.get("body_base64"))


def _delivered(
    body: str | None, encoded: str | None
) -> tuple[list[dict[str, Any]], str]:
    """Return the steps of a delivered body, or no steps and a description of the body."""
    text = _body_text(body, encoded) or ""
    if not text.strip():
        return [], "empty"
    if not text.lstrip().startswith("["):
        return [], "that are not a JSON array"

    # for example '[{"messageId": "m0", "body": "e30="}, {"mess', which is cut within the second step
    items, truncated = parse_truncated(text)
    if truncated:
        items = _without_empty_end(items)
    other = _other_content(items)
    if other:
        return [], other

    steps = [_step(item, position) for position, item in enumerate(items)]
    steps[-1]["truncated"] |= truncated
    return steps, ""


def _other_content(items: Any) -> str:
    """Return a description of a body that is not a list of steps; "" if it is one."""
    if items is None:
        return "that are not JSON"
    if items == []:
        return "empty"
    if not isinstance(items, list):
        return "arrays of something else"
    if not all(map(_is_item, items)):
        return "arrays of something else"

    return ""


def _without_empty_end(items: Any) -> Any:
    """Return the items without a last one that was cut before the first member, or None if none is left."""
    if not items:
        return None
    if isinstance(items, list) and not items[-1]:
        return items[:-1] or None

    return items


def _body_text(body: str | None, encoded: str | None) -> str | None:
    """Return a body that is text, or that is base64 because it was not UTF-8."""
    if body is not None or encoded is None:
        return body

    raw = base64_bytes(encoded)
    if raw is None:
        return None

    return raw.decode("utf-8", "surrogateescape")


def _is_item(item: Any) -> bool:
    """Return True for a step with a body in base64. A truncated step may have only the id."""
    if not isinstance(item, dict):
        return False

    names = item.keys() & {"messageId", "body"}
    return bool(names) and all(isinstance(item[name], str) for name in names)


def _step(item: dict[str, Any], position: int) -> dict[str, Any]:
    """Return the fields of one step from an item of the payload."""
    encoded, is_cut = _base64_part(item.get("body", ""))
    text, raw, _ = base64_body(None, encoded)
    delivery = {name: value for name, value in item.items() if name != "body"}
    delivery["truncated"] = is_cut
    if position == 0:
        return delivery | _INITIAL | _output(text, raw)

    step_json = text or ""
    if raw is not None:
        step_json = raw.decode("utf-8", "surrogateescape")
    fields, shortened = parse_truncated(step_json)
    if not isinstance(fields, dict):
        # not a step: the sent text becomes the output
        return delivery | _output(text, raw)

    return _known(fields) | delivery | {"truncated": is_cut or shortened}


def _base64_part(encoded: str) -> tuple[str, bool]:
    """Return the base64 at the start of a body, and True if something else follows or the end is missing."""
    other_text = _NO_BASE64.search(encoded)  # for example a mask
    if other_text is not None:
        return encoded[: other_text.start()], True

    return encoded, bool(is_cut_base64(encoded))


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a step with the output as text, and the status of the response of a call."""
    output = fields.get("out")
    if isinstance(output, RawJson):
        return fields | {"out": output.text}
    if output is None:
        return fields
    if not isinstance(output, str):
        return fields | {"out": json.dumps(output)}
    if fields.get("stepType") != "Call":
        return fields

    response, _ = parse_truncated(output)
    status = _members(response).get("status")
    if status is None:
        return fields

    return {"callResponseStatus": status} | fields


def _output(text: str | None, raw: bytes | None) -> dict[str, Any]:
    if raw is None:
        return {"out": text}
    return {"outBase64": b64encode(raw).decode()}


def _logged(extra: str | None) -> Iterator[dict[str, Any]]:
    """Yield the steps of the run log, which come in groups of steps that ran in parallel."""
    try:
        run = json_value(extra or "{}")
    except ValueError:
        return

    for group in _list_member(run, "steps"):
        for step in _list_member(group, "steps"):
            if isinstance(step, dict):
                yield _known(step) | {"truncated": False}


def _members(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one for another value."""
    if isinstance(value, Mapping):
        return value
    return {}


def _list_member(value: Any, name: str) -> list[Any]:
    """Return an array in a JSON object, or an empty one for another value."""
    member = _members(value).get(name)
    if isinstance(member, list):
        return member

    return []

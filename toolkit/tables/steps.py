"""The steps of workflow runs: from the body that a failed run was delivered with, or from the run log."""

from __future__ import annotations

import json
import re
import warnings
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import pandas as pd

from toolkit.client.members import RawJson, read_json
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.redaction import Redactor
from toolkit.tables.frames import checked_frame, texts_of, to_frame
from toolkit.tables.lenient_rows import LenientRows
from toolkit.tables.schemas import STEP_COLUMNS
from toolkit.tables.text import base64_body, base64_bytes, is_cut_base64, json_value

_INITIAL: Final = {"stepId": 0, "stepName": "init", "stepType": "Initial"}
_MARK: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{},]', re.DOTALL)
_HALF_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?)\Z")
_NO_BASE64: Final = re.compile(r"[^A-Za-z0-9+/=]")


def explode_steps(failures: pd.DataFrame) -> pd.DataFrame:
    """Open the payloads of workflow runs: one row a step.

    A failed run's ``body`` is what its endpoint was sent: the initial payload and each finished step, with
    what it returned. The run log lists the steps of every run, with other details.

    Parameters
    ----------
    failures : pandas.DataFrame
        As `load_failures` or `read_snapshot` returns it, or some rows of it, with ``dlq_id`` and ``body``
        (and ``body_base64``, ``workflow_run_id`` where there); or as `load_runs` returns it.

    Returns
    -------
    pandas.DataFrame
        One row a step, in the order of the frame and of each run's history: ``dlq_id``, ``workflow_run_id``
        (str), ``position`` (Int64, from 0 in each run), ``step_id`` (Int64), ``step_name``, ``step_type``
        (str: "Initial", "Run", "SleepFor", "Call" and others as sent), ``status`` (str, of the run log),
        ``output`` (str: what the step returned, JSON as text; exact, and masked where it is shown),
        ``output_base64`` (only where that is not UTF-8), ``truncated`` (boolean: the body ends within or
        behind this step, which was read as far as it goes), ``concurrent`` (Int64: how many run in parallel),
        ``target_step`` (Int64: of the plan of a parallel step), ``message_id`` (str: of its delivery),
        ``call_type`` (str), ``created_at`` and ``next_delivery_time`` (datetime64[ms, UTC]) and ``retries``
        (Int64) where they are carried, ``call_url``, ``call_method`` (str), ``call_status`` (Int64: of a
        call's response), ``extra`` (JSON text of everything else). The first row of a run has its initial
        payload as ``output``. Rows without steps have none.

    Raises
    ------
    InputError
        When the frame has neither a body nor what the run log has.

    Warns
    -----
    UnexpectedResultWarning
        When bodies hold no steps: it says how many, and what they are instead.

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
    known = {
        name: texts_of(checked_frame("failures", frame, name)[name]).to_pylist()
        for name in ("dlq_id", "workflow_run_id", "body", "body_base64", "extra")
        if name in frame.columns
    }
    if not {"body", "extra"} & known.keys():
        raise InputError(
            "reading failures",
            got="a frame without the column 'body'",
            expected="one of load_failures with it, or one of load_runs",
        )
    rows: list[dict[str, Any]] = []
    others: Counter[str] = Counter()
    for index in range(len(frame)):
        row = {name: values[index] for name, values in known.items()}
        ids = {"dlqId": row["dlq_id"], "workflowRunId": row.get("workflow_run_id")}
        if "body" not in known:
            steps = list(_logged(row["extra"]))
        else:
            steps, other = _delivered(row["body"], row.get("body_base64"))
            others[other] += bool(other)
        rows += [step | ids | {"position": position} for position, step in enumerate(steps)]
    if found := ", ".join(f"{count:,} {other}" for other, count in sorted(others.items()) if count):
        warnings.warn(
            f"{others.total():,} of {len(frame):,} bodies hold no steps and have no rows: {found}.",
            UnexpectedResultWarning,
            stacklevel=2,
        )
    return to_frame(LenientRows(rows, STEP_COLUMNS, Redactor(), what="steps").table())


def _delivered(body: str | None, encoded: str | None) -> tuple[list[dict[str, Any]], str]:
    """The steps of a body that was delivered; without any, what it is instead."""
    if body is None and encoded is not None:
        raw = base64_bytes(encoded)
        body = None if raw is None else raw.decode("utf-8", "surrogateescape")
    if not body or not body.strip():
        return [], "empty"
    if not body.lstrip().startswith("["):
        return [], "that are not a JSON array"
    items, truncated = _parse_truncated(body)
    if truncated and isinstance(items, list) and items and not items[-1]:  # nothing of it is left
        items.pop()
    if not items:
        return [], "that are not JSON" if items is None or truncated else "empty"
    if not isinstance(items, list) or not all(_is_item(item) for item in items):
        return [], "arrays of something else"
    last = len(items) - 1
    return [
        _step(item, position, cut=truncated and position == last) for position, item in enumerate(items)
    ], ""


def _is_item(item: Any) -> bool:
    """Whether this is a step with its body in base64, of which a truncated one may have the id alone."""
    texts = isinstance(item, dict) and all(
        isinstance(item.get(name, ""), str) for name in ("messageId", "body")
    )
    return texts and bool(item.keys() & {"messageId", "body"})


def _step(item: dict[str, Any], position: int, *, cut: bool) -> dict[str, Any]:
    """The fields of one step, from its item of the payload."""
    encoded = item.get("body", "")
    if bad := _NO_BASE64.search(encoded):  # such as a mask
        encoded = encoded[: bad.start()]
    cut = cut or bad is not None or bool(is_cut_base64(encoded))
    text, raw, _ = base64_body(None, encoded)
    about = {name: value for name, value in item.items() if name != "body"} | {"truncated": cut}
    if position == 0:
        return about | _INITIAL | _output(text, raw)
    whole = text if raw is None else raw.decode("utf-8", "surrogateescape")
    fields, shortened = _parse_truncated(whole or "")
    if not isinstance(fields, dict):  # no step: what was sent is kept as its output
        return about | _output(text, raw)
    return _known(fields) | about | {"truncated": cut or shortened}


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a step, with its output as text, and the status of a call's response."""
    out = fields.get("out")
    if out is None:
        return fields
    if not isinstance(out, str):
        return fields | {"out": out.text if isinstance(out, RawJson) else json.dumps(out)}
    response = _parse_truncated(out)[0] if fields.get("stepType") == "Call" else None
    status = response.get("status") if isinstance(response, dict) else None
    return fields if status is None else {"callResponseStatus": status} | fields


def _output(text: str | None, raw: bytes | None) -> dict[str, Any]:
    return {"out": text} if raw is None else {"outBase64": b64encode(raw).decode()}


def _logged(extra: str | None) -> Iterator[dict[str, Any]]:
    """The steps that the run log names: groups of one, or of those that ran in parallel."""
    try:
        groups = json_value(extra or "{}").get("steps")
    except (ValueError, AttributeError):
        return
    for group in groups if isinstance(groups, list) else ():
        steps = group.get("steps") if isinstance(group, Mapping) else None
        for step in steps if isinstance(steps, list) else ():
            if isinstance(step, dict):
                yield _known(step) | {"truncated": False}


def _parse_truncated(text: str) -> tuple[Any, bool]:
    """The value of JSON text as far as it goes, and whether it is truncated; None where it is not JSON."""
    with suppress(ValueError, RecursionError):
        return read_json(text), False
    brackets: list[str] = []
    closed_since: list[str] = []  # brackets since the last value may have begun, at `end`
    end = 0
    for mark in _MARK.finditer(text):
        sign = mark[0][0]
        if sign in "[{":
            brackets.append("]" if sign == "[" else "}")
        elif sign in "]}":
            if not brackets or brackets[-1] != sign:
                break
            closed_since.append(brackets.pop())
        if sign in "[{,":
            end = mark.end() - (sign == ",")
            closed_since.clear()
    closed = _HALF_ESCAPE.sub(lambda half: half[0][: -len(half[1])], text) + '"'
    ends = text.rstrip()[-1:] in ("]", "}", '"')  # otherwise what was cut is a number, or a name
    whole = [part + "".join(reversed(brackets)) for part in (closed, text)[: 1 + ends]]
    without = text[:end] + "".join(reversed([*brackets, *reversed(closed_since)]))
    for attempt in (*whole, without):
        with suppress(ValueError, RecursionError):
            return read_json(attempt), True
    return None, False

"""One failure in full: what was sent, what came back, what happened when. Masked and escaped."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import pandas as pd

from toolkit.analysis.counts import CALLBACK_STATES
from toolkit.analysis.wording import span
from toolkit.redaction import Redactor, escape_html
from toolkit.tables.header_maps import header_map
from toolkit.widgets.colouring import coloured

_FACTS: Final = {
    "dlq_id": "DLQ id",
    "workflow_run_id": "Run",
    "workflow_url": "Workflow",
    "url": "Address",
    "method": "Method",
    "caller_ip": "Caller",
    "labels": "Labels",
    "flow_control_key": "Flow-control key",
    "failure_callback": "Failure callback",
}
_MOMENTS: Final = {
    "workflow_created_at": "Run created",
    "created_at": "Message created",
    "failed_at": "Failed for good",
}
_RETRIED: Final = ("upstash-retried", "service-retried", "retried")


def detail_markup(row: Mapping[str, Any], redactor: Redactor) -> str:
    """Everything that is known of a failure, as markup.

    Parameters
    ----------
    row : mapping
        A row of a frame of failures; columns may be missing.
    redactor : Redactor
        Headers outside the allow-list are masked whole, all other texts in part.

    Examples
    --------
    >>> "&lt;b&gt;" in detail_markup({"dlq_id": "a", "response_body": "<b>"}, Redactor(key=b"k"))
    True
    """
    status = _text(row, "response_status", redactor)
    # what went wrong comes first: it is what one looks for
    sections = [
        (f"Response {status}".strip(), _message(row, "response_", redactor)),
        ("Summary", _facts(row, redactor)),
        ("Timeline", _timeline(row, redactor)),
        ("Request", _message(row, "", redactor)),
    ]
    if _there(row.get("extra")):
        sections.append(("Fields the toolkit does not know", coloured(row["extra"], redactor)))
    body = "".join(f"<section><h4>{escape_html(name)}</h4>{markup}</section>" for name, markup in sections)
    return f'<div class="tk-detail" role="group" aria-label="Failure" tabindex="0">{body}</div>'


def _there(value: Any) -> bool:
    return value is not None and not (pd.api.types.is_scalar(value) and pd.isna(value))


def _text(row: Mapping[str, Any], name: str, redactor: Redactor) -> str:
    value = row.get(name)
    if not _there(value):
        return ""
    return redactor.text(str(value))


def _labels(row: Mapping[str, Any], redactor: Redactor) -> str:
    try:
        found = json.loads(row.get("labels") or "null")
    except (TypeError, ValueError):
        found = row["labels"]
    several = found if isinstance(found, list) else [found] if _there(found) else []
    return ", ".join(redactor.text(str(label)) for label in several)


def _list(pairs: list[tuple[str, str]]) -> str:
    if not pairs:
        return '<p class="tk-note">nothing is known</p>'
    return f"<dl>{''.join(f'<dt>{escape_html(name)}</dt><dd>{markup}</dd>' for name, markup in pairs)}</dl>"


def _facts(row: Mapping[str, Any], redactor: Redactor) -> str:
    found = [
        (label, (_labels(row, redactor) if name == "labels" else _text(row, name, redactor)))
        for name, label in _FACTS.items()
    ]
    return _list([(label, escape_html(text)) for label, text in found if text])


def _timeline(row: Mapping[str, Any], redactor: Redactor) -> str:
    moments = ((label, _moment(row.get(name))) for name, label in _MOMENTS.items())
    times = [(label, when) for label, when in moments if when is not None]
    pairs = []
    for number, (label, when) in enumerate(times):
        after = f" · {span(when - times[number - 1][1])} later" if number else ""
        pairs.append((label, escape_html(f"{when:%Y-%m-%d %H:%M:%S} UTC{after}")))
    retried = next((text for name in _RETRIED if (text := _header(row, name))), None)
    allowed = _text(row, "max_retries", redactor)
    if retried or allowed:
        words = f"{redactor.text(retried) if retried else 'unknown'} made, {allowed or 'unknown'} allowed"
        pairs.append(("Retries", escape_html(words)))
    return _list([*pairs, ("Failure function", escape_html(_state(row, redactor)))])


def _moment(value: Any) -> datetime | None:
    """A time in UTC, which one without a zone is in; None where there is none."""
    found = value if isinstance(value, datetime | str) else None
    when = pd.NaT if found is None else pd.to_datetime(found, utc=True, errors="coerce")
    # Python's own, as pandas has no difference of times that are centuries apart
    return when.to_pydatetime(warn=False) if isinstance(when, pd.Timestamp) else None


def _header(row: Mapping[str, Any], name: str) -> str | None:
    found = (values for known, values in _headers(row.get("headers")).items() if known.lower() == name)
    return next((values[0] for values in found if values), None)


def _state(row: Mapping[str, Any], redactor: Redactor) -> str:
    state = _text(row, "failure_function_state", redactor)
    meaning = (
        CALLBACK_STATES.get(state, "a state that is not documented") if state else "none, or no state yet"
    )
    return f"{state}: {meaning}" if state else "none, or no state yet"


def _message(row: Mapping[str, Any], prefix: str, redactor: Redactor) -> str:
    """Headers and body of the request or (with the prefix ``response_``) of the response."""
    headers = _headers(row.get(f"{prefix}headers"))
    lines = "".join(
        f"<tr><th scope='row'>{escape_html(redactor.text(name))}</th>"
        f"<td>{escape_html(redactor.displayed_header(name, value))}</td></tr>"
        for name, values in headers.items()
        for value in values
    )
    table = f"<table><caption>Headers</caption><tbody>{lines}</tbody></table>" if lines else ""
    body, coded = row.get(f"{prefix}body"), row.get(f"{prefix}body_base64")
    raw = base64.b64decode(coded) if isinstance(coded, str) else None
    return f"{coloured(body if _there(body) else raw, redactor)}{table}"


def _headers(value: Any) -> dict[str, list[str]]:
    """A header map of its JSON text; none where the text is something else."""
    try:
        return header_map(json.loads(value)) or {} if isinstance(value, str) else {}
    except (ValueError, RecursionError):
        return {}

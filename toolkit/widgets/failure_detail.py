"""The details of one failure as markup, masked and escaped: request, response and times."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import pandas as pd

from toolkit.base.missing_values import is_missing
from toolkit.base.time_zones import abbreviation, time_zone
from toolkit.drawing.wording import span
from toolkit.failures.counts import CALLBACK_STATES
from toolkit.secrets.redaction import Redactor, escape_html, escape_wrapping
from toolkit.tables.base64_bodies import base64_bytes
from toolkit.tables.header_maps import header_map
from toolkit.tables.schemas import STATED_FAILED_AT
from toolkit.widgets.panel import masked_json

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
_TIMES: Final = {
    "workflow_created_at": "Run created",
    "created_at": "Message created",
    "failed_at": "Failed for good",
}
_RETRIED: Final = ("upstash-retried", "service-retried", "retried")
_LONGEST: Final = 20_000  # characters of a body that are shown
_BYTES: Final = 256
_LINE: Final = 16
# If a body is truncated within a string, the string extends to the end. Searching after the quote would take
# quadratic time.
_JSON: Final = re.compile(
    r'(?P<name>"(?>(?:[^"\\]|\\.)*)"(?=:))|(?P<text>"(?>(?:[^"\\]|\\.)*)(?:"|\\?\Z))'
    r"|(?P<number>-?\d[\d.eE+\-]*)|(?P<word>\b(?:true|false|null|NaN|-?Infinity)\b)"
)
_TAGS: Final = re.compile(r"(?P<tag></?[A-Za-z!?][^<>]{0,2000}>)")


def detail_markup(
    row: Mapping[str, Any], redactor: Redactor, zone: ZoneInfo | None = None
) -> str:
    """Return all known facts of a failure, masked. `row` is a row of a frame; columns may be missing."""
    zone = time_zone() if zone is None else zone
    status = _text(row, "response_status", redactor)
    # the error comes first
    sections = [
        (f"Response {status}".strip(), _message(row, "response_", redactor)),
        ("Summary", _facts(row, redactor)),
        ("Timeline", _timeline(row, redactor, zone)),
        ("Request", _message(row, "", redactor)),
    ]

    if not is_missing(row.get("extra")):
        sections.append(
            ("Fields the toolkit does not know", coloured(row["extra"], redactor))
        )

    body = "".join(
        f"<section><h4>{escape_html(name)}</h4>{markup}</section>"
        for name, markup in sections
    )
    return f'<div class="tk-detail" role="group" aria-label="Failure" tabindex="0">{body}</div>'


def coloured(body: object, redactor: Redactor) -> str:
    r"""Return a body as markup: masked, escaped, and with coloured syntax if it is JSON, XML or HTML.

    Bytes that are not UTF-8 are shown in hexadecimal, and None as ``none``. If a body is long, only the
    beginning is shown.

    >>> coloured('{"n": 1}', Redactor(key=b"k"))
    '<pre tabindex="0">{\n  <b class="tk-name">&quot;n&quot;</b>: <b class="tk-number">1</b>\n}</pre>'
    """
    if isinstance(body, bytes):
        return _pre(escape_html(_hexadecimal(body)))
    if not isinstance(body, str) or not body:
        return f'<p class="tk-note">{"empty" if isinstance(body, str) else "none"}</p>'

    text = masked_json(body, redactor, indent=2)
    pattern = (
        _JSON if text is not None else _TAGS if body[:50].lstrip()[:1] == "<" else None
    )
    # masked before it is truncated, so that no part of a secret remains
    text = redactor.text(body) if text is None else text
    rest = len(text) - _LONGEST
    after = f'<p class="tk-note">{rest:,} more characters</p>' if rest > 0 else ""

    return _pre(_marked(text[:_LONGEST], pattern)) + after


def _marked(text: str, pattern: re.Pattern[str] | None) -> str:
    parts, end = [], 0
    for match in pattern.finditer(text) if pattern is not None else ():
        parts.append(escape_wrapping(text[end : match.start()]))
        parts.append(f'<b class="tk-{match.lastgroup}">{escape_wrapping(match[0])}</b>')
        end = match.end()

    return "".join([*parts, escape_wrapping(text[end:])])


def _hexadecimal(body: bytes) -> str:
    lines = [f"{len(body):,} bytes that are not UTF-8"]
    for start in range(0, min(len(body), _BYTES), _LINE):
        line = body[start : start + _LINE]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)  # noqa: PLR2004 - ASCII
        # 16 bytes of two digits with spaces between them are 47 characters.
        lines.append(f"{start:08x}  {line.hex(' '):<47}  {plain}")

    if len(body) > _BYTES:
        lines.append("…")
    return "\n".join(lines)


def _pre(markup: str) -> str:
    return f'<pre tabindex="0">{markup}</pre>'


def _text(row: Mapping[str, Any], name: str, redactor: Redactor) -> str:
    value = row.get(name)
    if name == "labels":
        with suppress(TypeError, ValueError):  # else it is shown unchanged
            value = json.loads(value or "null")
        several = (
            value
            if isinstance(value, list)
            else [value]
            if not is_missing(value)
            else []
        )
        return ", ".join(redactor.text(str(label)) for label in several)

    return "" if is_missing(value) else redactor.text(str(value))


def _facts(row: Mapping[str, Any], redactor: Redactor) -> str:
    return _list((label, _text(row, name, redactor)) for name, label in _FACTS.items())


def _timeline(row: Mapping[str, Any], redactor: Redactor, zone: ZoneInfo) -> str:
    pairs, before = [], None
    for name, label in _TIMES.items():
        if (when := _timestamp(row.get(name))) is not None:
            # A time in whole seconds can appear earlier than a time in milliseconds before it: for example,
            # 10:00:05 after 10:00:05.300.
            after = (
                ""
                if before is None
                else f" · {span(max(when - before, timedelta(0)))} later"
            )
            local = when.astimezone(zone)
            pairs.append(
                (label, f"{local:%Y-%m-%d %H:%M:%S} {abbreviation(local)}{after}")
            )
            before = when

    stated = _timestamp(row.get(STATED_FAILED_AT))
    if stated is not None:
        local = stated.astimezone(zone)
        shown = (
            f"stated {local:%Y-%m-%d %H:%M:%S} {abbreviation(local)}, which cannot be"
        )
        pairs.append(
            ("Clock of the destination", f"{shown}; the time of failure is estimated")
        )

    retried = next(
        (redactor.text(text) for name in _RETRIED if (text := _header(row, name))), None
    )
    allowed = _text(row, "max_retries", redactor)
    if retried or allowed:
        pairs.append(
            ("Retries", f"{retried or 'unknown'} made, {allowed or 'unknown'} allowed")
        )

    state = _text(row, "failure_function_state", redactor)
    meaning = CALLBACK_STATES.get(state, "a state that is not documented")

    return _list(
        [
            *pairs,
            (
                "Failure function",
                f"{state}: {meaning}" if state else "none, or no state yet",
            ),
        ]
    )


def _list(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and values, without empty values."""
    items = [
        f"<dt>{escape_html(name)}</dt><dd>{escape_wrapping(text)}</dd>"
        for name, text in pairs
        if text
    ]
    return (
        f"<dl>{''.join(items)}</dl>"
        if items
        else '<p class="tk-note">nothing is known</p>'
    )


def _timestamp(value: Any) -> datetime | None:
    """Return a time in UTC, or None if the value is no time. Times without a time zone are in UTC."""
    readable = value if isinstance(value, datetime | str) else None
    when = (
        pd.NaT
        if readable is None
        else pd.to_datetime(readable, utc=True, errors="coerce")
    )
    # Python's own: pandas overflows for times that are centuries apart
    return when.to_pydatetime(warn=False) if isinstance(when, pd.Timestamp) else None


def _message(row: Mapping[str, Any], prefix: str, redactor: Redactor) -> str:
    """Return headers and body of the request, or with the prefix ``response_`` of the response."""
    lines = []
    for name, values in _headers(row.get(f"{prefix}headers")).items():
        head = f"<th scope='row'>{escape_html(redactor.text(name))}</th>"
        for value in values:
            cell = f"<td>{escape_wrapping(redactor.displayed_header(name, value))}</td>"
            lines.append(f"<tr>{head}{cell}</tr>")

    table = ""
    if lines:
        table = (
            f"<table><caption>Headers</caption><tbody>{''.join(lines)}</tbody></table>"
        )

    body, encoded = row.get(f"{prefix}body"), row.get(f"{prefix}body_base64")
    if is_missing(body):
        raw = base64_bytes(encoded) if isinstance(encoded, str) else None
        body = encoded if raw is None else raw

    return f"{coloured(body, redactor)}{table}"


def _header(row: Mapping[str, Any], name: str) -> str | None:
    matches = (
        values
        for known, values in _headers(row.get("headers")).items()
        if known.lower() == name
    )
    return next((values[0] for values in matches if values), None)


def _headers(value: Any) -> dict[str, list[str]]:
    """Return the header map in JSON text. If the text is something else, the map is empty."""
    try:
        return header_map(json.loads(value)) or {} if isinstance(value, str) else {}
    except (ValueError, RecursionError):
        return {}

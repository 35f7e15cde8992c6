"""The sample as a service would list it: every occurrence as the wire entry of a failed run."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from operator import itemgetter
from random import Random
from typing import Any, Final

from toolkit_demo.causes import cause
from toolkit_demo.stories import DAYS, HOUR, RETRY_DELAYS, SEED, Occurrence, occurrences

APPLICATION: Final = "https://shop.example.com/flows"
"""Address of the application that the sample's workflows belong to."""

SUCCEEDED: Final = 4000
"""Runs of the sample's run log that went well."""

LOGGED: Final = 3 * 24 * HOUR
"""How far the sample's log of events, and of the steps of runs, goes back, in milliseconds."""

_STEPS: Final = ("load-order", "check-stock", "charge", "send-receipt")
_OPTIONAL: Final = frozenset(
    {"callerIP", "flowControlKey", "responseHeader", "header", "maxRetries", "workflowCreatedAt", "messageId"}
)
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS: Final = [low + high for high in _LETTERS for low in _LETTERS]


def wire_entries(now_ms: int, found: Iterable[Occurrence] | None = None) -> list[dict[str, Any]]:
    """The sample's failed runs as the DLQ lists them, in order; the sample ends at `now_ms`.

    >>> entry = wire_entries(1_750_000_000_000)[0]
    >>> entry["workflowUrl"], entry["createdAt"] < 1_750_000_000_000
    ('https://shop.example.com/flows/payments/capture', True)
    """
    return [_entry(item, now_ms) for item in (occurrences() if found is None else found)]


def wire_runs(now_ms: int, found: Iterable[Occurrence] | None = None) -> list[dict[str, Any]]:
    """The sample's run log: one record for each failed run, and `SUCCEEDED` that went well.

    >>> runs = wire_runs(1_750_000_000_000)
    >>> len(runs), sorted({run["workflowState"] for run in runs})
    (9000, ['RUN_FAILED', 'RUN_SUCCESS'])
    """
    listed = occurrences() if found is None else list(found)
    runs = [
        {
            "workflowRunId": f"wfr_{_code('run', item.number)}",
            "workflowUrl": f"{APPLICATION}/{item.workflow}",
            "workflowState": "RUN_FAILED",
            "workflowRunCreatedAt": now_ms - item.created - _lead(item.number),
            "workflowRunCompletedAt": now_ms - item.at,
            "labels": list(item.labels),
            "dlqId": f"dlq_{_code('dlq', item.number)}",
        }
        | ({"steps": _run_steps(item)} if item.at < LOGGED else {})
        for item in listed
    ]
    random = Random(SEED)  # noqa: S311 - a sample that must be reproducible
    workflows = sorted({item.workflow for item in listed if item.story != "broken"})
    for number in range(1, SUCCEEDED + 1):
        created = now_ms - random.randrange(HOUR // 60, DAYS * 24 * HOUR)
        runs.append(
            {
                "workflowRunId": f"wfr_{_code('good', number)}",
                "workflowUrl": f"{APPLICATION}/{random.choice(workflows)}",
                "workflowState": "RUN_SUCCESS",
                "workflowRunCreatedAt": created,
                "workflowRunCompletedAt": min(now_ms, created + random.randrange(300, 45_000)),
                "labels": ["shop"] if number % 3 else [],
            }
            | ({"steps": _steps(f"good {number}", len(_STEPS))} if created >= now_ms - LOGGED else {})
        )
    return runs


def wire_events(now_ms: int, found: Iterable[Occurrence] | None = None) -> list[dict[str, Any]]:
    """The log of the messages that failed lately: each attempt with its response, oldest first.

    >>> events = wire_events(1_750_000_000_000)
    >>> sorted({event["state"] for event in events})
    ['ACTIVE', 'CREATED', 'ERROR', 'FAILED', 'RETRY']
    """
    listed = occurrences() if found is None else found
    events = [event for item in listed if item.at < LOGGED for event in _events(item, now_ms)]
    return sorted((event for event in events if event["time"] >= now_ms - LOGGED), key=itemgetter("time"))


def _events(item: Occurrence, now_ms: int) -> Iterator[dict[str, Any]]:
    entry = _entry(item, now_ms)
    if "messageId" not in entry:
        return
    names = ("messageId", "url", "method", "maxRetries", "createdAt", "callerIP", "workflowRunId", "labels",
             "flowControlKey")  # fmt: skip
    shared = {name: entry[name] for name in names if name in entry}
    response: dict[str, Any] = {"error": cause(item.cause).body(item.number)[:200].decode(errors="replace")}
    if "responseStatus" in entry:
        response["responseStatus"] = entry["responseStatus"]
    ended = now_ms - item.created
    yield shared | {"state": "CREATED", "time": ended}
    for retried, delay in enumerate((0, *RETRY_DELAYS[: item.retries])):
        ended += delay
        tried = shared | response | {"time": ended, "retried": retried}
        began = max(ended - 40 - item.number % 900, shared["createdAt"])
        yield shared | {"state": "ACTIVE", "time": began, "retried": retried}
        yield tried | {"state": "ERROR"}
        if retried < item.retries:
            yield tried | {"state": "RETRY", "nextDeliveryTime": ended + RETRY_DELAYS[retried]}
    yield tried | {"state": "FAILED", "dlqId": entry["dlqId"]}


def _run_steps(item: Occurrence) -> list[dict[str, Any]]:
    failed = None if "few_fields" in item.oddities else f"msg_{_code('msg', item.number)}"
    return _steps(f"run {item.number}", item.number % len(_STEPS), failed)


def _steps(what: str, done: int, failed: str | None = None) -> list[dict[str, Any]]:
    """The steps of a run as the run log groups them: the first, so many more, and the message that failed."""
    ids = [f"msg_{_code(f'{what} step', number)}" for number in range(done + 1)]
    named = [("init", "Initial"), *((name, "Run") for name in _STEPS)]
    found = [(message, "STEP_SUCCESS") for message in ids] + ([(failed, "STEP_FAILED")] if failed else [])
    return [
        {
            "steps": [
                {"stepId": number, "stepName": name, "stepType": kind, "concurrent": 1, "callType": "step",
                 "state": state, "messageId": message}
            ],
            "type": "sequential",
        }
        for number, ((name, kind), (message, state)) in enumerate(zip(named, found, strict=False))
    ]  # fmt: skip


def _entry(item: Occurrence, now_ms: int) -> dict[str, Any]:
    response = cause(item.cause)
    address = f"{APPLICATION}/{item.workflow}"
    secret = "secret_headers" in item.oddities
    created = now_ms - item.created
    entry: dict[str, Any] = {
        "dlqId": f"dlq_{_code('dlq', item.number)}",
        "messageId": f"msg_{_code('msg', item.number)}",
        "workflowUrl": address,
        "workflowRunId": f"wfr_{_code('run', item.number)}",
        "workflowCreatedAt": created - _lead(item.number),
        "url": f"{address}?token=sample-{_code('query', item.number)}" if secret else address,
        "method": "POST",
        "header": _request_headers(item, secret=secret),
        **_split("body", _request_body(item)),
        "maxRetries": item.retries,
        "createdAt": created,
        "callerIP": item.ip,
        "responseHeader": _response_headers(item, now_ms),
        **_split("responseBody", response.body(item.number)),
    }
    if response.status is not None:
        entry["responseStatus"] = response.status
    if item.state is not None:
        entry |= {"failureCallback": f"{APPLICATION}/failed", "failureFunctionState": item.state}
    if item.flow is not None:
        entry["flowControlKey"] = item.flow
    if item.labels:
        entry["label"] = item.labels[0]
        if "label_only" not in item.oddities:
            entry["labels"] = list(item.labels)
        if item.number % 3:
            # publishers of the current kind leave the deprecated field out
            entry = {name: value for name, value in entry.items() if name != "label" or "labels" not in entry}
    return _with_oddities(entry, item)


def _with_oddities(entry: dict[str, Any], item: Occurrence) -> dict[str, Any]:
    if "few_fields" in item.oddities:
        entry = {name: value for name, value in entry.items() if name not in _OPTIONAL}
    if "unknown_fields" in item.oddities:
        entry |= {
            "sequence": 2**64 + item.number,
            "attempts": [
                {"at": entry["createdAt"] + delay, "ms": 40 + item.number % 900} for delay in (0, 12)
            ],
            "placement": {"zone": "b", "cold": item.number % 2 == 0, "load": 0.25},
        }
    if "empty_strings" in item.oddities:
        entry = {"flowControlKey": "", "failureCallback": "", "failureFunctionState": "", "label": ""} | entry
    return entry


def _request_headers(item: Occurrence, *, secret: bool) -> dict[str, list[str]]:
    headers = {
        "Content-Type": ["application/json"],
        "User-Agent": ["sample-publisher/2.14" if item.story == "burst" else "sample-publisher/2.13"],
        "Upstash-Workflow-RunId": [f"wfr_{_code('run', item.number)}"],
        "Upstash-Retried": [str(item.retries)],
        "X-Tenant": [item.flow or "tenant-0"],
    }
    if secret:
        value = _code("secret", item.number)
        headers |= {
            "Authorization": [f"Bearer sample-{value}"],
            "X-Api-Key": [f"sample_{value}"],
            "Cookie": [f"session=sample{value}", "theme=dark"],
        }
    return headers


def _response_headers(item: Occurrence, now_ms: int) -> dict[str, list[str]]:
    response = cause(item.cause)
    if response.status is None:
        return {}
    headers = {name: [value] for name, value in response.headers.items()}
    server = "edge" if response.status in {502, 503} else "app"
    headers |= {"Content-Type": [response.content_type], "Server": [server]}
    if "no_date" not in item.oddities:
        timestamp = datetime.fromtimestamp((now_ms - item.at) // 1000, UTC)
        headers["Date"] = [format_datetime(timestamp, usegmt=True)]
    if item.number % 40 == 0:
        headers["Set-Cookie"] = [f"sid=sample-{_code('cookie', item.number)}; HttpOnly", "lang=en"]
    return headers


def _request_body(item: Occurrence) -> bytes:
    if "binary_request" in item.oddities:
        return b"\x1f\x8b\x08\x00" + hashlib.sha256(f"request {item.number}".encode()).digest()
    values = {"order": item.number, "customer": f"c-{item.number % 977}", "amount": item.number % 4000 / 100}
    return json.dumps(values).encode()


def _split(name: str, body: bytes) -> dict[str, str]:
    """A body in its two fields: text when it is UTF-8, else base64; the other one is empty."""
    try:
        return {name: body.decode(), f"{name}Base64": ""}
    except UnicodeDecodeError:
        return {name: "", f"{name}Base64": base64.b64encode(body).decode()}


def _code(what: str, number: int) -> str:
    """21 letters and digits that look random and are always the same."""
    value = int.from_bytes(hashlib.blake2b(f"{what} {number}".encode(), digest_size=16).digest())
    pairs = []
    for _ in range(11):
        value, position = divmod(value, len(_PAIRS))
        pairs.append(_PAIRS[position])
    return "".join(pairs)[:21]


def _lead(number: int) -> int:
    """Milliseconds between the run's start and the message of the step that failed."""
    return 150 + number * 7919 % 60_000

"""The sample as a service would list it: each occurrence as the JSON entry of a failed run."""

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

from toolkit_service.demo.causes import cause
from toolkit_service.demo.stories import (
    DAYS,
    HOUR,
    RETRY_DELAYS,
    SEED,
    Occurrence,
    occurrences,
)

APPLICATION: Final = "https://shop.example.com/flows"
"""The address of the application with the sample workflows."""

SUCCEEDED: Final = 4000
"""The number of successful runs in the run log."""

LOGGED: Final = 3 * 24 * HOUR
"""The time in milliseconds that the log of events, and of the steps of runs, goes back."""

_STEPS: Final = ("load-order", "check-stock", "charge", "send-receipt")
_OPTIONAL: Final = frozenset(
    {
        "callerIP",
        "flowControlKey",
        "responseHeader",
        "header",
        "maxRetries",
        "workflowCreatedAt",
        "messageId",
    }
)
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS: Final = [low + high for high in _LETTERS for low in _LETTERS]


def wire_entries(
    now_ms: int, found: Iterable[Occurrence] | None = None
) -> list[dict[str, Any]]:
    """Return the failed runs as the DLQ lists them, in order. The sample ends at `now_ms`.

    >>> entry = wire_entries(1_750_000_000_000)[0]
    >>> entry["workflowUrl"], entry["createdAt"] < 1_750_000_000_000
    ('https://shop.example.com/flows/payments/capture', True)
    """
    items = occurrences() if found is None else found
    return [_entry(item, now_ms) for item in items]


def wire_runs(
    now_ms: int, found: Iterable[Occurrence] | None = None
) -> list[dict[str, Any]]:
    """Return the run log: one record per failed run, and `SUCCEEDED` successful runs.

    >>> runs = wire_runs(1_750_000_000_000)
    >>> len(runs), sorted({run["workflowState"] for run in runs})
    (9000, ['RUN_FAILED', 'RUN_SUCCESS'])
    """
    items = occurrences() if found is None else list(found)
    runs = [_failed_run(item, now_ms) for item in items]
    # workflows that succeed at times: the broken one never does
    random = Random(SEED)  # noqa: S311 - a sample that must be reproducible
    workflows = sorted({item.workflow for item in items if item.story != "broken"})
    runs += [
        _successful_run(number, workflows, now_ms, random)
        for number in range(1, SUCCEEDED + 1)
    ]

    return runs


def _failed_run(item: Occurrence, now_ms: int) -> dict[str, Any]:
    run: dict[str, Any] = {
        "workflowRunId": f"wfr_{_code('run', item.number)}",
        "workflowUrl": f"{APPLICATION}/{item.workflow}",
        "workflowState": "RUN_FAILED",
        "workflowRunCreatedAt": now_ms - item.created - _lead(item.number),
        "workflowRunCompletedAt": now_ms - item.at,
        "labels": list(item.labels),
        "dlqId": f"dlq_{_code('dlq', item.number)}",
    }
    if item.at < LOGGED:
        run["steps"] = _run_steps(item)
    return run


def _successful_run(
    number: int, workflows: list[str], now_ms: int, random: Random
) -> dict[str, Any]:
    created = now_ms - random.randrange(HOUR // 60, DAYS * 24 * HOUR)
    run: dict[str, Any] = {
        "workflowRunId": f"wfr_{_code('good', number)}",
        "workflowUrl": f"{APPLICATION}/{random.choice(workflows)}",
        "workflowState": "RUN_SUCCESS",
        "workflowRunCreatedAt": created,
        "workflowRunCompletedAt": min(now_ms, created + random.randrange(300, 45_000)),
        "labels": ["shop"] if number % 3 else [],
    }
    if created >= now_ms - LOGGED:
        run["steps"] = _steps(f"good {number}", len(_STEPS))
    return run


def wire_events(
    now_ms: int,
    found: Iterable[Occurrence] | None = None,
    entries: Iterable[dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Return the log of recently failed messages: each attempt with the response, oldest first.

    `entries` are the results of `wire_entries`, if you have them: making them again takes a while.

    >>> events = wire_events(1_750_000_000_000)
    >>> sorted({event["state"] for event in events})
    ['ACTIVE', 'CREATED', 'ERROR', 'FAILED', 'RETRY']
    """
    items = occurrences() if found is None else list(found)
    listed = wire_entries(now_ms, items) if entries is None else entries
    logged_since = now_ms - LOGGED
    events: list[dict[str, Any]] = []
    for item, entry in zip(items, listed, strict=True):
        if item.at < LOGGED:
            events += _events(item, entry, now_ms)
    # the first attempts of a recent failure can be older than the log
    recent_events = [event for event in events if event["time"] >= logged_since]

    return sorted(recent_events, key=itemgetter("time"))


def _events(
    item: Occurrence, entry: dict[str, Any], now_ms: int
) -> Iterator[dict[str, Any]]:
    """Yield the events of a message: the creation, and each attempt with the outcome."""
    if "messageId" not in entry:
        return

    shared = {name: entry[name] for name in _SHARED if name in entry}
    response: dict[str, Any] = {
        "error": cause(item.cause).body(item.number)[:200].decode(errors="replace")
    }
    if "responseStatus" in entry:
        response["responseStatus"] = entry["responseStatus"]
    # the first attempt follows the creation at once, the others after the delays of the retries
    ended = now_ms - item.created
    yield shared | {"state": "CREATED", "time": ended}

    for retried, delay in enumerate((0, *RETRY_DELAYS[: item.retries])):
        ended += delay
        attempt = shared | response | {"time": ended, "retried": retried}
        began = max(ended - 40 - item.number % 900, shared["createdAt"])
        yield shared | {"state": "ACTIVE", "time": began, "retried": retried}
        yield attempt | {"state": "ERROR"}

        if retried < item.retries:
            yield attempt | {
                "state": "RETRY",
                "nextDeliveryTime": ended + RETRY_DELAYS[retried],
            }

    yield attempt | {"state": "FAILED", "dlqId": entry["dlqId"]}


_SHARED: Final = (
    "messageId", "url", "method", "maxRetries", "createdAt", "callerIP", "workflowRunId", "labels",
    "flowControlKey",
)  # fmt: skip
"""Fields of an entry that the events of its message have as well."""


def _run_steps(item: Occurrence) -> list[dict[str, Any]]:
    failed_message = None
    if "few_fields" not in item.oddities:
        failed_message = f"msg_{_code('msg', item.number)}"
    return _steps(f"run {item.number}", item.number % len(_STEPS), failed_message)


def _steps(
    run: str, finished: int, failed_message: str | None = None
) -> list[dict[str, Any]]:
    """Return the steps of a run as the run log groups them: the start, finished steps, and a failed one."""
    outcomes = [
        (f"msg_{_code(f'{run} step', number)}", "STEP_SUCCESS")
        for number in range(finished + 1)
    ]
    if failed_message:
        outcomes.append((failed_message, "STEP_FAILED"))
    names = ["init", *_STEPS]

    groups: list[dict[str, Any]] = []
    # a run that finished all steps has one outcome per name, and no failed message
    for number, (name, (message_id, state)) in enumerate(
        zip(names, outcomes, strict=False)
    ):
        step = {
            "stepId": number,
            "stepName": name,
            "stepType": "Initial" if number == 0 else "Run",
            "concurrent": 1,
            "callType": "step",
            "state": state,
            "messageId": message_id,
        }
        groups.append({"steps": [step], "type": "sequential"})

    return groups


def _entry(item: Occurrence, now_ms: int) -> dict[str, Any]:
    response = cause(item.cause)
    url = workflow_url = f"{APPLICATION}/{item.workflow}"
    has_secrets = "secret_headers" in item.oddities
    if has_secrets:
        url = f"{workflow_url}?token=sample-{_code('query', item.number)}"
    created = now_ms - item.created
    run_id = f"wfr_{_code('run', item.number)}"
    entry: dict[str, Any] = {
        "dlqId": f"dlq_{_code('dlq', item.number)}",
        "messageId": f"msg_{_code('msg', item.number)}",
        "workflowUrl": workflow_url,
        "workflowRunId": run_id,
        "workflowCreatedAt": created - _lead(item.number),
        "url": url,
        "method": "POST",
        "header": _request_headers(item, run_id, secret=has_secrets),
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
        entry["failureCallback"] = f"{APPLICATION}/failed"
        entry["failureFunctionState"] = item.state

    if item.flow is not None:
        entry["flowControlKey"] = item.flow
    if item.labels:
        entry |= _label_fields(item)
    return _with_oddities(entry, item)


def _label_fields(item: Occurrence) -> dict[str, Any]:
    """Return labels as publishers send them.

    For example, an old publisher sends only the first label, in a deprecated field.
    """
    if "label_only" in item.oddities:
        return {"label": item.labels[0]}
    if item.number % 3:
        return {"labels": list(item.labels)}

    return {"label": item.labels[0], "labels": list(item.labels)}


def _with_oddities(entry: dict[str, Any], item: Occurrence) -> dict[str, Any]:
    """Return an entry with the oddities of the occurrence, for example empty strings or unknown fields."""
    if "few_fields" in item.oddities:
        entry = {
            name: content for name, content in entry.items() if name not in _OPTIONAL
        }

    if "unknown_fields" in item.oddities:
        milliseconds = 40 + item.number % 900
        entry["sequence"] = 2**64 + item.number
        entry["attempts"] = [
            {"at": entry["createdAt"] + delay, "ms": milliseconds} for delay in (0, 12)
        ]
        entry["placement"] = {"zone": "b", "cold": item.number % 2 == 0, "load": 0.25}

    if "empty_strings" in item.oddities:
        entry = {
            "flowControlKey": "",
            "failureCallback": "",
            "failureFunctionState": "",
            "label": "",
        } | entry

    return entry


def _request_headers(
    item: Occurrence, run_id: str, *, secret: bool
) -> dict[str, list[str]]:
    headers = {
        "Content-Type": ["application/json"],
        "User-Agent": [
            "sample-publisher/2.14"
            if item.story == "burst"
            else "sample-publisher/2.13"
        ],
        "Upstash-Workflow-RunId": [run_id],
        "Upstash-Retried": [str(item.retries)],
        "X-Tenant": [item.flow or "tenant-0"],
    }
    # values that masking must hide, in headers of three kinds
    if secret:
        made_up = _code("secret", item.number)
        headers["Authorization"] = [f"Bearer sample-{made_up}"]
        headers["X-Api-Key"] = [f"sample_{made_up}"]
        headers["Cookie"] = [f"session=sample{made_up}", "theme=dark"]

    return headers


def _response_headers(item: Occurrence, now_ms: int) -> dict[str, list[str]]:
    response = cause(item.cause)
    if response.status is None:
        return {}

    headers = {name: [text] for name, text in response.headers.items()}
    headers["Content-Type"] = [response.content_type]
    headers["Server"] = ["edge" if response.status in {502, 503} else "app"]
    # a Date header has whole seconds
    if "no_date" not in item.oddities:
        timestamp = datetime.fromtimestamp((now_ms - item.at) // 1000, UTC)
        headers["Date"] = [format_datetime(timestamp, usegmt=True)]

    # now and then a header with two values
    if item.number % 40 == 0:
        headers["Set-Cookie"] = [
            f"sid=sample-{_code('cookie', item.number)}; HttpOnly",
            "lang=en",
        ]

    return headers


def _request_body(item: Occurrence) -> bytes:
    if "binary_request" in item.oddities:
        return (
            b"\x1f\x8b\x08\x00"
            + hashlib.sha256(f"request {item.number}".encode()).digest()
        )

    order = {
        "order": item.number,
        "customer": f"c-{item.number % 977}",
        "amount": item.number % 4000 / 100,
    }
    return json.dumps(order).encode()


def _split(name: str, body: bytes) -> dict[str, str]:
    """Return a body as two fields: plain if it is UTF-8, otherwise in base64. The other field is empty."""
    try:
        return {name: body.decode(), f"{name}Base64": ""}
    except UnicodeDecodeError:
        return {name: "", f"{name}Base64": base64.b64encode(body).decode()}


def _code(kind: str, number: int) -> str:
    """Return 21 letters and digits that look random and are always the same.

    The digits of a hash in base 62, two at a time: that is faster than one at a time.
    """
    remainder = int.from_bytes(
        hashlib.blake2b(f"{kind} {number}".encode(), digest_size=16).digest()
    )
    pairs = []
    for _ in range(11):
        remainder, position = divmod(remainder, len(_PAIRS))
        pairs.append(_PAIRS[position])

    return "".join(pairs)[:21]


def _lead(number: int) -> int:
    """Return the milliseconds between the start of the run and the message of the step that failed."""
    # 7919 is prime, so that the values look random and repeat only after 60,000 numbers
    return 150 + number * 7919 % 60_000

"""What others are told about a message and its answer: DLQ entries and callback bodies, field by field."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from toolkit.local.queue.message import Message


class Answer(msgspec.Struct, frozen=True):
    """What came back from a destination.

    When no answer came, the service answers in its place, as a gateway does: 504 for a time-out, 503 when
    nothing could be reached, 502 when the answer was broken; with a Date and a sentence as the body.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the message counts as delivered."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the 2xx class

    def header(self, name: str) -> str | None:
        """The first value of a header, by its name in lower case."""
        return next((value for key, value in self.headers if key.lower() == name), None)


class Sent(msgspec.Struct, frozen=True):
    """What was sent: headers without the signature, and the body."""

    headers: tuple[tuple[str, str], ...]
    body: bytes


def header_lists(headers: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """A header map: name to all its values, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, value in headers:
        found[name].append(value)
    return dict(found)


def body_fields(name: str, body: bytes) -> dict[str, str]:
    r"""A body in two fields: as text when it is UTF-8, else in base64; the other one is empty.

    >>> body_fields("body", b"a"), body_fields("responseBody", b"\xff")
    ({'body': 'a', 'bodyBase64': ''}, {'responseBody': '', 'responseBodyBase64': '/w=='})
    """
    try:
        return {name: body.decode(), f"{name}Base64": ""}
    except UnicodeDecodeError:
        return {name: "", f"{name}Base64": base64.b64encode(body).decode()}


def dlq_entry(
    message: Message, sent: Sent, answer: Answer, *, dlq_id: str, run_created_at: int | None
) -> dict[str, Any]:
    """The DLQ entry of a message whose delivery failed for good, without its failure-function state.

    Fields that do not apply (`label`, `flowControlKey`, `failureCallback`, those of a run) are left out.
    """
    settings, workflow = message.settings, message.settings.workflow
    headers, body = redacted(message, sent)
    entry: dict[str, Any] = {"dlqId": dlq_id, "messageId": message.id}
    if workflow:
        entry |= {
            "workflowUrl": workflow.url,
            "workflowRunId": workflow.run_id,
            "workflowCreatedAt": run_created_at,
        }
    entry |= {
        "url": settings.url,
        "method": message.method,
        "header": header_lists(headers),
        **body_fields("body", body),
        "maxRetries": message.max_retries,
        "createdAt": message.created_at,
        "callerIP": message.caller_ip,
        "responseStatus": answer.status,
        "responseHeader": header_lists(answer.headers),
        **body_fields("responseBody", answer.body),
    }
    return entry | _wishes(message) | ({} if workflow else _plain(message))


def message_entry(message: Message) -> dict[str, Any]:
    """A message that still has to be delivered, as it may be shown."""
    headers, body = redacted(message, Sent(message.settings.headers, message.body))
    return {
        "messageId": message.id,
        "url": message.settings.url,
        "method": message.method,
        "header": header_lists(headers),
        **body_fields("body", body),
        "maxRetries": message.max_retries,
        "createdAt": message.created_at,
        "callerIP": message.caller_ip,
        **_wishes(message),
        **_plain(message),
    }


def _wishes(message: Message) -> dict[str, Any]:
    """What the publish asked for, beyond what every message has."""
    settings, found = message.settings, dict[str, Any]()
    if settings.labels:
        found["label"] = settings.labels[0]
    if settings.flow_key:
        found["flowControlKey"] = settings.flow_key
    if message.failure_callback:
        found["failureCallback"] = message.failure_callback.url
    return found | {"labels": list(settings.labels)}


def _plain(message: Message) -> dict[str, Any]:
    """What entries of plain messages say, and those of runs do not."""
    found: dict[str, Any] = {"notBefore": message.not_before}
    if message.callback:
        found["callback"] = message.callback.url
    if message.settings.retry_delay:
        found["retryDelayExpression"] = message.settings.retry_delay
    if flow := message.settings.flow:
        limits = {"parallelism": flow.parallelism, "rate": flow.rate, "period": flow.period_ms // 1000}
        found |= {name: limit for name, limit in limits.items() if limit is not None}
    return found


def callback_body(
    message: Message,
    sent: Sent,
    answer: Answer,
    *,
    retried: int,
    source_body: bytes | None = None,
    dlq_id: str | None = None,
) -> bytes:
    """The JSON body of a callback, or with `dlq_id` of a failure callback.

    Topics, endpoint names and schedules do not exist here: their fields are there, empty.
    """
    headers, body = redacted(message, sent if source_body is None else Sent(sent.headers, source_body))
    content: dict[str, Any] = {
        "status": answer.status,
        "header": header_lists(answer.headers),
        "body": base64.b64encode(answer.body).decode(),
        "retried": retried,
        "maxRetries": message.max_retries,
        "sourceMessageId": message.id,
        "topicName": "",
        "endpointName": "",
        "url": message.settings.url,
        "method": message.method,
        "sourceHeader": {name: ", ".join(values) for name, values in header_lists(headers).items()},
        "sourceBody": base64.b64encode(body).decode(),
        "notBefore": str(message.not_before),
        "createdAt": str(message.created_at),
        "scheduleId": "",
        "callerIP": message.caller_ip,
    }
    if dlq_id is not None:
        content["dlqId"] = dlq_id
    if message.run_id:
        content["workflowRunId"] = message.run_id
    return json.dumps(content).encode()


def redacted(message: Message, sent: Sent) -> tuple[list[tuple[str, str]], bytes]:
    """What was sent as it may be shown: fields that the publish wanted redacted are ``REDACTED:<SHA256>``."""
    fields = {field.lower() for field in message.redact}
    every = not fields.isdisjoint({"headers", "header"})
    names = {field[len("header[") : -1] for field in fields if field.startswith("header[")}
    headers = [
        (name, _digest(value.encode("latin-1", "replace")) if every or name.lower() in names else value)
        for name, value in sent.headers
    ]
    return headers, _digest(sent.body).encode() if "body" in fields else sent.body


def _digest(value: bytes) -> str:
    return f"REDACTED:{hashlib.sha256(value).hexdigest()}"

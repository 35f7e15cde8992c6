"""Messages, attempts to deliver them, and how DLQ entries and callbacks show them, field by field."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Required, TypeAlias, TypedDict
from urllib.parse import urlsplit

import msgspec

Kind: TypeAlias = Literal["message", "step", "call", "wait", "callback", "failure_callback"]
"""The purpose of a message.

``message``: a plain publish. ``step``: calls a workflow endpoint with the run's history. ``call``: a
workflow's message to a third party. ``wait``: becomes a step when its event arrives or it times out.
``callback`` and ``failure_callback``: report on another message.
"""

FunctionState: TypeAlias = Literal[
    "CALLBACK_INPROGRESS", "CALLBACK_SUCCESS", "CALLBACK_FAIL", "CALLBACK_CANCELED"
]

_NO_VALUES: Final[tuple[Any, ...]] = (None, "", [], {})
DEFAULT_RETRIES: Final = 3
MAX_LOGGED_BODY: Final = 16 * 1024
"""Bytes of the largest body that the log of messages shows."""
DEFAULT_TIMEOUT_MS: Final = 15 * 60 * 1000


class FlowLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Flow control of a key: most concurrent deliveries, and most a period. None means no limit."""

    parallelism: int | None = None
    rate: int | None = None
    period_ms: int = 1000


class WorkflowHeaders(msgspec.Struct, frozen=True, omit_defaults=True):
    """The workflow run that a message belongs to."""

    run_id: str
    url: str = ""
    init: bool = False
    invoke: bool = False
    call_type: str = ""
    features: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a message, its callback or its failure callback is delivered. None means not given."""

    url: str
    method: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    timeout_ms: int | None = None
    retries: int | None = None
    retry_delay: str | None = None
    delay_ms: int | None = None
    not_before: int | None = None
    labels: tuple[str, ...] = ()
    flow_key: str | None = None
    flow: FlowLimits | None = None
    workflow: WorkflowHeaders | None = None

    def given(self, *names: str) -> dict[str, Any]:
        """Those of the named settings that were given."""
        return {name: value for name in names if (value := getattr(self, name)) not in (None, ())}


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """The event that a run waits for; the fields about the timeout are only shown."""

    event_id: str
    timeout_url: str = ""
    timeout_body: str = ""
    timeout_headers: dict[str, list[str]] = {}


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The names through which a message was sent; empty ones do not apply."""

    topic: str = ""
    endpoint: str = ""
    queue: str = ""
    schedule: str = ""

    def shown(self) -> dict[str, str]:
        """The names that apply, as listings show them."""
        names = {
            "topicName": self.topic,
            "endpointName": self.endpoint,
            "queueName": self.queue,
            "scheduleId": self.schedule,
        }
        return {name: value for name, value in names.items() if value}


NO_ORIGIN: Final = Origin()


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message, as stored; `about` is the DLQ entry of a failure callback, `step` a position in a run."""

    id: str
    kind: Kind
    prefix: str
    settings: Settings
    created_at: int
    not_before: int
    body: bytes = b""
    caller_ip: str = ""
    callback: Settings | None = None
    failure_callback: Settings | None = None
    redact: tuple[str, ...] = ()
    step: int | None = None
    about: str | None = None
    waiting: Waiting | None = None
    origin: Origin = NO_ORIGIN

    @property
    def method(self) -> str:
        """HTTP method of the delivery."""
        return self.settings.method or "POST"

    @property
    def max_retries(self) -> int:
        """How often a failed delivery is retried."""
        return DEFAULT_RETRIES if self.settings.retries is None else self.settings.retries

    @property
    def run_id(self) -> str | None:
        """The workflow run that it belongs to."""
        return self.settings.workflow.run_id if self.settings.workflow else None

    def encode(self) -> bytes:
        """The stored form."""
        return msgspec.msgpack.encode(self)


def decode_message(stored: bytes) -> Message:
    """The message of its stored form."""
    return msgspec.msgpack.decode(stored, type=Message)


def message_json(stored: bytes) -> str:
    """A stored message as JSON, without its body, for conditions in SQL."""
    return msgspec.json.encode(msgspec.structs.replace(decode_message(stored), body=b"")).decode()


def url_hosts(url: str) -> str:
    """The host of a URL, with its port and without, as a JSON array."""
    parts = urlsplit(url)
    return json.dumps([parts.netloc, parts.hostname])


def url_path(url: str) -> str:
    """The path of a URL."""
    return urlsplit(url).path or "/"


def new_id(kind: str) -> str:
    """A new id: ``msg_…``, ``wfr_…``."""
    return f"{kind}_{secrets.token_hex(11)}"


class Sent(msgspec.Struct, frozen=True):
    """A request sent to a destination: headers without the signature, and the body."""

    headers: tuple[tuple[str, str], ...]
    body: bytes


class DestinationResponse(msgspec.Struct, frozen=True):
    """The response of a destination, or without one a response as gateways make it."""

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


class Attempt(msgspec.Struct, frozen=True):
    """One delivery that has ended; `retried` counts the retries before it."""

    message: Message
    sent: Sent
    response: DestinationResponse
    retried: int


HeaderLists: TypeAlias = dict[str, list[str]]


class Described(TypedDict, total=False):
    """How a message was sent; fields that do not apply are left out."""

    callerIP: str
    topicName: str
    endpointName: str
    queueName: str
    scheduleId: str
    label: str
    labels: list[str]


class DlqEntry(Described, total=False):
    """An entry of the DLQ. Those that were filled in may have other fields, too."""

    dlqId: Required[str]
    messageId: str
    workflowUrl: str
    workflowRunId: str
    workflowCreatedAt: int | None
    url: str
    method: str
    header: HeaderLists
    body: str
    bodyBase64: str
    maxRetries: int
    createdAt: int
    failureCallback: str
    flowControlKey: str
    failureFunctionState: FunctionState | Literal[""]
    responseStatus: int
    responseHeader: HeaderLists
    responseBody: str
    responseBodyBase64: str


class PendingMessage(Described, total=False):
    """A message that still has to be delivered."""

    messageId: Required[str]
    url: Required[str]
    method: Required[str]
    maxRetries: Required[int]
    retried: Required[int]
    createdAt: Required[int]
    notBefore: int
    nextDeliveryTime: int


class HistoryStep(TypedDict):
    """A step of a run, its body in base64."""

    messageId: str
    body: str
    callType: str


def history_items(history: Iterable[tuple[str, bytes]]) -> list[HistoryStep]:
    """The steps of a run, from the id and the body of each, as endpoints get them."""
    return [
        {"messageId": message_id, "body": base64.b64encode(body).decode(), "callType": "step"}
        for message_id, body in history
    ]


def header_lists(headers: Iterable[tuple[str, str]]) -> HeaderLists:
    """Header names and all values of each, in order."""
    lists: HeaderLists = defaultdict(list)
    for name, value in headers:
        lists[name].append(value)
    return dict(lists)


def body_fields(name: str, body: bytes) -> dict[str, str]:
    """A body in two fields: as text when it is UTF-8, else in base64; the other one is empty."""
    try:
        return {name: body.decode(), f"{name}Base64": ""}
    except UnicodeDecodeError:
        return {name: "", f"{name}Base64": base64.b64encode(body).decode()}


def with_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value: the public service leaves the others out, and clients expect that."""
    return {name: value for name, value in fields.items() if value not in _NO_VALUES}


def dlq_entry(attempt: Attempt, *, dlq_id: str, run_created_at: int | None) -> dict[str, Any]:
    """The `DlqEntry` of a message whose delivery failed for good, without its failure-function state."""
    response, workflow = attempt.response, attempt.message.settings.workflow
    entry = message_entry(attempt.message, attempt.sent)
    if workflow:
        entry = {name: value for name, value in entry.items() if name not in _ONLY_MESSAGES} | {
            "workflowUrl": workflow.url,
            "workflowRunId": workflow.run_id,
            "workflowCreatedAt": run_created_at,
        }
    return {
        "dlqId": dlq_id,
        **entry,
        "responseStatus": response.status,
        "responseHeader": header_lists(response.headers),
        **body_fields("responseBody", response.body),
    }


_ONLY_MESSAGES: Final = ("notBefore", "callback", "retryDelayExpression", "parallelism", "rate", "period")
"""The fields of plain messages that entries of runs do not have."""


def message_entry(message: Message, sent: Sent | None = None) -> dict[str, Any]:
    """A message as it may be shown: what was sent of it, or what will be."""
    settings = message.settings
    headers, body = redacted(message.redact, sent or Sent(settings.headers, message.body))
    given = given_settings(settings, message.callback, message.failure_callback)
    return {
        "messageId": message.id,
        "url": settings.url,
        "method": message.method,
        "header": header_lists(headers),
        **body_fields("body", body),
        "maxRetries": message.max_retries,
        "createdAt": message.created_at,
        "notBefore": message.not_before,
        "callerIP": message.caller_ip,
        **message.origin.shown(),
        **{name: value for name, value in given.items() if value is not None},
        "labels": list(settings.labels),
    }


def given_settings(
    settings: Settings, callback: Settings | None, failure_callback: Settings | None
) -> dict[str, Any]:
    """The settings of a message that all listings show; None is not given."""
    flow = settings.flow
    return {
        "label": settings.labels[0] if settings.labels else None,
        "flowControlKey": settings.flow_key,
        "retryDelayExpression": settings.retry_delay,
        "callback": callback and callback.url,
        "failureCallback": failure_callback and failure_callback.url,
        "parallelism": flow and flow.parallelism,
        "rate": flow and flow.rate,
        "period": flow and flow.period_ms // 1000,
    }


def created_details(message: Message) -> dict[str, Any]:
    """Headers and body (base64) of a message, for its first event; a large body is left out."""
    headers, body = redacted(message.redact, Sent(message.settings.headers, message.body))
    details: dict[str, Any] = {"header": header_lists(headers)}
    if len(body) <= MAX_LOGGED_BODY:
        details["body"] = base64.b64encode(body).decode()
    return details


def callback_body(attempt: Attempt, *, source_body: bytes | None, dlq_id: str | None = None) -> bytes:
    """The JSON body of a callback, or with `dlq_id` of a failure callback."""
    message, sent, response = attempt.message, attempt.sent, attempt.response
    headers, body = redacted(message.redact, sent if source_body is None else Sent(sent.headers, source_body))
    content: dict[str, Any] = {
        "status": response.status,
        "header": header_lists(response.headers),
        "body": base64.b64encode(response.body).decode(),
        "retried": attempt.retried,
        "maxRetries": message.max_retries,
        "sourceMessageId": message.id,
        "topicName": message.origin.topic,
        "endpointName": message.origin.endpoint,
        "url": message.settings.url,
        "method": message.method,
        "sourceHeader": {name: ", ".join(values) for name, values in header_lists(headers).items()},
        "sourceBody": base64.b64encode(body).decode(),
        "notBefore": str(message.not_before),
        "createdAt": str(message.created_at),
        "scheduleId": message.origin.schedule,
        "callerIP": message.caller_ip,
    }
    if dlq_id is not None:
        content["dlqId"] = dlq_id
    if message.run_id:
        content["workflowRunId"] = message.run_id
    return json.dumps(content).encode()


def redacted(redact: Sequence[str], sent: Sent) -> tuple[list[tuple[str, str]], bytes]:
    """The sent request for display: fields that the publish redacts are ``REDACTED:<SHA256>``."""
    fields = {name.lower() for name in redact}
    every = not fields.isdisjoint({"headers", "header"})
    names = {name[len("header[") : -1] for name in fields if name.startswith("header[")}
    headers = [
        (name, _digest(value.encode("latin-1", "replace")) if every or name.lower() in names else value)
        for name, value in sent.headers
    ]
    return headers, _digest(sent.body).encode() if "body" in fields else sent.body


def _digest(value: bytes) -> str:
    return f"REDACTED:{hashlib.sha256(value).hexdigest()}"

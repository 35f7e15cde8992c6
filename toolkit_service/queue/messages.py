"""Messages, attempts to deliver them, and the JSON of DLQ entries, callbacks and events."""

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

Kind: TypeAlias = Literal[
    "message", "step", "call", "wait", "callback", "failure_callback"
]
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
    """Limits of a flow-control key: concurrent deliveries, and deliveries per period. None is no limit."""

    parallelism: int | None = None
    rate: int | None = None
    period_ms: int = 1000


class WorkflowHeaders(msgspec.Struct, frozen=True, omit_defaults=True):
    """The workflow run of a message, from the headers of the publish."""

    run_id: str
    url: str = ""
    init: bool = False
    invoke: bool = False
    call_type: str = ""
    features: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a message, a callback or a failure callback is delivered. None means that no header sets it."""

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

    @property
    def max_retries(self) -> int:
        """Return how often a failed delivery is retried."""
        return DEFAULT_RETRIES if self.retries is None else self.retries

    def given(self, *names: str) -> dict[str, Any]:
        """Return the named settings that have a value.

        >>> Settings("http://127.0.0.1", retries=0).given("retries", "labels")
        {'retries': 0}
        """
        named = {name: getattr(self, name) for name in names}
        return {
            name: setting
            for name, setting in named.items()
            if setting not in (None, ())
        }


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """The event that a run waits for. The fields about the timeout only appear in listings."""

    event_id: str
    timeout_url: str = ""
    timeout_body: str = ""
    timeout_headers: dict[str, list[str]] = {}


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The URL group, endpoint, named queue and schedule of a message; empty if it has none."""

    topic: str = ""
    endpoint: str = ""
    queue: str = ""
    schedule: str = ""

    def shown(self) -> dict[str, str]:
        """Return the names that are not empty, under their names in JSON."""
        names = {
            "topicName": self.topic,
            "endpointName": self.endpoint,
            "queueName": self.queue,
            "scheduleId": self.schedule,
        }
        return {field: name for field, name in names.items() if name}


NO_ORIGIN: Final = Origin()


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message, as stored.

    `about` is the DLQ entry of a failure callback, `step` the position in the history of a run.
    """

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
        """Return the HTTP method of the delivery."""
        return self.settings.method or "POST"

    @property
    def max_retries(self) -> int:
        """Return how often a failed delivery is retried."""
        return self.settings.max_retries

    @property
    def run_id(self) -> str | None:
        """Return the id of the workflow run of this message, if it has one."""
        return self.settings.workflow.run_id if self.settings.workflow else None

    def encode(self) -> bytes:
        """Return the stored form of this message (msgpack)."""
        return msgspec.msgpack.encode(self)


def decode_message(stored: bytes) -> Message:
    """Decode a stored message."""
    return msgspec.msgpack.decode(stored, type=Message)


def message_json(stored: bytes) -> str:
    """Return a stored message as JSON, without the body, for conditions in SQL."""
    return msgspec.json.encode(
        msgspec.structs.replace(decode_message(stored), body=b"")
    ).decode()


def url_hosts(url: str) -> str:
    """Return the host of a URL, with and without the port, as a JSON array.

    >>> url_hosts("http://localhost:3000/a")
    '["localhost:3000", "localhost"]'
    """
    parts = urlsplit(url)
    return json.dumps([parts.netloc, parts.hostname])


def url_path(url: str) -> str:
    """Return the path of a URL."""
    return urlsplit(url).path or "/"


def new_id(kind: str) -> str:
    """Make a new id, for example ``msg_…`` or ``wfr_…``."""
    return f"{kind}_{secrets.token_hex(11)}"


class Sent(msgspec.Struct, frozen=True):
    """A request sent to a destination: headers without the signature, and the body."""

    headers: tuple[tuple[str, str], ...]
    body: bytes


class DestinationResponse(msgspec.Struct, frozen=True):
    """The response of a destination. If none arrived, the response that a gateway would send."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def ok(self) -> bool:
        """Return True if the message counts as delivered."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the 2xx class

    def header(self, name: str) -> str | None:
        """Return the first value of a header; `name` is in lower case."""
        for key, header_value in self.headers:
            if key.lower() == name:
                return header_value
        return None


class Attempt(msgspec.Struct, frozen=True):
    """One delivery that has ended; `retried` counts the retries before it."""

    message: Message
    sent: Sent
    response: DestinationResponse
    retried: int


HeaderLists: TypeAlias = dict[str, list[str]]


class Described(TypedDict, total=False):
    """How a message was sent; fields that do not apply are omitted."""

    callerIP: str
    topicName: str
    endpointName: str
    queueName: str
    scheduleId: str
    label: str
    labels: list[str]


class DlqEntry(Described, total=False):
    """An entry of the DLQ. Imported entries may have other fields as well."""

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
    """A step of a run; the body is in base64."""

    messageId: str
    body: str
    callType: str


def history_items(history: Iterable[tuple[str, bytes]]) -> list[HistoryStep]:
    """Return the steps of a run as an endpoint receives them, from the id and the body of each."""
    return [
        {
            "messageId": message_id,
            "body": base64.b64encode(body).decode(),
            "callType": "step",
        }
        for message_id, body in history
    ]


def header_lists(headers: Iterable[tuple[str, str]]) -> HeaderLists:
    """Return all values per header name, in order.

    >>> header_lists([("Accept", "a"), ("Accept", "b")])
    {'Accept': ['a', 'b']}
    """
    lists: HeaderLists = defaultdict(list)
    for name, header_value in headers:
        lists[name].append(header_value)
    return dict(lists)


def body_fields(name: str, body: bytes) -> dict[str, str]:
    """Return a body as two fields: plain if it is UTF-8, otherwise in base64. The other field is empty.

    >>> body_fields("body", b"{}"), body_fields("body", bytes([255]))
    ({'body': '{}', 'bodyBase64': ''}, {'body': '', 'bodyBase64': '/w=='})
    """
    try:
        return {name: body.decode(), f"{name}Base64": ""}
    except UnicodeDecodeError:
        return {name: "", f"{name}Base64": base64.b64encode(body).decode()}


def with_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value: the public service omits the others, and clients rely on it."""
    return {
        name: content for name, content in fields.items() if content not in _NO_VALUES
    }


def dlq_entry(
    attempt: Attempt, *, dlq_id: str, run_created_at: int | None
) -> dict[str, Any]:
    """Return the `DlqEntry` of a message whose last retry failed, without the failure-function state."""
    response, workflow = attempt.response, attempt.message.settings.workflow
    entry = message_entry(attempt.message, attempt.sent)
    if workflow:
        for name in _ONLY_MESSAGES:
            entry.pop(name, None)
        entry["workflowUrl"] = workflow.url
        entry["workflowRunId"] = workflow.run_id
        entry["workflowCreatedAt"] = run_created_at

    return {
        "dlqId": dlq_id,
        **entry,
        "responseStatus": response.status,
        "responseHeader": header_lists(response.headers),
        **body_fields("responseBody", response.body),
    }


_ONLY_MESSAGES: Final = (
    "notBefore",
    "callback",
    "retryDelayExpression",
    "parallelism",
    "rate",
    "period",
)
"""Fields that entries of plain messages have, and entries of runs do not."""


def message_entry(message: Message, sent: Sent | None = None) -> dict[str, Any]:
    """Return a message for listings: as it was sent, or as it will be if `sent` is None."""
    settings = message.settings
    # without a delivery, the entry shows the headers and the body of the publish
    headers, body = redacted(
        message.redact, sent or Sent(settings.headers, message.body)
    )
    described = given_settings(settings, message.callback, message.failure_callback)

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
        **{name: setting for name, setting in described.items() if setting is not None},
        "labels": list(settings.labels),
    }


def given_settings(
    settings: Settings, callback: Settings | None, failure_callback: Settings | None
) -> dict[str, Any]:
    """Return the settings of a message that all listings show; some are None or missing if not set."""
    described: dict[str, Any] = {
        "flowControlKey": settings.flow_key,
        "retryDelayExpression": settings.retry_delay,
    }
    # the first label also has a separate field, from the time when a message had only one
    if settings.labels:
        described["label"] = settings.labels[0]
    if callback is not None:
        described["callback"] = callback.url
    if failure_callback is not None:
        described["failureCallback"] = failure_callback.url
    if settings.flow is not None:
        described["parallelism"] = settings.flow.parallelism
        described["rate"] = settings.flow.rate
        described["period"] = settings.flow.period_ms // 1000

    return described


def created_details(message: Message) -> dict[str, Any]:
    """Return headers and body (base64) for the first event of a message; a large body is omitted."""
    headers, body = redacted(
        message.redact, Sent(message.settings.headers, message.body)
    )
    details: dict[str, Any] = {"header": header_lists(headers)}
    if len(body) <= MAX_LOGGED_BODY:
        details["body"] = base64.b64encode(body).decode()
    return details


def callback_body(
    attempt: Attempt, *, source_body: bytes | None, dlq_id: str | None = None
) -> bytes:
    """Return the JSON body of a callback or, if `dlq_id` is given, of a failure callback."""
    message, sent, response = attempt.message, attempt.sent, attempt.response
    source = sent if source_body is None else Sent(sent.headers, source_body)
    headers, body = redacted(message.redact, source)
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
        "sourceHeader": {
            name: ", ".join(values) for name, values in header_lists(headers).items()
        },
        "sourceBody": base64.b64encode(body).decode(),
        "notBefore": str(message.not_before),
        "createdAt": str(message.created_at),
        "scheduleId": message.origin.schedule,
        "callerIP": message.caller_ip,
    }
    # failure callbacks name the entry, callbacks of runs the run
    if dlq_id is not None:
        content["dlqId"] = dlq_id
    if message.run_id:
        content["workflowRunId"] = message.run_id
    return json.dumps(content).encode()


def redacted(redact: Sequence[str], sent: Sent) -> tuple[list[tuple[str, str]], bytes]:
    """Return headers and body for display: each redacted field is ``REDACTED:<SHA256>``.

    `redact` is a list such as ``["body", "header[Authorization]"]``.
    """
    fields = {field.lower() for field in redact}
    all_headers = "headers" in fields or "header" in fields

    headers = []
    for name, header_value in sent.headers:
        if all_headers or f"header[{name.lower()}]" in fields:
            # Latin-1, as on the wire: the digest is that of the bytes that were sent
            digest = _digest(header_value.encode("latin-1", "replace"))
            headers.append((name, digest))
        else:
            headers.append((name, header_value))

    body = sent.body
    if "body" in fields:
        body = _digest(body).encode()
    return headers, body


def _digest(content: bytes) -> str:
    return f"REDACTED:{hashlib.sha256(content).hexdigest()}"

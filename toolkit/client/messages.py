"""Publishing messages, with callbacks, and starting workflow runs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from toolkit.arguments import flag, instance, mapping, text
from toolkit.client.publish_headers import (
    Duration,
    Method,
    content_of,
    count,
    duration,
    flow_control,
    forwarded,
    header_name,
    header_value,
    invalid_header,
    listed,
    method_name,
    not_before_seconds,
    web_address,
)
from toolkit.client.responses import Request, Response, a_text, small
from toolkit.client.transport import Transport
from toolkit.redaction import Redactor
from toolkit.settings.service import Service, endpoint_of


@dataclass(frozen=True, kw_only=True)
class Published:
    """The service's response to a publish.

    Attributes
    ----------
    message_id : str
        Id of the message; callbacks name it as ``source_message_id``.
    deduplicated : bool
        Whether the service had the message already and did not accept it again.

    Examples
    --------
    >>> Published(message_id="msg_1", deduplicated=False).message_id
    'msg_1'
    """

    message_id: str
    deduplicated: bool


@dataclass(frozen=True)
class CallbackSettings:
    """Where a callback or failure callback goes, and how it is delivered.

    None means the service's own setting (retries: those of the original message).

    Attributes
    ----------
    url : str
        Address of the callback endpoint, http or https.
    timeout, delay : int, str or timedelta, optional
        Seconds, text such as ``"50s"``, or a timedelta of whole seconds.
    retries : int, optional
        0 or more.
    method : {"GET", "POST", "PUT", "DELETE", "PATCH"}, optional
    headers : mapping
        Forwarded to the callback endpoint.

    Raises
    ------
    InputError
        When the URL or a setting cannot be used.

    Examples
    --------
    >>> CallbackSettings("https://app.example/done?key=abc", retries=2)
    CallbackSettings('https://app.example/done', retries=2)
    """

    url: str
    timeout: Duration | None = field(default=None, kw_only=True)
    retries: int | None = field(default=None, kw_only=True)
    delay: Duration | None = field(default=None, kw_only=True)
    method: Method | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", dict(mapping("headers", self.headers)))
        self.wire_headers("Callback")

    def __repr__(self) -> str:
        shown = {"timeout": self.timeout, "retries": self.retries, "delay": self.delay, "method": self.method}
        parts = [f"{name}={value!r}" for name, value in shown.items() if value is not None]
        parts += [f"headers={sorted(self.headers)}"] if self.headers else []
        return f"CallbackSettings({', '.join([repr(self.url.partition('?')[0]), *parts])})"

    def wire_headers(self, name: str) -> list[tuple[str, str]]:
        """The publish headers of this callback, named `name`, checked and without the dialect's prefix."""
        settings = {
            f"{name}-Timeout": duration(f"{name}-Timeout", self.timeout),
            f"{name}-Retries": count(f"{name}-Retries", self.retries),
            f"{name}-Delay": duration(f"{name}-Delay", self.delay),
            f"{name}-Method": method_name(f"{name}-Method", self.method),
        }
        return [
            (name, web_address(name, self.url)),
            *((key, value) for key, value in settings.items() if value is not None),
            *forwarded(f"{name}-Forward-", self.headers),
        ]


def publish(
    service: Service,
    url: str,
    body: Any = None,
    *,
    method: Method | None = None,
    headers: Mapping[str, str] | None = None,
    content_type: str | None = None,
    retries: int | None = None,
    retry_delay: str | int | None = None,
    timeout: Duration | None = None,
    delay: Duration | None = None,
    not_before: datetime | int | None = None,
    labels: str | Iterable[str] = (),
    flow_control_key: str | None = None,
    parallelism: int | None = None,
    rate: int | None = None,
    period: Duration | None = None,
    deduplication_id: str | None = None,
    content_based_deduplication: bool = False,
    redact: str | Iterable[str] = (),
    callback: str | CallbackSettings | None = None,
    failure_callback: str | CallbackSettings | None = None,
) -> Published:
    """Publish a message: the service delivers it to `url`, and retries when that fails.

    A deduplication id is always sent (a random one unless given), so that a publish whose response was lost
    can be sent again without a second message.

    Parameters
    ----------
    service : Service
        From `connect`; needs its queue endpoint.
    url : str
        Destination, http or https, without user info and fragment.
    body : bytes, str or JSON-able, optional
        Bytes and text are sent as they are, anything else as JSON. None sends no body.
    method : {"GET", "POST", "PUT", "DELETE", "PATCH"}, optional
        How the destination is called. Default: POST.
    headers : mapping, optional
        Forwarded to the destination. Names and values are ASCII; values have no line ends.
    content_type : str, optional
        Default: ``application/json``, ``text/plain; charset=utf-8`` or ``application/octet-stream``,
        by the kind of `body`.
    retries : int, optional
        How often delivery is tried again, 0 or more. The service's default is 3.
    retry_delay : str or int, optional
        Milliseconds before a retry, or an expression of them over ``retried``, such as
        ``"1000 * pow(2, retried)"``.
    timeout : int, str or timedelta, optional
        How long the destination may take: seconds, text such as ``"50s"``, or a timedelta of whole seconds.
    delay : int, str or timedelta, optional
        How long to wait before the first delivery.
    not_before : datetime or int, optional
        When to deliver at the earliest, instead of `delay`: a datetime with a time zone, or Unix seconds.
    labels : str or iterable of str
        Without commas, which separate them on the wire.
    flow_control_key : str, optional
        Messages of one key share the limits below.
    parallelism, rate : int, optional
        Deliveries at a time, and deliveries a `period`. Only with `flow_control_key`.
    period : int, str or timedelta, optional
        The service's default is one second.
    deduplication_id : str, optional
        Messages of one id within ten minutes are accepted once.
    content_based_deduplication : bool
        Let the service make the id from the message's content. Not with `deduplication_id`.
    redact : str or iterable of str
        What the service's own logs hide: ``"body"``, ``"headers"`` or ``"header[Name]"``.
    callback : str or CallbackSettings, optional
        Called with the destination's response, perhaps on each try.
    failure_callback : str or CallbackSettings, optional
        Called when delivery has failed and all retries are exhausted.

    Returns
    -------
    Published

    Raises
    ------
    InputError
        When a value cannot be sent; it names the header, not the value.
    ServiceError
        When the service does not accept the message.

    Examples
    --------
    >>> from toolkit.settings import connect
    >>> service = connect(queue_url="http://127.0.0.1:9", queue_token="t0ken-of-mine")
    >>> publish(service, "ftp://app.example/orders")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: publishing a message: got a destination of the scheme 'ftp'; expected ...
    """
    endpoint = endpoint_of(service, "queue")
    message = outgoing(
        endpoint.dialect.prefix,
        url,
        body,
        method=method,
        headers=headers,
        content_type=content_type,
        retries=retries,
        retry_delay=retry_delay,
        timeout=timeout,
        delay=delay,
        not_before=not_before,
        labels=labels,
        flow_control_key=flow_control_key,
        parallelism=parallelism,
        rate=rate,
        period=period,
        deduplication_id=deduplication_id,
        content_based_deduplication=content_based_deduplication,
        redact=redact,
        callback=callback,
        failure_callback=failure_callback,
    )
    request = Request(
        doing="publishing a message",
        method="POST",
        path=f"/v2/publish/{message.url}",
        headers=message.headers,
        body=message.body,
    )
    with Transport.to(service, "queue") as transport:
        return transport.fetch(request, _published)


class Outgoing(NamedTuple):
    """A message as it is sent: its destination, all its headers, and its body."""

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None


def outgoing(
    prefix: str,
    url: str,
    body: Any = None,
    *,
    method: Method | None = None,
    headers: Mapping[str, str] | None = None,
    content_type: str | None = None,
    retries: int | None = None,
    retry_delay: str | int | None = None,
    timeout: Duration | None = None,
    delay: Duration | None = None,
    not_before: datetime | int | None = None,
    labels: str | Iterable[str] = (),
    flow_control_key: str | None = None,
    parallelism: int | None = None,
    rate: int | None = None,
    period: Duration | None = None,
    deduplication_id: str | None = None,
    content_based_deduplication: bool = False,
    redact: str | Iterable[str] = (),
    callback: str | CallbackSettings | None = None,
    failure_callback: str | CallbackSettings | None = None,
) -> Outgoing:
    """A message from the arguments of `publish`, checked; `prefix` is the dialect's."""
    flag("content_based_deduplication", content_based_deduplication)
    if headers is not None:
        mapping("headers", headers)
    if delay is not None and not_before is not None:
        raise invalid_header("Not-Before", "delay and not_before", "one of them")
    if content_based_deduplication and deduplication_id is not None:
        raise invalid_header("Deduplication-Id", "an id and content_based_deduplication=True", "one of them")
    content, kind = content_of(body)
    options: dict[str, str | None] = {
        "Method": method_name("Method", method),
        "Retries": count("Retries", retries),
        "Retry-Delay": retry_delay if isinstance(retry_delay, str) else count("Retry-Delay", retry_delay),
        "Timeout": duration("Timeout", timeout),
        "Delay": duration("Delay", delay),
        "Not-Before": not_before_seconds(not_before),
        "Label": listed("Label", labels),
        "Flow-Control-Key": flow_control_key,
        "Flow-Control-Value": flow_control(flow_control_key, parallelism, rate, period),
        "Redact-Fields": listed("Redact-Fields", redact),
    }
    if content_based_deduplication:
        options["Content-Based-Deduplication"] = "true"
    else:
        options["Deduplication-Id"] = uuid.uuid4().hex if deduplication_id is None else deduplication_id
    wire = [(name, value) for name, value in options.items() if value is not None]
    for name, target in (("Callback", callback), ("Failure-Callback", failure_callback)):
        if target is not None:
            settings = (
                target
                if isinstance(target, CallbackSettings)
                else CallbackSettings(web_address(name, target))
            )
            wire += settings.wire_headers(name)
    wire += forwarded("Forward-", headers or {})
    named = [(f"{prefix}{name}", header_value(name, value)) for name, value in wire]
    if content_type is not None or kind:
        value = kind if content_type is None else text("content_type", content_type, empty=False)
        named.append(("Content-Type", header_value("Content-Type", value)))
    return Outgoing(web_address("destination", url), tuple(named), content)


def _published(request: Request, response: Response) -> Published:
    result = small(request, response)
    return Published(
        message_id=a_text(request, "messageId", result, required=True),
        deduplicated=result.get("deduplicated") is True,
    )


def start_run(
    url: str, body: Any = None, *, headers: Mapping[str, str] | None = None, redactor: Redactor | None = None
) -> str:
    """Start a workflow run at an application's own workflow endpoint.

    The request goes to the application, not to the service: nothing of ours is sent but body and headers. It
    is not retried once it may have arrived, as that could start a second run.

    Parameters
    ----------
    url : str
        The workflow's endpoint, http or https, without user info and fragment.
    body : bytes, str or JSON-able, optional
        Payload of the run. Bytes and text are sent as they are, anything else as JSON.
    headers : mapping, optional
        Sent to the endpoint, such as its own authorization.
    redactor : Redactor, optional
        Masks what goes into errors (``service.redactor`` also knows the service's tokens).

    Returns
    -------
    str
        The run's id.

    Raises
    ------
    InputError
        When the address or a header cannot be sent.
    ServiceError
        When the application does not respond as a workflow endpoint does.

    Examples
    --------
    >>> start_run("http://user:pw@app.example/flow")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: starting a workflow run: got a url with user info; expected an http(s) URL ...
    """
    doing = "starting a workflow run"
    address = web_address("url", url, doing=doing)
    content, kind = content_of(body)
    if redactor is not None:
        instance("redactor", redactor, Redactor, "a Redactor, such as service.redactor")
    sent = {"Content-Type": kind} if kind else {}
    for name, value in ({} if headers is None else mapping("headers", headers)).items():
        header_name(name)
        sent = {known: text for known, text in sent.items() if known.lower() != name.lower()}
        sent[header_name(name)] = header_value(name, value)
    parts = urlsplit(address)
    base = f"{parts.scheme}://{parts.netloc}"
    request = Request(
        doing=doing,
        method="POST",
        path=address[len(base) :] or "/",
        headers=tuple(sent.items()),
        body=content,
        repeatable=False,
    )
    with Transport(base, redactor=redactor or Redactor()) as transport:
        response = transport.send(request)
    return a_text(
        request,
        "workflowRunId",
        small(request, response),
        required=True,
        next_step="Is this the address of a workflow endpoint?",
    )

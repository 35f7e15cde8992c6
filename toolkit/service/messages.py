"""Publishing messages, one or many, with callbacks, and starting workflow runs."""

from __future__ import annotations

import inspect
import uuid
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from toolkit.base.arguments import (
    confirmed,
    flag,
    instance,
    mapping,
    nearest,
    text,
    wrong,
)
from toolkit.base.errors import (
    InputError,
    ResponseError,
    ToolkitError,
    UnexpectedResultWarning,
)
from toolkit.base.former_arguments import refuses_former
from toolkit.service.callback_settings import CallbackSettings
from toolkit.service.delivery import FlowControl, Retries
from toolkit.service.publish_headers import (
    MESSAGE_HEADERS,
    Duration,
    Method,
    content_of,
    forwarded,
    header_value,
    invalid_header,
    web_address,
)
from toolkit.service.responses import (
    Request,
    Response,
    object_field,
    raise_malformed,
    read_body,
    text_field,
)
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport

_MOST_IN_BATCH: Final = 100  # messages of a request
_SERVER_ERRORS: Final = 500
_SPREAD: Final = {"retry_delay": None, "not_before": None}
"""Parts of `retries` and `delay` that have a header of their own, if they are not set."""
_FORMER: Final = {
    "retry_delay": "retries=Retries(count, delay=...)",
    "not_before": "delay=, which also accepts a datetime",
    "flow_control_key": "flow_control=FlowControl(key, ...)",
    "parallelism": "flow_control=FlowControl(key, parallelism=...)",
    "rate": "flow_control=FlowControl(key, rate=...)",
    "period": "flow_control=FlowControl(key, rate=..., period=...)",
}
"""Former arguments of `publish`, and how to write them now."""


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


@refuses_former(_FORMER)
def publish(
    service: Service,
    url: str,
    body: Any = None,
    *,
    method: Method | None = None,
    headers: Mapping[str, str] | None = None,
    content_type: str | None = None,
    retries: int | Retries | None = None,
    timeout: Duration | None = None,
    delay: Duration | datetime | None = None,
    labels: str | Iterable[str] = (),
    flow_control: FlowControl | None = None,
    deduplication_id: str | None = None,
    content_based_deduplication: bool = False,
    redact: str | Iterable[str] = (),
    callback: str | CallbackSettings | None = None,
    failure_callback: str | CallbackSettings | None = None,
) -> Published:
    """Publish a message. The service delivers it to `url`, and retries if the delivery fails.

    Each message is sent with a deduplication id (yours, or a random one), or is recognized by the content if
    you choose that. So if a response is lost, the message can be sent again, and is accepted only once.

    Parameters
    ----------
    service : Service
        From `connect`, with a queue endpoint.
    url : str
        Destination, http or https, without user info and fragment.
    body : bytes, str or JSON-able, optional
        Bytes and text are sent as they are, anything else as JSON. None sends no body.
    method : {"GET", "POST", "PUT", "DELETE", "PATCH"}, optional
        Method of the request to the destination. Default: POST.
    headers : mapping, optional
        Forwarded to the destination. Names and values are ASCII; values have no line ends.
    content_type : str, optional
        Default: ``application/json``, ``text/plain; charset=utf-8`` or ``application/octet-stream``,
        by the kind of `body`.
    retries : int or Retries, optional
        Number of retries. To set the time before a retry as well, pass ``Retries(5, delay=1000)``.
    timeout : int, str or timedelta, optional
        Time limit of the destination: seconds, text, for example ``"50s"``, or a timedelta of whole seconds.
    delay : int, str, timedelta or datetime, optional
        Time before the first delivery, or the earliest time of the delivery: a datetime with a time zone.
    labels : str or iterable of str
        Labels without commas.
    flow_control : FlowControl, optional
        Limits that messages with the same key share: ``FlowControl("tenant-7", parallelism=2)``.
    deduplication_id : str, optional
        If several messages have the same id, only the first within ten minutes is accepted.
    content_based_deduplication : bool
        If True, the service makes the id from the content of the message. Not with `deduplication_id`.
    redact : str or iterable of str
        Parts to hide in the logs of the service: ``"body"``, ``"headers"`` or ``"header[Name]"``.
    callback : str or CallbackSettings, optional
        Called with the response of the destination, possibly on each try.
    failure_callback : str or CallbackSettings, optional
        Called if the delivery has failed and all retries are exhausted.

    Returns
    -------
    Published

    Raises
    ------
    InputError
        If a value cannot be sent. The error names the header and does not show the value.
    ServiceError
        If the service does not accept the message.

    Examples
    --------
    >>> from toolkit.service.connecting import connect
    >>> service = connect(queue_url="http://127.0.0.1:9", queue_token="t0ken-of-mine")
    >>> publish(service, "ftp://app.example/orders")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: publishing a message: got a destination of the scheme 'ftp'; expected ...
    """
    given = locals()  # the arguments, by name
    address, wire, content = _outgoing(
        endpoint_of(service, "queue").dialect.prefix, given
    )
    path = f"/v2/publish/{address}"
    request = Request(
        doing="publishing a message",
        method="POST",
        path=path,
        headers=wire,
        body=content,
    )
    with Transport.to(service, "queue") as transport:
        return transport.fetch(request, _published)


_ARGUMENTS: Final = {
    name: parameter.default
    for name, parameter in inspect.signature(publish).parameters.items()
    if name != "service"
}
"""The arguments of a message, by name, and their defaults."""


def publish_batch(
    service: Service,
    messages: Iterable[Mapping[str, Any]],
    *,
    batch_id: str | None = None,
    confirm: bool = False,
) -> list[Published]:
    """Publish many messages, 100 per request. All are checked before the first is sent.

    Each message has a deduplication id made of `batch_id` and the position. No message is accepted twice if a
    response is lost, or if you repeat the call with the same `batch_id` within ten minutes.

    Parameters
    ----------
    service : Service
        From `connect`.
    messages : iterable of mapping
        The arguments of `publish`, by name: ``{"url": ..., "body": ..., "retries": 0}``. A body of bytes has
        to be UTF-8.
    batch_id : str, optional
        Default: a random id. Not used for messages with their own deduplication id.
    confirm : bool
        Must be True.

    Returns
    -------
    list of Published
        One result per message, in order.

    Raises
    ------
    InputError
        Without ``confirm=True``, without messages, or if a message cannot be sent. The error names the
        message. No message has been sent then.
    ServiceError
        If a request fails. A note on the error contains the numbers of messages that were accepted, unknown
        and not sent, and the `batch_id` for another call.

    Warns
    -----
    UnexpectedResultWarning
        If the service had all messages already and accepted none.

    Examples
    --------
    >>> orders = [{"url": "http://127.0.0.1:9/orders", "body": {"order": n}, "delay": "1h"} for n in range(3)]
    >>> sent = tk.publish_batch(service, orders, confirm=True)
    >>> len(sent), sent[0].deduplicated
    (3, False)
    """
    prefix = endpoint_of(service, "queue").dialect.prefix
    named = (
        uuid.uuid4().hex
        if batch_id is None
        else text("batch_id", batch_id, empty=False)
    )
    if not (named.isascii() and named.isprintable() and named == named.strip()):
        raise wrong("batch_id", named, "visible ASCII text, as it goes into a header")

    if isinstance(messages, str | bytes | Mapping) or not isinstance(
        messages, Iterable
    ):
        raise wrong(
            "messages",
            messages,
            "an iterable of mappings, each with the arguments of publish",
        )

    items = [
        _item(message, position, prefix, named)
        for position, message in enumerate(messages)
    ]
    if not items:
        raise InputError("reading messages", got="none", expected="at least one")

    doing = f"publishing {len(items):,} messages"
    confirmed(
        doing,
        confirm,
        "Look at the messages once more, then call again with confirm=True.",
    )

    done: list[Published] = []
    with Transport.to(service, "queue") as transport:
        for start in range(0, len(items), _MOST_IN_BATCH):
            some = items[start : start + _MOST_IN_BATCH]
            request = Request(
                doing=f"publishing messages {start:,} to {start + len(some) - 1:,} of {len(items):,}",
                method="POST",
                path="/v2/batch",
                headers=(("Content-Type", "application/json"),),
                body=msgspec.json.encode(some),
            )
            try:
                done += transport.fetch(request, partial(_accepted, count=len(some)))
            except (ToolkitError, KeyboardInterrupt) as error:
                refused = (
                    isinstance(error, ResponseError) and error.status < _SERVER_ERRORS
                )
                fate = "were is unknown"
                if refused:
                    fate = "were not"
                error.add_note(
                    f"Before this, {len(done):,} of {len(items):,} messages were accepted. "
                    f"{'The' if refused else 'Whether the'} {len(some):,} of this request {fate}. "
                    f"Not sent: {len(items) - start - len(some):,}. The same call with batch_id={named!r} "
                    "sends what is left: within ten minutes, none is accepted twice."
                )
                raise

    if all(published.deduplicated for published in done):
        message = f"{doing}: the service had all of them already (batch_id={named!r}), and accepted none."
        warnings.warn(message, UnexpectedResultWarning, stacklevel=2)

    return done


def _item(message: object, position: int, prefix: str, batch_id: str) -> dict[str, Any]:
    """Return a message as an item of a batch. Raise `InputError` with the position if it cannot be sent."""
    place = f"messages at position {position:,}"
    arguments = _checked_arguments(message, place)
    if (
        not arguments["content_based_deduplication"]
        and arguments["deduplication_id"] is None
    ):
        arguments["deduplication_id"] = f"{batch_id}-{position}"

    try:
        address, headers, content = _outgoing(prefix, arguments)
        body = {} if content is None else {"body": content.decode()}
    except UnicodeDecodeError:
        raise InputError(
            f"reading {place}",
            got="a body that is not UTF-8",
            expected="text, because batches are JSON",
            next_step="Send it alone, with publish.",
        ) from None
    except InputError as error:
        error.add_note(f"This is of the {place}. Nothing was sent.")
        raise

    return {"destination": address, "headers": dict(headers), **body}


def _checked_arguments(message: object, place: str) -> dict[str, Any]:
    """Return all arguments of `publish` for a message of a batch, with defaults."""
    if not isinstance(message, Mapping):
        raise wrong(place, message, "a mapping with the arguments of publish")

    unknown = [name for name in message if name not in _ARGUMENTS]
    if unknown:
        got = f"the argument {str(unknown[0])[:80]!r}"
        raise _argument_error(place, got, unknown[0])
    if "url" not in message:
        raise _argument_error(place, "no url", "url")

    return {**_ARGUMENTS, **message}


def _argument_error(place: str, got: str, name: Any) -> InputError:
    """Return the error for an argument of a message that is unknown or missing."""
    next_step = nearest(name, _ARGUMENTS)
    if name in _FORMER:
        next_step = f"Use {_FORMER[name]}."
    return InputError(
        f"reading {place}",
        got=got,
        expected="arguments of publish",
        next_step=next_step,
    )


def _outgoing(
    prefix: str, arguments: Mapping[str, Any]
) -> tuple[str, tuple[tuple[str, str], ...], bytes | None]:
    """Return the destination, headers and body of a message. `prefix` is the prefix of the dialect."""
    forwarded_headers = (
        {} if arguments["headers"] is None else mapping("headers", arguments["headers"])
    )
    arguments = _spread(arguments)
    deduplication = _deduplication(arguments)
    content, content_type = content_of(arguments["body"])
    options = {
        header: convert(header, arguments[argument])
        for header, (argument, convert) in MESSAGE_HEADERS.items()
        if arguments[argument] is not (_ARGUMENTS | _SPREAD)[argument]
    }

    limits = arguments["flow_control"]
    if limits is not None:
        instance("flow_control", limits, FlowControl, "a FlowControl")
        options["Flow-Control-Key"] = limits.key
        options["Flow-Control-Value"] = limits.limits()

    options |= deduplication
    headers = [(name, value) for name, value in options.items() if value is not None]
    headers += _callback_headers("Callback", arguments["callback"])
    headers += _callback_headers("Failure-Callback", arguments["failure_callback"])
    headers += forwarded("Forward-", forwarded_headers)
    named = [(f"{prefix}{name}", header_value(name, value)) for name, value in headers]
    if arguments["content_type"] is not None:
        content_type = text("content_type", arguments["content_type"], empty=False)
    if content_type:
        # the only header without the prefix
        named.append(("Content-Type", header_value("Content-Type", content_type)))

    return web_address("destination", arguments["url"]), tuple(named), content


def _spread(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with one part per header: the number of retries and their delay, for example."""
    parts = {**arguments, **_SPREAD}
    retries, delay = arguments["retries"], arguments["delay"]
    if isinstance(retries, Retries):
        parts |= {"retries": retries.count, "retry_delay": retries.delay}
    if isinstance(delay, datetime):
        parts |= {"delay": None, "not_before": delay}
    return parts


def _deduplication(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the header that identifies a message: by content, by the given id, or by a random id."""
    by_content = flag(
        "content_based_deduplication", arguments["content_based_deduplication"]
    )
    own_id = arguments["deduplication_id"]
    if not by_content:
        return {"Deduplication-Id": uuid.uuid4().hex if own_id is None else own_id}

    if own_id is not None:
        raise invalid_header(
            "Deduplication-Id",
            "an id and content_based_deduplication=True",
            "one of them",
        )

    return {"Content-Based-Deduplication": "true"}


def _callback_headers(name: str, target: Any) -> list[tuple[str, str]]:
    if target is None:
        return []

    if not isinstance(target, CallbackSettings):
        target = CallbackSettings(web_address(name, target))
    settings: list[tuple[str, str]] = target.wire_headers(name)
    return settings


def _published(request: Request, response: Response) -> Published:
    return _result(request, read_body(request, response))


def _accepted(request: Request, response: Response, *, count: int) -> list[Published]:
    """Return the results of a number of messages."""
    results = read_body(request, response, list)
    if len(results) != count:
        got, expected = f"{len(results):,} results", f"an array of {count:,} results"
        raise_malformed(request, got=got, expected=expected)

    return [
        _result(request, object_field(request, "result", result, required=True))
        for result in results
    ]


def _result(request: Request, result: dict[str, Any]) -> Published:
    return Published(
        message_id=text_field(request, "messageId", result, required=True),
        deduplicated=result.get("deduplicated") is True,
    )

"""Publishing many messages: checked first, sent in batches, and never accepted twice."""

from __future__ import annotations

import inspect
import json
import uuid
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from toolkit.arguments import confirmed, nearest, text, wrong
from toolkit.client.members import kind_of
from toolkit.client.messages import Outgoing, Published, outgoing
from toolkit.client.responses import Request, Response, a_text, not_as_specified
from toolkit.client.transport import Transport
from toolkit.errors import InputError, ResponseError, ToolkitError, UnexpectedResultWarning
from toolkit.settings.service import Service, endpoint_of

BATCH: Final = 100
"""Messages of a request."""

_NAMES: Final = tuple(inspect.signature(outgoing).parameters)[1:]
_SERVER_ERRORS: Final = 500


def publish_batch(
    service: Service,
    messages: Iterable[Mapping[str, Any]],
    *,
    batch_id: str | None = None,
    confirm: bool = False,
) -> list[Published]:
    """Publish many messages, 100 a request. All are checked before the first is sent.

    Each message has a deduplication id made of `batch_id` and its position, so that nothing is accepted twice
    when a response is lost, or when the same call is repeated with the same `batch_id` within ten minutes.

    Parameters
    ----------
    service : Service
        From `connect`.
    messages : iterable of mapping
        The arguments of `publish`, by name: ``{"url": ..., "body": ..., "retries": 0}``. A body of bytes has
        to be UTF-8.
    batch_id : str, optional
        Default: a random one. Not used for messages with a deduplication of their own.
    confirm : bool
        Must be True.

    Returns
    -------
    list of Published
        One a message, in order.

    Raises
    ------
    InputError
        Without ``confirm=True``, without messages, or for one that cannot be sent: it says which. Nothing has
        been sent then.
    ServiceError
        When a request fails. A note on the error says how many were accepted before, of which it is unknown,
        how many were not sent, and with which `batch_id` to call again.

    Warns
    -----
    UnexpectedResultWarning
        When the service had all messages already, and accepted none.

    Examples
    --------
    >>> orders = [{"url": "http://127.0.0.1:9/orders", "body": {"order": n}, "delay": "1h"} for n in range(3)]
    >>> sent = tk.publish_batch(service, orders, confirm=True)
    >>> len(sent), sent[0].deduplicated
    (3, False)
    """
    prefix = endpoint_of(service, "queue").dialect.prefix
    named = uuid.uuid4().hex if batch_id is None else text("batch_id", batch_id, empty=False)
    if not (named.isascii() and named.isprintable() and named == named.strip()):
        raise wrong("batch_id", named, "visible ASCII text, as it goes into a header")
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise wrong("messages", messages, "an iterable of mappings, each with the arguments of publish")
    items = [_item(message, position, prefix, named) for position, message in enumerate(messages)]
    if not items:
        raise InputError("reading messages", got="none", expected="at least one")
    doing = f"publishing {len(items):,} messages"
    confirmed(doing, confirm, "Look at the messages once more, then call again with confirm=True.")
    done: list[Published] = []
    with Transport.to(service, "queue") as transport:
        for start in range(0, len(items), BATCH):
            some = items[start : start + BATCH]
            request = Request(
                doing=f"publishing messages {start:,} to {start + len(some) - 1:,} of {len(items):,}",
                method="POST",
                path="/v2/batch",
                headers=(("Content-Type", "application/json"),),
                body=msgspec.json.encode(some),
            )
            try:
                done += transport.fetch(request, _accepted(len(some)))
            except (ToolkitError, KeyboardInterrupt) as error:
                refused = isinstance(error, ResponseError) and error.status < _SERVER_ERRORS
                fate = "were not" if refused else "were is unknown"
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
    """A message as an item of a batch; an `InputError` that says which one cannot be sent."""
    where = f"messages at position {position:,}"
    if not isinstance(message, Mapping):
        raise wrong(where, message, "a mapping with the arguments of publish")
    unknown = [name for name in message if name not in _NAMES]
    if unknown or "url" not in message:
        got = f"the argument {str(unknown[0])[:80]!r}" if unknown else "no url"
        step = nearest(unknown[0] if unknown else "url", _NAMES)
        raise InputError(f"reading {where}", got=got, expected="arguments of publish", next_step=step)
    own = message.get("content_based_deduplication") or message.get("deduplication_id") is not None
    more = {} if own else {"deduplication_id": f"{batch_id}-{position}"}
    try:
        sent: Outgoing = outgoing(prefix, **{**message, **more})
        body = None if sent.body is None else sent.body.decode()
    except UnicodeDecodeError:
        raise InputError(
            f"reading {where}",
            got="a body that is not UTF-8",
            expected="text, as batches are JSON",
            next_step="Send it alone, with publish.",
        ) from None
    except InputError as error:
        error.add_note(f"This is of the {where}. Nothing was sent.")
        raise
    item: dict[str, Any] = {"destination": sent.url, "headers": dict(sent.headers)}
    return item if body is None else {**item, "body": body}


def _accepted(count: int) -> Any:
    """A reader of the response to so many messages."""

    def accepted(request: Request, response: Response) -> list[Published]:
        try:
            results = json.loads(response.body)
        except (ValueError, RecursionError):
            not_as_specified(request, got=f"{len(response.body):,} bytes that are not JSON", expected="JSON")
        if not isinstance(results, list) or len(results) != count:
            got = f"{len(results):,} results" if isinstance(results, list) else kind_of(results)
            not_as_specified(request, got=got, expected=f"an array of {count:,} results")
        for result in results:
            if not isinstance(result, dict):
                not_as_specified(request, got=f"a result that is {kind_of(result)}", expected="an object")
        return [
            Published(
                message_id=a_text(request, "messageId", result, required=True),
                deduplicated=result.get("deduplicated") is True,
            )
            for result in results
        ]

    return accepted

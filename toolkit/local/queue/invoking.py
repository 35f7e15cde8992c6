"""A run that starts another and waits for its result: what it posts, and the step that the end brings."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from toolkit.local.answers import ApiError
from toolkit.local.queue.message import Message
from toolkit.local.queue.publishing import read_publish


class Invocation(msgspec.Struct, frozen=True, rename="camel"):
    """What an endpoint posts to invoke: the new run's payload, and where its own run goes on."""

    workflow_url: str
    step: dict[str, Any]
    headers: dict[str, list[str]]
    body: str = ""


# made here, because the first look at a struct is not safe when several threads take it at once
_INVOCATION: Final = msgspec.json.Decoder(Invocation)


def take_apart(message: Message) -> tuple[Message, Message | None]:
    """The first message of the new run, and the step for the run that invoked it; None when none did.

    Raises
    ------
    ApiError
        400 when the body is no invocation.
    """
    workflow = message.settings.workflow
    if workflow is None or not workflow.init or not workflow.invoke:
        return message, None
    try:
        invocation = _INVOCATION.decode(message.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(
            400, f"body is no invocation; got one with {error}; expected workflowUrl, step, headers and body"
        ) from None
    pairs = [(name, value) for name, values in invocation.headers.items() for value in values]
    back = read_publish(invocation.workflow_url, pairs, b"", prefix=message.prefix)
    if back.settings.workflow is None:
        raise ApiError(400, "headers of the invocation name no run; expected the id of the run that invokes")
    step = msgspec.structs.replace(
        message,
        settings=back.settings,
        body=json.dumps(invocation.step).encode(),
        callback=None,
        failure_callback=back.failure_callback,
        redact=back.redact,
    )
    return msgspec.structs.replace(message, body=invocation.body.encode()), step


def result_step(step: Message, body: bytes, *, failed: bool, canceled: bool) -> bytes:
    """The step that tells the run that invoked how the other one ended."""
    out = {"body": body.decode(errors="replace"), "isFailed": failed, "isCanceled": canceled}
    return json.dumps({**json.loads(step.body), "out": json.dumps(out)}).encode()

"""One delivery: the request as the destination sees it, and its answer, or one in its place."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from email.utils import formatdate
from typing import Final

import h11

from toolkit.local.answers import ApiError
from toolkit.local.queue.connections import Connections, Target, Unreachable
from toolkit.local.queue.destinations import Destinations
from toolkit.local.queue.message import DEFAULT_TIMEOUT_MS, Message
from toolkit.local.queue.payloads import Answer, Sent
from toolkit.local.queue.signatures import sign

USER_AGENT: Final = "workflow-vector-toolkit-local/1"


class Sender:
    """Sends messages.

    Parameters
    ----------
    destinations : Destinations
        Decides which address is connected to.
    signing_key : callable
        Gives the current signing key.
    max_answer : int
        Bytes of an answer's body that are kept; the rest is cut off.
    connections : int
        Most connections that are kept idle.
    """

    def __init__(
        self, destinations: Destinations, *, signing_key: Callable[[], str], max_answer: int, connections: int
    ) -> None:
        self._destinations = destinations
        self._signing_key = signing_key
        self._max_answer = max_answer
        self._connections = Connections(connections)

    def close(self) -> None:
        """Close the connections that are idle."""
        self._connections.close()

    async def deliver(self, message: Message, sent: Sent, *, now_ms: int) -> Answer:
        """Send one message and wait for its answer."""
        limit = (message.settings.timeout_ms or DEFAULT_TIMEOUT_MS) / 1000
        try:
            async with asyncio.timeout(limit):
                return await self._exchange(message, sent, now_ms)
        except TimeoutError:
            return no_answer(504, f"no answer within {limit:g} s", now_ms)
        except ApiError as refusal:
            return no_answer(503, refusal.message, now_ms)
        except Unreachable:
            return no_answer(503, "the destination could not be reached", now_ms)
        except (OSError, UnicodeError, h11.ProtocolError) as error:
            return no_answer(502, f"the destination's answer was broken ({type(error).__name__})", now_ms)

    async def _exchange(self, message: Message, sent: Sent, now_ms: int) -> Answer:
        url = message.settings.url
        address = await self._destinations.address(url)
        signature = sign(self._signing_key(), url=url, body=sent.body, now_ms=now_ms)
        headers = [*sent.headers, (f"{message.prefix}Signature", signature)]
        received = await self._connections.exchange(
            address,
            message.method,
            Target.of(url),
            [(_sendable(name), _sendable(value)) for name, value in headers],
            sent.body,
            most=self._max_answer,
        )
        shown = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in received.headers)
        return Answer(received.status, shown, received.body)


def _sendable(text: str) -> bytes:
    """Latin-1, as received; entries that were filled in may hold more, which becomes question marks."""
    return text.encode("latin-1", "replace")


def no_answer(status: int, sentence: str, now_ms: int) -> Answer:
    """The response in the place of one that could not be had, as a gateway makes it."""
    date = formatdate(now_ms / 1000, usegmt=True)
    return Answer(status, (("Content-Type", "text/plain; charset=utf-8"), ("Date", date)), sentence.encode())


def outgoing(message: Message, retried: int, history: list[tuple[str, bytes]]) -> Sent:
    """What is sent for a message: its own headers and body, or for a step the run's whole history.

    Parameters
    ----------
    message : Message
    retried : int
        How many retries came before.
    history : list of (message id, body)
        For a step: the run's steps in order, its start first.
    """
    prefix, workflow = message.prefix, message.settings.workflow
    ours = [
        (f"{prefix}Message-Id", message.id),
        ("Retried", str(retried)),
        (f"{prefix}Retried", str(retried)),
    ]
    if workflow:
        ours += [(f"{prefix}Workflow-RunId", workflow.run_id), (f"{prefix}Workflow-Url", workflow.url)]
        ours += [(f"{prefix}Workflow-Init", "false")]
        ours += [(f"{prefix}Workflow-CallType", workflow.call_type)] if workflow.call_type else []
    taken = {name.lower() for name, _ in ours} | {f"{prefix}signature".lower()}
    given = [(name, value) for name, value in message.settings.headers if name.lower() not in taken]
    names = {name.lower() for name, _ in given}
    missing = [
        pair for pair in (("User-Agent", USER_AGENT), ("Accept", "*/*")) if pair[0].lower() not in names
    ]
    if message.step is None:
        return Sent((*given, *missing, *ours), message.body)
    body = json.dumps(
        [
            {"messageId": message_id, "body": base64.b64encode(step).decode(), "callType": "step"}
            for message_id, step in history
        ]
    )
    given = [(name, value) for name, value in given if name.lower() != "content-type"]
    return Sent((("Content-Type", "application/json"), *given, *missing, *ours), body.encode())

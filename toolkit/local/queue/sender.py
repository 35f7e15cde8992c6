"""One delivery: the request as the destination sees it, and its answer, or one in its place."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Callable
from email.utils import formatdate
from typing import Final

import httpx

from toolkit.local.answers import Refusal
from toolkit.local.queue.destinations import Destinations
from toolkit.local.queue.message import DEFAULT_TIMEOUT_MS, Message
from toolkit.local.queue.payloads import Answer, Sent
from toolkit.local.queue.signatures import sign

_ONE_CONNECTION: Final = httpx.Limits(max_connections=1, max_keepalive_connections=1)

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
        Most connections at once.
    """

    def __init__(
        self, destinations: Destinations, *, signing_key: Callable[[], str], max_answer: int, connections: int
    ) -> None:
        self._destinations = destinations
        self._signing_key = signing_key
        self._max_answer = max_answer
        # A transport is one connection here: choosing one is a look into a dict, where httpx's client
        # compares every request with all connections. Proxies, cookies and redirects are that client's.
        self._most_idle = connections
        self._idle: dict[str, list[httpx.AsyncHTTPTransport]] = {}
        self._tls: ssl.SSLContext | None = None  # takes a while to make, and loopback seldom needs it

    async def close(self) -> None:
        """Close all connections."""
        for transport in [transport for idle in self._idle.values() for transport in idle]:
            await transport.aclose()
        self._idle.clear()

    async def deliver(self, message: Message, sent: Sent, *, now_ms: int) -> Answer:
        """Send one message and wait for its answer."""
        limit = (message.settings.timeout_ms or DEFAULT_TIMEOUT_MS) / 1000
        try:
            async with asyncio.timeout(limit):
                return await self._exchange(message, sent, now_ms)
        except TimeoutError:
            return _no_answer(504, f"no answer within {limit:g} s", now_ms)
        except Refusal as refusal:
            return _no_answer(503, refusal.message, now_ms)
        except httpx.ConnectError:
            return _no_answer(503, "the destination could not be reached", now_ms)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            return _no_answer(502, f"the destination's answer was broken ({type(error).__name__})", now_ms)

    async def _exchange(self, message: Message, sent: Sent, now_ms: int) -> Answer:
        url = httpx.URL(message.settings.url)
        address = await self._destinations.address(message.settings.url)
        signature = sign(self._signing_key(), url=message.settings.url, body=sent.body, now_ms=now_ms)
        headers = [
            ("Host", url.netloc.decode("ascii")),
            *sent.headers,
            (f"{message.prefix}Signature", signature),
        ]
        request = httpx.Request(
            message.method,
            url.copy_with(host=address),
            headers=[(_sendable(name), _sendable(value)) for name, value in headers],
            content=sent.body,
            extensions={"sni_hostname": url.host},
        )
        return await self._send(request)

    async def _send(self, request: httpx.Request) -> Answer:
        origin = f"{request.url.scheme}://{request.headers['host']}@{request.url.netloc!r}"
        idle = self._idle.setdefault(origin, [])
        transport = idle.pop() if idle else self._connection(secure=request.url.scheme == "https")
        whole = False
        try:
            answer = await transport.handle_async_request(request)
            body = bytearray()
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) >= self._max_answer:
                    break
            else:
                whole = True
        finally:
            # what was not read to its end cannot be used again
            if whole and sum(map(len, self._idle.values())) < self._most_idle:
                idle.append(transport)
            else:
                await transport.aclose()
        shown = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers.raw)
        return Answer(answer.status_code, shown, bytes(body[: self._max_answer]))

    def _connection(self, *, secure: bool) -> httpx.AsyncHTTPTransport:
        if secure and self._tls is None:
            self._tls = httpx.create_ssl_context(trust_env=False)
        tls = self._tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return httpx.AsyncHTTPTransport(verify=tls, limits=_ONE_CONNECTION)


def _sendable(text: str) -> bytes:
    """Latin-1, as received; entries that were filled in may hold more, which becomes question marks."""
    return text.encode("latin-1", "replace")


def _no_answer(status: int, sentence: str, now_ms: int) -> Answer:
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

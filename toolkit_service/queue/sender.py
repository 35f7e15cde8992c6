"""Deliver messages: check the destination, sign the request, and read the response.

If no response arrives, it is replaced by a gateway response (502, 503 or 504).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Callable, Iterable
from email.utils import formatdate
from typing import Final

import h11

from toolkit_service.api import ApiError
from toolkit_service.queue.destinations import Destinations
from toolkit_service.queue.http_connections import ConnectionPool, Unreachable
from toolkit_service.queue.messages import (
    DEFAULT_TIMEOUT_MS,
    DestinationResponse,
    Message,
    Sent,
    history_items,
)

USER_AGENT: Final = "workflow-vector-toolkit-local/1"
ISSUER: Final = "Upstash"
LIFETIME: Final = 300
"""Seconds during which a signature is valid."""


class Sender:
    """Sends messages; response bodies are truncated to `max_body` bytes."""

    def __init__(
        self,
        destinations: Destinations,
        *,
        signing_key: Callable[[], str],
        max_body: int,
        connections: int,
    ) -> None:
        self._destinations = destinations
        self._signing_key = signing_key
        self._max_body = max_body
        self._connections = ConnectionPool(connections)

    def close(self) -> None:
        """Close the connections that are idle."""
        self._connections.close()

    async def deliver(
        self, message: Message, sent: Sent, *, now_ms: int
    ) -> DestinationResponse:
        """Send one message and wait for the response."""
        timeout = (message.settings.timeout_ms or DEFAULT_TIMEOUT_MS) / 1000
        try:
            async with asyncio.timeout(timeout):
                return await self._exchange(message, sent, now_ms)
        except TimeoutError:
            status, problem = 504, f"no response within {timeout:g} s"
        except ApiError as error:
            status, problem = 503, error.message
        except Unreachable:
            status, problem = 503, "the destination could not be reached"
        except (OSError, UnicodeError, h11.ProtocolError) as error:
            status, problem = (
                502,
                f"the destination's response was broken ({type(error).__name__})",
            )

        return gateway_response(status, problem, now_ms)

    async def _exchange(
        self, message: Message, sent: Sent, now_ms: int
    ) -> DestinationResponse:
        url = message.settings.url
        address = await self._destinations.address(url)
        signature = sign(self._signing_key(), url=url, body=sent.body, now_ms=now_ms)
        signed = (*sent.headers, (f"{message.prefix}Signature", signature))
        # Latin-1, as received; other characters of imported entries become question marks
        headers = [
            (name.encode("latin-1", "replace"), text.encode("latin-1", "replace"))
            for name, text in signed
        ]
        target = self._destinations.target(url)

        return await self._connections.exchange(
            address, message.method, target, headers, sent.body, most=self._max_body
        )


def gateway_response(status: int, sentence: str, now_ms: int) -> DestinationResponse:
    """Return the response of a gateway if none arrived: 504 timeout, 503 unreachable, 502 broken."""
    date = formatdate(now_ms / 1000, usegmt=True)
    headers = (("Content-Type", "text/plain; charset=utf-8"), ("Date", date))
    return DestinationResponse(status, headers, sentence.encode())


def outgoing(message: Message, retried: int, history: list[tuple[str, bytes]]) -> Sent:
    """Return the request for a message. The body of a step is the history of the run."""
    content_type: tuple[tuple[str, str], ...] = ()
    body = message.body
    if message.step is not None:
        content_type = (("Content-Type", "application/json"),)
        body = json.dumps(history_items(history)).encode()

    protocol_headers = _protocol_headers(message, retried)
    # a publish cannot replace the headers of the service
    reserved = _names_of(
        [*content_type, *protocol_headers, (f"{message.prefix}Signature", "")]
    )
    published = [
        pair for pair in message.settings.headers if pair[0].lower() not in reserved
    ]
    # it can replace these
    published_names = _names_of(published)
    missing = [
        pair for pair in _DEFAULT_HEADERS if pair[0].lower() not in published_names
    ]

    return Sent((*content_type, *published, *missing, *protocol_headers), body)


_DEFAULT_HEADERS: Final = (("User-Agent", USER_AGENT), ("Accept", "*/*"))


def _names_of(headers: Iterable[tuple[str, str]]) -> set[str]:
    return {name.lower() for name, _ in headers}


def _protocol_headers(message: Message, retried: int) -> list[tuple[str, str]]:
    """Return the headers that the service itself adds to each delivery."""
    prefix, workflow = message.prefix, message.settings.workflow
    headers = [
        (f"{prefix}Message-Id", message.id),
        ("Retried", str(retried)),
        (f"{prefix}Retried", str(retried)),
    ]
    if workflow:
        headers += [
            (f"{prefix}Workflow-RunId", workflow.run_id),
            (f"{prefix}Workflow-Url", workflow.url),
            (f"{prefix}Workflow-Init", "false"),
        ]

    if workflow and workflow.call_type:
        headers.append((f"{prefix}Workflow-CallType", workflow.call_type))
    return headers


def sign(key: str, *, url: str, body: bytes, now_ms: int) -> str:
    """Sign one delivery: return a JWT (RFC 7519, HS256) over the URL and the SHA-256 of the body."""
    import jwt  # noqa: PLC0415 - cryptography, which it imports, is not needed until something is delivered

    issued = now_ms // 1000
    claims = {
        "iss": ISSUER,
        "sub": url,
        "exp": issued + LIFETIME,
        "nbf": issued,
        "iat": issued,
        "jti": f"jwt_{secrets.token_hex(11)}",
        "body": base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode(),
    }
    return jwt.encode(claims, key, algorithm="HS256")

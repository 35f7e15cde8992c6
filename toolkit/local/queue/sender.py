"""Deliveries: where messages may go, the signed request as the destination sees it, and its response.

A host is resolved once, checked, and connected to by that address; without a response there is a substitute.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import json
import re
import secrets
import socket
from collections.abc import Callable, Iterable
from email.utils import formatdate
from typing import Final
from urllib.parse import urlsplit

import h11
import jwt

from toolkit.local.api import ApiError
from toolkit.local.queue.http_client import ConnectionPool, Target, Unreachable
from toolkit.local.queue.messages import DEFAULT_TIMEOUT_MS, DestinationResponse, Message, Sent

_MAX_URL: Final = 8192
_BAD: Final = re.compile(r"[\x00-\x20\x7f-\U0010ffff\\\"<>^`{|}]")
_NUMBER_LIKE: Final = re.compile(r"(?:0x[0-9a-f]*|\d+)(?:\.(?:0x[0-9a-f]*|\d*))*\.?", re.IGNORECASE)
_HIGHEST_PORT: Final = 65535


def check_url(url: str, what: str) -> str:
    """The URL, when it can be called; otherwise an `ApiError` that names `what`, the header that holds it."""
    problem = _problem(url) if len(url) <= _MAX_URL else f"{len(url)} characters"
    if problem:
        raise ApiError(
            400, f"{what} is not a URL to deliver to; got {problem}; expected http(s)://host[:port]/path"
        )
    return url


def _problem(url: str) -> str | None:
    if bad := _BAD.search(url):
        return f"the character {bad[0]!r} at position {bad.start()}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "an impossible host or port"
    if parts.scheme not in ("http", "https"):
        return f"the scheme {parts.scheme[:20]!r}"
    if "@" in parts.netloc:
        return "user info before the host"
    if not parts.hostname:
        return "no host"
    if port == 0 or (port or 0) > _HIGHEST_PORT:
        return f"port {port}"
    if _literal(parts.hostname) is None and _NUMBER_LIKE.fullmatch(parts.hostname):
        return "a number written in an unusual way for a host"
    return None


class Destinations:
    """Decides where deliveries may go: to loopback, and to the hosts (names or addresses) in `allowed`."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(host.strip().strip("[]").lower() for host in allowed)

    async def address(self, url: str) -> str:
        """The IP address to connect to for this URL; an `ApiError` when there is none that may be called."""
        host = (urlsplit(url).hostname or "").lower()
        for address in await _resolve(host):
            if host in self._allowed or str(address) in self._allowed or _is_loopback(address):
                return str(address)
        raise ApiError(
            400,
            f"destination host {host[:100]!r} may not be called; got no loopback address; "
            "expected one, or a host named with --allow-destination",
        )


async def _resolve(host: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    literal = _literal(host)
    if literal is not None:
        return [literal]
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    # IPv4 first: applications started by hand usually listen there alone
    entries.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in entries]


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


USER_AGENT: Final = "workflow-vector-toolkit-local/1"
ISSUER: Final = "Upstash"
LIFETIME: Final = 300
"""Seconds for which a signature is valid."""


class Sender:
    """Sends messages; response bodies are truncated to `max_body` bytes."""

    def __init__(
        self, destinations: Destinations, *, signing_key: Callable[[], str], max_body: int, connections: int
    ) -> None:
        self._destinations = destinations
        self._signing_key = signing_key
        self._max_body = max_body
        self._connections = ConnectionPool(connections)

    def close(self) -> None:
        """Close the connections that are idle."""
        self._connections.close()

    async def deliver(self, message: Message, sent: Sent, *, now_ms: int) -> DestinationResponse:
        """Send one message and wait for its response."""
        limit = (message.settings.timeout_ms or DEFAULT_TIMEOUT_MS) / 1000
        try:
            async with asyncio.timeout(limit):
                return await self._exchange(message, sent, now_ms)
        except TimeoutError:
            return made_up_response(504, f"no response within {limit:g} s", now_ms)
        except ApiError as error:
            return made_up_response(503, error.message, now_ms)
        except Unreachable:
            return made_up_response(503, "the destination could not be reached", now_ms)
        except (OSError, UnicodeError, h11.ProtocolError) as error:
            return made_up_response(
                502, f"the destination's response was broken ({type(error).__name__})", now_ms
            )

    async def _exchange(self, message: Message, sent: Sent, now_ms: int) -> DestinationResponse:
        url = message.settings.url
        address = await self._destinations.address(url)
        signature = sign(self._signing_key(), url=url, body=sent.body, now_ms=now_ms)
        headers = [*sent.headers, (f"{message.prefix}Signature", signature)]
        pairs = [(_sendable(name), _sendable(value)) for name, value in headers]
        return await self._connections.exchange(
            address, message.method, Target.of(url), pairs, sent.body, most=self._max_body
        )


def _sendable(text: str) -> bytes:
    """Latin-1, as received; other characters of entries that were filled in become question marks."""
    return text.encode("latin-1", "replace")


def made_up_response(status: int, sentence: str, now_ms: int) -> DestinationResponse:
    """The response when there is none, as a gateway makes it: 504 timeout, 503 unreachable, 502 broken."""
    date = formatdate(now_ms / 1000, usegmt=True)
    return DestinationResponse(
        status, (("Content-Type", "text/plain; charset=utf-8"), ("Date", date)), sentence.encode()
    )


def outgoing(message: Message, retried: int, history: list[tuple[str, bytes]]) -> Sent:
    """The request for a message: its own headers and body, or for a step the history of its run."""
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


def sign(key: str, *, url: str, body: bytes, now_ms: int) -> str:
    """The signature of one delivery: a JWT (RFC 7519) with HS256 over the address and the body's SHA-256."""
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

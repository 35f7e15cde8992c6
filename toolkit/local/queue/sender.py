"""Deliveries: where messages may go, HTTP/1.1 to them, the signed request, and the response.

A host is resolved once, checked, and connected to by that address; without a response there is a substitute.
No redirects, no proxies, no cookies, no decoding: a delivery is cheap, and exactly what was published.
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
import ssl
from collections.abc import Callable, Iterable, Mapping
from email.utils import formatdate
from typing import Final, Self, TypeAlias, cast
from urllib.parse import urlsplit

import h11
import jwt
import msgspec

from toolkit.local.api import ApiError, invalid
from toolkit.local.queue.messages import (
    DEFAULT_TIMEOUT_MS,
    DestinationResponse,
    Message,
    Sent,
    history_items,
)

HeaderPairs: TypeAlias = list[tuple[bytes, bytes]]
IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

USER_AGENT: Final = "workflow-vector-toolkit-local/1"
ISSUER: Final = "Upstash"
LIFETIME: Final = 300
"""Seconds for which a signature is valid."""

_MAX_URL: Final = 8192
_BAD: Final = re.compile(r"[\x00-\x20\x7f-\U0010ffff\\\"<>^`{|}]")
_NUMBER_LIKE: Final = re.compile(r"(?:0x[0-9a-f]*|\d+)(?:\.(?:0x[0-9a-f]*|\d*))*\.?", re.IGNORECASE)
_HIGHEST_PORT: Final = 65535
_MOST_HEAD: Final = 100 * 1024  # bytes of the status line and headers of a response
_LONGEST_IDLE: Final = 2.0  # seconds: less than after which servers commonly close
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_WITH_LENGTH: Final = ("POST", "PUT", "PATCH")


def check_url(url: str, what: str) -> str:
    """The URL, when it can be called; otherwise an `ApiError` that names `what`, the header that holds it."""
    problem = _problem(url) if len(url) <= _MAX_URL else f"{len(url)} characters"
    if problem:
        raise invalid(f"{what} is not a URL to deliver to", problem, "http(s)://host[:port]/path")
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
    """Decides where deliveries may go: to loopback, and to the hosts (names or addresses) in `allowed`.

    A host in `on_this_machine` stands for an application at a port of the loopback interface, over HTTP.
    """

    def __init__(self, allowed: Iterable[str] = (), on_this_machine: Mapping[str, int] | None = None) -> None:
        self._ports = dict(on_this_machine or {})
        self._allowed = frozenset(host.strip().strip("[]").lower() for host in allowed)

    async def address(self, url: str) -> str:
        """The IP address to connect to for this URL; an `ApiError` when there is none that may be called."""
        host = (urlsplit(url).hostname or "").lower()
        if host in self._ports:
            return "127.0.0.1"
        for address in await _resolve(host):
            if host in self._allowed or str(address) in self._allowed or _is_loopback(address):
                return str(address)
        expected = "one, or a host named with --allow-destination"
        raise invalid(f"destination host {host[:100]!r} may not be called", "no loopback address", expected)

    def target(self, url: str) -> Target:
        """Return where a checked URL is sent to."""
        target = Target.of(url)
        port = self._ports.get(target.host.lower())
        return target if port is None else msgspec.structs.replace(target, secure=False, port=port)


async def _resolve(host: str) -> list[IpAddress]:
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


def _literal(host: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(address: IpAddress) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


class Target(msgspec.Struct, frozen=True):
    """Scheme, host and port of a URL to connect to, and the request's Host header and target."""

    secure: bool
    host: str
    port: int
    host_header: bytes
    path: bytes

    @classmethod
    def of(cls, url: str) -> Self:
        """The target of a checked URL. Path and query stay as they are, byte for byte."""
        parts = urlsplit(url)
        default = _DEFAULT_PORTS[parts.scheme]
        host = parts.hostname or ""
        named = f"[{host}]" if ":" in host else host
        path = url.partition("#")[0].partition("://")[2][len(parts.netloc) :]
        return cls(
            secure=parts.scheme == "https",
            host=host,
            port=parts.port or default,
            host_header=(named if parts.port in (None, default) else f"{named}:{parts.port}").encode("ascii"),
            path=(path if path.startswith("/") else f"/{path}").encode("ascii"),
        )


class HttpConnection(asyncio.Protocol):
    """One connection, opened by `connect`: one exchange after the other."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
        self._transport: asyncio.Transport
        self._response: asyncio.Future[None] | None = None
        self._status, self._most = 0, 0
        self._headers: HeaderPairs = []
        self._body = bytearray()
        self._usable = True

    @classmethod
    async def connect(cls, address: str, target: Target, tls: ssl.SSLContext | None) -> Self:
        """Connect to an address of the target's host; an `OSError` when that fails."""
        loop = asyncio.get_running_loop()
        named = target.host if tls else None
        _, made = await loop.create_connection(cls, address, target.port, ssl=tls, server_hostname=named)
        return made

    @property
    def usable(self) -> bool:
        """Whether it can be used: open, and no exchange or unexpected data on it."""
        return self._usable and not self._transport.is_closing()

    async def exchange(
        self, method: str, target: Target, headers: HeaderPairs, body: bytes, *, most: int
    ) -> DestinationResponse:
        """Send a request and read at most `most` bytes of the body of its response.

        An `OSError` or `h11.ProtocolError` means that the response is incomplete.
        """
        self._usable = False
        self._status, self._headers, self._body, self._most = 0, [], bytearray(), most
        length = [(b"Content-Length", b"%d" % len(body))] if body or method in _WITH_LENGTH else []
        request = h11.Request(
            method=method, target=target.path, headers=[(b"Host", target.host_header), *headers, *length]
        )
        parts = [self._http.send(event) for event in (request, h11.Data(body), h11.EndOfMessage())]
        self._response = asyncio.get_running_loop().create_future()
        # not awaited: a response may arrive before the whole request has been sent
        self._transport.write(b"".join(part for part in parts if part))
        await self._response
        shown = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in self._headers)
        return DestinationResponse(self._status, shown, bytes(self._body[:most]))

    def close(self) -> None:
        """Close the connection."""
        self._usable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read more of a response; unexpected data makes the connection unusable."""
        if self._response is None or self._response.done():
            self._usable = False
        else:
            self._read_more(self._response, data)

    def eof_received(self) -> None:
        """Read the end: of a response without a length, or too early."""
        self.data_received(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the exchange, if there is one."""
        self._usable = False
        if self._response is not None and not self._response.done():
            self._response.set_exception(exc or ConnectionResetError("closed before the end of the response"))

    def _read_more(self, response: asyncio.Future[None], data: bytes) -> None:
        try:
            self._http.receive_data(data)
            while len(self._body) < self._most or not self._status:
                event = self._http.next_event()
                if isinstance(event, h11.Response):
                    self._status, self._headers = event.status_code, event.headers.raw_items()
                elif isinstance(event, h11.Data):
                    self._body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    self._end_exchange()
                    break
                elif event is h11.NEED_DATA:
                    return
        except h11.ProtocolError as error:
            response.set_exception(error)
        else:
            response.set_result(None)

    def _end_exchange(self) -> None:
        """Prepare for the next exchange, when both sides allow one and all has been sent and read."""
        done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if done and not self._http.trailing_data[0] and not self._transport.get_write_buffer_size():
            self._http.start_next_cycle()
            self._usable = True


class ConnectionPool:
    """Idle connections by destination, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: dict[HttpConnection, tuple[tuple[object, ...], asyncio.TimerHandle]] = {}
        self._tls: ssl.SSLContext | None = None  # slow to create, and loopback seldom needs it

    async def exchange(
        self, address: str, method: str, target: Target, headers: HeaderPairs, body: bytes, *, most: int
    ) -> DestinationResponse:
        """`HttpConnection.exchange` over an idle or a new connection; `Unreachable` without one."""
        destination = (address, target.port, target.secure, target.host)
        connection = self._take(destination)
        if connection is None:
            try:
                connection = await HttpConnection.connect(address, target, self._context(target))
            except OSError as error:
                raise Unreachable from error
        try:
            return await connection.exchange(method, target, headers, body, most=most)
        finally:
            if connection.usable:
                self._keep(destination, connection)
            else:
                connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        for connection in list(self._idle):
            self._drop(connection)

    def _take(self, destination: tuple[object, ...]) -> HttpConnection | None:
        """The idle connection to this destination that was used last."""
        now = asyncio.get_running_loop().time()
        for connection, (connected_to, closing) in reversed(self._idle.items()):
            if connected_to == destination and connection.usable and closing.when() > now:
                closing.cancel()
                del self._idle[connection]
                return connection
        return None

    def _keep(self, destination: tuple[object, ...], connection: HttpConnection) -> None:
        """Keep a connection for a short time: a destination may accept only one."""
        if len(self._idle) >= self._most:
            for other in [other for other in self._idle if not other.usable]:
                self._drop(other)
        if len(self._idle) >= self._most:
            connection.close()
            return
        closing = asyncio.get_running_loop().call_later(_LONGEST_IDLE, self._drop, connection)
        self._idle[connection] = destination, closing

    def _drop(self, connection: HttpConnection) -> None:
        self._idle.pop(connection)[1].cancel()
        connection.close()

    def _context(self, target: Target) -> ssl.SSLContext | None:
        if not target.secure:
            return None
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


class Unreachable(Exception):  # noqa: N818 - a property of a destination
    """No connection to the destination could be made."""


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
        url, limit = message.settings.url, (message.settings.timeout_ms or DEFAULT_TIMEOUT_MS) / 1000
        try:
            async with asyncio.timeout(limit):
                address = await self._destinations.address(url)
                signature = sign(self._signing_key(), url=url, body=sent.body, now_ms=now_ms)
                # Latin-1, as received; other characters of entries that were filled in become question marks
                headers = [
                    (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
                    for name, value in (*sent.headers, (f"{message.prefix}Signature", signature))
                ]
                return await self._connections.exchange(
                    address,
                    message.method,
                    self._destinations.target(url),
                    headers,
                    sent.body,
                    most=self._max_body,
                )
        except TimeoutError:
            status, problem = 504, f"no response within {limit:g} s"
        except ApiError as error:
            status, problem = 503, error.message
        except Unreachable:
            status, problem = 503, "the destination could not be reached"
        except (OSError, UnicodeError, h11.ProtocolError) as error:
            status, problem = 502, f"the destination's response was broken ({type(error).__name__})"
        return gateway_response(status, problem, now_ms)


def gateway_response(status: int, sentence: str, now_ms: int) -> DestinationResponse:
    """The response when there is none, as a gateway makes it: 504 timeout, 503 unreachable, 502 broken."""
    date = formatdate(now_ms / 1000, usegmt=True)
    return DestinationResponse(
        status, (("Content-Type", "text/plain; charset=utf-8"), ("Date", date)), sentence.encode()
    )


def outgoing(message: Message, retried: int, history: list[tuple[str, bytes]]) -> Sent:
    """The request for a message: its own headers and body, or for a step the history of its run."""
    prefix, workflow = message.prefix, message.settings.workflow
    ours = {f"{prefix}Message-Id": message.id, "Retried": str(retried), f"{prefix}Retried": str(retried)}
    if workflow:
        ours |= {
            f"{prefix}Workflow-RunId": workflow.run_id,
            f"{prefix}Workflow-Url": workflow.url,
            f"{prefix}Workflow-Init": "false",
        }
        if workflow.call_type:
            ours[f"{prefix}Workflow-CallType"] = workflow.call_type
    is_step = message.step is not None
    kind = (("Content-Type", "application/json"),) if is_step else ()
    taken = {name.lower() for name in (*ours, *dict(kind), f"{prefix}Signature")}
    given = [(name, value) for name, value in message.settings.headers if name.lower() not in taken]
    names = {name.lower() for name, _ in given}
    missing = [
        pair for pair in (("User-Agent", USER_AGENT), ("Accept", "*/*")) if pair[0].lower() not in names
    ]
    body = json.dumps(history_items(history)).encode() if is_step else message.body
    return Sent((*kind, *given, *missing, *ours.items()), body)


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

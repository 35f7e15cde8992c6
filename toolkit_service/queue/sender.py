"""Deliver messages over HTTP/1.1: check the destination, sign the request, and read the response.

A host name is resolved once. The address is checked, and the connection goes to that address, so that a name
that resolves differently the second time (DNS rebinding) reaches nothing. If no response arrives, it is
replaced by a gateway response (502, 503 or 504).

Redirects, proxies, cookies and content encodings are not supported: a destination receives exactly the
request that was published, and a delivery costs little.
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

from toolkit_service.api import ApiError, invalid
from toolkit_service.queue.messages import (
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
"""Seconds during which a signature is valid."""

_MAX_URL: Final = 8192
# control characters, spaces, all beyond ASCII, and the ASCII characters that no URL contains unencoded
_BAD: Final = re.compile(r"[\x00-\x20\x7f-\U0010ffff\\\"<>^`{|}]")
# spellings of an IPv4 address that some resolvers accept: 2130706433, 0x7f.1 and 127.1 are all 127.0.0.1
_NUMBER_LIKE: Final = re.compile(
    r"(?:0x[0-9a-f]*|\d+)(?:\.(?:0x[0-9a-f]*|\d*))*\.?", re.IGNORECASE
)
_HIGHEST_PORT: Final = 65535
_MOST_HEAD: Final = 100 * 1024  # bytes of the status line and headers of a response
# seconds; servers commonly close idle connections after five or more
_LONGEST_IDLE: Final = 2.0
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_WITH_LENGTH: Final = ("POST", "PUT", "PATCH")


def check_url(url: str, source: str) -> str:
    """Return the URL if it can be called. Otherwise raise an `ApiError` that names `source`.

    `source` is the place of the URL in the request, for example ``header Service-Callback``.
    """
    problem = _url_problem(url)
    if problem:
        raise invalid(
            f"{source} is not a URL to deliver to",
            problem,
            "http(s)://host[:port]/path",
        )
    return url


def _url_problem(url: str) -> str | None:
    """Return the reason why a URL cannot be called, or None if it can."""
    if len(url) > _MAX_URL:
        return f"{len(url)} characters"
    bad_character = _BAD.search(url)
    if bad_character:
        return f"the character {bad_character[0]!r} at position {bad_character.start()}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "an impossible host or port"
    if parts.scheme not in ("http", "https"):
        return f"the scheme {parts.scheme[:20]!r}"
    if "@" in parts.netloc:
        return "user info before the host"
    return _host_problem(parts.hostname, port)


def _host_problem(host: str | None, port: int | None) -> str | None:
    if not host:
        return "no host"
    if port is not None and not 1 <= port <= _HIGHEST_PORT:
        return f"port {port}"
    # the usual spelling of an address is fine: it is checked when the message is delivered
    is_address = _literal(host) is not None
    if not is_address and _NUMBER_LIKE.fullmatch(host):
        return "a number written in an unusual way for a host"
    return None


class Destinations:
    """Decides which destinations may be called: loopback, and the hosts or addresses in `allowed`.

    `on_this_machine` maps host names to ports of the loopback interface. For example, with
    ``{"app.example.com": 3000}`` messages to ``https://app.example.com`` go to ``http://127.0.0.1:3000``.
    """

    def __init__(
        self,
        allowed: Iterable[str] = (),
        on_this_machine: Mapping[str, int] | None = None,
    ) -> None:
        self._ports = dict(on_this_machine or {})
        self._allowed = frozenset(host.strip().strip("[]").lower() for host in allowed)

    async def address(self, url: str) -> str:
        """Return the IP address to connect to for a URL. Raise an `ApiError` if none may be called."""
        host = (urlsplit(url).hostname or "").lower()
        if host in self._ports:
            return "127.0.0.1"
        # the first address that may be called: others can be unreachable, or on another machine
        for address in await _resolve(host):
            if self._may_call(host, address):
                return str(address)
        raise invalid(
            f"destination host {host[:100]!r} may not be called",
            "no loopback address",
            "a loopback address, or a host named with --allow-destination",
        )

    def _may_call(self, host: str, address: IpAddress) -> bool:
        if _is_loopback(address):
            return True
        return host in self._allowed or str(address) in self._allowed

    def target(self, url: str) -> Target:
        """Return scheme, host and port of the request to a checked URL."""
        target = Target.of(url)
        port = self._ports.get(target.host.lower())
        if port is None:
            return target
        return msgspec.structs.replace(target, secure=False, port=port)


async def _resolve(host: str) -> list[IpAddress]:
    literal = _literal(host)
    if literal is not None:
        return [literal]
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(
            host, None, type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError):
        return []
    # IPv4 first: applications started by hand usually listen there alone
    entries.sort(key=lambda entry: entry[0] != socket.AF_INET)
    # fe80::1%eth0 is an address with a scope, which the ipaddress module does not need
    return [
        ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in entries
    ]


def _literal(host: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(address: IpAddress) -> bool:
    # ::ffff:127.0.0.1 is an IPv4 address in IPv6 notation
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


class Target(msgspec.Struct, frozen=True):
    """Scheme, host and port of a URL to connect to, and the Host header and target of the request."""

    secure: bool
    host: str
    port: int
    host_header: bytes
    path: bytes

    @classmethod
    def of(cls, url: str) -> Self:
        """Return the target of a checked URL. Path and query stay as they are, byte for byte.

        >>> Target.of("http://[::1]:3000/a?b=%41").host_header
        b'[::1]:3000'
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        default_port = _DEFAULT_PORTS[parts.scheme]
        port = parts.port or default_port

        host_header = f"[{host}]" if ":" in host else host
        if port != default_port:
            host_header = f"{host_header}:{port}"

        # not parts.path: urlsplit normalizes some URLs
        after_scheme = url.partition("#")[0].partition("://")[2]
        path = after_scheme[len(parts.netloc) :]
        if not path.startswith("/"):
            path = f"/{path}"
        return cls(
            secure=parts.scheme == "https",
            host=host,
            port=port,
            host_header=host_header.encode("ascii"),
            path=path.encode("ascii"),
        )


class HttpConnection(asyncio.Protocol):
    """One connection, opened by `connect`. It carries one exchange after the other.

    h11 parses the response. This class passes bytes to it and collects the events.
    """

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
        self._transport: asyncio.Transport
        self._response: asyncio.Future[None] | None = None
        self._status = 0
        self._headers: HeaderPairs = []
        self._body = bytearray()
        self._most = 0
        self._usable = True

    @classmethod
    async def connect(
        cls, address: str, target: Target, tls: ssl.SSLContext | None
    ) -> Self:
        """Connect to an address of the host of a target. Raise OSError if that fails."""
        loop = asyncio.get_running_loop()
        server_hostname = target.host if tls else None
        _, connection = await loop.create_connection(
            cls, address, target.port, ssl=tls, server_hostname=server_hostname
        )
        return connection

    @property
    def usable(self) -> bool:
        """Return True if the connection is open, without an exchange or unexpected data."""
        return self._usable and not self._transport.is_closing()

    async def exchange(
        self,
        method: str,
        target: Target,
        headers: HeaderPairs,
        body: bytes,
        *,
        most: int,
    ) -> DestinationResponse:
        """Send a request, and read at most `most` bytes of the body of the response.

        An `OSError` or `h11.ProtocolError` means that the response is incomplete.
        """
        # False until `_end_exchange`, so that the connection is closed if the exchange is cancelled
        self._usable = False
        self._status, self._headers, self._body, self._most = 0, [], bytearray(), most
        sent_headers = [(b"Host", target.host_header), *headers]
        if body or method in _WITH_LENGTH:
            sent_headers.append((b"Content-Length", b"%d" % len(body)))
        request = h11.Request(method=method, target=target.path, headers=sent_headers)
        parts = [
            self._http.send(event)
            for event in (request, h11.Data(body), h11.EndOfMessage())
        ]
        self._response = asyncio.get_running_loop().create_future()
        # not awaited: a response may arrive before the whole request has been sent
        self._transport.write(b"".join(part for part in parts if part))
        await self._response
        received = tuple(
            (name.decode("latin-1"), text.decode("latin-1"))
            for name, text in self._headers
        )
        return DestinationResponse(self._status, received, bytes(self._body[:most]))

    def close(self) -> None:
        """Close the connection."""
        self._usable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport to write to."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read more of a response; unexpected data makes the connection unusable."""
        if self._response is None or self._response.done():
            self._usable = False
        else:
            self._read_more(self._response, data)

    def eof_received(self) -> None:
        """Read the end of the stream: the end of a response without a length, or a response cut short."""
        self.data_received(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the exchange, if one is in progress."""
        self._usable = False
        if self._response is not None and not self._response.done():
            self._response.set_exception(
                exc or ConnectionResetError("closed before the end of the response")
            )

    def _read_more(self, response: asyncio.Future[None], data: bytes) -> None:
        try:
            self._http.receive_data(data)
            complete = self._take_events()
        except h11.ProtocolError as error:
            response.set_exception(error)
            return
        if complete:
            response.set_result(None)

    def _take_events(self) -> bool:
        """Collect what h11 has parsed. Return True if the response is complete or has enough bytes."""
        while not self._has_enough():
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                return False
            if isinstance(event, h11.Response):
                self._status = event.status_code
                self._headers = event.headers.raw_items()
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._end_exchange()
                return True
            # other events are informational responses (1xx), which are skipped
        return True

    def _has_enough(self) -> bool:
        """Return True if the status and as much of the body as requested have been read."""
        return bool(self._status) and len(self._body) >= self._most

    def _end_exchange(self) -> None:
        """Prepare for the next exchange, if both sides allow one and all data was sent and read."""
        states = (self._http.our_state, self._http.their_state)
        unread = self._http.trailing_data[0]
        unsent = self._transport.get_write_buffer_size()
        if states == (h11.DONE, h11.DONE) and not unread and not unsent:
            self._http.start_next_cycle()
            self._usable = True


class ConnectionPool:
    """Idle connections by destination, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: dict[
            HttpConnection, tuple[tuple[object, ...], asyncio.TimerHandle]
        ] = {}
        # slow to create, and loopback seldom needs it
        self._tls: ssl.SSLContext | None = None

    async def exchange(
        self,
        address: str,
        method: str,
        target: Target,
        headers: HeaderPairs,
        body: bytes,
        *,
        most: int,
    ) -> DestinationResponse:
        """Exchange a request and a response over an idle or a new connection.

        Raise `Unreachable` if no connection can be made, and the errors of `HttpConnection.exchange`.
        """
        destination = (address, target.port, target.secure, target.host)
        connection = self._take(destination)
        if connection is None:
            try:
                connection = await HttpConnection.connect(
                    address, target, self._context(target)
                )
            except OSError as error:
                raise Unreachable from error
        try:
            return await connection.exchange(method, target, headers, body, most=most)
        finally:
            # also after an error: a connection whose response was cut is not usable
            if connection.usable:
                self._keep(destination, connection)
            else:
                connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        for connection in list(self._idle):
            self._drop(connection)

    def _take(self, destination: tuple[object, ...]) -> HttpConnection | None:
        """Return the idle connection to this destination that was used last."""
        now = asyncio.get_running_loop().time()
        for connection, (connected_to, closing) in reversed(self._idle.items()):
            if connected_to != destination:
                continue
            if connection.usable and closing.when() > now:
                closing.cancel()
                del self._idle[connection]
                return connection
        return None

    def _keep(
        self, destination: tuple[object, ...], connection: HttpConnection
    ) -> None:
        """Keep a connection for a short time: a destination may accept only one."""
        if len(self._idle) >= self._most:
            self._drop_unusable()
        if len(self._idle) >= self._most:
            connection.close()
            return
        closing = asyncio.get_running_loop().call_later(
            _LONGEST_IDLE, self._drop, connection
        )
        self._idle[connection] = destination, closing

    def _drop_unusable(self) -> None:
        unusable = [connection for connection in self._idle if not connection.usable]
        for connection in unusable:
            self._drop(connection)

    def _drop(self, connection: HttpConnection) -> None:
        _, closing = self._idle.pop(connection)
        closing.cancel()
        connection.close()

    def _context(self, target: Target) -> ssl.SSLContext | None:
        if not target.secure:
            return None
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


class Unreachable(Exception):  # noqa: N818 - a property of a destination
    """No connection to a destination could be made."""


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

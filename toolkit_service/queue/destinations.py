"""Decide which URLs may be called, and to which address a connection goes.

A host name is resolved once. The address is checked, and the connection goes to that address, so that a name
that resolves differently the second time (DNS rebinding) reaches nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Final, Self, TypeAlias
from urllib.parse import urlsplit

import msgspec

from toolkit_service.api import invalid

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_MAX_URL: Final = 8192
# control characters, spaces, all beyond ASCII, and the ASCII characters that no URL contains unencoded
_BAD: Final = re.compile(r"[\x00-\x20\x7f-\U0010ffff\\\"<>^`{|}]")
# spellings of an IPv4 address that some resolvers accept: 2130706433, 0x7f.1 and 127.1 are all 127.0.0.1
_NUMBER_LIKE: Final = re.compile(
    r"(?:0x[0-9a-f]*|\d+)(?:\.(?:0x[0-9a-f]*|\d*))*\.?", re.IGNORECASE
)
_HIGHEST_PORT: Final = 65535
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


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

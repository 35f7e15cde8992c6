"""Where messages may go: a host is resolved once, checked, and connected to by that address."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from toolkit.local.api import ApiError

_MAX_URL: Final = 8192
_BAD: Final = re.compile(r"[\x00-\x20\x7f-\U0010ffff\\\"<>^`{|}]")
_NUMBER_LIKE: Final = re.compile(r"(?:0x[0-9a-f]*|\d+)(?:\.(?:0x[0-9a-f]*|\d*))*\.?", re.IGNORECASE)
_HIGHEST_PORT: Final = 65535


def check_url(url: str, what: str) -> str:
    """The URL, when it can be called: http or https, a host, no user info, a possible port.

    Raises `ApiError` with 400, naming `what`: the header that holds it, or "destination".
    """
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
        """The one IP address to connect to for this URL.

        Raises `ApiError` with 400 when the host does not resolve, or resolves to an address that may not be
        called.
        """
        host = (urlsplit(url).hostname or "").lower()
        for found in await _resolve(host):
            if host in self._allowed or str(found) in self._allowed or _is_loopback(found):
                return str(found)
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
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    # IPv4 first: applications started by hand usually listen there alone
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback

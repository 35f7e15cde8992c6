"""Write responses byte by byte, so that they can be truncated, slowed, corrupted and reset."""

from __future__ import annotations

import asyncio
import gzip
import http
import math
import re
import socket
import struct
import time
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final

from toolkit.base.serving import BoundedHttp
from toolkit_service.demo.faults.script import CutPoint, Fault

_TIME: Final = re.compile(r"\{(now|date)([+-]\d{1,9})?\}")
_TRAILER: Final = 8  # bytes at the end of data compressed with gzip: CRC and length
_CHUNK: Final = 1024
_TICK: Final = 0.05  # seconds between the chunks of a slow response
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_FLUSH: Final = 0.03  # seconds for sent data to arrive before a reset


@dataclass
class ScriptedResponse:
    """A response before it becomes bytes. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


async def send(
    response: ScriptedResponse,
    fault: Fault,
    connection: BoundedHttp,
    *,
    head_only: bool = False,
) -> None:
    """Send a response with a fault over a connection, and end the connection."""
    head, body = written(response, fault)
    if head_only:
        body = b""
    await asyncio.sleep(fault.delay)

    # the position after which nothing is sent
    stop = len(head) + len(body)
    end = fault.cut or fault.reset
    if end is not None:
        stop = min(stop, _offset(end, head, body))
    await _write(connection, head[:stop])
    sent_body = body[: max(0, stop - len(head))]

    if fault.bytes_per_second is None:
        await _write(connection, sent_body)
    else:
        await _slowly(sent_body, fault.bytes_per_second, connection)

    if fault.reset:
        await _reset(connection)
    else:
        connection.take_over()
        connection.transport.close()


def written(response: ScriptedResponse, fault: Fault) -> tuple[bytes, bytes]:
    """Return the bytes of the head and of the body.

    >>> head, body = written(ScriptedResponse(200, {}, b"{}"), Fault(route="*", length_off=5))
    >>> b"content-length: 7" in head, body
    (True, b'{}')
    """
    body = response.body + b" " * fault.pad
    headers = {
        "date": formatdate(usegmt=True),
        "content-type": "application/json",
    } | response.headers
    if fault.gzip:
        headers["content-encoding"] = "gzip"
        body = _compressed(body, fault.gzip)

    if fault.chunked:
        headers["transfer-encoding"] = "chunked"
        headers.pop("content-length", None)
        body = _chunked(body)
    else:
        headers["content-length"] = str(max(0, len(body) + fault.length_off))

    headers["connection"] = "close"
    _change_headers(headers, fault)
    lines = [f"HTTP/1.1 {response.status} {_phrase(response.status)}"]
    lines += [f"{name}: {text}" for name, text in headers.items()]

    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"), body


def _change_headers(headers: dict[str, str], fault: Fault) -> None:
    """Add and remove the headers of the script."""
    now = time.time()
    for name, text in fault.headers.items():
        if text is None:
            headers.pop(name.lower(), None)
        else:
            headers[name.lower()] = _TIME.sub(lambda match: _time(match, now), text)


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _chunked(body: bytes) -> bytes:
    """Return a body in chunks of HTTP/1.1; an empty chunk is the end."""
    chunks = [body[start : start + _CHUNK] for start in range(0, len(body), _CHUNK)]
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


def _time(match: re.Match[str], now: float) -> str:
    """Return the time of a placeholder, for example ``{now+5}`` or ``{date-60}``."""
    kind, offset = match.groups()
    seconds = int(now) + int(offset or 0)
    return str(seconds) if kind == "now" else formatdate(seconds, usegmt=True)


def _compressed(body: bytes, fault: str) -> bytes:
    compressed = bytearray(gzip.compress(body, mtime=0))
    if fault == "corrupt":
        middle = (len(compressed) - _TRAILER) // 2
        damaged = slice(middle, middle + 16)
        compressed[damaged] = bytes(byte ^ 0xFF for byte in compressed[damaged])
    elif fault == "wrong_crc":
        compressed[-_TRAILER] ^= 0xFF
    elif fault == "no_trailer":
        del compressed[-_TRAILER:]

    return bytes(compressed)


def _offset(point: CutPoint, head: bytes, body: bytes) -> int:
    if point.share is not None:
        return len(head) + math.floor(len(body) * point.share)
    return point.byte or 0


async def _slowly(data: bytes, speed: float, connection: BoundedHttp) -> None:
    step = max(1, round(speed * _TICK))
    for start in range(0, len(data), step):
        if not connection.is_open:
            return
        await _write(connection, data[start : start + step])
        await asyncio.sleep(step / speed)


async def _write(connection: BoundedHttp, data: bytes) -> None:
    """Send these bytes, and wait until they are handed to the system."""
    if not connection.is_open:
        return

    connection.take_over()
    connection.transport.write(data)
    while connection.transport.get_write_buffer_size() and connection.is_open:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.002)


async def _reset(connection: BoundedHttp) -> None:
    """End the connection with a TCP reset."""
    connection.take_over()
    await asyncio.sleep(_FLUSH)
    if connection.is_open:
        # with a linger time of 0, closing sends RST instead of FIN
        raw: socket.socket = connection.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        connection.transport.abort()

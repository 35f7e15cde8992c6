"""Responses written byte by byte, so that they can be truncated, slowed, corrupted and reset."""

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

from toolkit.serving import BoundedHttp
from toolkit_demo.faults.script import CutPoint, Fault

_TIME: Final = re.compile(r"\{(now|date)([+-]\d{1,9})?\}")
_TRAILER: Final = 8  # bytes at the end of gzip's data: its CRC and length
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
    response: ScriptedResponse, fault: Fault, connection: BoundedHttp, *, head_only: bool = False
) -> None:
    """Send a response over a connection as the fault says, and end the connection."""
    head, body = written(response, fault)
    if head_only:
        body = b""
    await asyncio.sleep(fault.delay)
    end = fault.cut or fault.reset
    whole = len(head) + len(body)
    stop = whole if end is None else min(whole, _offset(end, head, body))
    await _write(connection, (head + body)[: min(stop, len(head))])
    rest = body[: max(0, stop - len(head))]
    if fault.bytes_per_second is None:
        await _write(connection, rest)
    else:
        await _slowly(rest, fault.bytes_per_second, connection)
    if fault.reset:
        await _reset(connection)
    else:
        connection.take_over()
        connection.transport.close()


def written(response: ScriptedResponse, fault: Fault) -> tuple[bytes, bytes]:
    """The bytes of the head and of the body.

    >>> head, body = written(ScriptedResponse(200, {}, b"{}"), Fault(route="*", length_off=5))
    >>> b"content-length: 7" in head, body
    (True, b'{}')
    """
    body = response.body + b" " * fault.pad
    headers = {"date": formatdate(usegmt=True), "content-type": "application/json"} | response.headers
    if fault.gzip:
        headers["content-encoding"] = "gzip"
        body = _compressed(body, fault.gzip)
    if fault.chunked:
        headers["transfer-encoding"] = "chunked"
        headers.pop("content-length", None)
        chunks = [body[start : start + _CHUNK] for start in range(0, len(body), _CHUNK)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    else:
        headers["content-length"] = str(max(0, len(body) + fault.length_off))
    headers["connection"] = "close"
    now = time.time()
    for name, value in fault.headers.items():
        if value is None:
            headers.pop(name.lower(), None)
        else:
            headers[name.lower()] = _TIME.sub(lambda found: _time(found, now), value)
    try:
        phrase = http.HTTPStatus(response.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {response.status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"), body


def _time(found: re.Match[str], now: float) -> str:
    due = int(now) + int(found[2] or 0)
    return str(due) if found[1] == "now" else formatdate(due, usegmt=True)


def _compressed(body: bytes, how: str) -> bytes:
    data = bytearray(gzip.compress(body, mtime=0))
    if how == "corrupt":
        middle = (len(data) - _TRAILER) // 2
        data[middle : middle + 16] = bytes(byte ^ 0xFF for byte in data[middle : middle + 16])
    elif how == "wrong_crc":
        data[-_TRAILER] ^= 0xFF
    elif how == "no_trailer":
        del data[-_TRAILER:]
    return bytes(data)


def _offset(point: CutPoint, head: bytes, body: bytes) -> int:
    return len(head) + math.floor(len(body) * point.share) if point.share is not None else point.byte or 0


async def _slowly(data: bytes, speed: float, connection: BoundedHttp) -> None:
    step = max(1, round(speed * _TICK))
    for start in range(0, len(data), step):
        if not connection.is_open:
            return
        await _write(connection, data[start : start + step])
        await asyncio.sleep(step / speed)


async def _write(connection: BoundedHttp, data: bytes) -> None:
    """Send these bytes, and wait until they have left."""
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
        raw: socket.socket = connection.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        connection.transport.abort()

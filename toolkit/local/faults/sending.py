"""Answers as bytes: written by hand, so that they can be cut, slowed, garbled and reset at any place."""

from __future__ import annotations

import asyncio
import gzip
import http
import math
import re
import time
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final

from toolkit.local.faults.script import Fault, Place
from toolkit.local.protocol import Wire

_MOMENT: Final = re.compile(r"\{(now|date)([+-]\d{1,9})?\}")
_TRAILER: Final = 8  # bytes behind gzip's data: its CRC and length
_CHUNK: Final = 1024
_TICK: Final = 0.05  # seconds between the pieces of a slow answer


@dataclass
class Answer:
    """An answer before it becomes bytes. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


async def send(answer: Answer, fault: Fault, wire: Wire, *, head_only: bool = False) -> None:
    """Send an answer over a connection as the fault wants it, and end the connection."""
    head, body = written(answer, fault)
    if head_only:
        body = b""
    await asyncio.sleep(fault.delay)
    end = fault.cut or fault.reset
    whole = len(head) + len(body)
    stop = whole if end is None else min(whole, _place(end, head, body))
    await wire.write((head + body)[: min(stop, len(head))])
    rest = body[: max(0, stop - len(head))]
    if fault.bytes_per_second is None:
        await wire.write(rest)
    else:
        await _slowly(rest, fault.bytes_per_second, wire)
    if fault.reset:
        await wire.reset()
    else:
        wire.close()


def written(answer: Answer, fault: Fault) -> tuple[bytes, bytes]:
    """The bytes of the head and of the body.

    >>> head, body = written(Answer(200, {}, b"{}"), Fault(route="*", length_off=5))
    >>> b"content-length: 7" in head, body
    (True, b'{}')
    """
    body = answer.body + b" " * fault.pad
    headers = {"date": formatdate(usegmt=True), "content-type": "application/json"} | answer.headers
    if fault.gzip:
        headers["content-encoding"] = "gzip"
        body = _compressed(body, fault.gzip)
    if fault.chunked:
        headers["transfer-encoding"] = "chunked"
        headers.pop("content-length", None)
        pieces = [body[start : start + _CHUNK] for start in range(0, len(body), _CHUNK)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))
    else:
        headers["content-length"] = str(max(0, len(body) + fault.length_off))
    headers["connection"] = "close"
    now = time.time()
    for name, value in fault.headers.items():
        if value is None:
            headers.pop(name.lower(), None)
        else:
            headers[name.lower()] = _MOMENT.sub(lambda found: _moment(found, now), value)
    try:
        phrase = http.HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {answer.status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"), body


def _moment(found: re.Match[str], now: float) -> str:
    moment = int(now) + int(found[2] or 0)
    return str(moment) if found[1] == "now" else formatdate(moment, usegmt=True)


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


def _place(place: Place, head: bytes, body: bytes) -> int:
    return len(head) + math.floor(len(body) * place.share) if place.share is not None else place.byte or 0


async def _slowly(data: bytes, speed: float, wire: Wire) -> None:
    step = max(1, round(speed * _TICK))
    for start in range(0, len(data), step):
        if not wire.is_open:
            return
        await wire.write(data[start : start + step])
        await asyncio.sleep(step / speed)

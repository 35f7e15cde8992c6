"""Responses that break on the way: retried, or an error, and never returned truncated."""

from __future__ import annotations

import gzip
import json
import socket
import struct
import threading
import time
import zlib

import pyarrow as pa
import pytest

from toolkit import errors
from toolkit.secrets.redaction import Redactor
from toolkit.service.responses import RetryPolicy
from toolkit.service.transport import Request, Transport

GET = Request(doing="reading a thing", method="GET", path="/thing")
BODY = json.dumps(
    {"messages": [{"dlqId": f"d{n}", "none": None} for n in range(200)], "cursor": ""}
).encode()
PACKED = gzip.compress(BODY)
OK = b"HTTP/1.1 200 OK\r\n"
RESET = struct.pack("ii", 1, 0)


def door(url: str, **policy: object) -> Transport:
    """A transport that does not wait before the next try."""
    chosen = RetryPolicy(**{"first_delay": 0.0, "deadline": 10.0, **policy})
    return Transport(url, redactor=Redactor(key=b"test"), policy=chosen)


def framed(body: bytes, *headers: bytes) -> bytes:
    """A complete response, after which the connection ends."""
    lines = (*headers, b"Connection: close", b"Content-Length: %d" % len(body))
    return OK + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


WHOLE = framed(BODY)
HEAD = WHOLE.index(b"\r\n\r\n") + 4


@pytest.mark.parametrize("orderly", [True, False])
@pytest.mark.parametrize(
    "position", [0, 5, HEAD - 2, *(HEAD + len(BODY) * part // 16 for part in range(16))]
)
def test_a_response_truncated_anywhere_is_retried(position, orderly):
    """At byte 0, inside the head, at each sixteenth of the body; closed in order, or reset."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for sent in (WHOLE[:position], WHOLE):
                peer, _ = listener.accept()
                with peer:
                    peer.recv(65536)
                    peer.sendall(sent)
                    if sent is not WHOLE and not orderly:
                        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

        thread = threading.Thread(target=serve)
        thread.start()
        with door(f"http://127.0.0.1:{listener.getsockname()[1]}") as away:
            response = away.send(GET)
        thread.join()
    assert (response.body, response.tries) == (BODY, 2)


def test_a_response_that_ends_with_its_connection_is_checked_by_its_json(server):
    """Without a length, JSON that lacks its end is requested again, wherever it was cut."""
    raw = BODY[:90] + b"}"  # cut behind an object's end, which looks like an end
    with door(server.url) as away:
        for cut in (b"", b"{", raw, BODY[: len(BODY) // 2], BODY[:-1]):
            server.raw(OK + b"\r\n" + cut)
            server.raw(OK + b"\r\n" + BODY)
            response = away.send(GET)
            assert (response.body, response.tries) == (BODY, 2)


@pytest.mark.parametrize(
    "body", [BODY, b"[NaN]", b'{"a": "\xff"}', b"<html>", b"plain text", b'"text"']
)
def test_a_complete_response_without_length_is_returned(server, body):
    """A complete response is returned unchanged, also when no strict reader accepts it."""
    server.raw(OK + b"\r\n" + body)
    with door(server.url) as away:
        assert away.send(GET).body == body


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(PACKED[:-8], id="no trailer"),
        pytest.param(PACKED[:-1], id="trailer cut"),
        pytest.param(
            PACKED[:-8] + struct.pack("<II", zlib.crc32(BODY) ^ 1, len(BODY)),
            id="wrong CRC",
        ),
        pytest.param(
            PACKED[:-8] + struct.pack("<II", zlib.crc32(BODY), 1), id="wrong length"
        ),
        pytest.param(PACKED[:40] + bytes(9) + PACKED[49:], id="corrupt"),
        pytest.param(PACKED + b"more", id="more behind it"),
    ],
)
def test_damaged_gzip_is_retried(server, packed):
    """Every way in which a gzip body is not what was sent leads to the next try."""
    server.raw(framed(packed, b"Content-Encoding: gzip"))
    server.raw(framed(PACKED, b"Content-Encoding: gzip"))
    with door(server.url) as away:
        response = away.send(GET)
    assert (response.body, response.tries) == (BODY, 2)


def test_gzip_and_zstd_are_offered_and_read(server):
    """Both are named in the request; several gzip members and a zstd body are read, in chunks too."""
    zstd = pa.Codec("zstd").compress(BODY, asbytes=True)
    chunked = b"".join(
        b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (zstd[:9], zstd[9:], b"")
    )
    server.raw(
        framed(
            gzip.compress(BODY[:100]) + gzip.compress(BODY[100:]),
            b"Content-Encoding: gzip",
        )
    )
    server.raw(framed(zstd, b"Content-Encoding: zstd"))
    server.raw(
        OK
        + b"Content-Encoding: zstd\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        + chunked
    )
    with door(server.url) as away:
        assert [away.send(GET).body for _ in range(3)] == [BODY] * 3
    assert server.requests[0].headers["Accept-Encoding"] == "gzip, zstd"


def test_a_truncated_zstd_body_is_retried(server):
    """An incomplete zstd frame is not returned, also when the HTTP framing is complete."""
    zstd = pa.Codec("zstd").compress(BODY, asbytes=True)
    server.raw(framed(zstd[:-3], b"Content-Encoding: zstd"))
    server.raw(framed(zstd, b"Content-Encoding: zstd"))
    with door(server.url) as away:
        assert (away.send(GET).body, len(server.requests)) == (BODY, 2)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_bombs_end_in_an_error(server, encoding):
    """Neither compression can fill the memory: what is decoded is counted."""
    zeros = bytes(30_000_000)
    packed = (
        gzip.compress(zeros)
        if encoding == "gzip"
        else pa.Codec("zstd").compress(zeros, asbytes=True)
    )
    server.raw(framed(packed, b"Content-Encoding: " + encoding.encode()))
    with door(server.url, most_bytes=1_000_000) as away:
        with pytest.raises(errors.ProtocolError, match="more than 1,000,000 bytes"):
            away.send(GET)
        server.raw(framed(bytes(1_000_001)))
        with pytest.raises(errors.ProtocolError, match="more than 1,000,000 bytes"):
            away.send(GET)
    assert len(server.requests) == 2


def test_an_encoding_that_was_not_offered_is_an_error(server):
    """It is named, and not retried."""
    server.raw(framed(b"whatever", b"Content-Encoding: br"))
    with door(server.url) as away, pytest.raises(errors.ProtocolError, match="'br'"):
        away.send(GET)
    assert len(server.requests) == 1


def test_ten_megabytes_arrive_completely(server):
    """A large body is kept to its last byte, watched or not."""
    body = b'"%s"' % (b"x" * 10_000_000)
    server.always(body)
    with door(server.url) as away:
        assert away.send(GET).body == body
        sizes = []
        assert (
            away.send(GET, watch=lambda so_far: sizes.append(len(so_far))).body == body
        )
    assert sizes == sorted(sizes)
    assert sizes[-1] == len(body)


@pytest.mark.parametrize(
    "start", [b"", b"HTTP/1.1 200 OK\r\nX-Long: ", WHOLE[: HEAD + 9]]
)
def test_a_byte_now_and_then_meets_the_deadline(start):
    """The deadline is for the complete response, also when it drips before, inside or after the head."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def drip() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(start)
                while not stop.wait(0.02):
                    try:
                        peer.sendall(b"x" if start else b"")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        begun = time.monotonic()
        with (
            door(
                f"http://127.0.0.1:{listener.getsockname()[1]}", tries=1, deadline=0.3
            ) as away,
            pytest.raises(errors.DeadlineError, match="no end of the response within"),
        ):
            away.send(GET)
        stop.set()
        thread.join()
    assert time.monotonic() - begun < 10

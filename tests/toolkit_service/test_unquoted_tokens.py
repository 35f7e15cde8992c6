"""No response of the embedded service quotes a token, whatever is wrong with its request."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.promises.canaries import shown
from toolkit_service.demo.local_service import LocalService

OURS = "the embedded service's own"
FOREIGN = "another-service's/token+0123456789"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    """An embedded service with an index."""
    with LocalService(
        tmp_path_factory.mktemp("tokens"), indexes=["plain:dense:2:COSINE"]
    ) as service:
        yield service


@pytest.mark.parametrize("token", [OURS, FOREIGN])
@pytest.mark.parametrize(
    "request_text",
    [
        "GET /v2/dlq HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer {}\r\n\r\n",
        "GET /v2/dlq HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\x01\r\n\r\n",
        "GET /v2/dlq HTTP/1.1\r\nHost: localhost\r\n Bearer {}: x\r\n\r\n",
        "GET /v2/dlq HTTP/1.1\r\nHost: localhost\r\nBearer {}\r\n\r\n",
        "GET /v2/dlq?queue_token={}\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /v2/dlq?queue_token={}\x7f HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "{} / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/{}\r\nHost: localhost\r\n\r\n",
        "POST /v2/dlq?queue_token={} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: {}\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{}\r\n\r\n",
    ],
)
def test_a_request_that_cannot_be_read_is_not_quoted(
    local: LocalService, request_text: str, token: str
) -> None:
    """A 400 explains a malformed head without quoting a line with a token, ours or not."""
    token = local.token if token == OURS else token
    with socket.create_connection(
        ("127.0.0.1", int(local.url.rpartition(":")[2])), timeout=10
    ) as connection:
        connection.sendall(request_text.replace("{}", token).encode("latin-1"))
        connection.shutdown(socket.SHUT_WR)
        response = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert response.startswith(b"HTTP/1.1 4")
    assert json.loads(response.partition(b"\r\n\r\n")[2])["error"]
    assert not shown(response.decode("latin-1"), [token])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v2/publish/{}", b"x"),
        ("GET", "/v2/dlq?count={}", None),
        ("GET", "/v2/dlq?fromDate={}", None),
        ("GET", "/v2/workflows/dlq/{}", None),
        ("GET", "/{}", None),
        ("POST", "/vector/{}/info", b""),
        ("POST", "/vector/plain/query", b'{"topK": "{}"}'),
        ("POST", "/vector/plain/query", b'{"{}": 1, "{}": 2}'),
        ("POST", "/vector/plain/query", b'{"vector": [0, 1], "filter": "{} ="}'),
        ("POST", "/vector/plain/upsert", b'{"id": "a", "vector": ["{}"]}'),
        ("POST", "/vector/plain/range/{}", b'{"cursor": "{}"}'),
    ],
)
def test_a_refusal_does_not_quote_our_token(
    local: LocalService, method: str, path: str, body: bytes
) -> None:
    """Wherever a caller put it, the error does not quote it."""
    token = local.token
    filled = None if body is None else body.replace(b"{}", token.encode())
    address = local.url + path.replace("{}", token)
    response = httpx.request(
        method, address, content=filled, headers={"Authorization": f"Bearer {token}"}
    )
    assert not shown(response.text, [token])

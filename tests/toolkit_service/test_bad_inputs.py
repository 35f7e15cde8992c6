"""Bad inputs, stored as data files: each is refused as documented, without side effects."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit_service.demo.local_service import LocalService
from toolkit_service.queue.destinations import Destinations
from toolkit_service.queue.messages import Message
from toolkit_service.queue.publishing import read_publish
from toolkit_service.queue.sender import Sender, outgoing

FILES = ("queue", "publish_headers", "destinations", "vectors", "fault_scripts")
INDEXES = ("plain:dense:2:COSINE", "docs:dense:64:COSINE:hashing", "words:sparse")
LONGEST = 2.0  # seconds
LEAKS = (
    "Traceback",
    'File "',
    "site-packages",
    ".py",
    "sqlite",
    "wrong-token-of-the-test",
)


def _cases() -> list[Any]:
    actual = []
    for name in FILES:
        data = json.loads(
            (Path(__file__).parent / "bad_inputs" / f"{name}.json").read_text()
        )
        for case in data["cases"]:
            title = f"{name}: {case['name']}".replace("[", "(").replace("]", ")")
            actual.append(pytest.param(case, id=title))
    return actual


def written(value: Any) -> bytes:
    """The bytes of a value of the data: text, or parts that are text, repeated, or base64."""
    if isinstance(value, str):
        return value.encode()
    pieces = []
    for piece in value:
        if isinstance(piece, str):
            pieces.append(piece.encode())
        elif "base64" in piece:
            pieces.append(base64.b64decode(piece["base64"]))
        else:
            pieces.append(piece["repeat"].encode() * piece["times"])
    return b"".join(pieces)


@pytest.fixture(scope="module")
def service() -> Iterator[LocalService]:
    """The service as it is started from a shell; it has to live through all of this module."""
    with LocalService(indexes=INDEXES, request_timeout=1.0) as running:
        yield running


def raw_connection(service: LocalService, seconds: float = 10) -> socket.socket:
    parts = urlsplit(service.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=seconds)


def read_all(connection: socket.socket) -> bytes:
    """All bytes until the other side closes the connection."""
    actual = bytearray()
    while piece := connection.recv(65536):
        actual += piece
    return bytes(actual)


def still_serves(service: LocalService) -> None:
    """The next valid request is served, by both APIs."""
    for path in ("/v2/keys", "/vector/plain/info"):
        connection = http.client.HTTPConnection(
            urlsplit(service.url).netloc, timeout=LONGEST
        )
        connection.request(
            "GET", path, headers={"Authorization": f"Bearer {service.token}"}
        )
        assert connection.getresponse().status == 200
        connection.close()


@pytest.mark.parametrize("case", _cases())
def test_a_bad_input_is_refused_as_documented(
    service: LocalService, case: dict[str, Any]
) -> None:
    """The status, a message with what, got and expected, soon, without insides; then business as usual."""
    path = written(case["path"]).decode()
    headers = {"Authorization": f"Bearer {service.token}"}
    headers |= {
        name: written(value).decode() for name, value in case.get("headers", {}).items()
    }
    body = written(case["body"]) if "body" in case else None
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=10)
    begun = time.monotonic()
    connection.putrequest(
        case["method"], path, skip_host="Host" in headers, skip_accept_encoding=True
    )
    for name, value in headers.items():
        if value:
            connection.putheader(name, value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    response = connection.getresponse()
    text = response.read().decode()
    assert time.monotonic() - begun < LONGEST
    connection.close()
    assert response.status == case["status"], text
    error = json.loads(text)
    assert set(error) == (
        {"error", "status"} if path.startswith("/vector") else {"error"}
    )
    assert error.get("status", response.status) == response.status
    # header names arrive in lower case
    assert case["says"].lower() in error["error"].lower()
    if not case.get("verbatim"):  # in the public service's words
        assert "expected" in error["error"] or case["status"] == 404
        assert "got" in error["error"] or case["status"] in (404, 422)
    assert len(error["error"]) < 1000
    assert not [leak for leak in (*LEAKS, service.token) if leak in text]
    still_serves(service)


def test_the_statuses_are_those_of_the_document(described: dict[str, Any]) -> None:
    """Every status that a case expects of an operation is documented for it."""
    operations = {
        (method.upper(), path): set(described["responses"])
        for path, methods in described["paths"].items()
        for method, described in methods.items()
        if method != "parameters"
    }
    checked = 0
    for parameters in _cases():
        case = parameters.values[0]
        path = written(case["path"]).decode().partition("?")[0]
        for (method, pattern), statuses in operations.items():
            if method == case["method"] and _is_at(path, pattern):
                assert str(case["status"]) in statuses, case["name"]
                checked += 1
                break
    assert checked > 200


def _is_at(path: str, pattern: str) -> bool:
    if pattern.endswith("{destination}"):
        return path.startswith(pattern.removesuffix("{destination}"))
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(
        want.startswith("{") or part == want
        for part, want in zip(parts, wanted, strict=True)
    )


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /v2/keys HTTP/1.1\r\n\r\n", 400),
        (b"GET /v2/keys HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /a b c HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400),
        (b"GET /v2/keys HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\n\r\n", 400),
        (
            b"GET /v2/keys HTTP/1.1\r\nHost: 127.0.0.1\r\n folded: x\r\nbad name: y\r\n\r\n",
            400,
        ),
        (
            b"POST /v2/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
            400,
        ),
        (
            b"POST /v2/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
        ),
        (
            b"POST /v2/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: gzip\r\n\r\n",
            400,
        ),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
            + b"\x00" * 64
            + b"\r\n\r\n",
            400,
        ),
        (b"\xff" * 200 + b"\r\n\r\n", 400),
        (b"GET /" + b"a" * 70_000, 431),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 300_000, 431),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 20_000, 431),
    ],
)
def test_a_head_that_cannot_be_read_is_refused_in_json(
    service: LocalService, head: bytes, status: int
) -> None:
    """400 for malformed HTTP, 431 for a large head, in the service's own form; the connection ends."""
    with raw_connection(service) as connection:
        begun = time.monotonic()
        connection.sendall(head)
        response = read_all(connection)
    assert time.monotonic() - begun < LONGEST
    first, _, rest = response.partition(b"\r\n")
    assert first.startswith(f"HTTP/1.1 {status} ".encode())
    assert "expected" in json.loads(rest.partition(b"\r\n\r\n")[2])["error"]
    still_serves(service)


def test_a_body_framed_badly_is_refused_while_it_is_read(service: LocalService) -> None:
    """A malformed chunk ends the request with 400, though an application waits for the body."""
    with raw_connection(service) as connection:
        connection.sendall(
            f"POST /v2/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {service.token}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".encode()
        )
        time.sleep(0.05)
        connection.sendall(b"not a chunk\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 400 ")
    still_serves(service)


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
def test_head_and_options_responses_have_no_body(
    service: LocalService, method: str
) -> None:
    """HEAD as GET would be; OPTIONS with the allowed methods; neither has a body."""
    connection = http.client.HTTPConnection(
        urlsplit(service.url).netloc, timeout=LONGEST
    )
    connection.request(
        method,
        "/v2/workflows/dlq",
        headers={"Authorization": f"Bearer {service.token}"},
    )
    response = connection.getresponse()
    assert response.status == (200 if method == "HEAD" else 204)
    assert response.read() == b""
    assert response.headers["allow"] == (
        None if method == "HEAD" else "DELETE, GET, HEAD, OPTIONS"
    )
    connection.close()


def test_500_idle_sockets_do_not_stop_others(service: LocalService) -> None:
    """Others are served without delay, and idle ones are closed after the timeout."""
    with ExitStack() as stack:
        idle = [stack.enter_context(raw_connection(service)) for _ in range(500)]
        begun = time.monotonic()
        still_serves(service)
        assert time.monotonic() - begun < LONGEST
        assert all(connection.recv(1) == b"" for connection in idle)


BEGUN = b"POST /v2/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer TOKEN\r\n"


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /v2/keys HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
        BEGUN + b"Content-Length: 9\r\n\r\n",
    ],
    ids=["head", "body"],
)
def test_slow_senders_get_a_timeout_response(
    service: LocalService, begin: bytes
) -> None:
    """Many that send a byte now and then get 408 when their time is up; others are served meanwhile."""

    def send_slowly(_: int) -> bytes:
        with raw_connection(service) as connection:
            connection.sendall(begin.replace(b"TOKEN", service.token.encode()))
            connection.settimeout(0.2)
            for _ in range(8):
                try:
                    connection.sendall(b"x")
                    return read_all(connection)
                except TimeoutError:
                    continue
        return b"never ended"

    with ThreadPoolExecutor(20) as pool:
        slow = pool.map(send_slowly, range(20))
        begun = time.monotonic()
        still_serves(service)
        assert time.monotonic() - begun < LONGEST
        responses = list(slow)
    assert time.monotonic() - begun < 5
    assert {response.partition(b"\r\n")[0] for response in responses} == {
        b"HTTP/1.1 408 Request Timeout"
    }
    assert all(b"within 1 s" in response for response in responses)


@settings(max_examples=100, deadline=None)
@given(
    data=st.binary(max_size=300)
    | st.from_regex(
        rb"[A-Z]{1,9} /?[!-~]{0,40} HTTP/1\.[01]\r\n([!-~: ]{0,30}\r\n){0,4}"
    )
)
def test_bytes_of_any_kind_get_a_refusal_or_nothing(
    service: LocalService, data: bytes
) -> None:
    """Any bytes before an empty line get at most 4xx, quickly, and never end the service."""
    with raw_connection(service, LONGEST) as connection:
        connection.sendall(data + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        try:
            response = connection.recv(65536)
        except ConnectionResetError:
            response = b""
    assert not response or response.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200 "))
    assert b"Traceback" not in response
    still_serves(service)


def test_hostile_patterns_take_bounded_time(service: LocalService) -> None:
    """A glob of many stars over long text, which a backtracking matcher would never be through with."""
    bearer = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(
        base_url=f"{service.url}/vector/plain", headers=bearer, timeout=10
    ) as http:
        rows = [
            {"id": f"a{n}", "vector": [1, n], "metadata": {"a": "a" * 40_000}}
            for n in range(3)
        ]
        assert http.post("/upsert", json=rows).status_code == 200
        for pattern in (
            "*a*a*a*b",
            "*a" * 60 + "b",
            "*[a-z]" * 60 + "b",
            "?" * 30_000 + "*b",
        ):
            begun = time.monotonic()
            response = http.post(
                "/query", json={"vector": [1, 0], "filter": f"a GLOB '{pattern}'"}
            )
            assert time.monotonic() - begun < LONGEST
            assert response.status_code in (200, 400)
            assert response.json().get("result", []) == []
        http.delete("/reset")


class Rebinding(asyncio.SelectorEventLoop):
    """An event loop whose resolver returns another address each time, as a hostile name server does."""

    def __init__(self) -> None:
        super().__init__()
        self.says: list[str] = []
        self.requests = 0

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:  # type: ignore[override]
        """The next address; addresses resolve to themselves."""
        if host != "rebinding.example":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]
        self.requests += 1
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.says.pop(0), port or 0))
        ]


@pytest.mark.parametrize(
    ("says", "status"),
    [(["127.0.0.1", "169.254.169.254"], 200), (["169.254.169.254", "127.0.0.1"], 503)],
)
def test_a_name_is_resolved_once_and_that_address_is_called(
    server: Any, says: list[str], status: int
) -> None:
    """The checked address is the one connected to, even if the name resolves differently by then."""
    server.always(b"{}")
    url = f"http://rebinding.example:{urlsplit(server.url).port}/x"
    publish = read_publish(url, [], b"")
    message = Message(
        id="msg_1",
        kind="message",
        prefix="Service-",
        settings=publish.settings,
        created_at=0,
        not_before=0,
    )
    loop = Rebinding()
    loop.says = list(says)
    sender = Sender(
        Destinations(), signing_key=lambda: "k" * 32, max_body=1000, connections=1
    )

    async def deliver() -> Any:
        response = await sender.deliver(message, outgoing(message, 0, []), now_ms=0)
        sender.close()
        return response

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        response = runner.run(deliver())
    assert (response.status, loop.requests) == (status, 1)
    assert [received.headers["Host"] for received in server.requests] == (
        [url.partition("//")[2].partition("/")[0]] if status == 200 else []
    )


def test_the_log_holds_only_types_and_positions_of_bad_input(
    service: LocalService,
) -> None:
    """No token, no traceback; and no failure of the service's own."""
    log = (service.data_dir / "serve.log").read_text()
    assert service.token not in log
    assert "Traceback" not in log
    assert "responding" not in log

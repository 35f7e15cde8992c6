"""Faults on demand: each really happens on the wire, to the requests it was meant for and to no others."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import socket
import time
import zlib
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.errors import InputError, LocalServiceError
from toolkit_service.demo.faults.script import FaultScript
from toolkit_service.demo.local_service import LocalService

KEYS = "/v2/keys"
DLQ = "/v2/dlq"


@pytest.fixture(scope="module")
def service() -> Iterator[LocalService]:
    """A service with 25 failed messages and 25 vectors."""
    with (
        LocalService(indexes=["plain:dense:2:COSINE"]) as running,
        client(running) as http_client,
    ):
        item = {
            "destination": "http://127.0.0.1:9/x",
            "headers": {"Service-Retries": "0"},
        }
        http_client.post(
            "/v2/batch", json=[item | {"body": str(number)} for number in range(25)]
        )
        rows = [{"id": f"v{number}", "vector": [1, number]} for number in range(25)]
        http_client.post("/vector/plain/upsert", json=rows)
        deadline = time.monotonic() + 20
        while len(http_client.get(DLQ).json()["messages"]) < 25:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield running


def client(service: LocalService) -> httpx.Client:
    return httpx.Client(
        base_url=service.url,
        headers={"Authorization": f"Bearer {service.token}"},
        timeout=10,
    )


@pytest.fixture
def connected(service: LocalService) -> Iterator[httpx.Client]:
    """A client; the script is cleared behind each test."""
    with client(service) as found:
        yield found
        found.delete("/admin/faults")


def script(connected: httpx.Client, *faults: dict[str, Any]) -> None:
    response = connected.put("/admin/faults", json={"faults": faults})
    assert response.status_code == 200, response.text


def raw(
    service: LocalService, path: str = KEYS, method: str = "GET"
) -> tuple[bytes, bool]:
    """All bytes of a response, and whether the connection ended with a reset."""
    parts = urlsplit(service.url)
    found = bytearray()
    with socket.create_connection(
        (parts.hostname, parts.port), timeout=10
    ) as connection:
        connection.sendall(
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {service.token}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        try:
            while chunk := connection.recv(65536):
                found += chunk
        except ConnectionResetError:
            return bytes(found), True
    return bytes(found), False


def body_of(response: bytes) -> bytes:
    return response.partition(b"\r\n\r\n")[2]


def ids(page: dict[str, Any]) -> list[str]:
    return [row["dlqId"] for row in page["messages"]]


def walk(connected: httpx.Client, *, most: int = 20) -> list[dict[str, Any]]:
    """The pages of the DLQ, ten entries each, until the end or `most` pages."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while len(found) < most:
        found.append(connected.get(DLQ, params={"count": 10, "cursor": cursor}).json())
        cursor = found[-1].get("cursor") or ""
        if not cursor:
            break
    return found


def test_a_script_strikes_the_requests_it_names_and_no_others(
    connected: httpx.Client,
) -> None:
    """By route, method, first and times; the first fault that is due wins; counts are shown."""
    script(
        connected,
        {"route": KEYS, "first": 2, "times": 2, "status": 503},
        {"route": "/v2/*", "method": "GET", "first": 3, "times": None, "status": 429},
    )
    assert [connected.get(KEYS).status_code for _ in range(5)] == [
        200,
        503,
        503,
        429,
        429,
    ]
    assert connected.post(KEYS).status_code == 405
    assert connected.get("/vector/plain").status_code == 200
    counts = [
        (item["requests"], item["struck"])
        for item in connected.get("/admin/faults").json()["faults"]
    ]
    assert counts == [(6, 2), (5, 2)]
    assert connected.delete("/admin/faults").json() == {"faults": []}
    assert connected.get(KEYS).status_code == 200


def test_the_script_is_behind_the_token(service: LocalService) -> None:
    """Nobody without the token sees it or changes it."""
    for method in ("GET", "PUT", "DELETE"):
        assert httpx.request(method, f"{service.url}/admin/faults").status_code == 401


@pytest.mark.slow
def test_a_script_in_a_file_is_there_from_the_start(tmp_path: Path) -> None:
    """``--faults FILE``; and one that is not understood ends the start in one line."""
    file = tmp_path / "faults.json"
    file.write_text(
        '{"faults": [{"route": "/v2/keys", "status": 500, "body": "broken"}]}'
    )
    with (
        LocalService(indexes=["plain:dense:2:COSINE"], faults=file) as running,
        client(running) as http,
    ):
        assert (http.get(KEYS).status_code, http.get(KEYS).status_code) == (500, 200)
    for wrong in ('{"faults": [{"route": "/x", "first": 0}]}', "[", '{"faults": {}}'):
        file.write_text(wrong)
        with pytest.raises(
            LocalServiceError, match=r"reading the fault script 'faults\.json'"
        ):
            LocalService(tmp_path / "data", faults=file).start()


def test_statuses_and_headers_are_as_scripted(connected: httpx.Client) -> None:
    """Any status; headers with timestamps relative to now; null removes one."""
    headers = {
        "Retry-After": "{date+120}",
        "Burst-RateLimit-Reset": "{now-7}",
        "Date": "{date-3600}",
    }
    script(
        connected,
        {"route": KEYS, "status": 429, "headers": headers | {"Content-Type": None}},
    )
    response = connected.get(KEYS)
    now = time.time()
    assert response.status_code == 429
    assert (
        abs(
            parsedate_to_datetime(response.headers["retry-after"]).timestamp()
            - now
            - 120
        )
        < 5
    )
    assert abs(int(response.headers["burst-ratelimit-reset"]) - now + 7) < 5
    assert (
        abs(parsedate_to_datetime(response.headers["date"]).timestamp() - now + 3600)
        < 5
    )
    assert "content-type" not in response.headers
    assert response.json()["error"]


@pytest.mark.parametrize(
    ("fault", "status", "body"),
    [
        (
            {"body": "<html>hello</html>", "headers": {"Content-Type": "text/html"}},
            200,
            b"<html>hello</html>",
        ),
        ({"body": ""}, 200, b""),
        ({"json": {}}, 200, b"{}"),
        ({"json": None}, 200, b"null"),
        ({"body_base64": base64.b64encode(b"\xff\x00").decode()}, 200, b"\xff\x00"),
        (
            {"status": 302, "headers": {"Location": "http://127.0.0.1:9/"}, "body": ""},
            302,
            b"",
        ),
        ({"status": 599, "body": "x"}, 599, b"x"),
    ],
)
def test_bodies_are_as_scripted(
    connected: httpx.Client, fault: dict[str, Any], status: int, body: bytes
) -> None:
    """HTML with 200, nothing, an empty object, binary data, a redirect."""
    script(connected, {"route": KEYS, **fault})
    response = connected.get(KEYS)
    assert (response.status_code, response.content) == (status, body)
    assert connected.get(KEYS).json()["current"]


def test_the_response_of_the_service_can_be_changed(connected: httpx.Client) -> None:
    """Fields left out, text replaced by other bytes; all else is unchanged."""
    whole = connected.get(KEYS).json()
    script(
        connected,
        {"route": KEYS, "drop": ["next"]},
        {
            "route": KEYS,
            "first": 2,
            "replace": [{"text": '"next"', "by_base64": "/w=="}],
        },
    )
    assert connected.get(KEYS).json() == {"current": whole["current"]}
    assert b"\xff" in connected.get(KEYS).content


@pytest.mark.parametrize("how", ["cut", "reset"])
@pytest.mark.parametrize("byte", [0, 1, 20, 60])
def test_a_response_can_end_inside_its_head(
    service: LocalService, connected: httpx.Client, how: str, byte: int
) -> None:
    """At this very byte: in an orderly way, or with a reset."""
    script(connected, {"route": KEYS, how: {"byte": byte}})
    found, was_reset = raw(service)
    assert len(found) == byte
    assert was_reset == (how == "reset")
    assert b"HTTP/1.1 200 OK\r\n".startswith(found[:17])


@pytest.mark.parametrize("how", ["cut", "reset"])
def test_a_response_can_end_at_each_sixteenth_of_its_body(
    service: LocalService, connected: httpx.Client, how: str
) -> None:
    """The head announces the whole body, and a part is sent."""
    whole = connected.get(DLQ).content
    faults = [
        {"route": DLQ, "first": part + 1, how: {"share": part / 16}}
        for part in range(16)
    ]
    script(connected, *faults)
    for part in range(16):
        found, was_reset = raw(service, DLQ)
        assert f"content-length: {len(whole)}\r\n".encode() in found
        assert body_of(found) == whole[: len(whole) * part // 16]
        assert was_reset == (how == "reset")


@settings(max_examples=25, deadline=None)
@given(byte=st.integers(0, 400), chunked=st.booleans())
def test_a_truncated_response_starts_like_the_whole_one(
    service: LocalService, *, byte: int, chunked: bool
) -> None:
    """At any position, the bytes received are the beginning of the whole response."""
    fault = {"route": KEYS, "chunked": chunked, "headers": {"Date": None}}
    with client(service) as connected:
        script(connected, fault, {**fault, "first": 2, "cut": {"byte": byte}})
        whole, _ = raw(service)
        part, _ = raw(service)
        script(connected)
    assert part == whole[:byte]


def test_a_chunked_response_is_whole_or_truncated_inside_a_chunk(
    service: LocalService, connected: httpx.Client
) -> None:
    """Clients read the whole one, and detect that the truncated one is short."""
    whole = connected.get(DLQ).json()
    script(
        connected,
        {"route": DLQ, "chunked": True},
        {"route": DLQ, "first": 2, "chunked": True, "cut": {"share": 0.5}},
    )
    response = connected.get(DLQ)
    assert response.headers["transfer-encoding"] == "chunked"
    assert response.json() == whole
    with pytest.raises(httpx.RemoteProtocolError):
        connected.get(DLQ)


@pytest.mark.parametrize("off", [-5, 5])
def test_the_stated_length_can_be_wrong(
    service: LocalService, connected: httpx.Client, off: int
) -> None:
    """Content-Length is larger or smaller than the body."""
    script(connected, {"route": KEYS, "length_off": off})
    found, _ = raw(service)
    stated = int(found.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    assert stated == len(body_of(found)) + off


def test_compressed_responses_can_be_damaged_in_three_ways(
    service: LocalService, connected: httpx.Client
) -> None:
    """Whole, with corrupt data, with a wrong checksum, without the trailer."""
    ways = ("whole", "corrupt", "wrong_crc", "no_trailer")
    script(
        connected,
        *({"route": DLQ, "first": n, "gzip": way} for n, way in enumerate(ways, 1)),
    )
    bodies = {way: body_of(raw(service, DLQ)[0]) for way in ways}
    whole = gzip.decompress(bodies["whole"])
    assert len(json.loads(whole)["messages"]) == 25
    with pytest.raises((zlib.error, gzip.BadGzipFile, EOFError)):
        gzip.decompress(bodies["corrupt"])
    with pytest.raises(gzip.BadGzipFile, match="CRC"):
        gzip.decompress(bodies["wrong_crc"])
    with pytest.raises(EOFError):
        gzip.decompress(bodies["no_trailer"])
    assert zlib.decompressobj(wbits=31).decompress(bodies["no_trailer"]) == whole


def test_a_small_response_can_decompress_to_a_large_one(
    service: LocalService, connected: httpx.Client
) -> None:
    """A thousand times as large, and still the same JSON."""
    script(connected, {"route": KEYS, "gzip": "whole", "pad": 20_000_000})
    small = body_of(raw(service)[0])
    assert len(small) < 50_000
    assert len(large := gzip.decompress(small)) > 20_000_000
    assert json.loads(large)["current"]


def test_a_response_can_be_late_and_slow(
    service: LocalService, connected: httpx.Client
) -> None:
    """Seconds before the first byte; then so many bytes a second, while others are served."""
    size = len(connected.get(KEYS).content)
    script(
        connected,
        {"route": KEYS, "delay": 0.3},
        {"route": KEYS, "first": 2, "bytes_per_second": size / 2},
    )
    begun = time.monotonic()
    connected.get(KEYS)
    assert 0.3 <= time.monotonic() - begun < 2
    begun = time.monotonic()
    with connected.stream("GET", KEYS) as slow:
        with client(service) as other:
            assert other.get(KEYS).status_code == 200
        assert time.monotonic() - begun < 1.5
        slow.read()
    assert 1.9 <= time.monotonic() - begun < 4


def test_a_reply_can_be_lost_after_the_work_was_done(
    service: LocalService, connected: httpx.Client
) -> None:
    """The publish was stored, though its caller got a reset."""
    script(connected, {"route": "/v2/publish/*", "reset": {"byte": 0}})
    headers = {"Service-Deduplication-Id": "lost-reply", "Service-Delay": "1h"}
    url = "/v2/publish/http://127.0.0.1:9/lost"
    with pytest.raises(httpx.TransportError):
        connected.post(url, headers=headers)
    again = connected.post(url, headers=headers).json()
    assert again["deduplicated"] is True
    assert connected.delete(f"/v2/messages/{again['messageId']}").status_code == 202


def test_pages_can_be_inserted_and_the_listing_stays_whole(
    connected: httpx.Client,
) -> None:
    """An empty page with a cursor, and the previous page again: made-up cursors lead back."""
    whole = ids(
        {"messages": [row for page in walk(connected) for row in page["messages"]]}
    )
    script(
        connected,
        {"route": DLQ, "first": 1, "page": {"insert": "empty"}},
        {"route": DLQ, "first": 3, "page": {"insert": "previous"}},
    )
    pages = [ids(page) for page in walk(connected)]
    assert [len(page) for page in pages] == [0, 10, 10, 10, 5]
    assert pages[1] == pages[2]
    assert pages[1] + pages[3] + pages[4] == whole


def test_pages_can_overlap_come_twice_reversed_and_with_more_rows(
    connected: httpx.Client,
) -> None:
    """The rows of one page in every disorder; cursors are the listing's own."""
    first, second, _ = [ids(page) for page in walk(connected)]
    for fault, expected in (
        ({"overlap": 3}, first[-3:] + second),
        ({"twice": True}, [row for row in second for _ in range(2)]),
        ({"order": "reversed"}, second[::-1]),
        ({"extra": 2}, [*second, f"{second[-1]}-extra-1", f"{second[-1]}-extra-2"]),
    ):
        script(connected, {"route": DLQ, "first": 2, "page": fault})
        assert ids(walk(connected)[1]) == expected
    script(connected, {"route": DLQ, "first": 2, "page": {"order": "shuffled"}})
    shuffled = ids(walk(connected)[1])
    assert shuffled != second
    assert sorted(shuffled) == sorted(second)


def test_cursors_can_repeat_go_round_and_never_end(connected: httpx.Client) -> None:
    """The same one again, A to B to A, and a new one instead of every end."""
    script(connected, {"route": DLQ, "times": None, "page": {"cursor": "repeated"}})
    repeated = [page["cursor"] for page in walk(connected, most=4)]
    assert len(repeated) == 4
    assert len(set(repeated)) == 1
    script(
        connected,
        {"route": DLQ, "times": None, "first": 2, "page": {"cursor": "first"}},
    )
    assert len({page["cursor"] for page in walk(connected, most=6)}) == 1
    script(connected, {"route": DLQ, "times": None, "page": {"cursor": "endless"}})
    endless = walk(connected, most=9)
    assert len({page["cursor"] for page in endless}) == 9
    assert {len(page["messages"]) for page in endless[2:]} == {5}


@pytest.mark.parametrize(
    ("end", "shown"), [("absent", "missing"), ("null", None), ("empty", "")]
)
def test_the_last_page_can_be_marked_in_three_ways(
    connected: httpx.Client, end: str, shown: Any
) -> None:
    """Without the cursor, with null, with empty text; pages before it keep theirs."""
    script(connected, {"route": DLQ, "times": None, "page": {"end": end}})
    pages = walk(connected)
    assert len(pages) == 3
    assert pages[-1].get("cursor", "missing") == shown


def test_pages_of_vectors_go_wrong_the_same_way(connected: httpx.Client) -> None:
    """Their cursor is in the request's body, their rows below ``result``."""

    def page(cursor: str) -> dict[str, Any]:
        return connected.post(
            "/vector/plain/range", json={"cursor": cursor, "limit": 20}
        ).json()["result"]

    script(
        connected,
        {"route": "/vector/*/range", "first": 2, "page": {"insert": "previous"}},
        {"route": "/vector/*/range", "first": 3, "page": {"cursor": "endless"}},
    )
    first = page("0")
    again = page(first["nextCursor"])
    last = page(again["nextCursor"])
    assert again["vectors"] == first["vectors"]
    assert [row["id"] for row in last["vectors"]] == [
        f"v{number}" for number in range(20, 25)
    ]
    assert page(last["nextCursor"])["vectors"] == last["vectors"]


def test_head_meets_faults_without_a_body(
    service: LocalService, connected: httpx.Client
) -> None:
    """Status and headers as scripted, and nothing behind them."""
    script(connected, {"route": KEYS, "status": 503})
    found, _ = raw(service, method="HEAD")
    assert found.startswith(b"HTTP/1.1 503 ")
    assert body_of(found) == b""


def test_a_large_request_is_read_before_the_response(
    service: LocalService, connected: httpx.Client
) -> None:
    """Its sender reads the scripted response, and no reset."""
    script(connected, {"route": "/v2/batch", "status": 429, "times": 3})
    for _ in range(3):
        connection = http.client.HTTPConnection(
            urlsplit(service.url).netloc, timeout=10
        )
        connection.request(
            "POST",
            "/v2/batch",
            b" " * 5_000_000,
            {"Authorization": f"Bearer {service.token}"},
        )
        assert connection.getresponse().status == 429
        connection.close()


def test_a_script_that_is_refused_changes_nothing() -> None:
    """The faults before it stay, with their counts."""
    found = FaultScript()
    found.put({"faults": [{"route": "*", "status": 503}]})
    found.strike("GET", "/a")
    with pytest.raises(InputError, match="fault 1"):
        found.put({"faults": [{"route": "*"}, {"route": "*", "gzip": "zip"}]})
    assert found.shown()["faults"] == [
        {"fault": {"route": "*", "status": 503}, "requests": 1, "struck": 1}
    ]

"""Hostile names, parameters, headers and bodies for every operation of the queue: none is a failure."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from toolkit_service.demo.local_service import LocalService

NAMES = (
    "", "%20", "%", "%zz", "a%2Fb", "%2F", "..%2F..%2Fetc", ".", "..", "%2e%2e", "%00", "%0d%0aX:y", "%FF",
    "%ED%A0%80", "%C3%BC%F0%9F%98%80", "a;b=c", "'%20OR%201=1%20--", "%25s%25n", "a" * 5000, "{x}", "*",
)  # fmt: skip
VALUES = (
    "", "-1", "1.5", "9" * 30, "%00", "%FF", "%ED%A0%80", "," * 500, "%27%3BDROP%20TABLE%20messages",
)  # fmt: skip
HEADERS = (
    "", "-1", "9" * 30, "1e400", "x" * 5000, ",", "=", "a=b,c", "pow(9, pow(9, 9))", "(" * 200, "\xff", "%00",
    "1d" * 500, "http://", "http://[::1", "* * * * * *", "61 * * * *", "CRON_TZ=../../etc/passwd * * * * *",
)  # fmt: skip
BODIES = (
    b"", b"{", b"[", b"null", b"5", b'"x"', b"[]", b"{}", b"[null]", b"[[]]", b"[5]", b"\xff", b"[" * 5000,
    b'{"a": 1, "a": 2}', b'["\\ud800"]', b"\xef\xbb\xbf{}", b"1" * 5000, b"NaN",
)  # fmt: skip
ODD = (
    "null",
    "-1",
    "1e400",
    "[]",
    "{}",
    '""',
    '"\\u0000"',
    '"\\ud800"',
    "true",
    "9" * 40,
    '["x", 5, null]',
)
USUAL = {"index": "plain", "destination": "http://127.0.0.1:9/x", "namespace": "n"}


@pytest.fixture(scope="module")
def service() -> Iterator[LocalService]:
    """The service as it is started from a shell."""
    with LocalService(indexes=("plain:dense:2:COSINE",)) as running:
        yield running


@pytest.fixture
def connection(service: LocalService) -> Iterator[http.client.HTTPConnection]:
    """A connection that sends paths as they are."""
    opened = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=30)
    yield opened
    opened.close()


def _filled(path: str, **given: str) -> str:
    for name, value in ({"flow_key": "k"} | USUAL | given).items():
        path = path.replace(f"{{{name}}}", value)
    return path.replace("{", "").replace("}", "")


def _requests(
    path: str, described: dict[str, Any], schemas: dict[str, Any]
) -> Iterator[tuple[str, dict[str, str], bytes]]:
    """Path, headers and body of hostile requests for an operation: one part is odd, the others are usual."""
    parameters = described.get("parameters", ())
    content = described.get("requestBody", {}).get("content", {})
    usual = _filled(path)
    for parameter in parameters:
        name = parameter["name"]
        if parameter["in"] == "path":
            yield from ((_filled(path, **{name: value}), {}, b"{}") for value in NAMES)
        elif parameter["in"] == "query":
            yield from ((f"{usual}?{name}={value}", {}, b"{}") for value in VALUES)
            yield f"{usual}?{name}=1&{name}=2", {}, b"{}"
        else:
            yield from ((usual, {name: value}, b"{}") for value in HEADERS)
    if "{destination}" not in path:
        yield f"{usual}?no-such-parameter=1", {}, b"{}"
    if content:
        yield from ((usual, {}, body) for body in BODIES)
    for reference in (media["schema"].get("$ref", "") for media in content.values()):
        for field in schemas.get(reference.rpartition("/")[2], {}).get(
            "properties", ()
        ):
            yield from (
                (usual, {}, f'{{"{field}": {value}}}'.encode()) for value in ODD
            )


@pytest.mark.slow
def test_no_operation_fails_for_a_hostile_request(
    service: LocalService,
    connection: http.client.HTTPConnection,
    described: dict[str, Any],
) -> None:
    """Each that the document has: a status that it names, JSON, and nothing in the log."""
    wrong, sent = [], 0
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            if operation["tags"] == ["vectors"]:
                continue  # generated requests go there, in `test_openapi.py`
            # an odd name can lead to a path that is not here, or that has other methods
            statuses = {*operation["responses"], "404", "405"}
            for target, headers, body in _requests(
                path, operation, described["components"]["schemas"]
            ):
                connection.putrequest(method.upper(), target, skip_accept_encoding=True)
                given = {
                    "Authorization": f"Bearer {service.token}",
                    "Content-Length": str(len(body)),
                    **headers,
                }
                for name, value in given.items():
                    connection.putheader(name, value)
                connection.endheaders(body)
                response = connection.getresponse()
                text = response.read()
                sent += 1
                error = response.status < 400 or text.startswith(b'{"error"')
                if (
                    str(response.status) not in statuses - {"500"}
                    or not error
                    or b"Traceback" in text
                ):
                    wrong.append(
                        (
                            method,
                            target[:80],
                            headers,
                            body[:40],
                            response.status,
                            text[:200],
                        )
                    )
    assert not wrong, wrong[:10]
    assert sent > 3000
    log = (service.data_dir / "serve.log").read_text()
    assert "responding" not in log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    "name",
    ["a/b", "50%", "100%25", "grün", "a//b", "/", "a b", "pause", "k/pause", "?#"],
)
def test_keys_of_flow_control_have_any_name(
    service: LocalService, connection: http.client.HTTPConnection, name: str
) -> None:
    """Paused, found and resumed by the same name, and no other key with them."""
    bearer = {"Authorization": f"Bearer {service.token}"}

    def ask(method: str, path: str) -> tuple[int, Any]:
        connection.request(method, path, headers=bearer)
        response = connection.getresponse()
        return response.status, response.read().decode()

    path = f"/v2/flowControl/{quote(name, safe='')}"
    assert ask("POST", f"{path}/pause")[0] == 200
    status, shown = ask("GET", path)
    assert status == 200
    assert ask("GET", f"/v2/flowControl/{quote(name)}/pin")[0] in (404, 405)
    assert ask("GET", "/v2/flowControl/k/pin")[0] == 405
    assert ask("GET", f"{path}?odd=1")[0] == 400
    assert ask("GET", "/v2/flowControl")[1] == f"[{shown}]"
    assert ask("POST", f"{path}/resume")[0] == 200
    assert ask("GET", path)[0] == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "queues/{}%2Fpause"),
        ("POST", "queues/{}%2Fresume"),
        ("POST", "schedules/{}%2Fpause"),
        ("PATCH", "schedules/{}%2Fpause"),
        ("DELETE", "topics/{}%2Fendpoints"),
        ("POST", "flowControl/{}%2Fpause"),
        ("POST", "enqueue/{}%2Fx/http://127.0.0.1:9/"),
        ("POST", "enqueue/%2E%2E/http://127.0.0.1:9/"),
    ],
)
def test_an_encoded_slash_is_part_of_a_name(
    service: LocalService,
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
) -> None:
    """It never leads to what a plain one does, such as another queue that is paused."""
    bearer = {"Authorization": f"Bearer {service.token}"}

    def ask(method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        connection.request(
            method, f"/v2/{path}", body, bearer | {"Service-Cron": "0 0 1 1 *"}
        )
        response = connection.getresponse()
        return response.status, response.read()

    ask("POST", "queues", b'{"queueName": "mine"}')
    ask(
        "POST",
        "topics/mine/endpoints",
        b'{"endpoints": [{"url": "http://127.0.0.1:9/"}]}',
    )
    connection.request(
        "POST",
        "/v2/schedules/mine",
        headers=bearer | {"Service-Cron": "0 0 1 1 *", "Service-Schedule-Id": "mine"},
    )
    assert connection.getresponse().read()
    places = ("queues", "schedules", "topics", "flowControl")
    before = [ask("GET", place) for place in places]
    status, text = ask(
        method, path.format("mine"), b'{"endpoints": [{"url": "http://127.0.0.1:9/"}]}'
    )
    assert status in (400, 404, 405), text
    assert [ask("GET", place) for place in places] == before


def test_a_name_may_be_percent_encoded(
    service: LocalService, connection: http.client.HTTPConnection
) -> None:
    """A destination behind an encoded name of a queue is the one that was sent."""
    bearer = {"Authorization": f"Bearer {service.token}", "Service-Delay": "1d"}
    connection.request(
        "POST", "/v2/enqueue/my%2Dline/http://127.0.0.1:9/a%2Fb?c=%64", headers=bearer
    )
    text = connection.getresponse().read().decode()
    message = text.rpartition('"messageId":"')[2].partition('"')[0]
    connection.request("GET", f"/v2/messages/{message}", headers=bearer)
    shown = connection.getresponse().read().decode()
    assert '"queueName":"my-line"' in shown
    assert '"url":"http://127.0.0.1:9/a%2Fb?c=%64"' in shown

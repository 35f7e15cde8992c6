"""Authentication, and the error responses of both APIs."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolkit.secrets.redaction import Secret
from toolkit_service.app import Guard, build_app
from toolkit_service.queue.scheduler import Queue
from toolkit_service.queue.state import Store
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.specs import IndexSpec

TOKEN = "token-of-the-guard-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Both APIs behind authentication, and one route that raises."""
    folder = tmp_path_factory.mktemp("guard")
    store, registry = Store(folder / "queue"), IndexRegistry(folder / "vectors")
    registry.create(IndexSpec.parse("plain:dense:2:COSINE"))
    app = build_app(Queue(store), registry, Secret(TOKEN))
    assert isinstance(app, Guard)

    async def broken(_: Request) -> Response:
        raise RuntimeError("a secret in a message")

    app._app.router.routes.append(Route("/broken", broken))
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()
    registry.close()
    store.close()


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    """A client without a token."""
    with httpx.Client(
        base_url=url, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ) as client:
        yield client


PATHS = ["/v2/workflows/dlq", "/v2/dlq", "/v2/keys", "/vector/plain/info", "/nowhere"]


@pytest.mark.parametrize("path", PATHS[:4])
@pytest.mark.parametrize(
    ("headers", "query"),
    [
        (BEARER, ""),
        ({"Authorization": f"bearer   {TOKEN}"}, ""),
        ({}, f"?queue_token={TOKEN}"),
        ({}, f"?qstash_token={TOKEN}"),
        (BEARER, f"?queue_token={TOKEN}&qstash_token={TOKEN}"),
        (BEARER, "?queue_token=wrong-token"),
        ({"Authorization": "Bearer wrong-token"}, f"?queue_token={TOKEN}"),
        ({}, f"?queue_token={TOKEN}&qstash_token=wrong-token"),
    ],
)
def test_one_valid_credential_lets_in(
    http: httpx.Client, path: str, headers: dict[str, str], query: str
) -> None:
    """The header or either query parameter, also beside one that is wrong."""
    assert http.get(f"{path}{query}", headers=headers).status_code == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({}, ""),
        ({"Authorization": "Bearer"}, ""),
        ({"Authorization": f"Basic {TOKEN}"}, ""),
        ({"Authorization": "Bearer wrong-token"}, ""),
        ({"Authorization": f"Bearer {TOKEN}x"}, ""),
        ({}, "?queue_token=wrong-token"),
        ({}, f"?token={TOKEN}"),
        ({"Authorization": "Bearer wrong-token"}, "?queue_token=wrong-token"),
        ({}, "?queue_token=wrong-token&qstash_token=another"),
        ({"Authorization": "Bearer \u00e9t\u00e9".encode("latin-1")}, ""),
    ],
)
def test_no_valid_credential_is_401(
    http: httpx.Client, path: str, headers: dict[str, str], query: str
) -> None:
    """On every path, known or not, with a JSON error that repeats no token; vectors repeat the status."""
    response = http.get(f"{path}{query}", headers=headers)
    assert response.status_code == 401
    assert set(response.json()) == (
        {"error", "status"} if path.startswith("/vector") else {"error"}
    )
    assert "wrong-token" not in response.text
    assert TOKEN not in response.text
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "example.com"},
        {"Host": "127.0.0.1.example.com"},
        {"Host": ""},
        {"Host": "[::1"},
        {"Origin": "https://example.com"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1.example.com"},
    ],
)
def test_foreign_hosts_and_origins_are_403(
    http: httpx.Client, headers: dict[str, str]
) -> None:
    """A page elsewhere cannot use a browser here, also under a name that it lets resolve to this machine."""
    response = http.get("/v2/dlq", headers=BEARER | headers)
    assert response.status_code == 403
    assert response.json()["error"]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]"])
def test_our_own_names_are_let_in(http: httpx.Client, url: str, name: str) -> None:
    """With and without a port, as Host and as Origin."""
    port = url.rpartition(":")[2]
    for headers in (
        {"Host": name},
        {"Host": f"{name}:{port}"},
        {"Origin": f"http://{name}:8888"},
    ):
        assert http.get("/v2/dlq", headers=BEARER | headers).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/", 405),
        ("GET", "/v2/unknown", 404),
        ("PATCH", "/v2/workflows/dlq", 405),
        ("GET", "/v2/batch", 405),
        ("GET", "/v2/workflows/dlq/unknown", 404),
        ("DELETE", "/v2/workflows/runs/unknown", 404),
        ("GET", "/vector/unknown/info", 404),
    ],
)
def test_wrong_paths_and_methods_are_json_errors(
    http: httpx.Client, method: str, path: str, status: int
) -> None:
    """404 and 405 in the form of their API; 405 names the allowed methods."""
    response = http.request(method, f"{path}", headers=BEARER)
    assert response.status_code == status
    assert response.json()["error"]
    assert ("status" in response.json()) == path.startswith("/vector")
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.parametrize("path", ["/", "/openapi.json"])
def test_the_open_paths_ask_for_no_token_and_take_no_wrong_one(
    http: httpx.Client, path: str
) -> None:
    """They need no token, and accept the right one; a wrong one or a foreign Host is refused."""
    for headers, status in (
        ({}, 200),
        (BEARER, 200),
        ({"Authorization": "Bearer wrong-token"}, 401),
        ({"Host": "example.com"}, 403),
    ):
        assert http.get(path, headers=headers).status_code == status
    assert http.get(f"{path}x").status_code == 401


def test_options_names_what_a_path_allows_over_all_its_routes(
    http: httpx.Client,
) -> None:
    """204 with Allow where the path is served, 404 where it is not."""
    response = http.options("/v2/workflows/dlq/some-id", headers=BEARER)
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["allow"] == "DELETE, GET, HEAD, OPTIONS"
    assert http.options("/v2/unknown", headers=BEARER).status_code == 404


def test_a_failure_of_ours_tells_nothing_and_ends_nothing(
    http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """500 without a traceback; the log names type and place, not the message; the next request is served."""
    with caplog.at_level(logging.ERROR):
        response = http.get("/broken", headers=BEARER)
        until = time.monotonic() + 60
        while not caplog.records and time.monotonic() < until:
            # logged after the response
            time.sleep(0.01)
    assert response.status_code == 500
    assert set(response.json()) == {"error"}
    assert "Traceback" not in response.text
    assert "RuntimeError at " in caplog.text
    assert "a secret in a message" not in response.text + caplog.text
    assert http.get("/v2/dlq", headers=BEARER).status_code == 200


def test_responses_are_json(http: httpx.Client) -> None:
    """Every response says that it is JSON."""
    for path in PATHS:
        response = http.get(f"{path}", headers=BEARER)
        assert response.headers["content-type"] == "application/json"
        JSONResponse(response.json())

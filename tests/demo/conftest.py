"""A queue that only records requests, and the failing application as a process that uses it."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolkit.base.children import first_line, running


@dataclass
class Recorder:
    """What the application sent: messages of batches, and ids of runs that it ended."""

    url: str = ""
    token: str = "recorded-token-0123456789"
    keys: tuple[str, str] = (
        "sig_current_0123456789abcdef0123456789",
        "sig_next_0123456789abcdef0123456789",
    )
    messages: list[dict[str, Any]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    refuse: bool = False

    def environment(self, *keys: str) -> dict[str, str]:
        """Variables under which the application finds this queue."""
        names = ("TOOLKIT_QUEUE_CURRENT_SIGNING_KEY", "TOOLKIT_QUEUE_NEXT_SIGNING_KEY")
        others = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TOOLKIT_", "QSTASH_"))
        }
        own = {"TOOLKIT_QUEUE_URL": self.url, "TOOLKIT_QUEUE_TOKEN": self.token}
        return others | own | dict(zip(names, keys, strict=False))

    def app(self) -> Starlette:
        """The queue as an application."""

        async def batch(request: Request) -> Response:
            self.tokens.add(request.headers["authorization"])
            if self.refuse:
                return JSONResponse({"error": "no"}, 503)
            self.messages += await request.json()
            return JSONResponse([{"messageId": "msg_1"}])

        async def end(request: Request) -> Response:
            self.ended.append(f"{request.path_params['run']}?{request.url.query}")
            return JSONResponse({})

        return Starlette(
            routes=[
                Route("/v2/batch", batch, methods=["POST"]),
                Route("/v2/workflows/runs/{run}", end, methods=["DELETE"]),
            ]
        )


class Marked:
    """Processes that were started with `environment`, and their own children."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        # a variable that children are given, too, and that nothing here reads
        self.environment = os.environ | {"XDG_STATE_HOME": f"/nonexistent/{self._mark}"}

    def processes(self) -> list[str]:
        """Ids of those that run."""
        found = []
        for process in Path("/proc").iterdir():
            try:
                if (
                    process.name.isdigit()
                    and self._mark.encode() in (process / "environ").read_bytes()
                ):
                    found.append(process.name)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return found

    def after(self, seconds: float) -> list[str]:
        """Ids of those that still run when none, or the time, is left."""
        until = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        return left


@pytest.fixture(scope="session")
def recording() -> Iterator[Recorder]:
    """The recorder, served for all tests."""
    found = Recorder()
    listening = socket.create_server(("127.0.0.1", 0))
    found.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(found.app(), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield found
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture(scope="session")
def application(
    recording: Recorder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Address of an application without signing keys, which has nothing to complain about to the end."""
    log = tmp_path_factory.mktemp("application") / "log"
    environment = recording.environment()
    module = "toolkit_service.demo.application"
    with running(module, "--with-parent", variables=environment, log=log) as process:
        yield first_line(process, what="the application", log=log)["url"]
    assert log.read_text() == ""


@pytest.fixture
def marked() -> Iterator[Marked]:
    """A mark for child processes, to find those that are left behind."""
    found = Marked()
    yield found
    assert found.after(15) == []


@pytest.fixture
def recorder(recording: Recorder) -> Recorder:
    """The recorder, having seen nothing yet."""
    recording.messages.clear()
    recording.ended.clear()
    recording.tokens.clear()
    recording.refuse = False
    return recording

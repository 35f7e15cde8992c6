"""A service whose every field holds canaries, what was loaded from it, and the count of what was tried."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import toolkit as tk
from tests.conftest import Asked, ScriptedServer, listening
from tests.promises.canaries import (
    QUEUE_TOKEN,
    SIGNING_KEY,
    VECTOR_TOKEN,
    planted,
    rows,
)
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import to_frame

_PAGE = 100
_IDS = {
    "failures": "dlqId",
    "runs": "workflowRunId",
    "events": "messageId",
    "steps": "dlqId",
    "callbacks": "sourceMessageId",
    "vectors": "id",
}


def pages(what: str) -> list[bytes]:
    """The rows of something loaded, as the arrays of its pages: none with rows of two sorts."""
    found = rows(planted(what), _IDS[what]).values()
    return [
        b"[" + b",".join(some[start : start + _PAGE]) + b"]"
        for some in found
        for start in range(0, len(some), _PAGE)
    ]


@dataclass
class Planted:
    """The service, and everything that is loaded from it: once, when it is first wanted."""

    server: ScriptedServer
    service: tk.Service
    folder: Path

    @cached_property
    def failures(self) -> pd.DataFrame:
        """The DLQ."""
        return tk.load_failures(self.service, progress=False)

    @cached_property
    def revealed(self) -> pd.DataFrame:
        """The DLQ as it came."""
        return tk.load_failures(self.service, progress=False, reveal=True)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The run log."""
        return tk.load_runs(self.service, progress=False)

    @cached_property
    def events(self) -> pd.DataFrame:
        """The event log."""
        return tk.load_events(self.service, progress=False)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The steps of runs that failed."""
        decoder = FailureDecoder(self.service.redactor)
        return pd.concat(
            [
                tk.explode_steps(to_frame(decoder.decode(page)))
                for page in pages("steps")
            ]
        )

    @cached_property
    def callbacks(self) -> pd.DataFrame:
        """Callbacks as a receiver kept them."""
        return tk.load_callbacks(
            [
                row
                for some in rows(planted("callbacks"), _IDS["callbacks"]).values()
                for row in some
            ],
            redactor=self.service.redactor,
        )

    @cached_property
    def vectors(self) -> pd.DataFrame:
        """The default namespace."""
        return tk.load_vectors(self.service, namespace="", progress=False)

    @cached_property
    def namespaces(self) -> pd.DataFrame:
        """All namespaces, whose names are canaries."""
        return tk.load_vectors(
            self.service, namespace="all", include_vectors=False, progress=False
        )

    @cached_property
    def hits(self) -> pd.DataFrame:
        """Rows of the index as the hits of a query."""
        return tk.query_text(
            self.service,
            "anything",
            top_k=10_000,
            include_metadata=True,
            include_data=True,
        )


_LISTS = {
    "/v2/workflows/dlq": ("failures", "messages"),
    "/v2/workflows/logs": ("runs", "runs"),
    "/v2/logs": ("events", "events"),
}
"""From a path to what is listed there, and the member of the response that has the rows."""


@pytest.fixture(scope="session")
def planted_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    """A service whose responses contain canaries wherever possible."""
    folder = tmp_path_factory.mktemp("promises")
    listed = {what: pages(what) for what in ("failures", "runs", "events", "vectors")}
    hits = json.dumps(
        [row | {"score": 0.5} for page in listed["vectors"] for row in json.loads(page)]
    ).encode()
    names = ["", *(canary.members["namespace"] for canary in planted("namespaces"))]

    def respond(asked: Asked) -> bytes:
        index = dict(asked.query).get("cursor") or "0"
        body = json.loads(asked.body) if asked.body else {}
        if asked.path in _LISTS:
            what, name = _LISTS[asked.path]
            return _page(listed[what], index, name, "cursor")
        match asked.path.removeprefix("/").split("/"):
            case ["v2", "dlq"]:
                # a load tells if there are failed plain messages
                return b'{"messages": [], "cursor": ""}'
            case ["info"]:
                counts = {name: {"vectorCount": 1} for name in names[1:]}
                return json.dumps(
                    {"result": {"dimension": 2, "namespaces": counts, "vectorCount": 1}}
                ).encode()
            case ["list-namespaces"]:
                return json.dumps({"result": names}).encode()
            case ["range"]:
                return b'{"result": %b}' % _page(
                    listed["vectors"], body["cursor"], "vectors", "nextCursor"
                )
            case ["range", *_]:
                return b'{"result": {"vectors": [{"id": "a", "data": "x"}], "nextCursor": ""}}'
            case ["query-data"]:
                return b'{"result": %b}' % hits
        raise AssertionError(asked.path)

    with listening() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        server.responding(respond)
        service = tk.connect(
            queue_url=server.url,
            queue_token=QUEUE_TOKEN,
            vector_url=server.url,
            vector_token=VECTOR_TOKEN,
            current_signing_key=SIGNING_KEY,
        )
        yield Planted(server, service, folder)


def _page(found: list[bytes], index: str, name: str, cursor: str) -> bytes:
    number = int(index)
    after = str(number + 1) if number + 1 < len(found) else ""
    return b'{"%b": %b, "%b": "%b"}' % (
        name.encode(),
        found[number],
        cursor.encode(),
        after.encode(),
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how much was tried: what each test has counted."""
    reports = (report for some in terminalreporter.stats.values() for report in some)
    counted = [
        value
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == "tried"
    ]
    if counted:
        terminalreporter.write_line(
            f"promises: {sum(counted):,} canaries looked for, in {len(counted):,} sinks"
        )

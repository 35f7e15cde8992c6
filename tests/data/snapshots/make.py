"""Write small snapshots of the current schema version, which every later toolkit has to read.

``python tests/data/snapshots/make.py`` fills the folder ``version-N`` beside this file, once: the snapshots
of a version are never made again, since they show what toolkits of that time wrote. Each comes with a JSON
file of the rows it holds, in terms that stay the same when columns change. All data is made up here and
served on loopback.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pandas as pd

import toolkit as tk
from toolkit.errors import ServiceError
from toolkit.loading.failures import open_failures
from toolkit.loading.options import LoadOptions
from toolkit.snapshots.manifest import SCHEMA_VERSION
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load

HERE = Path(__file__).parent
MASKING_KEY = bytes(range(32))
"""Masks in the snapshots are tagged with it: whoever syncs them again needs it, too."""
TOKENS = {
    "queue_token": "queue-token-of-the-fixture",
    "vector_token": "vector-token-of-the-fixture",
}

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
CREATED = 1_772_366_400_123


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _entry(name: str, **values: Any) -> dict[str, Any]:
    return {
        "dlqId": name,
        "workflowUrl": "https://shop.example/flows/order",
        "workflowRunId": f"wfr_{name}",
        "workflowCreatedAt": CREATED - 60_000,
        "url": "https://shop.example/flows/order/charge",
        "method": "POST",
        "header": {"Content-Type": ["application/json"], "X-Trace": ["a", "b", ""]},
        "body": f'{{"order": "{name}"}}',
        "maxRetries": 3,
        "createdAt": CREATED,
        "failureCallback": "https://shop.example/failed",
        "callerIP": "192.0.2.7",
        "label": "eu",
        "labels": ["eu", "card"],
        "flowControlKey": "charge",
        "failureFunctionState": "CALLBACK_FAIL",
        "responseStatus": 500,
        "responseHeader": {
            "Date": ["Sun, 01 Mar 2026 12:00:05 GMT"],
            "content-type": ["text/plain"],
        },
        "responseBody": "TypeError: amount is not a number",
        **values,
    }


PLAIN = [_entry(f"plain-{number}", createdAt=CREATED + number) for number in range(20)]
ODD = [
    {"dlqId": "only-an-id"},
    _entry("two-bodies", bodyBase64=_text(b"\xff")),
    _entry(
        "binary",
        body=None,
        bodyBase64=_text(b"\xff\x00\xfe"),
        responseBody=None,
        responseBodyBase64=_text(b"\x80gzip?"),
    ),
    _entry(
        "empty", body="", header={}, responseHeader={"X-Empty": []}, labels=[], label=""
    ),
    _entry("labels", labels=['quoted "label"', "Grüße", "a,b", ""], label=None),
    _entry(
        "headers",
        header={
            "x-a": ["1", "2"],
            "X-A": ["3"],
            'na"me\\': ['va"lue', "☃ \U0001f600", "\t"],
        },
    ),
    _entry(
        "secrets",
        header={"Authorization": ["Bearer abcdefghijklmnop"]},
        url="https://a.example/?key=abcdefgh",
    ),
    _entry("unknown", cause={"code": 7, "nested": [1.10, None]}, later="field"),
    _entry(
        "misfits",
        maxRetries="three",
        createdAt="soon",
        labels="one",
        header="none",
        responseStatus=1.5,
    ),
]
BEFORE = [*PLAIN, *ODD, _entry("changes"), _entry("goes"), _entry("goes-and-returns")]
"""What the service returns to the first sync."""

BETWEEN = [
    *PLAIN,
    *ODD,
    _entry("changes", responseStatus=503),
    _entry("added", createdAt=CREATED + 86_400_000),
]
NOW = [
    *BETWEEN[:-1],
    _entry("added", createdAt=CREATED + 86_400_000, body="new"),
    _entry("goes-and-returns"),
    _entry("newest"),
]
"""What it returns to the second sync and the third; a sync that finds these again finds no change."""

RUNS = [
    {
        "workflowRunId": f"wfr_{state}",
        "workflowUrl": "https://shop.example/flows/order",
        "workflowState": f"RUN_{state}",
        "workflowRunCreatedAt": CREATED,
        "workflowRunCompletedAt": 0 if state == "STARTED" else CREATED + 5_000,
        "dlqId": "plain-1" if state == "FAILED" else None,
        "labels": ["eu", "Grüße"],
        "steps": [{"name": "charge"}],
    }
    for state in ("STARTED", "SUCCESS", "FAILED", "CANCELED")
] + [{"workflowRunId": "wfr_bare"}]

CALLBACKS = [
    {
        "status": 200,
        "header": {"Content-Type": ["text/plain"], "X": ["1", "2"]},
        "body": _text(b"ok"),
        "retried": 0,
        "maxRetries": 3,
        "sourceMessageId": "msg_1",
        "url": "https://shop.example/a",
        "method": "POST",
        "sourceHeader": {"A": ["b"]},
        "sourceBody": _text("Grüße".encode()),
        "notBefore": CREATED,
        "createdAt": CREATED,
        "scheduleId": "daily",
        "callerIP": "192.0.2.7",
        "topicName": "orders",
        "endpointName": "charge",
    },
    {
        "status": 500,
        "header": {},
        "body": _text(b"\xff\xfe"),
        "retried": 3,
        "maxRetries": 3,
        "dlqId": "plain-1",
        "sourceMessageId": "msg_2",
        "sourceBody": _text(b"\x00\x80"),
        "more": {"field": 1},
    },
    {"sourceMessageId": "msg_3"},
]

DIMENSION = 4
_RANDOM = np.random.default_rng(7)


def _dense() -> list[float]:
    return [
        float(number) for number in _RANDOM.normal(size=DIMENSION).astype(np.float32)
    ]


def _sparse(number: int) -> dict[str, Any]:
    return {"indices": [1, 70_000 + number, 2**31], "values": [0.1, -2.5, 1e-20]}


def _vectors(kind: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number in range(12):
        row: dict[str, Any] = {
            "id": f"{kind}-{number}",
            "metadata": {"n": number, "tags": ["a", 1.10]},
            "data": "text",
        }
        if kind != "sparse":
            row["vector"] = _dense()
        if kind != "dense":
            row["sparseVector"] = _sparse(number)
        rows.append(row)
    rows.append({"id": f"{kind}-bare"})
    if kind != "sparse":
        rows.append({"id": f"{kind}-odd", "vector": [1.0]})
    return rows


VECTORS = {kind: _vectors(kind) for kind in ("dense", "sparse", "hybrid")}


class Source:
    """What the service returns: `failures` and `vectors` are exchanged between calls."""

    def __init__(self) -> None:
        self.url = ""
        self.failures: list[dict[str, Any]] = []
        self.vectors: list[dict[str, Any]] = []
        self.kind = "dense"
        self.pages = 1_000
        """Pages of failures before the service fails."""

    def reply(self, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        """Status and JSON of a response."""
        if path == "/v2/workflows/dlq":
            return self._failures(query)
        if path == "/v2/workflows/logs":
            return 200, {"runs": RUNS, "cursor": ""}
        if path == "/info":
            count = len(self.vectors)
            dense = {
                "dimension": 0 if self.kind == "sparse" else DIMENSION,
                "similarityFunction": "COSINE",
            }
            return 200, {
                "result": {
                    "vectorCount": count,
                    **dense,
                    "namespaces": {"": {"vectorCount": count}},
                }
            }
        if path.startswith("/range"):
            start, count = int(body["cursor"] or 0), int(body["limit"])
            following = start + count if start + count < len(self.vectors) else ""
            return 200, {
                "result": {
                    "nextCursor": str(following),
                    "vectors": self.vectors[start : start + count],
                }
            }
        if path.startswith("/query"):
            hits = [
                {**row, "score": 1 / (place + 3)}
                for place, row in enumerate(VECTORS["hybrid"][:5])
            ]
            return 200, {"result": [hits, hits[:2]]}
        return 404, {"error": path}

    def _failures(self, query: dict[str, str]) -> tuple[int, Any]:
        since, until = (
            int(query.get("fromDate") or 0),
            int(query.get("toDate") or 1 << 60),
        )
        there = [row for row in self.failures if since <= _moment(row) <= until]
        start, count = int(query.get("cursor") or 0), 10
        if start >= self.pages * count:
            return 401, {"error": "unauthorized"}
        following = {"cursor": str(start + count)} if start + count < len(there) else {}
        return 200, {"messages": there[start : start + count], **following}


def _moment(row: dict[str, Any]) -> int:
    created = row.get("createdAt")
    return created if isinstance(created, int) else CREATED


@contextmanager
def serving() -> Iterator[Source]:
    """A real server on loopback that returns what a `Source` says."""
    source = Source()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def _do(self) -> None:
            parts = urlsplit(self.path)
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, value = source.reply(
                parts.path, dict(parse_qsl(parts.query)), json.loads(sent or b"null")
            )
            content = json.dumps(value).encode()
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _do  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    source.url = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield source
    finally:
        http.shutdown()
        http.server_close()


def connected(source: Source) -> tk.Service:
    """A connection to both halves of the source, with the fixtures' tokens."""
    return tk.connect(queue_url=source.url, vector_url=source.url, **TOKENS)


@contextmanager
def masking_key() -> Iterator[None]:
    """The masking key of the fixtures, in a configuration folder of its own."""
    before = os.environ.get("XDG_CONFIG_HOME")
    with tempfile.TemporaryDirectory() as home:
        keys = Path(home) / "workflow-vector-toolkit"
        keys.mkdir(mode=0o700)
        (keys / "masking.key").touch(mode=0o600)
        (keys / "masking.key").write_bytes(MASKING_KEY)
        os.environ["XDG_CONFIG_HOME"] = home
        try:
            yield
        finally:
            os.environ.pop("XDG_CONFIG_HOME")
            if before is not None:
                os.environ["XDG_CONFIG_HOME"] = before


def meaning(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame in terms that do not change with the columns: what any later toolkit has to read.

    Headers are lists of names with their values, bytes are base64 text under a name that says so, times are
    text, numbers of vectors are the shortest digits of a float32; what is null or derived is left out.
    """
    rows = []
    for row in frame.drop(columns="error", errors="ignore").to_dict("records"):
        found = {
            str(name): _meaning(str(name), value)
            for name, value in row.items()
            if not _missing(value)
        }
        rows.append(found)
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def _meaning(name: str, value: Any) -> Any:
    if name in {"headers", "response_headers", "source_headers"}:
        return [
            [key, values] for key, values in json.loads(value, object_pairs_hook=list)
        ]
    if name == "labels":
        return json.loads(value)
    if name == "sparse_indices":
        return [int(number) for number in value]
    if name in {"vector", "sparse_values"}:
        return [float(str(np.float32(number))) for number in value]
    return _plain(value)


def _missing(value: Any) -> bool:
    return value is None or (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return value.item() if isinstance(value, np.generic) else value


def make(out: Path) -> None:
    """Write all snapshots of the current version into a folder."""
    with masking_key(), serving() as source:
        service = connected(source)
        source.failures = BEFORE
        failures = tk.load_failures(service, progress=False)
        frames = {
            "failures-frame": failures,
            "headers-exploded": tk.explode_headers(failures),
            "labels-exploded": tk.explode_labels(failures),
            "runs": tk.load_runs(service, progress=False),
            "callbacks": tk.load_callbacks(CALLBACKS, redactor=service.redactor),
            "hits": tk.query(
                service,
                vector=np.ones((2, DIMENSION)),
                top_k=5,
                include_vectors=True,
                include_metadata=True,
                include_data=True,
            ),
        }
        for name, frame in frames.items():
            tk.write_snapshot(frame, out / name)
        _sync(source, service, out / "failures", BEFORE, BETWEEN, NOW)
        _sync(source, service, out / "failures-stopped", BEFORE)
        source.pages = 3
        try:
            _sync(source, service, out / "failures-stopped", NOW)
        except ServiceError:
            pass
        else:
            raise SystemExit("the load that was to stop came to its end")
        for kind, rows in VECTORS.items():
            source.kind, source.vectors = kind, rows
            tk.export_vectors(service, out / f"vectors-{kind}", progress=False)
    for folder in sorted(out.iterdir()):
        (folder / ".lock").unlink(missing_ok=True)
        rows = meaning(tk.read_snapshot(folder))
        text = ",\n".join(
            json.dumps(row, ensure_ascii=False, sort_keys=True) for row in rows
        )
        folder.with_suffix(".json").write_text(f"[\n{text}\n]\n", encoding="utf-8")


def _sync(
    source: Source, service: tk.Service, folder: Path, *returned: list[dict[str, Any]]
) -> None:
    """Sync once for each list of failures, a day apart."""
    first = SnapshotStore(folder)
    for number, failures in enumerate(returned):
        source.failures = failures
        now = START + timedelta(days=number + (1 if source.pages < 1_000 else 0))
        sync_load(
            open_failures(service, options=LoadOptions(progress=False)),
            first,
            clock=lambda now=now: now,
            every=0,
        )


if __name__ == "__main__":
    target = HERE / f"version-{SCHEMA_VERSION}"
    if target.exists():
        sys.exit(
            f"{target.name} exists: what toolkits of that version wrote is never made again"
        )
    target.mkdir()
    make(target)

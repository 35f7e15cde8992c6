"""Calls of every function that speaks to a service, to one that responds with what is generated."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
from odd_json import (
    TOKEN,
    VECTOR_TOKEN,
    Members,
    Node,
    odd_value,
    spoilt,
    spoilt_bytes,
    text,
    tree,
)
from outcome import outcome
from wire import Exchange, Request, Server

import toolkit as tk
from toolkit.cli import main
from toolkit.errors import ToolkitError
from toolkit.service.responses import RetryPolicy

MOST_REQUESTS = 60
"""After as many in one case, every response is empty and right."""

CREATED = 1_772_366_400_123


def _entry(name: str, **values: Any) -> dict[str, Any]:
    return {
        "dlqId": name,
        "messageId": f"msg_{name}",
        "workflowUrl": "https://shop.example/flows/order",
        "workflowRunId": f"wfr_{name}",
        "workflowCreatedAt": CREATED - 60_000,
        "url": "https://shop.example/flows/order/charge?key=abcdefgh",
        "method": "POST",
        "header": {
            "Content-Type": ["application/json"],
            "Authorization": ["Bearer abcdefghijklmnop"],
            "X": [],
        },
        "body": '{"order": 7, "password": "hunter2hunter2"}',
        "maxRetries": 3,
        "createdAt": CREATED,
        "failureCallback": "https://shop.example/failed",
        "callerIP": "192.0.2.7",
        "label": "eu",
        "labels": ["eu", "card"],
        "flowControlKey": "charge",
        "failureFunctionState": "CALLBACK_FAIL",
        "failureCallbackInfo": {"state": "CALLBACK_FAIL", "responseStatus": 500},
        "responseStatus": 500,
        "responseHeader": {
            "Date": ["Sun, 01 Mar 2026 12:00:05 GMT"],
            "content-type": ["text/plain"],
        },
        "responseBody": "TypeError: amount is not a number",
        **values,
    }


ENTRIES = [
    _entry("a"),
    _entry(
        "b",
        bodyBase64="/w==",
        body=None,
        responseStatus=503,
        labels=[],
        createdAt=CREATED + 5000,
    ),
    {"dlqId": "c"},
    _entry(
        "d",
        cause={"code": 7, "nested": [1.1, None]},
        responseBody='{"error": "timeout"}',
        responseHeader={},
    ),
    _entry(
        "e",
        createdAt=CREATED - 86_400_000,
        failureFunctionState="CALLBACK_SUCCESS",
        label=None,
    ),
]
FAILURES = pd.DataFrame(
    {
        "dlq_id": ["a", "b"],
        "workflow_url": "https://a.example/",
        "workflow_run_id": ["wfr_a", "wfr_b"],
        "response_status": 500,
        "failed_at": pd.to_datetime(["2026-03-01", "2026-03-02"], utc=True),
        "created_at": pd.to_datetime(["2026-03-01", "2026-03-02"], utc=True),
        "response_body": ["database is locked", "no space left on device"],
        "response_body_base64": None,
    }
)
VECTORS: list[dict[str, Any]] = [
    {
        "id": "v1",
        "vector": [0.1, 0.2],
        "metadata": {"n": 1, "city": "Izmir", "tags": ["a"]},
        "data": "first",
    },
    {
        "id": "v2",
        "vector": [1, -2.5],
        "sparseVector": {"indices": [1, 7], "values": [0.5, 2]},
    },
    {
        "id": "v3",
        "sparseVector": {"indices": [3], "values": [1.5]},
        "metadata": {},
        "data": "",
    },
    {"id": "v4", "vector": [0.0, 0.0], "metadata": {"nested": {"deep": [1, None, {}]}}},
]
RUNS = [
    {
        "workflowRunId": f"wfr_{state}",
        "workflowUrl": "https://shop.example/f",
        "workflowState": f"RUN_{state}",
        "workflowRunCreatedAt": CREATED,
        "workflowRunCompletedAt": CREATED + 5000,
        "dlqId": "a",
        "labels": ["eu"],
        "steps": [
            {
                "steps": [{"stepId": 1, "stepName": "pay", "out": "x"}],
                "type": "sequential",
            }
        ],
    }
    for state in ("STARTED", "FAILED", "SUCCESS")
]
CALLBACK: dict[str, Any] = {
    "status": 500,
    "header": {"Content-Type": ["text/plain"]},
    "body": "b2s=",
    "retried": 3,
    "maxRetries": 3,
    "sourceMessageId": "msg_1",
    "dlqId": "a",
    "topicName": "t",
    "endpointName": "e",
    "url": "https://a.example/",
    "method": "POST",
    "sourceHeader": {"A": ["b"]},
    "sourceBody": "e30=",
    "notBefore": CREATED,
    "createdAt": CREATED,
    "scheduleId": "s",
    "callerIP": "192.0.2.1",
}
INFO = {
    "vectorCount": 4,
    "pendingVectorCount": 0,
    "indexSize": 100,
    "dimension": 2,
    "similarityFunction": "COSINE",
    "denseIndex": {
        "dimension": 2,
        "similarityFunction": "COSINE",
        "embeddingModel": "BGE_M3",
    },
    "sparseIndex": {"embeddingModel": "BM25"},
    "namespaces": {
        "": {"vectorCount": 3, "pendingVectorCount": 0},
        "docs": {"vectorCount": 1, "pendingVectorCount": 0},
    },
}


def right(request: Request) -> Any:
    """What the service would respond."""
    later = "cursor=" in request.query and "cursor=&" not in request.query
    if "/v2/" in request.path:
        return _right_queue(request, later=later)
    body = json.loads(request.body) if request.body[:1] in {b"{", b"["} else {}
    hits = [
        {**vector, "score": 0.9 - index / 10} for index, vector in enumerate(VECTORS)
    ]
    first = not isinstance(body, dict) or body.get("cursor") in {"", "0", None}
    page = (
        {"vectors": VECTORS[:2], "nextCursor": "2"}
        if first
        else {"vectors": VECTORS[2:], "nextCursor": ""}
    )
    results: dict[str, Any] = {
        "/range": page,
        "/fetch": [VECTORS[0], None],
        "/query": [hits] * len(body) if isinstance(body, list) else hits,
        "/info": INFO,
        "/list-namespaces": ["", "docs"],
        "/upsert": "Success",
    }
    found = [value for part, value in results.items() if request.path.startswith(part)]
    return {"result": found[0]} if found else {"workflowRunId": "wfr_started"}


def _right_queue(request: Request, *, later: bool) -> Any:
    path, one = request.path, {"workflowRunId": "wfr_new", "workflowCreatedAt": CREATED}
    if path.endswith("/logs"):
        return (
            {"runs": RUNS[2:], "cursor": ""}
            if later
            else {"runs": RUNS[:2], "cursor": "2"}
        )
    if "/publish" in path:
        return {"messageId": "msg_7", "deduplicated": False}
    if request.method == "DELETE":
        return {"deleted": 1}
    if path.endswith("/dlq"):
        return (
            {"messages": ENTRIES[3:]}
            if later
            else {"messages": ENTRIES[:3], "cursor": "3"}
        )
    if request.method == "GET":
        return ENTRIES[0]
    return (
        {"cursor": "", "workflowRuns": [one]}
        if path.endswith(("resume", "restart"))
        else one
    )


STATUSES = (
    200,
    200,
    200,
    201,
    204,
    206,
    301,
    302,
    307,
    400,
    401,
    403,
    404,
    405,
    409,
    412,
    422,
    429,
    429,
    500,
    502,
    503,
    599,
    999,
)
HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Type": (
        "text/html",
        "",
        "application/json; charset=utf-16",
        "x" * 9000,
        "\xff",
    ),
    "Content-Encoding": (
        "gzip",
        "br",
        "identity",
        "zstd",
        "deflate",
        "gzip, gzip",
        "",
        TOKEN,
    ),
    "Retry-After": (
        "0",
        "-1",
        "1e9",
        "6m5s",
        "NaN",
        "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
        "\xb2",
        "9" * 400,
    ),
    "Burst-RateLimit-Reset": ("0", "1e9", "9" * 20, "x", "99999999999.9"),
    "Burst-RateLimit-Limit": ("0", "1", "-1", "9" * 40),
    "RateLimit-Limit": ("500",),
    "RateLimit-Remaining": ("0", "1", "x"),
    "RateLimit-Reset": ("99999999999", "x", "0"),
    "Date": (
        "Mon, 01 Jan 2024 00:00:00 GMT",
        "x",
        "Mon, 01 Jan 99999 00:00:00 GMT",
        "",
    ),
    "Location": (
        "http://169.254.169.254/",
        f"/x?queue_token={TOKEN}",
        "//x",
        "javascript:1",
    ),
    "Transfer-Encoding": ("chunked", "gzip", "identity, chunked"),
    "Content-Length": ("0", "-1", "1", "9999999999999999999", "x", "1, 2"),
    "Set-Cookie": (f"a={TOKEN}",),
    "X-Odd": ("\x00", "a" * 60_000, f"Bearer {TOKEN}"),
    "Connection": ("close", "upgrade"),
}


class Responding:
    """A real server whose responses one case spoils: the tree, the bytes, the head, or how they are sent."""

    def __init__(self) -> None:
        self.server = Server()
        self.server.respond = self._respond
        self.url = f"http://127.0.0.1:{self.server.port}"
        self._lock = threading.Lock()
        self.begin(Random(0), share=0.0)

    def begin(self, random: Random, *, share: float) -> None:
        """Begin a case: each request has this share of a chance to be spoilt."""
        with self._lock:
            self._random, self._share, self.requests = random, share, 0
            self._changes = random.choice([1, 1, 1, 2, 4])
            self._way = random.random()

    def _respond(self, request: Request) -> Exchange:
        with self._lock:
            self.requests += 1
            try:
                value = right(request)
            except ValueError:
                value = {}
            exchange = Exchange(body=json.dumps(value).encode())
            if self.requests <= MOST_REQUESTS and self._random.random() < self._share:
                self._spoil(exchange, tree(value))
            elif self.requests > MOST_REQUESTS:
                exchange.body = (
                    b'{"messages":[],"runs":[],"cursor":"",'
                    b'"result":{"vectors":[],"nextCursor":""}}'
                )
            return exchange

    def _spoil(self, exchange: Exchange, node: Node) -> None:
        random, way = self._random, self._way
        if way < 0.72:
            exchange.body = text(spoilt(random, node, self._changes))
        elif way < 0.84:
            exchange.body = spoilt_bytes(random, exchange.body)
        if way > 0.8:
            exchange.status = random.choice(STATUSES)
            for name in random.sample(list(HEADERS), random.randrange(4)):
                exchange.headers[name] = random.choice(HEADERS[name])
            if exchange.status not in {200, 201} and random.random() < 0.5:
                error = Members(
                    [(b'"error"', odd_value(random)), (b'"status"', odd_value(random))]
                )
                exchange.body = text(error)
        if way > 0.93:
            exchange.coding = random.choice(
                ["", "gzip", "corrupt", "trailer", "zstd", "zstd cut", "members"]
            )
            exchange.chunked = random.random() < 0.3
            exchange.surplus = (
                random.choice([0, 0, -3, 5]) if not exchange.chunked else 0
            )
            exchange.stop = random.choice([None, None, -0.5, 0.0, 0.5, 1.0])
            exchange.reset = random.random() < 0.3


def quick_retries() -> None:
    """Retries without the waits: how often a request is sent stays as it is."""
    defaults = RetryPolicy.__init__.__kwdefaults__
    assert defaults is not None
    defaults.update(total=4.0, deadline=20.0, first_delay=0.0005, longest_delay=0.001)


class Services:
    """The class of cases: a call, and what the service made of it."""

    name = "services"

    def __init__(self, scratch: Path) -> None:
        quick_retries()
        self.scratch = scratch
        self.responding = Responding()
        self.service = tk.connect(
            queue_url=self.responding.url,
            queue_token=TOKEN,
            vector_url=self.responding.url,
            vector_token=VECTOR_TOKEN,
            environ={},
        )
        self.environment = {
            "TOOLKIT_QUEUE_URL": self.responding.url,
            "TOOLKIT_QUEUE_TOKEN": TOKEN,
            "TOOLKIT_VECTOR_URL": self.responding.url,
            "TOOLKIT_VECTOR_TOKEN": VECTOR_TOKEN,
        }

        self.columns: dict[str, dict[str, str]] = {}
        calls = self._calls(Random(0))
        for name in (
            "load_failures",
            "load_failure",
            "load_runs",
            "load_vectors",
            "fetch_vectors",
            "query",
        ):
            dtypes = calls[name][0]().dtypes
            self.columns[name] = {
                column: str(dtype)
                for column, dtype in dtypes.items()
                if column != "vector"
            }

    def case(self, random: Random) -> tuple[str, str, str | None]:
        """One call: its name, what it came to, and what was wrong."""
        calls = self._calls(random)
        often = [
            1 if name.endswith("Panel") or name == "toolkit" else 8 for name in calls
        ]
        name = random.choices(list(calls), often)[0]
        call, expected = calls[name]
        self.responding.begin(random, share=random.choice([1.0, 1.0, 0.5, 0.2]))
        word, wrong = outcome(
            lambda: self._documented(name, call()), expected, look=random.random() < 0.1
        )
        if wrong is None:
            self.responding.begin(random, share=0.0)
        return name, word, wrong

    def _documented(self, name: str, value: Any) -> Any:
        """What a loader returned, when it has the columns and types it always has, and each id once."""
        if name in self.columns:
            wanted = self.columns[name]
            found = {
                column: str(dtype)
                for column, dtype in value.dtypes.items()
                if column != "vector"
            }
            assert found == wanted, (
                f"columns {set(found.items()) ^ set(wanted.items())}"
            )
            key = {"load_failures": "dlq_id", "load_runs": "workflow_run_id"}.get(
                name, ["namespace", "id"]
            )
            if name in {"load_failures", "load_runs", "load_vectors"}:
                assert not value[key].duplicated().any(), "an id twice"
                assert tk.get_receipt(value).rows == len(value), (
                    "a receipt that counts other rows"
                )
        return value

    def _calls(
        self, random: Random
    ) -> dict[str, tuple[Callable[[], Any], type | tuple[type, ...]]]:
        service, frame = self.service, pd.DataFrame
        folder = self.scratch / "synced"
        load: dict[str, Any] = {
            "progress": False,
            "connections": random.choice([1, 2, 16]),
        }
        if random.random() < 0.1:
            load["passes"] = 2
        kind: Any = random.choice(["workflows", "messages"])
        chosen = random.choice(
            [None, tk.FailureFilter(label="eu", response_status=500, error="amount")]
        )
        limit = random.choice([None, None, 2])
        embed = random.choice([None, two_numbers])
        return {
            "load_failures": (
                lambda: tk.load_failures(
                    service, chosen, kind=kind, limit=limit, **load
                ),
                frame,
            ),
            "load_failures 2": (
                lambda: tk.load_failures(service, since="9000d", **load),
                frame,
            ),
            "iter_failures": (
                lambda: pd.concat([*tk.iter_failures(service, **load), frame()]),
                frame,
            ),
            "load_failure": (
                lambda: tk.load_failure(
                    service, random.choice(["a", f"id {TOKEN}"]), kind=kind
                ),
                frame,
            ),
            "load_runs": (
                lambda: tk.load_runs(service, limit=limit, progress=False),
                frame,
            ),
            "load_vectors": (
                lambda: tk.load_vectors(
                    service,
                    namespace=random.choice(["", "all", "docs"]),
                    limit=limit,
                    memory_limit=random.choice([None, 1e9]),
                    **load,
                ),
                frame,
            ),
            "iter_vectors": (
                lambda: pd.concat([*tk.iter_vectors(service, **load), frame()]),
                frame,
            ),
            "fetch_vectors": (
                lambda: tk.fetch_vectors(
                    service, **random.choice([{"ids": ["v1", "x"]}, {"prefix": "v"}])
                ),
                frame,
            ),
            "query": (
                lambda: tk.query(
                    service,
                    **random.choice(
                        [
                            {"vector": [1.0, 0.0]},
                            {"id": ["v1"]},
                            {"sparse": ([1], [1.0])},
                        ]
                    ),
                    include_vectors=True,
                    include_metadata=True,
                    include_data=True,
                ),
                frame,
            ),
            "query_text": (
                lambda: tk.query_text(service, ["a", "b"], include_metadata=True),
                frame,
            ),
            "describe_index": (
                lambda: tk.describe_index(service),
                tk.results.IndexInfo,
            ),
            "list_namespaces": (lambda: tk.list_namespaces(service), list),
            "upsert_vectors": (lambda: tk.upsert_vectors(service, VECTORS), int),
            "suggest_runbooks": (
                lambda: tk.suggest_runbooks(FAILURES, service, embed=embed).frame,
                frame,
            ),
            "index_failures": (
                lambda: tk.index_failures(
                    FAILURES, service, embed=embed, progress=False
                ),
                int,
            ),
            "find_similar_failures": (
                lambda: tk.find_similar_failures(FAILURES, service, embed=embed).frame,
                frame,
            ),
            "publish": (
                lambda: tk.publish(service, "https://a.example/", {"n": 1}, retries=0),
                tk.results.Published,
            ),
            "start_run": (
                lambda: tk.start_run(service, f"{self.responding.url}/app"),
                str,
            ),
            "resume_failures": (
                lambda: tk.resume_failures(service, ["a", "b"], confirm=True),
                dict,
            ),
            "restart_failures": (
                lambda: tk.restart_failures(service, "a", confirm=True),
                dict,
            ),
            "rerun_failure_functions": (
                lambda: tk.rerun_failure_functions(service, "a", confirm=True),
                type(None),
            ),
            "delete_failures": (
                lambda: tk.delete_failures(service, ["a"], confirm=True, kind=kind),
                int,
            ),
            "sync_failures": (lambda: self._synced(folder, random, load), frame),
            "export_vectors": (lambda: self._exported(random, load), frame),
            "load_callbacks": (lambda: self._callbacks(random), frame),
            "FailureFilterPanel": (
                lambda: self._panel(tk.FailureFilterPanel(service)),
                str,
            ),
            "QueryPanel": (
                lambda: self._panel(
                    tk.QueryPanel(service, value=tk.VectorQuery(data="x"))
                ),
                str,
            ),
            "MetadataFilterPanel": (
                lambda: self._panel(tk.MetadataFilterPanel(service, value="n > 0")),
                str,
            ),
            "toolkit": (lambda: self._command(random, folder), int),
        }

    def _synced(
        self, folder: Path, random: Random, load: dict[str, Any]
    ) -> pd.DataFrame:
        """Syncs into a snapshot that earlier cases made, most of the time; what is there stays readable."""
        if random.random() < 0.3:
            shutil.rmtree(folder, ignore_errors=True)
        try:
            changes = tk.sync_failures(self.service, folder, **load)
        except ToolkitError:
            if (folder / "_manifest.json").exists() and random.random() < 0.3:
                tk.verify_snapshot(folder)
            raise
        return changes.added

    def _exported(self, random: Random, load: dict[str, Any]) -> pd.DataFrame:
        folder = self.scratch / "exported"
        shutil.rmtree(folder, ignore_errors=True)
        tk.export_vectors(
            self.service, folder, namespace=random.choice(["", "all"]), **load
        )
        return tk.read_snapshot(folder)

    def _callbacks(self, random: Random) -> pd.DataFrame:
        bodies = [
            text(spoilt(random, tree(CALLBACK), random.choice([1, 2, 5])))
            for _ in range(3)
        ]
        if random.random() < 0.3:
            bodies[1] = spoilt_bytes(random, bodies[1])
        way = random.randrange(4)
        if way == 0:
            return tk.load_callbacks(bodies, redactor=self.service.redactor)
        if way == 1:
            return tk.load_callbacks(bodies[1], redactor=self.service.redactor)
        path = self.scratch / ("callbacks.json" if way == 2 else "callbacks.jsonl")
        path.write_bytes(
            b"[" + b",".join(bodies) + b"]" if way == 2 else b"\n".join(bodies)
        )
        return tk.load_callbacks(path, redactor=self.service.redactor)

    def _panel(self, panel: Any) -> str:
        try:
            panel.run()
            return f"{panel.to_code()} {panel!r} {panel._repr_mimebundle_()}"
        finally:
            panel.close()

    def _command(self, random: Random, folder: Path) -> int:
        words = random.choice(
            [
                ["query", "x", *random.choice([[], ["--json"]]), "--top-k", "3"],
                ["snapshot", "failures", str(folder), "--connections", "1"],
                [
                    "snapshot",
                    "vectors",
                    str(self.scratch / "by-command"),
                    "--namespace",
                    "",
                ],
                [
                    "report",
                    "--limit",
                    "4",
                    "--output",
                    str(self.scratch / "report.json"),
                ],
                ["report", "--output", str(self.scratch / "report.md")],
            ]
        )
        return command(words, self.environment)


def two_numbers(texts: list[str]) -> list[list[float]]:
    """Embed texts by their length."""
    return [[1.0, float(len(text))] for text in texts]


def command(words: list[str], environment: dict[str, str]) -> int:
    """The exit status of a command, with these variables."""
    os.environ.update(environment)
    try:
        return main(words)
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        for name in environment:
            del os.environ[name]

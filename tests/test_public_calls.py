"""Every public function, with a wrong value in each argument in turn: a result, or an error that names it.

The service is a real one, the files are real, and every parameter of every public function is in the table: a
new one that is not in it fails the first test.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import inspect
import math
import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import jwt
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import toolkit as tk
from tests.covering import in_turn
from toolkit.errors import (
    FilterSyntaxError,
    IncompleteLoadWarning,
    InputError,
    ToolkitError,
    UnexpectedResultWarning,
)
from toolkit.secrets.redaction import Redactor

MADE_BY_THE_TOOLKIT = {"RedrivePlan", "ReplayGuard", "Service"}
"""Values that functions return. Nobody calls their constructors."""

KEY = "k" * 32
WRONG: dict[str, Any] = {
    "None": None,
    "True": True,
    "0": np.int64(0),
    "-1": -1,
    "1.5": Decimal("1.5"),
    "nan": math.nan,
    "inf": math.inf,
    "10**30": 10**30,
    "10**400": 10**400,
    "empty text": "",
    "text": np.str_("no such"),
    "surrogate": "\ud800",
    "null byte": "a\0b",
    "long text": "x" * 5_000,
    "bytes": b"x",
    "[]": [],
    "[None]": [None],
    "mixed list": ["a", 5],
    "{}": {},
    "dict": {"a": 1},
    "set": {"a", "b"},
    "object": object(),
    "datetime": datetime(2026, 1, 1),  # noqa: DTZ001 - the point
    "timedelta": timedelta(days=-1),
    "NA": pd.NA,
    "NaT": pd.NaT,
    "empty frame": pd.DataFrame(),
    "frame": pd.DataFrame({"a": [1, 2]}),
    "mixed frame": pd.DataFrame({"a": [1, "x"], 5: [None, object()]}),
    "series": pd.Series([1.5, None]),
    "matrix": np.ones((2, 3, 1)),
    "type": int,
}
REMOVING = {"delete_namespace", "delete_vectors", "rename_namespace", "reset_namespace"}
"""What removes the very thing that it is called with: that is made again for each call."""
CALLED = {"progress", "clean", "clock"}
"""Arguments that are called: what a callable of the caller's raises is the caller's own."""
CLOCKED = {"FailurePanel", "count_workflows", "report_failures", "verify_snapshot"}
"""Functions whose `now` may be a clock, which is called. For all others a callable is a wrong value."""


def is_called(name: str, argument: str, value: object) -> bool:
    """Return whether a function calls this value, so that errors of it are the caller's."""
    is_clock = argument == "now" and name in CLOCKED
    return callable(value) and (argument in CALLED or is_clock)


class World:
    """What valid calls need: a service that can be written to, frames of each kind, snapshots."""

    def __init__(
        self, service: tk.Service, hybrid: tk.Service, sample: tk.Service, http_url: str
    ) -> None:
        self.service, self.hybrid, self.http_url = service, hybrid, http_url
        rows = [
            {"id": f"h{n}", "vector": [n, 1.0], "sparse": ([1, n + 2], [n, 1.0])}
            for n in range(5)
        ]
        tk.upsert_vectors(hybrid, rows)
        self.fill()
        self.failures = tk.load_failures(sample, limit=6, progress=False)
        self.runs = tk.load_runs(sample, limit=6, progress=False)
        self.events = pd.DataFrame(
            {
                "time": [pd.Timestamp(0, tz="UTC")],
                "message_id": "m",
                "state": "FAILED",
                "workflow_run_id": "w",
            }
        )
        self.plan = tk.plan_redrive(self.failures, actions="leave")
        self.vectors = tk.load_vectors(service, namespace="", progress=False)
        self.hits = tk.query(service, id=["v1", "v2"], include_metadata=True)
        self.judged = pd.DataFrame({"query": [0], "id": ["v2"]})
        claims = {
            "iss": "Upstash",
            "sub": "https://app.example/done",
            "nbf": 1000,
            "exp": 1300,
            "jti": "jwt_1",
            "body": base64.urlsafe_b64encode(hashlib.sha256(b"{}").digest()).decode(),
        }
        self.signature = jwt.encode(claims, KEY, algorithm="HS256")

    def fill(self) -> None:
        """The vectors of the default namespace, which some calls remove."""
        rows = [
            {"id": f"v{n}", "vector": [n, 1.0], "metadata": {"n": n}} for n in range(5)
        ]
        tk.upsert_vectors(self.service, rows)

    def namespace(self, name: str) -> str:
        """A namespace with a vector, for what removes it."""
        tk.upsert_vectors(
            self.service,
            {"id": "v1", "vector": [1, 1], "metadata": {"n": 2}},
            namespace=name,
        )
        return name

    def ax(self) -> Any:
        """Axes of a figure of their own."""
        return Figure().add_subplot()


def _two_numbers(texts: list[str]) -> list[list[float]]:
    """Embed texts, as a function of the user does."""
    return [[float(len(text)), 1.0] for text in texts]


LOAD = {"progress": False, "connections": 2, "requests_per_second": None, "passes": 1}
INCLUDE = {"include_vectors": True, "include_metadata": True, "include_data": True}
RESULTS = {"top_k": 2, "filter": "", "namespace": "", **INCLUDE}
HITS = {**RESULTS, "hybrid": None}
HYBRID: dict[str, Any] = dict.fromkeys(
    ("weighting_strategy", "fusion_algorithm", "query_mode")
)
FAILURES = {
    "since": None,
    "until": None,
    "kind": "workflows",
    "limit": None,
    "reveal": False,
    **LOAD,
}
FILTER = {
    "since": "7d", "until": "1h", "workflow_url": "u", "label": "a", "failure_function_state": (),
    "caller_ip": "1.2.3.4", "flow_control_key": "k", "response_status": 500, "error": "e",
    "workflow_run_id": "w", "workflow_created_at": "2026-01-01T00:00Z", "now": None,
}  # fmt: skip
PUBLISH = {
    "body": None, "method": "POST", "headers": None, "content_type": None, "retries": 0,
    "timeout": None, "delay": None, "labels": (), "flow_control": None, "deduplication_id": None,
    "content_based_deduplication": False, "redact": (), "callback": None, "failure_callback": None,
}  # fmt: skip
EVENT_FIELDS = [item.name for item in dataclasses.fields(tk.EventFilter)]
RUN_FIELDS = [item.name for item in dataclasses.fields(tk.RunFilter)]
QUERY: dict[str, Any] = dict.fromkeys(("queries", "vector", "sparse", "id", "data"))
CONNECT: dict[str, Any] = dict.fromkeys(
    (
        "vector_url",
        "vector_token",
        "current_signing_key",
        "next_signing_key",
        "region",
        "dialect",
        "where",
    )
)
CONNECT |= {
    "queue_url": "http://127.0.0.1:1", "queue_token": "t0ken-of-mine", "token_in": "header",
    "mask_personal": True, "environ": {},
}  # fmt: skip

CALLS: dict[str, Callable[[World], list[dict[str, Any]]]] = {
    "CallbackReceiver": lambda w: [
        {
            "service": w.service,
            "port": 0,
            "keep": 5,
            "path": "/c",
            "public_url": None,
            "clock": time.time,
        }
    ],
    "CallbackSettings": lambda _: [
        {
            "url": "https://app.example/",
            "timeout": 1,
            "retries": 1,
            "delay": 1,
            "method": "POST",
            "headers": {},
        }
    ],
    "FailurePanel": lambda w: [
        {
            "failures": w.failures,
            "value": None,
            "key": None,
            "redactor": None,
            "rules": None,
            "service": w.service,
            "max_age": "7d",
            "now": None,
            "tz": "Europe/Berlin",
        }
    ],
    "EventFilter": lambda _: [
        dict.fromkeys(EVENT_FIELDS, "a") | {"state": ("FAILED",)}
    ],
    "RunFilter": lambda _: [
        dict.fromkeys(RUN_FIELDS, "a") | {"state": ("RUN_FAILED",)}
    ],
    "FlowControl": lambda _: [
        {"key": "k", "parallelism": 2, "rate": 3, "period": "1m"}
    ],
    "Retries": lambda _: [{"count": 2, "delay": "1000"}],
    "FailureFilter": lambda _: [FILTER],
    "FailureFilterPanel": lambda w: [
        {
            "source": source,
            "value": None,
            "frame": frame,
            "kind": "workflows",
            "key": None,
            "clock": lambda: datetime.now().astimezone(),
            "tz": "Europe/Berlin",
        }
        for source, frame in ((w.service, w.failures), (w.failures, None))
    ],
    "FailureView": lambda _: [
        {
            "search": "a",
            "sort_by": "failed_at",
            "ascending": True,
            "selected": ["a"],
            "groups": [],
            "since": None,
            "until": None,
        }
    ],
    "GroupRules": lambda _: [{"text": "pin s1-5f0c9a3b12de", "learned": None}],
    "MetadataFilterPanel": lambda w: [
        {
            "source": w.service,
            "value": "n > 1",
            "namespace": "",
            "frame": w.vectors,
            "key": None,
        },
        {"source": w.vectors, "value": "", "namespace": "", "frame": None, "key": None},
    ],
    "RedrivePanel": lambda w: [
        {
            "service": w.service,
            "failures": w.failures,
            "value": w.plan,
            "ledger": "redrive.sqlite",
            "redactor": None,
        }
    ],
    "QueryPanel": lambda w: [
        {"service": w.service, "value": None, "frame": w.vectors, "key": None}
    ],
    "watch_failures": lambda w: [
        {
            "service": w.service,
            "path": None,
            "every": "1h",
            "notify": None,
            "confirm": None,
        }
    ],
    "VectorMapPanel": lambda w: [
        {
            "vectors": w.vectors,
            "value": ["v1"],
            "color": "n",
            "query": tk.QueryPanel(w.service),
            "key": None,
            "redactor": None,
        }
    ],
    "HybridOptions": lambda _: [HYBRID],
    "VectorQuery": lambda _: [
        {
            "vector": None,
            "data": None,
            "sparse": None,
            "id": None,
            "exclude_self": False,
            **RESULTS,
            **HYBRID,
        }
        | kind
        for kind in (
            {"vector": [1.0]},
            {"data": "x"},
            {"sparse": ([1], [1.0])},
            {"id": "a"},
        )
    ],
    "as_matrix": lambda w: [{"vectors": w.vectors}],
    "audit_recall": lambda w: [
        {
            "service": w.service,
            "vectors": w.vectors,
            "queries": queries,
            "k": 2,
            "filter": "n > 1",
            "namespace": None,
            "sample": 3,
            "seed": 0,
        }
        for queries in (None, [[1.0, 0.5]])
    ],
    "audit_vectors": lambda w: [
        {"vectors": w.vectors, "sample": None, "similarity": None}
    ],
    "calibrate_threshold": lambda w: [
        {
            "vectors": source,
            "labels": labels,
            "queries": None,
            "precision": 0.9,
            "confidence": 0.95,
            "similarity": None,
            "namespace": "" if source is w.service else None,
            "seed": 0,
        }
        for source, labels in (
            (w.service, None),
            (w.vectors, pd.DataFrame({"score": [0.5, 0.9], "match": [False, True]})),
        )
    ],
    "compare_vectors": lambda w: [
        {
            "before": w.vectors[:3],
            "after": w.vectors,
            "groups": None,
            "namespace": "",
            "seed": 0,
        }
    ],
    "classify_failures": lambda w: [{"failures": w.failures}],
    "explain_change": lambda w: [
        {
            "after": w.failures,
            "before": w.failures,
            "attributes": ["workflow_url"],
            "weight": None,
            "exposure": 2.0,
            "apart_by": ["failure_function_state"],
        },
    ],
    "select_failures": lambda w: [
        {
            "failures": w.failures,
            "condition": {"response_status": "500"},
            "since": "2000-01-01",
            "until": None,
        },
    ],
    "erase_failures": lambda _: [
        {"path": "kept", "dlq_ids": ["a"], "confirm": True, "filesystem": None}
    ],
    "explain_spike": lambda w: [
        {
            "failures": w.failures,
            "window": None,
            "baseline": None,
            "now": None,
            "progress": False,
        },
    ],
    "compare_failures": lambda w: [
        {
            "before": w.failures[:4],
            "after": w.failures[2:],
            "since": None,
            "snapshot": None,
            "history": w.failures[:5],
            "exposure": 1.0,
            "runs": None,
            "retried": {},
            "retention": "7d",
            "now": None,
            "rules": None,
        }
    ],
    "find_retry_outcomes": lambda w: [
        {
            "before": w.failures[:4],
            "after": w.failures[2:],
            "runs": None,
            "callbacks": None,
            "retried": {},
            "retention": "7d",
            "now": None,
        }
    ],
    "replay_failure": lambda w: [
        {
            "failures": w.failures[:2],
            "to": "http://127.0.0.1:9",
            "keys": None,
            "secrets": {},
            "per_group": 1,
            "confirm": None,
            "signed_url": None,
            "timeout": "1s",
            "progress": False,
        }
    ],
    "check_fix": lambda w: [
        {
            "failures": w.failures,
            "group": next(iter(tk.group_failures(w.failures).frame["group"]), "none"),
            "since": "1h",
            "runs": None,
            "redrive": None,
            "rules": None,
            "now": None,
            "progress": False,
        }
    ],
    "reproduce": lambda w: [{"failure": w.failures[:1]}],
    "find_similar_failures": lambda w: [
        {
            "failures": w.failures[:20],
            "history": w.failures[2:],
            "k": 2,
            "runs": None,
            "retried": {},
            "retention": "7d",
            "rules": None,
            "namespace": "memory",
            "embed": None,
        },
        {
            "failures": w.failures[:2],
            "history": w.service,
            "k": 2,
            "runs": None,
            "retried": None,
            "retention": None,
            "rules": None,
            "namespace": "memory",
            "embed": _two_numbers,
        },
    ],
    "index_failures": lambda w: [
        {
            "failures": w.failures[:2],
            "service": w.service,
            "namespace": "memory",
            "embed": _two_numbers,
            "rules": None,
            "runs": None,
            "retried": {},
            "progress": False,
        }
    ],
    "suggest_runbooks": lambda w: [
        {
            "groups": groups,
            "service": w.service,
            "namespace": "",
            "k": 2,
            "embed": _two_numbers,
            "cut": cut,
        }
        for groups, cut in (
            (w.failures[:2], None),
            (tk.group_failures(w.failures), 0.5),
        )
    ],
    "count_by": lambda w: [{"failures": w.failures, "column": "workflow_url"}],
    "count_by_hour": lambda w: [{"failures": w.failures, "tz": "UTC"}],
    "count_deliveries": lambda w: [
        {
            "failures": w.failures,
            "runs": w.runs,
            "callbacks": None,
            "price": 0.5,
        }
    ],
    "count_errors": lambda w: [{"failures": w.failures, "top": None, "clean": None}],
    "count_expiring": lambda w: [
        {"failures": w.failures, "retention": "7d", "now": None, "by": by}
        for by in (None, "workflow_url")
    ],
    "count_labels": lambda w: [{"failures": w.failures}],
    "count_over_time": lambda w: [
        {
            "failures": w.failures,
            "by": None,
            "freq": "D",
            "top": 3,
            "now": None,
            "tz": "Europe/Berlin",
        }
    ],
    "count_states": lambda w: [{"failures": w.failures}],
    "count_workflows": lambda w: [
        {"failures": w.failures, "now": None, "span": "24h", "max_age": "7d"}
    ],
    "find_expiring": lambda w: [
        {"failures": w.failures, "retention": "7d", "now": None, "within": "24h"}
    ],
    "flatten": lambda w: [{"frame": w.vectors, "vectors": "text"}],
    "export_csv": lambda w: [{"frame": w.failures, "path": "failures.csv"}],
    "export_excel": lambda w: [
        {"frame": w.failures, "path": "failures.xlsx", "progress": False}
    ],
    "compare_fusion": lambda w: [
        {
            "service": w.hybrid,
            "queries": tk.VectorQuery(vector=[1.0, 0.0], sparse=([1], [1.0])),
            "judgements": judgements,
            "k": 3,
            "depth": 10,
            "namespace": "",
            "seed": 0,
            "progress": False,
        }
        for judgements in (None, pd.DataFrame({"query": [0], "id": ["h1"]}))
    ],
    "group_hits": lambda w: [{"hits": w.hits, "by": "id"}],
    "score_hits": lambda w: [
        {"hits": w.hits, "judgements": w.judged, "by": by, "k": 3}
        for by in (None, "id")
    ],
    "compare_hits": lambda w: [
        {
            "before": w.hits,
            "after": w.hits,
            "judgements": w.judged,
            "by": None,
            "k": 3,
            "seed": 0,
        }
    ],
    "connect": lambda _: [
        CONNECT,
        CONNECT | {"vector_url": "http://127.0.0.1:1", "vector_token": "t0ken"},
    ],
    "delete_failures": lambda w: [
        {"service": w.service, "dlq_ids": ["a"], "confirm": True, "kind": "workflows"}
    ],
    "delete_namespace": lambda w: [
        {"service": w.service, "namespace": w.namespace("removed"), "confirm": True}
    ],
    "delete_vectors": lambda w: [
        {"service": w.service, "namespace": w.namespace("deleted"), "confirm": True}
        | dict.fromkeys(("ids", "prefix", "filter"))
        | chosen
        for chosen in ({"ids": ["v1"]}, {"prefix": "v"}, {"filter": "n > 1"})
    ],
    "rename_namespace": lambda w: [
        {
            "service": w.service,
            "namespace": w.namespace("old"),
            "new_name": "new",
            "overwrite": True,
            "confirm": True,
        }
    ],
    "reset_namespace": lambda w: [
        {"service": w.service, "namespace": w.namespace("emptied"), "confirm": True}
    ],
    "explode_headers": lambda w: [{"failures": w.failures, "column": "headers"}],
    "explode_labels": lambda w: [{"failures": w.failures}],
    "explode_steps": lambda w: [{"failures": w.failures}],
    "explode_metadata": lambda w: [{"frame": w.vectors, "fields": None}],
    "collect_metadata": lambda w: [
        {"frame": w.vectors[["id", "data"]], "fields": None, "json_fields": None}
    ],
    "export_vectors": lambda w: [
        {
            "service": w.service,
            "path": "exported",
            "namespace": "",
            "prefix": None,
            **INCLUDE,
            **LOAD,
            "filesystem": None,
        }
    ],
    "report_failures": lambda w: [
        {
            "failures": w.failures,
            "previous": w.failures,
            "retention": "7d",
            "now": None,
            "max_age": "7d",
            "new_since": "2026-01-01T00:00Z",
            "title": None,
            "redactor": Redactor(),
            "redrive": "redrive.sqlite",
            "fixes": [],
            "runbooks": None,
            "tz": "Europe/Berlin",
            "progress": False,
        }
    ],
    "fetch_vectors": lambda w: [
        {"service": w.service, "ids": ids, "prefix": prefix, "namespace": "", **INCLUDE}
        for ids, prefix in ((["v1"], None), (None, "v"))
    ],
    "group_failures": lambda w: [{"failures": w.failures, "rules": None}],
    "describe_index": lambda w: [{"service": w.service}],
    "report_index": lambda w: [
        {
            "index": w.vectors,
            "vectors": None,
            "previous": None,
            "labels": None,
            "queries": None,
            "pinned": None,
            "k": 2,
            "precision": 0.9,
            "groups": None,
            "similarity": None,
            "namespace": None,
            "sample": 3,
            "seed": 0,
            "now": None,
            "title": None,
            "redactor": None,
            "progress": False,
        }
    ],
    "iter_failures": lambda w: [{"service": w.service, "filter": None, **FAILURES}],
    "iter_query": lambda w: [
        {
            "service": w.service,
            "wanted": tk.VectorQuery(id="v1", top_k=2),
            "max_idle": 60,
        }
    ],
    "iter_vectors": lambda w: [
        {
            "service": w.service,
            "namespace": "",
            "prefix": None,
            "filter": None,
            "limit": None,
            **INCLUDE,
            **LOAD,
        }
    ],
    "list_namespaces": lambda w: [{"service": w.service}],
    "load_callbacks": lambda _: [
        {
            "source": [{"status": 200}],
            "redactor": Redactor(),
            "reveal": False,
            "limit": None,
        }
    ],
    "load_events": lambda w: [
        {
            "service": w.service,
            "since": "7d",
            "until": None,
            "filter": tk.EventFilter(state="FAILED", label=["a"]),
            "limit": None,
            "reveal": False,
            "progress": False,
        }
    ],
    "load_failure": lambda w: [
        {"service": w.service, "dlq_id": "a", "kind": "workflows", "reveal": False}
    ],
    "load_failures": lambda w: [{"service": w.service, "filter": None, **FAILURES}],
    "load_runs": lambda w: [
        {
            "service": w.service,
            "since": "7d",
            "until": None,
            "filter": tk.RunFilter(state="RUN_FAILED", workflow_run_id="w"),
            "limit": None,
            "reveal": False,
            "progress": False,
        }
    ],
    "load_vectors": lambda w: [
        {
            "service": w.service,
            "namespace": "",
            "prefix": None,
            "filter": None,
            "limit": None,
            **INCLUDE,
            **LOAD,
            "memory_limit": None,
        }
    ],
    "match_metadata": lambda w: [{"frame": w.vectors, "filter": "n > 1"}],
    "parse_filter": lambda _: [{"text": "n > 1"}],
    "filter_literal": lambda _: [{"value": "it's"}],
    "plot_callback_states": lambda w: [
        {"failures": w.failures, "ax": w.ax(), "theme": "light"}
    ],
    "plot_expiry": lambda w: [
        {
            "failures": w.failures,
            "retention": "7d",
            "now": None,
            "tz": "UTC",
            "ax": w.ax(),
            "theme": "light",
        }
    ],
    "plot_failure_calendar": lambda w: [
        {"failures": w.failures, "tz": "UTC", "ax": w.ax(), "theme": "light"}
    ],
    "plot_failure_groups": lambda w: [
        {
            "failures": w.failures,
            "groups": None,
            "freq": "1h",
            "top": 3,
            "layout": "facets",
            "now": None,
            "tz": "UTC",
            "ax": w.ax(),
            "theme": "light",
        }
    ],
    "plot_failure_matrix": lambda w: [
        {
            "failures": w.failures,
            "rows": "workflow_url",
            "columns": "response_status",
            "top": 5,
            "ax": w.ax(),
            "theme": "light",
        }
    ],
    "plot_failure_trend": lambda w: [
        {
            "failures": w.failures,
            "by": "workflow_url",
            "freq": "D",
            "top": 3,
            "layout": "stacked",
            "now": None,
            "tz": "UTC",
            "markers": {"release 2.3": "2026-03-15T06:00Z"},
            "runs": None,
            "ax": w.ax(),
            "theme": "light",
        }
    ],
    "plot_retries_used": lambda w: [
        {"frame": w.failures, "ax": w.ax(), "theme": "light"}
    ],
    "plot_run_timeline": lambda w: [
        {
            "events": w.events,
            "steps": None,
            "run_id": "w",
            "ax": w.ax(),
            "theme": "light",
        }
    ],
    "plot_success_rates": lambda w: [
        {"runs": w.runs, "freq": "D", "top": 3, "ax": w.ax(), "theme": "light"}
    ],
    "run_rates": lambda w: [{"runs": w.runs, "freq": "D"}],
    "summarize_runs": lambda w: [{"runs": w.runs}],
    "plot_score_by_rank": lambda w: [
        {"hits": w.hits, "by": "query", "top": 2, "ax": w.ax(), "theme": "light"}
    ],
    "plot_score_comparison": lambda w: [
        {
            "before": w.hits,
            "after": w.hits,
            "names": ("a", "b"),
            "ax": w.ax(),
            "theme": "light",
        }
    ],
    "plot_score_distribution": lambda w: [
        {
            "hits": w.hits,
            "by": "query",
            "kind": None,
            "bins": 5,
            "top": 2,
            "ax": w.ax(),
            "theme": "light",
        }
    ],
    "plot_time_to_failure": lambda w: [
        {"failures": w.failures, "ax": w.ax(), "theme": "light"}
    ],
    "plot_vector_norms": lambda w: [
        {"vectors": w.vectors, "bins": 5, "ax": w.ax(), "theme": "light"}
    ],
    "plot_vector_map": lambda w: [
        {"vectors": w.vectors, "color": "n", "ax": w.ax(), "theme": "light"}
    ],
    "project_vectors": lambda w: [
        {
            "vectors": w.vectors,
            "method": method,
            "namespace": "",
            "sample": None,
            "seed": 0,
            "progress": False,
        }
        for method in ("pca", "tsne")
    ],
    "plan_redrive": lambda w: [
        {
            "failures": w.failures,
            "actions": actions,
            "idempotent": (),
            "changed": (),
            "include": (),
            "history": None,
            "retention": "7d",
            "canaries": 1,
            "wave": 5,
            "stop_above": 0.2,
            "deadline": "10m",
            "rate": None,
            "parallelism": None,
        }
        for actions in (None, "restart", {})
    ],
    "cancel_messages": lambda w: [
        {"service": w.service, "message_ids": ["m"], "confirm": True}
    ],
    "pin_queries": lambda w: [
        {
            "service": w.service,
            "queries": tk.VectorQuery(vector=[1.0, 0.5]),
            "path": "pinned.parquet",
            "k": 2,
            "namespace": "",
        }
    ],
    "check_queries": lambda w: [
        {
            "service": w.service,
            "path": pinned_path(w),
            "judgements": None,
            "seed": 0,
        }
    ],
    "cancel_runs": lambda w: [
        {"service": w.service, "workflow_run_ids": "w", "confirm": True}
    ],
    "publish_batch": lambda w: [
        {
            "service": w.service,
            "messages": [{"url": "http://127.0.0.1:9/x"}],
            "batch_id": None,
            "confirm": True,
        }
    ],
    "publish": lambda w: [
        {"service": w.service, "url": "http://127.0.0.1:9/x", **PUBLISH},
    ],
    "query": lambda w: [
        {"service": w.service, **QUERY, **HITS, "exclude_self": None} | kind
        for kind in (
            {"vector": [1.0, 0.0]},
            {"vector": [1.0, 0.0], "namespace": ["", "other"]},
            {"queries": tk.VectorQuery(vector=[1.0, 0.0])},
            {"id": "v1", "exclude_self": True},
            {"data": "x"},
            {"sparse": ([1], [1.0])},
        )
    ],
    "query_text": lambda w: [{"service": w.service, "text": "x", **HITS}],
    "read_snapshot": lambda _: [
        {"path": "written", "filesystem": None, "memory_limit": None}
    ],
    "get_receipt": lambda w: [{"frame": w.failures}],
    "read_redrive_history": lambda _: [{"ledger": "redrive.sqlite"}],
    "read_redrive_status": lambda w: [
        {"ledger": "redrive.sqlite", "plan": w.plan.hash}
    ],
    "rerun_failure_functions": lambda w: [
        {"service": w.service, "dlq_ids": "a", "confirm": True}
    ],
    "restore_vectors": lambda w: [
        {
            "service": w.service,
            "snapshot": "written",
            "namespace": "restored",
            "ids": None,
            "prefix": None,
            "from_namespaces": None,
            "checkpoint": None,
            "progress": False,
            "filesystem": None,
        }
    ],
    "restart_failures": lambda w: [
        {"service": w.service, "dlq_ids": "a", "confirm": True}
    ],
    "resume_failures": lambda w: [
        {"service": w.service, "dlq_ids": "a", "confirm": True}
    ],
    "run_redrive": lambda w: [
        {
            "service": w.service,
            "plan": w.plan,
            "ledger": "redrive.sqlite",
            "confirm": w.plan.confirmation,
            "progress": False,
            "stop": None,
        }
    ],
    "open_snapshot": lambda _: [{"path": "written", "filesystem": None}],
    "start_run": lambda w: [
        {"service": w.service, "url": w.http_url, "body": None, "headers": None}
    ],
    "summarize": lambda w: [
        {"frame": frame} for frame in (w.failures, w.vectors, w.hits)
    ],
    "sync_failures": lambda w: [
        {
            "service": w.service,
            "path": "synced",
            "filter": None,
            "kind": "workflows",
            **LOAD,
            "filesystem": None,
            "repair": False,
            "rebind": False,
            "retention": "7d",
        }
    ],
    "update_vectors": lambda w: [
        {
            "service": w.service,
            "filter": None,
            "rows": [{"id": "v1", "vector": [1.0, 1.0]}],
            "namespace": None,
            "metadata_update_mode": "PATCH",
            "progress": False,
        }
    ],
    "upsert_vectors": lambda w: [
        {
            "service": w.service,
            "rows": [{"id": "v1", "vector": [1.0, 1.0]}],
            "namespace": None,
            "progress": False,
        }
    ],
    "verify_signature": lambda w: [
        {
            "signature": w.signature,
            "body": b"{}",
            "url": "https://app.example/done",
            "keys": [KEY],
            "region": None,
            "now": 1100,
            "leeway": 5.0,
            "issuer": "Upstash",
            "seen": tk.ReplayGuard(),
        }
    ],
    "verify_snapshot": lambda _: [
        {"path": "written", "filesystem": None, "max_age": "7d", "now": None}
    ],
    "write_snapshot": lambda w: [
        {
            "frame": w.failures,
            "path": "written-again",
            "schema": None,
            "filesystem": None,
        }
    ],
}


@pytest.fixture(scope="module")
def world(local_indexes, sample_service) -> World:
    """Everything that valid calls need, made once."""
    return World(local_indexes["dense"], local_indexes["hybrid"], sample_service, "")


def pinned_path(w: World) -> str:
    """Return the path of a file with one pinned query."""
    asked = tk.VectorQuery(vector=[1.0, 0.5])
    tk.pin_queries(w.service, asked, "pinned-before.parquet")
    return "pinned-before.parquet"


@pytest.fixture(scope="module")
def files(world, tmp_path_factory) -> Path:
    """A folder with a snapshot and the ledger of a redrive, which each test copies."""
    folder: Path = tmp_path_factory.mktemp("files")
    tk.write_snapshot(world.vectors, folder / "written")
    tk.sync_failures(world.service, folder / "kept", progress=False)
    tk.run_redrive(
        world.service,
        world.plan,
        ledger=folder / "redrive.sqlite",
        confirm=world.plan.confirmation,
        progress=False,
    )
    return folder


@pytest.fixture
def around(world, files, server, tmp_path, monkeypatch) -> World:
    """The world, in a folder of the test's own with a snapshot, and an application that starts runs."""
    monkeypatch.chdir(tmp_path)
    server.always(b'{"workflowRunId": "wfr_1"}')
    world.http_url = server.url
    world.fill()
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    return world


def function_of(name: str) -> Callable[..., Any]:
    """Return the public function or class of this name."""
    homes = (tk, tk.plots, tk.analysis)
    home = next(home for home in homes if name in home.__all__)
    function: Callable[..., Any] = getattr(home, name)
    return function


def named_parameters(function: Callable[..., Any]) -> set[str]:
    """Names of the parameters, without the one that collects unknown names to refuse them."""
    parameters = inspect.signature(function).parameters.values()
    return {
        one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD
    }


def test_the_table_holds_every_public_function_and_parameter(around):
    """What is new is tried too, or this fails."""
    public = {name for name in tk.__all__ if callable(getattr(tk, name))}
    called = public - MADE_BY_THE_TOOLKIT | {*tk.plots.__all__}
    assert called <= CALLS.keys()
    assert CALLS.keys() - called <= {*tk.analysis.__all__}
    for name, make in CALLS.items():
        for base in make(around):
            assert named_parameters(function_of(name)) == set(base), name


def call(name: str, arguments: dict[str, Any]) -> None:
    """Call a public function; of a generator, take the first piece; close what was opened."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteLoadWarning)
        warnings.simplefilter("ignore", UnexpectedResultWarning)
        # an address on http that is not this machine: said once at connect
        warnings.filterwarnings("ignore", message=".*the token is sent in clear text")
        result = function_of(name)(**arguments)
        if isinstance(result, Iterator):
            next(result, None)
        if name == "CallbackReceiver" and arguments["port"] != 0:
            # listening is tried with odd ports alone, as the end of it takes half a second
            with result:
                pass
        if name.endswith("Panel") or name == "watch_failures":
            result.close()
    plt.close("all")


SHORT = 2
"""Letters of a name that is a part of many other words."""


def names(error: Exception, argument: str) -> bool:
    """Whether the message names the argument, or the header that is made of it."""
    if len(argument) <= SHORT:
        # "axis" and "max" do not name `ax`
        return re.search(rf"(?<![a-z]){argument}(?![a-z])", str(error)) is not None
    message = re.sub(r"[-_ ]", "", str(error)).lower()
    return argument.replace("_", "").removesuffix("s") in message


class Unused:
    """Axes on which nothing is drawn: drawing twice on the same is another matter."""

    axes: Axes | None = None
    children: ClassVar[list[Any]] = []

    @classmethod
    def taken(cls) -> Axes:
        """Return Axes of a figure of their own. A call that is refused leaves them as they were."""
        if cls.axes is None or cls.axes.get_children() != cls.children:
            cls.axes = Figure().add_subplot()
            cls.children = cls.axes.get_children()
        return cls.axes


def problem(name: str, base: dict[str, Any], argument: str, value: Any) -> str | None:
    """What is wrong with what a call did: an error that is none of ours, or one that names nothing."""
    ax = {"ax": Unused.taken()} if "ax" in base else {}
    try:
        call(name, base | ax | {argument: value})
    except FilterSyntaxError:
        return None  # it shows the text and the position
    except InputError as error:
        return None if names(error, argument) else f"does not name it: {error}"
    except ToolkitError:
        return None
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
        return f"{type(error).__name__}: {str(error)[:200]}"
    return None


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_valid_call_is_valid(around, name):
    """What the wrong values are put into works, or is refused by the service alone."""
    for base in CALLS[name](around):
        try:
            call(name, base)
        except InputError as error:
            pytest.fail(f"{name}: {error}")
        except ToolkitError:
            pass


def as_numpy(value: Any) -> Any:
    """A value as it comes out of an array or an object column: the same, of a class of numpy."""
    if type(value) is dict:
        return {as_numpy(key): as_numpy(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(as_numpy, value))
    return {str: np.str_, int: np.int64, float: np.float64, bool: np.bool_}.get(
        type(value), lambda same: same
    )(value)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_values_of_numpy_are_valid_where_those_of_python_are(around, name):
    """Texts, whole numbers and floats of numpy's classes, alone and within lists and dicts."""
    for base in CALLS[name](around):
        try:
            call(name, {argument: as_numpy(value) for argument, value in base.items()})
        except InputError as error:
            pytest.fail(f"{name}: {error}")
        except ToolkitError:
            pass


@functools.cache
def functions_with(argument: str) -> list[str]:
    """Return the names of all functions in the table that have an argument of this name."""
    return [
        name
        for name in sorted(CALLS)
        if argument in named_parameters(function_of(name))
    ]


def wrong_values(name: str, argument: str) -> list[tuple[str, Any]]:
    """Return the wrong values to try in an argument of a function.

    Functions with an argument of the same name share its check. For example, 20 functions have `now`. If
    there are three such functions or more, each tries a third of the values, so that every value is tried
    in every name.
    """
    functions = functions_with(argument)
    turns = min(3, len(functions))
    return in_turn(WRONG.items(), functions.index(name), of=turns)


@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.slow
def test_a_wrong_value_in_any_argument_is_an_error_that_names_it(around, name):
    """A documented result, or a ToolkitError; one about the input says which argument it is."""
    found = [
        f"{name}({argument}={label}): {said}"
        for number, base in enumerate(CALLS[name](around))
        for argument in base
        for label, value in wrong_values(name, argument)
        if not is_called(name, argument, value)
        # the valid call itself is tested above
        if value is not base[argument]
        if (
            said := problem(
                name,
                CALLS[name](around)[number] if name in REMOVING else base,
                argument,
                value,
            )
        )
    ]
    assert not found, "\n".join(found)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=4)
    | st.datetimes()
    | st.timedeltas()
    | st.sampled_from(list(WRONG.values())),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_anything_anywhere_is_a_result_or_an_error_of_ours(around, data):
    """Values nobody thought of, in an argument of any function."""
    name = data.draw(st.sampled_from(sorted(CALLS)))
    base = data.draw(st.sampled_from(CALLS[name](around)))
    argument = data.draw(st.sampled_from(sorted(base)))
    value = data.draw(ANYTHING)
    assume(not is_called(name, argument, value))
    said = problem(name, base, argument, value)
    assert said is None, f"{name}({argument}={value!r}): {said}"

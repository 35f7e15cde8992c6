"""Ordinary pandas calls on every frame that the toolkit returns."""

from __future__ import annotations

import io
import json
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.analysis import (
    count_by,
    count_labels,
    explain_change,
    failure_trend,
    find_incidents,
)
from toolkit.base.progress import ProgressBar
from toolkit.loading.load import Load, LoadPlan, LoadState
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES, RUNS, hits, vectors

Frames = dict[str, pd.DataFrame]
_TIME = 1_767_225_600_000


def _failures() -> list[dict[str, Any]]:
    """Rows with everything: headers that repeat, labels, bytes, missing values, an equal neighbour."""
    return [
        {
            "dlq_id": f"dlq_{number}",
            "failed_at": None if number == 3 else _TIME + number,
            "created_at": _TIME,
            "workflow_url": "https://shop.example/pay",
            "response_status": [500, 429, None][number % 3],
            "labels": [None, '["eu","beta"]'][number % 2],
            "headers": '{"Content-Type":["text/plain"],"X-Many":["=1+1","é"]}',
            "body": [None, "text", ""][number % 3],
            "body_base64": "//4A" if number % 3 == 0 else None,
            "response_body": '{"error": "no user 17"}',
            "extra": '{"cause":{"n":9007199254740993}}',
        }
        for number in range(6)
    ]


def _sync(path: Path, names: str) -> Any:
    """Sync the entries of these names, one letter each."""
    rows = [
        {**row, "dlq_id": name} for name, row in zip(names, _failures(), strict=False)
    ]

    def tables(_: LoadState) -> Iterator[Any]:
        yield pa_table(rows)

    plan = LoadPlan(
        what="failures",
        source="http://127.0.0.1:1",
        scope={},
        schema=FAILURES,
        key=("dlq_id",),
    )
    return sync_load(
        Load(plan, tables, lambda: ProgressBar(False, title="", unit="")),
        SnapshotStore(path),
    )


def pa_table(rows: list[dict[str, Any]]) -> Any:
    """The rows as a table of failures."""
    import pyarrow as pa  # noqa: PLC0415 - only here

    return pa.Table.from_pylist(rows, schema=FAILURES)


def _vectors(service: tk.Service, half: str) -> pd.DataFrame:
    """Vectors of an index, through the service: written, and loaded again."""
    space = "pandas-calls"
    rows = [
        {
            "id": f"v{number}",
            "metadata": {"n": number, "city": "İzmir"},
            "data": f"text {number}",
        }
        | ({"vector": [0.1 * number, 1.5]} if half != "sparse" else {})
        | (
            {"sparse": {"indices": [1, 7 + number], "values": [0.5, 0.25]}}
            if half != "dense"
            else {}
        )
        for number in range(4)
    ]
    tk.upsert_vectors(service, rows, namespace=space)
    return tk.load_vectors(service, namespace=space, progress=False)


@pytest.fixture(scope="module")
def frames(local_indexes, tmp_path_factory) -> Frames:
    """Every kind of frame, by name."""
    failures = frame_from_rows(_failures(), FAILURES)
    path = tmp_path_factory.mktemp("snapshot")
    _sync(path, "abcd")
    changes = _sync(path, "bcde")
    dense, sparse, hybrid = (
        _vectors(local_indexes[name], name) for name in ("dense", "sparse", "hybrid")
    )
    found = tk.query(
        local_indexes["hybrid"],
        vector=[0.1, 1.5],
        sparse=([1], [0.5]),
        top_k=3,
        namespace="pandas-calls",
        include_vectors=True,
        include_metadata=True,
        include_data=True,
    )
    changed = pd.concat([failures] * 20, ignore_index=True)
    explained = explain_change(
        changed,
        changed.iloc[::3].head(30),
        attributes=["response_status", "workflow_url"],
    )
    times = pd.date_range("2026-03-01", periods=200, freq="61min", tz="UTC")
    burst = pd.date_range("2026-03-05 10:00", periods=60, freq="min", tz="UTC")
    history = pd.DataFrame(
        {
            "failed_at": [*times, *burst],
            "workflow_url": ["pay", "mail"] * 100 + ["pay"] * 60,
        }
    ).assign(created_at=lambda frame: frame["failed_at"])
    audit = tk.audit_vectors(dense)
    callback = {
        "status": 200,
        "body": "//4A",
        "header": {"A": ["1"]},
        "sourceMessageId": "m",
    }
    run = {
        "workflow_run_id": "wfr_1",
        "state": "RUN_FAILED",
        "created_at": _TIME,
        "labels": '["eu"]',
    }
    frames = {
        "failures": failures,
        "headers": tk.explode_headers(failures),
        "labels": tk.explode_labels(failures),
        "runs": frame_from_rows([run, {"workflow_run_id": "wfr_2"}], RUNS),
        "callbacks": tk.load_callbacks([json.dumps(callback), "{}"]),
        "dense": dense,
        "sparse": sparse,
        "hybrid": hybrid,
        "metadata": tk.explode_metadata(dense),
        "matched": dense[tk.match_metadata(dense, "n >= 2")],
        "hits": found,
        "unknown dimension": frame_from_rows(
            [{"namespace": "", "id": "a", "vector": [1, 2]}], vectors()
        ),
        "snapshot": tk.read_snapshot(path),
        "added": changes.added,
        "changed": changes.changed,
        "gone": changes.gone,
        "counted": count_by(failures, "response_status"),
        "counted labels": count_labels(failures),
        "trend": failure_trend(failures).to_frame(),
        "explanation": explained.frame,
        "incidents": find_incidents(history),
        "groups": tk.group_failures(failures).frame,
        "classes": tk.classify_failures(failures).frame,
        "comparison": tk.compare_failures(failures.head(3), failures).frame,
        "redrive plan": tk.plan_redrive(failures).frame,
        "audit": audit.frame,
        "recall": tk.audit_recall(local_indexes["dense"], dense, sample=4).frame,
        "projection": tk.project_vectors(dense).frame,
        "vector changes": tk.compare_vectors(dense.head(3), dense).frame,
        "no vectors": frame_from_rows([], vectors(2)),
        "no hits": frame_from_rows([], hits(2)),
        "no failures": failures.head(0),
    }
    assert len(frames["gone"]) == 1
    assert len(found) == 3
    return frames


KINDS = [
    "failures", "headers", "labels", "runs", "callbacks", "dense", "sparse", "hybrid", "metadata", "matched",
    "hits", "unknown dimension", "snapshot", "added", "changed", "gone", "counted", "counted labels", "trend",
    "explanation", "incidents", "groups", "classes", "comparison", "redrive plan", "audit", "recall",
    "projection", "vector changes", "no vectors", "no hits", "no failures",
]  # fmt: skip


@pytest.fixture(params=KINDS)
def frame(frames, request) -> pd.DataFrame:
    """One of them."""
    found: pd.DataFrame = frames[request.param]
    return found.reset_index(drop=True)


def _same(found: pd.DataFrame, frame: pd.DataFrame) -> None:
    if not _is_same(found, frame):
        pd.testing.assert_frame_equal(found, frame)


def _is_same(found: pd.DataFrame, frame: pd.DataFrame) -> bool:
    """Return whether two frames are the same, in a tenth of the time of pandas' assertion.

    If they are not, the assertion decides, and names the difference. It also decides about categories, whose
    order is a part of them.
    """
    if any(isinstance(kind, pd.CategoricalDtype) for kind in frame.dtypes):
        return False
    return (
        type(found) is type(frame)
        and type(found.index) is type(frame.index)
        and found.index.names == frame.index.names
        and found.index.dtype == frame.index.dtype
        and found.columns.names == frame.columns.names
        and found.columns.dtype == frame.columns.dtype
        and found.dtypes.equals(frame.dtypes)
        and found.flags == frame.flags
        and found.equals(frame)
    )


def _each_column(frame: pd.DataFrame) -> None:
    for name in frame.columns:
        sizes = frame.groupby(name, dropna=False).size()
        assert sizes.sum() == len(frame)
        assert frame[name].value_counts(dropna=False).sum() == len(frame)


def _csv(frame: pd.DataFrame) -> None:
    read = pd.read_csv(io.StringIO(frame.to_csv(index=False)))
    assert list(read.columns) == [str(name) for name in frame.columns]
    assert len(read) == len(frame)
    vectors_of = [
        name for name in frame.columns if str(frame[name].dtype).startswith("vector")
    ]
    for name in vectors_of:
        numbers = [
            json.loads(text) if isinstance(text, str) else None for text in read[name]
        ]
        assert numbers == [
            list(value) if isinstance(value, tuple) else None for value in frame[name]
        ]


def _json(frame: pd.DataFrame) -> None:
    for orient in ("records", "table"):
        text = frame.to_json(orient=orient, date_format="iso")
        rows = json.loads(text) if orient == "records" else json.loads(text)["data"]
        assert len(rows) == len(frame)
    lines = frame.to_json(orient="records", lines=True, date_format="iso")
    read = pd.read_json(io.StringIO(lines), lines=True, precise_float=True)
    assert len(read) == len(frame)
    for name in frame.columns:
        if str(frame[name].dtype).startswith("vector") and len(frame):
            expected = [
                list(value) if isinstance(value, tuple) else None
                for value in frame[name]
            ]
            assert [
                value if isinstance(value, list) else None for value in read[name]
            ] == expected


def _parquet(frame: pd.DataFrame) -> None:
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    read = pd.read_parquet(io.BytesIO(buffer.getvalue()))
    for name in frame.columns[frame.dtypes == "object"]:
        # Parquet has lists, and structures of all names
        assert [_plain(value) for value in read[name]] == [
            _plain(value) for value in frame[name]
        ]
    plain = [name for name in frame.columns if frame[name].dtype != "object"]
    _same(read[plain], frame[plain])


def _plain(value: Any) -> Any:
    """A value as it is read back: lists, times in UTC, and no names without a value."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, datetime):
        return np.datetime64(value.astimezone(UTC).replace(tzinfo=None))
    return (
        [*map(_plain, value)] if isinstance(value, list | tuple | np.ndarray) else value
    )


def _sql(frame: pd.DataFrame) -> None:
    connection = sqlite3.connect(":memory:")
    frame.to_sql("rows", connection, index=False)
    read = pd.read_sql("SELECT * FROM rows", connection)
    assert list(read.columns) == [str(name) for name in frame.columns]
    assert len(read) == len(frame)
    for name in frame.columns:
        if str(frame[name].dtype) in ("str", "Int64") and frame[name].notna().any():
            assert read[name].dropna().tolist() == frame[name].dropna().tolist()
    connection.close()


def _insert(frame: pd.DataFrame) -> None:
    """Row by row with sqlite3 itself: vectors are bound as JSON text."""
    connection = sqlite3.connect(":memory:")
    names = ", ".join(f"c{number}" for number in range(frame.shape[1]))
    connection.execute(f"CREATE TABLE rows ({names})")
    for row in frame.astype(object).where(frame.notna(), None).itertuples(index=False):
        plain = [
            value.isoformat() if isinstance(value, pd.Timestamp) else value
            for value in row
        ]
        connection.execute(
            f"INSERT INTO rows VALUES ({', '.join('?' * len(plain))})",  # noqa: S608
            plain,
        )
    assert connection.execute("SELECT count(*) FROM rows").fetchone() == (len(frame),)
    connection.close()


def _excel(frame: pd.DataFrame) -> None:
    buffer = Path(_excel.folder) / "frame.xlsx"  # type: ignore[attr-defined]
    tk.export_excel(frame, buffer)
    read = pd.read_excel(buffer)
    assert list(read.columns) == [str(name) for name in frame.columns]
    assert len(read) == len(frame)
    for name in frame.columns:
        if str(frame[name].dtype).startswith("datetime64"):
            expected = frame[name].dt.tz_convert("UTC").dt.tz_localize(None)
            found = pd.to_datetime(read[name]).astype("datetime64[ms]")
            assert (
                found.dropna().tolist()
                == expected.astype("datetime64[ms]").dropna().tolist()
            )


def _explode(frame: pd.DataFrame) -> None:
    if "headers" in frame.columns:
        expected = sum(len(json.loads(text)) for text in frame["headers"].dropna())
        if "dlq_id" in frame.columns:
            assert len(
                tk.explode_headers(frame).drop_duplicates(["dlq_id", "name"])
            ) >= min(expected, 1)
    if "metadata" in frame.columns:
        assert len(tk.explode_metadata(frame)) == len(frame)
    if "vector" in frame.columns:
        assert len(frame.explode("vector")) >= len(frame)


def _merge(frame: pd.DataFrame) -> None:
    keys = list(frame.columns)
    unique = frame.drop_duplicates()
    assert len(unique.merge(unique, on=keys)) == len(unique)
    assert len(pd.concat([frame, frame])) == 2 * len(frame)
    assert pd.concat([frame, frame]).dtypes.equals(frame.dtypes)


def _filled(frame: pd.DataFrame) -> None:
    texts = frame.select_dtypes("str")
    assert texts.fillna("none").notna().all(axis=None)
    assert len(frame.dropna()) <= len(frame)


def _strings(frame: pd.DataFrame) -> None:
    whole = frame.astype("str")
    assert whole.shape == frame.shape
    assert set(map(str, whole.dtypes)) <= {"str"}


def _queried(frame: pd.DataFrame) -> None:
    name = frame.columns[0]
    assert len(frame.query(f"`{name}`.notna()")) == frame[name].notna().sum()


def _pivoted(frame: pd.DataFrame) -> None:
    name = frame.columns[0]
    assert (
        frame.pivot_table(index=name, aggfunc="size").sum() == frame[name].notna().sum()
    )


def _repeated(frame: pd.DataFrame) -> None:
    twice = pd.concat([frame, frame], ignore_index=True)
    assert twice.drop_duplicates().equals(frame.drop_duplicates())
    assert twice.duplicated().sum() == len(twice) - len(frame.drop_duplicates())


def _sorted(frame: pd.DataFrame) -> None:
    for name in frame.columns:
        assert len(frame.sort_values(name)) == len(frame)
    frame.sort_values(list(frame.columns[:3]))


def _indexed(frame: pd.DataFrame) -> None:
    for name in frame.columns:
        _same(frame.set_index(name).reset_index()[list(frame.columns)], frame)


def _rows(frame: pd.DataFrame) -> None:
    assert len(list(frame.itertuples())) == len(frame) == len(frame.to_dict("records"))
    assert {
        hash(row) is not None for row in frame.itertuples(index=False, name=None)
    } <= {True}
    json.dumps(frame.to_dict("records"), default=str)


def _shown(frame: pd.DataFrame) -> None:
    assert repr(frame)
    assert frame._repr_html_()
    frame.info(buf=io.StringIO())
    assert frame.memory_usage(deep=True).sum() > 0


CALLS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "nunique": lambda frame: frame.nunique(dropna=False),
    "duplicates": _repeated,
    "describe": lambda frame: frame.describe(include="all") if frame.shape[0] else None,
    "groupby, value_counts": _each_column,
    "merge, concat": _merge,
    "copy": lambda frame: _same(frame.copy(deep=True), frame),
    "sort_values": _sorted,
    "isna": lambda frame: frame.isna().sum().sum() + frame.notna().sum().sum() == frame.size,
    "fillna, dropna": _filled,
    "astype(str)": _strings,
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
    "to_sql": _sql,
    "sqlite3": _insert,
    "to_excel": _excel,
    "to_dict, itertuples": _rows,
    "query": _queried,
    "pivot_table": _pivoted,
    "explode": _explode,
    "set_index": _indexed,
    "pickle": lambda frame: _same(pickle.loads(pickle.dumps(frame)), frame),  # noqa: S301 - our own
    "equals": lambda frame: frame.equals(frame.copy()) or pytest.fail("not equal to its copy"),
    "repr, info, memory_usage": _shown,
    "tail, sample, slices": lambda frame: (frame.tail(2), frame.sample(frac=1), frame[::-1]),
    "transpose": lambda frame: frame.head(3).T,
    "unique": lambda frame: [frame[name].unique() for name in frame.columns],
    "isin, map": lambda frame: [frame[name].isin(frame[name].head(1)) for name in frame.columns],
    "mask": lambda frame: frame.where(frame.notna()),
    "replace": lambda frame: (frame.replace("a", "b"), frame.replace({"a": "b", 1: 2}), frame == "a"),
    "reindex": lambda frame: frame.reindex([*range(len(frame)), 10**6]),
    "shift": lambda frame: frame.shift(1),
    "melt": lambda frame: frame.melt(frame.columns[:1].tolist(), value_name="molten"),
    "hash_pandas_object": pd.util.hash_pandas_object,
    "to_string, to_html": lambda frame: frame.to_string() + frame.to_html(),
    "flatten": lambda frame: pickle.dumps(tk.flatten(frame, vectors="columns")),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_an_ordinary_call_works(frame, call, tmp_path):
    """Every call, on every frame: it returns what pandas documents, and leaves the frame unchanged."""
    _excel.folder = tmp_path  # type: ignore[attr-defined]
    before = frame.copy()
    CALLS[call](frame)
    _same(frame, before)

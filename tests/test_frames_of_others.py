"""Every public function that accepts a frame accepts those of other libraries, or names the conversion."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from tests.widgets.conftest import ordinary
from toolkit.base.arguments import texts as arguments_texts
from toolkit.errors import InputError
from toolkit.tables.frames import checked_frame, frame_from_rows
from toolkit.tables.schemas import FAILURES
from toolkit.vectors.row_encoding import _rows as upsert_rows


class Stream:
    """A frame of a library of which nothing is known: it hands over Arrow, with its own types."""

    def __init__(self, frame: pd.DataFrame) -> None:
        table = pa.Table.from_pandas(
            frame, preserve_index=False
        ).replace_schema_metadata(None)
        kinds = {pa.string(): pa.large_string(), pa.int64(): pa.int32()}
        fields = [
            field.with_type(kinds.get(field.type, field.type)) for field in table.schema
        ]
        self.table = table.cast(pa.schema(fields))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows, as polars hands them over."""
        return self.table.__arrow_c_stream__(requested_schema)


def relation(frame: pd.DataFrame) -> Any:
    """A relation of DuckDB."""
    return duckdb.connect().from_arrow(
        pa.Table.from_pandas(frame, preserve_index=False)
    )


FORMS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "table": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "duckdb": relation,
    "stream": Stream,
}


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    """A small frame of each kind, by the name of the argument."""
    failures = frame_from_rows(ordinary(12), FAILURES)
    body = json.dumps([{"messageId": "m0", "body": "e30="}])
    failures["body"] = pd.Series([body] * 12, dtype="str")
    keys = [f"v{number}" for number in range(40)]
    matrix = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
    vectors = pd.DataFrame(
        {"namespace": [""] * 40, "id": keys, "metadata": ['{"n": 3}'] * 40}
    )
    vectors["vector"] = pd.array(list(matrix), dtype="vector[float32, 3]")
    vectors["data"] = [f"text {key}" for key in keys]
    hits = vectors[["namespace", "id", "metadata"]].assign(
        query=0, rank=range(1, 41), score=0.5
    )
    started = pd.date_range("2026-03-01", periods=8, freq="h", tz="UTC")
    runs = pd.DataFrame(
        {
            "workflow_run_id": [f"wfr_{number}" for number in range(8)],
            "workflow_url": "https://shop.example/pay",
            "state": ["RUN_SUCCESS", "RUN_FAILED"] * 4,
            "created_at": started,
            "completed_at": started + pd.Timedelta(minutes=1),
        }
    )
    events = pd.DataFrame(
        {
            "time": started,
            "message_id": "m",
            "state": "DELIVERED",
            "workflow_run_id": "wfr_1",
        }
    )
    return {
        "failures": failures,
        "vectors": vectors,
        "hits": hits,
        "runs": runs,
        "events": events,
    }


def written(write: Callable[[Any, Path], object], frame: Any, path: Path) -> Path:
    """The file that a function writes."""
    write(frame, path)
    assert path.exists()
    return path


JUDGED = pd.DataFrame({"query": [0, 0], "id": ["v3", "v5"]})

CALLS: dict[str, tuple[str, Callable[..., Any]]] = {
    "FailurePanel": ("failures", lambda frame, _: tk.FailurePanel(frame).found()),
    "FailureFilterPanel": (
        "failures",
        lambda frame, _: tk.FailureFilterPanel(frame).frame(),
    ),
    "MetadataFilterPanel": (
        "vectors",
        lambda frame, _: tk.MetadataFilterPanel(frame).frame(),
    ),
    "RedrivePanel": (
        "failures",
        lambda frame, _: tk.RedrivePanel(None, frame).value.frame,
    ),
    "VectorMapPanel": (
        "vectors",
        lambda frame, _: tk.VectorMapPanel(frame).projection.frame,
    ),
    "as_matrix": ("vectors", lambda frame, _: tk.as_matrix(frame)),
    "audit_vectors": ("vectors", lambda frame, _: tk.audit_vectors(frame).frame),
    "calibrate_threshold": (
        "vectors",
        lambda frame, _: tk.calibrate_threshold(frame, similarity="COSINE").frame,
    ),
    "classify_failures": (
        "failures",
        lambda frame, _: tk.classify_failures(frame).frame,
    ),
    "compare_failures": (
        "failures",
        lambda frame, _: tk.compare_failures(frame, frame).frame,
    ),
    "compare_vectors": (
        "vectors",
        lambda frame, _: tk.compare_vectors(frame, frame).frame,
    ),
    "count_by": (
        "failures",
        lambda frame, _: tk.analysis.count_by(frame, "workflow_url"),
    ),
    "count_by_hour": ("failures", lambda frame, _: tk.analysis.count_by_hour(frame)),
    "count_deliveries": (
        "failures",
        lambda frame, _: tk.analysis.count_deliveries(frame),
    ),
    "count_errors": ("failures", lambda frame, _: tk.analysis.count_errors(frame)),
    "count_expiring": ("failures", lambda frame, _: tk.analysis.count_expiring(frame)),
    "count_labels": ("failures", lambda frame, _: tk.analysis.count_labels(frame)),
    "count_over_time": (
        "failures",
        lambda frame, _: tk.analysis.count_over_time(frame),
    ),
    "count_states": ("failures", lambda frame, _: tk.analysis.count_states(frame)),
    "count_workflows": (
        "failures",
        lambda frame, _: tk.analysis.count_workflows(frame),
    ),
    "find_expiring": (
        "failures",
        lambda frame, _: tk.find_expiring(frame, now="2026-03-10T12:00Z"),
    ),
    "explain_change": (
        "failures",
        lambda frame, _: tk.analysis.explain_change(frame, frame).frame,
    ),
    "explain_spike": ("failures", lambda frame, _: tk.explain_spike(frame).frame),
    "explode_headers": ("failures", lambda frame, _: tk.explode_headers(frame)),
    "explode_labels": ("failures", lambda frame, _: tk.explode_labels(frame)),
    "collect_metadata": (
        "vectors",
        lambda frame, _: tk.collect_metadata(frame, fields=["data"]),
    ),
    "compare_hits": ("hits", lambda frame, _: tk.compare_hits(frame, frame, JUDGED)),
    "group_hits": ("hits", lambda frame, _: tk.group_hits(frame, "id")),
    "score_hits": ("hits", lambda frame, _: tk.score_hits(frame, JUDGED)),
    "explode_metadata": ("vectors", lambda frame, _: tk.explode_metadata(frame)),
    "explode_steps": ("failures", lambda frame, _: tk.explode_steps(frame)),
    "report_failures": (
        "failures",
        lambda frame, _: pd.Series(
            tk.report_failures(frame, now="2026-03-10T12:00Z").verdict
        ),
    ),
    "flatten": ("vectors", lambda frame, _: tk.flatten(frame)),
    "group_failures": ("failures", lambda frame, _: tk.group_failures(frame).frame),
    "report_index": (
        "vectors",
        lambda frame, _: pd.Series(tk.report_index(frame).verdict),
    ),
    "match_metadata": ("vectors", lambda frame, _: tk.match_metadata(frame, "n = 3")),
    "plan_redrive": ("failures", lambda frame, _: tk.plan_redrive(frame).frame),
    "plot_callback_states": (
        "failures",
        lambda frame, _: tk.plots.plot_callback_states(frame),
    ),
    "plot_expiry": ("failures", lambda frame, _: tk.plots.plot_expiry(frame)),
    "plot_failure_calendar": (
        "failures",
        lambda frame, _: tk.plots.plot_failure_calendar(frame),
    ),
    "plot_failure_groups": (
        "failures",
        lambda frame, _: tk.plots.plot_failure_groups(frame),
    ),
    "plot_failure_matrix": (
        "failures",
        lambda frame, _: tk.plots.plot_failure_matrix(frame),
    ),
    "plot_failure_trend": (
        "failures",
        lambda frame, _: tk.plots.plot_failure_trend(frame),
    ),
    "plot_retries_used": (
        "failures",
        lambda frame, _: tk.plots.plot_retries_used(frame),
    ),
    "plot_run_timeline": ("events", lambda frame, _: tk.plots.plot_run_timeline(frame)),
    "plot_score_by_rank": ("hits", lambda frame, _: tk.plots.plot_score_by_rank(frame)),
    "plot_score_comparison": (
        "hits",
        lambda frame, _: tk.plots.plot_score_comparison(frame, frame),
    ),
    "plot_score_distribution": (
        "hits",
        lambda frame, _: tk.plots.plot_score_distribution(frame),
    ),
    "plot_success_rates": ("runs", lambda frame, _: tk.plots.plot_success_rates(frame)),
    "plot_time_to_failure": (
        "failures",
        lambda frame, _: tk.plots.plot_time_to_failure(frame),
    ),
    "plot_vector_map": ("vectors", lambda frame, _: tk.plots.plot_vector_map(frame)),
    "plot_vector_norms": (
        "vectors",
        lambda frame, _: tk.plots.plot_vector_norms(frame),
    ),
    "project_vectors": ("vectors", lambda frame, _: tk.project_vectors(frame).frame),
    "find_retry_outcomes": (
        "failures",
        lambda frame, _: tk.find_retry_outcomes(frame, after=frame).counts,
    ),
    "run_rates": ("runs", lambda frame, _: tk.analysis.run_rates(frame)),
    "summarize_runs": ("runs", lambda frame, _: tk.summarize_runs(frame).frame),
    "select_failures": (
        "failures",
        lambda frame, _: tk.select_failures(
            frame, {"response_status": "500"}
        ).reset_index(drop=True),
    ),
    "replay_failure": (
        "failures",
        lambda frame, _: tk.replay_failure(
            frame, "http://127.0.0.1:9", progress=False
        ).frame["outcome"],
    ),
    "check_fix": (
        "failures",
        lambda frame, _: tk.check_fix(
            frame, tk.group_failures(frame).frame["group"].iloc[0], "1h"
        ).frame["failures"],
    ),
    "find_similar_failures": (
        "failures",
        lambda frame, _: tk.find_similar_failures(frame, frame).frame,
    ),
    "summarize": ("failures", lambda frame, _: pd.Series(repr(tk.summarize(frame)))),
    "export_csv": (
        "failures",
        lambda frame, path: pd.read_csv(written(tk.export_csv, frame, path / "a.csv")),
    ),
    "export_excel": (
        "hits",
        lambda frame, path: written(tk.export_excel, frame, path / "a.xlsx").suffix,
    ),
    "write_snapshot": (
        "failures",
        lambda frame, path: tk.read_snapshot(
            written(tk.write_snapshot, frame, path / "kept")
        ),
    ),
}
"""Each function with the frame that it is called with, and what of the result is compared."""

FRAMES = {
    "failures",
    "vectors",
    "frame",
    "hits",
    "runs",
    "events",
    "before",
    "after",
    "history",
    "index",
}
ELSEWHERE = {
    "QueryPanel", "VectorMapPanel", "audit_recall", "compare_fusion", "delete_vectors",
    "fetch_vectors", "get_receipt", "index_failures", "update_vectors", "upsert_vectors",
}  # fmt: skip
"""Functions that need a service as well, or that read the attributes of a pandas frame; others test them."""


def test_every_function_of_frames_is_in_the_table() -> None:
    """A function whose arguments are frames by their annotation is called with each form."""
    missing = set()
    for name in dir(tk):
        value = getattr(tk, name)
        if (
            name.startswith("_")
            or not callable(value)
            or getattr(value, "__module__", "") == "typing"
        ):
            continue
        try:
            parameters = inspect.signature(value).parameters.values()
        except (TypeError, ValueError):
            continue
        kinds = [
            str(parameter.annotation)
            for parameter in parameters
            if parameter.name in FRAMES
        ]
        if any(kind for kind in kinds if "Frame" in kind or "VectorSource" in kind):
            missing.add(name)
    made_by_the_toolkit = {
        name for name in missing if name[0].isupper() and "Panel" not in name
    }
    assert missing - made_by_the_toolkit - set(CALLS) - ELSEWHERE == set()


@pytest.mark.parametrize("name", CALLS)
def test_other_frames_have_the_same_result(name, frames, tmp_path) -> None:
    """The result is that of the pandas frame, whatever the frame is of: same columns and same values."""
    argument, call = CALLS[name]
    expected = call(frames[argument], tmp_path)
    for form, make in FORMS.items():
        folder = tmp_path / form
        folder.mkdir()
        found = call(make(frames[argument]), folder)
        assert type(found) is type(expected)
        if isinstance(expected, pd.DataFrame):
            assert list(found.columns) == list(expected.columns)
            assert found.to_json(date_format="iso") == expected.to_json(
                date_format="iso"
            ), form
        elif isinstance(expected, pd.Series | np.ndarray):
            assert np.array_equal(np.asarray(found), np.asarray(expected)), form
        plt.close("all")


@pytest.mark.parametrize(
    ("value", "way"),
    [
        ("snapshots/failures", "tk.read_snapshot(path)"),
        (Path("snapshots"), "tk.read_snapshot(path)"),
        (pa.table({"a": [1]}).to_reader(), "reader.read_all()"),
        (pa.dataset.dataset(pa.table({"a": [1]})), "dataset.to_table()"),
    ],
    ids=["text", "path", "reader", "dataset"],
)
def test_what_is_not_converted_names_the_conversion(value, way) -> None:
    """Paths, datasets and streams that can be read once are errors with the call that makes a frame."""
    with pytest.raises(InputError) as caught:
        tk.explode_steps(value)
    assert way in str(caught.value)


def test_whole_numbers_with_missing_ones_stay_whole() -> None:
    """A column of 32 bits gets no floats, and text of another width becomes text."""
    frame = Stream(
        pd.DataFrame(
            {"dlq_id": ["a", None], "n": pd.array([2**31 - 1, None], dtype="Int64")}
        )
    )
    checked = checked_frame("failures", frame)
    assert checked.dtypes.astype(str).to_dict() == {"dlq_id": "str", "n": "Int64"}


def test_ids_and_rows_are_read_from_other_frames() -> None:
    """Arguments that are ids accept a column of any frame, and rows to store are rows of any frame."""
    frame = pd.DataFrame({"id": ["a", "b"], "data": ["x", "y"]})
    for make in FORMS.values():
        assert arguments_texts("ids", make(frame), column="id") == ["a", "b"]
        assert [row["id"] for row in upsert_rows(make(frame))] == ["a", "b"]

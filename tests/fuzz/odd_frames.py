"""Frames as users make them, and malformed ones: missing or repeated columns, other types, odd labels."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from odd_columns import ODD_CELLS, ODD_NAMES, odd_column
from odd_services import Responding, quick_retries
from outcome import outcome

import toolkit as tk


def _set(frame: pd.DataFrame, position: int, values: Any) -> pd.DataFrame:
    """The frame with another column in this place, whatever the columns are called."""
    columns = [frame.iloc[:, other] for other in range(frame.shape[1])]
    column = pd.Series(values)
    column.index = frame.index
    columns[position] = column
    made = pd.concat(columns, axis=1)
    made.columns = frame.columns
    return made


def odd_frame(random: Random, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with one to four changes."""
    attrs, made = frame.attrs, frame.copy()
    made.attrs = {}  # pandas copies them at every step
    for _ in range(random.choice([1, 1, 2, 3, 4])):
        try:
            made = _changed(random, made)
        except Exception:  # noqa: BLE001, S112 - pandas has no frame with that in it
            continue
    made = made.copy()
    made.attrs = (
        odd_attrs(random, attrs) if random.random() < 0.06 else copy.deepcopy(attrs)
    )
    return made


def odd_attrs(random: Random, attrs: dict[Any, Any]) -> dict[Any, Any]:
    """The attributes of a frame, whose receipt says something else."""
    receipt = dict(attrs.get("receipt") or {})
    for name in random.sample(sorted(receipt), min(2, len(receipt))):
        receipt[name] = random.choice(
            [None, -1, "x", [], {}, float("nan"), "5); import os #", {"a": [1]}]
        )
    return {
        "receipt": random.choice(
            [receipt, receipt, receipt, None, [], "x", {}, {"rows": "x"}]
        )
    }


def _changed(random: Random, frame: pd.DataFrame) -> pd.DataFrame:
    rows, width = frame.shape
    if not width:
        return frame
    position = random.randrange(width)
    action = random.randrange(15)
    names = list(frame.columns)
    if action < 4:
        return _set(frame, position, odd_column(random, rows))
    if action < 6:
        cells = list(frame.iloc[:, position])
        for _ in range(random.choice([1, 2, rows])):
            if rows:
                cells[random.randrange(rows)] = random.choice(ODD_CELLS)
        return _set(frame, position, pd.Series(cells, dtype=object))
    if action == 6:
        made = frame.iloc[:, [other for other in range(width) if other != position]]
    elif action == 7:
        names[position] = random.choice([*ODD_NAMES, random.choice(names)])
        made = frame.copy()
        made.columns = pd.Index(names, dtype=object)
    elif action == 8:
        made = frame.iloc[:, [*range(width), position]]
    elif action == 9:
        made = frame.iloc[: random.choice([0, 0, 1, 2])]
    elif action == 10:
        made = frame.copy()
        labels: list[Any] = [
            [0] * rows,
            list(range(rows, 0, -1)),
            pd.date_range("2026", periods=rows),
            [random.choice(ODD_NAMES) for _ in range(rows)],
            pd.MultiIndex.from_arrays(
                [["a"] * rows, list(range(rows))], names=[random.choice(names), None]
            ),
            pd.Index(range(rows), name=random.choice(names)),
            pd.CategoricalIndex(["z"] * rows),
            pd.interval_range(0, rows, rows or 1)[:rows],
            [float("nan")] * rows,
        ]
        made.index = pd.Index(random.choice(labels))
    elif action == 11:
        made = frame.iloc[:, random.sample(range(width), random.randrange(width + 1))]
    elif action == 12:
        made = (
            frame.iloc[
                [random.randrange(rows) for _ in range(random.choice([2, 7, 40]))]
            ]
            if rows
            else frame
        )
    elif action == 13:
        made = frame.copy()
        made.columns = (
            pd.MultiIndex.from_product([["t"], range(width)])
            if random.random() < 0.5
            else pd.CategoricalIndex(range(width))
        )
    else:
        made = frame.copy()
        name = random.choice(ODD_NAMES)
        made.insert(
            random.randrange(width + 1),
            name,
            list(odd_column(random, rows)),
            allow_duplicates=True,
        )
    return made


FILTERS = [
    "n > 1",
    "city = 'Izmir'",
    "HAS FIELD nested.deep",
    "tags CONTAINS 'a'",
    "n IN (1, 2) OR city GLOB '*'",
    "NOT (n = 1",
]
COLUMNS = [
    "workflow_url",
    "response_status",
    "labels",
    "error",
    "failed_at",
    "nope",
    "vector",
    "extra",
    "query",
]


class Frames:
    """The class of cases: a function of frames, and a frame that no load would return."""

    name = "frames"

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        quick_retries()
        responding = Responding()
        service = tk.connect(
            queue_url=responding.url,
            queue_token="t0ken-of-frames",
            vector_url=responding.url,
            vector_token="t0ken-of-frames",
            environ={},
        )
        options: dict[str, Any] = {"progress": False, "connections": 2}
        included = {
            "include_vectors": True,
            "include_metadata": True,
            "include_data": True,
        }
        failures = tk.load_failures(service, **options)
        self.frames = {
            "failures": failures,
            "vectors": tk.load_vectors(service, **options),
            "hits": tk.query(service, vector=[1.0, 0.0], **included),
            "runs": tk.load_runs(service, progress=False),
            "callbacks": tk.load_callbacks(
                [{"status": 200, "body": "b2s=", "retried": 1}, {"status": 500}]
            ),
            "headers": tk.explode_headers(failures),
            "events": pd.DataFrame(
                {
                    "time": pd.to_datetime(
                        ["2026-03-01 10:00", "2026-03-01 10:01"], utc=True
                    ),
                    "message_id": ["m", "m"],
                    "state": ["CREATED", "DELIVERED"],
                    "workflow_run_id": ["w", "w"],
                }
            ),
        }
        responding.server.refuse()

    def case(self, random: Random) -> tuple[str, str, str | None]:
        """One call: its name, what it came to, and what was wrong."""
        calls = self._calls(random)
        name = random.choices(list(calls), [calls[name][3] for name in calls])[0]
        source, call, expected, _ = calls[name]
        if random.random() < 0.05:
            source = random.choice(list(self.frames))
        frame = odd_frame(random, self.frames[source])
        before = _state(frame)
        word, wrong = outcome(
            lambda: call(frame), expected, look=random.random() < 0.15
        )
        if wrong is None and _state(frame) != before:
            wrong = "the frame it was given is another one now"
        return name, word, wrong

    def _calls(
        self, random: Random
    ) -> dict[str, tuple[str, Callable[[pd.DataFrame], Any], Any, int]]:
        """By name: which frame, the call, what it returns, and how often (slow ones less)."""
        frame = pd.DataFrame
        column = random.choice(COLUMNS)
        freq = random.choice([None, "D", "h", "7D"])
        tz = random.choice(["UTC", "Asia/Tokyo"])
        vectors: Any = random.choice(["text", "columns"])
        return {
            "summarize": ("failures", tk.summarize, tk.results.FrameSummary, 8),
            "summary of hits": ("hits", tk.summarize, tk.results.FrameSummary, 4),
            "summary of vectors": ("vectors", tk.summarize, tk.results.FrameSummary, 4),
            "count_by": (
                "failures",
                lambda f: tk.analysis.count_by(
                    f, random.choice([column, [column, "method"]])
                ),
                frame,
                10,
            ),
            "count_by_hour": (
                "failures",
                lambda f: tk.analysis.count_by_hour(f, tz=tz),
                frame,
                16,
            ),
            "count_errors": (
                "failures",
                lambda f: tk.analysis.count_errors(f, top=random.choice([None, 2])),
                frame,
                16,
            ),
            "count_expiring": (
                "failures",
                lambda f: tk.analysis.count_expiring(f, "7d"),
                frame,
                16,
            ),
            "count_labels": ("failures", tk.analysis.count_labels, frame, 16),
            "count_over_time": (
                "failures",
                lambda f: tk.analysis.count_over_time(
                    f, by=random.choice([None, column]), freq=freq
                ),
                frame,
                16,
            ),
            "count_states": ("failures", tk.analysis.count_states, frame, 16),
            "count_workflows": ("failures", tk.analysis.count_workflows, frame, 16),
            "find_expiring": (
                "failures",
                lambda f: tk.find_expiring(f, "7d"),
                frame,
                16,
            ),
            "explode_headers": (
                "failures",
                lambda f: tk.explode_headers(
                    f, column=random.choice(["headers", "response_headers"])
                ),
                frame,
                16,
            ),
            "explode_steps": (
                random.choice(["failures", "runs"]),
                tk.explode_steps,
                frame,
                16,
            ),
            "summarize_runs": ("runs", lambda f: tk.summarize_runs(f).frame, frame, 8),
            "run_rates": (
                "runs",
                lambda f: tk.analysis.run_rates(f, freq=random.choice(["1h", "7d"])),
                frame,
                8,
            ),
            "explode_labels": ("failures", tk.explode_labels, frame, 16),
            "explode_metadata": (
                "vectors",
                lambda f: tk.explode_metadata(
                    f, fields=random.choice([None, ["n", "nested.deep"]])
                ),
                frame,
                16,
            ),
            "match_metadata": (
                "vectors",
                lambda f: tk.match_metadata(f, random.choice(FILTERS)),
                pd.Series,
                16,
            ),
            "as_matrix": ("vectors", tk.as_matrix, np.ndarray, 16),
            "flatten": (
                random.choice(["vectors", "failures", "hits"]),
                lambda f: tk.flatten(f, vectors=vectors),
                frame,
                16,
            ),
            "receipt": ("failures", tk.get_receipt, tk.results.Receipt, 4),
            "check_fix": ("failures", _checked, tk.results.FixCheck, 4),
            "count_deliveries": (
                "failures",
                lambda f: tk.analysis.count_deliveries(
                    f, self.frames["runs"], price=random.choice([None, 0.5])
                ),
                frame,
                4,
            ),
            "reproduce": ("failures", _reproduced, str, 8),
            "FailureFilterPanel run": (
                "failures",
                lambda f: _matched(f, random),
                frame,
                1,
            ),
            "export_excel": (
                "failures",
                lambda f: tk.export_excel(f, self.scratch / "f.xlsx"),
                type(None),
                1,
            ),
            "write_snapshot": ("failures", self._written, frame, 4),
            "write_snapshot of vectors": ("vectors", self._written, frame, 3),
            "shown": (random.choice(list(self.frames)), _shown, str, 4),
            "load_callbacks": (
                "callbacks",
                lambda f: tk.load_callbacks(f.to_dict("records")),
                frame,
                2,
            ),
            "upsert_vectors": ("vectors", _prepared, (int, type(None)), 2),
            **self._plots(random, column, freq, tz),
            "report_failures": (
                "failures",
                lambda f: self._reported(f, random),
                str,
                1,
            ),
            "FailurePanel": (
                "failures",
                lambda f: _panel(tk.FailurePanel(f)),
                str,
                1,
            ),
            "RedrivePanel": (
                "failures",
                lambda f: _panel(tk.RedrivePanel(None, f), run=False),
                str,
                1,
            ),
            "FailureFilterPanel": (
                "failures",
                lambda f: _panel(tk.FailureFilterPanel(f)),
                str,
                1,
            ),
            "MetadataFilterPanel": (
                "vectors",
                lambda f: _panel(tk.MetadataFilterPanel(f, value="n > 0")),
                str,
                1,
            ),
        }

    def _plots(
        self, random: Random, column: str, freq: str | None, tz: str
    ) -> dict[str, tuple[str, Callable[[pd.DataFrame], Any], Any, int]]:
        """The same for what draws."""
        by: Any = random.choice([None, column])
        retries = random.choice(["failures", "callbacks"])
        calls: dict[str, tuple[str, Callable[..., Any]]] = {
            "plot_callback_states": ("failures", tk.plots.plot_callback_states),
            "plot_expiry": ("failures", partial(tk.plots.plot_expiry, retention="7d")),
            "plot_failure_calendar": (
                "failures",
                partial(tk.plots.plot_failure_calendar, tz=tz),
            ),
            "plot_failure_matrix": (
                "failures",
                partial(tk.plots.plot_failure_matrix, rows=column),
            ),
            "plot_failure_trend": (
                "failures",
                partial(tk.plots.plot_failure_trend, by=by, freq=freq),
            ),
            "plot_retries_used": (retries, tk.plots.plot_retries_used),
            "plot_success_rates": (
                "runs",
                partial(tk.plots.plot_success_rates, freq=freq),
            ),
            "plot_run_timeline": ("events", tk.plots.plot_run_timeline),
            "plot_score_by_rank": ("hits", tk.plots.plot_score_by_rank),
            "plot_score_comparison": (
                "hits",
                partial(tk.plots.plot_score_comparison, after=self.frames["hits"]),
            ),
            "plot_score_distribution": (
                "hits",
                partial(
                    tk.plots.plot_score_distribution, by=random.choice([None, "query"])
                ),
            ),
            "plot_time_to_failure": ("failures", tk.plots.plot_time_to_failure),
            "plot_vector_norms": ("vectors", tk.plots.plot_vector_norms),
        }
        return {
            name: (source, partial(_drawn, call), Axes, 1)
            for name, (source, call) in calls.items()
        }

    def _written(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Written and read again: the rows written are returned."""
        folder = self.scratch / "written"
        shutil.rmtree(folder, ignore_errors=True)
        tk.write_snapshot(frame, folder)
        read = tk.read_snapshot(folder)
        assert len(read) == len(frame), (
            f"{len(frame)} rows were written and {len(read)} read"
        )
        return read

    def _reported(self, frame: pd.DataFrame, random: Random) -> str:
        previous = random.choice([None, frame, self.frames["failures"]])
        report = tk.report_failures(
            frame, previous, now=datetime(2026, 3, 2, tzinfo=UTC)
        )
        for suffix in ("html", "md", "json"):
            report.save(self.scratch / f"report.{suffix}")
        json.loads((self.scratch / "report.json").read_text())
        return repr(report)


def _state(frame: pd.DataFrame) -> str:
    """Everything a caller can see of a frame."""
    bare = frame.copy(deep=False)
    bare.attrs = {}  # pandas copies them with every column
    cells = [list(bare.iloc[:, position]) for position in range(bare.shape[1])]
    return repr(
        (
            list(frame.columns),
            list(frame.index),
            list(map(str, frame.dtypes)),
            cells,
            frame.attrs,
        )
    )


def _matched(frame: pd.DataFrame, random: Random) -> Any:
    chosen = tk.FailureFilter(
        **random.choice(
            [
                {"label": "eu"},
                {"response_status": 500},
                {"error": "amount"},
                {"since": "900d"},
                {"workflow_url": "x"},
            ]
        )
    )
    panel = tk.FailureFilterPanel(frame, value=chosen)
    try:
        return panel.run()
    finally:
        panel.close()


def _checked(frame: pd.DataFrame) -> tk.results.FixCheck:
    """Check the largest group against a fix in the middle of the times of the sample."""
    groups = tk.group_failures(frame).frame["group"]
    group = next(iter(groups), "none")
    return tk.check_fix(frame, group, "2026-03-01T10:00:00Z", progress=False)


def _reproduced(frame: pd.DataFrame) -> str:
    request = tk.reproduce(frame[:1])
    return f"{request!r}{request.to_curl()}{request.to_python()}{request.to_pytest()}"


def _shown(frame: pd.DataFrame) -> str:
    return f"{frame!r}{frame._repr_html_()}"


def _prepared(frame: pd.DataFrame) -> Any:
    service = tk.connect(
        vector_url="http://127.0.0.1:9", vector_token="t0ken-of-frames", environ={}
    )
    return tk.upsert_vectors(service, frame.to_dict("records"))


def _drawn(call: Callable[..., Any], frame: pd.DataFrame) -> Any:
    ax = call(frame, ax=Figure().add_subplot())
    ax.figure.canvas.draw()
    return ax


def _panel(panel: Any, *, run: bool = True) -> str:
    try:
        if run:
            panel.run()
        return f"{panel.to_code()}{panel!r}{panel._repr_mimebundle_()}"
    finally:
        panel.close()

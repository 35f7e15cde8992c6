"""Every plot with frames it is meant for, and payloads that try to be more than text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.axes import Axes

import toolkit as tk
from toolkit.analysis import explain_change
from toolkit.drawing.result_bars import draw_recall
from toolkit.vectors.score_plots import draw_similarities

NOW = datetime(2026, 3, 20, tzinfo=UTC)
KINDS = [
    "no order",
    "disk full",
    "timed out",
    "refused",
    "TypeError: x",
    "quota",
    "ENOENT",
    "busy",
    "denied",
    "gone",
]
STATES = ["CALLBACK_FAIL", "CALLBACK_SUCCESS", "CALLBACK_INPROGRESS", "", None]


def failures(count: int, *, texts: Sequence[str] = (), seed: int = 0) -> pd.DataFrame:
    """Failures over some days; `texts` are in every column of text."""
    some = np.random.default_rng(seed)
    failed = pd.Timestamp("2026-03-14", tz="UTC") + pd.to_timedelta(
        some.uniform(0, 5, count), unit="D"
    )
    names = [
        texts[row % len(texts)]
        if texts
        else f"https://shop.example.com/api/step-{number}"
        for row, number in enumerate(some.integers(0, 14, count))
    ]
    return pd.DataFrame(
        {
            "dlq_id": pd.Series([str(number) for number in range(count)], dtype="str"),
            "workflow_url": pd.Series(names, dtype="str"),
            "failed_at": pd.Series(failed).dt.as_unit("ms"),
            "created_at": pd.Series(
                failed - pd.to_timedelta(some.exponential(9000, count), unit="s")
            ),
            "response_status": pd.Series(
                some.choice([404, 429, 500, 502], count), dtype="Int64"
            ),
            "max_retries": pd.Series(some.integers(0, 6, count), dtype="Int64"),
            "failure_function_state": pd.Series(
                names if texts else some.choice(np.array(STATES, dtype=object), count),
                dtype="str",
            ),
            "response_body": pd.Series(
                (texts and names)
                or [f"{KINDS[row % len(KINDS)]} {row}" for row in range(count)],
                dtype="str",
            ),
            "response_body_base64": pd.Series([None] * count, dtype="str"),
        }
    )


def hits(
    count: int, *, texts: Sequence[str] = (), seed: int = 0, queries: int = 3
) -> pd.DataFrame:
    """Hits of some queries, best first."""
    some = np.random.default_rng(seed)
    parts = [
        pd.DataFrame(
            {
                "query": np.full(count, query),
                "rank": np.arange(1, count + 1),
                "id": [f"v{number}" for number in some.permutation(count * 2)[:count]],
                "score": np.sort(some.uniform(0.2, 1, count))[::-1],
                "group": [texts[query] if texts else f"query {query}"] * count,
            }
        )
        for query in range((len(texts) or queries) if count else 1)
    ]
    return pd.concat(parts, ignore_index=True)


def runs(count: int, *, texts: Sequence[str] = (), **_: Any) -> pd.DataFrame:
    """Runs of some workflows, a quarter of which fail, over some days."""
    names = texts or [f"https://shop.example.com/flows/{number}" for number in range(7)]
    start = NOW - pd.to_timedelta(np.arange(count) * 13, unit="min")
    states = [
        "RUN_SUCCESS",
        "RUN_FAILED",
        "RUN_SUCCESS",
        "RUN_SUCCESS",
        "RUN_CANCELED",
        "RUN_STARTED",
    ]
    return pd.DataFrame(
        {
            "workflow_url": pd.Series(
                [names[row % len(names)] for row in range(count)], dtype="str"
            ),
            "state": pd.Series(
                [states[row * row % 6] for row in range(count)], dtype="str"
            ),
            "created_at": pd.Series(start, dtype="datetime64[ms, UTC]"),
            "completed_at": pd.Series(
                start + pd.Timedelta("20s"), dtype="datetime64[ms, UTC]"
            ),
        }
    )


def _timeline(count: int, *, texts: Sequence[str] = (), **more: Any) -> Axes:
    """A run of so many deliveries at most, each retried once; the last has failed."""
    count = min(count, 12)
    begin = pd.Series(
        pd.Timestamp(NOW) + pd.to_timedelta(np.arange(count) * 70, unit="s")
    )
    waits = {"CREATED": 0, "RETRY": 40, "DELIVERED": 68}
    ids = [f"msg_{number}" for number in range(count)]
    events = pd.concat(
        [
            pd.DataFrame(
                {
                    "time": begin + pd.Timedelta(wait, unit="s"),
                    "message_id": ids,
                    "state": state,
                }
            )
            for state, wait in waits.items()
        ]
    ).astype({"time": "datetime64[ms, UTC]", "message_id": "str", "state": "str"})
    if count:
        events.iloc[-1, 2] = "FAILED"
    names = [
        texts[row % len(texts)] if texts else f"step {row}" for row in range(count)
    ]
    steps = pd.DataFrame(
        {"message_id": ids, "step_name": names, "position": range(count)}
    )
    steps = steps.assign(workflow_run_id="wfr_1").astype(
        {"message_id": "str", "step_name": "str"}
    )
    return tk.plots.plot_run_timeline(
        events.assign(workflow_run_id="wfr_1"), steps=steps, **more
    )


def vectors(count: int, **_: Any) -> pa.Table:
    """Vectors of three numbers."""
    numbers = np.random.default_rng(1).normal(size=(count, 3)).astype("float32")
    return pa.table({"vector": pa.array(list(numbers), pa.list_(pa.float32()))})


@dataclass(frozen=True)
class Plot:
    """One way to draw: a name, and a function of a size, a text, and the common arguments of plots."""

    name: str
    draw: Callable[..., Axes]


def _of(
    frame: Callable[..., Any], plot: Callable[..., Axes], **options: Any
) -> Callable[..., Axes]:
    def draw(count: int, *, texts: Sequence[str] = (), **more: Any) -> Axes:
        return plot(frame(count, texts=texts), **options, **more)

    return draw


def _comparison(count: int, *, texts: Sequence[str] = (), **more: Any) -> Axes:
    names = (texts[0], texts[-1]) if texts else ("dense", "hybrid")
    return tk.plots.plot_score_comparison(
        hits(count), hits(count, seed=5), names=names, **more
    )


def _explanation(count: int, *, texts: Sequence[str] = (), **more: Any) -> Axes:
    before = failures(count, texts=texts)
    after = pd.concat(
        [
            before,
            *[
                before[before["workflow_url"] == name]
                for name in before["workflow_url"][:1]
            ]
            * 20,
        ]
    )
    return explain_change(
        before, after, attributes=["workflow_url", "response_status"]
    ).plot(**more)


def _compared(count: int, *, texts: Sequence[str] = (), **more: Any) -> Axes:
    """A load and a later one: one more workflow fails fifty times in the same way."""
    before = failures(count, texts=texts).assign(workflow_run_id="w")
    burst = before[:1].loc[lambda frame: frame.index.repeat(50)]
    after = pd.concat(
        [burst.assign(dlq_id=[f"b{number}" for number in range(len(burst))]), before]
    )
    return tk.compare_failures(before, after).plot(**more)


def _map(
    count: int, *, texts: Sequence[str] = (), color: str = "kind", **more: Any
) -> Axes:
    names = texts or [f"kind {number}" for number in range(11)]
    frame = (
        vectors(count)
        .to_pandas()
        .assign(kind=[names[row % len(names)] for row in range(count)])
    )
    return tk.plots.plot_vector_map(
        frame.assign(number=np.arange(count) * 1.5), color=color, **more
    )


def _pairs(count: int, *, texts: Sequence[str] = (), **more: Any) -> Axes:
    names = texts or ["random pairs", "nearest neighbours"]
    scores = np.random.default_rng(2).uniform(0.2, 1, count)
    pairs = pd.DataFrame(
        {"pair": [names[row % len(names)] for row in range(count)], "score": scores}
    )
    title = "Cosines of nearest and of random pairs"
    return draw_similarities(
        pairs, title, "cosine distance between old and new vector", **more
    )


def _recall(count: int, *, texts: Sequence[str] = (), **more: Any) -> Axes:
    names = (texts or ["runbooks", "tickets"])[:count]
    by = pd.DataFrame(
        {"name": names, "queries": 50, "share": 0.98, "low": 0.95, "high": 1.0}
    )
    return draw_recall(by, "Recall@10 of stored vectors", **more)


PLOTS = [
    Plot("groups", _of(failures, tk.plots.plot_failure_groups)),
    Plot(
        "groups stacked", _of(failures, tk.plots.plot_failure_groups, layout="stacked")
    ),
    Plot(
        "groups by count",
        lambda count, texts=(), **more: tk.group_failures(
            failures(count, texts=texts)
        ).plot(**more),
    ),
    Plot(
        "classes",
        lambda count, texts=(), **more: tk.classify_failures(
            failures(count, texts=texts)
        ).plot(**more),
    ),
    Plot("explanation", _explanation),
    Plot("failures compared", _compared),
    Plot("trend", _of(failures, tk.plots.plot_failure_trend, by="workflow_url")),
    Plot(
        "trend facets",
        _of(failures, tk.plots.plot_failure_trend, by="workflow_url", layout="facets"),
    ),
    Plot(
        "trend ranked",
        _of(failures, tk.plots.plot_failure_trend, by="workflow_url", layout="ranked"),
    ),
    Plot(
        "calendar", _of(failures, tk.plots.plot_failure_calendar, tz="Europe/Istanbul")
    ),
    Plot("matrix", _of(failures, tk.plots.plot_failure_matrix)),
    Plot(
        "matrix across",
        _of(
            failures,
            tk.plots.plot_failure_matrix,
            columns="workflow_url",
            rows="max_retries",
        ),
    ),
    Plot("time to failure", _of(failures, tk.plots.plot_time_to_failure)),
    Plot("retries", _of(failures, tk.plots.plot_retries_used)),
    Plot("callback states", _of(failures, tk.plots.plot_callback_states)),
    Plot("expiry", _of(failures, tk.plots.plot_expiry, retention="7d", now=NOW)),
    Plot("scores", _of(hits, tk.plots.plot_score_distribution, by="group")),
    Plot(
        "scores as outlines",
        _of(hits, tk.plots.plot_score_distribution, by="query", kind="histogram"),
    ),
    Plot(
        "scores as shares",
        _of(hits, tk.plots.plot_score_distribution, by="query", kind="ecdf"),
    ),
    Plot("scores by rank", _of(hits, tk.plots.plot_score_by_rank, by="group")),
    Plot("comparison", _comparison),
    Plot("map", _map),
    Plot("map by number", lambda count, **more: _map(count, color="number", **more)),
    Plot("timeline", _timeline),
    Plot("success rates", _of(runs, tk.plots.plot_success_rates)),
    Plot(
        "runs",
        lambda count, texts=(), **more: tk.summarize_runs(
            runs(count, texts=texts)
        ).plot(**more),
    ),
    Plot("pairs", _pairs),
    Plot("recall", _recall),
    Plot("norms", _of(vectors, tk.plots.plot_vector_norms)),
]


@pytest.fixture(params=PLOTS, ids=lambda plot: plot.name)
def plot(request: pytest.FixtureRequest) -> Plot:
    """Each plot in turn."""
    found: Plot = request.param
    return found

"""Every public plot, drawn from the embedded service's sample.

``python docs/pictures/drawings.py FOLDER`` draws each for the reference: ``make docs`` runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import toolkit as tk
from toolkit.drawing.style import THEMES

QUESTIONS = [
    "the certificate has expired",
    "the pool has no free connection",
    "how to bake bread",
]
REWORDED = [
    "a certificate is out of date",
    "no connection is free in the pool",
    "baking bread",
]
EVENTS = pd.DataFrame(
    [
        (f"2026-11-20 10:{minute}", f"msg_{number}", state)
        for number, minutes in enumerate(
            (("00:00", "00:01"), ("00:02", "01:10", "03:20"), ("03:21", "03:24")), 1
        )
        for minute, state in zip(
            minutes,
            ("CREATED", *["RETRY"] * (len(minutes) - 2), "DELIVERED"),
            strict=True,
        )
    ],
    columns=["time", "message_id", "state"],
).assign(
    workflow_run_id="wfr_1",
    time=lambda events: pd.to_datetime(events["time"], utc=True),
)
"""A run of three steps, the second at its second attempt: the sample's runs were written, not delivered."""
NOISE = np.random.default_rng(1)

Draw = Callable[..., Axes]


def plots(service: tk.Service) -> dict[str, Draw]:
    """Every plot of the toolkit on the sample, by the public name that draws it, and in which other way."""
    failures = tk.load_failures(service, progress=False)
    hits = tk.query_text(service, QUESTIONS, namespace="runbooks", top_k=60)
    reworded = tk.query_text(service, REWORDED, namespace="runbooks", top_k=60)
    vectors = tk.load_vectors(service, namespace="runbooks", progress=False)
    changed = vectors.assign(
        vector=list(
            tk.as_matrix(vectors) + NOISE.normal(0, 0.02, tk.as_matrix(vectors).shape)
        )
    )
    runs = tk.load_runs(service, progress=False)
    now = failures["failed_at"].max().to_pydatetime()
    groups = tk.group_failures(failures)
    recent = failures["failed_at"] > now - timedelta(days=1)
    return {
        "plot_failure_trend": lambda **more: tk.plots.plot_failure_trend(
            failures, by="workflow_url", top=4, **more
        ),
        "plot_failure_groups": lambda **more: tk.plots.plot_failure_groups(
            failures, **more
        ),
        "FailureGroups": groups.plot,
        "FailureClasses": lambda **more: tk.classify_failures(failures).plot(**more),
        "Explanation": tk.explain_spike(failures).plot,
        "FailureComparison": tk.compare_failures(
            failures[~recent], failures[recent], exposure=13
        ).plot,
        "plot_failure_trend, facets": lambda **more: tk.plots.plot_failure_trend(
            failures, by="workflow_url", top=6, layout="facets", **more
        ),
        "plot_failure_trend, ranked": lambda **more: tk.plots.plot_failure_trend(
            failures, by="workflow_url", layout="ranked", **more
        ),
        "plot_failure_calendar": lambda **more: tk.plots.plot_failure_calendar(
            failures, **more
        ),
        "plot_failure_matrix": lambda **more: tk.plots.plot_failure_matrix(
            failures, top=8, **more
        ),
        "plot_time_to_failure": lambda **more: tk.plots.plot_time_to_failure(
            failures, **more
        ),
        "plot_retries_used": lambda **more: tk.plots.plot_retries_used(
            failures, **more
        ),
        "plot_callback_states": lambda **more: tk.plots.plot_callback_states(
            failures, **more
        ),
        "plot_expiry": lambda **more: tk.plots.plot_expiry(
            failures, "15d", now=now, **more
        ),
        "plot_success_rates": lambda **more: tk.plots.plot_success_rates(runs, **more),
        "plot_run_timeline": lambda **more: tk.plots.plot_run_timeline(EVENTS, **more),
        "plot_score_distribution": lambda **more: tk.plots.plot_score_distribution(
            hits, **more
        ),
        "plot_score_distribution, shares": lambda **more: (
            tk.plots.plot_score_distribution(hits, kind="ecdf", **more)
        ),
        "plot_score_by_rank": lambda **more: tk.plots.plot_score_by_rank(hits, **more),
        "plot_score_comparison": lambda **more: tk.plots.plot_score_comparison(
            hits, reworded, names=("as asked", "reworded"), **more
        ),
        "plot_vector_map": lambda **more: tk.plots.plot_vector_map(
            vectors, color="topic", **more
        ),
        "VectorAudit": tk.audit_vectors(vectors).plot,
        "RecallAudit": tk.audit_recall(service, vectors, sample=50).plot,
        "Calibration": tk.calibrate_threshold(vectors).plot,
        "VectorChanges": tk.compare_vectors(vectors, changed).plot,
        "VectorProjection": lambda **more: tk.project_vectors(vectors).plot(
            color="topic", **more
        ),
        "plot_vector_norms": lambda **more: tk.plots.plot_vector_norms(vectors, **more),
    }


def main(folder: Path) -> None:
    """Each plot by itself, light and dark; the first of several ways stands for its name."""
    folder.mkdir(parents=True, exist_ok=True)
    with tk.connect("local") as service:
        for name, draw in plots(service).items():
            if "," in name:
                continue
            for theme in THEMES:
                figure = Figure(
                    figsize=(8, 4), layout="constrained", facecolor=THEMES[theme].paper
                )
                draw(ax=figure.add_subplot(), theme=theme)
                figure.savefig(
                    folder / f"{name}-{theme}.png", dpi=100, metadata={"Software": None}
                )


if __name__ == "__main__":
    main(Path(sys.argv[1]))

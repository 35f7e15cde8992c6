"""Draw the scores of hits as pictures in a page: of one result, or of two results side by side."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from toolkit.drawing.fonts import for_browser
from toolkit.drawing.style import THEMES
from toolkit.drawing.svg import inline_svg
from toolkit.vectors.score_plots import plot_score_comparison, plot_score_distribution


def score_chart(hits: pd.DataFrame, prefix: str) -> str:
    """Return a histogram of the scores of one result. Ids in the picture begin with `prefix`."""
    return _svg(
        lambda ax: plot_score_distribution(hits, by=None, ax=ax), prefix,
        "Scores of the hits", f"Histogram of {len(hits):,} scores", 2.4,
    )  # fmt: skip


def score_charts(pinned: pd.DataFrame, now: pd.DataFrame, prefix: str) -> str:
    """Return a histogram of the scores of a pinned result and of the present one."""
    both = {"pinned": pinned, "now": now}
    scores = pd.concat(
        [hits[["score"]].assign(result=name) for name, hits in both.items()]
    )

    return _svg(
        lambda ax: plot_score_distribution(scores, by="result", ax=ax), prefix,
        "Scores of the hits, pinned and now",
        f"Two histograms, of {len(pinned):,} and {len(now):,} scores", 3.4,
    )  # fmt: skip


def comparison_chart(
    pinned: pd.DataFrame, now: pd.DataFrame, prefix: str, summary: str
) -> str:
    """Return the score of each hit in both results; `summary` describes the picture."""
    return _svg(
        lambda ax: plot_score_comparison(pinned, now, names=("pinned", "now"), ax=ax),
        f"{prefix}-both", "Scores, pinned and now", summary, 3.4,
    )  # fmt: skip


def _svg(
    draw: Callable[[Axes], Axes], prefix: str, title: str, described: str, height: float
) -> str:
    figure = Figure(figsize=(4.8, height), layout="constrained")
    with for_browser():
        draw(figure.add_subplot())
    return inline_svg(
        figure, title=title, description=described, prefix=prefix, theme=THEMES["light"]
    )

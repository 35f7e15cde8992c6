"""What became of the entries of a redrive, as a stacked bar a group."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from toolkit.plots.axis import heading, label_axis, legend, name_above, rows_that_fit
from toolkit.plots.plot_text import say
from toolkit.plots.style import HATCHES, Theme
from toolkit.redaction import Redactor
from toolkit.redrive.results import RedriveResult

_LINES: Final = 1.9  # of a row and its name
_OUTCOMES: Final = {"done": 0, "failed again": 3, "failed otherwise": 1, "open": 2, "stopped or left": -1}
_LEFT: Final = ("stopped", "left", "skipped", "refused")


def draw_outcomes(result: RedriveResult, ax: Axes, theme: Theme) -> Axes:
    """A stacked bar a group: what became of its entries."""
    shown = result.frame.assign(outcome=result.frame["state"].map(_outcome))
    counts = pd.crosstab(shown["title"], shown["outcome"])
    counts = counts.reindex(columns=[name for name in _OUTCOMES if name in counts.columns])
    counts = counts.loc[counts.sum(axis=1).sort_values(ascending=False, kind="stable").index]
    heading(ax, "Outcomes of the redrive", theme)
    if counts.empty:
        return say(ax, "No entries", theme)
    counts = counts.head(rows_that_fit(ax, _LINES))
    positions, left = np.arange(len(counts)) + 0.24, np.zeros(len(counts))
    for name in counts.columns:
        colour = _OUTCOMES[name]
        ax.barh(
            positions, counts[name], left=left, height=0.45, color=theme.series[colour],
            hatch=HATCHES[colour], edgecolor=theme.paper, linewidth=0,
        )  # fmt: skip
        left = left + counts[name].to_numpy()
    names = [Redactor().text(str(title)) for title in counts.index]
    notes = [f"{int(total):,}" for total in left]
    name_above(ax, [position - 0.04 for position in range(len(names))], names, theme, notes=notes)
    ax.set_ylim(max(len(names), 3) - 0.4, -0.5)
    ax.set_xlim(0, left.max())
    ax.set_xticks([])
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.grid(visible=False)
    _, above = legend(ax, ax.containers, list(counts.columns), theme)
    heading(ax, "Outcomes of the redrive", theme, above=above)
    label_axis(ax.xaxis, result.verdict, theme)
    return ax


def _outcome(state: str) -> str:
    """The outcome that a state of an entry counts as."""
    if state in ("succeeded", "called", "deleted"):
        return "done"
    return state if state.startswith("failed") else "stopped or left" if state in _LEFT else "open"

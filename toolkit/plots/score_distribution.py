"""How the scores of query results are spread."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from narwhals.typing import IntoFrame

from toolkit.analysis.scores import ScoreBins, score_bins
from toolkit.analysis.wording import counted, percent, short_number
from toolkit.arguments import choice, whole
from toolkit.plots.axis import count_axis, heading, label_axis, name_rows, name_tops, number_axis
from toolkit.plots.lines import DASHES, name_lines
from toolkit.plots.style import HATCHES, Theme, ThemeName, drawing, theme_named
from toolkit.plots.texts import drawable, say

ScoreKind = Literal["histogram", "ecdf", "ridge"]


def plot_score_distribution(
    hits: IntoFrame,
    *,
    by: str | None = "query",
    kind: ScoreKind | None = None,
    bins: int = 20,
    top: int = 8,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw how scores are spread, of one query or of several beside each other.

    Not for comparing scores of different indexes or query modes: only the order of scores of one kind means
    anything.

    Parameters
    ----------
    hits : frame
        With the columns `score` and `by`.
    by : str or None
        Column of single values to tell apart; None takes all hits together.
    kind : {"histogram", "ecdf", "ridge"}, optional
        Bars (outlines, for several groups); the share of hits up to each score; or a row of bars a group.
        Default: bars for one group, rows for several.
    bins : int
        How many bars, 1 to 1,000, on the same edges for every group.
    top : int
        How many groups to tell apart, 1 to 8; the rest is one group.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: a new figure of pyplot's.
    theme : {"light", "dark"}

    Returns
    -------
    matplotlib.axes.Axes
        With a sentence instead of bars where there is no finite score, or only one.

    Raises
    ------
    InputError
        When a column is missing or an option is out of bounds.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"query": [0, 0, 0], "score": [0.9, 0.8, 0.2]})
    >>> ax = plot_score_distribution(frame, bins=2, ax=Figure().add_subplot())
    >>> [int(bar.get_height()) for bar in ax.patches]
    [1, 2]
    """
    choice("kind", kind, get_args(ScoreKind), optional=True)
    colours = theme_named(theme)
    found = score_bins(hits, by=by, bins=bins, top=min(whole("top", top), len(colours.series) - 1))
    kind = kind or ("histogram" if len(found.groups) <= 1 else "ridge")
    with drawing(ax, colours) as axes:
        heading(axes, f"Scores of hits, by {by}" if by else "Scores of hits", colours)
        if found.total <= 1:
            return say(axes, _sentence(found), colours)
        label = "score (higher is nearer)"
        if found.left_out:
            label += f"\n{counted(found.left_out, 'hit')} without a finite score left out"
        label_axis(axes.xaxis, label, colours)
        number_axis(axes, axes.xaxis)
        axes.set_xlim(found.edges[0], found.edges[-1])
        if kind == "ecdf":
            _shares(found, axes, colours)
        elif kind == "ridge":
            _rows(found, axes, colours, by or "")
        elif len(found.groups) == 1:
            _histogram(found, axes, colours)
        else:
            _outlines(found, axes, colours)
        return axes


def _sentence(found: ScoreBins) -> str:
    left_out = f" ({counted(found.left_out, 'hit')} without a finite score)" if found.left_out else ""
    if not found.total:
        return f"No hits{left_out}"
    return f"1 hit, score {(found.edges[0] + found.edges[-1]) / 2:g}{left_out}"


def _bars(
    found: ScoreBins, number: int, ax: Axes, theme: Theme, *, height: float = 1.0, bottom: float = 0.0
) -> None:
    last = len(theme.series) - 1
    sign = last if found.merged and number == len(found.groups) - 1 else number
    widths = found.edges[1:] - found.edges[:-1]
    ax.bar(
        found.edges[:-1], found.counts[number] * height, width=widths * 0.94, bottom=bottom, align="edge",
        color=theme.series[sign], hatch=HATCHES[sign], edgecolor=theme.paper, linewidth=0,
    )  # fmt: skip


def _histogram(found: ScoreBins, ax: Axes, theme: Theme) -> None:
    _bars(found, 0, ax, theme)
    count_axis(ax, "hits", theme)


def _outlines(found: ScoreBins, ax: Axes, theme: Theme) -> None:
    for number, counts in enumerate(found.counts):
        ax.stairs(
            counts, found.edges, color=theme.series[number], linestyle=DASHES[number], linewidth=1.6,
            baseline=None,
        )  # fmt: skip
    count_axis(ax, "hits", theme)
    ax.set_xlim(found.edges[0], found.edges[-1])
    ax.set_ylim(0, ax.get_ylim()[1])
    name_lines(ax, [int(counts[-1]) for counts in found.counts], _named(found), theme)


def _shares(found: ScoreBins, ax: Axes, theme: Theme) -> None:
    low, high = found.edges[0], found.edges[-1]
    for number, scores in enumerate(found.scores):
        places = np.concatenate([[low], scores, [high]])
        shares = np.concatenate([np.arange(len(scores) + 1) / len(scores), [1.0]])
        ax.plot(
            places, shares, color=theme.series[number], linestyle=DASHES[number], linewidth=1.6,
            drawstyle="steps-post",
        )  # fmt: skip
    ax.set_xlim(low, high)
    ax.set_ylim(0, 1.03)
    number_axis(ax, ax.yaxis)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))
    label_axis(ax.yaxis, "share of hits up to this score", theme)
    if len(found.groups) > 1:
        # all shares end at 100 %: names stand in the order of the medians, the highest score at the bottom
        ends = [1 - (np.median(scores) - low) / (high - low) for scores in found.scores]
        name_lines(ax, ends, _named(found), theme)


def _named(found: ScoreBins) -> list[str]:
    totals = [short_number(total) for total in found.counts.sum(axis=1).tolist()]
    return [
        f"{drawable(name, longest=26)} ({total})" for name, total in zip(found.groups, totals, strict=True)
    ]


def _rows(found: ScoreBins, ax: Axes, theme: Theme, by: str) -> None:
    tops = found.counts.max(axis=1).clip(1).tolist()
    places = [-number for number in range(len(tops))]
    for number, top in enumerate(tops):
        _bars(found, number, ax, theme, height=0.85 / top, bottom=-number)
    totals = [f"({short_number(total)})" for total in found.counts.sum(axis=1).tolist()]
    prefix = name_rows(ax, places, found.groups, notes=totals)
    name_tops(ax, "hits", theme, places, tops)
    heading(ax, f"Scores of hits, by {by}", theme, prefix=prefix)

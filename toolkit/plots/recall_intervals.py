"""Recall of an index with its intervals, a row a namespace and filter."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from toolkit.analysis.wording import percent
from toolkit.plots.axis import heading, label_axis, name_rows, number_axis
from toolkit.plots.plot_text import say
from toolkit.plots.style import ThemeName, drawing, theme_named


def draw_recall(by: pd.DataFrame, title: str, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Draw a point and its interval for each row of `by` (`name`, `queries`, `share`, `low`, `high`)."""
    colours = theme_named(theme)
    known = by.dropna(subset="share")
    with drawing(ax, colours) as axes:
        heading(axes, title, colours)
        if known.empty:
            return say(axes, "No query has a neighbour", colours)
        rows = [-float(number) for number in range(len(known))]
        axes.errorbar(
            known["share"], rows, xerr=[known["share"] - known["low"], known["high"] - known["share"]],
            fmt="o", color=colours.series[0], ecolor=colours.series[0], capsize=4, linewidth=1.6,
        )  # fmt: skip
        low = min(0.9, float(known["low"].min()))
        axes.set_xlim(low - 0.03 * (1 - low), 1 + 0.03 * (1 - low))
        axes.set_ylim(rows[-1] - 0.6, 0.6)
        notes = [f"({number:,} asked)" for number in known["queries"]]
        prefix = name_rows(axes, rows, known["name"].tolist(), notes=notes)
        heading(axes, title, colours, prefix=prefix)
        number_axis(axes, axes.xaxis)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))
        label_axis(axes.xaxis, "neighbours returned, with the 95 % interval over queries", colours)
        return axes

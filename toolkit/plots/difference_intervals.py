"""Differences with their intervals, a row each, about a line at zero."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from toolkit.plots.axis import heading, label_axis, name_rows, number_axis
from toolkit.plots.plot_text import say
from toolkit.plots.style import ThemeName, drawing, theme_named


def draw_differences(
    rows: pd.DataFrame,
    title: str,
    label: str,
    *,
    empty: str,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw a point and its interval for each row (`name`, `difference`, `low`, `high`), grey around zero."""
    colours = theme_named(theme)
    with drawing(ax, colours) as axes:
        heading(axes, title, colours)
        if rows.empty:
            return say(axes, empty, colours)
        places = [-float(number) for number in range(len(rows))]
        axes.axvline(0, color=colours.ink, linewidth=1.0, linestyle=(0, (3.7, 1.6)))
        for place, difference, low, high in zip(
            places, rows["difference"], rows["low"], rows["high"], strict=True
        ):
            shown = low > 0 or high < 0
            # colour and shape: the style draws no edges of markers
            colour = colours.series[0] if shown else colours.muted
            axes.errorbar(
                [difference], [place], xerr=[[difference - low], [high - difference]],
                fmt="o" if shown else "s", color=colour, ecolor=colour, linewidth=1.6,
            )  # fmt: skip
        most = 1.1 * max(abs(rows["low"].min()), abs(rows["high"].max()), 1e-3)
        axes.set_xlim(-most, most)
        axes.set_ylim(places[-1] - 0.6, 0.6)
        name_rows(axes, places, rows["name"].tolist())
        number_axis(axes, axes.xaxis)
        label_axis(axes.xaxis, label, colours)
        return axes

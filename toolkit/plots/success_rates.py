"""Success rates of workflow runs: over time, and by workflow."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from toolkit.analysis.over_time import bin_width
from toolkit.analysis.run_log import OUTCOMES, RunSummary, binned_rates
from toolkit.analysis.sources import AnyFrame
from toolkit.analysis.wording import counted, percent, span
from toolkit.arguments import whole
from toolkit.plots.axis import (
    DAY,
    heading,
    inches,
    label_axis,
    legend,
    name_above,
    rows_that_fit,
    space_high,
    time_axis,
)
from toolkit.plots.style import (
    COLUMN,
    Theme,
    ThemeName,
    documented,
    drawable_names,
    drawing,
    say,
    theme_named,
    without_prefix,
)
from toolkit.redaction import Redactor

_LINES: Final = 1.9  # of a row and its name
_MOST: Final = 8
_DASHES: Final = ((), (5, 2), (2, 1.5), (6, 2, 1.5, 2))
_MARKERS: Final = "osD^vP*X"
_SIGNS: Final = {"succeeded": 0, "failed": 3, "cancelled": 8, "running": 4}


@documented
def plot_success_rates(
    runs: AnyFrame,
    *,
    freq: str | timedelta | None = None,
    top: int = 5,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw which share of runs succeeded over time, a line a workflow.

    A point is the share of the runs that started in a bin and have succeeded or failed; a bin without such
    runs interrupts the line. Not for few runs: `run_summary` says of how many a rate is.

    Parameters
    ----------
    runs : frame
        As `load_runs` returns it.
    freq : str or timedelta, optional
        Width of a bin, in whole minutes ("15min", "6h", "1d"). Default: chosen from the span.
    top : int
        Number of workflows, 1 to 8: those with the most runs.
    {axes}
        With a sentence instead of lines where no run has ended.

    Raises
    ------
    InputError
        When a column is missing or an option is out of bounds.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> start = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 10:40", "2026-01-01 11:02"], utc=True)
    >>> runs = {"workflow_url": "a", "state": ["RUN_SUCCESS", "RUN_FAILED", "RUN_FAILED"]}
    >>> frame = pd.DataFrame(runs | {"created_at": start, "completed_at": start})
    >>> plot_success_rates(frame, freq="1h", ax=Figure().add_subplot()).lines[0].get_ydata().tolist()
    [0.5, 0.0]
    """
    colours = theme_named(theme)
    top = whole("top", top, most=_MOST)
    with drawing(ax, colours) as axes:
        rates, step = binned_rates(runs, None if freq is None else bin_width(freq))
        title = "Success rate of runs, by workflow"
        heading(axes, title, colours)
        if rates["failure_rate"].isna().all():
            return say(axes, "No run has ended", colours)
        sizes = rates.groupby("workflow_url")["runs"].sum().sort_values(ascending=False, kind="stable")
        shown = sizes.head(min(top, max(1, rows_that_fit(axes) // 3)))
        width = step / DAY
        first, last = (time.timestamp() / 86_400 for time in (rates["start"].min(), rates["start"].max()))
        bins = round((last - first) / width) + 1
        at = first + width * (np.arange(bins) + 0.5)
        totals = []
        for number, url in enumerate(shown.index):
            mine = rates[rates["workflow_url"] == url]
            values = np.full(bins, np.nan)
            places = (mine["start"] - rates["start"].min()) // step
            values[places.to_numpy()] = 1 - mine["failure_rate"].to_numpy()
            ended = int(mine["succeeded"].sum() + mine["failed"].sum())
            totals.append(
                f"{percent(int(mine['succeeded'].sum()) / ended)} of {ended:,}" if ended else "none"
            )
            axes.plot(
                at, values, color=colours.series[number], linewidth=1.6,
                dashes=_DASHES[number % len(_DASHES)], marker=_MARKERS[number], markersize=4.5, clip_on=False,
            )  # fmt: skip
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=max(1, min(5, int(space_high(axes) / 0.3)))))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))
        label_axis(axes.yaxis, "runs that succeeded", colours)
        names, prefix = without_prefix([Redactor().url(str(url)) for url in shown.index])
        longest = max(12, min(32, int(inches(axes) * 0.32 / COLUMN) - 10))
        texts = [
            f"{name}  {total}"
            for name, total in zip(drawable_names(names, longest=longest), totals, strict=True)
        ]
        beside, above = legend(axes, axes.lines, texts, colours)
        time_axis(axes, first, last + width, taken=beside)
        left = len(sizes) - len(shown)
        more = f"; {counted(left, 'workflow')} with fewer runs not shown" * bool(left)
        label_axis(axes.xaxis, f"start of the run, UTC, in bins of {span(step)}{more}", colours)
        heading(axes, title, colours, prefix=prefix, above=above)
        return axes


def draw_summary(summary: RunSummary, ax: Axes, theme: Theme) -> Axes:
    """A stacked bar a workflow: how its runs ended."""
    title = "Runs by workflow and outcome"
    heading(ax, title, theme)
    rows = summary.frame.head(rows_that_fit(ax, _LINES))
    if rows.empty:
        return say(ax, "No runs", theme)
    positions, left = np.arange(len(rows)) + 0.24, np.zeros(len(rows))
    known = [name for name in OUTCOMES if rows[name].sum()]
    for name in known:
        counts = rows[name].to_numpy(dtype=np.float64)
        ax.barh(positions, counts, left=left, height=0.42, **theme.bar(_SIGNS[name]))
        left = left + counts
    names, prefix = without_prefix([Redactor().url(str(url)) for url in rows["workflow_url"]])
    notes = [
        f"{int(row['runs']):,} runs"
        + ("" if pd.isna(row["success_rate"]) else f", {percent(row['success_rate'])} succeeded")
        for row in rows.to_dict("records")
    ]
    name_above(ax, (positions - 0.28).tolist(), names, theme, notes=notes)
    ax.set_ylim(max(len(rows), 3) - 0.4, -0.5)
    ax.set_xlim(0, left.max())
    ax.set_xticks([])
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.grid(visible=False)
    _, above = legend(ax, ax.containers, known, theme)
    heading(ax, title, theme, prefix=prefix, above=above)
    every = len(summary.frame)
    shown = f"first {len(rows)} of {every:,} workflows; " * (len(rows) < every)
    label_axis(ax.xaxis, f"{shown}{counted(int(summary.total['runs']), 'run')} in all", theme)
    return ax

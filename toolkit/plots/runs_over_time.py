"""Workflow runs over time: the deliveries of one, and the success rates of all."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from toolkit.analysis.run_log import binned_rates, run_deliveries
from toolkit.analysis.sources import AnyFrame
from toolkit.analysis.time_bins import bin_width
from toolkit.arguments import whole
from toolkit.drawing import axis
from toolkit.drawing.style import ThemeName, documented, drawing, without_prefix
from toolkit.drawing.wording import counted, elapsed, percent, span
from toolkit.redaction import Redactor
from toolkit.time_zones import time_text, time_zone

_SIGNS: Final = {"delivered": 0, "failed": 3, "cancelled": 8, "pending": 4}
_UNITS: Final = (("milliseconds", 0.001), ("seconds", 1.0), ("minutes", 60.0), ("hours", 3600.0))
_MOST: Final = 8
_DASHES: Final = ((), (5, 2), (2, 1.5), (6, 2, 1.5, 2))
_MARKERS: Final = "osD^vP*X"


@documented
def plot_run_timeline(
    events: AnyFrame,
    *,
    steps: AnyFrame | None = None,
    run_id: str | None = None,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw one workflow run over time: a bar for each delivery of its endpoint, with every attempt.

    A delivery brings one finished step (the first: the initial payload), and its endpoint runs the next one:
    ``charge → ship`` is how long it took from the end of the one to that of the other, with waiting, sleeps
    and retries. A cross is an attempt that failed and was repeated. Not for comparing many runs:
    `run_summary` has their durations.

    Parameters
    ----------
    events : frame
        Of the run, as ``load_events(service, workflow_run_id=...)`` returns them.
    steps : frame, optional
        What `explode_steps` makes of the run's failure or of its row of the run log: names of the steps.
        Default: deliveries are named by their messages' ids.
    run_id : str, optional
        Which run, where the events are of several.
    {axes}
        With a sentence instead of bars where there are no events of a run.

    {raises}
        And when the events are of several runs and `run_id` names none of them.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> times = pd.to_datetime(["2026-01-01 10:00", "2026-01-01 10:04", "2026-01-01 10:09"], utc=True)
    >>> states = ["CREATED", "RETRY", "DELIVERED"]
    >>> events = pd.DataFrame({"time": times, "message_id": "m", "state": states, "workflow_run_id": "w"})
    >>> ax = plot_run_timeline(events, ax=Figure().add_subplot())
    >>> float(ax.patches[0].get_width())
    9.0
    """
    with drawing(ax, theme) as (axes, colours):
        run = run_deliveries(events, steps, run_id)
        mask = Redactor().text
        title = f"Deliveries of the run {mask(run.run_id)}" if run.run_id else "Deliveries of a run"
        if run.frame.empty or run.begin is None:
            return axis.say(axes, "No events of a run", colours, title)
        rows = run.frame.head(axis.rows_that_fit(axes, axis.NAMED_BAR))
        longest = float(run.frame["end"].max())
        unit, size = next((known for known in reversed(_UNITS) if longest >= 2 * known[1]), _UNITS[0])
        positions = np.arange(len(rows)) + 0.24
        for outcome, group in rows.groupby("outcome", sort=False):
            axes.barh(
                positions[group.index], (group["end"] - group["start"]) / size, left=group["start"] / size,
                height=0.42, **colours.bar(_SIGNS[str(outcome)]),
            )  # fmt: skip
        tried = [(position, second) for position, second in run.tried if position < len(rows)]
        crosses = axes.scatter(
            [second / size for _, second in tried], [positions[position] for position, _ in tried], 42,
            marker=MarkerStyle("X", "full"), facecolors=colours.ink, edgecolors=colours.paper,
            linewidths=0.8, zorder=4,
        )  # fmt: skip
        notes = [
            elapsed(row["end"] - row["start"])
            + (f", {counted(row['retries'], 'retry').replace('retrys', 'retries')}" if row["retries"] else "")
            for row in rows.to_dict("records")
        ]
        axis.name_bars(axes, [mask(str(name)) for name in rows["name"]], colours, notes)
        axis.limit(axes.xaxis, 0, max(longest / size, 1e-3) * 1.02)
        axis.number_axis(axes, axes.xaxis)
        outcomes = list(dict.fromkeys(rows["outcome"]))
        more = ([crosses], ["attempt that was repeated"]) if tried else ([], [])
        _, above = axis.legend(axes, [*axes.containers, *more[0]], [*outcomes, *more[1]], colours)
        axis.heading(axes, title, colours, above=above)
        shown = f"first {len(rows)} of {len(run.frame):,}; " * (len(rows) < len(run.frame))
        axis.label_axis(axes.xaxis, f"{shown}{unit} since {time_text(run.begin)}", colours)
        return axes


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
        At most so many workflows, 1 to 8: those with the most runs. Fewer where the figure has no room; the
        axis says how many are not shown.
    {axes}
        With a sentence instead of lines where no run has ended.

    {raises}

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
    top = whole("top", top, most=_MOST)
    with drawing(ax, theme) as (axes, colours):
        rates, step = binned_rates(runs, None if freq is None else bin_width(freq))
        title = "Success rate of runs, by workflow"
        if rates["failure_rate"].isna().all():
            return axis.say(axes, "No run has ended", colours, title)
        sizes = rates.groupby("workflow_url")["runs"].sum().sort_values(ascending=False, kind="stable")
        shown = sizes.head(min(top, max(1, axis.rows_that_fit(axes) // 3)))
        width = step / axis.DAY
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
        axis.limit(axes.yaxis, 0, 1.02)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=max(1, min(5, int(axis.space_high(axes) / 0.3)))))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))
        axis.label_axis(axes.yaxis, "runs that succeeded", colours)
        names, prefix = without_prefix([Redactor().url(str(url)) for url in shown.index])
        beside, above = axis.legend_of_totals(axes, axes.lines, names, totals, colours, less=10)
        zone = time_zone().key
        axis.time_axis(axes, first, last + width, taken=beside, tz=zone)
        left = len(sizes) - len(shown)
        more = f"; {counted(left, 'workflow')} with fewer runs not shown" * bool(left)
        axis.label_axis(axes.xaxis, f"start of the run ({zone}), in bins of {span(step)}{more}", colours)
        axis.heading(axes, title, colours, prefix=prefix, above=above)
        return axes

"""Plot workflow runs over time: the deliveries of one run, or the success rates of all."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from toolkit.base.arguments import whole
from toolkit.base.time_zones import time_text, time_zone
from toolkit.drawing import axis, row_names
from toolkit.drawing.drawable import drawable
from toolkit.drawing.shared_prefix import without_prefix
from toolkit.drawing.style import ThemeName, documented, drawing
from toolkit.drawing.wording import counted, elapsed, percent, span
from toolkit.failures.run_log import binned_rates, run_deliveries
from toolkit.failures.sources import AnyFrame
from toolkit.failures.time_bins import bin_width
from toolkit.secrets.redaction import Redactor

_SIGNS: Final = {"delivered": 0, "failed": 3, "cancelled": 8, "pending": 4}
_UNITS: Final = (
    ("milliseconds", 0.001),
    ("seconds", 1.0),
    ("minutes", 60.0),
    ("hours", 3600.0),
)
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
    theme: ThemeName = "auto",
) -> Axes:
    """Draw one workflow run over time: one bar per delivery to the endpoint, with every attempt.

    A delivery carries one finished step (the first carries the initial payload), and the endpoint runs the
    next step. For example, ``charge → ship`` is the time from the end of one step to the end of the other,
    with waiting, sleeps and retries. A cross marks an attempt that failed and was repeated. To compare many
    runs, use the durations of `summarize_runs` instead.

    Parameters
    ----------
    events : frame
        Events of the run, as ``load_events(service, filter=EventFilter(workflow_run_id=run))`` returns them.
    steps : frame, optional
        Names of the steps: the result of `explode_steps` for the failure of the run, or for the row of the
        run in the run log. If omitted, deliveries are named by the ids of their messages.
    run_id : str, optional
        The run to draw, if the events belong to several runs.
    {axes}
        Without events of a run, they show a sentence instead of bars.

    {raises}
        Also if the events belong to several runs and `run_id` names none of them.

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
        title = (
            f"Deliveries of the run {mask(run.run_id)}"
            if run.run_id
            else "Deliveries of a run"
        )
        if run.frame.empty or run.begin is None:
            return axis.show_sentence(axes, "No events of a run", colours, title)
        rows = run.frame.head(row_names.rows_that_fit(axes, row_names.NAMED_BAR))
        longest = float(run.frame["end"].max())
        unit, size = _unit_for(longest)
        positions = np.arange(len(rows)) + 0.24

        for outcome, group in rows.groupby("outcome", sort=False):
            axes.barh(
                positions[group.index], (group["end"] - group["start"]) / size, left=group["start"] / size,
                height=0.42, **colours.bar(_SIGNS[str(outcome)]),
            )  # fmt: skip

        handles: list[Any] = list(axes.containers)
        labels = list(dict.fromkeys(rows["outcome"]))
        tried = [
            (position, second) for position, second in run.tried if position < len(rows)
        ]
        crosses = axes.scatter(
            [second / size for _, second in tried], [positions[position] for position, _ in tried], 42,
            marker=MarkerStyle("X", "full"), facecolors=colours.ink, edgecolors=colours.paper,
            linewidths=0.8, zorder=4,
        )  # fmt: skip
        if tried:
            handles.append(crosses)
            labels.append("attempt that was repeated")

        notes = [_delivery_note(row) for row in rows.to_dict("records")]
        row_names.name_bars(
            axes, [mask(str(name)) for name in rows["name"]], colours, notes
        )
        axis.limit(axes.xaxis, 0, max(longest / size, 1e-3) * 1.02)
        axis.number_axis(axes, axes.xaxis)
        _, above = axis.legend(axes, handles, labels, colours)
        finding = f"{len(run.frame):,} in {elapsed(longest)}"
        axis.heading(axes, axis.with_finding(title, finding), colours, above=above)
        shown = axis.first_of(len(rows), len(run.frame))
        axis.label_axis(
            axes.xaxis, f"{shown}{unit} since {time_text(run.begin)}", colours
        )
        return axes


def _unit_for(seconds: float) -> tuple[str, float]:
    """Return the largest unit that gives at least two, and the seconds in it; hours for 7,200 seconds."""
    for unit, size in reversed(_UNITS):
        if seconds >= 2 * size:
            return unit, size
    return _UNITS[0]


def _delivery_note(row: dict[Hashable, Any]) -> str:
    """Return the duration and the retries of a delivery, for example "9 s, 2 retries"."""
    duration = elapsed(row["end"] - row["start"])
    if not row["retries"]:
        return duration

    retries = counted(row["retries"], "retry").replace("retrys", "retries")
    return f"{duration}, {retries}"


@documented
def plot_success_rates(
    runs: AnyFrame,
    *,
    freq: str | timedelta | None = None,
    top: int = 5,
    ax: Axes | None = None,
    theme: ThemeName = "auto",
) -> Axes:
    """Draw the share of successful runs over time, with one line per workflow.

    A point is the share of successes among the runs that started in a bin and have succeeded or failed; a bin
    without any interrupts the line. If there are few runs, use `summarize_runs`, which counts them.

    Parameters
    ----------
    runs : frame
        Run log, as `load_runs` returns it.
    freq : str or timedelta, optional
        Width of a bin, in whole minutes ("15min", "6h", "1d"). If omitted, it is chosen from the span.
    top : int
        Number of workflows, 1 to 8; the workflows with the most runs are drawn. There are fewer if they do
        not fit the figure; the label counts the others.
    {axes}
        If no run has ended, they show a sentence instead of lines.

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
            return axis.show_sentence(axes, "No run has ended", colours, title)
        sizes = (
            rates.groupby("workflow_url")["runs"]
            .sum()
            .sort_values(ascending=False, kind="stable")
        )
        shown = sizes.head(min(top, max(1, row_names.rows_that_fit(axes) // 3)))
        width = step / axis.DAY
        first, last = (
            time.timestamp() / 86_400
            for time in (rates["start"].min(), rates["start"].max())
        )
        bins = round((last - first) / width) + 1
        middles = first + width * (np.arange(bins) + 0.5)

        totals = []
        for number, url in enumerate(shown.index):
            workflow_rates = rates[rates["workflow_url"] == url]
            success_rates = np.full(bins, np.nan)
            places = (workflow_rates["start"] - rates["start"].min()) // step
            success_rates[places.to_numpy()] = (
                1 - workflow_rates["failure_rate"].to_numpy()
            )
            totals.append(_success_of(workflow_rates))
            axes.plot(
                middles, success_rates, color=colours.series[number], linewidth=1.6,
                dashes=_DASHES[number % len(_DASHES)], marker=_MARKERS[number], markersize=4.5, clip_on=False,
            )  # fmt: skip

        axis.limit(axes.yaxis, 0, 1.02)
        axes.yaxis.set_major_locator(
            MaxNLocator(nbins=max(1, min(5, int(axis.space_high(axes) / 0.3))))
        )
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))
        axis.label_axis(axes.yaxis, "runs that succeeded", colours)
        names, prefix = without_prefix(
            [Redactor().url(str(url)) for url in shown.index]
        )
        right_inches, above = axis.legend_of_totals(
            axes, axes.lines, names, totals, colours, less=10
        )
        zone = time_zone().key
        axis.time_axis(axes, first, last + width, taken=right_inches, tz=zone)
        label = f"start of the run ({zone}), in bins of {span(step)}"

        if len(sizes) > len(shown):
            # in low Axes, a line more would be cut
            end = "; " if axis.inches_high(axes) < axis.LOW else "\n"
            label += f"{end}{counted(len(sizes) - len(shown), 'workflow')} with fewer runs not shown"

        axis.label_axis(axes.xaxis, label, colours)
        title = axis.with_finding(title, _lowest(rates, list(shown.index), names))
        axis.heading(axes, title, colours, prefix=prefix, above=above)
        return axes


def _lowest(rates: pd.DataFrame, urls: list[str], names: Sequence[str]) -> str:
    """Return the workflow with the lowest share of successes, for example "lowest in orders (23 %)"."""
    ended = rates.groupby("workflow_url")[["succeeded", "failed"]].sum().loc[urls]
    shares = (ended["succeeded"] / ended.sum(axis=1)).to_numpy(dtype=np.float64)
    if len(shares) == 1:
        return percent(shares[0])

    lowest = int(np.nanargmin(shares))
    return (
        f"lowest in {drawable(names[lowest], longest=32)} ({percent(shares[lowest])})"
    )


def _success_of(rates: pd.DataFrame) -> str:
    """Return the share of successes of a workflow, for example "98 % of 1,200"; "none" if no run ended."""
    succeeded = int(rates["succeeded"].sum())
    ended = succeeded + int(rates["failed"].sum())
    if not ended:
        return "none"

    return f"{percent(succeeded / ended)} of {ended:,}"

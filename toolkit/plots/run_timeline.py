"""One run over time: a bar a delivery, with its attempts."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle

from toolkit.analysis.run_log import run_deliveries
from toolkit.analysis.sources import AnyFrame
from toolkit.analysis.wording import counted, elapsed, time_text
from toolkit.plots.axis import heading, label_axis, legend, name_above, number_axis, rows_that_fit
from toolkit.plots.style import ThemeName, documented, drawing, say, theme_named
from toolkit.redaction import Redactor

_LINES: Final = 1.9  # of a row and its name
_SIGNS: Final = {"delivered": 0, "failed": 3, "cancelled": 8, "pending": 4}
_UNITS: Final = (
    ("milliseconds", 0.001),
    ("seconds", 1.0),
    ("minutes", 60.0),
    ("hours", 3600.0),
)


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

    Raises
    ------
    InputError
        When a column is missing, or the events are of several runs and `run_id` names none of them.

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
    colours = theme_named(theme)
    with drawing(ax, colours) as axes:
        run = run_deliveries(events, steps, run_id)
        mask = Redactor().text
        title = f"Deliveries of the run {mask(run.run_id)}" if run.run_id else "Deliveries of a run"
        heading(axes, title, colours)
        if run.frame.empty or run.begin is None:
            return say(axes, "No events of a run", colours)
        rows = run.frame.head(rows_that_fit(axes, _LINES))
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
        names = [mask(str(name)) for name in rows["name"]]
        name_above(axes, (positions - 0.28).tolist(), names, colours, notes=notes)
        axes.set_ylim(max(len(rows), 3) - 0.4, -0.5)
        axes.set_xlim(0, max(longest / size, 1e-3) * 1.02)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x", color=colours.grid, linewidth=0.6, linestyle="-", alpha=1.0)
        axes.spines["left"].set_visible(False)
        number_axis(axes, axes.xaxis)
        outcomes = list(dict.fromkeys(rows["outcome"]))
        more = ([crosses], ["attempt that was repeated"]) if tried else ([], [])
        _, above = legend(axes, [*axes.containers, *more[0]], [*outcomes, *more[1]], colours)
        heading(axes, title, colours, above=above)
        shown = f"first {len(rows)} of {len(run.frame):,}; " * (len(rows) < len(run.frame))
        label_axis(axes.xaxis, f"{shown}{unit} since {time_text(run.begin)}", colours)
        return axes

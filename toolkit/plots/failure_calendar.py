"""Failures by weekday and hour."""

from __future__ import annotations

from matplotlib.axes import Axes
from narwhals.typing import IntoFrame

from toolkit.analysis.over_time import WEEKDAYS, FailureCalendar, failure_calendar
from toolkit.analysis.wording import counted
from toolkit.plots.axis import heading, inches, label_axis, name_rows
from toolkit.plots.heat import draw_cells
from toolkit.plots.style import Theme, ThemeName, drawing, theme_named
from toolkit.plots.texts import say

_HOUR = 0.3  # inches that the label of an hour takes


def plot_failure_calendar(
    failures: IntoFrame, *, tz: str = "UTC", ax: Axes | None = None, theme: ThemeName = "light"
) -> Axes:
    """Draw at which hours of which weekdays there were failures, as cells coloured by count.

    Not for asking since when: weeks lie on one another here. `plot_failure_trend` has a time axis.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at`.
    tz : str
        Time zone of weekdays and hours, such as ``"Europe/Istanbul"``.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: a new figure of pyplot's.
    theme : {"light", "dark"}

    Returns
    -------
    matplotlib.axes.Axes
        With a sentence instead of cells where there is no failure with a time.

    Raises
    ------
    InputError
        When a column is missing or the time zone is not known.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> times = pd.to_datetime(["2026-03-02 10:15", "2026-03-09 10:45"], utc=True)
    >>> frame = pd.DataFrame({"failed_at": times, "created_at": times})
    >>> ax = plot_failure_calendar(frame, ax=Figure().add_subplot())
    >>> ax.get_xlabel()
    'hour of the day (UTC), 2 failures'
    """
    colours = theme_named(theme)
    found = failure_calendar(failures, tz=tz)
    with drawing(ax, colours) as axes:
        return draw_calendar(found, axes, colours, title="Failures by weekday and hour")


def draw_calendar(found: FailureCalendar, ax: Axes, theme: Theme, *, title: str = "") -> Axes:
    """Draw a computed calendar on Axes from `drawing`."""
    if not found.total:
        heading(ax, title, theme)
        return say(ax, f"No failures{_left_out(found)}", theme)
    above = draw_cells(ax, found.counts, theme)
    heading(ax, title, theme, above=above)
    name_rows(ax, range(7), WEEKDAYS)
    step = next(step for step in (1, 2, 3, 6, 12) if inches(ax) / (24 / step) > _HOUR or step == 12)  # noqa: PLR2004 - noon
    ax.set_xticks(range(0, 24, step), [f"{hour:02}" for hour in range(0, 24, step)])
    fell_back = f"\n{found.fell_back:,} placed at creation" if found.fell_back else ""
    total = counted(found.total, "failure")
    label_axis(ax.xaxis, f"hour of the day ({found.tz}), {total}{_left_out(found)}{fell_back}", theme)
    return ax


def _left_out(found: FailureCalendar) -> str:
    return f" ({counted(found.undated, 'failure')} without a usable time)" if found.undated else ""

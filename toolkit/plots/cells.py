"""Cells coloured by their counts: failures by weekday and hour, and by two columns."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch
from numpy.typing import NDArray

from toolkit.analysis.counts import CountMatrix, count_matrix
from toolkit.analysis.over_time import WEEKDAYS, FailureCalendar, failure_calendar, readable_top
from toolkit.analysis.sources import AnyFrame
from toolkit.analysis.wording import counted, fitting_numbers, short_number
from toolkit.arguments import whole
from toolkit.plots.axis import heading, inches, inches_high, label_axis, name_rows, rows_that_fit, space_high
from toolkit.plots.style import (
    COLUMN,
    FONT,
    Theme,
    ThemeName,
    as_written,
    documented,
    drawable,
    drawable_names,
    drawing,
    say,
    theme_named,
)

_HIGH: Final = 0.15  # inches of height that a number or the name of a weekday needs
_HOUR: Final = 0.3  # inches of the label of an hour
_NAME: Final = 0.6  # least inches of a column's name
_MANY: Final = 5  # the colour of the theme's from which on texts are those for many


@documented
def plot_failure_calendar(
    failures: AnyFrame, *, tz: str = "UTC", ax: Axes | None = None, theme: ThemeName = "light"
) -> Axes:
    """Draw at which hours of which weekdays there were failures, as cells coloured by count.

    Not for finding when failures began: weeks are overlaid. `plot_failure_trend` has a time axis.

    Parameters
    ----------
    failures : frame
        With the columns `failed_at`, `created_at`.
    tz : str
        Time zone of weekdays and hours, such as ``"Europe/Istanbul"``.
    {axes}
        With a sentence instead of cells where there is no failure with a time.

    Raises
    ------
    InputError
        When a column is missing or the time zone is not known.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> times = pd.to_datetime(["2026-03-02 10:15", "2026-03-09 10:45"], utc=True)
    >>> frame = pd.DataFrame({"failed_at": times, "created_at": times})
    >>> ax = plot_failure_calendar(frame, ax=Figure().add_subplot())
    >>> ax.get_xlabel()
    'hour of the day (UTC), 2 failures'
    """
    colours = theme_named(theme)
    calendar = failure_calendar(failures, tz=tz)
    with drawing(ax, colours) as axes:
        return draw_calendar(calendar, axes, colours, title="Failures by weekday and hour")


def draw_calendar(calendar: FailureCalendar, ax: Axes, theme: Theme, *, title: str = "") -> Axes:
    """Draw a computed calendar on Axes from `drawing`."""
    if not calendar.total:
        heading(ax, title, theme)
        return say(ax, f"No failures{_left_out(calendar)}", theme)
    above = draw_cells(ax, calendar.counts, theme)
    heading(ax, title, theme, above=above)
    every = next(every for every in (1, 2, 3, 6) if space_high(ax) * every / 7 > _HIGH or every == 6)  # noqa: PLR2004
    name_rows(ax, range(0, 7, every), WEEKDAYS[::every])
    step = next(step for step in (1, 2, 3, 6, 12) if inches(ax) / (24 / step) > _HOUR or step == 12)  # noqa: PLR2004 - noon
    ax.set_xticks(range(0, 24, step), [f"{hour:02}" for hour in range(0, 24, step)])
    fell_back = f"\n{calendar.fell_back:,} placed at creation" if calendar.fell_back else ""
    total = counted(calendar.total, "failure")
    label_axis(ax.xaxis, f"hour of the day ({calendar.tz}), {total}{_left_out(calendar)}{fell_back}", theme)
    return ax


def _left_out(calendar: FailureCalendar) -> str:
    return f" ({counted(calendar.undated, 'failure')} without a usable time)" if calendar.undated else ""


@documented
def plot_failure_matrix(
    failures: AnyFrame,
    *,
    rows: str = "workflow_url",
    columns: str = "response_status",
    top: int = 12,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    r"""Draw how many failures there are by two columns, as cells coloured by count.

    Parameters
    ----------
    failures : frame
        With the two columns.
    rows, columns : str
        Columns of single values.
    top : int
        Number of rows; all others are one row. Fewer where more do not fit the height.
    {axes}
        With a sentence instead of cells where there are no rows.

    Raises
    ------
    InputError
        When a column is missing or holds lists, maps or bytes, or `top` is below 1.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"workflow_url": ["a", "a", "b"], "response_status": [500, 404, 500]})
    >>> ax = plot_failure_matrix(frame, ax=Figure().add_subplot())
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['500\n2', '404\n1']
    """
    colours = theme_named(theme)
    with drawing(ax, colours) as axes:
        matrix = count_matrix(
            failures, rows, columns, top_rows=min(whole("top", top), rows_that_fit(axes) - 1),
            top_columns=max(1, int(inches(axes) * 0.6 / _NAME)),
        )  # fmt: skip
        return draw_matrix(matrix, axes, colours, columns=columns, title=f"Failures by {rows} and {columns}")


def draw_matrix(matrix: CountMatrix, ax: Axes, theme: Theme, *, columns: str, title: str = "") -> Axes:
    """Draw a computed matrix on Axes from `drawing`; `columns` is what the columns are."""
    if not matrix.total:
        heading(ax, title, theme)
        return say(ax, "No failures", theme)
    above = draw_cells(ax, matrix.counts, theme)
    totals = [f"{total:,}" for total in matrix.counts.sum(axis=1).tolist()]
    prefix = name_rows(ax, range(len(matrix.rows)), matrix.rows, notes=totals)
    heading(ax, title, theme, prefix=prefix, above=above)
    _name_columns(ax, matrix)
    total = counted(matrix.total, "failure")
    label_axis(ax.xaxis, f"{drawable(columns, longest=24)}, and failures; {total} in all", theme)
    return ax


def _name_columns(ax: Axes, matrix: CountMatrix) -> None:
    space = inches(ax) / len(matrix.columns)
    names = drawable_names(matrix.columns, longest=max(5, int(space / COLUMN) - 1))
    totals = fitting_numbers(matrix.counts.sum(axis=0).tolist(), int(space / COLUMN))
    texts = [f"{name}\n{total}" for name, total in zip(names, totals, strict=True)]
    ax.set_xticks(range(len(texts)), texts)
    as_written(ax.get_xticklabels())


def draw_cells(
    ax: Axes, counts: NDArray[np.int64], theme: Theme, *, edges: NDArray[np.float64] | None = None
) -> float:
    """Draw a matrix of counts, the first row at the top, and return the inches used above the Axes."""
    rows, columns = counts.shape
    edges = np.arange(columns + 1) - 0.5 if edges is None else edges
    bounds = _bounds(counts, len(theme.heat))
    levels = np.searchsorted(bounds, counts, side="left")
    shown = [
        theme.heat[position]
        for position in np.linspace(0, len(theme.heat) - 1, len(bounds)).round().astype(int)
    ]
    narrowest = inches(ax) * float((edges[1:] - edges[:-1]).min() / (edges[-1] - edges[0]))
    ax.pcolormesh(
        edges, np.arange(rows + 1) - 0.5, np.ma.masked_equal(counts, 0), cmap=ListedColormap(shown),
        norm=BoundaryNorm([0.5, *(bound + 0.5 for bound in bounds)], len(shown)), shading="flat", snap=False,
        edgecolors=theme.paper, linewidth=min(1.0, 8 * narrowest),
    )  # fmt: skip
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(rows - 0.5, -0.5)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    space = int(inches(ax) / columns / (COLUMN * 0.9)) - 1
    written = fitting_numbers(counts.ravel().tolist(), space)
    if max(map(len, written), default=0) > space or inches_high(ax) / rows < _HIGH:
        return _key(ax, bounds, shown, theme)
    middle = (edges[:-1] + edges[1:]) / 2
    for row, column in np.argwhere(counts > 0):
        many = theme.heat.index(shown[levels[row, column]]) >= _MANY
        ax.text(
            middle[column], row, written[row * columns + column], ha="center", va="center",
            color=theme.on_many if many else theme.on_few, fontsize=8,
        )  # fmt: skip
    return 0.0


def _bounds(counts: NDArray[np.int64], levels: int) -> list[int]:
    """The highest count of each colour, by the root of the count; the last is for an outlying burst."""
    most = int(counts.max(initial=1))
    top = min(most, round(readable_top(counts.ravel())))
    steps = levels - (top < most)
    return sorted({max(1, round(top * (step / steps) ** 2)) for step in range(1, steps + 1)} | {most})


def _key(ax: Axes, bounds: list[int], shown: list[str], theme: Theme) -> float:
    """A key of colours and counts, above the right end of the Axes."""
    most = max(2, min(5, int(inches(ax) / 0.7)))
    some = sorted({round(position) for position in np.linspace(0, len(bounds) - 1, min(len(bounds), most))})
    patches = [Patch(facecolor=shown[position], edgecolor=theme.grid, linewidth=0.6) for position in some]
    lowest = [1, *(bound + 1 for bound in bounds)]
    names = [_span(lowest[position], bounds[position]) for position in some]
    ax.legend(
        patches, names, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(names), frameon=False,
        prop={"family": FONT, "size": 8}, labelcolor=theme.muted, handlelength=1.0, handleheight=0.8,
        handletextpad=0.3, labelspacing=0.3, columnspacing=0.8, borderpad=0.0, borderaxespad=0.4,
        markerscale=1.0, shadow=False, fancybox=False,
    )  # fmt: skip
    return 0.2


def _span(low: int, high: int) -> str:
    first, last = short_number(low), short_number(high)
    return first if first == last else f"{first}\N{EN DASH}{last}"

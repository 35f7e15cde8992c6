"""Axes for times, counts and spans. Labels do not overlap at any size of the Axes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.legend import Legend
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from toolkit.drawing.bar_heights import readable_top
from toolkit.drawing.drawable import (
    COLUMN,
    drawable,
    drawable_names,
    width,
    wrapped,
)
from toolkit.drawing.fonts import font_families
from toolkit.drawing.style import Theme, as_written, makes_room
from toolkit.drawing.wording import counted, short_number

DAY: Final = timedelta(days=1)
_MONTH: Final = timedelta(days=28)  # steps from here on have ticks with months
_MONDAY: Final = 4  # 1970-01-05
_TICK_STEPS: Final = (
    *(timedelta(minutes=minutes) for minutes in (5, 15, 30, 60, 180, 360, 720)),
    *(timedelta(days=days) for days in (1, 2, 4, 7, 14, 28, 91, 182, 364, 1820)),
)
_TICK_WIDTH: Final = 0.75  # inches of a tick label and the gap next to it
_DATE_WIDTH: Final = 0.6  # inches of a date such as "23 Nov" and the gap next to it
LINE_HEIGHT: Final = 0.17  # inches, of a line of 9 points and the gap above it
WIDE: Final = 4.6  # inches of width above which a legend fits next to the Axes
LOW: Final = 1.9  # inches of height below which a heading is one short line
# inches of height above which labels fit without a large change of layout
_HIGH: Final = 2.1
_TEXTS: Final = 0.85  # inches of height of lower Axes used by labels and heading
_TITLE_COLUMN: Final = 0.072  # inches of a letter of a title, on average
_LABELS: Final = 0.5  # inches at the left of the Axes that labels have before a layout
_TITLE_LINES: Final = 2
_MARK: Final = 0.7  # inches of a mark on a truncated bar
SHARE_OF_NAMES: Final = 0.4  # largest part of the width for names of rows
_DATES: Final = (-25_567.0, 84_006.0)  # the years 1900 to 2199, in days since 1970
_POINTS: Final = 72  # points per inch


def inches(ax: Axes) -> float:
    """Return the width of the Axes in inches."""
    return float(ax.get_window_extent().width / ax.figure.dpi)


def inches_high(ax: Axes) -> float:
    """Return the height of the Axes in inches."""
    return float(ax.get_window_extent().height / ax.figure.dpi)


def space_high(ax: Axes) -> float:
    """Return the inches of height for ticks and rows: if Axes are low, labels take a part of them."""
    height = inches_high(ax)
    if height >= _HIGH:
        return height

    figure = ax.get_figure(root=True)
    has_engine = figure is not None and figure.get_layout_engine() is not None
    leaves_room = has_engine or makes_room(ax)
    if not leaves_room:
        return height

    return height - _TEXTS


def limit(axis: Axis, first: float, last: float) -> tuple[float, float]:
    """Set the ends of an axis and return them. Axes that share the axis keep their data in view."""
    if any(other.has_data() for other in _sharing(axis)):
        low, high = axis.get_view_interval()
        is_reversed = first > last
        first, last = min(first, last, low, high), max(first, last, low, high)
        if is_reversed:
            first, last = last, first

    ax = axis.axes
    if axis is ax.xaxis:
        ax.set_xlim(first, last)
    else:
        ax.set_ylim(first, last)

    return first, last


def _sharing(axis: Axis) -> list[Axes]:
    """Return the other Axes that share this axis."""
    ax = axis.axes
    shared = ax.get_shared_y_axes()
    if axis is ax.xaxis:
        shared = ax.get_shared_x_axes()
    return [other for other in shared.get_siblings(ax) if other is not ax]


def top_of_bars(ax: Axes, heights: NDArray[Any]) -> float:
    """Return the height of the axis. Higher bars are cut, so that a burst does not flatten all others.

    If other Axes share the axis, nothing is cut, because their bars would be cut as well.
    """
    if _sharing(ax.yaxis):
        return float(heights.max())
    return readable_top(heights)


def heading(
    ax: Axes, title: str, theme: Theme, *, prefix: str = "", above: float = 0.0
) -> None:
    """Write a title and the common prefix of all names above the Axes; `above` inches are in use."""
    # from the bottom to the top: a legend (`above`), the prefix, the title
    space = max(16, int(inches(ax) / COLUMN))
    height = above * _POINTS + 5

    small = inches_high(ax) < LOW
    if prefix and not small and not prefix.endswith("://"):
        # a scheme alone is not information
        ax.annotate(
            f"names begin with {drawable(prefix, longest=max(8, space - 17))}", xy=(0, 1), xytext=(0, height),
            xycoords="axes fraction", textcoords="offset points", color=theme.muted, fontsize=9,
            va="bottom", annotation_clip=False, parse_math=False,
        )  # fmt: skip
        height += LINE_HEIGHT * _POINTS + 1

    if title:
        size = 9 if small else 11
        # `name_rows` sets it to "right"
        alignment = ax.xaxis.label.get_horizontalalignment()
        drawn = ax.set_title(
            "", loc="left", x=float(alignment == "right"), y=1.0, pad=height, color=theme.ink,
            fontsize=size, horizontalalignment="right" if alignment == "right" else "left", parse_math=False,
        )  # fmt: skip
        _fit_title(ax, drawn, title, above)


def _fit_title(ax: Axes, drawn: Text, title: str, above: float) -> None:
    """Break a title into lines that fit the width, and shorten the title if the Axes are low."""
    # the names of rows move the Axes to the right once a layout is computed
    names = max((width(label.get_text()) for label in ax.get_yticklabels()), default=0)
    space = max(1.0, inches(ax) - max(0.0, names * COLUMN - _LABELS))
    # before it is measured, because the settings of a notebook may ask for TeX
    as_written([drawn])
    columns = space / _TITLE_COLUMN
    drawn.set_text("\n".join(_title_lines(ax, title, columns, above)))

    drawn_width = drawn.get_window_extent().width / ax.figure.dpi
    if drawn_width > space:
        # wide letters, for example capital ones
        columns *= space / drawn_width
        drawn.set_text("\n".join(_title_lines(ax, title, columns, above)))


def _title_lines(ax: Axes, title: str, columns: float, above: float) -> list[str]:
    """Return the lines of a title; without the part after a comma or colon if the Axes are low."""
    space = max(14, int(columns))
    lines = wrapped(drawable(title, longest=120), space)
    if len(lines) == 1:
        return lines

    if inches_high(ax) - above < LOW:
        # a legend above already uses the height
        lines = wrapped(drawable(re.split("[,:]", title)[0], longest=120), space)
    else:
        lines = _plot_and_finding(title, space)

    if inches_high(ax) < LOW and len(lines) > 1:
        return [f"{lines[0]}…"]

    return lines


def _plot_and_finding(title: str, space: int) -> list[str]:
    """Return the name of a plot and the finding as two lines, or the name alone if they need more."""
    plot, colon, finding = title.partition(": ")
    # a finding is read most easily if it is not broken
    name = wrapped(drawable(f"{plot}{colon.rstrip()}", longest=120), space)
    lines = [*name, *wrapped(drawable(finding, longest=120), space)]
    if colon and len(lines) <= _TITLE_LINES:
        return lines

    return wrapped(drawable(plot, longest=120), space)


def with_finding(title: str, finding: str) -> str:
    """Return a title that ends with the main finding of the plot. If the Axes are low, `heading` drops it.

    >>> with_finding("Classes of failures", "bug 27 %"), with_finding("", "bug 27 %")
    ('Classes of failures: bug 27 %', '')
    """
    if not title:
        return ""
    return f"{title}: {finding}".removesuffix(": ")


def show_sentence(ax: Axes, sentence: str, theme: Theme, title: str = "") -> Axes:
    """Show a sentence instead of an empty plot, for example "No failures", below the title."""
    heading(ax, title, theme)
    # Axes can share ticks
    ax.tick_params(bottom=False, left=False, labelbottom=False, labelleft=False)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.text(
        0.5, 0.5, sentence, transform=ax.transAxes, ha="center", va="center", color=theme.muted, fontsize=11,
        wrap=True, parse_math=False,
    )  # fmt: skip

    return ax


def legend(
    ax: Axes,
    handles: Sequence[Any],
    names: Sequence[str],
    theme: Theme,
    *,
    long: float = 1.2,
) -> tuple[float, float]:
    """Draw a legend, and return the inches that it takes of the width and of the height.

    If the Axes are wide, it is drawn at the right of them, otherwise above them. Above low Axes it names only
    as many series as leave half of the height. Handles are passed because a label that matplotlib finds by
    itself vanishes if it begins with "_". They are drawn `long` times as long as high. If there are more
    handles than names, the last ones are used: something may have been drawn on the Axes before.
    """
    handles = handles[-len(names) :]
    name_width = max(map(width, names)) * COLUMN + 0.3 + long / 8
    if inches(ax) > WIDE and len(names) * LINE_HEIGHT < inches_high(ax):
        _draw_legend(
            ax, handles, names, theme, long, loc="upper left", at=(1.0, 1.0), ncols=1
        )
        return name_width, 0.0

    columns = max(1, min(4, int(inches(ax) / name_width)))
    rows = max(1, int(inches_high(ax) * SHARE_OF_NAMES / LINE_HEIGHT))
    if len(names) > rows * columns:
        named = rows * columns - 1
        names = [*names[:named], f"… {len(names) - named} more"]
        handles = [*handles[:named], Patch(visible=False)]

    drawn = _draw_legend(
        ax, handles, names, theme, long, loc="lower left", at=(0.0, 1.0), ncols=columns
    )
    # measured, because letters with marks make a row higher
    return 0.0, drawn.get_window_extent().height / ax.figure.dpi + 0.06


def _draw_legend(
    ax: Axes, handles: Sequence[Any], names: Sequence[str], theme: Theme, long: float, *,
    loc: Literal["upper left", "lower left"],
    at: tuple[float, float], ncols: int,
) -> Legend:  # fmt: skip
    drawn: Legend = ax.legend(
        handles, names, loc=loc, ncols=ncols, frameon=False, bbox_to_anchor=at,
        prop={"family": font_families(), "size": 9}, labelcolor=theme.ink, handlelength=long,
        handleheight=0.75, handletextpad=0.5, labelspacing=0.35, columnspacing=1.2, borderpad=0.0,
        borderaxespad=0.5, markerscale=1.0, numpoints=1, scatterpoints=1, shadow=False, fancybox=False,
        mode=None, alignment="left",
    )  # fmt: skip
    as_written(drawn.get_texts())
    return drawn


def legend_of_totals(
    ax: Axes,
    handles: Sequence[Any],
    names: Sequence[str],
    totals: Sequence[str],
    theme: Theme,
    *,
    less: int,
) -> tuple[float, float]:
    """Draw a legend of names and totals. Names have a third of the width, less `less` columns."""
    longest = max(12, min(32, int(inches(ax) * 0.32 / COLUMN) - less))
    short = drawable_names(names, longest=longest)

    return legend(
        ax,
        handles,
        [f"{name}  {total}" for name, total in zip(short, totals, strict=True)],
        theme,
    )


def cut(
    ax: Axes,
    theme: Theme,
    top: float,
    middles: Sequence[float],
    heights: Sequence[float],
) -> float:
    """End the vertical axis at `top`, mark the truncated bars, and return the inches used above the Axes.

    Of bars so near that their marks would overlap, only the highest is marked.
    """
    limit(ax.yaxis, 0, top)
    low, high = ax.get_xlim()
    mark_width = _MARK * (high - low) / max(inches(ax), 0.1)

    marked: list[float] = []
    for number in sorted(range(len(heights)), key=lambda number: -heights[number]):
        position = middles[number]
        if heights[number] <= top:
            break
        if all(abs(position - other) > mark_width for other in marked):
            marked.append(position)
            ax.annotate(
                f"\N{BLACK UP-POINTING TRIANGLE} {heights[number]:,.0f}", xy=(position, top),
                xytext=(0, 1), textcoords="offset points",
                ha="center", va="bottom", color=theme.ink, fontsize=9, annotation_clip=False,
            )  # fmt: skip

    return LINE_HEIGHT


def time_axis(
    ax: Axes, start: float, end: float, *, taken: float = 0.0, tz: str = "UTC"
) -> None:
    """Draw a horizontal axis of days since 1970, as matplotlib's date axes count, with ticks at local times.

    `taken` inches of the width are not free for labels.
    """
    # Ticks are chosen here because matplotlib's date locators let labels overlap on narrow Axes.
    low, high = limit(ax.xaxis, start, end)
    start, end = max(low, _DATES[0]), min(high, _DATES[1])
    days = _tick_step(end - start, inches(ax) - taken)
    # weeks begin on Mondays
    origin = _MONDAY if days % 7 == 0 else 0
    zone = ZoneInfo(tz)
    ahead = _days_ahead(start, zone)
    first = math.ceil((start + ahead - origin) / days - 1e-9) * days + origin
    # local times, as days since 1970; and the same times in UTC
    local = [
        first + number * days
        for number in range(int((end + ahead - first) / days + 1e-9) + 1)
    ]
    local = local or [start + ahead]
    ticks = [time - _days_ahead(time - ahead, zone) for time in local]
    ax.set_xticks(
        ticks,
        [
            _tick_label(time, days, first=number == 0)
            for number, time in enumerate(local)
        ],
    )


def _tick_step(days: float, space: float) -> float:
    """Return the shortest step between ticks, in days, that leaves room for their labels."""
    for step in _TICK_STEPS:
        is_date = DAY <= step < _MONTH
        label_width = _DATE_WIDTH if is_date else _TICK_WIDTH
        most_ticks = max(2, int(space / label_width))
        if days <= most_ticks * (step / DAY):
            return step / DAY

    return _TICK_STEPS[-1] / DAY


def _days_ahead(time: float, zone: ZoneInfo) -> float:
    """Return how far the clocks of a zone are ahead of UTC, in days."""
    offset = datetime.fromtimestamp(round(time * 86_400), tz=zone).utcoffset()
    if offset is None:
        return 0.0

    return offset / DAY


def _tick_label(tick: float, days: float, *, first: bool) -> str:
    """Return the label of a tick; the first tick and midnights also have the date."""
    when = datetime.fromtimestamp(round(tick * 86_400), tz=UTC)
    if days >= _MONTH / DAY:
        return f"{when:%b %Y}"

    date = f"{when.day} {when:%b}"
    if days >= 1:
        return date

    is_midnight = when.hour + when.minute == 0
    if first or is_midnight:
        return f"{when:%H:%M}\n{date}"

    return f"{when:%H:%M}"


def count_axis(ax: Axes, label: str, theme: Theme, top: float) -> None:
    """Draw a vertical axis of counts from 0 to a little above the top."""
    limit(ax.yaxis, 0, top * 1.05)
    ax.yaxis.set_major_locator(
        MaxNLocator(
            nbins=max(1, min(5, int(space_high(ax) / 0.3))), integer=True, min_n_ticks=1
        )
    )
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    label_axis(ax.yaxis, label, theme)


def number_axis(
    ax: Axes, axis: Axis, written: Callable[[float], str] = "{:.6g}".format
) -> None:
    """Draw an axis of numbers, for example of scores, with as many ticks as fit."""
    space = space_high(ax) / 0.3
    if axis is ax.xaxis:
        space = inches(ax) / _TICK_WIDTH
    axis.set_major_locator(
        MaxNLocator(nbins=max(1, min(6, int(space))), steps=[1, 2, 2.5, 5, 10])
    )
    axis.set_major_formatter(FuncFormatter(lambda value, _: written(value)))


def whole_axis(ax: Axes, apart: float) -> None:
    """Draw a horizontal axis of whole numbers, at least `apart` inches from one another."""
    nbins = max(1, int(inches(ax) / apart))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=nbins, integer=True, min_n_ticks=1))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))


def label_axis(axis: Axis, label: str, theme: Theme) -> None:
    """Label an axis with literal text, on as many lines as needed."""
    length = inches_high(axis.axes)
    if axis is axis.axes.xaxis:
        length = inches(axis.axes)
    space = max(16, int(length / COLUMN * 1.1))
    lines: list[str] = []
    for line in label.split("\n"):
        lines += wrapped(line, space)
    axis.set_label_text(
        "\n".join(lines), color=theme.muted, fontsize=9, parse_math=False
    )


def aside(*counts: tuple[int, str]) -> str:
    """Return a remark in parentheses, with each number that is not 0 and the thing that it counts.

    >>> aside((3, "due already"), (0, "without a usable time"))
    '(3 due already)'
    """
    parts = [
        f"{number:,} {counted_thing}" for number, counted_thing in counts if number
    ]
    if not parts:
        return ""

    remark = ", ".join(parts)
    return f"({remark})"


def left_out(count: int, noun: str, reason: str) -> str:
    """Return a remark about rows that are not drawn; an empty string if all are.

    >>> left_out(1, "row", "without a number"), left_out(0, "row", "without a number")
    (' (1 row without a number)', '')
    """
    if not count:
        return ""
    return f" ({counted(count, noun)} {reason})"


def first_of(shown: int, total: int, plural: str = "") -> str:
    """Return the beginning of a label if not all rows are drawn.

    >>> first_of(5, 1200, "groups"), first_of(5, 5, "groups")
    ('first 5 of 1,200 groups; ', '')
    """
    if shown >= total:
        return ""
    return f"{f'first {shown} of {total:,} {plural}'.rstrip()}; "

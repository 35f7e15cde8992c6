"""Axes that people read: times, counts, spans, names; no label over another at any size."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FuncFormatter, MaxNLocator
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from toolkit.drawing.style import (
    COLUMN,
    FONT,
    Theme,
    as_written,
    drawable,
    drawable_names,
    makes_room,
    width,
    without_prefix,
    wrapped,
)
from toolkit.drawing.wording import fitting_numbers, readable_top, short_number

DAY: Final = timedelta(days=1)
_MONDAY: Final = 4  # 1970-01-05
_TICK_STEPS: Final = (
    *(timedelta(minutes=minutes) for minutes in (5, 15, 30, 60, 180, 360, 720)),
    *(timedelta(days=days) for days in (1, 2, 4, 7, 14, 28, 91, 182, 364, 1820)),
)
_TICK_WIDTH: Final = 0.75  # inches of a tick label and the gap beside it
_SHORTEST: Final = 8  # columns that a name has at least
_NARROWEST: Final = 3  # columns that the name of a column of cells has at least
_LINE: Final = 0.17  # inches, of a line of 9 points and the gap above it
_WIDE: Final = 4.6  # inches from which a legend fits beside the Axes
_LOW: Final = 1.9  # inches of height below which a heading is one short line
_HIGH: Final = 2.1  # inches of height from which texts fit without a large change of layout
_TEXTS: Final = 0.85  # inches of height of lower Axes used by labels and heading
_MARK: Final = 0.7  # inches of a mark on a truncated bar
NAMED_BAR: Final = 1.9
"""Lines that a bar and the name above it take."""

_SHARE_OF_NAMES: Final = 0.4  # of the width, that names of rows may take
_SHARE_OF_WIDE: Final = 0.5  # the same where Axes are wide
_ROOMY: Final = 6.0  # inches from which Axes are wide
_DATES: Final = (-25_567.0, 84_006.0)  # the years 1900 to 2199, in days since 1970


def inches(ax: Axes) -> float:
    """Width of the Axes."""
    return float(ax.get_window_extent().width / ax.figure.dpi)


def inches_high(ax: Axes) -> float:
    """Height of the Axes."""
    return float(ax.get_window_extent().height / ax.figure.dpi)


def space_high(ax: Axes) -> float:
    """Height for ticks and rows: of low Axes, the height left after placing texts."""
    high, figure = inches_high(ax), ax.get_figure(root=True)
    laid_out = makes_room(ax) or (figure is not None and figure.get_layout_engine() is not None)
    shrinks = high < _HIGH and laid_out
    return high - _TEXTS if shrinks else high


def limit(axis: Axis, first: float, last: float) -> tuple[float, float]:
    """Let an axis run from one end to the other, and as far as Axes that share it do already; its ends."""
    if any(other.has_data() for other in _sharing(axis)):
        shown = axis.get_view_interval()
        low, high = min(first, last, *shown), max(first, last, *shown)
        first, last = (low, high) if first <= last else (high, low)
    ax = axis.axes
    (ax.set_xlim if axis is ax.xaxis else ax.set_ylim)(first, last)
    return first, last


def _sharing(axis: Axis) -> list[Axes]:
    """Other Axes with this axis."""
    ax = axis.axes
    shared = ax.get_shared_x_axes() if axis is ax.xaxis else ax.get_shared_y_axes()
    return [other for other in shared.get_siblings(ax) if other is not ax]


def top_of_bars(ax: Axes, heights: NDArray[Any]) -> float:
    """Where bars end: a burst is cut, unless other Axes share the axis, as their bars would be cut, too."""
    return float(heights.max()) if _sharing(ax.yaxis) else readable_top(heights)


def heading(ax: Axes, title: str, theme: Theme, *, prefix: str = "", above: float = 0.0) -> None:
    """A title, and the common prefix of all names, above the Axes; `above` inches are in use."""
    space = max(16, int(inches(ax) / COLUMN))
    height = above * 72 + 5
    small = inches_high(ax) < _LOW
    if prefix and not small and not prefix.endswith("://"):  # a scheme alone is not information
        ax.annotate(
            f"names begin with {drawable(prefix, longest=max(8, space - 17))}", xy=(0, 1), xytext=(0, height),
            xycoords="axes fraction", textcoords="offset points", color=theme.muted, fontsize=9,
            va="bottom", annotation_clip=False, parse_math=False,
        )  # fmt: skip
        height += _LINE * 72 + 1
    if title:
        size = 9 if small else 11
        fits = max(14, space * 9 // size)
        lines = wrapped(drawable(title, longest=120), fits)
        if len(lines) > 1 and inches_high(ax) - above < _LOW:  # a legend above already uses the height
            lines = wrapped(drawable(re.split("[,:]", title)[0], longest=120), fits)
        if small and len(lines) > 1:
            lines = [f"{lines[0]}…"]
        ends = ax.xaxis.label.get_horizontalalignment() == "right"  # as `name_rows` says
        ax.set_title(
            "\n".join(lines), loc="left", x=float(ends), y=1.0, pad=height, color=theme.ink, fontsize=size,
            horizontalalignment="right" if ends else "left", parse_math=False,
        )  # fmt: skip


def say(ax: Axes, sentence: str, theme: Theme, title: str = "") -> Axes:
    """A sentence instead of an empty plot, below its title."""
    heading(ax, title, theme)
    ax.tick_params(bottom=False, left=False, labelbottom=False, labelleft=False)  # Axes can share ticks
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.text(
        0.5, 0.5, sentence, transform=ax.transAxes, ha="center", va="center", color=theme.muted, fontsize=11,
        wrap=True, parse_math=False,
    )  # fmt: skip
    return ax


def legend(
    ax: Axes, handles: Sequence[Any], names: Sequence[str], theme: Theme, *, long: float = 1.2
) -> tuple[float, float]:
    """A legend beside the Axes where they are wide, above them where not; the inches used of each.

    Above low Axes it names as many as leave them half of their height. Handles are given: a label that
    matplotlib finds by itself vanishes when it begins with "_". They are drawn `long` times as long as high.
    Of more handles than names, the last ones are meant: Axes can hold what was drawn on them before.
    """
    handles = handles[-len(names) :]
    taken = max(map(width, names)) * COLUMN + 0.3 + long / 8
    beside = inches(ax) > _WIDE and len(names) * _LINE < inches_high(ax)
    columns = 1 if beside else max(1, min(4, int(inches(ax) / taken)))
    rows = max(1, int(inches_high(ax) * _SHARE_OF_NAMES / _LINE))
    if not beside and len(names) > rows * columns:
        kept = rows * columns - 1
        names = [*names[:kept], f"… {len(names) - kept} more"]
        handles = [*handles[:kept], Patch(visible=False)]
    drawn = ax.legend(
        handles, names, loc="upper left" if beside else "lower left", ncols=columns, frameon=False,
        bbox_to_anchor=(1.0, 1.0) if beside else (0.0, 1.0), prop={"family": FONT, "size": 9},
        labelcolor=theme.ink, handlelength=long, handleheight=0.75, handletextpad=0.5, labelspacing=0.35,
        columnspacing=1.2, borderpad=0.0, borderaxespad=0.5, markerscale=1.0, numpoints=1, scatterpoints=1,
        shadow=False, fancybox=False, mode=None, alignment="left",
    )  # fmt: skip
    as_written(drawn.get_texts())
    # measured, as letters with marks make a row higher
    return (taken, 0.0) if beside else (0.0, drawn.get_window_extent().height / ax.figure.dpi + 0.06)


def legend_of_totals(
    ax: Axes, handles: Sequence[Any], names: Sequence[str], totals: Sequence[str], theme: Theme, *, less: int
) -> tuple[float, float]:
    """A legend in which names, of a third of the width `less` some columns, are followed by totals."""
    longest = max(12, min(32, int(inches(ax) * 0.32 / COLUMN) - less))
    short = drawable_names(names, longest=longest)
    return legend(ax, handles, [f"{name}  {total}" for name, total in zip(short, totals, strict=True)], theme)


def cut(ax: Axes, theme: Theme, top: float, middles: Sequence[float], heights: Sequence[float]) -> float:
    """End the vertical axis at `top` and mark the truncated bars, of neighbours one; inches used above."""
    limit(ax.yaxis, 0, top)
    low, high = ax.get_xlim()
    per_inch = (high - low) / max(inches(ax), 0.1)
    marked: list[float] = []
    for number in sorted(range(len(heights)), key=lambda number: -heights[number]):
        position = middles[number]
        if heights[number] <= top:
            break
        if all(abs(position - other) > _MARK * per_inch for other in marked):
            marked.append(position)
            ax.annotate(
                f"\N{BLACK UP-POINTING TRIANGLE} {heights[number]:,.0f}", xy=(position, top),
                xytext=(0, 1), textcoords="offset points",
                ha="center", va="bottom", color=theme.ink, fontsize=9, annotation_clip=False,
            )  # fmt: skip
    return _LINE


def time_axis(ax: Axes, start: float, end: float, *, taken: float = 0.0, tz: str = "UTC") -> None:
    """Draw a horizontal axis of days since 1970, as matplotlib's date axes count, with ticks at local times.

    `taken` are inches that are not free for labels.
    """
    # Ticks are chosen here because matplotlib's date locators let labels overlap on narrow Axes.
    most = max(2, int((inches(ax) - taken) / _TICK_WIDTH))
    low, high = limit(ax.xaxis, start, end)
    start, end = max(low, _DATES[0]), min(high, _DATES[1])
    step = next((step for step in _TICK_STEPS if (end - start) / step.total_seconds() * 86_400 <= most), None)
    days = (step or _TICK_STEPS[-1]) / DAY
    origin = _MONDAY if days % 7 == 0 else 0
    zone = ZoneInfo(tz)
    ahead = _days_ahead(start, zone)
    first = math.ceil((start + ahead - origin) / days - 1e-9) * days + origin
    # what clocks show, as days since 1970; and the same times in UTC
    shown = [first + number * days for number in range(int((end + ahead - first) / days + 1e-9) + 1)]
    shown = shown or [start + ahead]
    ticks = [time - _days_ahead(time - ahead, zone) for time in shown]
    ax.set_xticks(ticks, [_tick_label(time, days, first=number == 0) for number, time in enumerate(shown)])


def _days_ahead(time: float, zone: ZoneInfo) -> float:
    """Return how far the clocks of a zone are ahead of UTC, in days."""
    offset = datetime.fromtimestamp(round(time * 86_400), tz=zone).utcoffset()
    return 0.0 if offset is None else offset / DAY


def _tick_label(tick: float, days: float, *, first: bool) -> str:
    when = datetime.fromtimestamp(round(tick * 86_400), tz=UTC)
    if days >= 28:  # noqa: PLR2004 - four weeks
        return f"{when:%b %Y}"
    if days >= 1:
        return f"{when.day} {when:%b}"
    return f"{when:%H:%M}\n{when.day} {when:%b}" if first or when.hour + when.minute == 0 else f"{when:%H:%M}"


def count_axis(ax: Axes, label: str, theme: Theme, top: float) -> None:
    """A vertical axis of counts from 0 to a little above the top."""
    limit(ax.yaxis, 0, top * 1.05)
    ax.yaxis.set_major_locator(
        MaxNLocator(nbins=max(1, min(5, int(space_high(ax) / 0.3))), integer=True, min_n_ticks=1)
    )
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    label_axis(ax.yaxis, label, theme)


def number_axis(ax: Axes, axis: Axis, written: Callable[[float], str] = "{:.6g}".format) -> None:
    """An axis of numbers such as scores: as many ticks as fit."""
    space = inches(ax) / _TICK_WIDTH if axis is ax.xaxis else space_high(ax) / 0.3
    axis.set_major_locator(MaxNLocator(nbins=max(1, min(6, int(space))), steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: written(value)))


def whole_axis(ax: Axes, apart: float) -> None:
    """A horizontal axis of whole numbers, each at least so many inches from the next."""
    nbins = max(1, int(inches(ax) / apart))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=nbins, integer=True, min_n_ticks=1))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))


def label_axis(axis: Axis, label: str, theme: Theme) -> None:
    """The label of an axis, taken literally, on as many lines as it needs."""
    length = inches(axis.axes) if axis is axis.axes.xaxis else inches_high(axis.axes)
    space = max(16, int(length / COLUMN * 1.1))
    lines = [part for line in label.split("\n") for part in wrapped(line, space)]
    axis.set_label_text("\n".join(lines), color=theme.muted, fontsize=9, parse_math=False)


def aside(*counts: tuple[int, str]) -> str:
    """A remark in parentheses: each number that is not 0, and what it counts.

    >>> aside((3, "due already"), (0, "without a usable time"))
    '(3 due already)'
    """
    parts = [f"{number:,} {what}" for number, what in counts if number]
    return f"({', '.join(parts)})" if parts else ""


def rows_that_fit(ax: Axes, lines: float = 1.0) -> int:
    """How many rows of names fit, each as high as so many lines."""
    return max(2, int(space_high(ax) / _LINE / lines))


def name_rows(
    ax: Axes, positions: Sequence[float], names: Sequence[str], *, notes: Sequence[str] = ()
) -> str:
    """Name the rows on the vertical axis without their common prefix, which is returned for the heading."""
    names, prefix = without_prefix(names)
    behind = [f" {note}" for note in notes] or [""] * len(names)
    share = _SHARE_OF_WIDE if inches(ax) > _ROOMY else _SHARE_OF_NAMES
    widest = max(map(len, behind), default=0)
    longest = max(8, min(40, int(inches(ax) * share / COLUMN) - widest))
    lines = int(space_high(ax) / _LINE / max(1, len(names)))
    texts = [
        _broken(f"{drawable(name, longest=math.inf)}{note}", longest + widest, lines) or f"{shortened}{note}"
        for name, note, shortened in zip(names, behind, drawable_names(names, longest=longest), strict=True)
    ]
    ax.set_yticks(list(positions), texts)
    as_written(ax.get_yticklabels())
    ax.tick_params(axis="y", length=0)
    taken = max((width(line) for text in texts for line in text.split("\n")), default=0.0) * COLUMN
    if inches(ax) < _WIDE and taken > _SHARE_OF_NAMES * inches(ax):
        # what is left beside the names is narrow: the label and the title end there instead of being cut
        ax.xaxis.label.set(x=1.0, horizontalalignment="right")
    return prefix


def name_columns(ax: Axes, names: Sequence[str], totals: Sequence[int]) -> str:
    """Name columns, with totals below, without their common prefix, which is returned for the heading."""
    names, prefix = without_prefix(names)
    ax.set_xticks(range(len(names)))
    ax.xaxis.set_major_formatter(_Columns(ax, names, totals))
    as_written(ax.get_xticklabels())
    return prefix


class _Columns(FixedFormatter):
    """Names and totals in the width of a column, which is known when they are drawn."""

    def __init__(self, ax: Axes, names: Sequence[str], totals: Sequence[int]) -> None:
        super().__init__([])
        self.ax, self.names, self.totals = ax, names, totals

    def format_ticks(self, values: list[float]) -> list[str]:
        """Texts of the ticks."""
        low, high = self.ax.get_xlim()
        space = int(inches(self.ax) / abs(high - low) / COLUMN)
        names = drawable_names(self.names, longest=max(_NARROWEST, space - 1))
        totals = fitting_numbers(self.totals, space)
        self.seq = [f"{name}\n{total}" for name, total in zip(names, totals, strict=True)]
        return super().format_ticks(values)


def _broken(name: str, space: int, lines: int) -> str | None:
    """A name on so many lines, broken between its words; None where it does not fit."""
    parts = wrapped(name, space)
    fits = len(parts) <= lines and max(map(width, name.split()), default=0) <= space
    return "\n".join(parts) if fits else None


def name_above(
    ax: Axes, positions: Sequence[float], names: Sequence[str], theme: Theme, *, notes: Sequence[str] = ()
) -> None:
    """Name rows above their bars, in the whole width; notes behind the names stay whole."""
    ax.set_yticks([])
    for position, name, note in zip(positions, names, notes or [""] * len(names), strict=True):
        look = {"va": "bottom", "color": theme.ink, "fontsize": 9, "parse_math": False, "clip_on": False}
        longest = max(_SHORTEST, inches(ax) / COLUMN - len(note) - 2)  # until it is drawn
        ax.add_artist(_Name(position, name, note, longest, transform=ax.get_yaxis_transform(), **look))


def name_bars(
    ax: Axes, names: Sequence[str], theme: Theme, notes: Sequence[str], *, longest: float | None = None
) -> None:
    """Name horizontal bars from the top; without the length of the `longest`, their axis has a grid."""
    name_above(ax, [number - 0.04 for number in range(len(names))], names, theme, notes=notes)
    limit(ax.yaxis, max(len(names), 3) - 0.4, -0.5)  # a single bar does not fill the Axes
    ax.spines["left"].set_visible(False)
    ax.grid(visible=False)
    if longest is None:
        ax.grid(visible=True, axis="x", color=theme.grid, linewidth=0.6, linestyle="-", alpha=1.0)
        return
    ax.spines["bottom"].set_visible(False)
    limit(ax.xaxis, 0, longest)
    ax.set_xticks([])


class _Name(Text):
    """A name, and a note, in the width of its Axes, which is known when they are drawn."""

    def __init__(self, position: float, name: str, note: str, longest: float, **look: Any) -> None:
        self.name, self.note = name, note
        super().__init__(0, position, self._within(longest), **look)

    def _within(self, columns: float) -> str:
        return f"{drawable(self.name, longest=columns)}  {self.note}".rstrip()

    def get_tightbbox(self, renderer: Any = None) -> Bbox:
        """No wider than the Axes, whose width a layout finds, but as high as it is."""
        box = self.get_window_extent(renderer)
        right = cast("Axes", self.axes).get_window_extent(renderer).x1
        return Bbox.from_extents(box.x0, box.y0, min(box.x1, right), box.y1)

    def draw(self, renderer: Any, *args: Any, **kwargs: Any) -> None:
        """Draw as much of the name as there is room for."""
        low, high = _SHORTEST, max(_SHORTEST, math.ceil(width(drawable(self.name, longest=math.inf))))
        while low < high:  # the most columns that fit
            middle = (low + high + 1) // 2
            self.set_text(self._within(middle))
            if self.get_window_extent(renderer).x1 <= cast("Axes", self.axes).get_window_extent(renderer).x1:
                low = middle
            else:
                high = middle - 1
        self.set_text(self._within(low))
        super().draw(renderer, *args, **kwargs)


def name_tops(
    ax: Axes,
    what: str,
    theme: Theme,
    positions: Sequence[float],
    tops: Sequence[float],
    *,
    high: float = 0.85,
) -> None:
    """Rows of bars, each on its own scale: at the right edge, which count its full height stands for."""
    scale = "each row has its own scale, at the right" if len(tops) > 1 else "the scale is at the right"
    label_axis(ax.yaxis, f"{what}: {scale}", theme)
    if inches_high(ax) < _LOW:
        label_axis(ax.yaxis, "own scale each", theme)
    ax.grid(visible=False)
    ax.spines[["left", "bottom"]].set_visible(False)
    limit(ax.yaxis, -len(tops) + 0.9, 1)
    for position, top in zip(positions, tops, strict=True):
        ax.axhline(position, color=theme.grid, linewidth=0.6, zorder=0.5)
        ax.annotate(
            short_number(round(top)), xy=(1, position + high), xytext=(4, 0),
            xycoords=("axes fraction", "data"), textcoords="offset points", va="top", color=theme.muted,
            fontsize=9, annotation_clip=False,
        )  # fmt: skip

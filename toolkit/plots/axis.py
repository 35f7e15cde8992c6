"""Axes that people read: times, counts, spans, names; no label over another at any size."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, MaxNLocator

from toolkit.analysis.wording import short_number
from toolkit.plots.style import Theme
from toolkit.plots.texts import as_written, drawable

DAY: Final = timedelta(days=1)
_MONDAY: Final = 4  # 1970-01-05
_TICK_STEPS: Final = tuple(
    timedelta(minutes=minutes)
    for minutes in (
        5,
        15,
        30,
        60,
        180,
        360,
        720,
        *(1440 * days for days in (1, 2, 4, 7, 14, 28, 91, 364, 1820)),
    )
)
_TICK_WIDTH: Final = 0.75  # inches that a tick label and the gap beside it take
CHARACTER: Final = 0.085  # inches, of a text of 9 points
_LINE: Final = 0.17  # inches, of a line of 9 points and the gap above it
_SHARE_OF_NAMES: Final = 0.4  # of the width, that names of rows may take


def inches(ax: Axes) -> float:
    """Width of the Axes."""
    return float(ax.get_window_extent().width / ax.figure.dpi)


def inches_high(ax: Axes) -> float:
    """Height of the Axes."""
    return float(ax.get_window_extent().height / ax.figure.dpi)


def time_axis(ax: Axes, start: float, end: float) -> None:
    """A horizontal axis of days since 1970, UTC, which is what matplotlib's date axes count."""
    # Ticks are chosen here because matplotlib's date locators let labels overlap on narrow Axes.
    most = max(2, int(inches(ax) / _TICK_WIDTH))
    step = next((step for step in _TICK_STEPS if (end - start) / step.total_seconds() * 86_400 <= most), None)
    days = (step or _TICK_STEPS[-1]) / DAY
    origin = _MONDAY if days % 7 == 0 else 0
    first = math.ceil((start - origin) / days - 1e-9) * days + origin
    ticks = [first + number * days for number in range(int((end - first) / days + 1e-9) + 1)] or [start]
    ax.set_xlim(start, end)
    ax.set_xticks(ticks, [_tick_label(tick, days, first=number == 0) for number, tick in enumerate(ticks)])


def _tick_label(tick: float, days: float, *, first: bool) -> str:
    when = datetime.fromtimestamp(round(tick * 86_400), tz=UTC)
    if days >= 28:  # noqa: PLR2004 - four weeks
        return f"{when:%b %Y}"
    if days >= 1:
        return f"{when.day} {when:%b}"
    return f"{when:%H:%M}\n{when.day} {when:%b}" if first or when.hour + when.minute == 0 else f"{when:%H:%M}"


def count_axis(ax: Axes, label: str, theme: Theme) -> None:
    """A vertical axis of counts from 0."""
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(
        MaxNLocator(nbins=max(1, min(5, int(inches_high(ax) / 0.3))), integer=True, min_n_ticks=1)
    )
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    label_axis(ax.yaxis, label, theme)


def number_axis(ax: Axes, axis: Axis) -> None:
    """An axis of numbers such as scores: as many ticks as there is room for."""
    room = inches(ax) / _TICK_WIDTH if axis is ax.xaxis else inches_high(ax) / 0.3
    axis.set_major_locator(MaxNLocator(nbins=max(1, min(6, int(room)))))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))


def whole_axis(ax: Axes, width: float) -> None:
    """A horizontal axis of whole numbers, each at least so many inches from the next."""
    nbins = max(1, int(inches(ax) / width))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=nbins, integer=True, min_n_ticks=1))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))


def label_axis(axis: Axis, label: str, theme: Theme) -> None:
    """The label of an axis, taken literally, on as many lines as it needs."""
    length = inches(axis.axes) if axis is axis.axes.xaxis else inches_high(axis.axes)
    room = max(16, int(length / CHARACTER * 1.1))
    lines = [part for line in label.split("\n") for part in textwrap.wrap(line, room)]
    axis.set_label_text("\n".join(lines), color=theme.muted, fontsize=9, parse_math=False)


def rows_that_fit(ax: Axes) -> int:
    """How many rows of names there is room for."""
    return max(2, int(inches_high(ax) / _LINE))


def name_rows(ax: Axes, places: Sequence[float], names: Sequence[str], *, notes: Sequence[str] = ()) -> None:
    """Name the rows on the vertical axis; long names lose their middle, notes behind them stay whole.

    Addresses of one scheme are named without it: it tells nothing apart.
    """
    names = _without_scheme(names)
    behind = [f" {note}" for note in notes] or [""] * len(names)
    room = int(inches(ax) * _SHARE_OF_NAMES / CHARACTER) - max(map(len, behind), default=0)
    texts = [
        f"{drawable(name, longest=max(8, min(40, room)))}{note}"
        for name, note in zip(names, behind, strict=True)
    ]
    ax.set_yticks(list(places), texts)
    as_written(ax.get_yticklabels())
    ax.tick_params(axis="y", length=0)


def _without_scheme(names: Sequence[str]) -> Sequence[str]:
    addresses = [name for name in names if "://" in name]
    schemes = {name.partition("://")[0] for name in addresses}
    if len(schemes) != 1 or len(addresses) < 2:  # noqa: PLR2004 - one address alone stays whole
        return names
    return [name.removeprefix(f"{min(schemes)}://") for name in names]

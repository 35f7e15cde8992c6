"""Draw vertical lines with names over a trend: markers of the user, and changes of the overall rate.

Names are vertical and next to the top of their line. If several lines are close to each other, for example
two deployments within an hour, their names are drawn as one list, so that no name covers another.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from matplotlib.axes import Axes

from toolkit.drawing import axis
from toolkit.drawing.drawable import drawable
from toolkit.drawing.style import Theme
from toolkit.failures.over_time import FailureTrend
from toolkit.failures.trend_bars import Floats

_APART: Final = 0.25  # inches between the names of two times
_LINE: Final = 0.16  # inches of one of several names side by side
_NAMES: Final = 4  # times side by side at most; further ones are counted
# bins between a marker and a change of the rate that share a line
_SAME_BIN: Final = 1.5
_RATE: Final = "rate "
"""Begins the name of a change of the rate."""


class MarkerLine(NamedTuple):
    """A named vertical line; `position` is in days since 1970."""

    position: float
    name: str
    style: str


def marker_lines(trend: FailureTrend, ax: Axes) -> list[MarkerLine]:
    """Return a line per marker that is on the axis."""
    low, high = ax.get_xlim()
    day = axis.DAY.total_seconds()
    lines = [
        MarkerLine(when.timestamp() / day, name, "-") for when, name in trend.markers
    ]

    return [line for line in lines if low <= line.position <= high]


def with_changes(
    lines: list[MarkerLine], trend: FailureTrend, left: Floats, width: float
) -> list[MarkerLine]:
    """Return lines with one per change of the rate. A change close to a marker is named on the marker's line.

    For example, a rate that triples within 1.5 bins of the marker "deploy" gives the name "deploy x3".
    """
    named = list(lines)
    changes = trend.changes[["at", "before", "after"]]
    for bin_number, before, after in changes.itertuples(index=False):
        position = left[int(bin_number)]
        factor = _factor(before, after)

        near = _last_near(named, position, _SAME_BIN * width)
        if near is None:
            named.append(MarkerLine(position, f"{_RATE}{factor}", ":"))
        else:
            marker = named[near]
            named[near] = marker._replace(name=f"{marker.name} {factor}")

    return named


def _last_near(lines: list[MarkerLine], position: float, distance: float) -> int | None:
    """Return the index of the last line that is near a position, or None."""
    near = None
    for index, line in enumerate(lines):
        if abs(line.position - position) <= distance:
            near = index

    return near


def _factor(before: float, after: float) -> str:
    """Return the change of a rate, for example "x3"."""
    if not before:
        return "from 0"
    return f"\N{MULTIPLICATION SIGN}{_two_digits(after / before)}"


def _two_digits(number: float) -> str:
    """Return the first two digits of a number, without an exponent.

    >>> _two_digits(4.46), _two_digits(168.2), _two_digits(3456.7)
    ('4.5', '170', '3,500')
    """
    return f"{float(f'{number:.2g}'):,.9g}"


def draw_lines(lines: list[MarkerLine], ax: Axes, theme: Theme) -> None:
    """Draw vertical lines and their names."""
    if axis.inches_high(ax) < axis.LOW:
        # low Axes have no room for the word
        lines = [line._replace(name=line.name.removeprefix(_RATE)) for line in lines]

    lines = sorted(lines)
    for line in lines:
        ax.axvline(line.position, color=theme.ink, linewidth=1.0, linestyle=line.style)
    low, high = ax.get_xlim()
    middle = (low + high) / 2

    inch = (high - low) / max(axis.inches(ax), 0.1)
    for group in _together(lines, middle, inch):
        # names are drawn towards the middle of the Axes: at the left of lines in the right half
        anchor, offset, alignment = group[-1], 2, "left"
        if group[-1].position > middle:
            anchor, offset, alignment = group[0], -2, "right"
        ax.annotate(
            "\n".join(_listed(group)), xy=(anchor.position, 1.0), xycoords=ax.get_xaxis_transform(),
            xytext=(offset, -2), textcoords="offset points", rotation=90, va="top", ma="right",
            ha=alignment, color=theme.ink, fontsize=8, parse_math=False,
            bbox={"facecolor": theme.paper, "edgecolor": "none", "pad": 1.0},
        )  # fmt: skip


def _listed(group: list[MarkerLine]) -> list[str]:
    """Return the names of lines that are close to each other; further ones are counted."""
    names = [drawable(line.name, longest=24) for line in group]
    if len(names) > _NAMES:
        names[_NAMES - 1 :] = [f"… {len(names) - _NAMES + 1} more"]
    return names


def _together(
    lines: list[MarkerLine], middle: float, inch: float
) -> list[list[MarkerLine]]:
    """Group lines whose names would overlap."""
    groups: list[list[MarkerLine]] = []
    for line in lines:
        group = [line]
        # a merged group has more names, and can overlap the group before it
        while groups and _overlap(groups[-1], group, middle, inch):
            group = groups.pop() + group
        groups.append(group)

    return groups


def _overlap(
    earlier: list[MarkerLine], later: list[MarkerLine], middle: float, inch: float
) -> bool:
    """Return whether the names of two groups of lines overlap.

    Names are drawn towards the middle of the Axes. Between two groups are therefore the names of the left one
    if it is in the left half, and the names of the right one if it is in the right half.
    """
    names_between = 0
    if earlier[-1].position <= middle:
        names_between += len(earlier)
    if later[-1].position > middle:
        names_between += len(later)
    needed = inch * max(_APART, _LINE * names_between)
    return later[0].position - earlier[-1].position < needed

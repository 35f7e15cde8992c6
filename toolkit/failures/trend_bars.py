"""Draw the bars of a trend in four layouts: stacked, in facets, in facets with titles, or as cells.

For example, three groups become bars of three colours on top of each other (stacked), three rows of bars with
a scale each (facets), or three rows of cells whose colour is the count (ranked).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from toolkit.drawing import axis, row_names
from toolkit.drawing.bar_heights import readable_top
from toolkit.drawing.counted_bars import draw_cells
from toolkit.drawing.shared_prefix import without_prefix
from toolkit.drawing.style import HATCHES, Theme
from toolkit.failures.over_time import FailureTrend

Floats = np.ndarray[Any, np.dtype[Any]]
Layout = Literal["stacked", "facets", "ranked"]
DrawnLayout = Layout | Literal["titled"]
"""A layout, or facets with their names above the bars, for names that are long."""

_BAR_WIDTH: Final = 0.92  # part of a bin
_FACET_HEIGHT: Final = 0.85  # part of a row, if the names are at the left
_TITLED_HEIGHT: Final = 0.52  # part of a row, if the names are above the bars
_NEAR_RIGHT_END: Final = (
    0.8  # part of the bins after which a count is at the left of a bar
)


class Surroundings(NamedTuple):
    """The space and text around the bars that a layout needs."""

    prefix: str = ""
    """The common beginning of the names, which is shown once."""
    right_inches: float = 0.0
    above_inches: float = 0.0


@dataclass(frozen=True)
class TrendBars:
    """A trend, and the Axes that it is drawn on."""

    trend: FailureTrend
    ax: Axes
    theme: Theme
    left: Floats
    """Where each bin begins, in days since 1970, the unit of matplotlib's date axes."""
    width: float
    """Days per bin."""

    def draw(self, layout: DrawnLayout) -> Surroundings:
        """Draw the bars in a layout."""
        draw_layout = {
            "stacked": self._draw_stack,
            "facets": self._draw_facets,
            "titled": self._draw_titled_facets,
            "ranked": self._draw_cells,
        }[layout]
        return draw_layout()

    @property
    def _middles(self) -> Floats:
        middles: Floats = self.left + self.width / 2
        return middles

    @property
    def _edges(self) -> Floats:
        return np.append(self.left, self.left[-1] + self.width)

    def _draw_stack(self) -> Surroundings:
        """Draw the bars of all groups on top of each other, with a legend if there are several."""
        trend, ax, theme = self.trend, self.ax, self.theme
        base = np.zeros(len(self.left))
        for number, heights in enumerate(_heights(trend)):
            self._draw_bars(number, heights, base)
            base = base + heights

        top = axis.top_of_bars(ax, base)
        axis.count_axis(ax, _unit(trend), theme, top)
        label = _unit(trend)
        if self._draw_usual():
            label += " (line: usual)"
        prefix = ""
        right_inches = above_inches = 0.0

        if len(trend.groups) > 1:
            names, prefix = without_prefix(trend.groups)
            right_inches, above_inches = axis.legend_of_totals(
                ax, ax.patches, names, _totals(trend), theme, less=6
            )

        if top < base.max():
            above_inches += axis.cut(
                ax, theme, top, self._middles.tolist(), base.tolist()
            )
            label += f"\n(cut at {round(top):,}: see \N{BLACK UP-POINTING TRIANGLE})"

        axis.label_axis(ax.yaxis, label, theme)
        return Surroundings(prefix, right_inches, above_inches)

    def _draw_usual(self) -> bool:
        """Draw the usual number of failures as a line over the bars. Return False if it is not known."""
        usual = self.trend.baseline
        if self.trend.runs is not None or not (usual > 0).any():
            # a line at 0 is not visible
            return False

        self.ax.plot(
            self._edges,
            np.append(usual, usual[-1]),
            drawstyle="steps-post",
            color=self.theme.ink,
            linewidth=0.9,
        )
        return True

    def _draw_facets(self) -> Surroundings:
        """Draw a row of bars per group, each on its own scale, named at the left."""
        trend = self.trend
        # names are at half the height of the bars: between two rows, they could belong to either
        middles = [
            position + _FACET_HEIGHT / 2 for position in self._draw_rows(_FACET_HEIGHT)
        ]
        notes = _totals(trend)
        prefix = row_names.name_rows(self.ax, middles, trend.groups, notes=notes)

        return Surroundings(prefix, right_inches=0.5)

    def _draw_titled_facets(self) -> Surroundings:
        """Draw facets that are named above their bars."""
        trend = self.trend
        tops = [
            position + _TITLED_HEIGHT for position in self._draw_rows(_TITLED_HEIGHT)
        ]
        notes = _totals(trend)
        row_names.name_above(self.ax, tops, trend.groups, self.theme, notes=notes)

        return Surroundings(right_inches=0.5)

    def _draw_rows(self, high: float) -> list[int]:
        """Draw the rows of facets and return their positions.

        Bars use the part `high` of the height of a row. A bar beyond the top of the scale is truncated, and
        shows the count.
        """
        group_counts = _heights(self.trend)
        tops = [readable_top(counts) for counts in group_counts]
        positions = [-number for number in range(len(tops))]

        for number, (counts, top) in enumerate(zip(group_counts, tops, strict=True)):
            heights = np.minimum(counts / top, 1) * high
            self._draw_bars(number, heights, np.full(len(self.left), -number))
            if counts.max() > top:
                self._write_largest(counts, -number + high)

        unit = _unit(self.trend)
        row_names.name_tops(self.ax, unit, self.theme, positions, tops, high=high)
        return positions

    def _write_largest(self, counts: Floats, top: float) -> None:
        """Write the count of a truncated bar next to the top; near the right end, at the left of the bar."""
        number = int(counts.argmax())
        middle = self._middles[number]
        side, offset, alignment = middle + self.width / 2, 3, "left"
        if number >= len(counts) * _NEAR_RIGHT_END:
            side, offset, alignment = middle - self.width / 2, -3, "right"
        self.ax.annotate(
            f"\N{BLACK UP-POINTING TRIANGLE} {int(counts[number]):,}", xy=(side, top), xytext=(offset, 1),
            textcoords="offset points", ha=alignment, va="top", color=self.theme.ink, fontsize=8,
        )  # fmt: skip

    def _draw_cells(self) -> Surroundings:
        """Draw a row of cells per group. The darker a cell, the more failures."""
        trend = self.trend
        above = draw_cells(self.ax, trend.counts, self.theme, edges=self._edges)
        positions, notes = range(len(trend.groups)), _totals(trend)
        prefix = row_names.name_rows(self.ax, positions, trend.groups, notes=notes)

        return Surroundings(prefix, above_inches=above)

    def _draw_bars(self, number: int, heights: Floats, base: Floats) -> None:
        """Draw the bars of a group above a base."""
        colours = self.theme.series
        colour = min(number, len(colours) - 1)
        is_last = number == len(self.trend.groups) - 1
        if self.trend.merged and is_last:
            # all smaller groups together
            colour = len(colours) - 1

        # bars without height would only cost time and bytes
        tall = heights > 0
        self.ax.add_artist(
            Bars(
                self.left[tall], base[tall], self.width * _BAR_WIDTH, heights[tall],
                facecolor=colours[colour], hatch=HATCHES[colour], edgecolor=self.theme.paper, linewidth=0,
            )
        )  # fmt: skip


class Bars(PathPatch):
    """Bars of one look as a single artist, because hatching hundreds of bars one by one is slow."""

    def __init__(
        self, lefts: Floats, bottoms: Floats, width: float, heights: Floats, **look: Any
    ) -> None:
        self.lefts, self.bottoms, self.heights = lefts, bottoms, heights
        rights, tops = lefts + width, bottoms + heights
        x = np.stack([lefts, lefts, rights, rights, lefts], axis=1)
        y = np.stack([bottoms, tops, tops, bottoms, bottoms], axis=1)
        codes = np.tile(
            [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY],
            len(lefts),
        )
        super().__init__(Path(np.stack([x.ravel(), y.ravel()], axis=1), codes), **look)


def _totals(trend: FailureTrend) -> list[str]:
    return [f"{total:,}" for total in trend.counts.sum(axis=1).tolist()]


def _heights(trend: FailureTrend) -> Floats:
    """Return failures, or failures per 100 runs, by group and bin; 0 in bins without runs."""
    if trend.rates is None:
        return trend.counts
    return np.nan_to_num(100 * trend.rates)


def _unit(trend: FailureTrend) -> str:
    if trend.runs is None:
        return "failures"
    return "failures per 100 runs"

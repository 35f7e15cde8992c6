"""The figures of a report: computed once, drawn for wide and for narrow pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from toolkit.analysis import CountMatrix, ExpiryBins, FailureCalendar, FailureTrend
from toolkit.analysis.wording import counted, span, time_text
from toolkit.plots.cells import draw_calendar, draw_matrix
from toolkit.plots.expiry import draw_expiry
from toolkit.plots.failure_trend import draw_trend
from toolkit.plots.style import THEMES, Theme, drawing
from toolkit.plots.svg import inline_svg

_WIDE: Final = 9.6  # inches
_NARROW: Final = 4.0
_ROW: Final = 0.32  # inches of height of a row of cells


@dataclass(frozen=True, eq=False, kw_only=True)
class Charts:
    """The data of the charts, with texts masked."""

    trend: FailureTrend
    expiry: ExpiryBins
    matrix: CountMatrix
    calendar: FailureCalendar

    def render(self, tag: str) -> dict[str, dict[str, Markup] | None]:
        """The figures as ``<svg>`` for wide and narrow pages, by name; None where there is nothing to draw.

        The tag ends every id, so that two reports can be on one page.
        """
        most = counted(int(self.matrix.counts.max(initial=0)), "failure")
        rows = 1.1 + _ROW * len(self.matrix.rows)
        figures: dict[str, tuple[bool, str, str, float, Callable[[Axes, Theme], Axes]]] = {
            "trend": (
                self.trend.total > 1, "Failures over time",
                f"{counted(self.trend.total, 'failure')} in bars of {span(self.trend.step)}", 4.0,
                lambda ax, theme: draw_trend(self.trend, ax, theme),
            ),
            "expiry": (
                self.expiry.total > 0, "Failures by time of expiry",
                f"{counted(self.expiry.total, 'failure')} that expire after {time_text(self.expiry.now)}",
                2.8, lambda ax, theme: draw_expiry(self.expiry, ax, theme),
            ),
            "matrix": (
                self.matrix.total > 1, "Failures by workflow and response status",
                f"{len(self.matrix.rows)} by {len(self.matrix.columns)} cells, the strongest with {most}",
                rows,
                lambda ax, theme: draw_matrix(self.matrix, ax, theme, columns="response status"),
            ),
            "calendar": (
                self.calendar.total > 1, "Failures by weekday and hour",
                f"{counted(self.calendar.total, 'failure')} on seven weekdays of 24 hours", 3.2,
                lambda ax, theme: draw_calendar(self.calendar, ax, theme),
            ),
        }  # fmt: skip
        return {
            name: {
                size: _svg(draw, (width, height), title, described, f"{name}-{size}-{tag}")
                for size, width in (("wide", _WIDE), ("narrow", _NARROW))
            }
            if there
            else None
            for name, (there, title, described, height, draw) in figures.items()
        }


def _svg(
    draw: Callable[[Axes, Theme], Axes], size: tuple[float, float], title: str, described: str, prefix: str
) -> Markup:
    theme = THEMES["light"]
    figure = Figure(figsize=size, layout="constrained")
    with drawing(figure.add_subplot(), theme) as ax:
        draw(ax, theme)
    svg = inline_svg(figure, title=title, description=described, prefix=prefix, theme=theme)
    return Markup(svg)  # noqa: S704 - every text in it is escaped

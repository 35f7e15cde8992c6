"""The figures of a failure report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from toolkit.analysis import CountMatrix, ExpiryBins, FailureCalendar, FailureTrend
from toolkit.analysis.wording import counted, span, time_text
from toolkit.plots.cells import draw_calendar, draw_matrix
from toolkit.plots.failure_bars import draw_expiry
from toolkit.plots.failure_trend import draw_trend
from toolkit.reports.sections import ReportFigure

_ROW: Final = 0.32  # inches of height of a row of cells


@dataclass(frozen=True, eq=False, kw_only=True)
class Charts:
    """The data of the charts, with texts masked."""

    trend: FailureTrend
    expiry: ExpiryBins
    matrix: CountMatrix
    calendar: FailureCalendar

    def figures(self) -> dict[str, tuple[ReportFigure, ...]]:
        """The figures by name; none where there is nothing to draw."""
        most = counted(int(self.matrix.counts.max(initial=0)), "failure")
        figures = {
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
                1.1 + _ROW * len(self.matrix.rows),
                lambda ax, theme: draw_matrix(self.matrix, ax, theme, columns="response status"),
            ),
            "calendar": (
                self.calendar.total > 1, "Failures by weekday and hour",
                f"{counted(self.calendar.total, 'failure')} on seven weekdays of 24 hours", 3.2,
                lambda ax, theme: draw_calendar(self.calendar, ax, theme),
            ),
        }  # fmt: skip
        return {
            name: (ReportFigure(title=title, description=text, height=height, draw=draw),) if there else ()
            for name, (there, title, text, height, draw) in figures.items()
        }

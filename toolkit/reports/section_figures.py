"""Draw the figures of report sections.

The functions are those of the plots. They are imported when a figure is drawn, because matplotlib takes 0.3
seconds to import, and short reports, Markdown and JSON contain no figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from toolkit.failures.calendars import FailureCalendar
from toolkit.failures.counts import CountMatrix
from toolkit.failures.lifetimes import ExpiryBins
from toolkit.failures.over_time import FailureTrend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme


def trend_figure(trend: FailureTrend, ax: Axes, theme: Theme) -> Axes:
    """Draw failures over time."""
    from toolkit.failures.trend_plots import draw_trend  # noqa: PLC0415 - see above

    return draw_trend(trend, ax, theme)


def expiry_figure(bins: ExpiryBins, ax: Axes, theme: Theme) -> Axes:
    """Draw failures by the time when they expire."""
    from toolkit.failures.count_plots import draw_expiry  # noqa: PLC0415 - see above

    return draw_expiry(bins, ax, theme)


def matrix_figure(matrix: CountMatrix, ax: Axes, theme: Theme) -> Axes:
    """Draw failures by workflow and response status."""
    from toolkit.failures.count_plots import draw_matrix  # noqa: PLC0415 - see above

    return draw_matrix(matrix, ax, theme, columns="response status")


def calendar_figure(calendar: FailureCalendar, ax: Axes, theme: Theme) -> Axes:
    """Draw failures by weekday and hour."""
    from toolkit.failures.count_plots import draw_calendar  # noqa: PLC0415 - see above

    return draw_calendar(calendar, ax, theme)


def outcomes_figure(
    entries: pd.DataFrame, verdict: str, ax: Axes, theme: Theme
) -> Axes:
    """Draw the outcomes of a redrive."""
    from toolkit.drawing.result_bars import draw_outcomes  # noqa: PLC0415 - see above

    return draw_outcomes(entries, ax, theme, verdict=verdict)

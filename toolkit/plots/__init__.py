"""Plots: a frame and an Axes in, an Axes out. What is drawn is computed in `toolkit.analysis`.

``style.py`` holds colours and hatches, ``axis.py`` axes and legends, ``plot_text.py`` text from data,
``svg.py`` figures inside a page.
"""

from toolkit.plots.cells import plot_failure_calendar, plot_failure_matrix
from toolkit.plots.expiry import plot_expiry
from toolkit.plots.failure_bars import plot_callback_states, plot_retries_used, plot_time_to_failure
from toolkit.plots.failure_trend import plot_failure_trend
from toolkit.plots.hit_scores import plot_score_by_rank, plot_score_comparison, plot_score_distribution
from toolkit.plots.vector_norms import plot_vector_norms

__all__ = [
    "plot_callback_states",
    "plot_expiry",
    "plot_failure_calendar",
    "plot_failure_matrix",
    "plot_failure_trend",
    "plot_retries_used",
    "plot_score_by_rank",
    "plot_score_comparison",
    "plot_score_distribution",
    "plot_time_to_failure",
    "plot_vector_norms",
]

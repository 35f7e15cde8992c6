"""A frame and an Axes in, an Axes out. What is drawn is computed in `toolkit.analysis`.

One module a plot. Beneath: ``style.py`` colours and second signs, ``axis.py`` axes, ``texts.py`` text from
data, ``heat.py``, ``lines.py`` and ``rows.py`` what several plots draw, ``svg.py`` a figure inside a page.
"""

from toolkit.plots.callback_states import plot_callback_states
from toolkit.plots.expiry import plot_expiry
from toolkit.plots.failure_calendar import plot_failure_calendar
from toolkit.plots.failure_matrix import plot_failure_matrix
from toolkit.plots.failure_trend import plot_failure_trend
from toolkit.plots.retries_used import plot_retries_used
from toolkit.plots.score_by_rank import plot_score_by_rank
from toolkit.plots.score_comparison import plot_score_comparison
from toolkit.plots.score_distribution import plot_score_distribution
from toolkit.plots.time_to_failure import plot_time_to_failure
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

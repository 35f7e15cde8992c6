# The public names and where they are defined: the one list, for type checkers and for plots.py.

from toolkit.failures.count_plots import plot_callback_states as plot_callback_states
from toolkit.failures.count_plots import plot_expiry as plot_expiry
from toolkit.failures.count_plots import plot_failure_calendar as plot_failure_calendar
from toolkit.failures.count_plots import plot_failure_matrix as plot_failure_matrix
from toolkit.failures.count_plots import plot_retries_used as plot_retries_used
from toolkit.failures.count_plots import plot_time_to_failure as plot_time_to_failure
from toolkit.failures.run_plots import plot_run_timeline as plot_run_timeline
from toolkit.failures.run_plots import plot_success_rates as plot_success_rates
from toolkit.failures.trend_plots import plot_failure_groups as plot_failure_groups
from toolkit.failures.trend_plots import plot_failure_trend as plot_failure_trend
from toolkit.vectors.point_plots import plot_vector_norms as plot_vector_norms
from toolkit.vectors.projection import plot_vector_map as plot_vector_map
from toolkit.vectors.score_plots import plot_score_by_rank as plot_score_by_rank
from toolkit.vectors.score_plots import plot_score_comparison as plot_score_comparison
from toolkit.vectors.score_plots import (
    plot_score_distribution as plot_score_distribution,
)

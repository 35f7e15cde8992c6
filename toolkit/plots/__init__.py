"""A frame and an Axes in, an Axes out. What is drawn is computed in `toolkit.analysis`."""

from toolkit.plots.failure_trend import plot_failure_trend
from toolkit.plots.score_distribution import plot_score_distribution

__all__ = ["plot_failure_trend", "plot_score_distribution"]

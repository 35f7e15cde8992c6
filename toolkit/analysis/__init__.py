"""Questions as pure functions of frames.

Counts over time, by weekday and hour, by columns and by error text; delays, retries and expiry; scores, ranks
and norms.

Every function takes a frame with the columns it names (pandas, Arrow, or anything else narwhals reads), never
changes it, and gives back a small pandas frame or a frozen value. Nothing here draws, and nothing asks a
service.
"""

from toolkit.analysis.calendar import FailureCalendar, count_by_hour, failure_calendar
from toolkit.analysis.changes import NewAndGone, new_and_gone
from toolkit.analysis.counts import count_by, count_labels, count_states
from toolkit.analysis.delays import FailureDelays, failure_delays
from toolkit.analysis.error_counts import count_errors
from toolkit.analysis.expiry import ExpiryBins, count_expiring, expiring, expiry_bins
from toolkit.analysis.frame_summary import FrameSummary, summary
from toolkit.analysis.matrix import CountMatrix, count_matrix
from toolkit.analysis.norms import NormBins, norm_bins
from toolkit.analysis.overview import FailureOverview, failure_overview
from toolkit.analysis.rankings import ScoreCurve, score_curves, score_moves
from toolkit.analysis.recent import RecentFailures, count_workflows, recent_failures
from toolkit.analysis.retries import RetriesUsed, retries_used
from toolkit.analysis.scores import ScoreBins, score_bins, score_summary
from toolkit.analysis.signatures import error_signatures
from toolkit.analysis.trend import FailureTrend, count_over_time, failure_trend
from toolkit.filters.error_text import ErrorText, error_text, mask_text

__all__ = [
    "CountMatrix",
    "ErrorText",
    "ExpiryBins",
    "FailureCalendar",
    "FailureDelays",
    "FailureOverview",
    "FailureTrend",
    "FrameSummary",
    "NewAndGone",
    "NormBins",
    "RecentFailures",
    "RetriesUsed",
    "ScoreBins",
    "ScoreCurve",
    "count_by",
    "count_by_hour",
    "count_errors",
    "count_expiring",
    "count_labels",
    "count_matrix",
    "count_over_time",
    "count_states",
    "count_workflows",
    "error_signatures",
    "error_text",
    "expiring",
    "expiry_bins",
    "failure_calendar",
    "failure_delays",
    "failure_overview",
    "failure_trend",
    "mask_text",
    "new_and_gone",
    "norm_bins",
    "recent_failures",
    "retries_used",
    "score_bins",
    "score_curves",
    "score_moves",
    "score_summary",
    "summary",
]

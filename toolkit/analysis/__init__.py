"""Analyses of frames, as pure functions.

Every function accepts a frame with the columns it names (pandas, Arrow, a snapshot, DuckDB, Dask), never
changes it, and returns a small pandas frame or a frozen value. Nothing here draws or sends a request.
"""

from toolkit.analysis.change_points import change_points
from toolkit.analysis.classes import FailureClasses, classify_failures
from toolkit.analysis.comparing import FailureComparison, compare_failures
from toolkit.analysis.counts import (
    CountMatrix,
    count_by,
    count_errors,
    count_labels,
    count_matrix,
    count_states,
)
from toolkit.analysis.drift import Drift, drift
from toolkit.analysis.explaining import Explanation, explain_change
from toolkit.analysis.frame_summary import FrameSummary, summary
from toolkit.analysis.group_rules import GroupRules
from toolkit.analysis.grouping import FailureGroups, group_failures
from toolkit.analysis.incidents import explain_spike, find_incidents
from toolkit.analysis.lifetimes import (
    ExpiryBins,
    FailureDelays,
    RetriesUsed,
    count_expiring,
    expiring,
    expiry_bins,
    failure_delays,
    retries_used,
)
from toolkit.analysis.norms import NormBins, norm_bins
from toolkit.analysis.outcomes import RetryOutcomes, retry_outcomes
from toolkit.analysis.over_time import (
    FailureCalendar,
    FailureTrend,
    count_by_hour,
    count_over_time,
    failure_calendar,
    failure_trend,
)
from toolkit.analysis.overview import (
    FailureOverview,
    NewAndGone,
    RecentFailures,
    count_workflows,
    failure_overview,
    new_and_gone,
    recent_failures,
)
from toolkit.analysis.repeating import failure_functions, repeat_offenders
from toolkit.analysis.retrieval import Recall, Threshold, fuse, recall, threshold_for_precision
from toolkit.analysis.scores import (
    ScoreBins,
    ScoreCurve,
    score_bins,
    score_curves,
    score_moves,
    score_summary,
)
from toolkit.analysis.seen_before import SimilarFailures, similar_failures
from toolkit.analysis.similar import similar_texts
from toolkit.filters.error_text import ErrorText, error_text, mask_text
from toolkit.signatures import error_signatures

__all__ = [
    "CountMatrix",
    "Drift",
    "ErrorText",
    "ExpiryBins",
    "Explanation",
    "FailureCalendar",
    "FailureClasses",
    "FailureComparison",
    "FailureDelays",
    "FailureGroups",
    "FailureOverview",
    "FailureTrend",
    "FrameSummary",
    "GroupRules",
    "NewAndGone",
    "NormBins",
    "Recall",
    "RecentFailures",
    "RetriesUsed",
    "RetryOutcomes",
    "ScoreBins",
    "ScoreCurve",
    "SimilarFailures",
    "Threshold",
    "change_points",
    "classify_failures",
    "compare_failures",
    "count_by",
    "count_by_hour",
    "count_errors",
    "count_expiring",
    "count_labels",
    "count_matrix",
    "count_over_time",
    "count_states",
    "count_workflows",
    "drift",
    "error_signatures",
    "error_text",
    "expiring",
    "expiry_bins",
    "explain_change",
    "explain_spike",
    "failure_calendar",
    "failure_delays",
    "failure_functions",
    "failure_overview",
    "failure_trend",
    "find_incidents",
    "fuse",
    "group_failures",
    "mask_text",
    "new_and_gone",
    "norm_bins",
    "recall",
    "recent_failures",
    "repeat_offenders",
    "retries_used",
    "retry_outcomes",
    "score_bins",
    "score_curves",
    "score_moves",
    "score_summary",
    "similar_failures",
    "similar_texts",
    "summary",
    "threshold_for_precision",
]

"""Questions as pure functions of frames: counts over time, by column and by error text; expiry; scores.

Every function takes a frame with the columns it names (pandas, Arrow, or anything else narwhals reads), never
changes it, and gives back a small pandas frame or a frozen value. Nothing here draws, and nothing asks a
service.
"""

from toolkit.analysis.changes import NewAndGone, new_and_gone
from toolkit.analysis.counts import callback_states, count_by, count_labels
from toolkit.analysis.durations import parse_duration
from toolkit.analysis.error_counts import error_texts
from toolkit.analysis.error_text import ErrorText, error_text, mask_text
from toolkit.analysis.expiry import expiring, expiry_summary
from toolkit.analysis.overview import FailureOverview, failure_overview
from toolkit.analysis.scores import ScoreBins, score_bins, score_summary
from toolkit.analysis.trend import FailureTrend, failure_trend

__all__ = [
    "ErrorText",
    "FailureOverview",
    "FailureTrend",
    "NewAndGone",
    "ScoreBins",
    "callback_states",
    "count_by",
    "count_labels",
    "error_text",
    "error_texts",
    "expiring",
    "expiry_summary",
    "failure_overview",
    "failure_trend",
    "mask_text",
    "new_and_gone",
    "parse_duration",
    "score_bins",
    "score_summary",
]

"""Names that the toolkit had before: they still work, with a warning that tells the new name."""

from __future__ import annotations

from typing import Final

_RENAMED: Final = {
    "FailureBrowser": "FailurePanel",
    "FailureFilterWidget": "FailureFilterPanel",
    "MetadataFilterWidget": "MetadataFilterPanel",
    "SimilarityQueryWidget": "QueryPanel",
    "VectorMap": "VectorMapPanel",
    "run_summary": "summarize_runs",
    "retry_outcomes": "find_retry_outcomes",
    "similar_failures": "find_similar_failures",
    "redrive_status": "read_redrive_status",
    "redrive_history": "read_redrive_history",
    "index_info": "describe_index",
    "rerun_failure_function": "rerun_failure_functions",
    "failure_report": "report_failures",
    "index_report": "report_index",
    "summary": "summarize",
    "expiring": "find_expiring",
    "receipt": "get_receipt",
    "scan_snapshot": "open_snapshot",
    "to_csv": "export_csv",
    "to_excel": "export_excel",
}
"""Functions and panels of `toolkit` whose name changed."""

_MOVED: Final = {
    "toolkit.results": (
        "Calibration Changes Explanation FailureClasses FailureComparison FailureGroups "
        "FailureReport FrameSummary FusionComparison IndexInfo IndexReport "
        "Published RecallAudit Receipt RedriveResult RetryOutcomes RunSummary "
        "SimilarFailures VectorAudit VectorChanges VectorProjection VectorRestore "
        "Verification Endpoint Dialect MetadataFilter"
    ),
    "toolkit.plots": (
        "plot_callback_states plot_expiry plot_failure_calendar plot_failure_groups "
        "plot_failure_matrix plot_failure_trend plot_retries_used plot_run_timeline "
        "plot_score_by_rank plot_score_comparison plot_score_distribution "
        "plot_success_rates plot_time_to_failure plot_vector_map plot_vector_norms"
    ),
    "toolkit.analysis": (
        "count_by count_by_hour count_errors count_expiring count_labels count_over_time "
        "count_states count_workflows explain_change run_rates"
    ),
}
"""Names that moved from `toolkit` to one of its modules."""

_MOVED_FROM_ANALYSIS: Final = {
    "toolkit": (
        "GroupRules classify_failures compare_failures explain_spike group_failures "
        "select_failures"
    ),
    "toolkit.results": (
        "Explanation FailureClasses FailureComparison FailureGroups FrameSummary "
        "RetryOutcomes RunSummary SimilarFailures CountMatrix Drift ErrorText ExpiryBins "
        "FailureCalendar FailureDelays FailureOverview FailureTrend NewAndGone NormBins "
        "Recall RecentFailures RetriesUsed ScoreBins ScoreCurve Threshold"
    ),
}
"""Names that moved from `toolkit.analysis`."""


def _places(names_of: dict[str, str]) -> dict[str, str]:
    """Return the full new name of each name."""
    places = {}
    for module, names in names_of.items():
        for name in names.split():
            places[name] = f"{module}.{name}"

    return places


_RENAMED_PLACES: Final = {old: f"toolkit.{new}" for old, new in _RENAMED.items()}
OLD_NAMES: Final = {**_RENAMED_PLACES, **_places(_MOVED)}
"""The full new name of each earlier name of `toolkit`."""

_RENAMED_ANALYSES: Final = (
    "expiring",
    "retry_outcomes",
    "run_summary",
    "similar_failures",
    "summary",
)
OLD_NAMES_OF_ANALYSIS: Final = {
    **{old: _RENAMED_PLACES[old] for old in _RENAMED_ANALYSES},
    **_places(_MOVED_FROM_ANALYSIS),
}
"""The full new name of each earlier name of `toolkit.analysis`."""

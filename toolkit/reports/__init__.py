"""Reports from analysis results: HTML, Markdown and JSON of the same findings."""

from toolkit.reports.failure_report import FailureReport, report_failures
from toolkit.reports.index_report import IndexReport, report_index

__all__ = ["FailureReport", "IndexReport", "report_failures", "report_index"]

"""Reports from analysis results: HTML, Markdown and JSON of the same findings."""

from toolkit.reports.failure_report import FailureReport, failure_report
from toolkit.reports.index_report import IndexReport, index_report

__all__ = ["FailureReport", "IndexReport", "failure_report", "index_report"]

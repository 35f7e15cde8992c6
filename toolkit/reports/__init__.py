"""Reports from analysis results: HTML, Markdown and JSON of the same findings."""

from toolkit.reports.failure_report import FailureReport, failure_report

__all__ = ["FailureReport", "failure_report"]

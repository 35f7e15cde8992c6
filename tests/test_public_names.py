"""The public surface: pinned, sorted, documented, and cheap to import."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import toolkit as tk

NAMES = [
    "CallbackReceiver",
    "CallbackSettings",
    "Changes",
    "Dialect",
    "FailureBrowser",
    "FailureFilter",
    "FailureFilterWidget",
    "FailureView",
    "FailureReport",
    "FrameSummary",
    "Half",
    "IndexInfo",
    "MetadataFilter",
    "MetadataFilterWidget",
    "Published",
    "Receipt",
    "ReplayGuard",
    "Service",
    "SimilarityQueryWidget",
    "Verification",
    "VectorQuery",
    "__version__",
    "as_matrix",
    "connect",
    "count_by",
    "count_by_hour",
    "count_errors",
    "count_expiring",
    "count_labels",
    "count_over_time",
    "count_states",
    "count_workflows",
    "expiring",
    "delete_failures",
    "errors",
    "explode_headers",
    "explode_labels",
    "explode_metadata",
    "export_vectors",
    "failure_report",
    "fetch_vectors",
    "flatten",
    "index_info",
    "iter_failures",
    "iter_vectors",
    "list_namespaces",
    "load_callbacks",
    "load_failure",
    "load_failures",
    "load_runs",
    "load_vectors",
    "match_metadata",
    "parse_filter",
    "plot_callback_states",
    "plot_expiry",
    "plot_failure_calendar",
    "plot_failure_matrix",
    "plot_retries_used",
    "plot_score_by_rank",
    "plot_score_comparison",
    "plot_time_to_failure",
    "plot_vector_norms",
    "plot_failure_trend",
    "plot_score_distribution",
    "publish",
    "query",
    "query_text",
    "read_snapshot",
    "receipt",
    "rerun_failure_function",
    "restart_failures",
    "resume_failures",
    "scan_snapshot",
    "start_run",
    "summary",
    "sync_failures",
    "to_excel",
    "upsert_vectors",
    "verify_signature",
    "verify_snapshot",
    "write_snapshot",
]


def test_the_public_names_are_these():
    """A name comes or goes on purpose only."""
    assert sorted(tk.__all__) == sorted(NAMES)
    assert set(NAMES) <= set(dir(tk))


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_loads_and_is_documented(name):
    """Each name is there and has a docstring; functions name their parameters and results."""
    value = getattr(tk, name)
    if name != "__version__":
        text = inspect.getdoc(value)
        assert text
        if inspect.isfunction(value) and inspect.signature(value).parameters:
            assert "Parameters" in text
            assert "Raises" in text or "errors are those of" in text


def test_an_unknown_name_is_an_attribute_error():
    """A misspelt name fails like any other module's."""
    with pytest.raises(AttributeError, match="load_failurse"):
        tk.load_failurse  # noqa: B018 - the access is the test


def test_importing_pulls_in_neither_plots_nor_widgets():
    """`import toolkit` and `connect` leave matplotlib, ipywidgets and requests alone."""
    code = (
        "import sys, toolkit\n"
        "toolkit.connect(queue_url='http://127.0.0.1:1', queue_token='t0ken-of-mine')\n"
        "print([name for name in ('matplotlib', 'ipywidgets', 'requests') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

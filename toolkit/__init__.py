"""Failed workflow runs and vector indexes as pandas DataFrames: complete, decoded, kept and explained.

The names below are the whole public surface. They are loaded when first used, so that importing the toolkit
pulls in neither matplotlib nor ipywidgets. It does import pandas, to register the column type of vectors,
with which `pandas.read_parquet` reads every frame of the toolkit back.

>>> import toolkit as tk
>>> tk.connect(queue_url="http://127.0.0.1:8080", queue_token="t0ken-of-mine")
Service(queue='http://127.0.0.1:8080' from arguments)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolkit import errors
from toolkit.receipt import Receipt, receipt  # now, as the room and the function share their name
from toolkit.tables import vector_dtype as _registered  # noqa: F401 - pandas knows the type by its import
from toolkit.tables.showing import show_in_notebooks as _show_in_notebooks
from toolkit.version import __version__

if TYPE_CHECKING:
    from toolkit.analysis import (
        FrameSummary,
        count_by,
        count_by_hour,
        count_errors,
        count_expiring,
        count_labels,
        count_over_time,
        count_states,
        count_workflows,
        expiring,
        summary,
    )
    from toolkit.client.failures import (
        delete_failures,
        rerun_failure_function,
        restart_failures,
        resume_failures,
    )
    from toolkit.client.messages import CallbackSettings, Published, publish, start_run
    from toolkit.client.signatures import ReplayGuard, verify_signature
    from toolkit.client.vectors import IndexInfo, index_info, list_namespaces, upsert_vectors
    from toolkit.filters.failure import FailureFilter
    from toolkit.filters.metadata import MetadataFilter
    from toolkit.filters.metadata import parse as parse_filter
    from toolkit.filters.query import VectorQuery
    from toolkit.loading.callbacks import CallbackReceiver, load_callbacks
    from toolkit.loading.failures import iter_failures, load_failure, load_failures
    from toolkit.loading.queries import query, query_text
    from toolkit.loading.runs import load_runs
    from toolkit.loading.vectors import fetch_vectors, iter_vectors, load_vectors
    from toolkit.plots import (
        plot_callback_states,
        plot_expiry,
        plot_failure_calendar,
        plot_failure_matrix,
        plot_failure_trend,
        plot_retries_used,
        plot_score_by_rank,
        plot_score_comparison,
        plot_score_distribution,
        plot_time_to_failure,
        plot_vector_norms,
    )
    from toolkit.reports import FailureReport, failure_report
    from toolkit.settings import Dialect, Endpoint, Service, connect
    from toolkit.snapshots import (
        Changes,
        Verification,
        export_vectors,
        read_snapshot,
        scan_snapshot,
        sync_failures,
        verify_snapshot,
        write_snapshot,
    )
    from toolkit.tables.explode import explode_headers, explode_labels, explode_metadata
    from toolkit.tables.matching import match_metadata
    from toolkit.tables.spreadsheets import flatten, to_csv, to_excel
    from toolkit.tables.vectors import as_matrix
    from toolkit.widgets import (
        FailureBrowser,
        FailureFilterWidget,
        FailureView,
        MetadataFilterWidget,
        SimilarityQueryWidget,
    )

__all__ = [
    "CallbackReceiver",
    "CallbackSettings",
    "Changes",
    "Dialect",
    "Endpoint",
    "FailureBrowser",
    "FailureFilter",
    "FailureFilterWidget",
    "FailureReport",
    "FailureView",
    "FrameSummary",
    "IndexInfo",
    "MetadataFilter",
    "MetadataFilterWidget",
    "Published",
    "Receipt",
    "ReplayGuard",
    "Service",
    "SimilarityQueryWidget",
    "VectorQuery",
    "Verification",
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
    "delete_failures",
    "errors",
    "expiring",
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
    "plot_failure_trend",
    "plot_retries_used",
    "plot_score_by_rank",
    "plot_score_comparison",
    "plot_score_distribution",
    "plot_time_to_failure",
    "plot_vector_norms",
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
    "to_csv",
    "to_excel",
    "upsert_vectors",
    "verify_signature",
    "verify_snapshot",
    "write_snapshot",
]

_HOMES = {
    "match_metadata": "toolkit.tables.matching",
    "ReplayGuard": "toolkit.client.signatures",
    "CallbackReceiver": "toolkit.loading.callbacks",
    "CallbackSettings": "toolkit.client.messages",
    "Changes": "toolkit.snapshots",
    "Dialect": "toolkit.settings",
    "FailureFilter": "toolkit.filters.failure",
    "FailureBrowser": "toolkit.widgets",
    "FailureFilterWidget": "toolkit.widgets",
    "FailureView": "toolkit.widgets",
    "FailureReport": "toolkit.reports",
    "FrameSummary": "toolkit.analysis",
    "Endpoint": "toolkit.settings",
    "IndexInfo": "toolkit.client.vectors",
    "MetadataFilter": "toolkit.filters.metadata",
    "MetadataFilterWidget": "toolkit.widgets",
    "Published": "toolkit.client.messages",
    "Service": "toolkit.settings",
    "SimilarityQueryWidget": "toolkit.widgets",
    "VectorQuery": "toolkit.filters.query",
    "Verification": "toolkit.snapshots",
    "as_matrix": "toolkit.tables.vectors",
    "connect": "toolkit.settings",
    "count_by": "toolkit.analysis",
    "count_by_hour": "toolkit.analysis",
    "count_errors": "toolkit.analysis",
    "count_expiring": "toolkit.analysis",
    "count_labels": "toolkit.analysis",
    "count_over_time": "toolkit.analysis",
    "count_states": "toolkit.analysis",
    "count_workflows": "toolkit.analysis",
    "expiring": "toolkit.analysis",
    "delete_failures": "toolkit.client.failures",
    "explode_headers": "toolkit.tables.explode",
    "explode_labels": "toolkit.tables.explode",
    "explode_metadata": "toolkit.tables.explode",
    "export_vectors": "toolkit.snapshots",
    "failure_report": "toolkit.reports",
    "fetch_vectors": "toolkit.loading.vectors",
    "flatten": "toolkit.tables.spreadsheets",
    "load_failure": "toolkit.loading.failures",
    "index_info": "toolkit.client.vectors",
    "iter_failures": "toolkit.loading.failures",
    "iter_vectors": "toolkit.loading.vectors",
    "list_namespaces": "toolkit.client.vectors",
    "load_callbacks": "toolkit.loading.callbacks",
    "load_failures": "toolkit.loading.failures",
    "load_runs": "toolkit.loading.runs",
    "load_vectors": "toolkit.loading.vectors",
    "parse_filter": "toolkit.filters.metadata:parse",
    "plot_callback_states": "toolkit.plots",
    "plot_expiry": "toolkit.plots",
    "plot_failure_calendar": "toolkit.plots",
    "plot_failure_matrix": "toolkit.plots",
    "plot_retries_used": "toolkit.plots",
    "plot_score_by_rank": "toolkit.plots",
    "plot_score_comparison": "toolkit.plots",
    "plot_time_to_failure": "toolkit.plots",
    "plot_vector_norms": "toolkit.plots",
    "plot_failure_trend": "toolkit.plots",
    "plot_score_distribution": "toolkit.plots",
    "publish": "toolkit.client.messages",
    "query": "toolkit.loading.queries",
    "query_text": "toolkit.loading.queries",
    "read_snapshot": "toolkit.snapshots",
    "rerun_failure_function": "toolkit.client.failures",
    "restart_failures": "toolkit.client.failures",
    "resume_failures": "toolkit.client.failures",
    "scan_snapshot": "toolkit.snapshots",
    "start_run": "toolkit.client.messages",
    "summary": "toolkit.analysis",
    "sync_failures": "toolkit.snapshots",
    "to_csv": "toolkit.tables.spreadsheets",
    "to_excel": "toolkit.tables.spreadsheets",
    "upsert_vectors": "toolkit.client.vectors",
    "verify_signature": "toolkit.client.signatures",
    "verify_snapshot": "toolkit.snapshots",
    "write_snapshot": "toolkit.snapshots",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its room when it is first asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'toolkit' has no attribute {name!r}")
    module, _, attribute = home.partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted({*globals(), *__all__})


_show_in_notebooks()

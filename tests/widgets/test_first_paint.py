"""What a kernel does before a panel is seen: it loads little, and computes little."""

from __future__ import annotations

import subprocess
import sys

import toolkit as tk
from toolkit.widgets.panel import STATIC_ROWS

_PANELS = (
    "FailurePanel",
    "FailureFilterPanel",
    "MetadataFilterPanel",
    "QueryPanel",
    "VectorMapPanel",
    "RedrivePanel",
)
_HEAVY = ("matplotlib", "jinja2", "sklearn", "duckdb", "dask")
_IMPORTS = f"""
import sys
import toolkit as tk
for name in {_PANELS!r}:
    getattr(tk, name)
from toolkit.results import WatchPanel
print([name for name in {_HEAVY!r} if name in sys.modules])
"""

_LATER = (
    "toolkit.redrive.planning",
    "toolkit.fixes.runbooks",
    "toolkit.failures.classes",
    "toolkit.failures.seen_before",
)
_BROWSER = f"""
import sys
import toolkit as tk
tk.FailurePanel
print([name for name in {_LATER!r} if name in sys.modules])
"""


def test_panels_load_no_plots():
    """All panels are imported without the libraries of plots and pages, which take a second."""
    assert _printed(_IMPORTS) == "[]"


def test_the_failure_panel_loads_what_its_buttons_need_later():
    """Plans, runbooks and similar messages are imported by the first press of their buttons."""
    assert _printed(_BROWSER) == "[]"


def _printed(program: str) -> str:
    """Return the output of a program in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return ended.stdout.strip()


def test_the_form_without_widgets_reads_only_the_rows_that_it_shows(make):
    """The static table has the first rows in order; the other rows of the frame are not copied."""
    rows = [
        {"dlq_id": f"id-{number}", "response_status": number} for number in range(500)
    ]
    value = tk.FailureView(sort_by="response_status")
    panel = tk.FailurePanel(make(rows), value=value)
    shown, _ = panel._static()
    assert shown.equals(panel.found().head(STATIC_ROWS))
    page = panel._repr_mimebundle_()["text/html"]
    assert all(name in page for name in shown["dlq_id"])

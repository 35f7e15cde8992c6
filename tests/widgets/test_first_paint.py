"""What a kernel does before a panel is seen: it loads little, and computes little."""

from __future__ import annotations

import subprocess
import sys

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


def test_panels_load_no_plots():
    """All panels are imported without the libraries of plots and pages, which take a second."""
    ended = subprocess.run(
        [sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "[]"

"""Calls each drawing function first in a process, and reports the settings that changed.

``python settings_process.py NAME...`` prints, by name, which settings differ from those of a process that
only made a figure, which differ after further calls, and whether figures are shown at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import warnings
from datetime import timedelta
from pathlib import Path

# matplotlib needs these. Each process imports matplotlib itself, but not what it imports.
import contourpy  # noqa: F401
import kiwisolver  # noqa: F401
import pandas as pd
import PIL.PngImagePlugin  # noqa: F401
import pyparsing  # noqa: F401
from IPython.core.interactiveshell import InteractiveShell

import toolkit as tk
from toolkit.errors import ToolkitError
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

# ruff: noqa: PLC0415 - matplotlib is imported by the examined code


def failures():
    """Three failures, as loaders return them."""
    when = pd.Timestamp("2026-03-02 10:00", tz="UTC").to_pydatetime()
    common = {
        "workflow_url": "https://shop.example.com/pay",
        "max_retries": 3,
        "response_status": 500,
    }
    rows = [
        {
            "dlq_id": str(number),
            "failed_at": when + timedelta(hours=number),
            "created_at": when,
            **common,
        }
        for number in range(3)
    ]
    return frame_from_rows(rows, FAILURES), when


def call(name, **options):
    """Draw with usual arguments."""
    module = tk.plots if name.startswith("plot_") else tk
    function, (frame, when) = getattr(module, name), failures()
    hits = pd.DataFrame(
        {
            "query": [0, 0, 1],
            "rank": [1, 2, 1],
            "id": ["a", "b", "a"],
            "score": [0.9, 0.5, 0.8],
        }
    )
    if name == "report_failures":
        report = function(frame, now=when)
        report.to_html()
        report._repr_html_()
        with tempfile.TemporaryDirectory() as folder:
            for ending in ("html", "md", "json"):
                report.save(Path(folder) / f"report.{ending}")
    elif name == "plot_expiry":
        function(frame, "30d", now=when, **options)
    elif name == "plot_score_comparison":
        function(hits, hits.assign(score=[0.1, 0.2, 0.3]), **options)
    elif name == "report_index":
        tk.report_index(
            pd.DataFrame({"vector": [[1.0, 2.0], [3.0, 4.0]]}), now=when
        ).to_html()
    elif name in ("plot_vector_norms", "plot_vector_map"):
        function(pd.DataFrame({"vector": [[1.0, 2.0], [3.0, 4.0]]}), **options)
    elif name in ("plot_run_timeline", "plot_success_rates"):
        rows = {
            "message_id": ["m"],
            "workflow_run_id": ["w"],
            "workflow_url": ["https://a.example"],
        }
        times = {
            key: [pd.Timestamp(when)] for key in ("time", "created_at", "completed_at")
        }
        function(pd.DataFrame(rows | times | {"state": ["RUN_FAILED"]}), **options)
    elif name.startswith("plot_score"):
        function(hits, **options)
    else:
        function(frame, **options)


def state():
    """Everything that a drawing could leave changed."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    backend = mpl.get_backend()  # chosen now at the latest, with its side effects
    settings = {name: repr(mpl.rcParams[name]) for name in mpl.rcParams}
    return settings | {
        "interactive()": plt.isinteractive(), "backend()": backend, "filters": repr(warnings.filters)
    }  # fmt: skip


def differences(result, other):
    """Names of the settings that differ."""
    return sorted(
        name for name in result | other if result.get(name) != other.get(name)
    )


def examined(name):
    """Settings that calls of one function change: the first, others under user settings, failing ones."""
    InteractiveShell.instance()
    if name == "figure":
        from matplotlib import pyplot as plt

        plt.figure()
        return state()
    call(name)
    first = state()
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from matplotlib.axes import Axes

    class Broken(Axes):
        def set_facecolor(self, color):
            if getattr(self, "ready", False):
                raise ZeroDivisionError
            super().set_facecolor(color)

    broken = Broken(plt.figure(), (0, 0, 1, 1))
    broken.ready = True
    mpl.rcParams.update(
        {"lines.linewidth": 7, "font.family": ["serif"], "svg.hashsalt": "theirs"}
    )
    changed = []
    with plt.rc_context({"font.size": 20, "interactive": False}):
        warnings.simplefilter("ignore", ImportWarning)
        of_plots = ({"theme": "blue"}, {"theme": "dark"}, {"ax": broken})
        for options in ({}, *(of_plots if name.startswith("plot_") else ())):
            before, figures = state(), plt.get_fignums()
            with contextlib.suppress(ToolkitError, ZeroDivisionError, TypeError):
                call(name, **options)
            changed += differences(before, state())
            if len(plt.get_fignums()) > len(figures) + (
                name.startswith("plot_") and "ax" not in options
            ):
                changed.append("figures")
    return {"first": first, "changed": changed}


def in_a_process(name):
    """The same, in a process forked before matplotlib was imported."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            json.dump(examined(name), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


def main(names):
    """Examine each."""
    plain = in_a_process("figure")
    found = {}
    for name in names:
        result = in_a_process(name)
        draws = name.startswith("plot_")
        changed = differences(plain, result["first"]) if draws else []
        found[name] = {
            "changed": changed + result["changed"],
            "interactive": result["first"]["interactive()"],
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Plots neither depend on matplotlib's settings nor change them, not even temporarily."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

import toolkit as tk
from tests.covering import in_turn
from tests.plots.conftest import PLOTS
from toolkit.drawing.style import drawing

CHILD = Path(__file__).with_name("settings_process.py")
DRAWING = sorted([*tk.plots.__all__, "report_failures", "report_index"])
BACKENDS = ["module://matplotlib_inline.backend_inline", "Agg"]
STYLES = [
    "dark_background", "fivethirtyeight", "seaborn-v0_8-poster",
    {
        "text.usetex": True, "font.family": "no such font", "font.weight": "bold", "axes.titleweight": "bold",
        "axes.labelweight": "bold", "axes.linewidth": 5, "lines.linewidth": 9, "lines.markersize": 20,
        "lines.markeredgewidth": 4, "lines.solid_capstyle": "round", "patch.linewidth": 7,
        "patch.force_edgecolor": True,
        "hatch.linewidth": 5, "hatch.color": "red", "axes.grid": True, "axes.grid.which": "both",
        "axes.axisbelow": False,
        "axes.xmargin": 0.4, "axes.titlelocation": "right", "axes.titley": 0.5, "axes.titlepad": 40,
        "xtick.direction": "in", "xtick.top": True, "xtick.minor.visible": True, "ytick.right": True,
        "xtick.major.size": 20, "xtick.labelsize": 30, "legend.fontsize": 30, "legend.frameon": True,
        "legend.handlelength": 9, "legend.markerscale": 4, "legend.labelspacing": 3, "image.cmap": "jet",
        "axes.formatter.useoffset": True, "axes.labelpad": 30, "grid.linestyle": ":", "grid.alpha": 0.2,
        "path.sketch": (3, 100, 2), "figure.autolayout": True, "figure.facecolor": "red", "text.color": "red",
        "axes.prop_cycle": mpl.cycler(color=["red"]), "pcolor.shading": "gouraud", "scatter.marker": "x",
        "axes.spines.left": False, "axes.spines.top": True, "markers.fillstyle": "none",
    },
]  # fmt: skip


def image(plot):
    """Bytes of the picture of a new figure."""
    ax = plot.draw(120)
    try:
        drawn = io.BytesIO()
        with mpl.rc_context():
            mpl.rcdefaults()
            ax.figure.savefig(drawn, dpi=60, format="png")
        return drawn.getvalue()
    finally:
        plt.close(ax.figure)


def test_every_picture_is_the_same_under_other_settings(plot):
    """The picture drawn under foreign styles is that of the defaults, byte by byte.

    Each plot is drawn with one style of matplotlib in turn, and with settings that differ in everything.
    """
    plain = image(plot)
    place = [one.name for one in PLOTS].index(plot.name)
    *named, everything = STYLES
    for style in [*in_turn(named, place, of=3), everything]:
        with plt.style.context(style):
            assert image(plot) == plain, style


@pytest.mark.parametrize("backend", BACKENDS, ids=["inline", "Agg"])
@pytest.mark.slow
def test_no_public_call_changes_a_setting(backend):
    """First, again, failing: settings, interactivity, backend and warning filters stay as they were.

    All functions are called with the backend of notebooks, and every third with that of scripts.
    """
    drawing_functions = DRAWING if "inline" in backend else in_turn(DRAWING, 0, of=3)
    environment = {**os.environ, "MPLBACKEND": backend}
    command = [sys.executable, str(CHILD), *drawing_functions]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(found) == drawing_functions
    assert {name: result for name, result in found.items() if result["changed"]} == {}
    shown = {
        result["interactive"]
        for name, result in found.items()
        if name.startswith("plot_")
    }
    assert shown == {"inline" in backend}


def test_settings_of_other_threads_neither_change_nor_have_a_say(plot):
    """While one thread draws, another's contexts open and close, and restore the settings."""
    before, plain, seen = dict(mpl.rcParams), image(plot), set()
    done = threading.Event()

    def other():
        while not done.is_set():
            with mpl.rc_context({"lines.linewidth": 9, "font.size": 30}):
                seen.add(
                    (
                        mpl.rcParams["font.family"][0],
                        mpl.rcParams["hatch.linewidth"],
                        mpl.rcParams["svg.fonttype"],
                    )
                )
            # a thread that never waits takes half of the processor from the one that draws
            done.wait(0.001)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        for _ in range(3):
            plt.close(plot.draw(120).figure)
    finally:
        done.set()
        thread.join()
    assert dict(mpl.rcParams) == before
    assert seen == {("sans-serif", 1.0, "path")}
    assert image(plot) == plain


def test_a_figure_that_fails_is_not_left_behind():
    """When drawing raises, the new figure is closed: a notebook would show an empty one."""
    with pytest.raises(ZeroDivisionError), drawing(None, "light"):
        raise ZeroDivisionError
    assert plt.get_fignums() == []

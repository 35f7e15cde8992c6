"""Axes of one's own: texts beside them are not cut, and a layout that somebody has set stays."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import toolkit as tk
from toolkit.drawing.result_bars import draw_recall


def failures() -> pd.DataFrame:
    """Failures of nine workflows with long names."""
    times = pd.date_range("2026-03-01", periods=300, freq="h", tz="UTC")
    names = [
        f"https://shop.example.com/flows/a-workflow-with-a-long-name-{n % 9}"
        for n in range(300)
    ]
    return pd.DataFrame(
        {"failed_at": times, "created_at": times, "workflow_url": names}
    )


def is_whole(figure: Figure) -> bool:
    """Whether nothing that is drawn leaves the figure."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [ax.get_tightbbox(canvas.get_renderer()) for ax in figure.axes]
    # a pixel for what is rounded
    x1, y1 = (
        figure.bbox.width + 1,
        figure.bbox.height + 1,
    )
    return all(
        box.x0 >= -1 and box.y0 >= -1 and box.x1 <= x1 and box.y1 <= y1 for box in boxes
    )


@pytest.mark.parametrize("size", [(9, 5), (4, 3), (3, 2)])
def test_nothing_is_cut_on_single_axes(plot, size):
    """In a figure without a layout, whatever is drawn; without a warning."""
    figure = Figure(figsize=size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot.draw(60, ax=figure.add_subplot())
        assert is_whole(figure)
    assert figure.get_layout_engine() is None


def test_where_a_title_ends_is_of_the_plot_alone(plot):
    """On small Axes, after a plot whose names take the width and a label of one's own at the right."""
    fresh, used = (
        Figure(figsize=(3, 2.2), layout="constrained").add_subplot() for _ in range(2)
    )
    names = pd.DataFrame(
        {"name": ["a long name"], "queries": 50, "share": 0.9, "low": 0.8, "high": 1.0}
    )
    draw_recall(names, "Recall@10", ax=used)
    assert used.xaxis.label.get_horizontalalignment() == "right"
    used.set_xlabel("mine", loc="right")
    places = []
    for ax in (fresh, used):
        plot.draw(60, ax=ax)
        texts = (ax._left_title, ax.title, ax._right_title, ax.xaxis.label)
        places.append(
            [
                (bool(t.get_text()), t.get_horizontalalignment(), t.get_position()[0])
                for t in texts
            ]
        )
    assert places[0] == places[1]


def test_a_legend_is_of_the_plot_alone(plot):
    """On Axes that hold bars, a line and points of one's own, names have their usual looks."""
    looks = []
    for own in (False, True):
        ax = Figure(figsize=(9, 5), layout="constrained").add_subplot()
        if own:
            ax.bar([0.0], [1.0], color="red")
            ax.plot([0.0, 1.0], color="red")
            ax.scatter([0.0], [1.0], color="red")
        legend = plot.draw(60, ax=ax).get_legend()
        drawn = (
            zip(legend.get_texts(), legend.legend_handles, strict=True)
            if legend
            else ()
        )
        looks.append(
            [(text.get_text(), type(handle), look(handle)) for text, handle in drawn]
        )
    assert looks[0] == looks[1]


def look(handle):
    """Colours of an artist."""
    colours = (
        handle.get_color() if isinstance(handle, Line2D) else handle.get_facecolor()
    )
    return np.asarray(to_rgba_array(colours)).tolist()


def test_room_is_made_again_for_another_plot_and_shared_with_twins():
    """Axes that are cleared and drawn on again; Axes on top of them are where they are."""
    figure = Figure(figsize=(9, 5))
    ax = figure.add_subplot()
    tk.plots.plot_failure_trend(failures(), ax=ax)
    ax.clear()
    tk.plots.plot_failure_trend(failures(), by="workflow_url", layout="facets", ax=ax)
    assert is_whole(figure)
    assert np.allclose(ax.twinx().get_position().bounds, ax.get_position().bounds)


@pytest.mark.parametrize("how", ["margins", "position", "grid", "subplots", "another"])
def test_a_layout_of_ones_own_stays(how):
    """Margins, a position, a grid, and whatever has other Axes."""
    figure = Figure(figsize=(9, 5))
    if how == "subplots":
        ax = figure.subplots(2, 2)[0, 0]
    elif how == "grid":
        ax = figure.add_subplot(figure.add_gridspec(left=0.2, right=0.6)[0])
    else:
        ax = figure.add_subplot()
    if how == "margins":
        figure.subplots_adjust(right=0.7)
    elif how == "position":
        ax.set_position((0.2, 0.2, 0.5, 0.5))
    elif how == "another":
        figure.add_axes((0.7, 0.7, 0.2, 0.2))
    before = [other.get_position().bounds for other in figure.axes]
    tk.plots.plot_failure_trend(failures(), by="workflow_url", ax=ax)
    assert [other.get_position().bounds for other in figure.axes] == before

"""The score plot, by reading its artists."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from toolkit.plots import (
    plot_score_by_rank,
    plot_score_comparison,
    plot_score_distribution,
    plot_vector_map,
)
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import hits


def frame(scores):
    rows = [
        {"query": query, "rank": rank, "id": str(rank), "score": score}
        for query, values in enumerate(scores)
        for rank, score in enumerate(values, start=1)
    ]
    return frame_from_rows(rows, hits())


def axes():
    return Figure(figsize=(6, 4), layout="constrained").add_subplot()


def test_one_query_is_a_histogram():
    """A single query's bars have the heights of the counts."""
    ax = plot_score_distribution(frame([[0.0, 0.1, 1.0]]), bins=4, ax=axes())
    assert [int(bar.get_height()) for bar in ax.patches] == [2, 0, 0, 1]
    assert ax.get_ylabel() == "hits"
    assert ax.get_xlabel().startswith("score")


def test_several_queries_have_rows_of_their_own():
    """Each query has a named row; heights in it follow its counts, on its own scale, which is shown."""
    ax = plot_score_distribution(frame([[0.0, 0.1, 1.0], [0.5]]), bins=2, ax=axes())
    ax.figure.draw_without_rendering()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0 (3)", "1 (1)"]
    bars = [(bar.get_y(), round(bar.get_height(), 6)) for bar in ax.patches]
    assert bars == [(0, 0.85), (0, 0.425), (-1, 0), (-1, 0.85)]
    assert "own scale" in " ".join(ax.get_ylabel().split())
    assert [text.get_text() for text in ax.texts] == ["2", "1"]
    assert len({bar.get_hatch() for bar in ax.patches}) == 2


def test_outlines_are_named_by_a_legend():
    """All end at 0, so that names at their ends would not say which is which; dashes can be seen."""
    scores = [[0.1, 0.2, 0.9], [0.3, 0.4, 0.2], [0.4, 0.5, 0.5]]
    ax = plot_score_distribution(frame(scores), kind="histogram", bins=5, ax=axes())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "0 (3)",
        "1 (3)",
        "2 (3)",
    ]
    drawn = ax.get_legend().get_lines()
    assert [line.get_color() for line in drawn] == [
        line.get_edgecolor() for line in ax.patches
    ]
    assert len({line.get_linestyle() for line in drawn}) > 1
    assert not ax.texts


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ([], "No hits"),
        ([[float("nan")]], "No hits (1 hit without a finite score)"),
        ([[0.25]], "1 hit, score 0.25"),
    ],
)
def test_nothing_to_draw_is_a_sentence(scores, sentence):
    """Without finite scores, or with one, a sentence is shown instead of bars."""
    ax = plot_score_distribution(frame(scores), ax=axes())
    assert [text.get_text() for text in ax.texts] == [sentence]


def test_hostile_groups_are_drawn_as_text():
    """Values of any column can name the rows: maths, underscores, controls and length do no harm."""
    made = frame([[0.1, 0.2]])
    names = ["$x^{$", "_y"]
    ax = axes()
    ax.figure.draw_without_rendering()  # its ticks are made before, under the user's settings
    plot_score_distribution(made.assign(city=names), by="city", ax=ax)
    ax.figure.draw_without_rendering()
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "$x^{$ (1)",
        "_y (1)",
    ]
    long = plot_score_distribution(
        made.assign(city=["a" * 500, "\u202eb"]), by="city", ax=axes()
    )
    long.figure.draw_without_rendering()
    assert all(len(label.get_text()) < 40 for label in long.get_yticklabels())


def test_equal_scores_and_missing_ones():
    """Equal scores make one bar; scores that are not finite are reported."""
    ax = plot_score_distribution(frame([[0.5, 0.5, float("inf")]]), ax=axes())
    ax.figure.draw_without_rendering()
    assert [int(bar.get_height()) for bar in ax.patches] == [2]
    assert "1 hit without a finite score left out" in ax.get_xlabel()


def test_scores_by_rank_say_how_many_hits_are_left_out():
    """Those without a finite score, and those whose score no index can have; nothing where there are none."""
    hits = pd.DataFrame(
        {
            "query": 0,
            "rank": [1, 2, 3, 4],
            "id": list("abcd"),
            "score": [0.9, float("nan"), 1e300, 0.4],
        }
    )
    ax = plot_score_by_rank(hits, ax=axes())
    assert ax.lines[0].get_ydata().tolist() == [0.9, 0.4]
    assert "2 hits without a finite score left out" in ax.get_xlabel()
    assert "left out" not in plot_score_by_rank(hits[::3], ax=axes()).get_xlabel()


@pytest.mark.parametrize("scores", [[0.6], [1.0, 0.8, 0.7]])
def test_every_point_of_scores_by_rank_is_whole(scores):
    """One line has room for the marks of its first and its last hit, and ticks at whole ranks."""
    ax = plot_score_by_rank(frame([scores]), ax=axes())
    ax.figure.draw_without_rendering()
    ranks = np.arange(len(scores)) + 1
    points = ax.transData.transform(np.column_stack([ranks, scores]))
    area = ax.get_window_extent()
    assert (points > [area.x0 + 3, area.y0 + 3]).all()
    assert (points < [area.x1 - 3, area.y1 - 3]).all()
    low, high = ax.get_xlim()
    assert [tick for tick in ax.get_xticks() if low <= tick <= high] == ranks.tolist()


EXTREMES = [
    (1.7e308, -1.7e308),
    (1.7e308, 1.0),
    (1e308, 1e308),
    (4e307, -9e307),
    (1e38, -1e38),
    (5e-324, 1e-323),
]


@pytest.mark.parametrize("scores", EXTREMES)
def test_scores_as_large_as_floats_can_be(scores):
    """What no float32 holds is left out, as infinity is; what it holds is drawn, without a warning."""
    hits = pd.DataFrame(
        {
            "query": 0,
            "rank": [1, 2, 3, 4],
            "id": list("abcd"),
            "score": [*scores, 0.5, 0.4],
        }
    )
    for plot, frames in (
        (plot_score_distribution, [hits]),
        (plot_score_by_rank, [hits]),
        (plot_score_comparison, [hits, hits]),
    ):
        ax = plot(*frames, ax=axes())
        ax.figure.draw_without_rendering()
        assert ax.lines or ax.patches or ax.collections


@pytest.mark.parametrize("ends", EXTREMES)
def test_points_are_coloured_by_numbers_of_any_size(ends):
    """The colours of what is too large to be scaled are those of missing values."""
    rows = np.random.default_rng(0).standard_normal((20, 4))
    numbers = np.linspace(ends[0] / 20, ends[1] / 20, 20) * 20
    vectors = pd.DataFrame({"vector": rows.tolist(), "number": numbers})
    ax = plot_vector_map(vectors, color="number", ax=axes())
    ax.figure.draw_without_rendering()
    assert sum(len(points.get_offsets()) for points in ax.collections) >= 20

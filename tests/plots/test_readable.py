"""Readability: titles, legends, names without common prefixes, bursts that do not flatten other bars."""

from __future__ import annotations

import io
import itertools
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

import toolkit as tk
from tests.plots.conftest import failures
from toolkit.analysis import score_bins
from toolkit.drawing.row_names import name_above, name_rows
from toolkit.drawing.style import THEMES, drawing

PREFIX = "https://shop.example.com/flows/"
NAMES = ["orders/fulfil", "orders/confirm", "legacy/sync", "reports/render"]


def axes(width=9.0, height=3.6):
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def burst(most=1_000):
    """Four workflows that fail about twenty times a day, and one day on which one of them fails often."""
    days = pd.date_range("2026-03-01", periods=20, freq="D", tz="UTC")
    when = [day for number, day in enumerate(days) for _ in range(20 + number % 3)] + [
        days[12]
    ] * most
    names = [
        PREFIX + NAMES[0] if number % 2 else PREFIX + NAMES[1 + number % 3]
        for number in range(len(when))
    ]
    names[-most:] = [PREFIX + NAMES[0]] * most
    return pd.DataFrame(
        {
            "failed_at": when,
            "created_at": when,
            "workflow_url": names,
            "response_status": 500,
        }
    )


def luminance(colour):
    """As WCAG 2 defines it."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in to_rgb(colour)
    ]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(value, other):
    low, high = sorted([luminance(value), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def texts(ax):
    return " ".join(ax.get_ylabel().split())


def test_every_plot_has_a_title(plot):
    """At the left above each plot, also where there is nothing to draw."""
    assert plot.draw(60, ax=axes()).get_title(loc="left")
    assert plot.draw(0, ax=axes()).get_title(loc="left")


def test_every_title_tells_the_main_finding(plot):
    """After the name of the plot, in a figure of 6 by 4 inches: for example a share, a number or a time."""
    title = plot.draw(400, ax=axes(6, 4)).get_title(loc="left").replace("\n", " ")
    finding = re.search(r"(?::|, median change|, colour:) (.+)", title)
    assert finding, title
    assert title.count("\n") < 2


def test_names_of_groups_are_not_over_the_bars_of_the_row_above():
    """At 6 by 4 inches, a name has a line of its own; the label of the axis has two lines at most."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    frame = failures(400)
    ax = tk.plots.plot_failure_groups(frame, ax=figure.add_subplot())
    figure.draw_without_rendering()
    names = [text for text in ax.texts if "  " in text.get_text()]
    assert len(names) >= 5
    for name, above in zip(names[1:], ax.patches, strict=False):
        assert name.get_window_extent().y1 <= above.get_window_extent().y0 + 3
    assert ax.get_xlabel().count("\n") < 2


@pytest.mark.parametrize("layout", ["stacked", "facets", "ranked"])
def test_a_common_prefix_is_shown_once(layout):
    """Workflows are named without their common address, which is above them."""
    ax = tk.plots.plot_failure_trend(
        burst(), by="workflow_url", layout=layout, ax=axes()
    )
    legend = (
        ax.get_legend().get_texts() if layout == "stacked" else ax.get_yticklabels()
    )
    names = [text.get_text() for text in legend]
    assert all(any(name.startswith(short) for short in NAMES) for name in names)
    assert [text.get_text() for text in ax.texts].count(
        f"names begin with {PREFIX}"
    ) == 1


def test_a_common_prefix_of_columns_is_shown_once():
    """As one of rows is; where rows and columns begin differently, both are said."""
    names = [name for name in NAMES for _ in range(2)]
    hosts = [f"https://{n % 2}.example/in" for n in range(len(names))]
    frame = pd.DataFrame(
        {
            "workflow_url": [PREFIX + name for name in names],
            "status": 500,
            "host": hosts,
        }
    )
    frame["called"] = [f"https://a.example/{n % 2}" for n in range(len(names))]
    for rows, said in (
        ("status", PREFIX),
        ("called", f"https://a.example/ and {PREFIX}"),
        ("workflow_url", PREFIX),
        ("host", f"https:// and {PREFIX}"),
    ):
        ax = tk.plots.plot_failure_matrix(
            frame, rows=rows, columns="workflow_url", ax=axes(12)
        )
        shown = [label.get_text() for label in ax.get_xticklabels()]
        assert sorted(shown) == sorted(f"{name}\n2" for name in NAMES)
        assert [text.get_text() for text in ax.texts].count(
            f"names begin with {said}"
        ) == 1


def test_a_burst_does_not_flatten_other_bars():
    """The axis is cut, says so, and the burst carries its count; without one nothing is cut."""
    ax = tk.plots.plot_failure_trend(burst(), by="workflow_url", freq="1d", ax=axes())
    low, high = ax.get_ylim()
    assert (low, high) == (0, 22 * 1.25)
    assert texts(ax).startswith("failures (line: usual) (cut at 28")
    assert "\N{BLACK UP-POINTING TRIANGLE} 1,020" in [
        text.get_text() for text in ax.texts
    ]
    plain = tk.plots.plot_failure_trend(
        burst(1), by="workflow_url", freq="1d", ax=axes()
    )
    assert texts(plain) == "failures (line: usual)"
    assert not [
        text
        for text in plain.texts
        if "\N{BLACK UP-POINTING TRIANGLE}" in text.get_text()
    ]


def test_a_line_that_is_not_seen_is_not_named():
    """Two failures days apart: usual is none at all, and the axis promises no line."""
    when = pd.to_datetime(["2026-03-01 10:00", "2026-03-04 12:30"], utc=True)
    ax = tk.plots.plot_failure_trend(
        pd.DataFrame({"failed_at": when, "created_at": when}), ax=axes()
    )
    assert texts(ax) == "failures"
    assert not ax.lines


def test_facets_have_scales_of_their_own():
    """In each row the tallest bar, or all but the burst, has the full height; the scale is shown."""
    ax = tk.plots.plot_failure_trend(
        burst(), by="workflow_url", freq="1d", layout="facets", ax=axes()
    )
    heights = [bars.heights for bars in ax.patches]
    assert all(max(value) == pytest.approx(0.85) for value in heights)
    assert np.median(heights[0]) > 0.5
    assert "each row has its own scale" in texts(ax)


def test_the_legend_leaves_the_plot_its_height():
    """Beside the bars where it fits; else above them, under a short title, and the bars keep their height."""
    for width, height, least in ((9, 3.6, 0.6), (14, 4, 0.6), (4, 3, 0.35)):
        ax = tk.plots.plot_failure_trend(
            burst(), by="workflow_url", ax=axes(width, height)
        )
        ax.figure.draw_without_rendering()
        assert ax.get_position().height > least, (width, ax.get_position())


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_colours_of_cells_go_from_the_background_to_the_other_end(theme):
    """Few is near the background, each step is further from it, and texts on every step are legible."""
    far = [contrast(colour, theme.paper) for colour in theme.heat]
    assert far == sorted(far)
    assert 1.1 < far[0] < 1.6
    assert far[-1] > 9
    inks = [theme.on_few] * 5 + [theme.on_many] * 4
    assert (
        min(contrast(ink, colour) for ink, colour in zip(inks, theme.heat, strict=True))
        >= 4.5
    )
    assert contrast(theme.ink, theme.paper) >= 4.5
    assert contrast(theme.muted, theme.paper) >= 4.5


def test_most_of_a_ranked_picture_is_light():
    """Around a burst, cells of ordinary counts differ from each other and stay lighter than the burst."""
    ax = tk.plots.plot_failure_trend(
        burst(), by="workflow_url", freq="1d", layout="ranked", ax=axes()
    )
    mesh = ax.collections[0]
    colours = mesh.to_rgba(mesh.get_array()).reshape(-1, 4)
    bright = [luminance(to_hex(colour)) for colour in colours if colour[3]]
    assert min(bright) < 0.05
    assert sorted(bright)[1] > 0.05
    drawn = io.BytesIO()
    ax.figure.savefig(drawn, format="rgba", dpi=50)
    pixels = np.frombuffer(drawn.getvalue(), dtype=np.uint8).reshape(-1, 4)[:, :3]
    assert pixels.mean() > 150


@pytest.mark.parametrize("name", THEMES)
def test_texts_in_cells_are_legible(name):
    """The count written in a cell has a contrast of 4.5 with the colour of the cell."""
    ax = tk.plots.plot_failure_matrix(burst(), ax=axes(), theme=name)
    mesh = ax.collections[0]
    colours = [to_hex(value) for value in mesh.to_rgba(mesh.get_array()).reshape(-1, 4)]
    inks = [text.get_color() for text in ax.texts if text.get_text()[0].isdigit()]
    assert len(inks) == len(colours) == 4
    assert (
        min(contrast(ink, colour) for ink, colour in zip(inks, colours, strict=True))
        >= 4.5
    )


def test_shares_are_exact():
    """A share steps at each score, not at the edges of bins."""
    hits = pd.DataFrame({"query": 0, "score": [0.1, 0.25, 0.25, 0.9]})
    ax = tk.plots.plot_score_distribution(hits, kind="ecdf", bins=2, ax=axes())
    assert ax.lines[0].get_xdata().tolist() == [0.1, 0.1, 0.25, 0.25, 0.9, 0.9]
    assert ax.lines[0].get_ydata().tolist() == [0, 0.25, 0.5, 0.75, 1, 1]
    assert ax.lines[0].get_drawstyle() == "steps-post"
    assert [value.tolist() for value in score_bins(hits).scores] == [
        [0.1, 0.25, 0.25, 0.9]
    ]


def test_queries_are_named_by_their_text():
    """By the query, from the frame; equal texts are numbered, vectors keep their number."""
    hits = pd.DataFrame(
        {"query": [0, 0, 1, 1, 2, 2, 3, 3], "rank": [1, 2] * 4, "score": [0.9, 0.1] * 4}
    )
    hits.attrs["queries"] = [
        {"data": "no route"},
        {"vector": {"dimension": 3}},
        {"data": "twice"},
        {"data": "twice"},
    ]
    expected = ["no route", "1", "twice (2)", "twice (3)"]
    assert [
        text.get_text() for text in tk.plots.plot_score_by_rank(hits, ax=axes()).texts
    ] == expected
    rows = tk.plots.plot_score_distribution(hits, ax=axes()).get_yticklabels()
    assert [text.get_text() for text in rows] == [f"{name} (2)" for name in expected]


def test_vectors_of_one_length_are_a_plot():
    """A bar is at their length, and the title says that it is the same for all."""
    ax = tk.plots.plot_vector_norms(
        pd.DataFrame({"vector": [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]}), ax=axes()
    )
    (bar,) = ax.patches
    assert bar.get_height() == 3
    assert bar.get_x() < 1 < bar.get_x() + bar.get_width()
    assert "all 3 of length 1" in ax.get_title(loc="left")


def test_series_are_distinguishable_for_the_colour_blind():
    """The first colours of a theme still differ when red and green are one."""
    # F. Viénot, H. Brettel and J. D. Mollon (1999), deuteranopia
    deuteranope = np.array(
        [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1.0]]
    )
    for theme in THEMES.values():
        seen = [deuteranope @ np.array(to_rgb(colour)) for colour in theme.series[:4]]
        assert (
            min(
                np.linalg.norm(value - other)
                for value, other in itertools.combinations(seen, 2)
            )
            > 0.12
        )


@pytest.mark.parametrize("layout", ["stacked", "facets", "ranked"])
def test_long_names_stay_distinct(layout):
    """Thirty names that differ in the middle only: none in a plot is written like another."""
    times = pd.date_range("2026-03-01", periods=90, freq="h", tz="UTC")
    names = [
        f"https://a.example/v2/organisation-{n % 30:02d}-reconcile-ledger-entries-of-it"
        for n in range(90)
    ]
    frame = pd.DataFrame(
        {"failed_at": times, "created_at": times, "workflow_url": names}
    )
    ax = tk.plots.plot_failure_trend(
        frame, by="workflow_url", layout=layout, ax=axes(6.4)
    )
    legend = ax.get_legend()
    shown = [
        text.get_text()
        for text in (legend.get_texts() if legend else ax.get_yticklabels())
    ]
    assert len(shown) > 3
    assert len(set(shown)) == len(shown)
    matrix = tk.plots.plot_failure_matrix(
        frame.assign(response_status=500), ax=axes(6.4)
    )
    rows = [label.get_text() for label in matrix.get_yticklabels()]
    assert len(set(rows)) == len(rows) > 3


@pytest.mark.parametrize("size", [(9, 3.6), (5, 3), (3, 2)])
def test_names_of_columns_have_the_width_that_long_names_of_rows_leave(size):
    """Also where they take so much of it that the layout makes the Axes narrower than they were."""
    states = [
        f"CALLBACK_{state}" for state in ("SUCCESS", "FAIL", "CANCELED", "INPROGRESS")
    ]
    frame = pd.DataFrame(
        {
            "state": states * 12,
            "error": [f"{n:02} could not read the order" for n in range(12)] * 4,
        }
    )
    figure = Figure(figsize=size, layout="constrained")
    position = figure.add_gridspec(left=0.05, right=0.99)[0]
    ax = tk.plots.plot_failure_matrix(
        frame, rows="error", columns="state", ax=figure.add_subplot(position)
    )
    wide = ax.get_window_extent().width
    figure.draw_without_rendering()
    assert ax.get_window_extent().width < wide - 40
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert len(boxes) > 2
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_half_of_immediate_failures_are_within_a_second():
    """Not within 0 seconds."""
    times = pd.date_range("2026-03-01", periods=9, freq="h", tz="UTC")
    frame = pd.DataFrame(
        {"created_at": times, "failed_at": times + pd.Timedelta(milliseconds=200)}
    )
    assert "half within 1 s" in tk.plots.plot_time_to_failure(
        frame, ax=axes()
    ).get_title("left")


@pytest.mark.parametrize("wide", [3.0, 6.4, 10.0])
def test_names_above_rows_use_the_width_there_is(wide):
    """A long name ends where the Axes end, less a character or two; one that fits is whole."""
    figure = Figure(figsize=(wide, 3), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    with drawing(figure.add_subplot(), "light") as (ax, _):
        names = ["payment declined " * 20, "W" * 300, "short"]
        name_above(ax, [0, 1, 2], names, THEMES["light"], notes=["1,234"] * 3)
        ax.set_ylim(3, -1)
    canvas.draw()
    ends = [text.get_window_extent().x1 for text in ax.texts]
    right = ax.get_window_extent().x1
    assert all(right - 0.3 * figure.dpi < end <= right for end in ends[:2])
    assert ax.texts[2].get_text() == "short  1,234"
    assert all(text.get_text().endswith("  1,234") for text in ax.texts)


@pytest.mark.parametrize(
    ("high", "names", "texts"),
    [
        (
            3.0,
            ["nearest neighbours", "random pairs"],
            ["nearest\nneighbours\n(1,000)", "random pairs\n(7)"],
        ),
        (
            0.6,
            ["nearest neighbours", "random pairs"],
            ["nea…urs (1,000)", "ran…irs (7)"],
        ),
        (
            3.0,
            ["a" * 60, "random pairs"],
            [f"{'a' * 3}…{'a' * 3} (1,000)", "random pairs\n(7)"],
        ),
    ],
    ids=["high rows", "low rows", "a long word"],
)
def test_names_of_rows_are_broken_between_words_where_there_is_height(
    high, names, texts
):
    """In narrow Axes a name that is cut in its middle says little."""
    ax = Figure(figsize=(3.2, high)).add_axes((0.0, 0.0, 1.0, 1.0))
    name_rows(ax, [0, 1], names, notes=["(1,000)", "(7)"])
    assert [label.get_text() for label in ax.get_yticklabels()] == texts

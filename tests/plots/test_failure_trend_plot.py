"""The trend plot, by reading its artists."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from toolkit.drawing.style import THEMES
from toolkit.errors import InputError
from toolkit.plots import plot_failure_trend
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

START = datetime(2026, 3, 2, tzinfo=UTC)
HOSTILE = [
    "$\\frac{1}{0}$",
    "$",
    "_hidden",
    "a" * 500,
    "\u202egnp.exe",
    "fire \U0001f525",
    "日本",
    "",
    "{{7*7}}",
    "x\ny",
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
]


def frame(*rows):
    return frame_from_rows(
        [{"dlq_id": str(number), **row} for number, row in enumerate(rows)], FAILURES
    )


def failed(minutes, **more):
    return {"failed_at": START + timedelta(minutes=minutes), **more}


def axes(width=8.0, height=4.0):
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def texts(ax):
    legend = ax.get_legend()
    return [text.get_text() for text in legend.get_texts()] if legend else []


def test_bars_stand_for_the_counts():
    """Bars have the heights and positions of the counts, and labels name unit, zone and width."""
    ax = plot_failure_trend(
        frame(failed(1), failed(2), failed(125)), freq="1h", ax=axes()
    )
    assert isinstance(ax, Axes)
    assert ax.patches[0].heights.tolist() == [2, 1]
    day = (START - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(days=1)
    assert ax.patches[0].lefts[1] == pytest.approx(day + 2 / 24)
    assert ax.get_ylabel() == "failures"
    assert ax.get_xlabel() == "failed at (UTC), 02 Mar 2026; bars of 1\u00a0h"
    assert not texts(ax)


def test_the_label_names_the_days_that_are_drawn():
    """From the start of the first bar to the end of the last; both years where they differ."""
    day = 24 * 60
    within = plot_failure_trend(frame(failed(0), failed(9 * day)), freq="1d", ax=axes())
    assert within.get_xlabel().startswith(
        "failed at (UTC), 02 to 11 Mar 2026; bars of 1"
    )
    across = plot_failure_trend(
        frame(failed(-90 * day), failed(0)), freq="7d", ax=axes()
    )
    assert across.get_xlabel().startswith(
        "failed at (UTC), 01 Dec 2025 to 08 Mar 2026; bars of 7"
    )


def test_stacks_and_their_second_sign():
    """Groups are stacked on one another, and differ in hatch as in colour, in the legend too."""
    rows = [failed(0, workflow_url="a")] * 2 + [failed(0, workflow_url="b")]
    ax = plot_failure_trend(frame(*rows), by="workflow_url", freq="1h", ax=axes())
    first, second = ax.patches
    assert (first.heights, second.bottoms, second.heights) == ([2], [2], [1])
    assert first.get_hatch() != second.get_hatch()
    assert first.get_facecolor() != second.get_facecolor()
    assert texts(ax) == ["a  2", "b  1"]
    handles = ax.get_legend().get_patches()
    assert [handle.get_hatch() for handle in handles] == [
        first.get_hatch(),
        second.get_hatch(),
    ]


def test_fallback_and_missing_times_are_reported():
    """The axis label has the numbers counted at creation and left out."""
    ax = plot_failure_trend(frame(failed(0), {"created_at": START}, {}), ax=axes(10))
    assert "1 of 2 have no failure time" in ax.get_xlabel()
    assert "1 failure without a usable time left out" in ax.get_xlabel()


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "No failures"),
        ([{}], "No failures (1 failure without a usable time)"),
        ([failed(5)], "1 failure, at 2026-03-02 00:05 UTC"),
    ],
)
def test_nothing_to_draw_is_a_sentence(rows, sentence):
    """Without failures, or with one, a sentence is shown instead of bars."""
    ax = plot_failure_trend(frame(*rows), by="workflow_url", ax=axes())
    ax.figure.draw_without_rendering()
    assert [text.get_text() for text in ax.texts] == [sentence]
    assert not ax.patches


def test_hostile_names_are_drawn_as_text():
    """Names never become maths, never vanish from the legend, and lose their controls and their length."""
    rows = [failed(number, workflow_url=name) for number, name in enumerate(HOSTILE)]
    for start in range(0, len(rows), 6):
        ax = plot_failure_trend(
            frame(*rows[start : start + 6]), by="workflow_url", ax=axes()
        )
        ax.figure.draw_without_rendering()
        assert len(texts(ax)) == len(rows[start : start + 6])
        assert not any(text.get_parse_math() for text in ax.get_legend().get_texts())
        assert all(
            len(text) <= 60 and "\u202e" not in text and "\n" not in text
            for text in texts(ax)
        )
    ax = plot_failure_trend(
        frame(*rows[:3], failed(9, workflow_url="$")), by="workflow_url", ax=axes()
    )
    assert texts(ax) == ["$  2", "$\\frac{1}{0}$  1", "_hidden  1"]


@pytest.mark.parametrize("width", [2.5, 3.6, 6.0, 14.0])
@pytest.mark.parametrize(
    "span", [30, 600, 60 * 24, 60 * 24 * 6, 60 * 24 * 45, 60 * 24 * 500]
)
def test_tick_labels_do_not_overlap(width, span):
    """For any width and duration, no tick label touches the next, and there is at least one."""
    ax = plot_failure_trend(frame(failed(0), failed(span)), ax=axes(width))
    ax.figure.draw_without_rendering()
    boxes = [
        label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()
    ]
    assert boxes
    assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(boxes))


def test_themes_colour_the_axes():
    """Light and dark differ in background and text; other names are refused."""
    for name, theme in THEMES.items():
        ax = plot_failure_trend(frame(failed(0), failed(9)), ax=axes(), theme=name)
        assert to_hex(ax.get_facecolor()) == theme.paper
        assert to_hex(ax.yaxis.label.get_color()) == theme.muted
    with pytest.raises(InputError, match="'light' or 'dark'"):
        plot_failure_trend(frame(), ax=axes(), theme="blue")


def test_settings_and_figures_are_left_alone():
    """The settings of matplotlib stay as the user set them, and no figure is made when an Axes is given."""
    before = dict(mpl.rcParams)
    for _ in range(25):
        plot_failure_trend(frame(failed(0), failed(9)), ax=axes())
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == []


def test_a_pyplot_figure_by_default():
    """Without an Axes a new figure is made where notebooks look for it."""
    ax = plot_failure_trend(frame(failed(0), failed(9)))
    try:
        assert plt.get_fignums() == [ax.figure.number]
    finally:
        plt.close(ax.figure)


def test_user_settings_do_not_break_it():
    """Settings that ask for TeX and another font have no effect."""
    with mpl.rc_context(
        {"text.usetex": True, "font.family": "no such font", "axes.facecolor": "red"}
    ):
        rows = frame(failed(0, workflow_url="a"), failed(9, workflow_url="$b_"))
        ax = plot_failure_trend(rows, by="workflow_url", ax=axes())
    drawn = [ax.yaxis.label, ax.xaxis.label, *ax.get_legend().get_texts()]
    assert not any(text.get_usetex() for text in drawn)
    assert {text.get_fontfamily()[0] for text in drawn} == {"DejaVu Sans"}
    assert to_hex(ax.get_facecolor()) == "#ffffff"


def test_markers_changes_and_the_usual_are_drawn():
    """A deployment's line and name, how many times as high the rate became, and what is usual."""
    rows = [
        failed(60 * hour)
        for hour in range(24 * 7)
        for _ in range(2 if hour < 120 else 9)
    ]
    markers = {
        "release 2": START + timedelta(hours=120),
        "elsewhere": START + timedelta(days=90),
    }
    ax = plot_failure_trend(frame(*rows), freq="3h", markers=markers, ax=axes(10))
    texts = [text.get_text() for text in ax.texts]
    assert texts == ["release 2 \N{MULTIPLICATION SIGN}4.5"]
    assert len(ax.lines) == 2
    assert "usual" in ax.get_ylabel()
    assert ax.get_xlabel().endswith("\n1 marker outside this time left out")
    assert plot_failure_trend(
        frame(*rows), freq="3h", layout="facets", markers=markers, ax=axes(10)
    ).lines
    within = plot_failure_trend(frame(*rows), markers={"release 2": START}, ax=axes(10))
    assert "marker" not in within.get_xlabel()


@pytest.mark.parametrize(
    ("often", "text"), [(6, "3"), (9, "4.5"), (336, "170"), (2_468, "1,200")]
)
def test_how_many_times_as_high_a_rate_became_has_no_exponent(often, text):
    """Two digits of it, as people write them."""
    rows = [
        failed(60 * hour)
        for hour in range(48)
        for _ in range(often if hour >= 30 else 2)
    ]
    ax = plot_failure_trend(frame(*rows), freq="1h", ax=axes(10))
    assert [text.get_text() for text in ax.texts][:1] == [
        f"rate \N{MULTIPLICATION SIGN}{text}"
    ]


def test_times_that_are_close_to_each_other_are_all_named():
    """Names side by side on one side of their lines, in their order; what is far away has its own."""
    rows = [failed(60 * hour) for hour in range(24 * 7)]
    hours = {
        "third": 43,
        "first": 40,
        "second": 41,
        "alone": 90,
        "late": 130,
        "later": 132,
    }
    markers = {name: START + timedelta(hours=hour) for name, hour in hours.items()}
    ax = plot_failure_trend(frame(*rows), freq="3h", markers=markers, ax=axes(10))
    assert [text.get_text() for text in ax.texts] == [
        "first\nsecond\nthird",
        "alone",
        "late\nlater",
    ]
    many = {
        f"release {number}": START + timedelta(hours=40 + number / 9)
        for number in range(7)
    }
    ax = plot_failure_trend(frame(*rows), freq="3h", markers=many, ax=axes(10))
    assert [text.get_text() for text in ax.texts] == [
        "release 0\nrelease 1\nrelease 2\n… 4 more"
    ]
    assert len([line for line in ax.lines if line.get_linestyle() == "-"]) >= 7


def test_bars_are_rates_where_runs_are_known():
    """Failures per 100 runs; hours without runs have no bar."""
    runs = frame(
        *({"created_at": START + timedelta(minutes=minute)} for minute in range(40))
    )
    ax = plot_failure_trend(
        frame(failed(1), failed(2), failed(70)), freq="1h", runs=runs, ax=axes(10)
    )
    assert ax.patches[0].heights.tolist() == [5.0]
    assert "per 100 runs" in ax.get_ylabel()

"""Properties of every plot: space for its texts, a sentence for empty data, literal text."""

from __future__ import annotations

import inspect
import itertools
import re

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import toolkit as tk
from tests.covering import in_turn
from tests.plots.conftest import PLOTS
from toolkit.drawing.drawable import drawable, width
from toolkit.drawing.style import THEMES
from toolkit.errors import InputError

PIECES = [
    "$\\frac{1}{0}$", "$", "$x$ and $y", "_hidden", "a" * 500, "\u202egnp.exe", "fire \U0001f525", "日本語",
    "", "{{7*7}}", "x\ny", "\r", "\t", "\x00", "\x1b[31m", "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>", "&lt;b&gt;", "'\"><svg onload=alert(1)>", "%s %d", "{0.__class__}",
    "\\textbf{x}", "\\", "^_^", "#ff0000",
    "https://example.com/?token=abc", "\u2028line", "\ufeffbom", "\u200bzero", "e\u0301", "=SUM(A1)", "@cmd",
    "javascript:alert(1)",
]  # fmt: skip
PAYLOADS = [
    *PIECES, *(f"{piece} tail" for piece in PIECES),
    *(f"https://shop.example.com/{piece}" for piece in PIECES), "\u2066isolated\u2069",
]  # fmt: skip


CONTROLS = set("\x00\x1b\r\t\u202e\u2066\u2069\u200b\ufeff\u2028")


def axes(width=6.0, height=3.6):
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def drawn_texts(ax: Axes):
    legend = ax.get_legend()
    return [
        *ax.texts, *ax.get_xticklabels(), *ax.get_yticklabels(), ax.xaxis.label, ax.yaxis.label, ax.title,
        ax._left_title, *(legend.get_texts() if legend else []),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("width", "height"), [(3, 2), (4, 6), (6, 3.6), (9, 3.6), (14, 6)]
)
def test_tick_labels_do_not_overlap(plot, width, height):
    """At no size does a tick label lie over its neighbour, and at every size something is drawn."""
    ax = plot.draw(400, ax=axes(width, height))
    ax.figure.draw_without_rendering()
    across = [
        label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()
    ]
    up = [
        label.get_window_extent() for label in ax.get_yticklabels() if label.get_text()
    ]
    across = sorted(
        (box for box in across if _inside(ax, box, "x")), key=lambda box: box.x0
    )
    up = sorted((box for box in up if _inside(ax, box, "y")), key=lambda box: box.y0)
    assert all(left.x1 <= right.x0 + 0.5 for left, right in itertools.pairwise(across))
    assert all(low.y1 <= high.y0 + 0.5 for low, high in itertools.pairwise(up))
    assert ax.patches or ax.collections or ax.lines
    assert ax.get_window_extent().width > 0.3 * width * ax.figure.dpi
    assert ax.get_window_extent().height > 0.3 * height * ax.figure.dpi


def _inside(ax, box, way):
    """Whether a tick label belongs to a tick that is in view."""
    area = ax.get_window_extent()
    middle = (box.x0 + box.x1) / 2 if way == "x" else (box.y0 + box.y1) / 2
    return (
        (area.x0 <= middle <= area.x1)
        if way == "x"
        else (area.y0 - 1 <= middle <= area.y1 + 1)
    )


def test_nothing_is_a_sentence(plot):
    """An empty frame draws one sentence and no axis."""
    ax = plot.draw(0, ax=axes())
    ax.figure.draw_without_rendering()
    assert len(ax.texts) == 1
    assert ax.texts[0].get_text().startswith("No")
    assert not ax.patches


def test_one_row_is_no_exception(plot):
    """A single row is drawn or described."""
    ax = plot.draw(1, ax=axes())
    ax.figure.draw_without_rendering()
    assert ax.texts or ax.patches or ax.collections or ax.lines


def test_themes(plot):
    """Light and dark differ in the background; other names are refused."""
    for name, theme in THEMES.items():
        assert (
            to_hex(plot.draw(50, ax=axes(), theme=name).get_facecolor()) == theme.paper
        )
    with pytest.raises(InputError, match="'light' or 'dark'"):
        plot.draw(5, ax=axes(), theme="blue")


def test_the_users_settings_have_no_say_and_stay(plot):
    """TeX and foreign fonts change nothing, the settings stay as they were, no figure is left in pyplot."""
    with mpl.rc_context({"text.usetex": True, "font.family": "no such font"}):
        before = dict(mpl.rcParams)
        ax = plot.draw(50, ax=axes())
        ax.figure.draw_without_rendering()
        assert dict(mpl.rcParams) == before
    assert not any(text.get_usetex() for text in drawn_texts(ax) if text.get_text())
    assert plt.get_fignums() == []


@pytest.mark.slow
def test_hostile_texts_are_drawn_as_text(plot):
    """Payloads are neither maths nor invisible, without controls, and not wider than the plot.

    Each plot draws each piece in one of the three forms of `PAYLOADS`, and the next plot in the next form.
    """
    forms = [
        PAYLOADS[start : start + len(PIECES)]
        for start in (0, len(PIECES), 2 * len(PIECES))
    ]
    first = [one.name for one in PLOTS].index(plot.name)
    drawn = [forms[(first + place) % 3][place] for place in range(len(PIECES))]
    drawn += PAYLOADS[3 * len(PIECES) :]
    for payloads in (drawn[start : start + 7] for start in range(0, len(drawn), 7)):
        ax = plot.draw(14, texts=payloads, ax=axes(4, 3))
        for text in drawn_texts(ax):
            written = text.get_text()
            assert not (text.get_parse_math() and "$" in written)
            assert not set(written) & CONTROLS
            assert len(written) <= 120
    ax.figure.draw_without_rendering()


def test_a_hundred_payloads_are_made_drawable():
    """The function that all plots use makes each of them text without controls and without maths."""
    assert len(set(PAYLOADS)) >= 100
    for payload in PAYLOADS:
        written = drawable(payload)
        assert not set(written) & CONTROLS
        assert len(written) <= 120


LONG = {
    "Chinese": "".join(chr(0x4E00 + 37 * number) for number in range(200)),
    "Arabic": "مرحبا بالعالم هذا نص طويل جدا " * 8,
    "emoji": "\U0001f525\U0001f468\u200d\U0001f469\u200d\U0001f467" * 30,
    "marks": "z" + "\u0301\u0316\u0489" * 60,
    "wide": "W\u01c4" * 100,
    "controls": "\u202e\x00中" * 40,
}


def long_names(plot, number):
    """Seven names of all scripts, and seven of one, for a plot and the size of this number.

    The script differs by plot and size, so that each script is alone at each size in every sixth plot.
    """
    every = list(LONG.values())
    place = [one.name for one in PLOTS].index(plot.name) + 2 * number
    alone = in_turn(every, place, of=len(every))
    return [*([text] * 7 for text in alone), [*every, every[number]]]


@pytest.mark.parametrize("number", range(3))
def test_long_labels_of_any_script_leave_the_axes_their_size(plot, number):
    """Seven long names in letters that are wide, missing or stacked: laid out without a warning.

    From 4 inches on, a third of the area is left, and no title is over a legend. Each size meets each script
    among others, and one script alone.
    """
    size = [(3, 2), (4, 9), (9, 3.6)][number]
    for texts in long_names(plot, number):
        names = [
            f"{text}{place}" if place % 2 else f"{place}{text}"
            for place, text in enumerate(texts)
        ]
        ax = plot.draw(40, texts=names, ax=axes(*size))
        ax.figure.draw_without_rendering()  # constrained layout warns where nothing is left for the Axes
        assert ax.get_position().width > 0.3
        assert ax.get_position().height > 0.25
        assert size[0] < 4 or ax.get_position().width * ax.get_position().height > 1 / 3
        right, legend = size[0] * ax.figure.dpi, ax.get_legend()
        assert not (
            legend
            and _over(legend.get_window_extent(), ax._left_title.get_window_extent())
        )
        above = (ax._left_title, ax.xaxis.label)
        for label in (
            *above,
            *ax.get_yticklabels(),
            *ax.texts,
            *(legend.get_texts() if legend else ()),
        ):
            box = label.get_window_extent()
            assert -20 < box.x0 <= box.x1 < right + 20, label.get_text()


def _over(box, other):
    """Whether one box covers part of another."""
    return (
        min(box.x1, other.x1) > max(box.x0, other.x0)
        and min(box.y1, other.y1) > max(box.y0, other.y0) + 1
    )


def test_what_is_written_out_is_whole():
    """At any width, no escape is split, and the width is kept."""
    text = "\u2066\u2067W\u202eé" * 30
    for longest in range(1, 60):
        shown = drawable(text, longest=longest)
        rest = re.sub(r"\\u[0-9a-f]{4}", "", shown)
        assert not {"\\", "u"} & {*rest}
        assert width(shown) <= max(longest, 1.5)


@pytest.mark.parametrize("name", tk.plots.__all__)
def test_every_parameter_is_documented(name):
    """Also those whose description all plots share."""
    plot = getattr(tk.plots, name)
    parameters = inspect.getdoc(plot).partition(
        "Returns\n-------\nmatplotlib.axes.Axes\n"
    )[0]
    assert (
        parameters.count("ax : matplotlib.axes.Axes, optional\n    Axes to draw on.")
        == 1
    )
    for parameter in inspect.signature(plot).parameters:
        assert re.search(
            rf"^(?:\w+, )*{parameter}(?:, \w+)* : ", parameters, re.MULTILINE
        ), parameter

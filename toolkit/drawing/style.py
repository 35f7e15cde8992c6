"""Style plots: themes, colours for the colour-blind, hatches.

The colours are from M. Okabe and K. Ito, *Color Universal Design* (2008). The style is set on the Axes that
are drawn on; matplotlib's own settings are not changed. `drawable.py` prepares text from data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, Final, Literal, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from toolkit.base.arguments import choice, instance
from toolkit.drawing.fonts import font_families
from toolkit.drawing.notebook_figure import NotebookFigure, is_light

ThemeName = Literal["auto", "light", "dark"]
_AUTO: Final = "auto"
F = TypeVar("F", bound=Callable[..., Axes])

HATCHES: Final = ("", "///", "xxx", "\\\\\\", "---", "|||", "+++", "..", "oo")
"""One hatch per series, in order, in addition to the colour."""

# default position of single Axes in matplotlib
_USUAL: Final = (0.125, 0.11, 0.775, 0.77)
_SMALLEST: Final = (3.0, 2.0)  # inches of a figure with enough room for Axes and labels
_ROOMY: Final[WeakKeyDictionary[Axes, tuple[float, ...]]] = WeakKeyDictionary()
"""Positions of Axes after a plot made room for labels."""

_FAR: Final = 1.0  # between the sums of red, green and blue of two backgrounds, one light and one dark
_AXES: Final = """\
ax : matplotlib.axes.Axes, optional
    Axes to draw on. If omitted, pyplot makes a new figure. A light figure becomes dark with a dark theme, and
    a dark figure light with a light theme, because labels are outside the Axes. Single Axes of a figure
    without a layout become smaller, so that the labels fit; several Axes need the layout "constrained".
theme : {"auto", "light", "dark"}
    Colours of the plot. With "auto", a new figure follows the theme of the notebook, and other Axes have
    the theme that fits the background of the figure.

Returns
-------
matplotlib.axes.Axes
    The Axes, with the plot."""
_RAISES: Final = """\
Raises
------
InputError
    If a column is missing or has another type, or if an option is not as described above."""


def documented(plot: F) -> F:
    """Fill in a docstring: ``{axes}`` (`ax`, `theme`, and the Axes returned) and ``{raises}``."""
    if plot.__doc__:  # None under python -OO
        plot.__doc__ = (
            cleandoc(plot.__doc__).replace("{axes}", _AXES).replace("{raises}", _RAISES)
        )

    return plot


@dataclass(frozen=True)
class Theme:
    """Colours of a theme."""

    ink: str  # labels and titles
    muted: str  # labels of less weight, for example of ticks
    grid: str
    paper: str  # the background
    series: tuple[str, ...]  # one per series; the last is for merged groups
    heat: tuple[str, ...]  # cells, from few to many
    on_few: str  # numbers in cells of few
    on_many: str

    def bar(self, sign: int) -> dict[str, Any]:
        """Return the look of bars of the series at this position, as options of artists."""
        return {
            "color": self.series[sign],
            "hatch": HATCHES[sign],
            "edgecolor": self.paper,
            "linewidth": 0,
        }


THEMES: Final[dict[Literal["light", "dark"], Theme]] = {
    "light": Theme(
        ink="#1c2127",
        muted="#57606a",
        grid="#d5dae0",
        paper="#ffffff",
        series=(
            "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#b8a900", "#4b4f9c", "#8a929b",
        ),
        heat=(
            "#e3eef9", "#cbdff2", "#aed0e8", "#8cbddf", "#67a8d4", "#2b76b4", "#1a5f9e", "#0c4683", "#082f63",
        ),
        on_few="#10151a",
        on_many="#fdfeff",
    ),
    "dark": Theme(
        ink="#e8ebee",
        muted="#a5adb6",
        grid="#3a4149",
        paper="#15191d",
        series=(
            "#56b4e9", "#e69f00", "#1fc095", "#ef7a2a", "#3b8fd0", "#dd93bb", "#f0e442", "#9ea2f0", "#8a929b",
        ),
        heat=(
            "#1d3346", "#1f4059", "#234e6e", "#275d84", "#2c6a98", "#55a3d6", "#7fbde4", "#abd6f0", "#d8eefb",
        ),
        on_few="#fdfeff",
        on_many="#10151a",
    ),
}  # fmt: skip


@contextmanager
def drawing(ax: Axes | None, name: ThemeName) -> Iterator[tuple[Axes, Theme]]:
    """Prepare Axes to draw on, and return them with the theme of this name; without `ax`, make a figure.

    Plots neither depend on matplotlib's settings, which all threads share, nor change them. Settings that
    artists copied are reset at the end. A new figure is closed if drawing raises.
    """
    check_drawing(ax, name)
    if ax is None:
        figure_class, theme = Figure, THEMES["light"]
        if name == _AUTO:
            figure_class = NotebookFigure
        else:
            theme = THEMES[name]

        with _new_axes(theme, figure_class) as new_axes:
            yield new_axes, theme
            _reset(new_axes)

        return

    theme = THEMES[_fitting(ax) if name == _AUTO else name]
    prepare(ax, theme)
    *colour, alpha = to_rgba(ax.figure.get_facecolor())
    if alpha and abs(sum(colour) - sum(to_rgb(theme.paper))) > _FAR:
        # labels would not be readable
        ax.figure.set_facecolor(theme.paper)

    yield ax, theme
    _reset(ax)
    if makes_room(ax):
        _make_room(ax)


def check_drawing(ax: Axes | None, name: ThemeName) -> None:
    """Raise InputError for wrong arguments ``ax`` and ``theme`` of a plot."""
    choice("theme", name, (_AUTO, *THEMES))
    if ax is not None:
        instance("ax", ax, Axes, "Axes of matplotlib, or None for a new figure")


def _fitting(ax: Axes) -> Literal["light", "dark"]:
    """Return the theme for the background of the figure; a transparent one counts as light."""
    if is_light(ax.figure.get_facecolor()):
        return "light"
    return "dark"


@contextmanager
def _new_axes(theme: Theme, figure_class: type[Figure]) -> Iterator[Axes]:
    """Make a figure of pyplot with styled Axes. Close it if drawing raises."""
    figure = plt.figure(
        FigureClass=figure_class,
        figsize=(9, 3.6),
        layout=_layout(),
        facecolor=theme.paper,
        edgecolor=theme.paper,
        frameon=True,
    )
    try:
        # a first estimate of the space for labels; the layout is computed on drawing
        position = figure.add_gridspec(left=0.1, right=0.97, bottom=0.15, top=0.9)[0]
        yield prepare(figure.add_subplot(position), theme)
    except BaseException:
        plt.close(figure)
        raise


def _layout() -> ConstrainedLayoutEngine:
    return ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06, hspace=0.02, wspace=0.02)


def _make_room(ax: Axes) -> None:
    """Lay out once, and store the result as margins of the figure, which also place twins of the Axes."""
    figure = cast("Figure", ax.figure)
    _layout().execute(figure)
    position = ax.get_position(original=True)
    figure.subplots_adjust(position.x0, position.y0, position.x1, position.y1)
    _ROOMY[ax] = position.bounds


def makes_room(ax: Axes) -> bool:
    """Return whether a plot may shrink the Axes to make room for labels.

    It may if these are the only Axes of a figure and nobody has set a layout or a position.
    """
    figure, place = ax.figure, ax.get_subplotspec()
    if not isinstance(figure, Figure) or figure.axes != [ax] or place is None:
        return False

    position = ax.get_position(original=True).bounds
    return (
        figure.get_layout_engine() is None
        and place.get_gridspec().get_geometry() == (1, 1)
        and any(
            np.allclose(position, expected)
            for expected in (_USUAL, _ROOMY.get(ax, _USUAL))
        )
        and bool((figure.get_size_inches() >= _SMALLEST).all())
    )


def prepare(ax: Axes, theme: Theme) -> Axes:
    """Style Axes, and return them."""
    ax.set_facecolor(theme.paper)
    for side, spine in ax.spines.items():
        spine.set(visible=side in {"left", "bottom"}, color=theme.grid, linewidth=0.8)
    ax.minorticks_off()
    for axis in (ax.xaxis, ax.yaxis):
        axis.reset_ticks()  # earlier ticks would keep their settings and pass them on
        axis.labelpad = 4.0

    ax.xaxis.label.set(x=0.5, horizontalalignment="center")
    ax.tick_params(
        which="both", direction="out", length=3, width=0.8, pad=3.5, colors=theme.muted, labelsize=9,
        labelfontfamily=font_families(), bottom=True, left=True, top=False, right=False, labelbottom=True,
        labelleft=True, labeltop=False, labelright=False,
    )  # fmt: skip
    ax.grid(visible=False, which="both", axis="both")
    ax.grid(
        visible=True,
        which="major",
        axis="y",
        color=theme.grid,
        linewidth=0.6,
        linestyle="-",
        alpha=1.0,
    )
    ax.set_axisbelow(True)

    return ax


def _reset(ax: Axes) -> None:
    """Set matplotlib's default settings and the font of the toolkit on all artists."""
    # your defaults (rcParams, style sheets, xkcd) must not make results unreadable
    # `Artist.set` takes ten times as long as these methods, and a plot has hundreds of artists
    families = font_families()
    for artist in (ax.figure.patch, *ax.findobj()):
        artist.set_sketch_params()
        artist.set_path_effects([])
        if isinstance(artist, Text):
            _reset_text(artist, families)
        elif isinstance(artist, Patch):
            artist.set_hatch_linewidth(0.7)
            artist.set_antialiased(True)
            if hasattr(artist, "set_hatchcolor"):  # since matplotlib 3.11
                artist.set_hatchcolor("edge")
        elif isinstance(artist, Line2D):
            _reset_line(artist)


def _reset_text(text: Text, families: list[str]) -> None:
    text.set_usetex(False)
    text.set_parse_math(False)
    text.set_fontfamily(families)
    text.set_fontstyle("normal")
    text.set_fontvariant("normal")
    text.set_fontweight("normal")
    text.set_fontstretch("normal")
    text.set_antialiased(True)


def _reset_line(line: Line2D) -> None:
    line.set_solid_capstyle("projecting")
    line.set_dash_capstyle("butt")
    line.set_solid_joinstyle("round")
    line.set_dash_joinstyle("round")
    line.set_markeredgewidth(0.0)
    line.set_antialiased(True)
    if line.get_fillstyle() != "full":  # it makes the marker anew
        line.set_fillstyle("full")


def as_written(labels: list[Text]) -> None:
    """Draw labels literally: ``$`` is a dollar sign."""
    for label in labels:
        label.set_usetex(False)
        label.set_parse_math(False)

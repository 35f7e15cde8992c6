"""How the plots look: colours distinguishable for the colour-blind, hatches and dashes, light and dark.

Colours are those of M. Okabe and K. Ito, *Color Universal Design* (2008). The style is put on the one Axes
that is drawn on; matplotlib's own settings stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, Final, Literal, TypeVar

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from toolkit.arguments import choice, instance

ThemeName = Literal["light", "dark"]
F = TypeVar("F", bound=Callable[..., Axes])

FONT: Final = "DejaVu Sans"  # comes with matplotlib, so that texts measure the same everywhere
HATCHES: Final = ("", "///", "xxx", "\\\\\\", "---", "|||", "+++", "..", "oo")
"""In addition to colour: one a series, in order."""

_AXES: Final = """\
ax : matplotlib.axes.Axes, optional
    Where to draw. Default: a new figure of pyplot's.
theme : {"light", "dark"}

Returns
-------
matplotlib.axes.Axes"""


def documented(plot: F) -> F:
    """Fill in ``{axes}`` in a docstring: the parameters `ax` and `theme`, and that Axes are returned."""
    plot.__doc__ = plot.__doc__ and cleandoc(plot.__doc__).replace("{axes}", _AXES)
    return plot


@dataclass(frozen=True)
class Theme:
    """Colours of a theme: texts, lines and background; of each series, the last for merged groups.

    `heat` goes from few, which is near the background, to many; `on_few` is for texts on its first five.
    """

    ink: str
    muted: str
    grid: str
    paper: str
    series: tuple[str, ...]
    heat: tuple[str, ...]
    on_few: str
    on_many: str

    def bar(self, sign: int) -> dict[str, Any]:
        """The look of bars of the series at this position, as options of artists."""
        return {"color": self.series[sign], "hatch": HATCHES[sign], "edgecolor": self.paper, "linewidth": 0}


THEMES: Final[dict[ThemeName, Theme]] = {
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


def theme_named(name: ThemeName) -> Theme:
    """The theme of this name."""
    return THEMES[choice("theme", name, THEMES)]


@contextmanager
def drawing(ax: Axes | None, theme: Theme) -> Iterator[Axes]:
    """Prepared Axes to draw on; without `ax` those of a new figure of pyplot's, which notebooks show.

    Plots do not depend on matplotlib's settings, and change none: they are shared by all threads. What
    artists copied from them is reset on leaving. A new figure is closed when drawing raises.
    """
    if ax is not None:
        prepare(instance("ax", ax, Axes, "Axes of matplotlib, or None for a new figure"), theme)
        yield ax
        _set_right(ax)
        return
    layout = ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06, hspace=0.02, wspace=0.02)
    figure = plt.figure(
        figsize=(9, 3.6), layout=layout, facecolor=theme.paper, edgecolor=theme.paper, frameon=True
    )
    try:
        # the space by which texts are measured until there is a layout
        position = figure.add_gridspec(left=0.1, right=0.97, bottom=0.15, top=0.9)[0]
        ax = prepare(figure.add_subplot(position), theme)
        yield ax
        _set_right(ax)
    except BaseException:
        plt.close(figure)
        raise


def prepare(ax: Axes, theme: Theme) -> Axes:
    """The Axes to draw on, styled."""
    ax.set_facecolor(theme.paper)
    for side, spine in ax.spines.items():
        spine.set(visible=side in {"left", "bottom"}, color=theme.grid, linewidth=0.8)
    ax.minorticks_off()
    for axis in (ax.xaxis, ax.yaxis):
        axis.reset_ticks()  # earlier ticks would keep their settings and pass them on
        axis.labelpad = 4.0
    ax.tick_params(
        which="both", direction="out", length=3, width=0.8, pad=3.5, colors=theme.muted, labelsize=9,
        labelfontfamily=FONT, bottom=True, left=True, top=False, right=False, labelbottom=True,
        labelleft=True, labeltop=False, labelright=False,
    )  # fmt: skip
    ax.grid(visible=False, which="both", axis="both")
    ax.grid(visible=True, which="major", axis="y", color=theme.grid, linewidth=0.6, linestyle="-", alpha=1.0)
    ax.set_axisbelow(True)
    return ax


def _set_right(ax: Axes) -> None:
    """Give artists matplotlib's default settings, and our font."""
    for artist in (ax.figure.patch, *ax.findobj()):
        artist.set_sketch_params()
        artist.set_path_effects([])
        if isinstance(artist, Text):
            artist.set(
                usetex=False, parse_math=False, fontfamily=FONT, fontstyle="normal", fontvariant="normal",
                fontweight="normal", fontstretch="normal", antialiased=True,
            )  # fmt: skip
        elif isinstance(artist, Patch):
            artist.set(hatch_linewidth=0.7, antialiased=True)
            if hasattr(artist, "set_hatchcolor"):  # from matplotlib 3.11 on
                artist.set_hatchcolor("edge")
        elif isinstance(artist, Line2D):
            artist.set(
                solid_capstyle="projecting", dash_capstyle="butt", solid_joinstyle="round",
                dash_joinstyle="round", fillstyle="full", markeredgewidth=0.0, antialiased=True,
            )  # fmt: skip

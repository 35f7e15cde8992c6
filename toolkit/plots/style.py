"""How the plots look: colours that stay apart for colour-blind eyes, a second sign in grey, light and dark.

Colours are those of M. Okabe and K. Ito, *Color Universal Design* (2008). The style is put on the one Axes
that is drawn on; matplotlib's own settings stay as they are.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Literal

from matplotlib import pyplot as plt
from matplotlib import style
from matplotlib.axes import Axes

from toolkit.errors import InputError

ThemeName = Literal["light", "dark"]

FONT: Final = "DejaVu Sans"  # comes with matplotlib, so that texts measure the same everywhere
HATCHES: Final = ("", "///", "xxx", "\\\\\\", "---", "|||", "+++", "..", "oo")
"""The second sign, beside colour: one a series, in order."""


@dataclass(frozen=True)
class Theme:
    """Colours of a theme.

    Attributes
    ----------
    ink, muted, grid, paper : str
        Text, lesser text, lines, background.
    series : tuple of str
        One colour a series, in order; the last is for what was merged.
    """

    ink: str
    muted: str
    grid: str
    paper: str
    series: tuple[str, ...]


THEMES: Final[dict[ThemeName, Theme]] = {
    "light": Theme(
        ink="#1c2127",
        muted="#57606a",
        grid="#d5dae0",
        paper="#ffffff",
        series=(
            "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#b8a900", "#4b4f9c", "#8a929b",
        ),
    ),
    "dark": Theme(
        ink="#e8ebee",
        muted="#a5adb6",
        grid="#3a4149",
        paper="#15191d",
        series=(
            "#56b4e9", "#e69f00", "#1fc095", "#ef7a2a", "#3b8fd0", "#dd93bb", "#f0e442", "#9ea2f0", "#8a929b",
        ),
    ),
}  # fmt: skip


def theme_named(name: ThemeName) -> Theme:
    """The theme of this name.

    Raises
    ------
    InputError
        When there is none.
    """
    if name not in THEMES:
        raise InputError("choosing a theme", got=repr(name), expected="'light' or 'dark'")
    return THEMES[name]


def fixed_settings() -> AbstractContextManager[None]:
    """A context in which matplotlib has its default settings and our font, whatever the user set."""
    settings: AbstractContextManager[None] = style.context(
        ["default", {"font.family": [FONT], "hatch.linewidth": 0.7, "text.parse_math": False}]
    )
    return settings


def prepare(ax: Axes | None, theme: Theme) -> Axes:
    """The Axes to draw on, styled; without one a new figure's, kept by pyplot so that notebooks show it."""
    if ax is None:
        _, ax = plt.subplots(figsize=(9, 3.6), layout="constrained", facecolor=theme.paper)
    for axis in (
        ax.xaxis,
        ax.yaxis,
    ):  # ticks made under the user's settings would keep them, and hand them on
        axis.reset_ticks()
        axis.get_major_ticks(1)
    ax.set_facecolor(theme.paper)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(theme.grid)
    ax.tick_params(colors=theme.muted, labelcolor=theme.muted, labelsize=9, length=3, labelfontfamily=FONT)
    ax.grid(visible=True, axis="y", color=theme.grid, linewidth=0.6)
    ax.set_axisbelow(True)
    for label in (ax.xaxis.label, ax.yaxis.label):  # made with the Axes, under the user's settings
        label.set_usetex(False)
        label.set_fontfamily(FONT)
    return ax

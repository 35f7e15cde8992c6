"""How the plots look: colours that stay apart for colour-blind eyes, a second sign in grey, light and dark.

Colours are those of M. Okabe and K. Ito, *Color Universal Design* (2008). The style is put on the one Axes
that is drawn on; matplotlib's own settings stay as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from matplotlib import pyplot as plt
from matplotlib import rcParams, rcParamsDefault
from matplotlib.axes import Axes

from toolkit.errors import InputError

ThemeName = Literal["light", "dark"]

FONT: Final = "DejaVu Sans"  # comes with matplotlib, so that texts measure the same everywhere
HATCHES: Final = ("", "///", "xxx", "\\\\\\", "---", "|||", "+++", "..", "oo")
"""The second sign, beside colour: one a series, in order."""

_DRAWING: Final = (
    "axes.", "font.", "grid.", "hatch.", "legend.", "lines.", "markers.", "mathtext.", "patch.", "path.",
    "pcolor", "scatter.", "text.", "xaxis.", "xtick.", "yaxis.", "ytick.",
)  # fmt: skip
"""How names of settings begin that artists are made with: none of the backend, of windows or of files."""
_OURS: Final = {"font.family": [FONT], "hatch.linewidth": 0.7, "text.parse_math": False}
_ONE_AT_A_TIME: Final = threading.RLock()
"""matplotlib's settings are those of all threads."""


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


@contextmanager
def fixed_settings(more: Mapping[str, object] = MappingProxyType({})) -> Iterator[None]:
    """A context in which matplotlib draws with its default settings and our font, whatever the user set.

    Only settings of drawing that differ are set, and only those are set back. matplotlib's own contexts set
    back all of them, what the backend set meanwhile too: the first figure of a notebook decides whether
    figures are shown at all.

    Parameters
    ----------
    more : mapping
        Further settings by their names.
    """
    with _ONE_AT_A_TIME:
        settings: Any = rcParams  # typed by name, one by one
        wanted = {name: value for name, value in rcParamsDefault.items() if name.startswith(_DRAWING)}
        changed = {
            name: value for name, value in (wanted | _OURS | dict(more)).items() if settings[name] != value
        }
        before = {name: settings[name] for name in changed}
        settings.update(changed)
        try:
            yield
        finally:
            settings.update(before)


@contextmanager
def drawing(ax: Axes | None, theme: Theme) -> Iterator[Axes]:
    """Prepared Axes within `fixed_settings`; without `ax` those of a new figure, which notebooks show.

    A new figure is closed again when drawing raises: an empty one would be shown.
    """
    if ax is not None:
        with fixed_settings():
            yield prepare(ax, theme)
        return
    # outside, because the first figure chooses pyplot's backend, which has settings of its own to set
    figure = plt.figure(figsize=(9, 3.6), layout="constrained", facecolor=theme.paper)
    try:
        with fixed_settings():
            yield prepare(figure.add_subplot(), theme)
    except BaseException:
        plt.close(figure)
        raise


def prepare(ax: Axes, theme: Theme) -> Axes:
    """The Axes to draw on, styled."""
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

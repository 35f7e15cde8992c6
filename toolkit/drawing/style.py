"""How plots look: colours for the colour-blind, hatches, light and dark; texts from data, fit to be drawn.

Colours are those of M. Okabe and K. Ito, *Color Universal Design* (2008). The style is set on the Axes that
are drawn on; matplotlib's own settings are not changed. Texts are never maths, never invisible and never
wider than the plot; their widths are counted in columns, the width of an ordinary character of our font.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from itertools import accumulate
from os.path import commonprefix
from typing import Any, Final, Literal, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import LoadFlags
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from toolkit.arguments import choice, instance
from toolkit.redaction import visible

ThemeName = Literal["light", "dark"]
F = TypeVar("F", bound=Callable[..., Axes])

FONT: Final = "DejaVu Sans"  # comes with matplotlib, so that texts measure the same everywhere
HATCHES: Final = ("", "///", "xxx", "\\\\\\", "---", "|||", "+++", "..", "oo")
"""In addition to colour: one a series, in order."""

_USUAL: Final = (0.125, 0.11, 0.775, 0.77)  # where matplotlib puts single Axes, if nobody says where
_SMALLEST: Final = (3.0, 2.0)  # inches of a figure in which Axes with their texts have room
_ROOMY: Final[WeakKeyDictionary[Axes, tuple[float, ...]]] = WeakKeyDictionary()
"""Where Axes are since a plot made room for its texts."""

_FAR: Final = 1.0  # between the sums of red, green and blue of two backgrounds, one light and one dark
_AXES: Final = """\
ax : matplotlib.axes.Axes, optional
    Where to draw. Default: a new figure of pyplot's. A light figure becomes dark with a dark theme, and a
    dark one light with a light theme, as texts stand beside the Axes. Single Axes of a figure without a
    layout become smaller, so that these texts fit; several need the layout "constrained".
theme : {"light", "dark"}

Returns
-------
matplotlib.axes.Axes"""
_RAISES: Final = """\
Raises
------
InputError
    When a column is missing or of another kind, or an option is not as described above."""


def documented(plot: F) -> F:
    """Fill in a docstring: ``{axes}`` (`ax`, `theme`, and the Axes returned) and ``{raises}``."""
    filled = cleandoc(plot.__doc__ or "").replace("{axes}", _AXES).replace("{raises}", _RAISES)
    plot.__doc__ = filled or None  # none under python -OO
    return plot


@dataclass(frozen=True)
class Theme:
    """Colours of a theme: texts, lines and background; of each series, the last for merged groups."""

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


@contextmanager
def drawing(ax: Axes | None, name: ThemeName) -> Iterator[tuple[Axes, Theme]]:
    """Prepared Axes to draw on, without `ax` those of a new figure of pyplot's; and the theme of this name.

    Plots neither depend on matplotlib's settings, which all threads share, nor change them. What artists
    copied from them is reset on leaving. A new figure is closed when drawing raises.
    """
    theme = THEMES[choice("theme", name, THEMES)]
    if ax is not None:
        prepare(instance("ax", ax, Axes, "Axes of matplotlib, or None for a new figure"), theme)
        *own, alpha = to_rgba(ax.figure.get_facecolor())
        if alpha and abs(sum(own) - sum(to_rgb(theme.paper))) > _FAR:  # texts could not be read on it
            ax.figure.set_facecolor(theme.paper)
        yield ax, theme
        _reset(ax)
        if makes_room(ax):
            _make_room(ax)
        return
    figure = plt.figure(
        figsize=(9, 3.6), layout=_layout(), facecolor=theme.paper, edgecolor=theme.paper, frameon=True
    )
    try:
        # the space by which texts are measured until there is a layout
        position = figure.add_gridspec(left=0.1, right=0.97, bottom=0.15, top=0.9)[0]
        ax = prepare(figure.add_subplot(position), theme)
        yield ax, theme
        _reset(ax)
    except BaseException:
        plt.close(figure)
        raise


def _layout() -> ConstrainedLayoutEngine:
    return ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06, hspace=0.02, wspace=0.02)


def _make_room(ax: Axes) -> None:
    """Lay out once, and keep it as the margins of the figure, by which twins of the Axes are placed, too."""
    figure = cast("Figure", ax.figure)
    _layout().execute(figure)
    found = ax.get_position(original=True)
    figure.subplots_adjust(found.x0, found.y0, found.x1, found.y1)
    _ROOMY[ax] = found.bounds


def makes_room(ax: Axes) -> bool:
    """Whether a plot makes room for its texts: these are all Axes of a figure whose layout nobody has set."""
    figure, place = ax.figure, ax.get_subplotspec()
    if not isinstance(figure, Figure) or figure.axes != [ax] or place is None:
        return False
    position = ax.get_position(original=True).bounds
    return (
        figure.get_layout_engine() is None
        and place.get_gridspec().get_geometry() == (1, 1)
        and any(np.allclose(position, known) for known in (_USUAL, _ROOMY.get(ax, _USUAL)))
        and bool((figure.get_size_inches() >= _SMALLEST).all())
    )


def prepare(ax: Axes, theme: Theme) -> Axes:
    """The Axes to draw on, styled."""
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
        labelfontfamily=FONT, bottom=True, left=True, top=False, right=False, labelbottom=True,
        labelleft=True, labeltop=False, labelright=False,
    )  # fmt: skip
    ax.grid(visible=False, which="both", axis="both")
    ax.grid(visible=True, which="major", axis="y", color=theme.grid, linewidth=0.6, linestyle="-", alpha=1.0)
    ax.set_axisbelow(True)
    return ax


def _reset(ax: Axes) -> None:
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


COLUMN: Final = 0.085
"""Inches of a column of a text of 9 points."""

_LONGEST: Final = 48
_READ: Final = 4_000  # characters that are looked at
_MARKS: Final = 2  # on one character: more would overlap the adjacent lines
_EM: Final = COLUMN * 72 / 9  # of a column
_PART: Final = re.compile(r"\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|.", re.DOTALL)


def drawable(value: object, *, longest: float = _LONGEST) -> str:
    r"""A text from data as it can be drawn in our font, on one line of at most so many columns.

    Long ones lose their middle, because URLs differ at both ends. Characters that the font does not have are
    written out. Draw it with ``parse_math=False`` (`as_written`), else ``$`` makes it maths.

    >>> drawable("https://example.com/" + "a" * 500 + "/pay", longest=24)
    'https://exa…aaaaaaa/pay'
    >>> drawable(chr(0x65E5) * 9, longest=20)
    '\\u65e5…\\u65e5\\u65e5'
    """
    written, marks = "", 0
    for character in str(value)[:_READ]:
        marks = marks + 1 if columns(character) == 0 else 0
        shown = visible(character)
        if shown == character and not character.isspace() and (marks > _MARKS or columns(character) is None):
            code = ord(character)
            shown = f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - the basic plane's end
        written += shown
    return _shortened(_parts(" ".join(written.split())), longest) or "(empty)"


def drawable_names(names: Sequence[object], *, longest: float = _LONGEST) -> list[str]:
    """Texts as `drawable` makes them; those that would look alike end with what distinguishes them.

    >>> drawable_names([f"flow-{n}-reconcile-the-ledger" for n in (1, 2)], longest=12)
    ['flow-1…', 'flow-2…']
    """
    texts = [drawable(name, longest=longest) for name in names]
    for text in sorted({text for text in texts if texts.count(text) > 1}):
        alike = [number for number, other in enumerate(texts) if other == text]
        whole = [_parts(drawable(names[number], longest=_READ)) for number in alike]
        shared = len(commonprefix([parts[::-1] for parts in whole]))  # noqa: RUF071 - of parts, not of paths
        for number, parts in zip(alike, whole, strict=True):
            left = parts[: len(parts) - shared] or parts
            size = _fitting([width(part) for part in left[::-1]], longest - 2 * width("…"))
            begin = "…" if size < len(left) else ""
            texts[number] = f"{begin}{''.join(left[len(left) - size :])}{'…' if shared else ''}"
    return texts


@cache
def columns(character: str) -> float | None:
    """How wide one character is drawn, at least 1 or else 0; None where the font does not have it."""
    font = get_font(findfont(FontProperties(family=FONT)))
    if not font.get_char_index(ord(character)):
        return None
    advance: float = font.load_char(ord(character), flags=LoadFlags.NO_SCALE).horiAdvance
    return max(1.0, advance / font.units_per_EM / _EM) if advance else 0.0


def width(text: str) -> float:
    """How wide a drawable text is, in columns."""
    return sum(columns(character) or 0.0 for character in text)


def wrapped(text: str, limit: float) -> list[str]:
    r"""A drawable text on lines of at most so many columns; long words are broken, but no character in them.

    >>> print(*wrapped(r"what the \u4e2d\u6587\u5b57 says", 13), sep=" / ")
    what the / \u4e2d\u6587 / \u5b57 says
    """
    lines = [""]
    for word in re.findall(r"[^ ]+", text):
        if width(f"{lines[-1]} {word}") <= limit:
            lines[-1] = f"{lines[-1]} {word}".lstrip()
            continue
        lines.append("")
        for part in _parts(word):
            if lines[-1] and width(lines[-1] + part) > limit:
                lines.append("")
            lines[-1] += part
    return [line for line in lines if line]


def _parts(text: str) -> list[str]:
    """The unbreakable parts: characters with their marks, and escapes."""
    parts: list[str] = []
    for part in _PART.findall(text):
        if parts and columns(part[0]) == 0:
            parts[-1] += part
        else:
            parts.append(part)
    return parts


def _shortened(parts: list[str], longest: float) -> str:
    widths = list(map(width, parts))
    if sum(widths) <= longest:
        return "".join(parts)
    limit = longest - width("…")
    head = _fitting(widths, limit / 2)
    tail = _fitting(widths[::-1], limit - sum(widths[:head]))
    head = _fitting(widths, limit - sum(widths[len(widths) - tail :]))
    return f"{''.join(parts[:head])}…{''.join(parts[len(parts) - tail :])}"


def _fitting(widths: Sequence[float], limit: float) -> int:
    """How many of the first parts fit."""
    return bisect_right(list(accumulate(widths)), limit)


def without_prefix(names: Sequence[str]) -> tuple[list[str], str]:
    """Addresses without their common prefix, up to a slash, and that prefix; others unchanged.

    >>> without_prefix(["https://a.example/flows/pay", "https://a.example/flows/ship", "other (3)"])
    (['pay', 'ship', 'other (3)'], 'https://a.example/flows/')
    """
    addresses = {name for name in names if "://" in name}
    if len(addresses) < 2:  # noqa: PLR2004 - one address alone stays whole
        return list(names), ""
    prefix = commonprefix(sorted(addresses))  # noqa: RUF071 - cut at a slash below
    prefix = prefix[: prefix.rfind("/") + 1]
    return [(name.removeprefix(prefix) or "/") if name in addresses else name for name in names], prefix


def as_written(texts: list[Text]) -> None:
    """Take texts literally: ``$`` is a dollar sign."""
    for text in texts:
        text.set_usetex(False)
        text.set_parse_math(False)

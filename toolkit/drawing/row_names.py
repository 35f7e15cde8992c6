"""Write names of rows and columns next to the data, shortened or broken as the room demands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, cast

from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter
from matplotlib.transforms import Bbox

from toolkit.drawing.axis import (
    LINE_HEIGHT,
    LOW,
    SHARE_OF_NAMES,
    WIDE,
    inches,
    inches_high,
    label_axis,
    limit,
    space_high,
)
from toolkit.drawing.drawable import (
    COLUMN,
    drawable,
    drawable_names,
    drawable_parts,
    fitted,
    width,
    wrapped,
)
from toolkit.drawing.shared_prefix import without_prefix
from toolkit.drawing.style import Theme, as_written
from toolkit.drawing.wording import fitting_numbers, short_number

NAMED_BAR: Final = 1.9
"""Lines of height of a bar and the name above it."""

_SHORTEST: Final = 8  # columns of a name at least
_NARROWEST: Final = 3  # columns of the name of a column of cells at least
_SHARE_OF_WIDE: Final = (
    0.5  # largest part of the width for names of rows, if the Axes are wide
)
_ROOMY: Final = 6.0  # inches of width above which Axes are wide


def rows_that_fit(ax: Axes, lines: float = 1.0) -> int:
    """Return how many rows of names fit, if each is `lines` lines high."""
    return max(2, int(space_high(ax) / LINE_HEIGHT / lines))


def name_rows(
    ax: Axes,
    positions: Sequence[float],
    names: Sequence[str],
    *,
    notes: Sequence[str] = (),
) -> str:
    """Name the rows on the vertical axis without their common prefix; return the prefix for the heading.

    A note follows each name. A name that is too long is broken between words if the row is high enough, and
    shortened otherwise.
    """
    names, prefix = without_prefix(names)
    endings = ["" for _ in names]
    if notes:
        endings = [f" {note}" for note in notes]
    share = _SHARE_OF_WIDE if inches(ax) > _ROOMY else SHARE_OF_NAMES
    # notes are never shortened, so names get the rest of the columns
    longest_ending = max(map(len, endings), default=0)
    longest = max(8, min(40, int(inches(ax) * share / COLUMN) - longest_ending))
    lines = int(space_high(ax) / LINE_HEIGHT / max(1, len(names)))

    labels = []
    for name, ending, shortened in zip(
        names, endings, drawable_names(names, longest=longest), strict=True
    ):
        whole_name = f"{drawable(name, longest=math.inf)}{ending}"
        labels.append(
            _broken(whole_name, longest + longest_ending, lines)
            or f"{shortened}{ending}"
        )

    ax.set_yticks(list(positions), labels)
    as_written(ax.get_yticklabels())
    ax.tick_params(axis="y", length=0)

    drawn_lines = "\n".join(labels).split("\n")
    if inches(ax) < WIDE and max(
        map(width, drawn_lines)
    ) * COLUMN > SHARE_OF_NAMES * inches(ax):
        # the names leave little room: the label and the title end at the right edge instead of being cut
        ax.xaxis.label.set(x=1.0, horizontalalignment="right")

    return prefix


def name_columns(ax: Axes, names: Sequence[str], totals: Sequence[int]) -> str:
    """Name columns without their common prefix, with totals below; return the prefix for the heading."""
    names, prefix = without_prefix(names)
    ax.set_xticks(range(len(names)))
    ax.xaxis.set_major_formatter(_Columns(ax, names, totals))
    as_written(ax.get_xticklabels())

    return prefix


class _Columns(FixedFormatter):
    """Labels of names and totals. They fit the width of a column, which is known only on drawing."""

    def __init__(self, ax: Axes, names: Sequence[str], totals: Sequence[int]) -> None:
        super().__init__([])
        self.ax, self.names, self.totals = ax, names, totals

    def format_ticks(self, values: list[float]) -> list[str]:
        """Return the labels of the ticks."""
        low, high = self.ax.get_xlim()
        space = int(inches(self.ax) / abs(high - low) / COLUMN)
        names = drawable_names(self.names, longest=max(_NARROWEST, space - 1))
        totals = fitting_numbers(self.totals, space)
        self.seq = [
            f"{name}\n{total}" for name, total in zip(names, totals, strict=True)
        ]

        return super().format_ticks(values)


def _broken(name: str, space: int, lines: int) -> str | None:
    """Break a name between words, into at most `lines` lines. Return None if it does not fit."""
    parts = wrapped(name, space)
    longest_word = max(map(width, name.split()), default=0)
    if len(parts) > lines or longest_word > space:
        return None

    return "\n".join(parts)


def name_above(
    ax: Axes,
    positions: Sequence[float],
    names: Sequence[str],
    theme: Theme,
    *,
    notes: Sequence[str] = (),
) -> None:
    """Name rows above their bars, over the whole width; notes follow the names and are never shortened."""
    ax.set_yticks([])
    notes = notes or ["" for _ in names]
    for position, name, note in zip(positions, names, notes, strict=True):
        look = {
            "va": "bottom",
            "color": theme.ink,
            "fontsize": 9,
            "parse_math": False,
            "clip_on": False,
        }
        # until it is drawn
        longest = max(_SHORTEST, inches(ax) / COLUMN - len(note) - 2)
        ax.add_artist(
            _Name(
                position,
                name,
                note,
                longest,
                transform=ax.get_yaxis_transform(),
                **look,
            )
        )


def name_bars(
    ax: Axes,
    names: Sequence[str],
    theme: Theme,
    notes: Sequence[str],
    *,
    longest: float | None = None,
) -> None:
    """Name horizontal bars from the top.

    `longest` is the length of the longest bar. If it is None, the horizontal axis has ticks and a grid.
    """
    name_above(
        ax, [number - 0.04 for number in range(len(names))], names, theme, notes=notes
    )
    # a single bar does not fill the Axes
    limit(ax.yaxis, max(len(names), 3) - 0.4, -0.5)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=False)

    if longest is None:
        ax.grid(
            visible=True,
            axis="x",
            color=theme.grid,
            linewidth=0.6,
            linestyle="-",
            alpha=1.0,
        )
        return

    ax.spines["bottom"].set_visible(False)
    limit(ax.xaxis, 0, longest)
    ax.set_xticks([])


class _Name(Text):
    """A name and a note that fit the width of the Axes, which is known only on drawing."""

    def __init__(
        self, position: float, name: str, note: str, longest: float, **look: Any
    ) -> None:
        self.name, self.note = name, note
        super().__init__(0, position, self._within(longest), **look)

    def _within(self, columns: float) -> str:
        return self._with_note(drawable_parts(self.name), columns)

    def _with_note(self, parts: list[str], columns: float) -> str:
        return f"{fitted(parts, columns)}  {self.note}".rstrip()

    def get_tightbbox(self, renderer: Any = None) -> Bbox:
        """Return a box no wider than the Axes, because a layout computes their width from it."""
        box = self.get_window_extent(renderer)
        right = cast("Axes", self.axes).get_window_extent(renderer).x1
        return Bbox.from_extents(box.x0, box.y0, min(box.x1, right), box.y1)

    def draw(self, renderer: Any, *args: Any, **kwargs: Any) -> None:
        """Draw as much of the name as fits."""
        parts = drawable_parts(self.name)
        whole = fitted(parts, math.inf)
        low, high = _SHORTEST, max(_SHORTEST, math.ceil(width(whole)))
        right = cast("Axes", self.axes).get_window_extent(renderer).x1
        columns = high  # most names fit as they are

        while low < high:  # binary search for the most columns that fit
            self.set_text(self._with_note(parts, columns))
            if self.get_window_extent(renderer).x1 <= right:
                low = columns
            else:
                high = columns - 1

            columns = (low + high + 1) // 2

        self.set_text(self._with_note(parts, low))
        super().draw(renderer, *args, **kwargs)


def name_tops(
    ax: Axes,
    unit: str,
    theme: Theme,
    positions: Sequence[float],
    tops: Sequence[float],
    *,
    high: float = 0.85,
) -> None:
    """Write the count that the full height of each row stands for at the right edge.

    Rows of bars have their own scales; `unit` is, for example, "failures".
    """
    label = f"{unit}: the scale is at the right"
    if len(tops) > 1:
        label = f"{unit}: each row has its own scale"
    if inches_high(ax) < LOW:
        label = "own scale each"
    label_axis(ax.yaxis, label, theme)
    ax.grid(visible=False)
    ax.spines[["left", "bottom"]].set_visible(False)
    limit(ax.yaxis, -len(tops) + 0.9, 1)

    for position, top in zip(positions, tops, strict=True):
        ax.axhline(position, color=theme.grid, linewidth=0.6, zorder=0.5)
        ax.annotate(
            short_number(round(top)), xy=(1, position + high), xytext=(4, 0),
            xycoords=("axes fraction", "data"), textcoords="offset points", va="top", color=theme.muted,
            fontsize=9, annotation_clip=False,
        )  # fmt: skip

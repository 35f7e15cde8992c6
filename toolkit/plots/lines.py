"""Lines that are named where they end, rather than in a legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from toolkit.plots.axis import inches, inches_high
from toolkit.plots.style import Theme
from toolkit.plots.texts import COLUMN, drawable

DASHES: Final = (
    "-", (0, (3.7, 1.6)), (0, (6.4, 1.6, 1, 1.6)), (0, (1, 1.65)),
    (0, (6, 1)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (4, 1, 1, 1, 1, 1)), (0, (1, 3)),
)  # fmt: skip
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", ".")
"""The second signs, beside colour: one a line, in order."""

_LABEL: Final = 0.16  # inches from one label to the next


def name_lines(ax: Axes, ends: Sequence[float], names: Sequence[str], theme: Theme) -> None:
    """Write each line's name at the right edge, at the height where the line ends, none over another.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Its limits are final.
    ends : sequence of float
        Height of each line's end.
    names : sequence of str
    theme : Theme
    """
    longest = max(12, min(32, int(inches(ax) * 0.34 / COLUMN)))
    low, high = ax.get_ylim()
    gap = _LABEL / max(inches_high(ax), _LABEL) * (high - low)
    for number, place in enumerate(_spread(np.asarray(ends, dtype=np.float64), gap, low, high)):
        ax.annotate(
            drawable(names[number], longest=longest), xy=(1, place), xycoords=("axes fraction", "data"),
            xytext=(6, 0), textcoords="offset points", va="center", fontsize=9, annotation_clip=False,
            color=theme.ink, parse_math=False,
        )  # fmt: skip
        sign = min(number, len(theme.series) - 1)
        ax.plot(
            [1.0], [ends[number]], marker=MARKERS[sign], color=theme.series[sign], markersize=5,
            clip_on=False, transform=ax.get_yaxis_transform(),
        )  # fmt: skip


def _spread(ends: NDArray[np.float64], gap: float, low: float, high: float) -> NDArray[np.float64]:
    """The places moved apart as little as is needed, in their order, within the limits where they fit."""
    order = np.argsort(ends, kind="stable")
    places = ends[order].copy()
    for number in range(1, len(places)):
        places[number] = max(places[number], places[number - 1] + gap)
    if len(places) and places[-1] > high:
        places[-1] = high
        for number in range(len(places) - 2, -1, -1):
            places[number] = min(places[number], places[number + 1] - gap)
    moved = np.empty_like(places)
    moved[order] = np.maximum(places, low - gap * len(places))
    return moved

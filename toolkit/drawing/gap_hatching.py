"""Hatch the times for which a snapshot may lack failures, in trends and calendars."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from toolkit.drawing.style import Theme

GAP: Final = "gap"
"""The id of hatched areas, in SVG and of their artists."""

GAP_NOTE: Final = "hatched: failures that expired before they were read are missing"

_UNDER_BARS: Final = 0.5
_OVER_CELLS: Final = 1.5  # and under the numbers in the cells


def hatch_spans(ax: Axes, theme: Theme, spans: Iterable[tuple[float, float]]) -> None:
    """Hatch spans of the horizontal axis over the whole height of the Axes; parts off the axis are cut."""
    low, high = ax.get_xlim()
    for first, last in spans:
        start, end = max(first, low), min(last, high)
        if start < end:
            ax.axvspan(start, end, zorder=_UNDER_BARS, **_look(theme))


def hatch_cells(ax: Axes, theme: Theme, cells: NDArray[np.bool_]) -> None:
    """Hatch cells of a matrix that is drawn with the first row at the top, each one unit high and wide."""
    if not cells.any():
        return

    corners = np.array(
        [[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5]]
    )
    squares = [corners + np.array([column, row]) for row, column in np.argwhere(cells)]
    square_codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    codes = np.tile(square_codes, len(squares))
    # one artist: hatching many cells one by one is slow
    ax.add_patch(
        PathPatch(
            Path(np.concatenate(squares), codes), zorder=_OVER_CELLS, **_look(theme)
        )
    )


def _look(theme: Theme) -> dict[str, Any]:
    return {
        "facecolor": "none", "edgecolor": theme.ink, "hatch": "////", "linewidth": 0, "alpha": 0.35,
        "gid": GAP,
    }  # fmt: skip

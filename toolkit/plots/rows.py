"""Named rows with a bar and a number each."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from toolkit.analysis.wording import percent
from toolkit.plots.axis import name_rows
from toolkit.plots.style import HATCHES, Theme


def draw_rows(
    ax: Axes, names: Sequence[str], counts: Sequence[int], theme: Theme, *, signs: Sequence[int] | None = None
) -> None:
    """Draw a horizontal bar a row, the first at the top, its count and share written behind it.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Prepared.
    names : sequence of str
    counts : sequence of int
    theme : Theme
    signs : sequence of int, optional
        Which of the theme's colours and hatches each row has. Default: the first for all.
    """
    total = max(sum(counts), 1)
    most = max(counts, default=1)
    for number, count in enumerate(counts):
        sign = signs[number] if signs else 0
        ax.barh(
            number, count, height=0.7, color=theme.series[sign], hatch=HATCHES[sign], edgecolor=theme.paper,
            linewidth=0,
        )  # fmt: skip
        ax.annotate(
            f"{count:,}  ({percent(count / total)})", xy=(count, number), xytext=(4, 0),
            textcoords="offset points", va="center", color=theme.ink, fontsize=9,
        )  # fmt: skip
    name_rows(ax, range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(0, most * 1.35)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)
    ax.grid(visible=False)

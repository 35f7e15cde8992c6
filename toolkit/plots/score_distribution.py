"""How the scores of query results are spread."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from narwhals.typing import IntoFrame

from toolkit.analysis.scores import ScoreBins, score_bins
from toolkit.analysis.wording import counted, short_number
from toolkit.plots.style import HATCHES, Theme, ThemeName, fixed_settings, prepare, theme_named
from toolkit.plots.texts import as_written, drawable, say


def plot_score_distribution(
    hits: IntoFrame,
    *,
    by: str | None = "query",
    bins: int = 20,
    top: int = 8,
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw histograms of scores, one row a query on a common score axis.

    Not for comparing scores of different indexes or query modes: only the order of scores of one kind means
    anything.

    Parameters
    ----------
    hits : frame
        With the columns `score` and `by`.
    by : str or None
        Column of single values to tell apart; None draws all hits as one histogram.
    bins : int
        How many bars, 1 to 1,000, on the same edges for every group.
    top : int
        How many groups to tell apart, 1 to 8; the rest is one group.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: a new figure of pyplot's.
    theme : {"light", "dark"}

    Returns
    -------
    matplotlib.axes.Axes
        With a sentence instead of bars where there is no finite score, or only one.

    Raises
    ------
    InputError
        When a column is missing or an option is out of bounds.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"query": [0, 0, 0], "score": [0.9, 0.8, 0.2]})
    >>> ax = plot_score_distribution(frame, bins=2, ax=Figure().add_subplot())
    >>> [int(bar.get_height()) for bar in ax.patches]
    [1, 2]
    """
    colours = theme_named(theme)
    found = score_bins(hits, by=by, bins=bins, top=min(top, len(colours.series) - 1))
    with fixed_settings():
        ax = prepare(ax, colours)
        if found.total <= 1:
            return say(ax, _sentence(found), colours)
        label = "score (higher is nearer)"
        if found.left_out:
            label += f"\n{counted(found.left_out, 'hit')} without a finite score left out"
        ax.set_xlabel(label, color=colours.muted, fontsize=9)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6))
        if len(found.groups) == 1:
            _histogram(found, ax, colours)
        else:
            _rows(found, ax, colours, by or "")
        return ax


def _sentence(found: ScoreBins) -> str:
    left_out = f" ({counted(found.left_out, 'hit')} without a finite score)" if found.left_out else ""
    if not found.total:
        return f"No hits{left_out}"
    return f"1 hit, score {(found.edges[0] + found.edges[-1]) / 2:g}{left_out}"


def _bars(
    found: ScoreBins, number: int, ax: Axes, theme: Theme, *, height: float = 1.0, bottom: float = 0.0
) -> None:
    last = len(theme.series) - 1
    sign = last if found.merged and number == len(found.groups) - 1 else number
    widths = found.edges[1:] - found.edges[:-1]
    ax.bar(
        found.edges[:-1], found.counts[number] * height, width=widths * 0.94, bottom=bottom, align="edge",
        color=theme.series[sign], hatch=HATCHES[sign], edgecolor=theme.paper, linewidth=0,
    )  # fmt: skip


def _histogram(found: ScoreBins, ax: Axes, theme: Theme) -> None:
    _bars(found, 0, ax, theme)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    ax.set_ylabel("hits", color=theme.muted, fontsize=9)


def _rows(found: ScoreBins, ax: Axes, theme: Theme, by: str) -> None:
    tallest = int(found.counts.max())
    names = []
    for number, name in enumerate(found.groups):
        _bars(found, number, ax, theme, height=0.85 / tallest, bottom=-number)
        total = short_number(int(found.counts[number].sum()))
        names.append(f"{drawable(name, longest=24)} ({total})")
    ax.set_yticks([-number for number in range(len(names))], names)
    as_written(ax.get_yticklabels())
    ax.set_ylim(-len(names) + 0.9, 1)
    ax.set_ylabel(
        f"{drawable(by, longest=24)} (hits)\ntallest bar: {counted(tallest, 'hit')}",
        color=theme.muted,
        fontsize=9,
        parse_math=False,
    )
